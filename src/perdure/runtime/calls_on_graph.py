"""Calls that extend the graph, change it, and give nodes up.

Job: one function for each call of the table in ``calls``, by the same name. Invariants: an answer
names the event that acknowledges it; a refusal has written nothing.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.core import commands as c
from perdure.core.events import Event
from perdure.core.late import LateModule
from perdure.core.lookup import complete
from perdure.core.machine import open_nodes
from perdure.core.model import AMENDABLE_FIELDS, State
from perdure.core.naming import check_text
from perdure.errors import UsageError
from perdure.runtime.answers import Answer, Args, answer, node_of_call
from perdure.runtime.engine import Engine
from perdure.runtime.specs import make_spec

_parts: Final = LateModule("perdure.runtime.parts")


def add(engine: Engine, args: Args, op: str | None) -> Answer:
    """Extend the graph by a node."""
    node_id = str(args["node"])
    spec = make_spec(node_id, None, args.get("spec") or {})
    with engine.writing():
        nodes = engine.replica.state.nodes
        deps = tuple(
            # What depends on itself is refused as that, not as unknown.
            node_id if dep == node_id else complete(str(dep), nodes, "node")
            for dep in args.get("deps") or ()
        )
        command = c.AddNode(
            node_id,
            str(args.get("title") or node_id),
            deps,
            spec,
            int(args.get("priority") or 0),
            args.get("verify") or None,
            args.get("resume") or "reverify_if_amended",
            args.get("effect") or "S0",
            args.get("successor_of"),
        )
        return answer(engine.execute(command, op=op), node=node_id)


def cancel(engine: Engine, args: Args, op: str | None) -> Answer:
    """Give nodes up, or with ``all`` everything that is open."""
    with engine.writing():
        nodes = engine.replica.state.nodes
        if args.get("all"):
            names = open_nodes(engine.replica.state)
        else:
            names = [complete(str(name), nodes, "node") for name in args.get("nodes") or ()]
        if not names:
            raise UsageError("there is nothing to cancel.", fix="Name the nodes, or use --all.")
        reason = str(args.get("reason") or "cancelled")
        committed = engine.execute(c.CancelNodes(tuple(names), reason), op=op)
        return answer(committed, **tell_cancel(engine.replica.state, committed.events))


def tell_cancel(state: State, events: Sequence[Event]) -> Answer:
    """The nodes that were given up."""
    for event in events:
        if event.kind == "DECISION" and event.payload.get("op") == "cancel":
            return {"nodes": list(event.payload["nodes"])}
    return {}


def amend(engine: Engine, args: Args, op: str | None) -> Answer:
    """Change a node that is neither at work nor closed (TG-1)."""
    with engine.writing():
        node = node_of_call(engine, args)
        nodes = engine.replica.state.nodes
        after: Answer = {
            name: args[name] for name in AMENDABLE_FIELDS if args.get(name) is not None
        }
        if args.get("deps") is not None:
            after["deps"] = [complete(str(dep), nodes, "node") for dep in args["deps"]]
        if args.get("spec"):
            spec = make_spec(node.node_id, node.spec, args["spec"])
            after["spec"] = msgspec.to_builtins(spec)
        if args.get("directives"):
            told = dict.fromkeys((*node.directives, *map(str, args["directives"])))
            after["directives"] = list(told)
        if not after:
            raise UsageError(
                f"nothing of {node.node_id} is to change.",
                code="nothing_named",
                fix="Say what: `perdure amend --help` lists it.",
            )
        command = c.AmendNode(node.node_id, after, _reason(args))
        committed = engine.execute(command, op=op)
        return answer(committed, **tell_amend(engine.replica.state, committed.events))


def tell_amend(state: State, events: Sequence[Event]) -> Answer:
    """What of a node was changed, and how it stands."""
    for event in events:
        if event.kind == "AMENDMENT" and event.payload["op"] == "amend_node":
            node = state.nodes[event.entity.id]
            return {
                "node": node.node_id,
                "state": node.state,
                "changed": sorted(event.payload["after"]),
                "amended_by": list(node.amended_by),
            }
    return {}


def _reason(args: Args) -> str:
    reason = str(args.get("reason") or "")
    check_text(reason, "reason")
    return reason


def split(engine: Engine, args: Args, op: str | None) -> Answer:
    """Replan a node into several that take its place (N12, N13, N14)."""
    with engine.writing():
        node = node_of_call(engine, args)
        given = _parts.parts_as_typed(args.get("into"))
        made = _parts.parts_of(node, given, chain=bool(args.get("chain")))
        reason = str(args.get("reason") or f"split into {', '.join(given)}")
        committed = engine.execute(c.SplitNode(node.node_id, made, reason), op=op)
        return answer(committed, **tell_split(engine.replica.state, committed.events))


def tell_split(state: State, events: Sequence[Event]) -> Answer:
    """What became of a node, its parts, and who waits for them."""
    found, names = _given_up(state, events, "split")
    return found | ({"parts": names} if found else {})


def quarantine(engine: Engine, args: Args, op: str | None) -> Answer:
    """Give a node up as it was specified (N13, N08)."""
    with engine.writing():
        node = node_of_call(engine, args)
        nodes = engine.replica.state.nodes
        typed = str(args.get("replacement") or "")
        replacement = complete(typed, nodes, "node") if typed else ""
        command = c.QuarantineNode(node.node_id, _reason(args), replacement)
        committed = engine.execute(command, op=op)
        return answer(committed, **tell_quarantine(engine.replica.state, committed.events))


def tell_quarantine(state: State, events: Sequence[Event]) -> Answer:
    """What became of a node, and of those that waited for it."""
    found, names = _given_up(state, events, "replan")
    return found | ({"replacement": names[0]} if names else {})


def _given_up(state: State, events: Sequence[Event], how: str) -> tuple[Answer, list[str]]:
    """What became of a node, with who waits for others instead of it; and what these are."""
    amended = [event for event in events if event.kind == "AMENDMENT"]
    for event in amended:
        if event.payload["op"] == how:
            name = event.payload["target"]
            waiting = [e.entity.id for e in amended if e.payload["op"] == "amend_node"]
            found = {"node": name, "state": state.nodes[name].state, "repointed": waiting}
            return found, list((event.payload["after"] or {}).get("successors", ()))
    return {}, []
