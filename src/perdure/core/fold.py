"""The journal, folded: what every prefix of it means.

``Replica.apply`` is the one place where a committed event changes the state. Invariants: it is a
function of state and event alone; it never refuses (what is committed is a fact) and ignores kinds
and nodes it does not know; replaying a prefix gives the same bytes as having lived it. The
indexes are derived from the state and are never stored.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from perdure.core.events import Event
from perdure.core.model import (
    ActiveContract,
    Artifact,
    Executor,
    Integrity,
    Node,
    Policies,
    Question,
    Spec,
    State,
    ops_kept_max,
)

T = TypeVar("T")


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
        state.ops_forgotten_at = state.ops.pop(oldest)


def _started(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    state = replica.state
    if state.created:
        return
    state.task_id = str(payload.get("task") or payload.get("task_id") or event.entity.id)
    state.goal_statement = str(payload.get("goal") or payload.get("desc") or "")
    state.acceptance = tuple(str(line) for line in payload.get("acceptance") or ())
    state.created = event.ts or "unknown"
    tier = payload.get("tier")
    state.tier = tier if isinstance(tier, int) else 1
    state.policies = _record(payload.get("policies"), Policies) or Policies()
    state.people = dict(payload.get("people") or {})
    state.source = dict(payload.get("source") or {})


def _ended(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    replica.state.terminal = True
    replica.state.outcome = str(payload.get("outcome") or "")


def _transition(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    if event.entity.type == "task":
        target = payload.get("to")
        if isinstance(target, str):
            replica.state.fsm_task = target  # type: ignore[assignment]
        return
    target = payload.get("to")
    if not isinstance(target, str):
        return
    node = replica.state.nodes.get(event.entity.id)
    if node is None:  # a journal written by others, who keep their graph elsewhere
        node = Node(event.entity.id, event.entity.id, Spec(draft=True), notes_ref=event.ref)
        replica.state.nodes[node.node_id] = node
    left = node.state
    node.state = target  # type: ignore[assignment]
    node.state_ref = event.ref
    if left == "RUNNING" and node.invocation is not None:
        replica.state.contracts.pop(node.invocation, None)
    if target == "RUNNING":
        _enter_running(replica.state, node, event, payload)
    elif target == "RETRYABLE":
        _enter_retryable(node, payload)
    elif target == "BLOCKED":
        node.blocked = {"reason": payload.get("reason"), "wake": payload.get("wake")}
    elif target in ("DONE", "READY", "QUARANTINED", "CANCELLED"):
        node.blocked = None
        if target == "DONE":
            node.failure_class = None
            node.diagnosis = ""
        if target in ("CANCELLED", "QUARANTINED", "DONE"):
            _close_questions(replica.state, node.node_id)


def _enter_running(state: State, node: Node, event: Event, payload: Mapping[str, Any]) -> None:
    node.attempts += 1
    node.blocked = None
    invocation = payload.get("invocation") or payload.get("contract")
    node.invocation = str(invocation) if invocation is not None else None
    executor = payload.get("executor")
    if node.invocation is None:
        return
    if isinstance(executor, Mapping):
        who = _record(executor, Executor) or Executor(event.actor)
    else:
        who = Executor(str(executor or event.actor))
    state.contracts[node.invocation] = ActiveContract(
        node.invocation,
        node.node_id,
        who,
        event.epoch,
        float(payload.get("issued_at") or 0.0),
        payload.get("expires_at"),
        str(payload.get("contract_sha256") or ""),
    )


def _enter_retryable(node: Node, payload: Mapping[str, Any]) -> None:
    node.failure_class = payload.get("failure_class") or node.failure_class
    node.diagnosis = str(payload.get("diagnosis") or payload.get("signature") or "")
    if payload.get("interruption"):
        node.interruptions += 1
    else:
        node.strikes += 1
        node.method_strikes += 1


def _registered(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    integrity = _record(payload.get("integrity"), Integrity)
    if integrity is None:
        integrity = Integrity("size+mtime", "", -1, event.ts, weak=True)
    node_id = payload.get("produced_by_node")
    artifact = Artifact(
        path=str(payload.get("path") or ""),
        kind=str(payload.get("kind") or ""),
        produced_by_node=node_id,
        produced_by_invocation=payload.get("produced_by_invocation"),
        integrity=integrity,
        status=str(payload.get("status") or "current"),
        commit_event=event.seq,
        repo=payload.get("repo"),
    )
    artifact_id = event.entity.id
    state = replica.state
    state.artifacts[artifact_id] = artifact
    if artifact.status != "quarantined":
        replica.paths[artifact.path] = artifact_id
    for old in payload.get("supersedes") or ():
        _restate(replica, old, f"superseded(by:{artifact_id})")
    if node_id in state.nodes:
        _attach(state.nodes[node_id], artifact_id)


def _restate(replica: Replica, artifact_id: str, status: str, path: str | None = None) -> None:
    old = replica.state.artifacts.get(artifact_id)
    if old is None:
        return
    new = msgspec.structs.replace(old, status=status)
    if path is not None and path != old.path:
        new = msgspec.structs.replace(new, path=path, origin=old.path)
    replica.state.artifacts[artifact_id] = new
    freed = status == "quarantined" or new.path != old.path
    if freed and replica.paths.get(old.path) == artifact_id:
        del replica.paths[old.path]


def _attach(node: Node, artifact_id: str) -> None:
    if artifact_id not in node.artifacts:
        node.artifacts = (*node.artifacts, artifact_id)


def _amendment(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    state, op = replica.state, payload.get("op")
    target = str(payload.get("target") or event.entity.id)
    if op == "add_node":
        after = payload.get("after")
        if isinstance(after, Mapping) and target not in state.nodes:
            _add_node(replica, target, after, event)
    elif op == "amend_node":
        node = state.nodes.get(target)
        after = payload.get("after")
        if node is not None and isinstance(after, Mapping):
            _amend_node(replica, node, after, event)
    elif op == "attach_artifact":
        node = state.nodes.get(target)
        if node is not None:
            _attach(node, str(payload.get("artifact")))
    elif op == "quarantine_artifact":
        _restate(replica, target, "quarantined", payload.get("moved_to"))
        node = state.nodes.get(str(payload.get("node")))
        if node is not None:
            node.artifacts = tuple(name for name in node.artifacts if name != target)
    elif op == "supersede_artifact":
        _restate(replica, target, f"superseded(by:{payload.get('by')})", payload.get("moved_to"))


def _add_node(replica: Replica, node_id: str, after: Mapping[str, Any], event: Event) -> None:
    node = _record({**after, "node_id": node_id}, Node)
    if node is None:
        node = Node(node_id, str(after.get("title") or node_id), Spec(draft=True))
    node.notes_ref = node.notes_ref or event.ref
    replica.state.nodes[node_id] = node
    for dep in node.deps:
        replica.dependents.setdefault(dep, []).append(node_id)
    predecessor = replica.state.nodes.get(str(after.get("successor_of")))
    if predecessor is not None:
        predecessor.successors = (*predecessor.successors, node_id)


def _amend_node(replica: Replica, node: Node, after: Mapping[str, Any], event: Event) -> None:
    old_deps = node.deps
    for field in ("title", "priority", "verification_level", "resume_policy", "effect", "method"):
        if field in after:
            setattr(node, field, after[field])
    if "method" in after:
        node.method_strikes = 0
    spec = _record(after.get("spec"), Spec)
    if spec is not None:
        node.spec = spec
    if "deps" in after:
        node.deps = tuple(after["deps"])
        for dep in old_deps:
            if dep not in node.deps:
                replica.dependents[dep].remove(node.node_id)
        for dep in node.deps:
            if dep not in old_deps:
                replica.dependents.setdefault(dep, []).append(node.node_id)
    node.amended_by = (*node.amended_by, event.ref)


def _decision(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    state, op = replica.state, payload.get("op")
    state.decisions += 1
    if op == "ask":
        question_id = str(payload.get("question_id") or event.ref)
        state.questions[question_id] = Question(
            question_id,
            str(payload.get("question") or ""),
            payload.get("node"),
            event.ref,
            tuple(str(option) for option in payload.get("options") or ()),
            str(payload.get("default") or ""),
        )
    elif op == "answer":
        state.questions.pop(str(payload.get("question_id")), None)
    elif op in ("method", "retry"):
        node = state.nodes.get(str(payload.get("node")))
        if node is not None:
            node.method = str(payload.get("method") or node.method)
            node.method_strikes = 0
            _close_questions(state, node.node_id)


def _close_questions(state: State, node_id: str) -> None:
    for question_id in [q.question_id for q in state.questions.values() if q.node == node_id]:
        del state.questions[question_id]


def _goal_amended(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    replica.state.goal_amendments += 1
    replica.state.goal_statement = str(payload.get("new") or replica.state.goal_statement)


def _steering(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    replica.state.steering[str(payload.get("id") or event.entity.id)] = event.ref


def _note(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    op = payload.get("op")
    if op == "hint":
        replica.state.next_hint = str(payload.get("text") or "")
    elif op == "source":
        replica.state.source = dict(payload.get("source") or {})


def _heartbeat(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    contract = replica.state.contracts.get(str(payload.get("invocation")))
    if contract is not None:
        contract.last_beat_at = payload.get("at")
        if contract.expires_at is not None:
            contract.expires_at = payload.get("expires_at", contract.expires_at)


def _receipt(replica: Replica, event: Event, payload: Mapping[str, Any]) -> None:
    node = replica.state.nodes.get(str(payload.get("node") or event.entity.id))
    if node is not None:
        node.receipt = str(payload.get("id") or event.ref)


def _record(raw: object, kind: type[T]) -> T | None:
    """A typed record from a payload, or None when others wrote it in a way we cannot read."""
    if not isinstance(raw, Mapping):
        return None
    try:
        return msgspec.convert(raw, kind, strict=False)
    except msgspec.ValidationError:
        return None


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
