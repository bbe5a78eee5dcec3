"""An external effect that cannot be repeated (S3): held for a person until there is a receipt."""

import pytest
from tests.unit.core.story import ME, Story
from tests.unit.core.test_decide import refusal

from perdure.core import commands as c
from perdure.core import views
from perdure.core.events import Draft
from perdure.core.frontier import frontier
from perdure.core.model import FAILURE_CLASSES
from perdure.core.recovery import Findings, NodeFacts, plan_recovery
from perdure.errors import EvidenceError, TransitionError


def at_work() -> Story:
    """A task whose node ``pay`` has an S3 effect, and is at it."""
    story = Story(allowed=("pay",))
    story.add("pay", effect="S3")
    story.add("after", "pay")
    story.start("pay")
    return story


def die(story: Story) -> None:
    """Recover from the death of whoever was at ``pay``."""
    facts = {"pay": NodeFacts(effect_open=True, details=("process 100 is gone",))}
    context = c.Context(story.now, story.actor)
    plan = plan_recovery(story.replica, Findings(nodes=facts), context)
    story.moves += plan.moves
    story.commit(*plan.drafts)


def question(story: Story) -> str:
    (asked,) = story.replica.state.questions.values()
    assert asked.node == "pay"
    return asked.text


def check_held(story: Story) -> None:
    """BLOCKED behind a question, and nobody starts it."""
    node = story.node("pay")
    assert (node.state, node.strikes, node.receipt) == ("BLOCKED", 0, None)
    assert "did its external effect happen?" in question(story)
    assert "perdure receipt pay" in question(story)
    assert "perdure retry pay" in question(story)
    assert story.replica.state.contracts == {}
    assert frontier(story.replica) == []
    contract = c.IssuedContract("inv-9", "ab" * 32, ME, None, {})
    assert refusal(story, c.MoveNode("pay", "RUNNING", contract=contract)).rule
    assert refusal(story, c.MoveNode("pay", "READY", ("J-1",))).rule == "N09"


@pytest.mark.parametrize("interruption", [False, True])
@pytest.mark.parametrize("kind", FAILURE_CLASSES)
def test_an_attempt_that_ends_without_a_receipt_is_held(kind: str, interruption: bool) -> None:
    story = at_work()
    story.register("pay", "A-half")
    story.fail("pay", kind, interruption=interruption)
    check_held(story)
    assert story.replica.state.artifacts["A-half"].status == "quarantined"


def test_an_attempt_whose_executor_died_is_held_and_what_it_registered_is_out_of_the_way() -> None:
    story = at_work()
    story.register("pay", "A-half")
    die(story)
    check_held(story)
    assert "process 100 is gone" in question(story)
    assert story.replica.state.artifacts["A-half"].status == "quarantined"
    assert len(story.moves) == 1


def test_a_missing_resource_is_named_by_the_question_about_the_effect() -> None:
    story = at_work()
    story.fail("pay", "permanent-resource", detail="sent\nsh: nosuchprogram: not found\n")
    check_held(story)
    assert "exit 3: sh: nosuchprogram: not found" in question(story)
    assert "has to be put right" in question(story)


def test_a_missing_resource_blocks_as_it_does_everywhere_where_nothing_ran_at_all() -> None:
    story = at_work()
    story.fail("pay", "permanent-resource", nothing_ran=True)
    assert story.state_of("pay") == "BLOCKED"
    assert "effect" not in question(story)
    assert frontier(story.replica) == []


def test_a_start_that_failed_is_tried_again_without_a_question_as_nothing_ran() -> None:
    story = at_work()
    story.fail("pay", "transient-environment", nothing_ran=True)
    assert story.state_of("pay") == "RETRYABLE"
    assert story.replica.state.questions == {}


def test_a_claim_without_a_receipt_is_refused_and_names_the_command() -> None:
    story = at_work()
    error = refusal(story, c.MoveNode("pay", "VERIFYING", payload={"report": "paid"}))
    assert isinstance(error, EvidenceError)
    assert (error.code, error.rule) == ("receipt_missing", "C-S3")
    assert "perdure receipt pay" in error.fix


def test_a_receipt_frees_the_node_that_was_held_and_is_kept() -> None:
    story = at_work()
    story.fail("pay")
    first, *_ = story.do(c.RecordReceipt("pay", "order 4711"))
    assert (first.kind, first.payload["proof"]) == ("RECEIPT", "order 4711")
    assert first.payload["contract"] == "inv-pay-1"
    node = story.node("pay")
    assert (node.state, node.receipt) == ("READY", first.payload["id"])
    assert story.replica.state.questions == {}
    assert frontier(story.replica) == ["pay"]


def test_a_node_with_its_receipt_fails_and_starts_like_any_other() -> None:
    story = at_work()
    story.do(c.RecordReceipt("pay", "order 4711", "R-1"))
    assert story.state_of("pay") == "RUNNING"
    story.fail("pay")
    assert (story.state_of("pay"), story.node("pay").strikes) == ("RETRYABLE", 1)
    story.finish("pay")
    assert (story.state_of("pay"), story.node("pay").receipt) == ("DONE", "R-1")


def test_a_person_who_says_that_it_did_not_happen_allows_it_once() -> None:
    story = at_work()
    story.fail("pay")
    story.do(c.RetryNode("pay", "the shop has no such order"))
    assert frontier(story.replica) == ["pay"]
    story.start("pay")
    story.fail("pay", interruption=True)
    check_held(story)


def test_a_receipt_is_recorded_also_while_a_dep_is_being_done_again() -> None:
    story = Story(allowed=("pay",))
    story.add("first")
    story.finish("first")
    story.add("pay", "first", effect="S3")
    story.start("pay")
    story.fail("pay")
    reopened = {"from": "DONE", "to": "READY", "edge": "RC1", "finding": "its file is gone"}
    story.commit(Draft("STATE_TRANSITION", "node", "first", reopened))
    (event,) = story.do(c.RecordReceipt("pay", "order 4711"))
    assert (story.state_of("pay"), story.node("pay").receipt) == ("BLOCKED", event.payload["id"])


@pytest.mark.parametrize("state", ["DONE", "QUARANTINED", "CANCELLED"])
def test_what_is_closed_takes_no_receipt(state: str) -> None:
    story = Story()
    story.bring_to("N1", state)
    error = refusal(story, c.RecordReceipt("N1", "late"))
    assert isinstance(error, TransitionError)
    assert error.rule == "C-S3"


def test_a_receipt_says_something_and_its_id_is_one() -> None:
    story = at_work()
    assert refusal(story, c.RecordReceipt("pay", " ")).code == "empty_text"
    assert refusal(story, c.RecordReceipt("pay", "paid", "R 1\n")).code == "bad_id"


def test_an_effect_without_authority_waits_at_a_gate_and_says_so() -> None:
    story = Story()
    story.add("pay", effect="S3")
    assert frontier(story.replica) == []
    assert views.held(story.replica)["pay"] == "gate G-pay-start is not approved"
    (stuck,) = views.stuck(story.replica)
    assert (stuck["node"], stuck["state"]) == ("pay", "PENDING")
    assert "G-pay-start" in stuck["why"]


def test_what_only_waits_for_its_deps_is_not_called_stuck() -> None:
    story = Story()
    story.add("first")
    story.add("pay", "first", effect="S3")
    assert views.stuck(story.replica) == []
