"""Derived state: what supervision makes of a task, from its journal, the disk and the time alone.

Job: ``derive``, the second of the three layers. Invariants: pure and total, so that the same state,
facts and time always give the same answer; nothing it gives is stored as truth or fed back into the
journal; progress is never read as completion, and silence never as death.
"""

from typing import Final

import msgspec

from perdure.core.gates import is_overdue
from perdure.core.machine import startable, unreplaced
from perdure.core.model import CLOSED_STATES, State
from perdure.core.supervision_parts import (
    BlockInForce,
    ExternalSeen,
    OpenQuestion,
    Step,
    UserFacing,
    steps_shown_max,
)
from perdure.core.supervision_records import Derived, Facts, Status
from perdure.core.supervision_steps import (
    SUSPICION,
    blocks_of,
    contradictions,
    external_of,
    kind_of,
    number_of,
    outputs_of,
    pending_of,
    suspicions_of,
    workflow_of,
)
from perdure.core.supervision_user import tell

_NOTHING_TOLD: Final = UserFacing("IN_PROGRESS", "")

_ENDED_OUTCOMES: Final[dict[str, Status]] = {
    "failed": "FAILED",
    "cancelled": "ABANDONED",
    "abandoned": "ABANDONED",
}
"""How an INSTANCE_ENDED reads that does not say the task was completed."""


def derive(state: State, facts: Facts, now: float) -> Derived:
    """Everything a decision needs to know of a task at a moment. Never raises, never guesses."""
    workflow = workflow_of(state)
    blocks = blocks_of(state, workflow)
    jobs = external_of(state)
    pending = pending_of(state, jobs)
    questions = _questions(state, now)
    under_way = _under_way(state, workflow, blocks, questions, pending)
    going_on = _moved_on(state, blocks, whole=True) if _of_task(blocks) else bool(under_way)
    completed = _completed_ref(state, blocks)
    status = _status(state, blocks, going_on=going_on, completed=completed)
    found = contradictions(
        state,
        facts,
        workflow,
        pending,
        blocks,
        completed=status == "COMPLETED",
    )
    signals = _signals(state, facts)
    progress_at = max(signals.values(), default=None)
    beat_at = state.observed.heartbeat_at
    alive_at = max((at for at in (progress_at, beat_at) if at is not None), default=None)
    reply = state.observed.reply
    derived = Derived(
        task_id=state.task_id,
        seq=state.seq,
        at=now,
        status=status,
        truth_state="INCONSISTENT" if found else "CONSISTENT",
        inconsistencies=found,
        close_out_gaps=_gaps(state, facts, status),
        workflow=workflow,
        step_states={step.step: step.state for step in workflow},
        current_step=_current(workflow),
        user_facing=_NOTHING_TOLD,
        fsm_task=state.fsm_task,
        completed_ref=completed if status == "COMPLETED" else "",
        completion_summary=state.observed.completion_summary,
        external=jobs,
        pending_external=tuple(job for job in pending if job.evidence),
        suspicious_external_jobs=tuple(job for job in pending if not job.evidence),
        external_failures=tuple(job.key for job in jobs if job.state == "FAILED"),
        waits_outside=_waits_outside(state, pending),
        last_progress_at=progress_at,
        progress_signals=signals,
        silence_s=_since(progress_at, now),
        last_heartbeat_at=beat_at,
        alive_s=_since(alive_at, now),
        errors=state.observed.errors,
        last_success_at=_success_at(state, facts),
        streak=f"{state.observed.success_at or state.observed.started_at or 0.0:.3f}",
        retry_count=_retries(state, blocks),
        blocks=blocks,
        under_way=under_way,
        moved_on=_moved_on(state, blocks, whole=False),
        dead_ends=tuple(unreplaced(state)),
        startable=_startable(state, blocks),
        questions=questions,
        waits_for_person=_waits_for_person(workflow, blocks, under_way, questions),
        suspended=state.fsm_task == "SUSPENDED",
        suspected=suspicions_of(state, facts, now),
        outputs=outputs_of(state, facts),
        reply_letter=reply.letter if reply is not None else "",
        reply_at=reply.at if reply is not None else None,
        reply_node=reply.node if reply is not None else "",
    )
    return msgspec.structs.replace(derived, user_facing=tell(derived, state.policies))


def only_suspicions(derived: Derived) -> bool:
    """Whether every contradiction is a pending claim that nothing from its provider shows."""
    return all(kind_of(found) == SUSPICION for found in derived.inconsistencies)


def _since(at: float | None, now: float) -> float | None:
    """Seconds since; what the clock has put into the future is now."""
    return None if at is None else max(0.0, now - at)


# Where the task stands


def _completed_ref(state: State, blocks: tuple[BlockInForce, ...]) -> str:
    """The completion truth: TASK_COMPLETED, or that the coordinator has closed the task (T07)."""
    if state.observed.task_completed:
        return state.observed.task_completed
    closed = state.terminal and state.outcome not in _ENDED_OUTCOMES
    if blocks or not (closed or state.fsm_task in ("FINAL_AUDIT", "ARCHIVED")):
        return ""
    newest = max((number_of(node.state_ref or "") for node in state.nodes.values()), default=0)
    return f"J-{max(newest, 1)}"


def _status(
    state: State, blocks: tuple[BlockInForce, ...], *, going_on: bool, completed: str
) -> Status:
    if state.observed.task_completed:
        return "COMPLETED"
    if state.terminal and state.outcome in _ENDED_OUTCOMES:
        return _ENDED_OUTCOMES[state.outcome]
    if blocks and not going_on:
        return "BLOCKED"
    nodes = state.nodes.values()
    if nodes and all(node.state in CLOSED_STATES for node in nodes):
        if unreplaced(state):
            return "FAILED"
        if all(node.state != "DONE" for node in nodes):
            return "ABANDONED"
    return "COMPLETED" if completed else "RUNNING"


def _gaps(state: State, facts: Facts, status: Status) -> tuple[str, ...]:
    if status != "COMPLETED":
        return ()
    archived = state.fsm_task == "ARCHIVED" or state.terminal
    return (*facts.close_out, *(() if archived else ("close_out:not_archived",)))


_FIRST: Final = {"RUNNING": 0, "VERIFYING": 1, "COMPLETED": 1, "BLOCKED": 2}


def _current(workflow: tuple[Step, ...]) -> str | None:
    """The step the task is at: one at work, else one claimed, else one blocked, else the next."""
    waiting = [step for step in workflow if step.open]
    best = min(waiting, key=lambda step: _FIRST.get(step.state, 3), default=None)
    return best.step if best is not None else None


def _retries(state: State, blocks: tuple[BlockInForce, ...]) -> int:
    if blocks:
        return max(block.retries for block in blocks)
    return sum(state.observed.retries.values())


# What goes on, and what waits


def _of_task(blocks: tuple[BlockInForce, ...]) -> bool:
    return any(not block.node for block in blocks)


def _held(questions: tuple[OpenQuestion, ...], blocks: tuple[BlockInForce, ...]) -> set[str]:
    """Steps that wait for a person's answer and are not blocked besides."""
    return {question.node for question in questions} - {block.node for block in blocks}


def _under_way(
    state: State,
    workflow: tuple[Step, ...],
    blocks: tuple[BlockInForce, ...],
    questions: tuple[OpenQuestion, ...],
    pending: list[ExternalSeen],
) -> tuple[str, ...]:
    """Open steps somebody works on or judges, or a provider does; not those that are blocked."""
    blocked = {block.node for block in blocks}
    held = {question.node for question in questions}
    outside = {job.node for job in pending if job.evidence}
    found = []
    for step in workflow:
        name, of_node = step.step, state.nodes[step.step].state
        at_work = "RUNNING" in (step.state, of_node)
        judged = of_node == "VERIFYING" and name not in held
        if step.open and name not in blocked and (at_work or judged or name in outside):
            found.append(name)
    return tuple(found)


def _moved_on(state: State, blocks: tuple[BlockInForce, ...], *, whole: bool) -> bool:
    """Whether a newer word says that what is blocked has moved; of the task's own block: a step."""
    steps = state.observed.steps
    for block in blocks:
        if not block.node:
            if any((seen.progress_at or 0.0) > block.at for seen in steps.values()):
                return True
        elif not whole and block.node in steps and steps[block.node].state == "RUNNING":
            return True
    return False


def _startable(state: State, blocks: tuple[BlockInForce, ...]) -> tuple[str, ...]:
    if _of_task(blocks) or state.fsm_task == "SUSPENDED":
        return ()
    blocked = {block.node for block in blocks}
    found: list[str] = []
    for name, node in state.nodes.items():
        if len(found) == steps_shown_max:
            break
        if node.state not in CLOSED_STATES and name not in blocked and startable(state, node):
            found.append(name)
    return tuple(found)


def _questions(state: State, now: float) -> tuple[OpenQuestion, ...]:
    """Open questions that hold an open step and that somebody other than the owner answers."""
    found = []
    for question in state.questions.values():
        node = state.nodes.get(question.node or "")
        if node is None or node.state in CLOSED_STATES or question.to == "coordinator":
            continue
        found.append(
            OpenQuestion(
                f"question:{question.question_id}:{question.asked_ref}",
                question.question_id,
                node.node_id,
                question.text,
                question.to,
                question.asked_at,
                question.expires_at,
                is_overdue(question, now),
            )
        )
    return tuple(found)


def _waits_for_person(
    workflow: tuple[Step, ...],
    blocks: tuple[BlockInForce, ...],
    under_way: tuple[str, ...],
    questions: tuple[OpenQuestion, ...],
) -> bool:
    """Whether nothing is left for the owner to do until a person has answered.

    So it is when each open step is held by a question or a blocker, or depends on an open one; a
    step that depends on one that was given up waits for the owner, who has to plan anew.
    """
    held = _held(questions, blocks)
    if under_way or not held or _of_task(blocks):
        return False
    stopped = held | {block.node for block in blocks}
    waiting = {step.step for step in workflow if step.open}
    return all(
        step.step in stopped or not waiting.isdisjoint(step.deps) for step in workflow if step.open
    )


def _waits_outside(state: State, pending: list[ExternalSeen]) -> tuple[str, ...]:
    """Pending jobs with evidence that something open waits for."""
    done = {name for name, node in state.nodes.items() if node.state in CLOSED_STATES}
    return tuple(job.key for job in pending if job.evidence and job.node not in done)


# Signals


def _signals(state: State, facts: Facts) -> dict[str, float]:
    """The newest signal of each source, the start of the task being the first of the journal's."""
    observed, signals = state.observed, {}
    if observed.progress_at is not None:
        signals[f"journal {observed.progress_ref}".rstrip()] = observed.progress_at
    elif observed.started_at is not None:
        signals["journal"] = observed.started_at
    for name, at in facts.ledgers.items():
        if name in state.nodes:
            signals[f"ledger {name}"] = at
    return signals


def _success_at(state: State, facts: Facts) -> float | None:
    observed = state.observed
    known = [observed.success_at, observed.started_at]
    known += [at for name, at in facts.ledgers.items() if name in state.nodes]
    return max((at for at in known if at is not None), default=None)
