"""The fold of what people and the task say to each other: questions, rulings, steering, the goal.

Job: the events behind ``people.py``, applied to the state. Invariants: those of ``fold``, which
calls these functions; a question is open until an event settles it, and is never open twice.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

import msgspec

from perdure.core.events import Event
from perdure.core.gates import gates_of, is_automatic, is_of_gate
from perdure.core.model import Node, Policies, State, text_digest
from perdure.core.payload import mapping, number, record, text, text_or_none, texts
from perdure.core.people import (
    ANSWERS,
    Approval,
    Contact,
    Directive,
    Question,
    QuestionKind,
    Steering,
    closed_questions_max,
    steering_chars_kept_max,
)

goal_changes_kept_max: Final = 16

_KINDS: Final[dict[str, QuestionKind]] = {kind: kind for kind in get_args(QuestionKind)}


def fold_decision(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    """Every DECISION counts; those with an ``op`` of their own do what it says."""
    state.decisions += 1
    fold = _DECISIONS.get(text(payload.get("op")))
    if fold is not None:
        fold(state, event, payload)


def _asked(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    question_id = text(payload.get("question_id"), event.ref)
    replaces = text(payload.get("replaces"))
    if replaces:
        close_question(state, replaces, event.ref)
    state.closed_questions.pop(question_id, None)
    state.questions[question_id] = Question(
        question_id,
        text(payload.get("question")),
        text_or_none(payload.get("node")),
        event.ref,
        texts(payload.get("options")),
        text(payload.get("default")),
        kind=_KINDS.get(text(payload.get("kind")), "question"),
        to=text(payload.get("to")) or ANSWERS,
        gate=text(payload.get("gate")),
        content=text(payload.get("content")),
        files=_files(payload.get("files")),
        package=mapping(payload.get("package")),
        asked_by=event.actor,
        asked_at=number(payload.get("asked_at")),
        expires_at=number(payload.get("expires_at")),
    )
    node = state.nodes.get(text(payload.get("node")))
    if node is not None and payload.get("kind") == "question":
        node.questions_asked += 1


def _files(value: object) -> dict[str, str]:
    return {path: text(digest) for path, digest in mapping(value).items()}


def _answered(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    close_question(state, text(payload.get("question_id")), event.ref)
    node, gate = state.nodes.get(text(payload.get("node"))), text(payload.get("gate"))
    if node is not None and "method" in payload:
        _try_by(node, text(payload.get("method"), node.method))
    if node is None or not gate:
        return
    ruling, content = payload.get("ruling"), text(payload.get("content"))
    if ruling == "approve":
        approval = Approval(
            event.ref,
            event.actor,
            content,
            text(payload.get("scope")),
            _files(payload.get("files")),
        )
        node.approvals = {**node.approvals, gate: approval}
        node.rejected = {name: held for name, held in node.rejected.items() if name != gate}
    elif ruling in ("revise", "reject"):
        node.rounds = {**node.rounds, gate: node.rounds.get(gate, 0) + 1}
        # What was only to be described otherwise is described so by the same commit.
        if not payload.get("reworded"):
            node.rejected = {**node.rejected, gate: content}
        node.approvals = {name: held for name, held in node.approvals.items() if name != gate}


def close_question(state: State, question_id: str, ref: str) -> None:
    """Settle a question; an id that is not open changes nothing."""
    if state.questions.pop(question_id, None) is None:
        return
    state.closed_questions[question_id] = ref
    if len(state.closed_questions) > closed_questions_max:
        del state.closed_questions[next(iter(state.closed_questions))]


def close_questions_of(state: State, node_id: str, ref: str) -> None:
    """Settle every question about a node."""
    for question_id in [q.question_id for q in state.questions.values() if q.node == node_id]:
        close_question(state, question_id, ref)


def close_gate_questions_of(state: State, node_id: str, ref: str) -> None:
    """Settle the questions of a node's gates: what they asked about is no longer up for it."""
    for question in [q for q in state.questions.values() if q.node == node_id]:
        if is_of_gate(question):
            close_question(state, question.question_id, ref)


def close_overtaken(state: State, node: Node, ref: str, *, respecified: bool) -> None:
    """Settle what an amendment answers: questions about attempts at the old spec, and of gates
    that the node no longer has. What a person asked, and what holds a BLOCKED node, stays."""
    questions = [q for q in state.questions.values() if q.node == node.node_id]
    kept = {gate.gate_id for gate in gates_of(state, node)} if questions else set()
    for question in questions:
        if is_of_gate(question):
            overtaken = question.gate not in kept
        else:
            overtaken = respecified and node.state != "BLOCKED" and is_automatic(question)
        if overtaken:
            close_question(state, question.question_id, ref)


def _voided(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    node, gate = state.nodes.get(text(payload.get("node"))), text(payload.get("gate"))
    if node is not None:
        node.approvals = {name: held for name, held in node.approvals.items() if name != gate}


def _retried(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    node = state.nodes.get(text(payload.get("node")))
    if node is not None:
        _try_by(node, text(payload.get("method"), node.method))
        close_questions_of(state, node.node_id, event.ref)


def _try_by(node: Node, method: str) -> None:
    node.method = method
    node.method_strikes = node.strikes_by_method.get(method, 0)


def _classified(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    steering = state.steering.get(text(payload.get("steering")))
    if steering is not None:
        steering.reading = text(payload.get("reading"))


def _policy(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    name, value = text(payload.get("name")), payload.get("value")
    if name not in Policies.__struct_fields__:
        return
    changed = record({**msgspec.structs.asdict(state.policies), name: value}, Policies)
    if changed is not None:
        state.policies = changed
        state.policy_reasons[name] = {
            "value": value,
            "reason": text(payload.get("rationale")),
            "window": text(payload.get("window")),
            "ref": event.ref,
        }


def _revoked(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    name = text(payload.get("name"))
    kept = tuple(held for held in state.standing_authorities if held != name)
    state.standing_authorities = kept


_Fold = Callable[[State, Event, Mapping[str, Any]], None]
_DECISIONS: Final[dict[str, _Fold]] = {
    "ask": _asked,
    "answer": _answered,
    "void": _voided,
    "retry": _retried,
    "method": _retried,
    "classify": _classified,
    "policy": _policy,
    "revoke_authority": _revoked,
}


def fold_goal(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    """GOAL_AMENDED: the new goal, counted (GE-3)."""
    state.goal_amendments += 1
    state.goal_statement = text(payload.get("new"), state.goal_statement)
    if "acceptance" in payload:
        state.acceptance = texts(payload.get("acceptance"))
    at = number(payload.get("at"))
    if at is not None:
        state.goal_amended_at = (*state.goal_amended_at, at)[-goal_changes_kept_max:]


def fold_steering(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    """STEERING_LOGGED: on record (S1), and nothing done about it yet."""
    steering_id = text(payload.get("id"), event.entity.id)
    verbatim = text(payload.get("verbatim"))
    state.steering[steering_id] = Steering(
        event.ref,
        text_digest(verbatim),
        verbatim[:steering_chars_kept_max],
        event.ts,
        text(payload.get("source"), event.actor),
        text(payload.get("provenance"), "original"),
        text(payload.get("reading")),
        targets=texts(payload.get("targets")),
        changes=mapping(payload.get("changes")),
        revokes=texts(payload.get("revokes")),
    )


def note_contact(state: State, event: Event) -> None:
    """A word of a sponsor, or one for them: what came later was not heard."""
    by = text(event.payload.get("source"), event.actor)
    state.last_contact = Contact(event.ref, event.ts, by)


def fold_acknowledged(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    """NOTE ``acknowledged``: an instruction has been propagated (S4)."""
    steering = state.steering.get(text(payload.get("steering")))
    if steering is not None:
        steering.acknowledged = event.ref
        steering.reading = text(payload.get("reading"), steering.reading)
        steering.same_as = text(payload.get("same_as"))
        # What events said of a node stands, and is added to at most. At the others nothing has to
        # reach any work.
        applied, reached = steering.applied, steering.reached
        for name, how in mapping(payload.get("applied")).items():
            if name not in applied:
                reached.setdefault(name, event.ref)
            before, told = applied.get(name), text(how)
            if before is None or told.startswith(f"{before}, "):
                applied[name] = told


def fold_directive(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    """AMENDMENT ``direct_task``: nodes added from now on follow it too."""
    directive = Directive(text(mapping(payload.get("after")).get("text")))
    state.directives = (*state.directives, directive)


def mark_steered(state: State, node_id: str, event: Event, how: str) -> None:
    """An event that instruction ``payload.steering`` has caused at a node."""
    steering_id = text(event.payload.get("steering"))
    steering = state.steering.get(steering_id)
    if steering is None:
        return
    before = steering.applied.get(node_id)
    said = f"{how} {event.ref}"
    steering.applied[node_id] = f"{before}, {said}" if before else said
    node = state.nodes.get(node_id)
    if node is not None and steering_id not in node.steered:
        node.steered = (*node.steered, steering_id)


def mark_reached(state: State, node: Node, ref: str) -> None:
    """A contract that carries them has started: what steered the node has reached its work."""
    for steering_id in node.steered:
        steering = state.steering.get(steering_id)
        if steering is not None:
            steering.reached[node.node_id] = ref
    node.steered = ()
