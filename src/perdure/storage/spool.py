"""The drop box: how a command reaches a coordinator that holds the lease (protocol section 10).

Job: carry messages through ``steering/spool/``, one file each, and their results back. Invariants:
a message is durable before its sender says so, and is removed only by an explicit call after its
command was committed; a file that cannot be understood is reported, and leaves the box only by an
explicit call, whole; a name that starts with a dot is a file in the making and not looked at. It
never decides whether a message was carried out already: its id in the state says so.
"""

import re
from collections.abc import Collection
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.model import ID_PATTERN, event_bytes_max
from perdure.errors import StorageError, UsageError
from perdure.ports import Disk, FileStat, is_temp_name
from perdure.storage.workspace import Layout

mtime_grain_s: Final = 0.05
"""How long a directory's time may stay the same though its content changes again."""

safe_name_chars_max: Final = 100

_MESSAGE: Final = ".json"
_RESULT: Final = ".result.json"
_KINDS: Final = {"dir": "a directory", "link": "a link", "other": "a pipe or a device"}
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


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
    digest: str = ""
    """Tells this name with this content from every other."""
    inode: int = 0


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


def pending(disk: Disk, layout: Layout, besides: Collection[str] = ()) -> Pending:
    """The messages that wait, oldest first, and whatever else is there that is none.

    One unreadable file does not hide the others. Reads only; a message that somebody settles
    meanwhile is left out, and so are those whose file has a name of ``besides``.
    """
    messages: list[Message] = []
    damaged: list[Damaged] = []
    for name in disk.list_dir(layout.spool):
        if name.startswith(".") or name.endswith(_RESULT) or name in besides:
            continue
        found = _read(disk, f"{layout.spool}/{name}", name)
        if isinstance(found, Message):
            messages.append(found)
        elif found is not None:
            damaged.append(found)
    messages.sort(key=lambda message: (message.at, message.id))
    return Pending(messages, damaged)


def waiting(disk: Disk, layout: Layout) -> int:
    """How many files wait to be taken in, by their names alone."""
    names = disk.list_dir(layout.spool)
    return sum(not name.startswith(".") and not name.endswith(_RESULT) for name in names)


def settle(disk: Disk, layout: Layout, message_id: str, result: dict[str, Any]) -> None:
    """Answer a message whose command is committed, and remove it; durable on return.

    A crash in the middle leaves the message, whose id the state then knows: :func:`discard` it.
    The answer's bytes are not synced, because whoever waits for them does not outlive the power
    either; one that a power cut tore is none (:func:`take_result`).
    """
    answer(disk, layout, message_id, result)
    disk.unlink(_path(layout, message_id, _MESSAGE), durable=True)


def answer(disk: Disk, layout: Layout, message_id: str, result: dict[str, Any]) -> None:
    """Leave an answer for whoever waits for it; the message stays."""
    disk.replace(_path(layout, message_id, _RESULT), msgspec.json.encode(result), durable=False)


def discard(disk: Disk, layout: Layout, message_id: str) -> None:
    """Remove a message that was carried out before; one that comes back is removed again."""
    disk.unlink(_path(layout, message_id, _MESSAGE), durable=False)


def aside_path(layout: Layout, damaged: Damaged) -> str:
    """Where :func:`move_aside` puts it."""
    return f"{layout.recovered}/drop-box-{damaged.digest}-{_safe(damaged.name)}"


def move_aside(disk: Disk, layout: Layout, damaged: Damaged) -> None:
    """Move what is no message out of the drop box, whole; durable on return.

    A file that has taken its place meanwhile, because its sender sent it again, stays. A crash
    leaves it in one place or the other.
    """
    source, target = f"{layout.spool}/{damaged.name}", aside_path(layout, damaged)
    seen = disk.stat(source)
    if seen is None or seen.inode != damaged.inode:
        return
    disk.make_dirs(layout.recovered)
    disk.rename(source, target)
    moved = disk.stat(target)
    if moved is not None and moved.inode != damaged.inode and disk.stat(source) is None:
        disk.rename(target, source)


def name_of(message: Message) -> str:
    """The name of the file that holds a message."""
    return f"{message.id}{_MESSAGE}"


def as_damaged(disk: Disk, layout: Layout, message: Message, reason: str) -> Damaged:
    """A message that can never be carried out, as something to be moved aside."""
    name = name_of(message)
    seen = disk.stat(f"{layout.spool}/{name}")
    data = msgspec.json.encode(message)
    return Damaged(name, reason, _digest(name, data), seen.inode if seen is not None else 0)


def _safe(name: str) -> str:
    """A name that every file system takes, and that nobody mistakes for one in the making."""
    return _UNSAFE.sub("_", name)[:safe_name_chars_max]


def _digest(name: str, data: bytes) -> str:
    whole = sha256(name.encode("utf-8", "surrogateescape") + b"\0" + data)
    return whole.hexdigest()[:16]


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
    """Whether :func:`pending` may find something new, by one stat, and what to remember."""
    return changed_since(disk, layout.spool, remembered, now)


def changed_since(
    disk: Disk, directory: str, remembered: Stamp | None, now: float
) -> tuple[bool, Stamp | None]:
    """Whether there may be other names in a directory, by one stat, and what to remember.

    ``now`` is the clock's. A directory that changed a moment ago is called changed and not
    remembered, because it may change once more without another time. A missing one holds nothing.
    """
    seen = disk.stat(directory)
    if seen is None:
        return False, None
    stamp = Stamp(seen.inode, seen.mtime_ns)
    # Also when the time lies ahead, after the clock was set back: then none can be relied on.
    if seen.mtime_ns > (now - mtime_grain_s) * 1e9:
        return True, None
    return stamp != remembered, stamp


def message_id_of(name: str) -> str:
    """The id of the message that a file of this name holds; empty when it can hold none."""
    message_id = name.removesuffix(_MESSAGE)
    return message_id if message_id != name and _is_id(message_id) else ""


def _is_id(text: str) -> bool:
    # An id that ends in ".result" would make a message look like the answer to another.
    return bool(ID_PATTERN.match(text)) and not text.casefold().endswith(".result")


def _path(layout: Layout, message_id: str, ending: str) -> str:
    if not _is_id(message_id):
        raise UsageError(
            f"{message_id!r} cannot be the id of a message.",
            fix="Use letters, digits and . _ - only, 64 at most, not ending in .result.",
        )
    return f"{layout.spool}/{message_id}{ending}"


def _read(disk: Disk, path: str, name: str) -> Message | Damaged | None:
    """The message in a file, why it is none, or None when the file is gone by now."""
    seen = disk.stat(path)
    if seen is None:
        return None
    if seen.kind != "file":
        return _no_message(name, seen, f"it is {_KINDS[seen.kind]}, not a file")
    if seen.size_bytes > event_bytes_max:
        return _no_message(name, seen, f"it has more than {event_bytes_max} bytes")
    try:
        raw = disk.read(path, length=event_bytes_max + 1)
    except StorageError as error:
        return None if disk.stat(path) is None else _no_message(name, seen, error.message)
    if not message_id_of(name):
        return _no_message(name, seen, f"its name is not ID{_MESSAGE}", raw)
    try:
        message = msgspec.json.decode(raw, type=Message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _no_message(name, seen, f"it is torn, or not from perdure ({error})", raw)
    if name_of(message) != name:
        return _no_message(name, seen, f"it holds the message {message.id!r}", raw)
    return message


def _no_message(name: str, seen: FileStat, reason: str, data: bytes = b"") -> Damaged:
    told = data or f"{seen.kind} {seen.size_bytes} {seen.mtime_ns}".encode()
    return Damaged(name, reason, _digest(name, told), seen.inode)
