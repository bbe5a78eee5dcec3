"""Workspaces of a given size, written straight from the core and not through the runtime.

A graph of ``nodes`` nodes: the first tenth DONE with a real file each, the next tenth ready to
start, the others waiting for the one a tenth before them. Then ``events`` events in all, of the
kinds that a long task has most of: notes, progress, heartbeats, and one node that is started and
interrupted again and again. The state does so not grow with the journal.
"""

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from perdure.core import commands as c
from perdure.core.codec import EMPTY_TIP, ChainTip, encode_commit, timestamp
from perdure.core.decide import decide
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.model import Executor, Integrity, Spec
from perdure.storage.disk import RealDisk
from perdure.storage.projections import write_projections
from perdure.storage.workspace import Layout

NOW = 1_767_225_600.0
NOTE = "read chapter 12 of the manual; two of its claims need another source"
BUSY = "busy"
"""The node whose interrupted attempts fill the journal."""


class Writer:
    """Commits into a new workspace without syncing anything."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(str(root))
        self.replica = Replica()
        self.tip: ChainTip = EMPTY_TIP
        for directory in (self.layout.artifacts, self.layout.contracts, self.layout.spool):
            os.makedirs(directory)
        self._file = open(self.layout.journal, "wb", buffering=1 << 20)  # noqa: SIM115
        self._context = c.Context(NOW, "coordinator:bench")

    def run(self, command: c.Command) -> None:
        """Decide a command and write what it comes to."""
        self.commit(decide(self.replica, command, self._context).drafts)

    def commit(self, drafts: tuple[Draft, ...]) -> None:
        """Write one commit and fold it."""
        moment = timestamp(NOW + self.tip.seq / 100)
        commit = encode_commit(self.tip, drafts, ts=moment, actor=self._context.actor, epoch=1)
        self._file.write(commit.data)
        self.tip = commit.tip
        self.replica.apply_all(commit.events)

    def finish(self) -> None:
        """Close the journal and write the projections that belong to its end."""
        self._file.close()
        write_projections(RealDisk(), self.layout, self.replica, self.tip)


def make_workspace(root: Path, *, nodes: int, events: int = 0) -> str:
    """Write a workspace; it has at least the events that its graph takes. Returns its path."""
    writer = Writer(root)
    writer.run(c.StartTask("bench", "a workspace to measure with"))
    names = [f"N{number}" for number in range(nodes)]
    tenth = nodes // 10
    for number, name in enumerate(names):
        deps = (names[number - tenth],) if number >= tenth else ()
        spec = Spec(goal=f"write part {number}", outputs=(f"artifacts/{name}/part.txt",))
        writer.run(c.AddNode(name, f"part {number} of the work", deps, spec))
    writer.run(c.AddNode(BUSY, "what the long part of the journal is about"))
    writer.run(c.MoveTask("EXECUTING"))
    for name in names[:tenth]:
        _finish_node(writer, name)
    for name in names[tenth : 2 * tenth]:
        writer.run(c.MoveNode(name, "READY"))
    writer.run(_start(BUSY, "first"))
    writer.run(c.FailNode(BUSY, "transient-environment", "killed", interruption=True))
    for draft in _long_part(events - writer.tip.seq):
        writer.commit((draft,))
    writer.finish()
    return str(root)


def _start(name: str, invocation: str) -> c.MoveNode:
    contract = c.IssuedContract(invocation, "", Executor("executor:bench"), None, {})
    return c.MoveNode(name, "RUNNING", contract=contract)


def _finish_node(writer: Writer, name: str) -> None:
    path = f"artifacts/{name}/part.txt"
    data = f"the text of {name}\n".encode()
    file = Path(writer.layout.root, path)
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    mtime_ns = file.stat().st_mtime_ns
    integrity = Integrity("sha256", sha256(data).hexdigest(), len(data), "", mtime_ns)
    writer.run(c.MoveNode(name, "READY"))
    writer.run(_start(name, f"inv-{name}"))
    writer.run(c.RegisterArtifact(f"A-{name}", path, "output", integrity, name, f"inv-{name}"))
    writer.run(c.MoveNode(name, "VERIFYING", (f"A-{name}",)))
    item = {"check": "sha256", "level": "V1", "passed": True, "detail": "PASS"}
    verdict = c.Verdict(True, "verifier:v1", "V1", (item,), {f"A-{name}": integrity.value})
    writer.run(c.MoveNode(name, "DONE", (f"A-{name}",), verdict=verdict))


def _long_part(count: int) -> Iterator[Draft]:
    """``count`` single-event commits that leave the busy node waiting for its next attempt."""
    executor = {"actor": "executor:bench"}
    for number in range(max(0, count)):
        step = number % 10
        attempt = number // 10
        invocation = f"inv-{attempt:06d}"
        last = number + (9 - step) >= count  # no room to end this attempt: only notes
        if step == 0 and not last:
            payload = {
                "from": "RETRYABLE", "to": "RUNNING", "edge": "N11", "invocation": invocation,
                "contract": f"contracts/{invocation}.json", "executor": executor, "budget": {},
                "issued_at": NOW, "attempt": attempt + 2,
            }  # fmt: skip
            yield Draft("STATE_TRANSITION", "node", BUSY, payload)
        elif step in (2, 5, 8) and not last:
            yield Draft("HEARTBEAT", "node", BUSY, {"invocation": invocation, "at": NOW})
        elif step == 9 and not last:
            payload = {
                "from": "RUNNING", "to": "RETRYABLE", "edge": "N04", "interruption": True,
                "failure_class": "transient-environment", "signature": "killed",
                "attempt": attempt + 2,
            }  # fmt: skip
            yield Draft("STATE_TRANSITION", "node", BUSY, payload)
        elif step == 4:
            progress = {"step": f"unit {number}", "text": NOTE}
            yield Draft("STEP_PROGRESS", "node", BUSY, progress)
        else:
            yield Draft("NOTE", "task", "bench", {"op": "note", "text": f"{NOTE} ({number})"})
