"""The values that a procedure is called with: their types, their defaults, and what is refused.

Job: turn what a caller gives (JSON values, or ``NAME=VALUE`` words) into a value for each input of
a card. Invariants: what comes back meets the schema of its input; a path or a pattern comes back
absolute, so that it means the same wherever the instance works; everything that is wrong is told
at once. Never: looks whether a file is there.
"""

import json
import os
import posixpath
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from perdure.control.sop_card import Card, CardInput
from perdure.core.batch import is_of_workspace
from perdure.core.lookup import near
from perdure.errors import CheckFailedError, HaltError, UsageError
from perdure.runtime.verify import schema_errors

value_bytes_max: Final = 64 << 10
inputs_bytes_max: Final = 256 << 10
problem_chars_max: Final = 300

_NONE: Final[Mapping[str, str]] = {}
_TEXT: Final = {"type": "string", "minLength": 1}
_TEXTS: Final = {"type": "array", "items": _TEXT}
WORDS: Final[Mapping[str, dict[str, Any]]] = {
    "text": _TEXT,
    "path": _TEXT,
    "glob": _TEXT,
    "command": {"anyOf": [_TEXT, {**_TEXTS, "minItems": 1}]},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "texts": _TEXTS,
    "object": {"type": "object"},
    "any": {},
}
"""Type words of cards and the JSON Schema that each stands for."""
WORD_HINTS: Final = {
    "string": "text", "str": "text", "file": "path", "directory": "path", "pattern": "glob",
    "int": "integer", "float": "number", "bool": "boolean", "list": "texts", "array": "texts",
    "argv": "command", "mapping": "object", "dict": "object", "json": "any",
}  # fmt: skip


def schema_problem(schema: Mapping[str, Any]) -> str:
    """Why this is no JSON Schema, as a phrase; empty when it is one."""
    if _refers(schema):
        return "it refers to another schema, which it must hold itself"
    try:
        schema_errors(dict(schema))
    except CheckFailedError as error:
        return _phrase(error)
    return ""


def _phrase(error: CheckFailedError) -> str:
    return error.message.removeprefix("the schema is ").rstrip(".")[:problem_chars_max]


def _refers(value: object) -> bool:
    if isinstance(value, Mapping):
        named = value.get("$ref")
        if isinstance(named, str) and not named.startswith("#"):
            return True
        return any(_refers(one) for one in value.values())
    return isinstance(value, list) and any(_refers(one) for one in value)


def value_problem(one: CardInput, value: object) -> str:
    """What is wrong with a value of this input, as a phrase; empty when nothing is."""
    try:
        size = len(json.dumps(value, allow_nan=False).encode("utf-8", "strict"))
    except (TypeError, ValueError, RecursionError) as error:
        return f"it cannot be written as JSON: {error}"
    if size > value_bytes_max:
        return f"it takes {size} bytes; {value_bytes_max} is the most"
    if _holds_nul(value):
        return "it holds a NUL character"
    check = _BY_HAND.get(one.word)
    if check is not None:
        return "" if check(value) else f"it must be {_EXPECTED[one.word]}"
    if not one.schema:
        return ""
    try:
        found = schema_errors(one.schema)(value)
    except CheckFailedError as error:
        return _phrase(error)
    return found[0].removeprefix("$: ")[:problem_chars_max] if found else ""


def bind_inputs(
    card: Card,
    given: Mapping[str, Any],
    *,
    directory: str,
    workspace: str = "",
    told: Mapping[str, str] = _NONE,
) -> dict[str, Any]:
    """A value for every input of the card: what is given, else its default, else None.

    A relative ``path`` or ``glob`` counts from ``directory``, an absolute path; one below
    ``artifacts/`` or ``tmp/`` from ``workspace``, where that is named. Defaults count from there as
    well. ``told`` has the problems that are known of some names, of which no more is said. Raises
    UsageError ``sop_inputs`` with every problem.
    """
    names = [one.name for one in card.inputs]
    problems = list(told.values())
    problems += [
        f"there is no input {name!r}" + _meant(near(name, names), names)
        for name in given
        if name not in names
    ]
    bound: dict[str, Any] = {}
    for one in card.inputs:
        if one.name in told:
            continue
        value = given.get(one.name)
        if value is None:
            value = one.default
        if value is None:
            bound[one.name] = None
            if one.required:
                about = one.about or f"write it as {one.word or 'its schema says'}"
                problems.append(f"{one.name} is missing ({about})")
            continue
        problem = value_problem(one, value)
        if problem:
            problems.append(f"{one.name}: {problem}")
        else:
            bound[one.name] = _absolute(one, value, directory, workspace)
    size = len(json.dumps(bound, default=str))
    if not problems and size > inputs_bytes_max:
        problems.append(f"they take {size} bytes; {inputs_bytes_max} is the most")
    if problems:
        raise _refused(card, problems)
    return bound


def read_input_words(card: Card, words: Iterable[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The inputs that ``NAME=VALUE`` words give, read by the type of each; and what is wrong.

    A type that is no text is JSON; of a list of texts the name may come several times. An unknown
    name is left to :func:`bind_inputs`, which also takes the problems, by name.
    """
    found: dict[str, Any] = {}
    told: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        one = card.input_named(name)
        if not equals or not name:
            told[name or word] = f"{word!r} is not NAME=VALUE"
        elif one is None:
            found[name] = text
        elif one.word == "texts" and not text.startswith("["):
            found[name] = [*found.get(name, []), text]
        elif name in found:
            told[name] = f"{name} stands here twice"
        else:
            try:
                found[name] = _read_word(one, text)
            except ValueError as error:
                told[name] = f"{name}: {text[:80]!r} is no JSON value ({error})"
    return found, told


def _read_word(one: CardInput, text: str) -> Any:
    if one.word in ("text", "path", "glob") or (one.word == "command" and text[:1] != "["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if one.word in ("", "any"):
            return text  # a text needs no quotes where a text may stand
        raise ValueError(str(error)) from None


def sample_of(one: CardInput) -> Any:
    """A value that a card can be validated with before anybody calls it; None: left out."""
    if one.default is not None or not one.required:
        return one.default
    samples: dict[str, Any] = {
        "text": "sample", "path": "/sample", "glob": "/sample/*", "command": ["true"],
        "integer": 1, "number": 1, "boolean": True, "texts": ["sample"], "object": {},
        "any": "sample",
    }  # fmt: skip
    if one.word:
        return samples[one.word]
    schema = one.schema
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if schema.get(key):
            return schema[key][0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("maximum", 1))
    return {"string": "sample", "boolean": True, "array": ["sample"], "object": {}}.get(
        str(kind), "sample"
    )


def _absolute(one: CardInput, value: Any, directory: str, workspace: str) -> Any:
    if one.word not in ("path", "glob") or os.path.isabs(value):
        return value
    base = workspace if workspace and is_of_workspace(value) else directory
    joined = posixpath.join(base, value.removeprefix("./"))
    return posixpath.normpath(joined) if one.word == "path" else joined


def _meant(close: list[str], names: list[str]) -> str:
    if close:
        return f" (did you mean {' or '.join(close)}?)"
    return f" (it takes {', '.join(names)})" if names else " (it takes none)"


def _refused(card: Card, problems: list[str]) -> HaltError:
    return UsageError(
        f"the inputs of {card.sop_id} {card.version} cannot be used:\n  "
        + "\n  ".join(problems)
        + "\n",
        code="sop_inputs",
        fix=f"`perdure sop show {card.sop_id}` lists its inputs. Nothing was started.",
    )


def _holds_nul(value: object) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, Mapping):
        return any(_holds_nul(one) for pair in value.items() for one in pair)
    return isinstance(value, list | tuple) and any(_holds_nul(one) for one in value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(_is_text(one) for one in value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_BY_HAND: Final[Mapping[str, Callable[[object], bool]]] = {
    "text": _is_text,
    "path": _is_text,
    "glob": _is_text,
    "command": lambda value: _is_text(value) or (_are_texts(value) and bool(value)),
    "integer": _is_integer,
    "number": lambda value: _is_integer(value) or isinstance(value, float),
    "boolean": lambda value: isinstance(value, bool),
    "texts": _are_texts,
    "object": lambda value: isinstance(value, Mapping),
    "any": lambda _: True,
}
"""What most values are held to, without loading anything for it."""
_EXPECTED: Final = {
    "text": "a text that is not empty",
    "path": "a path",
    "glob": "a pattern of paths",
    "command": "a command line, or a list of words",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "texts": "a list of texts",
    "object": "a mapping",
    "any": "a JSON value",
}
