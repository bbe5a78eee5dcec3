"""The frontier is a function of the graph: total, stable, and exactly what may start."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.story import Story

from perdure.core import commands as c
from perdure.core.codec import from_json, to_json
from perdure.core.fold import Replica
from perdure.core.frontier import critical_paths, frontier
from perdure.core.machine import startable
from perdure.core.model import ID_PATTERN, Node, Spec, State, id_key

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,6}", fullmatch=True)


@st.composite
def graphs(draw: st.DrawFn) -> State:
    """Some nodes in some states; deps point backwards, so there is no cycle."""
    state = State(task_id="T1", created="now")
    names = draw(st.lists(IDS, min_size=1, max_size=12, unique=True))
    for at, name in enumerate(names):
        deps = draw(st.lists(st.sampled_from(names[:at]), max_size=3, unique=True)) if at else []
        node_state = draw(st.sampled_from(["PENDING", "PENDING", "READY", "RETRYABLE", "DONE"]))
        state.nodes[name] = Node(
            name,
            name,
            Spec(cost=draw(st.sampled_from([0.5, 1.0, 2.0]))),
            deps=tuple(deps),
            state=node_state,
            priority=draw(st.integers(-1, 1)),
        )
    return state


def rank(replica: Replica, name: str) -> tuple[object, ...]:
    node = replica.state.nodes[name]
    return (-node.priority, -critical_paths(replica)[name], node.spec.cost, id_key(name))


@settings(max_examples=50)
@given(graphs())
def test_the_frontier_is_exactly_what_may_start(state: State) -> None:
    names = frontier(Replica(state))
    assert len(names) == len(set(names))
    assert set(names) == {n.node_id for n in state.nodes.values() if startable(state, n)}


@settings(max_examples=50)
@given(graphs())
def test_every_two_nodes_of_it_are_ordered_and_the_order_is_strict(state: State) -> None:
    replica = Replica(state)
    ranks = [rank(replica, name) for name in frontier(replica)]
    for first, second in pairwise(ranks):
        assert first < second


@settings(max_examples=50)
@given(graphs(), st.randoms(use_true_random=False))
def test_it_does_not_depend_on_the_order_of_the_records(state: State, random: object) -> None:
    names = list(state.nodes)
    random.shuffle(names)  # type: ignore[attr-defined]
    copy = from_json(to_json(state), State)
    copy.nodes = {name: copy.nodes[name] for name in names}
    assert frontier(Replica(copy)) == frontier(Replica(state))


@settings(max_examples=50)
@given(graphs())
def test_a_critical_path_is_the_longest_chain_of_open_work(state: State) -> None:
    replica = Replica(state)
    closed = {"DONE", "QUARANTINED", "CANCELLED"}

    def longest(name: str) -> float:
        behind = [d for d in replica.dependents.get(name, ()) if state.nodes[d].state not in closed]
        return state.nodes[name].spec.cost + max(map(longest, behind), default=0.0)

    assert critical_paths(replica) == {name: longest(name) for name in state.nodes}


@settings(max_examples=50)
@given(graphs())
def test_working_off_the_frontier_finishes_everything(state: State) -> None:
    story = Story()
    for node in state.nodes.values():
        story.add(node.node_id, *node.deps, priority=node.priority, cost=node.spec.cost)
    finished = []
    while names := frontier(story.replica):
        story.finish(names[0])
        finished.append(names[0])
    assert sorted(finished) == sorted(state.nodes)
    story.do(c.MoveTask("FINAL_AUDIT"))


@given(st.lists(IDS, max_size=20))
def test_ids_are_ordered_by_number_and_never_equal_unless_they_are(names: list[str]) -> None:
    assert all(ID_PATTERN.match(name) for name in names)
    keys = {id_key(name): name for name in names}
    backwards = list(reversed(names))
    assert len(keys) == len(set(names))
    assert sorted(names, key=id_key) == sorted(backwards, key=id_key)


@pytest.mark.parametrize("names", [["W9", "W10"], ["N-2.3", "N-2.10"], ["9", "10"], ["a", "a1"]])
def test_ids_count(names: list[str]) -> None:
    backwards = list(reversed(names))
    assert sorted(backwards, key=id_key) == names
