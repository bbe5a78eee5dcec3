"""The items of one job, worked through by commands: which is next, what became of it.

Job: start one item after the other when the caller says so, record what ended, and try again what
failed. Invariants: an item is started only when it is not done and has attempts left; every outcome
is durable before anybody is told; what ended together is recorded with one sync; an interrupted
command is recorded as nothing at all, so that it costs no attempt. Nothing here waits: the caller
owns the loop, and decides how many commands run.
Never: runs two commands for one item at a time, or forgets one that it started.
"""

from array import array
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from perdure.control.changed_items import find_changed
from perdure.control.executor import RunningCommand
from perdure.control.item_command import ItemCommand, RunningItem, Settled
from perdure.control.item_list import Item, ItemList
from perdure.control.outcome import Ended
from perdure.errors import UsageError
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.records import Failure, Finding
from perdure.runtime.world import World

retry_wait_s_max: Final = 30.0
absent_kept_max: Final = 20

OnSettled = Callable[[list[Settled]], None]
OnRound = Callable[[int, int, float], None]
OnLeftovers = Callable[[Item, Ended], None]


class ItemRun:
    """One run over the items of an open job. Not for several threads at once.

    Order: queued errors first, the one that failed longest ago first; then fresh items in the order
    of the input; then what failed meanwhile again, in rounds, until it is done or has failed
    ``max_attempts`` times, all runs together. Before round N it waits ``retry_wait_s * 2**(N-1)``
    seconds, at most ``retry_wait_s_max``.
    """

    def __init__(
        self,
        job: CheckpointedJob,
        items: ItemList,
        command: ItemCommand,
        *,
        max_attempts: int,
        timeout_s: float | None,
        retry_wait_s: float,
        world: World,
        on_settled: OnSettled = lambda settled: None,
        on_round: OnRound = lambda number, items, wait_s: None,
        on_leftovers: OnLeftovers = lambda item, ended: None,
    ) -> None:
        """Reads the log once more when items have content that may have changed.

        ``timeout_s`` limits one attempt at one item. ``on_settled`` gets what ended together, after
        it is durable; ``on_round`` the number of a round, its items and the wait before it;
        ``on_leftovers`` an item whose command left processes behind.
        """
        self.job: Final = job
        self.items: Final = items
        self.command: Final = command
        self.changed: Final = find_changed(items, job.is_done, job.directory, disk=world.disk)
        self.skipped = 0
        """Items that were done before."""
        self.processed = 0
        """Findings made by this run."""
        self.interrupted = 0
        """Commands that were stopped, and not recorded."""
        self.failure: Final = None
        """No unit ends the attempt of the others."""
        self._first_error = ""
        self._max_attempts = max_attempts
        self._timeout_s = timeout_s
        self._retry_wait_s = retry_wait_s
        self._clock = world.clock
        self.on_settled = on_settled
        self.on_round = on_round
        self.on_leftovers = on_leftovers
        self._running: dict[int, RunningItem] = {}
        self._attempts: dict[int, int] = {}
        """Of the items that are in the error queue."""
        self._exhausted = 0
        self._queue: deque[int] = deque()
        self._fresh = array("L")
        self._next_fresh = 0
        self._failed_again: list[int] = []
        self._round_items: list[int] = []
        self._round = 0
        self._round_at = 0.0
        self._is_stopped = False
        self._is_announced = False
        self._survey()

    def _survey(self) -> None:
        """Sort the items into done, queued and fresh."""
        errors = {entry.key: entry for entry in self.job.errors}
        places: dict[str, int] = {}
        for index, key in enumerate(self.items.keys):
            if self.job.is_done(key):
                self.skipped += 1
            elif key in errors:
                places[key] = index
            else:
                self._fresh.append(index)
        for key, entry in errors.items():
            if key not in places:
                continue
            self._attempts[places[key]] = entry.attempts
            if entry.attempts < self._max_attempts:
                self._queue.append(places[key])
            else:
                self._exhausted += 1
        absent = [key for key in errors if key not in places]
        self.queued = len(self._queue)
        """Items that failed in former runs and are tried again."""
        self.absent = absent[:absent_kept_max]
        """Keys in the error queue that are not among the items; they are left as they are."""
        self.absent_count = len(absent)

    # What may run

    def can_start(self) -> bool:
        """Whether :meth:`start_one` has something to start now."""
        if self._is_stopped:
            return False
        self._plan_round()
        return bool(self._queue) or self._next_fresh < len(self._fresh)

    def start_one(self) -> None:
        """Start the next item; only after ``can_start``. Raises StorageError."""
        if not self._is_announced:
            self.command.announce()
            self._is_announced = True
        if self._queue:
            index = self._queue.popleft()
        else:
            index = self._fresh[self._next_fresh]
            self._next_fresh += 1
        attempt = self._attempts.get(index, 0) + 1
        self._running[index] = self.command.start(
            self.items[index], attempt=attempt, timeout_s=self._timeout_s
        )

    def due_in_s(self) -> float | None:
        """When ``can_start`` will be true without anything ending; None when never."""
        if self._is_stopped or not self._round_items:
            return None
        return max(0.0, self._round_at - self._clock.monotonic())

    @property
    def is_idle(self) -> bool:
        """Nothing runs; what ended was recorded when it was collected."""
        return not self._running

    @property
    def is_finished(self) -> bool:
        """Nothing runs and nothing is left to start, now or later."""
        waiting = self._queue or self._failed_again or self._round_items
        return self.is_idle and not waiting and self._next_fresh >= len(self._fresh)

    @property
    def is_complete(self) -> bool:
        """Every item is done."""
        return self.skipped + self.processed == len(self.items)

    # What runs

    @property
    def commands(self) -> list[RunningCommand]:
        """For :func:`~perdure.control.executor.wait_for_commands`."""
        return [running.command for running in self._running.values()]

    def collect(self) -> None:
        """Record what has ended, findings with one sync and errors with one.

        Call it before :meth:`start_one`: then a kill costs no result that was there already. Raises
        StorageError, and then nothing of it counts before the job is opened again.
        """
        if not (ended := self._take_ended()):
            return
        ended = [(index, self._masked(one)) for index, one in ended]
        settled = self._record([one for _, one in ended])
        for (index, _), one in zip(ended, settled, strict=True):
            if isinstance(one.outcome, Finding):
                self.processed += 1
                self._attempts.pop(index, None)
            elif one.outcome is not None:
                self._note_failure(index, one.outcome.error)
        self.on_settled(settled)

    def discard(self) -> None:
        """See what has ended and record nothing of it: the run has failed, or its job is lost."""
        self._take_ended()

    def _take_ended(self) -> list[tuple[int, Settled]]:
        """What has ended by itself, with its place among the items; it does not run any more."""
        ended = []
        for index, running in list(self._running.items()):
            settled = running.poll()
            if settled is None:
                continue
            del self._running[index]
            if settled.ended.leftovers:
                self.on_leftovers(settled.item, settled.ended)
            if settled.outcome is None:
                self.interrupted += 1
            else:
                ended.append((index, settled))
        return ended

    def stop(self, reason: str, *, grace_s: float | None = None) -> None:
        """Start nothing more and stop what runs: SIGTERM now, SIGKILL after the grace.

        What is stopped is not recorded; what ended by itself still is. Call it again with a shorter
        grace to hasten it.
        """
        self._is_stopped = True
        for running in self._running.values():
            running.stop(reason, grace_s=grace_s)

    def close(self) -> None:
        """Say that nothing of this run is at work any more; only when nothing runs."""
        if self._is_announced:
            self.command.retract()

    # Looking

    def counts(self) -> dict[str, int]:
        """Where the items stand; ``failed`` counts those that are not done, ``exhausted`` too."""
        return {
            "total": len(self.items),
            "done": self.skipped + self.processed,
            "processed": self.processed,
            "skipped": self.skipped,
            "failed": len(self._attempts),
            "exhausted": self._exhausted,
            "running": len(self._running),
        }

    def report(self) -> dict[str, Any]:
        """What a person wants to know at the end: the counts, and what is odd about the input."""
        return {
            **self.counts(),
            "interrupted": self.interrupted,
            "duplicates": [duplicate._asdict() for duplicate in self.items.duplicates],
            "duplicate_count": self.items.duplicate_count,
            "differing_count": self.items.differing_count,
            "changed": self.changed.keys,
            "changed_count": self.changed.total,
            "absent": self.absent,
            "absent_count": self.absent_count,
        }

    def _plan_round(self) -> None:
        """When all else has ended, what failed is to run again after a wait."""
        if self._queue or self._next_fresh < len(self._fresh):
            return
        if self._failed_again and not self.is_idle:
            return  # what still runs may fail too, and then belongs to this round
        now = self._clock.monotonic()
        if not self._round_items and self._failed_again:
            self._round += 1
            wait_s = min(self._retry_wait_s * 2 ** min(self._round - 1, 30), retry_wait_s_max)
            self._round_items, self._failed_again = self._failed_again, []
            self._round_at = now + wait_s
            self.on_round(self._round, len(self._round_items), wait_s)
        if self._round_items and now >= self._round_at:
            self._queue.extend(self._round_items)
            self._round_items = []

    def first_error(self) -> str:
        """Why an item has failed in this run; empty while none has."""
        return self._first_error

    def _note_failure(self, index: int, why: str) -> None:
        self._first_error = self._first_error or why
        attempts = self._attempts.get(index, 0) + 1
        self._attempts[index] = attempts
        if attempts < self._max_attempts:
            self._failed_again.append(index)
        else:
            self._exhausted += 1

    def _record(self, settled: list[Settled]) -> list[Settled]:
        """Make the outcomes durable; a finding that the job refuses becomes a failure."""
        outcomes = [one.outcome for one in settled if one.outcome is not None]
        if any(isinstance(outcome, Failure) for outcome in outcomes):
            self.command.require_room()
        try:
            self.job.record_many(outcomes)
        except UsageError:
            # Nothing was written, and one of them is to blame.
            outcomes = [self._record_alone(outcome) for outcome in outcomes]
        return [
            one._replace(outcome=outcome) for one, outcome in zip(settled, outcomes, strict=True)
        ]

    def _masked(self, one: Settled) -> Settled:
        """Also what is shown of a failure has no secret in it (SE-1)."""
        if not isinstance(one.outcome, Failure):
            return one
        failure = one.outcome
        return one._replace(outcome=Failure(failure.key, self.job.masked(str(failure.error))))

    def _record_alone(self, outcome: Finding | Failure) -> Finding | Failure:
        try:
            self.job.record_many([outcome])
        except UsageError as error:
            outcome = Failure(outcome.key, f"its output cannot be a finding: {error.message}")
            self.job.record_many([outcome])
        return outcome
