"""The event that opens a question, whoever asks it.

Job: give a question its id and its payload. Invariants: an id is given to one question, ever; what
is asked is all in the one event (GA-2). Whether it may be asked is for the decisions that use this.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from perdure.core.events import Draft
from perdure.core.model import Node, State
from perdure.core.people import ANSWERS


def free_id(state: State, base: str, *, beside: Collection[str] = ()) -> str:
    """``base`` the first time, then ``base.2``, ``base.3``: no question has had it.

    ``beside`` are ids that the same commit gives to others.
    """
    question_id, number = base, 1
    taken = (beside, state.questions, state.closed_questions)
    while any(question_id in ids for ids in taken):
        number += 1
        question_id = f"{base}.{number}"
    return question_id


def ask_draft(
    state: State,
    node: Node | None,
    question_id: str,
    text: str,
    *,
    kind: str = "question",
    options: Iterable[str] = (),
    default: str = "",
    to: str = ANSWERS,
    package: Mapping[str, Any] | None = None,
    now: float | None = None,
    timeout_s: float | None = None,
    **more: Any,
) -> Draft:
    """The event that opens a question; what is empty in ``package`` and ``more`` is left out."""
    known = {name: value for name, value in (package or {}).items() if value}
    payload: dict[str, Any] = {
        "op": "ask",
        "question_id": question_id,
        "question": text,
        "node": node.node_id if node is not None else None,
        "options": list(options),
        "default": default,
        "kind": kind,
        "to": to,
        **{name: value for name, value in {"package": known, **more}.items() if value},
    }
    if now is not None:
        payload["asked_at"] = now
        if timeout_s is not None:
            payload["expires_at"] = now + timeout_s
    if node is None:
        return Draft("DECISION", "task", state.task_id, payload)
    return Draft("DECISION", "node", node.node_id, payload)


def ask_of_attempt(state: State, node: Node, text: str, now: float, **more: Any) -> Draft:
    """A question that the runtime itself asks about the present attempt at a node."""
    question_id = free_id(state, f"Q-{node.node_id}-{node.attempts}")
    default = "leave it where it is"
    return ask_draft(state, node, question_id, text, default=default, now=now, **more)
