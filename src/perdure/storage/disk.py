"""The only fsync, rename and mkdir of perdure: the real disk behind ``ports.Disk``.

Invariants: every byte goes straight to a descriptor, so nothing waits in a buffer that a later
close would flush; every new name is synced in the directory that holds it before a durable call
returns; a descriptor whose write or sync has failed is never written again, because the kernel
may have dropped the failed pages and marked them clean; every failure is a ``StorageError`` that
names errno and path. It never retries, never waits and never falls back to a weaker promise.

Limits by platform. macOS syncs with F_FULLFSYNC (plain fsync stops at the drive's cache). Windows
cannot sync a directory, so there a new name is as durable as NTFS makes it, and replacing a file
fails while a reader has it open. Locks: see ``filelock``.
"""

import contextlib
import errno
import itertools
import os
import stat as _stat
import sys
from collections.abc import Iterator
from typing import Final, Literal

from perdure.errors import StorageError
from perdure.ports import TEMP_MARK, FileStat
from perdure.storage.filelock import RealFileLock
from perdure.storage.trees import RealTrees, may_run

if sys.platform == "darwin":
    import fcntl

    _NO_FULLFSYNC: Final = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY)

    def _sync_file(descriptor: int) -> None:
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:
            # Only "this file system has no such call" may take the weaker one.
            if error.errno not in _NO_FULLFSYNC:
                raise
            os.fsync(descriptor)

else:

    def _sync_file(descriptor: int) -> None:
        os.fsync(descriptor)


if sys.platform == "linux":

    def _sync_data(descriptor: int) -> None:
        os.fdatasync(descriptor)

else:
    _sync_data = _sync_file

_FLAGS: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# A pipe in the place of a file must be an error, not a wait without end.
_NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0)
_FILE_MODE: Final = 0o644

temp_names_max: Final = 10_000
"""Temporary names tried beside a file, each left behind by a process that crashed."""

_temp_numbers = itertools.count()
_KINDS: Final[dict[int, Literal["file", "dir", "link", "other"]]] = {
    _stat.S_IFREG: "file", _stat.S_IFDIR: "dir", _stat.S_IFLNK: "link",
}  # fmt: skip


class RealDisk(RealTrees):
    """``ports.Disk`` on the file system of this machine. Safe to share between threads."""

    __slots__ = ("_anchored",)
    syncs_at_once = True

    def __init__(self) -> None:
        self._anchored: set[str] = set()
        """Directories whose own names this object has seen synced."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """As the port says. Only regular files: a directory, pipe or device is an error."""
        with _opened(path, os.O_RDONLY, "Reading") as descriptor:
            if offset:
                os.lseek(descriptor, offset, os.SEEK_SET)
            if length is not None:
                return _read_up_to(descriptor, length)
            # One more than there should be, so that one call usually sees the end as well.
            left = max(os.fstat(descriptor).st_size - offset, 0)
            data = _read_up_to(descriptor, left + 1)
            while len(data) > left and (grown := os.read(descriptor, 1 << 20)):
                data += grown
            return data

    def read_chunks(
        self, path: str, chunk_bytes: int = 1 << 20, offset: int = 0
    ) -> Iterator[bytes]:
        """As the port says. Opened at the first piece; closed at the end or with the generator."""
        with _opened(path, os.O_RDONLY, "Reading") as descriptor:
            os.lseek(descriptor, offset, os.SEEK_SET)
            while piece := os.read(descriptor, chunk_bytes):
                yield piece

    def stat(self, path: str) -> FileStat | None:
        """As the port says. A path below something that is no directory is not there either."""
        try:
            seen = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StorageError.from_os(error, path, "Looking it up") from error
        kind = _KINDS.get(_stat.S_IFMT(seen.st_mode), "other")
        return FileStat(seen.st_size, seen.st_mtime_ns, seen.st_ino, kind, may_run(seen.st_mode))

    def real_path(self, path: str) -> str:
        """As the port says."""
        with _failures_named(path, "Resolving links"):
            return os.path.realpath(path)

    def list_dir(self, path: str) -> list[str]:
        """As the port says. A file in the place of the directory is an error, not an empty list."""
        with _failures_named(path, "Listing"):
            try:
                return sorted(os.listdir(path))
            except FileNotFoundError:
                return []

    def make_dirs(self, path: str, *, durable: bool = True) -> None:
        """As the port says; harmless when somebody else makes the same directories meanwhile.

        Crash in the middle: some of the upper directories exist. The deepest of them may have a
        name that never reached the medium, so the next call syncs the directory above it as well,
        unless this user cannot have made it (no right to write there).
        """
        with _failures_named(path, "Making a directory"):
            missing: list[str] = []
            there = path
            while not os.path.isdir(there) and there != os.path.dirname(there):
                missing.append(there)
                there = os.path.dirname(there)
            if there not in self._anchored:
                if os.access(os.path.dirname(there), os.W_OK):
                    _sync_names(os.path.dirname(there))
                self._anchored.add(there)
            for name in reversed(missing):
                try:
                    os.mkdir(name)
                except FileExistsError:
                    if not os.path.isdir(name):
                        raise
                if durable or name != path:  # also when another was quicker: it may die before
                    _sync_names(os.path.dirname(name))
                    self._anchored.add(name)

    def replace(self, path: str, data: bytes, *, durable: bool) -> None:
        """As the port says. The permissions of a file that was there are kept.

        A symbolic link at ``path`` is itself replaced. When the last step fails, the sync of the
        directory, the new file stands and only its durability is unknown.
        """
        with _failures_named(path, "Writing"):
            descriptor, temp = _create_beside(path)
            try:
                try:
                    _write_all(descriptor, data)
                    if durable:
                        _sync_file(descriptor)
                finally:
                    os.close(descriptor)
                os.replace(temp, path)
            except BaseException:
                _remove_quietly(temp)
                raise
            if durable:
                _sync_names(os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        """As the port says. A file at ``target`` is replaced.

        The target's directory is synced first: a power cut between the two leaves both names or
        the new one, never none.
        """
        with _failures_named(source, f"Renaming to {target}"):
            os.replace(source, target)
            _sync_names(os.path.dirname(target))
            if os.path.dirname(source) != os.path.dirname(target):
                _sync_names(os.path.dirname(source))

    def unlink(self, path: str, *, durable: bool) -> None:
        """As the port says. ``durable`` covers a file that somebody else removed as well."""
        with _failures_named(path, "Removing"):
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                if not os.path.isdir(os.path.dirname(path)):
                    return
            if durable:
                _sync_names(os.path.dirname(path))

    def truncate(self, path: str, size_bytes: int) -> None:
        """As the port says."""
        with _opened(path, os.O_WRONLY, "Truncating") as descriptor:
            os.ftruncate(descriptor, size_bytes)
            _sync_file(descriptor)

    def rewrite(self, path: str, offset: int, data: bytes) -> None:
        """As the port says. Not durable until the next sync of this file."""
        # Without O_APPEND, which would send the bytes to the end whatever the offset.
        with _opened(path, os.O_WRONLY, "Writing again") as descriptor:
            os.lseek(descriptor, offset, os.SEEK_SET)
            _write_all(descriptor, data)

    def sync_file(self, path: str) -> None:
        """As the port says. The right to read the file is enough, except on Windows."""
        access = os.O_RDWR if sys.platform == "win32" else os.O_RDONLY
        with _opened(path, access, "Syncing") as descriptor:
            _sync_file(descriptor)

    def sync_dir(self, path: str) -> None:
        """As the port says. Does nothing on Windows, which has no such call."""
        with _failures_named(path, "Syncing the directory"):
            _sync_names(path)

    def open_append(self, path: str) -> "RealAppendFile":
        """As the port says."""
        with _failures_named(path, "Opening for appending"):
            return RealAppendFile(path, os.open(path, os.O_WRONLY | os.O_APPEND | _FLAGS))

    def lock(self, path: str) -> RealFileLock:
        """As the port says. Refused here, not at the first attempt, where it cannot be opened."""
        return RealFileLock(path)


class RealAppendFile:
    """``ports.AppendFile`` on a raw O_APPEND descriptor.

    The first failure, an interruption included, kills it: bytes of unknown number may stand at
    the end, so only recovery, which reads them, may write after them.
    """

    __slots__ = ("_descriptor", "_failure", "_path")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._failure: StorageError | None = None

    def append(self, data: bytes) -> None:
        """As the port says: one write, continued only where the system wrote less."""
        if self._descriptor < 0:
            raise self._dead()
        try:
            _write_all(self._descriptor, data)
        except OSError as error:
            raise self._die(error, "Appending") from error
        except BaseException as error:
            self._interrupted(error, "Appending")
            raise

    def sync(self) -> None:
        """As the port says. A failed sync is final: another one could report success wrongly."""
        if self._descriptor < 0:
            raise self._dead()
        try:
            _sync_data(self._descriptor)
        except OSError as error:
            raise self._die(error, "Syncing") from error
        except BaseException as error:
            self._interrupted(error, "Syncing")
            raise

    def size(self) -> int:
        """As the port says."""
        if self._descriptor < 0:
            raise self._dead()
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise self._die(error, "Measuring") from error

    def close(self) -> None:
        """As the port says; may be called again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def _dead(self) -> StorageError:
        if self._failure is None:
            return StorageError(f"{self._path} is closed.", fix="Open it again.")
        return StorageError(
            f"Nothing more may be written to {self._path} here since this failed: "
            f"{self._failure.message}",
            code=self._failure.code,
            fix=self._failure.fix,
        )

    def _die(self, error: OSError, doing: str) -> StorageError:
        self.close()
        self._failure = StorageError.from_os(error, self._path, doing)
        return self._failure

    def _interrupted(self, error: BaseException, doing: str) -> None:
        self.close()
        self._failure = StorageError(
            f"{doing} was interrupted on {self._path} ({type(error).__name__}).",
            fix="Open it again; recovery settles what was written.",
        )


@contextlib.contextmanager
def _failures_named(path: str, doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError.from_os(error, path, doing) from error


@contextlib.contextmanager
def _opened(path: str, access: int, doing: str) -> Iterator[int]:
    """A regular file for the length of the block; what fails in there is a StorageError."""
    with _failures_named(path, doing):
        descriptor = os.open(path, access | _NO_WAIT | _FLAGS)
        try:
            mode = os.fstat(descriptor).st_mode
            if _stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not _stat.S_ISREG(mode):
                raise OSError(errno.EINVAL, "not a regular file")
            yield descriptor
        finally:
            os.close(descriptor)


def _read_up_to(descriptor: int, length: int) -> bytes:
    data = os.read(descriptor, length)
    while len(data) < length and (piece := os.read(descriptor, length - len(data))):
        data += piece
    return data


def _write_all(descriptor: int, data: bytes) -> None:
    done = os.write(descriptor, data)
    while done < len(data):
        written = os.write(descriptor, memoryview(data)[done:])
        if written == 0:
            raise OSError(errno.EIO, "the system accepted no further byte")
        done += written


def _create_beside(path: str) -> tuple[int, str]:
    """A new file ``.NAME.tmp-<pid>-<n>`` beside ``path``, with its permissions if it exists.

    A number is tried again with the next one: in a container every run has the same pid, so a
    crashed one's temporary files carry our names.
    """
    folder, name = os.path.split(path)
    mode = _mode_of(path)
    for _ in range(temp_names_max):
        temp = os.path.join(folder, f".{name}{TEMP_MARK}{os.getpid()}-{next(_temp_numbers)}")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
            descriptor = os.open(temp, flags, _FILE_MODE if mode is None else mode)
        except FileExistsError:
            continue
        if mode is not None and os.fstat(descriptor).st_mode & 0o777 != mode:
            try:
                os.chmod(temp, mode)
            except OSError:
                os.close(descriptor)
                _remove_quietly(temp)
                raise
        return descriptor, temp
    raise FileExistsError(errno.EEXIST, "too many temporary files of crashed processes beside it")


def _mode_of(path: str) -> int | None:
    """The permission bits of a regular file; None when there is no such file."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    return mode & 0o777 if _stat.S_ISREG(mode) else None


def _sync_names(path: str) -> None:
    if sys.platform != "win32":
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
        try:
            _sync_file(descriptor)
        finally:
            os.close(descriptor)


def _remove_quietly(path: str) -> None:
    """After a failure that is being reported: a second one here would hide it."""
    with contextlib.suppress(OSError):
        os.unlink(path)
