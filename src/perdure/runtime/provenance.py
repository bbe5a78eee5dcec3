"""The way back from a result, from the journal as it is.

Job: one pass over the journal for edges and facts, another for events that are asked about and
decide nothing, and a look at the disk for the artifacts that come up. Invariants: it only reads,
and takes no lock; memory grows with what was decided, not with the journal.
"""

from collections.abc import Iterator
from typing import Any, Final

from perdure.core.codec import Scan
from perdure.core.fold import Replica
from perdure.core.late import LateModule
from perdure.core.lookup import complete
from perdure.core.provenance import Provenance, any_fact
from perdure.core.provenance_walk import Walk, depth_default
from perdure.errors import NotFoundError
from perdure.runtime.integrity import judge_artifact
from perdure.runtime.reader import Reader

_eventlog: Final = LateModule("perdure.runtime.eventlog")


def why(reader: Reader, typed: str, *, depth: int = depth_default) -> dict[str, Any]:
    """The tree below an artifact, a node, an event (``J-n``), a decision, a question or an
    instruction, by id or unique beginning; ``reader`` is loaded.

    Raises NotFoundError with near misses for what nothing in the journal is called.
    """
    replica, index = Replica(), Provenance()
    scan, last = Scan(), reader.replica.state.seq
    for events in scan.commits(reader.disk.read_chunks(reader.layout.journal)):
        for event in events:
            replica.apply(event)
            index.see(event, replica)
        if scan.tip.seq >= last:
            break
    name = _named(reader, index, typed, last)
    _fill_in(reader, index, name)
    gone = {
        artifact_id: found.text.removeprefix("FAIL: ")
        for artifact_id, artifact in replica.state.artifacts.items()
        if artifact.status == "current"
        and not (found := judge_artifact(reader, artifact, quick=True)).holds
    }
    walk = Walk(replica.state, index, depth=depth, gone=gone)
    return {"task_id": replica.state.task_id, "seq": last, "why": walk.back_from(name)}


def _named(reader: Reader, index: Provenance, typed: str, last: int) -> str:
    if typed.startswith("J-") and typed[2:].isdecimal():
        if 1 <= int(typed[2:]) <= last:
            return typed
        raise NotFoundError(
            f"there is no event {typed}; the last is J-{last}.",
            code="unknown_event",
            fix="`perdure log` lists the last ones.",
        )
    state = reader.replica.state
    paths = {artifact.path: name for name, artifact in state.artifacts.items()}
    if typed in paths:
        return paths[typed]
    known = [*state.nodes, *state.artifacts, *index.about, *_outside(index)]
    return complete(typed, list(dict.fromkeys(known)), "result")


def _outside(index: Provenance) -> Iterator[str]:
    """What edges speak of besides: receipts, contracts, entries of the memory store."""
    for edges in index.edges_from.values():
        for edge in edges:
            yield edge.source
            yield edge.target


def _fill_in(reader: Reader, index: Provenance, name: str) -> None:
    """Facts of events that are asked about, or cited as evidence, and decide nothing."""
    wanted = {name, *(ref for fact in index.facts.values() for ref in fact.evidence)}
    missing = {int(ref[2:]) for ref in wanted if ref.startswith("J-") and ref[2:].isdecimal()}
    missing -= {int(ref[2:]) for ref in index.facts}
    if not missing:
        return
    log = _eventlog.EventLog(reader.disk, reader.layout.journal, max(missing))
    for event in log:
        if event.seq in missing:
            index.add(any_fact(event))
