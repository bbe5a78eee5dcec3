"""state.json of a job: one JSON document that is written and read piece by piece (JB-2).

At a million items the document has fifty megabytes, nearly all of it ``completed``. We write its
entries some hundred to a line, and nothing else on these lines, so that our own files are read
without ever holding the whole. Any other layout is read as well, and costs the memory of the file.
The last field is ``as_of``, and the last in it ``state``: the first 16 hex digits of the sha256 of
all bytes before ``,"state":``. So a file that was edited, or written anew by somebody who keeps
fields that he does not know, is told from one that says what we wrote.
Invariants: what is written is valid JSON, whatever the texts are; what is read has the types of the
contract or is refused as a whole; fields that the contract does not have are dropped. Nothing here
touches a file or looks at the log.
"""

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from math import isfinite
from typing import Any, Final, TypeGuard

import msgspec

from perdure.core.codec import to_json
from perdure.errors import UsageError
from perdure.jobs.lines import is_nested_deeply, item_hash
from perdure.jobs.records import STATE_VERSION, AsOf, ErrorEntry, StateHead, Stats

entries_per_line: Final = 500
piece_bytes: Final = 1 << 20

_BOM: Final = b"\xef\xbb\xbf"
_OPENS: Final = b',"completed":{'
_PROOF_BYTES: Final = 30  # ,"state":"0123456789abcdef"}}\n


class _Document(msgspec.Struct):
    """The fields of a state.json, of any type; ``completed`` as the bytes that stand there."""

    job: Any = None
    version: Any = STATE_VERSION
    started_at: Any = None
    updated_at: Any = None
    cursor: Any = None
    completed: msgspec.Raw = msgspec.Raw()
    errors: Any = None
    stats: Any = None
    finished_at: Any = None
    as_of: Any = None


_document: Final = msgspec.json.Decoder(_Document).decode
_mapping: Final = msgspec.json.Decoder(dict[str, str]).decode
_list: Final = msgspec.json.Decoder(list[str]).decode


# Writing


def encode_state(head: StateHead, completed: dict[str, str]) -> bytes:
    """The whole document. ``completed`` must not change meanwhile.

    ``head.completed_count`` is not written: it is the number of entries.
    """
    file = io.BytesIO()  # gives its bytes away without a copy, which joining pieces would make
    first = {name: head[name] for name in ("job", "version", "started_at", "updated_at", "cursor")}
    file.write(to_json(first)[:-1] + _OPENS + b"\n")
    entries = iter(completed.items())
    separator = b""
    while part := dict(islice(entries, entries_per_line)):
        file.write(separator + to_json(part)[1:-1])
        separator = b",\n"
    last = {name: head[name] for name in ("errors", "stats", "finished_at")}
    if head.as_of is not None:
        last["as_of"] = head.as_of
    end = to_json(last)[1:]
    if head.as_of is None:
        file.write(b"\n}," + end + b"\n")
    else:
        file.write(b"\n}," + end[:-2])
        with file.getbuffer() as view:
            proof = _proof(sha256(view).hexdigest())
        file.write(proof)
    return file.getvalue()


def _proof(digest: str) -> bytes:
    """How a file of ours ends, whose bytes before that have this sha256."""
    return b',"state":"%b"}}\n' % digest[:16].encode()


# Reading


def decode_state(pieces: Iterable[bytes], completed: dict[str, str]) -> StateHead:
    """Enter the completed hashes into ``completed``, and return the rest.

    ``pieces`` are the file's bytes in order, best a megabyte each. A file of a later version
    comes back with its job and version alone. Raises ValueError, with what is wrong, for anything
    that is no state of this contract; ``completed`` may hold a part of it then.
    """
    proof = _Proof(pieces)
    source = iter(proof)
    start: list[bytes] = []
    for piece in source:
        start.append(piece)
        if b"\n" in piece:
            break
    first, newline, block = b"".join(start).removeprefix(_BOM).partition(b"\n")
    start.clear()
    block = newline + block
    count = 0
    if first.endswith(_OPENS) and _opens_ours(first):
        count, block = _take_lines(block, source, completed)
    # What is left is a document too: one that lacks the entries that were taken out of it.
    rest = [first, block, *source]
    data = b"".join(rest)
    rest.clear()
    del first, block
    document = _parse(data)
    if _later(document):
        return _head(document, 0, is_whole=False)
    count += _take_raw(document.completed, completed)
    return _head(document, count, is_whole=proof.holds())


class _Proof:
    """Hands on the pieces of a file, and knows then whether it ends with the proof of the rest."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self._digest = sha256()
        self._end = b""

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if len(piece) < _PROOF_BYTES:
                piece_end = self._end + piece
                self._digest.update(piece_end[:-_PROOF_BYTES])
            else:
                piece_end = piece
                self._digest.update(self._end)
                self._digest.update(memoryview(piece)[:-_PROOF_BYTES])
            self._end = piece_end[-_PROOF_BYTES:]
            yield piece

    def holds(self) -> bool:
        """Whether it does. Asked after the last piece."""
        return self._end == _proof(self._digest.hexdigest())


def _opens_ours(first: bytes) -> bool:
    """Whether a line that ends in ``"completed":{`` opens the document's own, not an inner one."""
    try:
        return not _later(_document(first + b"}}"))
    except (msgspec.DecodeError, RecursionError):
        return False


def _take_lines(
    block: bytes, source: Iterator[bytes], completed: dict[str, str]
) -> tuple[int, bytes]:
    """Enter whole lines of entries for as long as they come: how many, and what is left over."""
    count = 0
    comma = False
    while b"\n}" not in block:
        end = block.rfind(b",\n")
        if end >= 0:
            try:
                part = _mapping(b"{%b}" % block[:end])
            except msgspec.DecodeError:
                return count, block
            count += _enter(part, completed)
            block = block[end + 1 :]
            comma = True
        piece = next(source, None)
        if piece is None:
            break
        block += piece
    if comma and block.lstrip().startswith(b"}"):
        raise ValueError("not JSON: a comma stands behind the last entry of completed")
    return count, block


def _enter(part: dict[str, str], completed: dict[str, str]) -> int:
    """Enter some entries; equal times next to each other become one object."""
    _check_hashes(part)
    last = ""
    for name, at in part.items():
        if at == last:
            completed[name] = last
        else:
            completed[name] = last = at
    return len(part)


def _check_hashes(names: Iterable[str]) -> None:
    joined = "".join(names)
    try:
        exact = set(map(len, names)) <= {16} and bytes.fromhex(joined).hex() == joined
    except ValueError:
        exact = False
    if not exact:
        raise ValueError("completed has a key that is not 16 hex digits")


def _parse(data: bytes) -> _Document:
    try:
        return _document(data)
    except (msgspec.DecodeError, RecursionError) as error:
        try:
            fields = json.loads(data.decode())  # reads lone surrogates, and NaN
        except (ValueError, RecursionError):
            raise ValueError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    known = {name: fields[name] for name in _Document.__struct_fields__ if name in fields}
    if "completed" in known:
        known["completed"] = msgspec.Raw(to_json(known["completed"]))
    return _Document(**known)


def _take_raw(raw: msgspec.Raw, completed: dict[str, str]) -> int:
    """Enter ``completed`` as it stands in a document: a mapping, or a list of hashes alone."""
    view = memoryview(raw)
    try:
        if bytes(view[:1]) == b"[":
            names = _list(view)
            _check_hashes(names)
            for name in names:
                completed[name] = ""
            return len(names)
        if bytes(view[:1]) != b"{":
            raise ValueError("completed is missing, or is not a mapping")
        return sum(_enter(_mapping(part), completed) for part in _parts(view))
    except msgspec.DecodeError as error:
        raise ValueError(f"completed: {error}") from None


def _parts(view: memoryview) -> Iterator[bytes]:
    """A mapping of texts as smaller mappings, so that not all of it is there twice.

    Without a backslash in it an entry has four quotation marks, and ends with the fourth. Where
    this does not help, what is left comes as one.
    """
    start, end = 1, len(view) - 1
    while start < end:
        block = bytes(view[start : min(start + piece_bytes, end)])
        cut = len(block)
        if start + cut < end:
            cut = block.rfind(b'",') + 1
            while cut and block.count(b'"', 0, cut) % 4:  # a text that begins with a comma
                cut = block.rfind(b'",', 0, cut) + 1
        if not cut or b"\\" in block:
            block = bytes(view[start:end])
            cut = len(block)
        yield b"{%b}" % block[:cut]
        start += cut + 1


# Types


def _later(document: _Document) -> bool:
    version = document.version
    if not _is_number(version) or version < STATE_VERSION:
        raise ValueError(f"version is not a number from {STATE_VERSION} on")
    return version > STATE_VERSION


def _head(document: _Document, count: int, *, is_whole: bool) -> StateHead:
    job = document.job
    if not isinstance(job, str):
        raise ValueError("job is missing, or is not a text")
    if _later(document):
        return StateHead(job, document.version)
    finished_at = document.finished_at
    if is_nested_deeply(document.cursor):
        raise ValueError("cursor is nested too deeply")
    as_of = _as_of(document.as_of) if is_whole else None
    return StateHead(
        job,
        STATE_VERSION,
        _text(document.started_at, "started_at"),
        _text(document.updated_at, "updated_at"),
        document.cursor,
        _errors(document.errors),
        _stats(document.stats),
        None if finished_at is None else _text(finished_at, "finished_at"),
        as_of,
        count,
        as_of is None and document.as_of is not None,
    )


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: object, what: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise ValueError(f"{what} is not a text")


def _whole(value: object, what: str) -> int:
    """A count; JSON of other languages may write it with a fraction of nought."""
    if _is_number(value) and value >= 0 and value == int(value):
        return int(value)
    raise ValueError(f"{what} is not a count")


def _fields(value: object, what: str) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    raise ValueError(f"{what} is not a mapping")


def _stats(value: object) -> Stats:
    if value is None:
        return Stats()
    fields = _fields(value, "stats")
    return Stats(*(_whole(fields.get(n, 0), f"stats.{n}") for n in Stats.__struct_fields__))


def _errors(value: object) -> tuple[ErrorEntry, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ValueError("errors is not a list")
    return tuple(_error(entry) for entry in value)


def _error(value: object) -> ErrorEntry:
    fields = _fields(value, "an entry of errors")
    key = fields.get("key")
    try:
        name = item_hash(key)  # type: ignore[arg-type]  # what is no key is refused
    except UsageError as error:
        raise ValueError(f"an entry of errors: {error.message}") from None
    return ErrorEntry(
        str(key),
        name,
        _text(fields.get("error"), "errors.error"),
        _whole(fields.get("attempts", 1), "errors.attempts"),
        _text(fields.get("last_at"), "errors.last_at"),
    )


def _as_of(value: object) -> AsOf | None:
    """Of a file that is as it was written; None when it is not of the kind we know."""
    try:
        return msgspec.convert(value, AsOf)
    except msgspec.ValidationError:
        return None
