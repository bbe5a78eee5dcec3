"""What may stand where a job has its files, and what may not.

Job: recognise a link, a directory or a device in the place of a file, name it, and say how to put
it right. Invariants: nothing is read or written through any of them; opening refuses what is named
here before it changes anything, and ``verify`` and ``status`` name the same. It only looks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from perdure.errors import RefusedError, StorageError
from perdure.jobs.checkpoints import STATE_NAME, SUMMARY_NAME
from perdure.jobs.exclusive import LOCK_NAME
from perdure.jobs.log import LOG_NAME
from perdure.jobs.recent import RECENT_NAME
from perdure.jobs.repair import TORN_NAME
from perdure.ports import Disk

RUN_NAME: Final = ".run"
"""Directory for what belongs to commands at work. Nothing in it is believed."""

_KINDS: Final = {
    "file": "a file",
    "dir": "a directory",
    "link": "a symbolic link",
    "other": "neither a file nor a directory",
}
_FIXES: Final = {
    LOG_NAME: "Put the log itself there, or name another directory for the job.",
    STATE_NAME: "Put the file itself there, or move this away: then the log says what is done.",
    RECENT_NAME: "Move it away; attempts and cursor are then those of state.json.",
    LOCK_NAME: "Remove it while nobody has the job open: the next start makes it.",
    SUMMARY_NAME: "Move it away: the next start makes the file.",
    TORN_NAME: "Move it away: the next start makes the directory when it needs one.",
    RUN_NAME: "Move it away: the next start makes the directory when it needs one.",
}
_NAMES: Final = {LOG_NAME: "log", STATE_NAME: "state"}


class Obstacle(NamedTuple):
    """Something that is not what it has to be."""

    name: str
    """Of the file."""
    what: str
    """Of the defect: ``log``, ``state`` or ``file``."""
    message: str
    fix: str


def obstacles(disk: Disk, root: str) -> list[Obstacle]:
    """What stands in the way of the files of the job in ``root``. Raises StorageError."""
    found: list[Obstacle] = []
    for name, fix in _FIXES.items():
        stat = disk.stat(f"{root}/{name}")
        if stat is None or stat.kind in _good_kinds(name):
            continue
        wanted = "directory" if name in (TORN_NAME, RUN_NAME) else "file"
        message = f"{root}/{name} is {_KINDS[stat.kind]}; in a job it is a {wanted} of its own."
        found.append(Obstacle(name, _NAMES.get(name, "file"), message, fix))
    return found


def _good_kinds(name: str) -> tuple[str, ...]:
    if name == TORN_NAME:
        return ("dir", "link")
    if name == RUN_NAME:  # files in it are removed, so nobody else's directory will do
        return ("dir",)
    # The summary is never read, and a link in its place is replaced like a file.
    return ("file", "link", "other") if name == SUMMARY_NAME else ("file",)


def check_place(disk: Disk, root: str) -> None:
    """Refuse what is in the way of a job, before anything is made. Raises RefusedError."""
    stat = disk.stat(root)
    if stat is not None and stat.kind != "dir":
        raise RefusedError(
            f"{root} is not a directory.",
            code="not_a_directory",
            rule="JB-2",
            fix="Name another directory for the job.",
        )
    for found in obstacles(disk, root):
        raise RefusedError(
            found.message,
            code="not_a_log" if found.name == LOG_NAME else "not_a_file",
            rule="JB-2",
            fix=found.fix,
        )


@contextmanager
def only_reading() -> Iterator[None]:
    """For calls that write nothing: a missing right is one to read."""
    try:
        yield
    except StorageError as error:
        if error.code != "permission_denied":
            raise
        fix = "Give this user read access to it, then run it again."
        raise StorageError(error.message, code=error.code, fix=fix) from error
