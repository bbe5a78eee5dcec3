"""The loop behind ``perdure map``: a command for each item, until nothing is left to do.

Job: keep as many commands at work as may be, record what ends, tell what happens, and leave the job
in order however it ends. Invariants: what a former run left running is stopped before the first
start; after the first signal nothing starts and what is at work is finished, after the second it is
killed; on return nothing that this run started is still running, and the job is released.
Never: decides what an output means, or writes to the job past :class:`~.item_run.ItemRun`.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Any, Final

from perdure.control.adoption import adopt_orphans, stop_strangers
from perdure.control.executor import end_commands, wait_for_commands
from perdure.control.former_run import stop_former_run
from perdure.control.item_command import Settled
from perdure.control.item_list import Item
from perdure.control.item_run import ItemRun
from perdure.control.outcome import Ended
from perdure.jobs.records import Failure
from perdure.runtime.orphans import Orphan
from perdure.runtime.world import World

Emit = Callable[[dict[str, Any]], None]

progress_interval_s: Final = 0.25
"""The least time between two progress events, and the longest sleep of the loop."""


class MapLoop:
    """One run of one job. ``interrupt`` may be called from a signal handler.

    ``emit`` gets a mapping for each thing that happens: ``opened``, ``orphans_stopped``,
    ``progress``, ``failed``, ``retry_round``, ``leftovers``, ``stopping``, and at the end
    ``finished``, ``incomplete`` or ``interrupted`` with the report. It must not raise.
    """

    def __init__(self, run: ItemRun, *, workers: int, world: World, emit: Emit) -> None:
        self._run = run
        self._job = run.job
        self._workers = workers
        self._world = world
        self._clock = world.clock
        self._emit = emit
        self._signal = 0
        self._signals_seen = 0
        self._signals_handled = 0
        self._began_at = self._clock.monotonic()
        self._told_at = float("-inf")
        self._told: dict[str, int] = {}
        run.on_settled, run.on_round = self._tell_settled, self._tell_round
        run.on_leftovers = self._tell_leftovers
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)

    def interrupt(self, number: int) -> None:
        """Ask to finish what is at work and start nothing; asked again, it is killed at once."""
        self._signal = number
        self._signals_seen += 1
        with contextlib.suppress(OSError):  # a full pipe wakes as well
            os.write(self._wake_w, b"!")  # noqa: TID251  (a pipe, not a file)

    def run(self) -> dict[str, Any]:
        """Work through the items; the report, as its last event has it. Once for each object.

        ``outcome`` is ``finished`` when every item is done, ``incomplete`` when some failed as
        often as they may, or when there are no items and errors are queued, ``interrupted`` after a
        signal. Raises BusyError when a former run left something running that cannot be stopped,
        StorageError when a file cannot be written; what was recorded stays. A crash anywhere leaves
        what the next run goes on from.
        """
        adoption = adopt_orphans()
        self._run.command.census = adoption
        try:
            self._tell_opened()
            self._stop_former_run()
            self._began_at = self._clock.monotonic()
            self._loop()
            self._tell_strangers(*stop_strangers(adoption, self._clock))
            self._run.close()
            return self._finish()
        finally:
            try:
                self._abandon()
            finally:
                if adoption is not None:
                    adoption.close()
                self._job.close()

    # Before the first start

    def _tell_opened(self) -> None:
        run, counts = self._run, self._run.counts()
        self._tell(
            "opened",
            job=self._job.directory,
            name=self._job.name,
            total=counts["total"],
            done=counts["done"],
            queued=run.queued,
            exhausted=counts["exhausted"],
            notices=[notice.message for notice in self._job.notices],
        )

    def _stop_former_run(self) -> None:
        directory = self._job.directory
        former = stop_former_run(directory, disk=self._world.disk, clock=self._clock)
        if former.stopped:
            self._tell("orphans_stopped", processes=_named(former.stopped))
        former.require_gone(fix="End these processes, then run it again.")

    # The loop

    def _loop(self) -> None:
        run = self._run
        while True:
            self._handle_signals()
            run.collect()  # first, so that a kill costs no result that was there already
            self._start_items()
            is_over = run.is_finished or (bool(self._signal) and run.is_idle)
            self._tell_progress(at_once=is_over)
            if is_over:
                return
            self._wait()

    def _start_items(self) -> None:
        while not self._signal and len(self._run.commands) < self._workers:
            if not self._run.can_start():
                return
            self._run.start_one()

    def _wait(self) -> None:
        waits = [progress_interval_s]
        if not self._signal and (due_s := self._run.due_in_s()) is not None:
            waits.append(due_s)
        wait_for_commands(
            self._run.commands, timeout_s=min(waits), clock=self._clock, also=[self._wake_r]
        )
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_r, 4096):
                pass

    def _handle_signals(self) -> None:
        if self._signals_handled == self._signals_seen:
            return
        self._signals_handled = self._signals_seen
        again = self._signals_seen > 1
        self._tell("stopping", signal=self._signal, at_once=again)
        if again:
            self._run.stop(f"signal {self._signal}", grace_s=0.0)

    # What is told

    def _tell_settled(self, settled: list[Settled]) -> None:
        for one in settled:
            if isinstance(one.outcome, Failure):
                key, error = one.outcome
                self._tell("failed", key=key, error=error, attempts=one.attempt)

    def _tell_round(self, number: int, items: int, wait_s: float) -> None:
        self._tell("retry_round", round=number, items=items, wait_s=wait_s)

    def _tell_leftovers(self, item: Item, ended: Ended) -> None:
        processes = [list(process) for process in ended.leftovers]
        left = [list(process) for process in ended.unstopped]
        self._tell("leftovers", key=item.key, processes=processes, left=left)

    def _tell(self, event: str, **more: Any) -> None:
        self._emit({"event": event, **more})

    def _tell_progress(self, *, at_once: bool) -> None:
        now = self._clock.monotonic()
        counts = self._run.counts()
        is_due = at_once or now - self._told_at >= progress_interval_s
        if counts == self._told or not is_due:
            return
        self._told, self._told_at = counts, now
        elapsed_s = now - self._began_at
        rate = counts["processed"] / elapsed_s if elapsed_s > 0 else 0.0
        left = counts["total"] - counts["done"] - counts["exhausted"]
        self._tell(
            "progress",
            done=counts["done"],
            failed=counts["failed"],
            running=counts["running"],
            total=counts["total"],
            rate_per_s=round(rate, 3),
            eta_s=round(left / rate, 1) if rate else None,
        )

    # The end

    def _tell_strangers(self, strangers: list[Orphan], left: list[Orphan]) -> None:
        if strangers:
            self._tell("leftovers", key=None, processes=_named(strangers), left=_named(left))

    def _finish(self) -> dict[str, Any]:
        wall_s = self._clock.monotonic() - self._began_at
        if not len(self._run.items):  # an empty list is rather a mistake than the end of a job
            outcome = "incomplete" if self._job.errors else "finished"
            self._job.close()
        elif self._run.is_complete:
            outcome = "finished"
            self._job.finish()
        else:
            outcome = "interrupted" if self._signal else "incomplete"
            self._job.close()
        report = {
            "outcome": outcome,
            "job": self._job.directory,
            "name": self._job.name,
            "summary": self._job.summary_path,
            **self._run.report(),
            "wall_s": round(wall_s, 3),
            "signal": self._signal,
        }
        self._tell(outcome, **report)
        return report

    def _abandon(self) -> None:
        """Stop whatever is still running: also when the loop itself failed."""
        end_commands(self._run.commands, clock=self._clock)
        os.close(self._wake_r)
        wake, self._wake_w = self._wake_w, -1
        os.close(wake)


def _named(orphans: list[Orphan]) -> list[list[Any]]:
    return [[orphan.pid, orphan.name] for orphan in orphans]
