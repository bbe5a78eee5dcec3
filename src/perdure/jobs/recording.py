"""The one thread that records what the workers of a loop have done.

Job: take every result that is ready, record them together, and say how many that were. Invariants:
a result never waits for another one; what is recorded together shares one sync and nothing more; a
payload that cannot be written is an error of its item and holds up no other; after a write or sync
that failed nothing more is recorded. It never decides what is worked on.

How many items may be handed out at a time is settled here, because here is seen whether it matters:
the window begins small, so that little is pulled ahead of a slow function, and doubles while most
of it comes back together.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final, Protocol

from perdure.errors import UsageError
from perdure.jobs.lines import encode_line
from perdure.jobs.records import ErrorEntry, Failure, Finding
from perdure.jobs.workers import Result, Task, error_text, next_of, start_thread

held_failures_max: Final = 100_000
"""Failed items that are kept in memory to be tried again in the same run."""

LOOK: Final = Result(Task("", None, 0), None)
"""No result: it only asks that the progress be shown."""


class Recording(Protocol):
    """What the loop needs of a job; ``CheckpointedJob`` is one."""

    @property
    def errors(self) -> list[ErrorEntry]:
        """The error queue."""

    def is_done(self, key: str) -> bool:
        """Whether there is a finding for this key; asked while another thread records."""

    def record_many(self, outcomes: Sequence[Finding | Failure]) -> int:
        """Record them with one sync; how many findings are new.

        A UsageError refuses all of them and nothing is written. Of nothing, it only says whether
        the job could record.
        """


class Recorder:
    """The recording side of one loop. Its numbers may be read from any thread."""

    def __init__(
        self,
        job: Recording,
        max_attempts: int,
        *,
        window: int,
        window_max: int,
        tell: Callable[[], None],
    ) -> None:
        self.results: SimpleQueue[Result | None] = SimpleQueue()
        """What the workers have done; None ends the thread."""
        self.settled: SimpleQueue[int] = SimpleQueue()
        """How many results were dealt with, each time that some were."""
        self.window = window
        self.fault: BaseException | None = None
        """What ends the loop: a failure to record, or what a function raised past its item."""
        self.writable = True
        """Whether everything could be recorded so far."""
        self.processed = 0
        self.retried = 0
        self.failing = 0
        """Items that failed in this call and are not done."""
        self._job = job
        self._max_attempts = max_attempts
        self._window_max = window_max
        self._tell: Callable[[], None] | None = tell
        self._held: deque[Task] = deque()
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="perdure-map-recorder", daemon=True)

    def start(self, on_failure: Callable[[], object]) -> None:
        """Begin; ``on_failure`` is called when nothing can be recorded any more."""
        self._on_failure = on_failure
        try:
            start_thread(self._thread)
        except BaseException:
            self.results.put(None)  # an interrupt may have come when it was running already
            raise

    def finish(self) -> None:
        """Record what is there, then end. The workers have to be quiet, or left behind."""
        self.results.put(None)
        next_of(self._ended)
        self._thread.join()
        self._tell = None  # or the loop and its recorder would keep each other, and the job, alive

    def take_held(self) -> deque[Task]:
        """The failed items that may be tried again. Only while nothing is handed out."""
        held, self._held = self._held, deque()
        return held

    def _run(self) -> None:
        results = self.results
        try:
            while True:
                group = [results.get()]
                # Nobody else takes from it, so that many are there.
                group += [results.get() for _ in range(results.qsize())]
                self._settle([result for result in group if result and result is not LOOK])
                if None in group:
                    return
        except BaseException as fault:  # noqa: BLE001 - it is raised in the calling thread
            self._fail(fault)
            self.settled.put(0)
        finally:
            self._ended.put(None)

    def _settle(self, group: list[Result]) -> None:
        for result in group:
            if result.fault is not None and self.fault is None:
                self.fault = result.fault
        done = [(result.task, result.outcome) for result in group if result.outcome is not None]
        if done and self.writable:
            tasks = [task for task, _ in done]
            self._record(tasks, [outcome for _, outcome in done])
        self._show()
        if group:
            if 2 * len(group) >= self.window:
                self.window = min(2 * self.window, self._window_max)
            self.settled.put(len(group))

    def _record(self, tasks: list[Task], outcomes: list[Finding | Failure]) -> None:
        record = self._job.record_many
        try:
            try:
                self.processed += record(outcomes)
            except UsageError:
                outcomes = [_as_far_as_it_can_be_written(outcome) for outcome in outcomes]
                self.processed += record(outcomes)
        except BaseException as fault:  # noqa: BLE001 - it is raised in the calling thread
            self._fail(fault)
            return
        for task, outcome in zip(tasks, outcomes, strict=True):
            failed = type(outcome) is Failure
            self.retried += task.attempts > 0
            self.failing += failed - task.again
            attempts = task.attempts + 1
            if failed and attempts < self._max_attempts and len(self._held) < held_failures_max:
                self._held.append(task._replace(attempts=attempts, again=True))

    def _fail(self, fault: BaseException) -> None:
        self.fault = fault
        self.writable = False
        self._on_failure()

    def _show(self) -> None:
        if self._tell is None:
            return
        try:
            self._tell()
        except Exception as fault:  # noqa: BLE001 - raised in the calling thread, after recording
            self._tell = None
            self.fault = self.fault or fault


def _as_far_as_it_can_be_written(outcome: Finding | Failure) -> Finding | Failure:
    """The outcome itself, or the error that its payload is."""
    if isinstance(outcome, Finding):
        try:
            encode_line(outcome.key, outcome.payload, "", outcome.item)
        except UsageError as error:
            return Failure(outcome.key, error_text(error))
    return outcome
