"""Entries of the memory store: what one is, which lines of a file are some, which of them count.

Job: the record, its line and its chain, the limits, and what supersedes what, all as pure
functions. Invariants: an entry is one line, chained to those before it like an event (ADR 0001), so
an edited line is found; what follows the last whole line is told apart as torn or as damage; an
entry counts while nothing supersedes it (ME-1); one without evidence is a draft (ME-3).
"""

import re
from collections.abc import Iterable, Mapping
from datetime import date
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.codec import GENESIS, Damage, chain, from_json, to_json
from perdure.core.model import ID_PATTERN

KINDS: Final = ("env", "method", "preference", "pitfall", "postmortem")
STORES: Final = ("project", "user")

statement_chars_max: Final = 2_000
evidence_refs_max: Final = 20
evidence_chars_max: Final = 500
reason_chars_max: Final = 500
store_bytes_max: Final = 64 << 20

MEMORY_ID: Final = re.compile(r"MEM-(\d{1,9})\Z")
STABLE: Final = "stable"
RECHECK: Final = "recheck-after:"


class Entry(msgspec.Struct, frozen=True):
    """One thing that is known, as its line says it (HALT-10)."""

    id: str
    statement: str
    kind: str = "method"
    scope: str = "global"
    evidence_refs: tuple[str, ...] = ()
    """Where it can be looked up; none makes it a draft."""
    created: str = ""
    supersedes: tuple[str, ...] = ()
    freshness: str = STABLE
    by: str = ""
    """Who wrote it: an actor. Empty in lines of others."""
    distinct: str = ""
    """Why it was added though another entry says nearly the same."""
    proposal: str = ""
    """The proposal of a task that it comes from: ``TASK#J-n/P-1``."""
    op: str = ""
    """The op id of the call, which makes it repeatable."""
    masked: dict[str, int] = {}
    """Secrets that were masked in it, by name (SE-1)."""
    h: str = ""

    @property
    def number(self) -> int:
        """The number in its id; 0 where that is of another form."""
        match = MEMORY_ID.match(self.id)
        return int(match[1]) if match else 0

    @property
    def is_draft(self) -> bool:
        """Whether nothing backs it (ME-3)."""
        return not self.evidence_refs

    @property
    def sha256(self) -> str:
        """Of its statement: what a decision cites."""
        return sha256(self.statement.encode("utf-8", "surrogatepass")).hexdigest()


class Reading(NamedTuple):
    """What the bytes of ``entries.jsonl`` say."""

    entries: tuple[Entry, ...]
    value: bytes
    """Running value of the chain after the last whole line."""
    offset: int
    """Byte after the last whole line."""
    last: int
    """Byte where that line starts."""
    unended: bool
    """The last line is whole but for its newline."""
    torn: bytes
    """What an unfinished write left behind the last whole line."""
    damage: Damage | None
    """The first line that cannot stand where it stands, when it is no torn tail."""
    unchained: int
    """Lines without a chain value, which others wrote."""

    @property
    def h(self) -> str:
        """The chain value after the last whole line, as a line shows it."""
        return self.value.hex()[:16]


def memory_id(number: int) -> str:
    """The id of this number: ``MEM-0042``."""
    return f"MEM-{number:04d}"


def canonical_id(typed: str) -> str:
    """The id that somebody typed, such as ``mem-42``; other text as it is."""
    match = MEMORY_ID.match(typed.strip().upper())
    return memory_id(int(match[1])) if match else typed.strip()


def encode_entry(before: bytes, entry: Entry) -> bytes:
    """The line of an entry after the running value ``before``, with its newline."""
    fields: dict[str, Any] = {
        "id": entry.id,
        "kind": entry.kind,
        "scope": entry.scope,
        "statement": entry.statement,
        "evidence_refs": entry.evidence_refs,
        "created": entry.created,
        "supersedes": entry.supersedes,
        "freshness": entry.freshness,
        "by": entry.by,
    }
    for name in ("distinct", "proposal", "op", "masked"):
        if getattr(entry, name):
            fields[name] = getattr(entry, name)
    head = to_json(fields)[:-1]
    shown = sha256(before + head).hexdigest()[:16]
    return b"".join((head, b',"h":"', shown.encode(), b'"}\n'))


def read_entries(data: bytes) -> Reading:
    """The entries in the bytes of a store, up to the first line that cannot stand there."""
    entries: list[Entry] = []
    known: set[str] = set()
    value, offset, last, unchained = GENESIS, 0, 0, 0
    while offset < len(data):
        end = data.find(b"\n", offset)
        line = data[offset:] if end < 0 else data[offset:end]
        if not line.strip():
            if end < 0:
                break
            offset = end + 1
            continue
        entry, after, reason = _entry_of(value, line, known)
        if entry is None or (end < 0 and not entry.h):
            whole = Reading(tuple(entries), value, offset, last, False, b"", None, unchained)
            return _ended(data, whole, reason)
        unchained += not entry.h
        entries.append(entry)
        known.add(entry.id)
        value, last = after, offset
        offset = len(data) if end < 0 else end + 1
        if end < 0:
            return Reading(tuple(entries), value, offset, last, True, b"", None, unchained)
    torn = data[offset:]
    return Reading(tuple(entries), value, offset, last, False, torn, None, unchained)


def _entry_of(before: bytes, line: bytes, known: set[str]) -> tuple[Entry | None, bytes, str]:
    """The entry on a line, the running value after it, and why it cannot stand there."""
    try:
        entry = from_json(line, Entry)
    except (ValueError, UnicodeDecodeError):
        return None, before, "it is no entry"
    after, chained = chain(before, line)
    if chained is False or (chained is None and (entry.by or entry.h)):
        return None, before, "its hash chain value h does not match its bytes"
    if entry.id in known:
        return None, before, f"{entry.id} is there already"
    return entry, after, ""


def _ended(data: bytes, whole: Reading, reason: str) -> Reading:
    """Tell what an unfinished write leaves from damage: nothing torn is JSON, on no line of it."""
    rest = data[whole.offset :]
    if not any(map(_is_record, rest.split(b"\n"))):
        return whole._replace(torn=rest)
    line = data.count(b"\n", 0, whole.offset) + 1
    return whole._replace(damage=Damage(line, whole.offset, reason or "its newline is missing"))


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


class Chains:
    """What supersedes what among the entries of one store."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries: dict[str, Entry] = {entry.id: entry for entry in entries}
        self.by: dict[str, str] = {}
        """Superseded id to the first entry that supersedes it."""
        for entry in self.entries.values():
            for old in entry.supersedes:
                if old in self.entries and old != entry.id:
                    self.by.setdefault(old, entry.id)

    @property
    def heads(self) -> list[Entry]:
        """What counts, the oldest first."""
        return [entry for entry in self.entries.values() if entry.id not in self.by]

    def head_of(self, name: str) -> Entry:
        """The entry that counts in the place of this one; itself where nothing supersedes it."""
        seen = {name}
        while (after := self.by.get(name)) is not None and after not in seen:
            seen.add(after)
            name = after
        return self.entries[name]

    def chain_of(self, name: str) -> list[Entry]:
        """Everything that led to this entry's head, the oldest first, the head last."""
        ahead, found = [self.head_of(name).id], set[str]()
        while ahead:
            one = ahead.pop()
            if one in self.entries and one not in found:
                found.add(one)
                ahead += self.entries[one].supersedes
        return [entry for entry in self.entries.values() if entry.id in found]

    def dangling(self) -> dict[str, list[str]]:
        """Entries that supersede what is not there, which only lines of others can."""
        return {
            entry.id: unknown
            for entry in self.entries.values()
            if (unknown := [old for old in entry.supersedes if old not in self.entries])
        }


def recheck_date(freshness: str) -> date | None:
    """The date of ``recheck-after:DATE``; None where there is none that can be read."""
    if not freshness.startswith(RECHECK):
        return None
    try:
        return date.fromisoformat(freshness.removeprefix(RECHECK))
    except ValueError:
        return None


def flags_of(entry: Entry, today: date, *, superseded: bool = False) -> list[str]:
    """What to mind before relying on it: ``superseded``, ``draft``, ``due``, ``recheck``.

    ``due``: its date is over, or its freshness cannot be read. ``recheck``: of kind ``env``, which
    is about what changes by itself, so it is looked at again even when stable (HALT-10, 3).
    """
    flags = ["superseded"] if superseded else []
    if entry.is_draft:
        flags.append("draft")
    if entry.freshness != STABLE:
        due = recheck_date(entry.freshness)
        if due is None or today > due:
            flags.append("due")
    if entry.kind == "env" and "due" not in flags:
        flags.append("recheck")
    return flags


def is_scope(scope: str) -> bool:
    """Whether it is ``global``, ``project:NAME`` or ``user:NAME``."""
    kind, colon, name = scope.partition(":")
    if not colon:
        return scope == "global"
    return kind in STORES and ID_PATTERN.match(name) is not None


def project_scope(directory: str) -> str:
    """The scope of the project in a directory of this name."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", directory).strip("-._")[:60]
    return f"project:{name or 'default'}"


def store_of_scope(scope: str) -> str:
    """Where an entry of this scope goes unless somebody says otherwise."""
    return "project" if scope.startswith("project:") else "user"


def scopes_meet(one: str, other: str) -> bool:
    """Whether there is a reader to whom both apply, so that they can say the same twice."""
    return one == other or "global" in (one, other)


def is_control(character: str) -> bool:
    """Whether a statement may not hold it: it moves a cursor, or it is not seen."""
    code = ord(character)
    return code < 0x20 or 0x7F <= code < 0xA0 or code in _BREAKS


_BREAKS: Final = frozenset({0x2028, 0x2029, 0xFEFF, *range(0x202A, 0x202F), *range(0x2066, 0x206A)})


def counted_by(entries: Iterable[Entry]) -> Mapping[tuple[str, str], int]:
    """How many there are of each kind and scope, the most first."""
    counts: dict[tuple[str, str], int] = {}
    for entry in entries:
        key = (entry.kind, entry.scope)
        counts[key] = counts.get(key, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
