"""Observations over the real runtime: each is durable, one commit with what follows from it, and
the same whichever way it came."""

from typing import Any

import click
import pytest
from tests.conformance.host import Host, edges
from tests.unit.core.story import replay

from perdure import HaltRuntime
from perdure.core.model import MapSpec
from perdure.core.observed import PROVIDER_EVIDENCE
from perdure.core.projection import seal_snapshot
from perdure.errors import HaltError, UsageError
from perdure.interfaces.cli.supervise import (
    block_command,
    observe_command,
    observe_external_command,
    reply_command,
)
from perdure.interfaces.cli.work import beat_command
from perdure.runtime import work
from perdure.runtime.calls import perform
from perdure.runtime.contracts import Units
from perdure.storage import spool


@pytest.fixture
def runtime(host: Host) -> HaltRuntime:
    runtime = host.open()
    runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt", "artifacts/N1/b.txt"])
    runtime.start("N1")
    return runtime


def call(runtime: HaltRuntime, name: str, op: str | None = None, **args: Any) -> dict[str, Any]:
    return perform(runtime.engine, name, args, op=op)


def completed(runtime: HaltRuntime, node: str = "N1", **more: Any) -> dict[str, Any]:
    return call(runtime, "observe", what="completed", node=node, **more)


def last_commit(runtime: HaltRuntime, count: int) -> list[str]:
    """Edges and kinds of the last events, which are to be one commit."""
    events = list(runtime.events())[-count:]
    assert len({event.tx for event in events}) == 1
    assert count == 1 or events[-1].payload["tx_end"]
    return [event.payload.get("edge") or event.kind for event in events]


def check_replayed(host: Host, runtime: HaltRuntime) -> None:
    """What is live is what the journal alone gives."""
    replica, tip = replay(host.read())
    assert seal_snapshot(replica.state, tip) == seal_snapshot(runtime.state, tip)


# Completion, claimed where it can be


def test_a_step_that_is_seen_completed_is_claimed_with_its_outputs_in_one_commit(
    host: Host, runtime: HaltRuntime
) -> None:
    host.write("artifacts/N1/a.txt")
    host.write("artifacts/N1/b.txt")
    found = completed(runtime, summary="both files", facts={"files": "2"})
    assert (found["claimed"], found["state"]) == (True, "VERIFYING")
    kinds = last_commit(runtime, 4)
    assert kinds == ["ARTIFACT_REGISTERED", "ARTIFACT_REGISTERED", "STEP_COMPLETED", "N03"]
    assert found["committed"] == f"J-{runtime.seq_last - 1}"
    assert runtime.events()[-1].payload["report"] == found["committed"]
    assert call(runtime, "check", node="N1")["passed"]
    assert runtime.node("N1").state == "DONE"
    check_replayed(host, runtime)


def test_outputs_that_were_registered_before_are_claimed_as_they_are(
    host: Host, runtime: HaltRuntime
) -> None:
    for name in "ab":
        runtime.register_artifact("", host.write(f"artifacts/N1/{name}.txt"), node_id="N1")
    assert completed(runtime)["claimed"]
    assert last_commit(runtime, 2) == ["STEP_COMPLETED", "N03"]


@pytest.mark.parametrize("there", [[], ["artifacts/N1/a.txt"]])
def test_a_word_of_completion_without_the_outputs_is_recorded_alone(
    host: Host, runtime: HaltRuntime, there: list[str]
) -> None:
    for path in there:
        host.write(path)
    found = completed(runtime)
    assert (found["claimed"], found["state"]) == (False, "RUNNING")
    assert "artifacts/N1/b.txt is missing" in found["why"]
    assert last_commit(runtime, 1) == ["STEP_COMPLETED"]
    assert runtime.registry == {}
    assert runtime.state.observed.steps["N1"].state == "COMPLETED"


def test_a_claim_that_is_refused_leaves_the_word_and_nothing_else(
    host: Host, runtime: HaltRuntime
) -> None:
    host.write("artifacts/N1/a.txt")
    host.write("artifacts/N1/b.txt/file")  # where a file is expected
    found = completed(runtime)
    assert found["claimed"] is False
    assert "a dir, not a file" in found["why"]
    assert last_commit(runtime, 1) == ["STEP_COMPLETED"]
    assert (runtime.registry, runtime.node("N1").state) == ({}, "RUNNING")
    runtime.note("and work goes on")
    check_replayed(host, runtime)


def test_what_declares_no_outputs_is_claimed_with_what_is_in_its_scope(host: Host) -> None:
    runtime = host.open()
    for name, outputs in (("N1", None), ("N2", ())):
        runtime.add_node(name, name, outputs=outputs, accept=["script: true"])
        runtime.start(name)
    assert completed(runtime, "N1")["why"] == "it has no output yet"
    host.write("artifacts/N1/made.txt")
    assert completed(runtime, "N1")["claimed"]
    assert completed(runtime, "N2")["claimed"]


def test_an_external_effect_without_its_receipt_is_not_claimed(host: Host) -> None:
    runtime = HaltRuntime(
        host.workspace, "T1", standing_authorities=["N1"], world=host.world()
    )  # fmt: skip
    runtime.add_node("N1", "first", effect="S3")
    runtime.start("N1")
    host.write("artifacts/N1/a.txt")
    found = completed(runtime)
    assert (found["claimed"], found["state"]) == (False, "RUNNING")
    assert "receipt" in found["why"]
    assert runtime.registry == {}


def test_a_batch_node_is_claimed_by_its_run_alone(host: Host) -> None:
    runtime = host.open()
    runtime.add_node("N1", "first", map=MapSpec(run=("true",), list=("a",)))
    work.start(runtime.engine, "N1", units=lambda node: Units({"total": 1, "sha256": "ab"}, 0))
    host.write("artifacts/N1/findings.jsonl", "")
    found = completed(runtime)
    assert (found["claimed"], found["state"]) == (False, "RUNNING")
    assert "batch node" in found["why"]


def test_one_who_only_records_claims_nothing(host: Host, runtime: HaltRuntime) -> None:
    host.write("artifacts/N1/a.txt")
    host.write("artifacts/N1/b.txt")
    with runtime.engine.acting_as("recorder:r"):
        found = completed(runtime)
    assert (found["claimed"], runtime.node("N1").state) == (False, "RUNNING")
    assert last_commit(runtime, 1) == ["STEP_COMPLETED"]


@pytest.mark.parametrize("state", ["PENDING", "RETRYABLE", "VERIFYING", "DONE", "CANCELLED"])
def test_completion_is_recorded_whatever_the_node_is(host: Host, state: str) -> None:
    runtime = host.open()
    runtime.add_node("N1", "first")
    if state == "CANCELLED":
        runtime.cancel(["N1"], "not wanted")
    elif state != "PENDING":
        runtime.start("N1")
        host.write("artifacts/N1/a.txt")
        if state == "RETRYABLE":
            runtime.fail("N1", "transient-agent", "exit 3")
        else:
            runtime.submit("N1", check=state == "DONE")
    found = completed(runtime)
    assert (found["claimed"], found["state"]) == (False, state)
    assert bool(found["why"]) is (state not in ("VERIFYING", "DONE"))
    assert last_commit(runtime, 1) == ["STEP_COMPLETED"]
    check_replayed(host, runtime)


def test_reply_c_with_a_node_claims_as_an_observation_does(
    host: Host, runtime: HaltRuntime
) -> None:
    host.write("artifacts/N1/a.txt")
    host.write("artifacts/N1/b.txt")
    found = call(runtime, "reply", letter="c", node="N1")
    assert (found["reply"], found["claimed"], found["state"]) == ("C", True, "VERIFYING")
    assert last_commit(runtime, 6)[2:] == [
        "OWNER_REPLY_RECORDED", "STEP_COMPLETED", "N03", "TASK_COMPLETED",
    ]  # fmt: skip
    check_replayed(host, runtime)


# Blocks and replies


def test_a_blocked_node_is_ready_again_when_the_owner_resumes_and_starts_anew(
    host: Host, runtime: HaltRuntime
) -> None:
    parts = {"reason": "no key", "needs": ["a key"], "safe_next_step": "wait"}
    found = call(runtime, "block", node="N1", **parts, failure_type="TIMEOUT")
    assert (found["node"], found["state"]) == ("N1", "BLOCKED")
    assert last_commit(runtime, 2) == ["BLOCKED_CONFIRMED", "N05"]
    assert runtime.frontier() == []
    found = call(runtime, "reply", letter="A", summary="renewed")
    assert (found["node"], found["state"]) == ("N1", "READY")
    assert last_commit(runtime, 4) == [
        "OWNER_REPLY_RECORDED", "OWNER_RESUMED", "N09", "STEP_PROGRESS",
    ]  # fmt: skip
    assert runtime.frontier() == ["N1"]
    runtime.start("N1")
    assert edges(runtime, "N1") == ["N01", "N02", "N05", "N09", "N02"]
    assert runtime.state.observed.retries == {"N1:TIMEOUT": 1}
    check_replayed(host, runtime)


def test_a_block_needs_its_parts_also_from_a_message(runtime: HaltRuntime) -> None:
    before = runtime.seq_last
    for args in ({}, {"reason": "x"}, {"reason": "x", "needs": "y", "safe_next_step": " "}):
        with pytest.raises(UsageError):
            call(runtime, "block", node="N1", **args)
    assert runtime.seq_last == before


@pytest.mark.parametrize("facts", [["a=b"], "a=b", {"a": 1}, {"": "b"}, 7])
def test_facts_that_are_none_are_refused(runtime: HaltRuntime, facts: object) -> None:
    with pytest.raises(UsageError) as caught:
        call(runtime, "observe", what="progress", node="N1", facts=facts)
    assert (caught.value.code, caught.value.exit_code) == ("bad_fact", 2)


# External jobs


def test_a_pending_claim_says_whether_the_provider_has_spoken(runtime: HaltRuntime) -> None:
    job = {"what": "external", "provider": "slurm", "job_id": "4711"}
    found = call(runtime, "observe", **job, state="RUNNING", facts={"queue": "long"})
    assert (found["job"], found["evidence"]) == ("slurm:4711", [])
    found = call(runtime, "observe", **job, state="RUNNING", facts={"poll_token": "x"})
    assert found["evidence"] == ["poll_token"]
    found = call(runtime, "observe", **job, state="RUNNING", node="N1")
    assert found["evidence"] == ["poll_token"]
    assert "evidence" not in call(runtime, "observe", **job, state="COMPLETED")
    assert "evidence" not in call(runtime, "observe", **{**job, "job_id": "1"}, state="FAILED")


def test_the_help_names_every_fact_that_a_provider_can_give() -> None:
    text = observe_external_command.help or ""
    assert [name for name in sorted(PROVIDER_EVIDENCE) if name not in text] == []


@pytest.mark.parametrize(
    "command",
    [*observe_command.commands.values(), block_command, reply_command, beat_command],
    ids=lambda command: str(command.name),
)
def test_every_word_on_the_work_takes_a_summary_and_facts(command: click.Command) -> None:
    taken = {option for parameter in command.params for option in parameter.opts}
    assert {"--summary", "--fact"} <= taken


def test_the_summary_of_a_block_stands_in_its_event(runtime: HaltRuntime) -> None:
    parts = {"reason": "no key", "needs": ["a key"], "safe_next_step": "wait"}
    call(runtime, "block", node="N1", summary="after page 40", **parts)
    (event,) = [e for e in runtime.events() if e.kind == "BLOCKED_CONFIRMED"]
    assert event.payload["summary"] == "after page 40"


# One way and the other


def test_an_observation_with_an_op_id_is_made_once(host: Host, runtime: HaltRuntime) -> None:
    host.write("artifacts/N1/a.txt")
    host.write("artifacts/N1/b.txt")
    first = call(runtime, "observe", "op-1", what="completed", node="N1")
    length = len(host.read())
    again = call(runtime, "observe", "op-1", what="completed", node="N1")
    assert (again["repeated"], again["node"], again["state"]) == (True, "N1", "VERIFYING")
    assert len(host.read()) == length
    assert first["claimed"]


def test_observations_wait_in_the_drop_box_and_are_answered(
    host: Host, runtime: HaltRuntime
) -> None:
    host.write("artifacts/N1/a.txt")
    host.write("artifacts/N1/b.txt")
    layout, disk = runtime.engine.layout, runtime.engine.disk
    sent: dict[str, tuple[str, dict[str, Any]]] = {
        "m1": ("observe", {"what": "progress", "node": "N1"}),
        "m2": ("observe", {"what": "completed", "node": "N1"}),
        "m3": ("block", {"node": "N1"}),
        "m4": ("reply", {"letter": "D"}),
        "m5": ("observe", {"what": "progress"}),
        "m6": ("observe", {"what": "weather"}),
        "m7": ("beat", {"node": "N1", "facts": 7}),
    }
    for name, (command, args) in sent.items():
        message = spool.Message(name, command, args, "coordinator:other", host.clock.now())
        spool.drop(disk, layout, message)
    runtime.engine.tick()
    results = {name: spool.take_result(disk, layout, name) or {} for name in sent}
    assert results["m2"]["data"]["claimed"] is True
    assert [name for name in sent if "error" in results[name]] == ["m3", "m5", "m6", "m7"]
    assert results["m3"]["error"]["code"] == "block_incomplete"
    assert {result["exit_code"] for result in results.values() if "error" in result} == {2}
    actors = {event.actor for event in runtime.events() if event.op == "m2"}
    assert actors == {"coordinator:other"}
    check_replayed(host, runtime)


def test_what_a_program_appends_itself_is_folded_as_well(host: Host, runtime: HaltRuntime) -> None:
    node = {"type": "node", "id": "N1"}
    runtime.append("STEP_PROGRESS", node, {"percent": 5})
    runtime.append("BLOCKED_CONFIRMED", node, {"reason": "x", "failure_type": "TIMEOUT"})
    assert (runtime.node("N1").state, [*runtime.state.observed.blocks]) == ("RUNNING", ["N1"])
    runtime.append("OWNER_RESUMED", node, {})
    assert runtime.state.observed.retries == {"N1:TIMEOUT": 1}
    check_replayed(host, runtime)


def test_a_beat_of_an_executor_says_how_the_work_is(host: Host) -> None:
    runtime = host.open()
    runtime.add_node("N1", "first")
    with runtime.engine.acting_as("executor:x"):
        runtime.start("N1", session=True)
        for number in (1, 2, 3):
            call(runtime, "beat", ok=False, facts={"load": "9"})
            assert runtime.state.observed.errors == number
        call(runtime, "beat", node="N1")
    assert runtime.state.observed.errors == 0
    assert runtime.state.observed.progress_ref == f"J-{runtime.seq_last}"


# The time of what is folded


def test_what_a_batch_folds_is_what_a_replay_folds_also_when_time_passes_within_it(
    host: Host, runtime: HaltRuntime
) -> None:
    with runtime.batch():
        call(runtime, "observe", what="progress", node="N1")
        host.clock.advance(100.0)
        runtime.append("STEP_COMPLETED", {"type": "node", "id": "N1"}, {})
        host.clock.advance(100.0)
    check_replayed(host, runtime)


def test_a_batch_that_is_given_up_leaves_no_observation(host: Host, runtime: HaltRuntime) -> None:
    before = seal_snapshot(runtime.state, runtime.engine.journal.tip)

    def see_and_say() -> None:
        with runtime.batch():
            call(runtime, "observe", what="progress", node="N1")
            call(runtime, "reply", letter="F")

    with pytest.raises(HaltError):
        see_and_say()
    assert seal_snapshot(runtime.state, runtime.engine.journal.tip) == before
