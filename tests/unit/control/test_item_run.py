"""Which item is next, what an end means for it, and when it is tried again.

The job is real; the commands are scripted and end when the test says so.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.control.item_command import Settled
from perdure.control.item_list import Item, ItemList, items_of
from perdure.control.item_run import ItemRun
from perdure.control.items import read_items
from perdure.control.outcome import Ended
from perdure.errors import StorageError
from perdure.host import SystemProcesses
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.records import Failure, Finding
from perdure.ports import AppendFile
from perdure.runtime.world import World
from perdure.storage.disk import RealDisk
from perdure.testing import SimClock, SimIds

OK = Ended("exited", exit_code=0)
FAILED = Ended("exited", exit_code=1)


class Scripted:
    """Stands for a command: nothing runs, and it ends when the test ends it."""

    def __init__(self, item: Item, attempt: int) -> None:
        self.item = item
        self.attempt = attempt
        self.command = self
        self.settled: Settled | None = None
        self.stopped: list[tuple[str, float | None]] = []

    def poll(self) -> Settled | None:
        return self.settled

    def stop(self, reason: str, *, grace_s: float | None = None) -> None:
        self.stopped.append((reason, grace_s))
        if self.settled is None:
            self.settled = Settled(self.item, None, Ended("stopped"), self.attempt)

    def end(self, outcome: Finding | Failure, ended: Ended) -> None:
        self.settled = Settled(self.item, outcome, ended, self.attempt)


class ScriptedCommand:
    """Remembers what was started, in order."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int]] = []
        self.running: dict[str, Scripted] = {}
        self.told: list[str] = []
        self.timeouts: set[float | None] = set()
        self.is_full = False

    def announce(self) -> None:
        self.told.append(f"announced before {len(self.started)}")

    def retract(self) -> None:
        self.told.append("retracted")

    def require_room(self) -> None:
        if self.is_full:
            raise StorageError("no space", code="disk_full")

    def start(self, item: Item, *, attempt: int, timeout_s: float | None) -> Scripted:
        self.started.append((item.key, attempt))
        self.timeouts.add(timeout_s)
        self.running[item.key] = running = Scripted(item, attempt)
        return running

    def succeed(self, key: str, payload: dict[str, Any] | None = None) -> None:
        running = self.running[key]
        running.end(Finding(key, payload or {}, running.item.digest), OK)

    def fail(self, key: str) -> None:
        self.running[key].end(Failure(key, "exit 1"), FAILED)


class CountingDisk(RealDisk):
    """Counts the syncs of logs."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0
        self.is_full = False

    def open_append(self, path: str) -> AppendFile:  # type: ignore[override]
        file = super().open_append(path)
        return CountingFile(file, self)  # type: ignore[return-value]


class CountingFile:
    def __init__(self, file: AppendFile, disk: CountingDisk) -> None:
        self._file = file
        self._disk = disk

    def append(self, data: bytes) -> None:
        if self._disk.is_full:
            raise StorageError("Appending failed: ENOSPC.", code="disk_full", fix="Free some.")
        self._file.append(data)

    def sync(self) -> None:
        self._disk.syncs += 1
        self._file.sync()

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class Scene:
    """A job directory and the runs over it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = SimClock()
        self.disk = CountingDisk()
        self.world = World(self.disk, self.clock, SimIds(), SystemProcesses(), {})
        self.command = ScriptedCommand()
        self.settled: list[list[Settled]] = []
        self.rounds: list[tuple[int, int, float]] = []
        self.jobs: list[CheckpointedJob] = []

    def run(self, items: ItemList | str, **more: Any) -> ItemRun:
        """A new process, as it were: the former job is closed, the commands are new."""
        for job in self.jobs:
            job.close()
        self.jobs.append(CheckpointedJob(self.root / "job", "j", world=self.world))
        self.command = ScriptedCommand()
        given = items_of("list", items.split()) if isinstance(items, str) else items
        options: dict[str, Any] = {"max_attempts": 3, "timeout_s": 5.0, "retry_wait_s": 1.0}
        return ItemRun(
            self.jobs[-1],
            given,
            self.command,  # type: ignore[arg-type]
            **{**options, **more},
            world=self.world,
            on_settled=self.settled.append,
            on_round=lambda number, count, wait_s: self.rounds.append((number, count, wait_s)),
        )

    @property
    def job(self) -> CheckpointedJob:
        return self.jobs[-1]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    for job in scene.jobs:
        job.close()


def start_all(run: ItemRun) -> None:
    while run.can_start():
        run.start_one()


def drive(scene: Scene, run: ItemRun, end: Callable[[str, int], bool]) -> None:
    """One command at a time until nothing is left; time passes only for the rounds."""
    while not run.is_finished:
        if run.can_start():
            run.start_one()
            key, attempt = scene.command.started[-1]
            (scene.command.succeed if end(key, attempt) else scene.command.fail)(key)
            run.collect()
        elif (due_s := run.due_in_s()) is not None:
            scene.clock.advance(due_s)


def test_fresh_items_run_in_the_order_of_the_input(scene: Scene) -> None:
    run = scene.run("c a b")
    assert not run.is_finished
    start_all(run)
    assert scene.command.started == [("c", 1), ("a", 1), ("b", 1)]
    assert scene.command.timeouts == {5.0}
    assert len(run.commands) == 3
    run.collect()
    assert run.counts()["running"] == 3
    for key in "abc":
        scene.command.succeed(key, {"is": key})
    run.collect()
    assert run.is_finished
    assert run.is_complete
    assert scene.job.processed == 3
    assert run.counts() == {
        "total": 3, "done": 3, "processed": 3, "skipped": 0, "failed": 0, "exhausted": 0,
        "running": 0,
    }  # fmt: skip


def test_run_is_on_record_before_its_first_command_and_off_it_after_the_last(scene: Scene) -> None:
    run = scene.run("a b")
    assert scene.command.told == []
    start_all(run)
    for key in "ab":
        scene.command.succeed(key)
    run.collect()
    run.close()
    assert scene.command.told == ["announced before 0", "retracted"]
    nothing_left = scene.run("a b")
    nothing_left.close()
    assert scene.command.told == []


def test_what_is_done_is_skipped(scene: Scene) -> None:
    drive(scene, scene.run("a b c"), lambda key, attempt: True)
    run = scene.run("d c b a")
    assert run.skipped == 3
    drive(scene, run, lambda key, attempt: True)
    assert scene.command.started == [("d", 1)]


def test_what_ends_together_is_recorded_with_one_sync_and_told_when_it_is_durable(
    scene: Scene,
) -> None:
    run = scene.run(" ".join(f"k{n}" for n in range(20)))
    start_all(run)
    for n in range(20):
        scene.command.succeed(f"k{n}")
    before = scene.disk.syncs
    told: list[int] = []
    run.on_settled = lambda settled: told.append(scene.job.processed)
    run.collect()
    assert scene.disk.syncs - before == 1
    assert told == [20]


def test_what_is_discarded_is_neither_done_nor_failed(scene: Scene) -> None:
    run = scene.run("a b")
    start_all(run)
    scene.command.succeed("a")
    run.discard()
    assert len(run.commands) == 1
    assert not run.is_idle
    scene.command.fail("b")
    run.discard()
    assert run.is_idle
    run.collect()
    assert scene.job.processed == 0
    assert scene.job.errors == []


def test_queued_errors_come_first_oldest_first_then_fresh_items(scene: Scene) -> None:
    run = scene.run("a b c")
    for key in ("c", "a"):
        start_all(run)
        scene.command.fail(key)
        scene.clock.advance(1)
        run.collect()
    run = scene.run("x a b c y")
    assert run.queued == 2
    start_all(run)
    assert scene.command.started == [("c", 2), ("a", 2), ("x", 1), ("b", 1), ("y", 1)]


def test_failed_items_run_again_in_rounds_until_they_are_exhausted(scene: Scene) -> None:
    run = scene.run("a b c", max_attempts=4)
    drive(scene, run, lambda key, attempt: key == "b" or (key == "c" and attempt == 2))
    assert scene.command.started == [
        ("a", 1), ("b", 1), ("c", 1), ("a", 2), ("c", 2), ("a", 3), ("a", 4),
    ]  # fmt: skip
    assert scene.rounds == [(1, 2, 1.0), (2, 1, 2.0), (3, 1, 4.0)]
    assert run.is_finished
    assert not run.is_complete
    assert (run.counts()["failed"], run.counts()["exhausted"]) == (1, 1)
    assert [(e.key, e.attempts) for e in scene.job.errors] == [("a", 4)]


def test_attempts_of_all_runs_count_together(scene: Scene) -> None:
    drive(scene, scene.run("a", max_attempts=2), lambda key, attempt: False)
    run = scene.run("a", max_attempts=2)
    assert run.is_finished
    assert (run.queued, run.counts()["exhausted"]) == (0, 1)
    run = scene.run("a", max_attempts=3)
    drive(scene, run, lambda key, attempt: False)
    assert scene.command.started == [("a", 3)]
    assert scene.settled[-1][0].attempt == 3


def test_wait_before_a_round_is_bounded(scene: Scene) -> None:
    drive(scene, scene.run("a", max_attempts=50), lambda key, attempt: False)
    assert [wait_s for _, _, wait_s in scene.rounds][:7] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert len(scene.rounds) == 49


def test_nothing_starts_before_a_round_is_due(scene: Scene) -> None:
    run = scene.run("a b", max_attempts=2)
    start_all(run)
    scene.command.fail("a")
    run.collect()
    # What still runs may fail as well, and then belongs to the same round.
    assert not run.can_start()
    assert run.due_in_s() is None
    scene.command.fail("b")
    run.collect()
    assert not run.can_start()
    assert run.due_in_s() == 1.0
    scene.clock.advance(0.75)
    assert not run.can_start()
    assert run.due_in_s() == 0.25
    scene.clock.advance(0.25)
    start_all(run)
    assert scene.command.started[2:] == [("a", 2), ("b", 2)]
    assert scene.rounds == [(1, 2, 1.0)]


def test_what_failed_while_the_disk_was_full_is_not_recorded(scene: Scene) -> None:
    run = scene.run("a b", max_attempts=1)
    start_all(run)
    scene.command.fail("a")
    scene.command.is_full = True
    with pytest.raises(StorageError):
        run.collect()
    assert scene.job.errors == []
    assert scene.settled == []


def test_interrupted_commands_leave_no_trace(scene: Scene) -> None:
    run = scene.run("a b c d")
    for _ in range(3):
        run.start_one()
    scene.command.succeed("a")
    scene.command.fail("b")
    run.stop("signal 2", grace_s=0.5)
    assert scene.command.running["c"].stopped == [("signal 2", 0.5)]
    run.collect()
    assert not run.can_start()
    assert run.due_in_s() is None
    assert run.is_idle
    assert not run.is_finished
    assert run.interrupted == 1
    assert [(e.key, e.attempts) for e in scene.job.errors] == [("b", 1)]
    run = scene.run("a b c d")
    start_all(run)
    assert scene.command.started == [("b", 2), ("c", 1), ("d", 1)]


def test_finding_that_the_job_refuses_is_an_error_of_its_item_alone(scene: Scene) -> None:
    run = scene.run("a b c")
    start_all(run)
    scene.command.succeed("a", {"n": 1})
    scene.command.succeed("b", {"n": float("nan")})
    scene.command.fail("c")
    run.collect()
    assert scene.job.processed == 1
    assert {e.key for e in scene.job.errors} == {"b", "c"}
    told = {one.item.key: one.outcome for one in scene.settled[-1]}
    assert isinstance(told["b"], Failure)
    assert told["b"].error.startswith("its output cannot be a finding: ")


def test_failed_write_ends_the_run_and_counts_nothing(scene: Scene) -> None:
    run = scene.run("a b")
    start_all(run)
    scene.command.succeed("a")
    scene.disk.is_full = True
    with pytest.raises(StorageError, match="ENOSPC"):
        run.collect()
    assert run.processed == 0
    assert scene.settled == []
    scene.disk.is_full = False
    run = scene.run("a b")
    start_all(run)
    assert scene.command.started == [("a", 1), ("b", 1)]


def test_errors_of_items_that_are_not_in_the_input_are_left_alone(scene: Scene) -> None:
    drive(scene, scene.run("a b"), lambda key, attempt: False)
    run = scene.run("c")
    drive(scene, run, lambda key, attempt: True)
    assert scene.command.started == [("c", 1)]
    assert run.is_complete
    assert run.report()["absent"] == ["a", "b"]
    assert run.report()["absent_count"] == 2
    assert {e.key for e in scene.job.errors} == {"a", "b"}


def test_duplicates_are_processed_once_and_reported(scene: Scene) -> None:
    run = scene.run("a b a a")
    drive(scene, run, lambda key, attempt: True)
    assert scene.command.started == [("a", 1), ("b", 1)]
    report = run.report()
    assert report["duplicate_count"] == 2
    assert report["duplicates"][0] == {"key": "a", "first": 1, "line": 3, "same": True}


def keyed(text: str) -> ItemList:
    pieces = [text.encode()]
    return read_items("-", form="jsonl", key="id", directory="/", disk=RealDisk(), stdin=pieces)


def test_changed_items_are_reported_and_not_run_again(scene: Scene) -> None:
    before = keyed('{"id":"a","v":1}\n{"id":"b","v":1}\n{"id":"c","v":1}\n')
    run = scene.run(before)
    assert run.changed.total == 0
    start_all(run)
    scene.command.succeed("a")
    scene.command.succeed("b")
    scene.command.fail("c")
    run.collect()
    run = scene.run(keyed('{"v":1,"id":"a"}\n{"id":"b","v":2}\n{"id":"c","v":2}\n{"id":"d"}\n'))
    assert run.changed == (1, ["b"])
    start_all(run)
    assert [key for key, _ in scene.command.started] == ["c", "d"]
    assert (run.report()["changed"], run.report()["changed_count"]) == (["b"], 1)


def test_finding_without_a_digest_proves_no_change(scene: Scene) -> None:
    drive(scene, scene.run("a b"), lambda key, attempt: True)
    log = scene.root / "job" / "findings.jsonl"
    log.write_bytes(log.read_bytes() + b'{"_key":"z","_item":7}\n')
    assert scene.run(keyed('{"id":"a","v":1}\n{"id":"z"}\n')).changed == (0, [])


def test_no_items_at_all_are_complete(scene: Scene) -> None:
    run = scene.run("")
    assert run.is_finished
    assert run.is_complete
    assert not run.can_start()
