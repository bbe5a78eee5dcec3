"""The records of dispatched work: slots, deaths, health, usage, audits, and where a child hangs.

Invariants: as in ``core.model``: no behaviour, no clock, names as the files have them. What is over
leaves the state and stays in the journal, so that a state holds live slots only.
"""

from typing import Any, Final, Literal, get_args

import msgspec

from perdure.core.record import Record

DeathMode = Literal["killed", "timed_out", "silent", "failed"]
SlotEnd = Literal["landed", "killed", "timed_out", "silent", "failed", "recalled", "abandoned"]
DispatchMode = Literal["A", "B", "C"]
Integrity = Literal["clean", "suspect", "violation"]
Cause = Literal[
    "", "quota", "rate_limit", "network", "credentials", "disk", "missing_program", "scope"
]

DEATH_MODES: Final[tuple[str, ...]] = get_args(DeathMode)
SLOT_ENDS: Final[tuple[str, ...]] = get_args(SlotEnd)
DISPATCH_MODES: Final[tuple[str, ...]] = get_args(DispatchMode)
MODE_WORDS: Final[dict[str, str]] = {"A": "normal", "B": "untouched work first", "C": "halted"}
"""What each mode is called where people read it."""
CAUSES: Final[tuple[str, ...]] = get_args(Cause)
INTEGRITIES: Final[tuple[str, ...]] = get_args(Integrity)
INDEPENDENCE: Final = ("I1", "I2", "I3", "I4", "I5")
"""Context, process, model, evidence of its own, authority (VR-0)."""


class Death(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a worker that was dispatched came to nothing, as its coordinator saw it."""

    mode: DeathMode
    """``silent`` reported success and wrote nothing (PD-J1); ``failed`` said itself that it did."""
    first: bool = False
    """It died before any output."""
    cause: Cause = ""
    """A wall of the environment, by its signature (PD-H2)."""
    observation: str = ""


class Usage(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What work has used; None where nobody says."""

    wall_s: float | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    model: str = ""


class Slot(Record, msgspec.Struct, omit_defaults=True, gc=False):
    """One worker of a batch node, from before it is sent until the disk was looked at."""

    invocation_id: str
    node: str
    executor: str
    epoch: int
    opened_at: float
    units: int = 0
    contract_sha256: str = ""
    suspected: str = ""
    """``J-n`` of the event that suspects it dead (RT-3); it may still come back."""


class Health(Record, msgspec.Struct, omit_defaults=True, gc=False):
    """How dispatched work fares lately, and what is dispatched because of that (HALT-07 section 4).

    ``window`` holds the newest resolutions, the newest last: whether it died before any output.
    """

    mode: DispatchMode = "A"
    window: tuple[bool, ...] = ()
    environment_failures: int = 0
    """In a row."""
    probing: bool = False
    """In C: a probe has passed, and a small batch is on its way."""
    by_hand: bool = False
    """A person has chosen B or C: it holds until a person changes it."""
    since: str = ""
    """``J-n`` of the event that changed the mode."""
    deaths: dict[str, int] = {}
    """Death mode to how many there were, over the whole task."""


class Audit(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The newest independent verdict (V2) on a node, bound to the content that it was given on."""

    ref: str
    verifier: str
    passed: bool
    integrity: Integrity
    independence: tuple[str, ...] = ()
    files: dict[str, str] = {}
    """Path to sha256, as they were before and after the audit."""
    rubric: str = ""
    """Digest of the rubric."""
    items: tuple[dict[str, Any], ...] = ()
    """One for each point of the rubric: ``point``, ``passed``, ``detail``, ``evidence``."""
    contract: str = ""
    diagnosis: str = ""
    attempt: int = 0
    """At the node, when it was given."""
    round: int = 1
    """In a row of verdicts on that attempt that decide nothing."""


class Parent(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where a child instance hangs."""

    task_id: str
    node_id: str
    invocation: str
    depth: int = 2
    """The root of all has 1."""
    sops: tuple[str, ...] = ()
    """Ids of the procedures above it, the outermost first: none of them may come again (AP-N4)."""
