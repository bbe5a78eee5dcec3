"""Decisions that end an attempt at a node: a claim, a verdict, a failure, a retry.

Invariants: N06 comes from a passing verdict only, and wakes the dependents in the same commit
(FSN-4); a failed attempt's unverified registrations are quarantined in the commit that fails it;
the same method is not tried again beyond its budget (FSN-3).
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.core import commands as c
from perdure.core.asking import ask_of_attempt
from perdure.core.audits import awaits_audit
from perdure.core.decide_artifact import decide_quarantine
from perdure.core.dispatching import Usage
from perdure.core.effects import check_receipt, effect_open, hold_effect, receipt_draft
from perdure.core.events import Draft
from perdure.core.failure_text import as_seen
from perdure.core.fold import Replica
from perdure.core.gates import gates_at
from perdure.core.health import ended
from perdure.core.late import LateModule
from perdure.core.lookup import near, node_of
from perdure.core.machine import OBSOLETE, REPLAN, open_deps, retry_budget
from perdure.core.model import CLOSED_STATES, FAILURE_CLASSES, Node, State, id_key
from perdure.core.moves import fill_payload, legal_edge, refused, transition
from perdure.core.payload import record
from perdure.errors import EvidenceError, TransitionError, UsageError

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
    if verdict.passed and awaits_audit(verdict.checks):  # no pass yet, and no failure (VR-1)
        return c.Decision(answer=node.state_ref or "")
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


def claim_drafts(
    state: State, node: Node, given: Mapping[str, Any], evidence: tuple[str, ...]
) -> tuple[Draft, ...]:
    """N03: the work has landed, says whoever did it; and a change of mode that follows (PD-H1).

    ``usage`` in what is given is what the attempt has used, where somebody says so.
    """
    edge = legal_edge(node, "VERIFYING")
    check_receipt(state, node)
    payload = fill_payload(state, node, edge, given, evidence)
    used = payload.get("usage")
    if used is not None:
        usage = used if isinstance(used, Usage) else record(used, Usage)
        if usage is None:
            raise UsageError(
                f"that is no usage: {used!r:.80}.",
                code="bad_usage",
                fix=f"Give a mapping with numbers for {', '.join(Usage.__struct_fields__)}.",
            )
        payload["usage"] = msgspec.to_builtins(usage)
    return ended(state, node, transition(node, edge, payload, evidence))


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
    wall = command.failure_class == "permanent-resource"
    if effect_open(node) and not command.nothing_ran:
        said = as_seen(command.signature, command.detail)
        ask, held = hold_effect(state, node, command.signature, context.now, said=said, wall=wall)
        drafts = (ask, *_ended(state, node, held, command))
    elif wall:
        drafts = _resource_wall(state, node, command, context.now)
    else:
        drafts = _failed(state, node, command, quarantine, context.now)
    return c.Decision((*quarantine.drafts, *drafts), quarantine.moves)


def _ended(state: State, node: Node, move: Draft, command: c.FailNode) -> tuple[Draft, ...]:
    """The move that ends the attempt, with death and usage, and a change of mode (PD-H1)."""
    told = {"death": command.death, "usage": command.usage}
    facts = {name: msgspec.to_builtins(said) for name, said in told.items() if said is not None}
    move = msgspec.structs.replace(move, payload={**move.payload, **facts})
    return ended(state, node, move)


def _resource_wall(state: State, node: Node, command: c.FailNode, now: float) -> tuple[Draft, ...]:
    """N05 behind the question to a person: what is missing is not there for the next attempt."""
    seen = as_seen(command.signature, command.detail)
    payload: dict[str, Any] = {
        "reason": seen,
        "wake": "the resource is there, says a person",
        "detail": command.detail,
        "failure_class": command.failure_class,
    }
    text = f"{node.title}: {seen}. Put it right, then retry."
    ask = ask_of_attempt(state, node, text, now, options=("it is there now",))
    blocked = transition(node, legal_edge(node, "BLOCKED"), payload, command.evidence)
    return (ask, *_ended(state, node, blocked, command))


def _failed(
    state: State, node: Node, command: c.FailNode, quarantine: c.Decision, now: float
) -> tuple[Draft, ...]:
    """N04, and what a spec that cannot be met or the last strike brings with it."""
    payload = {
        "failure_class": command.failure_class,
        "signature": command.signature,
        "attempt": node.attempts + 1,
        "detail": command.detail,
        "method": node.method,
    }
    if command.interruption:
        payload["interruption"] = True
    move = transition(node, legal_edge(node, "RETRYABLE"), payload, command.evidence)
    failed, *mode = _ended(state, node, move, command)
    after: list[Draft] = []
    if command.failure_class == "permanent-spec":
        after = _replan(state, node, command, len(quarantine.drafts), now)
    elif not command.interruption and node.method_strikes + 1 >= retry_budget(state, node):
        after = [_ESCALATION.out_of_strikes(state, node, command, quarantine, now)]
    return (failed, *after, *mode)


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
            f"{node.title} cannot be met as specified"
            f" ({as_seen(command.signature, command.detail)}). What replaces it?",
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
