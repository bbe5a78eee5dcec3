"""Adding to the memory stores: what may go in, and what takes the place of what (HALT-10, 4).

Job: validate what is to be added, look for near duplicates under the lock of the write, and point
out wording that ages badly. Invariants: nothing is added that says what is there already (W3), or
how far a task has come (MB-1); an entry is superseded and never edited; every answer is JSON-like
data.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from perdure.core.codec import timestamp
from perdure.core.lookup import near
from perdure.core.memory import (
    RECHECK,
    STABLE,
    Entry,
    evidence_refs_max,
    flags_of,
    scopes_meet,
    store_of_scope,
)
from perdure.core.memory_drafts import (
    check_head,
    checked_kind,
    checked_scope,
    checked_statement,
    freshness_of,
    short_line,
)
from perdure.core.memory_phrasing import imperative, progress, state_of_own
from perdure.core.model import State
from perdure.core.secrets import Masker
from perdure.errors import NotFoundError, RefusedError, UsageError
from perdure.memory.near import near_entries, near_shown_max
from perdure.memory.store import Added, Shelf, Store
from perdure.runtime.engine import Engine
from perdure.runtime.eventlog import EventLog
from perdure.runtime.masking import check_op, masker_for, masker_of
from perdure.service.memory_reading import MemoryReading

Data = dict[str, Any]

_EVENT: Final = re.compile(r"J-(\d+)\Z")


class Memory(MemoryReading):
    """Both stores, to be read and added to."""

    def add(
        self,
        statement: str,
        *,
        kind: str,
        scope: str = "",
        evidence: Sequence[str] = (),
        recheck_after: str = "",
        distinct: str = "",
        store: str = "",
        proposal: str = "",
        op: str = "",
    ) -> Data:
        """Add an entry. Durable on return, with its index.

        Refused: near duplicates without ``distinct`` (ME-4), progress of the task at hand (MB-1).
        Wording that reads like an order is pointed out (ME-2). Raises UsageError for what no entry
        can be, CorruptError where the store is damaged.
        """
        proposed = ""
        if proposal:
            known = self._proposal(proposal)
            proposed = f"{self._task_id()}/{known['id']}"
            statement, kind = statement or str(known["statement"]), str(known["kind"])
            scope, evidence = scope or str(known["scope"]), [*evidence, *known["evidence"]]
        scope = checked_scope(scope or self.default_scope)
        draft = self._draft(
            statement,
            kind=kind,
            scope=scope,
            evidence=evidence,
            recheck_after=recheck_after,
            distinct=distinct,
        )
        chosen = self._chosen(store or store_of_scope(scope))
        others = [shelf for shelf in self._shelves() if shelf.name != chosen.name]

        def make(shelf: Shelf, name: str) -> Entry:
            if not distinct:
                self._check_new(draft["statement"], scope, [shelf, *others], besides=())
            return Entry(id=name, proposal=proposed, op=op, **draft)

        return self._put(chosen, make, op)

    def supersede(
        self,
        ids: Sequence[str],
        statement: str = "",
        *,
        kind: str = "",
        scope: str = "",
        evidence: Sequence[str] = (),
        recheck_after: str = "",
        stable: bool = False,
        distinct: str = "",
        op: str = "",
    ) -> Data:
        """Put an entry in the place of one or several that count; those stay, and point to it.

        Without a statement it is the same one, re-checked: then evidence or a date has to be new.
        A new statement takes over neither: what proved the old one does not prove it (ME-3).
        """
        found = [self._found(name) for name in ids]
        names = {shelf.name for shelf, _ in found}
        if len(names) > 1:
            raise UsageError(
                "entries of two stores cannot be superseded by one entry.",
                code="two_stores",
                rule="ME-1",
                fix="Supersede those of each store by an entry there.",
            )
        chosen = self._chosen(names.pop())
        old = [entry for _, entry in found]
        first = old[0]
        again = not statement.strip()
        if again and not (evidence or recheck_after or stable):
            raise UsageError(
                f"nothing about {first.id} would be different.",
                code="nothing_new",
                rule="ME-1",
                fix="Give the new statement; or, re-checked, --evidence REF or"
                " --recheck-after DATE.",
            )
        if again and not (recheck_after or stable) and "due" in flags_of(first, self._today):
            raise UsageError(
                f"{first.id} is due, and would stay so.",
                code="still_due",
                rule="ME-1",
                fix="Give the next date, --recheck-after DATE; or --stable when there is none.",
            )
        kept = first.freshness.removeprefix(RECHECK) if again and not stable else ""
        draft = self._draft(
            first.statement if again else statement,
            kind=kind or first.kind,
            scope=scope or first.scope,
            evidence=evidence or (first.evidence_refs if again else ()),
            recheck_after=recheck_after or ("" if kept == STABLE else kept),
            distinct=distinct,
            said_before=again,
        )

        def make(shelf: Shelf, name: str) -> Entry:
            for entry in old:
                check_head(shelf.chains, entry.id)
            others = [one for one in self._shelves() if one.name != shelf.name]
            over = tuple(entry.id for entry in old)
            if not again and not distinct:
                besides = tuple(f"{shelf.name}:{name}" for name in over)
                self._check_new(
                    draft["statement"], draft["scope"], [shelf, *others], besides=besides
                )
            return Entry(id=name, supersedes=over, op=op, **draft)

        return self._put(chosen, make, op)

    def _draft(
        self,
        statement: str,
        *,
        kind: str,
        scope: str,
        evidence: Iterable[str],
        recheck_after: str,
        distinct: str = "",
        said_before: bool = False,
    ) -> dict[str, Any]:
        """The fields of an entry, validated and with secrets masked."""
        text = checked_statement(statement)
        if not said_before:
            self._check_no_progress(text)
        fields: dict[str, Any] = {
            "statement": text,
            "kind": checked_kind(kind),
            "scope": checked_scope(scope),
            "evidence_refs": self._evidence(evidence),
            "created": timestamp(self._world.clock.now()),
            "freshness": freshness_of(recheck_after),
            "by": self._place.actor,
            "distinct": short_line(distinct, "reason"),
        }
        clean, counts = self._masker().mask_value(fields)
        return {**clean, "masked": counts}

    def _put(self, chosen: Store, make: Callable[[Shelf, str], Entry], op: str) -> Data:
        check_op(self._masker(), op)
        return self._answer(chosen.add(make, op=op))

    def _masker(self) -> Masker:
        """What is a secret to the task at hand, or without one to this process."""
        try:
            return masker_of(self._engine())
        except NotFoundError:
            return masker_for(self._place.environ)

    def _evidence(self, given: Iterable[str]) -> tuple[str, ...]:
        """References; one to an event of this workspace is made one that others can follow."""
        refs = [
            short_line(self._qualified(ref), "reference")
            for ref in dict.fromkeys(one.strip() for one in given)
        ]
        if len(refs) > evidence_refs_max:
            raise UsageError(
                f"an entry cites at most {evidence_refs_max} things, this {len(refs)}.",
                code="too_many",
                rule="ME-3",
                fix="Cite the few that prove it.",
            )
        return tuple(ref for ref in refs if ref)

    def _qualified(self, ref: str) -> str:
        event = _EVENT.match(ref)
        if event is None:
            return ref
        state = self._state()
        if not 1 <= int(event[1]) <= state.seq:
            raise NotFoundError(
                f"there is no event {ref} in {state.task_id}; the last is J-{state.seq}.",
                code="unknown_event",
                rule="ME-3",
                fix="`perdure log` lists the last ones.",
            )
        return f"{state.task_id}#{ref}"

    def _check_no_progress(self, statement: str) -> None:
        try:
            state = self._state()
        except NotFoundError:
            return
        words = state_of_own(statement, {state.task_id, *state.nodes})
        if words:
            raise RefusedError(
                f"{words!r} is progress of task {state.task_id}, which is in its journal.",
                code="progress_in_memory",
                rule="MB-1",
                fix="Say what others can rely on once this task is over.",
            )

    def _check_new(
        self, statement: str, scope: str, shelves: Sequence[Shelf], *, besides: tuple[str, ...]
    ) -> None:
        """Raise RefusedError when an entry that counts says nearly the same (W3)."""
        heads = {
            f"{shelf.name}:{entry.id}": entry
            for shelf in shelves
            for entry in shelf.chains.heads
            if scopes_meet(entry.scope, scope) and f"{shelf.name}:{entry.id}" not in besides
        }
        found = near_entries(statement, list(heads.values()))
        if not found:
            return
        names = {id(entry): name for name, entry in heads.items()}
        told = "; ".join(
            f"{names[id(one.entry)]} ({one.percent:g} %): {one.entry.statement[:120]}"
            for one in found[:near_shown_max]
        )
        raise RefusedError(
            f"this is said already, or nearly: {told}.",
            code="near_duplicate",
            rule="ME-4",
            fix=f"Supersede it: perdure memory supersede {names[id(found[0].entry)]} TEXT. If it"
            " says something else: --distinct WHY.",
        )

    def _answer(self, added: Added) -> Data:
        entry, shelf = added.entry, added.shelf
        warnings = []
        order, part = imperative(entry.statement), progress(entry.statement)
        if order:
            warnings.append(f"{order!r} reads like an order: a fact stays true longer (ME-2)")
        if part:
            warnings.append(f"{part!r} reads like progress, which belongs to a task (MB-1)")
        if entry.is_draft:
            warnings.append("it cites nothing, so it is a draft: --evidence REF (ME-3)")
        data = {
            "committed": f"{shelf.name}:{entry.id}",
            "entry": self._view(shelf, entry),
            "warnings": warnings,
            "notices": list(added.notices),
            "directory": shelf.directory,
        }
        if entry.masked:
            data["masked"] = dict(entry.masked)
        return data | ({"repeated": True} if added.repeated else {})

    def proposals(self) -> Data:
        """What the archive of the task at hand has proposed, each with the call that adds it."""
        state = self._state()
        known = {entry.proposal for shelf in self._shelves() for entry in shelf.reading.entries}
        listed = []
        for one in self._proposed(state):
            name = str(one.get("id"))
            taken = f"{state.task_id}/{name}" in known
            listed.append({**one, "added": taken, "then": f"perdure memory add --proposal {name}"})
        return {"task_id": state.task_id, "ref": state.closing.proposals, "proposals": listed}

    def _proposal(self, name: str) -> Data:
        state = self._state()
        known = {str(one.get("id")): one for one in self._proposed(state)}
        if name.upper() not in known:
            raise NotFoundError(
                f"task {state.task_id} has proposed no {name!r}.",
                code="unknown_proposal",
                rule="MB-2",
                fix="`perdure memory proposals` lists them.",
                suggestions=near(name, known),
            )
        return known[name.upper()]

    def _proposed(self, state: State) -> list[Data]:
        ref = state.closing.proposals
        if not ref:
            raise NotFoundError(
                f"task {state.task_id} has proposed nothing: it is not archived.",
                code="no_proposals",
                rule="MB-2",
                fix="Archive it first: perdure archive",
            )
        engine = self._engine()
        event = EventLog(engine.disk, engine.layout.journal, state.seq)[int(ref[2:]) - 1]
        found = event.payload.get("proposals")
        return [dict(one) for one in found] if isinstance(found, list) else []

    def _chosen(self, name: str) -> Store:
        if name not in self._stores:
            raise UsageError(
                f"there is no store {name!r}.",
                code="unknown_store",
                rule="ME-1",
                fix="Use project or user.",
                suggestions=near(name, self._stores),
            )
        return self._stores[name]

    def _engine(self) -> Engine:
        if self._place.workspace is None:
            raise NotFoundError(
                "there is no task here to look into.",
                code="no_workspace",
                rule="ME-3",
                fix="Name its workspace with -C, or cite TASK#J-n whole.",
            )
        engine = Engine(self._place.workspace, self._world, self._place.actor)
        engine.load()
        return engine

    def _state(self) -> State:
        return self._engine().replica.state

    def _task_id(self) -> str:
        return self._state().task_id
