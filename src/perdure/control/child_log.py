"""What a child prints, in the file that it prints to.

Job: know where the output of this child begins in a file that others have written to before, and
show the end of it. Invariants: what was there before the child is never shown as its own; a file
that cannot be read shows nothing, and is no failure of the child. Never writes.
"""

from typing import Final

from perdure.errors import StorageError
from perdure.ports import Disk

log_tail_bytes: Final = 2_000


class ChildLog:
    """The file that one child appends to."""

    def __init__(self, path: str, disk: Disk) -> None:
        self.path: Final = path
        self._disk = disk
        self._start = 0
        self._size_at_end = -1

    def begin(self, size_bytes: int) -> None:
        """The child starts now; what the file holds already is not its own."""
        self._start = size_bytes

    def mark_end(self) -> None:
        """Its first process has ended; what still grows from here on is of what goes on."""
        if self._size_at_end < 0:
            self._size_at_end = self.size()

    def has_grown_since_end(self) -> bool:
        """Whether something that went on has added to it after :meth:`mark_end`."""
        return self.size() > self._size_at_end

    def tail(self) -> str:
        """The last ``log_tail_bytes`` of what the child has printed."""
        try:
            size = self.size()
            offset = max(self._start, size - log_tail_bytes)
            data = self._disk.read(self.path, offset, size - offset) if size > offset else b""
        except StorageError:
            return ""
        return data.decode("utf-8", errors="replace")

    def size(self) -> int:
        """Bytes in the file now; 0 when it cannot be looked at."""
        try:
            seen = self._disk.stat(self.path)
        except StorageError:
            return 0
        return seen.size_bytes if seen else 0
