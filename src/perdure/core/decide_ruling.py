"""Decisions by which a question is settled: an answer, an approval, a revision, a rejection.

Invariants: who may rule is asked first (``authority``); the ruling and every move that follows from
it are one commit, so that nothing waits for an answer that is on record; an approval is for the
content that the person was shown, as it is on disk at that moment (GA-3); time that runs out never
consents (GA-2), and rounds of revision have an end (VR-3).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from perdure.core import commands as c
from perdure.core.authority import check_ruling
from perdure.core.decide_artifact import decide_quarantine
from perdure.core.decide_escalation import Refusal, refused_for_good
from perdure.core.decide_gate import gate_of
from perdure.core.decide_node import amend, decide_cancel
from perdure.core.effects import DONE_ALREADY, NOT_DONE, receipt_draft
from perdure.core.escalation import CANCEL, other_command
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.gates import (
    asks_consent,
    complete_files,
    content_digest,
    digest_of,
    is_of_gate,
    is_overdue,
    revise_cap,
    unread,
)
from perdure.core.lookup import near, node_of, question_of
from perdure.core.machine import open_deps, retry_budget
from perdure.core.model import AMENDABLE_STATES, CLOSED_STATES, Node, Spec
from perdure.core.moves import legal_edge, transition
from perdure.core.naming import check_text
from perdure.core.people import Gate, Question
from perdure.core.settling import check_says_which
from perdure.core.wake import waits_for_answer
from perdure.errors import EvidenceError, RefusedError, TransitionError, UsageError

diagnosis_chars_max: Final = 2_000


class _Ruling:
    """One ruling on its way to a commit: what everything about it has to know."""

    def __init__(
        self, replica: Replica, question: Question, command: c.AnswerQuestion, context: c.Context
    ) -> None:
        self.replica = replica
        self.state = replica.state
        self.question = question
        self.command = command
        self.context = context
        self.node: Node | None = None
        if question.node is not None:
            self.node = node_of(self.state, question.node)
        self.ref = f"J-{self.state.seq + 1}"
        """The event that settles the question: always the first of the commit."""

    def settled(self, **more: Any) -> Draft:
        """The DECISION that settles the question; what is empty in ``more`` is left out."""
        question, command = self.question, self.command
        known = {"choice": command.choice, "changes": command.changes, **more}
        payload: dict[str, Any] = {
            "op": "answer",
            "question_id": question.question_id,
            "kind": question.kind,
            "node": question.node,
            "ruling": command.ruling,
            "answer": command.text,
            "authority": self.context.actor,
            **{name: value for name, value in known.items() if value},
        }
        if command.by_default:
            payload["by_default"] = True
        if self.node is None:
            return Draft("DECISION", "task", self.state.task_id, payload, (question.asked_ref,))
        return Draft("DECISION", "node", self.node.node_id, payload, (question.asked_ref,))

    def why(self) -> str:
        """The ruling in words, for the node that goes back."""
        words = self.command.text or "its spec was changed"
        said = f"{self.command.ruling} by {self.context.actor}: {words}"
        return said[:diagnosis_chars_max]


def decide_answer(replica: Replica, command: c.AnswerQuestion, context: c.Context) -> c.Decision:
    """The ruling, and in the same commit every move that it allows or orders."""
    question = question_of(replica.state, command.question_id)
    ruling = _Ruling(replica, question, command, context)
    if command.by_default:
        _check_overdue(ruling)
    else:
        check_ruling(replica.state, question, context)
    _check_form(question, command)
    return _BY_KIND[question.kind](ruling)


def _check_overdue(ruling: _Ruling) -> None:
    """Raise RefusedError (GA-2) unless silence has come to a rejection, which it never does early.

    Nothing else follows from silence: a question stays open until a person answers.
    """
    question, command = ruling.question, ruling.command
    rejects = question.default == "reject" and is_of_gate(question) and command.ruling == "reject"
    if not (rejects and is_overdue(question, ruling.context.now)):
        raise RefusedError(
            f"nobody has answered {question.question_id}, and that is no"
            f" {'answer yet' if rejects else 'answer'}.",
            code="not_by_default",
            rule="GA-2",
            fix="Let a person rule; only a gate with the fallback reject is rejected in the end.",
        )


_RULINGS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "question": ("answer", "approve", "reject"),
    "confirmation": ("answer", "approve", "reject"),
    "escalation": ("answer",),
    "effect": ("answer",),
    "gate": ("approve", "revise", "reject"),
    "judgement": ("approve", "revise", "reject"),
}


def _check_form(question: Question, command: c.AnswerQuestion) -> None:
    """Raise UsageError for a ruling that this kind of question does not take, or an empty one."""
    rulings = _RULINGS_OF[question.kind]
    if command.ruling not in rulings:
        raise UsageError(
            f"{question.question_id} is {_KIND_WORDS[question.kind]}: it does not take"
            f" {command.ruling!r}.",
            code="wrong_ruling",
            rule="GA-1" if is_of_gate(question) else "H2",
            fix=" or ".join(f"perdure {name} {question.question_id}" for name in rulings),
        )
    needed = command.ruling in ("answer", "reject") and not command.by_default
    if command.ruling == "revise":
        needed = not command.changes
    elif command.changes:
        raise UsageError(
            f"{command.ruling} changes nothing in the spec.",
            code="wrong_ruling",
            rule="GA-1",
            fix=f"Say what is to change with it: perdure revise {question.question_id}",
        )
    if command.text or (needed and not command.choice):
        check_text(command.text, "reason" if command.ruling == "reject" else "answer")
    free = question.kind == "escalation" or is_of_gate(question)
    if command.choice and question.options and not free and command.choice not in question.options:
        raise UsageError(
            f"{command.choice!r} is no option of {question.question_id}.",
            code="unknown_choice",
            rule="H2",
            fix=f"Choose one of: {'; '.join(question.options)}.",
            suggestions=near(command.choice, question.options),
        )
    if asks_consent(question) and command.ruling == "answer" and not command.choice:
        check_says_which(question, command.text)


_KIND_WORDS: Final = {
    "question": "a question",
    "confirmation": "a confirmation",
    "escalation": "an escalation",
    "effect": "a question about an external effect",
    "gate": "a gate",
    "judgement": "a judgement",
}


# Questions


def _wake(ruling: _Ruling) -> list[Draft]:
    """N09 for a node that was BLOCKED for this answer, when nothing else holds it."""
    node, state, question = ruling.node, ruling.state, ruling.question
    if node is None or node.state != "BLOCKED" or open_deps(state, node):
        return []
    others = [
        other
        for other in state.questions.values()
        if other.node == node.node_id and other is not question and other.kind != "confirmation"
    ]
    blocked = node.node_id in state.observed.blocks  # then the owner's word frees it as well
    if others or blocked or not waits_for_answer(state, node, question):
        return []
    edge = legal_edge(node, "READY")
    return [transition(node, edge, {"wake_evidence": ruling.ref}, (ruling.ref,))]


def _answer(ruling: _Ruling) -> c.Decision:
    return c.Decision((ruling.settled(), *_wake(ruling)))


def _answer_effect(ruling: _Ruling) -> c.Decision:
    """``done`` is a RECEIPT by whoever says so; ``not-done`` allows the effect once more (C-S3)."""
    command, node = ruling.command, ruling.node
    choice = command.choice or command.text.strip()
    if choice not in (DONE_ALREADY, NOT_DONE) or node is None:
        raise UsageError(
            f"{ruling.question.question_id} asks whether the effect happened; {choice!r} does not"
            " say so.",
            code="unknown_choice",
            rule="C-S3",
            fix=f"Say which: perdure answer {ruling.question.question_id} WHY --choice"
            f" {DONE_ALREADY}, or --choice {NOT_DONE}.",
        )
    drafts = [ruling.settled(choice=choice)]
    if choice == DONE_ALREADY and node.receipt is None:
        said = command.text if command.choice and command.text else "it has happened"
        proof = f"{ruling.context.actor} says: {said} ({ruling.ref})"
        drafts.append(receipt_draft(node, proof))
    return c.Decision((*drafts, *_wake(ruling)))


def _answer_escalation(ruling: _Ruling) -> c.Decision:
    """``cancel`` gives the node up; anything else lets it go on, by a method without strikes."""
    command, node, state = ruling.command, ruling.node, ruling.state
    _check_carried_out(ruling.question, command)
    if node is None or node.state in CLOSED_STATES:
        return _answer(ruling)
    if CANCEL in (command.choice, command.text.strip()):
        reason = command.text or f"cancelled by the ruling on {ruling.question.question_id}"
        given_up = decide_cancel(
            ruling.replica, c.CancelNodes((node.node_id,), reason), ruling.context
        )
        return c.Decision((ruling.settled(choice=CANCEL), *given_up.drafts), given_up.moves)
    method = command.method
    used_up = node.method_strikes and node.method_strikes >= retry_budget(state, node)
    if not method and (node.state == "RETRYABLE" or used_up):
        method = f"as-ruled-{ruling.question.question_id}"
    tried = node.strikes_by_method.get(method, 0)
    if tried and tried >= retry_budget(state, node):
        raise TransitionError(
            f"{node.node_id} has failed {tried} times by method {method!r};"
            " the same again is refused.",
            rule="FSN-3",
            fix="Name another one with --method, or choose cancel.",
        )
    return c.Decision((ruling.settled(method=method), *_wake(ruling)))


def _check_carried_out(question: Question, command: c.AnswerQuestion) -> None:
    """Raise UsageError for a way out that another command takes, and no answer."""
    other = other_command(question, command.choice)
    if other:
        raise UsageError(
            f"an answer alone does not carry out {command.choice!r}.",
            code="wrong_ruling",
            rule="AD-1",
            fix=f"{other} does, and settles {question.question_id} as well.",
        )


# Gates


def _rule_on_gate(ruling: _Ruling) -> c.Decision:
    node = ruling.node
    if node is None:
        return _answer(ruling)
    gate = gate_of(ruling.state, node, ruling.question.gate)
    if ruling.command.ruling == "approve":
        return _approve(ruling, node, gate)
    return (_refuse_start if gate.blocks == "start" else _refuse_result)(ruling, node, gate)


def _approve(ruling: _Ruling, node: Node, gate: Gate) -> c.Decision:
    """Consent to what was asked about, if that is what is there; the work itself goes on by it."""
    state, question, files = ruling.state, ruling.question, ruling.command.files
    problem = unread(state, node, gate, files)
    if problem:
        raise EvidenceError(
            f"{problem}, so nobody can say what {question.question_id} asks about.",
            code="content_unread",
            rule="GA-3",
            fix="Have a file of the workspace there, then call again: perdure approve"
            f" {question.question_id}",
        )
    if content_digest(state, node, gate, files or {}) != question.content:
        raise RefusedError(
            f"what {question.question_id} asks about is not what is there now.",
            code="content_changed",
            rule="GA-3",
            fix=f"Look at what is there now, and rule on that: perdure approve {gate.gate_id}",
        )
    whole = complete_files(state, node, gate, files or {})
    consent = ruling.settled(
        gate=gate.gate_id, content=question.content, scope=gate.scope, files=whole
    )
    return c.Decision((consent,))


def _refusal(ruling: _Ruling, node: Node, gate: Gate, **more: Any) -> tuple[Draft, int, int]:
    """The ruling, which round of this gate it ends, and after how many there is no further one."""
    number, content = node.rounds.get(gate.gate_id, 0) + 1, ruling.question.content
    settled = ruling.settled(gate=gate.gate_id, content=content, round=number, **more)
    return settled, number, revise_cap(ruling.state, gate)


def _refuse_start(ruling: _Ruling, node: Node, gate: Gate) -> c.Decision:
    """The work stays where it is, and is not asked about again until its spec changes.

    What a revision only describes otherwise is asked about again: it is as it was wanted then.
    """
    amended: list[Draft] = []
    if ruling.command.changes and node.state in AMENDABLE_STATES:
        changes = {"spec": _changed_spec(node, ruling.command.changes)}
        cause = {"ruling": ruling.ref}
        amended = amend(ruling.replica, node, changes, ruling.why(), before=1, cause=cause)
    reworded = bool(amended) and _is_reworded(node, gate, ruling.question, amended[0])
    settled, number, cap = _refusal(ruling, node, gate, reworded=reworded)
    drafts = [settled, *amended]
    if number >= cap:
        drafts.append(_escalate(ruling, node, gate, None))
    return c.Decision(tuple(drafts))


def _is_reworded(node: Node, gate: Gate, question: Question, amended: Draft) -> bool:
    """Whether an amendment leaves everything as it is that consent at the gate is bound to."""
    spec = msgspec.convert(amended.payload["after"]["spec"], Spec)
    changed = msgspec.structs.replace(node, spec=spec)
    return digest_of(changed, gate, question.files) == question.content


def _refuse_result(ruling: _Ruling, node: Node, gate: Gate) -> c.Decision:
    """N07, with N12 where the spec changes; N08 and an escalation after the last round."""
    settled, number, cap = _refusal(ruling, node, gate)
    if node.state != "VERIFYING":
        return c.Decision((settled,))
    quarantine = decide_quarantine(ruling.replica, node)
    facts: dict[str, Any] = {
        "diagnosis": ruling.why(),
        "attempt": node.attempts + 1,
        "round": number,
        "gate": gate.gate_id,
    }
    drafts = [settled, *quarantine.drafts]
    if number >= cap:
        manifest = {"artifacts": list(node.artifacts), "diagnosis": ruling.why()}
        last = legal_edge(node, "QUARANTINED")
        drafts.append(transition(node, last, {**facts, "manifest": manifest}, (ruling.ref,)))
        drafts.append(_escalate(ruling, node, gate, quarantine))
        return c.Decision(tuple(drafts), quarantine.moves)
    again = legal_edge(node, "RETRYABLE")
    facts["failure_class"] = "transient-agent"
    drafts.append(transition(node, again, facts, (ruling.ref,)))
    if ruling.command.changes:
        changes = {"spec": _changed_spec(node, ruling.command.changes)}
        drafts += amend(
            ruling.replica, node, changes, ruling.why(), before=len(drafts), failed=True,
            cause={"ruling": ruling.ref},
        )  # fmt: skip
    return c.Decision(tuple(drafts), quarantine.moves)


def _changed_spec(node: Node, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with some of its fields changed. UsageError for one that there is not."""
    unknown = sorted(set(changes) - set(Spec.__struct_fields__))
    if unknown:
        raise UsageError(
            f"a spec has no field {unknown[0]!r}.",
            code="unknown_field",
            rule="TG-1",
            fix=f"Name some of {', '.join(Spec.__struct_fields__)}.",
            suggestions=near(unknown[0], Spec.__struct_fields__),
        )
    spec: dict[str, Any] = msgspec.to_builtins(node.spec)
    return {**spec, **changes}


def _escalate(ruling: _Ruling, node: Node, gate: Gate, gone: c.Decision | None) -> Draft:
    """The question that takes over when a gate has had its rounds (VR-3)."""
    changes = ruling.command.changes if gone is not None else {}
    refusal = Refusal(gate, ruling.question, ruling.why(), changes, gone)
    return refused_for_good(ruling.state, node, refusal, ruling.context.now)


_BY_KIND: Final[Mapping[str, Callable[[_Ruling], c.Decision]]] = {
    "question": _answer,
    "confirmation": _answer,
    "escalation": _answer_escalation,
    "effect": _answer_effect,
    "gate": _rule_on_gate,
    "judgement": _rule_on_gate,
}
