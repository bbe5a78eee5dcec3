"""Whoever looks at a task that stands is told how it goes on, by each command they may look with.

What is printed can be typed: the commands are run as they were printed.
"""

import json
import shlex
from pathlib import Path

import pytest
from tests.integration.shell import call
from tests.integration.test_executors import Project
from tests.integration.test_leftovers import Scene

HELD = """\
  - {id: sign, human: {who: ada}, outputs: [artifacts/sign/paper.txt]}
  - id: w
    run: echo x > $PERDURE_SCOPE/o.txt
    outputs: [artifacts/w/o.txt]
    accept: [{audit: {rubric: [It is so]}}]
"""
SUBMIT = "perdure --actor executor:ada submit sign"
JUDGE = "perdure judge w"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_what_people_hold_is_told_with_its_command_everywhere(project: Project) -> None:
    project.write(HELD)
    run = call("run", "task.yaml", cwd=project.at)
    assert run.code == 10
    looks = [call(verb, cwd=project.at) for verb in ("status", "next", "inbox")]
    for done in (run, *looks):
        rows = [line.strip().removeprefix("then").strip() for line in done.out.splitlines()]
        assert any(row.startswith(SUBMIT) for row in rows), done.out
        assert any(row.startswith(JUDGE) for row in rows), done.out
    project.scope("sign", "paper.txt").write_text("signed", encoding="utf-8")
    assert call(*shlex.split(SUBMIT)[1:], cwd=project.at).code == 0
    for verb in ("status", "next", "inbox"):
        assert SUBMIT not in call(verb, cwd=project.at).out


def test_the_form_of_a_verdict_is_filled_in_where_it_was_printed(project: Project) -> None:
    project.write(HELD)
    call("run", "task.yaml", cwd=project.at)
    printed = call("--json", "judge", "w", cwd=project.at)
    file = project.directory / "verdict.json"
    whole = json.loads(printed.out)
    form = whole["data"]["form"]
    form["verdict"] = "pass"
    form["items"][0]["passed"] = True
    file.write_text(json.dumps(whole), encoding="utf-8")
    said = call("judge", "w", "--verdict", str(file), "--actor", "verifier:ann", cwd=project.at)
    assert said.code == 0, said.err
    again = call("judge", "w", cwd=project.at)
    assert "it is DONE: there is nothing to judge now" in again.out
    assert "--verdict" not in again.out


def test_a_run_that_was_killed_is_told_of_with_the_way_on(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.kill_a_run()
    way = "interrupted; run the same line again, or perdure resume"
    assert way in call("status", cwd=scene.at).out
    assert way in call("next", cwd=scene.at).out
    assert call("--json", "status", cwd=scene.at).data["interrupted"] == ["long"]
    call("resume", cwd=scene.at)
    assert way not in call("status", cwd=scene.at).out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["dispatch", "B"], "--reason WHY"),
        (["policy", "heartbeat_s=1"], "--reason WHY"),
        (["dispatch", "--reason", "foo"], "perdure dispatch A --reason WHY"),
        (["dispatch", "X", "--reason", "foo"], "'A', 'B', 'C'"),
    ],
)
def test_a_change_says_what_it_lacks(project: Project, arguments: list[str], told: str) -> None:
    assert call("init", "t", cwd=project.at).code == 0
    done = call(*arguments, cwd=project.at)
    assert done.code == 2
    assert told in done.err


def test_a_mode_is_named_in_either_case(project: Project) -> None:
    assert call("init", "t", cwd=project.at).code == 0
    assert call("dispatch", "b", "--reason", "slowly", cwd=project.at).code == 0
    assert "dispatch: B" in call("dispatch", cwd=project.at).out


def test_a_finished_task_says_that_it_is_when_it_is_paused(project: Project) -> None:
    project.run("  - {id: a, run: 'echo x > $PERDURE_SCOPE/o'}\n")
    done = call("pause", cwd=project.at)
    assert done.code == 4
    assert "the task is finished" in done.err


FAILS_ITS_CHECK = "{id: a, retry: 1, run: 'echo > $PERDURE_SCOPE/o', accept: [script: 'false']}"


@pytest.mark.parametrize(("code", "node"), [(1, FAILS_ITS_CHECK), (10, "{id: a, run: exit 64}")])
def test_work_that_is_given_up_leaves_a_question_whatever_the_exit_code(
    project: Project, code: int, node: str
) -> None:
    project.run(f"  - {node}\n", code=code)
    data = call("--json", "status", cwd=project.at).data
    assert data["nodes"] == {"a": "QUARANTINED"}
    assert len(data["questions"]) == 1
