"""The batch nodes at work in a run: begun, given slots in turn, and ended.

Job: begin an attempt (inventory and job, then the contract that names the units), share the slots
that plain nodes leave, and end the attempt by what its units came to. Invariants: a contract names
its units before the first of them runs; each node gets its turn; whatever goes wrong with one
node's items, job or disk ends that attempt and no other. Never commits for a node that somebody
else has settled.
"""

import contextlib
from collections import deque
from typing import Any

from perdure.control.batch_job import BatchJob
from perdure.control.batch_node import BatchNode, class_of, problem_chars_max
from perdure.control.child_files import Shared
from perdure.control.dispatch_control import DispatchControl
from perdure.control.endings import Emit, Endings
from perdure.control.executor import RunningCommand
from perdure.control.former_run import stop_former_run
from perdure.control.inventory import Inventory, Uncounted, take_inventory
from perdure.core.dispatch_commands import ChangeMode
from perdure.core.model import Node
from perdure.errors import HaltError, RefusedError
from perdure.runtime import work
from perdure.runtime.contracts import Units
from perdure.runtime.engine import Engine
from perdure.runtime.halt import HaltRuntime


class _Opening:
    """An attempt that begins: its inventory and its job, or why there is none."""

    def __init__(self, engine: Engine, node: Node) -> None:
        self.problem: Uncounted | None = None
        self.inventory: Inventory | None = None
        self.batch_job: BatchJob | None = None
        self.done = 0
        self._engine = engine
        self._take(node)

    def _take(self, node: Node) -> None:
        self._spec = node.spec
        found = take_inventory(self._engine, node)
        self.inventory = found if isinstance(found, Inventory) else None
        self.problem = None if isinstance(found, Inventory) else found

    def prepare(self, node: Node) -> Units:
        """For ``work.start``: open the job, and say what the contract is to say."""
        if node.spec is not self._spec:  # amended by a message that came in with this very start
            self._take(node)
        if self.inventory is not None:
            try:
                return self._open(node, self.inventory)
            except HaltError as error:
                if not self._engine.is_usable:
                    raise
                self.problem = Uncounted(class_of(error), error)
        why = self.problem.error.message if self.problem is not None else ""
        return Units({"total": None, "problem": why[:problem_chars_max]}, 0)

    def _open(self, node: Node, inventory: Inventory) -> Units:
        batch_job = self.batch_job = BatchJob(self._engine, node)
        self.done = batch_job.adopt(inventory.items.keys)
        passed_over = batch_job.job.processed - self.done
        return Units({**inventory.order, "passed_over": passed_over}, self.done)

    def close(self) -> None:
        """Nothing comes of it. What is in the job is durable, so a failure here loses nothing."""
        if self.batch_job is not None:
            with contextlib.suppress(HaltError):
                self.batch_job.close()


class BatchNodes:
    """The batch nodes at work in one run."""

    def __init__(
        self,
        runtime: HaltRuntime,
        endings: Endings,
        control: DispatchControl,
        *,
        jobs: int,
        emit: Emit,
    ) -> None:
        self._runtime = runtime
        self._engine = runtime.engine
        self._endings = endings
        self._control = control
        self._jobs = jobs
        self._emit = emit
        self.shared = Shared()
        self._at_work: dict[str, BatchNode] = {}
        self._turns: deque[str] = deque()
        """Whose unit is next: the batch nodes in the order in which they get a free slot."""

    def __len__(self) -> int:
        return len(self._at_work)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._at_work

    @property
    def commands(self) -> list[RunningCommand]:
        """The units that are running, to be waited for."""
        return [command for batch in self._at_work.values() for command in batch.run.commands]

    def has_room(self) -> bool:
        """Whether another batch node may start: each is to have a slot sooner or later."""
        return len(self._at_work) < self._jobs

    def start(self, node: Node) -> None:
        """Issue a contract that names the node's units, and set it to work.

        A node whose units cannot be counted, or whose job cannot be opened, is started and fails at
        once: that is a fact about the node, and the journal has it. Raises HaltError where it may
        not be started at all.
        """
        if node.effect == "S3":
            raise RefusedError(
                f"{node.node_id} is a batch node with an effect that must not be repeated, and a"
                " unit that is interrupted runs again.",
                code="batch_effect",
                rule="C-S3",
                fix="Make nodes of its items, each with its receipt.",
            )
        opening = _Opening(self._engine, node)
        try:
            work.start(self._engine, node.node_id, units=opening.prepare)
            node = self._runtime.state.nodes[node.node_id]
            self._tell_started(node, opening)
            if opening.problem is None:
                self._set_to_work(node, opening)
        except BaseException:
            opening.close()
            raise
        if opening.problem is not None:
            opening.close()
            failure_class, error = opening.problem
            what = " ".join(error.message.split()).rstrip(".")
            self._endings.fail(node.node_id, failure_class, what[:160], detail=what, wall_s=0.0)

    def _set_to_work(self, node: Node, opening: _Opening) -> None:
        """Start its run; what keeps it from that becomes the problem of the opening."""
        assert opening.inventory is not None
        assert opening.batch_job is not None
        try:
            self._stop_former_run(node)
            batch = BatchNode(
                self._engine,
                node,
                opening.inventory,
                opening.batch_job,
                self._emit,
                control=self._control,
                shared=self.shared,
            )
        except HaltError as error:
            opening.problem = Uncounted(class_of(error), error)
            return
        for notice in batch.notices():
            self._emit({"event": "notice", "node": node.node_id, "why": notice})
        self._at_work[node.node_id] = batch
        self._turns.append(node.node_id)

    def _stop_former_run(self, node: Node) -> None:
        """End what a killed run left of this node's units. The job is held, so that run is dead."""
        former = stop_former_run(
            self._engine.layout.node_scope(node.node_id),
            disk=self._engine.disk,
            clock=self._engine.world.clock,
        )
        if former.stopped or former.left:
            self._emit(
                {
                    "event": "orphans_stopped",
                    "processes": [[o.pid, o.name, node.node_id] for o in former.stopped],
                    "left": [[o.pid, o.name, node.node_id] for o in former.left],
                }
            )
        former.require_gone(fix="End these processes, then retry the node.")

    def _tell_started(self, node: Node, opening: _Opening) -> None:
        event: dict[str, Any] = {
            "event": "started",
            "node": node.node_id,
            "title": node.title,
            "attempt": node.attempts,
            "invocation": node.invocation,
        }
        if opening.inventory is not None and opening.problem is None:
            event |= {"units": len(opening.inventory.items), "skip": opening.done}
        self._emit(event)

    # The loop's steps, in this order

    def collect(self) -> None:
        """Make durable what has ended, tell how far things are, and end the attempts that are over.

        What goes wrong with a node ends its attempt.
        """
        for batch in list(self._at_work.values()):
            batch.collect()
            self._see_probe(batch)
            if batch.is_over():
                self._end(batch)
            elif not batch.is_lost:
                batch.tell(self._runtime.state.policies.heartbeat_s)

    def fill(self, free: int) -> None:
        """Start up to ``free`` units, one of each node in turn."""
        passed_over = 0
        while free > 0 and passed_over < len(self._turns):
            batch = self._at_work[self._turns[0]]
            self._turns.rotate(-1)
            if self._may_start(batch):
                batch.start_one()
                free -= 1
                passed_over = 0
            else:
                passed_over += 1

    def _may_start(self, batch: BatchNode) -> bool:
        """Whether a unit of it may be started: behind a probe no more than a small batch."""
        if not batch.is_sharded and self._control.mode == "C":
            at_work = len(batch.run.commands)
            if at_work >= self._control.capacity(self._jobs):
                return False
        return batch.can_start(self._jobs)

    def _see_probe(self, batch: BatchNode) -> None:
        """A unit that lands behind a probe leads out of the halt, as a worker's landing does."""
        done, health = batch.run.counts()["done"], self._runtime.state.health
        landed, batch.done_seen = done > batch.done_seen, done
        if landed and not batch.is_sharded and health.mode == "C" and health.probing:
            why = f"the probe has survived: a unit of {batch.node_id} has landed"
            self._engine.execute(ChangeMode("A", why))

    def _end(self, batch: BatchNode) -> None:
        node_id = batch.node_id
        del self._at_work[node_id]
        self._turns.remove(node_id)
        if batch.is_lost:
            batch.close()
            self._endings.tell_settled(node_id)
            return
        is_complete = batch.run.is_complete
        failed = batch.settle_last()
        if failed is not None:
            failure_class, signature = failed
            self._endings.fail(
                node_id, failure_class, signature, detail=batch.how_far(), wall_s=batch.wall_s
            )
        elif is_complete:
            self._endings.claim(node_id, wall_s=batch.wall_s, units_done=True)
        else:
            self._endings.interrupt(node_id, f"{batch.stopped}; {batch.how_far()}")

    def due_in_s(self, free: int) -> float:
        """When the loop has to look again though nothing ends; infinite when it need not."""
        batches = self._at_work.values()
        return min(
            (batch.due_in_s(self._jobs, free=free > 0) for batch in batches), default=float("inf")
        )

    # The end of the run

    def drain(self, reason: str) -> None:
        """Start no more units; what is at work is finished, then the nodes are interrupted."""
        for batch in self._at_work.values():
            batch.stopped = batch.stopped or reason

    def stop(self, reason: str, *, grace_s: float) -> None:
        """Stop what is at work; the nodes are interrupted."""
        for batch in self._at_work.values():
            batch.stop(reason, grace_s=grace_s)

    def close(self) -> None:
        """Let go of every job that is still open: the run itself has failed."""
        for batch in self._at_work.values():
            batch.close()
        self._at_work.clear()
        self._turns.clear()
