"""The typed records of what people say to a task and what it asks of them.

Job: gates, questions, approvals, steering. Invariants: those of ``model``; a text that somebody
said is kept in the journal, and a record here holds at most what deciding needs of it.
"""

from typing import Any, Final, Literal, get_args

import msgspec

from perdure.core.record import Record

GatePoint = Literal["start", "done"]
"""The move that a gate guards: N02 and N11, or N06."""
QuestionKind = Literal["question", "gate", "judgement", "escalation", "effect", "confirmation"]
Reading = Literal["clarification", "question", "amendment", "halt"]
"""How an instruction is read, weakest first; in doubt the stronger of two (ST-1)."""
Ruling = Literal["answer", "approve", "revise", "reject"]
Fallback = Literal["remain-blocked", "reject"]
"""What an unanswered question comes to when its time is over; never consent."""
Delegation = Literal[
    "AUTO", "AUTO_WITH_BUDGET", "STANDING_AUTHORITY", "REVIEW_REQUIRED", "EXPLICIT_APPROVAL"
]

GATE_POINTS: Final[tuple[str, ...]] = get_args(GatePoint)
READINGS: Final[tuple[str, ...]] = get_args(Reading)
RULINGS: Final[tuple[str, ...]] = get_args(Ruling)
FALLBACKS: Final[tuple[str, ...]] = get_args(Fallback)
DELEGATIONS: Final[tuple[str, ...]] = get_args(Delegation)

ANSWERS: Final = "gatekeeper"
"""The role that answers a question which is put to none by name."""
gates_max: Final = 16
"""Declared gates of one node."""
closed_questions_max: Final = 10_000
"""Answered questions that are remembered as such; an older one counts as unknown."""
steering_chars_kept_max: Final = 1_000
"""Of an instruction's words, what the state keeps; the journal has them whole."""
failures_kept_max: Final = 8
"""Failed attempts of a node that an escalation can show."""


class Gate(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A guard on a move of a node that waits for a person (GA-1, GA-2)."""

    gate_id: str
    blocks: GatePoint = "done"
    question: str = ""
    context: str = ""
    options: tuple[str, ...] = ()
    """Besides approve, revise and reject, for the person's orientation."""
    consequences: str = ""
    links: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    """Workspace paths whose bytes an approval is bound to; none: the node's outputs (done), or
    what it takes from its dependencies together with its spec (start)."""
    scope: str = ""
    """What an approval covers, in words; another scope voids it."""
    gatekeeper: tuple[str, ...] = ()
    """Who may rule, by name; none: whoever ``people`` of the task names."""
    timeout_s: float | None = None
    fallback: Fallback = "remain-blocked"
    revise_max: int | None = None
    """Revise rounds before it escalates; None takes the policy (VR-3)."""
    rubric: str = ""
    """What a judge applies; with one this gate is a judgement (V3)."""


class Approval(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Consent of a person to one content under one scope."""

    ref: str
    by: str
    content: str
    scope: str = ""
    files: dict[str, str] = {}
    """Path to sha256 of what was approved: what the next question compares with."""


class Question(Record, msgspec.Struct, omit_defaults=True, gc=False):
    """Something only a person can settle; journaled before anything waits for it (H2)."""

    question_id: str
    text: str
    node: str | None
    asked_ref: str
    options: tuple[str, ...] = ()
    default: str = ""
    kind: QuestionKind = "question"
    to: str = ANSWERS
    """The role that answers."""
    gate: str = ""
    """Of a gate or a judgement: its gate id."""
    content: str = ""
    """Of a gate or a judgement: digest of what is to be approved."""
    files: dict[str, str] = {}
    """Path to sha256 of that content."""
    package: dict[str, Any] = {}
    """Context, consequences, links, changes; attempts and disk facts of an escalation (GA-2)."""
    asked_by: str = ""
    asked_at: float | None = None
    expires_at: float | None = None


class Steering(Record, msgspec.Struct, omit_defaults=True, gc=False):
    """An instruction on record and how far it has come (S1 to S4)."""

    ref: str
    digest: str
    text: str = ""
    """The beginning of its words."""
    at: str = ""
    source: str = ""
    provenance: str = "original"
    reading: str = ""
    """As its sender wants it read, if they say so; once it is classified, how it was read (S2)."""
    targets: tuple[str, ...] = ()
    """Nodes it names; none: every open one."""
    changes: dict[str, Any] = {}
    """Fields of the spec that it sets, where it says so."""
    revokes: tuple[str, ...] = ()
    """Standing authorities it takes back."""
    applied: dict[str, str] = {}
    """Node to what was done there, such as ``amended J-7``."""
    reached: dict[str, str] = {}
    """Node to the first start under a contract that carries it; or, where no contract has to, to
    the acknowledgement."""
    acknowledged: str = ""
    """``J-n`` of the acknowledgement (S4); empty while it is not propagated."""
    same_as: str = ""
    """The instruction that it says again, which had arrived after all (ST-2)."""


class Contact(Record, msgspec.Struct, frozen=True):
    """The newest word of a sponsor, or for one."""

    ref: str
    at: str
    by: str


class Directive(Record, msgspec.Struct, frozen=True, gc=False):
    """An instruction that nodes added later are to follow as well."""

    text: str


class Failure(Record, msgspec.Struct, frozen=True, gc=False):
    """One failed attempt, as an escalation shows it (AD-2)."""

    ref: str
    attempt: int
    failure_class: str
    signature: str
    method: str
