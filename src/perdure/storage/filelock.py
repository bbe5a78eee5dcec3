"""The operating-system lock behind ``ports.FileLock``.

Job: one holder at a time among all processes of this machine and all objects of one process, and
no holder at all once its process is gone, however it died, so that no stale lock ever needs a
cure. Invariants: the file that is locked is the one that stands under the name, so deleting or
swapping the lock file by hand does not make two holders out of the next ones; a forked child never
has its parent's lock and cannot free it. It never waits and never deletes the lock file.

Limits: a network file system that emulates flock with record locks does not separate two holders
inside one process; one without locks is a ``StorageError``. On Windows the lock is a byte range of
msvcrt, and the open file cannot be deleted there in the first place.
"""

import contextlib
import os
import sys
from typing import Final

from perdure.errors import StorageError

if sys.platform == "win32":
    import msvcrt

    def _lock_now(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock_now(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


_FLAGS: Final = getattr(os, "O_CLOEXEC", 0)

reopens_max: Final = 8
"""Times the lock file may be swapped between opening and locking it, in one attempt."""


class RealFileLock:
    """``ports.FileLock`` on an open file of its own.

    Raises StorageError where the lock file can neither be opened for writing nor made. Not for
    two threads at once.
    """

    __slots__ = ("_descriptor", "_device", "_held", "_inode", "_path", "_pid")

    def __init__(self, path: str) -> None:
        self._path = path
        self._held = False
        self._pid = os.getpid()
        self._descriptor = -1
        try:
            self._open()
        except OSError as error:
            raise StorageError.from_os(error, path, "Opening the lock") from error

    def try_acquire(self) -> bool:
        """As the port says; False also when this very object has it already."""
        if self._pid != os.getpid():
            self._pid, self._descriptor, self._held = os.getpid(), -1, False
        if self._held:
            return False
        try:
            for _ in range(reopens_max):
                if self._descriptor < 0:
                    self._open()
                if not _lock_now(self._descriptor):
                    return False
                if self._is_named():
                    self._held = True
                    return True
                self._drop()
        except OSError as error:
            self._drop()
            raise StorageError.from_os(error, self._path, "Locking") from error
        return False

    def release(self) -> None:
        """As the port says. Should unlocking fail, closing the file frees the lock all the same."""
        if self._held and self._pid == os.getpid():
            self._held = False
            try:
                _unlock(self._descriptor)
            except OSError:
                self._drop()

    def close(self) -> None:
        """As the port says; may be called again."""
        if self._pid == os.getpid():
            self._held = False
            self._drop()

    def __del__(self) -> None:
        self.close()

    def _open(self) -> None:
        self._descriptor = _open_lock(self._path)
        mine = os.fstat(self._descriptor)
        self._device, self._inode = mine.st_dev, mine.st_ino

    def _is_named(self) -> bool:
        """Whether the open file is the one a newcomer would open under this name."""
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return False
        return named.st_ino == self._inode and named.st_dev == self._device

    def _drop(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            _lock_descriptors.discard(descriptor)
            with contextlib.suppress(OSError):
                os.close(descriptor)


_lock_descriptors: set[int] = set()


def _close_locks_of_parent() -> None:
    """In a forked child: close the copies of the parent's lock files.

    Without unlocking, which would free the parent's lock; and at once, because a copy left open
    would keep the lock alive after the parent was killed.
    """
    for descriptor in _lock_descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _lock_descriptors.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_locks_of_parent)


def _open_lock(path: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o644)
    _lock_descriptors.add(descriptor)
    return descriptor
