"""The audit of a whole task: one pass over the journal, one look at everything it speaks of.

Job: let every item of the checklist see every event, gather what the disk says, and make the
record. Invariants: it only reads, and takes no lock; no snapshot and no projection is believed;
memory holds the state and what the items remember, not the history; damage ends the pass where it
is, is told, and does not keep the rest from being audited.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from perdure.core.audit_results import essence
from perdure.core.audit_truth import issued
from perdure.core.codec import ChainTip, Scan, timestamp
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.model import Artifact, contract_bytes_max
from perdure.core.projection import AsOf, read_as_of
from perdure.core.task_audit import AuditRecord, DiskFacts, Item, ItemFactory, Seen
from perdure.core.task_audit_items import ITEMS
from perdure.core.task_audit_record import make_record
from perdure.core.tiers import is_mirrored
from perdure.errors import HaltError, NotFoundError, PathError, StorageError
from perdure.runtime.integrity import judge_artifact
from perdure.runtime.reader import Reader
from perdure.storage.journal import Journal, absent
from perdure.storage.mirror import mirror_facts
from perdure.storage.projections import VIEW_NAMES, committed_offset, projection_bytes, sealed_view
from perdure.storage.workspace import is_workspace, resolve_inside

looks_max: Final = 3
"""Passes of one audit, where commits come in between."""


class Extras(NamedTuple):
    """What others have to look up, because it belongs to layers above this one."""

    ledger: Callable[[str], dict[str, Any]] | None = None
    """Of the scope of a batch node: ``done``, ``failed``, ``repeated``, ``problem``; empty where no
    unit has been worked on."""
    instance: Callable[[str], dict[str, Any] | None] | None = None
    """Of a nested task, by its invocation: ``fsm_task``, ``terminal``, ``result``; None where it is
    not there."""
    memory: dict[str, Any] | None = None


class Audited(NamedTuple):
    """What an audit came to."""

    record: AuditRecord
    damage: str
    """Where the journal ends being whole, and why; nothing behind it could be audited."""


def audit_task(
    reader: Reader,
    *,
    items: Sequence[ItemFactory] = ITEMS,
    upto: int | None = None,
    extras: Extras = Extras(),  # noqa: B008
) -> Audited:
    """Audit the task of a workspace; ``reader`` need not be loaded and is not changed.

    ``upto`` audits the prefix that ends there, with the files as they are today. Raises
    NotFoundError where there is no workspace, or no commit that ends at ``upto``.
    """
    if not is_workspace(reader.disk, reader.layout.root):
        raise absent(reader.disk, reader.layout)
    made, run = _looked_at(reader, items, upto, extras)
    record = make_record(
        made,
        run.replica,
        run.facts,
        run.tip,
        audited_at=timestamp(reader.world.clock.now()),
        auditor=reader.actor,
    )
    return Audited(record, run.facts.damage)


def _looked_at(
    reader: Reader, items: Sequence[ItemFactory], upto: int | None, extras: Extras
) -> "tuple[list[Item], _Pass]":
    """One pass and one look, which belong together.

    Without a lock somebody may commit in between, so that a file is not any more what the journal
    had said of it when it was read. Where something does not hold and the journal has gone on,
    both are done again.
    """
    for again in range(looks_max):
        made = [factory() for factory in items]
        run = _Pass(reader, made, upto)
        run.go()
        _look(reader, run, run.facts, extras)
        if upto is not None or again == looks_max - 1 or not run.is_outrun():
            break
    return made, run


class _Pass:
    """One replay, shown to every item."""

    def __init__(self, reader: Reader, items: Sequence[Item], upto: int | None) -> None:
        self.reader = reader
        self.replica = Replica()
        self.facts = DiskFacts()
        self.contracts: dict[str, None] = {}
        self.tip: ChainTip = Scan().tip
        self.read_bytes = 0
        """Size of the journal when it was read, with what is not committed yet."""
        self._upto = upto
        self._seeing = [item for item in items if type(item).see is not Item.see]
        self._due: dict[int, list[tuple[str, bytes, AsOf]]] = {}
        self._names = {name: _relative(reader, name) for name in VIEW_NAMES}

    def go(self) -> None:
        """Replay up to the end, the damage, or the event that was asked for."""
        self._expect_projections()
        reader, scan = self.reader, Scan()
        path = reader.layout.journal
        stat = reader.disk.stat(path)
        self.read_bytes = stat.size_bytes if stat is not None else 0
        try:
            for events in scan.commits(reader.disk.read_chunks(path)):
                self._take(events)
                self.tip = scan.tip
                self._compare()
                if self._upto is not None and scan.tip.seq >= self._upto:
                    break
        except StorageError as error:
            self.facts.damage = error.message
        if scan.damage is not None:
            self._judge(scan)
        elif self._upto is None:
            self._check_end()
        if self._upto is not None or self.facts.damage:
            self._set_later_ones_aside()
        self.replica.state.unchained = self.facts.unchained = scan.unchained
        if self._upto is not None and self.tip.seq != self._upto and not self.facts.damage:
            raise NotFoundError(
                f"no commit of this journal ends at J-{self._upto}.",
                code="unknown_event",
                rule="A-4",
                fix="Name the seq that the record says; it was taken between two commits.",
            )

    def is_outrun(self) -> bool:
        """Whether a commit came while the files were looked at, and something of them is wrong."""
        facts = self.facts
        wrong = any(seen.problem for seen in facts.artifacts.values()) or (
            facts.mirror not in ("", "whole")
        )
        stat = self.reader.disk.stat(self.reader.layout.journal)
        return wrong and stat is not None and stat.size_bytes > self.read_bytes

    def _take(self, events: Sequence[Event]) -> None:
        replica, seeing = self.replica, self._seeing
        for event in events:
            replica.apply(event)
            for item in seeing:
                item.see(event, replica)
            found = issued(event)
            if found is not None:
                self.contracts[found[0]] = None

    def _expect_projections(self) -> None:
        """When to compare each projection: once the replay has come as far as it says."""
        for name, path in self._names.items():
            data = projection_bytes(self.reader.disk, getattr(self.reader.layout, name))
            as_of = read_as_of(data)
            if not data:
                self.facts.projections[path] = "missing"
            elif as_of is None:
                self.facts.projections[path] = "wrong: it is torn, or was edited"
            else:
                self.facts.projections[path] = f"wrong: it speaks of J-{as_of.seq}, which is not"
                self._due.setdefault(as_of.seq, []).append((name, data, as_of))
            if name == "checkpoint":
                self.facts.checkpoint_bytes = len(data)

    def _compare(self) -> None:
        for name, data, as_of in self._due.pop(self.tip.seq, ()):
            same = (as_of.offset, as_of.h) == (self.tip.offset, self.tip.h)
            if same and sealed_view(name, self.replica, self.tip) == data:
                how = f"as of J-{as_of.seq}"
            else:
                how = f"wrong: it is not what the journal up to J-{as_of.seq} gives"
            self.facts.projections[self._names[name]] = how

    def _set_later_ones_aside(self) -> None:
        """Of a prefix: what speaks of more than that cannot be judged, and is not wrong for it."""
        for waiting in (each for seq, each in self._due.items() if seq > self.tip.seq):
            for name, _, as_of in waiting:
                self.facts.projections[self._names[name]] = f"as of J-{as_of.seq}, behind it"

    def _judge(self, scan: Scan) -> None:
        """Whether an unfinished commit explains what cannot be read, which recovery deals with."""
        assert scan.damage is not None
        damage = scan.damage
        reader = self.reader
        journal = Journal(reader.disk, reader.layout.journal)
        try:
            journal.catch_up(lambda _: None)
            journal.judge(lambda _: None, committed_offset(reader.disk, reader.layout))
        except HaltError:
            self.facts.damage = f"line {damage.line}, byte {damage.byte}: {damage.reason}"

    def _check_end(self) -> None:
        reader = self.reader
        known = committed_offset(reader.disk, reader.layout)
        stat = reader.disk.stat(reader.layout.journal)
        if known > self.tip.offset and stat is not None and stat.size_bytes < known:
            self.facts.damage = (
                f"line {self.tip.seq + 1}, byte {self.tip.offset}: the journal ends, but events up"
                f" to byte {known} had been committed"
            )


def _relative(reader: Reader, name: str) -> str:
    path: str = getattr(reader.layout, name)
    return path.removeprefix(f"{reader.layout.root}/")


# What the disk says


def _look(reader: Reader, run: _Pass, facts: DiskFacts, extras: Extras) -> None:
    """Everything that the state and the journal speak of, each with one look."""
    state = run.replica.state
    for name, artifact in state.artifacts.items():
        facts.artifacts[name] = _seen(reader, artifact)
    for path in run.contracts:
        _read_contract(reader, path, facts)
    facts.mirror = mirror_facts(reader.disk, reader.layout) if is_mirrored(state.tier) else ""
    for node in state.nodes.values():
        if node.spec.map is not None and extras.ledger is not None and node.attempts:
            counts = extras.ledger(reader.layout.node_scope(node.node_id))
            if counts:
                facts.ledgers[node.node_id] = counts
        if node.child_ref and extras.instance is not None:
            found = extras.instance(node.child_ref)
            if found is not None:
                facts.instances[node.child_ref] = found
    facts.memory = extras.memory


def _seen(reader: Reader, artifact: Artifact) -> Seen:
    found = judge_artifact(reader, artifact)
    problem = "" if found.holds else found.text.removeprefix("FAIL: ")
    known = artifact.integrity
    return Seen(known.value if found.holds else "", known.size_bytes, problem)


def _read_contract(reader: Reader, path: str, facts: DiskFacts) -> None:
    try:
        full = resolve_inside(reader.disk, reader.layout.root, path)
        stat = reader.disk.stat(full)
        data = reader.disk.read(full, 0, 4 * contract_bytes_max) if stat is not None else b""
    except (PathError, StorageError) as error:
        facts.contracts[path] = Seen(problem=error.message)
        return
    if stat is None:
        facts.contracts[path] = Seen(problem="missing")
        return
    facts.contracts[path] = Seen(sha256(data).hexdigest(), stat.size_bytes)
    try:
        text = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(text, Mapping):
        facts.contract_texts[path] = essence(text)
