"""One machine for a conformance test: a real directory, made-up processes and time.

Each process of the scenario has a ``World`` of its own; ``die`` ends one as a kill would, without
any of its exit hooks.
"""

import os

from tests.unit.fakes import FakeClock, FakeIds, FakeProcesses

from perdure import HaltRuntime
from perdure.core.events import Event
from perdure.runtime.world import World
from perdure.storage.disk import RealDisk


class Host:
    """Several processes that share one workspace."""

    def __init__(self, workspace: str) -> None:
        self.workspace = os.path.join(workspace, "w")
        self.clock = FakeClock()
        self.processes = FakeProcesses(100)
        self.ids = FakeIds()

    def world(self, pid: int = 100) -> World:
        seen = self.processes if pid == 100 else self.processes.seen_from(pid)
        return World(RealDisk(), self.clock, self.ids, seen, dict(os.environ))

    def open(self, pid: int = 100, *, actor: str = "coordinator:main") -> HaltRuntime:
        return HaltRuntime(self.workspace, "T1", goal="g", actor=actor, world=self.world(pid))

    def resume(self, pid: int = 100, *, actor: str = "coordinator:main") -> HaltRuntime:
        return HaltRuntime.resume(self.workspace, actor=actor, world=self.world(pid))

    def attach(self, pid: int = 100, *, actor: str = "executor:x") -> HaltRuntime:
        return HaltRuntime.attach(self.workspace, actor=actor, world=self.world(pid))

    def die(self, runtime: HaltRuntime) -> None:
        """Kill the process of this runtime."""
        runtime._closer.detach()
        runtime.engine.journal.close()
        lease = runtime.engine.lease
        if lease is not None:
            self.processes.kill(lease.pid)

    def write(self, path: str, text: str = "content") -> str:
        """Put a file into the workspace; returns its path."""
        full = os.path.join(self.workspace, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as stream:
            stream.write(text)
        return path

    def read(self, path: str = "journal.jsonl") -> bytes:
        with open(os.path.join(self.workspace, path), "rb") as stream:
            return stream.read()

    def finish(self, runtime: HaltRuntime, node_id: str) -> None:
        """Take a node from wherever it may start to DONE, with one file."""
        runtime.start(node_id)
        self.write(f"artifacts/{node_id}/out.txt", f"by {node_id}")
        runtime.submit(node_id)


def edges(runtime: HaltRuntime, node_id: str) -> list[str]:
    """The edges that the journal says this node has taken."""
    return [event.payload["edge"] for event in moves(runtime) if event.entity.id == node_id]


def moves(runtime: HaltRuntime) -> list[Event]:
    return [event for event in runtime.events() if event.kind == "STATE_TRANSITION"]
