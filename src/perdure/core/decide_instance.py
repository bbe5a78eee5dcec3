"""Decisions about an instance of a procedure: its plan, and the phase that it is in.

Invariants: a phase is one of those of the card that the instance runs, and is entered from the one
before it (SC-3); only what comes after the work leads back to it, with a reason; an instance that
has reported is at work again only when work has come open again. Never looks at a disk.
"""

from typing import Any, Final

from perdure.core import commands as c
from perdure.core.dispatch_commands import MovePhase, RecordPlan
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.instance import FIRST_PHASES, LAST_PHASES, REPORT
from perdure.core.lookup import near
from perdure.core.machine import open_nodes
from perdure.core.model import DEAD_STATES, State
from perdure.core.naming import check_text
from perdure.core.payload import texts
from perdure.errors import RefusedError, TransitionError

WHY: Final = "why"
"""In the facts of a move back: the reason for it."""


def decide_plan(replica: Replica, command: RecordPlan, context: c.Context) -> c.Decision:
    """What the instance is going to do, on record before it is done.

    Refused for a task that is no instance of a procedure (SC-3).
    """
    state = replica.state
    _require_instance(state)
    payload = {
        "op": "plan",
        "units": dict(command.units),
        "summary": command.summary,
        "authority": context.actor,
    }
    return c.Decision((Draft("DECISION", "instance", state.task_id, payload),))


def decide_phase(replica: Replica, command: MovePhase, context: c.Context) -> c.Decision:
    """One step forward, or back into work. The phase that it is in already answers by itself.

    Forward leads to the next phase of the card and no further; back leads from ``verify`` or
    ``report`` to a phase of work, and names why. Refused: anything else (FSN-1), ``report`` while
    a node may still be done, a task that is no instance (SC-3).
    """
    state, to = replica.state, command.to
    phases = _require_instance(state)
    if to == state.phase:
        return c.Decision()
    if to not in phases:
        raise TransitionError(
            f"{to!r} is no phase of {state.sop.get('id')}.",
            code="unknown_phase",
            fix=f"Its phases are {', '.join(phases)}.",
            suggestions=near(to, phases),
        )
    at = phases.index(state.phase) if state.phase in phases else -1
    target = phases.index(to)
    if target > at + 1:
        raise _refused(state, to, f"the next one is {phases[at + 1]}")
    if target < at:
        _check_back(state, to, command)
    if to == REPORT:
        left = within_reach(replica)
        if left:
            raise _refused(state, to, f"{', '.join(left[:5])} is still open")
    facts = {name: value for name, value in command.facts.items() if name not in ("from", "to")}
    payload: dict[str, Any] = {"from": state.phase, "to": to, "edge": "PHASE", **facts}
    return c.Decision((Draft("STATE_TRANSITION", "instance", state.task_id, payload),))


def within_reach(replica: Replica) -> list[str]:
    """The open nodes that may still be done: not those behind one that was given up for good."""
    nodes = replica.state.nodes
    stack = [n.node_id for n in nodes.values() if n.state in DEAD_STATES and not n.successors]
    lost = set(stack)
    while stack:
        behind = [name for name in replica.dependents.get(stack.pop(), ()) if name not in lost]
        lost.update(behind)
        stack += behind
    return [name for name in open_nodes(replica.state) if name not in lost]


def _check_back(state: State, to: str, command: MovePhase) -> None:
    if state.phase not in LAST_PHASES:
        raise _refused(state, to, "only verify and report lead back")
    if to in FIRST_PHASES or to in LAST_PHASES:
        raise _refused(state, to, "the way back leads to a phase of work")
    check_text(str(command.facts.get(WHY) or ""), "reason for going back")


def _require_instance(state: State) -> tuple[str, ...]:
    """The phases of the card that this instance runs."""
    phases = texts(state.sop.get("phases"))
    if not phases:
        raise RefusedError(
            f"task {state.task_id} is no instance of a procedure, so it has no phases.",
            code="not_an_instance",
            rule="SC-3",
            fix="Run a card: perdure sop run ID",
        )
    return phases


def _refused(state: State, to: str, why: str) -> TransitionError:
    return TransitionError(
        f"the instance cannot go from phase {state.phase or 'none'} to {to}: {why}.",
        code="phase_order",
        fix="`perdure status` tells which phase it is in.",
    )
