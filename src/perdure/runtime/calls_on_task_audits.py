"""Calls that put audits of the whole task on record.

Job: one function for each call of the table in ``calls``, by the same name. Invariants: an answer
names the event that acknowledges it; a refusal has written nothing.
"""

from collections.abc import Mapping
from typing import Any

from perdure.core import closing_commands as k
from perdure.core.codec import Scan
from perdure.core.events import Event
from perdure.core.task_audit_recompute import WHOLE
from perdure.errors import NotFoundError, RefusedError, UsageError
from perdure.runtime.answers import Answer, Args, answer
from perdure.runtime.engine import Engine
from perdure.runtime.eventlog import EventLog


def record_audit(engine: Engine, args: Args, op: str | None) -> Answer:
    """Put a record into the journal, whole."""
    record = args.get("record")
    if not isinstance(record, Mapping):
        raise UsageError(
            "there is no record to put on record.",
            code="not_a_record",
            rule="A-4",
            fix="Take what `perdure audit --json` prints.",
        )
    with engine.writing():
        _check_prefix(engine, record)
        return answer(engine.execute(k.RecordTaskAudit(dict(record)), op=op))


def _check_prefix(engine: Engine, record: Mapping[str, Any]) -> None:
    """Raise RefusedError where the record is of another history than this journal's.

    Which task it is of, and whether it is one at all, is the decision's to say.
    """
    seq, state = record.get("seq"), engine.replica.state
    if not isinstance(seq, int) or not 0 < seq <= state.seq:
        return
    if (record.get("task_id"), record.get("created")) != (state.task_id, state.created):
        return
    scan = Scan()
    for _ in scan.commits(engine.disk.read_chunks(engine.layout.journal)):
        if scan.tip.seq >= seq:
            break
    if (scan.tip.seq, scan.tip.h) != (seq, record.get("h")):
        raise RefusedError(
            f"the record is of another history of this task: its chain value at J-{seq} is not"
            " that of this journal.",
            code="another_history",
            rule="A-4",
            fix="Take what `perdure audit --json` prints in this workspace.",
        )


def correct_audit(engine: Engine, args: Args, op: str | None) -> Answer:
    """Say where a record that is on record was false; ``wrong`` is what a recomputation found.

    The record is read from the journal again: what is to have been said has to stand in it. Raises
    NotFoundError for an event that is no task audit, RefusedError where it says nothing like that.
    """
    target = str(args.get("target") or "")
    said = recorded(engine, target)
    wrong = [dict(one) for one in args.get("wrong") or () if isinstance(one, Mapping)]
    verdicts = {
        str(entry.get("item")): str(entry.get("verdict") or "")
        for entry in said.get("items") or ()
        if isinstance(entry, Mapping)
    }
    for one in wrong:
        name = str(one.get("item"))
        if name != WHOLE and (name not in verdicts or verdicts[name] != one.get("said")):
            raise RefusedError(
                f"the record {target} does not say {one.get('said')} of {name}.",
                code="not_what_it_says",
                rule="A-4",
                fix=f"Recompute it first: perdure audit --recompute {target}",
            )
    record = args.get("record")
    command = k.CorrectTaskAudit(
        target,
        dict(record) if isinstance(record, Mapping) else {},
        tuple(wrong),
        str(args.get("reason") or ""),
    )
    return answer(engine.execute(command, op=op))


def recorded(engine: Engine, target: str) -> dict[str, Any]:
    """The record that this event holds, whatever is in it. Raises NotFoundError for no record.

    ``engine`` is loaded. One pass over the journal.
    """
    number = target.removeprefix("J-")
    seq = int(number) if number.isdecimal() and number != target else 0
    if 0 < seq <= engine.replica.state.seq:
        event = EventLog(engine.disk, engine.layout.journal, engine.replica.state.seq)[seq - 1]
        if event.kind == "NOTE" and event.payload.get("op") == "task_audit":
            found = event.payload.get("record")
            return dict(found) if isinstance(found, Mapping) else {"score": found}
    raise NotFoundError(
        f"{target or 'nothing'} is no task audit on record.",
        code="unknown_record",
        rule="A-4",
        fix="Name the J-n that `perdure audit --record` said; `perdure log` lists it as a NOTE.",
    )


def correction_of(log: EventLog, event: Event) -> str:
    """``J-n`` of the newest amendment that says where this record was false; empty without one."""
    found = ""
    for later in log:
        if later.kind == "AMENDMENT" and later.payload.get("op") == "correct_audit":
            found = later.ref if later.payload.get("target") == event.ref else found
    return found
