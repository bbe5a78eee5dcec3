"""What the ground is like: the file system, its locks and its syncs.

Job: look before anything is promised. Invariants: a ground on which two processes would both be
let in, or on which a sync fails, is refused (StorageError); one that is only doubtful gets a
warning that says why. It writes one small file, in the scratch directory.
"""

import os
from typing import Final

import msgspec

from perdure.errors import StorageError
from perdure.runtime.world import World
from perdure.selftest.children import Children
from perdure.storage.filelock import RealFileLock

needed_bytes: Final = 4 << 20
"""Free space that a self-test wants to see."""
samples: Final = 20
cheap_sync_us: Final = 20.0
"""A sync that is faster than this has reached no medium."""

_MOUNTS: Final = "/proc/self/mounts"
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_NETWORK: Final = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4",
     "smb3", "smbfs", "sshfs"}
)  # fmt: skip


class Ground(msgspec.Struct):
    """What was seen."""

    directory: str
    file_system: str
    """Its type; ``unknown`` where the system does not tell."""
    mount_point: str
    device: str
    locks: str
    sync: str
    sync_us: float
    """Median time of one fdatasync of a short append, in microseconds."""
    warnings: list[str]


def examine(world: World, scratch: str, children: Children) -> Ground:
    """Look at the ground below the scratch directory. Raises StorageError when it will not do."""
    _check_space(scratch)
    kind, mount_point, device = mount_of(scratch, _mounts())
    sync_us = _time_sync(world, scratch)
    check_lock(f"{scratch}/.lock", children)
    ground = Ground(
        os.path.dirname(scratch),
        kind,
        mount_point,
        device,
        "a second process is kept out",
        "of files and directories succeeds",
        round(sync_us, 1),
        [],
    )
    ground.warnings += warnings_for(kind, sync_us)
    return ground


def warnings_for(kind: str, sync_us: float) -> list[str]:
    """Why this ground is doubtful, as sentences."""
    if kind in _IN_MEMORY:
        return [f"{kind} is in memory: what is here survives a killed process, not a restart"]
    found = []
    if kind in _NETWORK or kind.startswith("fuse."):
        found.append(
            f"{kind} is a network or user-space file system: whether its locks keep other machines"
            " out, and its syncs reach a medium, cannot be seen from here; prefer a local disk"
        )
    if kind in ("overlay", "aufs", "unionfs"):
        found.append(
            f"{kind} is the writable layer of a container and goes with it: keep workspaces on a"
            " volume"
        )
    if sync_us < cheap_sync_us:
        found.append(
            f"a sync takes {sync_us:.0f} us, too little to reach a medium: this disk may not"
            " survive a power cut"
        )
    return found


def _check_space(scratch: str) -> None:
    if not hasattr(os, "statvfs"):
        return
    seen = os.statvfs(scratch)
    free = seen.f_bavail * seen.f_frsize
    # Some file systems do not know; they say that they have no blocks at all.
    if seen.f_blocks and free < needed_bytes:
        raise StorageError(
            f"{os.path.dirname(scratch)} has {free >> 10} KiB free; the self-test needs"
            f" {needed_bytes >> 10}.",
            code="disk_full",
            fix="Free some disk space, then run the same command again.",
        )


def _time_sync(world: World, scratch: str) -> float:
    """Median microseconds of one sync. Raises StorageError when a file or directory cannot be
    synced."""
    path = f"{scratch}/sync"
    world.disk.replace(path, b"", durable=True)
    world.disk.sync_dir(scratch)
    file = world.disk.open_append(path)
    times = []
    for _ in range(samples):
        file.append(b"x" * 200 + b"\n")
        began = world.clock.monotonic()
        file.sync()
        times.append(world.clock.monotonic() - began)
    file.close()
    world.disk.unlink(path, durable=False)
    return sorted(times)[samples // 2] * 1e6


def check_lock(path: str, children: Children) -> None:
    """Raise StorageError unless a lock here keeps a second process out, and then lets it in."""
    lock = RealFileLock(path)
    held = lock.try_acquire()
    second = children.run("lock", path).lines
    lock.release()
    third = children.run("lock", path).lines
    lock.close()
    told = " ".join(second)
    if held and second[:1] == ["kept out"] and third[:1] == ["taken"]:
        return
    why = "two processes got the same lock" if second[:1] == ["taken"] else f"{told or 'no answer'}"
    raise StorageError(
        f"locks do not work on {os.path.dirname(os.path.dirname(path))}: {why}.",
        code="no_locks",
        fix="Keep workspaces on a local disk, or mount this one with locks.",
    )


Mount = tuple[str, str, str]
"""Type, mount point, device."""


def mount_of(path: str, mounts: list[Mount]) -> Mount:
    """The mount that a real path is on; the last one of those on the same point."""
    best: Mount = ("unknown", "", "")
    for mount in mounts:
        point = mount[1]
        below = path == point or path.startswith(point.rstrip("/") + "/")
        if below and len(point) >= len(best[1]):
            best = mount
    return best


def _mounts() -> list[Mount]:
    try:
        with open(_MOUNTS, "rb") as file:
            lines = file.read().decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
    return [
        (fields[2], _unescaped(fields[1]), _unescaped(fields[0]))
        for fields in (line.split(" ") for line in lines)
        if len(fields) > 2
    ]


def _unescaped(text: str) -> str:
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text
