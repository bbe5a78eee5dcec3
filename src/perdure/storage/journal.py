"""The journal file: catch up, append, and tell a torn tail from damage.

Invariants: this module only ever adds bytes behind the last whole commit (cutting a torn tail is
``cut``, which recovery calls after the bytes were set aside); an append returns only after its
sync, and that of the mirror where there is one; a failed one makes the object useless. It holds no
events, only the position it has reached.
"""

from collections.abc import Callable
from typing import Protocol

from perdure.core.codec import EMPTY_TIP, ChainTip, Commit, Damage, Scan, judge_tail, proves
from perdure.core.events import Event
from perdure.errors import CorruptError, NotFoundError
from perdure.ports import AppendFile, Disk
from perdure.storage.workspace import Layout

Fold = Callable[[list[Event]], None]


class SecondFile(Protocol):
    """What a journal with a mirror asks of it (``storage.mirror``)."""

    def prepare(self) -> None:
        """Be ready for a commit."""

    def append_with(self, first: AppendFile, commit: Commit) -> None:
        """Write the commit, which ``first`` has in its file, and sync both files."""

    def write_again(self, start: int, data: bytes) -> None:
        """As ``Journal.write_again``, with the bytes that stand at ``start``."""

    def settle(self) -> None:
        """Make what is in the file durable."""

    def close(self) -> None:
        """Give the descriptor back."""


class Journal:
    """One journal file, read up to ``tip``."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.tip: ChainTip = EMPTY_TIP
        self._unchained = 0
        self._commit_start = 0
        self.mirror: SecondFile | None = None
        """Of a task of tier 2; set by whoever knows the tier."""
        self._file: AppendFile | None = None
        self._inode: int | None = None
        self._durable: ChainTip | None = None
        """The last tip of which this object itself made sure that it is on the medium."""

    def start_at(self, tip: ChainTip) -> bool:
        """Begin behind a snapshot's position if the journal proves that it is one of its own.

        Reads the one line that ends there. False: the caller starts from the beginning. Raises
        CorruptError when the journal is shorter than that, because committed lines are missing.
        """
        self._size_behind(tip)
        line = self._disk.read(self.path, tip.start, tip.offset - tip.start)
        if tip.seq and not (line.endswith(b"\n") and proves(tip, line)):
            return False
        self.tip = tip
        self._commit_start = tip.start
        return True

    def _size_behind(self, tip: ChainTip) -> int:
        """Bytes in the file now. Raises CorruptError when committed lines are missing from it."""
        size = self.size()
        if size < tip.offset:
            raise CorruptError(
                f"{self.path} has {size} bytes, but events up to J-{tip.seq} (byte {tip.offset})"
                f" were committed: line {tip.seq} and maybe earlier ones are cut off.",
                code="journal_truncated",
                fix="Put the journal back from a copy. To accept the loss instead, remove"
                " .snapshot.json, task-graph.json, checkpoint.json and artifacts/registry.json,"
                " which are rebuilt, and resume.",
            )
        return size

    def size(self) -> int:
        """Bytes in the file now. Raises CorruptError when the file was replaced by another."""
        stat = self._disk.stat(self.path)
        if stat is None:
            raise CorruptError(
                f"{self.path} is gone.",
                code="journal_missing",
                fix="Put the journal back from a copy.",
            )
        if self._inode is None:
            self._inode = stat.inode
        elif self._inode != stat.inode:
            raise CorruptError(
                f"{self.path} was replaced by another file while it was in use.",
                code="journal_replaced",
                fix="Find out who did it; then open the workspace again.",
            )
        return stat.size_bytes

    def has_more(self) -> bool:
        """Whether the file is not just as long as what was read of it. Raises as ``size`` does."""
        return self.size() != self.tip.offset

    def catch_up(self, fold: Fold) -> Damage | None:
        """Fold every whole commit behind ``tip``; what cannot be one is returned, not judged.

        Raises CorruptError when the file has become shorter than what was read from it.
        """
        if self._size_behind(self.tip) == self.tip.offset:
            return None
        scan = Scan(self.tip)
        chunks = self._disk.read_chunks(self.path, offset=self.tip.offset)
        for events in scan.commits(chunks):
            fold(events)
        self._unchained += scan.unchained
        if scan.tip.seq != self.tip.seq:  # not only blank lines
            self._commit_start = scan.commit_start
        self.tip = scan.tip
        return scan.damage

    def judge(self, fold: Fold, committed_offset: int) -> tuple[Damage, bytes] | None:
        """What lies behind the last commit, after a look at it that a live writer cannot spoil.

        None: it was a commit under way, which is now whole. Else the damage and its bytes, which
        an unfinished commit explains. ``committed_offset`` is the furthest position of which any
        whole projection speaks, read before this call. Raises CorruptError when committed history
        is damaged.
        """
        size = self.size()
        damage = self.catch_up(fold)
        if damage is None:
            return None
        # Bytes that were there before the second look, and still are no commit: all of them
        # belong to one commit, since nobody starts another before it is whole.
        length = max(0, size - self.tip.offset)
        rest = self._disk.read(self.path, self.tip.offset, length)
        if committed_offset > self.tip.offset or not judge_tail(rest, self.tip):
            raise corrupt(self.path, damage)
        if not self.tip.seq:
            raise CorruptError(
                f"{self.path} is not a journal: line 1, byte 0: {damage.reason}.",
                code="not_a_journal",
                fix="Name another directory, or put the right journal back from a copy.",
            )
        return damage, rest

    def cut(self) -> None:
        """Cut everything behind ``tip``; durable. The bytes must have been set aside before."""
        self._disk.truncate(self.path, self.tip.offset)

    def complete(self, data: bytes) -> None:
        """Write whole commits behind ``tip`` that are durable in the mirror; durable on return.

        The caller holds the writer lock, has cut what was there, and catches up afterwards.
        """
        file = self._disk.open_append(self.path)
        try:
            file.append(data)
            file.sync()
        finally:
            file.close()

    @property
    def commit_start(self) -> int:
        """Byte where the last commit starts: nothing before it was ever unacknowledged."""
        return self._commit_start

    @property
    def is_durable(self) -> bool:
        """Whether this object itself made sure that everything up to ``tip`` is on the medium."""
        return self._durable is self.tip

    def write_again(self) -> None:
        """Write the last commit over itself, so that the next sync really covers it.

        After somebody's failed sync its pages may be marked clean without having reached the
        medium, and a later sync would skip them: a hole before committed lines. Nothing is
        written when this object itself made the commit durable.
        """
        if self.is_durable:
            return
        start = self._commit_start
        if self.tip.offset > start:
            data = self._disk.read(self.path, start, self.tip.offset - start)
            self._disk.rewrite(self.path, start, data)
            if self.mirror is not None:
                self.mirror.write_again(start, data)

    def settle(self) -> None:
        """Make sure that what was read is on the medium, not only in the page cache."""
        self.write_again()
        self._disk.sync_file(self.path)
        if self.mirror is not None:
            self.mirror.settle()
        self._disk.sync_dir(self.path.rpartition("/")[0])
        self._durable = self.tip

    def take_unchained(self) -> int:
        """How many lines without ``h`` were read since the last call."""
        count, self._unchained = self._unchained, 0
        return count

    def append(self, commit: Commit) -> None:
        """Write a commit behind ``tip`` and sync it. On return it is acknowledged history.

        The caller holds the writer lock and has caught up. On failure StorageError: what is in the
        file is unknown, and this object refuses everything from then on. CorruptError when somebody
        who takes no lock wrote to the file at the same time: then the commit does not stand where
        its chain says, and is not acknowledged.
        """
        if self._file is None:
            self._file = self._disk.open_append(self.path)
        if self.mirror is not None:
            self.mirror.prepare()
        self._file.append(commit.data)
        if self._file.size() != commit.tip.offset:
            raise CorruptError(
                f"{self.path} was written by somebody else while J-{commit.tip.seq} was committed:"
                f" it does not end at byte {commit.tip.offset}.",
                code="journal_foreign_write",
                fix="Find out who writes to it; then `perdure verify` names the line.",
            )
        if self.mirror is None:
            self._file.sync()
        else:
            self.mirror.append_with(self._file, commit)
        self._commit_start = self.tip.offset
        self.tip = self._durable = commit.tip

    def close(self) -> None:
        """Give the descriptor back."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.mirror is not None:
            self.mirror.close()


def corrupt(path: str, damage: Damage) -> CorruptError:
    """The error for damage in committed history: names line and byte."""
    return CorruptError(
        f"{path}: line {damage.line}, byte {damage.byte}: {damage.reason}."
        " This line had been committed, so it is not repaired silently.",
        fix="Put the journal back from a copy; the lines before this one are whole.",
    )


def absent(disk: Disk, layout: Layout) -> CorruptError | NotFoundError:
    """Why a workspace has no journal: there is none to expect, or it should be there.

    NotFoundError where a task may be created; CorruptError when something else is in its place, or
    when a projection says that events had been committed to it.
    """
    stat = disk.stat(layout.journal)
    if stat is not None:
        return CorruptError(
            f"{layout.journal} is a {stat.kind}, not a file.",
            code="not_a_journal",
            fix="Name another directory, or put the journal back from a copy.",
        )
    if disk.stat(layout.snapshot) is not None:
        return CorruptError(
            f"{layout.journal} is gone, but {layout.snapshot} says that events had been committed"
            " to it.",
            code="journal_missing",
            fix="Put the journal back from a copy. To start over instead, use an empty directory.",
        )
    return NotFoundError(
        f"{layout.root} is not a workspace: it has no journal.jsonl.",
        code="no_workspace",
        fix="Create one with `perdure init TASK_ID`, or name another directory with -C.",
    )
