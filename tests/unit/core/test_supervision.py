"""What is derived of a task besides its contradictions: order, waits, blockers, the outcome."""

import msgspec
import pytest
from tests.unit.core.story import Story
from tests.unit.core.supervised import (
    MINUTE,
    T0,
    WHOLE,
    ask,
    block,
    download,
    job,
    look,
    output,
    seen,
    step,
    task,
    under_contract,
)

from perdure.core.model import State
from perdure.core.supervision import derive
from perdure.core.supervision_parts import steps_shown_max
from perdure.core.supervision_records import Facts, SuspectedDeath


def facing(state: State, minutes: float = 1.0, facts: Facts = WHOLE):  # type: ignore[no-untyped-def]
    return look(state, minutes, facts).user_facing


# Workflow and steps


def test_the_workflow_has_each_step_after_those_it_depends_on() -> None:
    state = task(step("N3", "PENDING", "N1", "N2"), step("N2", "PENDING", "N1"), step("N1"))
    derived = look(state)
    assert [found.step for found in derived.workflow] == ["N1", "N2", "N3"]
    assert derived.workflow[2].deps == ("N1", "N2")
    assert derived.workflow[0].title == "title of N1"


def test_a_cycle_and_a_dep_that_does_not_exist_leave_no_step_out() -> None:
    state = task(
        step("N1", "PENDING", "N2"), step("N2", "PENDING", "N1"), step("N3", "RUNNING", "X")
    )
    assert sorted(found.step for found in look(state).workflow) == ["N1", "N2", "N3"]
    assert look(state).truth_state == "CONSISTENT"


def test_a_long_chain_is_no_recursion() -> None:
    nodes = [step(f"N{n}", "PENDING", f"N{n + 1}") for n in range(5_000)]
    workflow = look(task(*nodes, step("N5000"))).workflow
    assert [workflow[0].step, workflow[-1].step] == ["N5000", "N0"]


@pytest.mark.parametrize(("node", "observed", "said"), [
    ("PENDING", None, "PENDING"),
    ("PENDING", "RUNNING", "RUNNING"),
    ("RUNNING", "COMPLETED", "COMPLETED"),
    ("VERIFYING", "COMPLETED", "COMPLETED"),
    ("VERIFYING", "RUNNING", "VERIFYING"),
    ("READY", "BLOCKED", "BLOCKED"),
    ("DONE", "COMPLETED", "DONE"),
    ("DONE", "RUNNING", "DONE"),
    ("QUARANTINED", "COMPLETED", "QUARANTINED"),
    ("CANCELLED", "RUNNING", "CANCELLED"),
])  # fmt: skip
def test_a_step_is_as_observed_and_done_by_its_node_alone(
    node: str, observed: str | None, said: str
) -> None:
    steps = {"N1": seen(observed)} if observed else {}
    assert look(task(step("N1", node), steps=steps)).step_states == {"N1": said}


def test_the_current_step_is_the_one_at_work_else_claimed_else_blocked_else_the_next() -> None:
    nodes = [step("N1", "READY"), step("N2", "BLOCKED"), step("N3", "VERIFYING"),
             step("N4", "RUNNING"), step("N5", "DONE")]  # fmt: skip
    found = []
    while nodes:
        current = look(task(*nodes)).current_step
        found.append(current)
        nodes = [node for node in nodes if node.node_id != current] if current else []
    assert found == ["N4", "N3", "N2", "N1", None]


# Where it stands


def test_the_status_is_that_of_the_contract() -> None:
    assert look(task()).status == "RUNNING"
    assert look(task(step("N1", "DONE"))).status == "RUNNING"
    assert look(task(step("N1", "DONE"), task_completed="J-9")).status == "COMPLETED"
    assert look(task(step("N1", "BLOCKED"), blocks={"N1": block("N1")})).status == "BLOCKED"
    assert look(task(step("N1", "QUARANTINED"), step("N2", "DONE"))).status == "FAILED"
    assert look(task(step("N1", "QUARANTINED"), step("N2", "PENDING", "N1"))).status == "RUNNING"
    assert look(task(step("N1", "CANCELLED"))).status == "ABANDONED"
    assert look(task(step("N1", "CANCELLED"), step("N2", "DONE"))).status == "RUNNING"


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ("", "COMPLETED"),
        ("completed", "COMPLETED"),
        ("cancelled", "ABANDONED"),
        ("failed", "FAILED"),
    ],
)
def test_an_ended_instance_says_how_it_ended(outcome: str, status: str) -> None:
    state = task(step("N1", "DONE"))
    state.terminal, state.outcome, state.fsm_task = True, outcome, "ARCHIVED"
    assert look(state).status == status
    assert look(state).close_out_gaps == ()


def test_one_blocked_step_beside_work_that_goes_on_is_no_blocked_task() -> None:
    blocks = {"N1": block("N1")}
    assert look(task(step("N1", "BLOCKED"), step("N2", "RUNNING"), blocks=blocks)).under_way == (
        "N2",
    )
    for other in (step("N2", "RUNNING"), step("N2", "VERIFYING")):
        assert look(task(step("N1", "BLOCKED"), other, blocks=blocks)).status == "RUNNING"
    observed = task(step("N1", "BLOCKED"), step("N2"), blocks=blocks, steps={"N2": seen()})
    assert look(observed).status == "RUNNING"
    outside = {"acme:j:1": job("RUNNING", "N2")}
    waits = task(step("N1", "BLOCKED"), step("N2"), blocks=blocks, external=outside)
    assert look(waits).status == "RUNNING"
    itself = task(step("N1", "RUNNING"), blocks=blocks)
    assert look(itself).status == "BLOCKED", "its own contract is no work that goes on"
    reviewed = ask(task(step("N1", "BLOCKED"), step("N2", "VERIFYING"), blocks=blocks), "N2")
    assert look(reviewed).status == "BLOCKED"


def test_retries_are_counted_for_the_step_and_the_failure() -> None:
    retries = {"N1:TIMEOUT": 1, "N2:TIMEOUT": 2}
    state = task(step("N1"), step("N2"), retries=retries)
    assert look(state).retry_count == 3
    state.observed.blocks["N1"] = block("N1", "TIMEOUT")
    assert (look(state).retry_count, look(state).blocks[0].retry_first) == (1, True)


def test_signals_are_named_and_the_newest_counts() -> None:
    state = task(
        step("N1", "RUNNING"), progress_at=T0 + 60, progress_ref="J-12", heartbeat_at=T0 + 90
    )
    derived = look(state, 3, Facts(ledgers={"N1": T0 + 120, "OTHER": T0 + 170}))
    assert derived.progress_signals == {"journal J-12": T0 + 60, "ledger N1": T0 + 120}
    assert (derived.last_progress_at, derived.silence_s) == (T0 + 120, 60)
    assert (derived.last_heartbeat_at, derived.alive_s) == (T0 + 90, 60)
    assert look(state, 0).silence_s == 0.0, "what a clock put into the future is now"


def test_what_is_outside_is_sorted_into_waits_suspicions_and_failures() -> None:
    jobs = {
        "acme:1": job("RUNNING", "N1"),
        "acme:2": job("PENDING", "N1", evidence=False),
        "acme:3": job("FAILED"),
        "acme:4": job("COMPLETED"),
        "acme:5": job("RUNNING", "N2"),
    }
    derived = look(task(step("N1", "RUNNING"), step("N2", "CANCELLED"), external=jobs))
    assert [found.key for found in derived.pending_external] == ["acme:1"]
    assert derived.pending_external[0].evidence == ("status_url",)
    assert [found.key for found in derived.suspicious_external_jobs] == ["acme:2"]
    assert derived.external_failures == ("acme:3",)
    assert derived.waits_outside == ("acme:1",)


def test_a_suspicion_stands_only_against_work_that_is_under_way() -> None:
    gone = SuspectedDeath("it is gone", "a policy")
    late = SuspectedDeath("nothing was heard", "a policy", "contract_expired")
    state = under_contract(task(step("N1", "RUNNING"), step("N2", "VERIFYING")), "N1")
    assert look(state, 1, Facts(executors={"N1": gone, "N2": gone, "N9": gone})).suspected == {
        "N1": gone
    }
    assert look(state, 29, Facts(executors={"N1": late})).suspected == {}
    assert look(state, 30, Facts(executors={"N1": late})).suspected == {"N1": late}
    state.contracts["inv-N1"].last_beat_at = T0 + 20 * MINUTE
    assert look(state, 30, Facts(executors={"N1": late})).suspected == {}


def test_only_what_was_found_whole_is_usable_output() -> None:
    state = task(step("N1", "DONE"), step("N2", "RUNNING"))
    for name, node in (("A1", "N1"), ("A2", "N2"), ("A3", None), ("A4", "N1")):
        output(state, name, node)
    output(state, "A5", "N1", "superseded(by:A1)")
    facts = Facts(artifacts={"A1": "whole", "A2": "whole", "A3": "missing", "A5": "whole"})
    assert [(o.artifact, o.node, o.verified) for o in look(state, 1, facts).outputs] == [
        ("A1", "N1", True), ("A2", "N2", False),
    ]  # fmt: skip


def test_waiting_for_a_person_leaves_nothing_to_the_owner() -> None:
    held = ask(task(step("N1", "BLOCKED"), step("N2", "PENDING", "N1")), "N1")
    assert look(held).waits_for_person
    assert not look(task(step("N1", "BLOCKED"))).waits_for_person, "a wall is not a question"
    assert not look(ask(task(step("N1", "RUNNING")), "N1")).waits_for_person
    assert look(ask(task(step("N1", "VERIFYING")), "N1")).waits_for_person
    assert not look(ask(task(step("N1", "DONE")), "N1")).questions
    draft = task(step("N1", "READY"), step("N2", "READY"))
    draft.nodes["N2"].spec = msgspec.structs.replace(draft.nodes["N2"].spec, draft=True)
    assert not look(ask(draft, "N1")).waits_for_person, "a draft is for the owner to finish"


# What the requester is told


def test_success_is_a_completion_that_nothing_contradicts() -> None:
    state = output(task(step("N1", "DONE"), step("N2", "CANCELLED"), task_completed="J-9"), "A1")
    told = facing(state)
    assert told.outcome == "SUCCESS"
    assert told.headline == "Finished: 1 of 2 steps done, 1 was given up; 1 file is there to use."
    assert [found.path for found in told.artifacts] == ["artifacts/N1/A1"]
    assert ([s.step for s in told.done], told.remaining, told.honesty_notes) == (["N1"], (), ())
    state.observed.completion_summary = "the report is written"
    assert facing(state).headline.startswith("Finished: the report is written; 1 file")


def test_a_contradicted_completion_is_no_success() -> None:
    state = task(step("N1", "RUNNING"), task_completed="J-9")
    assert facing(state).outcome == "IN_PROGRESS"
    assert "being cleared up" in facing(state).headline
    assert facing(output(state, "A1")).outcome == "PARTIAL_SUCCESS"


def test_running_with_output_and_fresh_progress_is_in_progress_and_without_it_partial() -> None:
    state = output(task(step("N1", "DONE"), step("N2", "RUNNING", "N1")), "A1")
    assert facing(state, 19).outcome == "IN_PROGRESS"
    assert facing(state, 20).outcome == "PARTIAL_SUCCESS"
    assert facing(state, 20, Facts()).outcome == "IN_PROGRESS", "no usable output"
    state.observed.external["acme:j:1"] = job("RUNNING", "N2")
    assert facing(state, 600).outcome == "IN_PROGRESS", "a wait is no stop"


def test_a_blocked_failed_or_abandoned_task_with_output_is_a_partial_success() -> None:
    blocked = task(step("N1", "DONE"), step("N2", "BLOCKED"), blocks={"N2": block("N2")})
    failed = task(step("N1", "DONE"), step("N2", "QUARANTINED"))
    cancelled = task(step("N2", "CANCELLED"))
    assert [facing(state).outcome for state in (blocked, failed, cancelled)] == [
        "BLOCKED", "FAILED", "FAILED",
    ]  # fmt: skip
    for state in (blocked, failed, cancelled):
        assert facing(output(state, "A1")).outcome == "PARTIAL_SUCCESS"
    assert facing(blocked).headline == (
        "Partly finished: 1 file is there to use, 1 of 2 steps done; the rest is blocked: the"
        " key is missing, which needs a key."
    )


def test_the_headline_never_speaks_of_the_machinery_and_the_notes_do() -> None:
    state = output(
        task(
            step("N1", "RUNNING"),
            step("N2", "READY"),
            steps={"N2": seen("COMPLETED")},
            external={"acme:3": job("FAILED"), "acme:4": job("PENDING", evidence=False)},
            downloads={"d1": download("CORRUPT")},
            blocks={"N3": block("N3", reason="no room")},
            errors=2,
        ),
        "A1",
    )
    ask(state, "N1", expires_at=T0)
    facts = Facts(
        artifacts={"A1": "whole"}, executors={"N1": SuspectedDeath("it is gone", "a policy")}
    )
    told = facing(state, 1, facts)
    assert told.outcome == "IN_PROGRESS"
    assert told.headline == "In progress: 0 of 2 steps done; at work on title of N1."
    assert told.honesty_notes == (
        "External job acme:4 is said to be pending, and nothing from the provider shows it.",
        "Download d1 is corrupt.",
        "N2 was reported complete and has not been verified.",
        "Of the files there, 1 is not verified.",
        "N3 is blocked: no room.",
        "External job acme:3 failed.",
        "Whoever works on N1 may have died: it is gone (a policy).",
        "2 errors in a row, with no success since.",
        "Question Q-001 about N1 is overdue; that is no consent.",
    )


@pytest.mark.parametrize(("state", "said"), [
    (task(), "In progress: no step has been planned yet."),
    (task(step("N1", "READY")), "In progress: 0 of 1 step done; next is title of N1."),
    (task(step("N1", "DONE")),
     "In progress: 1 of 1 step done; what is left is to confirm that this is all."),
    (ask(task(step("N1", "READY")), "N1"),
     "In progress: 0 of 1 step done; it waits for an answer to Q-001 (May it?)."),
    (task(step("N1", "READY"), external={"acme:j:1": job("RUNNING")}),
     "In progress: 0 of 1 step done; it waits for external job acme:j:1."),
    (task(step("N1", "QUARANTINED")),
     "Failed: N1 was given up and nothing has taken its place."),
    (task(step("N1", "CANCELLED")),
     "Cancelled: 0 of 1 step done and no file is there to use."),
])  # fmt: skip
def test_the_headline_says_what_the_task_is_at(state: State, said: str) -> None:
    assert facing(state, 1, Facts()).headline == said


def test_a_paused_task_says_so() -> None:
    state = task(step("N1", "READY"))
    state.fsm_task = "SUSPENDED"
    assert facing(state).headline.endswith("it is paused.")


def test_a_task_of_many_steps_is_told_in_bounds() -> None:
    many = 3 * steps_shown_max
    nodes = [step(f"N{n}", "DONE" if n % 2 else "READY") for n in range(many)]
    steps = {f"N{n}": seen("COMPLETED") for n in range(0, many, 2)}
    told = facing(task(*nodes, steps=steps))
    assert (len(told.done), told.done_count) == (steps_shown_max, many // 2)
    assert (len(told.remaining), told.remaining_count) == (steps_shown_max, many // 2)
    assert told.honesty_notes[-1] == "There are 101 more."
    left = look(task(*nodes, task_completed="J-9")).inconsistencies[0]
    assert left.endswith(",+100")


# On a task that was lived


def test_a_task_that_was_lived_is_read_as_the_journal_left_it() -> None:
    story = Story()
    began = story.now
    story.add("N1")
    story.add("N2", "N1")
    state = story.replica.state
    assert derive(state, Facts(), began + 3_600).silence_s == 3_600
    story.finish("N1")
    story.start("N2")
    derived = derive(state, Facts(artifacts={"A-N1-1": "whole"}), story.now + 5)
    assert derived.step_states == {"N1": "DONE", "N2": "RUNNING"}
    assert derived.silence_s == 5
    assert derived.truth_state == "CONSISTENT"
    assert [found.artifact for found in derived.outputs] == ["A-N1-1"]
    assert derived.user_facing.headline == "In progress: 1 of 2 steps done; at work on title of N2."
