"""Commands about dispatched work: slots, health, audits and the phases of an instance.

As in ``core.commands``: imperatives that carry facts the runtime has read already.
"""

from typing import Any

import msgspec

from perdure.core.dispatching import Cause, DispatchMode, Integrity, SlotEnd, Usage


class OpenSlot(msgspec.Struct, frozen=True):
    """Record a worker of a batch node before it is sent; its contract file is durable."""

    node_id: str
    invocation_id: str
    contract_sha256: str
    executor: str
    units: int
    units_sha256: str = ""
    """Digest of the unit keys of its contract."""


class CloseSlot(msgspec.Struct, frozen=True):
    """A slot is over: what the disk holds of it was looked at, and this is what was found."""

    invocation_id: str
    end: SlotEnd
    landed: int = 0
    """Units that are complete: flag present and output valid."""
    left: int = 0
    """Units of its contract that go back to be dispatched again."""
    first: bool = False
    """It died before any output."""
    cause: Cause = ""
    observation: str = ""
    usage: Usage | None = None


class Suspect(msgspec.Struct, frozen=True):
    """A worker has been silent for longer than a policy allows: a suspicion, never a verdict."""

    invocation_id: str
    """Of a slot, or of the contract of a node at work."""
    silent_s: float
    threshold_s: float
    policy: str
    """Which policy says so, with its parameters."""
    last_sign: str = ""


class RecordLate(msgspec.Struct, frozen=True):
    """Output came in after its slot was closed: judged like any other, or set aside."""

    node_id: str
    invocation_id: str
    landed: int = 0
    set_aside: str = ""
    """Where it lies, for output under an older epoch; empty for output that was judged."""
    why: str = ""


class ChangeMode(msgspec.Struct, frozen=True):
    """Dispatch goes on otherwise, by what a probe found or what a person decides."""

    mode: DispatchMode
    reason: str
    probing: bool = False


class RecordAudit(msgspec.Struct, frozen=True):
    """What an auditor found (V2), as the runtime read and checked it."""

    node_id: str
    verifier: str
    passed: bool
    integrity: Integrity
    independence: tuple[str, ...]
    files: dict[str, str]
    rubric: str
    items: tuple[dict[str, Any], ...]
    contract: str = ""
    diagnosis: str = ""
    usage: Usage | None = None


class RecordPlan(msgspec.Struct, frozen=True):
    """What an instance is going to do: its units, counted, with digest and sample."""

    units: dict[str, Any]
    summary: str = ""


class MovePhase(msgspec.Struct, frozen=True):
    """The instance goes over to another phase of its procedure."""

    to: str
    facts: dict[str, Any] = {}
