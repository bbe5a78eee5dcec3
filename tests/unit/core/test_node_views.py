"""What ``show`` tells of a node."""

from tests.unit.core.story import Story

from perdure.core import dispatch_commands as d
from perdure.core import observed_commands as o
from perdure.core.actions import AgentCall, PythonCall
from perdure.core.model import MapSpec
from perdure.core.node_views import next_step, show
from perdure.core.views import items_max, status


def test_what_was_observed_of_a_node_is_shown_with_it() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.bring_to("N2", "RUNNING")
    (progress,) = story.do(
        o.Observe("STEP_PROGRESS", "node", "N1", summary="page 7", facts={"page": "7"})
    )
    job = {"provider": "slurm", "job_id": "12", "state": "RUNNING", "node": "N1"}
    (seen,) = story.do(o.Observe("EXTERNAL_OBSERVED", "external_job", "slurm:12", payload=job))
    file = {"status": "COMPLETE", "path": "a/b", "size_bytes": 9, "checksum": "ab", "node": "N1"}
    (got,) = story.do(o.Observe("DOWNLOAD_OBSERVED", "download", "D1", payload=file))
    (block, _) = story.do(o.ConfirmBlock("N1", "no key", ("a key",), "keep the pages"))
    assert show(story.replica, "N1")["observed"] == {
        "state": "BLOCKED",
        "progress_at": progress.ts,
        "summary": "page 7",
        "facts": {"page": "7"},
        "block": {
            "ref": block.ref,
            "at": block.ts,
            "reason": "no key",
            "node": "N1",
            "needs": ("a key",),
            "safe_next_step": "keep the pages",
        },
        "external": {"slurm:12": {**job, "ref": seen.ref, "changed_at": seen.ts}},
        "downloads": {"D1": {"download_id": "D1", **file, "ref": got.ref, "at": got.ts}},
    }
    assert show(story.replica, "N2")["observed"] == {}


def test_workers_that_are_out_are_shown_with_their_node_and_alone() -> None:
    story = Story()
    story.add("B", map=MapSpec(("tool",), list=("a", "b"), shard=2))
    story.start("B")
    assert "slots" not in show(story.replica, "B")
    story.do(d.OpenSlot("B", "inv-1", "ab" * 32, "executor:inv-1", 2))
    assert show(story.replica, "B")["slots"] == ["inv-1"]
    data = show(story.replica, "inv-1")
    assert (data["type"], data["node"], data["units"]) == ("slot", "B", 2)
    assert data["opened_at"].startswith("2027-")


def test_the_status_lists_some_of_the_workers_and_counts_all() -> None:
    story = Story()
    story.add("B", map=MapSpec(("tool",), list=("a", "b"), shard=2))
    story.start("B")
    for number in range(items_max + 3):
        story.do(d.OpenSlot("B", f"inv-{number}", "ab" * 32, "executor:w", 1))
    data = status(story.replica, limit=9)
    assert (len(data["slots"]), data["slots_total"]) == (items_max, items_max + 3)
    assert data["usage"] is None
    assert data["dispatch"]["dispatch_mode"] == "A"


def test_nobody_is_told_to_do_by_hand_what_only_a_run_can() -> None:
    for action in ({"agent": AgentCall("claude")}, {"python": PythonCall("m:f")}):
        story = Story()
        story.add("N1", **action)
        assert next_step(story.replica)["commands"] == ["perdure run FILE"]
    story = Story()
    story.add("N1", run="make")
    assert "perdure start N1" in next_step(story.replica)["commands"]
