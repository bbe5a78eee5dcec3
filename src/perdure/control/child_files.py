"""The files that a child reads from and prints to.

Job: open them for its start, through the masking process where there is one. Invariants: what is
opened here is closed here once the child has it; a file that cannot be opened is a StorageError,
and then nothing is left open.
"""

import contextlib
import os
from types import TracebackType
from typing import Final, NamedTuple, Self

from perdure.control.leftovers import Census
from perdure.control.log_pump import LogPump
from perdure.errors import StorageError
from perdure.ports import Disk

_LOG_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
_INPUT_FLAGS: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)


class Shared(NamedTuple):
    """What all children of one run have in common."""

    census: Census | None = None
    """Spares a look at every process when one has ended."""
    pump: LogPump | None = None
    """Masks what they print."""


class Printed(NamedTuple):
    """Where a child prints to."""

    descriptor: int
    size_bytes: int
    """What the file held already."""


class ChildFiles:
    """The descriptors of one child, ours until it has started."""

    def __init__(self, disk: Disk, pump: LogPump | None) -> None:
        self._disk = disk
        self._pump = pump
        self._open = contextlib.ExitStack()
        self.pumped: list[str] = []
        """Names to flush its output by."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def to_print(self, path: str) -> Printed:
        """Open a file to append to. Raises StorageError."""
        target = self._opened(path, _LOG_FLAGS)
        size_bytes = os.fstat(target).st_size
        if self._pump is None:
            return Printed(target, size_bytes)
        sink, name = self._pump.open(target)
        self._open.callback(os.close, sink)
        self.pumped.append(name)
        return Printed(sink, size_bytes)

    def to_read(self, path: str) -> int:
        """Open a file to read. Raises StorageError."""
        return self._opened(path, _INPUT_FLAGS)

    def _opened(self, path: str, flags: int) -> int:
        try:
            try:
                descriptor = os.open(path, flags, 0o644)
            except FileNotFoundError:
                self._disk.make_dirs(os.path.dirname(path), durable=False)
                descriptor = os.open(path, flags, 0o644)
        except OSError as error:
            raise StorageError.from_os(error, path, "Opening a file of the command") from error
        self._open.callback(os.close, descriptor)
        return descriptor
