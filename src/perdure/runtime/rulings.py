"""Rulings: what a person says to a question, and what follows from it in the same commit.

Job: read from the disk what the ruling is about, hand it to the decision, and verify work that
waited for it. Invariants: an approval is of the bytes that are there when it is given, never of
those that were there when it was asked for (GA-3); the ruling and the verdict that rests on it are
one commit; a ruling is on record even when the work behind it does not pass.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core import commands as c
from perdure.core import gates
from perdure.core.authority import check_ruling
from perdure.core.decide import decide
from perdure.core.late import LateModule
from perdure.core.lookup import node_of, question_of
from perdure.core.model import Node, Spec, State
from perdure.core.people import Question, Ruling
from perdure.errors import EvidenceError, RefusedError
from perdure.runtime.answers import check_ruled, content_changed, repeated
from perdure.runtime.batching import Committed
from perdure.runtime.engine import Engine
from perdure.runtime.evidence import add_judgements, is_overtaken, verify_node
from perdure.runtime.gates import ask, open_questions, read_files
from perdure.runtime.scope import clear_scope

_specs: Final = LateModule("perdure.runtime.specs")


class Ruled(NamedTuple):
    """What a ruling came to."""

    committed: Committed
    question: Question | None
    """The question as it was; None when the op id had been carried out before."""
    verdict: c.Verdict | None = None
    """The verdict on the work behind it, when that was verified in the same commit."""
    why: str = ""
    """Why work that waits for a verdict did not move on, if it did not."""


def rule(
    engine: Engine,
    typed: str,
    ruling: Ruling,
    given: Mapping[str, Any],
    *,
    op: str | None = None,
) -> Ruled:
    """Carry out a ruling; durable on return, with everything that follows from it.

    ``typed`` names the question by its id or a unique beginning of it. ``given`` holds text,
    choice, method and changes, as far as there are any. Raises NotFoundError (``unknown_question``)
    and RefusedError: ``question_closed`` (H2), ``content_changed`` (GA-3), with the question that
    took its place, and where the actor may not rule (AU-1, H4). Checks are run without the lock;
    a crash meanwhile leaves the question open.
    """
    with engine.writing():
        before = engine.repeated(op)
        if before is not None:
            check_ruled(repeated(engine, op or "", int(before.ref[2:])))
            return Ruled(before, None)
        state = engine.replica.state
        question = question_of(state, typed)
        check_ruling(state, question, engine.context())
        if ruling == "approve" and typed in state.closed_questions:
            raise _named_by_its_past(state, typed, question)
        command = _command(engine, question, ruling, given, op)
        judged = _to_verify(engine, question, ruling)
        if judged is None:
            return Ruled(engine.execute(command, op=op), question)
        decide(engine.replica, command, engine.context())  # refused before anything is run
    since = engine.takeovers()
    try:
        verdict = verify_node(engine, judged)
    except (EvidenceError, RefusedError) as error:
        return Ruled(engine.execute(command, op=op), question, why=error.message)
    return _settle(engine, question, command, judged, verdict, op=op, since=since)


def _named_by_its_past(state: State, typed: str, question: Question) -> RefusedError:
    """A gate has the id of its first question: whoever names that may not have seen the newest."""
    return RefusedError(
        f"question {typed} is closed: {state.closed_questions[typed]} settled it."
        f" {question.question_id} is what that gate asks now.",
        code="question_closed",
        rule="H2",
        fix=f"Look at it (`perdure show {question.question_id}`), then name it.",
    )


def _command(
    engine: Engine, question: Question, ruling: Ruling, given: Mapping[str, Any], op: str | None
) -> c.AnswerQuestion:
    state = engine.replica.state
    node = state.nodes.get(question.node or "")
    gate = gates.gate_named(state, node, question.gate) if node is not None else None
    changes = dict(given.get("changes") or {})
    if changes and node is not None:
        changes = _spec_changes(node, changes)
    files = None
    if node is not None and gate is not None and ruling == "approve":
        files = read_files(engine, node, gate)
        if gates.content_digest(state, node, gate, files) != question.content:
            # The op id goes with the new question: the same call again must not approve it unseen.
            asked, _ = ask(engine, node, gate, files, op=op)
            raise content_changed(asked.question_id if asked is not None else "")
    return c.AnswerQuestion(
        question.question_id,
        ruling,
        str(given.get("text") or ""),
        str(given.get("choice") or ""),
        changes,
        files,
        str(given.get("method") or ""),
    )


def _spec_changes(node: Node, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that differ in a spec with these changes, as the journal holds them."""
    spec: Spec = _specs.make_spec(node.node_id, node.spec, given)
    before, after = msgspec.structs.asdict(node.spec), msgspec.structs.asdict(spec)
    changed = {name: value for name, value in after.items() if value != before[name]}
    found: dict[str, Any] = msgspec.to_builtins(changed)
    return found


def _to_verify(engine: Engine, question: Question, ruling: Ruling) -> Node | None:
    """A copy of the node whose verdict waits for this ruling alone; None when there is none.

    A run verifies by itself, beside its loop, what is not held any more.
    """
    node = engine.replica.state.nodes.get(question.node or "")
    if node is None or node.state != "VERIFYING" or engine.on_pause is not None:
        return None
    if gates.is_of_gate(question) and ruling != "approve":
        return None
    others = [q for q in open_questions(engine, node.node_id) if q is not question]
    return None if others else msgspec.structs.replace(node)


def _settle(
    engine: Engine,
    question: Question,
    command: c.AnswerQuestion,
    judged: Node,
    verdict: c.Verdict,
    *,
    op: str | None,
    since: int,
) -> Ruled:
    """The ruling and the move that the verdict on the node comes to, in one commit."""
    node_id, why = judged.node_id, ""
    moved: Committed | None = None
    with engine.writing():
        before = engine.repeated(op)
        if before is not None:  # the same call again was quicker than this one
            return Ruled(before, None)
        with engine.batch(op=op):
            ruled = engine.execute(command)
            node = node_of(engine.replica.state, node_id)
            if is_overtaken(engine, verdict, since):
                why = f"{node_id} is to be checked again: a coordinator came while it was checked"
            elif (node.state_ref, node.invocation) == (judged.state_ref, judged.invocation):
                verdict = add_judgements(engine.replica.state, node, verdict)
                move = c.MoveNode(node_id, "DONE", (), verdict=verdict, contents=verdict.contents)
                try:
                    moved = engine.execute(move)
                except RefusedError as error:
                    why = error.message
    if moved is None:
        return Ruled(ruled, question, why=why)
    if judged.spec.map is not None and not verdict.passed:
        clear_scope(engine, node_of(engine.replica.state, node_id))
    return Ruled(Committed(ruled.ref, (*ruled.events, *moved.events)), question, verdict)
