"""A simulated machine that runs the workloads of the crash tests, killed or cut from power.

It has the methods of ``tests.crash.machine.Machine``, over a SimDisk.
"""

import contextlib
from collections.abc import Callable

from tests.crash.workloads import PlainRuntime

from perdure.runtime.halt import HaltRuntime
from perdure.runtime.world import World
from perdure.storage.workspace import Layout
from perdure.testing import Killed, SimClock, SimDisk, next_world, sim_world

ROOT = "/some/w"
JOURNAL = f"{ROOT}/journal.jsonl"


class SimMachine:
    """One process after the other on one machine with one workspace."""

    def __init__(self, world: World) -> None:
        self.root = ROOT
        self.layout = Layout(ROOT)
        self.acknowledged = b""
        self.lost_paths: set[str] = set()
        self.promised: list[str] = []
        self.tier = 1
        """Of the task that is created here."""
        self.runtimes: list[HaltRuntime] = []
        self._enter(world)

    def _enter(self, world: World) -> None:
        assert isinstance(world.disk, SimDisk)
        assert isinstance(world.clock, SimClock)
        self.world = world
        self.disk = world.disk
        self.clock = world.clock

    @classmethod
    def new(cls, *, cut_after: int | None = None, torn_bytes: int | None = None) -> "SimMachine":
        return cls(sim_world(SimDisk(cut_after=cut_after, torn_bytes=torn_bytes)))

    def next(self, disk: SimDisk, *, power_cut: bool) -> "SimMachine":
        """The next process, on what is left of this one's disk; this one can be asked again."""
        after = SimMachine(next_world(self.world, disk, power_cut=power_cut))
        after.acknowledged = self.acknowledged
        after.promised = self.promised.copy()
        after.lost_paths = self.lost_paths
        after.tier = self.tier
        return after

    def end(self, *, cut_after: int | None = None, torn_bytes: int | None = None) -> "SimMachine":
        """The process is killed, if it is not dead; the next one of the machine begins."""
        disk = self.disk.survive_kill(cut_after=cut_after, torn_bytes=torn_bytes)
        self.bury()
        return self.next(disk, power_cut=False)

    def boot_process(self) -> None:
        """As ``end``, in place."""
        disk = self.disk.survive_kill()
        self.bury()
        self._enter(next_world(self.world, disk))

    def bury(self) -> None:
        """Let go of what the dead process had, now and not at some garbage collection."""
        for runtime in self.runtimes:
            with contextlib.suppress(Killed):
                runtime.close()
        self.runtimes.clear()

    def open(self, task_id: str | None = None) -> HaltRuntime:
        runtime = PlainRuntime(ROOT, task_id, goal="survive", tier=self.tier, world=self.world)
        self.runtimes.append(runtime)
        self.acknowledge()
        return runtime

    def attach(self, actor: str = "executor:main") -> HaltRuntime:
        runtime = PlainRuntime.attach(ROOT, actor=actor, world=self.world)
        self.runtimes.append(runtime)
        return runtime

    def acknowledge(self) -> None:
        """Every call so far has returned, so everything in the journal is promised."""
        self.acknowledged = self.journal()

    def journal(self) -> bytes:
        return self.bytes_of("journal.jsonl") or b""

    def bytes_of(self, path: str) -> bytes | None:
        files = self.disk.files
        try:
            inode = files.locate(f"{ROOT}/{path}").inode
        except OSError:
            return None
        return files.files[inode].data if inode is not None and inode in files.files else None

    def file_names(self) -> list[str]:
        return list(self.disk.tree())

    def write(self, path: str, data: bytes) -> None:
        """An executor writes a file and syncs nothing."""
        self.disk.write(f"{ROOT}/{path}", data)


def run_until_killed(machine: SimMachine, workload: Callable[[SimMachine], object]) -> bool:
    """Whether the process met its end in the workload."""
    with contextlib.suppress(Killed):
        workload(machine)
    if machine.disk.is_dead:
        machine.bury()
    return machine.disk.is_dead
