"""The documents between a caller and an instance of a procedure, and how ids cross that border.

Job: the records of ``invocation.json`` and ``result.json``, the words of a status (IO-1 of
HALT-03), and the phases that all procedures share. Invariants: a status is one of the closed set; a
reference across instances names both (``INVOCATION#ID``); the question that a parent asks in the
place of a child's has an id that follows from the two alone, so that its answer finds the way back.
It reads nothing.
"""

import re
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.dispatching import Parent, Usage
from perdure.core.model import FAILURE_CLASSES, ID_PATTERN, Policies, text_digest
from perdure.core.record import Record

DONE: Final = "done"
WITH_GAPS: Final = "done_with_gaps"
BLOCKED: Final = "blocked"
FAILED: Final = "failed"

EXIT_CODES: Final = {DONE: 0, WITH_GAPS: 0, BLOCKED: 10, FAILED: 1}
"""What the process of an instance exits with, by its status; after a signal 128 plus that."""

INTAKE: Final = "intake"
PLAN: Final = "plan"
VERIFY: Final = "verify"
REPORT: Final = "report"
FIRST_PHASES: Final = (INTAKE, PLAN)
"""The phases that every procedure begins with."""
LAST_PHASES: Final = (VERIFY, REPORT)
"""The phases that every procedure ends with."""

INSTANCES: Final = "instances"
"""In a workspace: a directory for each instance that its nodes have called."""

document_bytes_max: Final = 4 << 20
"""Of an invocation or a result."""
listed_max: Final = 50
"""Decisions, questions and gaps that a result lists."""

_STATUS: Final = re.compile(r"(done|done_with_gaps|blocked\(ask:(.+)\)|failed\(([a-z-]+)\))\Z")


class SopRef(Record, msgspec.Struct, frozen=True):
    """Which card, exactly."""

    id: str
    version: str
    sha256: str = ""
    """Over the card and the files that belong to it."""


class Invocation(Record, msgspec.Struct, frozen=True, omit_defaults=True):
    """What an instance is called with: written once, before it begins."""

    invocation_id: str
    sop: SopRef
    inputs: dict[str, Any] = {}
    """Bound: typed, defaults filled in."""
    called_as: dict[str, Any] = {}
    """What the caller wrote: ``sop``, ``version`` and ``inputs``."""
    parent: Parent | None = None
    """None for the root of all."""
    contract: str = ""
    """The parent's contract, relative to the instance."""
    previous: str = ""
    """The instance that failed at this before: skip what verifies there."""
    budget: dict[str, Any] = {}
    authority_grants: tuple[str, ...] = ()
    reporting: dict[str, Any] = {}
    steering_channel: str = "steering/spool/"
    tier: int = 1
    policies: Policies = Policies()
    people: dict[str, Any] = {}
    delegation: dict[str, str] = {}
    standing_authorities: tuple[str, ...] = ()


class ResultArtifact(Record, msgspec.Struct, frozen=True):
    """One output, registered and verified before it is listed (IO-2)."""

    name: str
    artifact_id: str
    path: str
    """Relative to the instance."""
    checksum_sha256: str


class OpenQuestion(Record, msgspec.Struct, frozen=True, omit_defaults=True):
    """A question that waits, or a gap: what is missing and nobody has settled."""

    ref: str
    """``INVOCATION#ID``."""
    text: str
    options: tuple[str, ...] = ()
    default: str = ""
    context: str = ""
    links: tuple[str, ...] = ()
    """Files of the instance that it is about, relative to it."""
    to: str = ""
    """The role that answers."""


class Failure(Record, msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an instance cannot finish, and the way out that its card names for that."""

    failure_class: str
    signature: str
    route: str


class Result(Record, msgspec.Struct, frozen=True):
    """What an instance tells its caller: written last, and only at an end."""

    invocation_id: str
    status: str
    sop: SopRef
    artifacts: tuple[ResultArtifact, ...] = ()
    decisions: tuple[dict[str, str], ...] = ()
    """``decision_ref`` and ``summary`` of each, the newest last."""
    state_summary: dict[str, int] = {}
    open_questions: tuple[OpenQuestion, ...] = ()
    """What a blocked one waits for; the gaps of one that is done with gaps."""
    next_action_hint: str = ""
    handoff_note: str = ""
    """Path of a page for people, relative to the instance."""
    usage: Usage | None = None
    failure: Failure | None = None
    seq_last: int = 0
    """The last event of its journal that it speaks of."""


class Status(NamedTuple):
    """A status, taken apart."""

    word: str
    detail: str = ""
    """The question of ``blocked``, the class of ``failed``."""


def blocked(question_id: str) -> str:
    """The status of an instance that waits for an answer."""
    return f"{BLOCKED}(ask:{question_id})"


def failed(failure_class: str) -> str:
    """The status of an instance that cannot finish."""
    return f"{FAILED}({failure_class})"


def read_status(text: str) -> Status | None:
    """The status, or None for a text that is none of the closed set."""
    match = _STATUS.match(text)
    if match is None:
        return None
    if match[3] is not None:
        return Status(FAILED, match[3]) if match[3] in FAILURE_CLASSES else None
    return Status(BLOCKED, match[2]) if match[2] is not None else Status(text)


def qualified(instance: str, name: str) -> str:
    """The reference by which others name something of an instance (NS-2)."""
    return f"{instance}#{name}"


def path_of(instance: str) -> str:
    """Where an instance lies, relative to the workspace of the task that it belongs to."""
    return f"{INSTANCES}/{instance}"


def taken_apart(ref: str) -> tuple[str, str]:
    """Instance and name of a qualified reference; no instance for one that is of this task."""
    instance, mark, name = ref.rpartition("#")
    return (instance, name) if mark else ("", ref)


def forwarded_id(ref: str) -> str:
    """The id of the question by which a parent passes a child's on; the same for the same one."""
    instance, name = taken_apart(ref)
    question_id = f"up-{instance.rpartition('-')[2]}-{name}"
    if ID_PATTERN.match(question_id):
        return question_id
    return f"up-{text_digest(ref)}"


def lineage(sop: dict[str, Any], parent: Parent | None) -> tuple[str, ...]:
    """The procedures from the outermost down to the one that this state is an instance of."""
    above = parent.sops if parent is not None else ()
    own = str(sop.get("id") or "")
    return (*above, own) if own else above


def depth_of(parent: Parent | None) -> int:
    """The level of an instance; the root of all has 1."""
    return parent.depth if parent is not None else 1
