"""What may become an entry of the memory store: statements, scopes, dates, references.

Job: validate what somebody wants to have remembered, as text. Invariants: pure; a refusal names the
rule and the cure; what passes is one paragraph of visible characters, of bounded length.
"""

import re
from datetime import date
from typing import Final

from perdure.core.lookup import near
from perdure.core.memory import (
    KINDS,
    RECHECK,
    STABLE,
    Chains,
    evidence_chars_max,
    is_control,
    is_scope,
    reason_chars_max,
    statement_chars_max,
)
from perdure.errors import RefusedError, UsageError

_BLANKS: Final = re.compile(r"\s+")


def checked_kind(kind: str) -> str:
    """A kind of entry. Raises UsageError for one that there is not."""
    if kind not in KINDS:
        raise UsageError(
            f"there is no kind {kind!r} of entry.",
            code="unknown_kind",
            rule="ME-1",
            fix=f"Use one of {', '.join(KINDS)}.",
            suggestions=near(kind, KINDS),
        )
    return kind


def check_head(chains: Chains, name: str) -> None:
    """Raise RefusedError for an entry that something else counts in the place of (ME-1)."""
    head = chains.head_of(name)
    if head.id != name:
        raise RefusedError(
            f"{name} was superseded already; {head.id} counts in its place.",
            code="not_a_head",
            rule="ME-1",
            fix=f"Supersede that one: perdure memory supersede {head.id} TEXT",
        )


def checked_statement(statement: str) -> str:
    """A statement as one paragraph. Raises UsageError for what none can be."""
    text = _BLANKS.sub(" ", statement).strip()
    if not text:
        raise UsageError(
            "the statement is empty.",
            code="empty_text",
            rule="ME-2",
            fix="Say in a sentence or two what is so.",
        )
    if len(text) > statement_chars_max:
        raise UsageError(
            f"a statement has at most {statement_chars_max} characters, this {len(text)}.",
            code="too_large",
            rule="ME-4",
            fix="Say the one thing that others need, and cite where the rest is: --evidence REF.",
        )
    if any(map(is_control, text)):
        raise UsageError(
            "the statement holds characters that nobody sees.",
            code="bad_statement",
            rule="ME-2",
            fix="Write it as plain text.",
        )
    return text


def checked_scope(scope: str) -> str:
    """A scope. Raises UsageError for what is none, with what may have been meant."""
    if not is_scope(scope):
        raise UsageError(
            f"{scope!r} is no scope.",
            code="bad_scope",
            rule="ME-1",
            fix="Write global, project:NAME or user:NAME.",
            suggestions=near(scope, ("global", "project:NAME", "user:NAME")),
        )
    return scope


def freshness_of(recheck_after: str) -> str:
    """The freshness that this date comes to; none is ``stable``. Raises UsageError for no date."""
    if not recheck_after:
        return STABLE
    try:
        return f"{RECHECK}{date.fromisoformat(recheck_after).isoformat()}"
    except ValueError:
        raise UsageError(
            f"{recheck_after!r} is no date.",
            code="bad_date",
            rule="ME-1",
            fix="Write it as 2027-01-31.",
        ) from None


def short_line(text: str, what: str) -> str:
    """A reason or a reference as one line. Raises UsageError for one that is too long."""
    most = reason_chars_max if what == "reason" else evidence_chars_max
    line = _BLANKS.sub(" ", text).strip()
    if len(line) > most:
        raise UsageError(
            f"a {what} has at most {most} characters, this {len(line)}.",
            code="too_large",
            rule="ME-3",
            fix="Shorten it.",
        )
    return line
