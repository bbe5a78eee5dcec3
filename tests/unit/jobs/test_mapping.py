"""The loop over the items of a job: what is worked on, in which order, and what is recorded."""

import contextlib
import gc
import io
import itertools
import json
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest
from tests.unit.fakes import FakeClock
from tests.unit.jobs import functions

from perdure.errors import FencedError, HaltError, RefusedError, StorageError, UsageError
from perdure.jobs import mapping, recording
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.lines import item_hash
from perdure.jobs.mapping import MapReport, map_items
from perdure.jobs.recording import Recorder
from perdure.jobs.records import ErrorEntry, Failure, Finding
from perdure.jobs.seen import SeenHashes, slots_first
from perdure.jobs.workers import Result, Task


@pytest.fixture
def job(tmp_path: Path) -> Iterator[CheckpointedJob]:
    with CheckpointedJob(tmp_path / "job", "map") as job:
        yield job


def findings(job: CheckpointedJob) -> dict[str, dict[str, Any]]:
    """The payloads in the log by key, in its order; each key once."""
    with open(f"{job.directory}/findings.jsonl", "rb") as file:
        lines = [json.loads(line) for line in file]
    found = {
        line["_key"]: {k: v for k, v in line.items() if not k.startswith("_")} for line in lines
    }
    assert len(found) == len(lines), "a key was recorded twice"
    return found


def recorded(job: CheckpointedJob) -> list[str]:
    return list(findings(job))


def wait_for_finding(job: CheckpointedJob, key: str) -> None:
    path = Path(job.directory, "findings.jsonl")
    while f'"_key":"{key}"' not in path.read_text():
        pass


class Calls:
    """A function that fails as often as it is told to, and knows what it was called with."""

    def __init__(self, **failures: int) -> None:
        self.failures = failures
        self.items: list[str] = []

    def __call__(self, item: str) -> None:
        self.items.append(item)
        if self.failures.get(item, 0) > 0:
            self.failures[item] -= 1
            raise ValueError(f"not {item}")


class Gated:
    """A job whose recording does what a test wants, before or instead of the real one."""

    def __init__(self, job: CheckpointedJob, before: Callable[[list[str]], object]) -> None:
        self._job = job
        self._before = before

    @property
    def errors(self) -> list[ErrorEntry]:
        return self._job.errors

    def is_done(self, key: str) -> bool:
        return self._job.is_done(key)

    def record_many(self, outcomes: Sequence[Finding | Failure]) -> int:
        if outcomes:
            self._before([outcome.key for outcome in outcomes])
        return self._job.record_many(outcomes)


# What is worked on


def test_every_item_gets_its_finding(job: CheckpointedJob) -> None:
    report = job.map(lambda item: {"n": item}, range(1_000), key=str, workers=4)
    assert findings(job) == {str(n): {"n": n} for n in range(1_000)} | findings(job)
    assert report == MapReport(1_000, 0, 0, 0, 0, 0)


def test_items_without_number_are_never_pulled_far_ahead(job: CheckpointedJob) -> None:
    pulled = itertools.count()
    begun = itertools.count()

    def work(item: int) -> None:
        next(begun)
        if item == 5_000:
            raise SystemExit("enough")

    with pytest.raises(SystemExit, match="enough"):
        job.map(work, iter(pulled.__next__, -1), key=str)
    ahead = next(pulled) - 5_000
    assert 0 <= ahead <= mapping.thread_window_max + 1
    assert set(recorded(job)) >= set(map(str, range(5_000)))


def test_only_so_many_are_handed_out_and_not_recorded(job: CheckpointedJob) -> None:
    begun = itertools.count()
    seen: list[int] = []
    done = 0

    def before(keys: list[str]) -> None:
        nonlocal done
        seen.append(next(begun) - len(seen) - done)
        done += len(keys)

    map_items(Gated(job, before), lambda _: next(begun), range(20_000), key=str, workers=8)
    assert max(seen) <= mapping.thread_window_max
    assert len(recorded(job)) == 20_000


def test_little_is_pulled_ahead_of_a_slow_function(job: CheckpointedJob) -> None:
    pulled = most = 0

    def items() -> Iterator[int]:
        nonlocal pulled
        for number in range(100):
            pulled = number + 1
            yield number

    def slow(item: int) -> None:
        nonlocal most
        if item:
            wait_for_finding(job, str(item - 1))
        most = max(most, pulled - item)

    job.map(slow, items(), key=str)
    assert most <= 6


def test_what_is_done_is_skipped(job: CheckpointedJob) -> None:
    job.record_finding("b")
    calls = Calls()
    report = job.map(calls, ["a", "b", "c"])
    assert calls.items == ["a", "c"]
    assert report == MapReport(2, 1, 0, 0, 0, 0)
    assert job.map(calls, iter(["a", "b", "c"])) == MapReport(0, 3, 0, 0, 0, 0)
    assert calls.items == ["a", "c"]


def test_a_key_that_comes_again_is_worked_on_once(job: CheckpointedJob) -> None:
    job.record_finding("old")
    calls = Calls(b=9)
    report = job.map(calls, ["a", "old", "b", "a", "old", "b", "a"], max_attempts=1, workers=3)
    assert sorted(calls.items) == ["a", "b"]
    assert report == MapReport(1, 1, 4, failed=1, exhausted=1, retried=0)


def test_hashes_that_came_by_are_known_for_good() -> None:
    seen, known = SeenHashes(), set()
    one_place = [f"{number:03x}{7:013x}" for number in range(100)]
    for digest in [item_hash(str(n % 2_500)) for n in range(4_000)] + 2 * one_place:
        assert seen.add(digest) == (digest not in known)
        known.add(digest)
    assert len(known) == 2_600 > slots_first


# Keys


def test_an_item_that_is_no_text_needs_a_key(job: CheckpointedJob) -> None:
    with pytest.raises(UsageError, match=r"item 3 is a dict, and nothing says") as caught:
        job.map(lambda item: None, ["a", "b", {"id": 1}])
    assert "key=" in caught.value.fix
    assert recorded(job) == ["a", "b"], "what was handed out before is recorded"


@pytest.mark.parametrize("key", ["", "\ud800", 7, None, ["a"]])
def test_what_names_nothing_is_told_with_the_number_of_its_item(
    job: CheckpointedJob, key: Any
) -> None:
    job.record_error("x", "queued")  # such items are looked for first
    with pytest.raises(UsageError, match="the key of item 1 is not one: ") as caught:
        job.map(lambda item: None, ["a"], key=lambda item: key)
    assert caught.value.rule == "JB-4"


def test_an_exception_of_key_passes_with_the_number_of_its_item(job: CheckpointedJob) -> None:
    with pytest.raises(KeyError) as caught:
        job.map(lambda item: None, [{"id": "a"}, {"name": "b"}], key=lambda item: item["id"])
    assert caught.value.__notes__ == ["This was the key of item 2."]
    assert recorded(job) == ["a"]


def test_an_exception_of_the_items_passes_after_what_was_begun(job: CheckpointedJob) -> None:
    begun, failed = threading.Event(), threading.Event()

    def items() -> Iterator[str]:
        yield "a"
        begun.wait()
        failed.set()
        raise OSError("the listing broke off")

    def work(item: str) -> None:
        begun.set()
        failed.wait()

    with pytest.raises(OSError, match="broke off"):
        job.map(work, items())
    assert recorded(job) == ["a"]


# Results


def test_a_mapping_is_the_payload_and_anything_else_the_output(job: CheckpointedJob) -> None:
    returned = {"a": {"x": 1}, "b": None, "c": [1, "two"], "d": "text"}
    job.map(returned.get, returned)
    assert findings(job) == {
        "a": {"x": 1},
        "b": {},
        "c": {"output": [1, "two"]},
        "d": {"output": "text"},
    }


def test_a_result_that_the_function_uses_again_is_recorded_as_it_was(job: CheckpointedJob) -> None:
    mine: dict[str, Any] = {"seen": []}

    def work(item: int) -> dict[str, Any]:
        mine["seen"] = [*mine["seen"][-2:], item]
        mine["seen"].append(item)
        return mine

    job.map(work, range(200), key=str)
    assert all(payload["seen"][-1] == int(key) for key, payload in findings(job).items())


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ({"x": object()}, "UsageError: not_json (JB-4)"),
        ({"x": float("nan")}, "UsageError: not_json (JB-4)"),
        ({"_key": "mine"}, "UsageError: reserved_key (JB-4)"),
        ({7: "x"}, "UsageError: bad_payload (JB-4)"),
    ],
)
def test_a_result_that_cannot_be_written_is_an_error_of_its_item(
    job: CheckpointedJob, result: object, error: str
) -> None:
    def work(item: int) -> object:
        if item == 3:
            raise ValueError("failed by itself")
        return result if item == 2 else None

    report = job.map(work, range(50), key=str, max_attempts=1)
    assert sorted(map(int, recorded(job))) == [n for n in range(50) if n not in (2, 3)]
    assert report.failed == 2
    told = {entry.key: entry.error for entry in job.errors}
    assert told["2"].startswith(error)
    assert told["3"] == "ValueError: failed by itself"


def test_a_result_is_recorded_while_another_function_runs(job: CheckpointedJob) -> None:
    def work(item: str) -> None:
        if item == "slow":
            wait_for_finding(job, "quick")

    job.map(work, ["slow", "quick"], workers=2)
    assert recorded(job) == ["quick", "slow"]


def test_a_result_is_recorded_before_the_same_worker_has_the_next(job: CheckpointedJob) -> None:
    def work(item: int) -> None:
        if item:
            wait_for_finding(job, str(item - 1))

    job.map(work, range(20), key=str)
    assert recorded(job) == [str(n) for n in range(20)]


def test_a_result_is_recorded_while_the_items_wait(job: CheckpointedJob) -> None:
    def items() -> Iterator[str]:
        yield "a"
        wait_for_finding(job, "a")
        yield "b"
        wait_for_finding(job, "b")

    job.map(lambda item: None, items(), workers=2)
    assert recorded(job) == ["a", "b"]


def test_results_that_are_ready_together_share_a_sync(job: CheckpointedJob) -> None:
    groups: list[list[str]] = []
    recorder = Recorder(Gated(job, groups.append), 3, window=2, window_max=256, tell=lambda: None)
    for key in "abcd":
        recorder.results.put(Result(Task(key, key, 0), Finding(key, {})))
    recorder.start(on_failure=lambda: None)
    assert recorder.settled.get() == 4
    recorder.finish()
    assert groups == [["a", "b", "c", "d"]]
    assert recorder.window == 4, "most of the window came back together"


# Retries


def test_what_failed_is_tried_again_in_rounds_after_doubled_waits(job: CheckpointedJob) -> None:
    clock = FakeClock()
    calls = Calls(a=1, b=8, d=99)
    report = map_items(
        job, calls, ["a", "b", "c", "d"], max_attempts=9, retry_wait_s=0.5, clock=clock
    )
    assert "".join(calls.items) == "abcd" + "abd" + "bd" * 7
    assert clock.slept_s == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert report == MapReport(3, 0, 0, failed=1, exhausted=1, retried=17)
    (entry,) = job.errors
    assert (entry.key, entry.attempts, entry.error) == ("d", 9, "ValueError: not d")


def test_nothing_waits_when_nothing_failed_or_no_attempt_is_left(job: CheckpointedJob) -> None:
    clock = FakeClock()
    map_items(job, Calls(b=1), ["a", "b"], max_attempts=1, clock=clock)
    map_items(job, Calls(), ["a", "b", "c"], max_attempts=2, clock=clock)
    assert clock.slept_s == []


def test_attempts_are_bounded_over_all_runs(job: CheckpointedJob) -> None:
    calls = Calls(a=99)
    map_items(job, calls, ["a"], max_attempts=2, clock=FakeClock())
    report = map_items(job, calls, ["a", "b"], max_attempts=2, clock=FakeClock())
    assert calls.items == ["a", "a", "b"]
    assert report == MapReport(1, 0, 0, failed=1, exhausted=1, retried=0)
    report = map_items(job, calls, ["a", "b"], max_attempts=3, clock=FakeClock())
    assert report == MapReport(0, 1, 0, failed=1, exhausted=1, retried=1)


def test_earlier_errors_come_first_when_the_items_can_be_gone_through_twice(
    job: CheckpointedJob,
) -> None:
    for key in ("d", "b", "elsewhere"):
        job.record_error(key, "queued")
    for _ in range(3):
        job.record_error("c", "exhausted")
    calls = Calls(d=1)
    report = map_items(job, calls, ["a", "b", "c", "d", "b", "e"], clock=FakeClock())
    assert "".join(calls.items) == "bdaed"
    assert report == MapReport(4, 0, duplicates=1, failed=2, exhausted=1, retried=3)


def test_earlier_errors_come_when_they_come_from_an_iterator(job: CheckpointedJob) -> None:
    for key in ("d", "b"):
        job.record_error(key, "queued")
    calls = Calls()
    report = map_items(job, calls, iter("abcd"), clock=FakeClock())
    assert "".join(calls.items) == "abcd"
    assert report.retried == 2
    assert job.errors == []


def test_an_item_that_its_function_records_before_it_fails_is_done(job: CheckpointedJob) -> None:
    ran: list[str] = []

    def work(item: str) -> None:
        ran.append(item)
        job.record_finding(item, {"by": "hand"})
        raise ValueError

    report = map_items(job, work, ["a"], clock=FakeClock())
    assert ran == ["a"]
    assert findings(job) == {"a": {"by": "hand"}}
    assert report.failed == 0


def test_failures_past_the_limit_wait_for_the_next_run(
    job: CheckpointedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "held_failures_max", 2)
    calls = Calls(a=1, b=1, c=1)
    report = map_items(job, calls, [*"abcd"], clock=FakeClock())
    assert "".join(calls.items) == "abcdab"
    assert (report.processed, report.failed, report.exhausted) == (3, 1, 0)
    assert map_items(job, calls, [*"abcd"]).processed == 1


# Ends


class DiskFullError(StorageError):
    """The disk is full."""


def test_a_failure_to_record_ends_the_loop_and_nothing_more_is_recorded(
    job: CheckpointedJob,
) -> None:
    groups: list[list[str]] = []
    failed = threading.Event()

    def before(keys: list[str]) -> None:
        groups.append(keys)
        if "30" in keys:
            failed.set()
            raise DiskFullError(fix="Free some space.")

    def work(item: int) -> None:
        if item == 31:
            failed.wait()

    with pytest.raises(DiskFullError):
        map_items(Gated(job, before), work, itertools.count(), key=str, workers=2)
    assert "30" in groups[-1]
    assert recorded(job) == [key for group in groups[:-1] for key in group]


def test_a_job_that_was_taken_over_records_nothing_more(
    job: CheckpointedJob, tmp_path: Path
) -> None:
    later: list[CheckpointedJob] = []

    def work(item: int) -> None:
        if item == 10:
            later.append(CheckpointedJob(tmp_path / "job", "map"))

    with pytest.raises(FencedError):
        job.map(work, itertools.count(), key=str)
    assert "10" not in recorded(job)
    later[0].close()


@pytest.mark.parametrize("ended", ["closed", "finished", "taken over"])
def test_a_job_that_cannot_record_says_so_before_anything_runs(
    job: CheckpointedJob, tmp_path: Path, ended: str
) -> None:
    later = None
    if ended == "closed":
        job.close()
    elif ended == "finished":
        job.finish()
    else:
        later = CheckpointedJob(tmp_path / "job", "map")
    calls = Calls()
    with pytest.raises((FencedError, RefusedError)):
        job.map(calls, ["a"])
    assert calls.items == []
    if later is not None:
        later.close()


def test_an_interrupt_lets_what_was_begun_be_recorded(job: CheckpointedJob) -> None:
    begun, interrupted = threading.Event(), threading.Event()

    def items() -> Iterator[str]:
        yield from "ab"
        begun.wait()
        interrupted.set()
        raise KeyboardInterrupt

    def work(item: str) -> None:
        begun.set()
        interrupted.wait()

    with pytest.raises(KeyboardInterrupt) as caught:
        job.map(work, items(), workers=1)
    assert recorded(job) == ["a"]
    assert caught.value.args == (MapReport(1, 0, 0, 0, 0, 0, interrupted=True),)
    assert job.map(work, ["a", "b", "c"]).processed == 2


def test_an_interrupt_comes_before_what_a_function_raises_meanwhile(job: CheckpointedJob) -> None:
    begun = threading.Event()

    def items() -> Iterator[str]:
        yield "a"
        begun.wait()
        raise KeyboardInterrupt

    def work(item: str) -> None:
        begun.set()
        wait_until_main_thread_is_in("finish")
        raise SystemExit

    with pytest.raises(KeyboardInterrupt):
        job.map(work, items())
    assert job.errors == []


@pytest.fixture
def usual_interrupt() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_main_thread() -> None:
    """As the kernel does for a Ctrl-C: a signal to another thread would not wake it."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def wait_until_main_thread_is_in(name: str) -> None:
    ident = threading.main_thread().ident
    assert ident is not None
    while True:
        frame: FrameType | None = sys._current_frames()[ident]
        while frame is not None:
            if frame.f_code.co_name == name:
                return
            frame = frame.f_back


def test_ctrl_c_reaches_a_loop_that_waits(job: CheckpointedJob, usual_interrupt: None) -> None:
    def work(item: int) -> None:
        if item == 3:
            wait_until_main_thread_is_in("_wait")
            interrupt_main_thread()
            wait_until_main_thread_is_in("finish")

    with pytest.raises(KeyboardInterrupt):
        job.map(work, itertools.count(), key=str)
    assert recorded(job) == ["0", "1", "2", "3"]


def test_a_second_interrupt_ends_it_at_once_and_drops_what_threads_return(
    job: CheckpointedJob, usual_interrupt: None
) -> None:
    released, over = threading.Event(), threading.Event()

    def work(item: int) -> None:
        if item == 3:
            interrupt_main_thread()
            wait_until_main_thread_is_in("finish")
            interrupt_main_thread()
            released.wait()
            over.set()

    with pytest.raises(KeyboardInterrupt) as caught:
        job.map(work, itertools.count(), key=str)
    assert caught.value.args[0].interrupted
    released.set()
    over.wait()
    assert recorded(job) == ["0", "1", "2"]
    assert job.errors == []


def test_a_second_interrupt_kills_processes(
    job: CheckpointedJob, usual_interrupt: None, tmp_path: Path
) -> None:
    said = tmp_path / "pid"

    def interrupt_twice() -> None:
        functions.told(str(said))
        interrupt_main_thread()
        wait_until_main_thread_is_in("finish")
        interrupt_main_thread()

    thread = threading.Thread(target=interrupt_twice)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        job.map(functions.misbehave, ["a", f"hang {said}"], processes=True)
    thread.join()
    (pid,) = functions.told(str(said))
    with pytest.raises(psutil.NoSuchProcess):
        psutil.Process(pid)
    assert recorded(job) == ["a"]
    assert job.errors == []


def test_a_system_exit_of_the_function_passes_after_what_was_begun(job: CheckpointedJob) -> None:
    leaving = threading.Event()

    def work(item: str) -> None:
        if item == "a":
            leaving.set()
            raise SystemExit(3)
        leaving.wait()

    with pytest.raises(SystemExit):
        job.map(work, ["b", "a"], workers=2)
    assert recorded(job) == ["b"]
    assert job.errors == []


@pytest.mark.parametrize("ending", [None, OSError, KeyboardInterrupt])
def test_a_loop_that_has_ended_holds_nothing(
    tmp_path: Path, ending: type[BaseException] | None
) -> None:
    def items() -> Iterator[str]:
        yield "a"
        if ending is not None:
            raise ending

    gc.collect()
    gc.disable()
    try:
        job = CheckpointedJob(tmp_path / "job", "map")
        with contextlib.suppress(ending or HaltError):
            job.map(lambda item: None, items())
        known = weakref.ref(job)
        del job
        assert known() is None
    finally:
        gc.enable()
    assert not [t for t in threading.enumerate() if t.name.startswith("perdure-map")]


# Processes


def test_processes_do_the_same_as_threads(job: CheckpointedJob) -> None:
    report = job.map(functions.double, range(100), key=str, workers=3, processes=True)
    assert report == MapReport(100, 0, 0, 0, 0, 0)
    found = findings(job)
    assert {key: payload["double"] for key, payload in found.items()} == {
        str(n): 2 * n for n in range(100)
    }
    pids = {payload["pid"] for payload in found.values()}
    assert os.getpid() not in pids
    assert len(pids) <= 3
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_what_kills_a_worker_costs_its_item_an_attempt_and_no_other(job: CheckpointedJob) -> None:
    bad = ["exit 9", "kill SIGKILL", "raise no"]
    items = [f"fine {n}" for n in range(30)]
    items[5:5] = bad
    report = map_items(
        job, functions.misbehave, items, workers=3, processes=True, max_attempts=2, retry_wait_s=0
    )
    assert report == MapReport(30, 0, 0, failed=3, exhausted=3, retried=3)
    assert {entry.key: (entry.attempts, entry.error) for entry in job.errors} == {
        "exit 9": (2, "its worker process ended with exit code 9"),
        "kill SIGKILL": (2, "its worker process was killed by SIGKILL"),
        "raise no": (2, "ValueError: no"),
    }


def test_an_item_that_takes_too_long_is_an_error(job: CheckpointedJob, tmp_path: Path) -> None:
    items = ["a", f"hang {tmp_path / 'pid'}", "b"]
    options: dict[str, Any] = {"processes": True, "timeout_s": 2, "max_attempts": 1}
    report = job.map(functions.misbehave, items, workers=2, **options)
    assert (report.processed, report.failed) == (2, 1)
    assert job.errors[0].error == "took longer than 2 s"


def test_a_failure_to_record_kills_processes(job: CheckpointedJob, tmp_path: Path) -> None:
    said = tmp_path / "pid"

    def before(keys: list[str]) -> None:
        functions.told(str(said))
        raise DiskFullError(fix="Free some space.")

    with pytest.raises(DiskFullError):
        map_items(
            Gated(job, before),
            functions.misbehave,
            [f"hang {said}", "a"],
            workers=2,
            processes=True,
        )
    (pid,) = functions.told(str(said))
    assert not psutil.pid_exists(pid)


# Progress


def test_progress_can_be_a_call(job: CheckpointedJob) -> None:
    job.record_finding("old")
    for _ in range(3):
        job.record_error("never", "x")
    told: list[tuple[int, int, int | None]] = []
    items = ["old", "a", "b", "a", "c", "never"]
    map_items(
        job, Calls(b=1, c=9), items, progress=lambda *counts: told.append(counts), clock=FakeClock()
    )
    assert told[-1] == (4, 2, 6)
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    job.map(Calls(), iter(["x"]), progress=lambda *counts: told.append(counts))
    assert told[-1] == (1, 0, None)


def test_progress_moves_while_items_are_skipped(
    job: CheckpointedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapping, "look_every", 10)
    job.record_many([Finding(str(n), {}) for n in range(100)])
    seen: list[int] = []
    moved = threading.Event()

    def items() -> Iterator[str]:
        for number in range(100):
            if number == 90:
                moved.wait()
            yield str(number)

    def tell(done: int, failed: int, total: int | None) -> None:
        seen.append(done)
        moved.set()

    job.map(Calls(), items(), progress=tell)
    assert 0 < seen[0] <= 90


def test_a_faulty_progress_ends_the_loop_and_loses_nothing(job: CheckpointedJob) -> None:
    def tell(done: int, failed: int, total: int | None) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        job.map(Calls(), itertools.count(), key=str, progress=tell)
    assert len(recorded(job)) >= 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_shown_on_a_terminal_and_leaves_the_output_alone(
    job: CheckpointedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, output = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setenv("COLUMNS", "100")
    job.map(lambda item: print(f"<{item}>"), [*"ab"])
    assert output.getvalue().split() == ["<a>", "<b>"]
    assert "2/2" in terminal.getvalue()
    assert "<a>" not in terminal.getvalue()


@pytest.mark.parametrize(("wish", "shown"), [(None, False), (False, False), (True, True)])
def test_a_bar_is_shown_elsewhere_only_on_request(
    job: CheckpointedJob, monkeypatch: pytest.MonkeyPatch, wish: bool | None, shown: bool
) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("COLUMNS", "100")
    job.map(Calls(a=9, b=0), iter(["a", "b"]), max_attempts=1, progress=wish)
    assert ("2" in stderr.getvalue()) == shown
    assert ("1, 1 failed" in stderr.getvalue()) == shown


# Bad calls


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers is 0, and may be 1 to 1,000."),
        ({"workers": 1_001}, "workers is 1001"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"retry_wait_s": -1}, "retry_wait_s is -1"),
        ({"retry_wait_s": float("nan")}, "retry_wait_s is nan"),
        ({"retry_wait_s": float("inf")}, "retry_wait_s is inf"),
        ({"timeout_s": 0, "processes": True}, "timeout_s is 0"),
        ({"timeout_s": 5}, "a thread cannot be stopped"),
        ({"processes": True}, "this function cannot be sent to another process"),
        ({"items": "one text"}, "a str is not a series of items"),
        ({"items": 7}, "a int is not a series of items"),
        ({"function": "f"}, "must be a plain function"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused_before_anything_runs(
    job: CheckpointedJob, options: dict[str, Any], message: str
) -> None:
    ran: list[str] = []
    arguments: dict[str, Any] = {
        "function": lambda item: ran.append(str(item)),
        "items": ["a"],
        **options,
    }
    with pytest.raises(UsageError, match=message):
        job.map(**arguments)
    assert ran == []


def test_a_coroutine_function_is_refused(job: CheckpointedJob) -> None:
    async def work(item: str) -> None:
        raise AssertionError

    with pytest.raises(UsageError, match=r"must be a plain function.*asyncio\.run"):
        job.map(work, ["a"])
