"""Steering a batch node at work: its contract is recalled, and the units that have landed stand.

Which of them count is for the resume policy to say, as after any change (ADR 0013). The commands
are real, the run is the service call behind ``perdure run``.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.batches import RAN, BatchProject

from perdure.runtime.world import real_world
from perdure.storage import spool
from perdure.storage.workspace import Layout

WAITS = (
    'if [ "$PERDURE_KEY" = c ] && [ ! -e "$PERDURE_TASK_DIR/well" ]; then'
    ' echo > "$PERDURE_TASK_DIR/at-work"; exec sleep 60; fi'
)


def task(policy: str = "") -> str:
    return f"""
task_id: t
grants: ['write:$TASK/*']
nodes:
  - id: B
    map:
      list: [a, b, c]
      workers: 1
      run: >-
        {RAN} {WAITS}
    {policy}
"""


@pytest.fixture
def project(workspace: str) -> BatchProject:
    project = BatchProject(workspace)
    os.mkfifo(project.directory / "at-work")
    return project


def steered_run(project: BatchProject, text: str, **args: Any) -> dict[str, Any]:
    """A run that is steered while its last unit is at work, and the words it is steered with."""

    def say() -> None:
        (project.directory / "at-work").read_text(encoding="utf-8")
        (project.directory / "well").touch()
        message = spool.Message(
            "m1",
            "steer",
            {"text": "in metres", "reading": "amendment", "nodes": ["B"], **args},
            "sponsor:ada",
            0.0,
        )
        spool.drop(real_world().disk, Layout(project.workspace), message)
        (project.directory / "dropped").touch()

    def watch(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "started" and event["attempt"] == 1:
            threading.Thread(target=say, daemon=True).start()

    return project.run(text, on=watch)


def test_units_that_have_landed_are_not_run_again_under_the_new_contract(
    project: BatchProject,
) -> None:
    report = steered_run(project, task())
    assert report["outcome"] == "finished", report
    assert project.ran() == {"a": 1, "b": 1, "c": 2}
    assert sorted(project.done()) == ["a", "b", "c"]
    assert "in metres" in project.contract()["constraints"]
    assert project.contract()["skip"] == 2
    node = project.node("B")
    assert (node["attempts"], node["interruptions"], node.get("strikes", 0)) == (2, 1, 0)
    assert project.edges("B") == ["N01", "N02", "N04", "N12", "N02", "N03", "N06"]


@pytest.mark.parametrize(
    ("policy", "ran"),
    [
        ("", {"a": 2, "b": 2, "c": 2}),
        ("resume: skip_if_checksum", {"a": 1, "b": 1, "c": 2}),
    ],
)
def test_of_another_recipe_the_resume_policy_says_what_counts(
    project: BatchProject, policy: str, ran: dict[str, int]
) -> None:
    report = steered_run(project, task(policy), changes={"env": {"UNITS": "metres"}})
    assert report["outcome"] == "finished", report
    assert project.ran() == ran
    assert sorted(project.done()) == ["a", "b", "c"]
    assert project.node("B")["spec"]["env"] == {"UNITS": "metres"}


def test_a_claim_that_is_recalled_while_it_is_verified_keeps_its_findings(
    project: BatchProject,
) -> None:
    (project.directory / "well").touch()
    (project.directory / "check.sh").write_text(
        'cd "$PERDURE_WORKSPACE"; test -e ../told && exit 0; touch ../told; echo > ../at-work;'
        " until test -e ../dropped && ! test -e steering/spool/m1.json; do sleep 0.01; done",
        encoding="utf-8",
    )
    text = task("accept: ['script: sh ../check.sh']")
    report = steered_run(project, text)
    assert report["outcome"] == "finished", report
    assert project.ran() == {"a": 1, "b": 1, "c": 1}
    assert project.edges("B")[:6] == ["N01", "N02", "N03", "N07", "N12", "N02"]
    assert project.aside() == []
