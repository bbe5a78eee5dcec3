"""What a run dispatches in the light of how dispatched work fares (HALT-07 section 4).

Job: apply modes A, B and C to everything that a run dispatches, plain nodes and shards alike, and
lead out of a halt. Invariants: the mode is what the journal says; what has not been tried goes
before what has died, and what has died still gets its turn once nothing else is left; a halt ends
by a probe and a small batch, never blindly (PD-H3), and where the wall names its time, not before
that; nothing is killed here. What is kept here is forgotten with the run: the next one probes at
once, for somebody wanted it.

Modes: A dispatches everything, and what has died once is tried again by itself; what has died more
often waits for what is untouched. B dispatches what is untouched, then what has died, one at a
time. C dispatches nothing but the small batch behind a probe.
"""

from typing import Final

from perdure.control.endings import Emit
from perdure.control.pacing import backoff_first_s, backoff_most_s, probe_disk
from perdure.core.diagnosis import advice_for
from perdure.core.dispatch_commands import ChangeMode
from perdure.core.dispatching import Cause, DispatchMode
from perdure.core.health import rate
from perdure.runtime.engine import Engine

retries_at_once: Final = 1
"""What has died, in B, at work at the same time."""
deaths_retried_by_itself: Final = 1


class DispatchControl:
    """The dispatch of one run. Names are of nodes, or invocations of slots."""

    def __init__(self, engine: Engine, emit: Emit) -> None:
        self._engine = engine
        self._clock = engine.world.clock
        self._emit = emit
        self._at_work: dict[str, int] = {}
        """Name to how often it had died before."""
        self._small_batch: set[str] = set()
        """Those that were sent behind a probe."""
        self._untouched: dict[str, int] = {}
        self._told = self._standing()
        self._probe_at: float | None = None
        """When the next probe is due; at once, in a run that begins in C."""
        self._waits = 0
        """How often this halt has been waited for already."""
        self._cause: Cause = ""
        self._retry_after_s: float | None = None

    @property
    def mode(self) -> DispatchMode:
        """What the journal says."""
        return self._engine.replica.state.health.mode

    @property
    def is_halted(self) -> bool:
        """Whether nothing is dispatched."""
        health = self._engine.replica.state.health
        return health.mode == "C" and not health.probing

    # What may be dispatched

    def capacity(self, free: int) -> int:
        """How many of ``free`` slots may be given out now."""
        state = self._engine.replica.state
        if state.health.mode != "C":
            return free
        if not state.health.probing:
            return 0
        return max(0, min(free, state.policies.probe_slots - len(self._small_batch)))

    def may_dispatch_untouched(self) -> bool:
        """Whether work that has not been tried may be dispatched."""
        return self.capacity(1) > 0

    def may_retry(self, name: str, deaths: int, *, more: int = 0) -> bool:
        """Whether work that has come to nothing ``deaths`` times may be dispatched again now.

        ``more`` is how much of that kind is on its way to be dispatched already.
        """
        if deaths <= 0 or self.mode == "C":
            return self.may_dispatch_untouched()
        if self.mode == "A" and deaths <= deaths_retried_by_itself:
            return True
        if any(self._untouched.values()):
            return False
        return self.mode == "A" or self._retries_at_work(name) + more < retries_at_once

    def _retries_at_work(self, name: str) -> int:
        return sum(deaths > 0 for other, deaths in self._at_work.items() if other != name)

    def report_untouched(self, owner: str, count: int) -> None:
        """How much of ``owner``'s work (a node with shards) has not been tried and could be now."""
        if count:
            self._untouched[owner] = count
        else:
            self._untouched.pop(owner, None)

    def began(self, name: str, *, deaths: int) -> None:
        """Something was dispatched that had come to nothing ``deaths`` times."""
        self._at_work[name] = deaths
        if self.mode == "C":
            self._small_batch.add(name)

    def ended(
        self,
        name: str,
        *,
        landed: bool,
        cause: Cause = "",
        retry_after_s: float | None = None,
    ) -> None:
        """It has ended, and its end is in the journal; ``cause`` is the wall that it died of."""
        self._at_work.pop(name, None)
        self._small_batch.discard(name)
        if landed or not cause:
            return
        self._cause, self._retry_after_s = cause, retry_after_s

    # Out of a halt

    def look(self, *, wanted: bool) -> None:
        """Once a turn of the loop: tell what has changed, and probe when that is due.

        ``wanted``: whether anything waits to be dispatched. A probe that passes is in the journal
        before anything is sent behind it.
        """
        self._tell()
        if not self.is_halted or not wanted:
            return
        if self._probe_at is None:
            self._probe_at = self._clock.monotonic() + self._patience_s()
            self._emit(
                {
                    "event": "dispatch_halted",
                    "cause": self._cause,
                    "wait_s": self._wait_s(),
                    "advice": advice_for(self._cause),
                }
            )
        if self.waits_for_person or self._clock.monotonic() < self._probe_at:
            return
        trouble = probe_disk(self._engine, "dispatch")
        self._probe_at = None
        self._waits += 1
        if trouble:
            self._emit({"event": "probe_failed", "node": None, "why": trouble})
            return
        reason = "a probe has passed: a file can be written durably"
        self._engine.execute(ChangeMode("C", reason, probing=True))
        self._tell()

    def _patience_s(self) -> float:
        if self._retry_after_s is not None:
            return self._retry_after_s
        return min(backoff_first_s * 2.0**self._waits, backoff_most_s)

    def _wait_s(self) -> float | None:
        return None if self.waits_for_person else round(self._patience_s(), 3)

    @property
    def wall(self) -> Cause:
        """What the halt is for, as far as this run has seen it."""
        return self._cause

    @property
    def waits_for_person(self) -> bool:
        """Whether a person has halted it, or the wall is a quota that names no time.

        A new run ends the second, and a person who changes the mode both.
        """
        nameless = self._cause == "quota" and self._retry_after_s is None
        return self.is_halted and (self._engine.replica.state.health.by_hand or nameless)

    def due_in_s(self) -> float:
        """When :meth:`look` has something to do; infinite when it has not."""
        if not self.is_halted or self._probe_at is None or self.waits_for_person:
            return float("inf")
        return max(0.0, self._probe_at - self._clock.monotonic())

    def _standing(self) -> tuple[str, bool, str]:
        health = self._engine.replica.state.health
        return health.mode, health.probing, health.since

    def _tell(self) -> None:
        standing = self._standing()
        if standing == self._told:
            return
        was, self._told = self._told, standing
        state = self._engine.replica.state
        if not state.health.probing:
            self._small_batch.clear()
            self._probe_at = None
        if state.health.mode != "C":
            self._waits, self._cause, self._retry_after_s = 0, "", None
        self._emit(
            {
                "event": "mode",
                "mode": state.health.mode,
                "before": was[0],
                "probing": state.health.probing,
                "first_death_rate": round(rate(state.health, state.policies), 4),
                "cause": self._cause,
                "ref": state.health.since,
            }
        )
