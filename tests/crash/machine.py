"""A machine for crash tests, on the real disk: one process after the other, each killed.

One directory, one clock, one source of ids and one process table, so that a run is repeatable
byte for byte: what a killed run may leave is then known exactly, as a prefix of the whole run.
"""

import contextlib
import os
from collections.abc import Iterator

from tests.crash.checks import check_live, projections, replayed
from tests.crash.disk import CutDisk, Fuse, Killed
from tests.crash.workloads import PlainRuntime
from tests.unit.fakes import FakeClock, FakeIds, FakeProcesses

from perdure.core.codec import ChainTip
from perdure.core.model import State
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.world import World
from perdure.storage.workspace import Layout

ENVIRONMENT = {"PATH": os.environ.get("PATH", "")}
MTIME_NS = 1_700_000_000_000_000_000


class Machine:
    """One host with one workspace on it."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.layout = Layout(root)
        self.clock = FakeClock()
        self.ids = FakeIds()
        self.processes = FakeProcesses(pid=1)
        self.pid = 100
        self.tier = 1
        """Of the task that is created here."""
        self.acknowledged = b""
        self.lost_paths: set[str] = set()
        """Files that a scene has destroyed."""
        self.promised: list[str] = []
        """Ids of messages that lie durably in the drop box, or did."""
        self.disk = CutDisk()
        self.runtimes: list[HaltRuntime] = []

    def boot_process(self, fuse: Fuse | None = None) -> None:
        """The next process begins; the one before it, if it lives, is killed."""
        self.kill_process()
        self.pid += 1
        self.clock.advance(1.0)
        self.disk = CutDisk(fuse)

    def kill_process(self) -> None:
        """SIGKILL, if it has not met it already: its locks are free, its pid is gone."""
        self.disk.die()
        for runtime in self.runtimes:
            with contextlib.suppress(Killed):
                runtime.close()
        self.runtimes.clear()
        self.processes.kill(self.pid)

    def world(self) -> World:
        return World(
            self.disk, self.clock, self.ids, self.processes.seen_from(self.pid), ENVIRONMENT
        )

    def open(self, task_id: str | None = None) -> HaltRuntime:
        """What ``HaltRuntime(...)`` does in the process of now."""
        runtime = PlainRuntime(
            self.root, task_id, goal="survive", tier=self.tier, world=self.world()
        )
        self.runtimes.append(runtime)
        self.acknowledge()
        return runtime

    def attach(self, actor: str = "executor:main") -> HaltRuntime:
        """What a short command does in the process of now."""
        runtime = PlainRuntime.attach(self.root, actor=actor, world=self.world())
        self.runtimes.append(runtime)
        return runtime

    def acknowledge(self) -> None:
        """Every call so far has returned, so everything in the journal is promised."""
        self.acknowledged = self.journal()

    def journal(self) -> bytes:
        return self.bytes_of("journal.jsonl") or b""

    def bytes_of(self, path: str) -> bytes | None:
        try:
            with open(f"{self.root}/{path}", "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def file_names(self) -> list[str]:
        return list(file_names(self.root))

    def write(self, path: str, data: bytes) -> None:
        """An executor writes a file, whole, with a time that does not depend on the run."""
        full = f"{self.root}/{path}"
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(data)
        os.utime(full, ns=(MTIME_NS, MTIME_NS))

    def projections(self) -> dict[str, bytes | None]:
        return projections(self)


def replay(root: str) -> tuple[State, ChainTip]:
    """The state after every line from the first byte, each verified."""
    with open(f"{root}/journal.jsonl", "rb") as file:
        return replayed(file.read())


def check_live_equals_replayed(machine: Machine, runtime: HaltRuntime) -> None:
    check_live(machine, runtime)


def file_names(root: str) -> Iterator[str]:
    for folder, _, names in os.walk(root):
        yield from (os.path.join(folder, name) for name in names)


def check_no_litter(root: str) -> None:
    """No temporary file of an unfinished replacement is left."""
    assert [name for name in file_names(root) if ".tmp-" in name] == []
