"""Stand-ins at the ports, for tests of one module: a clock, a process table, a source of ids."""

from perdure.ports import ProcessIdentity, ProcessState


class FakeClock:
    """Moves only when told to. ``step`` sets the wall clock, as a person or NTP does."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now
        self._monotonic = 1_000.0
        self.slept_s: list[float] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.advance(max(seconds, 0.0))

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self._monotonic += seconds

    def step(self, seconds: float) -> None:
        self._now += seconds


class FakeProcesses:
    """The process table of one host, seen by one of its processes.

    Several may share a ``table``: one for each process of the scenario, each with its own pid.
    """

    def __init__(
        self,
        pid: int = 100,
        host: str = "here",
        boot_id: str = "boot-1",
        table: dict[int, tuple[float, ProcessState]] | None = None,
    ) -> None:
        self.host = host
        self.boot_id = boot_id
        self.table = {} if table is None else table
        self.pid = self.spawn(pid).pid

    def me(self) -> ProcessIdentity:
        return self.identity(self.pid)

    def identity(self, pid: int) -> ProcessIdentity:
        return ProcessIdentity(self.host, self.boot_id, pid, self.table[pid][0])

    def spawn(self, pid: int, started: float = 10.0) -> ProcessIdentity:
        """A process of this pid; when there was one already, the pid is reused."""
        self.table[pid] = (started, "alive")
        return self.identity(pid)

    def kill(self, pid: int) -> None:
        self.table.pop(pid, None)

    def stop(self, pid: int) -> None:
        self.table[pid] = (self.table[pid][0], "stopped")

    def carry_on(self, pid: int) -> None:
        self.table[pid] = (self.table[pid][0], "alive")

    def seen_from(self, pid: int) -> "FakeProcesses":
        """The same host, seen by another process of it."""
        started = self.table.get(pid, (float(pid), "alive"))[0]
        other = FakeProcesses(pid, self.host, self.boot_id, self.table)
        other.spawn(pid, started)
        return other

    def reboot(self, boot_id: str) -> None:
        """Every process but ours is new; nothing else survives."""
        self.boot_id = boot_id
        mine = self.table[self.pid]
        self.table.clear()
        self.table[self.pid] = mine

    def state(self, who: ProcessIdentity) -> ProcessState:
        if who.host != self.host:
            return "unknown"
        started, state = self.table.get(who.pid, (-1.0, "gone"))
        if who.boot_id != self.boot_id or who.started != started:
            return "gone"
        return state


class FakeIds:
    """Tokens that count: 00000001, 00000002 and so on."""

    def __init__(self) -> None:
        self._last = 0

    def token(self) -> str:
        self._last += 1
        return f"{self._last:08x}"
