"""The typed parts of what supervision derives: a step, a job outside, a blocker, what people read.

Job: the nouns inside a ``Derived``. Invariants: those of ``supervision_records``, which holds the
whole; each is a plain value without behaviour.
"""

from typing import Final, Literal

import msgspec

from perdure.core.record import Record

Outcome = Literal["IN_PROGRESS", "SUCCESS", "PARTIAL_SUCCESS", "BLOCKED", "FAILED"]

steps_shown_max: Final = 100
"""Steps that ``user_facing`` names; the counts beside them are whole."""


class Step(Record, msgspec.Struct, frozen=True):
    """One step of the workflow, in the order of the workflow."""

    step: str
    """The node's id."""
    title: str
    state: str
    """The observed state where there is one that still counts, else the node's; DONE only by
    N06; COMPLETED is a completion that was observed and has not been verified."""
    deps: tuple[str, ...] = ()
    ref: str = ""
    """``J-n`` of what made the state so; empty while nothing has happened to it."""
    open: bool = True
    """Whether the node still waits to be closed, whatever was observed."""


class ExternalSeen(Record, msgspec.Struct, frozen=True):
    """A job at a provider, by the last observation of it."""

    key: str
    """``PROVIDER:JOB``."""
    provider: str
    job_id: str
    state: str
    node: str = ""
    evidence: tuple[str, ...] = ()
    """Names of the facts that show the provider's own word; a pending job without is suspicious."""
    changed_at: float = 0.0
    """When its state last changed."""


class BlockInForce(Record, msgspec.Struct, frozen=True):
    """A confirmed blocker that nothing newer has overtaken."""

    key: str
    """``block:NODE:J-n``: what an escalation of it is known by."""
    ref: str
    at: float
    reason: str
    node: str = ""
    """Empty: the whole task."""
    needs: tuple[str, ...] = ()
    safe_next_step: str = ""
    failure_type: str = ""
    retry_first: bool = False
    """The failure type is one of those that are retried before anybody is troubled."""
    retries: int = 0
    """Times the owner resumed after a block of this node and failure type."""


class OpenQuestion(Record, msgspec.Struct, frozen=True):
    """A question to a person that holds an open step."""

    key: str
    """``question:ID:J-n``: what an escalation of it is known by."""
    question: str
    node: str
    text: str
    to: str = "gatekeeper"
    asked_at: float | None = None
    expires_at: float | None = None
    overdue: bool = False
    """Its time is over; that is never consent."""


class Output(Record, msgspec.Struct, frozen=True):
    """A current registered artifact whose bytes are on disk as registered."""

    artifact: str
    path: str
    kind: str = ""
    node: str = ""
    verified: bool = False
    """Its node is DONE (N06)."""


class UserFacing(Record, msgspec.Struct, frozen=True):
    """What a person who waits for the result is told: the outcome first, internals last."""

    outcome: Outcome
    headline: str
    """One sentence about the result, never about the machinery."""
    artifacts: tuple[Output, ...] = ()
    """Usable output only."""
    done: tuple[Step, ...] = ()
    """At most ``steps_shown_max``."""
    done_count: int = 0
    remaining: tuple[Step, ...] = ()
    """Open steps and those given up without a successor, at most ``steps_shown_max``."""
    remaining_count: int = 0
    honesty_notes: tuple[str, ...] = ()
    """Sentences: what is claimed and not verified, contradicted, failed or suspected."""
