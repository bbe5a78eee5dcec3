"""The run loop: drives the frontier of a task with commands, until nothing more can run.

Job: start what may start, watch it, verify what ends, and leave the task at a commit boundary
however the run ends. Invariants: a command starts only after the N02 that names its contract is
durable; its exit code is a claim until the disk has been looked at; only the loop's own thread
commits (checks run beside it and only read); what a former run left at work was stopped when the
task was opened, and a node of which something could not be stopped does not run again; how much is
dispatched follows from how dispatched work fares; what a person has to rule on waits, and
everything else goes on. It never kills work that is within its time limit, unless its contract was
recalled.
"""

import contextlib
import os
from typing import Final

import msgspec

from perdure.control.adoption import Adoption, adopt_orphans, stop_strangers
from perdure.control.batch import BatchNodes
from perdure.control.child_files import Shared
from perdure.control.dispatch_control import DispatchControl
from perdure.control.endings import Emit, Endings
from perdure.control.executor import RunningCommand, end_commands, wait_for_commands
from perdure.control.executors import require_executors
from perdure.control.graph import GraphChange, align_graph
from perdure.control.human_slots import HumanSlots
from perdure.control.log_pump import LogPump
from perdure.control.pacing import RetryPacing
from perdure.control.people_watch import PeopleWatch
from perdure.control.report import RunReport, conclude_run
from perdure.control.slots import CommandSlots
from perdure.control.starts import NodeStarts
from perdure.control.taskfile import TaskFile
from perdure.control.verdicts import Verdicts
from perdure.control.walks import Walks
from perdure.core import commands as c
from perdure.core.batch import is_automatic
from perdure.core.frontier import frontier
from perdure.core.model import Node
from perdure.errors import HaltError, RefusedError
from perdure.runtime.batching import Committed
from perdure.runtime.contracts import task_directory
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.left_running import announce_run, retract_run
from perdure.runtime.masking import declared_secrets

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
        self._control = DispatchControl(self._engine, emit)
        self._slots = CommandSlots(self._engine, self._endings, self._control, jobs=jobs, emit=emit)
        self._starts = NodeStarts(self._engine, self._endings, self._pacing, self._control, emit)
        self._humans = HumanSlots(self._engine, emit)
        self._batches = BatchNodes(runtime, self._endings, self._control, jobs=jobs, emit=emit)
        self._pausing: str | None = None
        self._was_suspended = False
        self._entered_at = -1
        self._signal = 0
        self._signals_seen = 0
        self._signals_handled = 0
        self._unstoppable: set[str] = set()
        self._runnable_nodes: list[Node] = []
        self._runnable_seen: tuple[int, ...] = ()
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)
        self._verdicts = Verdicts(
            self._engine, self._endings, self._pacing, jobs=jobs, wake=self._wake, emit=emit
        )
        self._walks = Walks(self._engine, wake=self._wake, emit=emit)
        self._pump: LogPump | None = None
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
        boundary. A crash anywhere leaves what the next run recovers. Raises HaltError, before the
        graph is changed and before anything starts, when the file names what cannot be launched;
        a node that the file does not name any more keeps only itself from running.
        """
        self._adoption = adopt_orphans()
        self._share()
        try:
            self._engine.on_pause = self._ask_pause
            self._tell_left_running()
            announce_run(self._engine)
            if task is not None:
                self._align(task)
            else:
                nodes = self._runtime.state.nodes.values()
                require_executors(self._engine, nodes, task_directory(self._engine))
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

    def _share(self) -> None:
        """Give everything that starts children what they have in common."""
        expect = self._adoption.expect if self._adoption is not None else None
        pump = LogPump(declared_secrets(self._engine), self._clock, expect=expect)
        shared = Shared(self._adoption, pump)
        self._pump = pump
        self._slots.shared = self._batches.shared = self._verdicts.audits.shared = shared

    def _tell_left_running(self) -> None:
        """Say what opening the task has ended; a node of which something is left does not run."""
        recovered = self._runtime.recovered
        self._unstoppable = {orphan.node for orphan in recovered.left_running}
        if recovered.stopped:
            self._emit(
                {
                    "event": "orphans_stopped",
                    "processes": [[o.pid, o.name, o.node] for o in recovered.stopped],
                    "left": [[o.pid, o.name, o.node] for o in recovered.left_running],
                }
            )

    def _align(self, task: TaskFile) -> None:
        change = align_graph(
            self._engine, task, lambda nodes: require_executors(self._engine, nodes, task.directory)
        )
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
            self._collect()
            goes_on = not self._signal and self._pausing is None
            if goes_on:
                self._walks.look()
            self._people.look(asking=goes_on)
            if not self._signal and not self._is_suspended():
                self._verdicts.start_due(self._unstoppable)
            if goes_on:
                self._enter_executing()
                self._verdicts.audits.start_due(self._free_slots())
                self._dispatch()
            at_work = len(self._slots) or len(self._batches) or self._verdicts.waiting
            at_work = at_work or (goes_on and self._walks.under_way)
            if at_work or self._is_waiting_to_retry() or self._waits_for_people():
                self._wait()
            elif not self._hears_more():
                return

    def _collect(self) -> None:
        """Settle what has ended, and see how what goes on is doing."""
        running = {command.invocation for command in self._commands()}
        counts = not (self._signal or self._is_suspended())
        self._verdicts.collect(running, counts=counts)
        self._verdicts.audits.collect(self._signal)
        self._slots.collect(self._signal)
        self._slots.look()
        self._batches.collect()

    def _dispatch(self) -> None:
        """Give out free slots, as far as the mode of dispatch allows."""
        self._control.look(wanted=bool(len(self._batches) or self._runnable()))
        self._start_nodes()
        if self._control.waits_for_person and not self._stays:
            self._batches.drain("dispatch is halted, and only a person can tell for how long")
        if not self._control.is_halted:
            self._batches.fill(self._free_slots())

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
        outside = self._humans.open() or self._verdicts.audits.asked_outside()
        wall = self._control.waits_for_person and self._runnable()
        if not (self._people.holding() or outside or wall):
            return False
        self._people.tell_waiting()
        return True

    def _free_slots(self) -> int:
        return self._jobs - len(self._commands())

    def _commands(self) -> list[RunningCommand]:
        return [
            *self._slots.commands,
            *self._batches.commands,
            *self._verdicts.audits.commands,
        ]

    def _wait(self) -> None:
        batches_due_s = self._batches.due_in_s(self._free_to_give())
        paced_s = min(self._pacing.due_in_s(), self._control.due_in_s(), self._slots.due_in_s())
        timeout_s = min(tick_s, paced_s, batches_due_s)
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
        self._verdicts.stop(f"signal {self._signal}", running, grace_s=grace_s)

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
        if self._verdicts.audits.waits_to_retry:
            return True
        runnable = self._runnable()
        if runnable and self._control.is_halted:
            return not self._control.waits_for_person
        return any(self._pacing.holds(node.node_id) for node in runnable)

    def _runnable(self) -> list[Node]:
        """The nodes this run may start itself, best first."""
        state = self._runtime.state
        # Units end far more often than anything changes that this depends on.
        seen = (state.seq, len(self._starts.refused), len(self._slots), len(self._batches))
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
            and self._starts.refused.get(name) != nodes[name].amended_by
            and name not in self._slots
            and name not in self._batches
        ]

    def _tainted(self) -> set[str]:
        """Everything that rests on files which are not what was registered."""
        tainted = {*self._runtime.recovered.suspects, *self._walks.suspects}
        stack = list(tainted)
        while stack:
            for dependent in self._engine.replica.dependents.get(stack.pop(), ()):
                if dependent not in tainted:
                    tainted.add(dependent)
                    stack.append(dependent)
        return tainted

    def _start_nodes(self) -> None:
        """Plain nodes take what slots are free; batch nodes share what is left."""
        ready = [node for node in self._runnable() if self._pacing.is_due(node.node_id)]
        people = [node for node in ready if node.spec.human is not None]
        batches = [node for node in ready if node.spec.map is not None]
        plain = [node for node in ready if node.spec.human is None and node.spec.map is None]
        self._starts.hand_over(people, self._humans)
        self._starts.start_plain(plain, self._slots, self._free_to_give)
        self._starts.start_batches(batches, self._batches, self._free_to_give)

    def _free_to_give(self) -> int:
        return self._control.capacity(self._free_slots())

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
            unstoppable=self._unstoppable | set(self._starts.refused),
            paused=self._pausing is not None,
            signal=self._signal,
            halted=self._control.wall if self._control.waits_for_person else "",
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
            if self._pump is not None:
                closing.callback(self._pump.close)
            closing.callback(self._verdicts.close)
            closing.callback(self._walks.close)
            closing.callback(self._batches.close)
            end_commands(self._commands(), clock=self._clock)
            if all(command.poll() is not None for command in self._commands()):
                with contextlib.suppress(HaltError):  # then the next run finds nothing by it
                    retract_run(self._engine)
