"""A system call that fails: a full disk or an I/O error at calls that change the real disk.

What failed is not acknowledged, the object is dead, the message names the cause, no temporary
file is left, and a new object in the same process goes on from what had been acknowledged. A
sample of the calls by default, all of them under ``crash_full``; ``test_power_loss`` has the same
on a simulated disk, with the power lost afterwards.
"""

import errno
import os
import shutil

import pytest
from tests.crash.checks import check_recovery, check_second_recovery, whole_commits
from tests.crash.disk import FailingFuse
from tests.crash.machine import Machine, check_no_litter
from tests.crash.tally import Tally
from tests.crash.test_kill_every_step import sampled, some_or_all, whole_run
from tests.crash.workloads import ALL, Workload, batch, quarantine, short_commands

from perdure.errors import HaltError, StorageError

CAUSES = {
    "disk_full": (errno.ENOSPC, "disk space"),
    "io_error": (errno.EIO, "EIO"),
}
CASES = [
    *((workload, "disk_full") for workload in ALL),
    *((workload, "io_error") for workload in (quarantine, batch, short_commands)),
]


def failed_run(
    root: str, workload: Workload, fuse: FailingFuse
) -> tuple[Machine, HaltError | None]:
    """A run in which a call fails. None: nobody needs to know, because only a view was lost."""
    machine = Machine(root)
    machine.boot_process(fuse)
    try:
        workload(machine)
    except HaltError as error:
        return machine, error
    return machine, None


@some_or_all
@pytest.mark.parametrize(
    ("workload", "cause"), CASES, ids=[f"{workload.__name__}-{cause}" for workload, cause in CASES]
)
def test_failing_call_acknowledges_nothing_and_a_new_object_goes_on(
    workload: Workload, cause: str, count: int, workspace: str, tally: Tally
) -> None:
    number, _ = CAUSES[cause]
    journal, trace = whole_run(f"{workspace}/whole", workload)
    points = list(range(1, len(trace) + 1))
    for at in sampled(points, count, workload.__name__, cause):
        tally.add("failures on the real disk")
        fuse = FailingFuse(at, number)
        machine, error = failed_run(f"{workspace}/w", workload, fuse)
        story = f"call {at}, {trace[at - 1]}, failed; what is left: {machine.root}"
        try:
            check_failure(machine, error, fuse, journal, cause)
        except BaseException as failure:
            failure.add_note(story)
            raise
        shutil.rmtree(machine.root, ignore_errors=True)


def check_failure(
    machine: Machine,
    error: HaltError | None,
    fuse: FailingFuse,
    journal: bytes,
    cause: str,
) -> None:
    assert fuse.failed
    if os.path.exists(machine.root):
        check_no_litter(machine.root)
    if error is None:
        # A projection, or the lease at the end: the events are all there.
        assert machine.journal() == journal
    else:
        assert isinstance(error, StorageError)
        assert (error.code, error.exit_code) == (cause, 7)
        assert CAUSES[cause][1] in str(error)
        assert "ermission" not in str(error)
        check_dead(machine)
    left = machine.journal()
    for runtime in machine.runtimes:
        runtime.close()
    assert machine.journal() == left, "closing wrote to the journal"
    assert whole_commits(left).startswith(whole_commits(machine.acknowledged))
    machine.boot_process()
    check_recovery(machine, journal)
    check_second_recovery(machine)
    machine.boot_process()
    machine.open().note("and on it goes")
    machine.kill_process()


def check_dead(machine: Machine) -> None:
    """An object whose write failed refuses every later write, and reads on."""
    for runtime in machine.runtimes[-1:]:
        before = machine.journal()
        if runtime.engine._broken is not None:
            with pytest.raises(StorageError, match="earlier failure"):
                runtime.note("once more")
            assert machine.journal() == before
