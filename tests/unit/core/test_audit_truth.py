"""Items A1.1 to A2.3: what is durable, and what counts as true."""

import pytest
from tests.unit.core.story import Story
from tests.unit.core.test_task_audit_items import failures, of

from perdure.core.audit_truth import (
    ClaimsMoveNothing,
    CommitRule,
    ContractsKept,
    DiskDecides,
    FourArtifacts,
    ProjectionsFollow,
)
from perdure.core.codec import Scan
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.task_audit import DiskFacts, Findings, Item, Seen

WHOLE = dict.fromkeys(
    ("task-graph.json", "checkpoint.json", "artifacts/registry.json"), "as of J-1"
)


def judged_on(story: Story, made: type[Item], disk: DiskFacts) -> Findings:
    """What one item says of a story and of what was seen."""
    item, replica = made(), Replica()
    for events in Scan().commits([story.journal]):
        for event in events:
            replica.apply(event)
            item.see(event, replica)
    return item.judge(replica, disk)


def done(
    node: str, *, edge: str | None = "N06", evidence: tuple[str, ...] = (), **payload: object
) -> Draft:
    """A move into DONE as somebody wrote it."""
    told = {} if edge is None else {"edge": edge}
    return Draft(
        "STATE_TRANSITION", "node", node, {"from": "VERIFYING", "to": "DONE", **told, **payload},
        evidence,
    )  # fmt: skip


def claimed(**fields: object) -> Story:
    story = Story()
    story.add("N0")
    story.finish("N0")
    story.add("N1", **fields)
    story.start("N1")
    story.register("N1", "A-N1")
    story.claim("N1")
    return story


# A1.1, A2.1


@pytest.mark.parametrize("name", WHOLE)
def test_a_projection_that_is_missing_is_for_a1_1_and_for_no_other(name: str) -> None:
    disk = DiskFacts(projections={**WHOLE, name: "missing"})
    (failed,) = failures(judged_on(Story(), FourArtifacts, disk))
    assert name in failed
    assert "perdure resume" in failed
    assert failures(judged_on(Story(), ProjectionsFollow, disk)) == []


@pytest.mark.parametrize("name", WHOLE)
def test_a_projection_that_says_something_else_is_for_a2_1(name: str) -> None:
    disk = DiskFacts(projections={**WHOLE, name: "wrong: it was edited"})
    assert failures(judged_on(Story(), FourArtifacts, disk)) == []
    (failed,) = failures(judged_on(Story(), ProjectionsFollow, disk))
    assert name in failed


def test_a_projection_that_lags_is_none_the_worse() -> None:
    findings = judged_on(Story(), ProjectionsFollow, DiskFacts(projections=dict(WHOLE)))
    assert failures(findings) == []
    assert len(findings.results) == 3


# A1.2


@pytest.mark.parametrize(
    ("seen", "fails"),
    [
        (Seen("ab" * 32, 10), False),
        (Seen("cd" * 32, 10), True),
        (Seen(problem="missing"), True),
        (None, True),
    ],
)
def test_a_work_order_is_the_one_that_was_issued(seen: Seen | None, *, fails: bool) -> None:
    story, path = Story(), "contracts/c.json"
    cites = {"contract": path, "contract_sha256": "ab" * 32, "from": "READY", "to": "RUNNING"}
    (event,) = story.commit(Draft("STATE_TRANSITION", "node", "N1", cites))
    disk = DiskFacts(contracts={} if seen is None else {path: seen})
    failed = failures(judged_on(story, ContractsKept, disk))
    assert len(failed) == fails
    assert all(path in each and event.ref in each for each in failed)


# A1.3


def test_what_was_registered_for_the_node_before_is_what_it_was_done_with() -> None:
    story = Story()
    story.add("N1")
    story.finish("N1")
    findings = of(story, CommitRule)
    assert failures(findings) == []
    assert len(findings.results) == 1


@pytest.mark.parametrize(
    ("artifacts", "said"),
    [
        ({"A-never": "ab" * 32}, "A-never was not registered for N1"),
        ({"A-N0-1": "ab" * 32}, "A-N0-1 was not registered for N1"),
        ({"A-N1": "cd" * 32}, "A-N1 was registered with another checksum"),
    ],
)
def test_a_verdict_on_something_else_fails(artifacts: dict[str, str], said: str) -> None:
    story = claimed()
    (event,) = story.commit(done("N1", artifacts=artifacts, checks=[{"passed": True}]))
    assert failures(of(story, CommitRule)) == [f"{event.ref}: {said}"]


def test_a_verdict_on_what_was_superseded_fails() -> None:
    story = claimed()
    story.register("N1", "A-N1-2", "artifacts/N1/b.txt", value="ef" * 32, supersedes="A-N1")
    story.commit(done("N1", artifacts={"A-N1": "ab" * 32}))
    (failed,) = failures(of(story, CommitRule))
    assert "A-N1 was superseded" in failed


def test_what_is_registered_after_the_verdict_came_too_late() -> None:
    early, late = claimed(), claimed()
    (registered,) = (e for e in early.events() if e.entity.id == "A-N1")
    verdict = done("N1", artifacts={"A-late": "ab" * 32})
    late.commit(verdict)
    late.commit(Draft(registered.kind, "artifact", "A-late", registered.payload))
    early.commit(Draft(registered.kind, "artifact", "A-late", registered.payload))
    early.commit(verdict)
    assert failures(of(early, CommitRule)) == []
    story = late
    assert len(failures(of(story, CommitRule))) == 1


# A2.2


def test_the_disk_decides_what_is_there() -> None:
    story = Story()
    for name in ("N1", "N2", "N3"):
        story.add(name)
        story.finish(name)
    disk = DiskFacts(
        artifacts={"A-N1-1": Seen("ab" * 32, 3), "A-N2-1": Seen("", 3, "missing: a file")}
    )
    failed = failures(judged_on(story, DiskDecides, disk))
    assert failed == ["A-N2-1: missing: a file", "A-N3-1: was not looked at"]


# A2.3


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({}, "neither an artifact nor a check"),
        ({"checks": [{"check": "exists", "passed": True}]}, "no artifact is named"),
        (
            {"artifacts": {"A-N1": "ab" * 32}, "checks": [{"check": "exists", "passed": False}]},
            "its check exists had failed",
        ),
    ],
)
def test_a_claim_alone_makes_nothing_done(payload: dict[str, object], said: str) -> None:
    story = claimed()
    story.commit(done("N1", evidence=("A-N1",), **payload))
    (failed,) = failures(of(story, ClaimsMoveNothing))
    assert said in failed


def test_a_node_that_wants_no_output_is_done_by_its_checks() -> None:
    story = claimed(outputs=())
    story.commit(done("N1", checks=[{"check": "script", "passed": True}]))
    assert failures(of(story, ClaimsMoveNothing)) == []
    story.commit(done("N1"))
    assert len(failures(of(story, ClaimsMoveNothing))) == 1


def test_a_claim_that_was_put_right_later_was_still_a_claim() -> None:
    story = claimed()
    story.commit(done("N1"))
    story.commit(Draft("STATE_TRANSITION", "node", "N1", {"from": "DONE", "to": "READY"}))
    story.finish("N1")
    findings = of(story, ClaimsMoveNothing)
    assert len(failures(findings)) == 1
    assert len(findings.results) == 3


def test_a_line_of_others_cites_its_artifact_as_evidence() -> None:
    story = claimed()
    story.commit(done("N1", edge=None, evidence=("A-N1",)))
    assert failures(of(story, ClaimsMoveNothing)) == []
    story.commit(done("N1", edge=None, evidence=("trust me",)))
    assert len(failures(of(story, ClaimsMoveNothing))) == 1
