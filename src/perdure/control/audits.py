"""Auditors that are at work in a run (V2).

Job: send an auditor to finished work that passes its checks and asks for one, see it end, and take
on record what it has come to. Invariants: an auditor starts only after its contract is durable and
on record; it may write in its own directory and nowhere else, and where the kernel does not hold it
to that, what it judges is hashed before and after (VR-2); its exit code is a claim, and the verdict
it has written is what counts; one that was stopped with the run is no verdict, and is sent again.
It moves no node: the next verification does, which rests on the record.
"""

import os
from typing import Final, NamedTuple

import msgspec

from perdure.control.child_files import Shared
from perdure.control.confinement import Confinement, capability
from perdure.control.endings import Emit
from perdure.control.executor import RunningCommand
from perdure.control.executor_port import Executor, Launch, Order, Report
from perdure.control.executors import (
    CommandExecutor,
    Started,
    agent_executor,
    confinement_for,
    enforcement,
    order_for,
    start_order,
)
from perdure.control.outcome import Ended
from perdure.core.audits import AuditPlan, audit_plan, awaits_audit
from perdure.core.commands import Verdict
from perdure.core.dispatching import Usage
from perdure.core.grants import opens_workspace
from perdure.core.model import Node, State
from perdure.errors import HaltError, RefusedError, TransitionError
from perdure.runtime import audits
from perdure.runtime.contracts import VERDICT_NAME
from perdure.runtime.engine import Engine

retry_wait_s_max: Final = 60.0
"""The longest wait before an auditor is sent again into a troubled environment."""
audit_wall_s: Final = 14_400.0
"""The time limit of an auditor where neither the task nor its executor names one."""


class _AtWork(NamedTuple):
    sent: audits.Sent
    executor: Executor
    order: Order
    started: Started
    held: bool

    @property
    def command(self) -> RunningCommand:
        """The child."""
        return self.started.command


class AuditSlots:
    """One auditor for each node that waits for one."""

    def __init__(self, engine: Engine, emit: Emit) -> None:
        self._engine = engine
        self._emit = emit
        self.shared = Shared()
        self._running: dict[str, _AtWork] = {}
        self._wanted: dict[str, tuple[str, str]] = {}
        """Node to the claim and the newest audit that it has waited for an auditor since."""
        self._told: dict[str, tuple[str, str]] = {}
        self._not_started: list[tuple[audits.Sent, str]] = []
        """Auditors that could not be started, and why."""
        self._refused: dict[str, tuple[str, str]] = {}
        """Nodes whose audit can have no contract, such as one that would be too large."""
        self._due: dict[str, float] = {}
        """Not before this time is an auditor sent again."""
        self._troubles: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._running) + len(self._not_started)

    @property
    def commands(self) -> list[RunningCommand]:
        """What is running, to be waited for."""
        return [at_work.command for at_work in self._running.values()]

    def want(self, judged: Node, verdict: Verdict) -> None:
        """The node's checks have passed; it is judged next, where its verdict waits for that."""
        node = self._engine.replica.state.nodes[judged.node_id]
        current = node.state == "VERIFYING" and _stage(node) == _stage(judged)
        if current and verdict.passed and awaits_audit(verdict.checks):
            self._wanted[node.node_id] = _stage(node)

    def waits(self, node: Node) -> bool:
        """Whether it would be no use to verify the node before an audit has come to something."""
        return node.node_id in self._running or self._wanted.get(node.node_id) == _stage(node)

    def asked_outside(self) -> list[str]:
        """Nodes that wait for a verdict from outside: nobody is named who could be sent."""
        return [node.node_id for node, plan in self._waiting() if not plan.dispatches]

    def start_due(self, free: int) -> None:
        """Send auditors to what waits for one, as far as there are ``free`` slots."""
        now = self._engine.world.clock.monotonic()
        for node, plan in self._waiting():
            if not plan.dispatches:
                self._tell_asked(node)
            elif free > 0 and self._due.get(node.node_id, now) <= now:
                self._due.pop(node.node_id, None)
                free -= 1
                self._start(node, plan)

    def _waiting(self) -> list[tuple[Node, AuditPlan]]:
        state, found = self._engine.replica.state, []
        for node_id, stage in list(self._wanted.items()):
            node = state.nodes[node_id]
            if node.state != "VERIFYING" or _stage(node) != stage:
                del self._wanted[node_id]
                continue
            plan = audit_plan(state, node)
            under_way = node_id in self._running or any(
                sent.node_id == node_id for sent, _ in self._not_started
            )
            refused = self._refused.get(node_id) == stage
            if plan is not None and not under_way and not refused:
                found.append((node, plan))
        return found

    def _tell_asked(self, node: Node) -> None:
        if self._told.get(node.node_id) != _stage(node):
            self._told[node.node_id] = _stage(node)
            self._emit({"event": "audit_asked", "node": node.node_id})

    def _start(self, node: Node, plan: AuditPlan) -> None:
        """Send one auditor; one that cannot be sent is on record as an audit without a verdict."""
        engine, executor = self._engine, _executor_of(plan)
        wall_s = plan.timeout_s or executor.wall_s or audit_wall_s
        try:
            sent = audits.send(engine, node, enforcement=enforcement(), wall_s=wall_s)
        except RefusedError as error:
            if not engine.is_usable:
                raise
            self._refused[node.node_id] = _stage(node)
            self._emit({"event": "refused", "node": node.node_id, "why": str(error)})
            return
        try:
            self._running[node.node_id] = at_work = self._launch(node, sent, executor, wall_s)
        except HaltError as error:
            if not engine.is_usable:
                raise
            self._not_started.append((sent, f"it could not be started: {error.message}"))
            return
        self._emit(
            {
                "event": "audit_started",
                "node": node.node_id,
                "invocation": sent.invocation,
                "log": os.path.relpath(at_work.started.log_path, engine.layout.root),
            }
        )

    def _launch(self, node: Node, sent: audits.Sent, executor: Executor, wall_s: float) -> _AtWork:
        engine, layout = self._engine, self._engine.layout
        place = f"{layout.root}/{sent.place}"
        if sent.plan.agent is not None:
            node = _as_auditor(node, sent.plan)
        order = order_for(
            engine,
            node,
            invocation=sent.invocation,
            scope=place,
            environment={
                "PERDURE_ACTOR": sent.verifier,
                "PERDURE_VERDICT": f"{place}/{VERDICT_NAME}",
                "TMPDIR": place,
            },
        )
        started = start_order(
            engine, executor, order, wall_s=wall_s, shared=self.shared, confine=_read_only
        )
        opened = opens_workspace(started.confinement.write, layout.root)
        held = capability().writes and not opened
        return _AtWork(sent, executor, order, started, held)

    def collect(self, signal: int) -> None:
        """Take on record what has ended; ``signal`` is what the run is being stopped by, or 0."""
        while self._not_started:
            sent, problem = self._not_started.pop()
            self._record(sent, held=False, problem=problem)
        for node_id, at_work in list(self._running.items()):
            node = self._engine.replica.state.nodes[node_id]
            settled = node.state != "VERIFYING" or node.state_ref != at_work.sent.state_ref
            if settled:
                at_work.command.stop("its node was settled by somebody else")
            ended = at_work.command.poll()
            if ended is None:
                continue
            del self._running[node_id]
            if ended.leftovers:
                named = list(ended.leftovers)
                self._emit({"event": "leftovers", "node": node_id, "processes": named})
            if settled or (ended.how == "stopped" and signal):
                continue  # the next run sends another one
            self._settle(at_work, ended)

    def _settle(self, at_work: _AtWork, ended: Ended) -> None:
        """An end by itself is read by the verdict that was written, any other has none."""
        report, sent = at_work.executor.read_end(at_work.order, ended), at_work.sent
        failure_class, signature = report.failure or ("", "")
        by_itself = ended.how == "exited" and ended.signal is None
        if failure_class == "transient-environment":
            self._hold_back(sent.node_id, report.retry_after_s)
        self._record(
            sent,
            held=at_work.held,
            problem="" if by_itself else signature,
            signature=signature,
            usage=_usage_of(report, sent.plan, ended),
        )

    def _hold_back(self, node_id: str, retry_after_s: float | None) -> None:
        """In a troubled environment the next one waits, longer each time (RT-1)."""
        tries = self._troubles[node_id] = self._troubles.get(node_id, 0) + 1
        wait_s = min(retry_after_s or 2.0 ** (tries - 1), retry_wait_s_max)
        self._due[node_id] = self._engine.world.clock.monotonic() + wait_s

    @property
    def waits_to_retry(self) -> bool:
        """Whether an auditor is sent later in this run without anybody's help."""
        return any(node.node_id in self._due for node, plan in self._waiting() if plan.dispatches)

    def _record(
        self,
        sent: audits.Sent,
        *,
        held: bool,
        problem: str,
        signature: str = "",
        usage: Usage | None = None,
    ) -> None:
        try:
            audits.record(
                self._engine, sent, held=held, problem=problem, signature=signature, usage=usage
            )
        except TransitionError:
            return  # a message that came in with this very commit has settled the node
        self._wanted.pop(sent.node_id, None)
        audit = self._engine.replica.state.nodes[sent.node_id].audit
        if audit is not None:
            self._emit(
                {
                    "event": "audited",
                    "node": sent.node_id,
                    "passed": audit.passed,
                    "integrity": audit.integrity,
                    "independence": list(audit.independence),
                    "why": audit.diagnosis,
                }
            )

    def stop(self, reason: str, *, grace_s: float) -> None:
        """Begin to stop everything; ``collect`` settles what has ended."""
        for at_work in self._running.values():
            at_work.command.stop(reason, grace_s=grace_s)


def _stage(node: Node) -> tuple[str, str]:
    """What a verdict waits behind: this claim, and the newest audit of it."""
    return node.state_ref or "", node.audit.ref if node.audit is not None else ""


def _executor_of(plan: AuditPlan) -> Executor:
    """Who is sent to judge; the plan names one."""
    if plan.agent is not None:
        return agent_executor(plan.agent)
    return CommandExecutor(plan.run or "")


def _as_auditor(node: Node, plan: AuditPlan) -> Node:
    """The node as the executor of its auditor sees it: its action is to judge."""
    none = dict.fromkeys(("run", "map", "python", "sop", "human"))
    spec = msgspec.structs.replace(node.spec, agent=plan.agent, **none)
    return msgspec.structs.replace(node, spec=spec)


def _read_only(engine: Engine, order: Order, launch: Launch) -> Confinement:
    """What an auditor is held to: its own directory, and the state of its executor (AU-1)."""
    layout = engine.layout
    usual = confinement_for(engine, order, launch, write_scope=False)
    shared = {layout.tmp, layout.spool, layout.journal_lock}
    own = tuple(path for path in usual.write if path not in shared)
    return Confinement((order.scope, *own), usual.network)


def _usage_of(report: Report, plan: AuditPlan, ended: Ended) -> Usage | None:
    usage = report.usage or Usage(wall_s=round(ended.wall_s, 3))
    return msgspec.structs.replace(usage, model=usage.model or plan.model)


def require_auditor(state: State, node: Node, task_dir: str) -> None:
    """Raise NotFoundError, with what to install, for an agent that is to audit and is not there."""
    plan = audit_plan(state, node)
    if plan is not None and plan.agent is not None:
        executor = agent_executor(plan.agent)
        executor.require_installed(_as_auditor(node, plan), task_dir)
