"""The report of one look at one workspace, as plain data.

Job: the fields that programs hold on to, in one place. Invariants: a report of an error has the
same fields as any other; lists that others make long are cut. It decides nothing.
"""

from typing import Any, Final

import msgspec

from perdure.control.delivery import Tally
from perdure.core.model import State
from perdure.core.supervision_records import Action, Derived, ResumeRequest, SupervisionFile
from perdure.errors import HaltError
from perdure.storage.supervision_file import request_entry, unanswered

listed_max: Final = 100

Report = dict[str, Any]


def report_of(
    workspace: str,
    state: State,
    derived: Derived,
    action: Action,
    file: SupervisionFile,
    *,
    notices: list[str],
    tally: Tally | None,
    notify_error: HaltError | None,
) -> Report:
    """Everything that is said of one look; ``tally`` is None when nothing was applied."""
    heartbeat_at = derived.last_heartbeat_at
    asked = [_request(request) for request in unanswered(file, state)]
    return {
        "workspace": workspace,
        "task_id": state.task_id,
        "status": derived.status,
        "state": action.state,
        "reason": action.reason,
        "action": action.action,
        "due": action.due,
        "to": action.to or None,
        "step": action.step or None,
        "row": action.row,
        "current_step": derived.current_step,
        "truth_state": derived.truth_state,
        "inconsistencies": list(derived.inconsistencies),
        "close_out_gaps": list(action.gaps),
        "suspicious_external_jobs": _listed(derived.suspicious_external_jobs),
        "pending_external": _listed(derived.pending_external),
        "suspected": msgspec.to_builtins(derived.suspected),
        "retry_count": derived.retry_count,
        "last_progress_age_sec": _age(derived.silence_s),
        "last_heartbeat_age_sec": _age(
            None if heartbeat_at is None else max(0.0, derived.at - heartbeat_at)
        ),
        "user_facing": _facing(derived),
        "next_action": action.next_action,
        "resume_requests": asked[-listed_max:],
        "updates_pending": len(file.pending),
        "applied": tally is not None,
        "delivered": tally.sent if tally is not None else [],
        "failed": tally.failed if tally is not None else [],
        "messages": [],
        "delivering": False,
        "notices": notices,
        "notify_error": None if notify_error is None else notify_error.as_dict(),
        "error": None,
    }


def error_report(workspace: str, error: HaltError) -> Report:
    """The report of a workspace that could not be looked at; the journal may say anything."""
    return {
        "workspace": workspace,
        "task_id": None,
        "status": "UNKNOWN",
        "state": "ERROR",
        "reason": error.message,
        "action": "noop",
        "due": False,
        "to": None,
        "step": None,
        "row": None,
        "current_step": None,
        "truth_state": None,
        "inconsistencies": [],
        "close_out_gaps": [],
        "suspicious_external_jobs": [],
        "pending_external": [],
        "suspected": {},
        "retry_count": 0,
        "last_progress_age_sec": None,
        "last_heartbeat_age_sec": None,
        "user_facing": None,
        "next_action": error.fix,
        "resume_requests": [],
        "updates_pending": 0,
        "applied": False,
        "delivered": [],
        "failed": [],
        "messages": [],
        "delivering": False,
        "notices": [],
        "notify_error": None,
        "error": {**error.as_dict(), "exit_code": error.exit_code},
    }


def _listed(records: tuple[Any, ...]) -> list[Any]:
    return [msgspec.to_builtins(record) for record in records[:listed_max]]


def _age(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _facing(derived: Derived) -> Report:
    facing = derived.user_facing
    cut = msgspec.structs.replace(facing, artifacts=facing.artifacts[:listed_max])
    return {**msgspec.to_builtins(cut), "artifacts_count": len(facing.artifacts)}


def _request(request: ResumeRequest) -> Report:
    sent = {"delivery": request.delivery, "error": request.error or None}
    return {**request_entry(request), **sent}
