"""Whether an earlier record of a task audit still holds, and where it never did (A-4).

Job: compare, item by item, what a record says with what the same audit of the same prefix finds
today. Invariants: a record that contradicts itself never held, whatever is found today; neither did
one that the prefix alone contradicts, since a prefix does not change; only what rests on the disk
can have been true and be so no longer. Nothing here raises for what stands in a record.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from perdure.core.fold import Replica
from perdure.core.payload import mapping, record, text
from perdure.core.record import Record
from perdure.core.task_audit import (
    AuditRecord,
    DiskFacts,
    Findings,
    Item,
    ItemRecord,
    results_kept_max,
)
from perdure.core.task_audit_record import VERDICTS, digest_of

Standing = Literal["holds", "holds no longer", "never held"]

WHOLE: Final = "record"
"""The item of a finding that is about the record itself."""
_DIGEST_CHARS: Final = 16


class Holding(Record, msgspec.Struct, frozen=True, omit_defaults=True):
    """What has become of one item of a record."""

    item: str
    said: str
    now: str
    """The verdict over the same prefix today; empty where nothing can be recomputed."""
    standing: Standing
    why: str = ""


class Registered(Item):
    """No item of the checklist: takes along what the journal registered, for the comparison."""

    id = "registered"

    def __init__(self) -> None:
        self.checksums: dict[str, str] = {}
        """Artifact id to checksum, of this prefix."""

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """Judges nothing."""
        for name, artifact in replica.state.artifacts.items():
            self.checksums[name] = artifact.integrity.value
        return Findings()


def items_named(said: Mapping[str, Any]) -> list[str]:
    """The ids of the items that a record has, in order."""
    return [text(entry.get("item")) for entry in _entries(said)]


def _entries(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = said.get("items")
    return [mapping(entry) for entry in found] if isinstance(found, list | tuple) else []


def compare(
    said: Mapping[str, Any], now: AuditRecord, registered: Mapping[str, str]
) -> tuple[Holding, ...]:
    """Each item of the record ``said``, and the record itself where that contradicts itself.

    ``now`` is the same audit over the same prefix as it comes out today; ``registered`` are the
    checksums that this prefix has for its artifacts.
    """
    found = list(whole_record(said))
    today = {entry.item: entry for entry in now.items}
    for raw in _entries(said):
        entry = record(raw, ItemRecord)
        if entry is None:
            name = text(raw.get("item")) or "an item"
            why = "it is not itemised: method, inputs or results are missing"
            found.append(Holding(name, text(raw.get("verdict")), "", "never held", why))
        else:
            found.append(_standing(entry, today.get(entry.item), registered))
    return tuple(found)


def whole_record(said: Mapping[str, Any]) -> tuple[Holding, ...]:
    """What is wrong with a record by itself: a bare score, or a count that is not of its items."""
    entries = _entries(said)
    score = _score_of(said)
    if not entries:
        why = "a bare score: without items nobody can tell what it rests on (A-4)"
        return (Holding(WHOLE, score, "", "never held", why),)
    counted = Counter(text(entry.get("verdict")) for entry in entries)
    told = mapping(said.get("counts"))
    wrong = [name for name in VERDICTS if name in told and told[name] != counted[name]]
    if wrong:
        why = f"it counts {told[wrong[0]]} {wrong[0]}, and its items are {counted[wrong[0]]}"
    elif said.get("passed") is True and counted["FAIL"]:
        why = "it says that it passed, and some of its items failed"
    elif len(set(items_named(said))) < len(entries):
        why = "it has an item twice"
    else:
        return ()
    return (Holding(WHOLE, score, "", "never held", why),)


def _score_of(said: Mapping[str, Any]) -> str:
    """What a record says in one word, such as ``passed``."""
    if isinstance(said.get("passed"), bool):
        return "passed" if said["passed"] else "not passed"
    return next((text(value) for value in said.values() if isinstance(value, str)), "")[:80]


def _standing(said: ItemRecord, today: ItemRecord | None, registered: Mapping[str, str]) -> Holding:
    now = today.verdict if today is not None else ""
    why = _contradiction(said) or _other_bytes(said, registered)
    if not why and today is None:
        why = "there is no such item"
    if why or today is None:
        return Holding(said.item, said.verdict, now, "never held", why)
    if said.verdict == today.verdict:
        return Holding(said.item, said.verdict, now, "holds")
    why = _what_is_so(today)
    if today.on_disk:
        return Holding(said.item, said.verdict, now, "holds no longer", why)
    why = f"the journal up to there says otherwise: {why}"
    return Holding(said.item, said.verdict, now, "never held", why)


def _what_is_so(today: ItemRecord) -> str:
    failed = [result for result in today.results if not result.ok]
    if failed:
        left = today.failed - 1
        more = f", and {left} more" if left else ""
        return f"{failed[0].ref}: {failed[0].note}{more}"
    return today.why or f"{today.looked_at} looked at, and all as they have to be"


def _contradiction(said: ItemRecord) -> str:
    """Where an item says two things, so that it was false when it was written; or empty."""
    failed = sum(not result.ok for result in said.results)
    listed = len(said.results)
    if said.verdict not in VERDICTS:
        return f"{said.verdict!r} is no verdict"
    if not said.method.strip():
        return "it names no method, so nobody can reach it again (A-4)"
    if listed > said.looked_at or failed > said.failed:
        return f"it lists {listed} results of {said.looked_at}, {failed} failed of {said.failed}"
    if listed < min(said.looked_at, results_kept_max) or failed < min(said.failed, listed):
        return f"it says that {said.looked_at} were looked at, and lists {listed} (A-4)"
    verdict = "FAIL" if said.failed else "PASS" if said.looked_at else "N/A"
    if verdict != said.verdict:
        return f"it says {said.verdict}, and its results are {verdict}"
    if verdict == "N/A":
        return "" if said.why.strip() else "it does not say why it does not apply"
    if not said.failed and listed == said.looked_at and digest_of(said.results) != said.digest:
        return "its results are not those that its digest was made of"
    return ""


def _other_bytes(said: ItemRecord, registered: Mapping[str, str]) -> str:
    """Which artifact is to have been seen with a checksum that it was not registered with."""
    if not said.on_disk:
        return ""
    for result in said.results:
        known = registered.get(result.ref, "")
        seen = result.note.partition(" ")[0]
        if result.ok and known and _is_checksum(seen) and not known.startswith(seen):
            return f"{result.ref} is to have been {seen}, and was registered as {known[:16]}"
    return ""


def _is_checksum(word: str) -> bool:
    return len(word) >= _DIGEST_CHARS and all(each in "0123456789abcdef" for each in word)


def wrong_of(holdings: tuple[Holding, ...]) -> tuple[dict[str, Any], ...]:
    """The items that never held, as an amendment has them: ``item``, ``said``, ``is``, ``why``."""
    return tuple(
        {"item": one.item, "said": one.said, "is": one.now, "why": one.why}
        for one in holdings
        if one.standing == "never held"
    )
