"""The children of plain nodes that are at work in a run.

Job: launch them, see them end, stop them. Invariants: a child starts only after the N02 that names
its contract is durable, and is held to what that grants; whatever its executor reports is a claim
until the disk has been looked at; one whose node was settled by somebody else is stopped, and its
end changes nothing.
"""

import os
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from perdure.control.child_files import Shared
from perdure.control.dispatch_control import DispatchControl
from perdure.control.endings import Claim, Emit, Endings
from perdure.control.executor import RunningCommand
from perdure.control.executor_port import Executor, Order, Report
from perdure.control.executors import (
    Started,
    enforcement,
    executor_for,
    order_for,
    start_facts,
    start_order,
)
from perdure.control.life_signs import LifeSigns
from perdure.control.outcome import Ended, death_mode
from perdure.core.contract import InstanceOrder
from perdure.core.dispatching import Usage
from perdure.core.instance import path_of
from perdure.core.model import Node
from perdure.runtime import work
from perdure.runtime.contracts import Terms, task_directory
from perdure.runtime.engine import Engine

sop_grace_s: Final = 15.0
"""An instance stops what it runs itself, and then comes to a commit boundary."""


class _AtWork(NamedTuple):
    executor: Executor
    order: Order
    command: RunningCommand
    log: str
    """Its output, relative to the workspace."""


class CommandSlots:
    """One child for each plain node at work."""

    def __init__(
        self,
        engine: Engine,
        endings: Endings,
        control: DispatchControl,
        *,
        jobs: int,
        emit: Emit,
    ) -> None:
        self._engine = engine
        self._jobs = jobs
        self._endings = endings
        self._control = control
        self._emit = emit
        self._signs = LifeSigns(engine, emit)
        self.shared = Shared()
        self._at_work: dict[str, _AtWork] = {}

    def __len__(self) -> int:
        return len(self._at_work)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._at_work

    @property
    def commands(self) -> list[RunningCommand]:
        """What is running, to be waited for."""
        return [at_work.command for at_work in self._at_work.values()]

    def issue(self, node: Node) -> None:
        """Record the start of a node under a contract; ``launch`` follows once that is durable.

        Raises HaltError where it may not start, or where its executor is not installed.
        """
        place = task_directory(self._engine)
        executor = executor_for(self._engine, node)
        executor.require_installed(node, place)
        facts = start_facts(self._engine, node)
        goes_on = InstanceOrder(path_of(facts["child_ref"])) if "child_ref" in facts else None
        terms = Terms(enforcement=enforcement(), wall_s=executor.wall_s, instance=goes_on)
        work.start(self._engine, node.node_id, payload=facts, terms=terms)

    def launch(self, node_id: str) -> None:
        """Start the child of a node whose contract is durable. Raises HaltError when it cannot."""
        node = self._engine.replica.state.nodes[node_id]
        executor = executor_for(self._engine, node)
        order = order_for(self._engine, node)._replace(jobs=self._jobs)
        started = start_order(
            self._engine,
            executor,
            order,
            wall_s=node.spec.budget.max_wall_s,
            shared=self.shared,
        )
        log = os.path.relpath(started.log_path, self._engine.layout.root)
        self._at_work[node_id] = _AtWork(executor, order, started.command, log)
        self._control.began(node_id, deaths=node.method_strikes)
        self._signs.watch(order.invocation, node_id, (started.log_path, order.scope))
        self._tell_started(node, executor, started)

    def _tell_started(self, node: Node, executor: Executor, started: Started) -> None:
        root = self._engine.layout.root
        told: dict[str, Any] = {
            "event": "started",
            "node": node.node_id,
            "title": node.title,
            "attempt": node.attempts,
            "invocation": node.invocation,
            "executor": executor.kind,
            "log": os.path.relpath(started.log_path, root),
            "enforced": enforcement(started.confinement, root),
        }
        self._emit(told)

    # The loop's steps

    def look(self) -> None:
        """Signs of life: beat for who grows, suspect who is silent."""
        self._signs.look()

    def due_in_s(self) -> float:
        """When :meth:`look` is due; infinite when nothing is at work."""
        return self._signs.due_in_s()

    def collect(self, signal: int) -> None:
        """Settle what has ended; ``signal`` is the one that the run is being stopped by, or 0."""
        reports: list[tuple[_AtWork, Ended, Report]] = []
        for at_work, ended in self._ended():
            node_id = at_work.order.node.node_id
            if ended.leftovers:
                named = list(ended.leftovers)
                self._emit({"event": "leftovers", "node": node_id, "processes": named})
            if ended.how == "stopped" and signal:
                self._endings.interrupt(node_id, f"stopped with the run (signal {signal})")
                self._forget(at_work, Report(False), landed=False)
                continue
            report = at_work.executor.read_end(at_work.order, ended)
            if report.notice:
                self._emit({"event": "notice", "node": node_id, "why": report.notice})
            reports.append((at_work, ended, report))
        claims = [
            Claim(at_work.order.node.node_id, ended.log_tail, ended.wall_s, _usage(report, ended))
            for at_work, ended, report in reports
            if report.claims
        ]
        landed = self._endings.claim_all(claims)
        for at_work, ended, report in reports:
            node_id = at_work.order.node.node_id
            if not report.claims:
                self._settle(at_work, report, ended)
            elif node_id in landed and report.questions:
                self._endings.ask_gaps(node_id, report.questions)
            self._forget(at_work, report, landed=node_id in landed)

    def _forget(self, at_work: _AtWork, report: Report, *, landed: bool) -> None:
        self._signs.forget(at_work.order.invocation, landed=landed)
        self._control.ended(
            at_work.order.node.node_id,
            landed=landed,
            cause=report.cause,
            retry_after_s=report.retry_after_s,
        )

    def _settle(self, at_work: _AtWork, report: Report, ended: Ended) -> None:
        """End an attempt that does not claim to be done by what its executor reports."""
        if report.questions:
            self._endings.block(at_work.order.node.node_id, report.questions)
        else:
            self._fail(at_work, report, ended)

    def _fail(self, at_work: _AtWork, report: Report, ended: Ended) -> None:
        node_id = at_work.order.node.node_id
        failure_class, signature = report.failure or ("transient-agent", "it does not say why")
        death = self._endings.death_of(node_id, death_mode(ended), signature, cause=report.cause)
        self._endings.fail(
            node_id,
            failure_class,
            signature,
            detail=ended.log_tail,
            wall_s=ended.wall_s,
            death=death,
            usage=_usage(report, ended),
            nothing_ran=ended.how == "not_started",
            retry_after_s=report.retry_after_s,
            log=at_work.log,
        )

    def _ended(self) -> Iterator[tuple[_AtWork, Ended]]:
        """What has ended, and how; without those whose node others have settled."""
        for node_id, at_work in list(self._at_work.items()):
            command = at_work.command
            node = self._engine.replica.state.nodes[node_id]
            if node.state != "RUNNING" or node.invocation != command.invocation:
                command.stop("its node was settled by somebody else")
            ended = command.poll()
            if ended is None:
                continue
            del self._at_work[node_id]
            if node.state == "RUNNING" and node.invocation == command.invocation:
                yield at_work, ended
            else:
                self._forget(at_work, Report(False), landed=False)
                self._endings.tell_settled(node_id)

    def stop(self, reason: str, *, grace_s: float) -> None:
        """Begin to stop everything; ``collect`` settles what has ended."""
        for at_work in self._at_work.values():
            patient = grace_s > 0 and at_work.executor.kind == "sop"
            at_work.command.stop(reason, grace_s=max(grace_s, sop_grace_s) if patient else grace_s)


def _usage(report: Report, ended: Ended) -> Usage | None:
    """What the attempt has used, where its executor can tell; the time is ours to measure."""
    if report.usage is None:
        return None
    return msgspec.structs.replace(report.usage, wall_s=round(ended.wall_s, 3))
