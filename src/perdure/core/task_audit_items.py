"""The checklist of the task audit: every item, in order (HALT-11).

Invariants: one item for each line of the checklist, each id once; an audit makes its own objects.
"""

from typing import Final

from perdure.core import audit_auditability as a
from perdure.core import audit_bounds as b
from perdure.core import audit_containment as c
from perdure.core import audit_knowledge as k
from perdure.core import audit_parallel as w
from perdure.core import audit_people as p
from perdure.core import audit_recovery as r
from perdure.core import audit_truth as t
from perdure.core import audit_verification as v
from perdure.core.task_audit import ItemFactory

ITEMS: Final[tuple[ItemFactory, ...]] = (
    t.FourArtifacts,
    t.ContractsKept,
    t.CommitRule,
    t.ProjectionsFollow,
    t.DiskDecides,
    t.ClaimsMoveNothing,
    r.RecoveryFirst,
    r.NothingHalf,
    r.UnitsOnce,
    r.TailsKept,
    r.HistoryWhole,
    r.NothingLost,
    v.LevelsHeld,
    v.ClaimedFirst,
    *b.ITEMS,
    *c.ITEMS,
    *w.ITEMS,
    *p.ITEMS,
    *k.ITEMS,
    *a.ITEMS,
)

GROUPS: Final = {
    "A1": "Durability",
    "A2": "Truth",
    "A3": "Recovery",
    "A4": "History",
    "A5": "Verification",
    "A6": "Bounded context",
    "A7": "Containment",
    "A8": "Parallel work",
    "A9": "People",
    "A10": "Memory",
    "A11": "Auditability",
}


def group_of(item: str) -> str:
    """``A2`` of ``A2.1``."""
    return item.partition(".")[0]
