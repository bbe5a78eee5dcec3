"""Putting the values of inputs where a card says ``{{name}}``.

Job: fill a tree of a card with values, and say where a value may not stand. Invariants: every
value keeps the place of the text that names it; a value never becomes part of a shell line (what
is not a command of its own reaches a shell only through a variable); a text that only names an
input has that input's type, and without a value the key or list entry around it goes away.
Never: runs or reads anything.
"""

import json
import posixpath
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

from perdure.control.taskfile_tree import Fields, Items, Place, Scalar, Tree
from perdure.core.lookup import near

Complain = Callable[[str, Place, str, str], None]
"""Takes a code, a place, what is wrong, and what puts it right."""

UNKNOWN: Final = "sop_unknown_input"
SHELL: Final = "sop_value_in_shell"
PLACED: Final = "sop_value_misplaced"

_REFERENCE: Final = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_COMMAND_KEYS: Final = frozenset({"run", "script"})
_SHELLS: Final = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash"}
)
_SCRIPT_FLAG: Final = re.compile(r"-[A-Za-z]*c[A-Za-z]*\Z")
"""The next word is a script: ``-c``, also among others; a long option is none."""
_METHOD_TEXT: Final = re.compile(r"\s*(script|audit)\s*:")


def references(text: str) -> list[str]:
    """The names in ``{{...}}``, in order."""
    return [match[1] for match in _REFERENCE.finditer(text)]


def whole_reference(text: str) -> str | None:
    """The one name that the text consists of; None where it is anything else."""
    match = _REFERENCE.fullmatch(text.strip())
    return match[1] if match else None


def fill_text(text: str, values: Mapping[str, Any]) -> str:
    """The text with its values; every name in it is known and has a value that is one word."""
    return _REFERENCE.sub(lambda match: _as_text(values[match[1]]), text)


def fill(tree: Tree, values: Mapping[str, Any]) -> Tree | None:
    """The tree with its values; None where it only named an input that has none.

    Every name in it is known: :func:`check_references` has been over it.
    """
    if isinstance(tree, Scalar):
        return _fill_scalar(tree, values)
    if isinstance(tree, Items):
        return Items(tree.place, _fill_items(tree, values))
    filled = {}
    for key, (place, value) in tree.fields.items():
        entry = fill(value, values)
        if entry is not None:
            filled[key] = (place, entry)
    return Fields(tree.place, filled)


def _fill_items(tree: Items, values: Mapping[str, Any]) -> list[Tree]:
    found: list[Tree] = []
    for item in tree.items:
        name = whole_reference(item.text) if isinstance(item, Scalar) else None
        entry = fill(item, values)
        if entry is None:
            continue
        if name is not None and isinstance(entry, Items):
            found += entry.items
        else:
            found.append(entry)
    return found


def _fill_scalar(tree: Scalar, values: Mapping[str, Any]) -> Tree | None:
    name = whole_reference(tree.text)
    if name is not None:
        value = values[name]
        return None if value is None else tree_of(value, tree.place)
    if "{{" not in tree.text:
        return tree
    return tree._replace(text=fill_text(tree.text, values), plain=False)


def tree_of(value: Any, place: Place) -> Tree:
    """A JSON value as a tree at this place."""
    if isinstance(value, str):
        return Scalar(place, value, plain=False)
    if isinstance(value, list | tuple):
        return Items(place, [tree_of(one, place) for one in value])
    if isinstance(value, Mapping):
        return Fields(place, {str(k): (place, tree_of(one, place)) for k, one in value.items()})
    return Scalar(place, json.dumps(value), plain=True)


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def check_references(tree: Tree, words: Mapping[str, str], complain: Complain) -> None:
    """Complain of every ``{{name}}`` that is no input, or that may not stand where it stands.

    ``words`` has the type word of each input.
    """
    _Checker(words, complain).check(tree, "")


class _Checker:
    def __init__(self, words: Mapping[str, str], complain: Complain) -> None:
        self._words = words
        self._complain = complain

    def check(self, tree: Tree, key: str) -> None:
        """``key`` is that of the value, or of the list that it stands in; empty for a check."""
        if isinstance(tree, Scalar):
            self._scalar(tree, shell=key in _COMMAND_KEYS or _is_script(tree, key))
        elif isinstance(tree, Items):
            script = _script_of_shell(tree)
            for item in tree.items:
                if isinstance(item, Scalar):
                    self._scalar(item, shell=item is script or _is_script(item, key))
                else:
                    self.check(item, key)
        else:
            for name, (place, value) in tree.fields.items():
                if references(name):
                    what = "the name of a key cannot hold a value"
                    self._complain(PLACED, place, what, "write the key out")
                self.check(value, name)

    def _scalar(self, tree: Scalar, *, shell: bool) -> None:
        names = references(tree.text)
        whole = whole_reference(tree.text)
        for name in names:
            if name not in self._words:
                what = f"there is no input {name!r}"
                self._complain(UNKNOWN, tree.place, what, self._known(name))
            elif shell and (whole is None or self._words[name] != "command"):
                what = f"the input {name} would become part of a shell line"
                fix = f'read "$PERDURE_INPUT_{name.upper()}" there, or write a list of words'
                self._complain(SHELL, tree.place, what, fix)
            elif whole is None and self._words[name] in ("texts", "object", "command", "any", ""):
                what = f"the input {name} is not one word, so it cannot stand inside a text"
                fix = f'write "{{{{{name}}}}}" alone, or read it from the file PERDURE_INPUTS'
                self._complain(PLACED, tree.place, what, fix)

    def _known(self, name: str) -> str:
        close = near(name, self._words)
        if close:
            return f"did you mean {' or '.join(close)}?"
        return f"its inputs are {', '.join(self._words)}" if self._words else "it declares none"


def _is_script(tree: Scalar, key: str) -> bool:
    """Whether it is a check in one line whose argument is a command."""
    return key in ("", "accept") and bool(_METHOD_TEXT.match(tree.text))


def _script_of_shell(tree: Items) -> Scalar | None:
    """The word of an argument vector that a shell reads as its script."""
    words = [item for item in tree.items if isinstance(item, Scalar)]
    named = (i for i, word in enumerate(words) if posixpath.basename(word.text) in _SHELLS)
    first = next(named, len(words))  # another program may start it, such as env or timeout
    for flag, script in pairwise(words[first:]):
        if _SCRIPT_FLAG.match(flag.text):
            return script
    return None
