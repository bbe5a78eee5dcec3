"""What the processes of the crash tests are killed in: one function for each way to use it.

Each calls ``machine.acknowledge()`` whenever a call has returned. Each is repeatable byte for byte.
"""

import functools
from collections.abc import Callable
from typing import Any, Protocol

from perdure.core.events import Event
from perdure.errors import HaltError, RefusedError
from perdure.ports import Disk
from perdure.runtime.calls import perform
from perdure.runtime.gates import apply_fallbacks
from perdure.runtime.halt import HaltRuntime
from perdure.storage import spool
from perdure.storage.workspace import Layout


class PlainRuntime(HaltRuntime):
    """Its nodes are verified by their checks alone, also where the tier alone asks for more."""

    def add_node(self, node_id: str, title: str, **more: Any) -> Event:  # type: ignore[override]
        return super().add_node(node_id, title, **{"verification_level": "V1", **more})


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
    tier: int
    """Of the task that is created there."""

    @property
    def layout(self) -> Layout: ...
    @property
    def disk(self) -> Disk: ...
    @property
    def clock(self) -> MovingClock: ...
    def boot_process(self) -> None: ...
    def open(self, task_id: str | None = None) -> HaltRuntime: ...
    def attach(self, actor: str = "executor:main") -> HaltRuntime: ...
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


def call(
    machine: AnyMachine, runtime: HaltRuntime, name: str, op: str = "", by: str = "", **args: Any
) -> Any:
    """One writing call by its name, as interfaces and the drop box make it."""
    with runtime.engine.acting_as(by or runtime.engine.actor):
        answer = perform(runtime.engine, name, args, op=op or None)
    machine.acknowledge()
    return answer


def refused(
    machine: AnyMachine, runtime: HaltRuntime, name: str, op: str = "", by: str = "", **args: Any
) -> None:
    """A call that is refused, and may have committed the question that it is refused with."""
    try:
        call(machine, runtime, name, op, by, **args)
    except RefusedError:
        machine.acknowledge()
    else:
        raise AssertionError(f"{name} is not refused")


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
        runtime = machine.attach("coordinator:main")
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


def observations(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    job = {"what": "external", "provider": "p", "job_id": "7", "node": "N1"}
    key = {"reason": "no key", "needs": ["a key"], "safe_next_step": "wait"}
    call(machine, runtime, "add", node="N1", spec={"outputs": ["artifacts/N1/a.txt"]})
    call(machine, runtime, "observe", "op-1", what="progress", node="N1", summary="begun")
    call(machine, runtime, "start", node="N1")
    call(machine, runtime, "observe", "op-2", **job, state="PENDING", facts={"poll_token": "x"})
    call(machine, runtime, "block", "op-3", node="N1", **key, failure_type="TIMEOUT")
    call(machine, runtime, "reply", "op-4", letter="A", summary="renewed", resume_token="RT-1")
    call(machine, runtime, "start", node="N1")
    call(machine, runtime, "observe", "op-5", what="completed", node="N1")
    machine.write("artifacts/N1/a.txt", b"a")
    assert call(machine, runtime, "observe", "op-6", what="completed", node="N1")["claimed"]
    call(machine, runtime, "observe", "op-7", **job, state="COMPLETED")
    download = {"id": "d", "status": "COMPLETE", "path": "x", "size_bytes": 7}
    call(machine, runtime, "observe", "op-8", what="download", **download)
    assert call(machine, runtime, "check", node="N1")["passed"]
    call(machine, runtime, "reply", "op-9", letter="C", summary="all of it")
    assert call(machine, runtime, "observe", "op-6", what="completed", node="N1")["repeated"]
    runtime.close()


def rulings(machine: AnyMachine) -> None:
    """Questions and gates, each asked, ruled on and gone on from, with content that changes."""
    runtime = machine.open("T")
    start = {"gate_id": "G-go", "blocks": "start", "content": ["plan.md"]}
    spec = {"outputs": ["artifacts/N1/a.txt"], "gates": ["May it go out?", start]}
    call(machine, runtime, "add", node="N1", spec=spec)
    machine.write("plan.md", b"to everybody")
    refused(machine, runtime, "start", node="N1")
    rule = functools.partial(call, machine, runtime, by="gatekeeper:anna")
    rule("revise", "op-1", question="G-go", text="to Bert", changes={"env": {"TO": "Bert"}})
    refused(machine, runtime, "start", node="N1")
    machine.write("plan.md", b"to Bert")
    refused(machine, runtime, "approve", "op-2", by="gatekeeper:anna", question="G-go.2")
    rule("approve", "op-3", question="G-go.3")
    call(machine, runtime, "start", "op-4", node="N1")
    call(machine, runtime, "ask", "op-5", text="Which licence?", node="N1")
    rule("answer", "op-6", question="Q-001", text="MIT")
    machine.write("plan.md", b"to Carla")
    refused(machine, runtime, "start", node="N1")
    rule("approve", question="G-go.4")
    call(machine, runtime, "start", node="N1")
    machine.write("artifacts/N1/a.txt", b"a")
    assert call(machine, runtime, "submit", "op-7", node="N1")["waits_for"]
    rule("reject", "op-8", question="G-N1-review", text="too short")
    call(machine, runtime, "start", node="N1")
    machine.write("artifacts/N1/a.txt", b"aa")
    call(machine, runtime, "submit", node="N1")
    assert rule("approve", "op-9", question="G-N1-review.2")["state"] == "DONE"
    assert rule("approve", "op-9", question="G-N1-review.2")["repeated"]
    runtime.close()


def held_for_people(machine: AnyMachine) -> None:
    """A node out of strikes, a judge, an unproven effect, and a gate that nobody rules on."""
    runtime = machine.open("T")
    rule = functools.partial(call, machine, runtime, by="gatekeeper:anna")
    spec = {"outputs": ["artifacts/N1/a.txt"], "retry_budget": 2, "accept": ["human: polite"]}
    call(machine, runtime, "add", node="N1", spec=spec)
    for _ in range(2):
        call(machine, runtime, "start", node="N1")
        failure = {"failure_class": "transient-agent", "reason": "exit 3"}
        call(machine, runtime, "fail", node="N1", **failure)
    rule("answer", "op-1", question="Q-N1-2", text="by hand, then", method="by hand")
    call(machine, runtime, "start", node="N1")
    machine.write("artifacts/N1/a.txt", b"by hand")
    assert call(machine, runtime, "submit", node="N1")["waits_for"]
    assert rule("approve", question="G-N1-judge")["state"] == "DONE"
    call(machine, runtime, "add", node="N2", effect="S3", spec={"outputs": ["artifacts/N2/b.txt"]})
    refused(machine, runtime, "start", node="N2")
    rule("approve", "op-2", question="G-N2-start")
    call(machine, runtime, "start", node="N2")
    call(machine, runtime, "fail", "op-3", node="N2", **failure)
    rule("answer", "op-4", question="Q-N2-1", text="I saw it", choice="done")
    gate = {"gate_id": "G-N3", "blocks": "start", "timeout_s": 60, "fallback": "reject"}
    call(machine, runtime, "add", node="N3", spec={"gates": [gate]})
    refused(machine, runtime, "start", node="N3")
    machine.clock.advance(90.0)
    assert apply_fallbacks(runtime.engine) == 1
    machine.acknowledge()
    runtime.close()


def drop_box(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt"])
    runtime.start("N1", session=True)
    machine.acknowledge()

    worker = f"executor:{runtime.state.nodes['N1'].invocation}"
    senders = {"steer": "sponsor:main", "decide": "coordinator:other"}

    def drop(message_id: str, name: str, **args: Any) -> None:
        sender = senders.get(name, worker)
        message = spool.Message(message_id, name, args, sender, machine.clock.now())
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


def steering(machine: AnyMachine) -> None:
    """Instructions to work that waits, is under way, being verified, and done."""
    runtime = machine.open("T")
    for name, deps in {"N1": (), "N2": ("N1",), "N3": ("N2",), "N4": ()}.items():
        runtime.add_node(name, name, deps=deps)
    machine.acknowledge()
    runtime.start("N1")
    machine.write("artifacts/N1/a.txt", b"a")
    runtime.submit("N1")
    runtime.start("N2")
    machine.write("artifacts/N2/half.txt", b"half")
    runtime.register_artifact("", "artifacts/N2/half.txt", node_id="N2")
    machine.acknowledge()
    call(machine, runtime, "steer", "op-1", text="metric units")
    assert call(machine, runtime, "steer", "op-1", text="metric units")["repeated"]
    runtime.start("N4")
    machine.write("artifacts/N4/b.txt", b"b")
    runtime.submit("N4", check=False)
    machine.acknowledge()
    runtime.steering("ST-2", "in French", reading="amendment", nodes=["N1", "N4"])
    machine.acknowledge()
    changes = {"priority": 3, "goal": "shorter"}
    call(machine, runtime, "steer", text="shorter", reading="amendment", changes=changes)
    call(machine, runtime, "steer", "op-2", text="why?", reading="question")
    runtime.move_task("EXECUTING")
    machine.acknowledge()
    call(machine, runtime, "steer", "op-3", text="stop", reading="halt")
    runtime.close()


def written_words(machine: AnyMachine) -> None:
    """A person writes into a file, beside a coordinator and where nobody coordinates."""
    runtime = machine.open("T")
    runtime.add_node("N1", "first")
    machine.acknowledge()
    machine.write("steering/write-here.md", b"metric units\n")
    runtime.engine.tick()
    machine.acknowledge()
    machine.write("steering/write-here.md", b"in French\n")
    machine.clock.advance(1.0)
    runtime.start("N1")
    machine.acknowledge()
    runtime.close()
    machine.write("steering/write-here.md", b"shorter\n")
    machine.attach().note("a short command")
    machine.acknowledge()


def no_messages(machine: AnyMachine) -> None:
    """Files in the drop box that are none, beside one that is."""
    runtime = machine.open("T")
    machine.acknowledge()
    machine.write("steering/spool/torn.json", b'{"id":"torn","comm')
    machine.write("steering/spool/README", b"what is this place?")
    message = spool.Message("msg-1", "note", {"text": "x"}, "executor:main", machine.clock.now())
    spool.drop(machine.disk, machine.layout, message)
    machine.promised.append("msg-1")
    machine.clock.advance(1.0)
    runtime.engine.tick()
    machine.acknowledge()
    runtime.close()


def replans(machine: AnyMachine) -> None:
    """The plan changes under the work: nodes amended, split and given up, the goal and a policy."""
    runtime = machine.open("T")
    for name, deps in {"A": [], "B": ["A"], "C": ["B"]}.items():
        spec = {"outputs": [f"artifacts/{name}/out.txt"]}
        call(machine, runtime, "add", node=name, deps=deps, spec=spec)
    call(machine, runtime, "amend", "op-1", node="C", reason="asked", spec={"goal": "briefly"})
    call(machine, runtime, "start", node="A")
    machine.write("artifacts/A/out.txt", b"made by A")
    call(machine, runtime, "submit", node="A")
    parts = [{"node": name, "title": name} for name in ("B1", "B2")]
    call(machine, runtime, "split", "op-2", node="B", into=parts, reason="too large")
    call(machine, runtime, "start", node="B1")
    runtime.policy("retry_budget", 4, "flaky", op="op-3")
    machine.acknowledge()
    wanted = {"text": "less", "reason": "no time", "reverify": ["A"]}
    call(machine, runtime, "goal", "op-4", by="sponsor:ann", **wanted)
    call(machine, runtime, "quarantine", "op-5", node="B1", replacement="B2", reason="no need")
    assert call(machine, runtime, "split", "op-2", node="B", into=parts)["repeated"]
    runtime.close()


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
    observations,
    rulings,
    held_for_people,
    drop_box,
    steering,
    written_words,
    no_messages,
    replans,
    graph_run,
)
