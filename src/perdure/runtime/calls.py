"""Every writing call by name, with plain arguments and a plain answer.

Job: one table that the service, the drop box and every interface go through, so that a command has
the same effect whichever way it came. Invariants: an answer names the event that acknowledges it;
with an op id, the same id again answers without writing; a message from the drop box is committed
before its result is written and before it is removed, so a crash in between repeats nothing.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from perdure.core.late import LateModule
from perdure.core.model import op_time_ms
from perdure.core.naming import check_id
from perdure.errors import HaltError, RefusedError, StorageError, UsageError
from perdure.runtime.answers import Answer, Args, repeated
from perdure.runtime.engine import Engine
from perdure.storage import spool


class Call(NamedTuple):
    """A writing call: the module that has a function of its name, and who may carry it out."""

    home: LateModule
    spoolable: bool
    """Whether it may wait in the drop box for a coordinator."""


_TASK: Final = LateModule("perdure.runtime.calls_on_task")
_GRAPH: Final = LateModule("perdure.runtime.calls_on_graph")
_WORK: Final = LateModule("perdure.runtime.calls_on_work")

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
    "pause": Call(_TASK, True),
    "note": Call(_TASK, True),
    "decide": Call(_TASK, True),
    "steer": Call(_TASK, True),
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
    if op is not None:
        check_id(op, "an op id")
        with engine.writing():
            state = engine.replica.state
            seq = state.ops.get(op)
            if seq is not None:
                return repeated(engine, op, seq)
            if 0 < op_time_ms(op) <= state.ops_forgotten_ms:
                raise RefusedError(
                    f"op id {op} is older than the op ids that are remembered, so it may have been"
                    " carried out already.",
                    code="op_too_old",
                    rule="J-1",
                    fix="Look at `perdure log` for its effect; then send it under a new op id.",
                )
    answer: Answer = getattr(call.home, name)(engine, args, op)
    return answer


def ingest(engine: Engine) -> int:
    """Carry out what waits in the drop box, each message once; returns how many there were.

    A refused message gets its refusal as the result. One whose carrying out failed on the disk
    stays for the next try, and the failure is raised.
    """
    layout, disk = engine.layout, engine.disk
    changed, stamp = spool.changed(disk, layout, engine.spool_stamp, engine.world.clock.now())
    if not changed:
        return 0
    messages = spool.pending(disk, layout).messages
    for message in messages:
        try:
            _check_spoolable(message.command)
            with engine.acting_as(message.actor):
                answer = perform(engine, message.command, message.args, op=message.id)
            result: Answer = {"data": answer}
        except StorageError:
            raise
        except HaltError as error:
            result = {"error": error.as_dict(), "exit_code": error.exit_code}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Anybody may write a file there: what is wrong in one must not stop all work.
            refusal = UsageError(
                f"the message {message.id} does not fit {message.command!r}: {error!r}.",
                code="bad_message",
                fix="Send it again, as `perdure` itself would.",
            )
            result = {"error": refusal.as_dict(), "exit_code": refusal.exit_code}
        spool.settle(disk, layout, message.id, result)
    if not messages:
        engine.spool_stamp = stamp  # settling changes the directory, so it is looked at once more
    return len(messages)


def _check_spoolable(name: str) -> None:
    call = CALLS.get(name)
    if call is not None and not call.spoolable:
        raise RefusedError(
            f"{name} does not wait in the drop box: whoever asks needs the answer at once.",
            code="not_spoolable",
            rule="lease",
            fix="Ask again when nobody coordinates.",
        )
