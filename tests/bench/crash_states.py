"""How many states a crash test tries in a second: so much of what is possible it can try.

A state is a disk that a power cut may leave. To try it is to make it, and to open, recover and
close the workspace on it. The limit beside it is opening and closing one that nothing has happened
to, on the same kind of disk.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from random import Random

from measure import Figure, alternate, timed

from perdure import HaltRuntime
from perdure.runtime.world import World
from perdure.testing import Killed, SimDisk, next_world, power_loss_states, sim_world

ROOT = "/task"
_steps_apart = 3


def work(disk: SimDisk) -> World:
    """A node from its creation to DONE, as far as the process lives."""
    world = sim_world(disk)
    with suppress(Killed), HaltRuntime(ROOT, "T", world=world) as runtime:
        runtime.add_node("N1", "one", outputs=["artifacts/N1/a.txt"])
        runtime.start("N1")
        disk.write(f"{ROOT}/artifacts/N1/a.txt", b"a")
        runtime.submit("N1")
    return world


def figures(rounds: int, states_per_round: int) -> Iterator[Figure]:
    """Trying a state of a crash, against opening and closing where there was none."""
    clean = SimDisk()
    closed = work(clean)
    crashed = []
    for step in range(_steps_apart, len(clean.log), _steps_apart):
        disk = SimDisk(cut_after=step)
        crashed.append((work(disk), disk))
    turn = cycle(crashed)

    def try_states() -> None:
        for number in range(states_per_round):
            world, disk = next(turn)
            (left,) = power_loss_states(disk, "independent", chance=Random(number), limit=1)
            HaltRuntime(ROOT, "T", world=next_world(world, left, power_cut=True)).close()

    def open_and_close() -> None:
        for _ in range(states_per_round):
            same = clean.holding(clean.files.copy())
            HaltRuntime(ROOT, "T", world=next_world(closed, same, power_cut=True)).close()

    found = alternate(
        rounds, {"try": lambda: timed(try_states), "open": lambda: timed(open_and_close)}
    )
    state_us = found.median_us("try", states_per_round)
    sizes = {"us": state_us, "states a second": round(1e6 / state_us)}
    yield found.figure("try a state / open and close", "try", "open", "", sizes)
