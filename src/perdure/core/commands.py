"""What can be asked of a task: one frozen record per command, and what a decision answers.

Commands are imperatives and carry facts that the runtime has already read from the disk (a hash, a
contract, a verdict); a decision never reads anything itself.
"""

from typing import Any, NamedTuple

import msgspec

from perdure.core import closing_commands as k
from perdure.core import dispatch_commands as d
from perdure.core import observed_commands as o
from perdure.core.dispatching import Death, Usage
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
from perdure.core.people import ANSWERS, Ruling


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
    delegation: dict[str, str] = {}
    parent: dict[str, Any] = {}
    """Of a child instance: the fields of :class:`~perdure.core.dispatching.Parent`."""
    sop: dict[str, Any] = {}
    """Of an instance of a procedure: ``id``, ``version``, ``sha256`` and ``phases``."""


class AddNode(msgspec.Struct, frozen=True):
    """Extend the graph by one node."""

    node_id: str
    title: str
    deps: tuple[str, ...] = ()
    spec: Spec = Spec()
    priority: int = 0
    verification_level: VerificationLevel | None = None
    """None: what the task's tier asks for."""
    resume_policy: ResumePolicy = "reverify_if_amended"
    effect: Effect = "S0"
    successor_of: str | None = None
    plan: str = ""
    """As in the node: of the task file's entry, where it comes from one."""


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
    contents: dict[str, dict[str, str]] = {}
    """Gate id to the files of its content, for the gates of N06, as read in the same call."""


class MoveNode(msgspec.Struct, frozen=True):
    """Take one edge of FSM-N (or N01 and N02 together)."""

    node_id: str
    to: str
    evidence: tuple[str, ...] = ()
    payload: dict[str, Any] = {}
    contract: IssuedContract | None = None
    verdict: Verdict | None = None
    contents: dict[str, dict[str, str]] = {}
    """Gate id to the files of its content (path to sha256) as the runtime has just read them."""
    disk_facts: dict[str, Any] = {}
    """Of a move that ends an attempt for the last time: what was on disk before it (AD-2)."""


class FailNode(msgspec.Struct, frozen=True):
    """The attempt under way has failed; the class decides the edges."""

    node_id: str
    failure_class: str
    signature: str
    detail: str = ""
    interruption: bool = False
    evidence: tuple[str, ...] = ()
    disk_facts: dict[str, Any] = {}
    """What the runtime saw of the work before it was set aside (AD-2)."""
    death: Death | None = None
    """Of work that a coordinator dispatched: how it came to nothing."""
    usage: Usage | None = None
    nothing_ran: bool = False
    """It is certain that nothing of it was started, so that it can have had no effect (C-S3)."""


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
    ok: bool = True
    """Whether the worker calls itself healthy; ``False`` counts as an error of it."""
    facts: dict[str, str] = {}


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
    memory: tuple[dict[str, Any], ...] = ()
    """Entries of the memory store that influenced it: ``id``, ``store``, ``sha256``, ``flags``."""
    edges: tuple[tuple[str, str], ...] = ()
    """Typed edges from this decision: kind and what it leads to (``core.provenance``)."""


class AskQuestion(msgspec.Struct, frozen=True):
    """Put a question to a person; it is journaled before anything waits for it (H2)."""

    text: str
    question_id: str = ""
    """Empty: one is made."""
    node_id: str | None = None
    """The node that waits for the answer; None: nothing waits."""
    options: tuple[str, ...] = ()
    default: str = ""
    to: str = ANSWERS
    context: str = ""
    consequences: str = ""
    links: tuple[str, ...] = ()
    keep_working: bool = False
    """A node at work goes on with it, and only its completion is held."""
    timeout_s: float | None = None


class AskGate(msgspec.Struct, frozen=True):
    """Open the question of a gate for a content, in place of one about another content."""

    node_id: str
    gate_id: str
    files: dict[str, str] = {}
    """Path to sha256 of what is to be approved, as the runtime has just read it."""
    disk: str = ""
    """What is wrong with these files on disk; empty when nothing is."""


class AnswerQuestion(msgspec.Struct, frozen=True):
    """A person rules on a question."""

    question_id: str
    ruling: Ruling
    text: str = ""
    choice: str = ""
    changes: dict[str, Any] = {}
    """Of ``revise``: fields of the spec that change."""
    files: dict[str, str] | None = None
    """The gate's content as the runtime has just read it: path to sha256."""
    method: str = ""
    """Of an escalation that is answered with another method."""
    by_default: bool = False
    """Nobody answered in time: the question's fallback."""


class LogSteering(msgspec.Struct, frozen=True):
    """An instruction, verbatim, before anything acts on it (S1)."""

    steering_id: str
    text: str
    source: str = ""
    received_via: str = ""
    provenance: str = "original"
    """``re-stated`` when it is said again after a session was lost (ST-2)."""
    reading: str = ""
    """How the sender wants it read; empty: in doubt, so the stronger."""
    targets: tuple[str, ...] = ()
    changes: dict[str, Any] = {}
    revokes: tuple[str, ...] = ()


class PropagateSteering(msgspec.Struct, frozen=True):
    """Classify, propagate and acknowledge a logged instruction (S2 to S4), in one commit."""

    steering_id: str
    text: str
    """Its verbatim text, read from the journal."""


class AmendGoal(msgspec.Struct, frozen=True):
    """The sponsor changes what is wanted (GE-1)."""

    text: str
    reason: str
    reverify: tuple[str, ...] = ()
    """DONE nodes that were verified again for this."""
    failed: dict[str, str] = {}
    """Those of them that did not pass, and why."""
    superseded: tuple[str, ...] = ()
    acceptance: tuple[str, ...] | None = None


class SplitNode(msgspec.Struct, frozen=True):
    """Replan a node into several that take its place (N12, N13, N14)."""

    node_id: str
    parts: tuple[AddNode, ...]
    """Their deps come on top of those of the node that is split."""
    reason: str


class QuarantineNode(msgspec.Struct, frozen=True):
    """Give a node up as specified, by the edges that lead to QUARANTINED."""

    node_id: str
    reason: str
    replacement: str = ""


class ChangePolicy(msgspec.Struct, frozen=True):
    """Override a reference policy, with reason and measurement window."""

    name: str
    value: float
    reason: str
    window: str = ""


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
    | RegisterArtifact | AttachArtifact | Beat | WriteNote | RecordDecision | AskQuestion | AskGate
    | AnswerQuestion | LogSteering | PropagateSteering | AmendGoal | SplitNode | QuarantineNode
    | ChangePolicy | o.Observe | o.ConfirmBlock | o.RecordReply | MoveTask | AppendRaw
    | d.OpenSlot | d.CloseSlot | d.Suspect | d.RecordLate | d.ChangeMode | d.RecordAudit
    | d.RecordPlan | d.MovePhase
    | k.RecordTaskAudit | k.CorrectTaskAudit | k.OpenRepairs | k.ArchiveTask | k.AcceptContent
    | k.CloseTask | k.NoteDoc | k.NoteStale | k.RecordWalk
)  # fmt: skip
