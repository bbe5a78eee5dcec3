"""A failure in the words for people: its signature, and what was printed last.

Invariants: pure; one line. Never the signature itself, which is equal for equal failures.
"""

from typing import Final

said_chars_max: Final = 160


def last_said(text: str) -> str:
    """The last line of a text that is not empty, cut; what went wrong stands there as a rule."""
    lines = (" ".join(line.split()) for line in reversed(text.splitlines()))
    line = next(filter(None, lines), "")
    return line if len(line) <= said_chars_max else f"{line[: said_chars_max - 3]}..."


def as_seen(signature: str, detail: str) -> str:
    """A failure as people read it: its signature, and what was printed last.

    The signature alone stays what it is, equal for equal failures.
    """
    said = last_said(detail)
    return signature if not said or said in signature else f"{signature}: {said}"
