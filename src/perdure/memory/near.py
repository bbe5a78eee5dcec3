"""Entries that say nearly the same (W3).

Job: compare a statement with those that count. Invariants: reads nothing but its arguments; the
order of words, their case and their punctuation do not matter; texts without blanks are compared by
their characters. The threshold was chosen on a measured set (docs/adr/0021-memory-store.md).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.core.memory import Entry
from perdure.core.memory_search import normal

near_percent_min: Final = 77.0
"""From here on two statements may be one."""
near_shown_max: Final = 5
alike_percent_min: Final = 60.0
"""From here on an entry is shown for a query of which it holds no word."""


class Near(NamedTuple):
    """An entry, and how much of the statement it says: 100 is all of it."""

    entry: Entry
    percent: float


def near_entries(statement: str, entries: Sequence[Entry]) -> list[Near]:
    """The entries that may say what the statement says, the nearest first."""
    from rapidfuzz import fuzz, process

    wanted = normal(statement)
    texts = [normal(entry.statement) for entry in entries]
    best: dict[int, float] = {}
    for scorer in (fuzz.ratio, fuzz.token_sort_ratio):
        found = process.extract(
            wanted, texts, scorer=scorer, score_cutoff=near_percent_min, limit=near_shown_max
        )
        for _, percent, place in found:
            best[place] = max(percent, best.get(place, 0.0))
    order = sorted(best.items(), key=lambda item: (-item[1], item[0]))
    return [Near(entries[place], round(percent, 1)) for place, percent in order[:near_shown_max]]


def alike(query: str, entries: Sequence[Entry]) -> list[Entry]:
    """The entries with a passage like the query, best first, for a query that finds nothing."""
    from rapidfuzz import fuzz, process

    texts = [normal(entry.statement) for entry in entries]
    found = process.extract(
        normal(query),
        texts,
        scorer=fuzz.partial_token_sort_ratio,
        score_cutoff=alike_percent_min,
        limit=near_shown_max,
    )
    return [entries[place] for _, _, place in found]
