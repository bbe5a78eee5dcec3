"""What a BLOCKED node waits for, as its move into that state says.

Job: spell what wakes a node, and tell by it whether an answer or the owner's word sets it free.
Invariants: one rule for both, so that of two things that held a node the one that comes last frees
it, whichever it is.
"""

from typing import Final

from perdure.core.gates import is_automatic
from perdure.core.model import Node, State
from perdure.core.people import Question

BY_OWNER: Final = "the owner resumes"
"""What a node waits for that a confirmed block has stopped."""


def by_answer(question_id: str) -> str:
    """What a node waits for that is BLOCKED until this question is answered."""
    return f"answer to {question_id}"


def waits_for_owner(state: State, node: Node) -> bool:
    """Whether a block stopped the node, or delayed what an answer would have done."""
    wake = _wake(node)
    return wake == BY_OWNER or _was_answered(state, wake)


def waits_for_answer(state: State, node: Node, question: Question) -> bool:
    """Whether the node is BLOCKED for this answer, or for an earlier word that others delayed."""
    return (
        waits_for_owner(state, node)
        or _wake(node) == by_answer(question.question_id)
        or is_automatic(question)
    )


def _wake(node: Node) -> str:
    return str((node.blocked or {}).get("wake") or "")


def _was_answered(state: State, wake: str) -> bool:
    """Whether it is an answer, and one that is on record already."""
    awaited = wake.removeprefix(by_answer(""))
    return awaited != wake and awaited not in state.questions
