"""The units of one batch node, worked through by workers that get many of them each.

Job: send workers with shards, join what they have written, and send what is left again. Invariants:
a slot closes only after its directory was looked at and its complete units are durable in the job
(PD-J1); workers at work are left out of every join; the death of a worker is no failure of its
units, except of a single one that it died on without a wall of the environment; what came in late
is judged like anything else. What is in memory besides the inventory is bounded by the workers that
are out.
Never: waits, or kills for silence.
"""

from collections.abc import Sequence
from typing import Any, Final

from perdure.control.batch_job import BatchJob
from perdure.control.child_files import Shared
from perdure.control.dispatch_control import DispatchControl
from perdure.control.endings import Emit
from perdure.control.executor import RunningCommand
from perdure.control.item_list import ItemList
from perdure.control.life_signs import LifeSigns
from perdure.control.outcome import Ended
from perdure.control.shard_adoption import (
    Adopted,
    adopt_shards,
    told_conflicts,
)
from perdure.control.shard_end import WorkerEnd, judge_slot
from perdure.control.shard_join import Duplicates, Landed, adjudicate
from perdure.control.shard_late import DeadWorkers
from perdure.control.shard_queue import Allowed, Shard
from perdure.control.shard_record import UnitFailure, UnitRecord
from perdure.control.shard_seal import late_in_sealed
from perdure.control.shard_worker import Dispatch, Worker, send_worker, shard_executor
from perdure.core import dispatch_commands as d
from perdure.core.batch import log_path
from perdure.core.budget import budget_of, over_budget, with_usage
from perdure.core.dispatching import Usage
from perdure.core.model import FailureClass, MapSpec, Node, id_key
from perdure.errors import RefusedError, TransitionError
from perdure.runtime.engine import Engine
from perdure.runtime.verify import schema_errors

shard_default: Final = 10
"""Units for one agent, where the map does not say."""
look_every_s: Final = 1.0
"""Between two looks at what came in late."""


class ShardRun:
    """One run over the units of an open job by workers (``control.unit_run.UnitRun``)."""

    def __init__(
        self,
        engine: Engine,
        node: Node,
        items: ItemList,
        batch_job: BatchJob,
        *,
        control: DispatchControl,
        emit: Emit,
        shared: Shared,
        retry_wait_s: float,
    ) -> None:
        """Looks into what workers of former attempts have left; the node is RUNNING.

        Raises HaltError, also when its worker is not installed.
        """
        batch = node.spec.map or MapSpec()
        executor = shard_executor(engine, node)
        self.job: Final = batch_job.job
        self.items: Final = items
        self.failure: tuple[FailureClass, str] | None = None
        self._engine = engine
        self._clock = engine.world.clock
        self._node = node
        self._batch_job = batch_job
        self._control = control
        self._emit = emit
        self._size = batch.shard or shard_default
        self._errors_of = schema_errors(batch.schema) if batch.schema is not None else None
        self._dispatch = Dispatch(engine, node, executor, items, shared, batch.timeout_s)
        self._running: dict[str, Worker] = {}
        self._signs = LifeSigns(engine, emit)
        self._dead: Final = DeadWorkers(engine.disk, self._errors_of)
        self._sent = 0
        self._interrupted = 0
        self._used: Usage | None = None
        self._look_due_at = 0.0
        self._is_stopped = self._looked_last = False
        self.adopted: Final[Adopted] = adopt_shards(engine, node, batch_job, items, self._errors_of)
        self._record: Final = UnitRecord(
            batch_job, items, max_attempts=batch.max_attempts, disk=engine.disk
        )
        self._queue: Final = self._record.survey(size=self._size, retry_wait_s=retry_wait_s)
        self._smoke = batch.smoke and not self._record.skipped  # else one has been done before

    # What may run

    def can_start(self) -> bool:
        """Whether :meth:`start_one` may send a worker now, besides one that goes first alone."""
        if self._is_stopped or self.failure is not None:
            return False
        self._queue.plan_round(self._clock.monotonic(), idle=self.is_idle)
        self._control.report_untouched(self._node.node_id, self._queue.untouched)
        return self._queue.has(self._allowed())

    def _allowed(self) -> Allowed:
        """What may be dispatched as dispatched work fares now (HALT-07 section 4)."""
        control, node_id = self._control, self._node.node_id
        return Allowed(
            control.may_dispatch_untouched(),
            control.may_retry(node_id, 1),
            control.may_retry(node_id, 2),
        )

    def start_one(self) -> None:
        """Send the next worker; only after ``can_start``. Raises HaltError when it cannot be.

        It may come to nothing: when its node was settled by a message that came in just now, or
        everything in the shard has come in late, or it is too large for a contract.
        """
        allowed = self._allowed()
        while self._queue.has(allowed):
            shard = self._queue.take(allowed, units_max=1 if self._smoke else self._size)
            left = tuple(place for place in shard.units if not self._record.is_done(place))
            if left:
                self._send(shard._replace(units=left))
                return

    def _send(self, shard: Shard) -> None:
        try:
            done = self._record.counts()["done"]
            worker = send_worker(self._dispatch, shard, number=self._sent + 1, done=done)
        except TransitionError:  # the next look sees by whom it was settled
            self._queue.give_back(shard)
            return
        except RefusedError as error:
            self._refused(shard, error)
            return
        self._sent += 1
        self._running[worker.invocation] = worker
        self._control.began(worker.invocation, deaths=shard.deaths)
        log = self._engine.layout.log(self._node.node_id, worker.invocation)
        self._signs.watch(worker.invocation, self._node.node_id, (log, worker.directory))

    def _refused(self, shard: Shard, error: RefusedError) -> None:
        """A contract that would be too large is split, a halt waits; the rest ends the attempt."""
        if error.code == "dispatch_halted":
            self._queue.give_back(shard)
        elif error.code != "contract_too_large":
            self.failure = ("permanent-spec", error.message.rstrip("."))
            self._queue.give_back(shard)
        elif len(shard.units) > 1:
            self._queue.split(shard)
        else:
            why = UnitFailure(shard.units[0], error.message.rstrip("."))
            for place in self._record.land([], [why])[0]:
                self._queue.fail(place)

    def due_in_s(self) -> float | None:
        """When ``can_start`` will be true without anything ending; None when never."""
        if self._is_stopped:
            return None
        return self._queue.due_in_s(self._clock.monotonic())

    @property
    def is_idle(self) -> bool:
        """Nobody is at work; what ended was recorded when it was collected."""
        return not self._running

    @property
    def is_finished(self) -> bool:
        """Nobody is at work and nothing is left to start, now or later."""
        return self.is_idle and (self._queue.is_empty or self.is_complete)

    @property
    def is_complete(self) -> bool:
        """Every unit is done."""
        return self._record.is_complete

    # What runs

    @property
    def commands(self) -> Sequence[RunningCommand]:
        """The workers, to be waited for."""
        return [worker.command for worker in self._running.values()]

    def collect(self) -> None:
        """Join what ended workers have left, then close their slots, in one commit.

        Raises StorageError, and then nothing of it counts before the job is opened again.
        """
        if ended := self._take_ended():
            ended.sort(key=lambda pair: id_key(pair[0].invocation))
            self._settle([self._look_at(worker, end) for worker, end in ended])
        self._signs.look()
        now = self._clock.monotonic()
        over = self.is_finished and not self._looked_last
        if now >= self._look_due_at or over:
            self._look_due_at = now + look_every_s
            self._look_for_late()
        if over:
            self._looked_last = True
            for notice in late_in_sealed(self._engine, self._node):
                self._tell({"event": "notice", "why": notice})

    def discard(self) -> None:
        """See what has ended and record nothing of it: its node is settled, or its job is lost."""
        for worker, _ in self._take_ended():
            if worker.invocation in self._engine.replica.state.slots:
                why = "its node was settled; what is on disk is judged at its next start"
                left = len(worker.keys)
                self._engine.execute(
                    d.CloseSlot(worker.invocation, "recalled", left=left, observation=why)
                )
            self._forget(worker, landed=False)
            self._control.ended(worker.invocation, landed=False)

    def _take_ended(self) -> list[tuple[Worker, Ended]]:
        ended = []
        for worker in list(self._running.values()):
            end = worker.command.poll()
            if end is None:
                continue
            del self._running[worker.invocation]
            if end.leftovers:
                named = list(end.leftovers)
                self._tell({"event": "leftovers", "slot": worker.invocation, "processes": named})
            ended.append((worker, end))
        return ended

    def _look_at(self, worker: Worker, ended: Ended) -> WorkerEnd:
        adjudged = adjudicate(
            self._engine.disk,
            worker.directory,
            worker.keys,
            errors_of=self._errors_of,
            is_placed=self._batch_job.is_placed,
        )
        report = self._dispatch.executor.read_end(worker.order, ended)
        verdict = judge_slot(len(worker.keys), adjudged, ended, report)
        return WorkerEnd(worker, report, adjudged, verdict)

    def _settle(self, settled: Sequence[WorkerEnd]) -> None:
        if any(one.verdict.died for one in settled):
            self._batch_job.require_room()  # a full disk says nothing about workers and units
        landed, failures = list[tuple[int, Landed, str]](), list[UnitFailure]()
        for one in settled:
            places, slot = one.worker.places, one.worker.invocation
            landed += [(places[unit.key], unit, slot) for unit in one.adjudged.landed]
            failures += [UnitFailure(places[key], why) for key, why in one.adjudged.failed]
            if one.is_death_of_its_unit:
                why = f"its worker died on it: {one.verdict.observation}"
                failures.append(UnitFailure(one.worker.shard.units[0], why))
        again, duplicates = self._record.land(landed, failures)
        for place in again:
            self._queue.fail(place)
        with self._engine.batch():
            for one in settled:
                self._close_slot(one)
        for one in settled:
            self._after(one)
        self._tell_conflicts(duplicates)

    def _close_slot(self, one: WorkerEnd) -> None:
        invocation = one.worker.invocation
        if invocation not in self._engine.replica.state.slots:
            return  # its node was closed by a message that came in with this very commit
        self._engine.execute(
            d.CloseSlot(
                invocation,
                one.verdict.end,
                landed=len(one.adjudged.landed),
                left=len(one.adjudged.left),
                first=one.verdict.died and not one.adjudged.has_output,
                cause=one.verdict.cause,
                observation=one.verdict.observation,
                usage=one.report.usage,
            )
        )

    def _after(self, one: WorkerEnd) -> None:
        """The slot is closed: what is left goes back, and what it says of the run is heeded."""
        worker, adjudged, verdict = one.worker, one.adjudged, one.verdict
        if not one.is_death_of_its_unit:
            places = worker.places
            left = [places[key] for key in adjudged.left]
            self._queue.put_back(worker.shard, left, landed=one.has_moved, died=verdict.died)
        if adjudged.left and not self._is_stopped:
            self._dead.watch(worker, list(adjudged.left))
        landed = verdict.end == "landed"
        self._forget(worker, landed=landed)
        wait_s = one.report.retry_after_s
        self._control.ended(
            worker.invocation, landed=landed, cause=verdict.cause, retry_after_s=wait_s
        )
        self._interrupted += verdict.end == "recalled"
        for notice in (*adjudged.notices, *filter(None, (one.report.notice,))):
            self._tell({"event": "notice", "why": f"{worker.invocation}: {notice}"})
        if verdict.died:
            self._tell(
                {
                    "event": "slot_died",
                    "slot": worker.invocation,
                    "end": verdict.end,
                    "landed": len(adjudged.landed),
                    "left": len(adjudged.left),
                    "why": verdict.observation,
                }
            )
        self._heed(one)

    def _heed(self, one: WorkerEnd) -> None:
        """Whether the attempt can go on, and when."""
        verdict, report = one.verdict, one.report
        if report.usage is not None:
            self._used = with_usage(self._used, report.usage)
        spent = over_budget(budget_of(self._node), self._used)
        if verdict.end == "recalled":
            return
        failure_class: FailureClass = report.failure[0] if report.failure else "transient-agent"
        if spent:
            self._give_up("transient-agent", spent)
        elif verdict.died and not one.has_moved and failure_class == "permanent-resource":
            self._give_up(failure_class, verdict.observation)
        elif self._smoke and self._record.processed:
            self._smoke = False
        elif self._smoke:
            why = one.adjudged.failed[0][1] if one.adjudged.failed else verdict.observation
            self._give_up(failure_class, f"smoke test failed: {why}")

    def _give_up(self, failure_class: FailureClass, why: str) -> None:
        self.failure = self.failure or (failure_class, why)

    def _forget(self, worker: Worker, *, landed: bool) -> None:
        self._signs.forget(worker.invocation, landed=landed)

    # What comes late

    def _look_for_late(self) -> None:
        """Judge what dead workers have brought since; it counts where nobody was faster (RT-3)."""
        for invocation, units in self._dead.look():
            before = self._record.processed
            _, duplicates = self._record.land(units)
            self._tell_conflicts(duplicates)
            landed = self._record.processed - before
            if not landed:
                continue
            why = f"{landed} units came in after the slot was closed"
            node_id = self._node.node_id
            try:
                self._engine.execute(d.RecordLate(node_id, invocation, landed=landed, why=why))
            except TransitionError:
                return  # its node was settled just now; the units stand in the job all the same
            self._tell({"event": "late", "slot": invocation, "units": landed})

    def _tell_conflicts(self, duplicates: Duplicates) -> None:
        log = f"{self._engine.layout.root}/{log_path(self._node.node_id)}"
        for notice in told_conflicts(duplicates.differing(self._engine.disk, log)):
            self._tell({"event": "notice", "why": notice})

    def _tell(self, event: dict[str, Any]) -> None:
        self._emit({"node": self._node.node_id, **event})

    # The end

    def stop(self, reason: str, *, grace_s: float | None = None) -> None:
        """Send nobody more and stop who is at work: SIGTERM now, SIGKILL after the grace.

        What they have completed counts; what is left costs its units nothing.
        """
        self._is_stopped = True
        for worker in self._running.values():
            worker.command.stop(reason, grace_s=grace_s)

    def close(self) -> None:
        """Nobody is at work, and nothing waits for its turn."""
        self._control.report_untouched(self._node.node_id, 0)

    # Looking

    def counts(self) -> dict[str, int]:
        """Where the units stand; ``running`` are those with workers that are out."""
        running = sum(len(worker.keys) for worker in self._running.values())
        return {**self._record.counts(), "running": running}

    def first_error(self) -> str:
        """Why a unit has failed in this run; empty while none has."""
        return self._record.first_error

    def report(self) -> dict[str, Any]:
        """What a person wants to know at the end: the counts, and what is odd about the input."""
        return {**self.counts(), "interrupted": self._interrupted, **self._record.report()}
