"""Sealed projections: whole or nothing, the same bytes for the same journal, and what they show."""

import json
from hashlib import sha256

import msgspec
import pytest
from tests.unit.core.story import Story, replay

from perdure.core import commands as c
from perdure.core.codec import EMPTY_TIP
from perdure.core.fold import Replica
from perdure.core.model import frontier_snapshot_max
from perdure.core.projection import (
    AsOf,
    checkpoint_view,
    graph_view,
    read_as_of,
    registry_view,
    seal,
    seal_snapshot,
    unseal_snapshot,
)


def lived() -> Story:
    story = Story()
    for number, state in enumerate(("DONE", "RUNNING", "RETRYABLE", "BLOCKED", "PENDING")):
        story.bring_to(f"N{number}", state)
    story.do(c.LogSteering("ST-9", "faster \ud800 \u2028", reading="clarification"))
    story.do(c.WriteNote("begin with N4", "hint"), op="op-1")
    return story


def views(replica: Replica) -> list[object]:
    return [graph_view(replica.state), registry_view(replica.state), checkpoint_view(replica)]


# Sealing


def test_a_projection_ends_in_as_of_and_sum() -> None:
    story = lived()
    for view in views(story.replica):
        data = seal(view, story.tip)
        content = json.loads(data)
        assert list(content)[-2:] == ["as_of", "sum"]
        assert content["as_of"] == {
            "seq": story.tip.seq,
            "offset": len(story.journal),
            "h": story.tip.h,
        }
        assert data.endswith(b"}\n")


def test_the_sum_is_of_everything_before_it() -> None:
    story = lived()
    data = seal(graph_view(story.replica.state), story.tip)
    body = data[: data.rindex(b',"sum":"')]
    assert json.loads(data)["sum"] == sha256(body).hexdigest()[:16]


def test_keys_are_sorted_at_every_depth() -> None:
    story = lived()

    def check(value: object) -> None:
        if isinstance(value, dict):
            keys = [key for key in value if key not in ("as_of", "sum")]
            assert keys == sorted(keys)
            for key in keys:
                check(value[key])
        elif isinstance(value, list):
            for entry in value:
                check(entry)

    for view in views(story.replica):
        check(json.loads(seal(view, story.tip)))


@pytest.mark.parametrize("content", [{}, {"a": 1}, {"as_of": "x", "text": '"sum":"'}])
def test_as_of_is_read_back_whatever_the_content(content: dict[str, object]) -> None:
    story = lived()
    expected = AsOf(story.tip.seq, story.tip.offset, story.tip.h)
    assert read_as_of(seal(content, story.tip)) == expected


def test_a_changed_bit_anywhere_makes_a_projection_nothing() -> None:
    story = Story()
    data = seal_snapshot(story.replica.state, story.tip)
    assert unseal_snapshot(data) is not None
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 1 << (at % 8)]) + data[at + 1 :]
        assert read_as_of(changed) is None, at
        assert unseal_snapshot(changed) is None, at


def test_a_cut_projection_is_nothing() -> None:
    story = Story()
    data = seal_snapshot(story.replica.state, story.tip)
    for length in range(len(data)):
        assert unseal_snapshot(data[:length]) is None, length
        assert unseal_snapshot(data[:length] + bytes(len(data) - length)) is None, length


@pytest.mark.parametrize(
    "content",
    [{}, {"state": {}}, {"state": {"tier": "\x01"}, "value": "", "before": "", "start": 0},
     {"state": {}, "value": "xyz", "before": "", "start": 0}],
)  # fmt: skip
def test_a_whole_file_that_is_no_snapshot_of_ours_is_nothing(content: dict[str, object]) -> None:
    assert unseal_snapshot(seal(content, EMPTY_TIP)) is None


# The snapshot


def test_a_snapshot_gives_back_the_state_and_the_position() -> None:
    story = lived()
    found = unseal_snapshot(story.snapshot())
    assert found is not None
    state, tip = found
    assert (state, tip) == (story.replica.state, story.tip)
    assert list(state.ops) == list(story.replica.state.ops)
    assert list(state.nodes) == list(story.replica.state.nodes)


def test_a_task_goes_on_from_a_snapshot_exactly_as_without_one() -> None:
    kept, loaded = lived(), lived()
    found = unseal_snapshot(loaded.snapshot())
    assert found is not None
    loaded.replica, loaded.tip = Replica(found[0]), found[1]
    for story in (kept, loaded):
        story.do(c.PropagateSteering("ST-9", "faster"))
        story.do(c.MoveNode("N1", "VERIFYING", ("claim",)))
        story.finish("N4")
        story.do(c.RetryNode("N3", "it is there"))
    assert loaded.journal == kept.journal
    assert loaded.snapshot() == kept.snapshot()


def test_what_is_rebuilt_from_the_journal_has_the_same_bytes() -> None:
    story = lived()
    replica, tip = replay(story.journal)
    assert seal_snapshot(replica.state, tip) == story.snapshot()
    for live, rebuilt in zip(views(story.replica), views(replica), strict=True):
        assert seal(rebuilt, tip) == seal(live, story.tip)


# What they show


def test_the_graph_shows_every_field_of_the_format() -> None:
    story = lived()
    graph = json.loads(seal(graph_view(story.replica.state), story.tip))
    assert {"task_id", "created", "tier", "goal_statement", "acceptance", "nodes"} <= set(graph)
    assert graph["edges_implicit_via_deps"] is True
    node = graph["nodes"][0]
    assert {
        "node_id", "title", "spec", "deps", "state", "attempts", "interruptions", "failure_class",
        "artifacts", "priority", "verification_level", "resume_policy", "effect", "notes_ref",
        "amended_by", "child_ref",
    } <= set(node)  # fmt: skip
    assert {"goal", "inputs", "outputs", "acceptance_criteria", "constraints", "budget"} <= set(
        node["spec"]
    )


def test_the_registry_shows_every_field_of_the_format() -> None:
    story = lived()
    story.register(None, "A-2", "b.txt")
    registry = json.loads(seal(registry_view(story.replica.state), story.tip))
    entry = registry["A-2"]
    assert {
        "path", "kind", "produced_by_node", "produced_by_invocation", "integrity", "status",
        "commit_event",
    } <= set(entry)  # fmt: skip
    assert {"algo", "value", "size_bytes", "checked_at"} <= set(entry["integrity"])
    assert set(registry) == {"A-N0", "A-2", "as_of", "sum"}


def test_the_checkpoint_counts_and_points() -> None:
    story = lived()
    checkpoint = json.loads(seal(checkpoint_view(story.replica), story.tip))
    assert checkpoint["counters"] == {
        "seq_last": story.tip.seq,
        "nodes_done": 1,
        "nodes_open": 4,
        "goal_amendments": 0,
    }
    assert checkpoint["frontier_snapshot"] == ["N2", "N4"]
    assert checkpoint["active_contracts"] == [
        {"invocation_id": "inv-N1-1", "node": "N1", "executor": "coordinator:main"}
    ]
    assert (checkpoint["next_hint"], checkpoint["terminal"]) == ("begin with N4", False)
    assert checkpoint["policy_params"]["retry_budget"] == {
        "value": 3,
        "reason": "reference policy",
        "window": "",
    }


def test_a_checkpoint_stays_a_few_kilobytes() -> None:
    story = Story()
    for number in range(300):
        story.add(f"N{number}")
        story.start(f"N{number}") if number % 2 else None
    story.do(c.WriteNote("x" * 100_000, "hint"))
    checkpoint = checkpoint_view(story.replica)
    assert len(checkpoint["frontier_snapshot"]) == frontier_snapshot_max
    assert len(msgspec.json.encode(checkpoint)) < 12_000


def test_times_in_projections_come_from_events() -> None:
    story = lived()
    before = [seal(view, story.tip) for view in views(story.replica)]
    story.now += 86_400
    assert [seal(view, story.tip) for view in views(story.replica)] == before
