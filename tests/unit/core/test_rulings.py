"""Rulings at a gate: what is asked, what consent is bound to, and where a refusal leads."""

from typing import Any

import msgspec
import pytest
from tests.unit.core.story import Story
from tests.unit.core.test_decide import refusal
from tests.unit.core.test_decide_node import edges

from perdure.core import commands as c
from perdure.core.criteria import parse_criterion
from perdure.core.events import Event
from perdure.core.frontier import due_gates, frontier
from perdure.core.model import Policies, Spec
from perdure.core.people import Gate, Question
from perdure.core.settling import commands_for
from perdure.errors import EvidenceError, HaltError

START = Gate("G-go", "start", "May it start?")
DONE = Gate("G-look", "done", "Is it good?")
BYTES = "ab" * 32


def at_the_end(gate: Gate = DONE, **fields: Any) -> Story:
    """A task whose node N1 stands verified before a gate that has been asked about."""
    story = Story()
    story.add("N1", gates=(gate,), **fields)
    deliver(story)
    return story


def deliver(story: Story, value: str = BYTES) -> list[Event]:
    """Do N1 once more, and let it be verified; what the verdict came to."""
    number = story.node("N1").attempts + 1
    story.start("N1")
    story.register("N1", f"A-{number}", "artifacts/N1/o", value=value)
    story.claim("N1")
    return verify(story, value)


def verify(story: Story, value: str = BYTES, **more: Any) -> list[Event]:
    artifacts = dict.fromkeys(story.node("N1").artifacts, value)
    verdict = c.Verdict(True, "verifier:v1", "V1", ({"passed": True},), artifacts)
    return story.do(c.MoveNode("N1", "DONE", verdict=verdict, **more))


def only(story: Story) -> Question:
    (question,) = story.replica.state.questions.values()
    return question


def approve(story: Story, question_id: str, files: dict[str, str]) -> list[Event]:
    return story.rule(question_id, "approve", files=files)


def refused(story: Story, command: c.Command, actor: str = "gatekeeper:ann") -> HaltError:
    before, story.actor = story.actor, actor
    error = refusal(story, command)
    story.actor = before
    return error


# What is asked


def test_a_passing_verdict_comes_to_the_question_and_the_node_stays() -> None:
    story = at_the_end()
    assert (story.state_of("N1"), edges(story, "N1")[-1]) == ("VERIFYING", "N03")
    question = only(story)
    assert (question.question_id, question.kind, question.gate) == ("G-look", "gate", "G-look")
    assert question.options == ("approve", "revise", "reject")
    assert question.files == {"artifacts/N1/o": BYTES}
    assert (question.to, question.default, question.expires_at) == (
        "gatekeeper",
        "remain-blocked",
        None,
    )


def test_the_same_content_is_asked_about_once() -> None:
    story = at_the_end()
    length = len(story.journal)
    verdict = c.Verdict(True, "verifier:v1", "V1", (), {"A-1": BYTES})
    again = story.decide(c.MoveNode("N1", "DONE", verdict=verdict))
    assert (again.drafts, again.answer) == ((), only(story).asked_ref)
    assert story.do(c.AskGate("N1", "G-look", {"artifacts/N1/o": BYTES})) == []
    assert len(story.journal) == length


def test_another_content_is_asked_about_in_place_of_the_first() -> None:
    story = at_the_end()
    (asked,) = verify(story, "cd" * 32)
    assert asked.payload["replaces"] == "G-look"
    assert (only(story).question_id, only(story).files) == (
        "G-look.2",
        {"artifacts/N1/o": "cd" * 32},
    )
    assert story.replica.state.closed_questions == {"G-look": asked.ref}


def test_the_contents_that_the_runtime_read_come_before_those_of_the_verdict() -> None:
    gate = msgspec.structs.replace(DONE, content=("report.pdf",))
    story = Story()
    story.add("N1", gates=(gate,))
    story.start("N1")
    story.register("N1", "A-1")
    story.claim("N1")
    verify(story)
    assert only(story).files == {"report.pdf": ""}
    verify(story, contents={"G-look": {"report.pdf": "1"}})
    assert only(story).files == {"report.pdf": "1"}


def test_every_gate_of_the_end_is_asked_about_at_once() -> None:
    story = Story()
    human = (parse_criterion("human: Fair?"),)
    story.add("N1", gates=(DONE,), acceptance_criteria=human)
    events = deliver(story)
    assert [event.payload["question_id"] for event in events] == ["G-look", "G-N1-judge"]
    files = {"artifacts/N1/o": BYTES}
    approve(story, "G-look", files)
    assert verify(story) == []
    approve(story, "G-N1-judge", files)
    done = verify(story)[0]
    assert done.payload["edge"] == "N06"
    assert set(done.payload["approvals"]) == {"G-look", "G-N1-judge"}
    assert done.payload["level"] == "V3"


def test_the_package_holds_what_ruling_takes() -> None:
    gate = Gate(
        "G-look", "done", "Is it good?", "for the fair", ("as a draft",), "it is printed",
        ("A-1",), scope="printing", gatekeeper=("ann",), timeout_s=60.0, fallback="reject",
        rubric="No error.",
    )  # fmt: skip
    story = at_the_end(gate)
    question = only(story)
    assert question.kind == "judgement"
    assert question.options == ("approve", "revise", "reject", "as a draft")
    assert question.package == {
        "blocks": "done",
        "context": "for the fair",
        "consequences": "it is printed",
        "links": ["A-1"],
        "rubric": "No error.",
        "scope": "printing",
        "gatekeeper": ["ann"],
    }
    assert (question.default, question.expires_at) == ("reject", story.now + 60.0)


def test_consequences_that_nobody_wrote_are_those_of_the_graph() -> None:
    story = Story()
    story.add("N1", gates=(DONE,))
    for number in range(2, 10):
        story.add(f"N{number}", "N1")
    deliver(story)
    said = only(story).package["consequences"]
    assert "N2, N3, N4, N5, N6 and others may go on" in said
    assert "round 1 of 3" in said


def test_a_gate_is_asked_about_right_before_its_move_and_by_its_id() -> None:
    story = Story()
    story.add("N1", gates=(START, DONE))
    assert refusal(story, c.AskGate("N1", "G-look")).rule == "GA-1"
    assert refusal(story, c.AskGate("N1", "G-loko")).suggestions == ["G-look"]
    story.do(c.AskGate("N1", "G-go"))
    approve(story, "G-go", {})
    story.start("N1")
    assert refusal(story, c.AskGate("N1", "G-go")).rule == "GA-1"


def test_a_failed_check_settles_what_was_asked_about_it() -> None:
    story = at_the_end()
    story.conclude("N1", passed=False)
    assert story.state_of("N1") == "RETRYABLE"
    assert story.replica.state.questions == {}
    assert frontier(story.replica) == ["N1"]


def test_a_question_of_a_person_holds_the_end_whatever_the_gate_says() -> None:
    story = at_the_end()
    approve(story, "G-look", {"artifacts/N1/o": BYTES})
    story.do(c.AskQuestion("is the name right?", node_id="N1"))
    with pytest.raises(HaltError) as caught:
        verify(story)
    assert caught.value.rule == "N06"


# Consent


def test_consent_ends_the_wait_and_the_next_verdict_ends_the_node() -> None:
    story = at_the_end()
    (event,) = approve(story, "G-look", {"artifacts/N1/o": BYTES})
    approval = story.node("N1").approvals["G-look"]
    assert (approval.ref, approval.by) == (event.ref, "gatekeeper:ann")
    assert approval.files == {"artifacts/N1/o": BYTES}
    done = verify(story)[0]
    assert done.payload["approvals"] == {"G-look": event.ref}
    assert event.ref in done.evidence
    assert story.state_of("N1") == "DONE"


def test_consent_to_what_is_not_there_any_more_is_refused() -> None:
    story = at_the_end()
    for files in ({}, {"artifacts/N1/o": "cd" * 32}, {"artifacts/N1/o": BYTES, "more": BYTES}):
        command = c.AnswerQuestion("G-look", "approve", files=files)
        error = refused(story, command)
        assert (error.code, error.rule) == ("content_changed", "GA-3")


def test_consent_without_a_look_at_the_disk_is_refused() -> None:
    story = at_the_end()
    error = refused(story, c.AnswerQuestion("G-look", "approve"))
    assert isinstance(error, EvidenceError)
    assert error.code == "content_unread"


def test_work_that_changed_after_consent_is_asked_about_again_with_the_changes() -> None:
    story = at_the_end()
    (consent,) = approve(story, "G-look", {"artifacts/N1/o": BYTES})
    void, asked = verify(story, "cd" * 32)
    assert (void.payload["op"], void.payload["approval"]) == ("void", consent.ref)
    assert asked.payload["package"]["changes"] == {
        "since": consent.ref,
        "changed": ["artifacts/N1/o"],
    }
    assert story.state_of("N1") == "VERIFYING"


def test_what_was_added_removed_and_widened_since_is_told() -> None:
    gate = msgspec.structs.replace(START, content=("a", "b"), scope="here")
    story = Story()
    story.add("N1", gates=(gate,))
    story.do(c.AskGate("N1", "G-go", {"a": "1", "b": "1"}))
    approve(story, "G-go", {"a": "1", "b": "1"})
    wider = msgspec.structs.replace(gate, content=("b", "c"), scope="abroad")
    story.do(c.AmendNode("N1", {"spec": Spec(gates=(wider,))}, "so"))
    _, asked = story.do(c.AskGate("N1", "G-go", {"b": "1", "c": "1"}))
    changes = asked.payload["package"]["changes"]
    del changes["since"]
    assert changes == {
        "added": ["c"],
        "removed": ["a"],
        "scope": {"before": "here", "now": "abroad"},
    }


def test_a_changed_spec_is_told() -> None:
    story = Story()
    story.add("N1", gates=(START,))
    story.do(c.AskGate("N1", "G-go"))
    approve(story, "G-go", {})
    story.do(c.AmendNode("N1", {"spec": Spec(run="x", gates=(START,))}, "so"))
    _, asked = story.do(c.AskGate("N1", "G-go"))
    assert asked.payload["package"]["changes"]["spec"] is True


# Refusals


@pytest.mark.parametrize(
    ("ruling", "more", "code"),
    [
        ("answer", {"text": "yes"}, "wrong_ruling"),
        ("reject", {}, "empty_text"),
        ("reject", {"text": " "}, "empty_text"),
        ("reject", {"text": "no", "changes": {"run": "x"}}, "wrong_ruling"),
        ("revise", {}, "empty_text"),
        ("revise", {"changes": {"rnu": "x"}}, "unknown_field"),
        ("revise", {"changes": {"budget": "much"}}, "bad_spec"),
        ("approve", {"changes": {"run": "x"}}, "wrong_ruling"),
    ],
)
@pytest.mark.parametrize("blocks", ["start", "done"])
def test_a_ruling_is_one_that_a_gate_takes(
    blocks: str, ruling: Any, more: dict[str, Any], code: str
) -> None:
    story = Story()
    story.add("N1", gates=(START, DONE))
    story.do(c.AskGate("N1", "G-go"))
    gate_id = "G-go"
    if blocks == "done":
        approve(story, "G-go", {})
        deliver(story)
        gate_id = "G-look"
    assert refused(story, c.AnswerQuestion(gate_id, ruling, **more)).code == code


@pytest.mark.parametrize("ruling", ["revise", "reject"])
def test_a_result_that_is_refused_is_done_again_and_costs_no_strike(ruling: Any) -> None:
    story = at_the_end()
    decided, *_, moved = story.rule("G-look", ruling, "the table is missing")
    assert (moved.payload["edge"], moved.payload["round"]) == ("N07", 1)
    assert moved.evidence == [decided.ref]
    node = story.node("N1")
    assert (node.state, node.strikes, node.method_strikes) == ("RETRYABLE", 0, 0)
    assert (node.rounds, node.checks_failed) == ({"G-look": 1}, 1)
    assert "the table is missing" in node.diagnosis
    assert story.replica.state.artifacts["A-1"].status == "quarantined"
    assert len(story.moves) == 1
    assert frontier(story.replica) == ["N1"]
    (asked,) = deliver(story, "cd" * 32)
    assert asked.payload["question_id"] == "G-look.2"
    package = asked.payload["package"]
    assert (package["rounds"], package["revise_max"]) == (1, 3)
    assert "the table is missing" in package["last_ruling"]
    assert "round 2 of 3" in package["consequences"]


def test_the_same_result_again_is_asked_about_again() -> None:
    story = at_the_end()
    story.rule("G-look", "reject", "no")
    (asked,) = deliver(story)
    assert asked.payload["question_id"] == "G-look.2"


def test_a_revision_with_changes_is_an_amendment_and_a_replan() -> None:
    story = at_the_end(run="make")
    changes = {"run": "make all", "constraints": ["be brief"]}
    events = story.rule("G-look", "revise", "all of it", changes=changes)
    kinds = [event.payload.get("edge") or event.payload["op"] for event in events]
    assert kinds == ["answer", "quarantine_artifact", "N07", "amend_node", "N12"]
    decided, _, _, amended, ready = events
    assert ready.payload["amendment"] == amended.ref
    assert amended.payload["ruling"] == decided.ref
    assert "all of it" in amended.payload["reason"]
    node = story.node("N1")
    assert (node.state, node.spec.run, node.spec.gates) == ("READY", "make all", (DONE,))
    assert node.amended_by == (amended.ref,)


def test_the_last_round_gives_the_node_up_and_escalates() -> None:
    story = at_the_end(msgspec.structs.replace(DONE, revise_max=2))
    story.rule("G-look", "revise", "shorter")
    deliver(story, "cd" * 32)
    events = story.rule("G-look", "revise", "much shorter", changes={"run": "cut"})
    edges_ = [event.payload.get("edge") or event.payload["op"] for event in events]
    assert edges_ == ["answer", "quarantine_artifact", "N08", "ask"]
    node = story.node("N1")
    assert (node.state, node.spec.run, node.rounds["G-look"]) == ("QUARANTINED", None, 2)
    question = only(story)
    assert (question.question_id, question.kind) == ("E-N1-2", "escalation")
    assert "much shorter" in question.text
    assert question.package["rounds"] == 2
    assert question.package["changes"] == {"run": "cut"}
    story.rule("E-N1-2", "answer", "add a successor")
    assert story.state_of("N1") == "QUARANTINED"
    story.add("N2", successor_of="N1")


def test_the_policy_limits_the_rounds_of_a_gate_that_names_none() -> None:
    story = Story(begun=False)
    story.do(c.StartTask("T1", policies=Policies(revise_max=1)))
    story.add("N1", gates=(DONE,))
    deliver(story)
    story.rule("G-look", "reject", "no")
    assert story.state_of("N1") == "QUARANTINED"


def test_many_rounds_within_the_cap_are_not_stopped_by_the_retry_budget() -> None:
    story = at_the_end(msgspec.structs.replace(DONE, revise_max=9), retry_budget=1)
    for number in range(2, 6):
        story.rule("G-look", "revise", "again")
        deliver(story, f"{number:064x}")
    assert story.state_of("N1") == "VERIFYING"


@pytest.mark.parametrize("name", ["round", "interruption"])
def test_nobody_says_by_hand_that_a_failed_check_is_no_strike(name: str) -> None:
    story = at_the_end()
    story.do(c.MoveNode("N1", "RETRYABLE", payload={"diagnosis": "bad", name: 1}))
    node = story.node("N1")
    assert (node.strikes, node.interruptions) == (1, 0)


def test_a_start_that_is_refused_stays_until_its_spec_changes() -> None:
    story = Story()
    story.add("N1", gates=(START,))
    story.do(c.AskGate("N1", "G-go"))
    (event,) = story.rule("G-go", "reject", "too dear")
    assert event.payload["round"] == 1
    assert story.state_of("N1") == "PENDING"
    assert due_gates(story.replica) == []
    assert story.decide(c.AskGate("N1", "G-go")).answer == event.ref
    late = refused(story, c.AnswerQuestion("G-go", "approve", files={}))
    assert (late.code, "perdure amend N1" in late.fix) == ("question_closed", True)
    story.do(c.AmendNode("N1", {"title": "a nicer title"}, "so"))
    assert due_gates(story.replica) == []


@pytest.mark.parametrize("state", ["PENDING", "READY", "RETRYABLE"])
def test_a_start_is_revised_by_an_amendment_and_asked_about_anew(state: str) -> None:
    story = Story()
    story.bring_to("N1", state)
    story.do(c.AmendNode("N1", {"spec": Spec(gates=(START,))}, "ask first"))
    story.do(c.AskGate("N1", "G-go"))
    events = story.rule("G-go", "revise", "cheaper", changes={"run": "make small"})
    assert [event.payload["op"] for event in events[:2]] == ["answer", "amend_node"]
    assert story.node("N1").spec.run == "make small"
    assert frontier(story.replica) == []
    assert [gate for _, gate in due_gates(story.replica)] == [START]
    story.do(c.AskGate("N1", "G-go"))
    approve(story, "G-go", {})
    assert frontier(story.replica) == ["N1"]


def test_a_start_that_was_to_be_described_otherwise_is_asked_about_as_it_is_described_now() -> None:
    story = Story()
    story.add("N1", gates=(START,), run="make")
    story.do(c.AskGate("N1", "G-go"))
    first = only(story).content
    story.rule("G-go", "revise", "say what for", changes={"goal": "For the fair"})
    assert [gate for _, gate in due_gates(story.replica)] == [START]
    story.do(c.AskGate("N1", "G-go"))
    assert (only(story).content, only(story).package["context"]) == (first, "For the fair")
    story.rule("G-go.2", "revise", "cheaper", changes={"run": "make small"})
    story.do(c.AmendNode("N1", {"spec": Spec(gates=(START,), run="make")}, "back again"))
    assert due_gates(story.replica) == []  # that was refused by the last word on it


def test_a_start_that_is_refused_too_often_is_escalated_and_may_be_given_up() -> None:
    story = Story()
    story.add("N1", gates=(msgspec.structs.replace(START, revise_max=1),))
    story.do(c.AskGate("N1", "G-go"))
    _, escalated = story.rule("G-go", "reject", "no")
    assert (only(story).question_id, only(story).kind) == ("E-N1-0", "escalation")
    assert escalated.payload["options"] == ["go on", "amend", "split", "cancel"]
    story.rule("E-N1-0", "answer", choice="cancel")
    assert story.state_of("N1") == "CANCELLED"


def test_a_ruling_that_lets_it_go_on_leaves_the_gate_where_it_is() -> None:
    story = Story()
    story.add("N1", gates=(msgspec.structs.replace(START, revise_max=1),))
    story.do(c.AskGate("N1", "G-go"))
    story.rule("G-go", "revise", "smaller", changes={"run": "small"})
    assert due_gates(story.replica) == []
    story.rule("E-N1-0", "answer", "go on")
    assert story.node("N1").method == "default"
    assert len(due_gates(story.replica)) == 1
    assert frontier(story.replica) == []


# Silence


def overdue(fallback: str, late: float = 60.0) -> Story:
    story = at_the_end(msgspec.structs.replace(DONE, timeout_s=60.0, fallback=fallback))
    story.now += late - 1.0  # the command itself comes a second later
    return story


def test_silence_rejects_where_the_gate_says_so_and_not_before_its_time() -> None:
    story = overdue("reject", 59.0)
    command = c.AnswerQuestion("G-look", "reject", by_default=True)
    assert refusal(story, command).code == "not_by_default"  # a second early, and a second passes
    decided, *_ = story.do(command)
    assert decided.payload["by_default"] is True
    assert decided.actor == "coordinator:main"
    assert story.state_of("N1") == "RETRYABLE"


@pytest.mark.parametrize("fallback", ["reject", "remain-blocked"])
@pytest.mark.parametrize("ruling", ["approve", "revise", "answer", "reject"])
def test_silence_is_nothing_else(fallback: str, ruling: Any) -> None:
    if (fallback, ruling) == ("reject", "reject"):
        return
    story = overdue(fallback)
    command = c.AnswerQuestion(
        "G-look", ruling, "late", files={"artifacts/N1/o": BYTES}, by_default=True
    )
    assert refusal(story, command).rule == "GA-2"
    assert story.state_of("N1") == "VERIFYING"


# Who


@pytest.mark.parametrize(
    ("actor", "code"),
    [
        ("coordinator:main", "role_may_not"),
        ("executor:inv-N1-1", "role_may_not"),
        ("gatekeeper:inv-N1-1", "own_gate"),
        ("gatekeeper:bob", "not_the_holder"),
        ("sponsor:bob", "not_the_holder"),
    ],
)
def test_who_may_not_rule_at_a_gate(actor: str, code: str) -> None:
    keepers = () if code == "own_gate" else ("ann",)
    story = at_the_end(msgspec.structs.replace(DONE, gatekeeper=keepers))
    command = c.AnswerQuestion("G-look", "approve", files={"artifacts/N1/o": BYTES})
    assert refused(story, command, actor).code == code


def test_the_people_of_the_task_rule_where_the_gate_names_nobody() -> None:
    story = Story(begun=False)
    people = {"gatekeeper": ["bob"], "gates": {"G-look": ["ann"]}}
    story.do(c.StartTask("T1", people=people))
    story.add("N1", gates=(DONE,))
    deliver(story)
    command = c.AnswerQuestion("G-look", "approve", files={"artifacts/N1/o": BYTES})
    assert refused(story, command, "gatekeeper:bob").code == "not_the_holder"
    approve(story, "G-look", {"artifacts/N1/o": BYTES})


# Questions that take consent


def consent() -> Story:
    story = Story()
    story.do(c.AskQuestion("Is it good?", "up-1f2e3d4c-G-a-review", None, ("approve", "reject")))
    return story


def test_words_alone_are_neither_consent_nor_refusal() -> None:
    story = consent()
    name = only(story).question_id
    error = refused(story, c.AnswerQuestion(name, "answer", "looks good to me"))
    assert (error.code, error.rule) == ("unknown_choice", "GA-1")
    assert f"perdure approve {name}" in error.fix
    assert f"perdure reject {name} --reason WHY" in error.fix
    assert commands_for(story.replica.state, only(story)) == [
        f"perdure approve {name}",
        f"perdure reject {name} --reason WHY",
    ]


@pytest.mark.parametrize(
    "said",
    [
        ("answer", "Approve", ""),
        ("answer", "reject", ""),
        ("answer", "looks good", "approve"),
        ("approve", "", ""),
        ("reject", "too long", ""),
    ],
)
def test_consent_and_refusal_are_said_in_these_ways(said: Any) -> None:
    story = consent()
    ruling, text, choice = said
    story.rule(only(story).question_id, ruling, text, choice=choice)
    assert story.replica.state.questions == {}
