"""Clock, ids and process table of a simulated machine, and the world made of them.

Job: stand-ins at the ports that do the same in every run, so that a test of a crash can be
repeated byte for byte. Invariants: nothing moves unless the test moves it, but for a sleep, which
moves the clock instead of waiting; several processes of one machine see one table. Nothing here
looks at the real machine.
"""

from collections.abc import Mapping
from typing import Final, Self

from perdure.ports import ProcessIdentity, ProcessState
from perdure.runtime.world import World
from perdure.testing.simdisk import SimDisk

START_S: Final = 1_800_000_000.0
"""When simulated time begins, in seconds since 1970."""


class SimClock:
    """``ports.Clock`` that moves only when it is told to. A sleep advances it and returns."""

    __slots__ = ("_monotonic_s", "_now_s")

    def __init__(self, now_s: float = START_S, *, monotonic_s: float = 1_000.0) -> None:
        self._now_s = now_s
        self._monotonic_s = monotonic_s

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        return self._now_s

    def monotonic(self) -> float:
        """Seconds since some fixed moment; no ``step`` moves it."""
        return self._monotonic_s

    def sleep(self, seconds: float) -> None:
        """Let that time pass, at once; none for a time that is over already."""
        self.advance(max(seconds, 0.0))

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        if seconds < 0:
            raise ValueError(f"time does not go back by {-seconds} s; use step for the wall clock")
        self._now_s += seconds
        self._monotonic_s += seconds

    def step(self, seconds: float) -> None:
        """Set the wall clock forward, or back, as a person or NTP does."""
        self._now_s += seconds

    def copy(self) -> "SimClock":
        """A clock that shows the same and goes its own way."""
        return SimClock(self._now_s, monotonic_s=self._monotonic_s)


class SimIds:
    """``ports.Ids`` that count: ``00000001``, ``00000002`` and so on."""

    __slots__ = ("_last",)

    def __init__(self, first: int = 1) -> None:
        self._last = first - 1

    def token(self) -> str:
        """Eight lower-case hexadecimal digits that were not given out before."""
        self._last += 1
        return f"{self._last:08x}"

    def copy(self) -> "SimIds":
        """A source that goes on from here by itself."""
        return SimIds(self._last + 1)


class _Table:
    """The processes of one machine: pid to start time and state."""

    __slots__ = ("boot_id", "boots", "pid_max", "processes")

    def __init__(self) -> None:
        self.boots = 1
        self.pid_max = 0
        self.boot_id = "boot-1"
        self.processes: dict[int, tuple[float, ProcessState]] = {}


class SimProcesses:
    """``ports.Processes`` of one machine, as one of its processes sees them.

    ``seen_from`` gives the view of another process; all views share one table. ::

        mine = SimProcesses(pid=100)
        theirs = mine.seen_from(200)
        mine.kill(200)
        mine.state(theirs.me())                  # "gone"
    """

    __slots__ = ("_me", "_table", "host")

    def __init__(self, pid: int = 100, *, host: str = "sim-host") -> None:
        self.host = host
        self._table = _Table()
        self._me = self.spawn(pid)

    def me(self) -> ProcessIdentity:
        """This process. After its end the pid is 0: what is left of it speaks for nobody."""
        return self._me if self.state(self._me) != "gone" else self._me._replace(pid=0)

    def end(self) -> None:
        """This process ends."""
        if self.state(self._me) != "gone":
            self.kill(self._me.pid)

    def copy(self) -> "SimProcesses":
        """The same processes on a machine that goes its own way from now on."""
        other = SimProcesses.__new__(SimProcesses)
        other.host, other._me, other._table = self.host, self._me, _Table()
        other._table.boots, other._table.boot_id = self._table.boots, self._table.boot_id
        other._table.pid_max = self._table.pid_max
        other._table.processes = dict(self._table.processes)
        return other

    def state(self, who: ProcessIdentity) -> ProcessState:
        """As the port says."""
        if who.host != self.host:
            return "unknown"
        started, state = self._table.processes.get(who.pid, (-1.0, "gone"))
        return state if (who.boot_id, who.started) == (self._table.boot_id, started) else "gone"

    def seen_from(self, pid: int) -> Self:
        """The same machine, seen by its process of this pid, which begins when it is not there."""
        other = type(self).__new__(type(self))
        other.host, other._table = self.host, self._table
        started = self._table.processes.get(pid, (None, "gone"))[0]
        other._me = self.spawn(pid) if started is None else self._identity(pid, started)
        return other

    def spawn(self, pid: int | None = None, *, started: float | None = None) -> ProcessIdentity:
        """A process begins. Without ``pid`` it gets one that nobody had.

        ``started`` is in seconds since boot; without it, the pid. A pid that is taken is refused:
        say ``reuse`` when that is meant.
        """
        processes = self._table.processes
        if pid is None:
            pid = self.unused_pid()
        if pid in processes:
            raise ValueError(f"process {pid} is running; kill it first, or say reuse")
        began = float(pid) if started is None else started
        processes[pid] = (began, "alive")
        self._table.pid_max = max(self._table.pid_max, pid)
        return self._identity(pid, began)

    def unused_pid(self) -> int:
        """A pid that no process of this machine ever had."""
        return self._table.pid_max + 1

    def kill(self, pid: int) -> None:
        """SIGKILL; harmless when it is gone already."""
        self._table.processes.pop(pid, None)

    def stop(self, pid: int) -> None:
        """SIGSTOP: alive and not running."""
        self._set(pid, "stopped")

    def cont(self, pid: int) -> None:
        """SIGCONT: a stopped one goes on."""
        self._set(pid, "alive")

    def reuse(self, pid: int) -> ProcessIdentity:
        """The process of this pid ends and another one gets its pid, with a later start time."""
        started = self._table.processes.pop(pid, (float(pid), "gone"))[0]
        return self.spawn(pid, started=started + 1.0)

    def reboot(self) -> None:
        """The machine restarts, as after a power cut: another boot id, and no process lives."""
        self._table.boots += 1
        self._table.boot_id = f"boot-{self._table.boots}"
        self._table.processes.clear()

    def _set(self, pid: int, state: ProcessState) -> None:
        if pid not in self._table.processes:
            raise ValueError(f"there is no process {pid}")
        self._table.processes[pid] = (self._table.processes[pid][0], state)

    def _identity(self, pid: int, started: float) -> ProcessIdentity:
        return ProcessIdentity(self.host, self._table.boot_id, pid, started)


def sim_world(
    disk: SimDisk | None = None,
    *,
    clock: SimClock | None = None,
    ids: SimIds | None = None,
    processes: SimProcesses | None = None,
    environment: Mapping[str, str] | None = None,
) -> World:
    """A world for ``HaltRuntime(..., world=...)`` in which nothing is real.

    What is not given is new: an empty disk, a clock, ids, a process table. When the process of the
    disk is killed, it ends in the process table too. For what comes after that see
    :func:`next_world`. Acceptance checks that run scripts need a real machine and do not work.
    """
    disk = SimDisk() if disk is None else disk
    clock = SimClock() if clock is None else clock
    processes = SimProcesses() if processes is None else processes
    if disk.clock is None:
        disk.clock = clock
    disk.at_end(processes.end)
    return World(
        disk,
        clock,
        SimIds() if ids is None else ids,
        processes,
        {} if environment is None else environment,
    )


def next_world(world: World, disk: SimDisk, *, power_cut: bool = False) -> World:
    """What the next process finds on the machine of a :func:`sim_world`, with this disk.

    ``disk`` is what a kill or a power cut left of the old one. Clock, ids and process table go on
    from where they are, as copies: of one crash any number of ends can be tried, each as if it
    were the only one. The process has a pid that nobody had, and one second has passed. After a
    ``power_cut`` it is another boot, in which nothing else runs.
    """
    clock, ids, processes = world.clock, world.ids, world.processes
    if not (
        isinstance(clock, SimClock)
        and isinstance(ids, SimIds)
        and isinstance(processes, SimProcesses)
    ):
        raise TypeError("next_world goes on from a world that sim_world made")
    clock, processes = clock.copy(), processes.copy()
    clock.advance(1.0)
    if power_cut:
        processes.reboot()
    disk.clock = clock
    return sim_world(
        disk,
        clock=clock,
        ids=ids.copy(),
        processes=processes.seen_from(processes.unused_pid()),
        environment=world.environment,
    )
