"""Decisions about the task, words, and events without a command of their own."""

from typing import Any

import pytest
from tests.unit.core.story import Story

from perdure.core import commands as c
from perdure.core.codec import to_json
from perdure.core.events import KINDS, OPS, Draft
from perdure.core.model import ID_PATTERN, TASK_STATES, text_bytes_max
from perdure.errors import HaltError, NotFoundError, RefusedError, TransitionError, UsageError


def refusal(story: Story, command: c.Command) -> HaltError:
    """How a command is refused; nothing has changed by it."""
    before = to_json(story.replica.state)
    with pytest.raises(HaltError) as caught:
        story.do(command)
    assert to_json(story.replica.state) == before
    return caught.value


# Creating


def test_creating_a_task_is_two_events_and_the_first_says_what_it_is() -> None:
    story = Story(begun=False)
    events = story.do(c.StartTask("T1", "the goal", ("all done",), 2))
    assert [event.kind for event in events] == ["INSTANCE_STARTED", "STATE_TRANSITION"]
    first = events[0].payload
    assert (first["task"], first["goal"], first["tier"]) == ("T1", "the goal", 2)
    assert first["acceptance"] == ["all done"]
    assert story.replica.state.fsm_task == "DECOMPOSING"


def test_a_task_is_created_once() -> None:
    assert refusal(Story(), c.StartTask("T2")).code == "task_exists"


@pytest.mark.parametrize("task_id", ["", "a b", "../x", "-x", "x" * 65, "é"])
def test_a_bad_task_id_is_refused(task_id: str) -> None:
    error = refusal(Story(begun=False), c.StartTask(task_id))
    assert isinstance(error, UsageError)
    assert error.code == "bad_id"
    assert not ID_PATTERN.match(task_id)


@pytest.mark.parametrize("tier", [-1, 3])
def test_a_tier_that_does_not_exist_is_refused(tier: int) -> None:
    assert isinstance(refusal(Story(begun=False), c.StartTask("T1", tier=tier)), UsageError)


# FSM-T


def task_in(state: str) -> Story:
    """A task in this state, with one cancelled node so that every guard can hold."""
    story = Story(begun=False)
    if state == "INIT":
        story.replica.state.created = "now"
        story.replica.state.task_id = "T1"
        return story
    story = Story()
    story.bring_to("N1", "CANCELLED")
    routes = {
        "DECOMPOSING": [],
        "EXECUTING": ["EXECUTING"],
        "RECOVERING": ["EXECUTING", "RECOVERING"],
        "SUSPENDED": ["EXECUTING", "SUSPENDED"],
        "FINAL_AUDIT": ["EXECUTING", "FINAL_AUDIT"],
        "ARCHIVED": ["EXECUTING", "FINAL_AUDIT"],
    }
    for target in routes[state]:
        story.do(c.MoveTask(target))
    if state == "ARCHIVED":  # no command leads there yet
        move = {"from": "FINAL_AUDIT", "to": "ARCHIVED", "edge": "T10"}
        story.commit(Draft("STATE_TRANSITION", "task", "T1", move))
    assert story.replica.state.fsm_task == state
    return story


REACHED = {
    ("INIT", "DECOMPOSING"), ("INIT", "EXECUTING"),
    ("DECOMPOSING", "EXECUTING"), ("DECOMPOSING", "SUSPENDED"), ("DECOMPOSING", "FINAL_AUDIT"),
    ("EXECUTING", "DECOMPOSING"), ("EXECUTING", "RECOVERING"), ("EXECUTING", "SUSPENDED"),
    ("EXECUTING", "FINAL_AUDIT"), ("RECOVERING", "EXECUTING"), ("RECOVERING", "DECOMPOSING"),
    ("RECOVERING", "FINAL_AUDIT"), ("SUSPENDED", "RECOVERING"), ("SUSPENDED", "EXECUTING"),
    ("FINAL_AUDIT", "DECOMPOSING"), ("FINAL_AUDIT", "EXECUTING"),
}  # fmt: skip


@pytest.mark.parametrize("source", TASK_STATES)
def test_the_task_takes_every_row_between_and_refuses_what_has_no_way(source: str) -> None:
    for target in TASK_STATES:
        story = task_in(source)
        if source == target:
            assert story.do(c.MoveTask(target)) == []
        elif (source, target) in REACHED and source != "INIT":
            events = story.do(c.MoveTask(target))
            moves = [event.payload for event in events if event.kind == "STATE_TRANSITION"]
            assert moves[0]["from"] == source
            assert moves[-1]["to"] == target == story.replica.state.fsm_task
            assert [m["to"] for m in moves[:-1]] == [m["from"] for m in moves[1:]]
        elif (source, target) not in REACHED:
            assert isinstance(refusal(story, c.MoveTask(target)), TransitionError), target


def test_a_suspended_task_comes_back_through_recovering() -> None:
    events = task_in("SUSPENDED").do(c.MoveTask("EXECUTING"))
    assert [event.payload["to"] for event in events] == ["RECOVERING", "EXECUTING"]


def test_a_guard_between_refuses_the_whole_way_and_names_its_row() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.add("N2")
    error = refusal(story, c.MoveTask("SUSPENDED"))
    assert (error.rule, "N1" in error.message) == ("T04", True)
    assert "perdure status" in error.fix


def test_suspending_leaves_a_handoff_note_in_the_same_commit() -> None:
    story = Story()
    story.add("N1")
    story.do(c.WriteNote("look at N1", "hint"))
    note, *moves = story.do(c.MoveTask("SUSPENDED", "the day is over"))
    assert (note.kind, note.payload["op"]) == ("NOTE", "handoff")
    assert (note.payload["text"], note.payload["hint"]) == ("the day is over", "look at N1")
    assert note.payload["counts"] == {"PENDING": 1}
    assert note.tx == moves[-1].tx is not None


def test_an_archived_task_takes_words_and_no_work() -> None:
    story = task_in("ARCHIVED")
    for command in (
        c.AddNode("N9", "x"),
        c.MoveNode("N1", "READY"),
        c.CancelNodes(("N1",), "x"),
        c.Beat(("N1",)),
    ):
        error = refusal(story, command)
        assert (error.code, error.rule) == ("task_archived", "FST-3")
    assert story.do(c.WriteNote("it was good"))


# Words


@pytest.mark.parametrize(
    "command", [c.WriteNote(" \n"), c.RecordDecision("D", ""), c.LogSteering("S", "")]
)
def test_saying_nothing_is_refused(command: c.Command) -> None:
    assert refusal(Story(), command).code == "empty_text"


def test_a_text_may_be_as_long_as_the_limit_and_not_longer() -> None:
    story = Story()
    assert story.do(c.WriteNote("x" * text_bytes_max))
    error = refusal(story, c.WriteNote("é" * (text_bytes_max // 2) + "x"))
    assert error.code == "too_large"
    assert str(text_bytes_max) in error.message


def test_decisions_and_steering_without_an_id_get_a_free_one() -> None:
    story = Story()
    (decision,) = story.do(c.RecordDecision("", "because"))
    assert decision.payload["id"] == "DR-1"
    story.do(c.LogSteering("ST-002", "mine"))
    (event,) = story.do(c.LogSteering("", "next"))
    assert event.entity.id not in ("", "ST-002")
    assert len(story.replica.state.steering) == 2


def test_the_same_steering_id_again_is_answered_with_the_first_event() -> None:
    story = Story()
    (event,) = story.do(c.LogSteering("ST-1", "stop"))
    assert story.decide(c.LogSteering("ST-1", "stop")) == c.Decision(answer=event.ref)


def test_a_steering_id_is_not_used_for_another_text() -> None:
    story = Story()
    (event,) = story.do(c.LogSteering("ST-1", "stop"))
    error = refusal(story, c.LogSteering("ST-1", "go on"))
    assert (error.code, error.rule) == ("duplicate_id", "S1")
    assert event.ref in error.message


def test_steering_is_logged_verbatim() -> None:
    text = "  Stop.\n\u2028 '\"\\ \ud83d \U0001f600 \x00 end  "
    (event,) = Story().do(c.LogSteering("ST-1", text))
    assert event.payload["verbatim"] == text


# Heartbeats


def test_a_beat_for_a_node_that_nobody_works_on_is_refused() -> None:
    story = Story()
    story.add("N1")
    error = refusal(story, c.Beat(("N1",)))
    assert (error.rule, "perdure start N1" in error.fix) == ("FSN-2", True)
    assert isinstance(refusal(story, c.Beat(("N2",))), NotFoundError)


# Events of kinds without a command


@pytest.mark.parametrize(
    "kind",
    ["STATE_TRANSITION", "ARTIFACT_REGISTERED", "AMENDMENT", "INSTANCE_STARTED", "DECISION",
     "STEERING_LOGGED", "HEARTBEAT", "NOTE", "RECEIPT", "INSTANCE_ENDED", "GOAL_AMENDED"],
)  # fmt: skip
def test_what_has_guards_cannot_be_written_past_them(kind: str) -> None:
    error = refusal(Story(), c.AppendRaw(kind, "node", "N1", {"to": "DONE"}))
    assert isinstance(error, RefusedError)
    assert error.rule == "FSN-1"


def test_unknown_kinds_and_entity_types_are_not_written() -> None:
    for kind, entity in (("WEATHER", "task"), ("NOTE", "planet")):
        assert refusal(Story(), c.AppendRaw(kind, entity, "x", {})).code == "unknown_kind"


def test_observations_are_written_as_given() -> None:
    payload: dict[str, Any] = {"percent": 40, "evidence": "log line 7"}
    (event,) = Story().do(c.AppendRaw("STEP_PROGRESS", "node", "N1", payload, ("J-1",)))
    assert (event.payload, event.evidence) == (payload, ["J-1"])


# What is written belongs to the closed lists


def test_every_event_a_task_writes_is_of_a_known_kind_and_op() -> None:
    story = Story()
    for number, state in enumerate(("DONE", "RETRYABLE", "QUARANTINED", "CANCELLED", "BLOCKED")):
        story.bring_to(f"N{number}", state)
    story.do(c.RetryNode("N1", "again"))
    story.do(c.RetryNode("N4", "it is there"))
    story.add("N9", successor_of="N2")
    story.do(c.AmendNode("N9", {"priority": 1}, "so"))
    story.bring_to("S1", "RUNNING")
    story.fail("S1", "permanent-spec")
    story.bring_to("S2", "RUNNING")
    story.fail("S2", "permanent-resource")
    story.register(None, "A-x", "x.txt")
    story.do(c.AttachArtifact("N9", "A-x"))
    story.do(c.MoveTask("SUSPENDED"))
    for event in story.events():
        assert event.kind in KINDS
        if event.kind in OPS:
            assert event.payload["op"] in OPS[event.kind], event
