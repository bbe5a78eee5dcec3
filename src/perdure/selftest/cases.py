"""Cases, and the order in which they are tried.

Invariants: the order is a function of the seed alone; a short run tries every kind at least once.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple, TypeVar

from perdure.runtime.world import World
from perdure.selftest.children import Children

T = TypeVar("T")


class Case(NamedTuple):
    """One thing that is done to a workspace, with everything that must hold afterwards."""

    name: str
    attempt: Callable[[str], None]
    """Tries it in a directory that does not exist yet. Raises when something does not hold."""


class Kind(NamedTuple):
    """Cases of one sort."""

    name: str
    cases: Iterator[Case]
    per_round: int = 1
    every: int = 1
    """Only every so many rounds, beginning with the first."""


class Stage(NamedTuple):
    """What the cases work with."""

    world: World
    children: Children
    scratch: str
    chance: "Chance"


class Chance:
    """Repeatable choices: the same seed and name give the same ones."""

    def __init__(self, seed: int, name: str = "") -> None:
        self._seed = seed
        self._name = name
        self._count = 0

    def named(self, name: str) -> "Chance":
        """Choices of their own for this name."""
        return Chance(self._seed, f"{self._name}/{name}")

    def below(self, limit: int) -> int:
        """A number from 0 to ``limit`` - 1."""
        self._count += 1
        digest = sha256(f"{self._seed} {self._name} {self._count}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % limit

    def one_of(self, things: Sequence[T]) -> T:
        """One of them."""
        return things[self.below(len(things))]

    def shuffled(self, things: Sequence[T]) -> list[T]:
        """All of them, in an order of chance."""
        left = list(things)
        for last in range(len(left) - 1, 0, -1):
            other = self.below(last + 1)
            left[last], left[other] = left[other], left[last]
        return left


def in_order(kinds: Sequence[Kind]) -> Iterator[tuple[int, Kind, Case]]:
    """Round by round, some of each kind, until there are none left. The round counts from 0."""
    left = list(kinds)
    number = 0
    while left:
        for kind in list(left):
            if number % kind.every:
                continue
            for _ in range(kind.per_round):
                case = next(kind.cases, None)
                if case is None:
                    left.remove(kind)
                    break
                yield number, kind, case
        number += 1
