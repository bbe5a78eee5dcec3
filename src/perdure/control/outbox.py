"""What a look leaves in the supervisor's file: answers seen, news, requests, the log.

Job: bring a :class:`SupervisionFile` from one look to the next, with everything that is due queued.
Invariants: a function of the file, the look and the time, so that a monitor that dies before it
saved has changed nothing; an id is queued once; whatever could grow without end is bounded, and
what is cut from a queue is told in sum. Never sends and never saves.
"""

import time
from typing import Final

from perdure.core.model import State, text_digest
from perdure.core.supervision_decide import remember
from perdure.core.supervision_records import (
    Action,
    ActionLogged,
    Derived,
    QueuedUpdate,
    ResumeRequest,
    SupervisionFile,
    Update,
    actions_kept_max,
    delivered_kept_max,
)
from perdure.core.supervision_updates import digest_of, updates_due

pending_max: Final = 1_000
"""Updates that wait for a channel; of more, the oldest steps are told in one."""
pending_left: Final = 100
"""Updates about steps that are left as they are then."""

_CALM: Final = frozenset({"OK", "HEARTBEAT_DUE", "STOP_AND_DELETE"})


def take_note(
    file: SupervisionFile, state: State, derived: Derived, action: Action, now: float
) -> None:
    """Change ``file`` into what is to be durable before anything is sent about this look."""
    _see_answers(file, state, now)
    _see_moot(file, derived, action)
    for update in updates_due(file.digest, derived, action if action.due else None):
        if update.update_id not in file.pending and update.update_id not in file.delivered:
            file.pending[update.update_id] = QueuedUpdate(update, now)
    token = ""
    if action.due and action.to == "owner":
        token = _ask_owner(file, action, now)
    last = file.actions[-1] if file.actions else None
    if action.due or last is None or last.state != action.state:
        entry = ActionLogged(now, action.state, action.reason, action.action, action.due, token)
        file.actions = [*file.actions, entry][-actions_kept_max:]
    file.memory = remember(file.memory, derived, action, now)
    file.digest = digest_of(file.digest, derived)
    if action.state != "STOP_AND_DELETE":
        file.stopped_at = None
    elif file.stopped_at is None:
        file.stopped_at = now
    file.updated_at = now
    _bound(file)


def token_of(task_id: str, step: str, action: str, now: float) -> str:
    """The resume token of a request: the same for the same request, whoever makes it."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    return f"{task_id}:{step or 'task'}:{action}:{stamp}"


def _see_answers(file: SupervisionFile, state: State, now: float) -> None:
    """What the journal says of answers that carry a token; an answer counts once."""
    answered = set(state.observed.acknowledged_tokens)
    reply = state.observed.reply
    for request in file.requests:
        if request.acknowledged is None and request.token in answered:
            newest = reply if reply is not None and reply.resume_token == request.token else None
            request.acknowledged = newest.at if newest is not None else now
            request.outcome = newest.letter if newest is not None else "answered"


def _see_moot(file: SupervisionFile, derived: Derived, action: Action) -> None:
    """Requests whose matter has settled itself: work went on, or nothing is wrong any more."""
    moved_at = derived.last_progress_at
    for request in file.requests:
        if request.is_open and request.about != action.about:
            went_on = moved_at is not None and moved_at > request.requested
            if went_on or action.state in _CALM:
                request.outcome = "overtaken"


def _ask_owner(file: SupervisionFile, action: Action, now: float) -> str:
    """A new request, in place of an older one about the same matter, or of a nudge for the step."""
    token = _unused(file, token_of(file.task_id, action.step, action.state, now))
    for request in file.requests:
        nudged = request.kind == "NUDGE_MAIN_AGENT" and request.step == action.step
        if request.is_open and (nudged or request.about == action.about):
            request.outcome = f"asked again as {token}"
    file.requests.append(
        ResumeRequest(
            token,
            action.state,
            action.step,
            action.reason,
            now,
            action.about,
            next_action=action.next_action,
        )
    )
    return token


def _unused(file: SupervisionFile, token: str) -> str:
    """The token, told apart from those of the same second."""
    taken = {request.token for request in file.requests}
    number, free = 1, token
    while free in taken:
        number += 1
        free = f"{token}-{number}"
    return free


def _bound(file: SupervisionFile) -> None:
    surplus = len(file.requests) - delivered_kept_max
    if surplus > 0:
        closed = [request for request in file.requests if not request.is_open][:surplus]
        dropped = {request.token for request in closed}
        file.requests = [request for request in file.requests if request.token not in dropped]
    if len(file.pending) > pending_max:
        _fold_oldest(file)


def _fold_oldest(file: SupervisionFile) -> None:
    """Tell the oldest steps that still wait as one update, which counts them."""
    steps = [q for q in file.pending.values() if q.update.kind == "STEP_COMPLETED"]
    old = steps[:-pending_left]
    if len(old) < 2:
        return
    count = sum(int(queued.update.details.get("count", 1)) for queued in old)
    newest = old[-1].update
    ids = [queued.update.update_id for queued in old]
    text = f"{count} steps have been completed, the newest of them {newest.entity}."
    name = f"{file.task_id}:STEP_COMPLETED:many:{text_digest(chr(10).join(ids))}"
    update = Update(name, "STEP_COMPLETED", text, "many", newest.ref, {"count": count})
    everywhere = set(old[0].delivered).intersection(*(queued.delivered for queued in old[1:]))
    told = {label: at for label, at in old[-1].delivered.items() if label in everywhere}
    folded = QueuedUpdate(update, old[-1].queued_at, delivered=told)
    rest = {name: queued for name, queued in file.pending.items() if name not in set(ids)}
    file.pending = {name: folded, **rest}
