"""A command for each of many items: from what the caller typed to the report.

Job: put items, command, job and loop together. Invariants: whatever can be checked is checked
before the job's directory is touched, so nothing is made for a call that is refused as malformed;
the same call again goes on where the last one stopped, however it stopped. Paths are relative to
the directory that the call was made in.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from perdure.control.item_command import ItemCommand
from perdure.control.item_list import ItemList
from perdure.control.item_run import ItemRun
from perdure.control.items import glob_items, read_items
from perdure.control.map_loop import MapLoop
from perdure.core.batch import format_by_ending
from perdure.core.durations import duration_max_s, seconds_of
from perdure.core.model import ItemsFormat
from perdure.errors import UsageError
from perdure.host import processor_count
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.masked import check_keys
from perdure.jobs.records import attempts_default
from perdure.jobs.side_files import artifact_name
from perdure.runtime.masking import masker_for
from perdure.runtime.world import World, real_world
from perdure.service.jobs import job_path, name_of, require_own_job

__all__ = ["MapPlan", "attempts_default", "plan_map", "run_map"]

Data = dict[str, Any]

EXIT_CODES: Final = {"finished": 0, "incomplete": 1}
"""What ``perdure map`` exits with; an interrupted run exits with 128 plus the signal."""


class MapPlan(NamedTuple):
    """A run of ``perdure map`` that can begin: its items and its command were found good."""

    directory: str
    name: str
    items: ItemList
    command: ItemCommand
    workers: int
    max_attempts: int
    timeout_s: float | None
    retry_wait_s: float
    world: World


def plan_map(
    words: Sequence[str],
    *,
    directory: str,
    start_dir: str,
    items: str | None,
    glob: str | None,
    form: ItemsFormat | None,
    key: str | None,
    name: str | None,
    workers: int | None,
    max_attempts: int,
    timeout: str | None,
    retry_wait: str,
    stdin: Iterable[bytes],
) -> MapPlan:
    """Read and check everything that a run needs; nothing is made or started.

    ``items`` is a file, or ``-`` for ``stdin``; ``glob`` a pattern for files; one of them is due.
    ``form`` of None is told by the ending of the file. ``workers`` of None is one for each
    processor. Raises UsageError, for a bad line with its number, and NotFoundError.
    """
    world = real_world()
    if (items is None) == (glob is None):
        raise UsageError(
            "name the items with --items or with --glob, and not with both.",
            fix="Write --items FILE, --items - for standard input, or --glob 'PATTERN'.",
        )
    if items is None and (form is not None or key is not None):
        raise UsageError(
            "--format and --key are for a file of items, and these are files themselves.",
            fix="Leave them out, or name a file with --items.",
        )
    timeout_s = None if timeout is None else _duration_s(timeout, "--timeout")
    retry_wait_s = _duration_s(retry_wait, "--retry-wait")
    path = job_path(directory, start_dir)
    require_own_job(world.disk, path)
    command = ItemCommand(
        tuple(words),
        directory=path,
        cwd=start_dir,
        environment=world.environment,
        artifact_path=lambda item_key: os.path.join(path, artifact_name(item_key)),
        world=world,
    )
    command.require_program()
    if items is None:
        assert glob is not None
        skip = world.disk.real_path(path)
        found = glob_items(glob, directory=start_dir, disk=world.disk, skip=skip)
    else:
        form = form or format_by_ending(items)
        found = read_items(
            items, form=form, key=key, directory=start_dir, disk=world.disk, stdin=stdin
        )
    command.require_fields(found)
    check_keys(masker_for(world.environment), found.keys)
    return MapPlan(
        path,
        name or name_of(world.disk, path),
        found,
        command,
        workers or processor_count(),
        max_attempts,
        timeout_s,
        retry_wait_s,
        world,
    )


def run_map(
    plan: MapPlan,
    *,
    emit: Callable[[Data], None],
    on_loop: Callable[[Callable[[int], None]], None],
) -> Data:
    """Open or make the job, and run the command for each item that is not done.

    ``emit`` gets one mapping for each thing that happens, with ``wall_s``, the seconds since the
    start; ``on_loop`` gets the function to call with a signal number when the run is to stop.
    Returns the report, with ``exit_code``. Raises HaltError; whatever happens, nothing that was
    started here is still running afterwards, and what was recorded stays.
    """
    clock = plan.world.clock
    began = clock.monotonic()

    def emit_timed(event: Data) -> None:
        emit({**event, "wall_s": round(clock.monotonic() - began, 3)})

    job = CheckpointedJob(plan.directory, plan.name, world=plan.world)
    try:
        run = ItemRun(
            job,
            plan.items,
            plan.command,
            max_attempts=plan.max_attempts,
            timeout_s=plan.timeout_s,
            retry_wait_s=plan.retry_wait_s,
            world=plan.world,
        )
        loop = MapLoop(run, workers=plan.workers, world=plan.world, emit=emit_timed)
        on_loop(loop.interrupt)
        report = loop.run()
    finally:
        job.close()
    return {**report, "exit_code": EXIT_CODES.get(report["outcome"], 128 + report["signal"])}


def _duration_s(text: str, option: str) -> float:
    """Seconds, from a number or a text such as 90s, 10m or 2h: what task files take."""
    seconds = seconds_of(text)
    if seconds is None or not 0 < seconds <= duration_max_s:
        raise UsageError(
            f"{option} must be a time above 0 and up to 366 days, not {text!r}.",
            fix="Write seconds, or 90s, 10m or 2h.",
        )
    return seconds
