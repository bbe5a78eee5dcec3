"""The fold of events about the end of a task, its audits, its documents and its coordinators.

Part of ``core.fold``; the same invariants.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from perdure.core.closing import Doc, Session, Walk, sessions_kept_max
from perdure.core.events import Event
from perdure.core.model import State
from perdure.core.payload import mapping, text

StateFold = Callable[[State, Event, Mapping[str, Any]], None]


def _task_audit(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    passed = mapping(payload.get("record")).get("passed") is True
    state.closing = msgspec.structs.replace(
        state.closing, audit=event.ref, audit_passed=passed, corrected=""
    )


def fold_correction(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    """A false record is told to be so; the record itself stays (A-4)."""
    if text(payload.get("target")) == state.closing.audit:
        state.closing = msgspec.structs.replace(state.closing, corrected=event.ref)


def _proposals(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    state.closing = msgspec.structs.replace(state.closing, proposals=event.ref)


def _handoff(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    state.closing = msgspec.structs.replace(state.closing, handoff=event.ref)


def _accepted(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    state.closing = msgspec.structs.replace(
        state.closing, sub_state="CONTENT_ACCEPTED", accepted=event.ref
    )


def _closed(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    state.closing = msgspec.structs.replace(
        state.closing, sub_state="TASK_CLOSED", closed=event.ref
    )


def _doc(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    path = text(payload.get("path"))
    size, mtime = payload.get("size_bytes"), payload.get("mtime_ns")
    state.docs.pop(path, None)  # the newest last
    state.docs[path] = Doc(
        path,
        text(payload.get("purpose")),
        event.ref,
        event.ts,
        payload.get("external") is True,
        size if isinstance(size, int) else -1,
        mtime if isinstance(mtime, int) else None,
        text(payload.get("sha256")),
    )


def _doc_stale(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    for path, why in mapping(payload.get("paths")).items():
        doc = state.docs.get(path)
        if doc is not None:
            state.docs[path] = msgspec.structs.replace(doc, stale=event.ref, why=text(why))


def _walk(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    checked = payload.get("checked")
    state.walk = Walk(
        event.ref,
        event.seq,
        event.ts,
        checked if isinstance(checked, int) else 0,
        tuple(sorted(mapping(payload.get("failed")))),
    )


def _takeover(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    why = text(payload.get("text"))
    session = Session(event.ref, event.actor, event.ts, event.epoch, why)
    state.sessions = (*state.sessions, session)[-sessions_kept_max:]


def fold_masked(state: State, masked: Any) -> None:
    """Count what was masked in an event, by the name of what was found (SE-1)."""
    for name, count in mapping(masked).items():
        if isinstance(count, int):
            state.masked[name] = state.masked.get(name, 0) + count


CLOSING_NOTES: Final[Mapping[str, StateFold]] = {
    "task_audit": _task_audit,
    "memory_proposals": _proposals,
    "handoff": _handoff,
    "doc": _doc,
    "doc_stale": _doc_stale,
    "walk": _walk,
    "takeover": _takeover,
}
CLOSING_DECISIONS: Final[Mapping[str, StateFold]] = {
    "accept_content": _accepted,
    "close_task": _closed,
}
