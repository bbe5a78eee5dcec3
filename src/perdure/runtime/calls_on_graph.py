"""Calls that extend the graph and give nodes up.

Job: one function for each call of the table in ``calls``, by the same name. Invariants: an answer
names the event that acknowledges it; a refusal has written nothing.
"""

from perdure.core import commands as c
from perdure.core.lookup import complete
from perdure.core.machine import open_nodes
from perdure.errors import UsageError
from perdure.runtime.answers import Answer, Args, answer
from perdure.runtime.engine import Engine
from perdure.runtime.specs import make_spec


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
            args.get("verify") or "V1",
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
        return answer(committed, nodes=names)
