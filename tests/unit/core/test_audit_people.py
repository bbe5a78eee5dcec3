"""Items A9.1 to A9.3: instructions, consent, escalations."""

from typing import Any

import pytest
from tests.unit.core.story import Story
from tests.unit.core.test_task_audit_items import failures, of

from perdure.core import commands as c
from perdure.core.audit_people import ConsentIsGiven, EscalationsCarryData, SteeringGoesItsWay
from perdure.core.events import Draft
from perdure.core.people import Gate


def steered(story: Story, text: str, reading: str = "") -> str:
    """An instruction, logged and propagated."""
    logged = story.do(c.LogSteering("", text, reading=reading))[0]
    story.do(c.PropagateSteering(logged.entity.id, text))
    return logged.entity.id


@pytest.mark.parametrize("reading", ["", "clarification", "question", "amendment", "halt"])
def test_an_instruction_goes_its_way_however_it_is_read(reading: str) -> None:
    story = Story()
    story.add("N1")
    story.start("N1")
    steered(story, "in French", reading)
    findings = of(story, SteeringGoesItsWay)
    assert (len(findings.results), failures(findings)) == (1, [])
    assert len(findings.inputs) == 3  # the words, the reading, the acknowledgement


def test_an_instruction_that_nothing_has_acted_on_yet_is_told() -> None:
    story = Story()
    story.do(c.LogSteering("", "in French"))
    assert "never acknowledged" in failures(of(story, SteeringGoesItsWay))[0]


def logged(payload: dict[str, Any]) -> Story:
    story = Story()
    story.add("N1")
    story.commit(Draft("STEERING_LOGGED", "steering", "ST-1", {"id": "ST-1", **payload}))
    return story


def by(story: Story, kind: str, op: str, **payload: Any) -> None:
    story.commit(Draft(kind, "steering", "ST-1", {"op": op, "steering": "ST-1", **payload}))


def test_words_of_others_that_lack_the_verbatim_count_for_nothing() -> None:
    findings = of(logged({"text": "faster"}), SteeringGoesItsWay)
    assert (findings.results, bool(findings.why)) == ((), True)


@pytest.mark.parametrize(
    ("given", "reading", "log", "applied", "why"),
    [
        ("", "amendment", "J-4", {}, ""),
        ("", "clarification", "J-4", {}, "ST-1"),
        ("halt", "clarification", "J-4", {}, "sent as halt"),
        ("halt", "halt", "J-1", {}, "other words"),
        ("halt", "halt", "J-4", {"N1": "amended J-2"}, "no event of it"),
    ],
)
def test_what_an_acknowledgement_says_has_to_be_so(
    given: str, reading: str, log: str, applied: dict[str, str], why: str
) -> None:
    story = logged({"verbatim": "stop", "reading": given})
    by(story, "DECISION", "classify", reading=reading)
    by(story, "NOTE", "acknowledged", reading=reading, log=log, applied=applied)
    found = failures(of(story, SteeringGoesItsWay))
    assert bool(found) == bool(why)
    assert why in "".join(found)


def test_nothing_starts_before_an_instruction_is_propagated() -> None:
    story = logged({"verbatim": "stop", "reading": "clarification"})
    start = {"from": "READY", "to": "RUNNING", "edge": "N02", "invocation": "inv-1"}
    story.commit(Draft("STATE_TRANSITION", "node", "N1", start))
    by(story, "DECISION", "classify", reading="clarification")
    by(story, "NOTE", "acknowledged", reading="clarification", log="J-4")
    assert "started" in failures(of(story, SteeringGoesItsWay))[0]


# Consent


def answered(kind: str = "gate", **payload: Any) -> Story:
    """A question about N1 and an answer to it."""
    story = Story()
    story.add("N1")
    asked = {
        "op": "ask", "question_id": "Q-1", "question": "May it?", "node": "N1", "kind": kind,
        "content": "ab", "gate": "G-1" if kind == "gate" else "", "default": "remain-blocked",
    }  # fmt: skip
    story.commit(Draft("DECISION", "node", "N1", asked))
    ruled = {"op": "answer", "question_id": "Q-1", "node": "N1", "authority": "gatekeeper:ann"}
    story.commit(Draft("DECISION", "node", "N1", {**ruled, **payload}))
    return story


@pytest.mark.parametrize(
    ("kind", "payload", "why"),
    [
        ("gate", {"ruling": "approve", "content": "ab"}, ""),
        ("gate", {"ruling": "approve", "content": "cd"}, "is not what"),
        ("gate", {"ruling": "approve"}, "is not what"),
        ("gate", {"ruling": "approve", "content": "ab", "authority": "executor:x"}, "may not"),
        ("gate", {"ruling": "approve", "content": "ab", "authority": "coord:x"}, "may not"),
        ("question", {"ruling": "approve", "authority": "coordinator:x"}, ""),
        ("gate", {"ruling": "approve", "content": "ab", "by_default": True}, "silence"),
        ("gate", {"ruling": "answer", "by_default": True}, "silence"),
        ("gate", {"ruling": "reject", "by_default": True}, ""),
        ("gate", {"ruling": "approve", "content": "ab", "question_id": "Q-2"}, "never asked"),
    ],
)
def test_consent_is_a_persons_and_about_this(kind: str, payload: dict[str, Any], why: str) -> None:
    found = failures(of(answered(kind, **payload), ConsentIsGiven))
    assert bool(found) == bool(why)
    assert why in "".join(found)


def test_a_node_waits_only_for_what_was_asked() -> None:
    story = Story()
    story.add("N1")
    story.start("N1")
    story.do(c.AskQuestion("Which licence?", node_id="N1"))
    assert failures(of(story, ConsentIsGiven)) == []
    move = {"from": "RUNNING", "to": "BLOCKED", "edge": "N05", "reason": "x"}
    story.commit(Draft("STATE_TRANSITION", "node", "N1", {**move, "wake": "answer to Q-9"}))
    assert "Q-9, which was never asked" in failures(of(story, ConsentIsGiven))[0]


def test_a_gate_that_was_passed_without_consent_is_seen() -> None:
    story = Story()
    story.add("N1", gates=(Gate("G-1", "start"),))
    start = {"from": "PENDING", "to": "RUNNING", "edge": "N02", "invocation": "inv-1"}
    story.commit(Draft("STATE_TRANSITION", "node", "N1", start))
    assert "passed gate G-1" in failures(of(story, ConsentIsGiven))[0]


# Escalations


def escalated(**change: Any) -> Story:
    story = Story()
    story.add("N1", retry_budget=1)
    story.start("N1")
    story.fail("N1")
    whole = story.events()[-1].payload
    package = {**whole["package"], **change.pop("package", {})}
    story.commit(Draft("DECISION", "node", "N1", {**whole, "package": package, **change}))
    return story


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"default": ""}, "no default"),
        ({"options": []}, "no options"),
        ({"default": "approve"}, "safe"),
        ({"package": {"default_if_no_answer": "reject"}}, "safe"),
        ({"package": {"signatures": []}}, "no failed attempt"),
        ({"package": {"signatures": [{"event": "J-1", "signature": "x"}]}}, "cites J-1"),
    ],
)
def test_an_escalation_can_be_decided_by_what_it_carries(change: dict[str, Any], why: str) -> None:
    found = failures(of(escalated(**change), EscalationsCarryData))
    assert bool(found) == bool(why)
    assert why in "".join(found)
