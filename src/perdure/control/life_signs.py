"""Signs of life of workers that say nothing themselves.

Job: see that the log and the scope of a worker grow, journal that as HEARTBEATs, and suspect who
has been silent for longer than a policy allows (RT-3). Invariants: a suspicion is journaled once
for each contract, with the observation and the policy, and changes nothing else: nobody is stopped
for being silent (F12); a HEARTBEAT is written only for what has changed, at most once in
``heartbeat_s``. What cannot be looked at counts as silent.
"""

import os
from statistics import median
from typing import Final

import msgspec

from perdure.control.endings import Emit
from perdure.core.dispatch_commands import Suspect
from perdure.core.model import Policies
from perdure.errors import HaltError, TransitionError
from perdure.runtime import work
from perdure.runtime.engine import Engine

looks_each_heartbeat: Final = 4
"""Looks at log and scope in ``heartbeat_s``."""
entries_max: Final = 1_000
"""Files of a scope that are looked at; a scope that holds more is still seen to grow in these."""
times_kept: Final = 100


class _Watched(msgspec.Struct):
    node_id: str
    paths: tuple[str, ...]
    seen: tuple[int, int]
    began_at: float
    sign_at: float
    looked_at: float
    beat_at: float
    suspected: bool = False


class LifeSigns:
    """The workers of one run that are watched."""

    def __init__(self, engine: Engine, emit: Emit) -> None:
        self._engine = engine
        self._clock = engine.world.clock
        self._emit = emit
        self._watched: dict[str, _Watched] = {}
        self._times: list[float] = []
        """How long work took that landed, the newest last."""

    def watch(self, invocation: str, node_id: str, paths: tuple[str, ...]) -> None:
        """A worker has started; what it does shows in these files and directories."""
        now = self._clock.monotonic()
        self._watched[invocation] = _Watched(node_id, paths, _size(paths), now, now, now, now)

    def forget(self, invocation: str, *, landed: bool) -> None:
        """It has ended; how long it took tells what to expect of the others, if it landed."""
        gone = self._watched.pop(invocation, None)
        if gone is not None and landed:
            self._times = [*self._times, self._clock.monotonic() - gone.began_at][-times_kept:]

    def look(self) -> None:
        """See who has grown; beat for them, and suspect who is silent for too long."""
        policies, now = self._engine.replica.state.policies, self._clock.monotonic()
        for invocation, watched in list(self._watched.items()):
            if now - watched.looked_at < policies.heartbeat_s / looks_each_heartbeat:
                continue
            watched.looked_at = now
            seen = _size(watched.paths)
            if seen != watched.seen:
                watched.seen, watched.sign_at = seen, now
            if watched.sign_at > watched.beat_at and now - watched.beat_at >= policies.heartbeat_s:
                watched.beat_at = now
                self._beat(watched.node_id, seen)
            silent_s, allowed_s = now - watched.sign_at, self._allowed_s(policies)
            if silent_s > allowed_s and not watched.suspected:
                watched.suspected = True
                self._suspect(invocation, watched, silent_s, allowed_s)

    def due_in_s(self) -> float:
        """When the next look is due; infinite when nobody is watched."""
        pause_s = self._engine.replica.state.policies.heartbeat_s / looks_each_heartbeat
        now = self._clock.monotonic()
        waits = [watched.looked_at + pause_s - now for watched in self._watched.values()]
        return max(0.0, min(waits, default=float("inf")))

    def _allowed_s(self, policies: Policies) -> float:
        usual_s = median(self._times) if self._times else policies.heartbeat_s
        return max(policies.heartbeat_s, policies.suspected_dead_factor * usual_s)

    def _beat(self, node_id: str, seen: tuple[int, int]) -> None:
        try:
            work.beat(self._engine, (node_id,), f"{seen[0]} files, {seen[1]} bytes")
        except TransitionError:  # ended by a message that came in with this very commit
            if self._engine.replica.state.nodes[node_id].state == "RUNNING":
                raise

    def _suspect(
        self, invocation: str, watched: _Watched, silent_s: float, allowed_s: float
    ) -> None:
        factor = self._engine.replica.state.policies.suspected_dead_factor
        policy = f"suspected_dead_factor {factor:g} x median time, at least heartbeat_s"
        last = "its log or its scope grew" if watched.sign_at > watched.began_at else "its start"
        command = Suspect(invocation, round(silent_s, 3), round(allowed_s, 3), policy, last)
        try:
            self._engine.execute(command)
        except HaltError:
            if not self._engine.is_usable:
                raise
            return  # its end came in with this very commit
        self._emit(
            {
                "event": "suspected",
                "node": watched.node_id,
                "invocation": invocation,
                "silent_s": round(silent_s, 3),
                "allowed_s": round(allowed_s, 3),
                "policy": policy,
            }
        )


def _size(paths: tuple[str, ...]) -> tuple[int, int]:
    """How many files there are, and their bytes."""
    files = size_bytes = 0
    for path in paths:
        for entry in _entries(path):
            files += 1
            size_bytes += entry
            if files >= entries_max:
                return files, size_bytes
    return files, size_bytes


def _entries(path: str) -> "list[int]":
    sizes: list[int] = []
    try:
        if not os.path.isdir(path):
            return [os.stat(path).st_size]
        for directory, _, names in os.walk(path):
            for name in names:
                sizes.append(os.lstat(os.path.join(directory, name)).st_size)
                if len(sizes) >= entries_max:
                    return sizes
    except OSError:
        pass
    return sizes
