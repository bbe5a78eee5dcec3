"""The order of the frontier, critical paths, and cycles."""

import pytest
from tests.unit.core.story import Story

from perdure.core import commands as c
from perdure.core.fold import Replica
from perdure.core.frontier import critical_paths, find_cycle, frontier
from perdure.core.model import Node, Spec, State


def test_an_empty_task_has_an_empty_frontier() -> None:
    assert frontier(Story().replica) == []


def test_priority_comes_first() -> None:
    story = Story()
    story.add("low", priority=-1)
    story.add("high", priority=2, cost=9.0)
    story.add("middle")
    story.add("after-middle", "middle", cost=100.0)
    assert frontier(story.replica) == ["high", "middle", "low"]


def test_then_the_longest_remaining_chain_of_open_work() -> None:
    story = Story()
    story.add("short", cost=3.0)
    story.add("long", cost=1.0)
    story.add("L2", "long", cost=1.0)
    story.add("L3", "L2", cost=1.5)
    assert frontier(story.replica) == ["long", "short"]
    assert critical_paths(story.replica)["long"] == 3.5


def test_then_the_cheapest() -> None:
    story = Story()
    story.add("A", cost=5.0)
    story.add("B", cost=2.0)
    story.add("after-B", "B", cost=3.0)
    assert frontier(story.replica) == ["B", "A"]


def test_then_the_id_by_number() -> None:
    story = Story()
    for name in ("W10", "W9", "W100", "V2", "W9.1"):
        story.add(name)
    assert frontier(story.replica) == ["V2", "W9", "W9.1", "W10", "W100"]


def test_closed_work_adds_nothing_to_a_chain() -> None:
    story = Story()
    story.add("A")
    story.add("B", "A", cost=50.0)
    story.add("C")
    story.add("D", "C", cost=2.0)
    assert frontier(story.replica) == ["A", "C"]
    story.do(c.CancelNodes(("B",), "not wanted"))
    assert frontier(story.replica) == ["C", "A"]


def test_work_under_way_and_closed_work_is_not_offered() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.bring_to("N2", "VERIFYING")
    story.bring_to("N3", "DONE")
    story.bring_to("N4", "BLOCKED")
    story.add("N5", "N3")
    story.add("N6", "N1")
    assert frontier(story.replica) == ["N5"]


def test_the_order_does_not_depend_on_the_order_of_adding() -> None:
    names = ["a1", "a2", "a10", "b"]
    orders = []
    for start in range(4):
        story = Story()
        for name in names[start:] + names[:start]:
            story.add(name)
        orders.append(frontier(story.replica))
    assert orders == [names] * 4


def test_a_deep_chain_and_a_wide_diamond_are_no_trouble() -> None:
    story = State(task_id="T", created="now")
    for number in range(3_000):
        deps = (f"n{number - 1}",) if number else ()
        story.nodes[f"n{number}"] = Node(f"n{number}", "x", Spec(), deps=deps)
    for number in range(300):
        story.nodes[f"w{number}"] = Node(f"w{number}", "x", Spec(), deps=("n2999",))
    story.nodes["end"] = Node("end", "x", Spec(), deps=tuple(f"w{n}" for n in range(300)))
    assert critical_paths(Replica(story))["n0"] == 3_002.0


def test_a_cycle_in_somebody_elses_graph_does_not_hang() -> None:
    state = State(task_id="T", created="now")
    for name, deps in {
        "a": ("b",),
        "b": ("a",),
        "s": ("s",),
        "x": (),
        "y": ("a",),
        "z": (),
    }.items():
        state.nodes[name] = Node(name, "x", Spec(), deps=deps)
    assert frontier(Replica(state)) == ["x", "z"]


@pytest.mark.parametrize(
    ("deps", "cycle"),
    [
        ({}, []),
        ({"a": ("b",), "b": ()}, []),
        ({"a": ("a",)}, ["a", "a"]),
        ({"a": ("b",), "b": ("c",), "c": ("a",)}, ["a", "b", "c", "a"]),
        ({"x": ("a",), "a": ("b",), "b": ("a",)}, ["a", "b", "a"]),
        ({"a": ("b", "c"), "b": ("d",), "c": ("d",), "d": ()}, []),
        ({"a": ("ghost",)}, []),
        ({"a": ("b", "b"), "b": ("c", "c"), "c": ()}, []),
    ],
)
def test_a_cycle_is_found_and_spelled_out(
    deps: dict[str, tuple[str, ...]], cycle: list[str]
) -> None:
    assert find_cycle(deps) == cycle
