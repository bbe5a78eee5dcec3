"""Delivering what the supervisor has to say: at least once, with an id that stays the same.

Job: bring queued updates to the requester and resume requests to the owner, through every channel
that the configuration names. Invariants: only what is durably queued is sent; each delivery is
durably marked before the next is begun, so a crash repeats one at most, under its old id; a channel
that fails holds neither another channel nor another pass, and what it did not take stays queued.
Never decides what is to be said.
"""

import shlex
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

import msgspec

from perdure.control.notify_channels import Courier, Message
from perdure.control.notify_config import Channel, NotifyConfig
from perdure.core.codec import timestamp
from perdure.core.supervision_records import (
    QueuedUpdate,
    ResumeRequest,
    SupervisionFile,
    delivered_kept_max,
)

sends_per_pass_max: Final = 100
"""Messages that one pass sends; the rest waits for the next one."""
retry_first_s: Final = 30.0
retry_longest_s: Final = 3_600.0

Emit = Callable[[dict[str, Any]], None]
Item = QueuedUpdate | ResumeRequest

_TITLES: Final = {
    "NUDGE_MAIN_AGENT": "no sign of progress",
    "OWNER_RECONCILE": "where does it stand?",
    "TRUTH_INCONSISTENT": "the records contradict each other",
    "EXECUTOR_UNHEALTHY": "the executor keeps failing",
    "FINALIZATION_STALLED": "there is output, and it is never finished",
    "BLOCKED_ESCALATE": "blocked, a person is needed",
    "STEP_COMPLETED": "a step is done",
    "EXTERNAL_JOB_COMPLETED": "an external job is done",
    "EXTERNAL_JOB_FAILED": "an external job failed",
    "WORKFLOW_SWITCH": "an external job goes another way",
    "COMPLETED_HANDOFF": "finished",
}


class Sender(NamedTuple):
    """What sending takes, besides what is sent."""

    workspace: str
    config: NotifyConfig
    courier: Courier
    emit: Emit | None
    """Shows a message to whoever is at the terminal; None: nobody is."""
    save: Callable[[], None]
    """Makes the file durable."""


class Tally(NamedTuple):
    """What one pass came to."""

    sent: list[dict[str, str]]
    """Receiver, channel and id of each delivery."""
    failed: list[dict[str, str]]
    """The same of each that failed, with the problem."""


def backoff_s(attempts: int) -> float:
    """How long after the failed attempt of this number the next one is due, in seconds."""
    return min(retry_longest_s, retry_first_s * 2.0 ** min(attempts - 1, 16))


def deliver(file: SupervisionFile, sender: Sender, now: float) -> Tally:
    """One pass over everything that is due. ``file`` is durable before, and on return.

    A crash in the middle leaves what was sent marked, but for the last one. Raises StorageError
    when marking fails; nothing more is sent then.
    """
    tally = Tally([], [])
    for receiver, items in _queues(file):
        due = [item for item in items if _is_due(item, now)]
        failed: set[int] = set()
        for channel in sender.config.channels(receiver):
            for item in due:
                if len(tally.sent) >= sends_per_pass_max:
                    break
                if not _is_wanted(channel, item) or channel.label in item.delivered:
                    continue
                if channel.kind == "terminal" and sender.emit is None:
                    break
                message = message_of(file.task_id, sender.workspace, item)
                problem = _send(channel, message, sender)
                said = {"to": receiver, "channel": channel.label, "id": message.id}
                if problem:
                    item.error, item.tried_at = f"{channel.label}: {problem}", now
                    if id(item) not in failed:
                        failed.add(id(item))
                        item.attempts += 1
                    tally.failed.append({**said, "problem": problem})
                    sender.save()
                    break  # it is down; the others of this pass would wait for it as well
                item.delivered = {**item.delivered, channel.label: now}
                tally.sent.append(said)
                sender.save()
    _settle(file, sender.config, now)
    sender.save()
    return tally


def is_deliverable(file: SupervisionFile, config: NotifyConfig) -> bool:
    """Whether anything is left that a later pass without a terminal could still deliver."""
    return any(
        channel.kind != "terminal"
        and _is_wanted(channel, item)
        and channel.label not in item.delivered
        for receiver, items in _queues(file)
        for item in items
        for channel in config.channels(receiver)
    )


def unshown(file: SupervisionFile, workspace: str, config: NotifyConfig) -> list[dict[str, Any]]:
    """The messages for a terminal that nobody has seen, oldest first, of each receiver."""
    return [
        msgspec.to_builtins(message_of(file.task_id, workspace, item))
        for receiver, items in _queues(file)
        for channel in config.channels(receiver)
        for item in items
        if channel.kind == "terminal"
        and _is_wanted(channel, item)
        and channel.label not in item.delivered
    ][:sends_per_pass_max]


def mark_shown(
    file: SupervisionFile, config: NotifyConfig, ids: Collection[str], now: float
) -> None:
    """Messages of :func:`unshown` have been seen: the terminal has taken them."""
    for receiver, items in _queues(file):
        for channel in config.channels(receiver):
            for item in items:
                if channel.kind == "terminal" and _id(item) in ids:
                    item.delivered = {**item.delivered, channel.label: now}
    _settle(file, config, now)


def _id(item: Item) -> str:
    return item.update.update_id if isinstance(item, QueuedUpdate) else item.token


def _queues(file: SupervisionFile) -> tuple[tuple[str, list[Item]], ...]:
    """What is still on its way to each receiver; a request that is answered or moot is not."""
    requests: list[Item] = [r for r in file.requests if r.delivery != "sent" and not r.outcome]
    return ("owner", requests), ("requester", list(file.pending.values()))


def _kind(item: Item) -> str:
    return item.update.kind if isinstance(item, QueuedUpdate) else item.kind


def _is_wanted(channel: Channel, item: Item) -> bool:
    return not channel.only or _kind(item) in channel.only


def _is_due(item: Item, now: float) -> bool:
    if not item.attempts or item.tried_at is None:
        return True
    # A clock that was set back must not hold a message for as long.
    return now < item.tried_at or now - item.tried_at >= backoff_s(item.attempts)


def _send(channel: Channel, message: Message, sender: Sender) -> str:
    if channel.kind != "terminal":
        return sender.courier.send(channel, message)
    if sender.emit is not None:
        sender.emit(msgspec.to_builtins(message))
    return ""


def _settle(file: SupervisionFile, config: NotifyConfig, now: float) -> None:
    """Close what every channel that wants it has taken."""

    def has_arrived(receiver: str, item: Item) -> bool:
        wanting = [c.label for c in config.channels(receiver) if _is_wanted(c, item)]
        return all(label in item.delivered for label in wanting)

    for request in file.requests:
        if request.delivery != "sent":
            if has_arrived("owner", request):
                request.delivery, request.delivered_at = "sent", now
                request.error = ""
            elif request.error:
                request.delivery = "failed"
    for update_id, queued in list(file.pending.items()):
        if has_arrived("requester", queued):
            del file.pending[update_id]
            file.delivered[update_id] = now
    while len(file.delivered) > delivered_kept_max:
        del file.delivered[next(iter(file.delivered))]


def message_of(task_id: str, workspace: str, item: Item) -> Message:
    """The message that an item is sent as; the same bytes each time."""
    title = f"{task_id}: {_TITLES.get(_kind(item), _kind(item))}"
    if isinstance(item, QueuedUpdate):
        update = item.update
        data = {**update.details, "entity": update.entity, "ref": update.ref}
        return Message(
            update.update_id,
            "requester",
            update.kind,
            task_id,
            workspace,
            title,
            update.text,
            timestamp(item.queued_at),
            {name: value for name, value in data.items() if value not in ("", None)},
        )
    data = {"resume_token": item.token, "step": item.step, "about": item.about}
    return Message(
        item.token,
        "owner",
        item.kind,
        task_id,
        workspace,
        title,
        f"{item.reason}\n{item.next_action}\n{_how_to_reply(workspace, item)}",
        timestamp(item.requested),
        {name: value for name, value in data.items() if value},
    )


_LETTERS: Final = (
    ("A", "in progress, the journal was forgotten"),
    ("B", "blocked (say --reason and --safe-next-step)"),
    ("C", "completed"),
    ("D", "no news"),
    ("E", "forgotten, going on now"),
)


def _how_to_reply(workspace: str, request: ResumeRequest) -> str:
    node = f" --node {request.step}" if request.step else ""
    lines = ["Look at the work first, then answer with one of these letters:"]
    lines += [f"  {letter}  {meaning}" for letter, meaning in _LETTERS]
    where = shlex.quote(workspace)
    lines.append(f"perdure -C {where} reply LETTER{node} --resume-token {request.token}")
    return "\n".join(lines)
