"""What must hold after each death, on a real disk as on a simulated one.

``check_recovery`` is the whole of it: acknowledged events survive, no event is there that was never
attempted, sequence and hash chain are intact, the live state is what the journal says, every
artifact has its bytes, every promised message was carried out once. ``check_second_recovery``:
recovering twice equals recovering once. ``finish``: work goes on to its end.
"""

import contextlib
from collections.abc import Iterator
from hashlib import sha256
from typing import Protocol

from tests.crash.workloads import AnyMachine

from perdure.core.codec import ChainTip, Scan
from perdure.core.fold import Replica
from perdure.core.gates import gates_at, refused_as_it_is
from perdure.core.model import State
from perdure.core.projection import seal_snapshot
from perdure.core.task_audit_record import failed_items
from perdure.errors import HaltError, RefusedError
from perdure.runtime.gates import ask_due_gates
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.task_audits import audit_task

PROJECTIONS = (".snapshot.json", "task-graph.json", "checkpoint.json", "artifacts/registry.json")


class CheckedMachine(AnyMachine, Protocol):
    """A machine whose files can be looked at from outside."""

    acknowledged: bytes

    def bytes_of(self, path: str) -> bytes | None: ...
    def file_names(self) -> list[str]: ...


def projections(machine: CheckedMachine) -> dict[str, bytes | None]:
    return {name: machine.bytes_of(name) for name in PROJECTIONS}


def whole_commits(data: bytes) -> bytes:
    """The journal bytes up to the end of the last whole commit."""
    scan = Scan()
    for _ in scan.commits([data]):
        pass
    return data[: scan.tip.offset]


def replayed(journal: bytes) -> tuple[State, ChainTip]:
    """The state after every line of a journal that has nothing wrong with it."""
    replica, scan = Replica(), Scan()
    for events in scan.commits([journal]):
        replica.apply_all(events)
    assert scan.damage is None, scan.damage
    assert scan.unchained == 0
    return replica.state, scan.tip


def check_recovery(
    machine: CheckedMachine, *possible: bytes, task_id: str | None = "T"
) -> HaltRuntime:
    """Open what a death left, in the process of now; returns the runtime, closed.

    ``possible`` are journals of which the dead may have written any prefix.
    """
    left = machine.journal()
    assert left.startswith(machine.acknowledged), "an acknowledged event is gone"
    kept = whole_commits(left)
    assert any(whole.startswith(kept) for whole in possible), "a phantom event"
    if kept:
        check_evidence(machine, replayed(kept)[0])
    runtime = machine.open(task_id)
    assert machine.journal().startswith(kept), "recovery changed what was committed"
    check_live(machine, runtime)
    check_evidence(machine, runtime.state)
    check_nothing_twice(machine, runtime)
    runtime.close()
    check_mirror(machine, runtime)
    check_audit(machine, runtime)
    return runtime


def check_mirror(machine: CheckedMachine, runtime: HaltRuntime) -> None:
    """Where there is to be one, it is the same bytes."""
    if runtime.state.tier == 2:
        assert machine.bytes_of("journal-mirror.jsonl") == machine.journal(), "the mirror differs"
    else:
        assert machine.bytes_of("journal-mirror.jsonl") is None


def check_audit(machine: CheckedMachine, runtime: HaltRuntime) -> None:
    """The whole task holds, item by item; but files that the scenario took away are missed."""
    failed = failed_items(audit_task(runtime.engine).record)
    missed = {"A2.2", "A4.2"} if machine.lost_paths else set()
    told = {item.item: item.results[:3] for item in failed if item.item not in missed}
    assert not told, told


def check_live(machine: CheckedMachine, runtime: HaltRuntime) -> None:
    """Replaying the journal from its first byte gives the live state, byte for byte."""
    state, tip = replayed(machine.journal())
    live = runtime.engine.replica.state
    assert seal_snapshot(live, runtime.engine.journal.tip) == seal_snapshot(state, tip)


def check_evidence(machine: CheckedMachine, state: State) -> None:
    """Every artifact is there with its bytes, and every contract that is in force.

    Also superseded and quarantined ones; before a recovery they may still be where they are to be
    moved from.
    """
    for name, artifact in state.artifacts.items():
        paths = [path for path in (artifact.path, artifact.origin) if path]
        if machine.lost_paths.intersection(paths):
            continue
        found = [data for path in paths if (data := machine.bytes_of(path)) is not None]
        assert found, f"{name} is gone: {paths}"
        digests = [sha256(data).hexdigest() for data in found]
        assert artifact.integrity.value in digests, f"{name} has other bytes"
    for contract in state.contracts.values():
        data = machine.bytes_of(f"contracts/{contract.invocation_id}.json")
        assert data is not None, f"{contract.invocation_id} is gone"
        assert sha256(data).hexdigest() == contract.sha256
    for node in state.nodes.values():
        assert node.state != "DONE" or node.artifacts, f"{node.node_id} is DONE on nothing"


def check_nothing_twice(machine: CheckedMachine, runtime: HaltRuntime) -> None:
    """Nothing is put on record twice; what was promised in the drop box is done, and done once."""
    names: list[str] = []
    words: list[str] = []
    ops: list[str] = []
    acknowledged: list[str] = []
    for events in Scan().commits([machine.journal()]):
        names += [event.entity.id for event in events if event.kind == "ARTIFACT_REGISTERED"]
        words += [event.payload["verbatim"] for event in events if event.kind == "STEERING_LOGGED"]
        ops += {event.op for event in events if isinstance(event.op, str)}
        acknowledged += [e.entity.id for e in events if e.payload.get("op") == "acknowledged"]
    assert len(names) == len(set(names)), names
    assert len(words) == len(set(words)), "an instruction is on record twice"
    assert sorted(acknowledged) == sorted(runtime.state.steering), "each is acted on once"
    assert len(ops) == len(set(ops)), ops
    assert set(machine.promised) <= set(ops), "a message that was promised is lost"


def check_second_recovery(machine: CheckedMachine) -> None:
    """Recovering again finds nothing: not a byte of journal or projections differs."""
    if replayed(machine.journal())[0].fsm_task == "SUSPENDED":
        machine.boot_process()  # the first one has carried out a halt; this one lets it go on (T05)
        machine.open().close()
    journal, views = machine.journal(), projections(machine)
    machine.boot_process()
    runtime = machine.open()
    assert runtime.recovered.committed == "", runtime.recovered
    runtime.close()
    assert machine.journal() == journal
    assert projections(machine) == views
    # But for messages in the making, which a living sender may be about to finish.
    left = [name for name in machine.file_names() if ".tmp-" in name and "/spool/" not in name]
    assert left == []


def finish(machine: CheckedMachine) -> None:
    """Whatever state it is in, another process can bring the task to its end."""
    machine.boot_process()
    runtime = machine.open()
    if runtime.state.fsm_task == "SUSPENDED":
        runtime.move_task("EXECUTING")
    if "END" not in runtime.state.nodes:
        runtime.add_node("END", "the last one", outputs=["artifacts/END/end.txt"])
    for _ in range(50):
        settle_open_nodes(machine, runtime)
        if all(node.state in _SETTLED for node in runtime.state.nodes.values()):
            break
    states = {name: node.state for name, node in runtime.state.nodes.items()}
    assert states["END"] == "DONE", states
    assert set(states.values()) <= _SETTLED, states
    check_live(machine, runtime)
    check_evidence(machine, runtime.state)
    runtime.close()
    check_mirror(machine, runtime)


_SETTLED = {"DONE", "QUARANTINED", "CANCELLED"}


def settle_open_nodes(machine: CheckedMachine, runtime: HaltRuntime) -> None:
    """One round: rule on what is asked at gates, then take every open node one step further."""
    ask_due_gates(runtime.engine)
    for question in list(runtime.state.questions.values()):
        if question.gate and question.question_id in runtime.state.questions:
            with content_may_be_gone():
                runtime.approve(question.question_id, by="gatekeeper:anybody")
    for name, node in list(runtime.state.nodes.items()):
        waits = node.state == "RETRYABLE" and name not in runtime.frontier()
        gates = gates_at(runtime.state, node, "start") if node.state == "PENDING" else ()
        if any(refused_as_it_is(runtime.state, node, gate) for gate in gates):
            runtime.cancel([name], "somebody has refused it")
        elif node.state == "BLOCKED" or waits:
            runtime.retry(name, "go on", method=f"method-{node.attempts}")
        elif node.state == "VERIFYING":
            runtime.check(name)
        elif node.state == "RUNNING":
            for path in node.spec.outputs or (f"artifacts/{name}/made-{node.attempts}.txt",):
                if path not in runtime.engine.replica.paths:
                    machine.write(path, f"{path} of attempt {node.attempts}".encode())
            if node.effect == "S3" and node.receipt is None:
                runtime.receipt(name, "somebody saw it")
            try:
                runtime.submit(name)
            except HaltError as error:
                runtime.fail(name, "transient-agent", error.code)
        elif node.state == "QUARANTINED" and not node.successors:
            runtime.add_node(f"{name}s", f"instead of {name}", successor_of=name)
    for name in runtime.frontier()[:1]:
        with content_may_be_gone():
            runtime.start(name)


@contextlib.contextmanager
def content_may_be_gone() -> Iterator[None]:
    """What a gate is about may have been lost with the power: then it is asked about anew."""
    try:
        yield
    except RefusedError as error:
        if error.code not in ("approval_void", "content_changed"):
            raise
