"""Which units of a batch node go to the next worker.

Job: pack units into shards, and keep what came back. Invariants: a unit is in one shard at a time;
what nobody has tried goes before what has died twice (HALT-07 section 4); a shard that landed
nothing comes back in halves, so that one bad unit cannot hold the others for ever; a unit that
failed by itself is tried again in rounds, with a wait before each. Pure: the time is given.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

retry_wait_s_max: Final = 30.0


class Shard(NamedTuple):
    """Units for one worker, by their place among the items."""

    units: tuple[int, ...]
    deaths: int = 0
    """How many workers have died on them."""
    skip: tuple[int, ...] = ()
    """Units that came with them first and are done."""

    @property
    def is_untouched(self) -> bool:
        """Nobody has tried it."""
        return not self.deaths


class Allowed(NamedTuple):
    """What may be dispatched now."""

    untouched: bool = True
    once_dead: bool = True
    """What has died once, or was tried in an earlier run."""
    rest: bool = True
    """What has died more often; comes last in any case."""


class ShardQueue:
    """The units that are neither done nor at work."""

    def __init__(
        self, fresh: "array[int]", again: Sequence[int], *, size: int, retry_wait_s: float
    ) -> None:
        """``again``: units that failed in former runs; they go first, each shard of its own."""
        self._fresh = fresh
        self._next_fresh = 0
        self._size = size
        self._once: deque[Shard] = deque(
            Shard(tuple(again[at : at + size]), 1) for at in range(0, len(again), size)
        )
        self._rest: deque[Shard] = deque()
        self._retry_wait_s = retry_wait_s
        self._failed: list[int] = []
        self._round: list[int] = []
        self._round_at = 0.0
        self._rounds = 0

    @property
    def untouched(self) -> int:
        """How many units nobody has tried."""
        return len(self._fresh) - self._next_fresh

    @property
    def is_empty(self) -> bool:
        """Nothing is left to start, now or later."""
        waiting = self._once or self._rest or self._failed or self._round
        return not waiting and not self.untouched

    def put_back(self, shard: Shard, left: Sequence[int], *, landed: bool, died: bool) -> None:
        """Units of a shard that came to nothing; ``landed``: others of it are done, or failed."""
        if not left:
            return
        deaths = shard.deaths + died
        back = set(left)
        skip = (*shard.skip, *(unit for unit in shard.units if unit not in back))
        halves = [tuple(left)]
        if died and not landed and len(left) > 1:
            middle = len(left) // 2
            halves = [tuple(left[:middle]), tuple(left[middle:])]
        if deaths > 1:
            self._rest.extend(Shard(half, deaths, skip) for half in halves)
        else:  # it goes on where the last worker stopped, before anything else
            self._once.extendleft(Shard(half, max(1, deaths), skip) for half in reversed(halves))

    def split(self, shard: Shard) -> None:
        """The shard is too large for one contract: its halves take its place."""
        middle = len(shard.units) // 2
        halves = (shard.units[:middle], shard.units[middle:])
        self._once.extendleft(Shard(half, shard.deaths, shard.skip) for half in reversed(halves))

    def fail(self, unit: int) -> None:
        """A unit that failed by itself and may be tried again, in the next round."""
        self._failed.append(unit)

    def plan_round(self, now: float, *, idle: bool) -> None:
        """When all else has ended, what failed is to run again, after a longer wait each time."""
        if self._once or self._rest or self.untouched:
            return
        if not self._round and self._failed and idle:
            self._rounds += 1
            wait_s = min(self._retry_wait_s * 2 ** min(self._rounds - 1, 30), retry_wait_s_max)
            self._round, self._failed = self._failed, []
            self._round_at = now + wait_s
        if self._round and now >= self._round_at:
            units, self._round = self._round, []
            for at in range(0, len(units), self._size):
                self._rest.append(Shard(tuple(units[at : at + self._size]), 1))

    def due_in_s(self, now: float) -> float | None:
        """When the next round begins; None when none waits."""
        return max(0.0, self._round_at - now) if self._round else None

    def has(self, allowed: Allowed) -> bool:
        """Whether :meth:`take` has something."""
        return bool(
            (allowed.once_dead and self._once)
            or (allowed.untouched and self.untouched)
            or (allowed.rest and self._rest)
        )

    def take(self, allowed: Allowed, *, units_max: int) -> Shard:
        """The next shard; only after :meth:`has`. Of a longer one what is too much stays."""
        if allowed.once_dead and self._once:
            return self._cut(self._once, units_max)
        if allowed.untouched and self.untouched:
            stop = min(self._next_fresh + min(self._size, units_max), len(self._fresh))
            units = tuple(self._fresh[self._next_fresh : stop])
            self._next_fresh = stop
            return Shard(units)
        return self._cut(self._rest, units_max)

    @staticmethod
    def _cut(queue: deque[Shard], units_max: int) -> Shard:
        shard = queue.popleft()
        if len(shard.units) > units_max:
            queue.appendleft(shard._replace(units=shard.units[units_max:]))
        return shard._replace(units=shard.units[:units_max])

    def give_back(self, shard: Shard) -> None:
        """It was taken and could not be dispatched: it is next again, as it was."""
        if shard.is_untouched and shard.units == tuple(
            self._fresh[self._next_fresh - len(shard.units) : self._next_fresh]
        ):
            self._next_fresh -= len(shard.units)
        else:
            self._once.appendleft(shard)
