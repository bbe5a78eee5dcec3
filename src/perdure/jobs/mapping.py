"""The loop over the items of a job: ``map_items``, which is ``CheckpointedJob.map``.

Job: hand out what is not done to threads or processes, and try again what failed. Invariants: a key
is worked on by one worker at a time and never again once it is done (JB-4, JB-1); attempts are
bounded (JB-5), and one that was interrupted does not count; only so many items are handed out and
not yet recorded, whatever the length of the input. It never writes: ``recording`` does, in the
order of completion, while the calling thread pulls items.

Two threads beside the workers, and why: an iterator of items may wait, for a page or a message, and
what is ready meanwhile has to be recorded at once. So the calling thread only pulls and hands out,
which is also where an interrupt arrives, far from any write.
"""

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from perdure.core.late import LateModule
from perdure.errors import UsageError
from perdure.host import SystemClock
from perdure.jobs.lines import item_hash
from perdure.jobs.progress import OnProgress, progress_for
from perdure.jobs.recording import LOOK, Recorder, Recording
from perdure.jobs.records import attempts_default
from perdure.jobs.seen import SeenHashes
from perdure.jobs.workers import InThread, Task, Worker, Workers, next_of
from perdure.ports import Clock

workers_max: Final = 1_000
attempts_max: Final = 1_000_000
thread_window_max: Final = 256
"""Items handed out to threads and not yet recorded; four for each worker when that is more."""
process_window_per_worker: Final = 2
"""Items handed out to processes and not yet recorded: one at work, one to follow."""
retry_wait_max_s: Final = 30.0
"""Longest wait before a round of retries."""
look_every: Final = 1_000
"""Items passed over between two looks at how far it is."""

worker_processes = LateModule("perdure.jobs.worker_processes")


class MapReport(msgspec.Struct, frozen=True):
    """What one call did."""

    processed: int
    """Findings that are new."""
    skipped: int
    """Items of the input that were done before."""
    duplicates: int
    """Items whose key had come before in this input."""
    failed: int
    """Items in the error queue of the job now, whatever input they came from."""
    exhausted: int
    """Those of them that have no attempt left."""
    retried: int
    """Attempts at items that had failed before, in this call or an earlier one."""
    interrupted: bool = False
    """Whether an interrupt ended it; then it is the argument of the KeyboardInterrupt."""


def map_items(
    job: Recording,
    function: Callable[[Any], object],
    items: Iterable[Any],
    *,
    key: Callable[[Any], str] | None = None,
    workers: int = 1,
    max_attempts: int = attempts_default,
    processes: bool = False,
    timeout_s: float | None = None,
    retry_wait_s: float = 1.0,
    progress: bool | OnProgress | None = None,
    clock: Clock | None = None,
) -> MapReport:
    """Call ``function`` for every item that is not done, and record what it returns.

    ``function(item)`` returns the payload of the finding, a mapping; None is an empty one, any
    other JSON value becomes ``{"output": value}``. An exception, or a result that cannot be
    written, is an error of that item. ``key(item)`` names the item, the same in every run; a text
    is its own key.

    A result is recorded as soon as it is there, by one thread, with one sync for all that are there
    at that moment. A crash loses what was not recorded yet: those items are done in the next run.
    Items are pulled ahead, so an iterator must not set the job's cursor.

    Order: items whose earlier errors leave them attempts first where ``items`` can be gone through
    twice (a list, a set, a mapping), else as they come; then the others; then those that failed in
    rounds, until each is done or has failed ``max_attempts`` times over all runs (JB-5), after a
    wait of ``retry_wait_s``, doubled each round, 30 s at most. Of an input without end nothing is
    tried again in the same run. Up to ``recording.held_failures_max`` failed items are kept for
    that; further ones wait for the next run.

    ``processes`` makes the workers processes: ``function`` has to be importable, items and results
    are pickled, and the program's main module needs ``if __name__ == "__main__":``. Only then may
    ``timeout_s`` limit an item, in seconds; a worker that takes longer or dies costs that item an
    attempt and is replaced. None of them outlives the call.

    ``progress``: True or False for a bar on standard error or none, None for one on a terminal; or
    a function that is called with done, failed and total (None: unknown), in another thread.

    An interrupt (Ctrl-C) ends the handing out; what is being worked on is finished and recorded,
    and the KeyboardInterrupt goes on with the MapReport as its argument. A second one ends it at
    once: processes are killed; threads cannot be, they go on and what they return is dropped. A
    SystemExit of ``function`` is an ending of the first kind. An exception of ``items`` or ``key``
    passes when what came before it is recorded.

    Raises UsageError (a bad option, an item without a key), and what recording raises, such as
    StorageError and FencedError, after which nothing more is recorded; processes are killed then.
    """
    _check_input(function, items)
    _check_limits(workers, max_attempts, retry_wait_s)
    _check_timeout(timeout_s, processes=processes)
    make_worker: Callable[[], Worker] = lambda: InThread(function)  # noqa: E731
    window_max = max(thread_window_max, 4 * workers)
    if processes:
        pickled = worker_processes.pickled_function(function)
        make_worker = lambda: worker_processes.WorkerProcess(pickled, timeout_s)  # noqa: E731
        window_max = process_window_per_worker * workers
    loop = _Loop(
        job,
        items,
        key=key,
        max_attempts=max_attempts,
        retry_wait_s=retry_wait_s,
        clock=clock or SystemClock(),
    )
    return loop.run(make_worker, workers, window_max, progress)


class _Stopped(BaseException):
    """The recorder has met with what ends the loop. It never leaves this module."""


class _Loop:
    """One call of ``map_items``, in the calling thread."""

    def __init__(
        self,
        job: Recording,
        items: Iterable[Any],
        *,
        key: Callable[[Any], str] | None,
        max_attempts: int,
        retry_wait_s: float,
        clock: Clock,
    ) -> None:
        job.record_many([])  # a job that is closed or taken over says so before anything runs
        self._job = job
        self._items = items
        self._key = key
        self._max_attempts = max_attempts
        self._retry_wait_s = retry_wait_s
        self._clock = clock
        self._queued = {entry.key: entry.attempts for entry in job.errors}
        self._retried_first: set[str] = set()
        self._outstanding = 0
        self._skipped = 0
        self._duplicates = 0
        self._passed_over = 0

    def run(
        self,
        make_worker: Callable[[], Worker],
        workers: int,
        window_max: int,
        progress: bool | OnProgress | None,
    ) -> MapReport:
        total = len(self._items) if isinstance(self._items, Sized) else None
        with progress_for(progress, total, self._clock) as show:
            self._recorder = Recorder(
                self._job,
                self._max_attempts,
                window=min(2 * workers, window_max),
                window_max=window_max,
                tell=lambda: show(self._done(), self._failed()),
            )
            self._workers = Workers(make_worker, workers, self._recorder.results)
            self._recorder.start(on_failure=self._workers.kill_running)
            ended_by = self._run()
        if ended_by is None:
            return self._report()
        if isinstance(ended_by, KeyboardInterrupt):
            ended_by.args = (self._report(interrupted=True),)
        try:
            raise ended_by
        finally:
            self._recorder.fault = ended_by = None  # as at the end of _run

    def _run(self) -> BaseException | None:
        """Everything from the first item on; returns what ended it early, once all is quiet."""
        ended_by: BaseException | None = None
        try:
            try:
                self._workers.start()
                self._work_through()
            except Exception:
                raise  # of the items or their keys: what came before them is worked on all the same
            except BaseException:
                self._workers.drop_waiting()
                raise
            finally:
                self._workers.finish()
        except BaseException as error:  # noqa: BLE001 - the caller gets it, when all is quiet
            ended_by = error
            self._workers.kill()
        finally:
            self._recorder.finish()
        try:
            if isinstance(ended_by, _Stopped) or not self._recorder.writable:
                return self._recorder.fault
            # An interrupt comes first: it may be why a process could not be started, for one.
            return ended_by or self._recorder.fault
        finally:
            ended_by = None  # its traceback holds this frame, and so the job

    def _work_through(self) -> None:
        if isinstance(self._items, Sequence | AbstractSet | Mapping):
            self._hand_out(self._queued_tasks())
        self._hand_out(self._tasks())
        self._settle()
        for number in itertools.count():
            held = self._recorder.take_held()
            if not held:
                return
            wait_s = min(self._retry_wait_s * 2 ** min(number, 30), retry_wait_max_s)
            self._clock.sleep(wait_s)
            again = (held.popleft() for _ in range(len(held)))
            # The function itself may have recorded it before it failed.
            self._hand_out(task for task in again if not self._job.is_done(task.key))
            self._settle()

    def _queued_tasks(self) -> Iterator[Task]:
        """The items with errors from earlier runs and attempts left."""
        waiting = {key for key, attempts in self._queued.items() if attempts < self._max_attempts}
        for number, item in enumerate(self._items if waiting else (), 1):
            key, _ = self._name(item, number)
            if key in waiting:
                waiting.discard(key)
                self._retried_first.add(key)
                yield Task(key, item, self._queued[key])
                if not waiting:
                    return

    def _tasks(self) -> Iterator[Task]:
        """The items in the order of the input that have to be worked on."""
        seen = SeenHashes()
        for number, item in enumerate(self._items, 1):
            key, digest = self._name(item, number)
            if not seen.add(digest):
                self._duplicates += 1
            elif key in self._retried_first:
                continue
            elif self._job.is_done(key):
                self._skipped += 1
            else:
                attempts = self._queued.get(key, 0)
                if attempts < self._max_attempts:
                    yield Task(key, item, attempts)
                    continue
                self._passed_over += 1
            if not number % look_every:
                self._recorder.results.put(LOOK)

    def _name(self, item: Any, number: int) -> tuple[str, str]:
        """Key and hash of the item that is ``number`` in the input."""
        if self._key is None:
            if not isinstance(item, str):
                raise UsageError(
                    f"item {number} is a {type(item).__name__}, and nothing says what its key is.",
                    code="no_key",
                    rule="JB-4",
                    fix="Pass key=, a function that returns the item's id, URL or path as text.",
                )
            key = item
        else:
            try:
                key = self._key(item)
            except Exception as error:
                error.add_note(f"This was the key of item {number}.")
                raise
        try:
            return key, item_hash(key)
        except UsageError as error:
            raise UsageError(
                f"the key of item {number} is not one: {error.message}",
                code=error.code,
                rule=error.rule,
                fix=error.fix,
            ) from None

    def _hand_out(self, tasks: Iterator[Task]) -> None:
        recorder, submit = self._recorder, self._workers.submit
        for task in tasks:
            while self._outstanding >= recorder.window:
                self._wait()
            if recorder.fault is not None:
                raise _Stopped
            submit(task)
            self._outstanding += 1

    def _settle(self) -> None:
        """Wait until everything that was handed out is recorded."""
        while self._outstanding:
            self._wait()

    def _wait(self) -> None:
        self._outstanding -= next_of(self._recorder.settled)
        if self._recorder.fault is not None:
            raise _Stopped

    def _done(self) -> int:
        return self._recorder.processed + self._skipped + self._duplicates

    def _failed(self) -> int:
        return self._recorder.failing + self._passed_over

    def _report(self, *, interrupted: bool = False) -> MapReport:
        errors = self._job.errors
        return MapReport(
            processed=self._recorder.processed,
            skipped=self._skipped,
            duplicates=self._duplicates,
            failed=len(errors),
            exhausted=sum(entry.attempts >= self._max_attempts for entry in errors),
            retried=self._recorder.retried,
            interrupted=interrupted,
        )


def _check_input(function: object, items: object) -> None:
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise UsageError(
            "what works on the items must be a plain function.",
            code="bad_option",
            fix="Pass a function of one item; for a coroutine, lambda item: asyncio.run(it(item)).",
        )
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise UsageError(
            f"a {type(items).__name__} is not a series of items.",
            code="bad_option",
            fix="Pass a list, a generator, an open file: what a for loop goes through.",
        )


def _check_limits(workers: int, max_attempts: int, retry_wait_s: float) -> None:
    for name, value, most in [
        ("workers", workers, workers_max),
        ("max_attempts", max_attempts, attempts_max),
    ]:
        if not 1 <= value <= most:
            raise UsageError(
                f"{name} is {value!r}, and may be 1 to {most:,}.",
                code="bad_option",
                fix="Pass a number of that range.",
            )
    if not 0 <= retry_wait_s < math.inf:
        raise UsageError(
            f"retry_wait_s is {retry_wait_s!r}, which is no time to wait.",
            code="bad_option",
            fix="Pass a number of seconds, 0 or more.",
        )


def _check_timeout(timeout_s: float | None, *, processes: bool) -> None:
    if timeout_s is None:
        return
    if not 0 < timeout_s < math.inf:
        raise UsageError(
            f"timeout_s is {timeout_s!r}, which is no time for an item.",
            code="bad_option",
            fix="Pass a number of seconds above 0, or None for no limit.",
        )
    if not processes:
        raise UsageError(
            "a thread cannot be stopped, so timeout_s has no meaning without processes.",
            code="bad_option",
            fix="Pass processes=True, or give the function a time limit of its own.",
        )
