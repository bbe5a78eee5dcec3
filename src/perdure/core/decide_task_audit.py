"""Decisions about the audit of the whole task: putting a record on record, and correcting one.

A record is stored whole, so that whoever reads the journal can recompute it (A-4). Invariants: what
is stored is a record of this task, of a prefix of this journal, and itemised.
"""

from typing import Any, Final

import msgspec

from perdure.core import closing_commands as k
from perdure.core.commands import Context, Decision
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.model import State
from perdure.core.naming import check_text
from perdure.core.task_audit import AuditRecord
from perdure.core.task_audit_recompute import whole_record
from perdure.errors import NotFoundError, RefusedError, UsageError

TASK_AUDIT: Final = "task_audit"
"""The ``op`` of the NOTE that holds a record."""


def decide_record(replica: Replica, command: k.RecordTaskAudit, context: Context) -> Decision:
    """A NOTE with the whole record. Refused: a record of another task, or of what is to come."""
    record = check_record(replica.state, command.record)
    return Decision((record_draft(replica.state, record, command.record),))


def check_record(state: State, raw: dict[str, Any]) -> AuditRecord:
    """The record, typed. Raises UsageError when it is none, or a bare score, or counts what is not
    in it; RefusedError for one of another task, or of what is still to come."""
    try:
        record = msgspec.convert(raw, AuditRecord)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"this is no record of a task audit: {error}.",
            code="not_a_record",
            rule="A-4",
            fix="Take what `perdure audit --json` prints.",
        ) from None
    if (record.task_id, record.created) != (state.task_id, state.created):
        raise RefusedError(
            f"the record is of task {record.task_id}, created {record.created}; this is"
            f" {state.task_id}, created {state.created}.",
            code="another_task",
            rule="A-4",
            fix="Give it to the workspace that it was made in.",
        )
    wrong = whole_record(raw)
    if wrong:
        raise UsageError(
            f"this is no record of a task audit: {wrong[0].why}.",
            code="not_a_record",
            rule="A-4",
            fix="Take what `perdure audit --json` prints, as it is.",
        )
    if record.seq > state.seq:
        raise RefusedError(
            f"the record goes up to J-{record.seq}, and this journal only to J-{state.seq}.",
            code="another_history",
            rule="A-4",
            fix="Give it to the workspace that it was made in, or to a newer copy.",
        )
    return record


def record_draft(state: State, record: AuditRecord, raw: dict[str, Any]) -> Draft:
    """The NOTE that holds a record."""
    counts = ", ".join(f"{number} {verdict}" for verdict, number in record.counts.items())
    payload = {
        "op": TASK_AUDIT,
        "text": f"task audit up to J-{record.seq}: {counts}",
        "record": raw,
    }
    return Draft("NOTE", "task", state.task_id, payload, (f"J-{record.seq}",))


def decide_correction(replica: Replica, command: k.CorrectTaskAudit, context: Context) -> Decision:
    """An AMENDMENT that says where a record on record was false; the record itself stays (A-4).

    Refused without anything that was false, and for a target that is still to come. A record that
    is corrected already by the newest amendment is answered with that.
    """
    state = replica.state
    check_text(command.reason, "reason")
    number = command.target.removeprefix("J-")
    known = number.isdecimal() and command.target != number and 0 < int(number) <= state.seq
    if not known:
        raise NotFoundError(
            f"there is no event {command.target!r} in task {state.task_id}.",
            code="unknown_event",
            rule="A-4",
            fix="`perdure log` lists the events; a task audit on record is a NOTE.",
        )
    if not command.wrong:
        raise RefusedError(
            f"nothing in the record {command.target} was false.",
            code="nothing_false",
            rule="A-4",
            fix="A record that held and holds no longer stays; make a new one: perdure audit"
            " --record",
        )
    if state.closing.audit == command.target and state.closing.corrected:
        return Decision(answer=state.closing.corrected)
    said = [{"item": one.get("item"), "verdict": one.get("said")} for one in command.wrong]
    found = [
        {"item": one.get("item"), "verdict": one.get("is"), "why": one.get("why")}
        for one in command.wrong
    ]
    payload = {
        "op": "correct_audit",
        "target": command.target,
        "before": {"items": said},
        "after": {"items": found, "counts": command.record.get("counts")},
        "reason": command.reason,
        "authority": context.actor,
    }
    return Decision((Draft("AMENDMENT", "task", state.task_id, payload, (command.target,)),))
