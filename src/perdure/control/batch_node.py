"""One batch node at work: its units, by a command for each or by workers, and its ledger.

Job: run the units of one attempt through a :class:`~perdure.control.unit_run.UnitRun`, keep the
ledger, say how far it is, and say what the attempt came to. Invariants: a ledger line follows the
finding it speaks of; a unit that was interrupted costs nothing and leaves nothing; a failure of the
job or of the disk ends this attempt and nothing else; once its node was settled by somebody else
nothing more is recorded. Never decides when a unit may start: the slots are the run's.
"""

import contextlib
from collections.abc import Sequence
from typing import Final

from perdure.control.batch_job import BatchJob, SettledUnit
from perdure.control.child_files import Shared
from perdure.control.dispatch_control import DispatchControl
from perdure.control.endings import Emit
from perdure.control.executor_port import Launch
from perdure.control.executors import confinement_for, order_for
from perdure.control.inventory import Inventory
from perdure.control.item_command import ItemCommand, Settled
from perdure.control.item_list import Item
from perdure.control.item_run import ItemRun
from perdure.control.outcome import Ended, seconds_text
from perdure.control.shards import ShardRun
from perdure.control.unit_run import UnitRun
from perdure.core.batch import is_sharded
from perdure.core.model import FailureClass, MapSpec, Node
from perdure.core.views import cut
from perdure.errors import BusyError, HaltError, StorageError, TransitionError
from perdure.jobs.records import Failure, Finding
from perdure.runtime import work
from perdure.runtime.engine import Engine

units_event_every_s: Final = 1.0
retry_wait_s: Final = 1.0
"""Before failed units are tried again; twice as long each time."""
keys_shown_max: Final = 3
key_chars_max: Final = 60
problem_chars_max: Final = 500


def class_of(error: HaltError) -> FailureClass:
    """Who holds the job lets go of it, and a disk may be well again; the rest a person must see."""
    passing = isinstance(error, BusyError | StorageError)
    return "transient-environment" if passing else "permanent-resource"


def shown_keys(keys: Sequence[str]) -> str:
    """The first few keys for a message: each on one line and cut, whatever stands in it."""
    shown = [cut(key, key_chars_max) for key in keys[:keys_shown_max]]
    return ", ".join(shown) + (", ..." if len(keys) > keys_shown_max else "")


class BatchNode:
    """One batch node at work."""

    def __init__(
        self,
        engine: Engine,
        node: Node,
        inventory: Inventory,
        batch_job: BatchJob,
        emit: Emit,
        *,
        control: DispatchControl,
        shared: Shared = Shared(),  # noqa: B008
    ) -> None:
        """Raises NotFoundError when its program cannot be found, StorageError."""
        self.node_id: Final = node.node_id
        self.invocation: Final = node.invocation or ""
        self.failure: tuple[FailureClass, str] | None = None
        """What ends the attempt as failed, whatever its units come to."""
        self.stopped = ""
        """Why it was interrupted; nothing is started any more."""
        self.is_lost = False
        """Its node was settled by somebody else: nothing more is recorded."""
        self._engine = engine
        self._clock = engine.world.clock
        self._batch_job = batch_job
        self._emit = emit
        self._limit_s = node.spec.budget.max_wall_s
        batch = node.spec.map or MapSpec()
        self._workers = batch.workers
        self._max_attempts = batch.max_attempts
        self._first_alone = batch.smoke
        """One unit goes first; the others follow when one is done."""
        self.is_sharded: Final = is_sharded(batch)
        """Its units go to workers with slots, which say by themselves how they fare."""
        self.run: Final[UnitRun] = (
            self._by_workers(node, inventory, control, shared)
            if self.is_sharded
            else self._by_commands(node, inventory, shared)
        )
        self.done_seen: int = self.run.counts()["done"]
        """How many units were done at the last look."""
        self._began_at = self._beat_at = self._clock.monotonic()
        self._told_at = self._began_at
        self._told = self._beaten = self._figures()

    def _by_commands(self, node: Node, inventory: Inventory, shared: Shared) -> ItemRun:
        """A command for each unit."""
        engine, batch = self._engine, node.spec.map or MapSpec()
        order = order_for(engine, node)
        command = ItemCommand(
            batch.run,
            directory=engine.layout.node_scope(node.node_id),
            cwd=engine.layout.root,
            environment=order.environment,
            artifact_path=self._batch_job.job.artifact_path,
            world=engine.world,
            confinement=confinement_for(engine, order, Launch(batch.run)),
        )
        command.census = shared.census
        command.require_program()
        command.require_fields(inventory.items)
        return ItemRun(
            self._batch_job.job,
            inventory.items,
            command,
            max_attempts=batch.max_attempts,
            timeout_s=batch.timeout_s,
            retry_wait_s=retry_wait_s,
            world=engine.world,
            on_settled=self._write_ledger,
            on_leftovers=self._tell_leftovers,
        )

    def _by_workers(
        self,
        node: Node,
        inventory: Inventory,
        control: DispatchControl,
        shared: Shared,
    ) -> ShardRun:
        """Workers that get many units each."""
        run = ShardRun(
            self._engine,
            node,
            inventory.items,
            self._batch_job,
            control=control,
            emit=self._emit,
            shared=shared,
            retry_wait_s=retry_wait_s,
        )
        adopted = run.adopted
        if adopted.slots:
            self._emit(
                {
                    "event": "shards_adopted",
                    "node": self.node_id,
                    "slots": adopted.slots,
                    "units": adopted.units,
                }
            )
        self._batch_job.notices.extend(adopted.notices)
        return run

    @property
    def wall_s(self) -> float:
        """How long it has been at work."""
        return self._clock.monotonic() - self._began_at

    def notices(self) -> list[str]:
        """What somebody should know about its job and its items, a sentence each, without stops."""
        found = list(self._batch_job.notices)
        report = self.run.report()
        if report["duplicate_count"]:
            listed = shown_keys([entry["key"] for entry in report["duplicates"]])
            found.append(f"{report['duplicate_count']} items came twice and count once: {listed}")
        if report["changed_count"]:
            listed = shown_keys(report["changed"])
            found.append(
                f"{report['changed_count']} items changed since they were done, and are not done"
                f" again: {listed}"
            )
        return found

    # Units

    def can_start(self, jobs: int) -> bool:
        """Whether a unit may be started now, as far as this node goes."""
        if self.stopped or self.failure is not None or self.is_lost:
            return False
        if self._is_first_at_work():
            return False
        return len(self.run.commands) < (self._workers or jobs) and self.run.can_start()

    def _is_first_at_work(self) -> bool:
        """Whether the unit that goes first is at work, so that the others wait for it."""
        return self._first_alone and not self.run.counts()["done"] and bool(self.run.commands)

    def start_one(self) -> None:
        """Start a unit; what keeps it from starting ends the attempt."""
        try:
            self.run.start_one()
        except HaltError as error:
            self._give_up(error)

    def due_in_s(self, jobs: int, *, free: bool) -> float:
        """When something has to be done though nothing ends; infinite when nothing has.

        ``free``: whether a unit could have a slot.
        """
        if self.is_over():  # it had nothing to start, or could not start it
            return 0.0
        waits = [float("inf")]
        if self._limit_s is not None and self.failure is None:
            waits.append(max(0.0, self._began_at + self._limit_s - self._clock.monotonic()))
        has_room = free and not self.stopped and len(self.run.commands) < (self._workers or jobs)
        if has_room and (due_s := self.run.due_in_s()) is not None:
            waits.append(due_s)
        return min(waits)

    def collect(self) -> None:
        """Make what has ended durable, then its ledger lines; see whether the attempt may go on.

        A failure of the job or of the disk ends the attempt.
        """
        node = self._engine.replica.state.nodes[self.node_id]
        if node.state != "RUNNING" or node.invocation != self.invocation:
            self.is_lost = True
            self.run.stop("its node was settled by somebody else")
            self.run.discard()
            return
        if self._limit_s is not None and self.failure is None and self.wall_s >= self._limit_s:
            limit = seconds_text(self._limit_s)
            self.failure = ("transient-agent", f"timed out after {limit}")
            self.run.stop(f"the time limit of {limit}")
        try:
            self.run.collect()
        except HaltError as error:
            self._give_up(error)
        if self.failure is None and (failure := self.run.failure or self._failed_first()):
            self.failure = failure
            self.run.stop(failure[1])

    def _failed_first(self) -> tuple[FailureClass, str] | None:
        """Why the unit that goes first has failed, so that no other is to be tried."""
        error = self.run.first_error()
        if not self._first_alone or self.run.counts()["done"] or not error:
            return None
        return "transient-agent", f"smoke test failed: {error}"[:problem_chars_max]

    def _give_up(self, error: HaltError) -> None:
        self.failure = self.failure or (
            class_of(error),
            error.message.rstrip(".")[:problem_chars_max],
        )
        self.run.stop("its job cannot go on")

    def _write_ledger(self, settled: list[Settled]) -> None:
        self._batch_job.settle(
            SettledUnit(one.item.key, isinstance(one.outcome, Finding), _error_of(one))
            for one in settled
            if isinstance(one.outcome, Finding) or one.attempt >= self._max_attempts
        )

    def _tell_leftovers(self, item: Item, ended: Ended) -> None:
        named = list(ended.leftovers)
        self._emit({"event": "leftovers", "node": self.node_id, "processes": named})

    # Signs of life

    def tell(self, heartbeat_s: float) -> None:
        """Say how far it is, at most once a second; and journal that it is alive.

        A HEARTBEAT is written only when units have come to an end since the last one, so that
        silence means silence. For workers that are out ``life_signs`` writes more of them.
        """
        counts, now = self._figures(), self._clock.monotonic()
        if counts != self._told and now - self._told_at >= units_event_every_s:
            self._tell_units(counts, now)
        if counts != self._beaten and now - self._beat_at >= heartbeat_s:
            self._beat_at, self._beaten = now, counts
            self._beat()

    def _beat(self) -> None:
        try:
            work.beat(self._engine, (self.node_id,), self.how_far())
        except TransitionError:
            # Recalled by a message that came in with this very commit: the next collect sees it.
            if self._engine.replica.state.nodes[self.node_id].state == "RUNNING":
                raise

    def _figures(self) -> dict[str, int]:
        counts = self.run.counts()
        return {name: counts[name] for name in ("done", "total", "exhausted")}

    def _tell_units(self, counts: dict[str, int], now: float) -> None:
        self._told, self._told_at = counts, now
        self._emit(
            {
                "event": "units",
                "node": self.node_id,
                "done": counts["done"],
                "total": counts["total"],
                "failed": counts["exhausted"],
                "wall_s": round(self.wall_s, 3),
            }
        )

    def how_far(self) -> str:
        """How many units are done, in words."""
        counts = self.run.counts()
        return f"{counts['done']} of {counts['total']} units done"

    # The end

    def is_over(self) -> bool:
        """Whether nothing runs, and nothing more is to be started."""
        broken = self.is_lost or bool(self.stopped) or self.failure is not None
        return self.run.is_idle if broken else self.run.is_finished

    def stop(self, reason: str, *, grace_s: float | None = None) -> None:
        """Interrupt it: what runs is stopped, and costs its units nothing."""
        self.stopped = self.stopped or reason
        self.run.stop(reason, grace_s=grace_s)

    def close(self) -> None:
        """Let go of the job. What was recorded is durable, so a failure here loses nothing."""
        with contextlib.suppress(HaltError), contextlib.ExitStack() as closing:
            closing.callback(self._batch_job.close)
            closing.callback(self.run.close)

    def _finish(self) -> None:
        """Every unit is done: the last word of its job. A failure ends the attempt."""
        try:
            self._batch_job.finish()
        except HaltError as error:
            self._give_up(error)

    def settle_last(self) -> tuple[FailureClass, str] | None:
        """Let go of the job, which is finished when every unit is done; why the attempt failed.

        None: it did not fail.
        """
        counts = self._figures()
        if counts != self._told:
            self._tell_units(counts, self._clock.monotonic())
        if self.failure is None and self.run.is_complete:
            self._finish()
        elif self.failure is None and not self.stopped:
            self.failure = ("transient-agent", self._failed_units())
        failed = self.failure
        self.close()
        return failed

    def _failed_units(self) -> str:
        counts = self.run.counts()
        keys = set(self.run.items.keys)
        named = [entry.key for entry in self.run.job.errors if entry.key in keys]
        failed = counts["total"] - counts["done"]
        return f"{failed} of {counts['total']} units failed: {shown_keys(named)}"


def _error_of(settled: Settled) -> str:
    return settled.outcome.error if isinstance(settled.outcome, Failure) else ""
