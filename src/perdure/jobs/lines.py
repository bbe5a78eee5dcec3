"""A finding as a line of findings.jsonl, and back (JB-1, JB-4, JB-7).

A line is the compact JSON of the caller's payload with ``_hash``, ``_key``, ``_at`` and, when an
item is more than its key, ``_item`` behind it. Invariants: what :func:`encode_line` returns is one
line that every JSON reader reads and that :func:`judge_line` accepts; no beginning of a line passes
for a whole one; :func:`scan_lines` finds exactly what :func:`judge_line` finds line by line.
Nothing here touches a file, and no line of others is ever changed.
"""

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from math import isfinite
from operator import length_hint
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.codec import to_json
from perdure.core.payload import text
from perdure.errors import UsageError

RESERVED_KEYS: Final = frozenset({"_hash", "_key", "_at", "_item"})
"""Fields of a line that are the contract's own; a payload may not have them."""
key_bytes_max: Final = 64 << 10
line_bytes_max: Final = 64 << 20
nesting_max: Final = 200
"""Lists and mappings inside each other. Readers give up somewhere, and never at the same depth."""

_HASH: Final = re.compile(r"[0-9a-f]{16}\Z")
_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = b" \t\r\n"
_NOT_JSON: Final = (TypeError, ValueError, OverflowError, RecursionError)


class Line(NamedTuple):
    """One finding, as far as the completed set is concerned."""

    hash: str
    """The item's hash, recomputed from the key when there is one."""
    key: str | None
    """None: the line has only a hash, which nothing on it proves."""
    at: str
    forged: bool
    """The line names another hash than the one of its key; that one is ignored."""


class BadLine(NamedTuple):
    """A line that is no finding, by its place in what was scanned."""

    line: int
    """Counted from 0."""
    byte: int
    """Where it starts."""
    size_bytes: int
    """Its length without the newline."""
    reason: str


class Scanned(NamedTuple):
    """What one piece of a log held."""

    lines: int
    """All lines, blank and bad ones included."""
    findings: int
    """Lines that are findings; an item that stands there twice counts twice."""
    bad: list[BadLine]


class _Fast(msgspec.Struct, gc=False):
    """What a line of the contract has for the completed set."""

    key: str = msgspec.field(name="_key")
    at: str = msgspec.field(name="_at", default="")


class _Loose(msgspec.Struct, gc=False):
    """The same of a line in which anything may be missing or of another type."""

    hash: Any = msgspec.field(name="_hash", default=None)
    key: Any = msgspec.field(name="_key", default=None)
    at: Any = msgspec.field(name="_at", default=None)


_decode_line: Final = msgspec.json.Decoder(_Fast).decode
_decode_lines: Final = msgspec.json.Decoder(_Fast).decode_lines
_decode_loose: Final = msgspec.json.Decoder(_Loose).decode


# Writing


def item_hash(key: str) -> str:
    """The first 16 hex digits of the sha256 of a key: what the completed set holds of an item.

    Raises UsageError (JB-4) for what :func:`check_key` refuses.
    """
    return sha256(check_key(key).encode()).hexdigest()[:16]


def check_key(key: object) -> str:
    """The key, when it can name an item. Raises UsageError (JB-4) when it cannot.

    A key is a text that is not empty, that UTF-8 can write, and that has at most
    ``key_bytes_max`` bytes.
    """
    if not isinstance(key, str):
        raise UsageError(
            f"a key is a text, and this is of type {type(key).__name__}.",
            code="bad_key",
            rule="JB-4",
            fix="Name each item by a text that stays the same in every run, such as its URL.",
        )
    if not key:
        raise UsageError(
            "a key is not empty.",
            code="bad_key",
            rule="JB-4",
            fix="Name each item by a text that stays the same in every run, such as its URL.",
        )
    try:
        size_bytes = len(key.encode())
    except UnicodeEncodeError:
        raise UsageError(
            "the key holds half a character (a lone surrogate), which UTF-8 cannot write.",
            code="bad_key",
            rule="JB-4",
            fix="Pass a key that is Unicode text; encode the bytes of a file name, say as hex.",
        ) from None
    if size_bytes > key_bytes_max:
        raise UsageError(
            f"the key has {size_bytes} bytes; {key_bytes_max} is the most.",
            code="key_too_long",
            rule="JB-4",
            fix="Use a shorter name for the item, such as a digest of the long one.",
        )
    return key


def encode_value(value: object, what: str) -> bytes:
    """Compact JSON that every reader reads. ``what`` names the value in a refusal.

    Raises UsageError (JB-4, code ``not_json``) for what JSON cannot hold: other types (dates and
    typed records are written as texts and mappings), numbers that are not finite, and more than
    ``nesting_max`` lists and mappings inside each other. Lone surrogates are written as escapes.
    """
    try:
        data = to_json(value)
        doubtful = any(word in data for word in (b"null", b"NaN", b"Infinity"))
        if doubtful or data.count(b"[") + data.count(b"{") > nesting_max:
            _check_readable(msgspec.to_builtins(value))
    except _NOT_JSON as error:
        raise UsageError(
            f"the {what} cannot be written as JSON: {error}.",
            code="not_json",
            rule="JB-4",
            fix="Pass texts, finite numbers, lists and mappings only.",
        ) from None
    return data


def _check_readable(value: object) -> None:
    """Raise ValueError for what encoders let through and a reader does not get back."""
    ahead = [(value, 1)]
    while ahead:
        thing, depth = ahead.pop()
        if isinstance(thing, float) and not isfinite(thing):
            raise ValueError(f"{thing} is not a number in JSON")
        if isinstance(thing, dict):
            thing = list(thing.values())
        if isinstance(thing, list | tuple):
            if depth > nesting_max:
                raise ValueError(f"it is nested more than {nesting_max} deep")
            ahead.extend((entry, depth + 1) for entry in thing)


def is_nested_deeply(value: object) -> bool:
    """Whether lists and mappings stand in each other so deeply that encoders may give up."""
    level = [value]
    for _ in range(nesting_max + 1):
        inner: list[object] = []
        for thing in level:
            if isinstance(thing, dict):
                inner += thing.values()
            elif isinstance(thing, list):
                inner += thing
        if not inner:
            return False
        level = inner
    return True


def item_digest(value: object) -> str:
    """``_item``: the first 16 hex digits of the sha256 of an item's canonical JSON.

    Canonical is compact with sorted names, so that an item is known again whatever order its
    fields come in. Raises UsageError as :func:`encode_value`.
    """
    encode_value(value, "item")
    return sha256(to_json(value, sort=True)).hexdigest()[:16]


def _check_payload(payload: object) -> None:
    if not isinstance(payload, Mapping) or not all(isinstance(field, str) for field in payload):
        raise UsageError(
            f"the payload is of type {type(payload).__name__}; it has to be a mapping whose keys"
            " are texts.",
            code="bad_payload",
            rule="JB-4",
            fix='Pass a mapping, such as {"output": value}.',
        )
    if not RESERVED_KEYS.isdisjoint(payload):
        used = ", ".join(sorted(RESERVED_KEYS.intersection(payload)))
        raise UsageError(
            f"the payload has {used}, which the log uses itself.",
            code="reserved_key",
            rule="JB-4",
            fix="Give the field another name.",
        )


def encode_line(
    key: str, payload: Mapping[str, Any], at: str, item: str | None = None
) -> tuple[str, bytes]:
    """The hash of an item and its line, newline included.

    The payload's fields come first, in their order. Raises UsageError (JB-4) for a key that names
    nothing, a payload that is no mapping with names for keys or that JSON cannot hold, a reserved
    name in it, and a line of more than ``line_bytes_max`` bytes.
    """
    name = item_hash(key)
    _check_payload(payload)
    fields = {**payload, "_hash": name, "_key": key, "_at": at}
    if item is not None:
        fields["_item"] = item
    line = encode_value(fields, "payload") + b"\n"
    if len(line) > line_bytes_max:
        raise UsageError(
            f"the finding has {len(line)} bytes as a line; {line_bytes_max} is the most.",
            code="finding_too_long",
            rule="JB-4",
            fix="Write the large part to a side file (write_artifact) and record its path.",
        )
    return name, line


# Reading


def judge_line(raw: bytes) -> Line | str:
    """The finding on a line, or what is wrong with it; an empty text for a blank line.

    Lines of other implementations are taken as they are: other fields, any ``_at`` or none, a
    carriage return or a byte order mark around the object. The key decides, whatever ``_hash``
    says; a line with a well-formed ``_hash`` and no usable key counts as well (it is not provable).
    """
    line = raw.removeprefix(_BOM).strip(_BLANK)
    if not line:
        return ""
    if not _is_utf8(line):
        return "not UTF-8"
    try:
        found = _decode_loose(line)
    except (msgspec.DecodeError, RecursionError):
        try:
            found = _decode_slowly(line)
        except ValueError as error:
            return str(error)
    at = text(found.at)
    if not _is_text(at):
        at = ""
    if isinstance(found.key, str) and _is_text(found.key):
        name = sha256(found.key.encode()).hexdigest()[:16]
        return Line(name, found.key, at, found.hash is not None and found.hash != name)
    if isinstance(found.hash, str) and _HASH.match(found.hash):
        return Line(found.hash, None, at, False)
    return "neither a text as _key nor 16 hex digits as _hash"


def _is_text(value: str) -> bool:
    """Whether UTF-8 can write it. JavaScript hashes something else than what does not fit."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decode_slowly(line: bytes) -> _Loose:
    """What only Python's decoder reads: lone surrogates, and NaN as Python itself writes it."""
    try:
        fields = json.loads(line.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at character {error.pos + 1})") from None
    except ValueError:  # a number with thousands of digits
        raise ValueError("not JSON that can be read") from None
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    return _Loose(fields.get("_hash"), fields.get("_key"), fields.get("_at"))


def scan_lines(data: bytes, completed: dict[str, str]) -> Scanned:
    """Enter every finding in ``data``, whole lines of a log, into ``completed``.

    The same as :func:`judge_line` on each line, at the cost of decoding and hashing them. Equal
    times of one call become one object, because a million of them are kept.
    """
    found = _decode_together(data)
    if found is None:
        return _scan_apart(data, completed)
    _enter(found, completed)
    return Scanned(len(found), len(found), [])


def _decode_together(data: bytes) -> list[_Fast] | None:
    """All lines in one go, or None when they have to be taken one by one.

    The decoder does not care where lines end. A newline between two braces can only be between two
    objects; where all are, but for the last, as many objects as lines means one on each.
    """
    count = data.count(b"\n")
    if not data.endswith(b"}\n") or data.count(b"}\n{") != count - 1 or not _is_utf8(data):
        return None
    try:
        found = _decode_lines(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if len(found) == count else None


def _enter(found: Iterable[_Fast], completed: dict[str, str]) -> None:
    digest = sha256
    shared: dict[str, str] = {}
    same = shared.setdefault
    for line in found:
        completed[digest(line.key.encode()).hexdigest()[:16]] = same(line.at, line.at)


def _scan_apart(data: bytes, completed: dict[str, str]) -> Scanned:
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    ahead = iter(lines)
    # Fields that the decoder passes over it does not look at: then each line is judged.
    decode = _decode_line if _is_utf8(data) else _refuse
    bad: list[BadLine] = []
    passed = start = blank = 0
    while True:
        try:
            _enter(map(decode, ahead), completed)
            return Scanned(len(lines), len(lines) - blank - len(bad), bad)
        except (msgspec.DecodeError, RecursionError):
            number = len(lines) - length_hint(ahead) - 1
        judged = judge_line(lines[number])
        if isinstance(judged, Line):
            completed[judged.hash] = judged.at
        elif judged:
            start += sum(map(len, lines[passed:number])) + number - passed
            passed = number
            bad.append(BadLine(number, start, len(lines[number]), judged))
        else:
            blank += 1


def _refuse(line: bytes) -> _Fast:
    raise msgspec.DecodeError(f"{len(line)} bytes that are not looked at")
