"""Putting a record on record: what is none, and what is of something else, is refused (A-4)."""

from typing import Any

import msgspec
import pytest
from tests.unit.core.story import Story

from perdure.core import closing_commands as k
from perdure.core.codec import to_json
from perdure.core.events import Event
from perdure.core.task_audit import AuditRecord, DiskFacts
from perdure.core.task_audit_items import ITEMS
from perdure.core.task_audit_record import make_record
from perdure.errors import HaltError, RefusedError, UsageError

Raw = dict[str, Any]


def lived() -> Story:
    story = Story()
    story.add("N1")
    story.finish("N1")
    return story


def record_of(story: Story) -> AuditRecord:
    """What an audit of a story makes, where nobody has looked at its disk."""
    made = [factory() for factory in ITEMS]
    return make_record(
        made, story.replica, DiskFacts(), story.tip, audited_at="", auditor="verifier:v"
    )


def raw(story: Story) -> Raw:
    found: Raw = msgspec.json.decode(to_json(msgspec.to_builtins(record_of(story))))
    return found


def put(story: Story, record: Raw) -> list[Event]:
    return story.do(k.RecordTaskAudit(record))


def test_a_record_is_stored_whole() -> None:
    story = lived()
    record = raw(story)
    (event,) = put(story, record)
    assert (event.kind, event.payload["op"]) == ("NOTE", "task_audit")
    assert event.payload["record"] == record
    assert event.evidence == [f"J-{record['seq']}"]
    assert story.replica.state.closing.audit == event.ref
    assert story.replica.state.closing.audit_passed is record["passed"]


def test_a_record_of_an_earlier_prefix_may_be_put_on_record() -> None:
    story = lived()
    record = raw(story)
    story.add("N2")
    assert put(story, record)


@pytest.mark.parametrize(
    ("change", "error", "code"),
    [
        ({"task_id": "T2"}, RefusedError, "another_task"),
        ({"created": "2001-01-01T00:00:00Z"}, RefusedError, "another_task"),
        ({"seq": 10_000}, RefusedError, "another_history"),
        ({"items": []}, UsageError, "not_a_record"),
        ({"items": "32/32 PASS"}, UsageError, "not_a_record"),
        ({"counts": {"PASS": 32, "FAIL": 0, "N/A": 0}}, UsageError, "not_a_record"),
        ({"passed": "yes"}, UsageError, "not_a_record"),
    ],
)
def test_what_is_no_record_of_this_task_writes_nothing(
    change: Raw, error: type[HaltError], code: str
) -> None:
    story = lived()
    record = {**raw(story), **change}
    before = story.journal
    with pytest.raises(error) as caught:
        put(story, record)
    assert (caught.value.code, caught.value.rule) == (code, "A-4")
    assert story.journal == before


def test_a_record_that_passed_with_a_failure_in_it_writes_nothing() -> None:
    story = lived()
    record = raw(story)
    assert record["counts"]["FAIL"]  # nobody has looked at the disk
    with pytest.raises(UsageError) as caught:
        put(story, {**record, "passed": True})
    assert caught.value.code == "not_a_record"


def test_an_item_that_stands_twice_is_no_record() -> None:
    story = lived()
    record = raw(story)
    extra = record["items"][0]
    record["items"].append(extra)
    record["counts"][extra["verdict"]] += 1
    with pytest.raises(UsageError):
        put(story, record)
