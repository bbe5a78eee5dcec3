"""What workers of former attempts have left, looked at when their node starts again.

Job: merge the complete units of each such directory into the node's job, close the slots that were
open, and seal the directories. Invariants: what landed before a coordinator died is not done again;
a slot is closed after its units are durable in the job, and the directories are sealed after that,
so that a crash repeats the look and changes nothing. The workers are gone: whoever runs this has
stopped them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from perdure.control.batch_job import BatchJob, SettledUnit
from perdure.control.item_list import ItemList
from perdure.control.shard_join import (
    Adjudged,
    Duplicates,
    Errors,
    adjudicate,
    key_chars_max,
)
from perdure.control.shard_seal import is_worker, late_in_sealed, seal
from perdure.control.shard_worker import keys_of, shards_directory
from perdure.core import dispatch_commands as d
from perdure.core.batch import log_path
from perdure.core.dispatching import Slot
from perdure.core.model import Node, contract_bytes_max, id_key
from perdure.core.views import cut
from perdure.errors import UsageError
from perdure.jobs.records import Finding
from perdure.runtime.engine import Engine

slots_per_commit: Final = 64
units_per_commit: Final = 10_000
"""Units whose findings are held in memory at once, give or take a worker."""
conflicts_told_max: Final = 5


class Adopted(NamedTuple):
    """What was found of former attempts."""

    slots: int
    units: int
    """Complete units that were not in the job yet."""
    notices: list[str]


class _Former(NamedTuple):
    """A worker of a former attempt."""

    invocation: str
    slot: Slot | None
    """None: it was closed already, so that what is new in it came in late."""
    units: int
    adjudged: Adjudged


def adopt_shards(
    engine: Engine,
    node: Node,
    batch_job: BatchJob,
    items: ItemList,
    errors_of: Errors | None,
) -> Adopted:
    """Look into what workers of former attempts have left; the node is RUNNING again.

    Durable on return. A crash in the middle is met again by the next start. Raises HaltError.
    """
    directory = shards_directory(engine, node.node_id)
    late = late_in_sealed(engine, node)
    open_slots = {s.invocation_id: s for s in engine.replica.state.slots.values()}
    names = {name for name, slot in open_slots.items() if slot.node == node.node_id}
    names |= {name for name in engine.disk.list_dir(directory) if is_worker(name)}
    found = Adopted(0, 0, late)
    if not names:
        return found
    places = {key: place for place, key in enumerate(items.keys)}
    duplicates = Duplicates()
    ordered = sorted(names, key=id_key)
    taken = _Merge(engine, node, batch_job, items, places, duplicates)
    group: list[_Former] = []
    for name in ordered:
        former = _look(engine, batch_job, f"{directory}/{name}", open_slots.get(name), errors_of)
        found.notices.extend(f"{name}: {notice}" for notice in former.adjudged.notices)
        group.append(former)
        if len(group) >= slots_per_commit or sum(one.units for one in group) >= units_per_commit:
            found = found._replace(units=found.units + taken.merge(group))
            group = []
    found = found._replace(slots=len(ordered), units=found.units + taken.merge(group))
    log = f"{engine.layout.root}/{log_path(node.node_id)}"
    found.notices.extend(told_conflicts(duplicates.differing(engine.disk, log)))
    seal(engine, node)
    return found


def _look(
    engine: Engine,
    batch_job: BatchJob,
    directory: str,
    slot: Slot | None,
    errors_of: Errors | None,
) -> _Former:
    """Judge one of these directories."""
    name = directory.rpartition("/")[2]
    keys = _contract_keys(engine, name, slot)
    adjudged = adjudicate(
        engine.disk, directory, keys, errors_of=errors_of, is_placed=batch_job.is_placed
    )
    return _Former(name, slot, slot.units if slot is not None else len(keys), adjudged)


def _contract_keys(engine: Engine, name: str, slot: Slot | None) -> Sequence[str]:
    """The units of a worker by its contract; none when that is not the one on record."""
    path = f"{engine.layout.contracts}/{name}.json"
    if engine.disk.stat(path) is None:
        return ()
    data = engine.disk.read(path, 0, contract_bytes_max + 1)
    if slot is not None and sha256(data).hexdigest() != slot.contract_sha256:
        return ()
    try:
        document: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    units = document.get("units") if isinstance(document, dict) else None
    return keys_of(units) or ()


class _Merge(NamedTuple):
    """What the units of workers go into."""

    engine: Engine
    node: Node
    batch_job: BatchJob
    items: ItemList
    places: dict[str, int]
    duplicates: Duplicates

    def merge(self, group: Sequence[_Former]) -> int:
        """Make durable what is complete, then close the slots in one commit; how many are new."""
        fresh: dict[str, int] = {}
        findings: dict[str, Finding] = {}
        for number, former in enumerate(group):
            for unit in former.adjudged.landed:
                if unit.key not in self.places:
                    continue
                if unit.key in findings or self.batch_job.job.is_done(unit.key):
                    self.duplicates.add(unit.key, unit.payload, former.invocation)
                    continue
                if unit.artifact:
                    self.batch_job.place(unit.key, unit.artifact)
                digest = self.items[self.places[unit.key]].digest
                findings[unit.key] = Finding(unit.key, unit.payload, digest)
                fresh[unit.key] = number
        landed = record_findings(self.batch_job, findings.values())
        new = Counter(fresh[key] for key in landed)
        with self.engine.batch():
            for number, former in enumerate(group):
                _tell(self.engine, self.node, former, new[number])
        return len(landed)


def record_findings(batch_job: BatchJob, findings: Iterable[Finding]) -> list[str]:
    """Record findings and their ledger lines; the keys of those that the job takes.

    One that cannot be a finding counts for nothing: its unit is done again. Raises StorageError.
    """
    listed = list(findings)
    try:
        batch_job.job.record_many(listed)
    except UsageError:  # nothing was written, and one of them is to blame
        listed = [one for one in listed if _recorded_alone(batch_job, one)]
    batch_job.settle(SettledUnit(one.key, True) for one in listed)
    return [one.key for one in listed]


def _recorded_alone(batch_job: BatchJob, finding: Finding) -> bool:
    try:
        batch_job.job.record_many([finding])
    except UsageError:
        return False
    return True


def _tell(engine: Engine, node: Node, former: _Former, new: int) -> None:
    landed = len(former.adjudged.landed)
    if former.invocation in engine.replica.state.slots:
        whole = landed == former.units
        engine.execute(
            d.CloseSlot(
                former.invocation,
                "landed" if whole else "abandoned",
                landed=landed,
                left=former.units - landed,
                observation=f"its coordinator was gone; {landed} of {former.units} units on disk",
            )
        )
    elif new and former.slot is None and _is_at_work(engine, node):
        why = f"{new} units of {former.invocation} came in after its slot was closed"
        engine.execute(d.RecordLate(node.node_id, former.invocation, landed=new, why=why))


def _is_at_work(engine: Engine, node: Node) -> bool:
    now = engine.replica.state.nodes[node.node_id]
    return now.state == "RUNNING" and now.invocation == node.invocation


def told_conflicts(differing: Sequence[tuple[str, str]]) -> list[str]:
    """Notices for units that came twice with different findings, which the log decides."""
    told = [
        f"unit {cut(key, key_chars_max)} came twice with different findings; the one in the"
        f" log counts, and not that of {ref}"
        for key, ref in differing[:conflicts_told_max]
    ]
    more = len(differing) - len(told)
    return [*told, f"{more} more units came twice"] if more else told
