"""GA-1 to GA-3 over the library: what was approved is what goes on, on this disk, or nothing does.

F26: approve content A, then the artifact changes to B. What the decisions alone hold to is in
``test_gates``; here the bytes are those on disk.
"""

import os
from typing import Any

import pytest
from tests.conformance.host import Host, edges

from perdure import HaltError, HaltRuntime, UsageError
from perdure.core.events import Event
from perdure.core.people import Gate
from perdure.runtime.calls import perform
from perdure.runtime.gates import apply_fallbacks, ask_due_gates

ANNA = "gatekeeper:anna"
REPORT = "artifacts/report/report.md"


def refused(call: Any, *args: Any, **options: Any) -> HaltError:
    """The refusal of a call."""
    with pytest.raises(HaltError) as caught:
        call(*args, **options)
    return caught.value


def asked(rt: HaltRuntime) -> list[str]:
    """The open questions."""
    return list(rt.state.questions)


def decisions(rt: HaltRuntime, op: str) -> list[Event]:
    return [e for e in rt.events() if e.kind == "DECISION" and e.payload.get("op") == op]


def report_at_its_gate(host: Host, rt: HaltRuntime, **fields: Any) -> None:
    """A report that is submitted and waits for its review."""
    rt.add_node("report", "Write the report", gates=["May it go out?"], **fields)
    rt.start("report")
    host.write(REPORT, "A")
    rt.submit("report")
    assert rt.node("report").state == "VERIFYING"
    assert asked(rt) == ["G-report-review"]


# The end of work


def test_work_behind_a_gate_is_done_by_the_approval_in_the_same_commit(
    host: Host, rt: HaltRuntime
) -> None:
    report_at_its_gate(host, rt)
    event = rt.approve("G-report-review", "well done", by=ANNA)
    assert (event.kind, event.actor, event.payload["ruling"]) == ("DECISION", ANNA, "approve")
    assert rt.node("report").state == "DONE"
    done = list(rt.events())[-1]
    assert (done.payload["edge"], done.c[0], done.tx) == ("N06", done.c[1], event.tx)
    assert done.payload["approvals"] == {"G-report-review": event.ref}
    assert event.ref in done.evidence


def test_submitting_again_while_a_gate_is_closed_asks_once(host: Host, rt: HaltRuntime) -> None:
    report_at_its_gate(host, rt)
    before = rt.seq_last
    again = rt.submit("report")
    assert (again.repeated, rt.seq_last) == (True, before)
    _, committed = rt.check("report")
    assert committed is not None
    assert (committed.ref, rt.seq_last) == (again.ref, before)


def test_done_by_hand_is_refused_at_a_closed_gate_and_names_the_question(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("report", "Write the report", gates=["May it go out?"])
    rt.start("report")
    host.write(REPORT)
    rt.submit("report", check=False)
    error = refused(rt.transition, "report", "DONE", evidence=[REPORT])
    assert (error.code, error.rule) == ("gate_closed", "GA-1")
    assert "G-report-review" in error.message
    assert asked(rt) == ["G-report-review"]
    rt.approve("G-report-review", by=ANNA)
    assert rt.node("report").state == "DONE"


def test_f26_an_artifact_that_changes_voids_the_approval_and_is_asked_about_again(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("report", "Write the report")
    host.finish(rt, "report")
    rt.add_node("send", "Send it", deps=["report"], gates=[Gate("G-send-start", "start")])
    assert ask_due_gates(rt.engine) == 1
    rt.approve("G-send-start", by=ANNA)
    assert rt.frontier() == ["send"]
    path = f"{host.workspace}/artifacts/report/out.txt"
    stamp = os.stat(path)
    host.write("artifacts/report/out.txt", "by nobody")  # as many bytes, and the old time stamp
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    error = refused(rt.start, "send")
    assert (error.code, error.rule) == ("approval_void", "GA-3")
    assert asked(rt) == ["G-send-start.2"]
    (void,) = decisions(rt, "void")
    package = rt.state.questions["G-send-start.2"].package
    assert package["changes"] == {
        "since": void.payload["approval"],
        "changed": ["artifacts/report/out.txt"],
    }
    assert "artifacts/report/out.txt" in package["disk"]
    assert rt.node("send").state == "PENDING"
    assert not rt.state.contracts


def test_f26_a_new_artifact_in_place_of_the_approved_one_is_asked_about_again(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("report", "Write the report")
    host.finish(rt, "report")
    rt.add_node("send", "Send it", deps=["report"], gates=[Gate("G-send-start", "start")])
    ask_due_gates(rt.engine)
    rt.approve("G-send-start", by=ANNA)
    host.write("artifacts/report/out.v2.txt", "better")
    rt.register_artifact("A-2", "artifacts/report/out.v2.txt", supersedes="A-report")
    assert refused(rt.start, "send").code == "approval_void"
    rt.approve("G-send-start.2", by=ANNA)
    rt.start("send")
    assert rt.node("send").state == "RUNNING"


def test_f26_editing_only_the_description_keeps_the_approval(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("send", "Send it", gates=[Gate("G-send-start", "start")])
    ask_due_gates(rt.engine)
    rt.approve("G-send-start", by=ANNA)
    rt.amend_node("send", "said better", title="Send it off", goal="To everybody", priority=3)
    assert ask_due_gates(rt.engine) == 0
    rt.start("send")
    assert rt.node("send").state == "RUNNING"


def test_f26_editing_what_is_to_be_run_voids_the_approval(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("send", "Send it", run="send a", gates=[Gate("G-send-start", "start")])
    ask_due_gates(rt.engine)
    rt.approve("G-send-start", by=ANNA)
    rt.amend_node("send", "to somebody else", run="send b")
    assert refused(rt.start, "send").code == "approval_void"
    assert rt.state.questions["G-send-start.2"].package["changes"]["spec"] is True


def test_an_approval_for_content_that_has_changed_approves_nothing(
    host: Host, rt: HaltRuntime
) -> None:
    report_at_its_gate(host, rt)
    host.write(REPORT, "B")
    error = refused(rt.approve, "G-report-review", by=ANNA)
    assert (error.code, error.rule) == ("content_changed", "GA-3")
    assert "G-report-review.2" in error.message
    assert asked(rt) == ["G-report-review.2"]
    assert rt.node("report").approvals == {}
    # Whoever names the old question may not have seen what the new one shows.
    error = refused(rt.approve, "G-report-review", by=ANNA)
    assert error.code == "question_closed"
    assert "G-report-review.2" in error.message


def test_a_repeated_approval_of_changed_content_is_refused_again_and_never_carried_out(
    host: Host, rt: HaltRuntime
) -> None:
    report_at_its_gate(host, rt)
    host.write(REPORT, "B")
    for _ in range(2):  # a unique beginning means whatever is open now
        error = refused(rt.approve, "G-rep", by=ANNA, op="yes")
        assert error.code == "content_changed"
        args = {"question": "G-rep"}
        with rt.engine.acting_as(ANNA):
            assert refused(perform, rt.engine, "approve", args, op="yes").code == error.code
    assert asked(rt) == ["G-report-review.2"]


def test_approved_work_whose_check_fails_after_all_is_done_again(
    host: Host, rt: HaltRuntime
) -> None:
    host.write("tmp/well")
    report_at_its_gate(host, rt, accept=["script: test -e tmp/well"])
    os.unlink(f"{host.workspace}/tmp/well")
    event = rt.approve("G-report-review", by=ANNA)
    assert rt.node("report").state == "RETRYABLE"
    assert edges(rt, "report")[-1] == "N07"
    assert decisions(rt, "answer") == [event]


def test_an_approval_in_a_batch_is_committed_with_it(host: Host, rt: HaltRuntime) -> None:
    report_at_its_gate(host, rt)
    with pytest.raises(UsageError) as caught, rt.batch():
        rt.approve("G-report-review", by=ANNA)  # what is folded would be of two, the line of one
    assert caught.value.code == "actor_in_batch"
    assert rt.node("report").state == "VERIFYING"
    with rt.engine.acting_as(ANNA), rt.batch():
        rt.note("together")
        event = rt.approve("G-report-review")
        assert rt.node("report").state == "DONE"
    assert [e.kind for e in list(rt.events())[-3:]] == ["NOTE", event.kind, "STATE_TRANSITION"]
    assert len({e.tx for e in list(rt.events())[-3:]}) == 1


def test_two_gates_are_asked_together_and_the_last_approval_finishes(
    host: Host, rt: HaltRuntime
) -> None:
    gates = [Gate("G-law", question="Is it legal?"), Gate("G-tone", question="Is it polite?")]
    rt.add_node("report", "Write the report", gates=gates)
    rt.start("report")
    host.write(REPORT)
    rt.submit("report")
    assert asked(rt) == ["G-law", "G-tone"]
    rt.approve("G-tone", by=ANNA)
    assert rt.node("report").state == "VERIFYING"
    rt.approve("G-law", by="gatekeeper:bert")
    assert rt.node("report").state == "DONE"


def test_f26_at_the_end_of_work_an_approval_of_other_content_is_void_too(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("report", "Write the report", gates=[Gate("G-law"), Gate("G-tone")])
    rt.start("report")
    host.write(REPORT, "A")
    rt.submit("report")
    rt.approve("G-tone", by=ANNA)
    host.write("artifacts/report/report.v2.md", "B")
    rt.register_artifact(
        "", "artifacts/report/report.v2.md", node_id="report", supersedes="A-report"
    )
    rt.check("report")
    assert [event.payload["gate"] for event in decisions(rt, "void")] == ["G-tone"]
    assert asked(rt) == ["G-law.2", "G-tone.2"]
    changes = rt.state.questions["G-tone.2"].package["changes"]
    assert (changes["added"], changes["removed"]) == (["artifacts/report/report.v2.md"], [REPORT])
    rt.approve("G-tone.2", by=ANNA)
    rt.approve("G-law.2", by=ANNA)
    assert rt.node("report").state == "DONE"


def test_a_rejected_result_is_done_again_and_meets_the_same_gate(
    host: Host, rt: HaltRuntime
) -> None:
    report_at_its_gate(host, rt)
    rt.reject("G-report-review", "too long", by=ANNA)
    assert rt.node("report").state == "RETRYABLE"
    assert "too long" in rt.node("report").diagnosis
    rt.start("report")
    host.write(REPORT, "B")
    rt.submit("report")
    assert asked(rt) == ["G-report-review.2"]
    rt.approve("G-report-review.2", by=ANNA)
    assert rt.node("report").state == "DONE"


def test_a_revision_changes_the_spec_as_an_amendment_would(host: Host, rt: HaltRuntime) -> None:
    report_at_its_gate(host, rt)
    changes = {"goal": "One page", "accept": ["nonempty: " + REPORT]}
    rt.revise("G-report-review", "Shorter", changes=changes, by=ANNA)
    node = rt.node("report")
    assert (node.state, node.spec.goal) == ("READY", "One page")
    assert [item.check for item in node.spec.acceptance_criteria] == ["nonempty"]
    assert edges(rt, "report")[-2:] == ["N07", "N12"]


def test_a_revision_that_no_spec_can_have_is_refused_and_leaves_the_question_open(
    host: Host, rt: HaltRuntime
) -> None:
    report_at_its_gate(host, rt)
    for changes, code in (
        ({"gaol": "One page"}, "unknown_field"),
        ({"outputs": ["../out"]}, "path_refused"),
        ({"accept": ["matches: a ("]}, "criterion_invalid"),
    ):
        error = refused(rt.revise, "G-report-review", "Shorter", changes=changes, by=ANNA)
        assert error.code == code
    assert asked(rt) == ["G-report-review"]


# The start of work


def test_a_start_behind_a_gate_asks_and_is_refused_with_the_question(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("send", "Send it", gates=[Gate("G-send-start", "start", question="To whom?")])
    assert rt.frontier() == []
    for _ in range(2):
        error = refused(rt.start, "send")
        assert (error.code, error.rule) == ("gate_closed", "GA-1")
        assert "G-send-start asks: To whom?" in error.message
        assert rt.seq_last == int(rt.state.questions["G-send-start"].asked_ref[2:])
    rt.approve("G-send-start", by=ANNA)
    assert rt.frontier() == ["send"]
    rt.start("send")
    assert rt.node("send").state == "RUNNING"


def test_nobody_is_asked_about_a_start_that_waits_for_something_else(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("report", "Write the report")
    rt.add_node("send", "Send it", deps=["report"], gates=[Gate("G-send-start", "start")])
    assert ask_due_gates(rt.engine) == 0
    assert refused(rt.start, "send").rule == "N01"
    assert asked(rt) == []
    host.finish(rt, "report")
    assert [ask_due_gates(rt.engine), ask_due_gates(rt.engine)] == [1, 0]


def test_content_that_was_refused_is_not_asked_about_again_before_it_changes(
    host: Host, rt: HaltRuntime
) -> None:
    gate = Gate("G-send-start", "start", content=("plan.md",))
    rt.add_node("send", "Send it", gates=[gate])
    host.write("plan.md", "to everybody")
    ask_due_gates(rt.engine)
    rt.reject("G-send-start", "not to everybody", by=ANNA)
    assert ask_due_gates(rt.engine) == 0
    closed = refused(rt.start, "send")
    assert (closed.code, "perdure amend send" in closed.fix) == ("gate_closed", True)
    assert asked(rt) == []
    host.write("plan.md", "to Bert")
    assert ask_due_gates(rt.engine) == 1
    rt.approve("G-send-start.2", by=ANNA)
    rt.start("send")
    assert rt.node("send").state == "RUNNING"


@pytest.mark.parametrize("what", ["directory", "outside"])
def test_ga_3_nobody_consents_to_what_cannot_be_read(
    host: Host, rt: HaltRuntime, what: str
) -> None:
    rt.add_node("send", "Send it", gates=[Gate("G-go", "start", content=("plan.md",))])
    if what == "directory":
        os.mkdir(f"{host.workspace}/plan.md")
    else:
        os.symlink("/etc/hosts", f"{host.workspace}/plan.md")
    ask_due_gates(rt.engine)
    before = rt.seq_last
    error = refused(rt.approve, "G-go", by=ANNA)
    assert (error.code, error.rule, rt.seq_last) == ("content_unread", "GA-3", before)
    assert "plan.md is " in error.message
    assert refused(rt.start, "send").code == "gate_closed"
    (os.rmdir if what == "directory" else os.unlink)(f"{host.workspace}/plan.md")
    host.write("plan.md", "to Bert")
    assert refused(rt.approve, "G-go", by=ANNA).code == "content_changed"
    rt.approve("G-go.2", by=ANNA)
    rt.start("send")


def test_a_question_names_what_is_wrong_with_its_files(host: Host, rt: HaltRuntime) -> None:
    gate = Gate("G-send-start", "start", content=("plan.md", "folder", "away/out.md"))
    os.makedirs(f"{host.workspace}/folder")
    os.symlink("/", f"{host.workspace}/away")
    rt.add_node("send", "Send it", gates=[gate])
    ask_due_gates(rt.engine)
    question = rt.state.questions["G-send-start"]
    assert question.package["disk"] == (
        "plan.md is missing; folder is a dir; away/out.md is outside the workspace"
    )
    assert question.files["plan.md"] == ""


# Judgement


def judged(host: Host, rt: HaltRuntime, **fields: Any) -> None:
    human = {"human": {"rubric": "polite and short", "judge": "anna"}}
    rt.add_node("report", "Write the report", accept=["nonempty: " + REPORT, human], **fields)
    rt.start("report")
    host.write(REPORT, "A")
    rt.submit("report")


def test_a_human_check_waits_for_the_judge_and_passes_by_that_approval_alone(
    host: Host, rt: HaltRuntime
) -> None:
    judged(host, rt, verification_level="V3")
    assert rt.node("report").state == "VERIFYING"
    (question,) = rt.state.questions.values()
    assert (question.kind, question.gate) == ("judgement", "G-report-judge")
    verdict = rt.verify_node("report")
    assert (verdict.passed, verdict.level) == (True, "V1")
    (item,) = [item for item in verdict.checks if item["check"] == "human"]
    assert (item["passed"], item["pending"]) == (False, True)
    assert refused(rt.approve, "G-report-judge", by="gatekeeper:bert").code == "not_the_holder"
    event = rt.approve("G-report-judge", "it is", by=ANNA)
    done = list(rt.events())[-1].payload
    assert (done["edge"], done["level"], done["verifier"]) == ("N06", "V3", ANNA)
    (item,) = [item for item in done["checks"] if item["check"] == "human"]
    assert item == {
        "check": "human",
        "params": {"rubric": "polite and short", "judge": ["anna"]},
        "level": "V3",
        "passed": True,
        "method": "The approval of exactly these files by a person was looked up in the journal.",
        "inputs": [{"path": REPORT, "sha256": rt.registry["A-report"].integrity.value}],
        "gate": "G-report-judge",
        "rubric": "polite and short",
        "by": ANNA,
        "ref": event.ref,
        "detail": f"approved by {ANNA} in {event.ref}.",
    }
    assert rt.verify_node("report").passed


def test_no_judge_is_asked_about_work_that_fails_a_mechanical_check(
    host: Host, rt: HaltRuntime
) -> None:
    human = {"human": "polite"}
    rt.add_node("report", "Write the report", accept=["matches: artifacts/report/r B", human])
    rt.start("report")
    host.write("artifacts/report/r", "A")
    rt.submit("report")
    assert rt.node("report").state == "RETRYABLE"
    assert asked(rt) == []


def test_v3_without_a_human_check_is_judged_by_what_the_node_says(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("report", "Write the report", verification_level="V3")
    host.finish(rt, "report")
    assert asked(rt) == ["G-report-judge"]
    rt.approve("G-report-judge", by=ANNA)
    assert list(rt.events())[-1].payload["level"] == "V3"
    assert rt.node("report").state == "DONE"


def test_v2_waits_for_an_auditor_and_asks_no_person(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("report", "Write the report", verification_level="V2")
    rt.start("report")
    host.write(REPORT)
    rt.submit("report")
    assert (rt.node("report").state, asked(rt)) == ("VERIFYING", [])


# Questions


def test_an_answer_to_a_question_that_held_finished_work_finishes_it(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("report", "Write the report")
    rt.start("report")
    event = rt.ask("Which licence?", "report", keep_working=True)
    assert (event.payload["question_id"], rt.node("report").state) == ("Q-001", "RUNNING")
    host.write(REPORT)
    rt.submit("report", check=False)
    rt.answer("Q-001", "MIT", by=ANNA)
    assert rt.node("report").state == "DONE"


def test_a_node_at_work_waits_for_its_question_and_goes_on_by_the_answer(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("report", "Write the report")
    rt.add_node("other", "Something else")
    rt.start("report")
    rt.ask("Which licence?", "report", options=["MIT", "Apache-2.0"])
    assert rt.node("report").state == "BLOCKED"
    assert rt.frontier() == ["other"]
    event = rt.answer("Q", "as everywhere", choice="MIT", by=ANNA)
    assert event.payload["choice"] == "MIT"
    assert rt.node("report").state == "READY"
    error = refused(rt.answer, "Q-001", "Apache-2.0", by=ANNA)
    assert (error.code, error.rule) == ("question_closed", "H2")
    assert event.ref in error.message
    assert refused(rt.answer, "Q-9", "MIT", by=ANNA).code == "unknown_question"


def test_silence_rejects_only_where_the_gate_says_so_and_never_approves(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("a", "A", gates=[Gate("G-a", "start", timeout_s=60.0, fallback="reject")])
    rt.add_node("b", "B", gates=[Gate("G-b", "start", timeout_s=60.0)])
    rt.add_node("c", "C")
    rt.ask("Any news?", "c", timeout_s=60.0)
    ask_due_gates(rt.engine)
    assert apply_fallbacks(rt.engine) == 0
    host.clock.advance(61.0)
    assert [apply_fallbacks(rt.engine), apply_fallbacks(rt.engine)] == [1, 0]
    assert asked(rt) == ["Q-001", "G-b"]
    (event,) = decisions(rt, "answer")
    assert (event.payload["ruling"], event.payload["by_default"]) == ("reject", True)
    assert rt.frontier() == []


# Calls, and the same call again


def test_each_ruling_answers_a_repeated_op_with_what_it_said_first(
    host: Host, rt: HaltRuntime
) -> None:
    def call(name: str, op: str, actor: str = ANNA, **args: Any) -> dict[str, Any]:
        with rt.engine.acting_as(actor):
            first = perform(rt.engine, name, args, op=op)
            again = perform(rt.engine, name, args, op=op)
        assert again == {**first, "repeated": True}
        return first

    coordinator = "coordinator:main"
    report_at_its_gate(host, rt)
    said = call("revise", "op-1", question="G-report-review", text="x", changes={"goal": "short"})
    assert (said["state"], said["ruling"], said["node"]) == ("READY", "revise", "report")
    rt.start("report")
    host.write(REPORT, "B")
    said = call("submit", "op-2", coordinator, node="report")
    assert said["waits_for"] == [{"question": "G-report-review.2", "text": "May it go out?"}]
    said = call("reject", "op-3", question="G-report-review.2", text="no")
    assert said["state"] == "RETRYABLE"
    said = call("ask", "op-4", coordinator, text="Why?", node="report", id="Q-why")
    assert (said["question"], said["node"], said["state"]) == ("Q-why", "report", "RETRYABLE")
    said = call("answer", "op-5", question="Q-why", text="because")
    assert said["state"] == "RETRYABLE"
    rt.start("report")
    host.write(REPORT, "C")
    rt.submit("report")
    said = call("approve", "op-6", question="G-report-review.3")
    assert (said["state"], said["passed"], len(said["checks"])) == ("DONE", True, 1)
    said = call("ask", "op-7", coordinator, text="Anything else?")
    assert said["question"] == "Q-001"


def test_the_last_round_of_a_gate_says_what_it_asks_instead(host: Host, rt: HaltRuntime) -> None:
    report_at_its_gate(host, rt)
    for number in range(3):
        name = "G-report-review" + (f".{number + 1}" if number else "")
        with rt.engine.acting_as(ANNA):
            said = perform(rt.engine, "reject", {"question": name, "text": "no"}, op=f"op-{number}")
        if number < 2:
            rt.start("report")
            host.write(REPORT, f"B{number}")
            rt.submit("report")
    assert said["state"] == "QUARANTINED"
    assert [item["question"][:9] for item in said["asked"]] == ["E-report-"]
    with rt.engine.acting_as(ANNA):
        again = perform(rt.engine, "reject", {"question": name, "text": "no"}, op="op-2")
    assert again == {**said, "repeated": True}


def test_judged_work_stands_when_it_is_verified_again_in_a_recovery(host: Host) -> None:
    rt = host.open()
    rt.add_node("facts", "Collect the facts")
    rt.add_node("report", "Write the report", deps=["facts"], verification_level="V3")
    host.finish(rt, "facts")
    host.finish(rt, "report")
    rt.approve("G-report-judge", by=ANNA)
    os.unlink(f"{host.workspace}/artifacts/facts/out.txt")
    host.die(rt)
    with host.resume(200) as again:
        assert (again.node("facts").state, again.node("report").state) == ("READY", "DONE")
