"""The instances below a task, for whoever looks at it from outside.

Job: the tree that ``status`` shows, and finding the instance that a qualified reference names.
Invariants: reads only, and takes no lock; bounded in depth and in width; what cannot be read is
said, and hides nothing else.
"""

from typing import Any, Final

from perdure.core import instance as i
from perdure.core.machine import count_states
from perdure.core.model import Node, State
from perdure.core.views import cut
from perdure.errors import HaltError, NotFoundError
from perdure.runtime.engine import Engine
from perdure.runtime.instance_files import directory_of, read_result

Data = dict[str, Any]

instances_max: Final = 20
"""Shown of one level."""
depth_max: Final = 4
questions_max: Final = 5


def tree_of(engine: Engine, *, depth: int = depth_max) -> list[Data]:
    """The instances of the nodes of a task, those below them inside, at most ``depth`` levels.

    Of each: what it is (``instance``, ``node``, ``sop``), where it stands (``phase``, ``state``,
    ``counts``, ``result``), what it asks, with qualified refs (NS-2), and ``instances``.
    """
    nodes = [node for node in engine.replica.state.nodes.values() if node.child_ref]
    shown = [_entry(engine, node, depth) for node in nodes[:instances_max]]
    if len(nodes) > instances_max:
        shown.append({"more": len(nodes) - instances_max})
    return shown


def _entry(engine: Engine, node: Node, depth: int) -> Data:
    instance = node.child_ref or ""
    directory = directory_of(engine.layout.root, instance)
    entry: Data = {"instance": instance, "node": node.node_id, "node_state": node.state}
    child = Engine(directory, engine.world, engine.actor)
    try:
        child.load()
        entry |= _standing(child.replica.state, instance)
        standing, lease = child.lease_file.standing()
        entry["running"] = standing in ("held", "ours") and lease is not None
        result = read_result(engine.disk, directory)
        entry["result"] = result.status if result is not None else None
    except NotFoundError:
        entry["problem"] = "it has not begun"
    except HaltError as error:
        entry["problem"] = cut(error.message)
    else:
        entry["instances"] = tree_of(child, depth=depth - 1) if depth > 1 else []
    return entry


def _standing(state: State, instance: str) -> Data:
    asked = list(state.questions.values())
    return {
        "sop": f"{state.sop.get('id')}@{state.sop.get('version')}",
        "phase": state.phase,
        "state": state.fsm_task,
        "counts": count_states(state),
        "questions": {
            i.qualified(instance, question.question_id): cut(question.text)
            for question in asked[:questions_max]
        },
        "questions_total": len(asked),
    }


def instance_named(engine: Engine, typed: str) -> str:
    """The directory of the instance that ``typed`` names, anywhere below, by a unique beginning.

    Raises NotFoundError (``unknown_instance``) for none and for several.
    """
    found: dict[str, str] = {}
    _collect(engine, found, depth_max)
    matches = [name for name in found if name == typed] or [
        name for name in found if typed and name.startswith(typed)
    ]
    if len(matches) == 1:
        return found[matches[0]]
    what = "several instances" if matches else "no instance"
    raise NotFoundError(
        f"{what} below {engine.layout.root} can be meant by {typed!r}.",
        code="unknown_instance",
        rule="NS-2",
        fix="`perdure status` shows the instances of this task.",
        suggestions=matches[:5],
    )


def _collect(engine: Engine, found: dict[str, str], depth: int) -> None:
    root = engine.layout.root
    for name in engine.disk.list_dir(f"{root}/{i.INSTANCES}"):
        directory = directory_of(root, name)
        found.setdefault(name, directory)
        child = Engine(directory, engine.world, engine.actor)
        try:
            child.load()
        except HaltError:
            continue
        if depth > 1:
            _collect(child, found, depth - 1)
