"""What people have in hand is listed with the command that ends it."""

from typing import Any

import pytest
from tests.unit.core.story import ME, Story

from perdure.core.actions import HumanSlot
from perdure.core.criteria import parse_criterion
from perdure.core.model import Executor
from perdure.core.node_views import next_step
from perdure.core.views import status
from perdure.core.with_people import with_people

ADA = Executor("executor:ada lovelace", "session")


def test_work_that_was_handed_over_is_submitted_by_whoever_holds_it() -> None:
    story = Story()
    story.add("sign", human=HumanSlot("ada lovelace"))
    assert with_people(story.replica.state) == []
    story.start("sign", executor=ADA)
    (item,) = with_people(story.replica.state)
    assert item["then"] == "perdure --actor 'executor:ada lovelace' submit sign"
    assert status(story.replica, limit=9)["with_people"] == [item]
    assert next_step(story.replica)["with_people"] == [item]


def test_work_of_a_process_is_nobodys_to_submit() -> None:
    story = Story()
    story.add("N1", run="make")
    story.start("N1", executor=ME)
    assert with_people(story.replica.state) == []


def verifying(**audit: Any) -> Story:
    story = Story()
    story.add("N1", acceptance_criteria=(parse_criterion({"audit": {"rubric": "Good?", **audit}}),))
    story.start("N1")
    story.register("N1", "A-1")
    assert with_people(story.replica.state) == []
    story.claim("N1")
    return story


def test_a_verdict_that_nobody_is_sent_for_is_given_by_hand() -> None:
    (item,) = with_people(verifying().replica.state)
    assert (item["node"], item["then"]) == ("N1", "perdure judge N1")


@pytest.mark.parametrize("auditor", [{"run": "judge"}, {"agent": "claude"}])
def test_a_verdict_that_a_run_sends_for_is_not(auditor: dict[str, Any]) -> None:
    assert with_people(verifying(**auditor).replica.state) == []
