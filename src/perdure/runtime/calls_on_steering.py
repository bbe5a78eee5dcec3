"""The call by which people redirect a task.

Job: one function for each call of the table in ``calls``, by the same name. Invariants: an answer
names the event that put the words on record; a refusal has written nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.core import commands as c
from perdure.core.late import LateModule
from perdure.core.lookup import complete, node_of
from perdure.core.model import Node, State
from perdure.errors import UsageError
from perdure.runtime.answers import Answer, Args, answer
from perdure.runtime.engine import Engine
from perdure.runtime.steering import acknowledgement, steering_of
from perdure.runtime.steering import steer as steer_task

_amendment: Final = LateModule("perdure.core.steered_amendment")
_specs: Final = LateModule("perdure.runtime.specs")


def steer(engine: Engine, args: Args, op: str | None) -> Answer:
    """Log an instruction, verbatim (S1), propagate it, and say what it came to (S2 to S4)."""
    with engine.writing():
        state = engine.replica.state
        targets = tuple(
            complete(str(name), state.nodes, "node") for name in args.get("nodes") or ()
        )
        command = c.LogSteering(
            str(args.get("id") or ""),
            str(args["text"]),
            str(args.get("source") or ""),
            str(args.get("received_via") or "command"),
            "re-stated" if args.get("restated") else "original",
            str(args.get("reading") or ""),
            targets,
            plain_changes(state, targets, args.get("changes") or {}),
            tuple(str(name) for name in args.get("revoke") or ()),
        )
        logged = steer_task(engine, command, op=op)
        steering_id = steering_of(engine, logged, command.steering_id)
        return answer(logged, **acknowledgement(engine, steering_id))


def plain_changes(
    state: State, targets: tuple[str, ...], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of nodes and specs that an instruction sets, checked as ``add_node`` checks them.

    Raises UsageError or PathError for what one of the targets cannot have.
    """
    if not given:
        return {}
    _amendment.check_names(map(_specs.field_name, given))
    node_fields: tuple[str, ...] = _amendment.NODE_FIELDS
    changes = {name: value for name, value in given.items() if name in node_fields}
    fields = {name: value for name, value in given.items() if name not in node_fields}
    if "outputs" in fields and len(targets) != 1:
        raise UsageError(
            "outputs are those of one node.",
            code="one_target",
            rule="S3",
            fix="Name the one node with --node.",
        )
    names = {_specs.field_name(name) for name in fields}
    for node in _nodes(state, targets):
        made = _specs.make_spec(node.node_id, node.spec, fields)
        changes |= {name: msgspec.to_builtins(getattr(made, name)) for name in names}
    return changes


def _nodes(state: State, targets: tuple[str, ...]) -> list[Node]:
    if not targets:
        return [Node("any", "any", _specs.make_spec("any", None, {}))]
    return [node_of(state, name) for name in targets]
