"""The mirror of a journal: the same bytes in a second file, for tasks of tier 2 (J-2).

Job: take part in each commit, and say at the cost of the last commit, or of both files, whether the
two agree. Invariants: a commit is in both files before it is acknowledged; the journal is written
first and nothing is written behind a commit that is not whole in both, so that a crash leaves the
two apart by one commit at most; nothing here cuts or replaces either file (``mirror_repair`` does).
"""

import os
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from perdure.core.codec import EMPTY_TIP, ChainTip, Commit, Scan, judge_tail, proves
from perdure.core.fold import Replica
from perdure.core.late import LateModule
from perdure.core.tiers import is_mirrored
from perdure.errors import CorruptError, StorageError
from perdure.ports import AppendFile, Clock, Disk
from perdure.storage.workspace import Layout

_futures: Final = LateModule("concurrent.futures")
_repair: Final = LateModule("perdure.storage.mirror_repair")
NAME: Final = "journal-mirror.jsonl"
slow_syncs_s: Final = 0.002
"""Two syncs one after the other that take longer are under way at once from then on."""
before_bytes: Final = 256
"""So much in front of a commit is compared: the end of a line has its chain value."""
ONE_FILE: Final = "is the same file as the journal (a hard link), so there is one copy alone"
RESUME: Final = "Run `perdure resume`, which puts right what can be, and names what cannot."


class Mirror:
    """One mirror, beside one journal."""

    __slots__ = ("_agreed", "_clock", "_disk", "_file", "_inode", "_overlap", "path")

    def __init__(self, disk: Disk, path: str, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self.path = path
        self._file: AppendFile | None = None
        self._inode: int | None = None
        """Of the file that was seen last."""
        self._agreed: ChainTip | None = None
        """Up to here that file ends like the journal, as this object has seen or made it."""
        self._overlap = False
        """Whether the device is slow enough for two syncs under way at once to be worth a thread.
        """

    def size(self) -> int | None:
        """Bytes in it now; None when it is gone. Another file than before is opened anew."""
        stat = self._disk.stat(self.path)
        if stat is None:
            return None
        if stat.kind != "file":
            raise CorruptError(
                f"{self.path} is a {stat.kind}, not a file.",
                code="mirror_disagrees",
                rule="J-2",
                fix="Move it away, then run `perdure resume`, which writes the mirror again.",
            )
        if stat.inode != self._inode:
            self._check_own(stat.inode)
            self.close()
            self._inode, self._agreed = stat.inode, None
        return stat.size_bytes

    def _check_own(self, inode: int) -> None:
        """Raise CorruptError where the mirror is the journal by another name: that is one copy."""
        journal = self._disk.stat(Layout(os.path.dirname(self.path)).journal)
        if journal is not None and journal.inode == inode:
            raise CorruptError(
                f"{self.path} {ONE_FILE}.", code="mirror_disagrees", rule="J-2", fix=RESUME
            )

    def agrees(self, tip: ChainTip) -> bool:
        """Whether it ends at ``tip`` with the line that ends there. One look, at most one read."""
        if self.size() != tip.offset:
            return False
        if self._agreed is not tip:
            line = self._disk.read(self.path, tip.start, tip.offset - tip.start)
            if not (line.endswith(b"\n") and proves(tip, line)):
                return False
            self._agreed = tip
        return True

    def prepare(self) -> None:
        """Open it before anything of the commit is written."""
        self._opened()

    def _opened(self) -> AppendFile:
        if self._file is None:
            self._file = self._disk.open_append(self.path)
        return self._file

    def append_with(self, first: AppendFile, commit: Commit) -> None:
        """Write the commit, which ``first`` has in its file, and sync both: then it may be
        acknowledged. StorageError and CorruptError as with ``Journal.append``."""
        file = self._opened()
        file.append(commit.data)
        if file.size() != commit.tip.offset:
            raise CorruptError(
                f"{self.path} does not end where J-{commit.tip.seq} ends in the journal: somebody"
                " else wrote to it.",
                code="mirror_disagrees",
                rule="J-2",
                fix=RESUME,
            )
        if self._overlap:
            _sync_both(first, file)
        else:
            began = self._clock.monotonic()
            first.sync()
            file.sync()
            is_slow = self._clock.monotonic() - began > slow_syncs_s
            self._overlap = is_slow and self._disk.syncs_at_once
        self._agreed = commit.tip

    def complete(self, data: bytes) -> None:
        """Write at its end what the journal has more; durable on return."""
        self.close()
        file = self._opened()
        file.append(data)
        file.sync()

    def write_again(self, start: int, data: bytes) -> None:
        """Write the last commit over itself, so that the next sync really covers it."""
        self._disk.rewrite(self.path, start, data)

    def settle(self) -> None:
        """Make what is in it durable."""
        self._disk.sync_file(self.path)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _sync_both(first: AppendFile, second: AppendFile) -> None:
    """Both syncs under way at once. On return both are done; the first failure is raised."""
    other = _waiting(os.getpid()).submit(second.sync)
    try:
        first.sync()
    finally:
        _futures.wait([other])
    other.result()


@cache
def _waiting(pid: int) -> Any:
    """A thread that waits for the device, of this process: a forked one has none of them."""
    return _futures.ThreadPoolExecutor(1, "mirror-sync")


class Comparison(NamedTuple):
    """What a look at both files says."""

    wrong: str = ""
    """What no crash explains; empty when there is nothing of the kind."""
    unfinished: str = ""
    """What a crash has left, or a commit under way: the next writer completes it."""


def is_one_file(disk: Disk, layout: Layout) -> bool:
    """Whether both names lead to the same file."""
    journal, mirror = disk.stat(layout.journal), disk.stat(layout.mirror)
    return journal is not None and mirror is not None and journal.inode == mirror.inode


def compare(disk: Disk, layout: Layout, scan: Scan) -> Comparison:
    """Both files in full, up to where ``scan`` has read the journal. A commit that is made
    meanwhile is no difference. Reads only; memory is bounded."""
    stat = disk.stat(layout.mirror)
    if stat is None:
        return Comparison(f"{NAME} is gone")
    if stat.kind != "file":
        return Comparison(f"{NAME} is a {stat.kind}, not a file")
    if is_one_file(disk, layout):
        return Comparison(f"{NAME} {ONE_FILE}")
    tip, size = scan.tip, stat.size_bytes
    at = first_difference(disk, layout.journal, layout.mirror, min(size, tip.offset))
    if at is not None:
        line = 1 + _newlines(disk, layout.journal, at)
        fork = " and both verify by themselves" if whole_up_to(disk, layout).offset > at else ""
        return Comparison(f"{NAME} differs from the journal in line {line}, at byte {at}{fork}")
    if size < scan.commit_start:
        line = 1 + _newlines(disk, layout.journal, size)
        return Comparison(f"{NAME} ends at byte {size}: J-{line} to J-{tip.seq} are not in it")
    if size < tip.offset:
        return Comparison("", f"{NAME} does not have all of J-{tip.seq} yet")
    journal = disk.stat(layout.journal)
    if journal is None or size <= journal.size_bytes:
        return Comparison()  # what is behind the tip in the journal is told as its own
    rest = disk.read(layout.mirror, tip.offset, size - tip.offset)
    if more_than_one_commit(tip, rest):
        return Comparison(f"{NAME} goes on behind J-{tip.seq}, where the journal ends")
    return Comparison("", f"{NAME} has bytes behind J-{tip.seq} that the journal lacks")


def more_than_one_commit(tip: ChainTip, rest: bytes) -> bool:
    """Whether bytes behind ``tip`` are more than one commit, which may be cut or torn."""
    scan = Scan(tip)
    commits = sum(1 for _ in scan.commits([rest]))
    if commits == 0:
        return not judge_tail(rest, tip)
    return commits > 1 or scan.damage is not None


def first_difference(disk: Disk, one: str, other: str, length: int) -> int | None:
    """The first byte in which two files differ, of the first ``length``; None for no such byte."""
    done = 0
    for mine, theirs in _pairs(disk, one, other, length):
        if mine != theirs:
            return done + common_prefix(mine, theirs)
        done += len(mine)
    return None if done >= length else done


_block_bytes: Final = 1 << 20


def _pairs(disk: Disk, one: str, other: str, length: int) -> Iterator[tuple[bytes, bytes]]:
    for at in range(0, length, _block_bytes):
        step = min(_block_bytes, length - at)
        yield disk.read(one, at, step), disk.read(other, at, step)


def common_prefix(one: bytes, other: bytes) -> int:
    """How many bytes two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _newlines(disk: Disk, path: str, end: int) -> int:
    count = 0
    for at in range(0, end, _block_bytes):
        count += disk.read(path, at, min(_block_bytes, end - at)).count(b"\n")
    return count


def tier_in(disk: Disk, path: str) -> int:
    """The tier of the task that a journal begins; -1 when its first commit cannot be read."""
    try:
        events = next(Scan().commits(disk.read_chunks(path)), None)
    except StorageError:
        return -1
    if events is None:
        return -1
    replica = Replica()
    replica.apply_all(events)
    return replica.state.tier if replica.state.created else -1


def is_due(disk: Disk, layout: Layout) -> bool:
    """Whether this journal has a mirror, or should: by its own first line, else by the mirror's."""
    tier = tier_in(disk, layout.journal)
    return is_mirrored(tier if tier >= 0 else tier_in(disk, layout.mirror))


def mirror_facts(disk: Disk, layout: Layout) -> str:
    """``whole``, or what is wrong with the mirror; empty where the task has none to be.

    Reads both files in full and writes nothing. A commit that is being made, or that a crash has
    left in one of the two, is nothing wrong.
    """
    if not is_due(disk, layout):
        return ""
    scan = Scan()
    try:
        for _ in scan.commits(disk.read_chunks(layout.journal)):
            pass
        return compare(disk, layout, scan).wrong or "whole"
    except StorageError as error:
        return error.message


def whole_up_to(disk: Disk, layout: Layout) -> ChainTip:
    """How far the mirror verifies by itself; ``EMPTY_TIP`` when it is none of a tier 2 task."""
    scan = Scan()
    stat = disk.stat(layout.mirror)
    if stat is None or stat.kind != "file" or not is_mirrored(tier_in(disk, layout.mirror)):
        return EMPTY_TIP
    for _ in scan.commits(disk.read_chunks(layout.mirror)):
        pass
    return scan.tip


def restorable(disk: Disk, layout: Layout, seq: int) -> str:
    """What a recovery can restore of a journal that is whole up to ``seq`` by itself, in words.

    Empty where it would refuse, or come no further. Each commit counts from the file in which it
    is whole. Reads both and writes nothing.
    """
    try:
        if not is_due(disk, layout):
            return ""
        together = int(_repair.read_history(disk, layout).tip.seq)
        if together <= seq:
            return ""
        if whole_up_to(disk, layout).seq >= together:
            return f"its mirror is whole up to J-{together}"
        return f"together with its mirror it is whole up to J-{together}"
    except (CorruptError, StorageError):
        return ""


def with_cure(disk: Disk, layout: Layout, error: CorruptError) -> CorruptError:
    """The error about a damaged journal, which says so where its mirror has what it lacks."""
    scan = Scan()
    try:
        if disk.stat(layout.journal) is not None:
            for _ in scan.commits(disk.read_chunks(layout.journal)):
                pass
    except StorageError:
        return error
    said = restorable(disk, layout, scan.tip.seq)
    if not said:
        return error
    return CorruptError(
        f"{error.message} {said[0].upper()}{said[1:]}.",
        code=error.code,
        rule="J-2",
        fix=f"Run `perdure resume`, which restores the journal from {NAME}.",
    )


def unlike(layout: Layout, what: str) -> CorruptError:
    """The error for a writer that finds the two apart by more than a crash explains."""
    return CorruptError(
        f"{layout.mirror} does not agree with the journal: {what}.",
        code="mirror_disagrees",
        rule="J-2",
        fix=RESUME,
    )
