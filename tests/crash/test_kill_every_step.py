"""A process killed at every system call that changes the disk, in everything a runtime does.

After each death a new process recovers, a second one finds nothing left to do, and the work goes
on to its end. See ``machine.check_recovery`` for what is asserted.
"""

import pytest
from tests.crash.disk import Fuse, Killed
from tests.crash.machine import Machine, Workload, check_recovery
from tests.crash.workloads import ALL


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


def kill_points(trace: list[str]) -> list[Fuse]:
    """Before each call, and in the middle of each write. After a call is before the next one."""
    fuses = []
    for number, what in enumerate(trace, 1):
        fuses.append(Fuse(number, "before"))
        if what.startswith("write"):
            fuses.append(Fuse(number, "middle"))
    return fuses


@pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.__name__)
def test_death_at_every_step_loses_nothing_and_leaves_nothing_to_clean_up(
    workload: Workload, workspace: str
) -> None:
    journal, trace = whole_run(f"{workspace}/whole", workload)
    points = kill_points(trace)
    for index, fuse in enumerate(points):
        machine = killed_run(f"{workspace}/{index}", workload, fuse)
        try:
            check_recovery(machine, journal, task_id="T")
        except BaseException as error:
            error.add_note(f"killed {fuse.when} call {fuse.at}, {fuse.trace[-1]}: {workspace}/{index}")
            raise
    print(f"{workload.__name__}: {len(points)} kill points")
