"""The log of a job, ``findings.jsonl``, open for appending.

Job: add whole lines behind the last one, and say how far it goes. Invariants: an append returns
only after its sync (JB-1); nothing is written after a failure; it knows the position that its own
appends have reached, so whatever others write behind its back makes ``as_of`` prove nothing, and
the next opening reads everything. It never reads a line and never repairs one.
"""

from hashlib import sha256
from typing import Final

from perdure.errors import CorruptError
from perdure.jobs.records import AsOf, Damage
from perdure.ports import Disk

LOG_NAME: Final = "findings.jsonl"


class FindingLog:
    """The log of one job, read and in order up to ``offset``."""

    __slots__ = ("_append", "_close", "_disk", "_inode", "_last", "_sync", "offset", "path")

    def __init__(self, disk: Disk, path: str, offset: int, last: bytes) -> None:
        self.path = path
        self.offset = offset
        """Byte behind the last line's newline."""
        self._disk = disk
        self._last = last
        file = disk.open_append(path)
        # Bound once: a record is these two calls and little else.
        self._append, self._sync, self._close = file.append, file.sync, file.close
        self._inode = self._inode_now()

    def append(self, data: bytes, last: bytes) -> None:
        """Write whole lines, of which ``last`` is the last, and sync them.

        On StorageError nothing is known of them, and this object refuses everything from then on.
        """
        self._append(data)
        self._sync()
        self.offset += len(data)
        self._last = last

    def as_of(self, recent: int, damage: Damage) -> AsOf:
        """What a ``state.json`` written now says of the log."""
        return AsOf(
            self.offset, len(self._last), line_mark(self._last), recent, damage.lines, damage.total
        )

    def check_in_place(self) -> None:
        """Raise CorruptError when another file stands under the log's name, or none.

        Then what was recorded is not in the job directory any more, and a checkpoint would claim
        it all the same.
        """
        if self._inode_now() != self._inode:
            raise CorruptError(
                f"{self.path} was removed or replaced by another file while the job was open.",
                code="log_replaced",
                rule="JB-2",
                fix="Find out who did it, put the log back from a copy, then open the job again.",
            )

    def close(self) -> None:
        """Give the descriptor back."""
        self._close()

    def _inode_now(self) -> int | None:
        stat = self._disk.stat(self.path)
        return None if stat is None else stat.inode


def line_mark(line: bytes) -> str:
    """What proves in ``as_of`` that a line is the one meant; empty for none."""
    return sha256(line).hexdigest()[:16] if line else ""
