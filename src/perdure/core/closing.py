"""Records about the end of a task, and about what it keeps besides its work.

Invariants: a record holds no behaviour; each is what an event of the journal says, and is written
by ``core.fold_closing`` alone.
"""

from typing import Final, Literal, get_args

import msgspec

from perdure.core.record import Record
from perdure.errors import RefusedError

SubState = Literal["", "PROCESS_COMPLETE", "CONTENT_ACCEPTED", "TASK_CLOSED"]
"""How far an archived task has come; empty while it is not archived."""

EdgeKind = Literal["DEPENDS_ON", "SUPERSEDES", "INVALIDATES", "SUPPORTS", "DERIVED_FROM"]
"""What one thing can be to another (``core.provenance``)."""
EDGE_KINDS: Final[tuple[EdgeKind, ...]] = get_args(EdgeKind)

sessions_kept_max: Final = 20


class Doc(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A working document worth keeping, or a file outside the workspace that work rests on."""

    path: str
    """Relative to the workspace; absolute only where it is external and cannot be."""
    purpose: str
    ref: str
    at: str
    external: bool = False
    size_bytes: int = -1
    mtime_ns: int | None = None
    sha256: str = ""
    stale: str = ""
    """``J-n`` of the event that found it changed or gone; it is to be read again before use."""
    why: str = ""
    """What that event saw."""


class Walk(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The newest walk over all registered files that the journal tells of."""

    ref: str
    seq: int
    at: str
    checked: int = 0
    failed: tuple[str, ...] = ()


class Session(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One coordinator's turn at the task, as its takeover tells."""

    ref: str
    actor: str
    at: str
    epoch: int
    why: str = ""


class Closing(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How the end of the task stands."""

    sub_state: SubState = ""
    audit: str = ""
    """``J-n`` of the newest task audit on record."""
    audit_passed: bool = False
    corrected: str = ""
    """``J-n`` of the amendment that corrects that record, if one does."""
    proposals: str = ""
    """``J-n`` of what was proposed for the memory store (MB-2)."""
    handoff: str = ""
    accepted: str = ""
    """``J-n`` by which the sponsor accepted the content."""
    closed: str = ""


def closed_refusal(task_id: str, closed: str) -> RefusedError:
    """What whoever would write to a closed task is told; ``closed`` is its last event."""
    return RefusedError(
        f"task {task_id} is closed ({closed}): nothing is written to it.",
        code="task_closed",
        rule="FST-3",
        fix="Start a new task for further work; `perdure export` copies this one.",
    )
