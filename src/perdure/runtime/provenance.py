"""The way back from a result, from the journal as it is.

Job: one pass over the journal for edges and facts, another for events that are asked about or cited
and decide nothing; a look at the disk for what comes up, and into the instances that results came
from. Invariants: it only reads, and takes no lock; memory grows with what was decided, not with the
journal.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from perdure.core.codec import Scan
from perdure.core.fold import Replica
from perdure.core.instance import INSTANCES
from perdure.core.late import LateModule
from perdure.core.lookup import complete, near
from perdure.core.provenance import (
    GOAL,
    Provenance,
    any_fact,
    said_chars_max,
    said_in_full_max,
)
from perdure.core.provenance_walk import Around, Sizes, Step, Walk, depth_default, sizes_of
from perdure.errors import CorruptError, HaltError, NotFoundError, PathError, StorageError
from perdure.runtime.engine import Engine
from perdure.runtime.eventlog import EventLog
from perdure.runtime.integrity import judge_artifact
from perdure.runtime.reader import Reader
from perdure.storage.workspace import resolve_inside

_docs: Final = LateModule("perdure.runtime.docs")
_instances: Final = LateModule("perdure.runtime.instance_files")


def why(
    reader: Reader, typed: str, *, depth: int = depth_default, view: str = "summary"
) -> dict[str, Any]:
    """The tree below an artifact, a node, an event (``J-n``), a decision, a question, a gate, an
    instruction, a work order or ``goal``, by id, path or unique beginning; ``reader`` is loaded.

    ``view`` is ``summary`` or ``full``. Raises NotFoundError with near misses for what nothing in
    the journal is called, CorruptError where the journal cannot be read from its beginning.
    """
    told = _Told(reader, sizes_of(view, depth))
    name = told.named(typed)
    told.fill_in(name)
    state = told.replica.state
    return {"task_id": state.task_id, "seq": state.seq, "why": told.walk().back_from(name)}


class _Told:
    """One journal, read for one answer; ``prefix`` stands before the ids of an instance."""

    def __init__(self, reader: Reader, sizes: Sizes, prefix: str = "") -> None:
        self._reader = reader
        self._sizes = sizes
        self._prefix = prefix
        self._stale: dict[str, str] | None = None
        self._said_max = said_in_full_max if sizes.every_event else said_chars_max
        self.replica = Replica()
        self.index = Provenance(self._said_max)
        self._read()

    def _read(self) -> None:
        """Take in what the reader has loaded, however the journal grows meanwhile."""
        reader, scan = self._reader, Scan()
        last = reader.replica.state.seq
        for events in scan.commits(reader.disk.read_chunks(reader.layout.journal)):
            for event in events:
                self.replica.apply(event)
                self.index.see(event, self.replica)
            if scan.tip.seq >= last:
                return
        if scan.damage is not None and scan.tip.seq < last:  # before what a snapshot stands for
            where = f"line {scan.damage.line}, byte {scan.damage.byte}: {scan.damage.reason}"
            raise CorruptError(
                f"the journal is damaged at {where}, so that no way back can be believed.",
                code="journal_corrupt",
                rule="J-2",
                fix="`perdure doctor` says what can be done.",
            )

    def named(self, typed: str) -> str:
        """What ``typed`` is called in the journal."""
        state, index = self.replica.state, self.index
        if typed.startswith("J-") and typed[2:].isdecimal():
            if 1 <= int(typed[2:]) <= state.seq:
                return f"J-{int(typed[2:])}"
            raise NotFoundError(
                f"there is no event {typed}; the last is J-{state.seq}.",
                code="unknown_event",
                fix="`perdure log` lists the last ones.",
            )
        paths = {artifact.path: name for name, artifact in state.artifacts.items()}
        for names in (paths, index.gates):
            if typed in names and typed not in state.nodes:
                return names[typed]
        if typed == GOAL and GOAL not in state.nodes:
            return GOAL if index.about.get(GOAL) else "J-1"
        known = [*state.nodes, *state.artifacts, *state.docs, *index.about, *self._outside()]
        return complete(typed, list(dict.fromkeys(filter(None, known))), "result")

    def _outside(self) -> Iterator[str]:
        """What edges speak of besides: receipts, contracts, entries of the memory store."""
        for edges in self.index.edges_from.values():
            for edge in edges:
                yield edge.source
                yield edge.target

    def fill_in(self, name: str) -> None:
        """Facts of events that are asked about, or cited as evidence, and decide nothing."""
        facts = self.index.facts
        wanted = {name, *(ref for fact in facts.values() for ref in fact.evidence)}
        wanted |= {edge.source for edges in self.index.edges_to.values() for edge in edges}
        missing = {int(ref[2:]) for ref in wanted if ref.startswith("J-") and ref[2:].isdecimal()}
        missing -= {int(ref[2:]) for ref in facts}
        if not missing:
            return
        for event in EventLog(self._reader.disk, self._reader.layout.journal, max(missing)):
            if event.seq in missing:
                self.index.add(any_fact(event, self._said_max))

    def walk(self) -> Walk:
        """A walk that looks at the disk and into instances."""
        around = Around(self._wrong, self._below, self._prefix)
        return Walk(self.replica.state, self.index, self._sizes, around)

    def _wrong(self, name: str) -> str:
        """What is the matter on disk with an artifact or a noted document."""
        reader, state = self._reader, self.replica.state
        if name in state.docs:
            if self._stale is None:
                self._stale = _docs.stale_docs(reader)
            return self._stale.get(name, "") if not state.docs[name].stale else ""
        artifact = state.artifacts[name]
        if artifact.status == "quarantined":
            return ""
        found = judge_artifact(reader, artifact, quick=True)
        return "" if found.holds else found.text.removeprefix("FAIL: ")

    def _below(self, instance: str, depth: int) -> list[Step]:
        """The trees of an instance's outputs, from its own journal; none where that has nothing to
        say any more."""
        root = self._reader.layout.root
        directory: str = _instances.directory_of(root, instance)
        child = Engine(directory, self._reader.world, self._reader.actor)
        try:
            child.load()
            result = _instances.read_result(child.disk, directory)
            told = _Told(child, self._sizes._replace(depth=depth), f"{instance}#")
            told.fill_in("")
        except HaltError as error:
            return [_unreadable(instance, error)]
        made = [listed.artifact_id for listed in result.artifacts] if result is not None else []
        names = [name for name in made if name in told.replica.state.artifacts] or ["J-1"]
        walk = told.walk()
        return [walk.back_from(name) for name in names[: self._sizes.siblings]]


def _unreadable(instance: str, error: HaltError) -> Step:
    return {
        "ref": f"instances/{instance}", "edge": "", "drawn": "", "what": "", "actor": "", "at": "",
        "said": "", "by": "", "marks": [f"cannot be read: {error.message}"], "children": [],
        "more": "",
    }  # fmt: skip


def check_cited(reader: Reader, refs: Iterable[str]) -> None:
    """Raise NotFoundError for a decision, a work order or an instance that there is not.

    These are what a state does not list. Costs a pass over the journal for a decision, a look at
    the disk for the others, and nothing without any.
    """
    given = list(refs)
    decisions = {ref for ref in given if ref.startswith("DR-")}
    if decisions:
        made = set[str]()
        for events in Scan().commits(reader.disk.read_chunks(reader.layout.journal)):
            made |= {str(e.payload.get("id")) for e in events if e.kind == "DECISION"}
        for ref in sorted(decisions - made):
            raise _uncited(ref, near(ref, made))
    for ref in given:
        if ref.startswith(("contracts/", f"{INSTANCES}/")) and not _is_there(reader, ref):
            raise _uncited(ref, [])


def _is_there(reader: Reader, path: str) -> bool:
    try:
        return reader.disk.stat(resolve_inside(reader.disk, reader.layout.root, path)) is not None
    except (PathError, StorageError):
        return False


def _uncited(ref: str, suggestions: list[str]) -> NotFoundError:
    return NotFoundError(
        f"there is no {ref!r} that a decision could speak of.",
        code="unknown_ref",
        rule="IN-2",
        fix="Name a node, an artifact, a decision, or an event such as J-42.",
        suggestions=suggestions,
    )
