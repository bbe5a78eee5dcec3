"""Threads that work on the items of a job.

Job: take tasks, do each in one of a fixed number of threads, hand over what came of it. Invariants:
an exception of the function is the outcome of its item and of nothing else; a task that was not
begun can be dropped; what a result holds is a copy, so a function that goes on changing what it
returned changes no finding; no thread outlives ``finish``. It never records anything, and it cannot
stop a function that runs in a thread: only ``worker_processes`` can.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from perdure.errors import StorageError
from perdure.jobs.records import Failure, Finding, error_chars_max

look_up_s: Final = 0.5
"""How long a thread waits before it looks whether a signal came."""

T = TypeVar("T")
_UNCHANGING: Final = frozenset({str, int, float, bool, type(None)})


class Task(NamedTuple):
    """An item that is to be worked on."""

    key: str
    item: Any
    attempts: int
    """How often it has failed so far."""
    again: bool = False
    """Whether one of those was in this call."""


class Result(NamedTuple):
    """What came of a task."""

    task: Task
    outcome: Finding | Failure | None
    """None where ``fault`` is set."""
    fault: BaseException | None = None
    """What is nobody's item's fault and ends the loop."""


class Worker(Protocol):
    """Does one task at a time, in the thread that belongs to it."""

    def run(self, task: Task) -> Finding | Failure | None:
        """Do it; None when ``kill`` cut it short. What it raises is not the item's fault."""

    def close(self) -> None:
        """Nothing more comes. In the worker's own thread."""

    def kill(self) -> bool:
        """End what runs now, from another thread. False when that cannot be done."""


class InThread:
    """A ``Worker`` that calls the function right here."""

    def __init__(self, function: Callable[[Any], object]) -> None:
        self._function = function

    def run(self, task: Task) -> Finding | Failure | None:
        """As the protocol says; what is not an Exception passes, such as a SystemExit."""
        try:
            return Finding(task.key, payload_of(self._function(task.item)))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this item's outcome
            return Failure(task.key, error_text(error))

    def close(self) -> None:
        """Nothing is held."""

    def kill(self) -> bool:
        """A thread cannot be ended from outside."""
        return False


class Workers:
    """The threads of one loop. Its calls are for one thread, but for those that say otherwise."""

    def __init__(
        self, make_worker: Callable[[], Worker], count: int, results: "SimpleQueue[Result | None]"
    ) -> None:
        self._make_worker = make_worker
        self._count = count
        self._results = results
        # Not a queue.Queue: this one costs a tenth, and a signal does not leave it locked.
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._running: list[tuple[threading.Thread, Worker]] = []
        self._dropped = False
        self._over: set[Worker] = set()

    def start(self) -> None:
        """Start the threads. ``finish`` ends them, also those of a start that was broken off."""
        for number in range(1, self._count + 1):
            worker = self._make_worker()
            # A daemon: one that is left behind must not keep the program from ending.
            thread = threading.Thread(
                target=self._work, args=(worker,), name=f"perdure-map-{number}", daemon=True
            )
            start_thread(thread)
            self._running.append((thread, worker))

    def submit(self, task: Task) -> None:
        """Hand a task out. How many may be waiting is the caller's business."""
        self._tasks.put(task)

    def drop_waiting(self) -> None:
        """Let nobody begin the tasks that wait; they get no result. From any thread."""
        self._dropped = True

    def finish(self) -> None:
        """Wait until everything handed out has its result and every thread has ended."""
        self._tell_to_end()
        # An interrupt may come after any step of this, and then it is done again from the start.
        while not self._over.issuperset(worker for _, worker in self._running):
            next_of(self._ended)
        for thread, _ in self._running:
            thread.join()

    def kill(self) -> None:
        """Cut short whatever runs. Threads that cannot be are left behind; they record nothing."""
        self._tell_to_end()
        if self.kill_running():
            self.finish()

    def kill_running(self) -> bool:
        """Let nothing begin, cut short what runs, and wait for nothing. From any thread.

        False where something goes on all the same.
        """
        self.drop_waiting()
        killed = [worker.kill() for _, worker in list(self._running)]
        return all(killed)

    def _tell_to_end(self) -> None:
        """Once for each thread, started or not; more of it does no harm."""
        for _ in range(self._count):
            self._tasks.put(None)

    def _work(self, worker: Worker) -> None:
        try:
            while (task := self._tasks.get()) is not None:
                if self._dropped:
                    continue
                try:
                    outcome = worker.run(task)
                except BaseException as fault:  # noqa: BLE001 - it is raised in the calling thread
                    self._results.put(Result(task, None, fault))
                else:
                    if outcome is not None:
                        self._results.put(Result(task, outcome))
        finally:
            try:
                worker.close()
            finally:
                self._over.add(worker)
                self._ended.put(None)


def next_of(queue: "SimpleQueue[T]") -> T:
    """Take from the queue, and wait for it so that an interrupt gets through.

    A signal that comes in the moment before a wait begins does not end it; the next look finds it.
    """
    while True:
        with contextlib.suppress(Empty):
            return queue.get(timeout=look_up_s)


def start_thread(thread: threading.Thread) -> None:
    """Start it. Raises StorageError when the system has no more of them."""
    try:
        thread.start()
    except RuntimeError as error:
        raise StorageError(
            f"the thread {thread.name} could not be started: {error}.",
            code="no_threads",
            fix="Use fewer workers, or raise the limit on processes (ulimit -u).",
        ) from error


def payload_of(value: object) -> dict[str, Any]:
    """What a function returned as the payload of a finding: a copy that nobody else changes.

    A mapping is the payload, None an empty one, anything else becomes ``{"output": value}``.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        value = {"output": value}
    return {
        name: part if type(part) in _UNCHANGING else _copy(part) for name, part in value.items()
    }


def _copy(value: Any) -> Any:
    """Containers of JSON anew; what is none of them is left to whoever writes it."""
    if type(value) is dict:
        return {
            name: part if type(part) in _UNCHANGING else _copy(part) for name, part in value.items()
        }
    if type(value) in (list, tuple):
        return [part if type(part) in _UNCHANGING else _copy(part) for part in value]
    return value


def error_text(error: BaseException) -> str:
    """An exception as one line: ``TypeName: message``, which any file can hold."""
    name = type(error).__name__
    try:
        message = " ".join(str(error)[: 2 * error_chars_max].split())
    except Exception:  # noqa: BLE001 - an exception that cannot be told is still an error
        message = ""
    text = f"{name}: {message[:error_chars_max]}" if message else name
    return text.encode("utf-8", "backslashreplace").decode()
