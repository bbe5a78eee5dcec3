"""``SimDisk``: the Disk port in memory, with faults at every step.

Job: make for each call the same sequence of changes and syncs as ``storage.disk.RealDisk`` makes
system calls, so that a process can be killed between any two, any one can fail, and
``crash.states`` can say what a power cut at this moment may leave. Invariants: it keeps files and
nothing about their meaning; a call that fails raises StorageError with the errno and leaves what
the real one would leave; the same calls give the same log, names and inodes, every time. It never
touches the real disk. Not for two threads at once.

Limits: permissions, quotas and hard links do not exist here, and the page cache never forgets
what a failed sync left in it before the power is cut.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Final, Self

from perdure.ports import Clock, FileStat
from perdure.testing.filesystem import File, FileSystem
from perdure.testing.simfiles import SimAppendFile, SimFileLock, failures_named
from perdure.testing.syscalls import Failure, Killed, Op, SystemCalls

folder_size_bytes: Final = 4_096
"""What ``stat`` says of a directory."""


class SimDisk:
    """``ports.Disk`` over files in memory, as one process sees them.

    ``cut_after=k`` kills the process after its ``k``-th change or sync (see ``log``): every later
    call raises :class:`Killed`. With ``torn_bytes=n`` the next step is cut in the middle instead:
    if it is a write, its first ``n`` bytes are written. ``clock`` gives files their times. ::

        disk = SimDisk(cut_after=7)
        try:
            workload(disk)
        except Killed:
            after_a_kill = disk.survive_kill()
            after_a_power_cut = crash.states(disk, chance=Random(1))
    """

    syncs_at_once = False

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        cut_after: int | None = None,
        torn_bytes: int | None = None,
        files: FileSystem | None = None,
    ) -> None:
        self.files = FileSystem() if files is None else files
        """What all processes of this machine share."""
        self.story: Callable[[], str] = str
        """Says what a power cut took, when this is a disk that one left; empty otherwise."""
        self._calls = SystemCalls(self.files, clock, cut_after, torn_bytes)
        self.sealed: set[str] = set()
        """What this process has made read-only."""
        self._anchored: set[str] = set()
        self._temp_number = 0

    # Processes and their ends

    @property
    def log(self) -> list[Op]:
        """Every change and sync that this process has tried, numbered from 1."""
        return self._calls.log

    @property
    def is_dead(self) -> bool:
        """Whether this process has been killed."""
        return self._calls.is_dead

    def kill(self) -> None:
        """SIGKILL for this process, now: its locks are free, and every later call is Killed."""
        self._calls.die()

    def kill_after(self, steps: int) -> None:
        """SIGKILL after so many more changes or syncs of this process, whatever was said before."""
        self._calls.die_after(steps)

    def at_end(self, tell: Callable[[], object]) -> None:
        """Call ``tell`` when this process dies; at once when it is dead already."""
        self._calls.at_end(tell)

    @property
    def clock(self) -> Clock | None:
        """What gives files their times; may be set."""
        return self._calls.clock

    @clock.setter
    def clock(self, clock: Clock | None) -> None:
        self._calls.clock = clock

    def survive_kill(self, *, cut_after: int | None = None, torn_bytes: int | None = None) -> Self:
        """SIGKILL for every process: the next one finds what was written, and no lock held.

        The new disk has its own files; this one is dead. What was not synced waits on, so a power
        cut may still take it.
        """
        self.kill()
        return self.holding(self.files.copy(), cut_after=cut_after, torn_bytes=torn_bytes)

    def beside(self, *, cut_after: int | None = None, torn_bytes: int | None = None) -> Self:
        """The disk of one more process of this machine: the same files and locks."""
        return self.holding(self.files, cut_after=cut_after, torn_bytes=torn_bytes)

    def holding(
        self,
        files: FileSystem,
        *,
        cut_after: int | None = None,
        torn_bytes: int | None = None,
    ) -> Self:
        """The disk of a new process that finds these files, under the same clock."""
        clock = self._calls.clock
        return type(self)(clock=clock, cut_after=cut_after, torn_bytes=torn_bytes, files=files)

    def fail(
        self,
        when: int | Callable[[Op], bool],
        number: int,
        *,
        times: int | None = 1,
        partial_bytes: int = 0,
    ) -> None:
        """Let steps of this process fail with an errno, such as ``errno.ENOSPC``.

        ``when`` is the number a step will have in ``log``, or says of each step whether it fails;
        then it also sees reading calls (``read``, ``stat``, ``list``). ``times`` is how many fail,
        None for all. A failing write leaves its first ``partial_bytes``. A failing ``sync_file``
        marks what it should have written as clean, so that no later sync writes it either unless
        it is written again (``rewrite``); a failing ``sync_dir`` leaves the names waiting.
        """
        self._calls.failures.append(Failure(when, number, times, partial_bytes))

    def heal(self) -> None:
        """Let nothing fail any more: there is space again, the device is well."""
        self._calls.failures.clear()

    def tree(self) -> dict[str, bytes | str | None]:
        """Everything there is: path to bytes, for a link to its target, for a directory None."""
        return self.files.tree()

    # Reading

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """As the port says. Only regular files: a directory is an error."""
        with failures_named(path, "Reading"):
            self._calls.look("read", path)
            data = self.files.files[self._calls.regular(path)].data
        return data[offset:] if length is None else data[offset : offset + length]

    def read_chunks(
        self, path: str, chunk_bytes: int = 1 << 20, offset: int = 0
    ) -> Iterator[bytes]:
        """As the port says. Opened at the first piece; sees what is appended meanwhile."""
        with failures_named(path, "Reading"):
            self._calls.look("read", path)
            inode = self._calls.regular(path)
            while piece := self.files.files[inode].data[offset : offset + chunk_bytes]:
                offset += len(piece)
                yield piece
                self._calls.look("read", path)

    def stat(self, path: str) -> FileStat | None:
        """As the port says. A path below something that is no directory is not there either."""
        with failures_named(path, "Looking it up"):
            self._calls.look("stat", path)
            try:
                inode = self.files.locate(path, follow_last=False).inode
            except (FileNotFoundError, NotADirectoryError):
                return None
        if inode is None:
            return None
        if inode in self.files.files:
            file = self.files.files[inode]
            return FileStat(len(file.data), file.mtime_ns, inode, "file")
        if inode in self.files.links:
            return FileStat(len(os.fsencode(self.files.links[inode])), 0, inode, "link")
        return FileStat(folder_size_bytes, self.files.folder_times[inode], inode, "dir")

    def real_path(self, path: str) -> str:
        """As the port says."""
        with failures_named(path, "Resolving links"):
            self._calls.look("stat", path)
            return self.files.real_path(path)

    def list_dir(self, path: str) -> list[str]:
        """As the port says. A file in the place of the directory is an error, not an empty list."""
        with failures_named(path, "Listing"):
            self._calls.look("list", path)
            try:
                return sorted(self.files.names[self._calls.folder(path)])
            except FileNotFoundError:
                return []

    # Changing

    def make_dirs(self, path: str, *, durable: bool = True) -> None:
        """As the port says: each new name is synced before the next one below it is made."""
        calls = self._calls
        with failures_named(path, "Making a directory"):
            calls.check()
            missing, there = self._missing_dirs(path)
            if there not in self._anchored:
                calls.sync_dir(os.path.dirname(there))
                self._anchored.add(there)
            for name in missing:
                calls.mkdir(name)
                if durable or name != path:
                    calls.sync_dir(os.path.dirname(name))
                    self._anchored.add(name)

    def replace(self, path: str, data: bytes, *, durable: bool) -> None:
        """As the port says: a file beside it, its bytes, their sync, the rename, its sync."""
        calls = self._calls
        with failures_named(path, "Writing"):
            calls.check()
            temp, inode = self._create_beside(path)
            try:
                calls.write(temp, inode, 0, data)
                if durable:
                    calls.sync_file(temp, inode)
                calls.rename(temp, path)
            except BaseException:
                with contextlib.suppress(OSError, Killed):
                    calls.unlink(temp)
                raise
            if durable:
                calls.sync_dir(os.path.dirname(path))

    def create_file(self, path: str) -> None:
        """As the port says."""
        with failures_named(path, "Creating"):
            self._calls.check()
            self._calls.create(path)

    def restore_facts(self, path: str, *, mtime_ns: int, executable: bool) -> None:
        """As the port says, of the time; permissions do not exist here."""
        with failures_named(path, "Restoring the time of"):
            self._calls.check()
            inode = self._calls.regular(path)
            self.files.files[inode] = File(self.files.files[inode].data, mtime_ns)

    def make_read_only(self, path: str) -> None:
        """As the port says, as a step; who may write is not held here, but known: ``sealed``."""
        with failures_named(path, "Sealing"):
            self._calls.check()
            self._calls.chmod(path)
            self.sealed.add(path)

    def remove_tree(self, path: str) -> None:
        """As the port says: what lies below first, each a step."""
        calls = self._calls
        with failures_named(path, "Removing"), contextlib.suppress(FileNotFoundError):
            calls.check()
            for name in self.list_dir(path):
                inode = self.files.locate(f"{path}/{name}", follow_last=False).inode
                if inode in self.files.names:
                    self.remove_tree(f"{path}/{name}")
                else:
                    calls.unlink(f"{path}/{name}")
            calls.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        """As the port says: the rename, the sync of the target's directory, then the other's."""
        calls = self._calls
        with failures_named(source, f"Renaming to {target}"):
            calls.check()
            calls.rename(source, target)
            calls.sync_dir(os.path.dirname(target))
            if os.path.dirname(source) != os.path.dirname(target):
                calls.sync_dir(os.path.dirname(source))

    def unlink(self, path: str, *, durable: bool) -> None:
        """As the port says. ``durable`` covers a file that somebody else removed as well."""
        calls = self._calls
        with failures_named(path, "Removing"):
            calls.check()
            try:
                calls.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                if not calls.is_dir(os.path.dirname(path)):
                    return
            if durable:
                calls.sync_dir(os.path.dirname(path))

    def truncate(self, path: str, size_bytes: int) -> None:
        """As the port says."""
        with failures_named(path, "Truncating"):
            self._calls.check()
            inode = self._calls.regular(path)
            self._calls.truncate(path, inode, size_bytes)
            self._calls.sync_file(path, inode)

    def rewrite(self, path: str, offset: int, data: bytes) -> None:
        """As the port says. Not durable until the next sync of this file."""
        with failures_named(path, "Writing again"):
            self._calls.check()
            self._calls.write(path, self._calls.regular(path), offset, data)

    def sync_file(self, path: str) -> None:
        """As the port says."""
        with failures_named(path, "Syncing"):
            self._calls.check()
            self._calls.sync_file(path, self._calls.regular(path))

    def sync_dir(self, path: str) -> None:
        """As the port says."""
        with failures_named(path, "Syncing the directory"):
            self._calls.check()
            self._calls.sync_dir(path)

    def open_append(self, path: str) -> SimAppendFile:
        """As the port says."""
        with failures_named(path, "Opening for appending"):
            self._calls.check()
            return SimAppendFile(self._calls, path, self._calls.regular(path))

    def lock(self, path: str) -> SimFileLock:
        """As the port says."""
        with failures_named(path, "Opening the lock"):
            self._calls.check()
            return SimFileLock(self._calls, path)

    # What other programs do, which sync nothing

    def write(self, path: str, data: bytes) -> None:
        """Write a file in place and make its directories, as a program that never syncs does.

        Not of the port: for the executors of a test. A crash may leave any part of it.
        """
        calls = self._calls
        with failures_named(path, "Writing"):
            calls.check()
            for name in self._missing_dirs(os.path.dirname(path))[0]:
                calls.mkdir(name)
            inode = self.files.locate(path).inode
            if inode is None:
                inode = calls.create(self.files.real_path(path))
            else:
                calls.truncate(path, calls.regular(path), 0)
            calls.write(path, inode, 0, data)

    def symlink(self, target: str, path: str) -> None:
        """Make a symbolic link at ``path``, as ``ln -s`` does. Not of the port, and not durable."""
        with failures_named(path, "Linking"):
            self._calls.symlink(target, path)

    def _missing_dirs(self, path: str) -> tuple[list[str], str]:
        """The directories to make, topmost first, and the one above them that exists."""
        missing: list[str] = []
        while not self._calls.is_dir(path):
            missing.insert(0, path)
            path = os.path.dirname(path)
        return missing, path

    def _create_beside(self, path: str) -> tuple[str, int]:
        folder, name = os.path.split(path)
        while True:
            temp = os.path.join(folder, f".{name}.tmp-1-{self._temp_number}")
            self._temp_number += 1
            try:
                return temp, self._calls.create(temp)
            except FileExistsError:
                continue
