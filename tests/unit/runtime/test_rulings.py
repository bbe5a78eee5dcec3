"""Rulings beside a coordinator, through the drop box, and what a crash between two steps leaves."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.host import Host

from perdure import HaltRuntime, RefusedError, StorageError, TransitionError
from perdure.core.commands import Verdict
from perdure.runtime import evidence
from perdure.runtime.batching import Committed
from perdure.runtime.calls import ingest, perform
from perdure.service.tasks import Service
from perdure.storage import spool

ANNA = "gatekeeper:anna"
REPORT = "artifacts/report/report.md"


@pytest.fixture
def host(workspace: str) -> Host:
    return Host(workspace)


@pytest.fixture
def rt(host: Host) -> Iterator[HaltRuntime]:
    with host.open() as runtime:
        runtime.add_node("report", "Write the report", gates=["May it go out?"])
        runtime.start("report")
        host.write(REPORT, "A")
        runtime.submit("report")
        yield runtime


def send(host: Host, rt: HaltRuntime, name: str, **args: Any) -> str:
    """Call from another process while the coordinator lives; the id of the message."""
    service = Service(host.workspace, actor=ANNA, world=host.world(200))
    answer = service.call(name, args)
    assert answer["queued"]
    return str(answer["id"])


def result(rt: HaltRuntime, message_id: str) -> dict[str, Any]:
    rt.engine.tick()
    found = spool.take_result(rt.engine.disk, rt.engine.layout, message_id)
    assert found is not None
    return dict(found)


def test_an_approval_reaches_the_coordinator_through_the_drop_box_under_its_own_name(
    host: Host, rt: HaltRuntime
) -> None:
    message = send(host, rt, "approve", question="G-report-review", text="well done")
    data = result(rt, message)["data"]
    assert (data["state"], data["passed"], data["ruling"]) == ("DONE", True, "approve")
    event = rt.events()[int(data["committed"][2:]) - 1]
    assert (event.actor, event.payload["answer"], event.op) == (ANNA, "well done", message)


@pytest.mark.parametrize("name", ["ask", "answer", "approve", "revise", "reject"])
def test_every_call_between_a_task_and_people_may_wait_in_the_drop_box(
    host: Host, rt: HaltRuntime, name: str
) -> None:
    message = send(host, rt, name, question="nothing", text="x")
    found = result(rt, message)
    assert ("data" in found) == (name == "ask")
    assert name == "ask" or found["error"]["code"] == "unknown_question"


def test_an_approval_of_changed_content_in_the_drop_box_is_not_made_good_by_a_crash(
    host: Host, rt: HaltRuntime
) -> None:
    """Killed between the new question and the answer to the message, which is taken in again."""
    message = send(host, rt, "approve", question="G-rep")
    host.write(REPORT, "B")
    rt.engine.ingest = lambda engine: None
    with rt.engine.acting_as(ANNA), pytest.raises(RefusedError) as caught:
        perform(rt.engine, "approve", {"question": "G-rep"}, op=message)
    assert caught.value.code == "content_changed"
    host.die(rt)
    with host.resume(300) as again:
        found = result(again, message)  # which opening has taken in
        assert found["error"]["code"] == "content_changed"
        assert list(again.state.questions) == ["G-report-review.2"]
        assert again.node("report").state == "VERIFYING"


def test_a_run_verifies_by_itself_what_was_approved(host: Host, rt: HaltRuntime) -> None:
    """Its loop never waits for a check; the node is simply not held any more."""
    rt.engine.on_pause = lambda reason, op: Committed("", ())
    with rt.engine.acting_as(ANNA):
        said = perform(rt.engine, "approve", {"question": "G-report-review"})
    assert (said["state"], "passed" in said) == ("VERIFYING", False)
    _, committed = rt.check("report")
    assert committed is not None
    assert rt.node("report").state == "DONE"


def test_work_that_somebody_settles_while_it_is_verified_is_left_to_them(
    host: Host, rt: HaltRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks are run without the lock: the ruling stands, and the newer word on the work."""
    verify = evidence.verify_node

    def meanwhile(engine: Any, node: Any) -> Any:
        verdict = verify(engine, node)
        with engine.acting_as("coordinator:main"):
            rt.cancel(["report"], "not wanted any more")
        return verdict

    monkeypatch.setattr("perdure.runtime.rulings.verify_node", meanwhile)
    with pytest.raises(RefusedError) as caught:
        rt.approve("G-report-review", by=ANNA)
    assert caught.value.code == "question_closed"
    assert rt.node("report").state == "CANCELLED"


def test_a_disk_that_fails_while_it_is_verified_leaves_the_question_open(
    host: Host, rt: HaltRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(engine: Any, node: Any) -> Any:
        raise StorageError("reading failed.", fix="Replace the disk.")

    monkeypatch.setattr("perdure.runtime.rulings.verify_node", fails)
    before = rt.seq_last
    with pytest.raises(StorageError):
        rt.approve("G-report-review", by=ANNA)
    assert (rt.seq_last, list(rt.state.questions)) == (before, ["G-report-review"])


def test_a_check_that_a_coordinator_may_have_ended_fails_nothing(
    host: Host, rt: HaltRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that begins ends what it finds running, and a script of somebody's check is found."""
    rt.close()
    failed = Verdict(False, "verifier:v1", "V1", (), {}, "script: ended by signal 15")

    def ended(engine: Any, node: Any) -> Any:
        host.open(300).close()
        return failed

    monkeypatch.setattr("perdure.runtime.rulings.verify_node", ended)
    monkeypatch.setattr("perdure.runtime.work.verify_node", ended)
    with host.attach(200, actor=ANNA) as beside:
        said = perform(beside.engine, "approve", {"question": "G-report-review"})
        assert (said["state"], "checked again" in said["why"]) == ("VERIFYING", True)
        with pytest.raises(TransitionError) as caught:
            perform(beside.engine, "check", {"node": "report"})
        assert "perdure check report" in caught.value.fix
        node = beside.node("report")
        assert (node.state, node.strikes, beside.state.questions) == ("VERIFYING", 0, {})
        assert list(node.approvals) == ["G-report-review"]


def test_an_approval_is_on_record_when_its_work_cannot_be_verified(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("pay", "Pay it", effect="S2", outputs=["artifacts/pay/slip"], gates=["Correct?"])
    rt.start("pay")
    host.write("artifacts/pay/slip")
    rt.submit("pay")
    rt.ask("Which account?", "pay")
    with rt.engine.acting_as(ANNA):
        said = perform(rt.engine, "approve", {"question": "G-pay-review"})
    assert (said["state"], rt.node("pay").approvals["G-pay-review"].by) == ("VERIFYING", ANNA)
    rt.answer("Q-001", "the usual one", by=ANNA)
    assert rt.node("pay").state == "DONE"


def test_two_people_who_approve_at_once_are_told_who_was_first(host: Host, rt: HaltRuntime) -> None:
    first = send(host, rt, "approve", question="G-report-review")
    second = send(host, rt, "approve", question="G-report-review")
    ingest(rt.engine)
    rt.engine.tick()
    layout, disk = rt.engine.layout, rt.engine.disk
    found = [spool.take_result(disk, layout, name) for name in (first, second)]
    codes = [(item or {}).get("error", {}).get("code") for item in found]
    assert sorted(codes, key=str) == [None, "question_closed"]
