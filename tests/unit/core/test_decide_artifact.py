"""Decisions about artifacts: registering, versions, attaching, quarantine."""

from typing import Any

import pytest
from tests.unit.core.story import Story
from tests.unit.core.test_decide import refusal

from perdure.core import commands as c
from perdure.core.decide_artifact import next_version
from perdure.core.model import NODE_STATES, Integrity
from perdure.errors import HaltError, NotFoundError, TransitionError


def register(path: str, value: str = "ab" * 32, **more: Any) -> c.RegisterArtifact:
    integrity = Integrity("sha256", value, 3, "2027-01-15T08:00:00.000+00:00")
    return c.RegisterArtifact(more.pop("artifact_id", ""), path, "doc", integrity, **more)


def test_a_registration_carries_path_and_integrity() -> None:
    story = Story()
    story.add("N1")
    (event,) = story.do(register("a.txt", artifact_id="A-1", node_id="N1", invocation="inv-1"))
    assert event.payload["path"] == "a.txt"
    assert event.payload["integrity"]["value"] == "ab" * 32
    assert event.payload["produced_by_node"] == "N1"
    assert event.evidence == ["a.txt"]


@pytest.mark.parametrize("state", NODE_STATES)
def test_registering_is_legal_while_the_node_is_open(state: str) -> None:
    story = Story()
    story.bring_to("N1", state)
    command = register("a.txt", artifact_id="A-new", node_id="N1")
    if state in ("DONE", "QUARANTINED", "CANCELLED"):
        assert isinstance(refusal(story, command), TransitionError)
    else:
        story.do(command)
        assert "A-new" in story.node("N1").artifacts


@pytest.mark.parametrize("artifact_id", ["a b", "../x", "as_of", "sum", "x" * 65])
def test_a_bad_artifact_id_is_refused(artifact_id: str) -> None:
    assert refusal(Story(), register("a.txt", artifact_id=artifact_id)).code == "bad_id"


def test_an_id_is_made_from_the_nodes_and_is_free() -> None:
    story = Story()
    story.add("N1")
    ids = [story.do(register(f"{n}.txt", node_id="N1"))[0].entity.id for n in range(3)]
    assert ids == ["A-N1", "A-N1-2", "A-N1-3"]
    assert story.do(register("t.txt"))[0].entity.id == "A-task"


def test_an_id_for_the_longest_node_id_is_legal() -> None:
    story = Story()
    story.add("n" * 64)
    for n in range(12):
        story.do(register(f"{n}.txt", node_id="n" * 64))
    assert max(map(len, story.replica.state.artifacts)) <= 64


def test_the_same_path_and_bytes_again_is_answered_with_the_first_event() -> None:
    story = Story()
    (event,) = story.do(register("a.txt", artifact_id="A-1"))
    assert story.decide(register("a.txt", artifact_id="A-1")) == c.Decision(answer=event.ref)
    assert story.decide(register("a.txt", artifact_id="A-2")) == c.Decision(answer=event.ref)


def test_other_content_at_a_registered_path_is_refused_and_told_where_to_go() -> None:
    story = Story()
    story.do(register("out/report.md", artifact_id="A-1"))
    error = refusal(story, register("out/report.md", "cd" * 32, artifact_id="A-2"))
    assert (error.code, error.rule) == ("content_frozen", "AR-3")
    assert "out/report.v2.md" in error.fix
    story.do(register("out/report.v2.md", "cd" * 32, artifact_id="A-2"))
    error = refusal(story, register("out/report.md", "cd" * 32, artifact_id="A-3"))
    assert error.rule == "AR-3", "the content of a superseded path is frozen too"


def test_an_id_names_one_content_for_good() -> None:
    story = Story()
    story.do(register("a.txt", artifact_id="A-1"))
    assert refusal(story, register("b.txt", artifact_id="A-1")).code == "duplicate_id"


@pytest.mark.parametrize(
    ("path", "after"),
    [
        ("report.md", "report.v2.md"),
        ("report.v2.md", "report.v3.md"),
        ("a/b.c/report", "a/b.c/report.v2"),
        ("report.v9", "report.v10"),
        ("archive.tar.gz", "archive.tar.v2.gz"),
        (".hidden", ".hidden.v2"),
    ],
)
def test_the_next_version_of_a_path(path: str, after: str) -> None:
    assert next_version(path) == after


def test_each_version_supersedes_the_one_before_it() -> None:
    story = Story()
    for number, path in enumerate(("r.md", "r.v2.md", "r.v3.md"), 1):
        story.do(register(path, f"{number:02}" * 32, artifact_id=f"A-{number}"))
    statuses = [artifact.status for artifact in story.replica.state.artifacts.values()]
    assert statuses == ["superseded(by:A-2)", "superseded(by:A-3)", "current"]


def test_a_version_after_a_gap_supersedes_the_latest_that_is_current() -> None:
    story = Story()
    story.do(register("r.md", artifact_id="A-1"))
    story.do(register("r.v4.md", "cd" * 32, artifact_id="A-4"))
    assert story.replica.state.artifacts["A-1"].status == "superseded(by:A-4)"


def test_what_is_superseded_by_name_exists_and_is_current() -> None:
    story = Story()
    story.do(register("a.txt", artifact_id="A-1"))
    story.do(register("b.txt", "cd" * 32, artifact_id="A-2", supersedes="A-1"))
    assert story.replica.state.artifacts["A-1"].status == "superseded(by:A-2)"
    again = refusal(story, register("c.txt", "ef" * 32, artifact_id="A-3", supersedes="A-1"))
    assert (again.code, again.rule) == ("not_current", "AR-2")
    unknown = refusal(story, register("c.txt", "ef" * 32, artifact_id="A-3", supersedes="A-9"))
    assert isinstance(unknown, NotFoundError)


# Attaching


def test_an_artifact_is_attached_once() -> None:
    story = Story()
    story.add("N1")
    story.do(register("a.txt", artifact_id="A-1"))
    assert len(story.do(c.AttachArtifact("N1", "A-1"))) == 1
    assert story.do(c.AttachArtifact("N1", "A-1")) == []
    assert story.node("N1").artifacts == ("A-1",)
    for command in (c.AttachArtifact("N1", "A-9"), c.AttachArtifact("N9", "A-1")):
        error: HaltError = refusal(story, command)
        assert isinstance(error, NotFoundError)


# Quarantine


def test_a_failed_attempt_quarantines_its_own_current_registrations_only() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.do(register("shared.txt", artifact_id="A-shared"))
    story.do(c.AttachArtifact("N1", "A-shared"))
    story.do(register("mine.txt", "cd" * 32, artifact_id="A-mine", node_id="N1"))
    story.fail("N1")
    artifacts = story.replica.state.artifacts
    assert (artifacts["A-shared"].status, artifacts["A-mine"].status) == ("current", "quarantined")
    assert story.node("N1").artifacts == ("A-shared",)
    assert story.moves == [c.FileMove("mine.txt", "artifacts/old/A-mine-1/mine.txt")]


def test_a_quarantined_path_is_free_for_a_new_id() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.do(register("mine.txt", artifact_id="A-1", node_id="N1"))
    story.fail("N1")
    story.start("N1")
    story.do(register("mine.txt", "cd" * 32, artifact_id="A-2", node_id="N1"))
    assert story.node("N1").artifacts == ("A-2",)


def test_a_commit_in_git_is_quarantined_without_a_move() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    integrity = Integrity("git", "1" * 40, 0, "now")
    story.do(c.RegisterArtifact("A-1", "git:" + "1" * 40, "commit", integrity, "N1", repo="."))
    story.fail("N1")
    assert story.replica.state.artifacts["A-1"].status == "quarantined"
    assert story.moves == []
