"""Questions and their answers: what waits, what goes on, and who may say so."""

from typing import Any, cast

import pytest
from tests.unit.core.story import ME, Story
from tests.unit.core.test_decide import refusal
from tests.unit.core.test_decide_node import edges

from perdure.core import commands as c
from perdure.core import views
from perdure.core.events import Draft
from perdure.core.frontier import frontier
from perdure.core.lookup import question_of
from perdure.core.machine import open_question
from perdure.core.model import CLOSED_STATES, NODE_STATES
from perdure.core.people import RULINGS, Gate, Ruling
from perdure.errors import HaltError, NotFoundError, RefusedError, UsageError


def ask(story: Story, node_id: str | None = None, text: str = "which way?", **more: Any) -> str:
    """Ask, and tell under which id."""
    event = story.do(c.AskQuestion(text, node_id=node_id, **more))[0]
    return str(event.payload["question_id"])


# Asking


def test_a_question_keeps_everything_that_was_said_with_it() -> None:
    story = Story()
    (event,) = story.do(
        c.AskQuestion(
            "MIT or Apache?",
            options=("MIT", "Apache-2.0"),
            default="wait",
            to="sponsor",
            context="both are in use",
            consequences="it is published under it",
            links=("LICENSE", "J-1"),
            timeout_s=60.0,
        )
    )
    question = story.replica.state.questions["Q-001"]
    assert (question.text, question.options, question.default) == (
        "MIT or Apache?",
        ("MIT", "Apache-2.0"),
        "wait",
    )
    assert (question.kind, question.to, question.node) == ("question", "sponsor", None)
    assert question.package == {
        "context": "both are in use",
        "consequences": "it is published under it",
        "links": ["LICENSE", "J-1"],
    }
    assert (question.asked_by, question.asked_ref) == ("coordinator:main", event.ref)
    assert (question.asked_at, question.expires_at) == (story.now, story.now + 60.0)


def test_questions_are_numbered_and_a_number_is_not_given_twice() -> None:
    story = Story()
    assert [ask(story), ask(story), ask(story, question_id="Q-7"), ask(story)] == [
        "Q-001",
        "Q-002",
        "Q-7",
        "Q-003",
    ]
    for question_id in ("Q-001", "Q-002", "Q-003"):
        story.rule(question_id, "answer", "so")
    assert ask(story) == "Q-004"


def test_the_same_question_under_the_same_id_is_asked_once() -> None:
    story = Story()
    story.add("N1")
    ask(story, "N1", question_id="Q-x")
    again = story.decide(c.AskQuestion("which way?", "Q-x", "N1"))
    assert (again.drafts, again.answer) == ((), "J-4")
    for other in (
        c.AskQuestion("another?", "Q-x", "N1"),
        c.AskQuestion("which way?", "Q-x"),
    ):
        assert (refusal(story, other).code, refusal(story, other).rule) == ("duplicate_id", "H2")
    story.rule("Q-x", "answer", "left")
    assert refusal(story, c.AskQuestion("which way?", "Q-x", "N1")).code == "duplicate_id"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (c.AskQuestion(" "), "empty_text"),
        (c.AskQuestion("x", "a b"), "bad_id"),
        (c.AskQuestion("x", node_id="N9"), "unknown_node"),
        (c.AskQuestion("x", to="executor"), "unknown_role"),
        (c.AskQuestion("x", to=""), "unknown_role"),
        (c.AskQuestion("x", timeout_s=0.0), "bad_duration"),
        (c.AskQuestion("x", timeout_s=float("nan")), "bad_duration"),
        (c.AskQuestion("x", timeout_s=float("inf")), "bad_duration"),
    ],
)
def test_a_question_that_nobody_could_answer_is_refused(command: c.Command, code: str) -> None:
    assert refusal(Story(), command).code == code


@pytest.mark.parametrize("state", NODE_STATES)
def test_only_work_under_way_is_stopped_by_a_question(state: str) -> None:
    story = Story()
    story.bring_to("N1", state)
    if state in CLOSED_STATES:
        assert refusal(story, c.AskQuestion("x", node_id="N1")).rule == "QA-1"
        return
    before = edges(story, "N1")
    ask(story, "N1")
    taken = edges(story, "N1")[len(before) :]
    assert taken == (["N05"] if state == "RUNNING" else [])
    assert story.state_of("N1") == ("BLOCKED" if state == "RUNNING" else state)
    assert open_question(story.replica.state, "N1") == "Q-001"


def test_a_question_is_on_record_before_its_node_waits_and_in_the_same_commit() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    asked, moved = story.do(c.AskQuestion("which way?", node_id="N1"))
    assert (asked.kind, asked.payload["op"]) == ("DECISION", "ask")
    assert (moved.payload["edge"], moved.payload["wake"]) == ("N05", "answer to Q-001")
    assert "which way?" in moved.payload["reason"]
    assert asked.tx == moved.tx


def test_work_may_go_on_while_it_is_asked_and_only_its_end_waits() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    ask(story, "N1", keep_working=True)
    assert story.state_of("N1") == "RUNNING"
    story.register("N1", "A-1")
    story.claim("N1")
    with pytest.raises(HaltError) as caught:
        story.conclude("N1")
    assert caught.value.rule == "N06"
    assert "Q-001" in caught.value.message
    story.rule("Q-001", "answer", "left")
    story.conclude("N1")
    assert story.state_of("N1") == "DONE"


def test_a_question_without_a_node_and_a_confirmation_hold_nothing() -> None:
    story = Story()
    story.add("N1")
    ask(story)
    payload = {"op": "ask", "question_id": "C-1", "question": "so?", "node": "N1",
               "kind": "confirmation"}  # fmt: skip
    story.commit(Draft("DECISION", "node", "N1", payload))
    assert frontier(story.replica) == ["N1"]
    assert views.held(story.replica) == {}
    story.finish("N1")


# Finding


def test_a_question_is_found_by_id_by_gate_and_by_a_unique_beginning() -> None:
    story = Story()
    story.add("N1", gates=(Gate("G-go", "start"),))
    story.do(c.AskGate("N1", "G-go"))
    story.rule("G-go", "reject", "no")
    story.do(c.AmendNode("N1", {"spec": {"run": "x", "gates": [Gate("G-go", "start")]}}, "so"))
    story.do(c.AskGate("N1", "G-go"))
    ask(story)
    ask(story)
    state = story.replica.state
    for typed in ("G-go", "G-go.2", "G-"):
        assert question_of(state, typed).question_id == "G-go.2"
    assert question_of(state, "Q-002").question_id == "Q-002"
    with pytest.raises(UsageError) as caught:
        question_of(state, "Q-")
    assert (caught.value.code, caught.value.suggestions) == ("ambiguous_id", ["Q-001", "Q-002"])


@pytest.mark.parametrize("typed", ["Q-009", "", "zzz"])
def test_an_unknown_question_is_told_with_near_misses(typed: str) -> None:
    story = Story()
    ask(story)
    with pytest.raises(NotFoundError) as caught:
        question_of(story.replica.state, typed)
    assert caught.value.code == "unknown_question"
    assert caught.value.suggestions == (["Q-001"] if typed == "Q-009" else [])


@pytest.mark.parametrize("typed", ["Q-001", "Q-0"])
def test_a_closed_question_names_what_settled_it(typed: str) -> None:
    story = Story()
    ask(story)
    (event,) = story.rule("Q-001", "answer", "left")
    error = refusal(story, c.AnswerQuestion(typed, "answer", "right"))
    assert isinstance(error, RefusedError)
    assert (error.code, error.rule) == ("question_closed", "H2")
    assert event.ref in error.message


# Answering


def test_an_answer_is_kept_and_frees_what_waited_for_it() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    asked, _ = story.do(c.AskQuestion("which way?", node_id="N1", options=("left", "right")))
    answered, freed = story.rule("Q-001", "answer", "it is shorter", choice="left")
    assert answered.payload["choice"] == "left"
    assert (answered.payload["answer"], answered.payload["ruling"]) == ("it is shorter", "answer")
    assert answered.evidence == [asked.ref]
    assert (freed.payload["edge"], freed.payload["wake_evidence"]) == ("N09", answered.ref)
    assert story.state_of("N1") == "READY"
    assert story.replica.state.closed_questions == {"Q-001": answered.ref}


def test_a_node_is_freed_by_the_last_answer_that_it_waits_for() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    ask(story, "N1")
    ask(story, "N1")
    assert len(story.rule("Q-001", "answer", "left")) == 1
    assert story.state_of("N1") == "BLOCKED"
    assert [event.kind for event in story.rule("Q-002", "answer", "right")] == [
        "DECISION",
        "STATE_TRANSITION",
    ]
    assert story.state_of("N1") == "READY"


def test_an_answer_does_not_lift_a_block_that_was_for_something_else() -> None:
    story = Story()
    story.bring_to("N1", "BLOCKED")
    ask(story, "N1")
    story.rule("Q-001", "answer", "left")
    assert story.state_of("N1") == "BLOCKED"
    assert views.held(story.replica)["N1"] == "wall"


def test_an_answer_does_not_free_a_node_whose_dep_is_open_again() -> None:
    story = Story()
    story.add("D1")
    story.finish("D1")
    story.add("N1", "D1")
    story.start("N1")
    ask(story, "N1")
    reopened = {"from": "DONE", "to": "READY", "edge": "RC1", "finding": "its file is gone"}
    story.commit(Draft("STATE_TRANSITION", "node", "D1", reopened))
    story.rule("Q-001", "answer", "left")
    assert story.state_of("N1") == "BLOCKED"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({}, "empty_text"),
        ({"choice": "up"}, "unknown_choice"),
        ({"text": "x", "changes": {"run": "y"}}, "wrong_ruling"),
    ],
)
def test_an_answer_says_something_that_was_asked_for(more: dict[str, Any], code: str) -> None:
    story = Story()
    ask(story, options=("left", "right"))
    story.actor = "gatekeeper:ann"
    assert refusal(story, c.AnswerQuestion("Q-001", "answer", **more)).code == code


def test_an_unlisted_answer_in_words_is_an_answer() -> None:
    story = Story()
    ask(story, options=("left", "right"))
    story.rule("Q-001", "answer", "neither")
    assert story.replica.state.questions == {}


def test_yes_and_no_are_answers_and_a_revision_is_none() -> None:
    story = Story()
    for _ in range(3):
        ask(story)
    story.rule("Q-001", "approve")
    story.rule("Q-002", "reject", "no")
    story.actor = "gatekeeper:ann"
    error = refusal(story, c.AnswerQuestion("Q-003", "revise", "x"))
    assert error.code == "wrong_ruling"
    assert "perdure answer Q-003" in error.fix


@pytest.mark.parametrize(
    ("to", "actor", "may"),
    [
        ("gatekeeper", "gatekeeper:ann", True),
        ("gatekeeper", "sponsor:ann", True),
        ("gatekeeper", "coordinator:main", False),
        ("gatekeeper", "executor:inv-1", False),
        ("gatekeeper", "verifier:v1", False),
        ("gatekeeper", "recorder:r", False),
        ("coord", "coordinator:main", True),
        ("coordinator", "gatekeeper:ann", True),
        ("sponsor", "sponsor:ann", True),
        ("sponsor", "gatekeeper:ann", False),
    ],
)
def test_who_may_answer(to: str, actor: str, may: bool) -> None:
    story = Story()
    ask(story, to=to)
    story.actor = actor
    command = c.AnswerQuestion("Q-001", "answer", "so")
    if may:
        story.do(command)
        assert story.replica.state.questions == {}
    else:
        assert refusal(story, command).code == "role_may_not"


def test_silence_answers_nothing() -> None:
    story = Story()
    ask(story, default="left", timeout_s=1.0)
    story.now += 100
    for ruling in RULINGS:
        command = c.AnswerQuestion("Q-001", cast(Ruling, ruling), "late", by_default=True)
        assert refusal(story, command).rule == "GA-2"


# What the runtime asks by itself


def test_a_missing_resource_is_there_again_says_a_person() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.fail("N1", "permanent-resource")
    story.rule("Q-N1-1", "answer", "the key is there")
    assert (story.state_of("N1"), edges(story, "N1")[-1]) == ("READY", "N09")


def at_the_effect() -> Story:
    story = Story(allowed=("pay",))
    story.add("pay", effect="S3")
    story.start("pay")
    story.fail("pay")
    return story


def test_an_effect_is_asked_about_with_its_two_answers() -> None:
    question = at_the_effect().replica.state.questions["Q-pay-1"]
    assert (question.kind, question.options) == ("effect", ("done", "not-done"))
    assert question.asked_at is not None
    assert set(question.package) == {"context", "consequences"}


@pytest.mark.parametrize("said", [{"choice": "done", "text": "seen at the bank"}, {"text": "done"}])
def test_an_effect_that_happened_is_a_receipt_by_whoever_says_so(said: dict[str, str]) -> None:
    story = at_the_effect()
    answered, receipt, freed = story.rule("Q-pay-1", "answer", **said)
    assert (answered.payload["choice"], receipt.kind) == ("done", "RECEIPT")
    assert "gatekeeper:ann says" in receipt.payload["proof"]
    assert ("seen at the bank" in receipt.payload["proof"]) is ("choice" in said)
    assert receipt.payload["contract"] == "inv-pay-1"
    assert freed.payload["edge"] == "N09"
    node = story.node("pay")
    assert (node.state, node.receipt) == ("READY", receipt.payload["id"])


def test_an_effect_that_did_not_happen_is_allowed_once_more() -> None:
    story = at_the_effect()
    story.rule("Q-pay-1", "answer", choice="not-done")
    assert (story.state_of("pay"), story.node("pay").receipt) == ("READY", None)
    story.start("pay")
    story.fail("pay")
    assert list(story.replica.state.questions) == ["Q-pay-2"]


@pytest.mark.parametrize("said", [{"text": "perhaps"}, {"choice": "maybe", "text": "x"}])
def test_about_an_effect_there_is_no_third_answer(said: dict[str, Any]) -> None:
    story = at_the_effect()
    story.actor = "gatekeeper:ann"
    error = refusal(story, c.AnswerQuestion("Q-pay-1", "answer", **said))
    assert (error.code, bool(error.fix)) == ("unknown_choice", True)
    assert refusal(story, c.AnswerQuestion("Q-pay-1", "approve")).code == "wrong_ruling"


def test_work_that_stops_at_its_effect_to_ask_is_held_for_both_answers() -> None:
    for first, second in (("Q-001", "Q-pay-1"), ("Q-pay-1", "Q-001")):
        story = Story(allowed=("pay",))
        story.add("pay", effect="S3")
        story.start("pay")
        ask(story, "pay")
        assert (story.state_of("pay"), len(story.replica.state.questions)) == ("BLOCKED", 2)
        story.rule(first, "answer", "not-done")
        assert story.state_of("pay") == "BLOCKED"
        story.rule(second, "answer", "not-done")
        assert story.state_of("pay") == "READY"


def out_of_strikes() -> Story:
    story = Story()
    story.add("N1", retry_budget=1)
    story.start("N1")
    story.fail("N1")
    assert story.replica.state.questions["Q-N1-1"].kind == "escalation"
    return story


def test_a_ruling_on_used_up_strikes_starts_anew_under_its_own_name() -> None:
    story = out_of_strikes()
    (event,) = story.rule("Q-N1-1", "answer", "try the mirror")
    node = story.node("N1")
    assert event.payload["method"] == node.method == "as-ruled-Q-N1-1"
    assert (node.method_strikes, node.strikes) == (0, 1)
    assert frontier(story.replica) == ["N1"]


def test_a_ruling_names_the_method() -> None:
    story = out_of_strikes()
    story.rule("Q-N1-1", "answer", "use it", method="mirror")
    assert story.node("N1").method == "mirror"
    story.start("N1")
    story.fail("N1")
    story.actor = "gatekeeper:ann"
    error = refusal(story, c.AnswerQuestion("Q-N1-2", "answer", "again", method="mirror"))
    assert error.rule == "FSN-3"


@pytest.mark.parametrize("said", [{"choice": "cancel"}, {"text": "cancel"}])
def test_a_ruling_may_give_the_node_up(said: dict[str, str]) -> None:
    story = out_of_strikes()
    story.rule("Q-N1-1", "answer", **said)
    assert story.state_of("N1") == "CANCELLED"
    assert story.replica.state.questions == {}


def test_a_ruling_on_a_dead_node_is_kept_and_moves_nothing() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.fail("N1", "permanent-spec")
    (event,) = story.rule("Q-N1-1", "answer", "add a successor", choice="add a successor")
    assert event.kind == "DECISION"
    assert story.state_of("N1") == "QUARANTINED"


def test_another_spec_settles_the_question_about_attempts_and_no_other() -> None:
    story = out_of_strikes()
    ask(story, "N1")
    story.do(c.AmendNode("N1", {"spec": {"run": "other"}}, "otherwise"))
    assert list(story.replica.state.questions) == ["Q-001"]
    story.rule("Q-001", "answer", "left")
    assert frontier(story.replica) == ["N1"]


def test_a_journal_without_kinds_is_read_as_it_was_meant() -> None:
    story = Story()
    story.add("N1")
    story.start("N1", executor=ME)
    old = {"op": "ask", "question_id": "Q-N1-1", "question": "?", "node": "N1", "options": ["a"],
           "default": ""}  # fmt: skip
    story.commit(Draft("DECISION", "node", "N1", old))
    question = story.replica.state.questions["Q-N1-1"]
    assert (question.kind, question.to, question.package) == ("question", "gatekeeper", {})
    story.rule("Q-N1-1", "answer", "so")
