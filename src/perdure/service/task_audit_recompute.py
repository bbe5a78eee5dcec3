"""Recomputing a record of a task audit: does it hold, and did it ever?

Job: get the record from a file or from the journal, audit the same prefix again, and compare.
Invariants: it writes nothing; a record of another task or of another history is refused before
anything is compared, and the seq at which it is none of this one is named.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.core.model import text_bytes_max
from perdure.core.task_audit import AuditRecord, ItemFactory
from perdure.core.task_audit_items import ITEMS
from perdure.core.task_audit_recompute import (
    Holding,
    Registered,
    compare,
    items_named,
    whole_record,
    wrong_of,
)
from perdure.errors import CorruptError, NotFoundError, RefusedError, UsageError
from perdure.runtime.calls_on_task_audits import recorded
from perdure.runtime.engine import Engine
from perdure.runtime.task_audits import audit_task
from perdure.service.task_audits import extras_of, record_in
from perdure.service.tasks import Service

Data = dict[str, Any]

record_bytes_max: Final = text_bytes_max
_TAKE: Final = "Take what `perdure audit --json` prints."


def read_record(data: bytes, name: str) -> Data:
    """The record in a file, bare or as ``perdure audit --json`` prints it. Raises UsageError."""
    try:
        if len(data) > record_bytes_max:
            raise ValueError(f"it has more than {record_bytes_max} bytes")
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{name} is no record of a task audit: {error}.",
            code="not_a_record",
            rule="A-4",
            fix=_TAKE,
        ) from None
    return record_in(found)


def recompute_answer(service: Service, ref: str, data: bytes | None = None) -> Data:
    """What has become of a record: ``items`` with ``standing``, ``never_held``, ``counts``.

    ``data`` is the content of the file ``ref``; None where ``ref`` is ``J-n``. ``exit_code`` 0: all
    of it holds; 1: some of it does not, or never did. Raises RefusedError for a record of another
    task or another history (``another_task``, ``another_history``), CorruptError where the journal
    is damaged before the record's end, NotFoundError, UsageError. Changes nothing.
    """
    engine = Engine(service.workspace, service.world, service.actor)
    engine.load()
    said = recorded(engine, ref) if data is None else read_record(data, ref)
    now: AuditRecord | None = None
    if data is not None or items_named(said):
        now, checksums = _audited(service, engine, said, ref)
        holdings = compare(said, now, checksums)
    else:  # on record here, and bare: there is nothing to recompute
        holdings = whole_record(said)
    return _answer(ref, said, now, holdings)


def _answer(
    ref: str, said: Mapping[str, Any], now: AuditRecord | None, holdings: tuple[Holding, ...]
) -> Data:
    counts = {"holds": 0, "holds no longer": 0, "never held": 0}
    for one in holdings:
        counts[one.standing] += 1
    holds = counts["holds"] == len(holdings) and bool(holdings)
    return {
        "record": ref,
        "seq": said.get("seq"),
        "holds": holds,
        "counts": counts,
        "items": [msgspec.to_builtins(one) for one in holdings],
        "never_held": list(wrong_of(holdings)),
        "not_in_it": sorted({factory().id for factory in ITEMS}.difference(items_named(said))),
        "recomputed": msgspec.to_builtins(now) if now is not None else {},
        "exit_code": 0 if holds else 1,
    }


def _audited(
    service: Service, engine: Engine, said: Mapping[str, Any], ref: str
) -> tuple[AuditRecord, dict[str, str]]:
    """The same items over the same prefix as they come out today, and what that registered."""
    seq = _prefix_of(engine, said, ref)
    known = {factory().id: factory for factory in ITEMS}
    taken = Registered()
    items: list[ItemFactory] = [known[name] for name in items_named(said) if name in known]
    reader = Engine(service.workspace, service.world, service.actor)
    try:
        audited = audit_task(
            reader, items=(*items, lambda: taken), upto=seq, extras=extras_of(reader)
        )
    except NotFoundError as error:
        if error.code != "unknown_event":
            raise
        raise _forked(ref, seq, "no commit ends there here") from None
    if audited.record.seq != seq:
        raise CorruptError(
            f"the record {ref} goes up to J-{seq}, and this journal is damaged before that:"
            f" {audited.damage}.",
            rule="J-1",
            fix="Put the journal back from a copy; then recompute the record.",
        )
    if said.get("h") != audited.record.h:
        raise _forked(ref, seq, f"this journal has {audited.record.h} there")
    kept = tuple(entry for entry in audited.record.items if entry.item != Registered.id)
    return msgspec.structs.replace(audited.record, items=kept), taken.checksums


def _prefix_of(engine: Engine, said: Mapping[str, Any], ref: str) -> int:
    """The end of the prefix that a record is about. Raises unless it is one of this journal."""
    state, seq = engine.replica.state, said.get("seq")
    if not isinstance(seq, int) or not isinstance(said.get("h"), str) or "task_id" not in said:
        raise UsageError(
            f"{ref} does not say which task and which prefix it is about.",
            code="not_a_record",
            rule="A-4",
            fix=_TAKE,
        )
    if (said["task_id"], said.get("created")) != (state.task_id, state.created):
        raise RefusedError(
            f"the record {ref} is of task {said['task_id']}, begun {said.get('created')}; this is"
            f" {state.task_id}, begun {state.created}.",
            code="another_task",
            rule="A-4",
            fix="Recompute it in the workspace that it was made in.",
        )
    if not 0 < seq <= state.seq:
        raise _forked(ref, seq, f"this journal goes up to J-{state.seq}")
    return seq


def _forked(ref: str, seq: int, why: str) -> RefusedError:
    return RefusedError(
        f"the record {ref} is of another history of this task: at J-{seq} {why}.",
        code="another_history",
        rule="A-4",
        fix="Recompute it in the workspace that it was made in, or in a newer copy of that.",
    )
