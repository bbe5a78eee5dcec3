"""What the points of the rubric mean, for a judge and a reviser that are mere programs.

A judge and a reviser that can read would not need this: there the points are what they are given.
"""

import re
import textwrap
from collections.abc import Callable

line_chars_max = 100
DOUBLED = re.compile(r"\b(\w+)(\s+)\1\b")
EMPTY_HEADING = re.compile(r"^#+ .*\n\s*(?=^#+ |\Z)", re.MULTILINE)


def long_lines(text: str) -> list[int]:
    return [n for n, line in enumerate(text.splitlines(), 1) if len(line) > line_chars_max]


def doubled_words(text: str) -> list[int]:
    return [text.count("\n", 0, match.start()) + 1 for match in DOUBLED.finditer(text)]


def empty_headings(text: str) -> list[int]:
    return [text.count("\n", 0, match.start()) + 1 for match in EMPTY_HEADING.finditer(text)]


def wrap(text: str) -> str:
    parts = text.split("\n\n")
    return "\n\n".join(p if p.startswith("#") else textwrap.fill(p, line_chars_max) for p in parts)


FAULTS: dict[str, Callable[[str], list[int]]] = {
    "No line is longer than 100 characters.": long_lines,
    "No word stands twice in a row.": doubled_words,
    "Every heading has a text below it.": empty_headings,
}
"""Point to the lines that break it."""
CURES: dict[str, Callable[[str], str]] = {
    "No line is longer than 100 characters.": lambda text: wrap(text.rstrip("\n")) + "\n",
    "No word stands twice in a row.": lambda text: DOUBLED.sub(r"\1", text),
    "Every heading has a text below it.": lambda text: EMPTY_HEADING.sub("", text),
}
"""Point to what makes it hold."""
