"""The journal, folded: what every prefix of it means.

``Replica.apply`` is the one place where a committed event changes the state. Invariants: it is a
function of state and event alone; it never refuses (what is committed is a fact) and ignores kinds
and nodes it does not know; replaying a prefix gives the same bytes as having lived it. The
indexes are derived from the state and are never stored.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, get_args

import msgspec
from msgspec import UNSET

from perdure.core.events import Event
from perdure.core.model import (
    CLOSED_STATES,
    FAILURE_CLASSES,
    NODE_STATES,
    TASK_STATES,
    ActiveContract,
    Artifact,
    Executor,
    Integrity,
    Node,
    NodeState,
    Policies,
    Question,
    Spec,
    State,
    Steering,
    op_time_ms,
    ops_kept_max,
    text_digest,
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
            _remember_op(state, event.op, event.seq)
        fold = _FOLDS.get(event.kind)
        if fold is not None:
            fold(self, event, event.payload)
        elif event.kind not in _PLAIN:
            state.ignored_kinds[event.kind] = state.ignored_kinds.get(event.kind, 0) + 1

    def apply_all(self, events: Iterable[Event]) -> None:
        """Take a whole commit."""
        for event in events:
            self.apply(event)


def _remember_op(state: State, op: str, seq: int) -> None:
    if op in state.ops:
        return
    state.ops[op] = seq
    if len(state.ops) > ops_kept_max:
        oldest = next(iter(state.ops))
        del state.ops[oldest]
        state.ops_forgotten_ms = max(state.ops_forgotten_ms, op_time_ms(oldest))


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


def _ended(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    replica.state.terminal = True
    replica.state.outcome = text(payload.get("outcome"))


_SAME_STATE: Final[dict[str, NodeState]] = {state: state for state in get_args(NodeState)}
"""The one string for each state: a default is left out of a record by its identity, so an equal
string that came from a line would be written where a snapshot that was read back has none."""


def _transition(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    state, target = replica.state, payload.get("to")
    if event.entity.type == "task":
        if target in TASK_STATES:
            state.fsm_task = target
        return
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
        state.contracts.pop(node.invocation, None)
    if target == "RUNNING":
        _enter_running(state, node, event, payload)
    elif target == "RETRYABLE":
        _enter_retryable(node, payload)
    elif target == "BLOCKED":
        node.blocked = {"reason": payload.get("reason"), "wake": payload.get("wake")}
    elif target in ("DONE", "READY", "QUARANTINED", "CANCELLED"):
        node.blocked = None
        if target == "DONE":
            node.failure_class = None
            node.diagnosis = ""
        if target in CLOSED_STATES:
            _close_questions(state, node.node_id)


def _enter_running(state: State, node: Node, event: Event, payload: Mapping[str, Any]) -> None:
    node.attempts += 1
    node.blocked = None
    node.invocation = text(payload.get("invocation")) or text_or_none(payload.get("contract"))
    if node.invocation is None:
        return
    if node.spec.map is not None:  # its verdict comes when the contract is no longer in force
        node.contract_sha256 = text(payload.get("contract_sha256"))
    who = payload.get("executor")
    state.contracts[node.invocation] = ActiveContract(
        node.invocation,
        node.node_id,
        record(who, Executor) or Executor(text(who, event.actor)),
        event.epoch,
        number(payload.get("issued_at")) or 0.0,
        number(payload.get("expires_at")),
        text(payload.get("contract_sha256")),
    )


def _enter_retryable(node: Node, payload: Mapping[str, Any]) -> None:
    found = payload.get("failure_class")
    if found in FAILURE_CLASSES:
        node.failure_class = found
    node.diagnosis = text(payload.get("diagnosis")) or text(payload.get("signature"))
    if payload.get("interruption"):
        node.interruptions += 1
    else:
        node.strikes += 1
        node.method_strikes += 1
        node.strikes_by_method = {**node.strikes_by_method, node.method: node.method_strikes}


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
    elif op == "amend_node":
        if node is not None and isinstance(after, Mapping):
            _amend_node(replica, node, after, event)
    elif op == "attach_artifact":
        if node is not None:
            _attach(node, text(payload.get("artifact")))
    elif op == "quarantine_artifact":
        _restate(replica, target, "quarantined", text_or_none(payload.get("moved_to")))
        node = state.nodes.get(text(payload.get("node")))
        if node is not None:
            node.artifacts = tuple(name for name in node.artifacts if name != target)
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
        _close_questions(replica.state, predecessor.node_id)


_AMENDED: Final = ("title", "priority", "verification_level", "resume_policy", "effect", "spec")


def _amend_node(replica: Replica, node: Node, after: Mapping[str, Any], event: Event) -> None:
    node.amended_by = (*node.amended_by, event.ref)
    amended = record({**msgspec.to_builtins(node), **after, "node_id": node.node_id}, Node)
    if amended is None:
        return
    for field in _AMENDED:
        setattr(node, field, getattr(amended, field))
    if "spec" in after:  # another spec is another method: what failed was the old one
        node.strikes_by_method, node.method_strikes = {}, 0
        if node.state != "BLOCKED":  # what it waits for is not answered by another spec
            _close_questions(replica.state, node.node_id)
    old_deps = node.deps
    node.deps = tuple(dict.fromkeys(amended.deps))
    for dep in old_deps:
        if dep not in node.deps:
            replica.dependents[dep].remove(node.node_id)
    for dep in node.deps:
        if dep not in old_deps:
            replica.dependents.setdefault(dep, []).append(node.node_id)


def _decision(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    state, op = replica.state, payload.get("op")
    state.decisions += 1
    if op == "ask":
        question_id = text(payload.get("question_id"), event.ref)
        state.questions[question_id] = Question(
            question_id,
            text(payload.get("question")),
            text_or_none(payload.get("node")),
            event.ref,
            texts(payload.get("options")),
            text(payload.get("default")),
        )
    elif op == "answer":
        state.questions.pop(text(payload.get("question_id")), None)
    elif op in ("method", "retry"):
        node = state.nodes.get(text(payload.get("node")))
        if node is not None:
            method = text(payload.get("method"), node.method)
            node.method = method
            node.method_strikes = node.strikes_by_method.get(method, 0)
            _close_questions(state, node.node_id)


def _close_questions(state: State, node_id: str) -> None:
    for question_id in [q.question_id for q in state.questions.values() if q.node == node_id]:
        del state.questions[question_id]


def _goal_amended(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    state = replica.state
    state.goal_amendments += 1
    state.goal_statement = text(payload.get("new"), state.goal_statement)


def _steering(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    steering_id = text(payload.get("id"), event.entity.id)
    digest = text_digest(text(payload.get("verbatim")))
    replica.state.steering[steering_id] = Steering(event.ref, digest)


def _note(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    op = payload.get("op")
    if op == "hint":
        replica.state.next_hint = text(payload.get("text"))
    elif op == "source":
        replica.state.source = mapping(payload.get("source"))


def _heartbeat(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    contract = replica.state.contracts.get(text(payload.get("invocation")))
    if contract is not None:
        contract.last_beat_at = number(payload.get("at"))
        if contract.expires_at is not None:
            contract.expires_at = number(payload.get("expires_at")) or contract.expires_at


def _receipt(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    node = replica.state.nodes.get(text(payload.get("node"), event.entity.id))
    if node is not None:
        node.receipt = text(payload.get("id"), event.ref)


_FOLDS: Final[dict[str, Callable[[Replica, Event, Mapping[str, Any]], None]]] = {
    "INSTANCE_STARTED": _started,
    "INSTANCE_ENDED": _ended,
    "STATE_TRANSITION": _transition,
    "ARTIFACT_REGISTERED": _registered,
    "AMENDMENT": _amendment,
    "DECISION": _decision,
    "GOAL_AMENDED": _goal_amended,
    "STEERING_LOGGED": _steering,
    "NOTE": _note,
    "HEARTBEAT": _heartbeat,
    "RECEIPT": _receipt,
}
_PLAIN: Final = frozenset(
    {
        "STEP_PROGRESS", "STEP_COMPLETED", "TASK_COMPLETED", "BLOCKED_CONFIRMED",
        "OWNER_RESUMED", "OWNER_REPLY_RECORDED", "EXTERNAL_OBSERVED", "DOWNLOAD_OBSERVED",
    }
)  # fmt: skip
