"""C-BATCH: a node of many units is done unit by unit, each once, whatever happens in between.

Everything but the deaths in ``tests/crash/test_batch_steps.py``: the commands are real, the run is
the service call behind ``perdure run``.
"""

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.batches import RAN, BatchProject

from perdure.core.batch import inventory_digest
from perdure.errors import RefusedError, StorageError
from perdure.ports import AppendFile
from perdure.runtime.world import real_world
from perdure.storage import spool
from perdure.storage.disk import RealDisk
from perdure.storage.filelock import RealFileLock
from perdure.storage.workspace import Layout


@pytest.fixture
def project(workspace: str) -> BatchProject:
    return BatchProject(workspace)


def task(run: str, *, units: str = "list: [a, b, c]", more: str = "", head: str = "") -> str:
    """A task with the batch node ``B`` and a plain node behind it."""
    return f"""
task_id: t
grants: ['write:$TASK/*']
{head}
nodes:
  - id: B
    map:
      {units}
      run: >-
        {RAN} {run}
    {more}
  - id: last
    deps: [B]
    run: wc -l < artifacts/B/findings.jsonl > "$PERDURE_SCOPE/n"
    outputs: [artifacts/last/n]
"""


GOOD = "echo '{\"n\": 1}'"


# What a finished node rests on


def test_units_become_findings_and_the_findings_are_the_artifact(project: BatchProject) -> None:
    report = project.run(task(GOOD))
    assert report["outcome"] == "finished"
    assert sorted(project.done()) == ["a", "b", "c"]
    assert project.ran() == {"a": 1, "b": 1, "c": 1}
    assert sorted(project.ledger()) == [("a", "ok"), ("b", "ok"), ("c", "ok")]
    [artifact] = project.node("B")["artifacts"]
    path = Path(f"{project.workspace}/artifacts/B/findings.jsonl")
    shown = as_artifact(project, artifact)
    assert shown["path"] == "artifacts/B/findings.jsonl"
    assert shown["integrity"]["value"] == hashlib.sha256(path.read_bytes()).hexdigest()
    n = Path(f"{project.workspace}/artifacts/last/n").read_text(encoding="utf-8")
    assert n.strip() == "3"


def as_artifact(project: BatchProject, name: str) -> dict[str, Any]:
    return json.loads(json.dumps(project.service.show(name)))  # type: ignore[no-any-return]


def test_verdict_rests_on_the_contract_that_the_journal_cites(project: BatchProject) -> None:
    project.run(task(GOOD))
    contract = project.contract()
    assert contract["units"] == {
        "total": 3,
        "sha256": inventory_digest("abc"),
        "duplicates": 0,
        "sample": ["a", "b", "c"],
        "passed_over": 0,
    }
    assert contract["skip"] == 0
    assert contract["acceptance"] == [{"check": "units"}]
    assert contract["map"]["list"] == ["a", "b", "c"]
    [done] = [event for event in project.journal() if event.payload.get("edge") == "N06"][:1]
    [check] = [item for item in done.payload["checks"] if item["check"] == "units"]
    read = {entry["path"]: entry["sha256"] for entry in check["inputs"]}
    [start] = [event for event in project.journal() if event.payload.get("edge") == "N02"][:1]
    assert read[start.payload["contract"]] == start.payload["contract_sha256"]
    assert {"artifacts/B/ledger.jsonl", "artifacts/B/findings.jsonl"} < set(read)


def test_items_are_what_the_nodes_before_have_made(project: BatchProject) -> None:
    text = f"""
task_id: t
grants: ['write:$TASK/*']
nodes:
  - id: find
    run: printf 'x,1\\ny,2\\n' > "$PERDURE_SCOPE/rows.csv"; sed -i 1iid,n "$PERDURE_SCOPE/rows.csv"
    outputs: [artifacts/find/rows.csv]
  - id: B
    deps: [find]
    map:
      items: artifacts/find/rows.csv
      key: id
      run: [sh, -c, '{RAN} echo "{{id}} is {{n}}"']
"""
    assert project.run(text)["outcome"] == "finished"
    found = {line["_key"]: line["output"] for line in project.lines("findings.jsonl")}
    assert found == {"x": "x is 1", "y": "y is 2"}
    assert project.contract()["units"]["items"] == "artifacts/find/rows.csv"


def test_files_beside_the_task_file_are_units_by_their_names(project: BatchProject) -> None:
    for name in ("a.md", "b.md"):
        (project.directory / "docs").mkdir(exist_ok=True)
        (project.directory / "docs" / name).write_text("x" * 7, encoding="utf-8")
    text = task('wc -c < "$PERDURE_TASK_DIR/$PERDURE_KEY"', units="glob: docs/*.md")
    assert project.run(text)["outcome"] == "finished"
    found = {line["_key"]: line["output"] for line in project.lines("findings.jsonl")}
    assert found == {"docs/a.md": 7, "docs/b.md": 7}


def test_an_empty_file_of_items_is_a_node_without_units(project: BatchProject) -> None:
    (project.directory / "i.txt").write_text("\n\n", encoding="utf-8")
    assert project.run(task(GOOD, units="items: i.txt"))["outcome"] == "finished"
    assert (project.done(), project.ledger()) == ([], [])


def test_other_outputs_and_checks_hold_besides_the_units(project: BatchProject) -> None:
    more = """outputs: [artifacts/B/index]
    accept: ["count: lines artifacts/B/index == 3", "count: lines artifacts/B/findings.jsonl == 3"]
"""
    text = task('echo "$PERDURE_KEY" >> "$PERDURE_SCOPE/index"', more=more)
    assert project.run(text)["outcome"] == "finished"
    paths = [as_artifact(project, name)["path"] for name in project.node("B")["artifacts"]]
    assert paths == ["artifacts/B/findings.jsonl", "artifacts/B/index"]


# Failures


FLAKY = 'test "$PERDURE_KEY" != b || test -e "$PERDURE_TASK_DIR/well"'


def test_only_failed_units_run_again_in_the_next_attempt(project: BatchProject) -> None:
    def heal(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "failed":
            (project.directory / "well").touch()

    text = task(FLAKY, units="list: [a, b, c]\n      max_attempts: 1")
    assert project.run(text, on=heal)["outcome"] == "finished"
    assert project.ran() == {"a": 1, "b": 2, "c": 1}
    assert project.edges("B")[:4] == ["N01", "N02", "N04", "N11"]
    [failed] = project.told("failed")
    assert failed["why"] == "1 of 3 units failed: b"
    statuses = [status for unit, status in project.ledger() if unit == "b"]
    assert statuses == ["fail", "ok"]
    assert project.contract()["skip"] == 2


def test_a_unit_that_fails_is_tried_again_within_its_limit(project: BatchProject) -> None:
    text = task(
        FLAKY, units="list: [a, b, c]\n      max_attempts: 2", more="retry: 1\n    budget: {}"
    )
    report = project.run(text)
    assert report["outcome"] == "needs_person"
    assert project.ran() == {"a": 1, "b": 2, "c": 1}
    [event] = [event for event in project.journal() if event.payload.get("edge") == "N04"]
    assert event.payload["failure_class"] == "transient-agent"
    assert event.payload["signature"] == "1 of 3 units failed: b"
    assert project.node("B")["strikes"] == 1
    # A person who allows another method gives the units new attempts as well.
    (project.directory / "well").touch()
    project.service.call("retry", {"node": "B", "reason": "it is well", "method": "again"})
    assert project.run(text)["outcome"] == "finished"
    assert project.ran()["b"] == 3


@pytest.mark.parametrize(
    ("units", "content", "state", "said"),
    [
        ("items: none.txt", None, "BLOCKED", "there is no file of items none.txt"),
        ("items: i.jsonl", '"a"\nnonsense\n', "BLOCKED", "i.jsonl:2: the line is not JSON"),
        ("glob: '*.none'", None, "BLOCKED", "names no file"),
        ("items: artifacts/other/n", "", "QUARANTINED", "cannot be used"),
    ],
)
def test_items_that_cannot_be_read_fail_their_node_and_no_other(
    project: BatchProject, units: str, content: str | None, state: str, said: str
) -> None:
    if content:
        (project.directory / "i.jsonl").write_text(content, encoding="utf-8")
    other = """
  - id: other
    run: printf '\\377\\n' > "$PERDURE_SCOPE/n"
    outputs: [artifacts/other/n]
"""
    text = task(GOOD, units=units, more="deps: [other]") + other
    report = project.run(text)
    assert report["outcome"] == "needs_person"
    assert project.node("other")["state"] == "DONE"
    assert project.node("B")["state"] == state
    [failed] = project.told("failed")
    assert said in failed["why"]
    assert project.contract()["units"]["total"] is None
    assert said in project.contract()["units"]["problem"]


def test_items_that_were_put_right_are_read_after_a_retry(project: BatchProject) -> None:
    text = task(GOOD, units="items: i.txt")
    assert project.run(text)["outcome"] == "needs_person"
    (project.directory / "i.txt").write_text("a\n", encoding="utf-8")
    project.service.call("retry", {"node": "B", "reason": "it is there now"})
    assert project.run(text)["outcome"] == "finished"
    assert project.done() == ["a"]


def test_a_program_that_is_not_there_is_asked_for_before_any_unit_fails(
    project: BatchProject,
) -> None:
    text = """
task_id: t
grants: ['write:$TASK/*']
nodes:
  - {id: B, map: {list: [a], run: [no-such-program, "{}"]}}
"""
    assert project.run(text)["outcome"] == "needs_person"
    assert project.node("B")["state"] == "BLOCKED"
    [question] = project.service.status()["questions"].values()
    assert "there is no program 'no-such-program' in the PATH" in question


def test_a_failed_check_moves_the_job_away_and_all_units_run_again(project: BatchProject) -> None:
    more = "accept: ['script: test -e \"$PERDURE_TASK_DIR/well\"']"

    def heal(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "failed":
            (project.directory / "well").touch()

    report = project.run(task('echo x > "$PERDURE_FILE"', more=more), on=heal)
    assert report["outcome"] == "finished"
    assert project.edges("B")[:6] == ["N01", "N02", "N03", "N07", "N11", "N03"]
    assert project.ran() == {"a": 2, "b": 2, "c": 2}
    assert os.path.exists(f"{project.workspace}/artifacts/old/A-B-1/findings.jsonl")
    left = {path.removeprefix("B-1/artifacts/B/") for path in project.aside()}
    assert {"ledger.jsonl", "state.json", "SUMMARY.md", ".batch.json"} <= left
    assert sum(path.startswith("files/") for path in left) == 3
    assert project.contract()["skip"] == 0


def test_findings_that_vanish_are_made_again_from_nothing(project: BatchProject) -> None:
    text = task(GOOD)
    project.run(text)
    os.unlink(f"{project.workspace}/artifacts/B/findings.jsonl")
    assert project.run(text)["outcome"] == "finished"
    assert "RC1" in project.edges("B")
    assert project.ran() == {"a": 2, "b": 2, "c": 2}
    assert sorted(project.done()) == ["a", "b", "c"]


def test_time_limit_of_the_node_ends_the_attempt_and_keeps_what_is_done(
    project: BatchProject,
) -> None:
    more = "budget: {wall: 1.5}\n    retry: 1"
    run = 'test "$PERDURE_KEY" = a || test -e "$PERDURE_TASK_DIR/well" || exec sleep 60'
    report = project.run(task(run, more=more), jobs=3)
    assert report["outcome"] == "needs_person"
    [failed] = project.told("failed")
    assert failed["why"] == "timed out after 1.5 s"
    assert project.done() == ["a"]
    (project.directory / "well").touch()
    project.service.call("retry", {"node": "B", "reason": "it is well", "method": "again"})
    assert project.run(task(run, more=more))["outcome"] == "finished"
    assert project.ran()["a"] == 1


def test_a_job_that_somebody_else_holds_is_tried_again_later(project: BatchProject) -> None:
    scope = f"{project.workspace}/artifacts/B"
    os.makedirs(scope)
    lock = RealFileLock(f"{scope}/.lock")
    assert lock.try_acquire()

    def let_go(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "failed":
            lock.close()

    assert project.run(task(GOOD), on=let_go)["outcome"] == "finished"
    [failed] = project.told("failed")
    [event] = [event for event in project.journal() if event.payload.get("edge") == "N04"]
    assert event.payload["failure_class"] == "transient-environment"
    assert "held" in failed["why"]
    assert project.ran() == {"a": 1, "b": 1, "c": 1}


class FillingDisk(RealDisk):
    """Full at the second write to the log of findings, once."""

    __slots__ = ("writes",)

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def open_append(self, path: str) -> Any:
        file = super().open_append(path)
        return FillingFile(self, file) if path.endswith("B/findings.jsonl") else file


class FillingFile:
    def __init__(self, disk: FillingDisk, file: AppendFile) -> None:
        self.disk, self.file = disk, file

    def append(self, data: bytes) -> None:
        self.disk.writes += 1
        if self.disk.writes == 2:
            self.file.append(data[: len(data) // 2])
            self.file.close()
            raise StorageError("Appending failed: ENOSPC.", code="disk_full", fix="Free some.")
        self.file.append(data)

    def sync(self) -> None:
        self.file.sync()

    def size(self) -> int:
        return self.file.size()

    def close(self) -> None:
        self.file.close()


def test_a_disk_that_is_full_for_a_while_costs_an_attempt_and_no_unit(
    project: BatchProject,
) -> None:
    world = real_world()._replace(disk=FillingDisk())
    text = task(GOOD, units="list: [a, b, c]\n      workers: 1")
    assert project.run(text, world=world)["outcome"] == "finished"
    [failed] = [event for event in project.journal() if event.payload.get("edge") == "N04"]
    assert failed.payload["failure_class"] == "transient-environment"
    assert "ENOSPC" in failed.payload["signature"]
    assert sorted(project.done()) == ["a", "b", "c"]
    assert project.ran()["a"] == 1, "what was recorded is not done again"


def test_keys_are_shown_on_one_line_and_cut(project: BatchProject) -> None:
    keys = ["line\nfeed", "x" * 60_000, "# heading", "fourth"]
    items = "".join(json.dumps(key) + "\n" for key in keys)
    (project.directory / "i.jsonl").write_text(items, encoding="utf-8")
    run = 'cat "$PERDURE_TASK_DIR/i.jsonl" > "$PERDURE_TASK_DIR/seen"; exit 1'
    text = f"""
task_id: t
grants: ['write:$TASK/*']
nodes:
  - {{id: B, retry: 1, map: {{items: i.jsonl, max_attempts: 1, workers: 1, run: '{run}'}}}}
"""
    assert project.run(text)["outcome"] == "needs_person"
    [event] = [event for event in project.journal() if event.payload.get("edge") == "N04"]
    shown = event.payload["signature"]
    assert shown.startswith("4 of 4 units failed: line feed, xxx")
    assert shown.endswith("..., # heading, ...")
    assert len(shown) < 200
    assert max(map(len, project.contract()["units"]["sample"])) == 200


# Slots


COUNTED = (
    'echo "start $PERDURE_NODE" >> "$PERDURE_TASK_DIR/slots"; true;'
    ' echo "end $PERDURE_NODE" >> "$PERDURE_TASK_DIR/slots"'
)


def most_at_once(lines: list[str], node: str = "") -> int:
    now = most = 0
    for line in lines:
        what, name = line.split()
        if node in ("", name):
            now += 1 if what == "start" else -1
            most = max(most, now)
    return most


def test_slots_are_shared_by_all_nodes_of_a_run(project: BatchProject) -> None:
    keys = ", ".join(f"u{n}" for n in range(12))
    text = "task_id: t\ngrants: ['write:$TASK/*']\nnodes:\n"
    for name, workers in (("A", "workers: 1, "), ("B", "")):
        text += f"  - {{id: {name}, map: {{list: [{keys}], {workers}run: '{COUNTED}'}}}}\n"
    text += f"  - {{id: C, run: '{COUNTED}; touch $PERDURE_SCOPE/c'}}\n"
    assert project.run(text, jobs=3)["outcome"] == "finished"
    lines = (project.directory / "slots").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2 * 25
    assert most_at_once(lines) <= 3
    assert most_at_once(lines, "A") == 1


def test_plain_nodes_come_before_units(project: BatchProject) -> None:
    keys = ", ".join(f"u{n}" for n in range(30))
    text = f"""
task_id: t
grants: ['write:$TASK/*']
nodes:
  - {{id: B, priority: 9, map: {{list: [{keys}], run: '{COUNTED}'}}}}
  - {{id: C, run: '{COUNTED}; touch $PERDURE_SCOPE/c'}}
  - {{id: D, deps: [C], run: '{COUNTED}; touch $PERDURE_SCOPE/c'}}
"""
    assert project.run(text, jobs=1)["outcome"] == "finished"
    lines = (project.directory / "slots").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "start C"
    assert lines.index("start D") < len(lines) - 4, "it did not wait for the last of the units"
    assert most_at_once(lines) == 1


# Stopping


def at_work(project: BatchProject) -> None:
    """Wait until a unit says that it is at work."""
    (project.directory / "at-work").read_text(encoding="utf-8")


WAITS = (
    'if [ "$PERDURE_KEY" = c ] && [ ! -e "$PERDURE_TASK_DIR/well" ]; then'
    ' echo > "$PERDURE_TASK_DIR/at-work"; {}; fi'
)


def test_a_signal_interrupts_the_node_and_costs_its_units_nothing(project: BatchProject) -> None:
    os.mkfifo(project.directory / "at-work")
    run = WAITS.format("exec sleep 60")
    text = task(run, units="list: [a, b, c]\n      workers: 1\n      max_attempts: 1")

    def stop(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "started":
            watch(project, interrupt)

    report = project.run(text, on=stop)
    assert (report["outcome"], report["exit_code"]) == ("interrupted", 128 + 15)
    node = project.node("B")
    assert (node["state"], node["interruptions"], node.get("strikes", 0)) == ("RETRYABLE", 1, 0)
    assert node["diagnosis"] == "stopped with the run (signal 15); 2 of 3 units done"
    (project.directory / "well").touch()
    assert project.run(text)["outcome"] == "finished"
    assert project.ran() == {"a": 1, "b": 1, "c": 2}
    assert ("c", "fail") not in project.ledger()


def watch(project: BatchProject, interrupt: Callable[[int], None]) -> None:
    """Interrupt the run as soon as the unit that waits is at work."""

    def wait() -> None:
        at_work(project)
        interrupt(15)

    threading.Thread(target=wait, daemon=True).start()


def test_a_pause_finishes_the_units_at_work_and_starts_no_more(project: BatchProject) -> None:
    os.mkfifo(project.directory / "at-work")
    taken = "test -e ../dropped && ! test -e steering/spool/m1.json"
    run = (
        'if [ "$PERDURE_KEY" = a ]; then echo > "$PERDURE_TASK_DIR/at-work";'
        f" until {taken}; do sleep 0.01; done; fi"
    )
    text = task(run, units="list: [a, b, c]\n      workers: 1")

    def pause(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "started":
            message = spool.Message("m1", "pause", {"reason": "the night"}, "sponsor:ada", 0.0)
            spool.drop(real_world().disk, Layout(project.workspace), message)
            (project.directory / "dropped").touch()

    threading.Thread(target=at_work, args=(project,), daemon=True).start()
    report = project.run(text, on=pause)
    assert report["outcome"] == "paused"
    assert project.done() == ["a"]
    assert project.node("B")["diagnosis"] == "paused; 1 of 3 units done"
    assert project.service.status()["fsm_task"] == "SUSPENDED"
    threading.Thread(target=at_work, args=(project,), daemon=True).start()
    assert project.run(text)["outcome"] == "finished"
    assert project.ran() == {"a": 1, "b": 1, "c": 1}


def test_a_node_that_is_cancelled_at_work_records_nothing_more(project: BatchProject) -> None:
    os.mkfifo(project.directory / "at-work")
    run = WAITS.format("exec sleep 60")

    def cancel(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "started":
            threading.Thread(target=drop, daemon=True).start()

    def drop() -> None:
        at_work(project)
        message = spool.Message(
            "m1", "cancel", {"nodes": ["B"], "reason": "not needed"}, "sponsor:ada", 0.0
        )
        spool.drop(real_world().disk, Layout(project.workspace), message)

    report = project.run(task(run, units="list: [a, b, c]\n      workers: 1"), on=cancel)
    assert project.node("B")["state"] == "CANCELLED", report
    assert project.told("ended") == [{"event": "ended", "node": "B", "state": "CANCELLED"}]
    assert project.done() == ["a", "b"]


# Signs of life


def test_heartbeats_follow_the_ledger(project: BatchProject) -> None:
    head = "policies: {heartbeat_s: 0.001}"
    project.run(task("true", units="list: [a, b, c]\n      workers: 1", head=head))
    beats = [
        event.payload["note"]
        for event in project.journal()
        if event.kind == "HEARTBEAT" and event.entity.id == "B"
    ]
    assert set(beats) <= {f"{done} of 3 units done" for done in (1, 2, 3)}
    assert beats
    assert beats == sorted(set(beats)), "none says the same as the one before"


def test_a_unit_that_is_silent_gives_no_sign_of_life(project: BatchProject) -> None:
    os.mkfifo(project.directory / "at-work")
    head = "policies: {heartbeat_s: 0.001}"
    run = 'echo > "$PERDURE_TASK_DIR/at-work"; exec sleep 60'

    def stop(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "started":
            watch(project, interrupt)

    project.run(task(run, units="list: [a]", head=head), on=stop)
    assert [event for event in project.journal() if event.kind == "HEARTBEAT"] == []
    assert project.told("units") == []


def test_heartbeats_are_no_more_than_the_policy_allows(project: BatchProject) -> None:
    project.run(task("true"), jobs=1)
    assert [event for event in project.journal() if event.kind == "HEARTBEAT"] == []


def test_units_are_told_and_shown(project: BatchProject) -> None:
    project.run(task(FLAKY, units="list: [a, b, c]\n      max_attempts: 1", more="retry: 1"))
    last = project.told("units")[-1]
    assert {**last, "wall_s": 0} == {
        "event": "units", "node": "B", "done": 2, "total": 3, "failed": 1, "wall_s": 0,
    }  # fmt: skip
    assert project.node("B")["units"] == {"done": 2, "total": 3, "failed": 1}


def test_status_tells_how_many_units_are_done_while_they_are_at_work(
    project: BatchProject,
) -> None:
    seen: list[Any] = []

    def look(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "units":
            before = snapshot(project)
            seen.append(project.service.status()["running"][0]["units"])
            assert snapshot(project) == before, "looking writes nothing"

    project.run(task(GOOD), on=look)
    assert {"done": 3, "total": 3, "failed": 0} in seen


def snapshot(project: BatchProject) -> dict[str, bytes]:
    top = Path(f"{project.workspace}/artifacts/B")
    return {str(path): path.read_bytes() for path in top.rglob("*") if path.is_file()}


# By hand


def test_a_batch_node_is_neither_started_nor_submitted_by_hand(project: BatchProject) -> None:
    project.run(task("false", units="list: [a]\n      max_attempts: 1"))
    project.service.call("retry", {"node": "B", "reason": "by hand", "method": "hand"})
    with pytest.raises(RefusedError, match="its units are given out one by one") as caught:
        project.service.call("start", {"node": "B"})
    assert caught.value.code == "batch_by_hand"
    assert project.service.next()["commands"] == ["perdure run FILE"]


def test_a_submit_from_outside_cannot_end_a_batch_early(project: BatchProject) -> None:
    answers: list[Any] = []

    def submit(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "started" and event["node"] == "B":
            message = spool.Message("m1", "submit", {"node": "B"}, "executor:x", 0.0)
            spool.drop(real_world().disk, Layout(project.workspace), message)
        elif event["event"] == "done" and event["node"] == "B":
            answers.append(spool.take_result(real_world().disk, Layout(project.workspace), "m1"))

    # Each unit waits until the message was taken in.
    run = "while test -e steering/spool/m1.json; do sleep 0.01; done"
    assert project.run(task(run), on=submit)["outcome"] == "finished"
    assert answers[0]["error"]["code"] == "batch_by_hand"
    assert project.edges("B") == ["N01", "N02", "N03", "N06"]


# Amended


@pytest.mark.parametrize(
    ("policy", "again"),
    [("reverify_if_amended", 2), ("skip_if_checksum", 1), ("never_skip", 2)],
)
def test_an_amended_node_does_its_units_again_as_its_policy_says(
    project: BatchProject, policy: str, again: int
) -> None:
    more = f"resume: {policy}\n    retry: 1"
    units = "list: [a, b, c]\n      max_attempts: 1"
    project.run(task(FLAKY, units=units, more=more))
    assert sorted(project.done()) == ["a", "c"]
    report = project.run(task("true", units=units, more=more))
    assert report["outcome"] == "finished"
    assert project.ran() == {"a": again, "b": 2, "c": again}
    assert (project.aside() == []) is (again == 1)
    told = [event["why"] for event in project.told("notice")]
    assert ([why for why in told if "set aside" in why] == []) is (again == 1)


def test_another_inventory_runs_what_is_new_and_passes_over_what_is_gone(
    project: BatchProject,
) -> None:
    units = "list: [{}]\n      max_attempts: 1"
    project.run(task(FLAKY, units=units.format("a, b, c"), more="retry: 1"))
    report = project.run(task(FLAKY, units=units.format("d, c"), more="retry: 1"))
    assert report["outcome"] == "finished"
    assert project.ran() == {"a": 1, "b": 1, "c": 1, "d": 1}
    assert dict(project.ledger()) == {"a": "skip", "b": "skip", "c": "ok", "d": "ok"}
    assert project.contract()["units"]["passed_over"] == 1
    assert project.node("B")["units"] == {"done": 2, "total": 2, "failed": 1}


def test_a_changed_item_and_one_that_comes_twice_are_told_and_not_run_again(
    project: BatchProject,
) -> None:
    units = "items: i.jsonl\n      key: id\n      max_attempts: 1"
    items = project.directory / "i.jsonl"
    items.write_text('{"id": "a", "n": 1}\n{"id": "b"}\n{"id": "a", "n": 1}\n', encoding="utf-8")
    project.run(task(FLAKY, units=units, more="retry: 1"))
    assert "1 items came twice and count once: a" in project.told("notice")[0]["why"]
    items.write_text('{"id": "a", "n": 2}\n{"id": "b"}\n', encoding="utf-8")
    (project.directory / "well").touch()
    project.service.call("retry", {"node": "B", "reason": "it is well", "method": "again"})
    assert project.run(task(FLAKY, units=units, more="retry: 1"))["outcome"] == "finished"
    assert "1 items changed since they were done" in project.told("notice")[0]["why"]
    assert project.ran() == {"a": 1, "b": 2}


# A workspace that moved


def test_a_batch_goes_on_in_a_workspace_that_was_moved(project: BatchProject) -> None:
    text = task(FLAKY, units="list: [a, b, c]\n      max_attempts: 1", more="retry: 1")
    project.run(text)
    moved = f"{project.directory}/moved"
    shutil.move(project.workspace, moved)
    project.workspace = moved
    project.service.workspace = moved
    (project.directory / "well").touch()
    project.service.call("retry", {"node": "B", "reason": "it is well", "method": "again"})
    assert project.run(text)["outcome"] == "finished"
    assert project.ran() == {"a": 1, "b": 2, "c": 1}
