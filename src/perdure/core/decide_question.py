"""Decisions that put a question to a person.

Invariants: what is asked is on record before anything waits for it (H2); a question without a node
blocks nothing. Questions of gates are ``decide_gate``'s; what an answer does is in
``decide_ruling``.
"""

import re
from typing import Final

from perdure.core import commands as c
from perdure.core.asking import ask_draft
from perdure.core.durations import duration_max_s
from perdure.core.effects import effect_open, hold_effect
from perdure.core.fold import Replica
from perdure.core.gates import node_of_automatic
from perdure.core.lookup import near, node_of
from perdure.core.model import CLOSED_STATES, State
from perdure.core.moves import legal_edge, transition
from perdure.core.naming import check_id, check_text
from perdure.core.rights import ALIASES
from perdure.core.wake import by_answer
from perdure.errors import RefusedError, TransitionError, UsageError

ASKED: Final = ("gatekeeper", "sponsor", "coordinator")
"""The roles that a question can be put to."""

_OTHER_ID: Final = "Ask under another id, or under none: it is numbered then."
_MANUAL: Final = re.compile(r"Q-(\d{3,9})\Z")


def decide_ask(replica: Replica, command: c.AskQuestion, context: c.Context) -> c.Decision:
    """The question, and N05 with it for a node at work that is not to go on meanwhile (H2)."""
    state = replica.state
    check_text(command.text, "question")
    question_id = command.question_id or _next_id(state)
    check_id(question_id, "a question id")
    if question_id in state.questions or question_id in state.closed_questions:
        return _asked_before(state, question_id, command)
    if node_of_automatic(question_id) in state.nodes:
        raise UsageError(
            f"{question_id} is the runtime's to give.", code="reserved_id", rule="H2", fix=_OTHER_ID
        )
    to = ALIASES.get(command.to, command.to)
    if to not in ASKED:
        raise UsageError(
            f"a question is not put to a {command.to or 'role without a name'}.",
            code="unknown_role",
            rule="H2",
            fix="Put it to the gatekeeper, the sponsor or the coordinator.",
            suggestions=near(command.to, ASKED),
        )
    if command.timeout_s is not None and not 0 < command.timeout_s <= duration_max_s:
        raise UsageError(
            f"nobody can answer within {command.timeout_s:g} s.",
            code="bad_duration",
            rule="GA-2",
            fix=f"Give a time above 0 and at most {duration_max_s:g} s, or none.",
        )
    node = node_of(state, command.node_id) if command.node_id is not None else None
    if node is not None and node.state in CLOSED_STATES:
        raise TransitionError(
            f"{node.node_id} is {node.state}: nothing there waits for an answer.",
            rule="QA-1",
            fix="Ask without naming a node.",
        )
    asked = ask_draft(
        state,
        node,
        question_id,
        command.text,
        options=command.options,
        default=command.default,
        to=to,
        package={
            "context": command.context,
            "consequences": command.consequences,
            "links": list(command.links),
        },
        now=context.now,
        timeout_s=command.timeout_s,
    )
    if node is None or node.state != "RUNNING" or command.keep_working:
        return c.Decision((asked,))
    if effect_open(node):  # whether it happened is for a person to say before it may go on
        seen = f"the attempt stopped to ask {question_id}"
        return c.Decision((asked, *hold_effect(state, node, seen, context.now)))
    waits = {"reason": f"question {question_id}: {command.text}", "wake": by_answer(question_id)}
    return c.Decision((asked, transition(node, legal_edge(node, "BLOCKED"), waits)))


def _asked_before(state: State, question_id: str, command: c.AskQuestion) -> c.Decision:
    """The same question again is answered with the event that asked it; another one is refused."""
    known = state.questions.get(question_id)
    if known is not None and (known.text, known.node) == (command.text, command.node_id):
        return c.Decision(answer=known.asked_ref)
    ref = known.asked_ref if known is not None else state.closed_questions[question_id]
    raise RefusedError(
        f"question {question_id} is another one already (see {ref}).",
        code="duplicate_id",
        rule="H2",
        fix=_OTHER_ID,
    )


def _next_id(state: State) -> str:
    """The number after the highest one given so far."""
    taken = map(_MANUAL.match, (*state.questions, *state.closed_questions))
    return f"Q-{max((int(match[1]) for match in taken if match), default=0) + 1:03d}"
