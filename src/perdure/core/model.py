"""The typed records of a task, and the limits on them.

Invariants: a record holds no behaviour and no clock; every field that a file shows has the name it
has there (formats.md of HALT-04 plus ours); a :class:`State` is a function of a journal prefix and
of nothing else. Records are trees and never part of a cycle, so those that a state holds many of
are kept from the garbage collector (``gc=False``): opening a large task would wait for it.
"""

import re
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, Literal, get_args

import msgspec

from perdure.core.actions import AgentCall, HumanSlot, PythonCall, SopCall
from perdure.core.closing import Closing, Doc, Session, Walk
from perdure.core.dispatching import Audit, Health, Parent, Slot, Usage
from perdure.core.observed import Observed
from perdure.core.people import Approval, Contact, Directive, Failure, Gate, Question, Steering
from perdure.core.record import Record

NodeState = Literal[
    "PENDING", "READY", "RUNNING", "VERIFYING", "BLOCKED", "DONE", "RETRYABLE", "QUARANTINED",
    "CANCELLED",
]  # fmt: skip
TaskState = Literal[
    "INIT", "DECOMPOSING", "EXECUTING", "RECOVERING", "SUSPENDED", "FINAL_AUDIT", "ARCHIVED"
]
FailureClass = Literal[
    "transient-environment", "transient-agent", "permanent-spec", "permanent-resource"
]
VerificationLevel = Literal["V0", "V1", "V2", "V3"]
ResumePolicy = Literal["skip_if_checksum", "reverify_if_amended", "never_skip"]
Effect = Literal["S0", "S1", "S2", "S3"]
ItemsFormat = Literal["lines", "jsonl", "csv"]
CheckMethod = Literal[
    "exists", "nonempty", "sha256", "json-schema", "matches", "count", "script", "units", "audit",
    "human",
]  # fmt: skip

NODE_STATES: Final[tuple[str, ...]] = get_args(NodeState)
TASK_STATES: Final[tuple[str, ...]] = get_args(TaskState)
FAILURE_CLASSES: Final[tuple[str, ...]] = get_args(FailureClass)
VERIFICATION_LEVELS: Final[tuple[str, ...]] = get_args(VerificationLevel)
RESUME_POLICIES: Final[tuple[str, ...]] = get_args(ResumePolicy)
EFFECTS: Final[tuple[str, ...]] = get_args(Effect)
ITEMS_FORMATS: Final[tuple[str, ...]] = get_args(ItemsFormat)
CHECK_METHODS: Final[tuple[str, ...]] = get_args(CheckMethod)
CLOSED_STATES: Final = frozenset({"DONE", "QUARANTINED", "CANCELLED"})
DEAD_STATES: Final = frozenset({"QUARANTINED", "CANCELLED"})
"""Closed without being DONE: such a node may have successors (N14)."""
AT_WORK_STATES: Final = frozenset({"RUNNING", "VERIFYING"})
"""An attempt is under way: what lies in the node's scope is its own."""
AMENDABLE_STATES: Final = frozenset({"PENDING", "READY", "RETRYABLE", "BLOCKED"})
"""Neither at work nor closed: the spec may change (TG-1)."""
DIRECTED: Final = "directed"
"""In the ``after`` of an amendment: one instruction more that the node follows."""
AMENDABLE_FIELDS: Final = ("title", "priority", "verification_level", "resume_policy", "effect")
"""Fields of a node that an amendment may set besides its spec, its deps and its directives."""
MECHANICAL_LEVELS: Final = frozenset({"V0", "V1"})
"""What the runtime's own checks can give; more takes an auditor or a person."""

FORMAT_VERSION: Final = 1

ID_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
RESERVED_ARTIFACT_IDS: Final = frozenset({"as_of", "sum"})
RESERVED_NODE_IDS: Final = frozenset({"old", "registry.json"})

# Limits. Each is refused by name when passed, with the limit in the message.
event_bytes_max: Final = 16 << 20
text_bytes_max: Final = 8 << 20
title_chars_max: Final = 500
contract_bytes_max: Final = 256 << 10
events_per_commit_max: Final = 50_000
ops_kept_max: Final = 10_000
frontier_snapshot_max: Final = 40
nodes_max: Final = 1_000_000


class Criterion(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One acceptance check: a method of protocol section 5 and its parameters."""

    check: CheckMethod
    params: dict[str, Any] = {}
    level: VerificationLevel = "V1"


class Budget(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one attempt may use; None means no limit."""

    max_wall_s: float | None = None
    max_tool_calls: int | None = None
    max_cost_usd: float | None = None
    max_tokens: int | None = None


class MapSpec(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a batch node does: one command for each of many items, its units.

    The items come from exactly one of ``items``, ``glob`` and ``list``.
    """

    run: str | tuple[str, ...] = ()
    """An argument vector with placeholders, or a shell line that finds its item in variables."""
    items: str | None = None
    """A file: in the workspace below ``artifacts/`` and ``tmp/``, else beside the task file."""
    glob: str | None = None
    """Files, each of which is an item; where they lie as for ``items``."""
    list: tuple[str, ...] | None = None
    format: ItemsFormat | None = None
    """Of ``items``; None: by the ending of its name."""
    key: str | None = None
    """The field of a JSON or CSV item that names it."""
    workers: int | None = None
    """Units of this node at once; None: as many as the run has slots."""
    max_attempts: int = 3
    """Failures of one unit in one attempt at the node."""
    timeout_s: float | None = None
    """Of one attempt at one unit, or at one shard; None: no limit."""
    shard: int | None = None
    """Units that one worker gets with one contract; None: a command for each unit."""
    agent: AgentCall | None = None
    """Works on shards in the place of ``run``."""
    smoke: bool = False
    """One unit goes first and alone; the others follow when it is done."""
    schema: dict[str, Any] | None = None
    """JSON Schema of a finding; what does not meet it is not complete."""


class Spec(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What "done" means for a node; changed only by an AMENDMENT (TG-1)."""

    goal: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] | None = None
    """Workspace-relative paths; None: at least one artifact of any name; () : none at all."""
    acceptance_criteria: tuple[Criterion, ...] = ()
    constraints: tuple[str, ...] = ()
    budget: Budget = Budget()
    run: str | tuple[str, ...] | None = None
    """The command of an automatic node: a shell line, or an argument vector."""
    map: MapSpec | None = None
    """What makes it a batch node; of ``run`` and these five a node has one at most."""
    python: PythonCall | None = None
    agent: AgentCall | None = None
    sop: SopCall | None = None
    human: HumanSlot | None = None
    grants: tuple[str, ...] = ()
    """What its contract grants beyond its own scope (``core.grants``)."""
    env: dict[str, str] = {}
    retry_budget: int | None = None
    """Entries into RETRYABLE before it must escalate; None takes the policy (FSN-3)."""
    cost: float = 1.0
    """Estimated cost in any unit; orders the frontier, nothing else."""
    draft: bool = False
    gates: tuple[Gate, ...] = ()


class Integrity(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The identity of an artifact's bytes."""

    algo: Literal["sha256", "size+mtime", "git"]
    value: str
    size_bytes: int
    checked_at: str
    mtime_ns: int | None = None
    """As seen when hashed; an unchanged (size, mtime) lets the file walk skip the hash."""
    weak: bool = False


class Artifact(Record, msgspec.Struct, frozen=True, gc=False):
    """One registered file, commit or receipt (AR-1)."""

    path: str
    kind: str
    produced_by_node: str | None
    produced_by_invocation: str | None
    integrity: Integrity
    status: str = "current"
    """``current``, ``superseded(by:ID)`` or ``quarantined``."""
    commit_event: int = 0
    origin: str | None = None
    """Where the bytes were before a commit ordered them moved to ``path``."""
    repo: str | None = None
    """For ``git:SHA``: the repository, relative to the workspace."""


class Executor(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Who works under a contract, and how to tell whether they still live."""

    actor: str
    kind: Literal["process", "session"] = "session"
    host: str = ""
    boot_id: str = ""
    pid: int = 0
    started: float = 0.0


class ActiveContract(Record, msgspec.Struct, omit_defaults=True, gc=False):
    """The part of an issued contract that the runtime needs while it is in force."""

    invocation_id: str
    node: str
    executor: Executor
    epoch: int
    issued_at: float
    expires_at: float | None = None
    """For a session or a person: renewed by beat, artifact and submit. None for a process."""
    sha256: str = ""
    last_beat_at: float | None = None
    suspected: str = ""
    """``J-n`` of the event that suspects its executor dead (RT-3); it may still come back."""


class Node(Record, msgspec.Struct, omit_defaults=True, gc=False):
    """One unit of work as the journal left it."""

    node_id: str
    title: str
    spec: Spec
    deps: tuple[str, ...] = ()
    state: NodeState = "PENDING"
    attempts: int = 0
    """Contracts issued so far."""
    interruptions: int = 0
    strikes: int = 0
    """Failures a living coordinator observed, over all methods."""
    method: str = "default"
    method_strikes: int = 0
    """Strikes of the present method: what its retry budget counts (RT-2)."""
    strikes_by_method: dict[str, int] = {}
    """Strikes of every method tried since the spec was last amended."""
    failure_class: FailureClass | None = None
    diagnosis: str = ""
    artifacts: tuple[str, ...] = ()
    priority: int = 0
    verification_level: VerificationLevel = "V1"
    resume_policy: ResumePolicy = "reverify_if_amended"
    effect: Effect = "S0"
    notes_ref: str | None = None
    amended_by: tuple[str, ...] = ()
    child_ref: str | None = None
    blocked: dict[str, Any] | None = None
    """While BLOCKED: reason and wake."""
    invocation: str | None = None
    """The newest contract issued; in force (in ``State.contracts``) only while RUNNING."""
    worker: str = ""
    """The executor of that contract, as ``role:name``; empty where the coordinator has it run."""
    contract_sha256: str = ""
    """Of a batch node's newest contract: its verdict rests on what that says of the units."""
    state_ref: str | None = None
    """``J-n`` of the event that made it so."""
    successors: tuple[str, ...] = ()
    receipt: str | None = None
    approvals: dict[str, Approval] = {}
    """Gate id to the newest consent; whether it still holds is for the gate to say."""
    rejected: dict[str, str] = {}
    """Gate id to the content that a person refused; that content is not asked about again."""
    rounds: dict[str, int] = {}
    """Gate id to its revise and reject answers so far."""
    directives: tuple[str, ...] = ()
    """Instructions beyond the spec that every contract carries (S3)."""
    steered: tuple[str, ...] = ()
    """Steering ids that no contract has carried yet."""
    plan: str = ""
    """``FIELD:DIGEST`` words of the task file's entry that it was last brought in line with."""
    failures: tuple[Failure, ...] = ()
    """The newest failed attempts, at most ``failures_kept_max``."""
    checks_failed: int = 0
    """Verdicts against it, over all attempts (GE-4)."""
    questions_asked: int = 0
    """Questions that work on it had to put to a person (GE-4)."""
    replans: int = 0
    """Times it was replanned, or took the place of one that was (GE-4)."""
    usage: Usage | None = None
    """Of all attempts that said what they used."""
    audit: Audit | None = None
    """The newest independent verdict (V2); whether it still holds is for the check to say."""


class Policies(Record, msgspec.Struct, frozen=True):
    """Numbers a task may override (reference policies of formats.md)."""

    retry_budget: int = 3
    contract_ttl_s: float = 1_800.0
    heartbeat_s: float = 300.0
    lease_ttl_s: float = 60.0
    check_timeout_s: float = 300.0
    idle_after_s: float = 1_200.0
    """Silence of progress signals after which progress counts as stale."""
    nudge_after_s: float = 1_800.0
    """Silence of progress signals after which the owner is nudged."""
    renotify_s: float = 1_800.0
    """Between two messages about the same thing."""
    nudges_max: int = 2
    """Nudges before the owner is asked to reconcile."""
    retries_max: int = 2
    """Observed retries of a retry-first failure before it escalates."""
    revise_max: int = 3
    """Revise rounds of one gate before it escalates (VR-3)."""
    goal_amendments_max: int = 3
    """Changes of the goal within ``goal_window_s`` before it escalates (GE-3)."""
    goal_window_s: float = 86_400.0
    first_death_window: int = 8
    """Resolutions that the rate of first deaths is taken over (PD-H1)."""
    mixed_threshold: float = 0.25
    """Above this rate dispatch is mixed (B)."""
    halt_after: int = 2
    """Failures of the environment in a row after which dispatch halts (C)."""
    probe_slots: int = 1
    """Workers that are sent first when dispatch resumes after a halt (PD-H3)."""
    suspected_dead_factor: float = 3.0
    """Times the median unit time that a worker may be silent before it is suspected dead."""
    nesting_depth_max: int = 3
    """Levels of instances, the root included (DP-1)."""
    walk_every_commits: int = 500
    """Of tier 2: at most so many commits between two walks over all files (WK-1)."""
    walk_every_s: float = 900.0


class State(Record, msgspec.Struct):
    """Everything a journal prefix says, folded. Only ``core.fold`` writes it."""

    task_id: str = ""
    goal_statement: str = ""
    acceptance: tuple[str, ...] = ()
    created: str = ""
    tier: int = 1
    fsm_task: TaskState = "INIT"
    seq: int = 0
    epoch: int = 0
    updated_at: str = ""
    policies: Policies = Policies()
    people: dict[str, Any] = {}
    standing_authorities: tuple[str, ...] = ()
    """Nodes whose external effect (S3) was allowed when the task was created; ``*`` is all."""
    source: dict[str, Any] = {}
    """Where the task came from: the task file's content hash."""
    nodes: dict[str, Node] = {}
    artifacts: dict[str, Artifact] = {}
    contracts: dict[str, ActiveContract] = {}
    questions: dict[str, Question] = {}
    closed_questions: dict[str, str] = {}
    """Question id to the ``J-n`` that settled it, oldest first."""
    steering: dict[str, Steering] = {}
    directives: tuple[Directive, ...] = ()
    """Untargeted instructions, for nodes that are added later."""
    last_contact: Contact | None = None
    """Whoever said something after this was not heard (ST-2)."""
    delegation: dict[str, str] = {}
    """Effect class to a rung of the delegation ladder; what is absent has its default."""
    policy_reasons: dict[str, dict[str, Any]] = {}
    """Policy that was changed since the task began: value, reason, window, ref."""
    decisions: int = 0
    goal_amendments: int = 0
    goal_amended_at: tuple[float, ...] = ()
    """When the goal was changed, newest last, at most 16."""
    observed: Observed = msgspec.field(default_factory=Observed)
    slots: dict[str, Slot] = {}
    """The workers of batch nodes that are out, by invocation; at its end a slot leaves."""
    health: Health = msgspec.field(default_factory=Health)
    parent: Parent | None = None
    """Of a child instance."""
    sop: dict[str, Any] = {}
    """Of an instance of a procedure: ``id``, ``version``, ``sha256`` and ``phases``."""
    phase: str = ""
    """The phase that such an instance is in."""
    docs: dict[str, Doc] = {}
    """Path to the newest note of a working document or an external file, newest last."""
    sessions: tuple[Session, ...] = ()
    """The newest takeovers, at most ``sessions_kept_max``."""
    walk: Walk | None = None
    closing: Closing = Closing()
    masked: dict[str, int] = {}
    """What was masked before it was written, by the name of what was found (SE-1)."""
    next_hint: str = ""
    terminal: bool = False
    outcome: str = ""
    ops: dict[str, int] = {}
    """Op id to the seq that carried it, oldest first, at most ``ops_kept_max``."""
    ops_forgotten_ms: int = 0
    """Time in the newest op id that is no longer remembered; none up to it is carried out."""
    unchained: int = 0
    """Lines without ``h``, written by others."""
    ignored_kinds: dict[str, int] = {}


def text_digest(text: str) -> str:
    """Sixteen hexadecimal digits that tell one text from another."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@lru_cache(maxsize=16 << 10)  # the same ids at each look at the frontier
def id_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Order ids numerically (``W9 < W10``); total, also over mixed texts."""
    parts = re.split(r"(\d+)", text)
    return tuple((1, int(p), p) if p.isdecimal() else (0, 0, p) for p in parts if p)
