"""What waits for people, and how far what they said has come: the inbox.

Job: open questions with their package (GA-2), instructions with their stages (S4), proposals
(GE-4), as plain data. Invariants: a function of the state and of the moment asked about; looking
changes nothing; a package is shown beside the record and never in place of it; pages are cut by
event, so that what is settled meanwhile moves nothing. How it looks as a page is ``inbox_page``'s
to say.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from perdure.core.codec import timestamp
from perdure.core.fold import Replica
from perdure.core.gates import is_overdue
from perdure.core.lookup import pending_steering
from perdure.core.model import State
from perdure.core.people import Question, Steering, steering_chars_kept_max
from perdure.core.rescoping import rescoping_proposals
from perdure.core.settling import commands_for
from perdure.core.views import Data

STAGES: Final = ("accepted", "delivered", "acknowledged", "applied", "reached")
"""Of an instruction: in the drop box; on record; propagated; at nodes; in their next work."""


def inbox(
    replica: Replica,
    *,
    now: float,
    limit: int,
    after: int | None = None,
    before: int | None = None,
) -> Data:
    """Open questions, oldest first, and instructions, newest first, a page of each at a time.

    ``after`` (an event) goes on with the questions behind it and lists no instructions; ``before``
    goes on with the instructions before it and lists no questions.
    """
    state = replica.state
    first_page = after is None and before is None
    questions = list(state.questions.values()) if before is None else []
    questions = [asked for asked in questions if _number(asked.asked_ref) > (after or 0)]
    said = list(reversed(state.steering.items())) if after is None else []
    if before is not None:
        said = [(name, entry) for name, entry in said if _number(entry.ref) < before]
    page, said_page = questions[:limit], said[:limit]
    return {
        "task_id": state.task_id,
        "seq_last": state.seq,
        "questions": [question_entry(state, question, now=now) for question in page],
        "questions_total": len(state.questions),
        "overdue": overdue(state, now),
        "next": page[-1].asked_ref if len(page) < len(questions) else None,
        "steering": [stages(name, entry) for name, entry in said_page],
        "steering_total": len(state.steering),
        "pending": pending_steering(state),
        "earlier": said_page[-1][1].ref if len(said_page) < len(said) else None,
        "proposals": rescoping_proposals(replica) if first_page else [],
    }


def _number(ref: str) -> int:
    number = ref.removeprefix("J-")
    return int(number) if number.isdecimal() else 0


def overdue(state: State, now: float) -> list[str]:
    """The questions that should have been answered by now; nothing follows from it (GA-2)."""
    return [name for name, question in state.questions.items() if is_overdue(question, now)]


def question_entry(state: State, question: Question, *, now: float) -> Data:
    """One question with everything that ruling on it takes, and the commands to do so."""
    return {
        "id": question.question_id,
        "kind": question.kind,
        "node": question.node,
        "question": question.text,
        "for": question.to,
        "options": list(question.options),
        "default": question.default,
        "package": question.package,
        "gate": question.gate or None,
        "files": question.files,
        "asked": question.asked_ref,
        "asked_by": question.asked_by,
        "asked_at": shown_time(question.asked_at),
        "expires_at": shown_time(question.expires_at),
        "overdue": is_overdue(question, now),
        "commands": commands_for(state, question),
    }


def shown_time(at: float | None) -> str | None:
    """A time as the journal writes it; one that no calendar has is none."""
    try:
        return None if at is None else timestamp(at)
    except (OverflowError, ValueError, OSError):
        return None


def stages(steering_id: str, steering: Steering) -> Data:
    """How far an instruction has come: each stage with the event that says so."""
    return {
        "id": steering_id,
        "stage": stage_of(steering),
        "text": steering.text,
        "source": steering.source,
        "provenance": steering.provenance,
        "reading": steering.reading or None,
        "same_as": steering.same_as or None,
        "accepted": steering.at,
        "delivered": steering.ref,
        "acknowledged": steering.acknowledged or None,
        "applied": dict(steering.applied),
        "reached": dict(steering.reached),
    }


def stage_of(steering: Steering) -> str:
    """The furthest stage of an instruction that is on record."""
    if not steering.acknowledged:
        return "delivered"
    if not steering.applied:
        return "acknowledged"
    return "reached" if set(steering.reached) >= set(steering.applied) else "applied"


def with_words(entries: Iterable[Data], words: dict[str, str]) -> None:
    """Put whole instructions, as the journal has them, in place of their beginnings."""
    for entry in entries:
        whole = words.get(entry["id"])
        if whole is not None:
            entry["text"] = whole


def cut_names(entries: Sequence[Data]) -> list[str]:
    """The instructions of which the state has only the beginning."""
    return [entry["id"] for entry in entries if len(entry["text"]) >= steering_chars_kept_max]
