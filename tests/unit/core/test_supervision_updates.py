"""What the requester is told once, and what the supervisor remembers of what it did."""

from tests.unit.core.supervised import (
    MINUTE,
    NO_FACTS,
    T0,
    WHOLE,
    act,
    block,
    carry_out,
    download,
    job,
    look,
    output,
    seen,
    step,
    task,
)

from perdure.core.model import State
from perdure.core.supervision_decide import remember
from perdure.core.supervision_records import Digest, Facts, Memory, Update, told_kept_max
from perdure.core.supervision_updates import digest_of, updates_due, updates_each_max

NOTHING = Digest()


def news(state: State, previous: Digest = NOTHING, facts: Facts = NO_FACTS) -> tuple[Update, ...]:
    return updates_due(previous, look(state, facts=facts), act(state, facts=facts))


def told(state: State) -> Digest:
    return digest_of(NOTHING, look(state))


def test_a_step_is_told_when_it_is_reported_and_again_when_it_is_verified() -> None:
    state = task(step("N1", "VERIFYING"), steps={"N1": seen("COMPLETED", completed_ref="J-20")})
    state.seq = 21
    (first,) = news(state)
    assert (first.kind, first.entity, first.ref) == ("STEP_COMPLETED", "N1", "J-20")
    assert first.update_id == "T1:STEP_COMPLETED:N1:J-20"
    assert "not verified yet" in first.text
    assert not first.details["verified"]
    before = told(state)
    assert news(state, before) == ()
    state.nodes["N1"], state.seq = step("N1", "DONE", ref=22), 22
    (second,) = news(state, before)
    assert second.update_id == "T1:STEP_COMPLETED:N1:J-22"
    assert second.text == "Step N1 (title of N1) is done and verified."
    assert news(state, told(state)) == ()


def test_steps_are_told_in_the_order_in_which_they_were_completed() -> None:
    state = task(step("N1", "DONE", ref=30), step("N2", "DONE", ref=10), step("N3", "RUNNING"))
    assert [update.entity for update in news(state)] == ["N2", "N1"]


def test_more_news_than_anybody_reads_is_counted() -> None:
    nodes = [step(f"N{n}", "DONE", ref=n + 1) for n in range(updates_each_max + 1)]
    (update,) = news(task(*nodes))
    assert update.text == "21 steps have been completed, the newest of them N20."
    assert update.details["count"] == 21
    assert news(task(*nodes)) == (update,)
    assert len(news(task(*nodes[:-1]))) == updates_each_max


def test_each_change_of_a_job_outside_is_told_once() -> None:
    def with_job(state: str, at: float) -> State:
        return task(step("N1", "RUNNING"), external={"acme:1": job(state, at=at)})

    before = told(with_job("RUNNING", T0))
    assert news(with_job("RUNNING", T0)) == ()
    for state, kind in (
        ("COMPLETED", "EXTERNAL_JOB_COMPLETED"),
        ("FAILED", "EXTERNAL_JOB_FAILED"),
        ("SWITCHED_WORKFLOW", "WORKFLOW_SWITCH"),
    ):
        (update,) = news(with_job(state, T0 + 5), before)
        assert (update.kind, update.entity) == (kind, "acme:1")
        assert update.update_id == f"T1:{kind}:acme:1:{T0 + 5:.3f}"
        assert news(with_job(state, T0 + 5), told(with_job(state, T0 + 5))) == ()
        assert len(news(with_job(state, T0 + 9), told(with_job(state, T0 + 5)))) == 1


def test_an_escalation_is_told_when_the_action_is_one() -> None:
    state = task(step("N1", "BLOCKED"), blocks={"N1": block("N1")})
    (update,) = news(state)
    assert update.kind == "BLOCKED_ESCALATE"
    assert "the key is missing" in update.text
    assert "ask for a key" in update.text
    assert update.details["needs"] == ["a key"]
    assert update.details["outcome"] == "BLOCKED"
    assert updates_due(NOTHING, look(state)) == ()
    assert news(state) == (update,), "the same escalation has the same id"
    retried = task(step("N1", "BLOCKED"), blocks={"N1": block("N1", "TIMEOUT")})
    assert news(retried) == ()


def test_a_completion_is_handed_off_once_and_not_while_something_contradicts_it() -> None:
    state = output(task(step("N1", "DONE", ref=5), task_completed="J-70"), "A1")
    state.observed.downloads["d1"] = download("CORRUPT")
    before = digest_of(NOTHING, look(state))
    assert [update.kind for update in news(state, facts=WHOLE)] == ["STEP_COMPLETED"]
    state.observed.downloads.clear()
    (update,) = news(state, before, WHOLE)
    assert (update.kind, update.ref) == ("COMPLETED_HANDOFF", "J-70")
    assert update.update_id == "T1:COMPLETED_HANDOFF:J-70"
    assert update.text == "Finished: 1 of 1 step done; 1 file is there to use."
    assert update.details["artifacts"][0]["path"] == "artifacts/N1/A1"
    after = digest_of(before, look(state))
    assert news(state, after, WHOLE) == ()
    state.observed.task_completed = "J-99"
    assert [u.update_id for u in news(state, after, WHOLE)] == ["T1:COMPLETED_HANDOFF:J-99"]


def test_a_failure_is_told_to_somebody_who_can_do_something() -> None:
    state = task(step("N1", "QUARANTINED", ref=7))
    (update,) = news(state)
    assert (update.kind, update.update_id) == ("BLOCKED_ESCALATE", "T1:BLOCKED_ESCALATE:J-7")
    assert update.text.startswith("Failed: N1 was given up")
    assert news(state, told(state)) == ()


# Memory


def test_what_was_not_due_leaves_no_trace_but_the_last_action() -> None:
    state = task(step("N1", "RUNNING"))
    action, memory = carry_out(state, 1)
    assert memory == Memory(last_action="OK", last_reason=action.reason, last_action_at=T0 + MINUTE)


def test_nudges_reconciliations_and_escalations_are_counted_where_they_were_due() -> None:
    state = task(step("N1", "RUNNING"))
    _, memory = carry_out(state, 30)
    assert (memory.nudges, memory.nudged_at) == (1, T0 + 30 * MINUTE)
    _, memory = carry_out(state, 31, memory=memory)
    assert (memory.last_action, memory.nudges) == ("STALE_PROGRESS", 1)
    state.observed.external["acme:1"] = job("PENDING", evidence=False)
    _, memory = carry_out(state, 32, memory=memory)
    _, memory = carry_out(state, 33, memory=memory)
    assert (memory.reconciles, memory.reconciled_at) == (1, T0 + 32 * MINUTE)


def test_a_progress_signal_is_remembered_as_the_end_of_the_nudges() -> None:
    state = task(step("N1", "RUNNING"), progress_at=T0 + 61 * MINUTE)
    before = Memory(nudges=2, nudged_at=T0 + 60 * MINUTE)
    assert carry_out(state, 62, memory=before)[1].nudges == 0


def test_escalations_that_no_longer_stand_are_forgotten() -> None:
    state = task(step("N1", "BLOCKED"), blocks={"N1": block("N1", ref=50)})
    memory = carry_out(state, 1)[1]
    state.observed.blocks["N1"] = block("N1", ref=60)
    memory = carry_out(state, 2, memory=memory)[1]
    assert memory.escalated == {"block:N1:J-60": T0 + 2 * MINUTE}
    assert memory.escalated_at == T0 + 2 * MINUTE


def test_a_memory_of_what_was_said_has_an_end() -> None:
    state = task(step("N1", "RUNNING"), errors=3)
    memory = Memory(told={f"x{n}": T0 for n in range(told_kept_max)})
    derived, action = look(state), act(state)
    memory = remember(memory, derived, action, T0 + 1)
    assert len(memory.told) == told_kept_max
    assert [*memory.told][-1] == action.about
    assert "x0" not in memory.told


def test_a_memory_from_the_future_silences_nobody() -> None:
    """The clock was set back, or somebody asked with ``--at`` what will be."""
    state = task(step("N1", "RUNNING"))
    ahead = Memory(nudges=1, nudged_at=T0 + 600 * MINUTE)
    assert act(state, 31, memory=ahead).state == "NUDGE_MAIN_AGENT"
    told_ahead = Memory(told={act(task(step("N1", "RUNNING"), errors=3)).about: T0 + 600 * MINUTE})
    assert act(task(step("N1", "RUNNING"), errors=3), 31, memory=told_ahead).due
