"""The tables FSM-N and FSM-T: what they hold, what they refuse, and what follows from them."""

from itertools import product

import pytest
from tests.unit.core.story import Story

from perdure.core import commands as c
from perdure.core.machine import (
    NODE_EDGES,
    RC1,
    TASK_EDGES,
    edges_from,
    missing_payload,
    node_edge,
    open_question,
    retry_budget,
    startable,
    task_edge,
    unreplaced,
)
from perdure.core.model import CLOSED_STATES, NODE_STATES, TASK_STATES, Policies

# Protocol section 5, written down once more: the table is not to agree with itself only.
LEGAL = {
    ("PENDING", "READY"): "N01",
    ("READY", "RUNNING"): "N02",
    ("RUNNING", "VERIFYING"): "N03",
    ("RUNNING", "RETRYABLE"): "N04",
    ("RUNNING", "BLOCKED"): "N05",
    ("VERIFYING", "DONE"): "N06",
    ("VERIFYING", "RETRYABLE"): "N07",
    ("VERIFYING", "QUARANTINED"): "N08",
    ("BLOCKED", "READY"): "N09",
    ("BLOCKED", "CANCELLED"): "N10",
    ("RETRYABLE", "RUNNING"): "N11",
    ("RETRYABLE", "READY"): "N12",
    ("READY", "QUARANTINED"): "N13",
    ("PENDING", "CANCELLED"): "N15",
    ("READY", "CANCELLED"): "N15",
    ("RUNNING", "CANCELLED"): "N15",
    ("VERIFYING", "CANCELLED"): "N15",
    ("RETRYABLE", "CANCELLED"): "N15",
    ("DONE", "CANCELLED"): "N15",
}
LEGAL_TASK = {
    ("INIT", "DECOMPOSING"), ("DECOMPOSING", "EXECUTING"), ("EXECUTING", "RECOVERING"),
    ("EXECUTING", "SUSPENDED"), ("SUSPENDED", "RECOVERING"), ("RECOVERING", "EXECUTING"),
    ("RECOVERING", "DECOMPOSING"), ("RECOVERING", "FINAL_AUDIT"), ("EXECUTING", "FINAL_AUDIT"),
    ("EXECUTING", "DECOMPOSING"), ("FINAL_AUDIT", "DECOMPOSING"), ("FINAL_AUDIT", "ARCHIVED"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "target"), [*product(NODE_STATES, NODE_STATES)])
def test_a_node_moves_by_the_rows_of_the_protocol_and_by_no_other(source: str, target: str) -> None:
    edge = node_edge(source, target)
    assert (edge.id if edge else None) == LEGAL.get((source, target))


@pytest.mark.parametrize(("source", "target"), [*product(TASK_STATES, TASK_STATES)])
def test_a_task_moves_by_the_rows_of_the_protocol_and_by_no_other(source: str, target: str) -> None:
    edge = task_edge(source, target)
    assert (edge is not None) == ((source, target) in LEGAL_TASK)
    assert edge is None or (edge.source, edge.target) == (source, target)


def test_no_two_rows_are_the_same_move() -> None:
    moves = [(edge.source, edge.target) for edge in NODE_EDGES]
    assert len(moves) == len(set(moves)) == len(LEGAL)
    assert len({edge.id for edge in TASK_EDGES}) == len(TASK_EDGES) == len(LEGAL_TASK)


def test_nothing_leaves_quarantine_or_cancellation() -> None:
    assert edges_from("QUARANTINED") == edges_from("CANCELLED") == edges_from("NO SUCH") == ()


def test_n06_alone_leads_to_done_and_recovery_alone_leads_back() -> None:
    assert [edge.id for edge in NODE_EDGES if edge.target == "DONE"] == ["N06"]
    assert (RC1.source, RC1.target) == ("DONE", "READY")
    assert RC1 not in NODE_EDGES


def test_every_row_says_what_its_event_must_carry() -> None:
    for edge in NODE_EDGES:
        assert edge.required, edge.id
        assert missing_payload(edge, {}) == list(edge.required)
        assert missing_payload(edge, dict.fromkeys(edge.required, "x")) == []
        assert missing_payload(edge, dict.fromkeys(edge.required)) == list(edge.required)


# Guards


def test_a_node_is_startable_when_it_rests_its_deps_are_done_and_nothing_holds_it() -> None:
    story = Story()
    for number, state in enumerate(NODE_STATES):
        story.bring_to(f"N{number}", state)
    names = [
        n.node_id for n in story.replica.state.nodes.values() if startable(story.replica.state, n)
    ]
    assert [story.state_of(name) for name in names] == ["PENDING", "READY", "RETRYABLE"]


def test_an_open_dep_holds_a_node() -> None:
    story = Story()
    story.add("N1")
    story.add("N2", "N1")
    assert not startable(story.replica.state, story.node("N2"))
    story.finish("N1")
    assert startable(story.replica.state, story.node("N2"))


def test_a_dep_that_does_not_exist_holds_a_node_and_harms_nothing_else() -> None:
    story = Story()
    story.add("N1")
    story.node("N1").deps = ("GHOST",)
    assert not startable(story.replica.state, story.node("N1"))


def test_a_draft_holds_a_node() -> None:
    story = Story()
    story.add("N1", draft=True)
    assert not startable(story.replica.state, story.node("N1"))


def test_an_open_question_holds_its_node_alone() -> None:
    story = Story()
    for name in ("N1", "N2"):
        story.add(name, retry_budget=1)
        story.start(name)
    story.fail("N1")
    story.fail("N2", interruption=True)
    state = story.replica.state
    assert (open_question(state, "N1"), open_question(state, "N2")) == ("Q-N1-1", "")
    assert not startable(state, story.node("N1"))
    assert startable(state, story.node("N2"))


def test_the_retry_budget_is_the_nodes_own_or_the_policys() -> None:
    story = Story()
    story.add("N1")
    story.add("N2", retry_budget=0)
    state = story.replica.state
    assert [retry_budget(state, story.node(name)) for name in ("N1", "N2")] == [3, 0]
    state.policies = Policies(retry_budget=5)
    assert retry_budget(state, story.node("N1")) == 5


def test_an_effect_that_cannot_be_repeated_takes_an_authority_or_an_approval() -> None:
    for allowed, may in (((), False), (("N2",), False), (("N1",), True), (("*",), True)):
        story = Story(allowed=allowed)
        story.add("N1", effect="S3")
        assert startable(story.replica.state, story.node("N1")) is may


@pytest.mark.parametrize("effect", ["S0", "S1", "S2"])
def test_every_other_effect_takes_none(effect: str) -> None:
    story = Story()
    story.add("N1", effect=effect)
    assert startable(story.replica.state, story.node("N1"))


def test_a_node_is_replanned_by_an_amendment_since_it_failed() -> None:
    story = Story()
    story.add("N1")
    (old,) = story.do(c.AmendNode("N1", {"priority": 1}, "before it failed"))
    story.start("N1")
    story.fail("N1")
    node, edge = story.node("N1"), node_edge("RETRYABLE", "READY")
    assert edge is not None
    for cited in (None, "J-1", old.ref, "same tx"):
        assert "no amendment" in edge.guard(story.replica.state, node, {"amendment": cited})
    (new,) = story.do(c.AmendNode("N1", {"priority": 2}, "another way"))
    assert edge.guard(story.replica.state, node, {"amendment": new.ref}) == ""


def test_a_failed_verification_is_redone_only_while_strikes_are_left() -> None:
    story = Story()
    story.bring_to("N1", "VERIFYING")
    node, edge = story.node("N1"), node_edge("VERIFYING", "RETRYABLE")
    assert edge is not None
    assert [
        bool(edge.guard(story.replica.state, node, {})) for node.method_strikes in range(4)
    ] == [
        False,
        False,
        True,
        True,
    ]


# FSM-T


def test_an_empty_task_has_nothing_to_execute() -> None:
    edge = task_edge("DECOMPOSING", "EXECUTING")
    assert edge is not None
    assert "no nodes" in edge.guard(Story().replica.state)


def test_work_under_way_forbids_suspension_and_is_named() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    edge = task_edge("EXECUTING", "SUSPENDED")
    assert edge is not None
    assert "N1" in edge.guard(story.replica.state)
    story.fail("N1")
    assert edge.guard(story.replica.state) == ""


@pytest.mark.parametrize("state", NODE_STATES)
def test_the_final_audit_waits_for_every_node_and_for_successors(state: str) -> None:
    story = Story()
    story.bring_to("N1", state)
    edge = task_edge("EXECUTING", "FINAL_AUDIT")
    assert edge is not None
    refusal = edge.guard(story.replica.state)
    assert (refusal == "") == (state in CLOSED_STATES - {"QUARANTINED"})
    assert refusal == "" or "N1" in refusal


def test_a_quarantined_node_counts_as_settled_once_it_has_a_successor() -> None:
    story = Story()
    story.bring_to("N1", "QUARANTINED")
    assert unreplaced(story.replica.state) == ["N1"]
    story.add("N2", successor_of="N1")
    assert unreplaced(story.replica.state) == []
