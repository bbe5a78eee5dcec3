"""Where a job stands, in memory: what is done, what failed, where the listing was.

Job: keep what ``state.json`` and ``SUMMARY.md`` show, ready to be shown. Invariants: an item counts
here only after its line is durable, so whatever is written from here claims nothing that the log
does not hold; nothing in here grows with the number of findings but ``completed``; what is handed
out is a copy. It touches no file and no clock.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from perdure.errors import UsageError
from perdure.jobs.lines import RESERVED_KEYS, item_hash
from perdure.jobs.records import (
    STATE_VERSION,
    AsOf,
    Damage,
    ErrorEntry,
    Notice,
    StateHead,
    Stats,
    error_chars_max,
)
from perdure.jobs.summary import (
    ShownFinding,
    Status,
    SummaryFacts,
    errors_max,
    findings_max,
    notices_max,
)

shown_line_bytes_max: Final = 16 << 10
"""A longer finding is kept in memory for the summary by its key only."""


class LastFinding(NamedTuple):
    """One of the last findings."""

    key: str
    at: str
    line: bytes
    """Its line in the log; empty when it is longer than ``shown_line_bytes_max``."""
    line_bytes: int


class Position:
    """Where one job stands. Not for two threads at once, but for looking."""

    __slots__ = (
        "changes", "completed", "cursor", "cursor_changes", "damage", "errors", "finished_at",
        "last", "name", "notices", "resumes", "started_at", "updated_at",
    )  # fmt: skip

    def __init__(self, name: str, started_at: str) -> None:
        self.name = name
        self.started_at = started_at
        self.updated_at = started_at
        self.finished_at: str | None = None
        self.resumes = 0
        self.cursor = b"null"
        """As JSON, so that nobody can change it behind our back."""
        self.completed: dict[str, str] = {}
        """Hash of the key to when it was recorded."""
        self.errors: dict[str, ErrorEntry] = {}
        """By hash, the one that failed longest ago first."""
        self.last: deque[LastFinding] = deque(maxlen=findings_max)
        self.notices: list[Notice] = []
        self.damage = Damage()
        """Lines of the log that are no findings and were left where they are."""
        self.changes = 0
        """Grows with everything that a checkpoint shows."""
        self.cursor_changes = 0

    def add_last(self, key: str, at: str, line: bytes) -> None:
        """A finding that was there before, for the summary: to the front of the last ones."""
        kept = line if len(line) <= shown_line_bytes_max else b""
        self.last.appendleft(LastFinding(key, at, kept, len(line)))

    def add_finding(self, digest: str, key: str, at: str, line: bytes) -> None:
        """An item is done: its line is durable."""
        self.completed[digest] = at
        if self.errors:
            self.errors.pop(digest, None)
        kept = line if len(line) <= shown_line_bytes_max else b""
        self.last.append(LastFinding(key, at, kept, len(line)))
        self.updated_at = at
        self.finished_at = None
        self.changes += 1

    def failed_again(self, key: str, error: str, at: str) -> ErrorEntry:
        """The entry of an item that fails now, with what ``shown_error`` made of the error.

        It counts once ``add_error`` has it.
        """
        digest = item_hash(key)
        before = self.errors.get(digest)
        attempts = 1 + (before.attempts if before else 0)
        return ErrorEntry(key, digest, error, attempts, at)

    def add_error(self, entry: ErrorEntry) -> None:
        """An item has failed: its attempt is durable. It goes to the end of the queue."""
        self.errors.pop(entry.hash, None)
        self.errors[entry.hash] = entry
        self.updated_at = entry.last_at
        self.finished_at = None
        self.changes += 1

    def set_cursor(self, cursor: bytes, at: str) -> None:
        """The listing stands elsewhere."""
        self.cursor = cursor
        self.updated_at = at
        self.cursor_changes += 1
        self.changes += 1

    def keep_proven(self, hashes: Iterable[str], proven: Mapping[str, str]) -> tuple[int, bool]:
        """Drop those of the items that the whole log lacks, and enter all that it has.

        Returns how many were dropped, and whether anything has changed.
        """
        completed = self.completed
        dropped = [name for name in set(hashes) if name in completed and name not in proven]
        for digest in dropped:
            del completed[digest]
        missed = proven.keys() - completed.keys()
        for digest in missed:
            completed[digest] = proven[digest]
            self.errors.pop(digest, None)
        changed = bool(dropped or missed)
        self.changes += changed
        return len(dropped), changed

    def settle_damage(self, notice: Notice | None) -> None:
        """No line of the log is damaged any more; ``notice`` says what became of them."""
        self.damage = Damage()
        told = [one for one in self.notices if one.what not in {"bad_line", "bad_lines"}]
        self.notices[:] = told if notice is None else [notice, *told]
        self.changes += 1

    def finish(self, at: str) -> None:
        """The caller says that this is all."""
        self.finished_at = self.updated_at = at
        self.changes += 1

    # Shown

    def stats(self) -> Stats:
        """The counts."""
        return Stats(len(self.completed), len(self.errors), self.resumes)

    def head(self, as_of: AsOf | None) -> StateHead:
        """Everything of ``state.json`` but the completed hashes."""
        return StateHead(
            job=self.name,
            version=STATE_VERSION,
            started_at=self.started_at,
            updated_at=self.updated_at,
            cursor=decoded(self.cursor),
            errors=tuple(self.errors.values()),
            stats=self.stats(),
            finished_at=self.finished_at,
            as_of=as_of,
            completed_count=len(self.completed),
        )

    def mapping(self) -> dict[str, Any]:
        """The fields of the contract, as ``state.json`` has them."""
        return {
            "job": self.name,
            "version": STATE_VERSION,
            "started_at": self.started_at,
            "updated_at": self.updated_at,
            "cursor": decoded(self.cursor),
            "completed": self.completed.copy(),
            "errors": [msgspec.to_builtins(entry) for entry in list(self.errors.values())],
            "stats": msgspec.to_builtins(self.stats()),
            "finished_at": self.finished_at,
        }

    def facts(self, status: Status) -> SummaryFacts:
        """What ``SUMMARY.md`` shows."""
        entries = list(self.errors.values())
        return SummaryFacts(
            job=self.name,
            status="finished" if self.finished_at else status,
            started_at=self.started_at,
            updated_at=self.updated_at,
            finished_at=self.finished_at,
            processed=len(self.completed),
            failed=len(entries),
            resumes=self.resumes,
            cursor=decoded(self.cursor),
            errors=tuple(entries[-errors_max:]),
            errors_total=len(entries),
            findings=tuple(map(_shown, self.last)),
            notices=tuple(notice.message for notice in self.notices[:notices_max]),
        )


def _shown(finding: LastFinding) -> ShownFinding:
    try:
        fields = decoded(finding.line)
    except (ValueError, RecursionError):  # too long to be kept, or nested too deeply to be read
        fields = {"…": f"{finding.line_bytes:,} bytes"}
    payload = {name: fields[name] for name in fields if name not in RESERVED_KEYS}
    return ShownFinding(finding.key, finding.at, payload)


def decoded(data: bytes) -> Any:
    """The value of JSON that was written by us or found to be good; a fresh one each time."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:  # half a character, as an escape
        return json.loads(data)


def shown_error(error: object) -> str:
    """What went wrong, as the queue keeps it: text of bounded length that any file can hold.

    Raises UsageError for an object that cannot say it.
    """
    try:
        text = error if isinstance(error, str) else str(error)
    except Exception as failed:
        raise UsageError(
            f"the error, of type {type(error).__name__}, cannot be made a text: asked for it, it"
            f" raises {type(failed).__name__}.",
            code="bad_error",
            rule="JB-5",
            fix="Pass a text that says what went wrong.",
        ) from failed
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= error_chars_max else f"{text[: error_chars_max - 1]}…"
