"""The typed records of a job: what state.json holds, what an item's outcome is, what was found.

Invariants: a record holds no behaviour and no clock; every field that a file shows has the name it
has there. The completed hashes are in no record: at a million items they are a plain dict, and
nothing else.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeGuard

import msgspec

from perdure.core.record import Record

STATE_VERSION: Final = 1
name_chars_max: Final = 200
attempts_default: Final = 3
"""How often an item is tried before it is only listed (JB-5)."""
error_chars_max: Final = 2_000
"""Of what went wrong with an item; the rest is cut off."""
damaged_max: Final = 20
"""Damaged lines that a state.json names; more are only counted."""


class ErrorEntry(Record, msgspec.Struct, frozen=True):
    """An item that failed and is not done: one entry of the error queue (JB-5)."""

    key: str
    hash: str
    """``item_hash(key)``, always recomputed, whatever a file said."""
    error: str
    attempts: int
    """How often it failed; an attempt that was interrupted does not count."""
    last_at: str
    """When it failed last; empty when a foreign file did not say."""


class Stats(Record, msgspec.Struct, frozen=True):
    """Counts of a job."""

    processed: int = 0
    """Items that are done."""
    failed: int = 0
    """Items in the error queue."""
    resumes: int = 0
    """How often the job was opened again."""


class Damage(NamedTuple):
    """Lines of a log that are no findings and that no crash explains (JB-7)."""

    lines: tuple[tuple[int, int], ...] = ()
    """Number, counted from 1, and first byte of each of the first ``damaged_max``."""
    total: int = 0
    """How many there are."""


class AsOf(Record, msgspec.Struct, frozen=True, omit_defaults=True):
    """How far into the log a state.json goes, and how to prove it (JB-2).

    In the file a last field follows, ``state``, which proves the file itself: see ``state_file``.
    """

    offset: int
    """Byte behind the newline of the last line it knows; 0 when it knows none."""
    line_bytes: int
    """Length of that line, newline included."""
    hash: str
    """First 16 hex digits of the sha256 of that line's bytes; empty at offset 0."""
    recent: int
    """Highest ``n`` of ``.recent.jsonl`` that it includes."""
    damaged: tuple[tuple[int, int], ...] = ()
    """``Damage.lines`` before ``offset``: whoever reads only what follows has to tell them too."""
    damaged_count: int = 0


class StateHead(Record, msgspec.Struct, frozen=True):
    """Everything of a state.json but the completed hashes."""

    job: str
    version: float = STATE_VERSION
    started_at: str = ""
    updated_at: str = ""
    cursor: Any = None
    errors: tuple[ErrorEntry, ...] = ()
    stats: Stats = Stats()
    finished_at: str | None = None
    as_of: AsOf | None = None
    """None in a file of another implementation, or changed by one: the whole log is read."""
    completed_count: int = 0
    """Entries of ``completed`` in the file this was read from; it is not a field of the file."""
    is_changed: bool = False
    """The file has an ``as_of``, and other bytes than those it was written with."""


class Finding(NamedTuple):
    """An item that is done."""

    key: str
    payload: Mapping[str, Any]
    item: str | None = None
    """``lines.item_digest`` of the item when it is more than its key."""


class Failure(NamedTuple):
    """An item that failed this time."""

    key: str
    error: str


class Notice(Record, msgspec.Struct, frozen=True):
    """Something a job met when it was opened and that its user should know (JB-7)."""

    what: str
    """Stable name of the kind: ``torn_tail``, ``bad_line``, ..."""
    line: int | None
    """Line of the log, counted from 1."""
    byte: int | None
    """Where that line starts."""
    message: str
    fix: str


def is_job_name(name: object) -> TypeGuard[str]:
    """Whether this can name a job."""
    return isinstance(name, str) and 0 < len(name) <= name_chars_max and name.isprintable()
