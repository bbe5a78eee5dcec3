"""Every writing call by name, with plain arguments and a plain answer.

Job: one table that the service, the drop box and every interface go through, so that a command has
the same effect whichever way it came. Invariants: an answer names the event that acknowledges it;
with an op id, the same id again answers without writing; a message from the drop box is committed
before its result is written and before it is removed, so a crash in between repeats nothing.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from perdure.core.codec import op_time_ms
from perdure.core.late import LateModule
from perdure.core.lookup import pending_steering
from perdure.core.naming import check_id
from perdure.errors import HaltError, RefusedError, StorageError, UsageError
from perdure.runtime.answers import Answer, Args, check_ruled, told_again
from perdure.runtime.engine import Engine
from perdure.runtime.masking import counts_of, mask_call, masker_of
from perdure.storage import spool


class Call(NamedTuple):
    """A writing call: the module that has a function of its name, and who may carry it out.

    A ``tell_NAME`` beside it is what its answer is made of, also when its op id comes again.
    """

    home: LateModule
    spoolable: bool
    """Whether it may wait in the drop box for a coordinator."""


_TASK: Final = LateModule("perdure.runtime.calls_on_task")
_GRAPH: Final = LateModule("perdure.runtime.calls_on_graph")
_WORK: Final = LateModule("perdure.runtime.calls_on_work")
_STEERING: Final = LateModule("perdure.runtime.calls_on_steering")
_PEOPLE: Final = LateModule("perdure.runtime.calls_on_people")
_OBSERVED: Final = LateModule("perdure.runtime.calls_on_observed")
_AUDITS: Final = LateModule("perdure.runtime.calls_on_audits")
_GOAL: Final = LateModule("perdure.runtime.calls_on_goal")
_CLOSING: Final = LateModule("perdure.runtime.calls_on_closing")
_TASK_AUDITS: Final = LateModule("perdure.runtime.calls_on_task_audits")
_DOCS: Final = LateModule("perdure.runtime.calls_on_docs")

_instructions: Final = LateModule("perdure.runtime.steering")
_write_here: Final = LateModule("perdure.runtime.write_here")
_set_aside_files: Final = LateModule("perdure.runtime.set_aside_files")

CALLS: Final[Mapping[str, Call]] = {
    "add": Call(_GRAPH, False),
    "start": Call(_WORK, False),
    "beat": Call(_WORK, True),
    "artifact": Call(_WORK, True),
    "submit": Call(_WORK, True),
    "check": Call(_WORK, True),
    "fail": Call(_WORK, True),
    "retry": Call(_WORK, True),
    "receipt": Call(_WORK, True),
    "cancel": Call(_GRAPH, True),
    "amend": Call(_GRAPH, True),
    "split": Call(_GRAPH, True),
    "quarantine": Call(_GRAPH, True),
    "goal": Call(_GOAL, True),
    "policy": Call(_GOAL, True),
    "pause": Call(_TASK, True),
    "dispatch": Call(_TASK, True),
    "note": Call(_TASK, True),
    "decide": Call(_TASK, True),
    "steer": Call(_STEERING, True),
    "ask": Call(_PEOPLE, True),
    "answer": Call(_PEOPLE, True),
    "approve": Call(_PEOPLE, True),
    "revise": Call(_PEOPLE, True),
    "reject": Call(_PEOPLE, True),
    "judge": Call(_AUDITS, True),
    "observe": Call(_OBSERVED, True),
    "block": Call(_OBSERVED, True),
    "reply": Call(_OBSERVED, True),
    "doc": Call(_DOCS, True),
    "record_audit": Call(_TASK_AUDITS, True),
    "correct_audit": Call(_TASK_AUDITS, True),
    "archive": Call(_CLOSING, False),
    "accept": Call(_CLOSING, False),
    "close": Call(_CLOSING, False),
}


def perform(engine: Engine, name: str, args: Args, *, op: str | None = None) -> Answer:
    """Carry out a call. Its answer has at least ``committed``: the event that acknowledges it.

    Raises UsageError for an unknown name or a bad op id, and whatever the call itself refuses.
    """
    call = CALLS.get(name)
    if call is None:
        raise UsageError(
            f"there is no call {name!r}.",
            code="unknown_call",
            fix=f"Use one of {', '.join(CALLS)}.",
        )
    if engine.ingest is None:
        engine.ingest = ingest
    if op is not None:
        check_id(op, "an op id")
        with engine.writing():
            before = _told_again(engine, name, op)
            if before is not None:
                return before
            if 0 < op_time_ms(op) <= engine.replica.state.ops_forgotten_ms:
                raise RefusedError(
                    f"op id {op} is older than the op ids that are remembered, so it may have been"
                    " carried out already.",
                    code="op_too_old",
                    rule="J-1",
                    fix="Look at `perdure log` for its effect; then send it under a new op id.",
                )
    args, masked = _without_secrets(engine, name, args)
    if masked:
        engine.masked_before = masked
    try:
        answer: Answer = getattr(call.home, name)(engine, args, op)
    finally:
        if masked:
            engine.masked_before = {}
    if masked:
        answer = {**answer, "masked": masked}
    if op is not None and answer.get("repeated"):  # the same call again may have been quicker
        return _told_again(engine, name, op) or answer
    return answer


def _without_secrets(engine: Engine, name: str, args: Args) -> tuple[Args, dict[str, int]]:
    """The arguments with secrets masked, and what was masked, also before they came here (SE-1)."""
    said, masked = dict(args), dict[str, int]()
    if "masked" in said:
        masked = counts_of(said.pop("masked"))
    said, found = mask_call(masker_of(engine), name, said)
    return said, {**masked, **found}


def _told_again(engine: Engine, name: str, op: str) -> Answer | None:
    """The answer to an op id that has been carried out; None for a new one."""
    seq = engine.replica.state.ops.get(op)
    if seq is None:
        return None
    found = told_again(engine, op, seq, getattr(CALLS[name].home, f"tell_{name}", None))
    if name == "approve":
        check_ruled(found)
    if name == "steer" and "steering" in found:
        found |= _instructions.acknowledgement(engine, found["steering"])
    return found


def ingest(engine: Engine) -> int:
    """Take in what was left for the task; returns how many messages there were.

    First instructions that are on record and not propagated, then what somebody wrote into
    ``steering/write-here.md``, then the drop box, each message once. A refused message gets its
    refusal as the result, also when a file that it names cannot be read; what is no message is set
    aside; what is settled and cannot be removed stays, and nothing waits for it (INV-8). When the
    journal itself fails, the message stays for the next try, and the failure is raised. The caller
    holds the lock.
    """
    layout, disk = engine.layout, engine.disk
    if engine.replica.state.closing.closed:
        return 0  # nothing is written to a closed task: the words stay where they were left
    if pending_steering(engine.replica.state):
        _instructions.propagate_pending(engine)
    if disk.stat(layout.write_here) is not None or disk.stat(layout.taken) is not None:
        _write_here.take_in(engine)
    changed, stamp = spool.changed(disk, layout, engine.spool_stamp, engine.world.clock.now())
    if not changed:
        return 0
    messages, damaged = spool.pending(disk, layout, engine.stays_in_box)
    for entry in damaged:
        _set_aside_files.set_aside(engine, entry)
    for message in messages:
        result = _carry_out(engine, message)
        try:
            spool.settle(disk, layout, message.id, result)
        except StorageError as error:
            _set_aside_files.leave(engine, spool.name_of(message), error)
    if not messages and not damaged:
        engine.spool_stamp = stamp  # settling changes the directory, so it is looked at once more
    return len(messages)


def _carry_out(engine: Engine, message: spool.Message) -> Answer:
    """What a message comes to: its answer, or why it was refused. Raises StorageError."""
    # What was masked in the call that takes the message in is said by that call's own commit.
    before, engine.masked_before = engine.masked_before, {}
    try:
        _check_spoolable(message.command)
        _check_args(message.args)
        with engine.acting_as(message.actor):
            return {"data": perform(engine, message.command, message.args, op=message.id)}
    except HaltError as error:
        if isinstance(error, StorageError) and not _set_aside_files.is_of_one_file(engine, error):
            raise
        refusal = error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # Anybody may write a file there: what is wrong in one must not stop all work.
        refusal = UsageError(
            f"the message {message.id} does not fit {message.command!r}: {error!r}.",
            code="bad_message",
            fix="Send it again, as `perdure` itself would.",
        )
    finally:
        engine.masked_before = before
    if message.command == "steer":
        kept = _set_aside_files.keep_words(engine, message, refusal)
        if kept:
            refusal.fix = f"{refusal.fix} The words are kept: {kept}.".strip()
    return {"error": refusal.as_dict(), "exit_code": refusal.exit_code}


_LISTS: Final = ("nodes", "options", "links", "revoke")


def _check_args(args: Args) -> None:
    """Raise TypeError for what is no text, or no list of them, where one is expected."""
    words = args.get("text", "")
    if not isinstance(words, str):
        raise TypeError(f"text is {words!r:.40}, and no text")
    for name in _LISTS:
        given = args.get(name) or ()
        if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
            raise TypeError(f"{name} is {given!r:.40}, and no list of texts")


def _check_spoolable(name: str) -> None:
    call = CALLS.get(name)
    if call is not None and not call.spoolable:
        raise RefusedError(
            f"{name} does not wait in the drop box: whoever asks needs the answer at once.",
            code="not_spoolable",
            rule="lease",
            fix="Ask again when nobody coordinates.",
        )
