"""What a killed run of a job left running, stopped before the job goes on.

Job: find the processes of item commands whose run died, end them, and clear away their files.
Invariants: nothing of a former run is still at work when a command of the next one starts, or the
caller is told what is; only what is proven to belong to a run of this job is signalled. The caller
holds the job, so that no run but a dead one can have left a record.
"""

from typing import NamedTuple

from perdure.control.item_command import RUN_PREFIX
from perdure.errors import BusyError
from perdure.jobs.place import RUN_NAME
from perdure.ports import Clock, Disk, is_temp_name
from perdure.runtime.orphans import Orphan, find_orphans, stop_orphans


class FormerRun(NamedTuple):
    """What was found of runs that died."""

    stopped: list[Orphan]
    left: list[Orphan]
    """Those that could not be stopped: no command may start while they are at work."""

    def require_gone(self, *, fix: str) -> None:
        """Raise BusyError, with this fix, while any of it is at work."""
        if self.left:
            names = ", ".join(f"{orphan.name} ({orphan.pid})" for orphan in self.left)
            raise BusyError(
                f"commands of a former run are still at work and cannot be stopped: {names}.",
                code="orphans_left",
                rule="JB-3",
                fix=fix,
            )


def stop_former_run(directory: str, *, disk: Disk, clock: Clock) -> FormerRun:
    """Stop what former runs of the job in ``directory`` left running, and remove their files.

    Blocks until it is gone, some seconds at most. Looks at no process when no run died. A crash in
    the middle leaves the records, and the next call goes on. Raises StorageError.
    """
    run_directory = f"{directory}/{RUN_NAME}"
    if not disk.list_dir(run_directory):
        return FormerRun([], [])
    found = find_orphans({}, run_directory, disk=disk)
    left = stop_orphans(found, clock=clock) if found else []
    if not left:
        _discard_files(run_directory, disk)
    refused = {orphan.pid for orphan in left}
    return FormerRun([orphan for orphan in found if orphan.pid not in refused], left)


def _discard_files(run_directory: str, disk: Disk) -> None:
    """Remove what commands of former runs left; what is no file of such a run stays."""
    for name in disk.list_dir(run_directory):
        path = f"{run_directory}/{name}"
        stat = disk.stat(path)
        ours = name.startswith(RUN_PREFIX) or is_temp_name(name)
        if ours and stat is not None and stat.kind == "file":
            disk.unlink(path, durable=False)
