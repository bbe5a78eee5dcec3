"""The audit of a whole task: what an item is, what it says, and what a record holds (HALT-11).

Job: the types that every item shares, and the record that they make together. Invariants: an item
reads the journal event by event and what was seen on the disk, and nothing else, so that the same
prefix and the same disk give the same record; a verdict always comes with its method, its inputs
and its results one by one (A-4); a record says for which prefix it is true.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.record import Record

ItemVerdict = Literal["PASS", "FAIL", "N/A"]

results_kept_max: Final = 200
"""Results that an item lists one by one, those that do not hold first; of all there is a digest."""


class Seen(NamedTuple):
    """What was seen of one file."""

    sha256: str = ""
    """Empty: it is not there, or cannot be read."""
    size_bytes: int = -1
    problem: str = ""


class DiskFacts(msgspec.Struct):
    """What the auditor saw besides the journal, all of it with its own eyes."""

    artifacts: dict[str, Seen] = {}
    """By artifact id; of those that have bytes of their own to be looked at."""
    contracts: dict[str, Seen] = {}
    """By the path that an event cites."""
    contract_texts: dict[str, dict[str, Any]] = {}
    """The same contracts, read; one that is no contract is absent."""
    projections: dict[str, str] = {}
    """Workspace-relative name to ``whole``, ``missing``, ``lagging`` or ``wrong: WHY``."""
    mirror: str = ""
    """Of tier 2: ``whole``, or what is wrong with it; empty where there is none to be."""
    damage: str = ""
    """Of the journal itself: where it ends being whole, and why; empty when it is whole."""
    unchained: int = 0
    checkpoint_bytes: int = -1
    instances: dict[str, dict[str, Any]] = {}
    """By invocation: what is known of a nested task: ``fsm_task``, ``terminal``, ``result``."""
    ledgers: dict[str, dict[str, Any]] = {}
    """By batch node: counts of its unit log: ``done``, ``failed``, ``repeated``, ``problem``."""
    memory: dict[str, Any] | None = None
    """The project's memory store as its own check found it; None where there is none."""
    enforced: dict[str, str] = {}
    """By invocation: how its write scope was held, or ``policy only``."""


class Result(Record, msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that an item looked at."""

    ref: str
    ok: bool
    note: str = ""


class Findings(NamedTuple):
    """What one item comes to. No results at all is N/A, with the reason in ``why``."""

    results: tuple[Result, ...] = ()
    why: str = ""
    inputs: tuple[str, ...] = ()


class Item:
    """One line of the checklist: sees every event in order, then judges.

    ``see`` is called for each event after it was folded into ``replica``; what an item wants to
    remember of it it keeps itself. One object makes one audit.
    """

    id: str = ""
    title: str = ""
    rule: str = ""
    method: str = ""
    """How the verdict is reached, so that somebody else can reach it again."""
    on_disk: bool = False
    """Whether it rests on the disk as well: then it may come to hold no more, without a lie."""
    tier: int = 1
    """The least tier that it applies to."""

    def see(self, event: Event, replica: Replica) -> None:
        """Take one event in."""

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What all of it comes to."""
        raise NotImplementedError


ItemFactory = Callable[[], Item]


def ok(ref: str, note: str = "") -> Result:
    """Something that is as it has to be."""
    return Result(ref, True, note)


def bad(ref: str, note: str) -> Result:
    """Something that is not, and what is the matter."""
    return Result(ref, False, note)


class ItemRecord(Record, msgspec.Struct, frozen=True, omit_defaults=True):
    """One item as a record holds it."""

    item: str
    title: str
    rule: str
    verdict: ItemVerdict
    method: str
    inputs: tuple[str, ...] = ()
    results: tuple[Result, ...] = ()
    looked_at: int = 0
    failed: int = 0
    digest: str = ""
    """Sixteen hexadecimal digits over all results, those too that are not listed."""
    why: str = ""
    on_disk: bool = False


class AuditRecord(Record, msgspec.Struct, frozen=True):
    """The record of one audit."""

    task_id: str
    created: str
    """When the task began, as its journal says: two tasks may bear one name."""
    tier: int
    seq: int
    h: str
    """The end of the prefix that was audited, and its chain value."""
    audited_at: str
    auditor: str
    passed: bool
    """No item failed."""
    counts: Mapping[str, int]
    items: tuple[ItemRecord, ...]
    format: int = 1
