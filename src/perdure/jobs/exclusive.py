"""One process at a time on a job, and one object in it (JB-3).

Job: take a job directory, say who has it, hand it on. Invariants: the operating system's lock
decides between processes, so a dead holder is no obstacle and nobody ever has to delete anything;
between two objects of one process the newer one has it; a forked child has nothing of what its
parent has. ``.holder.json`` only tells a refused process whom to ask: it is written as well as may
be, and never believed.
"""

import os
import threading
import weakref
from contextlib import suppress
from typing import Final, Literal, NoReturn

import msgspec

from perdure.core.codec import timestamp
from perdure.errors import BusyError, FencedError, LeaseHeldError, RefusedError, StorageError
from perdure.ports import Disk, FileLock, ProcessIdentity
from perdure.runtime.world import World
from perdure.storage.disk import RealDisk

LOCK_NAME: Final = ".lock"
HOLDER_NAME: Final = ".holder.json"

turn_wait_s: Final = 10.0
"""How long a newer object waits for the call of an older one to end."""
holder_looks_max: Final = 25
"""How often a refused process looks for the name of a holder that has not said it yet."""
holder_look_s: Final = 0.02
"""Between two of these looks."""
_holder_bytes_max: Final = 64 << 10
_rounds_max: Final = 8

Lost = Literal["", "superseded", "forked", "closed"]


class Holder(msgspec.Struct, frozen=True):
    """Who works on a job, as ``.holder.json`` says it."""

    pid: int
    host: str
    boot_id: str
    started: float
    at: str
    """When it took the job."""

    def process(self) -> ProcessIdentity:
        """The holder as the process table knows it."""
        return ProcessIdentity(self.host, self.boot_id, self.pid, self.started)


class Claim:
    """One object's hold on one job directory."""

    def __init__(self, disk: Disk, root: str, name: str, lock: FileLock) -> None:
        self.root = root
        self.name = name
        self.guard = threading.Lock()
        """Held during every call that changes something."""
        self.lost: Lost = ""
        """Why this object may not go on; empty while it may."""
        self._disk = disk
        self._lock = lock

    def refuse(self) -> NoReturn:
        """Raise the error for a call on an object that has lost its job."""
        if self.lost == "superseded":
            raise FencedError(
                f"the job in {self.root} was opened again in this process, and that object has it"
                " now.",
                rule="JB-3",
                fix="Use the newer object; what was recorded is kept.",
            )
        if self.lost == "forked":
            raise BusyError(
                f"the job in {self.root} belongs to the process that this one was forked from.",
                code="job_forked",
                rule="JB-3",
                fix="Return results to the parent process and record them there, as map does.",
            )
        raise RefusedError(
            f"this object of the job in {self.root} was closed.",
            code="closed",
            rule="JB-3",
            fix="Open the job again.",
        )

    def supersede(self) -> None:
        """Take the job from this object, after the call that it may be in. Raises BusyError."""
        if not self.guard.acquire(timeout=turn_wait_s):
            raise BusyError(
                f"another object of this process has been in a call on the job in {self.root} for"
                f" {turn_wait_s:.0f} s.",
                code="job_busy",
                rule="JB-3",
                fix="Open a job outside its own calls and signal handlers.",
            )
        try:
            if not self.lost:
                self.lost = "superseded"
                self._lock.close()
        finally:
            self.guard.release()

    def release(self) -> None:
        """Let the next one have the job. Harmless when it was lost before."""
        if self.lost == "":
            self.lost = "closed"
            try:
                with suppress(StorageError):
                    self._disk.unlink(f"{self.root}/{HOLDER_NAME}", durable=False)
            finally:
                self._lock.close()


class _Claims:
    """The claims of this process, by real path and by disk."""

    def __init__(self) -> None:
        self.taking = threading.Lock()
        self.current: weakref.WeakValueDictionary[tuple[str, int | None], Claim] = (
            weakref.WeakValueDictionary()
        )


_claims: Final = _Claims()


def take_job(world: World, root: str, name: str) -> Claim:
    """Take the job in the directory ``root``; the claim's guard is held on return.

    An older object of this process loses it. Raises LeaseHeldError when another process has it, at
    once unless that one has yet to say who it is; RefusedError when this process has it under
    another name; StorageError.
    """
    # A simulated disk is a process of its own; all real ones belong to this one.
    key = (root, None if isinstance(world.disk, RealDisk) else id(world.disk))
    lock = world.disk.lock(f"{root}/{LOCK_NAME}")
    for _ in range(_rounds_max):
        older = _claims.current.get(key)
        if older is not None and not older.lost:
            if older.name != name:
                raise other_job(root, older.name, name)
            older.supersede()
        with _claims.taking:
            if lock.try_acquire():
                claim = Claim(world.disk, root, name, lock)
                claim.guard.acquire()
                _claims.current[key] = claim
                break
            is_elsewhere = _claims.current.get(key) is older
        if is_elsewhere:
            raise _held(world, root)
    else:
        raise _held(world, root)
    _tell_holder(world, root)
    return claim


def other_job(root: str, found: str, wanted: str) -> RefusedError:
    """The error for a directory that holds a job of another name."""
    return RefusedError(
        f"{root} holds the job {found!r}, not {wanted!r}.",
        code="other_job",
        rule="JB-2",
        fix="Name another directory for the new job: one directory holds one job.",
    )


def read_holder(disk: Disk, root: str) -> Holder | None:
    """What ``.holder.json`` says; None when it is missing or says nothing."""
    path = f"{root}/{HOLDER_NAME}"
    try:
        if disk.stat(path) is None:
            return None
        return msgspec.json.decode(disk.read(path, length=_holder_bytes_max), type=Holder)
    except (StorageError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _tell_holder(world: World, root: str) -> None:
    me = world.processes.me()
    at = timestamp(world.clock.now())
    holder = Holder(me.pid, me.host, me.boot_id, me.started, at)
    with suppress(StorageError):
        world.disk.replace(f"{root}/{HOLDER_NAME}", msgspec.json.encode(holder), durable=False)


def _held(world: World, root: str) -> LeaseHeldError:
    holder = _holder_of_now(world, root)
    if holder is None:
        who, stop = "another process, which has not said which", "that process"
    else:
        who = f"pid {holder.pid} on {holder.host} since {holder.at}"
        stop = f"process {holder.pid}"
    return LeaseHeldError(
        f"the job in {root} is held by {who}.",
        code="job_held",
        rule="JB-3",
        fix=f"Wait until it is done, or stop {stop}, then run this again.",
    )


def _holder_of_now(world: World, root: str) -> Holder | None:
    """Who has the job. What an earlier holder left is no answer: that of now is just writing it."""
    for _ in range(holder_looks_max):
        holder = read_holder(world.disk, root)
        if holder is not None and world.processes.state(holder.process()) != "gone":
            return holder
        world.clock.sleep(holder_look_s)
    return None


def _disown() -> None:
    """In a forked child: nothing that the parent has is ours, and no lock of its threads counts."""
    _claims.taking = threading.Lock()
    for claim in list(_claims.current.values()):
        claim.lost = claim.lost or "forked"
    _claims.current.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)
