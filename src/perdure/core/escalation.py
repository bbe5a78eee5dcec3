"""The bundle that a person gets when a node needs a way out: data to decide with (AD-1, AD-2).

Job: what was tried, how each attempt ended, what the disk holds, what can be chosen, and what
happens if nobody answers. Invariants: it always names a safe default, which is to leave things as
they are; the failed attempts carry their own signatures; what is on disk is what the runtime saw,
and what it did not look at is not made up; each option has one command that carries it out, and
choosing it leads to nothing else.
"""

from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import Any, Final, NamedTuple

from perdure.core.commands import FileMove
from perdure.core.model import Node, State
from perdure.core.people import Failure, Question

OUT_OF_STRIKES: Final = "out_of_strikes"
VERIFICATION_FAILED: Final = "verification_failed"
START_REFUSED: Final = "start_refused"
RESULT_REFUSED: Final = "result_refused"
"""Kinds of escalation."""


class Option(NamedTuple):
    """One way out."""

    choice: str
    """Its id, and the ``--choice`` of an answer where an answer carries it out."""
    desc: str
    command: str
    """What carries it out; ``QUESTION`` and ``NODE`` in it stand for their ids."""


CANCEL: Final = "cancel"
"""The choice that gives up what was escalated."""

_RETRY: Final = Option(
    "retry",
    "go on by another method; its strikes start anew",
    "perdure answer QUESTION TEXT --choice retry --method NAME",
)
_CHANGE: Final = Option(
    "amend",
    "change what it does; its strikes start anew",
    "perdure amend NODE --reason WHY --set FIELD=VALUE",
)
_AMEND: Final = Option(
    "amend",
    "change what was refused; its gate is asked anew",
    "perdure amend NODE --reason WHY --set FIELD=VALUE",
)
_GO_ON: Final = Option(
    "go on",
    "nothing more is to be said: its gate is asked anew once its spec differs",
    'perdure answer QUESTION TEXT --choice "go on"',
)
_SPLIT: Final = Option(
    "split",
    "replan it: other nodes take its place",
    "perdure split NODE --into ID:TITLE --reason WHY",
)
_CANCEL: Final = Option(
    CANCEL,
    "give it up; what depends on it cannot go on then",
    "perdure answer QUESTION WHY --choice cancel",
)
_SUCCESSOR: Final = Option(
    "successor",
    "put a node with another spec in its place",
    "perdure add ID TITLE --successor-of NODE",
)
_LEAVE: Final = Option(
    "leave",
    "leave it given up; what depends on it cannot go on then",
    "perdure answer QUESTION WHY --choice leave",
)

OPTIONS: Final[Mapping[str, tuple[Option, ...]]] = {
    OUT_OF_STRIKES: (_RETRY, _CHANGE, _SPLIT, _CANCEL),
    VERIFICATION_FAILED: (_SUCCESSOR, _LEAVE),
    START_REFUSED: (_GO_ON, _AMEND, _SPLIT, _CANCEL),
    RESULT_REFUSED: (_SUCCESSOR, _LEAVE),
}
"""Kind of escalation to what can be chosen."""
SAFE_DEFAULT: Final = "remain-blocked"
files_named_max: Final = 10
"""Files of each list in the disk facts; how many there are is said besides."""
checks_shown_max: Final = 5


def bundle(
    node: Node,
    question_id: str,
    *,
    kind: str,
    last: Failure | None,
    disk_facts: Mapping[str, Any],
) -> dict[str, Any]:
    """The package of an escalation about ``node``; ``last`` is the attempt that has just failed."""
    attempts = [*node.failures, *([last] if last is not None else [])]
    return {
        "escalation_id": question_id,
        "kind": kind,
        "slot": f"{node.node_id}/{node.invocation}" if node.invocation else node.node_id,
        "attempts": node.attempts,
        "failure_classes": _counted(attempts),
        "signatures": [
            {
                "attempt": item.attempt,
                "failure_class": item.failure_class,
                "signature": item.signature,
                "method": item.method,
                "event": item.ref,
            }
            for item in attempts
        ],
        "disk_facts": dict(disk_facts),
        "options": [{"id": option.choice, "desc": option.desc} for option in OPTIONS[kind]],
        "default_if_no_answer": SAFE_DEFAULT,
    }


def _counted(attempts: Sequence[Failure]) -> list[str]:
    """``class x3``, in the order in which the classes first occurred."""
    counts: dict[str, int] = {}
    for item in attempts:
        counts[item.failure_class] = counts.get(item.failure_class, 0) + 1
    return [f"{name or 'no class'} x{count}" for name, count in counts.items()]


def other_command(question: Question, choice: str) -> str:
    """What carries this option of an escalation out, if an answer alone does not; else empty."""
    for option in options_of(question):
        if option.choice == choice and not option.command.startswith("perdure answer "):
            return _written(option, question)
    return ""


def ways_out(question: Question) -> list[str]:
    """A command for each option of an escalation; none where it is no such one."""
    return [_written(option, question) for option in options_of(question)]


def options_of(question: Question) -> tuple[Option, ...]:
    """The options of an escalation about a node, as its bundle names its kind."""
    if question.kind != "escalation" or not question.node:
        return ()
    return OPTIONS.get(str(question.package.get("kind")), ())


def _written(option: Option, question: Question) -> str:
    names = {"QUESTION": question.question_id, "NODE": question.node or ""}
    words = (quote(names[word]) if word in names else word for word in option.command.split(" "))
    return " ".join(words)


def choices_of(kind: str) -> tuple[str, ...]:
    """The options of a question with such a bundle."""
    return tuple(option.choice for option in OPTIONS[kind])


# Disk facts


def as_shown(files: Mapping[str, str]) -> dict[str, Any]:
    """The files that a person was shown, by what was read of them."""
    shown = [{"path": path, "sha256": value} for path, value in files.items()]
    return {"shown": shown[:files_named_max]} if shown else {}


def with_moves(facts: Mapping[str, Any], moves: Iterable[FileMove]) -> dict[str, Any]:
    """The facts, and where what was registered lies once the attempt is set aside."""
    moved = [{"path": move.source, "to": move.target} for move in moves]
    return {**facts, **({"moved": moved[:files_named_max]} if moved else {})}


def of_verdict(
    state: State,
    artifacts: Mapping[str, str],
    checks: Iterable[Mapping[str, Any]],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """What a verification read, with the checks that failed, beside what else was seen."""
    read = [
        {"path": state.artifacts[name].path, "sha256": value}
        for name, value in artifacts.items()
        if name in state.artifacts
    ]
    failed = [
        {"check": str(item.get("check") or ""), "detail": str(item.get("detail") or "")}
        for item in checks
        if not item.get("passed")
    ]
    return {
        **facts,
        "verified": read[:files_named_max],
        "failed_checks": failed[:checks_shown_max],
    }
