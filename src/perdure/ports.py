"""What the runtime needs from the world, as narrow protocols.

The real ones are ``storage.disk.RealDisk`` and those in ``host``; simulated ones are in
``perdure.testing``. Invariants: every durable effect goes through a ``Disk`` method, and each
method states which bytes and which names are on the medium when it returns. Paths are absolute
strings. A failing call raises :class:`perdure.errors.StorageError`, never a bare ``OSError``.
"""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

TEMP_MARK: Final = ".tmp-"


def is_temp_name(name: str) -> bool:
    """Whether a file is one in the making (``.NAME.tmp-*``), of a ``Disk.replace`` under way."""
    return name.startswith(".") and TEMP_MARK in name


class FileStat(msgspec.Struct, frozen=True):
    """What a file looked like; symbolic links are not followed."""

    size_bytes: int
    mtime_ns: int
    inode: int
    kind: Literal["file", "dir", "link", "other"]
    executable: bool = False
    """Whether its owner may run it."""


class AppendFile(Protocol):
    """An open log. After any failure it is dead: every later call raises StorageError."""

    def append(self, data: bytes) -> None:
        """Write ``data`` at the end, whole (a short write is continued). Not yet durable."""

    def sync(self) -> None:
        """Make everything written so far durable (fdatasync; F_FULLFSYNC on macOS)."""

    def size(self) -> int:
        """Bytes in the file now, as the operating system sees them (others may have appended)."""

    def close(self) -> None:
        """Give the descriptor back. Never raises, never writes."""


class FileLock(Protocol):
    """An operating-system lock that vanishes with its process."""

    def try_acquire(self) -> bool:
        """Take it without waiting; False when somebody else (also in this process) has it."""

    def release(self) -> None:
        """Give it back; harmless when it is not held."""

    def close(self) -> None:
        """Release and forget it."""


class Disk(Protocol):
    """The only door to files."""

    @property
    def syncs_at_once(self) -> bool:
        """Whether syncs of several threads at once are quicker than one after the other."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes from ``offset``; fewer than ``length`` at the end of the file."""

    def read_chunks(
        self, path: str, chunk_bytes: int = 1 << 20, offset: int = 0
    ) -> Iterator[bytes]:
        """The file from ``offset``, piece by piece, for streaming and hashing."""

    def stat(self, path: str) -> FileStat | None:
        """None when nothing is there."""

    def real_path(self, path: str) -> str:
        """The path with every symbolic link resolved (parts that do not exist stay as named)."""

    def list_dir(self, path: str) -> list[str]:
        """Names in it, sorted; empty when it does not exist."""

    def make_dirs(self, path: str, *, durable: bool = True) -> None:
        """Create it and its parents; every name that was new is durable on return.

        Without ``durable`` the last name is not, until something below it is made so.
        """

    def replace(self, path: str, data: bytes, *, durable: bool) -> None:
        """Put a whole new file in place atomically: old bytes or new bytes, never a mixture.

        With ``durable`` bytes and name are on the medium on return. A failure leaves the old
        file and no temporary one. A crash may leave one beside it (:func:`is_temp_name`), which
        nobody reads.
        """

    def create_file(self, path: str) -> None:
        """A new empty file, to be appended to; StorageError where the name is taken. Not durable.

        For what is too large to be held in memory, under a name that nobody reads yet.
        """

    def restore_facts(self, path: str, *, mtime_ns: int, executable: bool) -> None:
        """Give a file the time and the right to be run that it had elsewhere. Not durable."""

    def make_read_only(self, path: str) -> None:
        """Take the right to write to a file or a directory from everybody. Not durable: whoever
        needs it asks again."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is below it; links are removed, not followed.

        A missing one is fine. Not durable, and a crash leaves a part: only for what nobody reads.
        """

    def rename(self, source: str, target: str) -> None:
        """Move a file or directory within the file system; both names are durable on return."""

    def unlink(self, path: str, *, durable: bool) -> None:
        """Remove a file; a missing one is fine."""

    def truncate(self, path: str, size_bytes: int) -> None:
        """Cut the file; durable on return."""

    def rewrite(self, path: str, offset: int, data: bytes) -> None:
        """Write the same bytes again where they already stand, so that the next sync covers them.

        After somebody's failed sync the page cache may show bytes that are marked clean and are
        not on the medium; only writing them again makes a later sync honest.
        """

    def sync_file(self, path: str) -> None:
        """Make an existing file's bytes durable (it may have been written by anybody)."""

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""

    def open_append(self, path: str) -> AppendFile:
        """Open an existing log for appending."""

    def lock(self, path: str) -> FileLock:
        """A lock on this file, which is created when missing."""


class Clock(Protocol):
    """Time. ``now`` may step; ``monotonic`` never goes back."""

    def now(self) -> float:
        """Seconds since 1970, UTC."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class Ids(Protocol):
    """Names nobody has used yet."""

    def token(self) -> str:
        """Eight random lower-case hexadecimal digits."""


class ProcessIdentity(NamedTuple):
    """Who a process is, robustly: a pid alone is reused."""

    host: str
    boot_id: str
    pid: int
    started: float
    """Start time in seconds; compared only between processes of one host and boot.

    Since boot on Linux, where a step of the clock does not move it; since 1970 elsewhere.
    """


ProcessState = Literal["alive", "stopped", "gone", "unknown"]


class Processes(Protocol):
    """The process table."""

    def me(self) -> ProcessIdentity:
        """This process."""

    def state(self, who: ProcessIdentity) -> ProcessState:
        """``gone`` only when proven: same host, and another boot, no such pid, or a reused pid.

        ``unknown`` for another host. ``stopped`` is a job-control stop (SIGSTOP).
        """
