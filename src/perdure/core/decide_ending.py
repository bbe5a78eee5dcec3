"""Decisions that end an attempt at a node: a verdict, a failure, a retry.

Invariants: N06 comes from a passing verdict only, and wakes the dependents in the same commit
(FSN-4); a failed attempt's unverified registrations are quarantined in the commit that fails it;
the same method is not tried again beyond its budget (FSN-3).
"""

from typing import Any

from perdure.core import commands as c
from perdure.core.decide_artifact import decide_quarantine
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.lookup import near, node_of
from perdure.core.machine import open_deps, retry_budget
from perdure.core.model import FAILURE_CLASSES, Node, State, id_key
from perdure.core.moves import legal_edge, refused, transition
from perdure.errors import EvidenceError, TransitionError


def decide_verdict(replica: Replica, node: Node, command: c.MoveNode) -> c.Decision:
    """N06 from a passing verdict, else N07, or N08 when it was the last strike."""
    state, verdict = replica.state, command.verdict
    edge = legal_edge(node, "DONE")
    refusal = edge.guard(state, node, {})
    if refusal:
        raise refused(node, edge, refusal)
    if verdict is None:
        raise EvidenceError(
            f"{node.node_id} is not DONE because somebody says so.",
            fix=f"Let the runtime verify it: perdure check {node.node_id}",
        )
    checks = list(verdict.checks)
    common: dict[str, Any] = {
        "verifier": verdict.verifier,
        "level": verdict.level,
        "checks": checks,
    }
    if verdict.passed:
        payload = {**common, "artifacts": verdict.artifacts}
        evidence = (*verdict.artifacts, *command.evidence)
        done = transition(state, node, edge, payload, tuple(dict.fromkeys(evidence)))
        return c.Decision((done, *_wake_dependents(replica, node)))
    quarantine = decide_quarantine(replica, node)
    attempt: dict[str, Any] = {"diagnosis": verdict.diagnosis, "attempt": node.attempts + 1}
    if node.method_strikes + 1 >= retry_budget(state, node):
        last = legal_edge(node, "QUARANTINED")
        manifest = {"artifacts": list(node.artifacts), "diagnosis": verdict.diagnosis}
        payload = {**common, **attempt, "manifest": manifest}
        failed = transition(state, node, last, payload, command.evidence)
    else:
        again = legal_edge(node, "RETRYABLE")
        payload = {**common, **attempt, "failure_class": "transient-agent"}
        failed = transition(state, node, again, payload, command.evidence)
    return c.Decision((*quarantine.drafts, failed), quarantine.moves)


def _wake_dependents(replica: Replica, node: Node) -> list[Draft]:
    """N01 for every dependent that waited for this node alone (FSN-4)."""
    state, drafts = replica.state, []
    for dependent_id in sorted(replica.dependents.get(node.node_id, ()), key=id_key):
        dependent = state.nodes[dependent_id]
        if dependent.state != "PENDING" or open_deps(state, dependent) != [node.node_id]:
            continue
        edge = legal_edge(dependent, "READY")
        payload = {"deps": list(dependent.deps)}
        drafts.append(transition(state, dependent, edge, payload, ()))
    return drafts


def decide_fail(replica: Replica, command: c.FailNode, context: c.Context) -> c.Decision:
    """End the attempt under way by what its failure class says (protocol section 5)."""
    state = replica.state
    node = node_of(state, command.node_id)
    if command.failure_class not in FAILURE_CLASSES:
        raise TransitionError(
            f"a failure needs a class, and {command.failure_class!r} is none.",
            code="missing_payload",
            rule="N04",
            fix=f"Name failure_class: one of {', '.join(FAILURE_CLASSES)}.",
            suggestions=near(command.failure_class, FAILURE_CLASSES),
        )
    if not command.signature.strip():
        raise TransitionError(
            "a failure needs a signature: what was seen.",
            code="missing_payload",
            rule="N04",
            fix="Name signature, such as 'exit 3' or 'timed out after 600 s'.",
        )
    edge = legal_edge(node, "RETRYABLE")
    if edge.id != "N04":
        raise TransitionError(
            f"{node.node_id} is {node.state}: there is no attempt under way to fail.",
            rule="N04",
            fix=f"`perdure check {node.node_id}` verifies what was submitted.",
        )
    quarantine = decide_quarantine(replica, node)
    if command.failure_class == "permanent-resource":
        payload: dict[str, Any] = {
            "reason": command.signature,
            "wake": "the resource is there, says a person",
            "detail": command.detail,
            "failure_class": command.failure_class,
        }
        blocked = legal_edge(node, "BLOCKED")
        ask = _ask(state, node, f"{node.title}: {command.signature}. Put it right, then retry.")
        drafts = (ask, transition(state, node, blocked, payload, command.evidence))
        return c.Decision((*quarantine.drafts, *drafts), quarantine.moves)
    payload = {
        "failure_class": command.failure_class,
        "signature": command.signature,
        "attempt": node.attempts + 1,
        "detail": command.detail,
        "method": node.method,
    }
    if command.interruption:
        payload["interruption"] = True
    failed = transition(state, node, edge, payload, command.evidence)
    after: list[Draft] = []
    if command.failure_class == "permanent-spec":
        after = _replan(state, node, command)
    elif not command.interruption and node.method_strikes + 1 >= retry_budget(state, node):
        after = [_ask(state, node, _exhausted(node, command.signature))]
    return c.Decision((*quarantine.drafts, failed, *after), quarantine.moves)


def _replan(state: State, node: Node, command: c.FailNode) -> list[Draft]:
    """permanent-spec: N12 and N13 right behind N04, and the question what shall replace it."""
    amendment = {
        "op": "replan",
        "target": node.node_id,
        "reason": command.signature,
        "before": None,
        "after": None,
    }
    replanned = {"from": "RETRYABLE", "to": "READY", "edge": "N12", "amendment": "same tx"}
    obsolete = {"from": "READY", "to": "QUARANTINED", "edge": "N13", "replacement": "to be named"}
    return [
        Draft("AMENDMENT", "node", node.node_id, amendment),
        Draft("STATE_TRANSITION", "node", node.node_id, replanned),
        Draft("STATE_TRANSITION", "node", node.node_id, obsolete),
    ]


def _exhausted(node: Node, signature: str) -> str:
    return (
        f"{node.title}: method {node.method!r} is out of strikes (last: {signature})."
        " Retry it with another method, or cancel it."
    )


def _ask(state: State, node: Node, text: str) -> Draft:
    question_id = f"Q-{node.node_id}-{node.attempts}"
    payload = {
        "op": "ask",
        "question_id": question_id,
        "question": text,
        "node": node.node_id,
        "options": ["retry with another method", "cancel"],
        "default": "leave it where it is",
    }
    return Draft("DECISION", "node", node.node_id, payload)


def decide_retry(replica: Replica, command: c.RetryNode, context: c.Context) -> c.Decision:
    """A DECISION that frees a node which waits for one; BLOCKED goes to READY by it (N09)."""
    state = replica.state
    node = node_of(state, command.node_id)
    if node.state not in ("RETRYABLE", "BLOCKED"):
        raise TransitionError(
            f"{node.node_id} is {node.state}: there is nothing to retry.",
            rule="N11",
            fix="Nothing leaves quarantine; add a successor."
            if node.state == "QUARANTINED"
            else f"`perdure show {node.node_id}` tells what it waits for.",
        )
    exhausted = node.state == "RETRYABLE" and node.method_strikes >= retry_budget(state, node)
    if exhausted and command.method in ("", node.method):
        raise TransitionError(
            f"{node.node_id} has failed {node.method_strikes} times by method {node.method!r};"
            " the same again is refused.",
            rule="FSN-3",
            fix=f"Change the method: perdure retry {node.node_id} --method NAME --reason WHY",
        )
    payload = {
        "op": "retry",
        "node": node.node_id,
        "method": command.method or node.method,
        "rationale": command.reason,
        "authority": context.actor,
    }
    drafts = [Draft("DECISION", "node", node.node_id, payload)]
    if node.state == "BLOCKED":
        edge = legal_edge(node, "READY")
        waiting = open_deps(state, node)
        if waiting:
            raise refused(node, edge, f"it waits for {', '.join(waiting[:5])}")
        # The decision in front of it closes the question that holds the node.
        move = {"wake_evidence": command.reason}
        drafts.append(transition(state, node, edge, move, (command.reason,)))
    return c.Decision(tuple(drafts))
