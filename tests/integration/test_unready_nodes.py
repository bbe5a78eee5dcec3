"""A task file whose nodes cannot be launched is refused before anything of it is in the graph."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.nested import card
from tests.integration.shell import Done, call

MADE = """
    - id: make
      run: echo made > "$PERDURE_SCOPE/made.txt"
      outputs: [artifacts/make/made.txt]
"""
MAKES = "run: 'echo made > $PERDURE_SCOPE/m', outputs: [artifacts/{}/m]"
FINE = f"  - {{id: fine, {MAKES.format('fine')}}}\n"
UNKNOWN = "  - {id: lost, sop: ./nocard.yaml}\n"
UNINSTALLED = "  - {id: far, agent: {command: [./noagent]}}\n"
BAD_INPUTS = "  - {id: odd, sop: {sop: ./one.yaml, inputs: {colour: red}}}\n"
UNMADE = "  - {id: owed, sop: ./one.yaml, outputs: [artifacts/owed/other.txt]}\n"
NO_FILE = "  - {id: calls, python: 'gone.py:work'}\n"
NO_AUDITOR = (
    f"  - {{id: judged, {MAKES.format('judged')},"
    " accept: [{audit: {rubric: good, agent: {agent: command, command: [./noagent]}}}]}\n"
)


class Project:
    """A directory with a task file and a card."""

    def __init__(self, directory: Path) -> None:
        self.at = str(directory)
        self.file = directory / "task.yaml"
        self.workspace = directory / ".perdure/tasks/t"
        (directory / "one.yaml").write_text(card(MADE), encoding="utf-8")

    def run(self, nodes: str) -> Done:
        self.file.write_text(f"task_id: t\nnodes:\n{nodes}", encoding="utf-8")
        return call("--json", "run", "task.yaml", cwd=self.at)

    def graph(self) -> list[str]:
        lines = (self.workspace / "journal.jsonl").read_text("utf-8").splitlines()
        events = [json.loads(line) for line in lines]
        return [e["entity"]["id"] for e in events if e["payload"].get("op") == "add_node"]

    def state_of(self, node: str) -> str:
        data: dict[str, Any] = call("--json", "status", cwd=self.at).data
        return str(data["nodes"][node])


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize(
    ("nodes", "name", "code", "exit_code"),
    [
        (UNKNOWN, "lost", "sop_unknown", 3),
        (UNINSTALLED, "far", "executor_missing", 3),
        (BAD_INPUTS, "odd", "sop_inputs", 2),
        (UNMADE, "owed", "sop_outputs", 2),
        (NO_FILE, "calls", "executor_missing", 3),
        (NO_AUDITOR, "judged", "executor_missing", 3),
    ],
)
def test_a_node_that_cannot_be_launched_is_refused_and_never_comes_into_the_graph(
    project: Project, nodes: str, name: str, code: str, exit_code: int
) -> None:
    done = project.run(FINE + nodes)
    assert (done.code, done.error["code"]) == (exit_code, code), done.err
    assert name in done.error["message"]
    assert project.graph() == []
    assert project.run(FINE).code == 0
    assert project.graph() == ["fine"]


def test_an_entry_changed_to_one_that_cannot_be_launched_leaves_the_node_as_it_is(
    project: Project,
) -> None:
    waits = f"  - {{id: lost, {MAKES.format('lost')}, deps: [held]}}\n"
    held = "  - {id: held, human: true}\n"
    assert project.run(held + waits).code == 10
    done = project.run(held + UNKNOWN.replace("}", ", deps: [held]}"))
    assert done.error["code"] == "sop_unknown"
    shown = call("--json", "show", "lost", cwd=project.at).data
    assert "nocard" not in json.dumps(shown)


def test_a_card_whose_nodes_name_what_there_is_not_is_refused_before_it_has_a_workspace(
    tmp_path: Path,
) -> None:
    bad = (
        "    - {id: lost, sop: test.nocard}\n"
        "    - {id: far, agent: {command: [noagent-anywhere]}}\n"
        "    - {id: odd, sop: {sop: perdure.batch-extraction, inputs: {colour: red}}}\n"
    )
    path = tmp_path / "it.yaml"
    path.write_text(card(bad + MADE), encoding="utf-8")
    done = call("--json", "sop", "run", "./it.yaml", cwd=str(tmp_path))
    assert (done.code, done.error["code"]) == (3, "sop_unknown")
    for part in ("lost", "test.nocard", "far", "noagent-anywhere", "odd", "colour"):
        assert part in done.error["message"], done.err
    assert list(tmp_path.iterdir()) == [path]
    path.write_text(card(MADE), encoding="utf-8")
    assert call("sop", "run", "./it.yaml", cwd=str(tmp_path)).code == 0


def test_all_nodes_that_cannot_be_launched_are_told_at_once(project: Project) -> None:
    done = project.run(UNINSTALLED + BAD_INPUTS + UNKNOWN)
    assert (done.code, done.error["code"]) == (3, "executor_missing")
    for part in ("3 nodes", "far", "noagent", "odd", "colour", "lost", "nocard.yaml"):
        assert part in done.error["message"], done.err


def test_a_node_that_the_file_has_dropped_keeps_only_itself_from_running(
    project: Project, tmp_path: Path
) -> None:
    held = "  - {id: held, human: true, outputs: [artifacts/held/o]}\n"
    late = "  - {id: late, sop: ./one.yaml, deps: [held]}\n"
    assert project.run(held + late).code == 10
    (tmp_path / "one.yaml").unlink()
    assert project.run(held + late).error["code"] == "sop_unknown"
    assert project.run(held + FINE).code == 10
    assert project.state_of("fine") == "DONE"
    (project.workspace / "artifacts/held/o").write_text("done", encoding="utf-8")
    assert call("--actor", "executor:person", "submit", "held", cwd=project.at).code == 0
    done = project.run(held + FINE)
    assert done.code == 10, done.out + done.err
    assert (project.state_of("held"), project.state_of("late")) == ("DONE", "READY")
    (refused,) = [e for e in map(json.loads, done.out.splitlines()) if e.get("event") == "refused"]
    assert refused["node"] == "late"
    assert "late: there is no card" in refused["why"]
