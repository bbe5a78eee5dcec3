"""Checkpointed jobs: where they stand, their proof, and what failed.

Job: find a job and ask about it, or let its failed items go on, so that interfaces only parse, call
and render. Invariants: queries write nothing and take no lock; every answer is JSON-like data.
Paths are relative to the directory that the call was made in.
"""

import os
import re
import shlex
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from perdure.core.batch import BATCH_RECORD_NAME
from perdure.core.late import LateModule
from perdure.core.lookup import near
from perdure.errors import NotFoundError, RefusedError, StorageError, UsageError
from perdure.jobs.checkpoints import STATE_NAME
from perdure.jobs.inspection import JOB_FILES, verify_job
from perdure.jobs.lines import item_hash
from perdure.jobs.records import ErrorEntry, is_job_name
from perdure.jobs.scan import Unkept
from perdure.jobs.state_file import decode_state
from perdure.jobs.status import job_errors, job_status
from perdure.ports import Disk
from perdure.runtime.world import real_world

Data = dict[str, Any]

# Looking at a job needs nothing of what records one.
_job: Final = LateModule("perdure.jobs.job")

looked_in_max: Final = 1_000
"""Entries of a directory that are looked at for a job that may have been meant."""
_HASH: Final = re.compile(r"[0-9a-f]{16}\Z")


def job_status_of(directory: str, start_dir: str) -> Data:
    """Where a job stands; quick for one of any size. Raises NotFoundError."""
    world = real_world()
    path = _find_job(world.disk, directory, start_dir)
    return job_status(world.disk, path, processes=world.processes)


def verify_job_of(directory: str, start_dir: str) -> Data:
    """Everything that does not hold in a job, by ``defects`` and ``counts``; ``exit_code``."""
    disk = real_world().disk
    report = verify_job(disk, _find_job(disk, directory, start_dir))
    return {**msgspec.to_builtins(report), "exit_code": report.exit_code}


def job_errors_of(directory: str, start_dir: str, *, limit: int, after: str | None) -> Data:
    """A page of the items that failed. ``after`` is ``next`` of the page before, or a key."""
    disk = real_world().disk
    if after is not None and not _HASH.match(after):
        after = item_hash(after)
    return job_errors(disk, _find_job(disk, directory, start_dir), limit=limit, after=after)


def retry_items(
    directory: str, start_dir: str, keys: Sequence[str], *, every: bool, lost: bool
) -> Data:
    """Give failed items their attempts back: those of ``keys``, or all; ``reset`` counts them.

    ``lost`` forgets that items are done which have no finding, and then no failed item is meant
    unless it is named; ``forgotten`` counts them. Before that it moves the lines of the log that
    cannot be read to ``.torn/``; ``set_aside`` counts them. Takes the job while it does so. Raises
    UsageError and NotFoundError, which change nothing, LeaseHeldError and StorageError.
    """
    if keys and every:
        raise UsageError(
            "items are named, and --all means every item that failed.",
            fix="Leave out --all, or the items.",
        )
    world = real_world()
    path = _find_job(world.disk, directory, start_dir)
    require_own_job(world.disk, path)
    with _job.CheckpointedJob(path, name_of(world.disk, path), world=world) as job:
        failed = _failed_keys(job.errors, keys, directory, is_done=job.is_done)
        reset = forgotten = aside = None
        if keys or every or not lost:
            reset = job.reset_attempts(failed or None)
        if lost:
            aside = job.set_damage_aside()
            forgotten = job.forget(job.state["completed"])
    return {
        "job": job.name,
        "directory": path,
        "reset": reset,
        "forgotten": forgotten,
        "set_aside": aside,
    }


def _failed_keys(
    errors: Sequence[ErrorEntry],
    names: Sequence[str],
    directory: str,
    *,
    is_done: Callable[[str], bool],
) -> list[str]:
    """The failed items of these names: keys, or hashes. Raises NotFoundError for any other."""
    failed = dict.fromkeys(entry.key for entry in errors)
    by_hash = {entry.hash: entry.key for entry in errors}
    keys = []
    for key in names:
        if key in failed or key in by_hash:
            keys.append(key if key in failed else by_hash[key])
            continue
        why = "is done" if is_done(key) else "has not failed"
        raise NotFoundError(
            f"the item {key!r} {why}, so there is nothing to retry.",
            code="unknown_item",
            rule="JB-5",
            fix=f"`perdure job errors {shlex.quote(directory)}` lists what failed.",
            suggestions=near(key, failed),
        )
    return keys


def name_of(disk: Disk, path: str) -> str:
    """The name in the state.json of an existing job, else that of its directory."""
    state = os.path.join(path, STATE_NAME)
    try:
        if disk.stat(state) is not None:
            name = decode_state(disk.read_chunks(state), Unkept()).job
            if is_job_name(name):
                return name
    except (StorageError, ValueError):
        pass  # opening the job says what is wrong with it
    return os.path.basename(path)


def job_path(directory: str, start_dir: str) -> str:
    """The absolute path of a job's directory. Raises UsageError where none is named."""
    if not directory:
        raise UsageError(
            "the directory of the job is an empty text.",
            fix="Name a directory; `.` is the current one.",
        )
    return os.path.abspath(os.path.join(start_dir, directory))


def require_own_job(disk: Disk, path: str) -> None:
    """Raise RefusedError for the job of a batch node: only its task may write there (JB-8)."""
    if disk.stat(os.path.join(path, BATCH_RECORD_NAME)) is not None:
        raise RefusedError(
            f"the job in {path} belongs to a batch node of a task.",
            code="batch_by_hand",
            rule="JB-8",
            fix="Run its task file: `perdure run FILE` works on what is left of it.",
        )


def _find_job(disk: Disk, directory: str, start_dir: str) -> str:
    """The directory of a job, absolute. Raises NotFoundError with near misses."""
    path = job_path(directory, start_dir)
    if _is_job(disk, path):
        return path
    there = disk.stat(disk.real_path(path)) is not None
    raise NotFoundError(
        f"{directory} holds no job." if there else f"there is no directory {directory}.",
        code="no_job",
        rule="JB-2",
        fix="Name the directory of a job; `perdure map --job DIR` makes one.",
        suggestions=_jobs_near(disk, directory, path),
    )


def _is_job(disk: Disk, path: str) -> bool:
    return any(disk.stat(os.path.join(path, name)) is not None for name in JOB_FILES)


def _jobs_near(disk: Disk, directory: str, path: str) -> list[str]:
    """Jobs that may have been meant: around the place that was named, or in it."""
    parent = os.path.dirname(path)
    if os.path.basename(path) in JOB_FILES and _is_job(disk, parent):
        return [os.path.dirname(directory) or "."]
    inside = [name for name in _names(disk, path) if _is_job(disk, os.path.join(path, name))]
    if inside:
        return [os.path.join(directory, name) for name in inside[:3]]
    beside = near(os.path.basename(path), _names(disk, parent))
    above = os.path.dirname(os.path.normpath(directory))
    return [
        os.path.join(above, name) for name in beside if _is_job(disk, os.path.join(parent, name))
    ]


def _names(disk: Disk, path: str) -> list[str]:
    try:
        return list(islice(disk.list_dir(path), looked_in_max))
    except StorageError:
        return []
