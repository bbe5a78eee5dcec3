"""What a task file said of a node is remembered field by field."""

from typing import Any, cast

from perdure.control.plan_digest import changed_fields, entry_digests
from perdure.control.taskfile_nodes import NodePlan
from perdure.core.model import Budget, Criterion, Node, Spec
from perdure.core.people import Gate

PLAN = NodePlan("a", "A", Spec(run="ls", env={"B": "1", "A": "2"}), deps=("x",))


def node(plan: str) -> Node:
    return Node("a", "A", Spec(), plan=plan)


def test_what_has_its_default_is_not_remembered() -> None:
    """So a field that a later version adds does not make every entry a changed one."""
    names = [word.partition(":")[0] for word in entry_digests(PLAN).split()]
    assert names == ["deps", "env", "run", "title"]
    given = NodePlan("a", "A", Spec(budget=Budget(), cost=float("1"), env={}), priority=int("0"))
    assert entry_digests(given) == entry_digests(NodePlan("a", "A", Spec()))


def test_equal_entries_have_equal_digests() -> None:
    same = NodePlan("a", "A", Spec(run="ls", env={"A": "2", "B": "1"}), deps=("x",))
    assert entry_digests(same) == entry_digests(PLAN)
    assert changed_fields(same, node(entry_digests(PLAN))) == frozenset()


def test_digests_stay_what_they_are() -> None:
    """They are in journals: another way to make them would look like a change of every file."""
    assert entry_digests(NodePlan("a", "A", Spec(run="ls"))) == "run:eb27aa4b title:79864059"


def test_defaults_inside_of_a_field_are_not_remembered_either() -> None:
    level = str(bytes([86, 49]), "ascii")  # V1: equal to the default, and another object
    one, other = (
        NodePlan("a", "A", Spec(acceptance_criteria=(criterion,), gates=(gate,)))
        for criterion, gate in (
            (Criterion("exists", {"path": "x"}), Gate("g", "done", "?")),
            (
                Criterion("exists", {"path": "x"}, cast(Any, level)),
                Gate("g", "done", "?", scope=""),
            ),
        )
    )
    assert entry_digests(one) == entry_digests(other)


def test_fields_that_come_go_or_differ_have_changed() -> None:
    held = node(entry_digests(PLAN))
    other = NodePlan("a", "A", Spec(run="ls -l", cost=2.0), deps=("x",))
    assert changed_fields(other, held) == {"run", "env", "cost"}


def test_everything_has_changed_where_nothing_is_remembered() -> None:
    assert {"title", "run", "deps", "gates", "priority"} <= changed_fields(PLAN, node(""))
