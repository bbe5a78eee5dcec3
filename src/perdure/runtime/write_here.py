"""``steering/write-here.md``: a person writes into a file, and that is an instruction.

Job: take the file by rename, log what it says as steering, propagate it. Invariants: a file with
nothing in it is left alone; one that is taken lies in ``steering/taken/`` whole and is never
written again, but once where it holds a secret, which is masked there before it is logged (SE-1);
what it says is logged exactly once, because its name there is the instruction's id, which the state
keeps for ever; a crash between the rename and the commit leaves it for the next look.
"""

import re
from typing import Final

from perdure.core import commands as c
from perdure.core.codec import compact_time
from perdure.core.model import text_bytes_max
from perdure.errors import HaltError, StorageError, UsageError
from perdure.runtime.engine import Engine
from perdure.runtime.masking import masker_of
from perdure.runtime.set_aside_files import report_unreadable
from perdure.runtime.steering import coordinating_actor, steer
from perdure.storage import spool
from perdure.storage.workspace import Layout

SOURCE: Final = "write-here"
quiet_s: Final = 0.1
"""How long a file must not have changed: an editor may be in the middle of writing it."""
patience_s: Final = 1.0
"""How long to wait for that at most: somebody may go on writing for ever."""
blank_bytes_max: Final = 4_096
"""Of so much nothing but blanks, a file still counts as empty."""

_grain_s: Final = 0.001
_ENDING: Final = ".md"
_TAKEN: Final = re.compile(r"\d{14}-[0-9a-f]{8}\.md\Z")


def take_in(engine: Engine) -> None:
    """Take the file if somebody has written into it, and log whatever was taken."""
    if has_words(engine):
        take(engine)
    log_taken(engine)


def has_words(engine: Engine) -> bool:
    """Whether somebody has written something that was not taken yet."""
    path = engine.layout.write_here
    seen = engine.disk.stat(path)
    if seen is None or (seen.kind == "file" and not seen.size_bytes):
        return False
    if seen.kind != "file" or seen.size_bytes > blank_bytes_max:
        return seen.kind != "dir"
    try:
        return bool(decoded(engine.disk.read(path, length=blank_bytes_max)).strip())
    except StorageError:
        return True  # taking it tells what is wrong with it


def take(engine: Engine) -> None:
    """Move the file to ``steering/taken``; durable on return, bytes and name.

    A crash before the rename leaves it as it was, one after it leaves it taken and not logged.
    """
    layout, disk, clock = engine.layout, engine.disk, engine.world.clock
    give_up_at = clock.monotonic() + patience_s
    seen = disk.stat(layout.write_here)
    while seen is not None and clock.monotonic() < give_up_at:
        age_s = clock.now() - seen.mtime_ns / 1e9
        if not 0 <= age_s < quiet_s:
            break
        clock.sleep(quiet_s - age_s + _grain_s)
        seen = disk.stat(layout.write_here)
    if seen is None:
        return
    disk.make_dirs(layout.taken)
    stamp = compact_time(clock.now())
    target = f"{layout.taken}/{stamp}-{engine.world.ids.token()}{_ENDING}"
    while disk.stat(target) is not None:
        target = f"{layout.taken}/{stamp}-{engine.world.ids.token()}{_ENDING}"
    if seen.kind == "file":
        try:
            disk.sync_file(layout.write_here)
        except StorageError as error:
            if error.code != "permission_denied":
                raise
    disk.rename(layout.write_here, target)


def log_taken(engine: Engine) -> int:
    """Log every file in ``steering/taken`` that is not on record yet; says how many there were.

    Looks into the directory only when it has changed since the last time.
    """
    layout, disk = engine.layout, engine.disk
    changed, stamp = spool.changed_since(
        disk, layout.taken, engine.taken_stamp, engine.world.clock.now()
    )
    if not changed:
        return 0
    waiting = unlogged(engine)
    for name in waiting:
        _log(engine, layout, name)
    engine.taken_stamp = stamp
    return len(waiting)


def unlogged(engine: Engine) -> list[str]:
    """Names of the files that were taken and are not on record, in the order they were taken."""
    state = engine.replica.state
    return [
        name
        for name in engine.disk.list_dir(engine.layout.taken)
        if _TAKEN.match(name) and _steering_id(name) not in state.steering
    ]


def _steering_id(name: str) -> str:
    return f"WH-{name.removesuffix(_ENDING)}"


def _log(engine: Engine, layout: Layout, name: str) -> None:
    op = f"write-here-{name.removesuffix(_ENDING)}"
    relative = f"{layout.taken}/{name}".removeprefix(f"{layout.root}/")
    try:
        words, engine.masked_before = _without_secrets(engine, f"{layout.taken}/{name}")
        command = c.LogSteering(_steering_id(name), words, SOURCE, relative)
        with engine.acting_as(coordinating_actor(engine)):
            steer(engine, command, op=op)
    except HaltError as error:
        if not engine.is_usable:
            raise
        report_unreadable(engine, relative, error.message, op)


def _without_secrets(engine: Engine, path: str) -> tuple[str, dict[str, int]]:
    """What a taken file says, and what was masked in it: in the file too, durable on return (SE-1).

    A crash before leaves it as it was, and the next look masks it.
    """
    words, masked = masker_of(engine).mask_text(_read(engine, path))
    if masked:
        data = words.encode("utf-8", "surrogateescape")
        engine.disk.replace(engine.disk.real_path(path), data, durable=True)
    return words, masked


def _read(engine: Engine, path: str) -> str:
    """What a taken file says. Raises HaltError for what is no file, or longer than an event."""
    seen = engine.disk.stat(path)
    if seen is None or seen.kind != "file":
        raise UsageError("it is no regular file.", fix="Write a file of that name.")
    if seen.size_bytes > text_bytes_max:
        raise UsageError(
            f"it has {seen.size_bytes} bytes; the limit is {text_bytes_max}.",
            fix="Put the content into a file of the workspace and name that.",
        )
    return decoded(engine.disk.read(path))


def decoded(data: bytes) -> str:
    """The text of a file that some editor wrote: UTF-8, with whatever mark, or marked UTF-16.

    Bytes that are no text are kept as they are, as lone surrogates.
    """
    for mark, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            try:
                return data.decode(encoding)
            except UnicodeDecodeError:
                break
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
