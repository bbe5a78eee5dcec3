"""The outside contract, line by line: the library and the journal."""

import gc
import inspect
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.host import Host

import perdure
from perdure import (
    CorruptError,
    FencedError,
    HaltError,
    HaltRuntime,
    LeaseHeldError,
    NotFoundError,
    RefusedError,
)
from perdure.runtime.world import real_world
from perdure.storage.lease import LeaseFile


def lines(host: Host) -> list[dict[str, Any]]:
    return [json.loads(line) for line in host.read().splitlines()]


# Opening


def test_a_new_directory_becomes_a_workspace(workspace: str) -> None:
    root = os.path.join(workspace, "a", "b")
    with HaltRuntime(root, "T1", goal="g") as runtime:
        assert runtime.status()["task_id"] == "T1"
    assert os.path.isfile(os.path.join(root, "journal.jsonl"))


def test_an_existing_one_is_resumed_under_the_same_id_or_none(host: Host) -> None:
    with host.open() as runtime:
        runtime.add_node("N1", "first")
    for task_id in ("T1", None):
        with HaltRuntime(host.workspace, task_id, world=host.world()) as runtime:
            assert runtime.status()["nodes"] == {"N1": "PENDING"}


def test_another_id_is_refused(host: Host) -> None:
    host.open().close()
    before = host.read()
    with pytest.raises(RefusedError) as caught:
        HaltRuntime(host.workspace, "T2", world=host.world())
    assert "'T1'" in str(caught.value)
    assert host.read() == before


def test_nothing_is_created_without_an_id(host: Host) -> None:
    with pytest.raises(NotFoundError):
        HaltRuntime(host.workspace, world=host.world())
    with pytest.raises(NotFoundError):
        host.resume()
    assert not os.path.exists(os.path.join(host.workspace, "journal.jsonl"))


def test_an_unfinished_creation_is_completed(host: Host) -> None:
    for leftover in ("artifacts", "contracts", "steering/spool"):
        os.makedirs(os.path.join(host.workspace, leftover))
    host.write(".journal.jsonl.tmp-100-1", '{"seq":1')
    host.write("lease.json", "")
    with host.open() as runtime:
        assert runtime.status()["nodes"] == {}
        assert runtime.events()[0].kind == "INSTANCE_STARTED"
    assert not [name for name in os.listdir(host.workspace) if ".tmp-" in name]


def test_the_lease_is_taken_before_anything_is_recovered(host: Host) -> None:
    first = host.open()
    first.add_node("N1", "first")
    first.start("N1")
    before = host.read()
    with pytest.raises(LeaseHeldError):
        host.resume(pid=101)
    assert host.read() == before
    first.close()


def test_it_is_a_context_manager_and_close_may_be_called_again(host: Host) -> None:
    with host.open() as runtime:
        pass
    runtime.close()
    with pytest.raises(HaltError) as caught:
        runtime.note("late")
    assert caught.value.code == "closed"
    host.resume(pid=101).close()


# Calls


SIGNATURES: dict[str, tuple[str, ...]] = {
    "add_node": ("node_id", "title", "deps"),
    "transition": ("node_id", "to", "evidence"),
    "register_artifact": ("artifact_id", "path", "kind", "node_id"),
    "verify_artifact": ("artifact_id",),
    "integrity_walk": (),
    "steering": ("steering_id", "text"),
    "decision": ("decision_id", "text"),
    "note": ("text",),
    "frontier": (),
    "events": (),
    "batch": (),
    "status": (),
    "append": ("kind", "entity", "payload", "evidence"),
    "attach_artifact": ("node_id", "artifact_id"),
    "set_hint": ("text",),
    "close": (),
}


@pytest.mark.parametrize(("name", "names"), SIGNATURES.items(), ids=SIGNATURES)
def test_every_call_of_the_contract_is_there(name: str, names: tuple[str, ...]) -> None:
    parameters = list(inspect.signature(getattr(HaltRuntime, name)).parameters.values())[1:]
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    known = [p.name for p in parameters]
    assert all(name in known for name in names)
    assert positional[: len(names)] == [n for n in names if n in positional]
    required = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    assert set(required) <= set(names)


def test_the_constructor_has_the_arguments_of_the_contract() -> None:
    parameters = inspect.signature(HaltRuntime).parameters
    defaults = {name: parameters[name].default for name in ("task_id", "goal", "tier", "actor")}
    assert defaults == {"task_id": None, "goal": "", "tier": 1, "actor": "coordinator:main"}
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in ("goal", "tier"))


def test_what_the_smaller_calls_do(host: Host) -> None:
    with host.open() as runtime:
        runtime.add_node("N1", "first")
        runtime.set_hint("begin with N1")
        runtime.register_artifact("A-1", host.write("a.txt"))
        runtime.attach_artifact("N1", "A-1")
        observed = runtime.append(
            "STEP_PROGRESS", {"type": "node", "id": "N1"}, {"percent": 5}, ["A-1"]
        )
        assert (observed.kind, observed.seq) == ("STEP_PROGRESS", runtime.seq_last)
        assert runtime.node("N1").artifacts == ("A-1",)
        assert runtime.registry["A-1"]["path"] == "a.txt"
        assert runtime.status()["next_hint"] == "begin with N1"


def test_the_event_of_a_move_is_returned_whatever_else_its_commit_holds(host: Host) -> None:
    with host.open() as runtime:
        runtime.add_node("N1", "first")
        added = runtime.add_node("N2", "second", deps=["N1"])
        assert (added.kind, added.entity.id) == ("AMENDMENT", "N2")
        assert runtime.transition("N1", "RUNNING").payload["edge"] == "N02"
        runtime.register_artifact("A-1", host.write("artifacts/N1/o"), node_id="N1")
        runtime.transition("N1", "VERIFYING", ["A-1"])
        done = runtime.transition("N1", "DONE", ["A-1"])
        assert (done.entity.id, done.payload["edge"]) == ("N1", "N06")
        runtime.transition("N2", "RUNNING")
        runtime.register_artifact("A-2", host.write("artifacts/N2/o"), node_id="N2")
        failed = runtime.transition(
            "N2", "RETRYABLE", failure_class="transient-agent", signature="exit 3"
        )
        assert (failed.entity.id, failed.payload["edge"]) == ("N2", "N04")
        runtime.cancel(["N2"], "not wanted")
        runtime.add_node("N3", "waits", deps=["N2"])
        again = runtime.add_node("N2b", "instead", successor_of="N2")
        assert (again.entity.id, again.payload["op"]) == ("N2b", "add_node")


def test_an_op_id_again_answers_with_the_first_result_and_writes_nothing(host: Host) -> None:
    with host.open() as runtime:
        runtime.add_node("N1", "first")
        calls: list[Callable[[], Any]] = [
            lambda: runtime.note("x", op="op-1").seq,
            lambda: runtime.decision("", "x", op="op-2").seq,
            lambda: runtime.steering("", "x", op="op-3").seq,
            lambda: runtime.start("N1", op="op-4").ref,
            lambda: (
                runtime.register_artifact(
                    "", host.write(f"artifacts/N1/{runtime.seq_last}"), node_id="N1", op="op-5"
                ).path
            ),
            lambda: runtime.submit("N1", op="op-6").ref,
        ]
        for call in calls:
            first, length = call(), len(host.read())
            assert call() == first
            assert len(host.read()) == length


def test_a_batch_is_one_commit_or_nothing(host: Host) -> None:
    with host.open() as runtime:
        before = len(lines(host))
        with runtime.batch():
            runtime.add_node("N1", "first")
            runtime.add_node("N2", "second", deps=["N1"])
            runtime.note("both")
            ready = runtime.transition("N1", "READY")
            assert runtime.transition("N1", "READY") == ready, "the same again is known inside too"
            assert len(lines(host)) == before
        assert [line["c"] for line in lines(host)[before:]] == [[1, 4], [2, 4], [3, 4], [4, 4]]
        before = len(lines(host))

        def give_up() -> None:
            with runtime.batch():
                runtime.add_node("N3", "third")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            give_up()
        assert len(lines(host)) == before
        assert list(runtime.status()["nodes"]) == ["N1", "N2"]


def test_status_has_at_least_what_the_contract_names(host: Host) -> None:
    with host.open() as runtime:
        runtime.add_node("N1", "first")
        host.finish(runtime, "N1")
        status = runtime.status()
    assert {"task_id", "seq_last", "nodes", "artifacts", "frontier", "integrity"} <= set(status)
    assert status["nodes"] == {"N1": "DONE"}
    assert status["all_integrity_pass"] is True
    json.dumps(status)


# One coordinator


def test_resume_in_the_same_process_takes_over_at_the_next_epoch(host: Host) -> None:
    first = host.open()
    second = host.resume()
    assert second.note("mine").epoch == first.note.__self__.engine.epoch + 1
    with pytest.raises(FencedError) as caught:
        first.note("late")
    assert "lease" in str(caught.value)
    first.close()
    assert second.note("still mine").epoch == 2
    second.close()


def test_a_held_lease_says_lease_pid_and_actor(host: Host) -> None:
    first = host.open(actor="coordinator:ada")
    for attempt in (lambda: host.resume(101), lambda: host.attach(101).note("me too")):
        with pytest.raises(LeaseHeldError) as caught:
            attempt()
        for word in ("lease", "100", "coordinator:ada"):
            assert word in str(caught.value)
    first.close()


def test_exit_hooks_hold_weak_references_only(workspace: str) -> None:
    runtime = HaltRuntime(os.path.join(workspace, "w"), "T1")
    runtime.note("x")
    engine = runtime.engine
    del runtime
    gc.collect()
    world = real_world()
    lease = LeaseFile(world.disk, engine.layout.lease, world.processes, world.clock)
    assert lease.standing()[0] == "released"


# Errors


def errors(host: Host) -> list[HaltError]:
    """One of each kind of refusal that the library gives."""
    found: list[HaltError] = []
    with host.open() as runtime:
        runtime.add_node("N1", "first")
        attempts: list[Callable[[], object]] = [
            lambda: runtime.transition("N1", "SHINING"),
            lambda: runtime.transition("N9", "READY"),
            lambda: runtime.transition("N1", "DONE"),
            lambda: runtime.transition("N1", "VERIFYING"),
            lambda: runtime.add_node("N2", "x", deps=["N9"]),
            lambda: runtime.add_node("N1", "again"),
            lambda: runtime.add_node("N2", "x", colour="red"),
            lambda: runtime.add_node("N2", "x", priority="high"),  # type: ignore[arg-type]
            lambda: runtime.add_node("N2", "x", cost=float("inf")),
            lambda: runtime.add_node("N2", "x", outputs=["../x"]),
            lambda: runtime.add_node("N2", "x", accept=["exist: a"]),
            lambda: runtime.register_artifact("A-1", "missing.txt"),
            lambda: runtime.register_artifact("A-1", "/etc/passwd"),
            lambda: runtime.verify_artifact("A-9"),
            lambda: runtime.attach_artifact("N1", "A-9"),
            lambda: runtime.append("WEATHER", {}, {}),
            lambda: runtime.append("STATE_TRANSITION", {}, {}),
            lambda: runtime.append("STEP_PROGRESS", {}, {"what": object()}),
            lambda: runtime.cancel([], "x"),
            lambda: runtime.amend_node("N1", "so", priority="high"),
            lambda: runtime.beat(["N1"]),
            lambda: runtime.note(""),
        ]
        for attempt in attempts:
            before = host.read()
            with pytest.raises(HaltError) as caught:
                attempt()
            assert host.read() == before
            found.append(caught.value)
    return found


def test_every_refusal_has_a_code_a_message_and_a_fix(host: Host) -> None:
    for error in errors(host):
        text = str(error)
        assert error.code in text
        assert error.message in text
        assert error.fix, text
        assert error.fix in text
        if isinstance(error, RefusedError):
            assert error.rule, text
        if error.rule:
            assert error.rule in text
        assert set(error.as_dict()) == {"code", "rule", "message", "fix", "suggestions"}


def test_damage_in_the_journal_says_line_and_byte(host: Host) -> None:
    with host.open() as runtime:
        for number in range(3):
            runtime.note(f"note {number}")
    data = host.read()
    path = os.path.join(host.workspace, "journal.jsonl")
    at = data.index(b"note 1")
    with open(path, "r+b") as stream:
        stream.seek(at)
        stream.write(b"NOTE 1")
    os.unlink(os.path.join(host.workspace, ".snapshot.json"))
    with pytest.raises(CorruptError) as caught:
        host.resume()
    line, byte = data[:at].count(b"\n") + 1, data.rindex(b"\n", 0, at) + 1
    assert f"line {line}, byte {byte}" in str(caught.value)
    assert caught.value.exit_code == 6


def test_the_public_names_are_there() -> None:
    for name in ("HaltRuntime", "HaltError"):
        assert name in perdure.__all__
        assert getattr(perdure, name)


# The journal


def test_creating_a_task_writes_at_most_three_events_and_the_first_names_it(host: Host) -> None:
    host.open().close()
    found = lines(host)
    assert len(found) <= 3
    assert found[0]["kind"] == "INSTANCE_STARTED"
    assert (found[0]["payload"]["task"], found[0]["payload"]["goal"]) == ("T1", "g")
    assert found[0]["entity"] == {"type": "task", "id": "T1"}


def lived(host: Host) -> list[dict[str, Any]]:
    runtime = host.open()
    for name, deps in {"N1": (), "N2": ("N1",), "N3": ()}.items():
        runtime.add_node(name, f"title of {name}", deps=deps)
    host.finish(runtime, "N1")
    runtime.start("N2")
    runtime.fail("N2", "transient-agent", "exit 3")
    runtime.start("N3")
    host.write("artifacts/N3/half")
    runtime.register_artifact("A-half", "artifacts/N3/half", node_id="N3")
    host.die(runtime)
    with host.resume(101) as runtime:
        runtime.cancel(["N3"], "not wanted")
        runtime.steering("", "faster", op="op-1")
    return lines(host)


def test_every_line_has_the_fields_of_the_protocol(host: Host) -> None:
    found = lived(host)
    assert [line["seq"] for line in found] == list(range(1, len(found) + 1))
    for line in found:
        assert {"ts", "actor", "kind", "tx", "entity", "payload", "evidence", "epoch"} <= set(line)
        assert list(line)[-1] == "h"
        assert set(line["entity"]) == {"type", "id"}
        assert ":" in line["actor"]
        assert line["ts"].endswith("+00:00")
        assert (line["tx"] is None) == ("c" not in line)
    (logged,) = [line for line in found if line["kind"] == "STEERING_LOGGED"]
    assert logged["op"] == "op-1"


def test_every_transition_says_from_to_and_edge(host: Host) -> None:
    moved = [line["payload"] for line in lived(host) if line["kind"] == "STATE_TRANSITION"]
    assert len(moved) > 8
    for payload in moved:
        assert {"from", "to", "edge"} <= set(payload)
        assert all(isinstance(payload[key], str) and payload[key] for key in ("from", "to", "edge"))


def test_every_registration_says_path_and_integrity(host: Host) -> None:
    found = [line["payload"] for line in lived(host) if line["kind"] == "ARTIFACT_REGISTERED"]
    assert len(found) == 2
    for payload in found:
        assert payload["path"]
        assert {"algo", "value", "size_bytes", "checked_at"} <= set(payload["integrity"])


def test_a_torn_tail_is_registered_as_a_quarantined_artifact(host: Host) -> None:
    host.open().close()
    path = os.path.join(host.workspace, "journal.jsonl")
    with open(path, "ab") as stream:
        stream.write(b'{"seq":3,"ts":"2027')
    with host.resume() as runtime:
        (artifact,) = runtime.registry.values()
        assert artifact.status == "quarantined"
        assert host.read(artifact.path) == b'{"seq":3,"ts":"2027'
        assert any("torn tail" in line for line in runtime.recovered.found)
    length = len(host.read())
    host.resume().close()
    assert len(host.read()) == length
