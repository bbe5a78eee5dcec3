"""Ids and statuses that cross the border between a caller and an instance."""

import pytest
from tests.unit.core.story import ME, Story

from perdure.core import commands as c
from perdure.core import instance as i
from perdure.core.actions import SopCall
from perdure.core.dispatching import Parent
from perdure.core.model import ID_PATTERN


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("done", ("done", "")),
        ("done_with_gaps", ("done_with_gaps", "")),
        ("blocked(ask:Q-N1-3.2)", ("blocked", "Q-N1-3.2")),
        ("failed(permanent-spec)", ("failed", "permanent-spec")),
        ("failed", None),
        ("failed()", None),
        ("failed(anything)", None),
        ("blocked(ask:)", None),
        ("done ", None),
        ("", None),
    ],
)
def test_a_status_is_one_of_the_closed_set(text: str, status: tuple[str, str] | None) -> None:
    assert i.read_status(text) == status


def test_statuses_that_are_written_are_read() -> None:
    assert i.read_status(i.blocked("Q-1")) == ("blocked", "Q-1")
    assert i.read_status(i.failed("transient-agent")) == ("failed", "transient-agent")


def test_a_reference_across_instances_names_both() -> None:
    assert i.qualified("inv-1-ab", "N-042.3") == "inv-1-ab#N-042.3"
    assert i.taken_apart("inv-1-ab#N-042.3") == ("inv-1-ab", "N-042.3")
    assert i.taken_apart("N-042.3") == ("", "N-042.3")


def test_the_same_question_is_passed_on_under_the_same_id_and_another_under_another() -> None:
    one = i.forwarded_id("inv-20261130202802-1f2e3d4c#Q-001")
    assert one == "up-1f2e3d4c-Q-001"
    assert i.forwarded_id("inv-20261130202802-5a6b7c8d#Q-001") != one
    long = i.forwarded_id(f"inv-20261130202802-1f2e3d4c#{'Q' * 64}")
    assert ID_PATTERN.match(long)
    assert long != i.forwarded_id(f"inv-20261130202802-1f2e3d4c#{'R' * 64}")


def test_lineage_and_depth_are_counted_from_the_root() -> None:
    assert (i.lineage({}, None), i.depth_of(None)) == ((), 1)
    parent = Parent("T", "N", "inv-1", 3, ("outer", "middle"))
    assert i.lineage({"id": "inner"}, parent) == ("outer", "middle", "inner")
    assert i.depth_of(parent) == 3


def test_a_node_keeps_its_instance_under_later_contracts_that_say_so() -> None:
    story = Story()
    story.add("N", sop=SopCall("acme.x"))
    contract = c.IssuedContract("inv-1", "ab" * 32, ME, None, {})
    story.do(c.MoveNode("N", "RUNNING", contract=contract))
    assert story.node("N").child_ref == "inv-1"
    story.do(c.FailNode("N", "transient-agent", "killed", interruption=True))
    later = c.IssuedContract("inv-2", "ab" * 32, ME, None, {})
    story.do(c.MoveNode("N", "RUNNING", payload={"child_ref": "inv-1"}, contract=later))
    assert (story.node("N").child_ref, story.node("N").invocation) == ("inv-1", "inv-2")
    story.do(c.FailNode("N", "transient-agent", "exit 1"))
    anew = c.IssuedContract("inv-3", "ab" * 32, ME, None, {})
    story.do(c.MoveNode("N", "RUNNING", contract=anew))
    assert story.node("N").child_ref == "inv-3"
