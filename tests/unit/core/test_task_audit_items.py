"""The checklist as a whole: no item cries out over what perdure itself has written."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.unit.core.story import Story

from perdure.core.codec import Scan
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.rules import RULES
from perdure.core.task_audit import DiskFacts, Findings, Item, ItemFactory
from perdure.core.task_audit_items import GROUPS, ITEMS, group_of

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("**/*.jsonl"))


def judged(items: Iterable[ItemFactory], journal: bytes) -> dict[str, Findings]:
    """What items say of a journal whose workspace nobody has looked at."""
    made, replica = [factory() for factory in items], Replica()
    for events in Scan().commits([journal]):
        for event in events:
            replica.apply(event)
            for item in made:
                item.see(event, replica)
    return {item.id: item.judge(replica, DiskFacts()) for item in made}


def of(story: Story, item: type[Item]) -> Findings:
    """What one item says of a story."""
    return judged([item], story.journal)[item.id]


def failures(findings: Findings) -> list[str]:
    return [f"{result.ref}: {result.note}" for result in findings.results if not result.ok]


def test_the_checklist_is_whole() -> None:
    items = [factory() for factory in ITEMS]
    per_group = {group: sum(group_of(item.id) == group for item in items) for group in GROUPS}
    assert per_group == {
        "A1": 3, "A2": 3, "A3": 4, "A4": 2, "A5": 2, "A6": 3, "A7": 3, "A8": 3, "A9": 3,
        "A10": 3, "A11": 3,
    }  # fmt: skip
    assert len({item.id for item in items}) == 32


@pytest.mark.parametrize("factory", ITEMS, ids=lambda factory: factory().id)
def test_an_item_says_what_it_does(factory: ItemFactory) -> None:
    item = factory()
    assert item.rule in RULES
    assert item.title[0].isupper()
    assert not item.title.endswith(".")
    assert item.method.endswith(".")
    assert len(item.method) > 60


JUDGED_WITHOUT_A_DISK = (
    "A1.3", "A2.3", "A3.1", "A3.2", "A5", "A6", "A7", "A8", "A9", "A10", "A11",
)  # fmt: skip
"""Items and groups that need nothing, or say nothing, where nobody has looked at the disk."""


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_what_every_version_has_written_fails_nothing(path: Path) -> None:
    items = [
        made
        for made in ITEMS
        if {made().id, group_of(made().id)}.intersection(JUDGED_WITHOUT_A_DISK)
    ]
    for name, findings in judged(items, path.read_bytes()).items():
        assert failures(findings) == [], name
        assert findings.results or findings.why, name


def test_an_audit_of_a_prefix_is_what_it_was_then() -> None:
    """Nothing that comes later changes what an item says of what came before."""
    story = Story()
    story.add("N1")
    story.finish("N1")
    before = {name: one.results for name, one in judged(ITEMS, story.journal).items()}
    prefix = story.journal
    story.add("N2")
    story.finish("N2")
    again = {name: one.results for name, one in judged(ITEMS, prefix).items()}
    assert before == again


def test_an_event_of_nobody_knows_what_is_no_error() -> None:
    odd = [
        {"kind": "DECISION", "payload": {"op": "mode", "mode": 7, "window": "x"}},
        {"kind": "DECISION", "payload": {"op": "ask", "kind": "escalation", "package": [1]}},
        {"kind": "DECISION", "payload": {"op": "slot", "node": 3, "contract": 1, "units": "many"}},
        {"kind": "DECISION", "payload": {"op": "answer", "ruling": ["approve"]}},
        {"kind": "DECISION", "payload": {"op": "decision", "memory": ["MEM-1", {"flags": 3}]}},
        {"kind": "DECISION", "payload": {"op": "decision", "memory": 7, "edges": "all"}},
        {"kind": "NOTE", "payload": {"op": "slot_closed", "end": {}, "first": "yes"}},
        {"kind": "NOTE", "payload": {"op": "acknowledged", "applied": [], "steering": {}}},
        {"kind": "NOTE", "payload": {"op": "task_audit", "record": "14/14 PASS"}},
        {"kind": "NOTE", "payload": {"op": "audit", "items": [1, None], "passed": True}},
        {"kind": "NOTE", "payload": {"op": "memory_proposals", "proposals": [None, "x"]}},
        {"kind": "AMENDMENT", "payload": {"op": "add_node", "after": None}},
        {"kind": "AMENDMENT", "payload": {"op": "amend_node", "after": []}},
        {"kind": "GOAL_AMENDED", "payload": {"blast_radius": "all"}},
        {"kind": "STEERING_LOGGED", "payload": {"verbatim": 7, "targets": {}}},
        *(
            {"kind": "STATE_TRANSITION", "payload": {"edge": edge, "to": to, "usage": [], **more}}
            for edge, to in (("N02", "RUNNING"), ("N04", "RETRYABLE"), ("N06", "DONE"), ([], {}))
            for more in ({"executor": "x", "checks": [None]}, {"death": 3, "approvals": [1]})
        ),
    ]
    made, replica = [factory() for factory in ITEMS], Replica()
    for seq, line in enumerate(odd, 1):
        event = Event(seq, "", "", str(line["kind"]), payload=dict(line["payload"]))  # type: ignore[call-overload]
        replica.apply(event)
        for item in made:
            item.see(event, replica)
    for item in made:
        item.judge(replica, DiskFacts())
