"""Commands about the end of a task, its audit, and the documents it keeps.

As in ``core.commands``: imperatives that carry facts the runtime has read already.
"""

from typing import Any

import msgspec


class RecordTaskAudit(msgspec.Struct, frozen=True):
    """Put the record of an audit of the whole task into the journal."""

    record: dict[str, Any]


class CorrectTaskAudit(msgspec.Struct, frozen=True):
    """A record that is on record was false: say so, and keep it (A-4)."""

    target: str
    """``J-n`` of the event that holds the false record."""
    record: dict[str, Any]
    """What the same audit finds today, over the same prefix."""
    wrong: tuple[dict[str, Any], ...]
    """The items that never held: ``item``, ``said``, ``is``, ``why``."""
    reason: str


class Defect(msgspec.Struct, frozen=True):
    """An item of the final audit that failed: what a repair node is to put right."""

    item: str
    finding: str
    fix: str = ""


class OpenRepairs(msgspec.Struct, frozen=True):
    """The final audit found defects: a node for each, and the task goes on (T09)."""

    record: dict[str, Any]
    defects: tuple[Defect, ...]


class ArchiveTask(msgspec.Struct, frozen=True):
    """The final audit has passed: the process is complete (T10)."""

    record: dict[str, Any]
    proposals: tuple[dict[str, Any], ...]
    """For the memory store: ``kind``, ``scope``, ``statement``, ``evidence`` (MB-2)."""
    handoff: str


class AcceptContent(msgspec.Struct, frozen=True):
    """The sponsor takes what the archived task has made as what was wanted."""

    text: str = ""


class CloseTask(msgspec.Struct, frozen=True):
    """Nothing of the task changes any more; its files are made read-only after this commit."""

    text: str = ""


class NoteDoc(msgspec.Struct, frozen=True):
    """A document worth keeping, or an external file that work rests on, as it was just seen."""

    path: str
    purpose: str
    external: bool = False
    size_bytes: int = -1
    mtime_ns: int | None = None
    sha256: str = ""


class NoteStale(msgspec.Struct, frozen=True):
    """Documents that are not what was noted: path to what was seen."""

    paths: dict[str, str]


class RecordWalk(msgspec.Struct, frozen=True):
    """All registered files were looked at (tier 2): what did not hold, and why it was done now."""

    checked: int
    failed: dict[str, str]
    because: str
