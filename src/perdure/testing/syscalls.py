"""The system calls of one simulated process, and the faults that strike them.

Job: the one place where a simulated file system is changed or synced. Every such call is one
entry of a log, may be the process's last, and may fail with an errno. Invariants: a call that is
refused for what it asks (no such file) is not in the log, because it changes nothing; a call that
fails for an injected reason is, and changes nothing but what its failure is defined to leave;
after its end a process changes nothing, frees no lock that is not its own, and hears of nothing
but :class:`Killed`.
"""

import errno
import os
from collections.abc import Callable
from typing import Literal, NamedTuple

from perdure.ports import Clock
from perdure.testing.filesystem import FileSystem, Spot

OpKind = Literal[
    "create",
    "mkdir",
    "symlink",
    "write",
    "truncate",
    "rename",
    "unlink",
    "rmdir",
    "chmod",
    "sync_file",
    "sync_dir",
    "read",
    "stat",
    "list",
]
"""The last three read, so they are in no log; they can fail all the same."""

_EPOCH_NS = 1_700_000_000_000_000_000


class Killed(BaseException):
    """This process is dead. No code under test may catch it; the test that killed it does."""


class Op(NamedTuple):
    """One step of a process: a change or a sync of the disk, or a reading call."""

    number: int
    """From 1 in the log of its process; 0 for a reading call."""
    kind: OpKind
    path: str
    target: str = ""
    """Where a rename or a link leads."""
    inode: int = 0
    """Of the file that is written, cut or synced."""
    offset: int = 0
    """Of a write, in bytes; of a truncation, the size it leaves."""
    data: bytes = b""

    def __str__(self) -> str:
        name = os.path.basename(self.path)
        more = {
            "write": f" {len(self.data)} bytes at {self.offset}",
            "truncate": f" to {self.offset} bytes",
            "rename": f" to {os.path.basename(self.target)}",
            "symlink": f" to {self.target}",
        }.get(self.kind, "")
        return f"{self.number} {self.kind} {name}{more}"


class Failure:
    """An injected fault that waits for its step."""

    __slots__ = ("left", "number", "partial_bytes", "when")

    def __init__(
        self, when: int | Callable[[Op], bool], number: int, times: int | None, partial_bytes: int
    ) -> None:
        self.when = when
        self.number = number
        self.left = times
        self.partial_bytes = partial_bytes

    def strikes(self, op: Op) -> bool:
        """Whether this step fails; counted when it does."""
        if self.left == 0:
            return False
        hit = self.when == op.number if isinstance(self.when, int) else self.when(op)
        if hit and self.left is not None:
            self.left -= 1
        return hit


class SystemCalls:
    """What one process asks its kernel for. Paths are absolute; OSError as the kernel's."""

    def __init__(
        self,
        files: FileSystem,
        clock: Clock | None,
        cut_after: int | None = None,
        torn_bytes: int | None = None,
    ) -> None:
        self.files = files
        self.clock = clock
        self.log: list[Op] = []
        self.failures: list[Failure] = []
        self.held: set[object] = set()
        """Tokens of the locks that this process has."""
        self._cut_after = cut_after
        self._torn_bytes = torn_bytes
        self._at_end: list[Callable[[], object]] = []
        self._leaves = 0
        """Bytes of the write that has just been refused which are written all the same."""
        self._dead = cut_after == 0 and torn_bytes is None

    # Life and death

    @property
    def is_dead(self) -> bool:
        """Whether the process has met its end."""
        return self._dead

    def check(self) -> None:
        """Raise Killed when the process is dead."""
        if self._dead:
            raise Killed

    def at_end(self, tell: Callable[[], object]) -> None:
        """Call this when the process dies; at once when it is dead."""
        self._at_end.append(tell)
        if self._dead:
            tell()

    def die(self) -> None:
        """End the process: its locks are free."""
        if self._dead:
            return
        self._dead = True
        locks = self.files.locks
        for inode in [inode for inode, token in locks.items() if token in self.held]:
            del locks[inode]
        self.held.clear()
        for tell in self._at_end:
            tell()

    def die_after(self, steps: int) -> None:
        """End the process after so many more steps; at once for none."""
        self._cut_after, self._torn_bytes = len(self.log) + steps, None
        if not steps:
            self.die()

    def look(self, kind: OpKind, path: str) -> None:
        """Before every reading call: is the process alive, and does this one fail?"""
        self.check()
        if self.failures:
            self._strike(Op(0, kind, path))

    def _step(
        self,
        kind: OpKind,
        path: str,
        *,
        target: str = "",
        inode: int = 0,
        offset: int = 0,
        data: bytes = b"",
    ) -> None:
        self._leaves = 0
        self.check()
        op = Op(len(self.log) + 1, kind, path, target, inode, offset, data)
        self.log.append(op)
        if self._cut_after is not None and op.number >= self._cut_after:
            if op.number > self._cut_after:  # only when that step was to be torn
                self._leaves = self._torn_bytes or 0
                self.die()
                raise Killed(str(op))
            if self._torn_bytes is None:
                self.die()
        if self.failures:
            self._strike(op)

    def _strike(self, op: Op) -> None:
        for failure in self.failures:
            if failure.strikes(op):
                self._leaves = failure.partial_bytes
                raise OSError(failure.number, os.strerror(failure.number))

    def now_ns(self) -> int:
        """The time that files get."""
        return _EPOCH_NS if self.clock is None else int(self.clock.now() * 1e9)

    # Looking

    def is_dir(self, path: str) -> bool:
        """Whether the path leads to a directory."""
        try:
            return self.files.locate(path).inode in self.files.names
        except OSError:
            return False

    def folder(self, path: str) -> int:
        """The inode of a directory that exists."""
        inode = self._existing(path)
        if inode not in self.files.names:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return inode

    def regular(self, path: str) -> int:
        """The inode of a file that exists; a directory is an error."""
        inode = self._existing(path)
        if inode in self.files.names:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return inode

    def _existing(self, path: str) -> int:
        inode = self.files.locate(path).inode
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return inode

    def _free_spot(self, path: str) -> Spot:
        spot = self.files.locate(path, follow_last=False)
        if spot.inode is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        return spot

    # Changing, each a step of the log

    def create(self, path: str) -> int:
        """A new empty file; FileExistsError when the name is taken."""
        spot = self._free_spot(path)
        self._step("create", path)
        return self.files.create(spot, self.now_ns())

    def mkdir(self, path: str) -> None:
        """A new directory; FileExistsError when the name is taken."""
        spot = self._free_spot(path)
        self._step("mkdir", path)
        self.files.mkdir(spot, self.now_ns())

    def symlink(self, target: str, path: str) -> None:
        """A new symbolic link; FileExistsError when the name is taken."""
        spot = self._free_spot(path)
        self._step("symlink", path, target=target)
        self.files.symlink(spot, target, self.now_ns())

    def write(self, path: str, inode: int, offset: int, data: bytes) -> None:
        """Bytes into an open file. A refused write may leave the first of them."""
        try:
            self._step("write", path, inode=inode, offset=offset, data=data)
        except (OSError, Killed):
            self.files.write(inode, offset, data[: self._leaves], self.now_ns())
            raise
        self.files.write(inode, offset, data, self.now_ns())

    def truncate(self, path: str, inode: int, size_bytes: int) -> None:
        """Another size for an open file."""
        self._step("truncate", path, inode=inode, offset=size_bytes)
        self.files.truncate(inode, size_bytes, self.now_ns())

    def rename(self, source: str, target: str) -> None:
        """Move a name over another one, as rename(2) does."""
        files = self.files
        old = files.locate(source, follow_last=False)
        new = files.locate(target, follow_last=False)
        if old.inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        refusal = 0
        if old.inode in files.names:
            below = files.real_path(target, follow_last=False)
            if below.startswith(files.real_path(source, follow_last=False) + "/"):
                refusal = errno.EINVAL
            elif new.inode is not None and new.inode not in files.names:
                refusal = errno.ENOTDIR
            elif new.inode != old.inode and files.names.get(new.inode or 0):
                refusal = errno.ENOTEMPTY
        elif new.inode in files.names:
            refusal = errno.EISDIR
        if refusal:
            raise OSError(refusal, os.strerror(refusal))
        self._step("rename", source, target=target)
        if new.inode != old.inode:
            files.move(old, new, self.now_ns())

    def unlink(self, path: str) -> None:
        """Take a file's name away; FileNotFoundError when there is none."""
        spot = self.files.locate(path, follow_last=False)
        if spot.inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if spot.inode in self.files.names:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        self._step("unlink", path)
        self.files.unlink(spot, self.now_ns())

    def rmdir(self, path: str) -> None:
        """Take an empty directory's name away; FileNotFoundError when there is none."""
        spot = self.files.locate(path, follow_last=False)
        if spot.inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if spot.inode not in self.files.names:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if self.files.names[spot.inode]:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        self._step("rmdir", path)
        self.files.unlink(spot, self.now_ns())

    def chmod(self, path: str) -> None:
        """Change who may do what; FileNotFoundError when nothing is there."""
        if self.files.locate(path, follow_last=True).inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._step("chmod", path)

    def sync_file(self, path: str, inode: int) -> None:
        """fsync of a file. A failed one leaves its pages marked clean."""
        try:
            self._step("sync_file", path, inode=inode)
        except OSError:
            self.files.drop_dirty(inode)
            raise
        self.files.sync_file(inode)

    def sync_dir(self, path: str) -> None:
        """fsync of a directory."""
        inode = self.folder(path)
        self._step("sync_dir", path, inode=inode)
        self.files.sync_folder(inode)
