"""What can be asked of a task: one frozen record per command, and what a decision answers.

Commands are imperatives and carry facts that the runtime has already read from the disk (a hash, a
contract, a verdict); a decision never reads anything itself.
"""

from typing import Any, NamedTuple

import msgspec

from perdure.core.events import Draft
from perdure.core.model import (
    Effect,
    Executor,
    Integrity,
    Policies,
    ResumePolicy,
    Spec,
    VerificationLevel,
)


class Context(msgspec.Struct, frozen=True):
    """Who asks, and when."""

    now: float
    actor: str


class FileMove(NamedTuple):
    """A file to be moved after the commit that says so; both paths are workspace-relative."""

    source: str
    target: str


class Decision(msgspec.Struct, frozen=True):
    """What a command comes to: events to commit, then file moves; or the event that answers it."""

    drafts: tuple[Draft, ...] = ()
    moves: tuple[FileMove, ...] = ()
    answer: str = ""


class StartTask(msgspec.Struct, frozen=True):
    """Create the task: line 1 of its journal."""

    task_id: str
    goal: str = ""
    acceptance: tuple[str, ...] = ()
    tier: int = 1
    policies: Policies = Policies()
    people: dict[str, Any] = {}
    standing_authorities: tuple[str, ...] = ()
    source: dict[str, Any] = {}


class AddNode(msgspec.Struct, frozen=True):
    """Extend the graph by one node."""

    node_id: str
    title: str
    deps: tuple[str, ...] = ()
    spec: Spec = Spec()
    priority: int = 0
    verification_level: VerificationLevel = "V1"
    resume_policy: ResumePolicy = "reverify_if_amended"
    effect: Effect = "S0"
    successor_of: str | None = None


class AmendNode(msgspec.Struct, frozen=True):
    """Change the spec of a node that is not at work and not done (TG-1)."""

    node_id: str
    after: dict[str, Any]
    reason: str


class IssuedContract(msgspec.Struct, frozen=True):
    """A contract file that is durable, to be cited by the N02 or N11 that puts it in force."""

    invocation_id: str
    sha256: str
    executor: Executor
    expires_at: float | None
    budget: dict[str, Any]
    out_of_order: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """What the runtime's own verification found, from bytes it read in that call."""

    passed: bool
    verifier: str
    level: VerificationLevel
    checks: tuple[dict[str, Any], ...]
    artifacts: dict[str, str]
    """Artifact id to the sha256 that was just read."""
    diagnosis: str = ""


class MoveNode(msgspec.Struct, frozen=True):
    """Take one edge of FSM-N (or N01 and N02 together)."""

    node_id: str
    to: str
    evidence: tuple[str, ...] = ()
    payload: dict[str, Any] = {}
    contract: IssuedContract | None = None
    verdict: Verdict | None = None


class FailNode(msgspec.Struct, frozen=True):
    """The attempt under way has failed; the class decides the edges."""

    node_id: str
    failure_class: str
    signature: str
    detail: str = ""
    interruption: bool = False
    evidence: tuple[str, ...] = ()


class RetryNode(msgspec.Struct, frozen=True):
    """Somebody with authority lets a node go on: another method, an answer, a met condition."""

    node_id: str
    reason: str
    method: str = ""


class RecordReceipt(msgspec.Struct, frozen=True):
    """Prove that a node's external effect has happened."""

    node_id: str
    proof: str
    receipt_id: str = ""


class CancelNodes(msgspec.Struct, frozen=True):
    """Give nodes up by authority (N10, N15)."""

    node_ids: tuple[str, ...]
    reason: str


class RegisterArtifact(msgspec.Struct, frozen=True):
    """Register a file whose bytes and name are durable and were read back (AR-1)."""

    artifact_id: str
    """Empty: an id is made from the node's."""
    path: str
    kind: str
    integrity: Integrity
    node_id: str | None = None
    invocation: str | None = None
    supersedes: str | None = None
    repo: str | None = None


class AttachArtifact(msgspec.Struct, frozen=True):
    """Count a registered artifact among a node's."""

    node_id: str
    artifact_id: str


class Beat(msgspec.Struct, frozen=True):
    """The worker on these nodes is alive; renews their contracts."""

    node_ids: tuple[str, ...]
    note: str = ""


class WriteNote(msgspec.Struct, frozen=True):
    """A NOTE; ``op`` is one of the closed list."""

    text: str
    op: str = "note"
    extra: dict[str, Any] = {}


class RecordDecision(msgspec.Struct, frozen=True):
    """A DECISION record."""

    decision_id: str
    text: str
    options: tuple[str, ...] = ()
    choice: str = ""
    authority: str = ""


class LogSteering(msgspec.Struct, frozen=True):
    """An instruction, verbatim, before anything acts on it (S1)."""

    steering_id: str
    text: str
    source: str = ""
    received_via: str = ""


class MoveTask(msgspec.Struct, frozen=True):
    """Take FSM-T to a state, through every row that lies between."""

    to: str
    reason: str = ""


class AppendRaw(msgspec.Struct, frozen=True):
    """An event of a kind that has no command of its own: an observation."""

    kind: str
    entity_type: str
    entity_id: str
    payload: dict[str, Any]
    evidence: tuple[str, ...] = ()


Command = (
    StartTask | AddNode | AmendNode | MoveNode | FailNode | RetryNode | RecordReceipt | CancelNodes
    | RegisterArtifact | AttachArtifact | Beat | WriteNote | RecordDecision | LogSteering
    | MoveTask | AppendRaw
)  # fmt: skip
