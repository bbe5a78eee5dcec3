"""Putting the end of a log in order, and making sure of what was read.

Job: what a crash may have left of the last append, the syncs without which nothing that was read
may be believed, and the cure of damage when a person asks for it. Invariants: bytes are set aside
durably in ``.torn/`` before they are cut or blanked; unasked, only lines are touched that one
unfinished append can explain, older ones stay where they are and are told every time (JB-7); done
twice is done once; after it the log ends with a newline and every byte of it is on the medium. It
decides nothing about findings.
"""

import shlex
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from perdure.jobs.lines import Line, judge_line, line_bytes_max
from perdure.jobs.log import LOG_NAME
from perdure.jobs.records import Damage, Notice, damaged_max
from perdure.jobs.scan import (
    BadBytes,
    KnownDamage,
    LogScan,
    Unkept,
    group_bytes_max,
    last_line,
    lines_before,
)
from perdure.ports import Disk

TORN_NAME: Final = ".torn"

_NOTHING_TO_DO: Final = (
    "Nothing needs to be done: its item runs again, unless state.json has it as done;"
    " `perdure job verify` names such an item."
)


class Settled(NamedTuple):
    """A log that is in order and on the medium."""

    offset: int
    """Where it ends."""
    last: bytes
    """Its last line; empty when there is none, or one that is too long to be looked at."""
    completed: tuple[str, str] | None
    """Hash and time of a finding that lacked nothing but its newline."""
    damage: Damage
    """Lines that were left where they are."""
    notices: list[Notice]


def settle_log(
    disk: Disk, root: str, scan: LogScan, proven: int, *, known: KnownDamage, utc: str
) -> Settled:
    """Repair the end of the log of the job in ``root`` and make all of it durable.

    ``proven`` is the offset up to which a ``state.json`` says that it had been synced, and
    ``known`` what is damaged before it; ``utc`` names what is set aside. A crash in the middle
    leaves a log that this repairs again. Raises StorageError; then nothing that was scanned may be
    believed.
    """
    path = f"{root}/{LOG_NAME}"
    repair = _Repair(disk, root, path, scan, utc)
    repair.judge_tail()
    repair.clear_suspects()
    damage, notices = tell_damage(disk, root, known, scan)
    end = repair.end
    last = last_line(disk, path, end)
    # After somebody's failed sync these pages may be marked clean without being on the medium,
    # and a later sync would skip them, unless they are written again.
    start = max(proven, end - max(group_bytes_max, len(last)), 0)
    if end > start:
        disk.rewrite(path, start, disk.read(path, start, end - start))
    disk.sync_file(path)
    disk.sync_dir(root)
    return Settled(end, last, repair.completed, damage, repair.notices + notices)


class _Repair:
    """One repair of one log."""

    def __init__(self, disk: Disk, root: str, path: str, scan: LogScan, utc: str) -> None:
        self.disk = disk
        self.root = root
        self.path = path
        self.scan = scan
        self.utc = utc
        self.end = scan.size_bytes
        self.completed: tuple[str, str] | None = None
        self.notices: list[Notice] = []
        self.suspects: list[BadBytes] = list(scan.suspects)
        self.counted_to = 0
        """Byte up to which the lines of the log were counted, for their numbers."""
        self.lines_counted = 0

    def judge_tail(self) -> None:
        """Bytes behind the last newline: a finding that lacks only its newline, or torn."""
        scan = self.scan
        if not scan.tail_bytes:
            return
        if scan.tail_bytes > line_bytes_max:
            # More than fits into memory, and nothing of ours: it becomes a line by itself.
            self._end_line()
            scan.tell(scan.lines, scan.end, f"longer than {line_bytes_max} bytes")
            return
        judged = judge_line(scan.tail)
        if isinstance(judged, Line):
            self._end_line()
            self.completed = (judged.hash, judged.at)
            self._say(
                "newline_added",
                scan.end,
                "a whole finding without a newline. One was added, and the item is done.",
                "Nothing needs to be done.",
            )
        else:
            self.suspects.append(BadBytes(scan.end, self.end))

    def clear_suspects(self) -> None:
        """Set aside what one unfinished append may have left: cut it, or blank it inside."""
        runs = _merged(self.suspects)
        for run in runs:
            aside = _set_aside(self.disk, self.root, run, self.utc)
            is_last = run.end == self.scan.size_bytes
            what = "torn_tail" if is_last else "set_aside"
            self._say(
                what,
                run.start,
                f"{run.end - run.start} bytes that are no findings were set aside in"
                f" {aside}{' and cut off' if is_last else ' and blanked'}.",
                _NOTHING_TO_DO,
            )
        for run in runs:
            if run.end == self.scan.size_bytes:
                self.disk.truncate(self.path, run.start)
                self.end = run.start
            else:
                data = self.disk.read(self.path, run.start, run.end - run.start)
                self.disk.rewrite(self.path, run.start, _blanked(data))

    def _end_line(self) -> None:
        file = self.disk.open_append(self.path)
        try:
            file.append(b"\n")
            file.sync()
        finally:
            file.close()
        self.end += 1

    def _say(self, what: str, byte: int, message: str, fix: str) -> None:
        """``byte`` is where a line starts."""
        if byte < self.counted_to:
            self.counted_to = self.lines_counted = 0
        # In a long log there may be many of them, mostly in order: each counts on from the last.
        self.lines_counted += lines_before(self.disk, self.path, byte, self.counted_to)
        self.counted_to = byte
        number = self.lines_counted + 1
        at = f"{self.path}: line {number}, byte {byte}"
        self.notices.append(Notice(what, number, byte, f"{at}: {message}", fix))


def _merged(suspects: list[BadBytes]) -> list[BadBytes]:
    """The same bytes, with what is next to each other as one."""
    runs: list[BadBytes] = []
    for found in suspects:
        if runs and runs[-1].end == found.start:
            runs[-1] = BadBytes(runs[-1].start, found.end)
        else:
            runs.append(found)
    return runs


# Damage


def tell_damage(
    disk: Disk, root: str, known: KnownDamage, scan: LogScan
) -> tuple[Damage, list[Notice]]:
    """The lines that no crash explains and that stay where they are, with a notice for each.

    ``known`` are those before ``scan`` begins. Only reads. Raises StorageError.
    """
    path = f"{root}/{LOG_NAME}"
    cleared = {run.start for run in scan.suspects}
    fresh = [line for line in scan.bad if line.byte not in cleared]
    before = lines_before(disk, path, scan.start) if fresh else 0
    lines = known.lines + [line._replace(line=before + line.line) for line in fresh]
    count = known.total + scan.bad_count - len(scan.suspects)
    cure = (
        f"`perdure job verify {shlex.quote(root)}` says more. Put the log back from a copy, or run"
        f" `perdure job retry {shlex.quote(root)} --lost`: what the line held is set aside, and its"
        " item runs again."
    )
    notices = [
        Notice(
            "bad_line",
            line.line + 1,
            line.byte,
            f"{path}: line {line.line + 1}, byte {line.byte}: no finding ({line.reason}). The line"
            " was left where it is.",
            cure,
        )
        for line in lines
    ]
    if count > len(lines):
        message = f"{path} has {count - len(lines)} more lines that are no findings."
        notices.append(Notice("bad_lines", None, None, message, cure))
    places = tuple((line.line + 1, line.byte) for line in lines[:damaged_max])
    return Damage(places, count), notices


def clear_damage(disk: Disk, root: str, utc: str, findings: dict[str, str] | None = None) -> int:
    """Set every line aside that is no finding, wherever it stands; returns how many it were.

    ``findings`` gets the others, hash to time: whoever wants both reads the log once. For a person
    who asks for it: such a line is evidence. It becomes blanks, durable on return. A
    crash in the middle leaves lines that are still there, and whole in ``.torn/`` or in the log.
    Lines near each other are kept together, with what stands between them. Raises StorageError.
    """
    path = f"{root}/{LOG_NAME}"
    scan = LogScan(0, Unkept() if findings is None else findings, every_suspect=True)
    scan.read(disk, path)
    for runs in _neighbours(_merged(list(scan.suspects))):
        _set_aside(disk, root, BadBytes(runs[0].start, runs[-1].end), utc)
        for run in runs:
            data = _blanked(disk.read(path, run.start, run.end - run.start))
            # The end of a piece of a line that was too long: blanks too must not be so many.
            disk.rewrite(path, run.start, data[:-1] + b"\n")
    if scan.suspects:
        disk.sync_file(path)
    return scan.bad_count


def utc_name(now: float) -> str:
    """A moment as part of a file name."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))


def _neighbours(runs: list[BadBytes]) -> Iterator[list[BadBytes]]:
    """Runs that are set aside together: not too far from each other, and not too much."""
    group: list[BadBytes] = []
    for run in runs:
        for start in range(run.start, run.end, line_bytes_max):
            piece = BadBytes(start, min(run.end, start + line_bytes_max))
            if group and (
                piece.start - group[-1].end > group_bytes_max
                or piece.end - group[0].start > line_bytes_max
            ):
                yield group
                group = []
            group.append(piece)
    if group:
        yield group


def _set_aside(disk: Disk, root: str, run: BadBytes, utc: str) -> str:
    """Keep these bytes of the log in ``.torn/``; durable on return. Returns the path."""
    folder = f"{root}/{TORN_NAME}"
    disk.make_dirs(folder)
    target = f"{folder}/{utc}-{run.start}"
    number = 1
    while disk.stat(target) is not None:
        number += 1
        target = f"{folder}/{utc}-{run.start}-{number}"
    data = disk.read(f"{root}/{LOG_NAME}", run.start, run.end - run.start)
    disk.replace(target, data, durable=True)
    return target


def _blanked(data: bytes) -> bytes:
    """As many blanks, on as many lines."""
    return b"\n".join(b" " * len(line) for line in data.split(b"\n"))
