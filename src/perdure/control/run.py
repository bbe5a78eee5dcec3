"""The run loop: drives the frontier of a task with commands, until nothing more can run.

Job: start what may start, watch it, verify what ends, and leave the task at a commit boundary
however the run ends. Invariants: a command starts only after the N02 that names its contract is
durable; its exit code is a claim until the disk has been looked at; only the loop's own thread
commits (checks run beside it and only read); a process that a former run left behind is stopped
before its node is run again; what a person has to rule on waits, and everything else goes on. It
never kills work that is within its time limit, unless its contract was recalled.
"""

import contextlib
import os
from typing import Final

import msgspec

from perdure.control.adoption import Adoption, adopt_orphans, stop_strangers
from perdure.control.batch import BatchNodes
from perdure.control.claims import ClaimChecks
from perdure.control.endings import Emit, Endings
from perdure.control.executor import RunningCommand, end_commands, wait_for_commands
from perdure.control.graph import GraphChange, align_graph
from perdure.control.left_running import stop_left_running
from perdure.control.pacing import RetryPacing
from perdure.control.people_watch import PeopleWatch
from perdure.control.report import RunReport, conclude_run
from perdure.control.slots import CommandSlots
from perdure.control.taskfile import TaskFile
from perdure.core import commands as c
from perdure.core.batch import is_automatic
from perdure.core.frontier import frontier
from perdure.core.machine import open_question, startable
from perdure.core.model import Node
from perdure.errors import HaltError, RefusedError, TransitionError
from perdure.runtime import work
from perdure.runtime.batching import Committed
from perdure.runtime.halt import HaltRuntime

tick_s: Final = 0.5
"""The longest the loop sleeps: messages and the lease are looked after this often."""
interrupt_grace_s: Final = 5.0
"""Between SIGTERM and SIGKILL when the run itself is interrupted."""


class RunLoop:
    """One run of one task. ``interrupt`` may be called from a signal handler."""

    def __init__(self, runtime: HaltRuntime, *, jobs: int, emit: Emit, wait: bool = False) -> None:
        """``wait``: stay while a person is asked, instead of ending there."""
        self._runtime = runtime
        self._engine = runtime.engine
        self._clock = runtime.engine.world.clock
        self._jobs = jobs
        self._emit = emit
        self._stays = wait
        self._people = PeopleWatch(runtime, emit)
        self._pacing = RetryPacing(self._engine)
        self._endings = Endings(runtime, self._pacing, emit)
        self._slots = CommandSlots(self._engine, self._endings, emit)
        self._batches = BatchNodes(runtime, self._endings, jobs=jobs, emit=emit)
        self._pausing: str | None = None
        self._was_suspended = False
        self._entered_at = -1
        self._signal = 0
        self._signals_seen = 0
        self._signals_handled = 0
        self._unstoppable: set[str] = set()
        self._refused: dict[str, tuple[str, ...]] = {}
        """Nodes that could not be started in this run as they are: amended so far by these."""
        self._runnable_nodes: list[Node] = []
        self._runnable_seen: tuple[int, ...] = ()
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)
        self._claims = ClaimChecks(self._engine, jobs=jobs, wake=self._wake, emit=emit)
        self._adoption: Adoption | None = None

    def interrupt(self, number: int) -> None:
        """Ask for a clean stop; asked again, what is at work is killed at once."""
        self._signal = number
        self._signals_seen += 1
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # a full pipe wakes as well
            os.write(self._wake_w, b"!")  # noqa: TID251  (a pipe, not a file)

    def run(self, task: TaskFile | None) -> RunReport:
        """Drive the task until it is finished, stuck, paused or interrupted.

        On return nothing that this run started is still running, and the task is at a commit
        boundary. A crash anywhere leaves what the next run recovers.
        """
        self._adoption = self._slots.census = self._batches.census = adopt_orphans()
        try:
            self._engine.on_pause = self._ask_pause
            self._unstoppable = stop_left_running(self._runtime, self._emit)
            if task is not None:
                self._align(task)
            self._enter_executing()
            self._was_suspended = self._is_suspended()
            while True:
                self._loop()
                self._stop_strangers()
                report = self._finish()
                if report is not None:
                    return report
        finally:
            self._engine.on_pause = None
            self._abandon()

    def _align(self, task: TaskFile) -> None:
        change = align_graph(self._engine, task)
        if change != GraphChange():
            self._emit({"event": "graph", **msgspec.to_builtins(change)})

    def _enter_executing(self) -> None:
        """Go over to EXECUTING; tried again when something has changed that may have kept it."""
        state = self._runtime.state
        if state.seq == self._entered_at:
            return
        if state.fsm_task in ("DECOMPOSING", "SUSPENDED", "RECOVERING"):
            with contextlib.suppress(RefusedError):  # nothing may start: the report says why
                self._runtime.move_task("EXECUTING")
        self._entered_at = state.seq

    # The loop

    def _loop(self) -> None:
        while True:
            self._handle_signals()
            self._engine.tick()
            self._people.look(asking=False)  # what came in is told before what follows from it
            self._see_halt()
            # What is there already comes first, so that a kill costs nothing of it.
            self._collect_checks()
            self._slots.collect(self._signal)
            self._batches.collect()
            goes_on = not self._signal and self._pausing is None
            self._people.look(asking=goes_on)
            if not self._signal and not self._is_suspended():
                self._start_checks()
            if goes_on:
                self._enter_executing()
                self._start_nodes()
                self._batches.fill(self._free_slots())
            at_work = len(self._slots) or len(self._batches) or self._claims.waiting
            if at_work or self._is_waiting_to_retry() or self._waits_for_people():
                self._wait()
            elif not self._hears_more():
                return

    def _hears_more(self) -> bool:
        """Whether a message came in since, so that there may be more to do after all."""
        heard = self._runtime.state.seq
        self._engine.tick()
        return self._runtime.state.seq != heard

    def _see_halt(self) -> None:
        """People may suspend the task under the loop: what was at work is recalled already."""
        suspended = self._is_suspended()
        if self._people.halted or (suspended and not self._was_suspended):
            self._pausing = self._pausing or "halted"
            self._batches.drain("halted")
        self._was_suspended = suspended

    def _is_suspended(self) -> bool:
        return self._runtime.state.fsm_task == "SUSPENDED"

    def _waits_for_people(self) -> bool:
        """Whether the run stays because somebody's answer would let it go on."""
        if not self._stays or self._signal or self._pausing is not None:
            return False
        if not self._people.holding():
            return False
        self._people.tell_waiting()
        return True

    def _free_slots(self) -> int:
        return self._jobs - len(self._commands())

    def _commands(self) -> list[RunningCommand]:
        return [*self._slots.commands, *self._batches.commands]

    def _wait(self) -> None:
        batches_due_s = self._batches.due_in_s(self._free_slots())
        timeout_s = min(tick_s, self._pacing.due_in_s(), batches_due_s)
        wait_for_commands(
            self._commands(),
            timeout_s=timeout_s,
            clock=self._clock,
            also=[self._wake_r],
        )
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_r, 4096):
                pass

    def _handle_signals(self) -> None:
        if self._signals_handled == self._signals_seen:
            return
        self._signals_handled = self._signals_seen
        again = self._signals_seen > 1
        self._emit({"event": "stopping", "signal": self._signal, "at_once": again})
        grace_s = 0.0 if again else interrupt_grace_s
        self._slots.stop(f"signal {self._signal}", grace_s=grace_s)
        self._batches.stop(f"stopped with the run (signal {self._signal})", grace_s=grace_s)
        running = {command.invocation for command in self._commands()}
        self._claims.stop_scripts(running, grace_s=grace_s)

    def _ask_pause(self, reason: str, op: str | None) -> Committed:
        """Start nothing more, and suspend when what is at work has ended."""
        self._pausing = reason or "paused"
        self._batches.drain("paused")
        text = f"pause asked for: {self._pausing}; what is at work is finished first"
        return self._engine.execute(c.WriteNote(text), op=op)

    def _is_waiting_to_retry(self) -> bool:
        """Whether something may start later in this run without anybody's help."""
        if self._signal or self._pausing is not None:
            return False
        return any(self._pacing.holds(node.node_id) for node in self._runnable())

    def _runnable(self) -> list[Node]:
        """The nodes this run may start itself, best first."""
        state = self._runtime.state
        # Units end far more often than anything changes that this depends on.
        seen = (state.seq, len(self._refused), len(self._slots), len(self._batches))
        if seen != self._runnable_seen:
            self._runnable_seen = seen
            self._runnable_nodes = self._find_runnable()
        return self._runnable_nodes

    def _find_runnable(self) -> list[Node]:
        nodes = self._runtime.state.nodes
        tainted = self._tainted()
        return [
            nodes[name]
            for name in frontier(self._engine.replica)
            if is_automatic(nodes[name].spec)
            and name not in tainted
            and name not in self._unstoppable
            and self._refused.get(name) != nodes[name].amended_by
            and name not in self._slots
            and name not in self._batches
        ]

    def _tainted(self) -> set[str]:
        """Everything that rests on files which are not what was registered."""
        tainted = set(self._runtime.recovered.suspects)
        stack = list(tainted)
        while stack:
            for dependent in self._engine.replica.dependents.get(stack.pop(), ()):
                if dependent not in tainted:
                    tainted.add(dependent)
                    stack.append(dependent)
        return tainted

    def _start_nodes(self) -> None:
        """Plain nodes take what slots are free; batch nodes share what is left."""
        if self._free_slots() <= 0:
            return
        ready = [node for node in self._runnable() if self._pacing.is_due(node.node_id)]
        for node in sorted(ready, key=lambda node: node.spec.map is not None):
            if self._free_slots() <= 0:
                return
            if node.spec.map is not None and not self._batches.has_room():
                return
            trouble = self._pacing.probe(node)
            if trouble:
                self._emit({"event": "probe_failed", "node": node.node_id, "why": trouble})
                continue
            self._start_or_refuse(node)

    def _start_or_refuse(self, node: Node) -> None:
        """Start a node; what keeps this one from starting must not stop the others (INV-8)."""
        try:
            if node.spec.map is not None:
                self._batches.start(node)
            else:
                self._slots.start(node)
        except HaltError as error:
            if self._endings.ends_the_run(error):
                raise
            state = self._runtime.state
            if state.nodes[node.node_id].state == "RUNNING":
                why = error.message[:160]
                self._endings.fail(node.node_id, "permanent-resource", why, wall_s=0.0)
            elif not self._is_suspended() and startable(state, node):
                self._refused[node.node_id] = node.amended_by
                self._emit({"event": "refused", "node": node.node_id, "why": str(error)})
            # Else what holds it is on record: a gate, or a message that came in just now.

    # Verification

    def _start_checks(self) -> None:
        """Verify what has been claimed, also claims that a former run left behind.

        Not what waits for an answer: whoever gives it lets it be verified again.
        """
        state = self._runtime.state
        for node in state.nodes.values():
            if (
                node.state == "VERIFYING"
                and node.verification_level != "V2"
                and node.node_id not in self._unstoppable
                and not open_question(state, node.node_id)
            ):
                self._claims.start(node)

    def _collect_checks(self) -> None:
        running = {command.invocation for command in self._commands()}
        for judged, verdict in self._claims.collect(running):
            if self._signal or self._is_suspended() or self._is_settled(judged):
                continue  # after a signal its script was stopped: the next run verifies again
            node_id = judged.node_id
            try:
                work.commit_verdict(self._engine, judged, verdict)
            except TransitionError:
                # By a message that came in with this very commit: a move, or a question.
                if self._is_settled(judged) or open_question(self._runtime.state, node_id):
                    continue
                raise
            if not verdict.passed:
                self._endings.tell(node_id, "failed", why=verdict.diagnosis)
            elif self._runtime.state.nodes[node_id].state == "DONE":  # else a gate asks first
                self._pacing.release(node_id)
                self._endings.tell(node_id, "done", checks=len(verdict.checks))

    def _is_settled(self, judged: Node) -> bool:
        """Whether somebody moved the node while its claim was checked: then their word stands."""
        return self._runtime.state.nodes[judged.node_id].state_ref != judged.state_ref

    # The end

    def _stop_strangers(self) -> None:
        """What commands left that had hidden from every other look."""
        found, left = stop_strangers(self._adoption, self._clock)
        if found:
            named = [[orphan.pid, orphan.name] for orphan in found]
            still = [[orphan.pid, orphan.name] for orphan in left]
            self._emit({"event": "leftovers", "node": None, "processes": named, "left": still})

    def _finish(self) -> RunReport | None:
        """Leave the task at a commit boundary, and say where it stands.

        None when a message that came in at the very end has given the run more to do.
        """
        if self._signal or self._pausing is not None:
            reason = self._pausing or f"stopped by signal {self._signal}"
            with contextlib.suppress(RefusedError):  # somebody else's work goes on: no boundary
                self._runtime.pause(reason)
        report = conclude_run(
            self._runtime,
            unstoppable=self._unstoppable | set(self._refused),
            paused=self._pausing is not None,
            signal=self._signal,
        )
        if report is not None:
            self._emit({"event": report.outcome, **msgspec.to_builtins(report)})
        return report

    def _abandon(self) -> None:
        """Stop whatever is still running: also when the loop itself failed."""
        with contextlib.ExitStack() as closing:
            wake, self._wake_w = self._wake_w, -1
            closing.callback(os.close, wake)
            closing.callback(os.close, self._wake_r)
            if self._adoption is not None:
                closing.callback(self._adoption.close)
            closing.callback(self._claims.close)
            closing.callback(self._batches.close)
            end_commands(self._commands(), clock=self._clock)
