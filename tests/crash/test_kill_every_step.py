"""A process killed on the real disk: before calls that change it, and in the middle of writes.

The calls, files and locks are those of this machine. ``test_power_loss`` does the same on a
simulated disk, after every step and with the power lost as well; here it is shown that the real
one is no different, by a sample of the calls with the session's seed, and by all of them under
``crash_full``. ``checks`` says what must hold after each death.
"""

import shutil
from collections.abc import Callable
from typing import TypeVar

import pytest
from tests.crash.checks import check_recovery, check_second_recovery, finish
from tests.crash.disk import Fuse, Killed
from tests.crash.machine import Machine
from tests.crash.scenes import SCENES
from tests.crash.tally import Tally, chance_for
from tests.crash.workloads import ALL, Workload

T = TypeVar("T")
Point = tuple[int, str]
"""Number of a call, and ``before`` or ``middle``."""

calls_sampled = 6
"""How many deaths each workload and each recovery is tried with by default."""

full = pytest.mark.crash_full
each_workload = pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.__name__)
each_scene = pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
some_or_all = pytest.mark.parametrize(
    "count", [pytest.param(calls_sampled, id="some"), pytest.param(1 << 30, marks=full, id="all")]
)


def whole_run(root: str, workload: Workload) -> tuple[bytes, list[str]]:
    """The journal of a run that nothing disturbs, and the calls it makes."""
    machine = Machine(root)
    machine.boot_process(Fuse())
    workload(machine)
    machine.kill_process()
    trace = machine.disk.fuse.trace
    shutil.rmtree(root)
    return machine.acknowledged, trace


def killed_run(root: str, workload: Workload, fuse: Fuse) -> Machine:
    machine = Machine(root)
    machine.boot_process(fuse)
    with pytest.raises(Killed):
        workload(machine)
    machine.kill_process()
    return machine


def kill_points(trace: list[str]) -> list[Point]:
    """Before each call, and in the middle of each write. After a call is before the next one."""
    points = []
    for number, what in enumerate(trace, 1):
        points.append((number, "before"))
        if what.startswith("write"):
            points.append((number, "middle"))
    return points


def fuse_at(point: Point) -> Fuse:
    return Fuse(point[0], "middle" if point[1] == "middle" else "before")


def sampled(points: list[T], count: int, *names: object) -> list[T]:
    return chance_for(*names).sample(points, min(count, len(points)))


def check(machine: Machine, tally: Tally, story: str, *possible: bytes) -> None:
    """All checks in new processes; the directory is gone when everything was right."""
    tally.add("states")
    tally.add("on the real disk")
    try:
        machine.boot_process()
        check_recovery(machine, *possible)
        check_second_recovery(machine)
        finish(machine)
    except BaseException as error:
        error.add_note(f"{story}; what is left: {machine.root}")
        raise
    machine.kill_process()
    shutil.rmtree(machine.root)


@each_workload
@some_or_all
def test_death_at_a_call_loses_nothing_and_leaves_nothing_to_clean_up(
    workload: Workload, count: int, workspace: str, tally: Tally
) -> None:
    journal, trace = whole_run(f"{workspace}/whole", workload)
    for point in sampled(kill_points(trace), count, workload.__name__):
        fuse = fuse_at(point)
        machine = killed_run(f"{workspace}/w", workload, fuse)
        check(machine, tally, f"killed {point[1]} call {point[0]}, {fuse.trace[-1]}", journal)


# A recovery is opening a workspace and closing it again.


def recover(machine: Machine, fuse: Fuse) -> None:
    machine.boot_process(fuse)
    machine.open("T").close()


def left_by(scene: Callable[[Machine], object], root: str) -> Machine:
    machine = Machine(root)
    scene(machine)
    machine.kill_process()
    return machine


def recovery_trace(damaged: Callable[[], Machine]) -> tuple[bytes, bytes, list[str]]:
    """The journal before and after a recovery that nothing disturbs, and the calls it makes."""
    machine = damaged()
    before = machine.journal()
    fuse = Fuse()
    recover(machine, fuse)
    machine.kill_process()
    shutil.rmtree(machine.root)
    return before, machine.acknowledged, fuse.trace


def check_deaths_in_recovery(
    damaged: Callable[[], Machine], tally: Tally, count: int, story: str
) -> None:
    before, after, trace = recovery_trace(damaged)
    for point in sampled(kill_points(trace), count, story):
        machine = damaged()
        fuse = fuse_at(point)
        with pytest.raises(Killed):
            recover(machine, fuse)
        machine.kill_process()
        where = f"recovery killed {point[1]} call {point[0]}, {fuse.trace[-1]}"
        check(machine, tally, f"{story}, {where}", before, after)


@each_scene
@some_or_all
def test_death_at_a_call_of_a_recovery_is_recovered_from(
    scene: Callable[[Machine], object], count: int, workspace: str, tally: Tally
) -> None:
    damaged = lambda: left_by(scene, f"{workspace}/w")  # noqa: E731
    check_deaths_in_recovery(damaged, tally, count, scene.__name__)


@pytest.mark.crash_full
@each_workload
def test_death_in_a_recovery_from_a_death_is_recovered_from(
    workload: Workload, workspace: str, tally: Tally
) -> None:
    _, trace = whole_run(f"{workspace}/whole", workload)
    for first in sampled(kill_points(trace), 40, workload.__name__, "twice"):
        check_deaths_in_recovery(
            lambda first=first: killed_run(f"{workspace}/w", workload, fuse_at(first)),  # type: ignore[misc]
            tally,
            4,
            f"killed {first[1]} call {first[0]}",
        )
