"""The drop box: how a command reaches a coordinator that holds the lease (protocol section 10).

Job: carry messages through ``steering/spool/``, one file each, and their results back. Invariants:
a message is durable before its sender says so, and is removed only by an explicit call after its
command was committed; a file that cannot be understood is reported and left alone; a name that
starts with a dot is a file in the making and not looked at. It never decides whether a message
was carried out already: its id in the state says so.
"""

from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.model import ID_PATTERN, event_bytes_max
from perdure.errors import StorageError, UsageError
from perdure.ports import Disk, is_temp_name
from perdure.storage.workspace import Layout

mtime_grain_s: Final = 0.05
"""How long a directory's time may stay the same though its content changes again."""

_MESSAGE: Final = ".json"
_RESULT: Final = ".result.json"


class Message(msgspec.Struct, frozen=True):
    """A command that somebody else is to carry out."""

    id: str
    """Becomes the ``op`` of the event, which makes carrying it out idempotent."""
    command: str
    args: dict[str, Any]
    actor: str
    at: float
    """When it was dropped, in seconds since 1970 on the sender's clock."""


class Damaged(NamedTuple):
    """A file in the drop box that is no message."""

    name: str
    reason: str


class Pending(NamedTuple):
    """What lies in the drop box."""

    messages: list[Message]
    """By time, then id."""
    damaged: list[Damaged]


class Stamp(NamedTuple):
    """How the drop box looked; it looks different after every later change."""

    inode: int
    mtime_ns: int


def drop(disk: Disk, layout: Layout, message: Message) -> None:
    """Leave a message; durable on return. The same id again replaces it.

    A crash in the middle leaves the whole message or none.
    """
    path = _path(layout, message.id, _MESSAGE)
    data = msgspec.json.encode(message)
    if len(data) > event_bytes_max:
        raise UsageError(
            f"the message has {len(data)} bytes; {event_bytes_max} is the most.",
            fix="Put the content into a file of the workspace and name that.",
        )
    disk.make_dirs(layout.spool)
    disk.replace(path, data, durable=True)


def pending(disk: Disk, layout: Layout) -> Pending:
    """The messages that wait, oldest first, and the files that cannot be understood.

    One unreadable file does not hide the others. Reads only; a message that somebody settles
    meanwhile is left out.
    """
    messages: list[Message] = []
    damaged: list[Damaged] = []
    for name in disk.list_dir(layout.spool):
        if name.startswith(".") or name.endswith(_RESULT) or not name.endswith(_MESSAGE):
            continue
        found = _read(disk, f"{layout.spool}/{name}", name)
        if isinstance(found, Message):
            messages.append(found)
        elif found is not None:
            damaged.append(found)
    messages.sort(key=lambda message: (message.at, message.id))
    return Pending(messages, damaged)


def settle(disk: Disk, layout: Layout, message_id: str, result: dict[str, Any]) -> None:
    """Answer a message whose command is committed, and remove it; durable on return.

    A crash in the middle leaves the message, whose id the state then knows: :func:`discard` it.
    The answer's bytes are not synced, because whoever waits for them does not outlive the power
    either; one that a power cut tore is none (:func:`take_result`).
    """
    path = _path(layout, message_id, _MESSAGE)
    disk.replace(_path(layout, message_id, _RESULT), msgspec.json.encode(result), durable=False)
    disk.unlink(path, durable=True)


def discard(disk: Disk, layout: Layout, message_id: str) -> None:
    """Remove a message that was carried out before; one that comes back is removed again."""
    disk.unlink(_path(layout, message_id, _MESSAGE), durable=False)


def take_result(disk: Disk, layout: Layout, message_id: str) -> dict[str, Any] | None:
    """The answer to a message, removed with this; None while there is none."""
    path = _path(layout, message_id, _RESULT)
    if disk.stat(path) is None:
        return None
    raw = disk.read(path)
    disk.unlink(path, durable=False)
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def sweep(disk: Disk, layout: Layout, before: float) -> int:
    """Remove answers that nobody fetched and messages that nobody finished; says how many.

    Only those last written before that moment, in seconds since 1970. Senders work without the
    lock, so ``before`` leaves them time: a younger file in the making belongs to a living one.
    """
    count = 0
    for name in disk.list_dir(layout.spool):
        if name.endswith(_RESULT) or is_temp_name(name):
            seen = disk.stat(f"{layout.spool}/{name}")
            if seen is not None and seen.mtime_ns < before * 1e9:
                disk.unlink(f"{layout.spool}/{name}", durable=False)
                count += 1
    return count


def changed(
    disk: Disk, layout: Layout, remembered: Stamp | None, now: float
) -> tuple[bool, Stamp | None]:
    """Whether :func:`pending` may find something new, by one stat, and what to remember.

    ``now`` is the clock's. A directory that changed a moment ago is called changed and not
    remembered, because it may change once more without another time. A missing one holds nothing.
    """
    seen = disk.stat(layout.spool)
    if seen is None:
        return False, None
    stamp = Stamp(seen.inode, seen.mtime_ns)
    # Also when the time lies ahead, after the clock was set back: then none can be relied on.
    if seen.mtime_ns > (now - mtime_grain_s) * 1e9:
        return True, None
    return stamp != remembered, stamp


def _path(layout: Layout, message_id: str, ending: str) -> str:
    # An id that ends in ".result" would make a message look like the answer to another.
    if not ID_PATTERN.match(message_id) or message_id.casefold().endswith(".result"):
        raise UsageError(
            f"{message_id!r} cannot be the id of a message.",
            fix="Use letters, digits and . _ - only, 64 at most, not ending in .result.",
        )
    return f"{layout.spool}/{message_id}{ending}"


def _read(disk: Disk, path: str, name: str) -> Message | Damaged | None:
    """The message in a file, why it is none, or None when the file is gone by now."""
    try:
        raw = disk.read(path, length=event_bytes_max + 1)
    except StorageError as error:
        return None if disk.stat(path) is None else Damaged(name, str(error))
    if len(raw) > event_bytes_max:
        return Damaged(name, f"longer than {event_bytes_max} bytes")
    try:
        message = msgspec.json.decode(raw, type=Message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Damaged(name, str(error))
    if f"{message.id}{_MESSAGE}" != name:
        return Damaged(name, f"holds the message {message.id!r}")
    return message
