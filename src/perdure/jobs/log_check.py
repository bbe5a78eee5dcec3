"""Looking at every line of a job's log, one after the other.

Job: judge each line, count it under its item, and tell bad lines from a torn tail. Invariants: it
only reads; memory is that of one line and 80 bytes an item; what follows the last finding and is
none is what a kill leaves, and no defect; a last line that is not ended is none either, because
somebody may be writing it now.
"""

import shlex
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from perdure.jobs.checkpoints import STATE_NAME
from perdure.jobs.lines import Line, judge_line, line_bytes_max
from perdure.jobs.log import LOG_NAME, line_mark
from perdure.jobs.records import AsOf
from perdure.jobs.report import Place, ReportDraft, shown, told_max
from perdure.jobs.scan import group_bytes_max
from perdure.ports import Disk


class LogLine(NamedTuple):
    """One line of the log as it stands there."""

    number: int
    """Counted from 1."""
    byte: int
    size_bytes: int
    """Without its newline."""
    data: bytes
    """The line without its newline; only a part of one that is longer than any finding."""
    ended: bool
    """A newline follows."""


class _BadLine(NamedTuple):
    number: int
    byte: int
    reason: str


def log_lines(chunks: Iterable[bytes]) -> Iterator[LogLine]:
    """The lines in ``chunks``, which are a log from its first byte."""
    number, byte, held, held_bytes = 1, 0, list[bytes](), 0
    for chunk in chunks:
        pieces = chunk.split(b"\n")
        rest = pieces.pop()
        for piece in pieces:
            size_bytes = held_bytes + len(piece)
            data = b"".join((*held, piece)) if held else piece
            yield LogLine(number, byte, size_bytes, data, True)
            number, byte, held, held_bytes = number + 1, byte + size_bytes + 1, [], 0
        if rest:
            if held_bytes <= line_bytes_max:
                held.append(rest)
            held_bytes += len(rest)
    if held_bytes:
        yield LogLine(number, byte, held_bytes, b"".join(held), False)


def judge(line: LogLine) -> Line | str:
    """As ``judge_line``, for a line of any length, and for one that may not be whole."""
    if line.size_bytes > line_bytes_max:
        return f"longer than {line_bytes_max} bytes"
    found = judge_line(line.data)
    if not line.ended and isinstance(found, Line) and found.key is None:
        return "not ended, and without a key"
    return found


class LogCheck:
    """One reading of a log from its first byte to its last."""

    def __init__(self, draft: ReportDraft, proven: dict[int, bool], directory: str) -> None:
        self._draft = draft
        self._retry = f"`perdure job retry {shlex.quote(directory)} --lost`"
        self._counts = draft.counts
        self.proven = proven
        """Items by their hash as a number: whether a line of the log is their own. Those that
        state.json claims are in it from the start."""
        self.behind = 0
        """Items of the log that state.json does not claim, and that it need not know yet."""
        self.size_bytes = 0
        self._waiting: list[_BadLine] = []
        """Bad lines since the last finding: a torn tail, unless another finding follows."""
        self._waiting_count = 0
        self._bad: list[_BadLine] = []
        self._twice: list[tuple[LogLine, Line]] = []
        self._unclaimed: list[tuple[LogLine, Line]] = []
        """Of the items that are behind, the first."""

    def read(self, disk: Disk, path: str, end: int, as_of: AsOf | None) -> bool:
        """Judge every line that begins before byte ``end``, which is where the log ended at first.

        Returns whether the log has the position of ``as_of``. Without an end, a log that grows as
        fast as it is read would be read for ever.
        """
        offset = as_of.offset if as_of is not None else 0
        is_proven = not offset
        for line in log_lines(disk.read_chunks(path)):
            if line.byte >= end:
                break
            self._counts["lines"] += 1
            self.size_bytes = line.byte + line.size_bytes + line.ended
            found = judge(line)
            if isinstance(found, Line):
                self._take(line, found)
            elif found:
                self._wait(line, found)
            if self.size_bytes == offset and as_of is not None:
                is_proven = line.ended and line_mark(line.data + b"\n") == as_of.hash
                if is_proven:
                    self._tell_unclaimed(offset)
        self._tell_bad(offset if is_proven else 0)
        if self._twice:
            self._tell_twice(log_lines(disk.read_chunks(path)))
        return is_proven

    def _take(self, line: LogLine, found: Line) -> None:
        counts = self._counts
        if self._waiting_count:
            self._settle()
        counts["findings"] += 1
        number = int(found.hash, 16)
        proven = self.proven.get(number)
        if proven:
            counts["duplicated"] += 1
            if len(self._twice) < told_max:
                self._twice.append((line._replace(data=b""), found))
        else:
            counts["items"] += 1
            if proven is None:
                self.behind += 1
                if len(self._unclaimed) < told_max:
                    self._unclaimed.append((line._replace(data=b""), found))
            self.proven[number] = True
        if found.forged or found.key is None or not line.ended:
            self._remark(line, found)

    def _remark(self, line: LogLine, found: Line) -> None:
        """What is unusual about a finding."""
        place = Place(line.number, line.byte)
        if found.key is None:
            self._counts["unprovable"] += 1
            message = f"line {line.number} has the hash {found.hash} and no key that proves it."
            fix = "Nothing needs to be done: it counts as done."
            self._draft.notice("unprovable", message, fix, place)
        elif found.forged:
            self._counts["forged"] += 1
            message = f"line {line.number}: its _hash is not that of its key {shown(found.key)}."
            fix = f"Put {found.hash} there: its key counts, but other programs may believe _hash."
            self._draft.defect("forged", message, fix, place, digest=found.hash, key=found.key)
        if not line.ended:
            message = f"line {line.number}, the last one, is a whole finding without its newline."
            fix = "Nothing needs to be done: the next start adds it."
            self._draft.notice("no_newline", message, fix, place)

    def _tell_unclaimed(self, offset: int) -> None:
        """state.json says that it knows all the lines so far, and it lacks some."""
        for line, found in self._unclaimed:
            name = shown(found.key) if found.key is not None else found.hash
            message = (
                f"line {line.number} is a finding of {name}, and {STATE_NAME}, which says that it"
                f" knows the log up to byte {offset}, does not have that item."
            )
            fix = f"Run {self._retry}, which reads the whole log; else the item may be done again."
            place = Place(line.number, line.byte)
            self._draft.defect("state", message, fix, place, digest=found.hash, key=found.key)
        self._unclaimed, self.behind = [], 0

    # Lines that are no findings

    def _wait(self, line: LogLine, reason: str) -> None:
        if len(self._waiting) < told_max:
            self._waiting.append(_BadLine(line.number, line.byte, reason))
        self._waiting_count += 1

    def _settle(self) -> None:
        """A finding follows, so what could not be read before it is no torn tail."""
        self._counts["bad_lines"] += self._waiting_count
        self._bad += self._waiting[: told_max - len(self._bad)]
        self._waiting, self._waiting_count = [], 0

    def _tell_bad(self, known_bytes: int) -> None:
        """``known_bytes``: where the next start begins to read."""
        for bad in self._bad:
            recent = bad.byte >= max(known_bytes, self.size_bytes - group_bytes_max)
            message = f"line {bad.number}, byte {bad.byte}, is no finding: {bad.reason}."
            fix = _RECENT_FIX if recent else _OLD_FIX.format(line=bad.number, retry=self._retry)
            self._draft.defect("bad_line", message, fix, Place(bad.number, bad.byte))
        if self._waiting:
            torn = self._waiting[0]
            torn_bytes = self._counts["torn_bytes"] = self.size_bytes - torn.byte
            message = (
                f"the log ends in {torn_bytes} bytes that are no finding, from line {torn.number},"
                f" byte {torn.byte}: {torn.reason}."
            )
            fix = "The next start sets them aside in .torn/; the item is done again."
            self._draft.notice("torn_tail", message, fix, Place(torn.number, torn.byte))

    # Two lines for one item

    def _tell_twice(self, lines: Iterator[LogLine]) -> None:
        """Say of each second line which the first one is. ``lines`` are the log once more."""
        wanted = {found.hash for _, found in self._twice}
        first: dict[str, int] = {}
        for line in lines:
            found = judge(line)
            if isinstance(found, Line) and found.hash in wanted:
                first[found.hash] = line.number
                wanted.remove(found.hash)
                if not wanted:
                    break
        for line, found in self._twice:
            name = shown(found.key) if found.key is not None else found.hash
            other = f"line {first[found.hash]}" if found.hash in first else "an earlier line"
            message = f"line {line.number} is for the same item as {other}: {name}."
            fix = (
                f"Decide which is right, and blank line {line.number} or {other} of {LOG_NAME}"
                " while nobody has the job open."
            )
            place = Place(line.number, line.byte)
            self._draft.defect("duplicate", message, fix, place, digest=found.hash, key=found.key)


_RECENT_FIX: Final = (
    "Start the job with perdure: it keeps the line in .torn/ and blanks it; an item that has no"
    " other line is done again."
)
_OLD_FIX: Final = (
    "No crash explains it, and no start of the job touches it: look at it (`sed -n {line}p"
    " findings.jsonl`). Put the log back from a copy; or run {retry}, which keeps the line in"
    " .torn/ and blanks it: an item that has no other line is done again."
)
