"""What proving a job directory has found, as data.

Job: collect defects and notices, and keep their number bounded. Invariants: a defect is something
that no start of the job puts right by itself; everything is counted, and of each kind the first
hundred are told; texts of others are quoted and cut in every message.
"""

import json
from typing import Final, NamedTuple

import msgspec

from perdure.core.record import Record
from perdure.core.views import cut
from perdure.jobs.records import Notice

told_max: Final = 100
"""Defects of one kind, and notices of one kind, that are listed; more are only counted."""
_shown_chars_max: Final = 80
_COUNTS: Final = (
    "lines", "findings", "items", "completed", "lost", "duplicated", "bad_lines", "forged",
    "unprovable", "torn_bytes", "errors",
)  # fmt: skip


class Defect(Record, msgspec.Struct, frozen=True):
    """One thing that does not hold."""

    what: str
    """``lost``, ``duplicate``, ``bad_line``, ``forged``, ``state``, ``log``, ``file``, ``no_log``,
    ``error_entry``."""
    line: int | None
    """Line of the log, counted from 1."""
    byte: int | None
    """Where that line starts."""
    message: str
    fix: str
    hash: str | None = None
    key: str | None = None


class JobReport(Record, msgspec.Struct):
    """What ``verify_job`` found."""

    ok: bool
    """No defect: zero lost, zero duplicated, and nothing else that only a person can settle."""
    job: str | None
    """The name in state.json, where that can be read."""
    counts: dict[str, int]
    """``lines`` (of the log, blank ones too), ``findings``, ``items`` (different ones among them),
    ``completed`` (what the next start counts as done), ``lost``, ``duplicated``, ``bad_lines``,
    ``forged``, ``unprovable``, ``torn_bytes``, ``errors`` (entries of the queue)."""
    defects: list[Defect]
    notices: list[Notice]
    """True of the job, and no reason to doubt it."""

    @property
    def exit_code(self) -> int:
        """Of ``perdure job verify``."""
        return int(not self.ok)


class Place(NamedTuple):
    """A line of the log."""

    line: int | None = None
    byte: int | None = None


NOWHERE: Final = Place()


class ReportDraft:
    """A report in the making."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.job: str | None = None
        self._defects: list[Defect] = []
        self._notices: list[Notice] = []
        self._told: dict[str, int] = {}

    def defect(
        self,
        what: str,
        message: str,
        fix: str,
        place: Place = NOWHERE,
        *,
        digest: str | None = None,
        key: str | None = None,
    ) -> None:
        """Something does not hold."""
        if self.has_room(what):
            entry = Defect(what, place.line, place.byte, message, fix, digest, key)
            self._defects.append(entry)
        self._told[what] = self._told.get(what, 0) + 1

    def notice(self, what: str, message: str, fix: str, place: Place = NOWHERE) -> None:
        """Something is worth knowing."""
        if self.has_room(what):
            self._notices.append(Notice(what, place.line, place.byte, message, fix))
        self._told[what] = self._told.get(what, 0) + 1

    def has_room(self, what: str) -> bool:
        """Whether one more of this kind would be told."""
        return self._told.get(what, 0) < told_max

    def report(self) -> JobReport:
        """Everything so far."""
        return JobReport(not self._defects, self.job, self.counts, self._defects, self._notices)


def shown(text: str) -> str:
    """A text of others as a short quotation that cannot break the sentence around it."""
    return json.dumps(cut(text, _shown_chars_max), ensure_ascii=False)


def shown_number(number: float) -> str:
    """A number of others as it is, unless it is very long."""
    return cut(str(number), 24)
