"""``.recent.jsonl``: what ``state.json`` does not have yet besides findings.

Job: keep attempts and cursor safe between two checkpoints, at the cost of a line each. Invariants:
lines are numbered without end, and a ``state.json`` says up to which number it includes them, so
that a crash between replacing the one and emptying the other repeats nothing; a line is synced
before the call that wrote it returns. Deleting the file costs attempts and cursor since the last
checkpoint, never a finding. Implementations that know the three files only need not know it.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from perdure.core.codec import to_json
from perdure.errors import UsageError
from perdure.jobs.lines import is_nested_deeply, item_hash
from perdure.jobs.position import decoded
from perdure.jobs.records import AsOf, ErrorEntry, Notice
from perdure.ports import AppendFile, Disk

RECENT_NAME: Final = ".recent.jsonl"


class RecentLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line: exactly one of the three is set."""

    n: int
    error: ErrorEntry | None = None
    cursor: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    resumes: int | None = None


class Recent(msgspec.Struct):
    """What the lines that a ``state.json`` does not include come to."""

    n: int = 0
    """Highest number of any line, included or not."""
    size_bytes: int = 0
    """Of the file, with whatever stands in it."""
    cursor: bytes | None = None
    """As JSON."""
    resumes: int | None = None
    errors: dict[str, ErrorEntry] = {}
    """By hash, the one that failed longest ago first."""


_decoder: Final = msgspec.json.Decoder(RecentLine)
_encode: Final = msgspec.json.Encoder().encode


class RecentFile:
    """The file of one job, empty until something has to be kept."""

    __slots__ = ("_disk", "_file", "n", "path", "size_bytes")

    def __init__(self, disk: Disk, path: str, n: int, size_bytes: int) -> None:
        self._disk = disk
        self.path = path
        self.n = n
        """Number of the last line."""
        self.size_bytes = size_bytes
        self._file: AppendFile | None = None

    def begin(self, resumes: int, cursor: bytes, errors: Iterable[ErrorEntry]) -> None:
        """Start the file anew with these lines; durable on return.

        A new file, because what stands in an old one may be in the page cache only, may be torn,
        and may have been marked clean by a failed sync.
        """
        lines = [self._line(resumes=resumes), self._line(cursor=msgspec.Raw(cursor))]
        lines += [self._line(error=entry) for entry in errors]
        data = b"".join(lines)
        self.close()
        self._disk.replace(self.path, data, durable=True)
        self.size_bytes = len(data)

    def add_errors(self, entries: Sequence[ErrorEntry]) -> None:
        """Append and sync a line for each: with one sync for all. Raises StorageError."""
        self._add(b"".join([self._line(error=entry) for entry in entries]))

    def add_cursor(self, cursor: bytes) -> None:
        """Append and sync a cursor, given as JSON. Raises StorageError."""
        self._add(self._line(cursor=msgspec.Raw(cursor)))

    def empty(self) -> None:
        """Forget all lines, which a durable ``state.json`` includes. Numbers go on."""
        if self.size_bytes:
            self._disk.truncate(self.path, 0)
            self.size_bytes = 0

    def close(self) -> None:
        """Give the descriptor back."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _line(
        self,
        *,
        error: ErrorEntry | None = None,
        cursor: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET,
        resumes: int | None = None,
    ) -> bytes:
        self.n += 1
        return _encode(RecentLine(self.n, error, cursor, resumes)) + b"\n"

    def _add(self, data: bytes) -> None:
        if self._file is None:
            if self._disk.stat(self.path) is None:
                self._disk.replace(self.path, b"", durable=True)
            self._file = self._disk.open_append(self.path)
        self._file.append(data)
        self._file.sync()
        self.size_bytes += len(data)


def load_recent(disk: Disk, path: str, as_of: AsOf | None, notices: list[Notice]) -> Recent:
    """What the file adds to a ``state.json`` with this ``as_of``.

    Without one, which is how another implementation leaves it, cursor and resumes are older than
    that file and do not count; of the errors the caller takes whichever has more attempts. A line
    that cannot be read is skipped with a notice, but for a torn last one.
    """
    recent = Recent(n=as_of.recent if as_of else 0)
    if disk.stat(path) is None:
        return recent
    included = as_of.recent if as_of else -1
    data = disk.read(path)
    recent.size_bytes = len(data)
    raw_lines = data.split(b"\n")
    torn = raw_lines.pop()
    for number, raw in enumerate(raw_lines, 1):
        if not raw.strip():
            continue
        line = _read(raw)
        if line is None:
            notices.append(_unreadable(path, number))
            continue
        recent.n = max(recent.n, line.n)
        if line.n > included:
            _take(recent, line, cursor_counts=as_of is not None)
    if torn.strip(b"\0 \r\t"):
        notices.append(
            Notice(
                "recent_torn",
                None,
                None,
                f"the last line of {path} was torn and is dropped: it had not been acknowledged.",
                "Nothing needs to be done.",
            )
        )
    return recent


def _read(raw: bytes) -> RecentLine | None:
    try:
        line = _decoded_line(raw)
        if isinstance(line.cursor, msgspec.Raw) and is_nested_deeply(decoded(bytes(line.cursor))):
            return None
        if line.error is None:
            return line
        # The hash is never believed: it is what the key comes to.
        error = msgspec.structs.replace(line.error, hash=item_hash(line.error.key))
    except (ValueError, RecursionError, UsageError):
        return None
    return msgspec.structs.replace(line, error=error)


def _decoded_line(raw: bytes) -> RecentLine:
    try:
        return _decoder.decode(raw)
    except msgspec.DecodeError:
        if b"\\u" not in raw:
            raise
    fields = json.loads(raw)  # half a character in the cursor, which we write as an escape
    if not isinstance(fields, dict) or "cursor" not in fields:
        raise ValueError("no line of ours")
    cursor = msgspec.Raw(to_json(fields.pop("cursor")))
    return msgspec.structs.replace(msgspec.convert(fields, RecentLine), cursor=cursor)


def _take(recent: Recent, line: RecentLine, *, cursor_counts: bool) -> None:
    if line.error is not None:
        recent.errors.pop(line.error.hash, None)
        recent.errors[line.error.hash] = line.error
    if cursor_counts and isinstance(line.cursor, msgspec.Raw):
        recent.cursor = bytes(line.cursor)
    if cursor_counts and line.resumes is not None:
        recent.resumes = line.resumes


def _unreadable(path: str, number: int) -> Notice:
    return Notice(
        "bad_recent_line",
        number,
        None,
        f"line {number} of {path} cannot be read, so an attempt or a cursor may be missing.",
        "Nothing needs to be done: findings are not in that file.",
    )


def merged_errors(
    queued: Iterable[ErrorEntry], recent: Recent, completed: dict[str, Any]
) -> dict[str, ErrorEntry]:
    """The error queue of a ``state.json`` and what was recorded since, without what is done.

    More attempts win, so that no order of crashes lets an item be tried more often than counted.
    """
    errors = {entry.hash: entry for entry in queued if entry.hash not in completed}
    for digest, entry in recent.errors.items():
        if digest in completed:
            continue
        known = errors.get(digest)
        if known is None or entry.attempts >= known.attempts:
            errors.pop(digest, None)  # it failed again: to the end of the queue
            errors[digest] = entry
    return errors
