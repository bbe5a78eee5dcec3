"""A disk whose process is killed at a chosen system call, or whose system calls fail.

``CutDisk`` is the real disk with every call that changes something counted. At number ``at`` its
process dies: the call is not made (``before``), is made (``after``), or a write leaves half of its
bytes (``middle``). What was written stays, as the page cache does after SIGKILL; syncs are counted
and not carried out, since nothing but power loss could tell. After the death every call raises
``Killed``, so that no ``finally`` of the code under test can put things in order, and its locks
are free, as the operating system would have it.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

from perdure.ports import AppendFile, FileLock, FileStat
from perdure.storage import disk as disk_module
from perdure.storage.disk import RealDisk

T = TypeVar("T")
When = Literal["before", "after", "middle"]


class Killed(BaseException):
    """The process is gone. Nothing in it may catch this."""


class Fuse:
    """Counts the calls of one process that change the disk, and blows at one of them."""

    def __init__(self, at: int = 0, when: When = "before") -> None:
        self.at = at
        self.when = when
        self.dead = False
        self.trace: list[str] = []

    @property
    def count(self) -> int:
        return len(self.trace)

    def check(self) -> None:
        if self.dead:
            raise Killed

    def pass_through(
        self, what: str, act: Callable[[], T], half: Callable[[], object] | None = None
    ) -> T:
        self.check()
        self.trace.append(what)
        if self.count != self.at:
            return act()
        self.dead = True
        if self.when == "after":
            act()
        elif self.when == "middle" and half is not None:
            half()
        raise Killed(what)


class FailingFuse(Fuse):
    """Lets one call fail with an errno instead; the process lives on."""

    def __init__(self, at: int, number: int, *, lasting: bool = False) -> None:
        super().__init__(at, "middle")
        self.number = number
        self.lasting = lasting
        """Every later call fails as well, as on a full disk, but for those that free space."""
        self.failed: list[str] = []

    def pass_through(
        self, what: str, act: Callable[[], T], half: Callable[[], object] | None = None
    ) -> T:
        self.trace.append(what)
        later = self.lasting and self.count > self.at and not what.startswith(_FREES_SPACE)
        if self.count != self.at and not later:
            return act()
        self.failed.append(what)
        if half is not None:
            half()
        raise OSError(self.number, os.strerror(self.number))


_FREES_SPACE = ("unlink", "ftruncate", "fsync", "fdatasync", "replace")


class CountedOs:
    """``os`` for ``storage.disk``: what changes the disk goes through the fuse."""

    def __init__(self, fuse: Fuse, *, really_sync: bool = False) -> None:
        self._fuse = fuse
        self._really_sync = really_sync

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if not flags & os.O_CREAT:
            return os.open(path, flags, mode)
        what = f"create {os.path.basename(path)}"
        return self._fuse.pass_through(what, lambda: os.open(path, flags, mode))

    def write(self, descriptor: int, data: bytes) -> int:
        half = len(data) // 2
        return self._fuse.pass_through(
            f"write {len(data)}",
            lambda: os.write(descriptor, data),
            lambda: os.write(descriptor, data[:half]),
        )

    def replace(self, source: str, target: str) -> None:
        what = f"replace {os.path.basename(target)}"
        self._fuse.pass_through(what, lambda: os.replace(source, target))

    def unlink(self, path: str) -> None:
        self._fuse.pass_through(f"unlink {os.path.basename(path)}", lambda: os.unlink(path))

    def mkdir(self, path: str) -> None:
        self._fuse.pass_through(f"mkdir {os.path.basename(path)}", lambda: os.mkdir(path))

    def ftruncate(self, descriptor: int, size_bytes: int) -> None:
        what = f"ftruncate {size_bytes}"
        self._fuse.pass_through(what, lambda: os.ftruncate(descriptor, size_bytes))

    def fsync(self, descriptor: int) -> None:
        self._fuse.pass_through("fsync", lambda: self._really_sync and os.fsync(descriptor))

    def fdatasync(self, descriptor: int) -> None:
        self._fuse.pass_through("fdatasync", lambda: self._really_sync and os.fdatasync(descriptor))


class CutDisk:
    """``ports.Disk``: the real one, in a process with a fuse."""

    syncs_at_once = False

    def __init__(self, fuse: Fuse | None = None) -> None:
        self.fuse = fuse or Fuse()
        self.bytes_read = 0
        self._real = RealDisk()
        self._os = CountedOs(self.fuse)
        self._locks: list[FileLock] = []

    def die(self) -> None:
        """SIGKILL between two calls."""
        self.fuse.dead = True
        self.free_locks()

    def free_locks(self) -> None:
        """What the operating system does at the end of a process."""
        for lock in self._locks:
            lock.close()

    @contextlib.contextmanager
    def tapped(self) -> Iterator[None]:
        self.fuse.check()
        disk_module.os = self._os  # type: ignore[assignment]
        try:
            yield
        finally:
            disk_module.os = os
            if self.fuse.dead:
                self.free_locks()

    # Reading

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        with self.tapped():
            data = self._real.read(path, offset, length)
        self.bytes_read += len(data)
        return data

    def read_chunks(
        self, path: str, chunk_bytes: int = 1 << 20, offset: int = 0
    ) -> Iterator[bytes]:
        self.fuse.check()
        for chunk in self._real.read_chunks(path, chunk_bytes, offset):
            self.bytes_read += len(chunk)
            yield chunk

    def stat(self, path: str) -> FileStat | None:
        with self.tapped():
            return self._real.stat(path)

    def real_path(self, path: str) -> str:
        with self.tapped():
            return self._real.real_path(path)

    def list_dir(self, path: str) -> list[str]:
        with self.tapped():
            return self._real.list_dir(path)

    # Changing

    def make_dirs(self, path: str, *, durable: bool = True) -> None:
        with self.tapped():
            self._real.make_dirs(path, durable=durable)

    def replace(self, path: str, data: bytes, *, durable: bool) -> None:
        with self.tapped():
            self._real.replace(path, data, durable=durable)

    def rename(self, source: str, target: str) -> None:
        with self.tapped():
            self._real.rename(source, target)

    def unlink(self, path: str, *, durable: bool) -> None:
        with self.tapped():
            self._real.unlink(path, durable=durable)

    def truncate(self, path: str, size_bytes: int) -> None:
        with self.tapped():
            self._real.truncate(path, size_bytes)

    def rewrite(self, path: str, offset: int, data: bytes) -> None:
        with self.tapped():
            self._real.rewrite(path, offset, data)

    def sync_file(self, path: str) -> None:
        with self.tapped():
            self._real.sync_file(path)

    def sync_dir(self, path: str) -> None:
        with self.tapped():
            self._real.sync_dir(path)

    def open_append(self, path: str) -> "CutAppendFile":
        with self.tapped():
            return CutAppendFile(self, self._real.open_append(path))

    def lock(self, path: str) -> "CutLock":
        with self.tapped():
            lock = self._real.lock(path)
        self._locks.append(lock)
        return CutLock(self.fuse, lock)


class CutAppendFile:
    """``ports.AppendFile`` of a process with a fuse."""

    def __init__(self, disk: CutDisk, real: AppendFile) -> None:
        self._disk = disk
        self._real = real

    def append(self, data: bytes) -> None:
        with self._disk.tapped():
            self._real.append(data)

    def sync(self) -> None:
        with self._disk.tapped():
            self._real.sync()

    def size(self) -> int:
        with self._disk.tapped():
            return self._real.size()

    def close(self) -> None:
        self._real.close()


class CutLock:
    """``ports.FileLock`` of a process with a fuse."""

    def __init__(self, fuse: Fuse, real: FileLock) -> None:
        self._fuse = fuse
        self._real = real

    def try_acquire(self) -> bool:
        self._fuse.check()
        return self._real.try_acquire()

    def release(self) -> None:
        self._fuse.check()
        self._real.release()

    def close(self) -> None:
        self._real.close()


def disk_full(at: int, *, lasting: bool = False) -> FailingFuse:
    """The disk is full at this call, and with ``lasting`` from then on."""
    return FailingFuse(at, errno.ENOSPC, lasting=lasting)
