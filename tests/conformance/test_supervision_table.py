"""The precedence of supervision, row by row, and every contradiction that it knows.

Each row of the table has the scenario that reaches it, and each line what decides against the next
one. The scenarios are pure: what the journal would have folded into, the facts, and a moment.
"""

from collections.abc import Callable

import pytest
from tests.unit.core.supervised import (
    MINUTE,
    T0,
    WHOLE,
    act,
    ask,
    block,
    carry_out,
    download,
    job,
    look,
    output,
    reply,
    seen,
    step,
    task,
    under_contract,
)

from perdure.core.model import Policies, State
from perdure.core.supervision_decide import PRECEDENCE, SEVERITY
from perdure.core.supervision_records import ACTIONS, Action, Facts, Memory, SuspectedDeath
from perdure.core.supervision_steps import INCONSISTENCIES, describe, kind_of

GONE = Facts(executors={"N1": SuspectedDeath("process 7 on h is gone", "same boot, no such pid")})
EXPIRED = Facts(
    executors={
        "N1": SuspectedDeath(
            "no word from executor:x since then", "contract_ttl_s = 1800", "contract_expired"
        )
    }
)


def running(**observed: object) -> State:
    """N1 is at work, N2 waits for it."""
    return task(step("N1", "RUNNING"), step("N2", "PENDING", "N1"), **observed)


def blocked(failure_type: str = "", **observed: object) -> State:
    held = {"N1": block("N1", failure_type)}
    return task(step("N1", "BLOCKED", ref=51), step("N2", "PENDING", "N1"), blocks=held, **observed)


def completed(*nodes: object, **observed: object) -> State:
    return task(*nodes, task_completed="J-70", **observed)  # type: ignore[arg-type]


# One scenario for each row


def ended() -> Action:
    return act(completed(step("N1", "DONE")))


def blocked_and_escalated() -> Action:
    return act(blocked(), memory=Memory(escalated={"block:N1:J-50": T0}))


def executor_fails() -> Action:
    return act(running(errors=3))


def never_converges() -> Action:
    state = output(running(errors=1, success_at=T0, progress_at=T0 + 29 * MINUTE), "A1")
    return act(state, 30, WHOLE)


def contradicted() -> Action:
    return act(completed(step("N1", "RUNNING")))


def suspicious_claim() -> Action:
    return act(running(external={"acme:j:1": job("PENDING", evidence=False)}))


def may_be_dead() -> Action:
    return act(running(), facts=GONE)


def retry_first() -> Action:
    return act(blocked("TIMEOUT"))


def output_before_blocker() -> Action:
    return act(output(blocked("PERMISSION_DENIED"), "A1"), facts=WHOLE)


def blocked_for_good() -> Action:
    return act(blocked("PERMISSION_DENIED"))


def nudged_in_vain() -> Action:
    return act(running(), 95, memory=Memory(nudges=2, nudged_at=T0 + 60 * MINUTE))


def silent() -> Action:
    return act(running(), 30)


def stale() -> Action:
    return act(running(), 20)


def heartbeat_late() -> Action:
    return act(running(), 5)


def ok() -> Action:
    return act(running(), 1)


SCENARIOS: dict[str, tuple[Callable[[], Action], str]] = {
    "ended": (ended, "delete_monitor"),
    "blocked_and_escalated": (blocked_and_escalated, "delete_monitor"),
    "executor_fails": (executor_fails, "report_executor"),
    "never_converges": (never_converges, "request_finalization"),
    "contradicted": (contradicted, "request_truth_reconcile"),
    "suspicious_claim": (suspicious_claim, "query_owner_for_truth"),
    "may_be_dead": (may_be_dead, "query_owner_for_truth"),
    "retry_first": (retry_first, "query_owner_for_truth"),
    "output_before_blocker": (output_before_blocker, "query_owner_for_truth"),
    "blocked": (blocked_for_good, "send_blocked_escalation"),
    "nudged_in_vain": (nudged_in_vain, "query_owner_for_truth"),
    "silent": (silent, "send_execution_nudge"),
    "stale": (stale, "noop"),
    "heartbeat_late": (heartbeat_late, "noop"),
    "ok": (ok, "noop"),
}


@pytest.mark.parametrize("row", PRECEDENCE, ids=lambda row: f"{row.line}-{row.name}")
def test_each_row_answers_where_it_is_the_first_that_applies(row: object) -> None:
    line, name, state, _, _ = row  # type: ignore[misc]
    make, verb = SCENARIOS[name]
    action = make()
    assert (action.line, action.row, action.state, action.action) == (line, name, state, verb)
    assert action.due == (verb != "noop")
    assert not action.reason[0].islower()
    assert action.reason.endswith(".")
    assert action.next_action
    assert action.about


def test_the_table_has_these_rows_in_this_order() -> None:
    assert [(row.line, row.state) for row in PRECEDENCE] == [
        (1, "STOP_AND_DELETE"),
        (1, "STOP_AND_DELETE"),
        (2, "EXECUTOR_UNHEALTHY"),
        (2, "FINALIZATION_STALLED"),
        (2, "TRUTH_INCONSISTENT"),
        (2, "OWNER_RECONCILE"),
        (2, "OWNER_RECONCILE"),
        (3, "OWNER_RECONCILE"),
        (3, "OWNER_RECONCILE"),
        (3, "BLOCKED_ESCALATE"),
        (4, "OWNER_RECONCILE"),
        (4, "NUDGE_MAIN_AGENT"),
        (4, "STALE_PROGRESS"),
        (4, "HEARTBEAT_DUE"),
        (5, "OK"),
    ]
    assert {row.state for row in PRECEDENCE} == set(ACTIONS) == set(SEVERITY)
    assert set(SCENARIOS) == {row.name for row in PRECEDENCE}


# Line 1


def test_line_1_a_task_that_failed_or_was_abandoned_is_over() -> None:
    failed, cancelled = task(step("N1", "QUARANTINED")), task(step("N1", "CANCELLED"))
    assert (look(failed).status, act(failed).state) == ("FAILED", "STOP_AND_DELETE")
    assert (look(cancelled).status, act(cancelled).state) == ("ABANDONED", "STOP_AND_DELETE")


def test_line_1_a_task_that_was_ended_with_steps_open_is_over() -> None:
    for outcome, status in (("failed", "FAILED"), ("cancelled", "ABANDONED")):
        state = running()
        state.terminal, state.outcome = True, outcome
        action = act(state)
        assert (action.state, look(state).status) == ("STOP_AND_DELETE", status)
        assert action.reason == f"The task was ended as {status.lower()}."


def test_line_1_steps_that_are_all_done_are_no_completion_of_the_task() -> None:
    state = task(step("N1", "DONE"), step("N2", "DONE", "N1"))
    assert look(state).status == "RUNNING"
    assert act(state, 1).state == "OK"
    action = act(state, 31)
    assert action.state == "NUDGE_MAIN_AGENT"
    assert "completion has not been observed" in action.reason


def test_line_1_a_run_that_closed_its_task_has_completed_it() -> None:
    state = task(step("N1", "DONE", ref=33))
    state.fsm_task = "FINAL_AUDIT"
    assert (look(state).status, look(state).completed_ref) == ("COMPLETED", "J-33")
    assert act(state).state == "STOP_AND_DELETE"


def test_line_1_close_out_gaps_stop_nothing_and_are_named() -> None:
    facts = Facts(close_out=("close_out:handoff_missing", "close_out:memory_proposal_missing"))
    action = act(completed(step("N1", "DONE")), facts=facts, undelivered=2)
    assert action.state == "STOP_AND_DELETE"
    assert action.gaps == (
        "close_out:handoff_missing",
        "close_out:memory_proposal_missing",
        "close_out:not_archived",
        "close_out:updates_undelivered:2",
    )


def test_line_1_a_claim_that_something_contradicts_goes_to_line_2() -> None:
    for state in (
        completed(step("N1", "VERIFYING")),
        completed(step("N1", "DONE"), external={"acme:j:1": job("RUNNING")}),
        completed(step("N1", "DONE"), downloads={"d1": download("CORRUPT")}),
        task(step("N1", "QUARANTINED"), downloads={"d1": download("CORRUPT")}),
    ):
        assert act(state).line == 2


def test_line_1_a_blocker_that_was_escalated_ends_supervision_only_where_nothing_goes_on() -> None:
    memory = Memory(escalated={"block:N1:J-50": T0})
    alone = blocked()
    assert act(alone, memory=memory).state == "STOP_AND_DELETE"
    beside = blocked()
    beside.nodes["N3"] = step("N3", "RUNNING")
    assert look(beside).status == "RUNNING"
    assert act(beside, memory=memory).state == "OK"
    could_start = blocked()
    could_start.nodes["N3"] = step("N3", "READY")
    assert look(could_start).status == "BLOCKED"
    nudge = act(could_start, 31, memory=memory)
    assert (nudge.state, nudge.step) == ("NUDGE_MAIN_AGENT", "N3"), "not what is blocked"
    assert "nothing is at work, and N3 (title of N3) is next" in nudge.reason
    waits = ask(blocked(), "N3")
    waits.nodes["N3"] = step("N3", "READY")
    assert act(waits, 600, memory=memory).state == "OK"
    moved = blocked(steps={"N1": seen("RUNNING", progress_at=T0 + 5)})
    assert act(moved, memory=memory).state == "OK"


def test_line_1_a_blocker_that_was_escalated_does_not_end_what_contradicts_itself() -> None:
    memory = Memory(escalated={"block:N1:J-50": T0})
    state = blocked(downloads={"d1": download("CORRUPT")})
    assert act(state, memory=memory).state == "TRUTH_INCONSISTENT"


def test_line_1_a_blocker_of_the_whole_task_leaves_nothing_to_start() -> None:
    state = task(step("N1", "RUNNING"), step("N2", "READY"), blocks={"": block("")})
    assert look(state).status == "BLOCKED"
    action, memory = carry_out(state, 1)
    assert (action.state, action.keys) == ("BLOCKED_ESCALATE", ("block::J-50",))
    assert act(state, 2, memory=memory).state == "STOP_AND_DELETE"
    state.observed.steps["N1"] = seen("RUNNING", progress_at=T0 + 90)
    assert look(state, 2).status == "RUNNING"
    assert act(state, 2, memory=memory).state == "OK"


# Line 2


def test_line_2_two_errors_are_not_three() -> None:
    assert act(running(errors=2)).state == "OK"


def test_line_2_the_order_inside_is_health_finalization_truth_owner() -> None:
    state = output(completed(step("N1", "RUNNING"), errors=3, success_at=T0), "A1")
    assert act(state, 60, WHOLE).state == "EXECUTOR_UNHEALTHY"
    state = output(running(errors=2, downloads={"d1": download("CORRUPT")}), "A1")
    assert act(state, 60, WHOLE).state == "FINALIZATION_STALLED"
    jobs = {"acme:j:1": job("PENDING", evidence=False)}
    assert act(running(downloads={"d1": download("CORRUPT")}, external=jobs)).state == (
        "TRUTH_INCONSISTENT"
    )
    assert act(running(external=jobs), facts=GONE).row == "suspicious_claim"


def test_line_2_a_failing_executor_that_was_heard_hides_neither_truth_nor_blocker() -> None:
    state = completed(step("N1", "RUNNING"), errors=3)
    action, memory = carry_out(state, 1)
    assert action.state == "EXECUTOR_UNHEALTHY"
    assert act(state, 2, memory=memory).state == "TRUTH_INCONSISTENT"
    state = blocked("PERMISSION_DENIED", errors=4)
    action, memory = carry_out(state, 1)
    assert action.state == "EXECUTOR_UNHEALTHY"
    assert act(state, 2, memory=memory).state == "BLOCKED_ESCALATE"


def test_line_2_a_failing_executor_that_was_heard_hides_no_suspected_death() -> None:
    for state, minutes in (
        (running(errors=3), 1.0),
        (output(running(errors=1, success_at=T0, progress_at=T0 + 29 * MINUTE), "A1"), 30.0),
    ):
        facts = Facts(WHOLE.artifacts, executors=GONE.executors)
        action, memory = carry_out(state, minutes, facts)
        assert action.row in ("executor_fails", "never_converges")
        action, memory = carry_out(state, minutes + 1, facts, memory)
        assert (action.row, action.due) == ("may_be_dead", True)
        assert act(state, minutes + 2, facts, memory).row == "may_be_dead"


def test_line_2_a_failing_executor_alone_is_reported_once_in_an_interval() -> None:
    state = running(errors=3)
    action, memory = carry_out(state, 1)
    assert action.due
    assert [act(state, m, memory=memory).due for m in (2, 30, 31)] == [False, False, True]
    state.observed.success_at = T0 + MINUTE
    assert act(state, 2, memory=memory).due, "another streak is other news"


def test_line_2_finalization_is_stalled_only_with_output_errors_and_no_success_for_long() -> None:
    fresh = {"progress_at": T0 + 60 * MINUTE}
    assert act(output(running(errors=1, **fresh), "A1"), 60, WHOLE).state == "FINALIZATION_STALLED"
    assert act(output(running(errors=1, **fresh), "A1"), 60).state == "OK", "no file was seen"
    assert act(output(running(**fresh), "A1"), 60, WHOLE).state == "OK", "no error"
    recent = running(errors=1, success_at=T0 + 45 * MINUTE, **fresh)
    assert act(output(recent, "A1"), 60, WHOLE).state == "OK", "a success not long ago"
    units = Facts(artifacts={"A1": "whole"}, ledgers={"N1": T0 + 50 * MINUTE})
    assert act(output(running(errors=1, **fresh), "A1"), 60, units).state == "OK", "units finish"


def test_line_2_finalization_is_no_word_on_a_blocker_and_none_on_a_task_that_was_ended() -> None:
    state = output(blocked("AUTH_REQUIRED", errors=1), "A1")
    action, memory = carry_out(state, 60, WHOLE)
    assert action.row == "output_before_blocker"
    memory = carry_out(state, 91, WHOLE, memory)[1]
    state.nodes["N3"] = step("N3", "READY")
    assert look(state, 92, WHOLE).status == "BLOCKED"
    assert act(state, 92, WHOLE, memory).state == "FINALIZATION_STALLED", "N3 is to go on"
    state = output(completed(step("N1", "RUNNING"), errors=1), "A1")
    assert act(state, 60, WHOLE).state == "TRUTH_INCONSISTENT"


def test_line_2_only_suspicious_claims_are_a_matter_for_the_owner() -> None:
    jobs = {"acme:j:1": job("PENDING", evidence=False)}
    state = running(external=jobs)
    assert look(state).truth_state == "INCONSISTENT"
    assert look(state).inconsistencies == ("external:pending_without_evidence:acme:j:1",)
    assert act(state, 600).state == "OWNER_RECONCILE", "it is never taken for a wait"
    state.observed.downloads["d1"] = download("INCOMPLETE")
    assert act(state).state == "TRUTH_INCONSISTENT"


def test_line_2_the_job_id_of_the_claim_itself_is_no_evidence() -> None:
    claim = job("PENDING", evidence=False)
    claim.facts = {"job_id": "j:1", "status_url": "  "}
    assert act(running(external={"acme:j:1": claim})).row == "suspicious_claim"
    claim.facts = {"provider_job_id": "j:1"}
    assert act(running(external={"acme:j:1": claim})).state == "OK"


def test_line_2_a_death_is_suspected_with_observation_and_policy_and_never_called_dead() -> None:
    action = act(running(progress_at=T0 + MINUTE), facts=GONE)
    assert (action.state, action.step) == ("OWNER_RECONCILE", "N1")
    assert "may have died" in action.reason
    assert "process 7 on h is gone" in action.reason
    assert "same boot, no such pid" in action.reason
    assert act(task(step("N1", "VERIFYING")), facts=GONE).state == "OK", "nobody is at work there"


def test_line_2_a_suspected_death_that_was_heard_hides_no_blocker() -> None:
    state = running(blocks={"": block("", "AUTH_REQUIRED")})
    action, memory = carry_out(state, 1, GONE)
    assert action.row == "may_be_dead"
    assert act(state, 2, GONE, memory).state == "BLOCKED_ESCALATE"


# Line 3


@pytest.mark.parametrize(("retries", "state"), [(0, "OWNER_RECONCILE"), (1, "OWNER_RECONCILE"),
                                                (2, "BLOCKED_ESCALATE")])  # fmt: skip
def test_line_3_a_retry_first_failure_escalates_after_two_retries(retries: int, state: str) -> None:
    seen_so_far = {"N1:TRANSIENT_NETWORK": retries, "N1:TIMEOUT": 9, "N2:TRANSIENT_NETWORK": 9}
    task_state = blocked("TRANSIENT_NETWORK", retries=seen_so_far)
    assert act(task_state).state == state
    assert look(task_state).retry_count == retries


@pytest.mark.parametrize("failure", ["PERMISSION_DENIED", "INVALID_INPUT", "UNSUPPORTED",
                                     "AUTH_REQUIRED", ""])  # fmt: skip
def test_line_3_what_no_retry_mends_escalates_at_once(failure: str) -> None:
    action = act(blocked(failure))
    assert action.state == "BLOCKED_ESCALATE"
    assert "the key is missing" in action.reason
    assert "a key" in action.next_action
    assert "ask for a key" in action.next_action


def test_line_3_with_output_the_owner_is_asked_before_the_blocker_is_reported() -> None:
    state = output(blocked("AUTH_REQUIRED"), "A1")
    action, memory = carry_out(state, 1, WHOLE)
    assert (action.row, action.state) == ("output_before_blocker", "OWNER_RECONCILE")
    assert act(state, 2, WHOLE, memory).state == "OWNER_RECONCILE"
    assert not act(state, 2, WHOLE, memory).due
    state.observed.blocks["N1"] = block("N1", "AUTH_REQUIRED", 61, T0 + 3 * MINUTE)
    state.observed.reply = reply("B", T0 + 3 * MINUTE, "N1")
    assert act(state, 4, WHOLE, memory).state == "BLOCKED_ESCALATE", "the owner has confirmed it"


def test_line_3_with_output_the_owner_is_asked_first_though_other_steps_go_on() -> None:
    state = output(blocked("AUTH_REQUIRED"), "A1")
    state.nodes["N3"] = step("N3", "RUNNING")
    assert look(state, facts=WHOLE).status == "RUNNING"
    assert act(state, facts=WHOLE).row == "output_before_blocker"


def test_line_3_an_owner_who_lets_the_interval_go_by_does_not_hold_a_blocker_back() -> None:
    state = output(blocked("AUTH_REQUIRED"), "A1")
    memory = carry_out(state, 1, WHOLE)[1]
    assert act(state, 30, WHOLE, memory).state == "OWNER_RECONCILE"
    assert act(state, 31, WHOLE, memory).state == "BLOCKED_ESCALATE"


def test_line_3_an_answer_to_an_earlier_blocker_does_not_count_for_a_new_one() -> None:
    state = output(blocked("AUTH_REQUIRED"), "A1")
    memory = carry_out(state, 1, WHOLE)[1]
    state.observed.reply = reply("B", T0 + 3 * MINUTE, "N1")
    state.observed.blocks["N1"] = block("N1", "AUTH_REQUIRED", 90, T0 + 600 * MINUTE)
    assert act(state, 601, WHOLE, memory).row == "output_before_blocker"


def test_line_3_each_blocker_is_escalated_once_and_a_new_one_again() -> None:
    state = blocked()
    action, memory = carry_out(state, 1)
    assert action.keys == ("block:N1:J-50",)
    state.observed.blocks["N1"] = block("N1", ref=95)
    assert act(state, 2, memory=memory).state == "BLOCKED_ESCALATE"


def test_line_3_of_several_blockers_those_for_a_person_come_first_and_none_is_starved() -> None:
    held = {
        "N1": block("N1", "TIMEOUT"),
        "N2": block("N2", "TIMEOUT", 52),
        "N3": block("N3", "AUTH_REQUIRED", 53),
    }
    state = task(*(step(name, "BLOCKED", ref=60) for name in held), blocks=held)
    action, memory = carry_out(state, 1)
    assert (action.state, action.step) == ("BLOCKED_ESCALATE", "N3")
    action, memory = carry_out(state, 2, memory=memory)
    assert (action.row, action.step, action.due) == ("retry_first", "N1", True)
    action, memory = carry_out(state, 3, memory=memory)
    assert (action.row, action.step, action.due) == ("retry_first", "N2", True)
    action, memory = carry_out(state, 4, memory=memory)
    assert (action.row, action.due) == ("retry_first", False)


def test_line_3_a_blocker_that_the_step_has_left_behind_is_none() -> None:
    state = task(step("N1", "RUNNING", ref=51), blocks={"N1": block("N1")})
    assert look(state).blocks == ()
    state = task(step("N1", "RETRYABLE", ref=51), blocks={"N1": block("N1")})
    assert act(state).state == "BLOCKED_ESCALATE", "an attempt that ended has lifted nothing"


def test_line_3_an_overdue_question_is_escalated_once_and_then_waited_for() -> None:
    state = ask(task(step("N1", "READY")), "N1", expires_at=T0 + 60 * MINUTE)
    assert act(state, 59).state == "OK"
    action, memory = carry_out(state, 61)
    assert (action.row, action.state) == ("blocked", "BLOCKED_ESCALATE")
    assert action.keys == ("question:Q-001:J-9",)
    assert "overdue" in action.reason
    assert act(state, 600, memory=memory).state == "OK"


# Line 4


def test_line_4_from_fresh_to_nudged_by_the_thresholds() -> None:
    state = running()
    expected = {0: "OK", 4.9: "OK", 5: "HEARTBEAT_DUE", 19.9: "HEARTBEAT_DUE",
                20: "STALE_PROGRESS", 29.9: "STALE_PROGRESS", 30: "NUDGE_MAIN_AGENT",
                6_000: "NUDGE_MAIN_AGENT"}  # fmt: skip
    assert {minutes: act(state, minutes).state for minutes in expected} == expected


def test_line_4_the_whole_way_of_a_silent_owner() -> None:
    state, memory, acted = running(), Memory(), []
    for minutes in range(0, 200, 5):
        action, memory = carry_out(state, minutes, memory=memory)
        if action.due:
            acted.append((minutes, action.state))
    assert acted == [
        (30, "NUDGE_MAIN_AGENT"),
        (60, "NUDGE_MAIN_AGENT"),
        (90, "OWNER_RECONCILE"),
        (120, "OWNER_RECONCILE"),
        (150, "OWNER_RECONCILE"),
        (180, "OWNER_RECONCILE"),
    ]
    assert act(state, 199, memory=memory).state == "STALE_PROGRESS"


def test_line_4_a_newer_progress_signal_starts_the_nudges_anew() -> None:
    memory = Memory(nudges=2, nudged_at=T0 + 60 * MINUTE)
    state = running(progress_at=T0 + 61 * MINUTE)
    assert act(state, 91, memory=memory).state == "NUDGE_MAIN_AGENT"
    assert carry_out(state, 91, memory=memory)[1].nudges == 1
    units = Facts(ledgers={"N1": T0 + 61 * MINUTE})
    assert act(running(), 91, units, memory).state == "NUDGE_MAIN_AGENT"


def test_line_4_the_idle_clock_starts_with_the_task_and_any_signal_moves_it() -> None:
    state = task(step("N1", "READY"))
    assert act(state, 30).state == "NUDGE_MAIN_AGENT"
    assert "nothing is at work" in act(state, 30).reason
    assert act(state, 30, Facts(ledgers={"N1": T0 + 29 * MINUTE})).state == "OK"
    assert act(task(), 30).state == "NUDGE_MAIN_AGENT"
    assert act(task(progress_at=None), 30).state == "NUDGE_MAIN_AGENT"
    assert act(State(), 30).state == "NUDGE_MAIN_AGENT", "no observation, no OK"


def test_line_4_there_is_no_limit_on_a_task_that_keeps_giving_signals() -> None:
    state = running(progress_at=T0 + 6_000 * MINUTE)
    assert act(state, 6_001).state == "OK"


def test_line_4_a_heartbeat_of_the_owner_clears_nothing_but_the_heartbeat() -> None:
    assert act(running(heartbeat_at=T0 + 9 * MINUTE), 10).state == "OK"
    assert act(running(heartbeat_at=T0 + 29 * MINUTE), 30).state == "NUDGE_MAIN_AGENT"


def test_line_4_a_contract_past_its_time_is_silence_and_no_more() -> None:
    state = under_contract(running(), "N1")
    action = act(state, 40, EXPIRED)
    assert action.state == "NUDGE_MAIN_AGENT"
    assert "no word from executor:x" in action.reason
    assert "contract_ttl_s = 1800" in action.reason
    memory = Memory(nudges=2, nudged_at=T0 + 5 * MINUTE)
    assert act(state, 40, EXPIRED, memory).state == "OWNER_RECONCILE"


def test_line_4_a_silent_step_is_noticed_though_others_make_progress() -> None:
    state = under_contract(running(progress_at=T0 + 59 * MINUTE), "N1")
    action = act(state, 60, EXPIRED)
    assert (action.state, action.step) == ("NUDGE_MAIN_AGENT", "N1")
    state.observed.steps["N1"] = seen("RUNNING", progress_at=T0 + 59 * MINUTE)
    assert act(state, 60, EXPIRED).state == "OK", "its own progress speaks for it"
    waits = under_contract(running(external={"acme:j:1": job("RUNNING", "N1")}), "N1")
    assert act(waits, 600, EXPIRED).state == "OK", "it waits outside"


def test_line_4_another_policy_gives_other_times() -> None:
    state = running()
    state.policies = Policies(idle_after_s=10, nudge_after_s=20, heartbeat_s=5, nudges_max=0)
    assert [act(state, m / 60).state for m in (4, 5, 10, 20)] == [
        "OK", "HEARTBEAT_DUE", "STALE_PROGRESS", "OWNER_RECONCILE",
    ]  # fmt: skip


# Line 5


@pytest.mark.parametrize("outside", ["SUBMITTED", "PENDING", "RUNNING", "RETRYING",
                                     "SWITCHED_WORKFLOW"])  # fmt: skip
def test_line_5_a_job_that_its_provider_confirms_is_a_wait_and_not_silence(outside: str) -> None:
    state = running(external={"acme:j:1": job(outside, "N1")})
    action = act(state, 6_000)
    assert action.state == "OK"
    assert "acme:j:1" in action.reason
    assert [found.key for found in look(state).pending_external] == ["acme:j:1"]


@pytest.mark.parametrize("outside", ["COMPLETED", "FAILED"])
def test_line_5_a_job_that_has_ended_is_no_wait(outside: str) -> None:
    assert act(running(external={"acme:j:1": job(outside)}), 31).state == "NUDGE_MAIN_AGENT"


def test_line_5_a_job_of_a_step_that_is_closed_is_no_wait() -> None:
    state = task(step("N1", "DONE"), step("N2"), external={"acme:j:1": job("RUNNING", "N1")})
    assert act(state, 31).state == "NUDGE_MAIN_AGENT"


def test_line_5_waiting_for_a_person_is_no_silence_of_the_owner() -> None:
    state = ask(task(step("N1", "BLOCKED"), step("N2", "PENDING", "N1")), "N1")
    action = act(state, 6_000)
    assert action.state == "OK"
    assert "Q-001" in action.reason
    assert "May it?" in action.next_action
    state.nodes["N3"] = step("N3", "READY")
    assert act(state, 31).state == "NUDGE_MAIN_AGENT", "there is other work to start"
    state.nodes["N3"] = step("N3", "PENDING", "GONE")
    state.nodes["GONE"] = step("GONE", "QUARANTINED")
    assert act(state, 31).state == "NUDGE_MAIN_AGENT", "a dead end is for the owner to plan anew"


def test_line_5_a_question_to_the_owner_is_no_excuse_of_the_owner() -> None:
    state = ask(task(step("N1", "READY")), "N1", to="coordinator")
    assert act(state, 31).state == "NUDGE_MAIN_AGENT"


def test_line_5_a_paused_task_is_left_alone() -> None:
    state = task(step("N1", "READY"))
    state.fsm_task = "SUSPENDED"
    assert act(state, 6_000).state == "OK"


# Every contradiction


CONTRADICTIONS: dict[str, tuple[State, Facts]] = {
    "task:completed_but_blocked": (
        completed(step("N1", "DONE"), blocks={"": block("")}), Facts(),
    ),
    "task:completed_but_steps_not_done:N1,N2": (
        completed(step("N1", "RUNNING"), step("N2", "PENDING", "N1"), step("N3", "DONE")), Facts(),
    ),
    "task:completed_but_external_pending:acme:j:1": (
        completed(step("N1", "DONE"), external={"acme:j:1": job("RUNNING")}), Facts(),
    ),
    "external:pending_without_evidence:acme:j:1": (
        running(external={"acme:j:1": job("RUNNING", evidence=False)}), Facts(),
    ),
    "download:incomplete:d1": (running(downloads={"d1": download("INCOMPLETE")}), Facts()),
    "download:corrupt:d1": (running(downloads={"d1": download("CORRUPT")}), Facts()),
    "step:completed_but_blocked:N1": (
        blocked(steps={"N1": seen("COMPLETED", completed_ref="J-40")}), Facts(),
    ),
    "step:progress_after_completion:N1": (
        running(steps={"N1": seen("COMPLETED", progress_after_completion="J-60")}), Facts(),
    ),
    "step:later_before_earlier:N2:N1": (
        task(step("N1", "READY"), step("N2", "RUNNING", "N1")), Facts(),
    ),
    "artifact:missing:A1": (output(running(), "A1"), Facts(artifacts={"A1": "missing"})),
    "artifact:changed:A1": (output(running(), "A1"), Facts(artifacts={"A1": "changed"})),
}  # fmt: skip


@pytest.mark.parametrize("found", CONTRADICTIONS)
def test_each_contradiction_is_found_under_its_fixed_id_and_never_comes_to_ok(found: str) -> None:
    state, facts = CONTRADICTIONS[found]
    for minutes in (0, 1, 10, 25, 31, 600):
        derived = look(state, minutes, facts)
        assert derived.inconsistencies == (found,)
        assert derived.truth_state == "INCONSISTENT"
        suspicion = found.startswith("external:pending")
        assert act(state, minutes, facts).state == (
            "OWNER_RECONCILE" if suspicion else "TRUTH_INCONSISTENT"
        )
    assert describe(found) in look(state, 1, facts).user_facing.honesty_notes


def test_every_kind_of_contradiction_is_shown_here() -> None:
    assert {kind_of(found) for found in CONTRADICTIONS} == set(INCONSISTENCIES)


def test_a_completion_that_was_only_observed_leaves_its_step_not_done() -> None:
    state = completed(step("N1", "VERIFYING"), steps={"N1": seen("COMPLETED", completed_ref="J-5")})
    derived = look(state)
    assert derived.step_states == {"N1": "COMPLETED"}
    assert derived.inconsistencies == ("task:completed_but_steps_not_done:N1",)
    assert (
        "N1 was reported complete and has not been verified." in derived.user_facing.honesty_notes
    )


def test_a_step_that_failed_for_good_is_not_done_until_something_took_its_place() -> None:
    state = completed(step("N1", "QUARANTINED"), step("N2", "DONE"))
    assert look(state).inconsistencies == ("task:completed_but_steps_not_done:N1",)
    state.nodes["N1"].successors = ("N2",)
    assert look(state).inconsistencies == ()
    assert act(state).state == "STOP_AND_DELETE"


def test_what_was_cancelled_contradicts_nothing() -> None:
    state = completed(
        step("N1", "DONE"),
        step("N2", "CANCELLED"),
        downloads={"d1": download("CORRUPT", "N2")},
        external={"acme:j:1": job("PENDING", "N2", evidence=False)},
        steps={"N2": seen("RUNNING", progress_after_completion="J-80")},
    )
    output(state, "A2", "N2")
    facts = Facts(artifacts={"A2": "missing"})
    assert look(state, facts=facts).inconsistencies == ()
    assert act(state, facts=facts).state == "STOP_AND_DELETE"


def test_a_superseded_artifact_is_cited_by_nothing() -> None:
    state = output(running(), "A1", status="superseded(by:A2)")
    assert look(state, facts=Facts(artifacts={"A1": "missing"})).inconsistencies == ()


@pytest.mark.parametrize("later", ["RUNNING", "VERIFYING", "DONE"])
@pytest.mark.parametrize("earlier", ["PENDING", "READY", "RUNNING", "VERIFYING", "BLOCKED",
                                     "RETRYABLE"])  # fmt: skip
def test_a_later_step_is_never_before_an_earlier_one_that_is_open(later: str, earlier: str) -> None:
    state = task(step("N1", earlier), step("N2", later, "N1"))
    assert look(state).inconsistencies == ("step:later_before_earlier:N2:N1",)
    observed_only = task(step("N1", earlier), step("N2", "PENDING", "N1"), steps={"N2": seen()})
    assert look(observed_only).inconsistencies == ("step:later_before_earlier:N2:N1",)
