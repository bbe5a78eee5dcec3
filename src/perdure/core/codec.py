"""Event to journal line and back, and the hash chain over the lines (ADR 0001).

The running value after a line is ``sha256(previous running value + the line's bytes before
',"h":')``; a line shows its first 16 hexadecimal digits as its last key ``h``. A line without
``h`` (written by others, who have no ``epoch`` either) enters the running value with all its bytes
but trailing blanks. Invariants: encoding is deterministic; ``decode(encode(x)) == x`` for any text,
lone surrogates included, and the events of a commit are what reading it back gives; a scan yields
whole commits only, so nothing is folded that was not committed. Nothing here touches a file.
"""

import json
import re
from binascii import b2a_hex
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from perdure.core.events import Draft, Entity, Event, upcast
from perdure.errors import UsageError

GENESIS: Final = b"\0" * 32
moment_least_s: Final = -62_135_596_800.0
moment_most_s: Final = 253_402_300_799.0
"""The moments that :func:`timestamp` can write: those of the years 1 to 9999."""
_H_KEY: Final = b',"h":"'
_H_END: Final = b'"}'
_H_TAIL_BYTES: Final = 24  # ,"h":"0123456789abcdef"}
_EVENT_START: Final = re.compile(rb'\{"seq":\d+,"ts":')
_encoder: Final = msgspec.json.Encoder()
_sorter: Final = msgspec.json.Encoder(order="sorted")
_decoder: Final = msgspec.json.Decoder(Event)


T = TypeVar("T")


class ChainTip(msgspec.Struct, frozen=True):
    """Where a journal prefix ends, and enough of its chain to prove it and to go on."""

    seq: int
    offset: int
    """Byte after the last line's newline."""
    value: bytes
    """Running value after the last line."""
    start: int
    """Byte where the last line starts."""
    before: bytes
    """Running value before the last line."""

    @property
    def h(self) -> str:
        """What the last line shows, or would show."""
        return self.value.hex()[:16]


EMPTY_TIP: Final = ChainTip(0, 0, GENESIS, 0, GENESIS)


class Damage(NamedTuple):
    """The first line that is not a valid continuation of the journal."""

    line: int
    byte: int
    reason: str


class Commit(msgspec.Struct, frozen=True):
    """What to write, and what it will mean once it is durable."""

    data: bytes
    events: tuple[Event, ...]
    tip: ChainTip


def timestamp(now: float) -> str:
    """A moment in seconds since 1970 as the journal writes it: ISO-8601, UTC, milliseconds."""
    seconds, milliseconds = divmod(round(now * 1e6) // 1_000, 1_000)
    return f"{_second(seconds)}.{milliseconds:03d}+00:00"


def compact_time(now: float) -> str:
    """A moment as names of files have it: the fourteen digits of its second, in UTC."""
    return timestamp(now)[:19].translate(str.maketrans("", "", "-:T"))


@lru_cache(maxsize=4)  # many commits fall into one second
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def moment(ts: str) -> float | None:
    """The moment that an event's time says, in seconds since 1970: what :func:`timestamp` wrote.

    Others write other texts: any ISO-8601 time is read, one without an offset as UTC; what is none
    gives None.
    """
    try:
        at = datetime.fromisoformat(ts)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


_TIMED_OP: Final = re.compile(r"op-(\d{1,15})-")


def op_time_ms(op: str) -> int:
    """When an op id of our own making (``op-MILLISECONDS-RANDOM``) was made; 0 for any other."""
    match = _TIMED_OP.match(op)
    return int(match[1]) if match is not None else 0


def encode_commit(
    tip: ChainTip,
    drafts: Sequence[Draft],
    *,
    ts: str,
    actor: str,
    epoch: int,
    op: str | None = None,
) -> Commit:
    """The lines of one commit after ``tip``. Several drafts share a ``tx`` that their last ends."""
    count = len(drafts)
    tx = f"tx-{tip.seq + 1}" if count > 1 else None
    mark: list[int] | UnsetType = UNSET
    seq, offset, value, start, before = tip.seq, tip.offset, tip.value, tip.start, tip.before
    parts: list[bytes] = []
    events: list[Event] = []
    for index, draft in enumerate(drafts, 1):
        payload = draft.payload
        if tx is not None:
            mark = [index, count]
            if index == count:
                payload = {**payload, "tx_end": True}
        seq += 1
        event = Event(
            seq,
            ts,
            actor,
            draft.kind,
            tx,
            Entity(draft.entity_type, draft.entity_id),
            payload,
            list(draft.evidence),
            epoch,
            mark,
            UNSET if op is None else op,
        )
        head = _encode(event)[:-1]
        before, value = value, sha256(value + head).digest()
        line = b"".join((head, _H_KEY, b2a_hex(value[:8]), _H_END, b"\n"))
        start, offset = offset, offset + len(line)
        parts.append(line)
        events.append(decode_line(line[:-1]))  # what is folded now is what a replay will fold
    tip = ChainTip(seq, offset, value, start, before)
    return Commit(b"".join(parts), tuple(events), tip)


def _encode(event: Event) -> bytes:
    try:
        return to_json(event)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(
            f"the {event.kind} cannot be written as JSON: {error}.",
            code="not_json",
            fix="Pass texts, numbers, lists and mappings only.",
        ) from None


def decode_line(line: bytes) -> Event:
    """The event on a line (without its newline). Raises ValueError when it is not one."""
    try:
        return _decoder.decode(line)
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    except msgspec.ValidationError:
        raw = _loads(line)
    except msgspec.DecodeError:
        if b"\\u" not in line:  # not the one thing the fast decoder cannot read: a lone surrogate
            raise ValueError("not JSON") from None
        raw = _loads(line)
    if not isinstance(raw, dict):
        raise ValueError("not a JSON object")
    try:
        return msgspec.convert(upcast(raw), Event)
    except msgspec.ValidationError as error:
        raise ValueError(f"not an event: {error}") from None


def chain(before: bytes, line: bytes) -> tuple[bytes, bool | None]:
    """Running value after a line, and whether its ``h`` is right (None: it has none)."""
    line = line.rstrip()
    if line[-_H_TAIL_BYTES:-18] == _H_KEY and line[-2:] == b'"}':
        value = sha256(before + line[:-_H_TAIL_BYTES]).digest()
        return value, value.hex()[:16].encode() == line[-18:-2]
    return sha256(before + line).digest(), None


def proves(tip: ChainTip, line: bytes) -> bool:
    """Whether ``line`` (the bytes from ``tip.start`` to its newline) is the one the tip ends at."""
    value, ok = chain(tip.before, line)
    return ok is not False and value == tip.value


class Scan:
    """Reads journal bytes from a tip on, checks every line, and hands out whole commits.

    After the iteration ``tip`` is the end of the last whole commit and ``damage`` says what
    follows it, if anything does. Memory is bounded by one commit and one chunk.
    """

    def __init__(self, tip: ChainTip = EMPTY_TIP) -> None:
        # A plain tuple, because one is made for each line.
        self._end = (tip.seq, tip.offset, tip.value, tip.start, tip.before)
        self.commit_start = tip.start
        """Byte where the last whole commit starts."""
        self.unchained = 0
        self.damage: Damage | None = None

    @property
    def tip(self) -> ChainTip:
        """The end of the last whole commit."""
        return ChainTip(*self._end)

    def commits(self, chunks: Iterable[bytes]) -> Iterator[list[Event]]:
        """The commits in ``chunks``, which start at ``tip.offset``; stops at the first damage."""
        seq, offset, value, start, before = self._end
        decode, digest, tail = _decoder.decode, sha256, -_H_TAIL_BYTES
        pending: list[Event] = []
        first, foreign, rest = start, 0, b""
        chained: bool | None
        for chunk in chunks:
            lines = (rest + chunk if rest else chunk).split(b"\n")
            rest = lines.pop()
            for line in lines:
                # The chain is inlined: this loop is the cost of a full replay.
                after = digest(value + line[:tail]).digest()
                chained = line.endswith(b"".join((_H_KEY, b2a_hex(after[:8]), _H_END)))
                if not chained:
                    if not line.strip():
                        offset += len(line) + 1
                        if not pending:
                            self._end = (seq, offset, value, start, before)
                        continue
                    after, chained = chain(value, line)
                try:
                    event = decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    try:
                        event = decode_line(line)
                    except ValueError as error:
                        self.damage = Damage(seq + 1, offset, str(error))
                        return
                if not chained or event.seq != seq + 1 or pending or event.c is not UNSET:
                    reason = _out_of_place(event, seq + 1, pending, chained)
                    if reason:
                        self.damage = Damage(seq + 1, offset, reason)
                        return
                seq += 1
                start, before, value = offset, value, after
                offset += len(line) + 1
                foreign += chained is None
                if not pending:
                    first = start
                pending.append(event)
                if event.c is UNSET or event.c[0] == event.c[1]:
                    self.commit_start = first
                    self._end = (seq, offset, value, start, before)
                    self.unchained += foreign
                    yield pending
                    pending, foreign = [], 0
        if pending or rest:
            what = "ends without a newline" if rest else "ends inside a commit"
            self.damage = Damage(seq + 1, offset, f"the journal {what}")


def _out_of_place(event: Event, seq: int, pending: list[Event], chained: bool | None) -> str:
    """Why a line that is an event cannot stand here; empty when it can."""
    if chained is False or (chained is None and event.epoch):
        return "its hash chain value h does not match its bytes"
    if event.seq != seq:
        return f"seq is {event.seq} where {seq} belongs"
    mark = event.c
    if mark is UNSET:
        return "a new commit starts inside another one" if pending else ""
    if len(mark) != 2 or mark[0] != len(pending) + 1 or not mark[0] <= mark[1]:
        return f"commit mark {mark} is out of place"
    if pending and pending[0].c[1] != mark[1]:  # type: ignore[index]
        return f"commit mark {mark} belongs to another commit"
    return ""


def judge_tail(rest: bytes, tip: ChainTip) -> bool:
    """Whether everything after ``tip`` can be what a crash left of one unfinished commit.

    Every commit is synced before the next is written, so a crash damages the last one only: it may
    be cut, zeroed, noise, or have holes before intact lines of the same commit. An intact line of
    any later commit proves that what is damaged before it had been committed.
    """
    lines = [line for line in rest.split(b"\n") if line.strip(b"\0 \r\t")]
    for line in lines:
        event, alone = _intact(line)
        if event is None:
            continue
        if event.c is UNSET:
            if event.seq != tip.seq + 1 or len(lines) > 1 or not alone:
                return False
        elif len(event.c) != 2 or event.seq - event.c[0] != tip.seq:
            return False
    return True


def event_on(line: bytes) -> Event | None:
    """The event that a line is, or ends with behind the remains of another; None without one."""
    return _intact(line)[0]


def _intact(line: bytes) -> tuple[Event | None, bool]:
    """The event that a line is, or ends with, and whether there is nothing else before it.

    It may stand behind the remains of an earlier line whose newline is lost.
    """
    line = line.strip(b"\0 \r\t")
    starts = [match.start() for match in _EVENT_START.finditer(line)]
    for start in starts if 0 in starts else [0, *starts]:
        try:
            return decode_line(line[start:]), start == 0
        except ValueError:
            continue
    return None, True


def to_json(value: object, *, sort: bool = False) -> bytes:
    """Compact JSON of a record or a mapping; any text goes through, lone surrogates escaped."""
    try:
        return (_sorter if sort else _encoder).encode(value)
    except UnicodeEncodeError:  # a lone surrogate, as in undecodable file names
        plain = msgspec.to_builtins(value)
        text = json.dumps(plain, ensure_ascii=True, separators=(",", ":"), sort_keys=sort)
        return text.encode("ascii")


def to_indented_json(value: object) -> bytes:
    """The same text as :func:`to_json`, a value a line: for files that are also read by eye."""
    compact = to_json(value)
    try:
        return msgspec.json.format(compact, indent=1)
    except msgspec.DecodeError:  # as above
        return json.dumps(json.loads(compact), ensure_ascii=True, indent=1).encode("ascii")


def from_json(data: bytes, kind: type[T]) -> T:
    """A typed record from JSON. Raises ValueError when the bytes are not one."""
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    except msgspec.DecodeError as error:
        if b"\\u" not in data:
            raise ValueError(str(error)) from None
        try:
            return msgspec.convert(_loads(data), kind)
        except msgspec.ValidationError as again:
            raise ValueError(str(again)) from None


def _loads(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
