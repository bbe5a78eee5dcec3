"""The journal, folded: what every prefix of it means.

``Replica.apply`` is the one place where a committed event changes the state. Invariants: it is a
function of state and event alone; it never refuses (what is committed is a fact) and ignores kinds
and nodes it does not know; replaying a prefix gives the same bytes as having lived it. The
indexes are derived from the state and are never stored.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET

from perdure.core.codec import moment, op_time_ms
from perdure.core.dispatching import Parent
from perdure.core.events import Event
from perdure.core.fold_closing import (
    CLOSING_DECISIONS,
    CLOSING_NOTES,
    fold_correction,
    fold_masked,
)
from perdure.core.fold_dispatch import DISPATCH_DECISIONS, DISPATCH_NOTES
from perdure.core.fold_moves import fold_transition
from perdure.core.fold_observed import OBSERVATIONS, note_heartbeat, note_progress
from perdure.core.fold_people import (
    close_overtaken,
    close_questions_of,
    fold_acknowledged,
    fold_decision,
    fold_directive,
    fold_goal,
    fold_steering,
    mark_steered,
    note_contact,
)
from perdure.core.model import (
    AMENDABLE_FIELDS,
    DIRECTED,
    Artifact,
    Integrity,
    Node,
    Policies,
    Spec,
    State,
    ops_kept_max,
)
from perdure.core.payload import mapping, number, record, text, text_or_none, texts


class Replica:
    """A state and the indexes over it that decisions need in constant time."""

    __slots__ = ("dependents", "paths", "state")

    def __init__(self, state: State | None = None) -> None:
        self.state = state if state is not None else State()
        self.dependents: dict[str, list[str]] = {}
        """Node id to the nodes that name it in their deps."""
        self.paths: dict[str, str] = {}
        """Path to the artifact that is registered there now."""
        for node in self.state.nodes.values():
            for dep in node.deps:
                self.dependents.setdefault(dep, []).append(node.node_id)
        for artifact_id, artifact in self.state.artifacts.items():
            if artifact.status != "quarantined":
                self.paths[artifact.path] = artifact_id

    def apply(self, event: Event) -> None:
        """Take one committed event into the state."""
        state = self.state
        state.seq = event.seq
        state.updated_at = event.ts
        state.epoch = max(state.epoch, event.epoch)
        if event.op is not UNSET:
            _remember_op(state, event.op, event)
        if event.actor.startswith("sponsor:") or event.kind == "STEERING_LOGGED":
            note_contact(state, event)
        if "masked" in event.payload:
            fold_masked(state, event.payload["masked"])
        fold = _FOLDS.get(event.kind)
        if fold is not None:
            fold(self, event, event.payload)
        elif (state_fold := _STATE_FOLDS.get(event.kind)) is not None:
            state_fold(state, event, event.payload)
        else:
            state.ignored_kinds[event.kind] = state.ignored_kinds.get(event.kind, 0) + 1

    def apply_all(self, events: Iterable[Event]) -> None:
        """Take a whole commit."""
        for event in events:
            self.apply(event)


def _remember_op(state: State, op: str, event: Event) -> None:
    if op in state.ops:
        return
    state.ops[op] = event.seq
    if len(state.ops) > ops_kept_max:
        oldest = next(iter(state.ops))
        del state.ops[oldest]
        made_ms, at = op_time_ms(oldest), moment(event.ts)
        if at is not None:  # a sender whose clock is ahead does not make later ids look old
            made_ms = min(made_ms, int(at * 1000))
        state.ops_forgotten_ms = max(state.ops_forgotten_ms, made_ms)


def _started(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    state = replica.state
    if state.created:
        return
    state.task_id = text(payload.get("task")) or text(payload.get("task_id"), event.entity.id)
    state.goal_statement = text(payload.get("goal")) or text(payload.get("desc"))
    state.acceptance = texts(payload.get("acceptance"))
    state.created = event.ts or "unknown"
    tier = payload.get("tier")
    state.tier = int(tier) if tier in (0, 1, 2) else 1
    state.policies = record(payload.get("policies"), Policies) or Policies()
    state.people = mapping(payload.get("people"))
    state.standing_authorities = texts(payload.get("standing_authorities"))
    state.source = mapping(payload.get("source"))
    state.delegation = {k: text(v) for k, v in mapping(payload.get("delegation")).items()}
    state.parent = record(payload.get("parent"), Parent)
    state.sop = mapping(payload.get("sop"))
    note_progress(state, event)


def _ended(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    replica.state.terminal = True
    replica.state.outcome = text(payload.get("outcome"))


def _registered(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    integrity = record(payload.get("integrity"), Integrity)
    if integrity is None:
        integrity = Integrity("size+mtime", "", -1, event.ts, weak=True)
    artifact = Artifact(
        path=text(payload.get("path")),
        kind=text(payload.get("kind")),
        produced_by_node=text_or_none(payload.get("produced_by_node")),
        produced_by_invocation=text_or_none(payload.get("produced_by_invocation")),
        integrity=integrity,
        status=text(payload.get("status"), "current"),
        commit_event=event.seq,
        repo=text_or_none(payload.get("repo")),
    )
    artifact_id, state = event.entity.id, replica.state
    _restate(replica, artifact_id, "quarantined")  # ours never have one id twice
    state.artifacts.pop(artifact_id, None)
    state.artifacts[artifact_id] = artifact
    if artifact.status != "quarantined":
        replica.paths[artifact.path] = artifact_id
    for old in texts(payload.get("supersedes")):
        _restate(replica, old, f"superseded(by:{artifact_id})")
    if artifact.status == "current":
        note_progress(state, event)
    if artifact.produced_by_node in state.nodes:
        _attach(state.nodes[artifact.produced_by_node], artifact_id)


def _restate(replica: Replica, artifact_id: str, status: str, path: str | None = None) -> None:
    old = replica.state.artifacts.get(artifact_id)
    if old is None:
        return
    new = msgspec.structs.replace(old, status=status)
    if path is not None and path != old.path:
        new = msgspec.structs.replace(new, path=path, origin=old.path)
    replica.state.artifacts[artifact_id] = new
    if replica.paths.get(old.path) == artifact_id:
        del replica.paths[old.path]
    if status != "quarantined":
        replica.paths[new.path] = artifact_id


def _attach(node: Node, artifact_id: str) -> None:
    if artifact_id not in node.artifacts:
        node.artifacts = (*node.artifacts, artifact_id)


def _amendment(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    state, op = replica.state, payload.get("op")
    target = text(payload.get("target"), event.entity.id)
    node, after = state.nodes.get(target), payload.get("after")
    if op == "add_node":
        if isinstance(after, Mapping) and node is None:
            _add_node(replica, target, after, event)
            if "steering" in payload:
                mark_steered(state, target, event, "corrective node")
    elif op == "amend_node":
        if node is not None and isinstance(after, Mapping):
            _amend_node(replica, node, after, event)
            if "steering" in payload:
                mark_steered(state, target, event, "amended")
    elif op == "direct_task":
        fold_directive(state, event, payload)
    elif op == "attach_artifact":
        if node is not None:
            _attach(node, text(payload.get("artifact")))
    elif op == "quarantine_artifact":
        _restate(replica, target, "quarantined", text_or_none(payload.get("moved_to")))
        node = state.nodes.get(text(payload.get("node")))
        if node is not None:
            node.artifacts = tuple(name for name in node.artifacts if name != target)
    elif op == "correct_audit":
        fold_correction(state, event, payload)
    elif op == "supersede_artifact":
        status = f"superseded(by:{text(payload.get('by'))})"
        _restate(replica, target, status, text_or_none(payload.get("moved_to")))


def _add_node(replica: Replica, node_id: str, after: Mapping[str, Any], event: Event) -> None:
    node = record({**after, "node_id": node_id}, Node)
    if node is None:
        node = Node(node_id, text(after.get("title"), node_id), Spec(draft=True))
    node.notes_ref = node.notes_ref or event.ref
    node.deps = tuple(dict.fromkeys(node.deps))
    replica.state.nodes[node_id] = node
    for dep in node.deps:
        replica.dependents.setdefault(dep, []).append(node_id)
    predecessor = replica.state.nodes.get(text(after.get("successor_of")))
    if predecessor is not None and predecessor is not node:
        predecessor.successors = (*predecessor.successors, node_id)
        node.replans = max(node.replans, predecessor.replans + 1)
        close_questions_of(replica.state, predecessor.node_id, event.ref)


_AMENDED: Final = (*AMENDABLE_FIELDS, "spec", "directives", "plan")


def _amend_node(replica: Replica, node: Node, after: Mapping[str, Any], event: Event) -> None:
    node.amended_by = (*node.amended_by, event.ref)
    amended = record({**msgspec.to_builtins(node), **after, "node_id": node.node_id}, Node)
    if amended is None:
        return
    for field in _AMENDED:
        setattr(node, field, getattr(amended, field))
    directed = text(after.get(DIRECTED))
    if directed and directed not in node.directives:
        node.directives = (*node.directives, directed)
    if "spec" in after:  # another spec is another method: what failed was the old one
        node.strikes_by_method, node.method_strikes = {}, 0
    close_overtaken(replica.state, node, event.ref, respecified="spec" in after)
    old_deps = node.deps
    node.deps = tuple(dict.fromkeys(amended.deps))
    for dep in old_deps:
        if dep not in node.deps:
            replica.dependents[dep].remove(node.node_id)
    for dep in node.deps:
        if dep not in old_deps:
            replica.dependents.setdefault(dep, []).append(node.node_id)


def _note(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    op = payload.get("op")
    if op == "note":
        return  # most of them, and a replay goes through all
    if op == "acknowledged":
        fold_acknowledged(replica.state, event, payload)
    elif op == "hint":
        replica.state.next_hint = text(payload.get("text"))
    elif op == "source":
        replica.state.source = mapping(payload.get("source"))
    elif (fold := _NOTES.get(text(op))) is not None:
        fold(replica.state, event, payload)


def _heartbeat(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    note_heartbeat(replica.state, event, payload)
    contract = replica.state.contracts.get(text(payload.get("invocation")))
    if contract is not None:
        contract.last_beat_at = number(payload.get("at"))
        if contract.expires_at is not None:
            contract.expires_at = number(payload.get("expires_at")) or contract.expires_at


def _receipt(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    node = replica.state.nodes.get(text(payload.get("node"), event.entity.id))
    if node is not None:
        node.receipt = text(payload.get("id"), event.ref)


_NOTES: Final = {**DISPATCH_NOTES, **CLOSING_NOTES}
_DECISIONS: Final = {**DISPATCH_DECISIONS, **CLOSING_DECISIONS}


def _decision(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    fold = _DECISIONS.get(text(payload.get("op")), fold_decision)
    fold(state, event, payload)


_FOLDS: Final[dict[str, Callable[[Replica, Event, Mapping[str, Any]], None]]] = {
    "INSTANCE_STARTED": _started,
    "INSTANCE_ENDED": _ended,
    "ARTIFACT_REGISTERED": _registered,
    "AMENDMENT": _amendment,
    "NOTE": _note,
    "HEARTBEAT": _heartbeat,
    "RECEIPT": _receipt,
}
_STATE_FOLDS: Final[dict[str, Callable[[State, Event, Mapping[str, Any]], None]]] = {
    "STATE_TRANSITION": fold_transition,
    "DECISION": _decision,
    "GOAL_AMENDED": fold_goal,
    "STEERING_LOGGED": fold_steering,
    **OBSERVATIONS,
}
"""Those that need no index."""
