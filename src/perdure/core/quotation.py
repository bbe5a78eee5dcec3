"""Text of others in a page of Markdown: as JSON in a code span, or as a block of code.

Job: show what items, people and other programs have written, so that a reader sees all of it as a
text and nothing of it as more. Invariants: no text can end the span or the block it stands in,
start a line, or hold what is not seen; what is cut is marked outside of it, so that no text can
pretend it. Never looks at more of a value than it can show.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from textwrap import wrap
from typing import Final, NamedTuple

import msgspec

from perdure.core.codec import to_json

CUT: Final = "..."
"""Behind what was cut."""
block_columns: Final = 96
"""Where a line of a block is broken, at a blank where there is one."""

_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Printable by Unicode, and yet nothing to see: fillers, joiners and variation selectors, in which
# whole hidden texts have been written.
_UNSEEN: Final = frozenset(
    map(
        chr,
        [
            0x034F,
            *range(0x115F, 0x1161),
            *range(0x17B4, 0x17B6),
            *range(0x180B, 0x1810),
            0x2800,
            0x3164,
            *range(0xFE00, 0xFE10),
            0xFFA0,
            *range(0xE0100, 0xE01F0),
        ],
    )
)


def span(value: object, most: int) -> str:
    """A code span with the value as JSON, of at most ``most`` characters without the marks."""
    shown: list[str] = []
    room = most
    for token in _tokens(value, most):
        room -= len(token)
        if room < 0:
            shown.append(_fitting(token, room + len(token)))
            return f"`{''.join(shown)}{CUT}`"
        shown.append(token)
    return f"`{''.join(shown)}`"


def _fitting(token: str, room: int) -> str:
    """The beginning of a token for the room that is left; a text stays a closed text."""
    if not token.startswith('"') or room < 2:
        return ""
    shown = ['"']
    room -= 2
    for piece in _ESCAPED.findall(token[1:-1]):
        room -= len(piece)
        if room < 0:
            break
        shown.append(piece)
    return "".join(shown) + '"'


_ESCAPED: Final = re.compile(r"(?:\\ud[89ab]..\\u....|\\u....|\\.|[^\\])")


class _Mark(str):
    """A piece of JSON between values, to be shown as it is."""

    __slots__ = ()


def _tokens(value: object, most: int) -> Iterator[str]:
    """The JSON of a value in pieces, as far as ``most`` characters can show: never all of it."""
    ahead: list[object] = [value]
    while ahead:
        thing = ahead.pop()
        if isinstance(thing, _Mark):
            yield thing
        elif isinstance(thing, str):
            yield _quoted(thing[: most + 1])
        elif isinstance(thing, Mapping):
            inner: list[object] = [_Mark("{")]
            for number, (name, entry) in enumerate(islice(thing.items(), most)):
                inner += [_Mark(","), str(name), _Mark(":"), entry][not number :]
            ahead += reversed([*inner, _Mark("}")])
        elif isinstance(thing, list | tuple):
            inner = [_Mark("[")]
            for number, entry in enumerate(thing[:most]):
                inner += [_Mark(","), entry][not number :]
            ahead += reversed([*inner, _Mark("]")])
        elif thing is None or isinstance(thing, bool | int | float):
            yield _number(thing)
        else:
            ahead.append(_builtin(thing))


def _number(thing: object) -> str:
    try:
        return to_json(thing).decode()
    except (TypeError, ValueError, OverflowError):  # thousands of digits; or a type derived from it
        return _quoted(type(thing).__name__)


def _builtin(thing: object) -> object:
    """What the log has in place of a date or a record; of anything else the type's name."""
    try:
        return msgspec.to_builtins(thing)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return type(thing).__name__


def _quoted(text: str) -> str:
    """A JSON text in which everything is seen, and nothing is a backtick."""
    if text.isascii() and text.isprintable():
        text = text.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\u0060")
        return f'"{text}"'
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    short = _SHORT.get(character)
    if short:
        return short
    if character.isprintable() and character != "`" and character not in _UNSEEN:
        return character
    code = ord(character)
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    code -= 0x10000  # JSON writes what is beyond as two surrogates
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


# Names and blocks


class Block(NamedTuple):
    """A text as rows of an indented block of code."""

    rows: list[str]
    is_whole: bool
    """Whether that is all of the text."""


_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,127}\Z")


def named(text: str, most: int = 64) -> str:
    """A code span with the name; one with other characters than names have is quoted as JSON."""
    return f"`{text}`" if _PLAIN_NAME.match(text) else span(text, most)


_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)?\Z")


def timed(at: str) -> str:
    """A time of an event as it is; what is no time is quoted as other text is."""
    return at if _TIME.match(at) else span(at, 64)


def block(text: str, *, chars_max: int, rows_max: int, columns: int = block_columns) -> Block:
    """The text as a block of code: its lines stay lines, long ones go on in the next row.

    It has to stand between blank rows, and not behind another block, which it would be a part of.
    """
    shown = text[:chars_max].replace("\r\n", "\n").replace("\r", "\n").rstrip()
    rows: list[str] = []
    for line in shown.split("\n"):
        seen = "".join(map(_seen, line.expandtabs(4)))
        rows += wrap(seen, columns, replace_whitespace=False, break_on_hyphens=False) or [""]
        if len(rows) > rows_max:
            break
    if not any(rows):
        rows = ['""']
    return Block(
        [f"    {row}" for row in rows[:rows_max]], len(text) <= chars_max and len(rows) <= rows_max
    )


def _seen(character: str) -> str:
    """The character, where a reader sees it; a blank of whatever kind as the plain one."""
    if character.isprintable() and character not in _UNSEEN:
        return character
    return " " if character.isspace() else _escaped(character)
