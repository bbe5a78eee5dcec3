"""Decisions that end an attempt at a node: a verdict, a failure, a retry.

Invariants: N06 comes from a passing verdict only, and wakes the dependents in the same commit
(FSN-4); a failed attempt's unverified registrations are quarantined in the commit that fails it;
the same method is not tried again beyond its budget (FSN-3).
"""

from typing import Any, Final

from perdure.core import commands as c
from perdure.core.asking import ask_of_attempt
from perdure.core.decide_artifact import decide_quarantine
from perdure.core.effects import effect_open, hold_effect, receipt_draft
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.gates import gates_at
from perdure.core.late import LateModule
from perdure.core.lookup import near, node_of
from perdure.core.machine import OBSOLETE, REPLAN, open_deps, retry_budget
from perdure.core.model import CLOSED_STATES, FAILURE_CLASSES, Node, State, id_key
from perdure.core.moves import legal_edge, refused, transition
from perdure.errors import EvidenceError, TransitionError

_GATE: Final = LateModule("perdure.core.decide_gate")
_ESCALATION: Final = LateModule("perdure.core.decide_escalation")


def decide_verdict(
    replica: Replica, node: Node, command: c.MoveNode, context: c.Context
) -> c.Decision:
    """N06 from a passing verdict, else N07, or N08 when it was the last strike.

    While a gate of N06 is not approved for exactly this content, a passing verdict comes to its
    question instead, and the node stays VERIFYING; when that is open already, to the event that
    asked it (GA-1). A judgement makes the level V3.
    """
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
    gates = gates_at(state, node, "done")
    judged = verdict.passed and any(gate.rubric for gate in gates)
    level = max(verdict.level, "V3") if judged else verdict.level
    common: dict[str, Any] = {
        "verifier": verdict.verifier,
        "level": level,
        "checks": list(verdict.checks),
    }
    if verdict.passed and level < node.verification_level:
        raise EvidenceError(
            f"{node.node_id} asks for {node.verification_level}; a {verdict.level} verdict is short"
            " of that.",
            code="verification_level",
            rule="VR-1",
            fix="Let an auditor (V2) or a person (V3) judge it.",
        )
    if verdict.passed:
        asked = _GATE.ask_at_end(replica, node, command, context) if gates else None
        if asked is not None:
            held: c.Decision = asked
            return held
        payload = {**common, "artifacts": verdict.artifacts}
        approvals = {gate.gate_id: node.approvals[gate.gate_id].ref for gate in gates}
        if approvals:
            payload["approvals"] = approvals
        evidence = (*verdict.artifacts, *command.evidence, *approvals.values())
        done = transition(node, edge, payload, tuple(dict.fromkeys(evidence)))
        return c.Decision((done, *_wake_dependents(replica, node)))
    quarantine = decide_quarantine(replica, node)
    attempt: dict[str, Any] = {"diagnosis": verdict.diagnosis, "attempt": node.attempts + 1}
    if node.method_strikes + 1 >= retry_budget(state, node):
        last = legal_edge(node, "QUARANTINED")
        manifest = {"artifacts": list(node.artifacts), "diagnosis": verdict.diagnosis}
        payload = {**common, **attempt, "manifest": manifest}
        failed = transition(node, last, payload, command.evidence)
        escalated = _ESCALATION.given_up(state, node, command, quarantine, context.now)
        return c.Decision((*quarantine.drafts, failed, escalated), quarantine.moves)
    again = legal_edge(node, "RETRYABLE")
    payload = {**common, **attempt, "failure_class": "transient-agent"}
    failed = transition(node, again, payload, command.evidence)
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
        drafts.append(transition(dependent, edge, payload))
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
    if command.failure_class != "permanent-resource" and effect_open(node):
        drafts = hold_effect(state, node, command.signature, context.now)
        return c.Decision((*quarantine.drafts, *drafts), quarantine.moves)
    if command.failure_class == "permanent-resource":
        payload: dict[str, Any] = {
            "reason": command.signature,
            "wake": "the resource is there, says a person",
            "detail": command.detail,
            "failure_class": command.failure_class,
        }
        blocked = legal_edge(node, "BLOCKED")
        text = f"{node.title}: {command.signature}. Put it right, then retry."
        ask = ask_of_attempt(state, node, text, context.now, options=("it is there now",))
        drafts = (ask, transition(node, blocked, payload, command.evidence))
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
    failed = transition(node, edge, payload, command.evidence)
    after: list[Draft] = []
    if command.failure_class == "permanent-spec":
        after = _replan(state, node, command, len(quarantine.drafts), context.now)
    elif not command.interruption and node.method_strikes + 1 >= retry_budget(state, node):
        after = [_ESCALATION.out_of_strikes(state, node, command, quarantine, context.now)]
    return c.Decision((*quarantine.drafts, failed, *after), quarantine.moves)


def decide_receipt(replica: Replica, command: c.RecordReceipt, context: c.Context) -> c.Decision:
    """A RECEIPT, the proof of an external effect; a node that was held for it is READY again."""
    state = replica.state
    node = node_of(state, command.node_id)
    if node.state in CLOSED_STATES:
        raise TransitionError(
            f"{node.node_id} is {node.state}: its effects are settled.",
            rule="C-S3",
            fix=f"`perdure show {node.node_id}` tells what is on record.",
        )
    receipt = receipt_draft(node, command.proof, command.receipt_id)
    if node.state != "BLOCKED" or open_deps(state, node):
        return c.Decision((receipt,))
    reason = f"the effect has happened: receipt {receipt.payload['id']}"
    freed = decide_retry(replica, c.RetryNode(node.node_id, reason), context)
    return c.Decision((receipt, *freed.drafts))


def _replan(state: State, node: Node, command: c.FailNode, before: int, now: float) -> list[Draft]:
    """permanent-spec: N12 and N13 right behind N04, and the question what shall replace it.

    ``before`` counts the drafts in front of N04 in the same commit.
    """
    cited = f"J-{state.seq + before + 2}"
    amendment = {
        "op": "replan",
        "target": node.node_id,
        "reason": command.signature,
        "before": None,
        "after": None,
    }
    return [
        Draft("AMENDMENT", "node", node.node_id, amendment),
        transition(node, REPLAN, {"amendment": cited}),
        transition(node, OBSOLETE, {"replacement": "to be named"}),
        ask_of_attempt(
            state,
            node,
            f"{node.title} cannot be met as specified ({command.signature}). What replaces it?",
            now,
            options=("add a successor", "cancel what depends on it"),
        ),
    ]


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
    method = command.method or node.method
    tried = node.strikes_by_method.get(method, 0)
    if tried and tried >= retry_budget(state, node):
        raise TransitionError(
            f"{node.node_id} has failed {tried} times by method {method!r};"
            " the same again is refused.",
            rule="FSN-3",
            fix=f"Change the method: perdure retry {node.node_id} --method NAME --reason WHY",
        )
    payload = {
        "op": "retry",
        "node": node.node_id,
        "method": method,
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
        drafts.append(transition(node, edge, move, (command.reason,)))
    return c.Decision(tuple(drafts))
