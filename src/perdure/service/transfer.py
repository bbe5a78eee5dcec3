"""A whole task as one file, and back.

Job: put reader, bundle and project together for ``export`` and ``import``. Invariants: exporting
changes nothing in the workspace; importing appends nothing to a journal, changes no workspace that
is there, and merges nothing: one journal has one line of history (D2).
"""

import os
from typing import Any, Final

import msgspec

from perdure.core.bundle import Manifest
from perdure.core.model import ID_PATTERN
from perdure.errors import PathError, RefusedError, UsageError
from perdure.ports import Disk
from perdure.runtime import bundle_in, bundle_out
from perdure.runtime.reader import Reader
from perdure.runtime.replay import Replay
from perdure.runtime.world import World, real_world
from perdure.storage.workspace import find_project, is_workspace, set_current

Data = dict[str, Any]

packed_endings: Final = (".tar.gz", ".tgz")
shown_max: Final = 50


def export_task(
    workspace: str, file: str, *, actor: str, logs: bool = False, force: bool = False,
    world: World | None = None,
) -> Data:  # fmt: skip
    """Write the task to ``file`` (absolute). ``exit_code`` is 1 when something is not whole.

    Raises RefusedError where something is there and ``force`` is not given, PathError inside the
    workspace, UsageError for a name that says no format, CorruptError for a damaged journal.
    """
    world = world or real_world()
    packed = file.endswith(packed_endings)
    if not packed and not file.endswith(".tar"):
        raise UsageError(
            f"{file} ends in neither .tar.gz, .tgz nor .tar.",
            code="bad_file_name",
            fix="Say by its name what it is to be, for example task.tar.gz.",
        )
    _check_target(world.disk, workspace, file, force=force)
    reader = Reader(workspace, world, actor)
    reader.load()
    copied = bundle_out.export_workspace(reader, file, logs=logs, packed=packed)
    data = {"file": file, "size_bytes": copied.size_bytes, **_told(copied.manifest)}
    return {**data, "exit_code": int(not copied.manifest.is_whole)}


def _check_target(disk: Disk, workspace: str, file: str, *, force: bool) -> None:
    folder = os.path.dirname(file)
    seen = disk.stat(disk.real_path(folder))
    if seen is None or seen.kind != "dir":
        raise UsageError(
            f"{folder} is no directory.", code="no_such_folder", fix="Make it, or name another."
        )
    home = disk.real_path(workspace)
    if f"{disk.real_path(folder)}/".startswith(f"{home}/"):
        raise PathError(
            f"{file} lies in the workspace that it is to hold.",
            fix="Write it to a place outside, such as the directory above.",
        )
    found = disk.stat(file)
    if found is not None and (not force or found.kind != "file"):
        raise RefusedError(
            f"{file} is there already.",
            code="file_exists",
            rule="IM-2",
            fix="Choose another name, or replace it with --force."
            if found.kind == "file"
            else "Choose another name; it is no file.",
        )


def check_file(file: str, *, world: World | None = None) -> Data:
    """Prove an exported file from its first byte to its last; writes nothing.

    Raises CorruptError for whatever does not hold, RefusedError for a newer format.
    """
    manifest, _ = bundle_in.check_bundle((world or real_world()).disk, file)
    return {"file": file, "committed": None, **_told(manifest)}


def import_task(
    file: str,
    directory: str | None,
    start_dir: str,
    *,
    actor: str,
    current: bool = True,
    world: World | None = None,
) -> Data:
    """Lay an exported task down in ``directory``, else in the project of ``start_dir``.

    In a project it becomes the current task, unless ``current`` is false. Where the same history
    is there already nothing is written. Raises CorruptError for a damaged file; RefusedError where
    another task, or another history of this one, is in the way: then it names the event at which
    they part (IM-1).
    """
    world = world or real_world()
    manifest, task = bundle_in.check_bundle(world.disk, file)
    project = None
    if directory is not None:
        target = os.path.abspath(os.path.join(start_dir, directory))
    else:
        if not ID_PATTERN.match(manifest.task_id):
            raise UsageError(
                f"{manifest.task_id!r} is no name of a directory.",
                code="bad_id",
                rule="PL-4",
                fix="Name a directory with -C.",
            )
        project = find_project(world.disk, start_dir) or os.path.join(start_dir, ".perdure")
        target = os.path.join(project, "tasks", manifest.task_id)
    held = [contract.node for contract in task.replica.state.contracts.values()]
    there = _there(world, target, file, manifest, actor)
    if not there:
        _lay_down(world.disk, file, target, manifest, task)
    if project is not None and current:
        set_current(world.disk, project, manifest.task_id)
    data = {"file": file, "workspace": target, "identical": there, **_told(manifest)}
    return {**data, "current": project is not None and current, "at_work": held[:shown_max]}


def _lay_down(disk: Disk, file: str, target: str, manifest: Manifest, task: Replay) -> None:
    if disk.stat(target) is not None and disk.list_dir(target):
        raise RefusedError(
            f"{target} is there already, and no task is in it.",
            code="target_not_empty",
            rule="IM-1",
            fix="Name a directory that is not there yet, or an empty one.",
        )
    bundle_in.lay_down(disk, file, target, manifest, task)


def _there(world: World, target: str, file: str, manifest: Manifest, actor: str) -> bool:
    """Whether the same history is there already; RefusedError where another one is."""
    if not is_workspace(world.disk, target):
        return False
    reader = Reader(target, world, actor)
    reader.load()
    state, tip = reader.replica.state, reader.journal.tip
    if state.task_id != manifest.task_id:
        raise RefusedError(
            f"{target} holds the task {state.task_id!r}, not {manifest.task_id!r}.",
            code="task_exists",
            rule="D2",
            fix="Import it to another directory: perdure import FILE -C DIR.",
        )
    found = bundle_in.compare(world.disk, file, reader.layout.journal, tip)
    if found.relation == "identical":
        return True
    if found.relation == "forked":
        raise _forked(world.disk, reader.layout.journal, found.seq + 1)
    if found.relation == "behind":
        message = (
            f"{target} holds an earlier state of this task: both agree up to J-{found.seq}, and"
            f" the file has {manifest.seq - found.seq} events more."
        )
        fix = "Import it to another directory; or move the one that is there away first."
    else:
        message = (
            f"{target} is ahead of the file: both agree up to J-{found.seq}, and it has"
            f" {tip.seq - found.seq} events more."
        )
        fix = "Go on with what is there; the file holds nothing that it lacks."
    raise RefusedError(message, code=f"import_{found.relation}", rule="IM-1", fix=fix)


def _forked(disk: Disk, journal: str, seq: int) -> RefusedError:
    ours = bundle_in.line_of(disk, journal, seq)
    here = f" There it is {ours}." if ours else ""
    return RefusedError(
        f"two histories of this task part at J-{seq}: what is there and what is in the file differ"
        f" from that event on.{here}",
        code="import_forked",
        rule="IM-1",
        fix="Decide which of the two goes on; import the other to a directory of its own (-C DIR)"
        " to read it. Histories are not merged.",
    )


def _told(manifest: Manifest) -> Data:
    """What a manifest says, without the list of its files."""
    data: Data = {
        "task_id": manifest.task_id,
        "created": manifest.created,
        "fsm_task": manifest.fsm_task,
        "tier": manifest.tier,
        "seq": manifest.seq,
        "h": manifest.h,
        "state_hash": manifest.state_hash,
        "files": len(manifest.files),
        "content_bytes": manifest.size_bytes,
        "instances": len(manifest.instances),
        "masked": manifest.masked,
    }
    for name in ("missing", "damaged", "left_out"):
        told = getattr(manifest, name)
        data[name] = msgspec.to_builtins(told[:shown_max])
        data[f"{name}_count"] = len(told)
    return data
