"""Putting a journal and its mirror right from each other, after damage (J-2).

Job: find the longest history that the chain proves, whichever of the two files each commit is read
from, and make both files that history. Invariants: nothing is written before the whole history is
known, belongs to the task that is expected, and lacks no line that a projection or an intact line
in either file speaks of; bytes that differ from it are set aside first, durable; a file is
replaced in one step, or completed at its end; a death anywhere leaves the longest history in at
least one of the two, so that the next call comes to the same. The caller holds the writer lock,
and nobody else coordinates.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from perdure.core.codec import EMPTY_TIP, ChainTip, Damage, Scan, event_on, judge_tail
from perdure.core.fold import Replica
from perdure.core.on_disk import Fragment, name_damaged
from perdure.errors import CorruptError
from perdure.ports import TEMP_MARK, Disk
from perdure.storage.mirror import NAME, ONE_FILE, common_prefix, first_difference, is_one_file
from perdure.storage.projections import committed_offset
from perdure.storage.workspace import Layout

_block_bytes: Final = 1 << 20
line_bytes_max: Final = 8 << 20
"""A longer stretch without a newline is no event."""
shown_bytes: Final = 160
_MARK: Final = b',"h":"'
_mark_bytes: Final = 24
"""The end of a line, from there on: its chain value."""


class Part(NamedTuple):
    """Bytes of the whole history, and the file to read them from."""

    path: str
    start: int
    end: int


class Side(NamedTuple):
    """One of the two files by itself."""

    path: str
    size: int
    """-1 when it is gone."""
    end: int
    """Byte up to which it verifies from its first byte."""
    damage: Damage | None


class History(NamedTuple):
    """The longest history that the chain proves, and how each file stands to it."""

    parts: tuple[Part, ...]
    tip: ChainTip
    task_id: str
    tier: int
    journal: Side
    mirror: Side


class Fixes(NamedTuple):
    """What was wrong, what was done, and what was set aside."""

    found: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    fragments: tuple[Fragment, ...] = ()


def are_alike(disk: Disk, layout: Layout) -> bool:
    """Whether both are there with the same bytes. Reads both in full."""
    sizes = [_size(disk, path) for path in (layout.journal, layout.mirror)]
    if sizes[0] != sizes[1] or sizes[0] < 0 or is_one_file(disk, layout):
        return False
    return first_difference(disk, layout.journal, layout.mirror, sizes[0]) is None


def read_history(disk: Disk, layout: Layout) -> History:
    """The history in the two files, from which :func:`repair` makes both again.

    Reads only. Raises CorruptError for a fork, which names its first line, and where lines are
    damaged in both that had been committed.
    """
    paths = [p for p in (layout.journal, layout.mirror) if _size(disk, p) >= 0]
    tip, parts, alone = EMPTY_TIP, list[Part](), dict[str, Side]()
    first = Replica()
    while True:
        ends: dict[str, ChainTip] = {}
        for path in paths:
            scan = Scan(tip)
            for events in scan.commits(disk.read_chunks(path, offset=tip.offset)):
                if not first.state.created:
                    first.apply_all(events)
            ends[path] = scan.tip
            alone.setdefault(path, Side(path, _size(disk, path), scan.tip.offset, scan.damage))
        _check_no_fork(disk, layout, tip, list(ends.values()))
        best = max(paths, key=lambda path: ends[path].offset, default="")
        if not best or ends[best].seq == tip.seq:
            break
        parts.append(Part(best, tip.offset, ends[best].offset))
        tip = ends[best]
    sides = [alone.get(p, Side(p, -1, 0, None)) for p in (layout.journal, layout.mirror)]
    if not first.state.created:
        raise _damaged(tip, sides)
    _check_nothing_lost(disk, layout, parts, tip, sides)
    return History(tuple(parts), tip, first.state.task_id, first.state.tier, sides[0], sides[1])


def _check_no_fork(disk: Disk, layout: Layout, tip: ChainTip, ends: Sequence[ChainTip]) -> None:
    """Where both verify on from ``tip``, they must be the same bytes as far as both do."""
    if len(ends) < 2 or min(end.offset for end in ends) <= tip.offset:
        return
    at = first_difference(disk, layout.journal, layout.mirror, min(end.offset for end in ends))
    if at is None:
        return
    if at < tip.offset:  # damage before, which was passed over with the other file
        shorter = min(end.offset for end in ends) - tip.offset
        mine, theirs = (disk.read(p, tip.offset, shorter) for p in (layout.journal, layout.mirror))
        if mine == theirs:
            return
        at = tip.offset + common_prefix(mine, theirs)
    seqs = []
    for path in (layout.journal, layout.mirror):
        start = _line_start(disk, path, at)
        line = disk.read(path, start, line_bytes_max).partition(b"\n")[0]
        event = event_on(line)
        text = line[:shown_bytes].decode("utf-8", "replace")
        seqs.append((event.seq if event is not None else 0, text))
    raise CorruptError(
        f"journal.jsonl and {NAME} both verify and differ from J-{seqs[0][0]} on (byte {at})."
        f" The journal says {seqs[0][1]!r}, the mirror says {seqs[1][1]!r}.",
        code="mirror_forked",
        rule="J-2",
        fix="Find out which of the two is true, and move the other one away; then run"
        " `perdure resume`, which writes it again.",
    )


def _line_start(disk: Disk, path: str, at: int) -> int:
    start = at
    while start > 0:
        step = min(_block_bytes, start)
        found = disk.read(path, start - step, step).rfind(b"\n")
        if found >= 0:
            return start - step + found + 1
        start -= step
    return 0


def _check_nothing_lost(
    disk: Disk, layout: Layout, parts: Sequence[Part], tip: ChainTip, sides: Sequence[Side]
) -> None:
    """Raise CorruptError when a line behind ``tip`` had been committed, as far as anything says."""
    lost = committed_offset(disk, layout) > tip.offset
    for side in sides:
        newer = b"" if side.size < 0 else b"".join(_newer_lines(disk, side, parts, tip))
        # A whole commit here stands at a wrong place, or it would have been read on.
        lost = lost or not judge_tail(newer, tip) or any(True for _ in Scan(tip).commits([newer]))
    if lost:
        raise _damaged(tip, sides)


def _damaged(tip: ChainTip, sides: Sequence[Side]) -> CorruptError:
    where = [
        f"{side.path.rpartition('/')[2]}: line {side.damage.line}, byte {side.damage.byte}:"
        f" {side.damage.reason}"
        if side.damage is not None
        else f"{side.path.rpartition('/')[2]} ends at byte {side.size}"
        for side in sides
        if side.size >= 0
    ]
    return CorruptError(
        f"the journal and its mirror are both damaged behind J-{tip.seq} (byte {tip.offset}), and"
        f" events behind it had been committed: {'; '.join(where)}. Nothing was changed.",
        code="journal_corrupt",
        rule="J-2",
        fix="Put one of the two back from a copy. The lines in front of the one that is named are"
        " whole.",
    )


def _newer_lines(disk: Disk, side: Side, parts: Sequence[Part], tip: ChainTip) -> Iterator[bytes]:
    """Intact lines behind what verifies of a file that are no part of the history.

    A line with a flipped bit may still be an event, of another number. It has kept its place and
    its chain value, so it is known as the line of the history that it was.
    """
    for start, line in _lines(disk.read_chunks(side.path, offset=side.end), side.end):
        event = event_on(line)
        if event is None or event.seq <= tip.seq:
            continue
        end = start + len(line)
        mark = line.rstrip(b"\n")[-_mark_bytes:]
        place = end - line.endswith(b"\n")
        its_own = _bytes_of(disk, parts, place - _mark_bytes, place)
        if not (mark.startswith(_MARK) and end <= tip.offset and mark == b"".join(its_own)):
            yield line


def _lines(chunks: Iterable[bytes], at: int) -> Iterator[tuple[int, bytes]]:
    """The lines with their places and newlines, without stretches too long to be one."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if len(line) <= line_bytes_max:
                yield at, line + b"\n"
            at += len(line) + 1
        if len(rest) > line_bytes_max:
            at += len(rest) - 1
            rest = rest[-1:]
    if rest:
        yield at, rest


def repair(disk: Disk, layout: Layout, history: History) -> Fixes:
    """Make both files the history, but for a torn tail of the journal, which is recovery's.

    The journal first: then it is whole alone, and the mirror is made from it. Durable on return.
    """
    one = is_one_file(disk, layout)
    if one:  # a file of its own first: what is done to one of them must not be done to both
        _write_whole(disk, layout.mirror, disk.read_chunks(layout.journal))
    first = _Repair(disk, layout, history.tip, history.parts).put_right(history.journal)
    whole = (Part(layout.journal, 0, history.tip.offset),)
    second = _Repair(disk, layout, history.tip, whole).put_right(history.mirror)
    return Fixes(
        (f"{NAME} {ONE_FILE}",) * one + first.found + second.found,
        ("it was made a file of its own",) * one + first.repaired + second.repaired,
        first.fragments + second.fragments,
    )


class _Repair(NamedTuple):
    """What one file is made from."""

    disk: Disk
    layout: Layout
    tip: ChainTip
    parts: tuple[Part, ...]

    def put_right(self, side: Side) -> Fixes:
        """Make this file the history. What differs is set aside first."""
        is_mirror = side.path == self.layout.mirror
        name, source = _NAMES[is_mirror]
        end = self.tip.offset
        if side.size < 0:
            _write_whole(self.disk, side.path, self.bytes_of(0, end))
            return Fixes((f"{name} was gone",), (f"{name} written from {source}, {self.until}",))
        if side.end == end:
            return self._cut(side, name)
        span = self._differing(side)
        if span is None:
            _append(self.disk, side.path, self.bytes_of(side.size, end))
            found = f"{name} ended at byte {side.size}, {end - side.size} bytes too early"
            return Fixes((found,), (f"{name} completed from {source}, {self.until}",))
        line, why = "", "it ends there"
        if side.damage is not None:
            line, why = f"line {side.damage.line}, byte {side.damage.byte}: ", side.damage.reason
        fragment = set_aside(self.disk, self.layout, side.path, span, why)
        _write_whole(self.disk, side.path, self.bytes_of(0, end))
        if any(part.path == side.path for part in self.parts):
            source += " and what is whole of itself"
        kept = f"{fragment.size_bytes} bytes that differed are set aside as {fragment.path}"
        repaired = f"{name} restored from {source}, {self.until}; {kept}"
        return Fixes((f"{name} was damaged: {line}{why}",), (repaired,), (fragment,))

    def _cut(self, side: Side, name: str) -> Fixes:
        """What stands behind the history is part of a commit, or somebody's noise."""
        if side.size == side.end:
            return Fixes()
        if side.path == self.layout.journal:
            rest = self.disk.read(side.path, side.end, side.size - side.end)
            if judge_tail(rest, self.tip):
                return Fixes()
        why = side.damage.reason if side.damage is not None else "more than the other"
        fragment = set_aside(self.disk, self.layout, side.path, (side.end, side.size), why)
        self.disk.truncate(side.path, side.end)
        found = f"{name} went on behind J-{self.tip.seq}, with what is no commit: {why}"
        return Fixes((found,), (f"set aside as {fragment.path}",), (fragment,))

    def _differing(self, side: Side) -> tuple[int, int] | None:
        """From the first to the last byte in which a file is not the history; None for none.

        A file that only ends early does not differ. What it has behind the history differs.
        """
        first = last = -1
        at, end = side.end, self.tip.offset
        for truth in self.bytes_of(side.end, min(side.size, end)):
            mine = self.disk.read(side.path, at, len(truth))
            if mine != truth:
                if first < 0:
                    first = at + common_prefix(mine, truth)
                last = at + len(truth) - common_prefix(mine[::-1], truth[::-1])
            at += len(truth)
        if side.size > end:
            first, last = (end if first < 0 else first), side.size
        return None if first < 0 else (first, last)

    @property
    def until(self) -> str:
        return f"up to J-{self.tip.seq}"

    def bytes_of(self, start: int, end: int) -> Iterator[bytes]:
        """Bytes of the history."""
        return _bytes_of(self.disk, self.parts, start, end)


_NAMES: Final = {
    False: ("the journal", "its mirror"),
    True: ("the journal mirror", "the journal"),
}


def _bytes_of(disk: Disk, parts: Sequence[Part], start: int, end: int) -> Iterator[bytes]:
    """Bytes of the history, in pieces."""
    for part in parts:
        at, stop = max(part.start, start), min(part.end, end)
        while at < stop:
            piece = disk.read(part.path, at, min(_block_bytes, stop - at))
            if not piece:
                raise CorruptError(
                    f"{part.path} became shorter while it was read.",
                    rule="J-2",
                    fix="Nothing was changed. See who else writes there, then resume again.",
                )
            at += len(piece)
            yield piece


def _size(disk: Disk, path: str) -> int:
    stat = disk.stat(path)
    if stat is None:
        return -1
    if stat.kind != "file":
        raise CorruptError(
            f"{path} is a {stat.kind}, not a file.",
            code="mirror_disagrees",
            rule="J-2",
            fix="Move it away; `perdure resume` writes it again from the other one.",
        )
    return stat.size_bytes


def _append(disk: Disk, path: str, pieces: Iterable[bytes]) -> None:
    """Complete a file at its end; durable on return. A crash leaves it shorter, no worse."""
    file = disk.open_append(path)
    try:
        for piece in pieces:
            file.append(piece)
        file.sync()
    finally:
        file.close()


def _write_whole(disk: Disk, path: str, pieces: Iterable[bytes]) -> None:
    """Put a new file in place in one step, durable, with bounded memory."""
    folder, _, name = path.rpartition("/")
    temp = f"{folder}/.{name}{TEMP_MARK}0-0"
    disk.replace(temp, b"", durable=False)
    _append(disk, temp, pieces)
    disk.rename(temp, path)


def set_aside(disk: Disk, layout: Layout, path: str, span: tuple[int, int], why: str) -> Fragment:
    """Copy bytes that a file is about to lose to ``tmp/recovered``; durable on return."""
    start, end = span
    digest = sha256()
    here = (Part(path, start, end),)
    for piece in _bytes_of(disk, here, start, end):
        digest.update(piece)
    which = "mirror" if path == layout.mirror else "journal"
    fragment = name_damaged(which, start, why, digest.hexdigest(), end - start)
    disk.make_dirs(layout.recovered)
    _write_whole(disk, f"{layout.root}/{fragment.path}", _bytes_of(disk, here, start, end))
    return fragment


def create_mirror(disk: Disk, layout: Layout, tip: ChainTip) -> None:
    """Write the mirror of a journal that is whole up to ``tip``; durable on return."""
    whole = (Part(layout.journal, 0, tip.offset),)
    _write_whole(disk, layout.mirror, _bytes_of(disk, whole, 0, tip.offset))
