"""Escalations: what led to them, what can be chosen, and that silence risks nothing."""

from typing import Any

import msgspec
import pytest
from tests.unit.core.story import Story, replay
from tests.unit.core.test_decide import refusal

from perdure.core import commands as c
from perdure.core.codec import to_json
from perdure.core.escalation import OPTIONS, OUT_OF_STRIKES, SAFE_DEFAULT, VERIFICATION_FAILED
from perdure.core.people import Gate, Question, failures_kept_max
from perdure.core.settling import commands_for

FACTS = {"files": 1, "named": [{"path": "artifacts/N1/part.txt", "size_bytes": 9}]}
LOOK = Gate("G-look", "done", "Is it good?", revise_max=1)
GO = Gate("G-go", "start", "May it start?", revise_max=1)


def only(story: Story) -> Question:
    (question,) = story.replica.state.questions.values()
    return question


def attempt(story: Story, signature: str, **more: Any) -> None:
    """One attempt that a living coordinator saw fail."""
    story.start("N1")
    more = {"failure_class": "transient-agent", "disk_facts": FACTS, **more}
    kind = more.pop("failure_class")
    story.do(c.FailNode("N1", kind, signature, **more))


def out_of_strikes(**fields: Any) -> Story:
    story = Story()
    story.add("N1", **fields)
    for signature in ("exit 1", "exit 2", "exit 3"):
        attempt(story, signature)
    return story


def verify(story: Story, diagnosis: str = "exists: it is not there", **more: Any) -> None:
    """One attempt that is claimed, and whose check fails."""
    number = story.node("N1").attempts + 1
    story.start("N1")
    story.register("N1", f"A-{number}", "artifacts/N1/o")
    story.claim("N1")
    checks: tuple[dict[str, Any], ...] = (
        {"check": "exists", "passed": False, "detail": diagnosis, "method": "looked"},
        {"check": "nonempty", "passed": True, "detail": "PASS"},
    )
    verdict = c.Verdict(False, "verifier:v1", "V1", checks, {f"A-{number}": "ab" * 32}, diagnosis)
    story.do(c.MoveNode("N1", "DONE", verdict=verdict, **more))


# Out of strikes


def test_the_third_strike_carries_all_three_attempts_with_their_signatures() -> None:
    story = out_of_strikes()
    question = only(story)
    assert (question.question_id, question.kind, question.node) == ("Q-N1-3", "escalation", "N1")
    package = question.package
    assert (package["escalation_id"], package["kind"]) == ("Q-N1-3", OUT_OF_STRIKES)
    assert (package["slot"], package["attempts"]) == ("N1/inv-N1-3", 3)
    assert package["failure_classes"] == ["transient-agent x3"]
    tried = [(item["attempt"], item["signature"]) for item in package["signatures"]]
    assert tried == [(1, "exit 1"), (2, "exit 2"), (3, "exit 3")]
    events = {event.ref: event for event in story.events()}
    for item in package["signatures"]:
        ended = events[item["event"]]
        assert (ended.payload["edge"], ended.payload["signature"]) == ("N04", item["signature"])
    assert package["disk_facts"] == FACTS


def test_classes_are_counted_in_the_order_in_which_they_came() -> None:
    story = Story()
    story.add("N1")
    attempt(story, "no network", failure_class="transient-environment")
    attempt(story, "exit 1")
    attempt(story, "no network", failure_class="transient-environment")
    classes = ["transient-environment x2", "transient-agent x1"]
    assert only(story).package["failure_classes"] == classes


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_interruption_is_no_attempt_that_failed(number: int) -> None:
    story = Story()
    story.add("N1")
    for strike in range(3):
        if strike == number:
            attempt(story, "the power was cut", interruption=True)
        attempt(story, f"exit {strike}")
    package = only(story).package
    tried = [item["signature"] for item in package["signatures"]]
    assert tried == ["exit 0", "exit 1", "exit 2"]
    assert package["attempts"] == 4


def test_methods_tried_before_are_shown_too() -> None:
    story = out_of_strikes()
    story.rule("Q-N1-3", "answer", "by hand", choice="retry", method="by-hand")
    for number in range(3):
        attempt(story, f"no {number}")
    tried = [item["method"] for item in only(story).package["signatures"]]
    assert tried == ["default"] * 3 + ["by-hand"] * 3


def test_a_bundle_is_bounded_however_often_it_failed() -> None:
    story = Story()
    story.add("N1", retry_budget=20)
    for number in range(20):
        attempt(story, f"exit {number}")
    tried = [item["signature"] for item in only(story).package["signatures"]]
    assert tried == [f"exit {number}" for number in range(19 - failures_kept_max, 20)]


def test_what_was_registered_is_named_where_it_lies_afterwards() -> None:
    story = Story()
    story.add("N1", retry_budget=1)
    story.start("N1")
    story.register("N1", "A-1", "artifacts/N1/part.txt")
    story.do(c.FailNode("N1", "transient-agent", "exit 1", disk_facts=FACTS))
    (move,) = story.moves
    moved = [{"path": "artifacts/N1/part.txt", "to": move.target}]
    assert only(story).package["disk_facts"] == {**FACTS, "moved": moved}
    (tried,) = only(story).package["signatures"]
    assert tried["event"] == story.node("N1").state_ref


# Given up by verification


def test_the_third_failed_verification_carries_the_three_diagnoses() -> None:
    story = Story()
    story.add("N1")
    for diagnosis in ("too short", "too long", "in French"):
        verify(story, diagnosis, disk_facts=FACTS)
    assert story.state_of("N1") == "QUARANTINED"
    package = only(story).package
    assert package["kind"] == VERIFICATION_FAILED
    assert [item["signature"] for item in package["signatures"]] == [
        "too short", "too long", "in French",
    ]  # fmt: skip
    events = {event.ref: event.payload.get("edge") for event in story.events()}
    assert [events[item["event"]] for item in package["signatures"]] == ["N07", "N07", "N08"]
    facts = package["disk_facts"]
    assert facts["files"] == 1
    assert facts["verified"] == [{"path": "artifacts/N1/o", "sha256": "ab" * 32}]
    assert facts["failed_checks"] == [{"check": "exists", "detail": "in French"}]
    assert facts["moved"] == [{"path": "artifacts/N1/o", "to": "artifacts/old/A-3-3/o"}]


def test_strikes_of_both_kinds_count_together() -> None:
    story = Story()
    story.add("N1")
    attempt(story, "exit 1")
    verify(story, "too short")
    attempt(story, "exit 3")
    tried = [item["signature"] for item in only(story).package["signatures"]]
    assert tried == ["exit 1", "too short", "exit 3"]


# Refused by a person


def test_the_last_refusal_of_a_result_carries_what_was_shown() -> None:
    story = Story()
    story.add("N1", gates=(LOOK,))
    story.start("N1")
    story.register("N1", "A-1", "artifacts/N1/o")
    story.claim("N1")
    story.conclude("N1")
    story.rule("G-look", "reject", "in French")
    package = only(story).package
    assert package["kind"] == "result_refused"
    (tried,) = package["signatures"]
    assert "in French" in tried["signature"]
    assert tried["event"] == story.node("N1").state_ref
    assert package["disk_facts"] == {
        "shown": [{"path": "artifacts/N1/o", "sha256": "ab" * 32}],
        "moved": [{"path": "artifacts/N1/o", "to": "artifacts/old/A-1-1/o"}],
    }


def test_a_start_that_is_refused_for_good_has_no_attempts_to_show() -> None:
    story = Story()
    story.add("N1", gates=(GO,))
    story.do(c.AskGate("N1", "G-go"))
    story.rule("G-go", "reject", "too dear")
    package = only(story).package
    assert (package["kind"], package["signatures"], package["attempts"]) == ("start_refused", [], 0)
    assert "refused once at gate G-go" in only(story).text
    assert package["context"] == "G-go stays closed after 1 round of revision."


# Options


def ended(kind: str) -> Story:
    """A story at an escalation of this kind."""
    if kind == OUT_OF_STRIKES:
        return out_of_strikes()
    story = Story()
    if kind == VERIFICATION_FAILED:
        story.add("N1", retry_budget=1)
        verify(story)
        return story
    story.add("N1", gates=(GO,) if kind == "start_refused" else (LOOK,))
    if kind == "start_refused":
        story.do(c.AskGate("N1", "G-go"))
        story.rule("G-go", "reject", "no")
    else:
        story.start("N1")
        story.register("N1", "A-1", "artifacts/N1/o")
        story.claim("N1")
        story.conclude("N1")
        story.rule("G-look", "reject", "no")
    return story


@pytest.mark.parametrize("kind", OPTIONS)
def test_every_escalation_has_options_and_a_default_that_risks_nothing(kind: str) -> None:
    question = only(ended(kind))
    assert question.package["kind"] == kind
    assert question.default == question.package["default_if_no_answer"] == SAFE_DEFAULT
    named = [item["id"] for item in question.package["options"]]
    assert list(question.options) == named
    assert all(item["desc"] for item in question.package["options"])
    assert len(named) == len(set(named)) >= 2


@pytest.mark.parametrize("kind", OPTIONS)
def test_time_alone_changes_nothing(kind: str) -> None:
    story = ended(kind)
    before = to_json(story.replica.state)
    story.now += 1e9
    for ruling in ("answer", "reject"):
        error = refusal(story, c.AnswerQuestion(only(story).question_id, ruling, by_default=True))
        assert (error.code, error.rule) == ("not_by_default", "GA-2")
    assert to_json(story.replica.state) == before


@pytest.mark.parametrize("kind", OPTIONS)
def test_each_option_has_one_command_and_it_names_what_it_is_about(kind: str) -> None:
    story = ended(kind)
    question = only(story)
    commands = commands_for(story.replica.state, question)
    assert len(commands) == len(OPTIONS[kind])
    for option, command in zip(OPTIONS[kind], commands, strict=True):
        assert command.startswith("perdure ")
        assert question.question_id in command or "N1" in command
        assert "QUESTION" not in command
        assert "NODE" not in command
        assert option.command.count(" ") == command.count(" ")


@pytest.mark.parametrize(
    ("kind", "choice"),
    [
        (kind, option.choice)
        for kind, options in OPTIONS.items()
        for option in options
        if not option.command.startswith("perdure answer ")
    ],
)
def test_an_answer_does_not_pretend_to_do_what_another_command_does(kind: str, choice: str) -> None:
    story = ended(kind)
    command = c.AnswerQuestion(only(story).question_id, "answer", "so be it", choice)
    error = refusal_of(story, command)
    assert (error.code, error.rule) == ("wrong_ruling", "AD-1")
    assert "N1" in error.fix


def refusal_of(story: Story, command: c.Command) -> Any:
    before, story.actor = story.actor, "gatekeeper:ann"
    error = refusal(story, command)
    story.actor = before
    return error


@pytest.mark.parametrize("kind", OPTIONS)
def test_cancelling_and_leaving_settle_it(kind: str) -> None:
    story = ended(kind)
    dead = story.state_of("N1") == "QUARANTINED"
    choice = "leave" if dead else "cancel"
    story.rule(only(story).question_id, "answer", "not worth it", choice=choice)
    assert story.replica.state.questions == {}
    assert story.state_of("N1") == ("QUARANTINED" if dead else "CANCELLED")


def test_retrying_by_another_method_starts_without_strikes() -> None:
    story = out_of_strikes()
    story.rule("Q-N1-3", "answer", "by hand", choice="retry", method="by-hand")
    node = story.node("N1")
    assert (node.method, node.method_strikes, node.strikes) == ("by-hand", 0, 3)
    story.start("N1")


@pytest.mark.parametrize("kind", [OUT_OF_STRIKES, VERIFICATION_FAILED, "result_refused"])
def test_what_takes_its_place_settles_it_as_well(kind: str) -> None:
    story = ended(kind)
    story.do(c.SplitNode("N1", (c.AddNode("N2", "half"), c.AddNode("N3", "half")), "too much"))
    assert story.replica.state.questions == {}
    assert story.state_of("N1") == "QUARANTINED"


@pytest.mark.parametrize("kind", [VERIFICATION_FAILED, "result_refused"])
def test_a_successor_settles_it(kind: str) -> None:
    story = ended(kind)
    story.add("N2", successor_of="N1")
    assert story.replica.state.questions == {}


def test_amending_a_start_that_was_refused_settles_it() -> None:
    story = ended("start_refused")
    node = story.node("N1")
    spec = msgspec.to_builtins(msgspec.structs.replace(node.spec, run="make small"))
    story.do(c.AmendNode("N1", {"spec": spec}, "smaller"))
    assert story.replica.state.questions == {}


# Ids


def test_a_person_cannot_take_the_id_of_a_question_that_is_to_come() -> None:
    story = Story()
    story.add("N1")
    for name in ("Q-N1-3", "E-N1-0", "Q-N1-1.2"):
        error = refusal(story, c.AskQuestion("mine", name, "N1"))
        assert (error.code, error.rule) == ("reserved_id", "H2")
    story.do(c.AskQuestion("about a node that there is not yet", "Q-N2-3"))
    story.add("N2")
    for number in range(3):
        story.start("N2")
        story.do(c.FailNode("N2", "transient-agent", f"exit {number}"))
    asked = {name: q.kind for name, q in story.replica.state.questions.items()}
    assert asked == {"Q-N2-3": "question", "Q-N2-3.2": "escalation"}
    assert story.replica.state.questions["Q-N2-3.2"].package["escalation_id"] == "Q-N2-3.2"


def test_the_journal_alone_gives_the_same_bundle() -> None:
    story = out_of_strikes()
    replica, _ = replay(story.journal)
    assert to_json(replica.state) == to_json(story.replica.state)
