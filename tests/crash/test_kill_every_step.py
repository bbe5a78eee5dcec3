"""A process killed at every system call that changes the disk, in everything a runtime does.

After each death a new process recovers, a second one finds nothing left to do, and the work goes
on to its end. ``machine.check_recovery`` says what is asserted.
"""

import os
import random
import re
import shutil
from collections.abc import Callable

import pytest
from tests.crash.disk import Fuse, Killed
from tests.crash.machine import Machine, Workload, check_recovery
from tests.crash.scenes import SCENES
from tests.crash.workloads import ALL

SEED = int(os.environ.get("CRASH_SEED") or random.randrange(1 << 32))
deaths_in_recovery_sampled = 12
"""How many deaths inside a recovery each workload is tried with by default."""

Scene = Callable[[str], Machine]


def whole_run(root: str, workload: Workload) -> tuple[bytes, list[str]]:
    """The journal of a run that nothing disturbs, and the calls it makes."""
    machine = Machine(root)
    machine.boot_process(Fuse())
    workload(machine)
    machine.kill_process()
    return machine.journal(), machine.disk.fuse.trace


def killed_run(root: str, workload: Workload, fuse: Fuse) -> Machine:
    machine = Machine(root)
    machine.boot_process(fuse)
    with pytest.raises(Killed):
        workload(machine)
    machine.kill_process()
    return machine


def kill_points(trace: list[str]) -> list[tuple[int, str]]:
    """Before each call, and in the middle of each write. After a call is before the next one."""
    points = []
    for number, what in enumerate(trace, 1):
        points.append((number, "before"))
        if what.startswith("write"):
            points.append((number, "middle"))
    return points


def fuse_at(point: tuple[int, str]) -> Fuse:
    return Fuse(point[0], "middle" if point[1] == "middle" else "before")


def checked(machine: Machine, story: str, *possible: bytes) -> None:
    """``check_recovery``, and the directory is gone when it was right."""
    try:
        check_recovery(machine, *possible, task_id="T")
    except BaseException as error:
        error.add_note(f"{story}; what is left: {machine.root}")
        raise
    shutil.rmtree(machine.root)


@pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.__name__)
def test_death_at_every_step_loses_nothing_and_leaves_nothing_to_clean_up(
    workload: Workload, workspace: str
) -> None:
    journal, trace = whole_run(f"{workspace}/whole", workload)
    points = kill_points(trace)
    for point in points:
        fuse = fuse_at(point)
        machine = killed_run(f"{workspace}/w", workload, fuse)
        checked(machine, f"killed {point[1]} call {point[0]}, {fuse.trace[-1]}", journal)
    print(f"{workload.__name__}: killed at {len(points)} points")


# A recovery is opening a workspace and closing it again.


def recover(machine: Machine, fuse: Fuse) -> None:
    machine.boot_process(fuse)
    machine.open("T").close()


def recovery_trace(scene: Scene, root: str) -> tuple[bytes, bytes, list[str]]:
    """The journal before and after a recovery that nothing disturbs, and the calls it makes."""
    machine = scene(root)
    before = machine.journal()
    fuse = Fuse()
    recover(machine, fuse)
    machine.kill_process()
    shutil.rmtree(root, ignore_errors=True)
    return before, machine.acknowledged, fuse.trace


def check_death_in_recovery(
    scene: Scene, root: str, story: str, point: tuple[int, str], possible: tuple[bytes, bytes]
) -> None:
    machine = scene(root)
    fuse = fuse_at(point)
    with pytest.raises(Killed):
        recover(machine, fuse)
    machine.kill_process()
    where = f"recovery killed {point[1]} call {point[0]}, {fuse.trace[-1]}"
    checked(machine, f"{story}, {where}", *possible)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_death_at_every_step_of_a_recovery_is_recovered_from(scene: Scene, workspace: str) -> None:
    before, after, trace = recovery_trace(scene, f"{workspace}/whole")
    points = kill_points(trace)
    for point in points:
        check_death_in_recovery(scene, f"{workspace}/w", scene.__name__, point, (before, after))
    print(f"{scene.__name__}: recovery killed at {len(points)} points")


def every_double_death(workload: Workload, workspace: str) -> list[tuple[int, str, int, str]]:
    """Deaths in a workload, each with every death in the recovery from it.

    Of deaths whose recoveries make the same calls, the first one stands for all.
    """
    _, trace = whole_run(f"{workspace}/whole", workload)
    shutil.rmtree(f"{workspace}/whole")
    seen = set()
    double = []
    for first in kill_points(trace):
        _, _, again = recovery_trace(
            lambda root, first=first: killed_run(root, workload, fuse_at(first)),  # type: ignore[misc]
            f"{workspace}/probe",
        )
        kind = tuple(re.sub(r"[0-9a-f]{6,}|\d+", "", what) for what in again)
        if kind not in seen:
            seen.add(kind)
            double += [(*first, *second) for second in kill_points(again)]
    return double


def check_double_deaths(
    workload: Workload, workspace: str, chosen: list[tuple[int, str, int, str]]
) -> None:
    for first_at, first_when, second_at, second_when in chosen:

        def scene(root: str, at: int = first_at, when: str = first_when) -> Machine:
            return killed_run(root, workload, fuse_at((at, when)))

        before, after, _ = recovery_trace(scene, f"{workspace}/probe")
        check_death_in_recovery(
            scene,
            f"{workspace}/w",
            f"killed {first_when} call {first_at}",
            (second_at, second_when),
            (before, after),
        )


@pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.__name__)
def test_deaths_in_recoveries_from_deaths(workload: Workload, workspace: str) -> None:
    print(f"seed {SEED}")
    _, trace = whole_run(f"{workspace}/whole", workload)
    shutil.rmtree(f"{workspace}/whole")
    chance = random.Random(f"{SEED} {workload.__name__}")
    tried = 0
    for first in chance.sample(kill_points(trace), deaths_in_recovery_sampled):
        _, _, again = recovery_trace(
            lambda root, first=first: killed_run(root, workload, fuse_at(first)),  # type: ignore[misc]
            f"{workspace}/probe",
        )
        second = chance.choice(kill_points(again))
        check_double_deaths(workload, workspace, [(*first, *second)])
        tried += 1
    print(f"{workload.__name__}: killed in {tried} recoveries")


@pytest.mark.crash_full
@pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.__name__)
def test_every_death_in_every_recovery_from_a_death(workload: Workload, workspace: str) -> None:
    chosen = every_double_death(workload, workspace)
    check_double_deaths(workload, workspace, chosen)
    print(f"{workload.__name__}: killed twice at {len(chosen)} pairs of points")
