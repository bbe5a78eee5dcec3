"""The threads and processes that work on items, one by one."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType

import pytest
from tests.unit.jobs import functions

from perdure.errors import UsageError
from perdure.jobs.records import Failure, Finding, error_chars_max
from perdure.jobs.worker_processes import WorkerProcess, death_text, pickled_function
from perdure.jobs.workers import (
    InThread,
    Result,
    Task,
    Workers,
    error_text,
    payload_of,
)

Results = SimpleQueue[Result | None]


# What a result and an error look like


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        (None, {}),
        ({}, {}),
        ({"a": 1}, {"a": 1}),
        (MappingProxyType({"a": [1]}), {"a": [1]}),
        (7, {"output": 7}),
        (False, {"output": False}),
        ("text", {"output": "text"}),
        ([1, {"a": None}], {"output": [1, {"a": None}]}),
    ],
)
def test_what_a_function_returns_becomes_a_payload(value: object, payload: object) -> None:
    assert payload_of(value) == payload


def test_a_payload_shares_nothing_with_what_the_function_goes_on_changing() -> None:
    mine = {"list": [1, {"deep": []}], "pair": (1, {}), "text": "x"}
    payload = payload_of(mine)
    mine["list"][1]["deep"].append("late")  # type: ignore[index]
    mine["pair"][1]["late"] = 1  # type: ignore[index]
    mine["list"].append(2)  # type: ignore[attr-defined]
    mine["text"] = "y"
    assert payload == {"list": [1, {"deep": []}], "pair": [1, {}], "text": "x"}


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError(), "ValueError"),
        (KeyError("k"), "KeyError: 'k'"),
        (ValueError("two\nlines\r\n\tand\x0bmore "), "ValueError: two lines and more"),
        (ValueError("half \ud800"), "ValueError: half \\ud800"),
        (SilentError(), "SilentError"),
    ],
)
def test_an_error_is_one_line_that_utf8_can_write(error: Exception, text: str) -> None:
    assert error_text(error) == text


def test_an_error_is_cut() -> None:
    text = error_text(ValueError("x" * 10_000_000))
    assert len(text) == len("ValueError: ") + error_chars_max


# Threads


def threads(function: Callable[[object], object], count: int) -> tuple[Workers, Results]:
    results: Results = SimpleQueue()
    workers = Workers(lambda: InThread(function), count, results)
    workers.start()
    return workers, results


def taken(results: Results) -> list[Result]:
    found = [results.get() for _ in range(results.qsize())]
    return [result for result in found if result is not None]


def test_everything_handed_out_has_a_result_after_finish() -> None:
    workers, results = threads(lambda item: {"n": item}, 3)
    for number in range(100):
        workers.submit(Task(str(number), number, 0))
    workers.finish()
    outcomes = [result.outcome for result in taken(results)]
    assert sorted(outcomes) == sorted(Finding(str(n), {"n": n}) for n in range(100))  # type: ignore[type-var]


def test_an_exception_is_the_outcome_of_its_item() -> None:
    workers, results = threads(lambda item: 1 // int(str(item)), 1)
    workers.submit(Task("zero", 0, 0))
    workers.submit(Task("one", 1, 0))
    workers.finish()
    assert [result.outcome for result in taken(results)] == [
        Failure("zero", "ZeroDivisionError: integer division or modulo by zero"),
        Finding("one", {"output": 1}),
    ]


def test_what_is_no_exception_is_nobodys_outcome() -> None:
    def leave(item: object) -> None:
        raise SystemExit(3)

    workers, results = threads(leave, 1)
    workers.submit(Task("a", "a", 0))
    workers.finish()
    (result,) = taken(results)
    assert result.outcome is None
    assert isinstance(result.fault, SystemExit)


def test_what_nobody_has_begun_can_be_dropped() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(item: object) -> None:
        begun.set()
        go_on.wait()

    workers, results = threads(wait, 1)
    for name in "abc":
        workers.submit(Task(name, name, 0))
    begun.wait()
    workers.drop_waiting()
    go_on.set()
    workers.finish()
    assert [result.task.key for result in taken(results)] == ["a"]


def test_a_thread_that_cannot_be_ended_is_left_behind_and_ends_later() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(item: object) -> None:
        begun.set()
        go_on.wait()

    workers, results = threads(wait, 2)
    workers.submit(Task("a", "a", 0))
    begun.wait()
    workers.kill()
    assert taken(results) == []
    go_on.set()
    workers.finish()
    assert not [t for t in threading.enumerate() if t.name.startswith("perdure-map")]


# Processes


@pytest.fixture
def misbehaving() -> Iterator[WorkerProcess]:
    worker = WorkerProcess(pickled_function(functions.misbehave), None)
    yield worker
    worker.close()


def run(worker: WorkerProcess, item: object) -> Finding | Failure | None:
    return worker.run(Task("k", item, 0))


def pid_of(outcome: Finding | Failure | None) -> int:
    assert isinstance(outcome, Finding)
    return int(outcome.payload["pid"])


def test_a_worker_process_serves_one_item_after_the_other() -> None:
    worker = WorkerProcess(pickled_function(functions.double), None)
    first, second = run(worker, 4), run(worker, 5)
    assert isinstance(second, Finding)
    assert second.payload["double"] == 10
    assert pid_of(first) == pid_of(second) != os.getpid()
    worker.close()
    functions.wait_for_end(pid_of(first))


def test_a_worker_process_that_is_not_needed_any_more_ends_in_good_order(
    misbehaving: WorkerProcess, tmp_path: Path
) -> None:
    pid = pid_of(run(misbehaving, f"tell-at-end {tmp_path / 'said'}"))
    misbehaving.close()
    assert (tmp_path / "said").read_text() == str(pid)


@pytest.mark.parametrize(
    ("item", "error"),
    [
        ("exit 7", "its worker process ended with exit code 7"),
        ("sys.exit 3", "its worker process ended with exit code 3"),
        ("kill SIGKILL", "its worker process was killed by SIGKILL"),
        ("kill SIGSEGV", "its worker process was killed by SIGSEGV"),
        ("raise two\nlines", "ValueError: two lines"),
        ("unpicklable", "TypeError: cannot pickle '_thread.lock' object"),
    ],
)
def test_what_happens_in_a_process_is_an_error_of_the_item_it_had(
    misbehaving: WorkerProcess, item: str, error: str
) -> None:
    assert run(misbehaving, item) == Failure("k", error)
    assert isinstance(run(misbehaving, "fine"), Finding), "and it was replaced"


def test_an_item_that_cannot_be_pickled_is_an_error_of_that_item(
    misbehaving: WorkerProcess,
) -> None:
    outcome = run(misbehaving, functions.CannotBePickled())
    assert outcome == Failure("k", "the item cannot be pickled: RuntimeError: stays here")


def test_an_item_that_cannot_be_unpickled_is_an_error_of_that_item(
    misbehaving: WorkerProcess,
) -> None:
    assert run(misbehaving, functions.CannotBeUnpickled()) == Failure(
        "k", "RuntimeError: only there"
    )


def test_a_result_that_cannot_be_unpickled_is_an_error_of_its_item() -> None:
    worker = WorkerProcess(pickled_function(functions.return_cannot_be_unpickled), None)
    outcome = run(worker, "a")
    worker.close()
    assert outcome == Failure("k", "the result cannot be unpickled: RuntimeError: only there")


@pytest.mark.parametrize("how", ["die-later", "leave-child-and-die-later"])
def test_a_worker_that_dies_with_nothing_to_do_costs_no_item(
    misbehaving: WorkerProcess, tmp_path: Path, how: str
) -> None:
    asked = tmp_path / "asked"
    outcome = run(misbehaving, f"{how} {asked}")
    assert isinstance(outcome, Finding)
    assert misbehaving._process is not None
    functions.tell(str(asked))
    wait([misbehaving._process.sentinel])
    assert pid_of(run(misbehaving, "fine")) != pid_of(outcome)
    if "child" in outcome.payload:
        # Nobody can tell by then whose the number of the group is.
        os.kill(outcome.payload["child"], signal.SIGKILL)


def test_a_worker_that_dies_before_it_can_begin_is_started_once_more(tmp_path: Path) -> None:
    function = functions.DiesOnce(str(tmp_path / "died"))
    worker = WorkerProcess(pickled_function(function), None)
    assert isinstance(run(worker, "fine"), Finding)
    worker.close()


def test_a_time_limit_ends_the_worker_and_what_it_started(tmp_path: Path) -> None:
    said = tmp_path / "pids"
    worker = WorkerProcess(pickled_function(functions.misbehave), 1.0)
    outcome = run(worker, f"hang-with-child {said}")
    assert outcome == Failure("k", "took longer than 1 s")
    pids = functions.told(str(said))
    assert len(pids) == 2
    functions.wait_for_end(*pids)
    worker.close()


def test_a_process_sees_the_environment_as_it_is_now(
    misbehaving: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("first", "second"):
        monkeypatch.setenv("PERDURE_TEST", value)
        run(misbehaving, "exit 1")
        outcome = run(misbehaving, "environment PERDURE_TEST")
        assert outcome == Finding("k", {"value": value})


def test_killed_work_has_no_outcome_and_nothing_is_started_after_it(
    misbehaving: WorkerProcess, tmp_path: Path
) -> None:
    said = tmp_path / "pid"
    outcomes: list[object] = []
    thread = threading.Thread(target=lambda: outcomes.append(run(misbehaving, f"hang {said}")))
    thread.start()
    (pid,) = functions.told(str(said))
    assert misbehaving.kill()
    thread.join()
    assert outcomes == [None]
    functions.wait_for_end(pid)
    assert run(misbehaving, "fine") is None


@pytest.mark.parametrize("function", [lambda item: item, threading.Lock().acquire])
def test_a_function_that_cannot_be_imported_is_refused(
    function: Callable[[object], object],
) -> None:
    with pytest.raises(UsageError, match="cannot be sent to another process") as caught:
        pickled_function(function)
    assert caught.value.code == "function_not_importable"


def test_a_function_that_the_worker_does_not_find_is_refused() -> None:
    pickled = pickled_function(functions.double).replace(b"double", b"dauble")
    with pytest.raises(UsageError, match="cannot load the function: AttributeError") as caught:
        run(WorkerProcess(pickled, None), 1)
    assert caught.value.code == "function_not_importable"


def test_a_death_is_told_in_words() -> None:
    assert death_text(0) == "its worker process ended with exit code 0"
    assert death_text(-signal.SIGTERM) == "its worker process was killed by SIGTERM"
    assert death_text(-250) == "its worker process was killed by signal 250"
