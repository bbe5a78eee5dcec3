"""Waiting for the writer lock.

Job: take turns with other processes that commit. Invariants: a wait is bounded and ends in an error
that says so; a lock that its holder's death has freed is taken at the next look; whoever has waited
long looks more often, since writers that follow each other closely leave it only moments.
"""

from typing import Final

from perdure.core.closing import closed_refusal
from perdure.core.model import State
from perdure.errors import BusyError, StorageError
from perdure.ports import Clock, Disk, FileLock

lock_wait_s: Final = 10.0
_first_pause_s: Final = 0.0002
_longest_pause_s: Final = 0.005
_patience_s: Final = 1.0


def open_lock(disk: Disk, path: str, state: State) -> FileLock:
    """The writer lock, not taken yet. That of a closed task is sealed with it: then the refusal
    says that it is closed (FST-3), and not that somebody lacks a permission."""
    try:
        return disk.lock(path)
    except StorageError as error:
        if state.closing.closed:
            raise closed_refusal(state.task_id, state.closing.closed) from error
        raise


def wait_for_lock(lock: FileLock, clock: Clock, root: str) -> None:
    """Take the lock of the workspace ``root``. Raises BusyError after ``lock_wait_s``."""
    began = clock.monotonic()
    pause_s = _first_pause_s
    while not lock.try_acquire():
        waited_s = clock.monotonic() - began
        if waited_s > lock_wait_s:
            raise BusyError(
                f"another process has been writing to {root} for {lock_wait_s:.0f} s.",
                rule="lease",
                fix="Try again; if that process is stopped, let it go on or end it.",
            )
        clock.sleep(pause_s)
        longest_s = _longest_pause_s if waited_s < _patience_s else _first_pause_s
        pause_s = min(pause_s * 1.5, longest_s)
