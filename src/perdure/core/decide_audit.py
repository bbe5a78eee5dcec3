"""The decision that takes a verdict of an auditor on record (V2).

Invariants: nobody audits what is his own (INV-6); a verdict is about the content that is registered
and the rubric that is asked now; what it is worth stays as it was seen: a verdict that decides
nothing is on record as that, and after a few of them a person is asked. It moves no node: that is
for the verification which rests on it.
"""

from typing import Any

import msgspec

from perdure.core import commands as c
from perdure.core import dispatch_commands as d
from perdure.core.asking import ask_of_attempt
from perdure.core.audits import (
    AUDIT_QUESTION,
    AuditPlan,
    audits_max,
    misread,
    producer_names,
    required_plan,
    unusable,
)
from perdure.core.authority import holders, read_actor
from perdure.core.dispatching import INDEPENDENCE, INTEGRITIES, Audit
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.lookup import node_of
from perdure.core.model import Node, State
from perdure.errors import RefusedError, TransitionError, UsageError


def decide_audit(replica: Replica, command: d.RecordAudit, context: c.Context) -> c.Decision:
    """The NOTE that holds the verdict; a question with it when audits keep coming to nothing.

    A verdict that decides settles that question again, in the same commit.
    """
    state = replica.state
    node = node_of(state, command.node_id)
    plan = required_plan(state, node)
    if node.state != "VERIFYING":
        raise TransitionError(
            f"{node.node_id} is {node.state}: there is no finished work to judge.",
            rule="N06",
            fix="Judge it when it was submitted; `perdure status` tells when.",
        )
    _check_verifier(state, node, command, context)
    _check_about(state, node, plan, command)
    payload = {**_payload(command), "attempt": node.attempts}
    audit = msgspec.convert({**payload, "ref": ""}, Audit)
    why = unusable(plan, audit)
    payload["round"] = _round(node, plan, audit) if why else 1
    drafts = [Draft("NOTE", "node", node.node_id, payload, _cited(command))]
    open_ones = _open_questions(state, node)
    if why and payload["round"] >= audits_max and not open_ones:
        drafts.append(_ask(state, node, payload["round"], why, context.now))
    elif not why:
        drafts += [_settle(state, node, name, context) for name in open_ones]
    return c.Decision(tuple(drafts))


def _check_verifier(state: State, node: Node, command: d.RecordAudit, context: c.Context) -> None:
    """Raise RefusedError unless this is a verifier, and another one than the producer (INV-6)."""
    asker, verifier = read_actor(context.actor), read_actor(command.verifier)
    sent = bool(command.contract) and asker.role == "coordinator"
    if verifier.role != "verifier" or not verifier.name or not (sent or asker == verifier):
        raise RefusedError(
            f"{context.actor} gives no verdict in the name of {command.verifier or 'nobody'}.",
            code="role_may_not",
            rule="AU-1",
            fix="Let the auditor call: --actor verifier:NAME",
        )
    if verifier.name in producer_names(node) or _is_contract_of(node, command.contract):
        raise RefusedError(
            f"{verifier.name} did the work on {node.node_id} and does not audit it.",
            code="auditor_is_producer",
            rule="INV-6",
            fix="Let somebody else judge it: --actor verifier:NAME",
        )
    named = holders(state, "verifier")
    if named and not sent and verifier.name not in named:
        raise RefusedError(
            f"{verifier.name} is no verifier of this task: that is {' or '.join(named)}.",
            code="not_the_holder",
            rule="H4",
            fix=f"Let one of them call: --actor verifier:{named[0]}",
        )


def _is_contract_of(node: Node, contract: str) -> bool:
    name = contract.removeprefix("contracts/").removesuffix(".json")
    return bool(name) and name == node.invocation


def _check_about(state: State, node: Node, plan: AuditPlan, command: d.RecordAudit) -> None:
    """Raise unless the verdict is about what is asked now; a violation may have changed it."""
    if command.integrity not in INTEGRITIES or not set(command.independence) <= set(INDEPENDENCE):
        raise UsageError(
            f"{command.integrity!r} with {', '.join(command.independence) or 'nothing'} is no"
            " profile of an audit.",
            rule="VR-0",
            fix=f"The profile has {', '.join(INTEGRITIES)}, and {', '.join(INDEPENDENCE)}.",
        )
    if command.rubric != plan.rubric:
        raise RefusedError(
            f"the verdict is by another rubric than {node.node_id} has now.",
            code="audit_rubric",
            rule="VR-1",
            fix=f"Judge it by what `perdure judge {node.node_id}` shows.",
        )
    if command.integrity != "clean":
        return
    other = misread(state, node, command.files)
    if other:
        raise RefusedError(
            f"the verdict is not about {other} as it is registered.",
            code="audit_content",
            rule="GA-3",
            fix=f"Look at what is there now, and judge that: perdure judge {node.node_id}",
        )
    judged = tuple(item.get("point") for item in command.items)
    passed = all(item.get("passed") is True for item in command.items)
    if judged != plan.points or passed != command.passed:
        raise UsageError(
            f"the verdict on {node.node_id} does not judge each point of its rubric.",
            code="audit_incomplete",
            rule="A-4",
            fix=f"`perdure judge {node.node_id}` shows the points.",
        )


def _payload(command: d.RecordAudit) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "op": "audit",
        "text": f"audit: {'pass' if command.passed else 'no pass'}, {command.integrity}",
        "verifier": command.verifier,
        "passed": command.passed,
        "integrity": command.integrity,
        "independence": list(command.independence),
        "files": dict(command.files),
        "rubric": command.rubric,
        "items": list(command.items),
        "contract": command.contract,
        "diagnosis": command.diagnosis,
    }
    if command.usage is not None:  # the model is the auditor's, and never the producer's
        payload["usage"] = msgspec.to_builtins(msgspec.structs.replace(command.usage, model=""))
        payload["model"] = command.usage.model
    return payload


def _cited(command: d.RecordAudit) -> tuple[str, ...]:
    found = command.items if "I4" in command.independence else ()  # else some of it is not there
    refs = [ref.split()[0] for item in found for ref in item.get("evidence") or ()]
    contract = (command.contract,) if command.contract else ()
    return tuple(dict.fromkeys((*contract, *refs)))


def _round(node: Node, plan: AuditPlan, audit: Audit) -> int:
    """The number of this verdict in a row of those that decide nothing about this work."""
    last = node.audit
    if last is None or last.rubric != plan.rubric or last.attempt != node.attempts:
        return 1
    return last.round + 1 if unusable(plan, last) else 1


def _open_questions(state: State, node: Node) -> list[str]:
    return [
        question.question_id
        for question in state.questions.values()
        if question.node == node.node_id and question.package.get("kind") == AUDIT_QUESTION
    ]


def _ask(state: State, node: Node, number: int, why: str, now: float) -> Draft:
    text = (
        f"{node.title}: {number} audits in a row came to nothing; of the last one {why}."
        " What is to be done?"
    )
    context = f"By hand: perdure judge {node.node_id} --verdict FILE --actor verifier:NAME"
    package = {"kind": AUDIT_QUESTION, "context": context}
    options = ("it can be audited now",)
    return ask_of_attempt(state, node, text[:2_000], now, options=options, package=package)


def _settle(state: State, node: Node, question_id: str, context: c.Context) -> Draft:
    question = state.questions[question_id]
    payload = {
        "op": "answer",
        "question_id": question_id,
        "kind": question.kind,
        "node": node.node_id,
        "ruling": "answer",
        "answer": "there is a verdict now",
        "authority": context.actor,
    }
    return Draft("DECISION", "node", node.node_id, payload, (question.asked_ref,))
