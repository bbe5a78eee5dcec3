"""A task file and what people changed since: the file changes what changed in it, and no more."""

from typing import Any

import pytest
from tests.conformance.test_run import Project

from perdure import HaltRuntime
from perdure.core import commands as c
from perdure.core.model import Criterion, Spec
from perdure.errors import RefusedError

MISSING = "test -e $PERDURE_TASK_DIR/never"


@pytest.fixture
def project(workspace: str) -> Project:
    return Project(workspace)


def task(*, run: str = MISSING, title: str = "First", more: str = "", head: str = "") -> str:
    return f"""
task_id: t
grants: ['write:$TASK/*']
{head}
nodes:
  - id: a
    title: {title}
    run: {run} && touch "$PERDURE_SCOPE/x"
    outputs: [artifacts/a/x]
    retry: 1
{more}
  - {{id: b, deps: [a], run: 'true', outputs: none, accept: ['script: true']}}
"""


def amend(project: Project, node_id: str = "a", **fields: Any) -> None:
    with HaltRuntime.attach(project.workspace, actor="coordinator:ada") as runtime:
        runtime.amend_node(node_id, "asked for", **fields)


WORKS = 'touch "$PERDURE_SCOPE/x"'


def test_the_same_file_again_leaves_what_people_changed(project: Project) -> None:
    project.run(task())
    amend(project, run=WORKS, priority=7)
    report = project.run(task())
    assert report["outcome"] == "finished", report
    (told,) = project.told("graph")
    assert (told["amended"], told["kept"]) == ([], ["a (priority, run)"])
    assert project.node("a")["priority"] == 7


def test_a_change_elsewhere_in_the_file_leaves_what_people_changed(project: Project) -> None:
    project.run(task())
    amend(project, run=WORKS)
    third = "  - {id: c, run: 'true', outputs: none, accept: ['script: true']}\n"
    report = project.run(task() + third)
    assert report["outcome"] == "finished", report
    (told,) = project.told("graph")
    assert (told["added"], told["amended"], told["kept"]) == (["c"], [], ["a (run)"])


def test_another_field_of_the_entry_changes_alone(project: Project) -> None:
    project.run(task())
    amend(project, run=WORKS)
    report = project.run(task(title="First of all", more="    env: {A: b}"))
    assert report["outcome"] == "finished", report
    (told,) = project.told("graph")
    assert (told["amended"], told["kept"]) == (["a"], ["a (run)"])
    node = project.node("a")
    assert (node["title"], node["spec"]["env"]) == ("First of all", {"A": "b"})


def test_the_field_that_people_changed_changes_when_the_file_changes_it(project: Project) -> None:
    project.run(task())
    amend(project, run="exit 1")
    report = project.run(task(run="true"))
    assert report["outcome"] == "finished", report
    (told,) = project.told("graph")
    assert (told["amended"], told["kept"]) == (["a"], [])


def test_a_file_that_was_brought_in_line_by_hand_is_remembered(project: Project) -> None:
    """The file catches up with a person, who then wants it otherwise once more."""
    project.run(task())
    amend(project, run=f"test -e no && {WORKS}")
    project.run(task(run="test -e no"))
    (amended, remembered) = [e for e in project.journal() if e.payload.get("op") == "amend_node"]
    assert "run" in str(amended.payload["after"])
    assert list(remembered.payload["after"]) == ["plan"]
    amend(project, run=WORKS)
    report = project.run(task(run="test -e no", title="Another"))
    assert report["outcome"] == "finished", report


def test_a_done_node_that_people_changed_does_not_stop_the_run(project: Project) -> None:
    project.run(task())
    amend(project, run=WORKS)
    project.run(task())
    assert project.node("a")["state"] == "DONE"
    more = "  - {id: c, run: 'true', outputs: none, accept: ['script: true']}\n"
    assert project.run(task() + more)["outcome"] == "finished"
    with pytest.raises(RefusedError, match="changes title of a, which is DONE"):
        project.run(task(title="Too late") + more)


def test_deps_that_people_added_stay_when_the_file_changes_its_own(project: Project) -> None:
    third = "  - {id: c, run: 'true', outputs: none, accept: ['script: true']}\n"
    project.run(task())
    with HaltRuntime.attach(project.workspace, actor="coordinator:ada") as runtime:
        runtime.add_node("fix", "Put it right", run="true", outputs="none", accept=["script: true"])
        runtime.amend_node("b", "after the fix", deps=["a", "fix"])
    project.run(task() + third)
    assert project.node("b")["deps"] == ["a", "fix"]
    project.run(task().replace("deps: [a]", "deps: [a, c]") + third)
    assert project.node("b")["deps"] == ["a", "c", "fix"]
    project.run(task().replace("deps: [a]", "deps: [c]") + third)
    assert project.node("b")["deps"] == ["c", "fix"]


def test_a_new_node_waits_for_every_part_of_what_it_depends_on(project: Project) -> None:
    project.run(task())
    with HaltRuntime.attach(project.workspace, actor="coordinator:ada") as runtime:
        parts = tuple(
            c.AddNode(name, name, spec=Spec(outputs=(), run="true", acceptance_criteria=(TRUE,)))
            for name in ("a1", "a2")
        )
        runtime.engine.execute(c.SplitNode("a", parts, "too much at once"))
    third = "  - {id: c, deps: [a], run: 'true', outputs: none, accept: ['script: true']}\n"
    report = project.run(task() + third)
    assert report["outcome"] == "finished", report
    assert project.node("b")["deps"] == project.node("c")["deps"] == ["a1", "a2"]


def test_less_verification_than_before_takes_the_sponsor(project: Project) -> None:
    project.run(task(more="    verify: V3"))
    with pytest.raises(RefusedError, match="only the sponsor asks for less"):
        project.run(task(title="Anew"))
    assert project.node("a")["title"] == "First", "all of the file or nothing"
    with HaltRuntime.attach(project.workspace, actor="sponsor:ada") as runtime:
        runtime.amend_node("a", "it is not worth a person", verification_level="V1")
    project.run(task(title="Anew"))
    assert project.node("a")["title"] == "Anew"


TRUE = Criterion("script", {"run": "true"})


def test_a_command_that_becomes_many_units_takes_its_outputs_along(project: Project) -> None:
    project.run(task())
    amend(project, outputs=["artifacts/a/y"], run="exit 2")
    units = """
task_id: t
grants: ['write:$TASK/*']
nodes:
  - id: a
    title: First
    map: {list: [k], run: 'true'}
    retry: 1
  - {id: b, deps: [a], run: 'true', outputs: none, accept: ['script: true']}
"""
    report = project.run(units)
    assert report["outcome"] == "finished", report
    assert project.node("a")["spec"]["outputs"] == ["artifacts/a/findings.jsonl"]


def test_a_command_that_becomes_a_function_leaves_nothing_of_the_command(project: Project) -> None:
    project.run(task())
    amend(project, run="exit 2", priority=3)
    function = task().replace(f'run: {MISSING} && touch "$PERDURE_SCOPE/x"', "python: 'os:getcwd'")
    project.run(function)
    spec = project.node("a")["spec"]
    assert spec["python"] == {"call": "os:getcwd"}
    assert spec.get("run") is None
    assert spec["outputs"] == ["artifacts/a/x"]
    assert project.node("a")["priority"] == 3


def test_a_changed_ladder_is_reported_and_not_taken_over(project: Project) -> None:
    project.run(task(run="true", head="delegation: {S1: REVIEW_REQUIRED}"))
    assert project.told("graph")[0]["ignored"] == []
    project.run(task(run="true", head="delegation: {S1: AUTO}"))
    assert project.told("graph")[0]["ignored"] == ["delegation"]
    started = project.journal()[0]
    assert started.payload["delegation"] == {"S1": "REVIEW_REQUIRED"}
