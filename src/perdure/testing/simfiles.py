"""Open files and locks of a simulated process.

Job: ``ports.AppendFile`` and ``ports.FileLock`` over simulated system calls. Invariants: an append
file is dead after its first failure, as the real one is; one lock has one holder among all objects
and processes of the machine, and none once that process is dead. Letting go of either never fails
and never raises, so it is safe at the end of a process that was killed.
"""

import contextlib
from collections.abc import Iterator
from typing import Final

from perdure.errors import StorageError
from perdure.testing.syscalls import SystemCalls

lock_reopens_max: Final = 8
"""Times a lock file may be swapped between opening and locking it, in one attempt."""


@contextlib.contextmanager
def failures_named(path: str, doing: str) -> Iterator[None]:
    """What fails inside is a StorageError that names errno, path and what was being done."""
    try:
        yield
    except OSError as error:
        raise StorageError.from_os(error, path, doing) from error


class SimAppendFile:
    """``ports.AppendFile``; dead after its first failure, as the real one is."""

    __slots__ = ("_calls", "_failure", "_inode", "_path")

    def __init__(self, calls: SystemCalls, path: str, inode: int) -> None:
        self._calls = calls
        self._path = path
        self._inode = inode
        self._failure: StorageError | None = None

    def append(self, data: bytes) -> None:
        """As the port says."""
        calls = self._living()
        try:
            calls.write(self._path, self._inode, self.size(), data)
        except OSError as error:
            raise self._die(error, "Appending") from error

    def sync(self) -> None:
        """As the port says. A failed sync is final."""
        calls = self._living()
        try:
            calls.sync_file(self._path, self._inode)
        except OSError as error:
            raise self._die(error, "Syncing") from error

    def size(self) -> int:
        """As the port says."""
        return len(self._living().files.files[self._inode].data)

    def close(self) -> None:
        """As the port says; may be called again, also by a process that is dead."""
        self._inode = 0

    def _living(self) -> SystemCalls:
        self._calls.check()
        if self._inode:
            return self._calls
        if self._failure is None:
            raise StorageError(f"{self._path} is closed.", fix="Open it again.")
        raise StorageError(
            f"Nothing more may be written to {self._path} here since this failed: "
            f"{self._failure.message}",
            code=self._failure.code,
            fix=self._failure.fix,
        )

    def _die(self, error: OSError, doing: str) -> StorageError:
        self.close()
        self._failure = StorageError.from_os(error, self._path, doing)
        return self._failure


class SimFileLock:
    """``ports.FileLock``: one holder among all objects and processes of the machine."""

    __slots__ = ("_calls", "_inode", "_path", "_token")

    def __init__(self, calls: SystemCalls, path: str) -> None:
        self._calls = calls
        self._path = path
        self._token: object | None = None
        self._inode = self._open()

    def try_acquire(self) -> bool:
        """As the port says; False also when this very object has it already."""
        self._calls.check()
        locks = self._calls.files.locks
        with failures_named(self._path, "Locking"):
            for _ in range(lock_reopens_max):
                self._inode = self._inode or self._open()
                if self._inode in locks:
                    return False
                if self._calls.files.locate(self._path).inode == self._inode:
                    self._token = locks[self._inode] = object()
                    self._calls.held.add(self._token)
                    return True
                self._inode = 0
        return False

    def release(self) -> None:
        """As the port says; a dead process has none."""
        token, self._token = self._token, None
        if token in self._calls.held:
            self._calls.held.discard(token)
            del self._calls.files.locks[self._inode]

    def close(self) -> None:
        """As the port says; may be called again."""
        self.release()
        self._inode = 0

    def __del__(self) -> None:
        self.close()

    def _open(self) -> int:
        inode = self._calls.files.locate(self._path).inode
        if inode is None:
            return self._calls.create(self._calls.files.real_path(self._path))
        return self._calls.regular(self._path)
