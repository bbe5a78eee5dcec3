"""Reading typed values out of the tree of a task file, and collecting what is wrong.

Job: one method per kind of value (text, truth, list, number, duration, word from a list, section
with known keys). Invariants: a method never raises; it notes a problem at the place of the value
and returns a harmless stand-in, so that one pass finds every problem.
Never: knows what the keys of a task file are.
"""

import math
import re
from collections.abc import Collection, Mapping
from typing import Final

from perdure.control.taskfile_tree import (
    Fields,
    Items,
    Place,
    Problem,
    Scalar,
    Tree,
    plain_value,
    problems_shown_max,
    scalar_value,
)
from perdure.core.durations import duration_max_s, seconds_of
from perdure.core.lookup import near
from perdure.core.model import ID_PATTERN

near_candidates_max: Final = 2_000
shown_chars_max: Final = 60


def shown(text: str) -> str:
    """A value quoted for a message, cut when it is long."""
    return repr(text if len(text) <= shown_chars_max else text[:shown_chars_max] + "...")


class FieldReader:
    """Collects the problems of one file while its values are read."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems

    def bad(self, place: Place, what: str, fix: str = "") -> None:
        """Note one problem."""
        self.problems.append(Problem(place, what, fix))

    def near_fix(self, word: str, words: Collection[str]) -> str:
        """``did you mean X?``, or nothing. Not searched for problems beyond those shown."""
        if len(self.problems) >= problems_shown_max:
            return ""
        close = near(word, [w for _, w in zip(range(near_candidates_max), words, strict=False)])
        return f"did you mean {' or '.join(close)}?" if close else ""

    def section(
        self, tree: Tree, name: str, keys: Collection[str], hints: Mapping[str, str]
    ) -> dict[str, tuple[Place, Tree]]:
        """The known keys of a mapping; every other key is a problem.

        ``hints`` names the right key for words that other tools use for the same thing.
        """
        if not isinstance(tree, Fields):
            self.bad(tree.place, f"{name} must be a mapping of {', '.join(keys)}")
            return {}
        known = {}
        for key, entry in tree.fields.items():
            if key in keys:
                known[key] = entry
                continue
            fix = f"write {hints[key]}" if key in hints else self.near_fix(key, keys)
            fix = fix or f"it knows {', '.join(keys)}"
            self.bad(entry[0], f"{name} has no key {shown(key)}", fix)
        return known

    def text(self, tree: Tree, name: str, *, chars_max: int | None = None) -> str:
        """A text that is not empty, as it is written; "" after a problem.

        Numbers and words such as ``yes`` are the text they look like.
        """
        if not isinstance(tree, Scalar):
            self.bad(tree.place, f"{name} must be a text", "write one value, in quotes if need be")
            return ""
        if (tree.plain and scalar_value(tree) is None) or not tree.text.strip():
            self.bad(tree.place, f"{name} is empty", "give a value, or remove the key")
            return ""
        if "\0" in tree.text:
            self.bad(tree.place, f"{name} holds a NUL character", "remove it")
            return ""
        if chars_max is not None and len(tree.text) > chars_max:
            what = f"{name} has {len(tree.text)} characters; {chars_max} is the most"
            self.bad(tree.place, what, "shorten it")
            return ""
        return tree.text

    def texts(self, tree: Tree, name: str) -> list[tuple[Place, str]]:
        """A list of texts with their places; faulty ones are left out."""
        if not isinstance(tree, Items):
            fix = "put each value on a line of its own, after '- '"
            if isinstance(tree, Scalar) and tree.text and "\n" not in tree.text:
                fix = f"write [{tree.text}]" if len(tree.text) <= shown_chars_max else fix
            self.bad(tree.place, f"{name} must be a list", fix)
            return []
        found = [(item.place, self.text(item, f"each of {name}")) for item in tree.items]
        return [(place, text) for place, text in found if text]

    def texts_of_env(self, tree: Tree, name: str) -> dict[str, str]:
        """A mapping of names to texts; an empty text is allowed."""
        if not isinstance(tree, Fields):
            self.bad(tree.place, f"{name} must be a mapping of names to texts")
            return {}
        found = {}
        for key, (place, value) in tree.fields.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
                self.bad(place, f"{shown(key)} is not the name of a variable")
            elif key.startswith("PERDURE_"):
                self.bad(place, f"{key} is reserved", "choose a name without PERDURE_")
            elif isinstance(value, Scalar) and not value.plain and value.text == "":
                found[key] = ""
            elif text := self.text(value, f"{name}.{key}"):
                found[key] = text
        return found

    def whole(self, tree: Tree, name: str, low: int, high: int) -> int | None:
        """A whole number between the two, both included."""
        value = scalar_value(tree) if isinstance(tree, Scalar) else None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            fix = f"write {name}: {max(low, 1)}"
            self.bad(tree.place, f"{name} must be a whole number from {low} to {high}", fix)
            return None
        return value

    def truth(self, tree: Tree, name: str) -> bool:
        """``true`` or ``false``; false after a problem."""
        value = plain_value(tree)
        if not isinstance(value, bool):
            self.bad(tree.place, f"{name} must be true or false")
        return value is True

    def amount(self, tree: Tree, name: str, *, above: bool = False) -> float | None:
        """A number from 0, or ``above`` it, that is finite."""
        value = scalar_value(tree) if isinstance(tree, Scalar) else None
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 <= value < math.inf
            or (above and not value)
        ):
            bound = "above 0" if above else "from 0"
            self.bad(tree.place, f"{name} must be a number {bound}", f"write {name}: 1.5")
            return None
        return float(value)

    def duration_s(self, tree: Tree, name: str) -> float | None:
        """Seconds above 0 from a plain number or a text such as 90s, 10m, 2h, 1h30m or 1d."""
        seconds = 0.0
        if isinstance(tree, Scalar):
            value = scalar_value(tree)
            if isinstance(value, int | float) and not isinstance(value, bool):
                seconds = float(value)
            elif not tree.text.strip()[-1:].isdigit():  # a number in quotes has no unit
                seconds = seconds_of(tree.text) or 0.0
        if not 0 < seconds <= duration_max_s:
            fix = "write seconds, or a text such as 90s, 10m or 2h"
            self.bad(tree.place, f"{name} must be a time above 0 and up to 366 days", fix)
            return None
        return seconds

    def word(self, tree: Tree, name: str, words: Collection[str]) -> str | None:
        """One word of a closed list."""
        text = tree.text if isinstance(tree, Scalar) else ""
        if text not in words:
            what = f"{name} must be one word" if not text else f"{name} cannot be {shown(text)}"
            self.bad(tree.place, what, f"use one of {', '.join(words)}")
            return None
        return text

    def identifier(self, tree: Tree, name: str, reserved: Collection[str] = ()) -> str:
        """An id; "" after a problem."""
        text = self.text(tree, name)
        return text if text and self.check_id(tree.place, text, name, reserved) else ""

    def check_id(self, place: Place, text: str, name: str, reserved: Collection[str]) -> bool:
        """Whether a text may be an id."""
        if not ID_PATTERN.match(text):
            fix = "use 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit"
            self.bad(place, f"{name} {shown(text)} is not an id", fix)
            return False
        if text in reserved:
            self.bad(place, f"{name} {shown(text)} is reserved", "choose another id")
            return False
        return True
