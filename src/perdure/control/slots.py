"""The commands of plain nodes that are at work in a run.

Job: start them, see them end, stop them. Invariants: a command starts only after the N02 that names
its contract is durable; its exit code is a claim until the disk has been looked at; one whose node
was settled by somebody else is stopped, and its end changes nothing.
"""

import os
from collections.abc import Iterator

from perdure.control.endings import Emit, Endings
from perdure.control.executor import RunningCommand, start_command
from perdure.control.leftovers import Census
from perdure.control.outcome import Ended, classify
from perdure.core.model import Node
from perdure.runtime import work
from perdure.runtime.contracts import environment_for
from perdure.runtime.engine import Engine


class CommandSlots:
    """One command for each plain node at work."""

    def __init__(self, engine: Engine, endings: Endings, emit: Emit) -> None:
        self._engine = engine
        self._endings = endings
        self._emit = emit
        self.census: Census | None = None
        """What spares a look at every process when a command has ended."""
        self._running: dict[str, RunningCommand] = {}

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._running

    @property
    def commands(self) -> list[RunningCommand]:
        """What is running, to be waited for."""
        return list(self._running.values())

    def start(self, node: Node) -> None:
        """Issue a contract and start the node's command under it."""
        node_id, layout, disk = node.node_id, self._engine.layout, self._engine.disk
        work.start(self._engine, node_id)
        node = self._engine.replica.state.nodes[node_id]
        invocation = node.invocation or ""
        log_path = layout.log(node_id, invocation)
        disk.make_dirs(log_path.rpartition("/")[0])
        disk.make_dirs(layout.runs)
        self._running[node_id] = start_command(
            node.spec.run or "",
            cwd=layout.root,
            environment=environment_for(self._engine, node),
            log_path=log_path,
            record_path=layout.run_record(invocation),
            wall_s=node.spec.budget.max_wall_s,
            clock=self._engine.world.clock,
            disk=disk,
            census=self.census,
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

    def collect(self, signal: int) -> None:
        """Settle what has ended; ``signal`` is the one that the run is being stopped by, or 0."""
        for node, ended in self._ended():
            if ended.leftovers:
                named = list(ended.leftovers)
                self._emit({"event": "leftovers", "node": node.node_id, "processes": named})
            if ended.how == "exited" and ended.exit_code == 0:
                self._endings.claim(node.node_id, detail=ended.log_tail, wall_s=ended.wall_s)
            elif ended.how == "stopped" and signal:
                self._endings.interrupt(node.node_id, f"stopped with the run (signal {signal})")
            else:
                failure_class, signature = classify(ended)
                self._endings.fail(
                    node.node_id,
                    failure_class,
                    signature,
                    detail=ended.log_tail,
                    wall_s=ended.wall_s,
                )

    def _ended(self) -> Iterator[tuple[Node, Ended]]:
        """The nodes whose command has ended, and how; without those that others have settled."""
        for node_id, command in list(self._running.items()):
            node = self._engine.replica.state.nodes[node_id]
            if node.state != "RUNNING" or node.invocation != command.invocation:
                command.stop("its node was settled by somebody else")
            ended = command.poll()
            if ended is None:
                continue
            del self._running[node_id]
            if node.state == "RUNNING" and node.invocation == command.invocation:
                yield node, ended
            else:
                self._endings.tell_settled(node_id)

    def stop(self, reason: str, *, grace_s: float) -> None:
        """Begin to stop everything; ``collect`` settles what has ended."""
        for command in self._running.values():
            command.stop(reason, grace_s=grace_s)
