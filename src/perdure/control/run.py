"""The run loop: drives the frontier of a task with commands, until nothing more can run.

Job: start what may start, watch it, verify what ends, and leave the task at a commit boundary
however the run ends. Invariants: a command starts only after the N02 that names its contract is
durable; its exit code is a claim until the disk has been looked at; only the loop's own thread
commits (checks run beside it and only read); a process that a former run left behind is stopped
before its node is run again. It never kills work that is within its time limit.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Any, Final

import msgspec

from perdure.control.claims import ClaimChecks
from perdure.control.executor import RunningCommand, start_command, wait_for_commands
from perdure.control.graph import GraphChange, align_graph
from perdure.control.orphans import discard_records, find_orphans, stop_orphans
from perdure.control.outcome import Ended, classify
from perdure.control.pacing import RetryPacing
from perdure.control.report import RunReport, conclude_run
from perdure.control.taskfile import TaskFile
from perdure.core import commands as c
from perdure.core.frontier import frontier
from perdure.core.machine import count_states
from perdure.core.model import CLOSED_STATES, MECHANICAL_LEVELS, Node
from perdure.errors import (
    BusyError,
    CorruptError,
    HaltError,
    RefusedError,
    TransitionError,
)
from perdure.runtime import work
from perdure.runtime.batching import Committed
from perdure.runtime.contracts import environment_for
from perdure.runtime.halt import HaltRuntime

Emit = Callable[[dict[str, Any]], None]

tick_s: Final = 0.5
"""The longest the loop sleeps: messages and the lease are looked after this often."""
interrupt_grace_s: Final = 5.0
"""Between SIGTERM and SIGKILL when the run itself is interrupted."""
detail_chars_max: Final = 1_000
"""Of a failed command's output: the end of it that the journal keeps."""


class RunLoop:
    """One run of one task. ``interrupt`` may be called from a signal handler."""

    def __init__(self, runtime: HaltRuntime, *, jobs: int, emit: Emit) -> None:
        self._runtime = runtime
        self._engine = runtime.engine
        self._clock = runtime.engine.world.clock
        self._disk = runtime.engine.disk
        self._jobs = jobs
        self._emit = emit
        self._slots: dict[str, RunningCommand] = {}
        """The claims that are being checked: the node as it was then, and the verdict to come."""
        self._pacing = RetryPacing(self._engine)
        self._pausing: str | None = None
        self._signal = 0
        self._signals_seen = 0
        self._signals_handled = 0
        self._unstoppable: set[str] = set()
        self._refused: dict[str, str] = {}
        """Nodes that could not be started in this run, and why."""
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)
        self._claims = ClaimChecks(self._engine, jobs=jobs, wake=self._wake, emit=emit)

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
        try:
            self._engine.on_pause = self._ask_pause
            self._stop_orphans()
            if task is not None:
                self._align(task)
            self._enter_executing()
            self._loop()
            return self._finish()
        finally:
            self._engine.on_pause = None
            self._abandon()

    def _align(self, task: TaskFile) -> None:
        change = align_graph(self._engine, task)
        if change != GraphChange():
            self._emit({"event": "graph", **msgspec.to_builtins(change)})

    def _enter_executing(self) -> None:
        state = self._runtime.state
        if state.fsm_task in ("DECOMPOSING", "SUSPENDED", "RECOVERING"):
            with contextlib.suppress(RefusedError):  # nothing may start: the report says why
                self._runtime.move_task("EXECUTING")

    # Before the first start

    def _stop_orphans(self) -> None:
        state = self._runtime.state
        live = {contract.invocation_id for contract in state.contracts.values()}
        former = {
            node.invocation: node.node_id
            for node in state.nodes.values()
            if node.invocation and node.state not in CLOSED_STATES
        }
        wanted = {name: node for name, node in former.items() if name not in live}
        orphans = find_orphans(wanted, self._engine.layout.runs, disk=self._disk, running=live)
        if not orphans:
            discard_records(self._engine.layout.runs, disk=self._disk, keep=live)
            return
        left = stop_orphans(orphans, clock=self._clock)
        named = ", ".join(f"{orphan.name} ({orphan.pid})" for orphan in orphans)
        self._runtime.note(f"stopped what a former run had left running: {named}")
        self._emit(
            {
                "event": "orphans_stopped",
                "processes": [[orphan.pid, orphan.name, orphan.node] for orphan in orphans],
                "left": [[orphan.pid, orphan.name, orphan.node] for orphan in left],
            }
        )
        self._unstoppable = {orphan.node for orphan in left}
        discard_records(self._engine.layout.runs, disk=self._disk, keep=live)

    # The loop

    def _loop(self) -> None:
        while True:
            self._handle_signals()
            self._engine.tick()
            self._collect_checks()
            self._collect_slots()
            if not self._signal:
                self._start_checks()
            if not self._signal and self._pausing is None:
                self._start_nodes()
            if not self._slots and not self._claims.waiting and not self._is_waiting_to_retry():
                return
            self._wait()

    def _wait(self) -> None:
        timeout_s = min(tick_s, self._pacing.due_in_s())
        wait_for_commands(
            list(self._slots.values()),
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
        for command in self._slots.values():
            command.stop(f"signal {self._signal}", grace_s=grace_s)
        running = {command.invocation for command in self._slots.values()}
        self._claims.stop_scripts(running, grace_s=grace_s)

    def _ask_pause(self, reason: str, op: str | None) -> Committed:
        """Start nothing more, and suspend when what is at work has ended."""
        self._pausing = reason or "paused"
        text = f"pause asked for: {self._pausing}; what is at work is finished first"
        return self._engine.execute(c.WriteNote(text), op=op)

    def _is_waiting_to_retry(self) -> bool:
        """Whether something may start later in this run without anybody's help."""
        if self._signal or self._pausing is not None:
            return False
        return any(self._pacing.holds(node.node_id) for node in self._runnable())

    def _runnable(self) -> list[Node]:
        """The nodes this run may start itself, best first."""
        nodes = self._runtime.state.nodes
        tainted = self._tainted()
        return [
            nodes[name]
            for name in frontier(self._engine.replica)
            if nodes[name].spec.run is not None
            and name not in tainted
            and name not in self._unstoppable
            and name not in self._refused
            and name not in self._slots
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
        if len(self._slots) >= self._jobs:
            return
        ready = [node for node in self._runnable() if self._pacing.is_due(node.node_id)]
        for node in ready[: self._jobs - len(self._slots)]:
            trouble = self._pacing.probe(node)
            if trouble:
                self._emit({"event": "probe_failed", "node": node.node_id, "why": trouble})
                continue
            self._start_or_refuse(node)

    def _start_or_refuse(self, node: Node) -> None:
        """Start a node; what keeps this one from starting must not stop the others (INV-8)."""
        try:
            self._start(node)
        except HaltError as error:
            if not self._engine.is_usable or isinstance(error, BusyError | CorruptError):
                raise
            self._refused[node.node_id] = error.message
            self._emit({"event": "refused", "node": node.node_id, "why": str(error)})
            if self._runtime.state.nodes[node.node_id].state == "RUNNING":
                self._runtime.fail(node.node_id, "permanent-resource", error.message[:160])

    def _start(self, node: Node) -> None:
        node_id, layout = node.node_id, self._engine.layout
        work.start(self._engine, node_id)
        node = self._runtime.state.nodes[node_id]
        invocation = node.invocation or ""
        log_path = layout.log(node_id, invocation)
        self._disk.make_dirs(log_path.rpartition("/")[0])
        self._disk.make_dirs(layout.runs)
        self._slots[node_id] = start_command(
            node.spec.run or "",
            cwd=layout.root,
            environment=environment_for(self._engine, node),
            log_path=log_path,
            record_path=layout.run_record(invocation),
            wall_s=node.spec.budget.max_wall_s,
            clock=self._clock,
            disk=self._disk,
        )
        self._emit(
            {
                "event": "started",
                "node": node_id,
                "title": node.title,
                "attempt": node.attempts,
                "invocation": invocation,
                "log": os.path.relpath(log_path, layout.root),
            }
        )

    # What has ended

    def _collect_slots(self) -> None:
        for node_id, command in list(self._slots.items()):
            node = self._runtime.state.nodes[node_id]
            if node.state != "RUNNING" or node.invocation != command.invocation:
                command.stop("its node was settled by somebody else")
            ended = command.poll()
            if ended is None:
                continue
            del self._slots[node_id]
            if node.state == "RUNNING" and node.invocation == command.invocation:
                self._settle(node, ended)
            else:
                self._emit({"event": "ended", "node": node_id, "state": node.state})

    def _settle(self, node: Node, ended: Ended) -> None:
        """A command's end becomes a claim to verify, or a failure of a known class."""
        if ended.leftovers:
            self._emit(
                {"event": "leftovers", "node": node.node_id, "processes": list(ended.leftovers)}
            )
        if ended.how == "exited" and ended.exit_code == 0:
            try:
                work.submit(self._engine, node.node_id, check=False)
            except HaltError as error:
                if not self._engine.is_usable or isinstance(error, BusyError | CorruptError):
                    raise
                signature = f"reported success without proof: {error.message}"
                self._fail(node, "transient-agent", signature, ended)
            return
        if ended.how == "stopped" and self._signal:
            self._runtime.fail(
                node.node_id,
                "transient-agent",
                f"stopped with the run (signal {self._signal})",
                interruption=True,
            )
            self._emit_state(node.node_id, "interrupted")
            return
        failure_class, signature = classify(ended)
        self._fail(node, failure_class, signature, ended)

    def _fail(self, node: Node, failure_class: str, signature: str, ended: Ended) -> None:
        detail = ended.log_tail.strip()[-detail_chars_max:]
        self._runtime.fail(node.node_id, failure_class, signature, detail=detail)
        if failure_class == "transient-environment":
            self._pacing.hold_back(self._runtime.state.nodes[node.node_id])
        self._emit_state(node.node_id, "failed", why=signature, wall_s=round(ended.wall_s, 3))

    def _emit_state(self, node_id: str, event: str, **more: Any) -> None:
        state = self._runtime.state
        self._emit(
            {
                "event": event,
                "node": node_id,
                "state": state.nodes[node_id].state,
                "done": count_states(state).get("DONE", 0),
                "total": len(state.nodes),
                **more,
            }
        )

    # Verification

    def _start_checks(self) -> None:
        """Verify what has been claimed, also claims that a former run left behind."""
        for node in self._runtime.state.nodes.values():
            mechanical = node.verification_level in MECHANICAL_LEVELS
            if node.state == "VERIFYING" and mechanical and node.node_id not in self._unstoppable:
                self._claims.start(node)

    def _collect_checks(self) -> None:
        running = {command.invocation for command in self._slots.values()}
        for judged, verdict in self._claims.collect(running):
            if self._signal or self._is_settled(judged):
                continue  # after a signal its script was stopped: the next run verifies again
            try:
                work.commit_verdict(self._engine, judged, verdict)
            except TransitionError:
                if self._is_settled(judged):  # by a message that came in with this very commit
                    continue
                raise
            node_id = judged.node_id
            if verdict.passed:
                self._pacing.release(node_id)
                self._emit_state(node_id, "done", checks=len(verdict.checks))
            else:
                self._emit_state(node_id, "failed", why=verdict.diagnosis)

    def _is_settled(self, judged: Node) -> bool:
        """Whether somebody moved the node while its claim was checked: then their word stands."""
        return self._runtime.state.nodes[judged.node_id].state_ref != judged.state_ref

    # The end

    def _finish(self) -> RunReport:
        """Leave the task at a commit boundary, and say where it stands."""
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
        self._emit({"event": report.outcome, **msgspec.to_builtins(report)})
        return report

    def _abandon(self) -> None:
        """Stop whatever is still running: also when the loop itself failed."""
        for command in self._slots.values():
            command.stop("the run ended", grace_s=0.0)
        for _ in range(1_000):
            left = [command for command in self._slots.values() if command.poll() is None]
            if not left:
                break
            wait_for_commands(left, timeout_s=0.05, clock=self._clock)
        self._claims.close()
        os.close(self._wake_r)
        wake, self._wake_w = self._wake_w, -1
        os.close(wake)
