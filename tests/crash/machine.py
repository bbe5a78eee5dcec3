"""A machine for crash tests: processes that die, and what must hold after each death.

One directory, one clock, one source of ids and one process table, so that a run is repeatable
byte for byte: what a killed run may leave is then known exactly, as a prefix of the whole run.
"""

import contextlib
import os
from collections.abc import Callable
from hashlib import sha256

from tests.crash.disk import CutDisk, Fuse, Killed
from tests.unit.fakes import FakeClock, FakeIds, FakeProcesses

from perdure.core.codec import ChainTip, Scan
from perdure.core.fold import Replica
from perdure.core.model import State
from perdure.core.projection import seal_snapshot
from perdure.errors import HaltError
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.world import World
from perdure.storage.disk import RealDisk
from perdure.storage.journal import read_events
from perdure.storage.workspace import Layout

ENVIRONMENT = {"PATH": os.environ.get("PATH", "")}
PROJECTIONS = (".snapshot.json", "task-graph.json", "checkpoint.json", "artifacts/registry.json")
MTIME_NS = 1_700_000_000_000_000_000


class Machine:
    """One host with one workspace on it."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.layout = Layout(root)
        self.clock = FakeClock()
        self.ids = FakeIds()
        self.processes = FakeProcesses(pid=1)
        self.pid = 100
        self.acknowledged = b""
        self.lost_paths: set[str] = set()
        """Files that a scene has destroyed."""
        self.disk = CutDisk()
        self.runtimes: list[HaltRuntime] = []

    def boot_process(self, fuse: Fuse | None = None) -> None:
        """The next process begins; the one before it, if it lives, is killed."""
        self.kill_process()
        self.pid += 1
        self.clock.advance(1.0)
        self.disk = CutDisk(fuse)

    def kill_process(self) -> None:
        """SIGKILL, if it has not met it already: its locks are free, its pid is gone."""
        self.disk.die()
        for runtime in self.runtimes:
            with contextlib.suppress(Killed):
                runtime.close()
        self.runtimes.clear()
        self.processes.kill(self.pid)

    def world(self) -> World:
        return World(
            self.disk, self.clock, self.ids, self.processes.seen_from(self.pid), ENVIRONMENT
        )

    def open(self, task_id: str | None = None) -> HaltRuntime:
        """What ``HaltRuntime(...)`` does in the process of now."""
        runtime = HaltRuntime(self.root, task_id, goal="survive", world=self.world())
        self.runtimes.append(runtime)
        self.acknowledge()
        return runtime

    def attach(self) -> HaltRuntime:
        """What a short command does in the process of now."""
        runtime = HaltRuntime.attach(self.root, world=self.world())
        self.runtimes.append(runtime)
        return runtime

    def acknowledge(self) -> None:
        """Every call so far has returned, so everything in the journal is promised."""
        self.acknowledged = self.journal()

    def journal(self) -> bytes:
        return self.bytes_of("journal.jsonl")

    def bytes_of(self, path: str) -> bytes:
        try:
            with open(f"{self.root}/{path}", "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def write(self, path: str, data: bytes) -> None:
        """An executor writes a file, whole, with a time that does not depend on the run."""
        full = f"{self.root}/{path}"
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(data)
        os.utime(full, ns=(MTIME_NS, MTIME_NS))

    def projections(self) -> dict[str, bytes]:
        return {name: self.bytes_of(name) for name in PROJECTIONS}


Workload = Callable[[Machine], None]


def replay(root: str) -> tuple[State, ChainTip]:
    """The state after every line from the first byte, each verified."""
    replica = Replica()
    scan, damage = read_events(RealDisk(), f"{root}/journal.jsonl", replica.apply_all)
    assert damage is None, damage
    assert scan.unchained == 0
    return replica.state, scan.tip


def whole_commits(data: bytes) -> bytes:
    """The journal bytes up to the end of the last whole commit."""
    scan = Scan()
    for _ in scan.commits([data]):
        pass
    return data[: scan.tip.offset]


def check_evidence(machine: Machine, state: State) -> None:
    """The bytes of every artifact are where the state says, those of quarantined ones too."""
    for name, artifact in state.artifacts.items():
        if artifact.origin in machine.lost_paths:
            continue
        with open(f"{machine.root}/{artifact.path}", "rb") as file:
            assert sha256(file.read()).hexdigest() == artifact.integrity.value, name
    for node in state.nodes.values():
        assert node.state != "DONE" or node.artifacts, f"{node.node_id} is DONE on nothing"


def check_no_litter(root: str) -> None:
    """No temporary file of an unfinished replacement is left."""
    left = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
        if ".tmp-" in name
    ]
    assert left == []


def check_recovery(
    machine: Machine, *possible: bytes, task_id: str | None = None, to_the_end: bool = True
) -> None:
    """After a death: open twice, as two new processes, and let the work go on to its end.

    ``possible`` are journals of which a killed run may have written any prefix.
    """
    left = machine.journal()
    known = any(whole.startswith(left) for whole in possible)
    assert known, "the killed run wrote what the whole run does not"
    assert left.startswith(machine.acknowledged), "an acknowledged event is gone"
    kept = whole_commits(left)
    machine.boot_process()
    runtime = machine.open(task_id)
    after = machine.journal()
    assert after.startswith(kept), "recovery changed what was committed"
    check_live_equals_replayed(machine, runtime)
    check_evidence(machine, runtime.state)
    check_registered_once(runtime)
    runtime.close()
    check_second_recovery(machine)
    if to_the_end:
        finish(machine)


def check_second_recovery(machine: Machine) -> None:
    """Recovering again finds nothing: not a byte of journal or projections differs."""
    journal, projections = machine.journal(), machine.projections()
    machine.boot_process()
    runtime = machine.open()
    assert runtime.recovered.committed == "", runtime.recovered
    runtime.close()
    assert machine.journal() == journal
    assert machine.projections() == projections
    check_no_litter(machine.root)


def check_registered_once(runtime: HaltRuntime) -> None:
    """Nothing is put on record twice, however often recovery began anew."""
    kind = "ARTIFACT_REGISTERED"
    names = [event.entity.id for event in runtime.events() if event.kind == kind]
    assert len(names) == len(set(names)), names


def check_live_equals_replayed(machine: Machine, runtime: HaltRuntime) -> None:
    state, tip = replay(machine.root)
    live = runtime.engine.replica.state
    assert seal_snapshot(live, runtime.engine.journal.tip) == seal_snapshot(state, tip)


def finish(machine: Machine) -> None:
    """Whatever state it is in, the task can be brought to its end with every node DONE."""
    machine.boot_process()
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
    check_evidence(machine, runtime.state)
    check_live_equals_replayed(machine, runtime)
    runtime.close()


def settle_open_nodes(machine: Machine, runtime: HaltRuntime) -> None:
    """One round: take every open node one step further."""
    for name, node in list(runtime.state.nodes.items()):
        if node.state == "BLOCKED" or (
            node.state == "RETRYABLE" and name not in runtime.frontier()
        ):
            runtime.retry(name, "go on", method=f"method-{node.attempts}")
        elif node.state == "VERIFYING":
            runtime.check(name)
        elif node.state == "RUNNING":
            produce(machine, runtime, name)
            try:
                runtime.submit(name)
            except HaltError as error:
                runtime.fail(name, "transient-agent", error.code)
        elif node.state == "QUARANTINED" and not node.successors:
            runtime.add_node(f"{name}s", f"instead of {name}", successor_of=name)
    for name in runtime.frontier()[:1]:
        runtime.start(name)


def produce(machine: Machine, runtime: HaltRuntime, name: str) -> None:
    """Do the work of a node: its outputs, or one file of its own choice."""
    node = runtime.node(name)
    paths = node.spec.outputs
    if paths is None:
        paths = (f"artifacts/{name}/made-{node.attempts}.txt",)
    for path in paths:
        if path not in runtime.engine.replica.paths:
            machine.write(path, f"{path} of attempt {node.attempts}".encode())
