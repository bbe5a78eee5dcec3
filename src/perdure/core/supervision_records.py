"""The typed records of supervision: facts, what is derived from them, actions, what is stored.

Job: the nouns of the three layers. Invariants: nothing here is truth about the task; a
:class:`Derived` is made anew for every look and never stored; what the supervisor stores is a
:class:`SupervisionFile` and nothing else, and nothing in it can change what the journal says.
"""

from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from perdure.core.codec import moment_least_s, moment_most_s
from perdure.core.record import Record
from perdure.core.supervision_parts import (
    BlockInForce,
    ExternalSeen,
    OpenQuestion,
    Output,
    Step,
    UserFacing,
)

Condition = Literal["whole", "missing", "changed"]
"""How the bytes of a registered artifact were found."""
Status = Literal["COMPLETED", "BLOCKED", "FAILED", "ABANDONED", "RUNNING"]
TruthState = Literal["CONSISTENT", "INCONSISTENT"]
ActionState = Literal[
    "STOP_AND_DELETE", "EXECUTOR_UNHEALTHY", "FINALIZATION_STALLED", "TRUTH_INCONSISTENT",
    "OWNER_RECONCILE", "BLOCKED_ESCALATE", "NUDGE_MAIN_AGENT", "STALE_PROGRESS", "HEARTBEAT_DUE",
    "OK",
]  # fmt: skip
Verb = Literal[
    "noop", "send_execution_nudge", "query_owner_for_truth", "request_truth_reconcile",
    "report_executor", "request_finalization", "send_blocked_escalation", "delete_monitor",
]  # fmt: skip
"""What the supervisor does about it; ``noop`` sends nothing."""
Audience = Literal["", "owner", "requester"]
UpdateKind = Literal[
    "STEP_COMPLETED", "EXTERNAL_JOB_COMPLETED", "EXTERNAL_JOB_FAILED", "WORKFLOW_SWITCH",
    "BLOCKED_ESCALATE", "COMPLETED_HANDOFF",
]  # fmt: skip
Delivery = Literal["pending", "sent", "failed"]
Moment = Annotated[float, msgspec.Meta(ge=moment_least_s, le=moment_most_s)]
"""Seconds since 1970 that are written out for people; a file that says another is damaged."""

ACTIONS: Final[tuple[str, ...]] = get_args(ActionState)
UPDATE_KINDS: Final[tuple[str, ...]] = get_args(UpdateKind)
ENDED_STATUSES: Final = frozenset({"COMPLETED", "FAILED", "ABANDONED"})
"""Nothing more is expected of the task."""

told_kept_max: Final = 1_000
"""Subjects of messages that a memory holds."""
actions_kept_max: Final = 200
"""Entries of the action log."""
delivered_kept_max: Final = 1_000
"""Delivered updates and closed resume requests that the file remembers."""


# What derive reads besides the journal


class SuspectedDeath(Record, msgspec.Struct, frozen=True):
    """Why a node's executor may be dead: a suspicion with its grounds, never a fact (RT-3)."""

    observation: str
    """What was seen, as the end of a sentence: ``process 4711 on host-a is gone``."""
    policy: str
    """By which rule that counts as suspect: ``contract_ttl_s = 1800``."""
    kind: Literal["process_gone", "contract_expired"] = "process_gone"
    """``process_gone``: the system itself says so. ``contract_expired``: there was silence and
    nothing else, so that the owner is nudged before anybody is asked to reconcile."""


class Facts(Record, msgspec.Struct, frozen=True):
    """What was read outside the journal for one look; a fact that is absent was not looked at."""

    artifacts: dict[str, Condition] = {}
    """Artifact id to how its bytes were found; absent counts as no usable output."""
    ledgers: dict[str, float] = {}
    """Node to the time of its newest unit line, no later than the file itself was written."""
    executors: dict[str, SuspectedDeath] = {}
    """RUNNING node to why its executor may be dead; absent: nothing speaks against it."""
    close_out: tuple[str, ...] = ()
    """Close-out gaps that were found on disk: ``close_out:handoff_missing``,
    ``close_out:memory_proposal_missing``."""


# What derive gives


class Derived(Record, msgspec.Struct, frozen=True):
    """Everything a decision needs, computed from the journal's state, the facts and the time."""

    task_id: str
    seq: int
    """The journal up to here."""
    at: float
    """The time of this look."""
    status: Status
    truth_state: TruthState
    inconsistencies: tuple[str, ...]
    """Fixed ids, in the order of the contract; see ``INCONSISTENCIES``."""
    close_out_gaps: tuple[str, ...]
    """What is missing about a completed task's close-out; contradicts nothing."""
    workflow: tuple[Step, ...]
    """Every step, each after the steps it depends on."""
    step_states: dict[str, str]
    current_step: str | None
    user_facing: UserFacing
    fsm_task: str = "INIT"
    completed_ref: str = ""
    """``J-n`` of the completion truth; empty while there is none."""
    completion_summary: str = ""
    """What was said of the completion."""
    external: tuple[ExternalSeen, ...] = ()
    """Every external job."""
    pending_external: tuple[ExternalSeen, ...] = ()
    """Pending with evidence."""
    suspicious_external_jobs: tuple[ExternalSeen, ...] = ()
    """Pending without evidence."""
    external_failures: tuple[str, ...] = ()
    """Keys of jobs that failed."""
    waits_outside: tuple[str, ...] = ()
    """Keys of pending jobs with evidence that open work waits for: a legitimate wait."""
    last_progress_at: float | None = None
    """The newest progress signal, the start of the task being the first."""
    progress_signals: dict[str, float] = {}
    """Where each newest signal came from (``journal J-12``, ``ledger N1``) and when."""
    silence_s: float | None = None
    """Since the newest progress signal; None when no time is known, which counts as endless."""
    last_heartbeat_at: float | None = None
    alive_s: float | None = None
    """Since the newest sign of life, a heartbeat or progress; None as for ``silence_s``."""
    errors: int = 0
    """Consecutive errors."""
    last_success_at: float | None = None
    """The newest success, a unit line included, the start of the task being the first."""
    streak: str = ""
    """Tells one streak of errors from the next."""
    retry_count: int = 0
    """Retries observed: of the block in force, else of the whole task."""
    blocks: tuple[BlockInForce, ...] = ()
    under_way: tuple[str, ...] = ()
    """Open steps that go on, whatever is blocked beside them."""
    moved_on: bool = False
    """A blocked step, or one of a blocked task, has moved since the block was confirmed."""
    dead_ends: tuple[str, ...] = ()
    """Quarantined steps without a successor."""
    startable: tuple[str, ...] = ()
    """Steps that the owner could start now; the first ``steps_shown_max``."""
    questions: tuple[OpenQuestion, ...] = ()
    """Open questions to people that hold open steps."""
    waits_for_person: bool = False
    """Everything open waits for a person or a confirmed blocker, so that silence is no fault."""
    suspended: bool = False
    """Paused on purpose, so nothing is expected."""
    suspected: dict[str, SuspectedDeath] = {}
    """Step to the suspicion that stands."""
    outputs: tuple[Output, ...] = ()
    """All usable output."""
    reply_letter: str = ""
    """The newest answer of the owner."""
    reply_at: float | None = None
    reply_node: str = ""


# What decide_action reads and gives


class Memory(Record, msgspec.Struct, frozen=True, omit_defaults=True):
    """What the supervisor remembers of its own doings; the only thing a decision reads of them."""

    nudges: int = 0
    """Sent since the newest progress signal, as of ``nudged_at``."""
    nudged_at: float | None = None
    reconciles: int = 0
    """OWNER_RECONCILE messages sent, ever."""
    reconciled_at: float | None = None
    escalated: dict[str, float] = {}
    """Key of a block or question that still stands to when it was escalated, oldest first."""
    escalated_at: float | None = None
    told: dict[str, float] = {}
    """``Action.about`` to when that was last said, oldest first."""
    last_action: str = ""
    last_reason: str = ""
    last_action_at: float | None = None


class Action(Record, msgspec.Struct, frozen=True):
    """The one thing to do now, and why."""

    state: ActionState
    reason: str
    """One sentence, for people."""
    action: Verb
    next_action: str
    """What the person or the owner is to do, as a sentence; never a destructive command."""
    line: int = 5
    """Line of the precedence, 1 to 5."""
    row: str = "ok"
    """Name of the row that applied."""
    due: bool = False
    """Whether a message is to be sent now; False inside the renotify interval and for ``noop``."""
    to: Audience = ""
    about: str = ""
    """Stable key of what the message is about: the same matter has the same key."""
    step: str = ""
    """The step it is about, if it is about one."""
    keys: tuple[str, ...] = ()
    """Of BLOCKED_ESCALATE: the blocks and questions that this message escalates."""
    gaps: tuple[str, ...] = ()
    """Of STOP_AND_DELETE: close-out gaps that are left."""


# What the supervisor stores


class Digest(Record, msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a look the next one compares with, to tell what is new."""

    seq: int = 0
    """Everything up to this ``J-n`` has been told."""
    external: dict[str, str] = {}
    """External job to its state and since when, ``STATE@SECONDS``."""
    completed: str = ""
    """Completion that was handed off."""
    failed: str = ""
    """Failure that was told."""


class Update(Record, msgspec.Struct, frozen=True, omit_defaults=True):
    """Something the requester is to hear, once."""

    update_id: str
    """Idempotency id: the same news always has the same one."""
    kind: UpdateKind
    text: str
    """What happened, as sentences for the requester."""
    entity: str = ""
    """The step, external job, block or question."""
    ref: str = ""
    """The journal event it rests on."""
    details: dict[str, Any] = {}


class QueuedUpdate(Record, msgspec.Struct, omit_defaults=True):
    """An update on its way; it leaves the queue when every channel has it."""

    update: Update
    queued_at: Moment
    attempts: int = 0
    tried_at: float | None = None
    error: str = ""
    """Of the newest attempt that failed."""
    delivered: dict[str, float] = {}
    """Channel to when it took the update."""


class ResumeRequest(Record, msgspec.Struct, omit_defaults=True):
    """The owner was asked something and is to answer with this token."""

    token: str
    kind: ActionState
    step: str
    reason: str
    requested: Moment
    about: str = ""
    """``Action.about``: one open request for one matter."""
    next_action: str = ""
    """What the owner is asked to do."""
    delivery: Delivery = "pending"
    """``sent`` once every configured channel has it; the inbox of the workspace is this record."""
    delivered_at: float | None = None
    delivered: dict[str, float] = {}
    """Channel to when it took the message."""
    attempts: int = 0
    tried_at: float | None = None
    error: str = ""
    """Of the newest attempt that failed."""
    acknowledged: float | None = None
    """When the reply that carries the token was seen in the journal."""
    outcome: str = ""
    """The letter of that reply, or why the request is moot."""

    @property
    def is_open(self) -> bool:
        """Whether an answer to it is still wanted, as far as the supervisor has seen."""
        return self.acknowledged is None and not self.outcome


class ActionLogged(Record, msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of the action log."""

    at: float
    state: str
    reason: str
    action: str
    sent: bool = False
    token: str = ""


class Schedule(Record, msgspec.Struct, frozen=True):
    """The line in the user's crontab that keeps the monitor going."""

    mark: str
    """What the line ends with; it stays so when the workspace is moved."""
    interval_s: float
    installed_at: float


class SupervisionFile(Record, msgspec.Struct, omit_defaults=True):
    """``supervision.json``: everything the supervisor knows that the journal does not say."""

    task_id: str = ""
    version: int = 1
    updated_at: float | None = None
    memory: Memory = Memory()
    digest: Digest = Digest()
    requests: list[ResumeRequest] = msgspec.field(default_factory=list, name="resume_requests")
    """Newest last."""
    actions: list[ActionLogged] = msgspec.field(default_factory=list, name="action_log")
    """Newest last, at most ``actions_kept_max``."""
    pending: dict[str, QueuedUpdate] = msgspec.field(default_factory=dict, name="pending_updates")
    """Update id to the update, oldest first."""
    delivered: dict[str, float] = msgspec.field(default_factory=dict, name="delivered_updates")
    """Update id to when the last channel took it, at most ``delivered_kept_max``."""
    schedule: Schedule | None = None
    stopped_at: float | None = None
    """When STOP_AND_DELETE was carried out."""
