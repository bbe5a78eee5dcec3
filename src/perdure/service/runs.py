"""Running a task file: from its bytes to a finished task, or to the point where somebody is needed.

Job: find or make the workspace, become its coordinator, and let the run loop drive it. Invariants:
the task file is validated whole before anything is created; the same call again goes on where the
last one stopped, however it stopped.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from perdure.control.graph import source_of
from perdure.control.run import RunLoop
from perdure.control.taskfile import TaskFile, load_task_file
from perdure.errors import NotFoundError, StorageError, TaskFileError
from perdure.host import processor_count
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.recover import summary
from perdure.runtime.world import World, real_world
from perdure.storage.workspace import find_project, set_current

Data = dict[str, Any]

EXIT_CODES = {"finished": 0, "failed": 1, "needs_person": 10, "paused": 10}
"""What ``perdure run`` exits with; an interrupted run exits with 128 plus the signal."""


def read_task_file(path: str, world: World) -> TaskFile:
    """The validated task file. Raises NotFoundError or TaskFileError; nothing is created."""
    full = os.path.abspath(path)
    stat = world.disk.stat(full)
    if stat is None:
        raise NotFoundError(
            f"there is no task file {path}.",
            code="no_task_file",
            fix="Name a YAML task file; docs/task-file.md shows one.",
        )
    try:
        data = world.disk.read(world.disk.real_path(full))
    except StorageError as error:
        raise TaskFileError(
            f"{path} cannot be read: {error.message}", fix="Name a YAML task file."
        ) from error
    return load_task_file(path, data)


def locate_run(
    directory: str | None, start_dir: str, environ: Mapping[str, str], task: TaskFile, world: World
) -> str:
    """The workspace of a task file: ``-C``, else PERDURE_WORKSPACE, else in its project.

    Its project is the nearest ``.perdure`` above the file, or a new one beside it. The task becomes
    the current one of that project, and of the directory it is run from, so that the commands that
    follow find it.
    """
    named = directory if directory is not None else environ.get("PERDURE_WORKSPACE")
    if named:
        return os.path.abspath(os.path.join(start_dir, named))
    project = find_project(world.disk, task.directory) or os.path.join(task.directory, ".perdure")
    workspace = os.path.join(project, "tasks", task.task_id)
    set_current(world.disk, project, task.task_id)
    here = find_project(world.disk, start_dir)
    if here != project:
        pointer = here or os.path.join(start_dir, ".perdure")
        set_current(world.disk, pointer, task.task_id, workspace=workspace)
    return workspace


def run_task(
    workspace: str,
    task: TaskFile,
    *,
    jobs: int,
    actor: str,
    world: World | None,
    emit: Callable[[Data], None],
    on_loop: Callable[[Callable[[int], None]], None],
    wait: bool = False,
) -> Data:
    """Create or resume the task in ``workspace`` and drive it with up to ``jobs`` commands at once.

    With ``wait`` it stays while a person is asked, and goes on with the answer. ``emit`` gets one
    mapping for each thing that happens; ``on_loop`` gets the function to call with a signal number
    when the run is to stop. Returns the report, with ``exit_code``. Raises HaltError; whatever
    happens, nothing that was started here is still running afterwards.
    """
    runtime = HaltRuntime(
        workspace,
        task.task_id,
        goal=task.goal,
        acceptance=task.acceptance,
        tier=task.tier,
        actor=actor,
        policies=task.policies,
        people=task.people,
        standing_authorities=task.standing_authorities,
        source=source_of(task, workspace),
        delegation=task.delegation,
        world=world or real_world(),
        take_over_sessions=False,
    )
    try:
        emit(
            {
                "event": "opened",
                "workspace": workspace,
                **summary(runtime.engine, runtime.recovered),
            }
        )
        loop = RunLoop(runtime, jobs=jobs, emit=emit, wait=wait)
        on_loop(loop.interrupt)
        report = loop.run(task)
        data: Data = msgspec.to_builtins(report)
        data["workspace"] = workspace
        data["task_id"] = task.task_id
        data["exit_code"] = EXIT_CODES.get(report.outcome, 128 + report.signal)
        return data
    finally:
        runtime.close()


def run_file(
    path: str,
    *,
    directory: str | None,
    start_dir: str,
    environ: Mapping[str, str],
    jobs: int | None,
    actor: str,
    emit: Callable[[Data], None],
    on_loop: Callable[[Callable[[int], None]], None],
    wait: bool = False,
) -> Data:
    """Read a task file, find or make its workspace and drive it there: the whole of ``run``.

    ``path`` is relative to the current directory. Nothing is created before the file has been
    validated whole. ``jobs`` of None is one command for each processor. For the rest see
    :func:`run_task`.
    """
    world = real_world()
    task = read_task_file(path, world)
    workspace = locate_run(directory, start_dir, environ, task, world)
    return run_task(
        workspace,
        task,
        jobs=jobs or processor_count(),
        actor=actor,
        world=world,
        emit=emit,
        on_loop=on_loop,
        wait=wait,
    )
