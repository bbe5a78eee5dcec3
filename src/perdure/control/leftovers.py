"""What a command left running when its first process ended (field case F13).

Job: find it, ask it to end, kill it, name it; step by step, so that the run loop never waits here.
Invariants: what ends by itself before it is due is neither signalled nor named; every process that
was signalled is named. The caller keeps the first process unreaped meanwhile, so that its pid and
its group cannot belong to anybody else.
Never: sleeps, or signals what is not proven to belong to the command.
"""

import os
import signal
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from perdure.runtime.orphans import Hold, Orphan, kill_wait_s, scan_processes

leftover_settle_s: Final = 0.5
"""What a finished command left running may end by itself in this time (``tee`` behind a pipe)."""


class Census(Protocol):
    """The proof that no child of this process is there besides those that somebody waits for.

    A look at every process costs more the more there are; this spares it. ``control.adoption`` has
    such a proof.
    """

    def expect(self, pid: int) -> None:
        """A child that was started and will be reaped."""

    def forget(self, pid: int) -> None:
        """It was reaped."""

    def is_clear(self) -> bool:
        """Whether it is proven that nothing of any command that has ended is left."""


class SweepTimes(NamedTuple):
    """When what is left is asked to end, and when it is killed."""

    term_at: float
    kill_at: float
    again_at: float | None = None
    """Its process group has already had SIGTERM; whoever of it still lives then gets it once more.

    A shell that forks at that very moment can lose the signal for its child.
    """


class Sweep:
    """After its first process ended: whatever else belongs to the command ends too.

    Looks again at every step, because what is being stopped may still start something.
    """

    def __init__(
        self,
        invocation: str,
        node: str,
        pid: int,
        family: Iterable[Orphan],
        times: SweepTimes,
        *,
        census: Census | None = None,
    ) -> None:
        self._invocations = {invocation: node} if invocation else {}
        self._leaders = {pid: invocation}
        self._pid = pid
        self._times = times
        self._census = census
        self._holds: dict[tuple[int, float], Hold] = {}
        self._termed: set[tuple[int, float]] = set()
        self._named: dict[int, str] = {}
        self._alive: list[Hold] = []
        for orphan in family:
            self._hold(orphan)

    def step(self, now: float) -> bool:
        """Find what is left and send what is due. True when nothing is left or can be done."""
        if self._census is not None and self._census.is_clear():
            self._alive = []
            return True
        for orphan in scan_processes(self._invocations, self._leaders):
            if orphan.pid != self._pid:
                self._hold(orphan)
        self._alive = [hold for hold in self._holds.values() if hold.is_alive()]
        if not self._alive:
            return True
        for hold in self._alive:
            if now >= self._times.kill_at:
                self._name(hold)
                hold.send(signal.SIGKILL)
            elif now >= self._times.term_at:
                self._ask_to_end(hold, now)
        return now >= self._times.kill_at + kill_wait_s

    def hasten(self, kill_at: float) -> None:
        """Kill no later than this."""
        self._times = self._times._replace(kill_at=min(self._times.kill_at, kill_at))

    def due_at(self, now: float) -> float:
        """When the next step is due unless something ends before."""
        times = self._times
        for moment in (times.term_at, times.again_at or 0.0, times.kill_at):
            if now < moment <= times.kill_at:
                return moment
        return times.kill_at + kill_wait_s

    def waitables(self) -> list[int]:
        """Descriptors of what was alive at the last step; -1 where there is none to wait on."""
        return [hold.descriptor for hold in self._alive]

    def named(self) -> tuple[tuple[int, str], ...]:
        """(pid, name) of all that had to be signalled."""
        return tuple(sorted(self._named.items()))

    def unstopped(self) -> tuple[tuple[int, str], ...]:
        """(pid, name) of what was still alive at the last step."""
        return tuple((h.orphan.pid, h.name()) for h in self._alive)

    def close(self) -> None:
        """Give the descriptors back."""
        for hold in self._holds.values():
            hold.close()

    def _hold(self, orphan: Orphan) -> None:
        key = (orphan.pid, orphan.started)
        if key not in self._holds:
            self._holds[key] = Hold(orphan)

    def _ask_to_end(self, hold: Hold, now: float) -> None:
        """SIGTERM once. What was being stopped with its group is only named when it is killed."""
        key = (hold.orphan.pid, hold.orphan.started)
        if key in self._termed:
            return
        again_at = self._times.again_at
        if again_at is None or not self._is_in_group(hold.orphan.pid):
            self._name(hold)
        elif now < again_at:
            return
        self._termed.add(key)
        hold.send(signal.SIGTERM)

    def _is_in_group(self, pid: int) -> bool:
        try:
            return os.getpgid(pid) == self._pid
        except OSError:
            return True

    def _name(self, hold: Hold) -> None:
        self._named[hold.orphan.pid] = hold.name()
