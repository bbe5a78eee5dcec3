"""Sealing a closed task: its files become read-only.

Job: take the right to write from everything in the workspace. Invariants: it happens behind the
event that closes the task, and again until all of it is done, so that a crash in between leaves
nothing half sealed for good; the lock is sealed before anything else, so that whoever can still
take it finds nothing sealed; nothing is read, moved or removed; reading works as before.
"""

from typing import Final

from perdure.errors import StorageError
from perdure.ports import Disk

depth_max: Final = 64


def seal(disk: Disk, root: str, lock: str) -> int:
    """Make every file and directory below ``root`` read-only, the file ``lock`` first and the root
    itself last; how many that were.

    Raises StorageError for what cannot be sealed; then it is called again.
    """
    paths = [f"{root}/{name}" for name in disk.list_dir(root)]
    sealed = 0
    for path in sorted(paths, key=lambda path: (path != lock, path)):
        sealed += _seal(disk, path, depth_max)
    disk.make_read_only(root)
    return sealed + 1


def _seal(disk: Disk, path: str, depth: int) -> int:
    seen = disk.stat(path)
    if seen is None or seen.kind in ("link", "other"):
        return 0
    sealed = 0
    if seen.kind == "dir":
        if depth <= 0:
            raise StorageError(
                f"{path} lies too deep to be sealed.",
                code="seal_too_deep",
                rule="FST-3",
                fix="Move what lies there up, then close the task again.",
            )
        for name in disk.list_dir(path):
            sealed += _seal(disk, f"{path}/{name}", depth - 1)
    disk.make_read_only(path)
    return sealed + 1
