"""What the processes of the crash tests are killed in: one function for each way to use it.

Each calls ``machine.acknowledge()`` whenever a call has returned. Each is repeatable byte for byte.
"""

from collections.abc import Callable
from typing import Any, Protocol

from perdure.errors import HaltError
from perdure.ports import Disk
from perdure.runtime.calls import perform
from perdure.runtime.halt import HaltRuntime
from perdure.storage import spool
from perdure.storage.workspace import Layout


class MovingClock(Protocol):
    """A clock that moves when told to."""

    def now(self) -> float: ...
    def advance(self, seconds: float) -> None: ...


class AnyMachine(Protocol):
    """A machine with one workspace on it, whatever its disk is made of."""

    root: str
    runtimes: list[HaltRuntime]
    lost_paths: set[str]
    """Files that a scene has destroyed."""
    promised: list[str]
    """Ids of messages that lie durably in the drop box, or did."""

    @property
    def layout(self) -> Layout: ...
    @property
    def disk(self) -> Disk: ...
    @property
    def clock(self) -> MovingClock: ...
    def boot_process(self) -> None: ...
    def open(self, task_id: str | None = None) -> HaltRuntime: ...
    def attach(self) -> HaltRuntime: ...
    def acknowledge(self) -> None: ...
    def journal(self) -> bytes: ...
    def write(self, path: str, data: bytes) -> None: ...


Workload = Callable[[AnyMachine], None]


def create(machine: AnyMachine) -> None:
    machine.open("T").close()


def add_nodes(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt", "shared/b.txt"])
    machine.acknowledge()
    runtime.add_node("N2", "second", deps=["N1"])
    machine.acknowledge()
    runtime.amend_node("N2", "more urgent", priority=5)
    machine.acknowledge()
    runtime.close()


def life_by_transitions(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "first")
    runtime.add_node("N2", "second", deps=["N1"])
    machine.acknowledge()
    runtime.transition("N1", "READY")
    machine.acknowledge()
    runtime.transition("N1", "RUNNING")
    machine.acknowledge()
    machine.write("artifacts/N1/deep/down/report.md", b"report")
    runtime.register_artifact("A-1", "artifacts/N1/deep/down/report.md", node_id="N1")
    machine.acknowledge()
    runtime.transition("N1", "VERIFYING", evidence="A-1 is there")
    machine.acknowledge()
    runtime.transition("N1", "DONE", evidence=["A-1 verified"])
    machine.acknowledge()
    runtime.close()


def submit(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    runtime.add_node(
        "N1",
        "first",
        outputs=["artifacts/N1/a.txt", "shared/b.txt"],
        accept=[
            "nonempty: shared/b.txt",
            "sha256: artifacts/N1/a.txt " + "ca978112ca1bbdcafac231b"
            "39a23dc4da786eff8147c4e72b9807785afee48bb",
        ],
    )
    runtime.add_node("N2", "second", deps=["N1"])
    machine.acknowledge()
    runtime.start("N1")
    machine.acknowledge()
    machine.write("artifacts/N1/a.txt", b"a")
    machine.write("shared/b.txt", b"bb")
    runtime.beat(["N1"], "nearly there")
    machine.acknowledge()
    runtime.submit("N1")
    machine.acknowledge()
    runtime.start("N2")
    machine.write("artifacts/N2/c.txt", b"c")
    runtime.submit("N2", check=False)
    machine.acknowledge()
    runtime.check("N2")
    machine.acknowledge()
    runtime.close()


def fail_and_retry(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt"], retry_budget=2)
    runtime.start("N1")
    machine.acknowledge()
    machine.write("artifacts/N1/a.txt", b"bad")
    machine.write("artifacts/N1/stray.txt", b"half")
    runtime.register_artifact("", "artifacts/N1/a.txt", node_id="N1")
    machine.acknowledge()
    runtime.fail("N1", "transient-agent", "exit 3")
    machine.acknowledge()
    runtime.start("N1")
    machine.acknowledge()
    runtime.fail("N1", "transient-environment", "no network")
    machine.acknowledge()
    runtime.retry("N1", "by hand", method="manual")
    machine.acknowledge()
    runtime.start("N1")
    machine.write("artifacts/N1/a.txt", b"good")
    runtime.submit("N1")
    machine.acknowledge()
    runtime.close()


def quarantine(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    runtime.add_node(
        "N1",
        "first",
        outputs=["artifacts/N1/a.txt"],
        accept=["nonempty: artifacts/N1/a.txt"],
        retry_budget=2,
    )
    runtime.add_node("N2", "second", deps=["N1"])
    machine.acknowledge()
    for _ in range(2):
        runtime.start("N1")
        machine.write("artifacts/N1/a.txt", b"")
        runtime.submit("N1")
        machine.acknowledge()
    runtime.add_node("N1b", "first again", successor_of="N1")
    machine.acknowledge()
    runtime.close()


def batch(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    with runtime.batch():
        for number in range(5):
            runtime.add_node(f"N{number}", "one of many")
        runtime.note("five at once")
    machine.acknowledge()
    try:
        with runtime.batch():
            runtime.add_node("X1", "never")
            raise HaltError("the caller changed its mind")
    except HaltError:
        pass
    with runtime.engine.batch(op="op-1"):
        runtime.add_node("Y1", "once")
        runtime.set_hint("look at Y1")
    machine.acknowledge()
    assert "op-1" in runtime.state.ops
    runtime.close()


def words(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    runtime.note("a lone surrogate \ud800 and a separator \u2028", op="op-1")
    machine.acknowledge()
    runtime.note("a lone surrogate \ud800 and a separator \u2028", op="op-1")
    runtime.steering("ST-1", "turn left")
    machine.acknowledge()
    runtime.steering("ST-1", "turn left")
    runtime.decision("", "left it is")
    machine.acknowledge()
    runtime.append("EXTERNAL_OBSERVED", {"type": "task", "id": "T"}, {"status": 200})
    machine.acknowledge()
    runtime.close()


def pause_and_resume(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "first")
    runtime.move_task("EXECUTING")
    machine.acknowledge()
    runtime.pause("lunch")
    machine.acknowledge()
    runtime.close()
    runtime = machine.open()
    runtime.move_task("EXECUTING", "back")
    machine.acknowledge()
    runtime.start("N1")
    machine.write("artifacts/N1/a.txt", b"a")
    runtime.submit("N1")
    machine.acknowledge()
    runtime.move_task("FINAL_AUDIT")
    machine.acknowledge()
    runtime.close()


def close_with_projections(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    for number in range(3):
        machine.clock.advance(25.0)  # projections are due, and the lease is renewed
        runtime.add_node(f"N{number}", "one")
        machine.acknowledge()
    runtime.start("N0")
    machine.acknowledge()
    runtime.close()


def short_commands(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt"], retry_budget=3)
    runtime.close()
    machine.acknowledge()
    machine.attach().note("hello", op="op-1")
    machine.acknowledge()
    machine.attach().start("N1", session=True)
    machine.acknowledge()
    machine.write("artifacts/N1/a.txt", b"a")
    machine.attach().register_artifact("", "artifacts/N1/a.txt", node_id="N1")
    machine.acknowledge()
    machine.attach().fail("N1", "transient-agent", "exit 1")
    machine.acknowledge()
    machine.attach().start("N1", session=True)
    machine.write("artifacts/N1/a.txt", b"b")
    machine.acknowledge()
    machine.attach().submit("N1")
    machine.acknowledge()


def call(machine: AnyMachine, runtime: HaltRuntime, name: str, op: str = "", **args: Any) -> Any:
    """One writing call by its name, as interfaces and the drop box make it."""
    answer = perform(runtime.engine, name, args, op=op or None)
    machine.acknowledge()
    return answer


def calls_on_the_graph(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    call(machine, runtime, "add", "op-1", node="N1", spec={"outputs": ["artifacts/N1/a.txt"]})
    call(machine, runtime, "add", node="N2", deps=["N1"], title="second", priority=2)
    call(machine, runtime, "add", node="N3", deps=["N2"])
    assert call(machine, runtime, "add", "op-1", node="N1")["repeated"]
    call(machine, runtime, "cancel", "op-2", nodes=["N3"], reason="not wanted")
    call(machine, runtime, "start", "op-3", node="N1")
    call(machine, runtime, "cancel", all=True, reason="nothing is")
    runtime.close()


def calls_on_work(machine: AnyMachine) -> None:
    machine.open("T").close()
    machine.acknowledge()

    def short(name: str, op: str = "", **args: Any) -> Any:
        runtime = machine.attach()
        answer = call(machine, runtime, name, op, **args)
        runtime.close()
        return answer

    short("add", node="N1", spec={"outputs": ["artifacts/N1/a.txt"], "retry_budget": 3})
    short("start", "op-1", node="N1")
    short("beat", node="N1", note="on it")
    machine.write("artifacts/N1/a.txt", b"half")
    short("fail", "op-2", node="N1", failure_class="permanent-resource", reason="no idea")
    short("retry", "op-3", node="N1", reason="now I know", method="by hand")
    short("start", node="N1")
    machine.write("artifacts/N1/a.txt", b"whole")
    short("artifact", "op-4", node="N1", path="artifacts/N1/a.txt")
    short("receipt", node="N1", proof="ticket 7")
    short("submit", "op-5", node="N1", no_check=True)
    assert short("check", "op-6", node="N1")["passed"]
    assert short("check", "op-6", node="N1")["repeated"]


def calls_on_the_task(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    call(machine, runtime, "add", node="N1")
    call(machine, runtime, "note", "op-1", text="one")
    call(machine, runtime, "decide", "op-2", text="left or right", options=["l", "r"], choice="l")
    call(machine, runtime, "steer", "op-3", id="ST-1", text="turn left")
    runtime.move_task("EXECUTING")
    machine.acknowledge()
    call(machine, runtime, "pause", "op-4", reason="lunch")
    runtime.close()


def drop_box(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt"])
    runtime.start("N1", session=True)
    machine.acknowledge()

    def drop(message_id: str, name: str, **args: Any) -> None:
        message = spool.Message(message_id, name, args, "executor:main", machine.clock.now())
        spool.drop(machine.disk, machine.layout, message)
        if name != "submit":  # which is refused, with an answer, once recovery ended the attempt
            machine.promised.append(message_id)

    drop("msg-1", "note", text="hello")
    runtime.engine.tick()
    machine.acknowledge()
    assert spool.take_result(machine.disk, machine.layout, "msg-1")
    machine.write("artifacts/N1/a.txt", b"a")
    drop("msg-2", "steer", id="ST-1", text="turn left")
    drop("msg-3", "submit", node="N1")
    machine.clock.advance(1.0)
    runtime.note("takes in what waits")
    machine.acknowledge()
    drop("msg-4", "decide", text="left it is")
    runtime.close()
    machine.acknowledge()


GRAPH = {"A": (), "B": ("A",), "C": ("A",), "D": ("B", "C")}


def graph_run(machine: AnyMachine) -> None:
    """A run of several nodes, by whichever process: it goes on from where the last one was."""
    runtime = machine.open("T")
    for name, deps in GRAPH.items():
        outputs = [f"artifacts/{name}/out.txt"]
        runtime.add_node(name, name, deps=deps, outputs=outputs, op=f"add-{name}")
        machine.acknowledge()
    if runtime.state.fsm_task in ("DECOMPOSING", "EXECUTING"):
        runtime.move_task("EXECUTING")
        machine.acknowledge()
        while any(runtime.node(name).state != "DONE" for name in GRAPH):
            verifying = [name for name in GRAPH if runtime.node(name).state == "VERIFYING"]
            for name in verifying:
                runtime.check(name)
            for name in runtime.frontier()[:1]:
                runtime.start(name)
                machine.acknowledge()
                machine.write(f"artifacts/{name}/out.txt", f"made by {name}".encode())
                runtime.submit(name)
            machine.acknowledge()
        runtime.move_task("FINAL_AUDIT")
        machine.acknowledge()
    runtime.close()


ALL = (
    create,
    add_nodes,
    life_by_transitions,
    submit,
    fail_and_retry,
    quarantine,
    batch,
    words,
    pause_and_resume,
    close_with_projections,
    short_commands,
    calls_on_the_graph,
    calls_on_work,
    calls_on_the_task,
    drop_box,
    graph_run,
)
