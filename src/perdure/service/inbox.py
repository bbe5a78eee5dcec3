"""The inbox of one workspace: what the record says, and what has not come that far.

Job: put open questions and instructions together with what lies in the drop box, in the file for
writing and in the supervisor's file. Invariants: it changes nothing, not even the time of a file;
what cannot be read hides nothing else.
"""

from typing import Any, Final

from perdure.core.late import LateModule
from perdure.core.lookup import complete, pending_steering
from perdure.core.model import State
from perdure.core.with_people import with_people
from perdure.errors import NotFoundError
from perdure.runtime.engine import Engine
from perdure.storage import spool

Data = dict[str, Any]

# The status asks how much is unread at every step, and needs none of these for it.
_inbox: Final = LateModule("perdure.core.inbox")
_supervision_file: Final = LateModule("perdure.storage.supervision_file")
_instructions: Final = LateModule("perdure.runtime.steering")
_write_here: Final = LateModule("perdure.runtime.write_here")


def read_inbox(
    engine: Engine,
    *,
    limit: int,
    after: str | None = None,
    before: str | None = None,
    whole: bool = False,
) -> Data:
    """Everything that waits for people, a page at a time; with ``whole`` no text is cut.

    ``after`` and ``before`` are an event, or the id of a question or an instruction. The first page
    alone has what is not on record yet, the supervisor's requests, and the proposals.
    """
    state, now = engine.replica.state, engine.world.clock.now()
    data: Data = _inbox.inbox(
        engine.replica,
        now=now,
        limit=limit,
        after=None if after is None else _asked_in(state, after),
        before=None if before is None else _logged_in(state, before),
    )
    if whole:
        cut = _inbox.cut_names(data["steering"])
        _inbox.with_words(data["steering"], _instructions.words_of(engine, cut))
    first = after is None and before is None
    box = spool.pending(engine.disk, engine.layout) if first else spool.Pending([], [])
    data["accepted"] = [
        _accepted(message) for message in box.messages if message.id not in state.ops
    ]
    data["damaged"] = [{"file": item.name, "reason": item.reason} for item in box.damaged]
    data["written"] = _written(engine) if first else []
    data["with_people"] = with_people(state) if first else []
    data["requests"] = []
    if first:
        data["requests"] = _supervision_file.open_requests(engine.disk, engine.layout, state)
    return data


def _asked_in(state: State, ref: str) -> int:
    """The event behind which a page of questions goes on."""
    if ref in state.questions:
        return _number(state.questions[ref].asked_ref)
    return _event(state, ref, [*state.questions], "question")


def _logged_in(state: State, ref: str) -> int:
    """The event before which a page of instructions goes on."""
    if ref in state.steering:
        return _number(state.steering[ref].ref)
    return _event(state, ref, [*state.steering], "steering")


def _event(state: State, ref: str, names: list[str], what: str) -> int:
    number = _number(ref)
    if number:
        return number
    if ref in state.closed_questions:
        raise NotFoundError(
            f"question {ref} is closed, so no page ends with it.",
            code="unknown_question",
            fix="Begin with the first page, or name the event that it ended with, such as J-42.",
        )
    complete(ref, names, what)
    raise NotFoundError(
        f"{ref!r} is only the beginning of an id.",
        code=f"unknown_{what}",
        fix="Name the whole id, or the event that the last page ended with, such as J-42.",
    )


def _number(ref: str) -> int:
    number = ref.removeprefix("J-")
    return int(number) if number.isdecimal() and number.isascii() else 0


def _accepted(message: spool.Message) -> Data:
    """A message in the drop box: durable, and not on record yet."""
    return {
        "id": message.id,
        "stage": _inbox.STAGES[0],
        "command": message.command,
        "text": str(message.args.get("text") or ""),
        "source": message.actor,
        "accepted": _inbox.shown_time(message.at),
    }


def _written(engine: Engine) -> list[str]:
    """Files that a person has written into and that are not on record yet, by path."""
    layout, disk = engine.layout, engine.disk
    if disk.stat(layout.write_here) is None and disk.stat(layout.taken) is None:
        return []  # nobody ever wrote there
    paths = [f"{layout.taken}/{name}" for name in _write_here.unlogged(engine)]
    if _write_here.has_words(engine):
        paths.append(layout.write_here)
    return [path.removeprefix(f"{layout.root}/") for path in paths]


def unread(engine: Engine) -> Data:
    """What people have said and nothing has acted on yet; short enough for every look."""
    return {
        "accepted": spool.waiting(engine.disk, engine.layout),
        "written": _written(engine),
        "pending": pending_steering(engine.replica.state),
    }
