"""What a power cut may leave of a simulated disk.

Job: enumerate or sample the disks that are allowed when the power is lost at this moment.
Invariants: whatever a successful sync covered is in every one of them; the same disk and the same
chance give the same disks in the same order; the disk that is asked is not changed. It never says
which of them is right: that is the test's.

Two models, because file systems keep different promises:

- ``independent``: the worst that POSIX allows. Each change to a name that waits for the sync of
  its folder may be there or not, whatever became of the others; a rename is there whole or not
  at all until one of its two folders is synced. Each unsynced write may be kept, lost, cut at any
  byte, there in size only (zeros or noise), or torn so that only its end arrived; later ones may
  be kept while earlier ones are lost.
- ``ordered``: as ext4 and XFS do it. Changes to names survive in the order they were made, and
  any sync commits all before it. The bytes of unsynced files are lost, short or zeros all the
  same, though the name is there.

Bytes that were on the medium already are overwritten or not; they never turn into zeros.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from random import Random  # noqa: TID251 - the caller's, so that every run can be repeated
from typing import Final, Literal, NamedTuple, TypeVar, overload

from perdure.testing.filesystem import (
    Change,
    File,
    FileSystem,
    NameStep,
    Write,
    with_changes,
    with_write,
)
from perdure.testing.simdisk import SimDisk

T = TypeVar("T")
Model = Literal["independent", "ordered"]

tries_per_state: Final = 4
"""How often chance may come up with a disk that was seen already, for each one asked for."""

_NOISE: Final = bytes((n * 167 + 13) % 251 for n in range(251))


class Fate(NamedTuple):
    """What becomes of one unsynced write."""

    kind: Literal["kept", "lost", "short", "zeros", "noise", "end"]
    """``short``: only its first ``at`` bytes. ``end``: only what follows them."""
    at: int = 0


KEPT: Final = Fate("kept")
LOST: Final = Fate("lost")
ZEROS: Final = Fate("zeros")
NOISE: Final = Fate("noise")


class _Fates(Sequence[Fate]):
    """What may become of one write: the fates of the whole, then each way to cut each byte."""

    __slots__ = ("_cuts", "_ways", "whole")

    def __init__(
        self, whole: tuple[Fate, ...], ways: tuple[Literal["short", "end"], ...], size_bytes: int
    ) -> None:
        self.whole = whole
        self._ways = ways
        self._cuts = max(0, size_bytes - 1)

    def __len__(self) -> int:
        return len(self.whole) + len(self._ways) * self._cuts

    @overload
    def __getitem__(self, index: int) -> Fate: ...
    @overload
    def __getitem__(self, index: slice) -> list[Fate]: ...
    def __getitem__(self, index: int | slice) -> Fate | list[Fate]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if index < len(self.whole):
            return self.whole[index]
        way, at = divmod(index - len(self.whole), max(1, self._cuts))
        return Fate(self._ways[way], at + 1)


class _Pending(NamedTuple):
    inode: int
    write: Write


class _Choice(NamedTuple):
    """One allowed way it can go."""

    names: tuple[int, ...]
    """Of each change to names: 1 when it survives. In the ordered model a single number: how
    many of them do."""
    fates: tuple[Fate, ...]


def states(
    disk: SimDisk, model: Model = "independent", *, chance: Random, limit: int = 256
) -> Iterator[SimDisk]:
    """The disks that a power cut now may leave, no two of them alike, at most ``limit``.

    All of them when there are no more choices than ``limit``. Else the extremes first (nothing
    unsynced is there, all of it, only names, only bytes, names with zeros for bytes), then each
    single change alone lost and alone kept, then what ``chance`` makes of it. Each disk is that of
    a new process; its ``story`` says what was lost.
    """
    plan = _Plan(disk.files, model)
    seen: set[frozenset[tuple[str, bytes | str | None]]] = set()
    for tries, choice in enumerate(plan.choices(chance, limit)):
        if len(seen) >= limit or tries >= limit * tries_per_state:
            return
        files = plan.outcome(choice)
        key = frozenset(files.tree().items())
        if key not in seen:
            seen.add(key)
            left = disk.holding(files)
            left.story = plan.story(choice)
            yield left


def choices_count(disk: SimDisk, model: Model = "independent") -> int:
    """In how many ways a power cut now can go; several may leave the same disk."""
    return _Plan(disk.files, model).count


class _Plan:
    """Everything that waits on one disk, and the fates that each may meet."""

    def __init__(self, files: FileSystem, model: Model) -> None:
        self.files = files
        self.model = model
        self.steps: tuple[NameStep, ...] = files.loose if model == "independent" else files.ordered
        self.base = files.loose_names if model == "independent" else files.ordered_names
        self.pending = [
            _Pending(inode, write)
            for inode in self._findable()
            for write in files.waiting.get(inode, ())
        ]
        self.name_options: list[int] = [2] * len(self.steps)
        self.cuts: tuple[Literal["short", "end"], ...] = ("short", "end")
        if model == "ordered":
            self.name_options, self.cuts = [len(self.steps) + 1], ("short",)
        self.fates: list[Sequence[Fate]] = [self._fates(*one) for one in self.pending]

    def _findable(self) -> list[int]:
        """Files that have a name in some outcome; the bytes of others do not matter."""
        found = {inode for entries in self.base.values() for inode in entries.values()}
        found |= {c.inode for step in self.steps for c in step.changes if c.inode is not None}
        return sorted(found)

    def _fates(self, inode: int, write: Write) -> Sequence[Fate]:
        if write.data is None:
            return [KEPT, LOST]
        stored = self.files.stored_file(inode).data
        if self._changes_nothing(inode, write, stored):
            return [KEPT]
        whole = [KEPT, LOST]
        if write.offset + len(write.data) > len(stored):
            whole += [ZEROS, NOISE] if self.model == "independent" else [ZEROS]
        return _Fates(tuple(whole), self.cuts, len(write.data))

    def _changes_nothing(self, inode: int, write: Write, stored: bytes) -> bool:
        """Whether it puts the bytes there that the medium has there, and nobody else does."""
        end = write.offset + len(write.data or b"")
        alone = all(
            other is write
            or (
                other.data is not None
                and (other.offset >= end or other.offset + len(other.data) <= write.offset)
            )
            for other in self.files.waiting[inode]
        )
        return alone and stored[write.offset : end] == write.data

    @property
    def count(self) -> int:
        return prod(self.name_options) * prod(map(len, self.fates))

    def choices(self, chance: Random, limit: int) -> Iterator[_Choice]:
        if self.count <= limit:
            every_name = product(*map(range, self.name_options))
            for names in list(every_name):
                for fates in product(*self.fates):
                    yield _Choice(names, fates)
            return
        yield from self._extremes()
        yield from self._single_ones(chance)
        while True:
            yield self._any(chance)

    def _extremes(self) -> Iterator[_Choice]:
        nothing, everything = self._no_names(), self._all_names()
        for names, fate in (
            (nothing, LOST),
            (everything, KEPT),
            (everything, LOST),
            (nothing, KEPT),
            (everything, ZEROS),
        ):
            yield _Choice(names, self._all_meet(fate))

    def _single_ones(self, chance: Random) -> Iterator[_Choice]:
        all_kept, all_lost = self._all_meet(KEPT), self._all_meet(LOST)
        if self.model == "ordered":
            for count in chance.sample(range(len(self.steps) + 1), len(self.steps) + 1):
                yield _Choice((count,), all_kept)
        else:
            nothing, everything = self._no_names(), self._all_names()
            for at in chance.sample(range(len(self.steps)), len(self.steps)):
                yield _Choice(_with(everything, at, 0), all_kept)
                yield _Choice(_with(nothing, at, 1), all_kept)
        for at in chance.sample(range(len(self.fates)), len(self.fates)):
            yield _Choice(self._all_names(), _with(all_kept, at, chance.choice(self.fates[at])))
            yield _Choice(self._all_names(), _with(all_lost, at, chance.choice(self.fates[at])))

    def _any(self, chance: Random) -> _Choice:
        # Whole fates are as likely as the many ways to be cut, and so are the extremes of names.
        share = chance.choice((0.1, 0.5, 0.9))
        names = tuple(
            chance.randrange(options) if self.model == "ordered" else int(chance.random() < share)
            for options in self.name_options
        )
        fates = [
            chance.choice(_whole(options) if chance.random() < 0.5 else options)
            for options in self.fates
        ]
        return _Choice(names, tuple(fates))

    def _no_names(self) -> tuple[int, ...]:
        return (0,) * len(self.name_options)

    def _all_names(self) -> tuple[int, ...]:
        return tuple(options - 1 for options in self.name_options)

    def _all_meet(self, fate: Fate) -> tuple[Fate, ...]:
        return tuple(fate if fate in _whole(options) else KEPT for options in self.fates)

    # What comes of a choice

    def _kept_steps(self, choice: _Choice) -> list[NameStep]:
        if self.model == "ordered":
            return list(self.steps[: choice.names[0]])
        return [step for step, kept in zip(self.steps, choice.names, strict=True) if kept]

    def outcome(self, choice: _Choice) -> FileSystem:
        names = self.base
        kept = self._kept_steps(choice)
        if kept:
            names = dict(names)
            for step in kept:
                with_changes(names, step.changes)
        contents: dict[int, File] = {}
        for (inode, write), fate in zip(self.pending, choice.fates, strict=True):
            if fate.kind != "lost":
                file = contents.get(inode) or self.files.stored_file(inode)
                contents[inode] = File(befallen(file.data, write, fate), write.mtime_ns)
        return self.files.after_power_loss(names, contents)

    def story(self, choice: _Choice) -> Callable[[], str]:
        def tell() -> str:
            kept = self._kept_steps(choice)
            lost = [step.what for step in self.steps if step not in kept]
            parts = [f"{self.model}: names lost: {', '.join(lost) or 'none'}"]
            for (inode, write), fate in zip(self.pending, choice.fates, strict=True):
                if fate != KEPT:
                    size = "truncation" if write.data is None else f"{len(write.data)} bytes"
                    at = f" {fate.at}" if fate.at else ""
                    parts.append(
                        f"{self._name_of(inode)}: {size} at {write.offset}: {fate.kind}{at}"
                    )
            return "; ".join(parts)

        return tell

    def _name_of(self, inode: int) -> str:
        changes: list[Change] = [change for step in self.steps for change in step.changes]
        names = [change.name for change in changes if change.inode == inode]
        for entries in self.base.values():
            names += [name for name, found in entries.items() if found == inode]
        return " or ".join(dict.fromkeys(names))


def befallen(data: bytes, write: Write, fate: Fate) -> bytes:
    """The bytes of a file on the medium after a write to it met its fate."""
    new = write.data
    if fate.kind == "kept" or new is None:
        return with_write(data, write)
    if fate.kind == "short":
        return with_write(data, write._replace(data=new[: fate.at]))
    end = write.offset + len(new)
    grown = data.ljust(end, b"\0")
    if fate.kind == "noise":
        # Only what is new can be what the medium held there before.
        start = max(len(data), write.offset)
        noise = (_NOISE * ((end - start) // len(_NOISE) + 1))[: max(0, end - start)]
        return grown[:start] + noise + grown[max(start, end) :]
    if fate.kind == "end":
        tail = write._replace(offset=write.offset + fate.at, data=new[fate.at :])
        return with_write(grown, tail)
    return grown


def _whole(options: Sequence[Fate]) -> Sequence[Fate]:
    return options.whole if isinstance(options, _Fates) else options


def _with(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])
