"""The fold of dispatched work: slots, resolutions, usage, audits.

Job: what the journal says of workers that were sent, applied to the state. Invariants: those of
``fold``, which calls this; only live slots are kept; the rate of first deaths is taken over the
newest resolutions of work that a coordinator dispatched, and over nothing else (PD-H1).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from perdure.core.budget import with_usage
from perdure.core.dispatching import (
    DISPATCH_MODES,
    Audit,
    Slot,
    Usage,
)
from perdure.core.events import Event
from perdure.core.health import Resolution, end_of_attempt, end_of_slot, resolved
from perdure.core.model import ActiveContract, Node, State
from perdure.core.payload import number, record, text


def note_end(
    state: State, contract: ActiveContract | None, event: Event, payload: Mapping[str, Any]
) -> None:
    """Work under a contract is over: one resolution, where it counts."""
    node = state.nodes.get(event.entity.id)
    batch = node is not None and node.spec.map is not None
    _resolve(state, end_of_attempt(contract, payload, batch=batch))


def _resolve(state: State, end: Resolution | None) -> None:
    if end is not None:
        state.health = resolved(state.health, state.policies, end)


def note_usage(node: Node, payload: Mapping[str, Any]) -> None:
    """Add what an attempt has used to what is known of the node."""
    used = record(payload["usage"], Usage) if "usage" in payload else None
    if used is not None:
        node.usage = with_usage(node.usage, used)


def abandon_slots(state: State, node_id: str) -> None:
    """The node is closed: nothing that its workers still bring counts."""
    for name in [slot.invocation_id for slot in state.slots.values() if slot.node == node_id]:
        del state.slots[name]


def _opened(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    slot = Slot(
        event.entity.id,
        text(payload.get("node")),
        text(payload.get("executor")),
        event.epoch,
        number(payload.get("at")) or 0.0,
        int(number(payload.get("units")) or 0),
        text(payload.get("contract_sha256")),
    )
    if slot.node in state.nodes:
        state.slots[slot.invocation_id] = slot


def _closed(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    slot = state.slots.pop(event.entity.id, None)
    if slot is None:
        return
    node = state.nodes.get(slot.node)
    if node is not None:
        note_usage(node, payload)
    _resolve(state, end_of_slot(payload))


def _suspected(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    held = state.slots.get(event.entity.id) or state.contracts.get(event.entity.id)
    if held is not None:
        held.suspected = event.ref


def _mode(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    mode, health = payload.get("mode"), state.health
    if mode not in DISPATCH_MODES:
        return
    if (mode, bool(payload.get("by_hand"))) != (health.mode, health.by_hand):
        health.since = event.ref
    if health.mode == "C" and mode != "C":
        health.environment_failures = 0
    if payload.get("clear_window"):
        health.window = ()
    health.mode = mode
    health.by_hand = bool(payload.get("by_hand"))
    health.probing = bool(payload.get("probing"))
    if health.probing:  # what was before the probe says nothing of what comes after it
        health.environment_failures = 0


def _audit(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    node = state.nodes.get(event.entity.id)
    if node is None:
        return
    audit = record({**payload, "ref": event.ref}, Audit)
    if audit is not None:
        node.audit = audit
    note_usage(node, payload)


def _plan(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    """It is there to be read; the graph says what is done."""


DISPATCH_DECISIONS: Final[dict[str, Callable[[State, Event, Mapping[str, Any]], None]]] = {
    "slot": _opened,
    "mode": _mode,
    "plan": _plan,
}
DISPATCH_NOTES: Final[dict[str, Callable[[State, Event, Mapping[str, Any]], None]]] = {
    "slot_closed": _closed,
    "suspected": _suspected,
    "audit": _audit,
}

__all__ = [
    "DISPATCH_DECISIONS", "DISPATCH_NOTES", "abandon_slots", "note_end",
    "note_usage",
]  # fmt: skip
