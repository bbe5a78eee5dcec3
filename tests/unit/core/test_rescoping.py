"""Proposals to say anew what is wanted (GE-4): what is counted, and that nothing follows."""

import msgspec
import pytest
from tests.unit.core.story import Story

from perdure.core import commands as c
from perdure.core.codec import to_json
from perdure.core.people import Gate
from perdure.core.rescoping import (
    checks_failed_min,
    proposals_max,
    questions_min,
    replans_min,
    rescoping_proposals,
    rounds_min,
)
from perdure.core.views import Data

LOOK = Gate("G-look", "done", "Is it good?", revise_max=9)


def proposal(story: Story) -> Data:
    (found,) = rescoping_proposals(story.replica)
    return found


def deliver(story: Story, *, passed: bool) -> None:
    number = story.node("N1").attempts + 1
    story.start("N1")
    story.register("N1", f"A-{number}", "artifacts/N1/o", value=f"{number:064x}")
    story.claim("N1")
    story.conclude("N1", passed=passed)


def replan(story: Story, number: int) -> None:
    story.start("N1")
    story.fail("N1")
    spec = msgspec.structs.replace(story.node("N1").spec, goal=f"another {number}")
    story.do(c.AmendNode("N1", {"spec": msgspec.to_builtins(spec)}, "so"))


def test_a_task_that_goes_well_proposes_nothing() -> None:
    story = Story()
    story.add("N1")
    story.add("N2", "N1")
    story.finish("N1")
    assert rescoping_proposals(story.replica) == []


def test_acceptance_that_keeps_failing_is_proposed_at_the_third_time() -> None:
    story = Story()
    story.add("N1", retry_budget=9)
    for _ in range(checks_failed_min - 1):
        deliver(story, passed=False)
    assert rescoping_proposals(story.replica) == []
    deliver(story, passed=False)
    found = proposal(story)
    assert (found["node"], found["state"]) == ("N1", "RETRYABLE")
    assert found["signs"] == ["its acceptance has failed 3 times"]


def test_repeated_replans_are_counted_along_the_line_of_successors() -> None:
    story = Story()
    story.add("N1", retry_budget=9)
    replan(story, 1)
    assert rescoping_proposals(story.replica) == []
    story.do(c.SplitNode("N1", (c.AddNode("N2", "half"), c.AddNode("N3", "half")), "too much"))
    assert {item["node"] for item in rescoping_proposals(story.replica)} == {"N2", "N3"}
    for found in rescoping_proposals(story.replica):
        assert found["signs"] == [f"it has been replanned {replans_min} times"]


def test_gates_that_keep_sending_it_back_are_counted() -> None:
    story = Story()
    story.add("N1", gates=(LOOK,))
    for number in range(rounds_min):
        assert rescoping_proposals(story.replica) == []
        deliver(story, passed=True)
        story.rule(next(iter(story.replica.state.questions)), "revise", f"shorter {number}")
    assert proposal(story)["signs"] == ["its gates have sent it back 2 times"]


def test_work_that_keeps_asking_what_is_meant_is_counted() -> None:
    story = Story()
    story.add("N1")
    for number in range(questions_min):
        assert rescoping_proposals(story.replica) == []
        story.do(c.AskQuestion(f"What is {number}?", node_id="N1"))
    assert proposal(story)["signs"] == ["work on it had to ask 2 times what is meant"]


def test_every_sign_is_told() -> None:
    story = Story()
    story.add("N1", retry_budget=9)
    for _ in range(checks_failed_min):
        deliver(story, passed=False)
    for number in range(replans_min):
        replan(story, number)
    assert len(proposal(story)["signs"]) == 2


@pytest.mark.parametrize("state", ["DONE", "CANCELLED"])
def test_what_is_settled_is_no_longer_proposed(state: str) -> None:
    story = Story()
    story.add("N1", retry_budget=9)
    for _ in range(checks_failed_min):
        deliver(story, passed=False)
    assert proposal(story)
    if state == "DONE":
        deliver(story, passed=True)
    else:
        story.do(c.CancelNodes(("N1",), "not wanted"))
    assert story.state_of("N1") == state
    assert rescoping_proposals(story.replica) == []


def test_what_was_given_up_is_proposed_until_it_has_a_successor() -> None:
    story = Story()
    story.add("N1")
    for _ in range(3):
        deliver(story, passed=False)
    assert story.state_of("N1") == "QUARANTINED"
    assert "perdure add ID TITLE --successor-of N1" in proposal(story)["commands"]
    story.add("N2", successor_of="N1")
    assert rescoping_proposals(story.replica) == []


@pytest.mark.parametrize(
    ("state", "ways"),
    [
        ("RETRYABLE", ["amend", "split", "goal"]),
        ("RUNNING", ["goal"]),
        ("BLOCKED", ["amend", "goal"]),
        ("QUARANTINED", ["add", "split", "goal"]),
    ],
)
def test_only_what_the_state_allows_is_suggested(state: str, ways: list[str]) -> None:
    story = Story()
    story.add("N1", retry_budget=9)
    for _ in range(checks_failed_min):
        deliver(story, passed=False)
    if state in ("RUNNING", "BLOCKED"):
        story.start("N1")
    if state == "BLOCKED":
        story.do(c.MoveNode("N1", "BLOCKED", payload={"reason": "wall", "wake": "gone"}))
    if state == "QUARANTINED":
        story.do(c.QuarantineNode("N1", "no"))
    assert story.state_of("N1") == state
    found = proposal(story)
    assert [command.split()[1] for command in found["commands"]] == ways
    for command in found["commands"]:
        assert " N1" in command or " goal " in command


def test_a_proposal_changes_nothing_and_follows_from_the_state_alone() -> None:
    story = Story()
    story.add("N1")
    for _ in range(3):
        deliver(story, passed=False)
    before = to_json(story.replica.state)
    assert rescoping_proposals(story.replica) == rescoping_proposals(story.replica)
    assert to_json(story.replica.state) == before


def test_there_are_only_so_many() -> None:
    story = Story()
    for number in range(proposals_max + 5):
        story.add(f"N{number}")
        for word in range(questions_min):
            story.do(c.AskQuestion(f"What is {word}?", node_id=f"N{number}"))
    assert len(rescoping_proposals(story.replica)) == proposals_max
