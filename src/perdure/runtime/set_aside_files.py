"""What was left for the task and cannot be carried out as it is: kept, reported once, moved aside.

Job: files in the drop box that are no messages, instructions that are refused while their sender
may be gone, files of words that cannot be read. Invariants: nothing is deleted; the NOTE that
reports a file is durable before the file moves, under an op id made from its name and content, so
that a crash in between reports it once; whoever may wait for an answer gets one.
"""

from typing import Any, Final

from perdure.core import commands as c
from perdure.core.model import text_digest
from perdure.errors import HaltError, RefusedError, StorageError, UsageError
from perdure.runtime.engine import Engine
from perdure.runtime.steering import coordinating_actor, steer
from perdure.storage import spool

_NOT_WORTH_KEEPING: Final = frozenset(
    {"empty_text", "role_may_not", "not_the_holder", "unknown_role", "op_too_old"}
)
"""Refusals of an instruction after which its words are not kept: nobody with a say said any."""
kept_reason_chars_max: Final = 300


def set_aside(engine: Engine, damaged: spool.Damaged) -> None:
    """Report a file in the drop box that is no message, answer its sender, move it out of the way.

    It goes to ``tmp/recovered``, whole. A crash anywhere leaves it in one place or the other, and
    its NOTE once.
    """
    target = spool.aside_path(engine.layout, damaged)
    where = target.removeprefix(f"{engine.layout.root}/")
    op = f"aside-{damaged.digest}"
    name = ascii(damaged.name)[1:-1]
    text = f"set aside from the drop box as {where}: {name}, which is no message: {damaged.reason}"
    extra: dict[str, Any] = {
        "file": f"steering/spool/{name}",
        "set_aside": where,
        "reason": damaged.reason,
    }
    with engine.acting_as(coordinating_actor(engine)):
        engine.execute(c.WriteNote(text[:2_000], "note", extra), op=op)
    message_id = spool.message_id_of(damaged.name)
    if message_id:
        refusal = UsageError(
            f"the message {message_id} was no message: {damaged.reason}.",
            code="bad_message",
            fix="Send it again, as `perdure` itself would.",
        )
        result = {"error": refusal.as_dict(), "exit_code": refusal.exit_code}
        spool.answer(engine.disk, engine.layout, message_id, result)
    try:
        spool.move_aside(engine.disk, engine.layout, damaged)
    except StorageError as error:
        leave(engine, damaged.name, error)


_MAY_NOT: Final = frozenset({"permission_denied", "read_only"})


def is_of_one_file(engine: Engine, error: StorageError) -> bool:
    """Whether a failure is that of some file beside the journal, and so of one message alone."""
    return engine.is_usable and (error.code in _MAY_NOT or error.code == "io_error")


def leave(engine: Engine, name: str, error: StorageError) -> None:
    """Let a file stay in the drop box that is settled and cannot be removed; report it once.

    This engine does not look at it again. Raises the error where it is not that file's alone.
    """
    if not engine.is_usable or error.code not in _MAY_NOT:
        raise error
    shown = ascii(name)[1:-1]
    text = f"stays in the drop box, settled: {shown}; remove it by hand: {error.message}"
    with engine.acting_as(coordinating_actor(engine)):
        engine.execute(c.WriteNote(text[:2_000]), op=f"stays-{text_digest(name)}")
    engine.stays_in_box.add(name)


def keep_words(engine: Engine, message: spool.Message, error: HaltError) -> str:
    """Put a refused instruction on record as a question to the coordinator; where, or empty.

    Its sender may be gone and never see the refusal, and nothing that people say is lost. It
    changes nothing of the task. One that is too long for the journal is set aside as a file.
    """
    words = message.args.get("text")
    if error.code in _NOT_WORTH_KEEPING or not isinstance(words, str):
        return ""
    if error.code == "too_large":
        damaged = spool.as_damaged(engine.disk, engine.layout, message, error.message)
        set_aside(engine, damaged)
        return spool.aside_path(engine.layout, damaged).removeprefix(f"{engine.layout.root}/")
    why = f"drop box; refused there as {error.code}: {error.message}"[:kept_reason_chars_max]
    source = str(message.args.get("source") or message.actor)
    command = c.LogSteering("", words, source, why, reading="question")
    try:
        with engine.acting_as(message.actor):
            return steer(engine, command, op=message.id).ref
    except (UsageError, RefusedError):
        return ""


def report_unreadable(engine: Engine, path: str, reason: str, op: str) -> None:
    """Report a file of words that cannot be taken in, once, and move it to ``tmp/recovered``."""
    layout, disk = engine.layout, engine.disk
    name = path.rpartition("/")[2]
    where = f"tmp/recovered/{op}-{name.rpartition('.')[2]}"
    extra: dict[str, Any] = {"file": path, "set_aside": where, "reason": reason}
    text = f"set aside as {where}: what somebody wrote for the task cannot be taken in: {reason}"
    with engine.acting_as(coordinating_actor(engine)):
        engine.execute(c.WriteNote(text, "note", extra), op=op)
    disk.make_dirs(layout.recovered)
    disk.rename(f"{layout.root}/{path}", f"{layout.root}/{where}")
