"""The ledger of a batch node: one line for each unit that is settled, after its finding.

Job: open a ledger however the last attempt left it, say how each unit stands in it, and append
lines in groups. Invariants: a line is written only after the finding it speaks of is durable
(JB-8), so a ledger may lack lines and never runs ahead; a group is one write and one sync; what a
crash left at its end is set aside before it is cut, and a ledger that is damaged elsewhere is set
aside whole, because its findings say the same. Never decides whether a unit is done.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from perdure.errors import StorageError
from perdure.ports import AppendFile, Disk
from perdure.runtime.units import UNIT_STATUSES, UnitLine

group_bytes_max: Final = 1 << 20
"""Of one append; and of what is written again when a ledger is opened."""


class LedgerLine(msgspec.Struct, frozen=True):
    """What the ledger says of one unit."""

    unit_id: str
    status: str
    """``ok``, ``skip-evidence`` (its finding was read back), ``skip`` or ``fail``."""
    artifact: str
    """Where its result is, relative to the workspace."""
    ts: str
    spec: str | UnsetType = UNSET
    """What made the finding (``core.batch.recipe_of``), where that is known."""
    reason: str | UnsetType = UNSET


class _Read(NamedTuple):
    """What stands in a ledger."""

    statuses: dict[str, str]
    good_bytes: int
    """Up to the end of the last line before anything that is no ledger line."""
    size_bytes: int
    damaged: bool
    """Whether ledger lines come after something that is none."""


class Ledger:
    """One ledger, open for appending. After a failed write it is dead, like the file in it."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._file: AppendFile = disk.open_append(path)

    def append(self, lines: Iterable[LedgerLine]) -> None:
        """Append lines and make them durable: one write and one sync for each ``group_bytes_max``.

        A crash in the middle leaves some of them, the last one perhaps torn.
        """
        group: list[bytes] = []
        size = 0
        for line in lines:
            data = msgspec.json.encode(line) + b"\n"
            group.append(data)
            size += len(data)
            if size >= group_bytes_max:
                self._write(group)
                group, size = [], 0
        if group:
            self._write(group)

    def _write(self, group: list[bytes]) -> None:
        self._file.append(b"".join(group))
        self._file.sync()

    def close(self) -> None:
        """Give the descriptor back; every line is durable already."""
        self._file.close()


class OpenedLedger(NamedTuple):
    """A ledger as it was found."""

    ledger: Ledger
    statuses: dict[str, str]
    """The last status of each unit."""
    notice: str
    """What was set aside, as a sentence without its stop; empty when nothing was."""


def open_ledger(disk: Disk, path: str, *, aside: Callable[[str], str]) -> OpenedLedger:
    """Open the ledger at an absolute path, which is made when it is not there.

    ``aside`` names a free absolute path for a file of this name to be set aside at. What is in the
    ledger is durable on return, also when an earlier sync of it had failed. A crash in the middle
    is met again by the next call. Raises StorageError.
    """
    read = _read(disk, path)
    notice = ""
    if read is not None and read.damaged:
        target = aside("ledger.jsonl")
        disk.make_dirs(target.rpartition("/")[0])
        disk.rename(path, target)
        notice = f"the ledger was damaged at byte {read.good_bytes} and is set aside as {target}"
        read = None
    elif read is not None and read.good_bytes < read.size_bytes:
        target = aside(f"ledger.jsonl.torn-{read.good_bytes}")
        disk.make_dirs(target.rpartition("/")[0])
        disk.replace(target, disk.read(path, read.good_bytes), durable=True)
        disk.truncate(path, read.good_bytes)
        torn = read.size_bytes - read.good_bytes
        notice = f"the last {torn} bytes of the ledger were torn and are set aside as {target}"
    if read is None:
        disk.replace(path, b"", durable=True)
        return OpenedLedger(Ledger(disk, path), {}, notice)
    _settle(disk, path, read.good_bytes)
    return OpenedLedger(Ledger(disk, path), read.statuses, notice)


def _settle(disk: Disk, path: str, size_bytes: int) -> None:
    """Make what was read durable: lines seen after a kill may be in the page cache only.

    A sync that failed may have marked pages clean; writing the last group again makes the next
    sync an honest one.
    """
    start = max(0, size_bytes - group_bytes_max)
    if size_bytes:
        disk.rewrite(path, start, disk.read(path, start, size_bytes - start))
    disk.sync_file(path)
    disk.sync_dir(path.rpartition("/")[0])


def _read(disk: Disk, path: str) -> _Read | None:
    """What is in the ledger; None when there is none."""
    seen = disk.stat(path)
    if seen is None:
        return None
    if seen.kind != "file":
        raise StorageError(
            f"{path} is a {seen.kind}, not a ledger.", fix="Move it out of the way, then try again."
        )
    statuses: dict[str, str] = {}
    offset = good = 0
    bad = damaged = False
    rest = b""
    for chunk in disk.read_chunks(path):
        *whole, rest = (rest + chunk).split(b"\n")
        for raw in whole:
            offset += len(raw) + 1
            line = _judge(raw)
            if line is None and raw.strip():
                bad = True
            elif bad:
                damaged = damaged or line is not None
            else:
                good = offset
                if line is not None:
                    statuses[str(line.unit_id)] = line.status
    return _Read(statuses, good, offset + len(rest), damaged)


def _judge(raw: bytes) -> UnitLine | None:
    """The ledger line that these bytes are, if they are one."""
    try:
        line = msgspec.json.decode(raw, type=UnitLine)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return line if line.status in UNIT_STATUSES else None
