"""Gates, questions and judgements, rule by rule (protocol section 12), as the core decides them."""

from typing import Any

import msgspec
import pytest
from tests.unit.core.story import ME, Story
from tests.unit.core.test_decide import refusal

from perdure.core import commands as c
from perdure.core import views
from perdure.core.criteria import parse_criterion
from perdure.core.frontier import due_gates, frontier
from perdure.core.people import FALLBACKS, RULINGS, Gate
from perdure.core.rules import explain_rule

BYTES = "ab" * 32
OUT = {"artifacts/N1/o": BYTES}
START = Gate("G-go", "start", "May it start?")
DONE = Gate("G-look", "done", "Is it good?")


def deliver(story: Story, value: str = BYTES) -> None:
    """Start N1, register its one file, claim it, and let it be verified."""
    number = story.node("N1").attempts + 1
    story.start("N1")
    story.register("N1", f"A-{number}", "artifacts/N1/o", value=value)
    story.claim("N1")
    verify(story, value)


def verify(story: Story, value: str = BYTES) -> None:
    artifacts = dict.fromkeys(story.node("N1").artifacts, value)
    verdict = c.Verdict(True, "verifier:v1", "V1", ({"passed": True},), artifacts)
    story.do(c.MoveNode("N1", "DONE", verdict=verdict))


def delivered(*gates: Gate, **fields: Any) -> Story:
    story = Story()
    story.add("N1", gates=gates, **fields)
    story.add("N2", "N1")
    deliver(story)
    return story


def may_not(story: Story, command: c.Command, actor: str) -> str:
    before, story.actor = story.actor, actor
    code = refusal(story, command).code
    story.actor = before
    return code


@pytest.mark.parametrize("rule", ["GA-1", "GA-2", "GA-3", "H2", "QA-1", "VR-3"])
def test_the_rule_can_be_explained(rule: str) -> None:
    assert explain_rule(rule)["meaning"]


# GA-1: a gate holds its move


def test_ga_1_nothing_starts_through_a_gate_that_is_not_approved() -> None:
    story = Story()
    story.add("N1", gates=(START,))
    contract = c.IssuedContract("inv-1", BYTES, ME, None, {})
    start = c.MoveNode("N1", "RUNNING", contract=contract)
    assert "G-go" in refusal(story, start).message
    assert (frontier(story.replica), "G-go" in views.held(story.replica)["N1"]) == ([], True)
    assert [gate.gate_id for _, gate in due_gates(story.replica)] == ["G-go"]
    story.do(c.AskGate("N1", "G-go"))
    assert "G-go" in refusal(story, start).message
    story.rule("G-go", "approve", files={})
    story.do(start)
    assert story.state_of("N1") == "RUNNING"


def test_ga_1_a_retry_passes_the_same_gate() -> None:
    story = Story()
    story.add("N1")
    story.start("N1")
    story.fail("N1")
    story.do(c.AmendNode("N1", {"spec": {"gates": [START]}}, "ask before it is tried again"))
    assert (story.state_of("N1"), frontier(story.replica)) == ("READY", [])
    story.do(c.AskGate("N1", "G-go"))
    story.rule("G-go", "approve", files={})
    story.start("N1")
    story.fail("N1")
    assert (story.state_of("N1"), frontier(story.replica)) == ("RETRYABLE", ["N1"])


def test_ga_1_a_passing_verdict_is_not_done_before_the_gate_is_approved() -> None:
    story = delivered(DONE)
    assert (story.state_of("N1"), story.state_of("N2")) == ("VERIFYING", "PENDING")
    verify(story)
    assert story.state_of("N1") == "VERIFYING"
    story.rule("G-look", "approve", files=OUT)
    assert story.state_of("N1") == "VERIFYING"
    verify(story)
    assert (story.state_of("N1"), story.state_of("N2")) == ("DONE", "READY")


def test_ga_1_a_gate_takes_a_gatekeeper() -> None:
    story = delivered(DONE)
    command = c.AnswerQuestion("G-look", "approve", files=OUT)
    for actor in ("coordinator:main", "executor:inv-N1-1", "verifier:v1", "recorder:r"):
        assert may_not(story, command, actor) == "role_may_not"
    assert may_not(story, command, "gatekeeper:inv-N1-1") == "own_gate"
    story.rule("G-look", "approve", actor="sponsor:sue", files=OUT)


def test_ga_1_an_external_effect_without_standing_authority_meets_a_gate() -> None:
    story = Story(allowed=("other",))
    story.add("N1", effect="S3")
    assert frontier(story.replica) == []
    story.do(c.AskGate("N1", "G-N1-start"))
    story.rule("G-N1-start", "approve", files={})
    assert frontier(story.replica) == ["N1"]


# GA-2: what is asked, and what silence is


def test_ga_2_the_question_holds_context_options_consequences_links_and_changes() -> None:
    gate = msgspec.structs.replace(
        DONE, context="for the fair", consequences="it is printed", links=("A-1",),
        options=("as a draft",),
    )  # fmt: skip
    story = delivered(gate)
    story.rule("G-look", "approve", files=OUT)
    verify(story, "cd" * 32)
    question = story.replica.state.questions["G-look.2"]
    assert question.options == ("approve", "revise", "reject", "as a draft")
    package = question.package
    assert (package["context"], package["consequences"]) == ("for the fair", "it is printed")
    assert package["links"] == ["A-1"]
    assert package["changes"]["changed"] == ["artifacts/N1/o"]


@pytest.mark.parametrize("fallback", FALLBACKS)
@pytest.mark.parametrize("ruling", RULINGS)
def test_ga_2_time_never_approves(fallback: Any, ruling: Any) -> None:
    story = delivered(msgspec.structs.replace(DONE, timeout_s=60.0, fallback=fallback))
    story.now += 3_600.0
    command = c.AnswerQuestion("G-look", ruling, "late", files=OUT, by_default=True)
    if (fallback, ruling) == ("reject", "reject"):
        story.do(command)
        assert story.state_of("N1") == "RETRYABLE"
    else:
        assert refusal(story, command).rule == "GA-2"
        assert story.state_of("N1") == "VERIFYING"
    assert story.node("N1").approvals == {}


# GA-3: what an approval is for


def test_ga_3_an_approval_is_for_one_content() -> None:
    story = delivered(DONE)
    story.rule("G-look", "approve", files=OUT)
    verify(story, "cd" * 32)
    assert story.state_of("N1") == "VERIFYING"
    assert story.node("N1").approvals == {}
    assert list(story.replica.state.questions) == ["G-look.2"]


def test_ga_3_an_approval_of_what_is_not_there_any_more_is_refused() -> None:
    story = delivered(DONE)
    command = c.AnswerQuestion("G-look", "approve", files={"artifacts/N1/o": "cd" * 32})
    assert may_not(story, command, "gatekeeper:ann") == "content_changed"


def test_ga_3_an_approval_is_for_one_scope() -> None:
    story = Story()
    story.add("N1", gates=(msgspec.structs.replace(START, scope="the test shop"),))
    story.do(c.AskGate("N1", "G-go"))
    story.rule("G-go", "approve", files={})
    wider = msgspec.structs.replace(START, scope="the real shop")
    story.do(c.AmendNode("N1", {"spec": {"gates": [msgspec.to_builtins(wider)]}}, "for real"))
    assert frontier(story.replica) == []
    assert len(due_gates(story.replica)) == 1


def test_ga_3_a_changed_description_keeps_the_approval_and_a_changed_command_does_not() -> None:
    story = Story()
    story.add("N1", gates=(START,), run="make")
    story.do(c.AskGate("N1", "G-go"))
    story.rule("G-go", "approve", files={})
    spec = story.node("N1").spec
    described = msgspec.structs.replace(spec, goal="to please", constraints=("be quick",))
    story.do(c.AmendNode("N1", {"spec": described, "title": "nicer", "priority": 3}, "words"))
    assert frontier(story.replica) == ["N1"]
    story.do(c.AmendNode("N1", {"spec": msgspec.structs.replace(spec, run="rm")}, "deeds"))
    assert frontier(story.replica) == []


# H2: on record before anything waits, settled once


def test_h2_a_question_is_journaled_in_front_of_the_move_that_waits_for_it() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.do(c.AskQuestion("which way?", node_id="N1"))
    asked, moved = story.events()[-2:]
    assert (asked.payload["op"], moved.payload["edge"]) == ("ask", "N05")
    assert asked.payload["question_id"] in moved.payload["wake"]


def test_h2_an_answer_frees_in_the_commit_of_the_answer() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.do(c.AskQuestion("which way?", node_id="N1"))
    events = story.rule("Q-001", "answer", "left")
    assert [event.payload.get("edge") for event in events] == [None, "N09"]
    assert len({event.tx for event in events}) == 1


def test_h2_a_closed_question_is_refused_with_what_settled_it() -> None:
    story = delivered(DONE)
    (ruling,) = story.rule("G-look", "approve", files=OUT)
    story.actor = "gatekeeper:ann"
    error = refusal(story, c.AnswerQuestion("G-look", "reject", "no"))
    assert (error.code, error.rule) == ("question_closed", "H2")
    assert ruling.ref in error.message


# QA-1: what an open question holds


def test_qa_1_an_unanswered_question_holds_what_depends_on_it_alone() -> None:
    story = Story()
    for name, deps in (("N1", ()), ("N2", ("N1",)), ("N3", ()), ("N4", ("N3",))):
        story.add(name, *deps)
    story.do(c.AskQuestion("which way?", node_id="N1"))
    story.do(c.AskQuestion("and what of the rest?"))
    assert frontier(story.replica) == ["N3"]
    story.finish("N3")
    assert frontier(story.replica) == ["N4"]
    assert views.held(story.replica) == {"N1": "which way?"}


# VR-3: judgement


def test_vr_3_judgement_names_judge_rubric_rounds_and_default() -> None:
    human = {
        "human": {"rubric": "Fair to both?", "judge": "ann", "rounds": 2, "default": "reject",
                  "timeout": "1d"}
    }  # fmt: skip
    story = delivered(acceptance_criteria=(parse_criterion(human),))
    question = story.replica.state.questions["G-N1-judge"]
    assert (question.kind, question.default) == ("judgement", "reject")
    assert question.package["rubric"] == "Fair to both?"
    assert question.package["gatekeeper"] == ["ann"]
    assert question.expires_at == story.now + 86_400.0
    command = c.AnswerQuestion("G-N1-judge", "approve", files=OUT)
    assert may_not(story, command, "gatekeeper:bob") == "not_the_holder"
    story.rule("G-N1-judge", "approve", files=OUT)
    verify(story)
    last = [e for e in story.events() if e.payload.get("edge") == "N06"][-1]
    assert last.payload["level"] == "V3"


def test_vr_3_the_rounds_have_an_end_and_then_it_is_escalated() -> None:
    story = delivered(acceptance_criteria=(parse_criterion({"human": {"rounds": 2}}),))
    story.rule("G-N1-judge", "revise", "warmer")
    assert story.state_of("N1") == "RETRYABLE"
    deliver(story, "cd" * 32)
    story.rule("G-N1-judge", "revise", "warmer still")
    assert story.state_of("N1") == "QUARANTINED"
    (question,) = story.replica.state.questions.values()
    assert (question.kind, question.node) == ("escalation", "N1")


def test_vr_3_redelivery_meets_the_same_gate_with_its_changes() -> None:
    story = delivered(DONE)
    story.rule("G-look", "revise", "with a title", changes={"constraints": ["has a title"]})
    assert story.state_of("N1") == "READY"
    deliver(story, "cd" * 32)
    question = story.replica.state.questions["G-look.2"]
    assert (question.gate, question.package["rounds"]) == ("G-look", 1)
    assert story.node("N1").spec.constraints == ("has a title",)
