"""The part of the real disk that lays down, seals and takes away whole trees of files.

Job: ``create_file``, ``restore_facts``, ``make_read_only`` and ``remove_tree`` of ``ports.Disk``.
Invariants: nothing here is durable by itself, and no byte that anybody reads is touched: it serves
trees in the making, which become visible by a rename, and takes rights away. A failure is a
StorageError.
"""

import contextlib
import os
import stat as _stat
from collections.abc import Iterator
from typing import Final

from perdure.core.late import LateModule
from perdure.errors import StorageError

_shutil: Final = LateModule("shutil")
_FLAGS: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FILE_MODE: Final = 0o644
_RUN_BITS: Final = 0o111
_WRITE_BITS: Final = 0o222


def may_run(mode: int) -> bool:
    """Whether a mode is that of a file that its owner may run."""
    return _stat.S_ISREG(mode) and bool(mode & _stat.S_IXUSR)


class RealTrees:
    """What ``RealDisk`` does to trees that nobody reads yet."""

    __slots__ = ()

    def create_file(self, path: str) -> None:
        """As the port says."""
        with _named(path, "Creating"):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, _FILE_MODE))

    def restore_facts(self, path: str, *, mtime_ns: int, executable: bool) -> None:
        """As the port says. Whoever may read it may then run it as well."""
        with _named(path, "Restoring the time of"):
            mode = os.stat(path).st_mode
            if executable and not may_run(mode):
                os.chmod(path, _stat.S_IMODE(mode) | (_RUN_BITS & (mode >> 2)))
            os.utime(path, ns=(mtime_ns, mtime_ns))

    def make_read_only(self, path: str) -> None:
        """As the port says."""
        with _named(path, "Sealing"):
            os.chmod(path, _stat.S_IMODE(os.stat(path).st_mode) & ~_WRITE_BITS)

    def remove_tree(self, path: str) -> None:
        """As the port says."""
        with _named(path, "Removing"), contextlib.suppress(FileNotFoundError):
            _shutil.rmtree(path)


@contextlib.contextmanager
def _named(path: str, doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError.from_os(error, path, doing) from error
