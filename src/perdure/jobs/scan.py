"""Reading the log of a job: all of it, or what follows a proven position.

Job: enter every finding into the completed set, and say where lines are that are none. Invariants:
the log is split on newlines only (U+2028 is text); memory is bounded by one line and one piece;
reading changes nothing, and nothing read here is believed before ``repair`` has made sure that it
is on the medium. Which lines are findings is for ``lines`` to say.
"""

from collections import deque
from typing import Final, NamedTuple

from perdure.jobs.lines import judge_line, line_bytes_max, scan_lines
from perdure.jobs.log import line_mark
from perdure.jobs.records import AsOf
from perdure.ports import Disk

group_bytes_max: Final = 1 << 20
"""Findings that share a sync are at most so long, or are a single one. So all that a crash can
damage lies in the last so many bytes of the log, or in its last line."""
bad_lines_kept_max: Final = 100
"""Of the lines that cannot be read, so many are told one by one."""
_first_look_bytes: Final = 4 << 10


class BadBytes(NamedTuple):
    """Where bytes stand that are no finding: a line, or several."""

    start: int
    end: int
    """Byte behind the last line, its newline included when it has one."""


class ToldLine(NamedTuple):
    """A line that is no finding."""

    line: int
    """Counted from 0, from where the scan started."""
    byte: int
    reason: str


class KnownDamage(NamedTuple):
    """Lines that are no findings, and that were met when the log was read before."""

    lines: list[ToldLine]
    """Counted from the first line of the log."""
    total: int
    """How many there are; the rest is not told one by one."""


NO_DAMAGE: Final = KnownDamage([], 0)


class Unkept(dict[str, str]):
    """What a reader of items enters, for those who only want the rest: nothing is kept."""

    def __setitem__(self, name: str, at: str) -> None:
        pass


class LogScan:
    """What reading a log from byte ``start`` on has found."""

    def __init__(
        self, start: int, completed: dict[str, str], *, every_suspect: bool = False
    ) -> None:
        self.start = start
        self.end = start
        """Byte behind the last newline."""
        self.findings = 0
        self.lines = 0
        self.bad_count = 0
        self.bad: list[ToldLine] = []
        self.suspects: deque[BadBytes] = deque()
        """Bad lines that a crash may have left; older ones are damage of another kind, and are in
        here only when ``every_suspect`` is wanted."""
        self.tail = b""
        """What stands behind the last newline; nothing when it is longer than any line may be."""
        self.tail_bytes = 0
        self._completed = completed
        self._every_suspect = every_suspect

    @property
    def size_bytes(self) -> int:
        """Bytes of the log, the tail included."""
        return self.end + self.tail_bytes

    def read(self, disk: Disk, path: str) -> None:
        """Read to the end of the file. Raises StorageError."""
        parts: list[bytes] = []
        held = 0
        for chunk in disk.read_chunks(path, offset=self.start):
            cut = chunk.rfind(b"\n") + 1
            if not cut:
                held += len(chunk)
                parts.append(chunk)
                if held > line_bytes_max:  # no finding is so long: it is only counted
                    parts.clear()
                continue
            first = chunk.find(b"\n") + 1 if held else 0
            if held + first - 1 > line_bytes_max:
                self._skip(held + first)
                parts = []
            else:
                first = 0
            if first < cut:
                self._take(b"".join((*parts, chunk[first:cut])))
            parts, held = [chunk[cut:]], len(chunk) - cut
        self.tail = b"".join(parts)
        self.tail_bytes = held
        self._forget_old(self.size_bytes)

    def _take(self, piece: bytes) -> None:
        scanned = scan_lines(piece, self._completed)
        for found in scanned.bad:
            start = self.end + found.byte
            self.tell(self.lines + found.line, start, found.reason)
            self.suspects.append(BadBytes(start, start + found.size_bytes + 1))
        self.findings += scanned.findings
        self.lines += scanned.lines
        self.end += len(piece)
        self._forget_old(self.end)

    def _forget_old(self, end: int) -> None:
        """Keep the bad lines that a crash may have left, should the log end at ``end``."""
        suspects = self.suspects
        if self._every_suspect:
            return
        while suspects and suspects[0].start < end - group_bytes_max and suspects[0].end < end:
            suspects.popleft()

    def _skip(self, size_bytes: int) -> None:
        self.tell(self.lines, self.end, f"longer than {line_bytes_max} bytes")
        if self._every_suspect:
            self.suspects.append(BadBytes(self.end, self.end + size_bytes))
        self.lines += 1
        self.end += size_bytes

    def tell(self, line: int, byte: int, reason: str) -> None:
        """A line is no finding."""
        self.bad_count += 1
        if len(self.bad) < bad_lines_kept_max:
            self.bad.append(ToldLine(line, byte, reason))


def known_part(
    disk: Disk, path: str, as_of: AsOf | None, size_bytes: int
) -> tuple[int, KnownDamage] | None:
    """Where what ``as_of`` does not know begins, and the damage before that.

    None when nothing proves it, and all of the log has to be read. Raises StorageError.
    """
    if as_of is None or not _is_proven(disk, path, as_of, size_bytes):
        return None
    damage = _known_damage(disk, path, as_of)
    return None if damage is None else (as_of.offset, damage)


def _is_proven(disk: Disk, path: str, as_of: AsOf, size_bytes: int) -> bool:
    """Whether the log has the line that ``as_of`` speaks of, where it says. Reads that line."""
    if not 0 < as_of.line_bytes <= min(as_of.offset, line_bytes_max):
        return False
    if as_of.offset > size_bytes:
        return False
    line = disk.read(path, as_of.offset - as_of.line_bytes, as_of.line_bytes)
    return line.endswith(b"\n") and line_mark(line) == as_of.hash


def _known_damage(disk: Disk, path: str, as_of: AsOf) -> KnownDamage | None:
    """The bad lines that a proven ``as_of`` names, looked at again.

    None when one of them is not there any more: somebody has put the log in order, so all of it
    has to be read.
    """
    found: list[ToldLine] = []
    for number, byte in as_of.damaged:
        if not 0 <= byte < as_of.offset or (byte and disk.read(path, byte - 1, 1) != b"\n"):
            return None
        line = _line_at(disk, path, byte)
        judged = judge_line(line)
        if len(line) > line_bytes_max:
            judged = f"longer than {line_bytes_max} bytes"
        if not isinstance(judged, str) or not judged:
            return None
        found.append(ToldLine(number - 1, byte, judged))
    return KnownDamage(found, max(as_of.damaged_count, len(found)))


def _line_at(disk: Disk, path: str, byte: int) -> bytes:
    """The line that starts there, without its newline; its beginning when it is too long."""
    parts: list[bytes] = []
    held = 0
    for chunk in disk.read_chunks(path, _first_look_bytes, byte):
        part, newline, _ = chunk.partition(b"\n")
        parts.append(part)
        held += len(part)
        if newline or held > line_bytes_max:
            break
    return b"".join(parts)


def last_line(disk: Disk, path: str, end: int) -> bytes:
    """The line that ends at byte ``end``, newline included.

    Empty for an empty log, and for a line that is longer than any finding.
    """
    look_bytes = _first_look_bytes
    while look_bytes <= line_bytes_max * 2:
        start = max(0, end - look_bytes)
        data = disk.read(path, start, end - start)
        cut = data.rfind(b"\n", 0, max(0, len(data) - 1))
        if cut >= 0 or not start:
            return data[cut + 1 :]
        look_bytes *= 4
    return b""


def lines_before(disk: Disk, path: str, end: int, start: int = 0) -> int:
    """How many newlines stand before byte ``end``, from ``start`` on: line numbers add them up."""
    count, left = 0, end - start
    for chunk in disk.read_chunks(path, offset=start):
        count += chunk.count(b"\n", 0, left)
        left -= len(chunk)
        if left <= 0:
            break
    return count
