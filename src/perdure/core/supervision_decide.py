"""The one action that supervision takes: a table that is read from the top, and one function.

Job: ``decide_action``, the third of the three layers, and ``remember``, which says what carrying it
out leaves in the memory. Invariants: pure and total, exactly one row answers; a contradiction never
reaches a row below line 2, so that it is never taken for work or for a wait; what was said is not
said again within ``renotify_s``. Nothing here writes, sends, or touches the journal.

Two rows of line 2 say what stays true for long: that an executor fails, and that one may be dead.
Where a contradiction or a blocker waits behind them, or a death behind the failures, they speak
first and, once heard, make way for it; otherwise they would hide it for good.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from perdure.core.model import Policies
from perdure.core.supervision import only_suspicions
from perdure.core.supervision_at_hand import AtHand, at_hand
from perdure.core.supervision_records import (
    ENDED_STATUSES,
    Action,
    ActionState,
    Audience,
    Derived,
    Memory,
    Verb,
    told_kept_max,
)
from perdure.core.supervision_words import Said, Words

errors_max: Final = 3
"""Consecutive errors at which an executor counts as unhealthy."""

SEVERITY: Final[dict[ActionState, int]] = {
    "OK": 0,
    "HEARTBEAT_DUE": 1,
    "STALE_PROGRESS": 2,
    "NUDGE_MAIN_AGENT": 3,
    "OWNER_RECONCILE": 4,
    "EXECUTOR_UNHEALTHY": 5,
    "FINALIZATION_STALLED": 5,
    "TRUTH_INCONSISTENT": 5,
    "BLOCKED_ESCALATE": 5,
    "STOP_AND_DELETE": 6,
}
"""How far supervision steps in; of equal rank is what needs somebody now, whoever it is."""

_ACTS: Final[dict[ActionState, tuple[Verb, Audience]]] = {
    "STOP_AND_DELETE": ("delete_monitor", ""),
    "EXECUTOR_UNHEALTHY": ("report_executor", "owner"),
    "FINALIZATION_STALLED": ("request_finalization", "owner"),
    "TRUTH_INCONSISTENT": ("request_truth_reconcile", "owner"),
    "OWNER_RECONCILE": ("query_owner_for_truth", "owner"),
    "BLOCKED_ESCALATE": ("send_blocked_escalation", "requester"),
    "NUDGE_MAIN_AGENT": ("send_execution_nudge", "owner"),
    "STALE_PROGRESS": ("noop", ""),
    "HEARTBEAT_DUE": ("noop", ""),
    "OK": ("noop", ""),
}


class Case(NamedTuple):
    """What a row looks at."""

    derived: Derived
    policies: Policies
    memory: Memory
    now: float
    hand: AtHand
    """The blockers and questions that want something now."""
    words: Words

    @property
    def consistent(self) -> bool:
        """Whether nothing contradicts anything."""
        return self.derived.truth_state == "CONSISTENT"


class Row(NamedTuple):
    """One row: its line in the contract, its name, what it answers, when, and in which words."""

    line: int
    name: str
    state: ActionState
    applies: Callable[[Case], bool]
    say: Callable[[Case], Said]


def _within(at: float | None, now: float, seconds: float) -> bool:
    """Whether it was less than that long ago; a time that is still to come was not."""
    return at is not None and 0.0 <= now - at < seconds


# Line 1


def _ended(case: Case) -> bool:
    return case.consistent and case.derived.status in ENDED_STATUSES


def _blocked_and_escalated(case: Case) -> bool:
    derived = case.derived
    settled = case.consistent and derived.status == "BLOCKED" and not case.hand.kind
    goes_on = derived.moved_on or derived.startable
    blocked = {block.node for block in derived.blocks}
    waits = any(question.node not in blocked for question in derived.questions)
    return settled and not goes_on and not (waits and "" not in blocked)


# Line 2


def _makes_way(case: Case, about: str) -> bool:
    """Whether something waits behind this row that must not be hidden, and this has been heard."""
    waiting = bool(case.hand.kind) or not case.consistent
    return waiting and about in case.memory.told


def _is_gone(case: Case) -> bool:
    return any(said.kind == "process_gone" for said in case.derived.suspected.values())


def _makes_way_for_death(case: Case, about: str) -> bool:
    return _makes_way(case, about) or (_is_gone(case) and about in case.memory.told)


def _executor_fails(case: Case) -> bool:
    heard = _makes_way_for_death(case, case.words.executor_fails().about)
    return case.derived.errors >= errors_max and not heard


def _never_converges(case: Case) -> bool:
    """Output is there, errors too, and no success for long: of a task that nobody has ended."""
    derived = case.derived
    if not (derived.outputs and derived.errors) or case.hand.kind:
        return False
    at_large = derived.status in ("RUNNING", "BLOCKED")
    success = derived.last_success_at
    late = success is None or case.now - success >= case.policies.renotify_s
    heard = _makes_way_for_death(case, case.words.never_converges().about)
    return at_large and late and not heard


def _contradicted(case: Case) -> bool:
    return not case.consistent and not only_suspicions(case.derived)


def _suspicious(case: Case) -> bool:
    return not case.consistent


def _may_be_dead(case: Case) -> bool:
    return _is_gone(case) and not _makes_way(case, case.words.may_be_dead().about)


# Line 4


def _explained(case: Case) -> bool:
    derived = case.derived
    return bool(derived.waits_outside) or derived.waits_for_person or derived.suspended


def _silent_for(case: Case, seconds: float) -> bool:
    silence = case.derived.silence_s
    return not _explained(case) and (silence is None or silence >= seconds)


def _wants_a_nudge(case: Case) -> bool:
    expired = any(said.kind == "contract_expired" for said in case.derived.suspected.values())
    return expired or _silent_for(case, case.policies.nudge_after_s)


def _asked_lately(case: Case) -> bool:
    memory, renotify_s = case.memory, case.policies.renotify_s
    return _within(memory.nudged_at, case.now, renotify_s) or _within(
        memory.reconciled_at, case.now, renotify_s
    )


def nudges_that_count(derived: Derived, memory: Memory) -> int:
    """Nudges since the newest progress signal: a newer signal has answered the older ones."""
    if memory.nudged_at is None:
        return 0
    answered = derived.last_progress_at is not None and derived.last_progress_at > memory.nudged_at
    return 0 if answered else memory.nudges


def _nudged_in_vain(case: Case) -> bool:
    used_up = nudges_that_count(case.derived, case.memory) >= case.policies.nudges_max
    return used_up and _wants_a_nudge(case) and not _asked_lately(case)


def _nudge(case: Case) -> bool:
    return _wants_a_nudge(case) and not _asked_lately(case)


def _stale(case: Case) -> bool:
    return _wants_a_nudge(case) or _silent_for(case, case.policies.idle_after_s)


def _heartbeat_late(case: Case) -> bool:
    alive = case.derived.alive_s
    late = alive is None or alive >= case.policies.heartbeat_s
    return late and not _explained(case)


def _always(case: Case) -> bool:
    return True


PRECEDENCE: Final = (
    Row(1, "ended", "STOP_AND_DELETE", _ended, lambda c: c.words.ended()),
    Row(1, "blocked_and_escalated", "STOP_AND_DELETE", _blocked_and_escalated,
        lambda c: c.words.escalated()),
    Row(2, "executor_fails", "EXECUTOR_UNHEALTHY", _executor_fails,
        lambda c: c.words.executor_fails()),
    Row(2, "never_converges", "FINALIZATION_STALLED", _never_converges,
        lambda c: c.words.never_converges()),
    Row(2, "contradicted", "TRUTH_INCONSISTENT", _contradicted, lambda c: c.words.contradicted()),
    Row(2, "suspicious_claim", "OWNER_RECONCILE", _suspicious, lambda c: c.words.suspicious()),
    Row(2, "may_be_dead", "OWNER_RECONCILE", _may_be_dead, lambda c: c.words.may_be_dead()),
    Row(3, "retry_first", "OWNER_RECONCILE", lambda c: c.hand.kind == "retry",
        lambda c: c.words.retry_first(c.hand)),
    Row(3, "output_before_blocker", "OWNER_RECONCILE", lambda c: c.hand.kind == "partial",
        lambda c: c.words.partial(c.hand)),
    Row(3, "blocked", "BLOCKED_ESCALATE", lambda c: c.hand.kind == "escalate",
        lambda c: c.words.blocked(c.hand)),
    Row(4, "nudged_in_vain", "OWNER_RECONCILE", _nudged_in_vain, lambda c: c.words.in_vain()),
    Row(4, "silent", "NUDGE_MAIN_AGENT", _nudge, lambda c: c.words.silent()),
    Row(4, "stale", "STALE_PROGRESS", _stale, lambda c: c.words.stale()),
    Row(4, "heartbeat_late", "HEARTBEAT_DUE", _heartbeat_late, lambda c: c.words.heartbeat()),
    Row(5, "ok", "OK", _always, lambda c: c.words.ok()),
)  # fmt: skip
"""The first row that applies answers; the last one always does."""


def decide_action(
    derived: Derived, policies: Policies, memory: Memory, now: float, *, undelivered: int = 0
) -> Action:
    """The one action for now. Never raises; the same arguments always give the same.

    ``undelivered`` is the number of user updates that are still queued: a close-out gap.
    """
    case = Case(
        derived, policies, memory, now, at_hand(derived, policies, memory, now),
        Words(derived, policies, memory),
    )  # fmt: skip
    row = next(row for row in PRECEDENCE if row.applies(case))
    said = row.say(case)
    verb, to = _ACTS[row.state]
    gaps = derived.close_out_gaps if row.line == 1 else ()
    if row.line == 1 and undelivered:
        gaps = (*gaps, f"close_out:updates_undelivered:{undelivered}")
    return Action(
        row.state,
        said.reason,
        verb,
        said.next_action,
        line=row.line,
        row=row.name,
        due=verb != "noop" and not _said_lately(case, row, said),
        to=to,
        about=said.about,
        step=said.step,
        keys=said.keys,
        gaps=gaps,
    )


def _said_lately(case: Case, row: Row, said: Said) -> bool:
    """Whether to hold it back; lines 1 and 4 have their own clocks: the end, and the silence.

    That an executor fails is said once while a person has been asked what is to become of it.
    """
    last = case.memory.told.get(said.about)
    if row.state == "EXECUTOR_UNHEALTHY" and case.derived.waits_for_person and last is not None:
        return True
    return row.line in (2, 3) and _within(last, case.now, case.policies.renotify_s)


def remember(memory: Memory, derived: Derived, action: Action, now: float) -> Memory:
    """The memory after an action was carried out at ``now``; to be stored before it is sent."""
    changes: dict[str, object] = {
        "last_action": action.state,
        "last_reason": action.reason,
        "last_action_at": now,
        "nudges": nudges_that_count(derived, memory),
    }
    if action.due:
        others = {about: at for about, at in memory.told.items() if about != action.about}
        changes["told"] = dict(list({**others, action.about: now}.items())[-told_kept_max:])
        if action.state == "NUDGE_MAIN_AGENT":
            changes |= {"nudges": nudges_that_count(derived, memory) + 1, "nudged_at": now}
        elif action.state == "OWNER_RECONCILE":
            changes |= {"reconciles": memory.reconciles + 1, "reconciled_at": now}
        elif action.state == "BLOCKED_ESCALATE":
            standing = {block.key for block in derived.blocks}
            standing |= {question.key for question in derived.questions}
            known = {key: at for key, at in memory.escalated.items() if key in standing}
            changes["escalated"] = {**known, **dict.fromkeys(action.keys, now)}
            changes["escalated_at"] = now
    return msgspec.structs.replace(memory, **changes)
