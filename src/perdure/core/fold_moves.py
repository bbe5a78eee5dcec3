"""The fold of moves: what it means for a node, or the task, to take an edge.

Job: STATE_TRANSITION events, applied to the state. Invariants: those of ``fold``, which calls this;
whether a move was legal was decided before it was committed.
"""

from collections.abc import Mapping
from typing import Any, Final, get_args

import msgspec

from perdure.core.batch import is_automatic
from perdure.core.events import Event
from perdure.core.failure_text import as_seen
from perdure.core.fold_dispatch import abandon_slots, note_end, note_usage
from perdure.core.fold_observed import note_transition
from perdure.core.fold_people import (
    close_gate_questions_of,
    close_questions_of,
    mark_reached,
    mark_steered,
)
from perdure.core.model import (
    CLOSED_STATES,
    FAILURE_CLASSES,
    NODE_STATES,
    TASK_STATES,
    ActiveContract,
    Executor,
    Node,
    NodeState,
    Spec,
    State,
)
from perdure.core.payload import number, record, text, text_or_none, texts
from perdure.core.people import Failure, failures_kept_max
from perdure.core.tiers import owes_receipt

_SAME_STATE: Final[dict[str, NodeState]] = {state: state for state in get_args(NodeState)}
"""The one string for each state: a default is left out of a record by its identity, so an equal
string that came from a line would be written where a snapshot that was read back has none."""


def fold_transition(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    """Take an edge of FSM-N, of FSM-T, or of the phases of an instance."""
    target = payload.get("to")
    if event.entity.type == "instance":
        state.phase = text(target)
    elif event.entity.type != "task":
        _move_node(state, event, payload, target)
    elif target in TASK_STATES:
        state.fsm_task = target
        if target == "ARCHIVED":
            state.closing = msgspec.structs.replace(state.closing, sub_state="PROCESS_COMPLETE")


def _move_node(state: State, event: Event, payload: Mapping[str, Any], target: Any) -> None:
    if target not in NODE_STATES:
        return
    node = state.nodes.get(event.entity.id)
    if node is None:  # a journal written by others, who keep their graph elsewhere
        node = Node(event.entity.id, event.entity.id, Spec(draft=True), notes_ref=event.ref)
        state.nodes[node.node_id] = node
    left = node.state
    node.state = _SAME_STATE[target]
    node.state_ref = event.ref
    if left == "RUNNING" and node.invocation is not None:
        ended = state.contracts.pop(node.invocation, None)
        note_end(state, ended, event, payload)
        note_usage(node, payload)
    if target in CLOSED_STATES:
        abandon_slots(state, node.node_id)
    if target == "RUNNING":
        _enter_running(state, node, event, payload)
    elif target == "RETRYABLE":
        _enter_retryable(node, event, payload)
        if left == "VERIFYING":  # what its gates asked about is not there any more
            close_gate_questions_of(state, node.node_id, event.ref)
    elif target == "BLOCKED":
        node.blocked = {"reason": payload.get("reason"), "wake": payload.get("wake")}
    elif target in ("DONE", "READY", "QUARANTINED", "CANCELLED"):
        node.blocked = None
        if target == "DONE":
            node.failure_class = None
            node.diagnosis = ""
        if target in CLOSED_STATES:
            close_questions_of(state, node.node_id, event.ref)
    _count(state, node, event, payload)


_RECALLS: Final = frozenset({"N04", "N05", "N07"})
"""Edges by which an instruction ends an attempt."""


def _count(state: State, node: Node, event: Event, payload: Mapping[str, Any]) -> None:
    """What a move means beyond the node's state: for GE-4, for steering, for supervision."""
    edge = payload.get("edge")
    if edge in ("N07", "N08") and not payload.get("interruption"):
        node.checks_failed += 1
    elif edge == "N12":
        node.replans += 1
    if node.state == "QUARANTINED":  # what takes its place may be there already
        known = [name for name in texts(payload.get("successors")) if name in state.nodes]
        node.successors = tuple(dict.fromkeys((*node.successors, *known)))
    if "steering" in payload and edge in _RECALLS:
        mark_steered(state, node.node_id, event, "recalled")
    note_transition(state, node, event)


def _enter_running(state: State, node: Node, event: Event, payload: Mapping[str, Any]) -> None:
    node.attempts += 1
    node.blocked = None
    if node.effect == "S2" and owes_receipt(state.tier, "S2"):
        node.receipt = None  # what can be repeated is, and each attempt proves its own (C-S2)
    if node.steered:
        mark_reached(state, node, event.ref)
    node.invocation = text(payload.get("invocation")) or text_or_none(payload.get("contract"))
    node.worker = ""
    if node.invocation is None:
        return
    if node.spec.sop is not None:  # an instance that goes on keeps its name under a new contract
        node.child_ref = text(payload.get("child_ref")) or node.invocation
    if node.spec.map is not None:  # its verdict comes when the contract is no longer in force
        node.contract_sha256 = text(payload.get("contract_sha256"))
    who = payload.get("executor")
    executor = record(who, Executor) or Executor(text(who, event.actor))
    has_it_run = executor.kind == "process" and is_automatic(node.spec)
    if not (has_it_run and executor.actor.startswith("coord")):  # also said as coord:name
        node.worker = executor.actor
    state.contracts[node.invocation] = ActiveContract(
        node.invocation,
        node.node_id,
        executor,
        event.epoch,
        number(payload.get("issued_at")) or 0.0,
        number(payload.get("expires_at")),
        text(payload.get("contract_sha256")),
    )


def _enter_retryable(node: Node, event: Event, payload: Mapping[str, Any]) -> None:
    found = payload.get("failure_class")
    if found in FAILURE_CLASSES:
        node.failure_class = found
    signature = text(payload.get("diagnosis")) or text(payload.get("signature"))
    node.diagnosis = as_seen(signature, text(payload.get("detail")))
    if payload.get("interruption"):
        node.interruptions += 1
    elif "round" not in payload:  # a person wants it otherwise: its rounds are counted instead
        node.strikes += 1
        node.method_strikes += 1
        node.strikes_by_method = {**node.strikes_by_method, node.method: node.method_strikes}
    if payload.get("interruption"):
        return  # nothing that a living coordinator saw go wrong
    failure = Failure(
        event.ref, node.attempts, text(payload.get("failure_class")), signature, node.method
    )
    node.failures = (*node.failures, failure)[-failures_kept_max:]
