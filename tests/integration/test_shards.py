"""Sharded batch nodes as people run them: coordinators and workers killed, in whatever order.

Real processes, a real disk; the workers know perdure by their contracts only. What must hold is
looked up in the files and by ``perdure verify``.
"""

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.crash.tally import chance_for
from tests.integration.shell import call, finish, start
from tests.integration.test_batch_nodes import Project, is_running, until

WORKER = Path(__file__).parent / "standins" / "shard_worker.py"
units_total = 240
kills = 3
HARD = ("kill", "finding_then_kill", "half", "silent", "exit", "fail", "ledger_only", "fork")


def task(total: int, *, shard: int = 8, more: str = "") -> str:
    return f"""
task_id: shards
nodes:
  - id: list
    run: seq 1 {total} > "$PERDURE_SCOPE/items.txt"
    outputs: [artifacts/list/items.txt]
  - id: batch
    deps: [list]
    map:
      items: artifacts/list/items.txt
      run: [{json.dumps(sys.executable)}, {json.dumps(str(WORKER))}]
      shard: {shard}
      max_attempts: 4
{more}  - id: sum
    deps: [batch]
    run: wc -l < artifacts/batch/findings.jsonl > "$PERDURE_SCOPE/n"
    outputs: [artifacts/sum/n]
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def behave(project: Project, behaviours: dict[str, list[str]]) -> None:
    project.write("behaviour.json", json.dumps(behaviours))


def begun(project: Project) -> Counter[str]:
    path = project.workspace / "tmp" / "ran"
    return Counter(path.read_text(encoding="utf-8").split() if path.exists() else ())


def payloads(project: Project, op: str) -> list[dict[str, Any]]:
    journal = (project.workspace / "journal.jsonl").read_bytes()
    events = [json.loads(line) for line in journal[: journal.rfind(b"\n") + 1].splitlines()]
    return [
        {**event["payload"], "id": event["entity"]["id"]}
        for event in events
        if event["payload"].get("op") == op
    ]


def check_done(project: Project, keys: list[str]) -> None:
    assert sorted(project.done(), key=int) == keys, "each unit exactly once in the findings"
    assert all({"ok", "skip-evidence"} & set(told) for told in project.statuses().values())
    opened = Counter(slot["id"] for slot in payloads(project, "slot"))
    closed = Counter(slot["id"] for slot in payloads(project, "slot_closed"))
    assert opened == closed, "each slot is closed once"
    assert set(opened.values()) == {1}
    assert call(*project.arguments("verify")).code == 0


def test_coordinator_and_workers_killed_at_random_do_each_unit_once(project: Project) -> None:
    project.write("task.yaml", task(units_total))
    chance = chance_for("shards")
    keys = [str(number) for number in range(1, units_total + 1)]
    behave(project, {key: [chance.choice(HARD)] for key in chance.sample(keys, 30)})
    for _ in range(kills):
        before = len(project.done())
        child = start(*project.arguments("run", project.task(), "--jobs", "4"))
        enough = min(before + chance.randrange(8, 50), units_total - 20)
        until(lambda enough=enough: len(project.done()) >= enough)  # type: ignore[misc]
        child.kill()
        assert finish(child).code == -signal.SIGKILL
    done = call(*project.arguments("run", project.task(), "--jobs", "4"))
    assert done.code == 0, done.out + done.err
    check_done(project, keys)
    ends = Counter(str(slot["end"]) for slot in payloads(project, "slot_closed"))
    assert set(ends) <= {"landed", "killed", "silent", "failed", "abandoned"}
    assert ends["killed"]
    shown = call(*project.arguments("show", "batch", "--json")).data
    assert (shown["state"], shown.get("strikes", 0)) == ("DONE", 0)


def test_worker_that_outlives_its_coordinator_is_stopped_and_what_it_landed_stays(
    project: Project,
) -> None:
    project.write("task.yaml", task(4, shard=4))
    behave(project, {"3": ["hang"]})
    child = start(*project.arguments("run", project.task()))
    mark = project.workspace / "tmp" / "hangs-3"
    until(lambda: mark.exists() and bool(mark.read_text(encoding="utf-8")))
    child.kill()
    finish(child)
    pid = int(mark.read_text(encoding="utf-8"))
    assert is_running(pid)
    again = call(*project.arguments("run", project.task()))
    assert again.code == 0, again.out
    assert not is_running(pid)
    assert begun(project) == {"1": 1, "2": 1, "3": 2, "4": 1}
    check_done(project, ["1", "2", "3", "4"])
    [abandoned, _] = payloads(project, "slot_closed")
    assert (abandoned["end"], abandoned["landed"], abandoned["left"]) == ("abandoned", 2, 2)


def test_worker_over_its_time_limit_has_timed_out_and_its_units_go_on(project: Project) -> None:
    project.write("task.yaml", task(3, shard=3, more="      timeout: 3\n"))
    behave(project, {"2": ["hang"]})
    done = call(*project.arguments("run", project.task()))
    assert done.code == 0, done.out
    ends = [slot["end"] for slot in payloads(project, "slot_closed")]
    assert ends == ["timed_out", "landed"]
    check_done(project, ["1", "2", "3"])


def test_slots_are_seen_while_they_are_out(project: Project) -> None:
    project.write("task.yaml", task(3, shard=3))
    behave(project, {"2": ["hang"]})
    child = start(*project.arguments("run", project.task()))
    until((project.workspace / "tmp" / "hangs-2").exists)
    checkpoint = call(*project.arguments("status", "--json")).data
    [slot] = payloads(project, "slot")
    assert slot["id"] in json.dumps(checkpoint)
    child.send_signal(signal.SIGTERM)
    assert finish(child).code == 128 + signal.SIGTERM
    assert [entry["end"] for entry in payloads(project, "slot_closed")] == ["recalled"]


def test_recalled_batch_leaves_no_worker_and_goes_on_where_it_was(project: Project) -> None:
    project.write("task.yaml", task(4, shard=2))
    behave(project, {"3": ["hang"]})
    child = start(*project.arguments("run", project.task(), "--jobs", "1"))
    mark = project.workspace / "tmp" / "hangs-3"
    until(lambda: mark.exists() and bool(mark.read_text(encoding="utf-8")))
    until(lambda: len(project.done()) == 2)
    told = call(*project.arguments("steer", "change: be quicker", "--node", "batch"))
    assert told.code == 0, told.err
    pid = int(mark.read_text(encoding="utf-8"))
    until(lambda: not is_running(pid))
    done = finish(child)
    if done.code != 0:
        done = call(*project.arguments("run", project.task()))
    assert done.code == 0, done.out + done.err
    check_done(project, ["1", "2", "3", "4"])
    assert begun(project)["1"] == 1


def test_agent_gets_shards_and_is_killed_once(project: Project) -> None:
    text = task(5, shard=2).replace("run: [", "agent: {agent: command, command: [", 1)
    text = text.replace('shard_worker.py"]', 'shard_worker.py"]}', 1)
    project.write("task.yaml", text)
    behave(project, {"4": ["kill"]})
    done = call(*project.arguments("run", project.task()))
    assert done.code == 0, done.out + done.err
    check_done(project, ["1", "2", "3", "4", "5"])
    assert {slot["executor"] for slot in payloads(project, "slot")} == {"agent"}


def test_work_that_was_cancelled_before_its_turn_holds_up_nobody(project: Project) -> None:
    """What has died more often waits for what is untouched, and not for what is gone."""
    text = f"""
task_id: shards
nodes:
  - id: batch
    priority: 1
    map:
      list: ["1"]
      run: [{json.dumps(sys.executable)}, {json.dumps(str(WORKER))}]
      shard: 1
  - {{id: key, human: true, outputs: none, accept: ["script: true"]}}
  - {{id: never, deps: [key], run: "true", outputs: none, accept: ["script: true"]}}
"""
    project.write("task.yaml", text)
    behave(project, {"1": ["hang", "kill", "ok"]})
    child = start(*project.arguments("run", project.task(), "--jobs", "1"))
    mark = project.workspace / "tmp" / "hangs-1"
    until(lambda: mark.exists() and bool(mark.read_text(encoding="utf-8")))
    for words in (("submit", "key", "--actor", "executor:person"), ("cancel", "never")):
        more = ("--reason", "not wanted") if words[0] == "cancel" else ()
        told = call(*project.arguments(*words, *more))
        assert told.code == 0, told.err
    os.kill(int(mark.read_text(encoding="utf-8")), signal.SIGKILL)
    done = finish(child)
    assert done.code == 0, done.out + done.err
    assert begun(project)["1"] == 3


def test_f13_what_a_worker_leaves_running_is_named_and_stopped_and_its_slot_closes(
    project: Project,
) -> None:
    project.write("task.yaml", task(2, shard=2))
    behave(project, {"1": ["fork"]})
    done = call(*project.arguments("--json", "run", project.task()))
    assert done.code == 0, done.out + done.err
    events = [json.loads(line) for line in done.out.splitlines()]
    (left,) = [event for event in events if event.get("event") == "leftovers"]
    [[pid, name]] = left["processes"]
    (slot,) = payloads(project, "slot_closed")
    assert (left["slot"], name, slot["end"]) == (slot["id"], "sleep", "landed")
    assert not is_running(pid)
