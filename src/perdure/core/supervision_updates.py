"""What the requester is to hear that was not told before.

Job: ``updates_due`` compares a look with the digest of what was told, ``digest_of`` makes the next
one. Invariants: pure; the same news always has the same id, whoever computes it and however often,
so that who receives it twice can tell; nothing is news because time has passed; a completion that
something contradicts is handed off to nobody.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from perdure.core.model import text_digest
from perdure.core.supervision_parts import ExternalSeen, Step, UserFacing
from perdure.core.supervision_records import Action, Derived, Digest, Update, UpdateKind
from perdure.core.supervision_steps import number_of
from perdure.core.views import cut

updates_each_max: Final = 20
"""News of one kind at one look; more of it is told as one update that counts it."""

_EXTERNAL: Final[dict[str, UpdateKind]] = {
    "COMPLETED": "EXTERNAL_JOB_COMPLETED",
    "FAILED": "EXTERNAL_JOB_FAILED",
    "SWITCHED_WORKFLOW": "WORKFLOW_SWITCH",
}
_EXTERNAL_TEXTS: Final = {
    "COMPLETED": "External job {} has completed.",
    "FAILED": "External job {} has failed.",
    "SWITCHED_WORKFLOW": "External job {} goes on under another workflow.",
}
_MANY: Final = {
    "STEP_COMPLETED": "{} steps have been completed, the newest of them {}.",
    "EXTERNAL_JOB_COMPLETED": "{} external jobs have completed, the newest of them {}.",
    "EXTERNAL_JOB_FAILED": "{} external jobs have failed, the newest of them {}.",
    "WORKFLOW_SWITCH": "{} external jobs go on under another workflow, the newest of them {}.",
}


def updates_due(
    previous: Digest, derived: Derived, action: Action | None = None
) -> tuple[Update, ...]:
    """The updates since ``previous``, in the order in which they are to be read.

    An escalation is news when ``action`` is one; without an action there is none.
    """
    task = derived.task_id
    found = _few(task, [_completed(task, step) for step in _newly_completed(previous, derived)])
    changed = [job for job in derived.external if _is_news(previous, job)]
    for kind in dict.fromkeys(_EXTERNAL.values()):
        found += _few(task, [_external(task, j) for j in changed if _EXTERNAL[j.state] == kind])
    if action is not None and action.state == "BLOCKED_ESCALATE":
        found.append(_escalation(derived, action))
    failed = _failure_ref(derived)
    if failed and failed != previous.failed:
        found.append(_ending(derived, "BLOCKED_ESCALATE", failed))
    handed_off = _handoff_ref(derived)
    if handed_off and handed_off != previous.completed:
        found.append(_ending(derived, "COMPLETED_HANDOFF", handed_off))
    return tuple(found)


def digest_of(previous: Digest, derived: Derived) -> Digest:
    """What has been told once the updates that are due now are queued."""
    return Digest(
        max(previous.seq, derived.seq),
        {job.key: _told(job) for job in derived.external},
        _handoff_ref(derived) or previous.completed,
        _failure_ref(derived) or previous.failed,
    )


def _newly_completed(previous: Digest, derived: Derived) -> list[Step]:
    found = [
        step
        for step in derived.workflow
        if step.state in ("DONE", "COMPLETED") and number_of(step.ref) > previous.seq
    ]
    return sorted(found, key=lambda step: number_of(step.ref))


def _is_news(previous: Digest, job: ExternalSeen) -> bool:
    return job.state in _EXTERNAL and previous.external.get(job.key) != _told(job)


def _told(job: ExternalSeen) -> str:
    return f"{job.state}@{job.changed_at:.3f}"


def _handoff_ref(derived: Derived) -> str:
    ended = derived.status == "COMPLETED" and derived.truth_state == "CONSISTENT"
    return derived.completed_ref if ended else ""


def _failure_ref(derived: Derived) -> str:
    if derived.status != "FAILED" or derived.truth_state != "CONSISTENT":
        return ""
    return max((step.ref for step in derived.workflow), key=number_of, default="")


def _update(
    task: str, kind: UpdateKind, text: str, entity: str, ref: str, *, details: dict[str, Any]
) -> Update:
    named = ":".join(part for part in (task, kind, entity, ref) if part)
    return Update(named, kind, text, entity, ref, details)


def _completed(task: str, step: Step) -> Update:
    title = f" ({cut(step.title, 80)})" if step.title not in ("", step.step) else ""
    if step.state == "DONE":
        text, verified = f"Step {step.step}{title} is done and verified.", True
    else:
        text, verified = f"Step {step.step}{title} was reported complete; not verified yet.", False
    details = {"title": step.title, "verified": verified}
    return _update(task, "STEP_COMPLETED", text, step.step, step.ref, details=details)


def _external(task: str, job: ExternalSeen) -> Update:
    text = _EXTERNAL_TEXTS[job.state].format(job.key)
    details = {"provider": job.provider, "job_id": job.job_id, "node": job.node}
    since = f"{job.changed_at:.3f}"
    return _update(task, _EXTERNAL[job.state], text, job.key, since, details=details)


def _few(task: str, updates: list[Update]) -> list[Update]:
    """The updates, or where there are too many of them one that says so."""
    if len(updates) <= updates_each_max:
        return updates
    newest, kind = updates[-1], updates[-1].kind
    text = _MANY[kind].format(len(updates), newest.entity)
    same = text_digest("\n".join(update.update_id for update in updates))
    details = {"count": len(updates), "entities": [u.entity for u in updates[-updates_each_max:]]}
    return [_update(task, kind, text, "many", same, details=details)]


def _escalation(derived: Derived, action: Action) -> Update:
    details = {"needs": _needs(derived, action.keys), **_result(derived.user_facing)}
    text = f"{action.reason} {action.next_action}"
    same = text_digest("\n".join(action.keys))
    return _update(derived.task_id, "BLOCKED_ESCALATE", text, action.step, same, details=details)


def _needs(derived: Derived, keys: Iterable[str]) -> list[str]:
    asked = set(keys)
    needs = [need for block in derived.blocks if block.key in asked for need in block.needs]
    return needs + [q.text for q in derived.questions if q.key in asked]


def _ending(derived: Derived, kind: UpdateKind, ref: str) -> Update:
    facing = derived.user_facing
    notes = "".join(f" {note}" for note in facing.honesty_notes[:3])
    return _update(
        derived.task_id, kind, f"{facing.headline}{notes}", "", ref, details=_result(facing)
    )


def _result(facing: UserFacing) -> dict[str, Any]:
    shown = facing.artifacts[:updates_each_max]
    return {
        "outcome": facing.outcome,
        "headline": facing.headline,
        "artifacts": [msgspec.to_builtins(output) for output in shown],
        "artifacts_count": len(facing.artifacts),
        "done": facing.done_count,
        "remaining": facing.remaining_count,
        "honesty_notes": list(facing.honesty_notes),
    }
