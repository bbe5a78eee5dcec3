"""Batch nodes as people run them: killed at random, watched, stopped, their items moved about.

Real processes, a real disk. What must hold is looked up in the files and by ``perdure verify``.
"""

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.crash.tally import chance_for
from tests.integration.shell import call, finish, start

units_total = 300
kills = 3

BIG = """
task_id: big
grants: ['write:$TASK/*']
nodes:
  - id: list
    run: seq 1 300 > "$PERDURE_SCOPE/items.txt"
    outputs: [artifacts/list/items.txt]
  - id: beside
    run: echo x > "$PERDURE_SCOPE/x"
  - id: batch
    deps: [list]
    map:
      items: artifacts/list/items.txt
      run: echo "$PERDURE_KEY" >> "$PERDURE_TASK_DIR/ran"; echo "$((PERDURE_KEY * 2))"
  - id: sum
    deps: [batch, beside]
    run: wc -l < artifacts/batch/findings.jsonl > "$PERDURE_SCOPE/n"
    outputs: [artifacts/sum/n]
"""


class Project:
    """A directory with a task file and the workspace ``w``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.workspace = directory / "w"

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text, encoding="utf-8")

    def arguments(self, *more: str) -> list[str]:
        return ["-C", str(self.workspace), *more]

    def task(self) -> str:
        return str(self.directory / "task.yaml")

    def lines(self, name: str, node: str = "batch") -> list[dict[str, object]]:
        """The whole lines of a file of lines in the scope of a node."""
        try:
            data = (self.workspace / "artifacts" / node / name).read_bytes()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]

    def done(self, node: str = "batch") -> list[str]:
        return [str(line["_key"]) for line in self.lines("findings.jsonl", node)]

    def statuses(self, node: str = "batch") -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for line in self.lines("ledger.jsonl", node):
            found.setdefault(str(line["unit_id"]), []).append(str(line["status"]))
        return found

    def ran(self) -> Counter[str]:
        path = self.directory / "ran"
        return Counter(path.read_text(encoding="utf-8").split() if path.exists() else ())


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    give_up_at = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.002)


def is_running(pid: int) -> bool:
    """Whether the process lives; one that nobody has reaped yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_batch_that_is_killed_at_random_does_each_unit_once(project: Project) -> None:
    project.write("task.yaml", BIG)
    chance = chance_for("batch nodes")
    for _ in range(kills):
        before = len(project.done())
        child = start(*project.arguments("run", project.task(), "--jobs", "4"))
        enough = before + chance.randrange(5, 60)
        until(lambda enough=enough: len(project.done()) >= enough)  # type: ignore[misc]
        child.kill()
        assert finish(child).code == -signal.SIGKILL
        assert len(project.done()) < units_total
    done = call(*project.arguments("run", project.task(), "--jobs", "4"))
    assert done.code == 0, done.out + done.err
    assert "finished: 4 DONE" in done.out

    keys = [str(number) for number in range(1, units_total + 1)]
    assert sorted(project.done(), key=int) == keys, "each unit exactly once in the findings"
    found = {str(line["_key"]): line["output"] for line in project.lines("findings.jsonl")}
    assert found == {key: int(key) * 2 for key in keys}
    statuses = project.statuses()
    assert set(statuses) == set(keys)
    assert all({"ok", "skip-evidence"} & set(told) for told in statuses.values())
    again = Counter({key: count for key, count in project.ran().items() if count > 1})
    assert sum(again.values()) - len(again) <= kills * 4, "only what was at work ran again"
    assert (project.workspace / "artifacts/sum/n").read_text(encoding="utf-8").strip() == "300"
    assert call(*project.arguments("verify")).code == 0
    shown = call(*project.arguments("show", "batch", "--json")).data
    assert (shown["state"], shown["interruptions"], shown.get("strikes", 0)) == ("DONE", kills, 0)
    assert shown["units"] == {"done": 300, "total": 300, "failed": 0}


# F18

REORDERED = """
task_id: again
grants: ['write:$TASK/*']
nodes:
  - id: batch
    retry: 1
    map:
      items: items.txt
      max_attempts: 1
      workers: 1
      run: >-
        echo "$PERDURE_KEY" >> "$PERDURE_TASK_DIR/ran";
        test "$PERDURE_KEY" != b || test -e "$PERDURE_TASK_DIR/well"
"""


def test_f18_items_reordered_inserted_and_listed_twice_are_each_done_once(
    project: Project,
) -> None:
    project.write("task.yaml", REORDERED)
    project.write("items.txt", "a\nb\nc\nd\n")
    first = call(*project.arguments("run", project.task()))
    assert first.code == 10, first.out
    assert "1 of 4 units failed: b" in first.out
    statuses = project.statuses()
    project.write("items.txt", "e\nd\nc\nc\nb\na\n")
    project.write("well", "")
    retried = call(*project.arguments("retry", "batch", "--method", "again", "--reason", "well"))
    assert retried.code == 0, retried.err
    second = call(*project.arguments("run", project.task()))
    assert second.code == 0, second.out
    assert "1 items came twice and count once: c" in second.out
    assert sorted(project.done()) == ["a", "b", "c", "d", "e"]
    assert project.ran() == {"a": 1, "b": 2, "c": 1, "d": 1, "e": 1}
    for key, told in statuses.items():
        assert project.statuses()[key][: len(told)] == told, "what was said of it stays"
    assert call(*project.arguments("verify")).code == 0


# Watched and stopped

WAITING = """
task_id: waits
grants: ['write:$TASK/*']
nodes:
  - id: batch
    map:
      list: [a, b, c, d]
      workers: 1
      run: >-
        test "$PERDURE_KEY" != c || test -e "$PERDURE_TASK_DIR/well" ||
        { echo at work > "$PERDURE_TASK_DIR/at-work"; exec sleep 60; }
"""


@pytest.fixture
def waiting(project: Project) -> Project:
    project.write("task.yaml", WAITING)
    os.mkfifo(project.directory / "at-work")
    return project


def wait_until_at_work(project: Project) -> None:
    path = project.directory / "at-work"
    assert path.read_text(encoding="utf-8") == "at work\n"


def test_status_and_show_tell_how_far_a_batch_is(waiting: Project) -> None:
    child = start(*waiting.arguments("run", waiting.task()))
    wait_until_at_work(waiting)
    until(lambda: len(waiting.done()) == 2)
    status = call(*waiting.arguments("status"))
    assert "at work    batch (coordinator:tester), 2 of 4 units done" in status.out
    shown = call(*waiting.arguments("show", "batch"))
    assert re.search(r"units:\n  done: 2\n  total: 4\n  failed: 0", shown.out), shown.out
    child.send_signal(signal.SIGTERM)
    assert finish(child).code == 128 + signal.SIGTERM


def test_second_signal_kills_the_units_at_once(waiting: Project) -> None:
    text = WAITING.replace("exec sleep 60", "trap '' TERM; sleep 60 & wait; wait")
    waiting.write("task.yaml", text)
    child = start(*waiting.arguments("run", waiting.task()))
    wait_until_at_work(waiting)
    child.send_signal(signal.SIGINT)
    assert child.stdout is not None
    for line in child.stdout:
        if "stopping at the next commit boundary" in line:
            break
    child.send_signal(signal.SIGINT)
    done = finish(child)
    assert done.code == 128 + signal.SIGINT
    assert "stopping at once" in done.out
    assert "interrupted batch RETRYABLE" in done.out
    waiting.write("well", "")
    again = call(*waiting.arguments("run", waiting.task()))
    assert again.code == 0, again.out
    assert waiting.done() == ["a", "b", "c", "d"]


def test_units_that_a_killed_run_left_running_are_stopped_before_the_next_begin(
    waiting: Project,
) -> None:
    text = WAITING.replace("exec sleep 60", 'echo $$ > "$PERDURE_TASK_DIR/pid"; exec sleep 600')
    waiting.write("task.yaml", text)
    child = start(*waiting.arguments("run", waiting.task()))
    wait_until_at_work(waiting)
    until((waiting.directory / "pid").exists)
    child.kill()
    finish(child)
    pid = int((waiting.directory / "pid").read_text(encoding="utf-8"))
    assert is_running(pid)
    waiting.write("well", "")
    again = call(*waiting.arguments("run", waiting.task()))
    assert again.code == 0, again.out
    assert f"({pid}, of batch)" in again.out, "it is named"
    assert not is_running(pid)


def test_lines_of_a_run_end_with_all_units(project: Project) -> None:
    project.write("task.yaml", BIG.replace("1 300", "1 5"))
    done = call(*project.arguments("run", project.task()))
    assert done.code == 0, done.out
    told = re.findall(r"units batch  (\d+)/(\d+)", done.out)
    assert told[-1] == ("5", "5")
    events = call("-C", str(project.directory / "w2"), "run", project.task(), "--json")
    units = [json.loads(line) for line in events.out.splitlines() if '"units"' in line]
    last = [event for event in units if event.get("event") == "units"][-1]
    assert (last["done"], last["total"], last["failed"]) == (5, 5, 0)


def test_what_came_of_a_unit_is_recorded_before_the_next_one_starts(project: Project) -> None:
    count = 'cat "$PERDURE_JOB/findings.jsonl" "$PERDURE_JOB/ledger.jsonl" 2>/dev/null | wc -l'
    text = (
        "task_id: order\nnodes:\n  - id: batch\n    map:\n"
        f"      list: [a, b, c]\n      run: {count}\n"
    )
    project.write("task.yaml", text)
    done = call(*project.arguments("run", project.task(), "--jobs", "1"))
    assert done.code == 0, done.err
    seen = {line["_key"]: line["output"] for line in project.lines("findings.jsonl")}
    assert seen == {"a": 0, "b": 2, "c": 4}
