"""Running an instance of a procedure, the root of all or a nested one.

Job: the composition of ``perdure sop run`` (a root instance) and of the process that drives a
nested one. Invariants: the same call goes on where the last one stopped; everything is checked
before anything is created; an instance goes on as the version that it began as (SC-3).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from perdure.control import sop_graph
from perdure.control.instance import InstanceRun, write_invocation
from perdure.control.nested_checks import check_root
from perdure.control.sop_inputs import bind_inputs, read_input_words
from perdure.control.sop_library import FoundCard, card_places, find_card
from perdure.core import instance as i
from perdure.core.codec import to_json
from perdure.core.model import text_digest
from perdure.errors import RefusedError
from perdure.host import processor_count
from perdure.runtime.instance_files import is_there, read_invocation
from perdure.runtime.recover import summary
from perdure.runtime.world import World, real_world
from perdure.storage.workspace import find_project, set_current

Data = dict[str, Any]

Emit = Callable[[Data], None]
OnLoop = Callable[[Callable[[int], None]], None]


def run_instance(
    directory: str,
    *,
    jobs: int | None,
    actor: str,
    emit: Emit,
    on_loop: OnLoop,
    wait: bool = False,
    world: World | None = None,
) -> Data:
    """Drive the instance in ``directory`` until it reports; its result with ``exit_code``.

    Creates its journal the first time; afterwards goes on. ``emit`` gets one mapping for each thing
    that happens; ``on_loop`` the function to call with a signal number. Whatever happens, nothing
    that was started here is still running afterwards. Raises HaltError.
    """
    world = world or real_world()
    root = os.path.abspath(directory)
    run = InstanceRun(root, actor=actor, world=world, emit=emit)
    try:
        runtime = run.runtime
        recovered = summary(runtime.engine, runtime.recovered)
        emit({"event": "opened", "workspace": root, **recovered})
        loop = run.loop(jobs=jobs or processor_count(), wait=wait)
        on_loop(loop.interrupt)
        ending = run.drive(loop)
    finally:
        run.close()
    data: Data = msgspec.to_builtins(ending.report)
    data |= {"workspace": root, "task_id": run.invocation.invocation_id, "result": None}
    if ending.result is None:
        data["exit_code"] = 128 + ending.report.signal
        return data
    data["result"] = msgspec.to_builtins(ending.result)
    data["status"] = ending.result.status
    status = i.read_status(ending.result.status)
    data["exit_code"] = i.EXIT_CODES[status.word] if status is not None else 1
    return data


def run_card(
    ref: str,
    words: Sequence[str] = (),
    *,
    inputs: Mapping[str, Any] | None = None,
    version: str = "",
    directory: str | None,
    start_dir: str,
    environ: Mapping[str, str],
    jobs: int | None,
    actor: str,
    emit: Emit,
    on_loop: OnLoop,
    wait: bool = False,
) -> Data:
    """Run a card as a root instance: the whole of ``sop run``. See :func:`run_instance`.

    ``words`` are ``NAME=VALUE`` and win over ``inputs``; relative paths count from ``start_dir``.
    The same card with the same inputs is the same instance, in the same workspace, and goes on as
    the version that it began as. Everything is checked before anything is created. Refused
    (``other_instance``) where the workspace that is named holds something else.
    """
    world = real_world()
    named = directory if directory is not None else environ.get("PERDURE_WORKSPACE")
    root = os.path.abspath(os.path.join(start_dir, named)) if named else None
    places = card_places(world.disk, workspace=root, start_dir=start_dir)
    found = find_card(ref, version, disk=world.disk, places=places, directory=start_dir)
    read, told = read_input_words(found.card, words)
    given = {**(inputs or {}), **read}
    bound = bind_inputs(found.card, given, directory=start_dir, told=told)
    task_id = _task_id(found, bound)
    if root is None:
        project = find_project(world.disk, start_dir) or os.path.join(start_dir, ".perdure")
        root = os.path.join(project, "tasks", task_id)
    if is_there(world.disk, root):
        _check_same(read_invocation(world.disk, root), found, bound, root)
    else:
        _check_free(world, root)
        plan = sop_graph.instance_plan(found.card, bound, task_id=task_id, workspace=root)
        beside = os.path.dirname(found.path)
        check_root(plan, disk=world.disk, places=places, directory=beside, workspace=root)
        called = {"sop": ref, "version": version, "inputs": given}
        sop = i.SopRef(found.card.sop_id, found.card.version, found.sha256)
        write_invocation(
            world.disk, root, i.Invocation(task_id, sop, bound, called_as=called), found
        )
    if not named:
        set_current(world.disk, os.path.dirname(os.path.dirname(root)), os.path.basename(root))
    return run_instance(
        root, jobs=jobs, actor=actor, emit=emit, on_loop=on_loop, wait=wait, world=world
    )


def _task_id(found: FoundCard, bound: Mapping[str, Any]) -> str:
    """The same for the same card with the same inputs, whatever its version."""
    digest = text_digest(to_json(dict(bound)).decode("utf-8", "surrogateescape"))[:8]
    return f"{found.card.sop_id[:54].rstrip('.-_')}-{digest}"


def _check_free(world: World, root: str) -> None:
    if world.disk.stat(f"{root}/journal.jsonl") is not None:
        raise _other(root, "a task that is no instance of a procedure")


def _check_same(held: i.Invocation, found: FoundCard, bound: Mapping[str, Any], root: str) -> None:
    if held.sop.id != found.card.sop_id or held.parent is not None:
        raise _other(root, f"an instance of {held.sop.id}")
    if held.inputs != dict(bound):
        changed = sorted(
            name for name in {*held.inputs, *bound} if held.inputs.get(name) != bound.get(name)
        )
        raise _other(root, f"the same procedure with another {', '.join(changed)}")


def _other(root: str, what: str) -> RefusedError:
    return RefusedError(
        f"{root} holds {what}.",
        code="other_instance",
        rule="D2",
        fix="Name another directory with -C, or none: each card and inputs have one of their own.",
    )
