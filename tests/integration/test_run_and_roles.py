"""What commands of a run may do, and a goal that changes while they are at work.

The commands are real processes that talk to perdure themselves, in the role that the run gives
them; FIFOs say how far they are and let them go on.
"""

import json
import os
import sys
from pathlib import Path

import pytest
from tests.integration.shell import call, finish, start

TASK = f"""
task_id: t1
grants: ['write:$TASK/*']
goal: do it
nodes:
  - id: long
    run: |
      perdure="{sys.executable} -m perdure"
      echo at work > "$PERDURE_TASK_DIR/at-work"
      cat "$PERDURE_TASK_DIR/gate" > /dev/null
      echo "$PERDURE_ACTOR" > "$PERDURE_SCOPE/who.txt"
      $perdure beat && $perdure note "from inside"
      $perdure cancel after 2> "$PERDURE_SCOPE/refused.txt"
      $perdure -C "$PERDURE_WORKSPACE/tmp/inner" init inner
    outputs: [artifacts/long/who.txt, artifacts/long/refused.txt]
    accept:
      - 'script: test "$PERDURE_ACTOR" = verifier:v1'
  - id: after
    deps: [long]
    run: cp artifacts/long/who.txt "$PERDURE_SCOPE/"
    outputs: [artifacts/after/who.txt]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "task.yaml").write_text(TASK, encoding="utf-8")
    for name in ("at-work", "gate"):
        os.mkfifo(tmp_path / name)
    return tmp_path


def is_at_work(project: Path) -> bool:
    return (project / "at-work").read_text(encoding="utf-8") == "at work\n"


def test_a_command_is_the_executor_of_its_contract_and_nothing_more(project: Path) -> None:
    run = start("-C", "w", "run", "task.yaml", cwd=str(project))
    assert is_at_work(project)
    (project / "gate").write_text("go", encoding="utf-8")
    assert finish(run).code == 0
    events = call("-C", "w", "log", "--json", cwd=str(project)).data["events"]
    who = (project / "w/artifacts/long/who.txt").read_text(encoding="utf-8").strip()
    started = next(e for e in events if e["payload"].get("edge") == "N02")
    assert who == f"executor:{started['payload']['invocation']}"
    said = [(e["kind"], e["actor"]) for e in events if e["actor"].startswith("executor:")]
    assert said == [("HEARTBEAT", who), ("NOTE", who)]
    refused = (project / "w/artifacts/long/refused.txt").read_text(encoding="utf-8")
    assert "role_may_not (AU-1)" in refused
    inner = call("-C", "w/tmp/inner", "log", "--json", cwd=str(project)).data["events"]
    assert inner[0]["actor"] == "coordinator:tester", "in another workspace it is its own master"


def test_a_goal_that_changes_under_a_run_recalls_it_and_reaches_the_next_attempt(
    project: Path,
) -> None:
    run = start("-C", "w", "run", "task.yaml", cwd=str(project))
    assert is_at_work(project)
    changed = call("-C", "w", "goal", "do it well", "--reason", "better", cwd=str(project))
    assert changed.code == 0, changed.err
    assert is_at_work(project), "the second attempt"
    run.kill()  # nothing of the first goal may come back
    run.communicate(timeout=50)
    again = start("-C", "w", "run", "task.yaml", cwd=str(project))
    assert is_at_work(project)
    (project / "gate").write_text("go", encoding="utf-8")
    ended = finish(again)
    assert ended.code == 0, ended.out
    status = call("-C", "w", "status", "--json", cwd=str(project)).data
    assert status["goal"] == "do it well"
    node = call("-C", "w", "show", "long", "--json", cwd=str(project)).data
    assert (node["attempts"], node["interruptions"]) == (3, 2), "neither is a strike"
    contract = (project / f"w/contracts/{node['invocation']}.json").read_text(encoding="utf-8")
    assert "The goal of the task is now: do it well (J-" in contract
    assert json.loads(contract)["parent"]["goal"] == "do it well"
    kinds = [e["kind"] for e in call("-C", "w", "log", "--json", cwd=str(project)).data["events"]]
    assert kinds.count("GOAL_AMENDED") == 1
