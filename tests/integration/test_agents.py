"""Nodes that an agent works on, with a stand-in that speaks the agents' command lines."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shell import Done, call, finish, start

from perdure.control.agents import agent_wall_s

STANDIN = Path(__file__).with_name("standins") / "agent.py"
AGENTS = ("claude", "codex", "gemini")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory in which ``bin`` holds a stand-in for each agent, and ``home`` is the home."""
    (tmp_path / "bin").mkdir()
    for name in AGENTS:
        (tmp_path / "home" / f".{name}").mkdir(parents=True)
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STANDIN}" {name} "$@"\n')
        program.chmod(0o755)
    return tmp_path


def surroundings(project: Path) -> dict[str, str]:
    return {
        "PATH": f"{project}/bin:{os.environ['PATH']}",
        "HOME": f"{project}/home",
        "STANDIN_SCRIPT": str(project / "script.json"),
    }


def write(project: Path, nodes: str, **script: list[Any]) -> None:
    (project / "task.yaml").write_text(f"task_id: t\nnodes:\n{nodes}", encoding="utf-8")
    (project / "script.json").write_text(json.dumps(script), encoding="utf-8")


def run(project: Path, *arguments: str) -> Done:
    return call("run", "task.yaml", *arguments, cwd=str(project), **surroundings(project))


def node_of(project: Path, node_id: str) -> dict[str, Any]:
    done = call("show", node_id, "--json", cwd=str(project), **surroundings(project))
    assert done.code == 0, done.err
    found: dict[str, Any] = done.data.get("node", done.data)
    return found


def workspace(project: Path) -> Path:
    return project / ".perdure" / "tasks" / "t"


def events(project: Path) -> list[dict[str, Any]]:
    lines = (workspace(project) / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def moves(project: Path, edge: str) -> list[dict[str, Any]]:
    return [e["payload"] for e in events(project) if e.get("payload", {}).get("edge") == edge]


def one(agent: str, more: str = "") -> str:
    return (
        f"  - id: a\n    goal: Say hello\n    agent: {agent}\n"
        f"    outputs: [artifacts/a/out.txt]\n{more}"
    )


@pytest.mark.parametrize("agent", AGENTS)
def test_agent_reads_its_contract_and_its_usage_is_on_record(project: Path, agent: str) -> None:
    write(project, one(f"{{agent: {agent}, model: big-1}}"))
    done = run(project)
    assert done.code == 0, done.out + done.err
    out = workspace(project) / "artifacts/a/out.txt"
    assert out.read_text(encoding="utf-8") == "Say hello (attempt 1)\n"
    [claim] = moves(project, "N03")
    assert claim["usage"]["tokens"] == 120
    assert claim["usage"]["model"] == "big-1"
    assert claim["usage"]["wall_s"] > 0
    assert claim["usage"].get("cost_usd") == (0.25 if agent == "claude" else None)
    [start] = moves(project, "N02")
    assert start["budget"] == {"max_wall_s": agent_wall_s}, "what stops it is in its contract"


def test_any_program_is_an_agent_when_its_command_line_is_given(project: Path) -> None:
    command = f"[{sys.executable}, {STANDIN}, plain, '{{message}}']"
    write(project, one(f"{{command: {command}}}"))
    done = run(project)
    assert done.code == 0, done.out + done.err
    assert (workspace(project) / "artifacts/a/out.txt").is_file()


def test_agent_that_is_not_installed_is_told_before_anything_starts(project: Path) -> None:
    (project / "bin" / "codex").unlink()
    write(
        project,
        "  - {id: z, run: 'true', outputs: none, accept: ['script: true']}\n" + one("codex"),
    )
    environment = {**surroundings(project), "PATH": f"{project}/bin:/usr/bin:/bin"}
    done = call("run", "task.yaml", cwd=str(project), **environment)
    assert done.code == 3
    assert "executor_missing" in done.err
    assert "npm install -g @openai/codex" in done.err
    assert not (workspace(project) / "journal.jsonl").exists() or not moves(project, "N02")


def test_success_without_a_file_is_a_silent_death(project: Path) -> None:
    write(project, one("claude"), a=["lie", "succeed"])
    done = run(project)
    assert done.code == 0, done.out + done.err
    [failed] = moves(project, "N04")
    assert failed["death"]["mode"] == "silent"
    assert failed["usage"]["cost_usd"] == 0.25


def test_garbage_is_told_and_the_work_counts_by_what_is_on_disk(project: Path) -> None:
    write(project, one("gemini"), a=["garbage"])
    done = run(project)
    assert done.code == 0, done.out + done.err
    assert "no result that can be read" in done.out


def test_agent_that_dies_in_the_middle_is_tried_again(project: Path) -> None:
    write(project, one("codex"), a=["half", "die", "succeed"])
    done = run(project)
    assert done.code == 0, done.out + done.err
    out = workspace(project) / "artifacts/a/out.txt"
    assert out.read_text(encoding="utf-8") == "Say hello (attempt 3)\n"
    modes = [payload["death"]["mode"] for payload in moves(project, "N04")]
    assert modes == ["killed", "killed"]


def test_missing_credentials_stop_the_node_with_a_question(project: Path) -> None:
    write(project, one("claude"), a=[["error", "Not logged in · Please run /login"]])
    done = run(project)
    assert done.code == 10, done.out + done.err
    [blocked] = moves(project, "N05")
    assert blocked["failure_class"] == "permanent-resource"
    assert blocked["death"]["cause"] == "credentials"
    assert node_of(project, "a")["state"] == "BLOCKED"


def test_attempt_that_spent_more_than_its_budget_has_failed(project: Path) -> None:
    write(project, one("claude", "    budget: {cost_usd: 0.1}\n    retry: 1\n"))
    done = run(project)
    assert done.code != 0, done.out + done.err
    assert "budget spent" in done.out
    assert moves(project, "N03") == []
    assert moves(project, "N04")[0]["usage"]["cost_usd"] == 0.25


def test_permissions_that_were_denied_are_told_by_the_run(project: Path) -> None:
    write(project, one("claude"), a=[["denied", "Bash"], "succeed"])
    done = run(project)
    assert done.code == 0, done.out + done.err
    assert "it was not allowed to use Bash" in done.out


def test_what_an_agent_leaves_running_is_stopped(project: Path) -> None:
    write(project, one("claude"), a=["leave"])
    done = run(project)
    assert done.code == 0, done.out + done.err
    assert "left" in done.out


def test_agent_cannot_write_outside_its_scope(project: Path) -> None:
    target = project / "stolen.txt"
    write(project, one("gemini"), a=[["outside", str(target)]])
    done = run(project)
    assert done.code == 0, done.out + done.err
    doctor = call("doctor", "--json", cwd=str(project), **surroundings(project))
    if "landlock" in doctor.out:
        assert not target.exists()
        logs = list((workspace(project) / "tmp/logs/a").glob("*.log"))
        assert "Permission denied" in "".join(log.read_text() for log in logs)


def test_run_that_is_killed_leaves_no_agent_behind_and_goes_on(project: Path) -> None:
    fifo = project / "at-work"
    os.mkfifo(fifo)
    grant = "    grants: ['write:$TASK/at-work']\n"
    write(project, one("codex", grant), a=[["hang", str(fifo)], "succeed"])
    child = start("run", "task.yaml", cwd=str(project), **surroundings(project))
    pid = int(fifo.read_text(encoding="utf-8"))
    child.send_signal(signal.SIGKILL)
    finish(child)
    done = run(project)
    assert done.code == 0, done.out + done.err
    assert not Path(f"/proc/{pid}").exists() or _is_zombie(pid)
    out = workspace(project) / "artifacts/a/out.txt"
    assert out.read_text(encoding="utf-8") == "Say hello (attempt 2)\n"
    [once] = moves(project, "N03")
    assert once["edge"] == "N03"


@pytest.mark.parametrize("agent", AGENTS)
def test_shards_of_a_batch_node_go_to_agents(project: Path, agent: str) -> None:
    nodes = (
        "  - id: a\n    map: {list: [harbour, mast, anchor, keel, oar], shard: 2,"
        f" agent: {agent}, schema: {{type: object, required: [length]}}}}\n"
    )
    write(project, nodes)
    done = run(project, "--jobs", "2")
    assert done.code == 0, done.out + done.err
    log = workspace(project) / "artifacts/a/findings.jsonl"
    found = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert sorted((one["_key"], one["length"]) for one in found) == [
        ("anchor", 6), ("harbour", 7), ("keel", 4), ("mast", 4), ("oar", 3),
    ]  # fmt: skip
    closed = [e["payload"] for e in events(project) if e["payload"].get("op") == "slot_closed"]
    assert [payload["landed"] for payload in closed] == [2, 2, 1]
    assert {payload["usage"]["tokens"] for payload in closed} == {120}


def _is_zombie(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return True
