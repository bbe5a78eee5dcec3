"""What ``show`` tells of a node."""

from tests.unit.core.story import Story

from perdure.core import commands as c
from perdure.core.node_views import show


def test_what_was_observed_of_a_node_is_shown_with_it() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.bring_to("N2", "RUNNING")
    (progress,) = story.do(
        c.Observe("STEP_PROGRESS", "node", "N1", summary="page 7", facts={"page": "7"})
    )
    job = {"provider": "slurm", "job_id": "12", "state": "RUNNING", "node": "N1"}
    (seen,) = story.do(c.Observe("EXTERNAL_OBSERVED", "external_job", "slurm:12", payload=job))
    file = {"status": "COMPLETE", "path": "a/b", "size_bytes": 9, "checksum": "ab", "node": "N1"}
    (got,) = story.do(c.Observe("DOWNLOAD_OBSERVED", "download", "D1", payload=file))
    (block, _) = story.do(c.ConfirmBlock("N1", "no key", ("a key",), "keep the pages"))
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
