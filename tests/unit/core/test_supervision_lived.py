"""Supervision over tasks that were lived: real commands, their events folded, then a look."""

from typing import Any

import pytest
from tests.unit.core.story import Story
from tests.unit.core.supervised import MINUTE, NO_FACTS, NO_MEMORY

from perdure.core import commands as c
from perdure.core import observed_commands as o
from perdure.core.model import Executor
from perdure.core.supervision import derive
from perdure.core.supervision_decide import decide_action, remember
from perdure.core.supervision_records import Action, Derived, Facts, Memory

SESSION = Executor("executor:x", "session")


@pytest.fixture
def story() -> Story:
    story = Story()
    story.add("N1")
    story.add("N2", "N1")
    story.start("N1", executor=SESSION)
    return story


def observe(story: Story, kind: str, name: str = "", type_: str = "node", **payload: Any) -> None:
    facts = payload.pop("facts", {})
    story.do(o.Observe(kind, type_, name, "seen", facts, payload))


def block(story: Story, failure_type: str = "") -> None:
    story.do(o.ConfirmBlock("N1", "no key", ("a key",), "ask for one", failure_type))


def look(
    story: Story, minutes: float = 0.0, facts: Facts = NO_FACTS, memory: Memory = NO_MEMORY
) -> tuple[Derived, Action]:
    now = story.now + minutes * MINUTE
    derived = derive(story.replica.state, facts, now)
    return derived, decide_action(derived, story.replica.state.policies, memory, now)


def state_of(story: Story, minutes: float = 0.0, **more: Any) -> str:
    return look(story, minutes, **more)[1].state


def apply(story: Story, memory: Memory, facts: Facts = NO_FACTS) -> Memory:
    derived, action = look(story, facts=facts, memory=memory)
    return remember(memory, derived, action, story.now)


def test_progress_is_not_completion_and_a_claim_is_not_done(story: Story) -> None:
    observe(story, "STEP_PROGRESS", "N1")
    assert look(story)[0].step_states["N1"] == "RUNNING"
    observe(story, "STEP_COMPLETED", "N1")
    assert look(story)[0].step_states["N1"] == "COMPLETED"
    assert look(story)[0].status == "RUNNING"
    observe(story, "TASK_COMPLETED", type_="task")
    derived, action = look(story)
    assert derived.inconsistencies == ("task:completed_but_steps_not_done:N1,N2",)
    assert action.state == "TRUTH_INCONSISTENT"


def test_only_the_completion_of_the_task_ends_it(story: Story) -> None:
    story.register("N1", "A1")
    story.claim("N1")
    story.conclude("N1")
    story.finish("N2")
    found = Facts(artifacts=dict.fromkeys(story.replica.state.artifacts, "whole"))
    assert state_of(story, facts=found) == "OK"
    assert state_of(story, 31, facts=found) == "NUDGE_MAIN_AGENT"
    story.do(o.RecordReply("C", summary="all of it"))
    derived, action = look(story, 31, found)
    assert (derived.status, derived.user_facing.outcome) == ("COMPLETED", "SUCCESS")
    assert action.state == "STOP_AND_DELETE"
    observe(story, "STEP_PROGRESS", "N2")
    assert look(story)[0].inconsistencies == ("step:progress_after_completion:N2",)
    assert state_of(story, facts=found) == "TRUTH_INCONSISTENT"
    observe(story, "STEP_COMPLETED", "N2")
    assert state_of(story, facts=found) == "STOP_AND_DELETE"


def test_a_retry_first_blocker_escalates_after_two_retries_and_then_supervision_ends(
    story: Story,
) -> None:
    memory, states = Memory(), []
    for _ in range(3):
        block(story, "TRANSIENT_NETWORK")
        states.append(state_of(story, memory=memory))
        memory = apply(story, memory)
        if states[-1] == "OWNER_RECONCILE":
            story.do(o.RecordReply("A", "N1", "tried again"))
            assert state_of(story, memory=memory) == "OK"
            story.start("N1", executor=SESSION)
    assert states == ["OWNER_RECONCILE", "OWNER_RECONCILE", "BLOCKED_ESCALATE"]
    assert look(story)[0].retry_count == 2
    assert state_of(story, memory=memory) == "STOP_AND_DELETE"
    story.do(o.RecordReply("A", "N1", "the key is there"))
    assert state_of(story, memory=memory) == "OK", "who supervises again finds it going on"


def test_with_output_the_blocker_is_reported_once_the_owner_has_confirmed_it(story: Story) -> None:
    story.register("N1", "A1")
    found = Facts(artifacts={"A1": "whole"})
    block(story, "AUTH_REQUIRED")
    derived, action = look(story, facts=found)
    assert (derived.user_facing.outcome, action.state) == ("PARTIAL_SUCCESS", "OWNER_RECONCILE")
    memory = apply(story, Memory(), found)
    story.do(o.RecordReply("D"))
    assert state_of(story, facts=found, memory=memory) == "OWNER_RECONCILE"
    confirmed = o.RecordReply("B", "N1", reason="still no key", safe_next_step="ask for one")
    story.do(confirmed)
    assert state_of(story, facts=found, memory=memory) == "BLOCKED_ESCALATE"


def test_nudges_are_answered_by_progress_and_not_by_silence_or_by_a_word(story: Story) -> None:
    story.now += 31 * MINUTE
    memory = apply(story, Memory())
    assert (memory.nudges, memory.last_action) == (1, "NUDGE_MAIN_AGENT")
    story.do(o.RecordReply("D"))
    assert state_of(story, memory=memory) == "STALE_PROGRESS"
    story.now += 31 * MINUTE
    memory = apply(story, memory)
    story.now += 31 * MINUTE
    assert state_of(story, memory=memory) == "OWNER_RECONCILE"
    story.do(o.RecordReply("A", "N1", "was at it all along"))
    assert state_of(story, memory=memory) == "OK"
    assert state_of(story, 31, memory=memory) == "NUDGE_MAIN_AGENT"


def test_a_wait_outside_counts_with_evidence_and_not_without(story: Story) -> None:
    claim = {"provider": "acme", "job_id": "17", "state": "RUNNING", "type_": "external_job"}
    observe(story, "EXTERNAL_OBSERVED", **claim)
    assert state_of(story, 60) == "OWNER_RECONCILE"
    observe(story, "EXTERNAL_OBSERVED", **claim, facts={"poll_token": "t"})
    assert state_of(story, 600) == "OK"
    observe(story, "EXTERNAL_OBSERVED", **{**claim, "state": "FAILED"})
    derived, action = look(story, 31)
    assert (derived.external_failures, action.state) == (("acme:17",), "NUDGE_MAIN_AGENT")


def test_a_question_to_a_person_is_waited_for_and_work_beside_it_is_not(story: Story) -> None:
    story.do(c.AskQuestion("which key?", node_id="N1"))
    action = look(story, 600)[1]
    assert action.state == "OK"
    assert "which key?" in action.next_action
    story.add("N3")
    assert state_of(story, 600) == "NUDGE_MAIN_AGENT"


def test_three_failures_in_a_row_are_reported_once_while_a_person_is_asked(story: Story) -> None:
    for _ in range(3):
        if story.state_of("N1") != "RUNNING":
            story.start("N1", executor=SESSION)
        story.fail("N1", "transient-agent")
    derived, action = look(story)
    assert (derived.errors, derived.waits_for_person) == (3, True)
    assert (action.state, action.due) == ("EXECUTOR_UNHEALTHY", True)
    memory = apply(story, Memory())
    later = look(story, 600, memory=memory)[1]
    assert (later.state, later.due) == ("EXECUTOR_UNHEALTHY", False)
    story.do(c.CancelNodes(("N1", "N2"), "not wanted"))
    assert state_of(story, 600, memory=memory) == "STOP_AND_DELETE"
