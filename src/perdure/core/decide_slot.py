"""Decisions about dispatched workers: slots opened and closed, suspicions, late output, the mode.

Invariants: a slot is on record before its worker is sent and has one owner (FSN-2); it closes with
what the disk was found to hold, never with what the worker says (PD-J1); a suspicion is told once
and ends nothing (RT-3); a change of mode that an end causes is in the commit of that end (PD-H1);
out of a halt leads a probe that survives, or a person (PD-H3).
"""

from typing import Any, Final

import msgspec

from perdure.core import commands as c
from perdure.core import dispatch_commands as d
from perdure.core.dispatching import CAUSES, DEATH_MODES, DISPATCH_MODES, SLOT_ENDS, Slot
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.health import ModeChange, end_of_slot, mode_draft, mode_drafts
from perdure.core.lookup import near, node_of
from perdure.core.model import ActiveContract, State
from perdure.core.naming import check_id, check_text
from perdure.errors import EvidenceError, NotFoundError, RefusedError, TransitionError, UsageError

slots_max: Final = 10_000
"""Workers that are out at once."""


def decide_open(replica: Replica, command: d.OpenSlot, context: c.Context) -> c.Decision:
    """A DECISION that a worker is about to be sent; the earliest claim of an invocation holds."""
    state = replica.state
    node = node_of(state, command.node_id)
    check_id(command.invocation_id, "an invocation id")
    if command.units < 1:
        raise UsageError(
            f"slot {command.invocation_id} has no units.",
            code="bad_slot",
            rule="PD-C3",
            fix="Send a worker only with units of its own.",
        )
    if node.spec.map is None or node.state != "RUNNING":
        what = "no batch node" if node.spec.map is None else node.state
        raise TransitionError(
            f"{node.node_id} sends no workers: it is {what}.",
            code="not_dispatching",
            rule="FSN-2",
            fix="Start the batch node first; only one at work has slots.",
        )
    if state.health.mode == "C" and not state.health.probing:
        raise RefusedError(
            f"dispatch is halted since {state.health.since or 'before'}: no worker is sent.",
            code="dispatch_halted",
            rule="PD-H3",
            fix="Probe first; or let a person say that it goes on: perdure dispatch A --reason WHY",
        )
    _check_free(state, command.invocation_id)
    payload: dict[str, Any] = {
        "op": "slot",
        "node": node.node_id,
        "executor": command.executor,
        "units": command.units,
        "contract": f"contracts/{command.invocation_id}.json",
        "contract_sha256": command.contract_sha256,
        "attempt": node.attempts,
        "at": context.now,
        "authority": context.actor,
    }
    if command.units_sha256:
        payload["units_sha256"] = command.units_sha256
    return c.Decision((_slot(command.invocation_id, "DECISION", payload, payload["contract"]),))


def _slot(invocation: str, kind: str, payload: dict[str, Any], *evidence: str) -> Draft:
    return Draft(kind, "slot", invocation, payload, evidence)


def _check_free(state: State, invocation: str) -> None:
    held = state.slots.get(invocation) or state.contracts.get(invocation)
    if held is not None:
        raise RefusedError(
            f"{invocation} is taken already, by work on {held.node}: the earlier claim holds.",
            code="slot_taken",
            rule="FSN-2",
            fix="Stand down; a worker of its own needs a contract of its own.",
        )
    if len(state.slots) >= slots_max:
        raise RefusedError(
            f"{slots_max} workers are out, and that is the most.",
            code="limit",
            rule="FSN-2",
            fix="Send more when some of them are back.",
        )


def _open_slot(state: State, invocation: str) -> Slot:
    slot = state.slots.get(invocation)
    if slot is None:
        raise NotFoundError(
            f"there is no open slot {invocation}.",
            code="unknown_slot",
            rule="PD-J1",
            fix="It is closed already, or its node is; what comes in now is late output.",
            suggestions=near(invocation, state.slots),
        )
    return slot


def decide_close(replica: Replica, command: d.CloseSlot, context: c.Context) -> c.Decision:
    """A NOTE of what the disk holds of a slot, and with it the change of mode that it causes."""
    state = replica.state
    slot = _open_slot(state, command.invocation_id)
    _check_close(slot, command)
    payload: dict[str, Any] = {
        "op": "slot_closed",
        "text": command.observation or f"{command.landed} of {slot.units} units landed",
        "node": slot.node,
        "end": command.end,
        "units": slot.units,
        "landed": command.landed,
        "left": command.left,
    }
    if command.end in DEATH_MODES:
        payload |= {
            "first": command.first and not command.landed,
            "observation": command.observation,
        }
    if command.cause:
        payload["cause"] = command.cause
    if command.usage is not None:
        payload["usage"] = msgspec.to_builtins(command.usage)
    closed = _slot(command.invocation_id, "NOTE", payload)
    return c.Decision((closed, *mode_drafts(state, end_of_slot(payload))))


def _check_close(slot: Slot, command: d.CloseSlot) -> None:
    """Raise UsageError for an end that cannot be, EvidenceError for a landing without output."""
    if command.end not in SLOT_ENDS or command.cause not in CAUSES:
        said, known = (
            (command.end, SLOT_ENDS) if command.end not in SLOT_ENDS else (command.cause, CAUSES)
        )
        raise UsageError(
            f"{said!r} is no end of a slot and no cause of one.",
            code="bad_slot",
            rule="PD-J1",
            fix=f"Use one of {', '.join(filter(None, known))}.",
        )
    counts = (command.landed, command.left)
    if min(counts) < 0 or sum(counts) > slot.units:
        raise UsageError(
            f"slot {slot.invocation_id} has {slot.units} units; {command.landed} landed and"
            f" {command.left} left cannot be.",
            code="bad_slot",
            rule="PD-J1",
            fix="Count the units of its contract once each.",
        )
    if command.end == "landed" and command.left == slot.units:
        raise EvidenceError(
            f"slot {slot.invocation_id} has not landed: the disk holds none of its {slot.units}"
            " units.",
            fix="Close it as silent; its units go back to be dispatched again.",
        )
    if command.end in DEATH_MODES:
        check_text(command.observation, "observation of a death")


def decide_suspect(replica: Replica, command: d.Suspect, context: c.Context) -> c.Decision:
    """A NOTE that a worker may be dead, with observation and policy; once, and it ends nothing."""
    state = replica.state
    contract: ActiveContract | None = state.contracts.get(command.invocation_id)
    held = contract if contract is not None else _open_slot(state, command.invocation_id)
    kind = "contract" if contract is not None else "slot"
    if held.suspected:
        return c.Decision(answer=held.suspected)
    check_text(command.policy, "policy")
    payload = {
        "op": "suspected",
        "text": f"no sign of {command.invocation_id} for {command.silent_s:.0f} s; by policy it is"
        " suspected dead, and nothing is ended",
        "node": held.node,
        "silent_s": round(command.silent_s, 3),
        "threshold_s": round(command.threshold_s, 3),
        "policy": command.policy,
        "last_sign": command.last_sign,
    }
    return c.Decision((Draft("NOTE", kind, command.invocation_id, payload),))


def decide_late(replica: Replica, command: d.RecordLate, context: c.Context) -> c.Decision:
    """A NOTE of output that came after its slot was closed: judged and landed, or set aside."""
    state = replica.state
    node = node_of(state, command.node_id)
    if command.invocation_id in state.slots:
        raise RefusedError(
            f"slot {command.invocation_id} is open: its output is not late.",
            code="slot_open",
            rule="RT-3",
            fix="Close the slot with what the disk holds.",
        )
    if bool(command.set_aside) == (command.landed > 0) or command.landed < 0:
        raise UsageError(
            "late output is either landed or set aside.",
            code="bad_slot",
            rule="RT-3",
            fix="Give the number of units that landed, or the path that it was moved to.",
        )
    if command.landed and node.state != "RUNNING":
        raise TransitionError(
            f"{node.node_id} is {node.state}: late output does not count for it any more.",
            code="not_dispatching",
            rule="RT-3",
            fix="Set it aside.",
        )
    payload: dict[str, Any] = {
        "op": "late_output",
        "text": command.why or "output came in after its slot was closed",
        "node": node.node_id,
        "landed": command.landed,
    }
    if command.set_aside:
        payload["set_aside"] = command.set_aside
    return c.Decision((_slot(command.invocation_id, "NOTE", payload),))


def decide_mode(replica: Replica, command: d.ChangeMode, context: c.Context) -> c.Decision:
    """A DECISION that dispatch goes on otherwise; none where it is so already.

    A run says that a probe has passed (``probing``, in C alone); everything else is a person's
    word, which clears the window. B and C hold then until a person says otherwise; out of A the
    ends of work lead as ever.
    """
    state, health = replica.state, replica.state.health
    if command.mode not in DISPATCH_MODES:
        raise UsageError(
            f"there is no mode of dispatch {command.mode!r}.",
            code="bad_mode",
            rule="PD-H3",
            fix="Use A (normal), B (untouched work first) or C (halted).",
        )
    check_text(command.reason, "reason")
    if command.probing and (command.mode != "C" or health.mode != "C"):
        raise TransitionError(
            "there is nothing to probe: dispatch is not halted.",
            code="not_halted",
            rule="PD-H3",
            fix="A probe goes out in mode C only.",
        )
    if command.probing and health.by_hand:
        raise RefusedError(
            "dispatch was halted by a person, and only a person lifts that.",
            code="halted_by_hand",
            rule="PD-H3",
            fix="Let somebody say that it goes on: perdure dispatch A --reason WHY",
        )
    by_hand = not command.probing and command.mode != "A"
    wanted = (command.mode, command.probing, by_hand)
    if wanted == (health.mode, health.probing, health.by_hand):
        return c.Decision(answer=health.since)
    change = ModeChange(
        command.mode,
        command.reason,
        command.probing,
        clear_window=not command.probing,
        by_hand=by_hand,
    )
    return c.Decision((mode_draft(state, health, change, authority=context.actor),))
