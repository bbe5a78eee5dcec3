"""The typed records of what was observed of a task: the input of supervision.

Job: what the observations of the journal fold into. Invariants: written by the fold of observation
events alone; times are those of the events, in seconds since 1970; nothing derived is kept here.
"""

from typing import Final, Literal, get_args

import msgspec

from perdure.core.record import Record

StepState = Literal["RUNNING", "BLOCKED", "COMPLETED"]
ExternalState = Literal[
    "SUBMITTED", "PENDING", "RUNNING", "RETRYING", "SWITCHED_WORKFLOW", "COMPLETED", "FAILED"
]
DownloadStatus = Literal["COMPLETE", "INCOMPLETE", "CORRUPT"]
FailureType = Literal[
    "TIMEOUT", "DOWNLOAD_TIMEOUT", "DOWNLOAD_INCOMPLETE", "TRANSIENT_NETWORK", "EXECUTION_ERROR",
    "EXTERNAL_WAIT", "PERMISSION_DENIED", "INVALID_INPUT", "UNSUPPORTED", "AUTH_REQUIRED",
]  # fmt: skip
ReplyLetter = Literal["A", "B", "C", "D", "E"]

EXTERNAL_STATES: Final[tuple[str, ...]] = get_args(ExternalState)
PENDING_STATES: Final = frozenset(EXTERNAL_STATES[:5])
DOWNLOAD_STATUSES: Final[tuple[str, ...]] = get_args(DownloadStatus)
FAILURE_TYPES: Final[tuple[str, ...]] = get_args(FailureType)
RETRY_FIRST: Final = frozenset(FAILURE_TYPES[:6])
REPLY_LETTERS: Final[tuple[str, ...]] = get_args(ReplyLetter)
PROVIDER_EVIDENCE: Final = frozenset(
    {
        "provider_job_id", "submission_receipt", "submission_receipt_id", "status_handle",
        "provider_status_handle", "status_url", "poll_token", "provider_response_ref",
        "provider_receipt_ref", "artifact_path", "artifact_url", "output_file", "remote_job_id",
    }
)  # fmt: skip
"""Facts that show a provider's own word; the job id in the claim itself is none."""

facts_kept_max: Final = 64
fact_chars_max: Final = 1_000
"""Of a fact's value, and of every name in an observation; what others wrote longer is cut."""
observed_chars_max: Final = 4_000
"""Of a summary, a reason or a next step that is remembered; the journal has all of it."""
tokens_kept_max: Final = 100
external_jobs_max: Final = 10_000
downloads_max: Final = 10_000


class StepObserved(Record, msgspec.Struct, omit_defaults=True):
    """What was last observed of one step (a node)."""

    state: StepState = "RUNNING"
    progress_at: float | None = None
    completed_at: float | None = None
    completed_ref: str = ""
    progress_after_completion: str = ""
    """``J-n`` of progress that was observed after the step had been completed."""
    summary: str = ""
    facts: dict[str, str] = {}


class Block(Record, msgspec.Struct, frozen=True, omit_defaults=True):
    """A confirmed blocker, of one node or (node empty) of the task."""

    ref: str
    at: float
    reason: str
    node: str = ""
    needs: tuple[str, ...] = ()
    safe_next_step: str = ""
    failure_type: str = ""


class ExternalJob(Record, msgspec.Struct, omit_defaults=True):
    """A job at a provider, as last observed."""

    provider: str
    job_id: str
    state: str
    node: str = ""
    facts: dict[str, str] = {}
    """All facts observed so far, the newest of each name."""
    ref: str = ""
    changed_at: float = 0.0
    """When its state last changed."""


class Download(Record, msgspec.Struct, omit_defaults=True):
    """A download, as last observed."""

    download_id: str
    status: str
    path: str = ""
    size_bytes: int | None = None
    checksum: str = ""
    node: str = ""
    ref: str = ""
    at: float = 0.0


class Reply(Record, msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest answer of the owner to the supervisor."""

    letter: str
    ref: str
    at: float
    node: str = ""
    resume_token: str = ""


class Observed(Record, msgspec.Struct, omit_defaults=True):
    """Everything that was observed, folded."""

    steps: dict[str, StepObserved] = {}
    task_completed: str = ""
    """``J-n`` of TASK_COMPLETED; empty when the newest word is another."""
    completion_summary: str = ""
    blocks: dict[str, Block] = {}
    """Blocks in force: node id (empty for the task) to the block."""
    retries: dict[str, int] = {}
    """``NODE:FAILURE_TYPE`` to the times the owner resumed after that block."""
    external: dict[str, ExternalJob] = {}
    """``PROVIDER:JOB`` to the job."""
    downloads: dict[str, Download] = {}
    reply: Reply | None = None
    acknowledged_tokens: tuple[str, ...] = ()
    """Resume tokens that replies have acknowledged, newest last, at most 100."""
    started_at: float | None = None
    progress_at: float | None = None
    """The newest progress signal of the journal."""
    progress_ref: str = ""
    heartbeat_at: float | None = None
    errors: int = 0
    """Consecutive errors: heartbeats with ``ok: false`` and N04, since the last success."""
    success_at: float | None = None
