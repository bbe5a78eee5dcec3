"""What each kind of event does to the state, and that nothing committed is ever refused."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.story import Story, replay

from perdure.core import commands as c
from perdure.core.codec import EMPTY_TIP, encode_commit, from_json, to_json
from perdure.core.events import ENTITY_TYPES, KINDS, OPS, Draft, Entity, Event
from perdure.core.fold import Replica
from perdure.core.frontier import frontier
from perdure.core.model import (
    NODE_STATES,
    Executor,
    Policies,
    State,
    ops_kept_max,
    text_digest,
)
from perdure.core.projection import checkpoint_view, graph_view, registry_view


def apply(
    replica: Replica, kind: str, entity: Entity, payload: dict[str, Any], **more: Any
) -> None:
    replica.apply(Event(replica.state.seq + 1, "now", "a:b", kind, None, entity, payload, **more))


# The task


def test_the_first_event_names_the_task_and_later_ones_of_its_kind_change_nothing() -> None:
    replica = Replica()
    first = {"task": "T1", "goal": "g", "acceptance": ["a"], "tier": 2, "people": {"x": 1}}
    apply(replica, "INSTANCE_STARTED", Entity("task", "T1"), first)
    apply(replica, "INSTANCE_STARTED", Entity("task", "T2"), {"task": "T2", "goal": "other"})
    state = replica.state
    assert (state.task_id, state.goal_statement, state.acceptance) == ("T1", "g", ("a",))
    assert (state.tier, state.people, state.created, state.seq) == (2, {"x": 1}, "now", 2)


def test_other_names_of_the_same_fields_are_read() -> None:
    replica = Replica()
    apply(replica, "INSTANCE_STARTED", Entity("task", "T1"), {"task_id": "T9", "desc": "g"})
    assert (replica.state.task_id, replica.state.goal_statement) == ("T9", "g")


def test_policies_come_from_the_first_event_and_the_rest_are_the_reference_ones() -> None:
    replica = Replica()
    payload = {"task": "T1", "policies": {"retry_budget": 7, "unknown": 1}}
    apply(replica, "INSTANCE_STARTED", Entity("task", "T1"), payload)
    assert replica.state.policies == Policies(retry_budget=7)


def test_the_end_of_an_instance_is_terminal_and_keeps_its_outcome() -> None:
    story = Story()
    story.commit(Draft("INSTANCE_ENDED", "task", "T1", {"outcome": "finished"}))
    assert (story.replica.state.terminal, story.replica.state.outcome) == (True, "finished")


def test_sequence_time_and_the_highest_epoch_come_from_the_events() -> None:
    replica = Replica()
    for epoch in (2, 5, 3):
        apply(replica, "NOTE", Entity(), {}, epoch=epoch)
    assert (replica.state.seq, replica.state.epoch, replica.state.updated_at) == (3, 5, "now")


def test_a_goal_amendment_replaces_the_goal_and_is_counted() -> None:
    story = Story()
    story.commit(Draft("GOAL_AMENDED", "task", "T1", {"old": "the goal", "new": "another"}))
    state = story.replica.state
    assert (state.goal_statement, state.goal_amendments) == ("another", 1)


def test_a_hint_is_kept_and_other_notes_change_nothing_but_the_position() -> None:
    story = Story()
    story.do(c.WriteNote("start with N7", "hint"))
    story.do(c.WriteNote("just so"))
    assert story.replica.state.next_hint == "start with N7"


def test_steering_is_kept_by_id_with_the_event_that_logged_it() -> None:
    story = Story()
    events = story.do(c.LogSteering("ST-7", "stop"))
    kept = story.replica.state.steering
    assert [*kept] == ["ST-7"]
    assert (kept["ST-7"].ref, kept["ST-7"].digest) == (events[0].ref, text_digest("stop"))


# Nodes


def test_a_new_node_is_pending_and_remembers_the_event_that_made_it() -> None:
    story = Story()
    story.add("N1")
    node = story.node("N1")
    assert (node.state, node.notes_ref, node.attempts) == ("PENDING", "J-3", 0)


def test_running_issues_a_contract_and_every_way_out_ends_it() -> None:
    for way in ("claim", "fail", "block", "cancel"):
        story = Story()
        story.bring_to("N1", "RUNNING")
        contract = story.replica.state.contracts["inv-N1-1"]
        assert (contract.node, contract.epoch, story.node("N1").attempts) == ("N1", 1, 1)
        if way == "claim":
            story.claim("N1")
        elif way == "fail":
            story.fail("N1")
        elif way == "block":
            story.do(c.MoveNode("N1", "BLOCKED", payload={"reason": "r", "wake": "w"}))
        else:
            story.do(c.CancelNodes(("N1",), "not wanted"))
        assert story.replica.state.contracts == {}, way


def test_strikes_are_failures_that_were_observed_and_interruptions_are_not() -> None:
    story = Story()
    story.bring_to("N1", "RETRYABLE")
    story.start("N1")
    story.fail("N1", interruption=True)
    node = story.node("N1")
    assert (node.strikes, node.method_strikes, node.interruptions) == (1, 1, 1)
    assert (node.failure_class, node.diagnosis) == ("transient-agent", "exit 3")


def test_another_method_begins_without_strikes_and_the_total_stays() -> None:
    story = Story()
    story.bring_to("N1", "RETRYABLE")
    story.do(c.RetryNode("N1", "because", "by hand"))
    node = story.node("N1")
    assert (node.method, node.method_strikes, node.strikes) == ("by hand", 0, 1)


def test_a_retry_by_the_same_method_keeps_its_strikes() -> None:
    story = Story()
    story.bring_to("N1", "RETRYABLE")
    story.do(c.RetryNode("N1", "because"))
    assert story.node("N1").method_strikes == 1


def test_blocked_says_why_and_forgets_it_when_it_wakes() -> None:
    story = Story()
    story.bring_to("N1", "BLOCKED")
    assert story.node("N1").blocked == {"reason": "wall", "wake": "gone"}
    story.do(c.MoveNode("N1", "READY", ("J-1",)))
    assert story.node("N1").blocked is None


def test_done_clears_the_diagnosis_and_closes_the_nodes_questions() -> None:
    story = Story()
    story.bring_to("N1", "RETRYABLE")
    story.finish("N1")
    node = story.node("N1")
    assert (node.state, node.failure_class, node.diagnosis) == ("DONE", None, "")


def test_cancelling_closes_the_nodes_questions() -> None:
    story = Story()
    story.add("N1", retry_budget=1)
    story.start("N1")
    story.fail("N1")
    assert list(story.replica.state.questions) == ["Q-N1-1"]
    story.do(c.CancelNodes(("N1",), "not wanted"))
    assert story.replica.state.questions == {}


def test_an_amendment_changes_what_it_names_and_leaves_its_mark() -> None:
    story = Story()
    story.add("N1")
    story.add("N2", "N1")
    story.add("N3")
    events = story.do(c.AmendNode("N2", {"deps": ["N3"], "priority": 4, "title": "new"}, "so"))
    node = story.node("N2")
    assert (node.deps, node.priority, node.title) == (("N3",), 4, "new")
    assert node.amended_by == (events[0].ref,)
    assert story.replica.dependents == {"N1": [], "N3": ["N2"]}


def test_a_receipt_is_kept_at_its_node() -> None:
    story = Story()
    story.add("N1")
    story.do(c.RecordReceipt("N1", "order 4711", "RC-1"))
    assert story.node("N1").receipt == "RC-1"


def test_a_heartbeat_renews_a_sessions_contract_and_not_a_processs() -> None:
    story = Story()
    for name in ("N1", "N2"):
        story.add(name)
    session = Executor("executor:me", "session")
    contract = c.IssuedContract("inv-1", "ab" * 32, session, story.now + 10, {})
    story.do(c.MoveNode("N1", "RUNNING", contract=contract))
    story.start("N2")
    story.do(c.Beat(("N1", "N2")))
    contracts = story.replica.state.contracts
    assert contracts["inv-1"].expires_at == story.now + Policies().contract_ttl_s
    assert contracts["inv-N2-1"].expires_at is None
    assert contracts["inv-N2-1"].last_beat_at == story.now


# Artifacts


def test_a_registration_counts_for_its_node_and_holds_its_path() -> None:
    story = Story()
    story.add("N1")
    story.register("N1", "A-1", "artifacts/N1/a.txt")
    artifact = story.replica.state.artifacts["A-1"]
    assert (artifact.status, artifact.commit_event) == ("current", 4)
    assert story.node("N1").artifacts == ("A-1",)
    assert story.replica.paths == {"artifacts/N1/a.txt": "A-1"}


def test_a_quarantined_artifact_frees_its_path_and_tells_where_its_bytes_went() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.register("N1", "A-1", "artifacts/N1/a.txt")
    story.fail("N1")
    artifact = story.replica.state.artifacts["A-1"]
    assert artifact.status == "quarantined"
    assert (artifact.path, artifact.origin) == ("artifacts/old/A-1-1/a.txt", "artifacts/N1/a.txt")
    assert (story.node("N1").artifacts, story.replica.paths) == ((), {})


def test_a_superseded_artifact_names_its_successor_and_keeps_its_path() -> None:
    story = Story()
    story.register(None, "A-1", "report.md")
    story.register(None, "A-2", "report.v2.md", value="cd" * 32)
    assert story.replica.state.artifacts["A-1"].status == "superseded(by:A-2)"
    assert story.replica.paths == {"report.md": "A-1", "report.v2.md": "A-2"}


# Ops


def test_an_op_id_leads_to_the_first_event_of_its_commit() -> None:
    story = Story()
    story.add("N1")
    story.do(c.CancelNodes(("N1",), "not wanted"), op="op-1")
    assert story.replica.state.ops == {"op-1": 4}


def test_the_oldest_op_ids_are_forgotten_and_it_is_known_up_to_when() -> None:
    replica = Replica()
    ops = ["named-by-a-caller", *(f"op-{1_000 + n}-ab" for n in range(ops_kept_max + 2))]
    for seq, op in enumerate(ops, 1):
        replica.apply(Event(seq, "now", "a:b", "NOTE", op=op))
    state = replica.state
    assert list(state.ops) == ops[3:]
    assert state.ops_forgotten_ms == 1_001


def test_an_op_id_from_a_clock_that_is_ahead_does_not_make_later_ones_look_old() -> None:
    replica = Replica()
    now = "2027-01-15T08:00:00.000+00:00"
    ahead = "op-9999999999999-ab"
    for seq, op in enumerate([ahead, *(f"m{n}" for n in range(ops_kept_max))], 1):
        replica.apply(Event(seq, now, "a:b", "NOTE", op=op))
    assert ahead not in replica.state.ops
    assert replica.state.ops_forgotten_ms == 1_800_000_000_000


# What others write


def test_unknown_kinds_are_counted_and_otherwise_ignored() -> None:
    story = Story()
    before = to_json(story.replica.state)
    apply(story.replica, "WEATHER", Entity("node", "N1"), {"to": "DONE"})
    assert story.replica.state.ignored_kinds == {"WEATHER": 1}
    story.replica.state.ignored_kinds = {}
    story.replica.state.seq -= 1
    story.replica.state.updated_at = msgspec.json.decode(before)["updated_at"]
    assert to_json(story.replica.state) == before


def test_known_kinds_without_an_effect_of_their_own_are_not_counted_as_unknown() -> None:
    story = Story()
    for kind in sorted(KINDS):
        apply(story.replica, kind, Entity(), {})
    assert story.replica.state.ignored_kinds == {}


def test_a_move_of_a_node_nobody_added_makes_it_known_as_a_draft() -> None:
    replica = Replica()
    apply(replica, "STATE_TRANSITION", Entity("node", "X"), {"from": "PENDING", "to": "READY"})
    node = replica.state.nodes["X"]
    assert (node.state, node.spec.draft) == ("READY", True)
    assert frontier(replica) == []


def test_a_state_that_does_not_exist_moves_nothing() -> None:
    story = Story()
    story.add("N1")
    apply(story.replica, "STATE_TRANSITION", Entity("node", "N1"), {"to": "REVIEW"})
    apply(story.replica, "STATE_TRANSITION", Entity("task", "T1"), {"to": "REVIEW"})
    assert (story.state_of("N1"), story.replica.state.fsm_task) == ("PENDING", "DECOMPOSING")


@pytest.mark.parametrize("state", NODE_STATES)
def test_a_state_that_others_set_is_stored_as_it_is_read_back(state: str) -> None:
    story = Story(begun=False)
    story.commit(Draft("STATE_TRANSITION", "node", "N1", {"to": state}))
    stored = to_json(story.replica.state)
    assert to_json(from_json(stored, State)) == stored


SOME_KEY = st.text(max_size=6) | st.sampled_from(["deps", "spec", "x"])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["N1", "A-1", "T1", "inv-N1-1", *NODE_STATES, "current", "quarantined"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SOME_KEY, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
FIELDS = [
    "to", "from", "op", "target", "after", "artifact", "node", "moved_to", "by", "question_id",
    "question", "options", "default", "method", "new", "id", "text", "source", "invocation",
    "contract", "executor", "at", "expires_at", "issued_at", "path", "kind", "integrity",
    "produced_by_node", "produced_by_invocation", "status", "supersedes", "repo", "reason", "wake",
    "failure_class", "diagnosis", "signature", "interruption", "contract_sha256", "outcome",
    "task", "goal", "acceptance", "tier", "policies", "people",
]  # fmt: skip
OP = st.sampled_from(sorted({op for ops in OPS.values() for op in ops}))
TARGET = st.sampled_from(["RUNNING", *NODE_STATES])
PAYLOADS = st.dictionaries(st.sampled_from(FIELDS), ANY_JSON, max_size=6).flatmap(
    lambda payload: st.fixed_dictionaries({}, optional={"op": OP, "to": TARGET}).map(
        lambda known: {**payload, **known}
    )
)
EVENTS = st.tuples(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from([*sorted(ENTITY_TYPES), "node", "node", "other"]),
    st.sampled_from(["N1", "A-1", "T1", "N2", ""]),
    PAYLOADS,
)


@settings(max_examples=60)
@given(st.lists(EVENTS, max_size=12), st.booleans())
def test_no_payload_is_refused_and_the_state_can_always_be_stored(
    found: list[tuple[str, str, str, dict[str, Any]]], begun: bool
) -> None:
    story = Story(begun=begun)
    if begun:
        story.add("N1")
        story.start("N1")
        story.register("N1", "A-1")
    for kind, entity_type, entity_id, payload in found:
        story.commit(Draft(kind, entity_type, entity_id, payload))
    state = story.replica.state
    assert to_json(from_json(to_json(state), State)) == to_json(state)
    frontier(story.replica)
    for view in (checkpoint_view(story.replica), graph_view(state), registry_view(state)):
        json.loads(to_json(view, sort=True))
    again = Replica(from_json(to_json(state), State))
    assert again.paths == story.replica.paths
    assert {k: sorted(v) for k, v in again.dependents.items()} == {
        k: sorted(v) for k, v in story.replica.dependents.items() if v
    }


def test_replaying_a_prefix_gives_the_state_that_was_lived() -> None:
    story = Story()
    states = []
    lengths = []
    for step in (
        lambda: story.add("N1"),
        lambda: story.add("N2", "N1"),
        lambda: story.finish("N1"),
        lambda: story.do(c.LogSteering("", "faster")),
        lambda: story.do(c.PropagateSteering("ST-001", "faster")),
        lambda: story.finish("N2"),
    ):
        step()
        states.append(story.snapshot())
        lengths.append(len(story.journal))
    for length, snapshot in zip(lengths, states, strict=True):
        replica, tip = replay(story.journal[:length])
        copy = Story(begun=False)
        copy.replica, copy.tip = replica, tip
        assert copy.snapshot() == snapshot


@pytest.mark.parametrize("text", ["\ud800", "\u2028", "\0", "\U0001f600"])
def test_live_and_replayed_agree_on_any_text(text: str) -> None:
    part = encode_commit(
        EMPTY_TIP,
        [Draft("INSTANCE_STARTED", "task", "T1", {"task": "T1", "goal": text})],
        ts="now",
        actor="a:b",
        epoch=1,
    )
    live = Replica()
    live.apply_all(part.events)
    assert to_json(replay(part.data)[0].state) == to_json(live.state)
