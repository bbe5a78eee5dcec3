"""What must hold of a workspace, whatever happened to it.

Job: the invariants that are promised to users, checked from the bytes on the disk and not from
what the runtime believes. Invariants: each function raises NotHeldError, with a sentence, at the
first thing that does not hold; only the two that open a workspace for recovery change it.
"""

from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from perdure.core.codec import ChainTip, Scan
from perdure.core.fold import Replica
from perdure.core.model import State
from perdure.core.projection import seal_snapshot
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.world import World
from perdure.selftest.workload import TASK, finish

PROJECTIONS: Final = (
    ".snapshot.json",
    "task-graph.json",
    "checkpoint.json",
    "artifacts/registry.json",
)
OUR_FOLDERS: Final = (
    "", "artifacts", "contracts", "steering", "steering/spool", "tmp", "tmp/recovered",
)  # fmt: skip
"""Where the runtime itself replaces files; what executors leave elsewhere is theirs."""


class NotHeldError(Exception):
    """A promise was not kept."""


class Promise(NamedTuple):
    """What an acknowledgement stands for: everything in the journal at that moment."""

    seq: int
    """The last event that the runtime had acknowledged."""
    length: int
    """Bytes of the journal then."""
    digest: str
    """Their sha256."""


Story = list[tuple[tuple[str, ...], ...]]
"""What each commit said, without the times and ids that differ from run to run."""


def require(condition: object, message: str) -> None:
    """Raise NotHeldError with this sentence unless the condition holds."""
    if not condition:
        raise NotHeldError(message)


def read_if_there(world: World, path: str) -> bytes:
    """The bytes of a file; none when it is missing."""
    return world.disk.read(path) if world.disk.stat(path) is not None else b""


def journal_of(world: World, root: str) -> bytes:
    """The bytes of the journal; none when there is no journal."""
    return read_if_there(world, f"{root}/journal.jsonl")


def projections_of(world: World, root: str) -> dict[str, bytes]:
    """The bytes of every projection."""
    return {name: read_if_there(world, f"{root}/{name}") for name in PROJECTIONS}


def promise_of(world: World, root: str, seq: int) -> Promise:
    """The promise that event ``seq`` and everything else in the journal now is kept."""
    return promise_on(journal_of(world, root), seq)


def promise_on(data: bytes, seq: int) -> Promise:
    """The same, of a journal of these bytes."""
    return Promise(seq, len(data), sha256(data).hexdigest())


def whole_commits(data: bytes) -> bytes:
    """The journal up to the end of its last whole commit."""
    scan = Scan()
    for _ in scan.commits([data]):
        pass
    return data[: scan.tip.offset]


def story_of(data: bytes) -> Story:
    """The whole commits of a journal, for comparison with those of another run."""
    return [
        tuple(
            (event.kind, event.entity.type, event.entity.id, str(event.payload.get("to", "")))
            for event in events
        )
        for events in Scan().commits([data])
    ]


def check_promises(data: bytes, promises: Sequence[Promise]) -> None:
    """Every acknowledged event is still there, byte for byte."""
    for number, promise in enumerate(promises, 1):
        kept = len(data) >= promise.length
        kept = kept and sha256(data[: promise.length]).hexdigest() == promise.digest
        kept = kept and data.count(b"\n", 0, promise.length) >= promise.seq
        require(kept, f"acknowledgement {number} of {len(promises)}, of J-{promise.seq}, is lost")


def replay(data: bytes) -> tuple[State, ChainTip]:
    """The state after every line from the first byte, each of which must be in its place."""
    replica, scan, seq = Replica(), Scan(), 0
    for events in scan.commits([data]):
        for event in events:
            seq += 1
            require(event.seq == seq, f"J-{event.seq} stands where J-{seq} belongs")
        replica.apply_all(events)
    if scan.damage is not None:
        line, byte, reason = scan.damage
        raise NotHeldError(
            f"the journal is damaged after recovery: line {line}, byte {byte}: {reason}"
        )
    require(not scan.unchained, f"{scan.unchained} lines are not chained")
    return replica.state, scan.tip


def check_evidence(world: World, root: str, state: State, lost: Collection[str] = ()) -> None:
    """Every artifact has its bytes, but for paths that were ``lost``; a DONE node has artifacts."""
    for name, artifact in state.artifacts.items():
        if artifact.origin in lost:
            continue
        data = read_if_there(world, f"{root}/{artifact.path}")
        same = sha256(data).hexdigest() == artifact.integrity.value
        require(same, f"{name} ({artifact.path}) does not have the bytes that were registered")
    for name, node in state.nodes.items():
        require(node.state != "DONE" or node.artifacts, f"{name} is DONE without an artifact")


def check_no_litter(world: World, root: str) -> None:
    """No temporary file of an unfinished replacement of ours is left."""
    left = [
        name
        for folder in OUR_FOLDERS
        for name in world.disk.list_dir(f"{root}/{folder}".rstrip("/"))
        if ".tmp-" in name
    ]
    require(not left, f"temporary files are left: {', '.join(left[:3])}")


def check_open(
    world: World, runtime: HaltRuntime, promises: Sequence[Promise], lost: Collection[str] = ()
) -> None:
    """An opened workspace is what its journal says, and the journal keeps its promises."""
    root = runtime.engine.layout.root
    data = journal_of(world, root)
    check_promises(data, promises)
    state, tip = replay(data)
    live = seal_snapshot(runtime.engine.replica.state, runtime.engine.journal.tip)
    require(live == seal_snapshot(state, tip), "the state in use is not what the journal says")
    check_evidence(world, root, state, lost)


def check_recovery(
    world: World, root: str, promises: Sequence[Promise], lost: Collection[str] = ()
) -> None:
    """Open it three times: to recover, to find nothing left to do, and to go on to the end."""
    before = journal_of(world, root)
    check_promises(before, promises)
    with HaltRuntime(root, TASK, world=world) as runtime:
        kept = journal_of(world, root).startswith(whole_commits(before))
        require(kept, "recovery changed what was committed")
        check_open(world, runtime, promises, lost)
    check_second_recovery(world, root)
    with HaltRuntime(root, TASK, world=world) as runtime:
        finish(world, runtime)
        check_open(world, runtime, promises, lost)


def check_second_recovery(world: World, root: str) -> None:
    """Recovering again finds nothing: not a byte of journal or projections differs."""
    check_no_litter(world, root)
    journal, projections = journal_of(world, root), projections_of(world, root)
    with HaltRuntime(root, TASK, world=world) as runtime:
        again = runtime.recovered
        require(not again.committed, f"the second recovery found {'; '.join(again.found)}")
    require(journal_of(world, root) == journal, "the second recovery wrote to the journal")
    same = projections_of(world, root) == projections
    require(same, "the second recovery made other projections")
