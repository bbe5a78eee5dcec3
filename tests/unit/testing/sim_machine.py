"""A simulated machine that runs the workloads of the crash tests, and what must hold after a crash.

It has the methods of ``tests.crash.machine.Machine`` that workloads use, over a SimDisk.
"""

import contextlib
from hashlib import sha256

from perdure.core.codec import Scan
from perdure.core.fold import Replica
from perdure.core.model import State
from perdure.core.projection import seal_snapshot
from perdure.errors import HaltError
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.world import World
from perdure.storage.journal import read_events
from perdure.storage.workspace import Layout
from perdure.testing import Killed, SimClock, SimDisk, next_world, sim_world

ROOT = "/some/where/w"
JOURNAL = f"{ROOT}/journal.jsonl"
PROJECTIONS = (".snapshot.json", "task-graph.json", "checkpoint.json", "artifacts/registry.json")


class SimMachine:
    """One process on one machine with one workspace."""

    def __init__(self, world: World) -> None:
        assert isinstance(world.disk, SimDisk)
        assert isinstance(world.clock, SimClock)
        self.world = world
        self.disk = world.disk
        self.clock = world.clock
        self.root = ROOT
        self.layout = Layout(ROOT)
        self.acknowledged = b""
        self.runtimes: list[HaltRuntime] = []

    @classmethod
    def new(cls, *, cut_after: int | None = None, torn_bytes: int | None = None) -> "SimMachine":
        return cls(sim_world(SimDisk(cut_after=cut_after, torn_bytes=torn_bytes)))

    def next(self, disk: SimDisk, *, power_cut: bool) -> "SimMachine":
        """The next process, on what is left of this one's disk."""
        after = SimMachine(next_world(self.world, disk, power_cut=power_cut))
        after.acknowledged = self.acknowledged
        return after

    def end(self) -> "SimMachine":
        """The process is killed, if it is not dead; the next one of the machine begins."""
        return self.next(self.disk.survive_kill(), power_cut=False)

    def open(self, task_id: str | None = None) -> HaltRuntime:
        runtime = HaltRuntime(ROOT, task_id, goal="survive", world=self.world)
        self.runtimes.append(runtime)
        self.acknowledge()
        return runtime

    def attach(self) -> HaltRuntime:
        runtime = HaltRuntime.attach(ROOT, world=self.world)
        self.runtimes.append(runtime)
        return runtime

    def acknowledge(self) -> None:
        """Every call so far has returned, so everything in the journal is promised."""
        self.acknowledged = self.journal()

    def journal(self) -> bytes:
        return self.bytes_of("journal.jsonl")

    def bytes_of(self, path: str) -> bytes:
        data = self.disk.tree().get(f"{ROOT}/{path}")
        return data if isinstance(data, bytes) else b""

    def write(self, path: str, data: bytes) -> None:
        """An executor writes a file and syncs nothing."""
        self.disk.write(f"{ROOT}/{path}", data)

    def projections(self) -> dict[str, bytes]:
        return {name: self.bytes_of(name) for name in PROJECTIONS}


def run_until_killed(machine: SimMachine, workload: object) -> bool:
    """Whether the process met its end in the workload."""
    assert callable(workload)
    with contextlib.suppress(Killed):
        workload(machine)
    return machine.disk.is_dead


def whole_commits(data: bytes) -> bytes:
    scan = Scan()
    for _ in scan.commits([data]):
        pass
    return data[: scan.tip.offset]


def state_after(journal: bytes) -> State:
    replica = Replica()
    for events in Scan().commits([journal]):
        replica.apply_all(events)
    return replica.state


def check_holds(machine: SimMachine, runtime: HaltRuntime) -> None:
    """Sequence and chain of the journal are intact, the state is theirs, DONE has its files."""
    replica = Replica()
    scan, damage = read_events(SimDisk(files=machine.disk.files), JOURNAL, replica.apply_all)
    assert damage is None, damage
    assert scan.unchained == 0
    live = runtime.engine.replica.state
    assert seal_snapshot(live, runtime.engine.journal.tip) == seal_snapshot(replica.state, scan.tip)
    check_evidence(machine, runtime.state)


def check_evidence(machine: SimMachine, state: State) -> None:
    """Every artifact is there with its bytes, and every contract that is in force.

    Also superseded ones; and before a recovery they may still be where they were moved from.
    """
    tree = machine.disk.tree()
    for name, artifact in state.artifacts.items():
        paths = [f"{ROOT}/{path}" for path in (artifact.path, artifact.origin) if path]
        found = [data for path in paths if isinstance(data := tree.get(path), bytes)]
        assert found, f"{name} is gone: {paths}"
        digests = [sha256(data).hexdigest() for data in found]
        assert artifact.integrity.value in digests, f"{name} has other bytes"
    for contract in state.contracts.values():
        data = tree.get(machine.layout.contract(contract.invocation_id))
        assert isinstance(data, bytes), f"{contract.invocation_id} is gone"
        assert sha256(data).hexdigest() == contract.sha256


def check_recovery(machine: SimMachine, *possible: bytes) -> SimMachine:
    """Recover what a crash left; returns the machine after it. ``possible`` are whole journals."""
    left = machine.journal()
    assert left.startswith(machine.acknowledged), "an acknowledged event is gone"
    kept = whole_commits(left)
    assert any(whole.startswith(kept) for whole in possible), "a phantom event"
    check_evidence(machine, state_after(kept))
    runtime = machine.open("T")
    assert machine.journal().startswith(kept), "recovery changed what was committed"
    check_holds(machine, runtime)
    runtime.close()
    return machine


def check_second_recovery(machine: SimMachine) -> None:
    """Recovering again finds nothing: not a byte of journal or projections differs."""
    journal, projections = machine.journal(), machine.projections()
    again = machine.end()
    runtime = again.open()
    assert runtime.recovered.committed == "", runtime.recovered
    runtime.close()
    assert again.journal() == journal
    assert again.projections() == projections
    assert [path for path in again.disk.tree() if ".tmp-" in path] == []


def finish(machine: SimMachine) -> None:
    """Whatever state it is in, the task can be brought to its end with every node DONE."""
    runtime = machine.open()
    if "END" not in runtime.state.nodes:
        runtime.add_node("END", "the last one", outputs=["artifacts/END/end.txt"])
    if runtime.state.fsm_task == "SUSPENDED":
        runtime.move_task("EXECUTING")
    for _ in range(50):
        settle_open_nodes(machine, runtime)
        if all(node.state in ("DONE", "QUARANTINED") for node in runtime.state.nodes.values()):
            break
    states = {name: node.state for name, node in runtime.state.nodes.items()}
    assert states["END"] == "DONE", states
    assert set(states.values()) <= {"DONE", "QUARANTINED"}, states
    check_holds(machine, runtime)
    runtime.close()


def settle_open_nodes(machine: SimMachine, runtime: HaltRuntime) -> None:
    """One round: take every open node one step further."""
    for name, node in list(runtime.state.nodes.items()):
        waits = node.state == "RETRYABLE" and name not in runtime.frontier()
        if node.state == "BLOCKED" or waits:
            runtime.retry(name, "go on", method=f"method-{node.attempts}")
        elif node.state == "VERIFYING":
            runtime.check(name)
        elif node.state == "RUNNING":
            for path in node.spec.outputs or (f"artifacts/{name}/made-{node.attempts}.txt",):
                if path not in runtime.engine.replica.paths:
                    machine.write(path, f"{path} of attempt {node.attempts}".encode())
            try:
                runtime.submit(name)
            except HaltError as error:
                runtime.fail(name, "transient-agent", error.code)
        elif node.state == "QUARANTINED" and not node.successors:
            runtime.add_node(f"{name}s", f"instead of {name}", successor_of=name)
    for name in runtime.frontier()[:1]:
        runtime.start(name)
