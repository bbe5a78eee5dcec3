"""Whether a store is what its rules say (A10).

Job: read a store whole and report. Invariants: writes nothing, takes no lock and never raises for
what stands in the files; two checks of the same bytes at the same time say the same.
"""

from datetime import UTC, datetime
from typing import Any, Final

from perdure.core.memory import flags_of
from perdure.core.memory_phrasing import imperative, progress
from perdure.memory.store import Store
from perdure.ports import Clock, Disk

named_max: Final = 50
"""Ids that are listed of what was found; the counts are never cut."""


class _Moment:
    """A clock that stands still: a check is about one moment."""

    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        """Nothing moves while one looks."""


def check_memory(
    disk: Disk, now: float, directory: str, *, clock: Clock | None = None
) -> dict[str, Any]:
    """What a check of the store in this directory finds, at the moment ``now`` (since 1970).

    ``problems`` are sentences, empty for a store that is whole, and ``damage`` those of them that
    are about the entries and not about their index; ``entries``, ``heads``,
    ``drafts`` are counts; ``due``, ``imperative``, ``progress`` name entries that count;
    ``index`` is ``whole``, ``stale``, ``edited`` or ``missing``. Raises StorageError.
    """
    shelf = Store("project", directory, disk, clock or _Moment(now)).read()
    reading, heads = shelf.reading, shelf.chains.heads
    today = datetime.fromtimestamp(now, UTC).date()
    problems = shelf.notices if reading.damage or shelf.judged.state in ("edited", "ahead") else []
    damage = shelf.notices if reading.damage or shelf.judged.state == "ahead" else []
    for name, unknown in shelf.chains.dangling().items():
        problems.append(f"{name} supersedes {', '.join(unknown)}, which is not there.")
        damage = [*damage, problems[-1]]
    state = "stale" if shelf.judged.state == "ahead" else shelf.judged.state
    return {
        "problems": problems,
        "damage": damage,
        "entries": len(reading.entries),
        "heads": len(heads),
        "drafts": sum(entry.is_draft for entry in heads),
        "due": [entry.id for entry in heads if "due" in flags_of(entry, today)][:named_max],
        "index": state,
        "imperative": [entry.id for entry in heads if imperative(entry.statement)][:named_max],
        "progress": [entry.id for entry in heads if progress(entry.statement)][:named_max],
        "torn_bytes": len(reading.torn),
        "unchained": reading.unchained,
    }
