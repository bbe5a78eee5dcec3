"""What the workers of a batch node have written, and what of it counts.

Job: read the directory of one worker after its end and say which of its units are complete; merge
files of findings into one. Invariants: a unit is complete only with a whole finding of its own that
its schema allows AND its line in the ledger, with the file that this names in place (PD-J1); what
was written in part costs that unit and no other; the order is that of numeric ids and of the
contract, never that of arrival. Reads only. Never asks what a worker has said of itself.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from perdure.control.item_list import decode_json
from perdure.core.batch import LEDGER_NAME, LOG_NAME
from perdure.core.codec import to_json
from perdure.core.model import id_key
from perdure.core.naming import canonical_path, path_problem
from perdure.core.views import cut
from perdure.jobs.lines import RESERVED_KEYS, line_bytes_max
from perdure.ports import Disk
from perdure.runtime.scope import has_content
from perdure.runtime.units import DONE_STATUSES

notices_max: Final = 5
"""Of one worker; the rest is counted."""
reason_chars_max: Final = 400
key_chars_max: Final = 60

Errors = Callable[[Any], list[str]]
"""The first errors of a document against a schema."""


class Landed(NamedTuple):
    """A unit that is complete."""

    key: str
    payload: dict[str, Any]
    artifact: str = ""
    """The file it names in its ledger line, absolute; empty when it names none."""


class Adjudged(NamedTuple):
    """What the disk holds of one worker, in the order of its contract."""

    landed: tuple[Landed, ...]
    failed: tuple[tuple[str, str], ...]
    """Units that the worker gave up, or whose result is not valid: key and why."""
    left: tuple[str, ...]
    """Units that are neither: they go back to be dispatched again."""
    has_output: bool
    """Whether the worker has written anything at all: an empty file is nothing."""
    notices: tuple[str, ...]


class _LedgerLine(msgspec.Struct):
    unit_id: str | int
    status: str
    artifact: str | None = None
    reason: str | None = None


class _Notices:
    def __init__(self) -> None:
        self._first: list[str] = []
        self._count = 0

    def add(self, text: str) -> None:
        self._count += 1
        if len(self._first) < notices_max:
            self._first.append(text)

    def told(self) -> tuple[str, ...]:
        more = self._count - len(self._first)
        return (*self._first, f"and {more} more of that") if more else tuple(self._first)


def adjudicate(
    disk: Disk,
    directory: str,
    keys: Sequence[str],
    *,
    errors_of: Errors | None = None,
    is_placed: Callable[[str], bool] = lambda key: False,
) -> Adjudged:
    """Judge what a worker has left in its ``directory``, which is absolute and need not be there.

    ``keys`` are the units of its contract: what it wrote of others counts for nothing and is told.
    ``is_placed`` says whether a unit's file is in its last place already, which is so when a crash
    came between moving it and recording its finding. The worker is gone: half-written lines of one
    at work would be taken for faults. Raises StorageError.
    """
    notices = _Notices()
    wanted = set(keys)
    findings = _findings(disk, f"{directory}/{LOG_NAME}", wanted, notices)
    ledger = _ledger(disk, f"{directory}/{LEDGER_NAME}", wanted, notices)
    landed, failed, left = list[Landed](), list[tuple[str, str]](), list[str]()
    for key in keys:
        line, payload = ledger.get(key), findings.get(key)
        if line is not None and line.status == "fail":
            failed.append((key, (line.reason or "its worker gave it up")[:reason_chars_max]))
        elif line is None or payload is None or line.status not in DONE_STATUSES:
            left.append(key)
        else:
            artifact, problem = _artifact(disk, directory, line, placed=is_placed(key))
            if not problem and errors_of is not None and (errors := errors_of(payload)):
                problem = f"its finding does not meet the schema: {errors[0]}"
            if problem:
                failed.append((key, problem[:reason_chars_max]))
            else:
                landed.append(Landed(key, payload, artifact))
    has_output = bool(findings or ledger) or has_content(disk, directory)
    return Adjudged(tuple(landed), tuple(failed), tuple(left), has_output, notices.told())


def _findings(
    disk: Disk, path: str, wanted: set[str], notices: _Notices
) -> dict[str, dict[str, Any]]:
    """Key to finding. Of two in one file the later one counts: a worker corrects itself so."""
    found: dict[str, dict[str, Any]] = {}
    for number, line in _whole_lines(disk, path, notices):
        try:
            value = decode_json(line)
        except ValueError as error:
            notices.add(f"line {number} of its findings is not JSON ({error})")
            continue
        key = _key_of(value)
        if key is None:
            notices.add(f"line {number} of its findings names no unit in _key")
        elif key not in wanted:
            notices.add(
                f"line {number} of its findings is of a unit it was not given: {_shown(key)}"
            )
        else:
            payload = {name: part for name, part in value.items() if name not in RESERVED_KEYS}
            if key in found and found[key] != payload:
                notices.add(f"it wrote two findings for {_shown(key)}; the later one counts")
            found[key] = payload
    return found


def _ledger(disk: Disk, path: str, wanted: set[str], notices: _Notices) -> dict[str, _LedgerLine]:
    """Key to its last line."""
    found: dict[str, _LedgerLine] = {}
    for number, line in _whole_lines(disk, path, notices):
        try:
            entry = msgspec.json.decode(line, type=_LedgerLine)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            notices.add(f"line {number} of its ledger is no ledger line ({error})")
            continue
        key = str(entry.unit_id)
        if key in wanted:
            found[key] = entry
        else:
            notices.add(f"line {number} of its ledger is of a unit it was not given: {_shown(key)}")
    return found


def _whole_lines(disk: Disk, path: str, notices: _Notices) -> Iterator[tuple[int, bytes]]:
    """The lines of a worker's file that it has finished and that are not blank."""
    seen = disk.stat(path)
    if seen is None:
        return
    name = path.rpartition("/")[2]
    if seen.kind != "file":
        notices.add(f"its {name} is a {seen.kind}, not a file")
        return
    number, rest = 0, b""
    for chunk in disk.read_chunks(path):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            if text := line.removeprefix(b"\xef\xbb\xbf").strip():
                yield number, text
        if len(rest) > line_bytes_max:
            notices.add(f"line {number + 1} of its {name} has more than {line_bytes_max:,} bytes")
            return
    if rest.strip():
        notices.add(f"the last line of its {name} was not finished")


def _key_of(value: object) -> str | None:
    key = value.get("_key") if isinstance(value, dict) else None
    if isinstance(key, str):
        return key
    return str(key) if isinstance(key, int) and not isinstance(key, bool) else None


def _shown(key: str) -> str:
    return cut(key, key_chars_max)


def _artifact(disk: Disk, directory: str, line: _LedgerLine, *, placed: bool) -> tuple[str, str]:
    """The file that a ledger line names, absolute, and why it cannot be taken; either is empty."""
    named = (line.artifact or "").strip()
    if named.startswith(f"{directory}/"):
        named = named[len(directory) + 1 :]
    elif (at := named.find(f"/{directory.rpartition('/')[2]}/")) >= 0:
        named = named[at + len(directory.rpartition("/")[2]) + 2 :]  # from the workspace
    if named in ("", LOG_NAME, LEDGER_NAME):
        return "", ""
    problem = path_problem(named)
    if problem:
        return "", f"its file {named[:100]!r} {problem}"
    path = f"{directory}/{canonical_path(named)}"
    seen = disk.stat(path)
    if seen is None:
        return "", "" if placed else f"its file {named[:100]!r} is not there"
    if seen.kind != "file" or not disk.real_path(path).startswith(f"{disk.real_path(directory)}/"):
        return "", f"its file {named[:100]!r} is no file of its own directory"
    return (path, "") if seen.size_bytes else ("", f"its file {named[:100]!r} is empty")


class Duplicates:
    """Findings for units that were done already, to be compared with those that count."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[bytes, str]]] = {}

    def add(self, key: str, payload: Mapping[str, Any], ref: str) -> None:
        """Another finding for a unit that is done; ``ref`` says where it stands."""
        self._seen.setdefault(key, []).append((_digest(payload), ref))

    def differing(self, disk: Disk, log: str) -> list[tuple[str, str]]:
        """Key and ref of those that say something else than the findings in ``log``.

        One pass over the log, and only when there is something to compare. Raises StorageError.
        """
        if not self._seen:
            return []
        found = []
        for _, line in _whole_lines(disk, log, _Notices()):
            try:
                value = decode_json(line)
            except ValueError:
                continue
            others = self._seen.get(_key_of(value) or "")
            if others:
                kept = {name: part for name, part in value.items() if name not in RESERVED_KEYS}
                digest = _digest(kept)
                found += [(str(value["_key"]), ref) for other, ref in others if other != digest]
        return sorted(found, key=lambda pair: (id_key(pair[0]), id_key(pair[1])))


def _digest(payload: Mapping[str, Any]) -> bytes:
    # Lone surrogates are part of JSON, and the fast encoder refuses them.
    return sha256(json.dumps(payload, sort_keys=True).encode()).digest()[:8]


class Conflict(NamedTuple):
    """Two lines for one key that differ."""

    key: str
    kept: str
    """``PATH:LINE`` of the one that counts."""
    left_out: str


class Merged(NamedTuple):
    """Several files of lines as one."""

    lines: list[bytes]
    """One for each key, as it was written, without its line feed; in the numeric order of keys."""
    repeated: int
    """Lines left out because an equal one counts."""
    conflicts: list[Conflict]
    bad: list[str]
    """Lines that count for nothing: ``PATH:LINE: why``."""


def merge_jsonl(disk: Disk, paths: Iterable[str], *, key: str = "_key") -> Merged:
    """Merge files of JSON objects by the field ``key``; the same for any order of ``paths``.

    Of lines with the same key the first counts, where files are taken in the numeric order of their
    paths (``W9`` before ``W10``). A last line without its line feed is not whole. Files that others
    still write to do not belong here. Raises StorageError.
    """
    kept: dict[str, tuple[bytes, str]] = {}
    repeated, conflicts, bad = 0, list[Conflict](), list[str]()
    for path in sorted(set(paths), key=id_key):
        notices = _Notices()
        for number, line in _whole_lines(disk, path, notices):
            ref = f"{path}:{number}"
            name, why = _named(line, key)
            if name is None:
                bad.append(f"{ref}: {why}")
                continue
            first = kept.setdefault(name, (line, ref))
            if first[1] == ref:
                continue
            if first[0] == line:
                repeated += 1
            else:
                conflicts.append(Conflict(name, first[1], ref))
        bad += [f"{path}: {notice}" for notice in notices.told()]
    lines = [kept[name][0] for name in sorted(kept, key=id_key)]
    return Merged(lines, repeated, conflicts, bad)


def _named(line: bytes, key: str) -> tuple[str | None, str]:
    try:
        value = decode_json(line)
    except ValueError as error:
        return None, f"it is not JSON ({error})"
    if not isinstance(value, dict):
        return None, "it is no object"
    name = value.get(key)
    if isinstance(name, str):
        return name, ""
    if isinstance(name, int | float) and not isinstance(name, bool):
        return to_json(name).decode(), ""
    return None, f"it has no text or number in {key!r}"
