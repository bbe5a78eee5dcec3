"""Building one move of a node or of the task: the edge, its payload, its guard.

Job: what every decision and every repair shares. Invariants: no STATE_TRANSITION is built anywhere
else, and its edge is always a row of the tables; :func:`fill_payload` says whether payload and
guard hold, and whoever builds a move without it has seen to both.
"""

from collections.abc import Mapping
from typing import Any, Final

from perdure.core.events import Draft
from perdure.core.machine import Edge, edges_from, missing_payload, node_edge, task_edge
from perdure.core.model import Node, State
from perdure.errors import TransitionError, invariant


def legal_edge(node: Node, to: str) -> Edge:
    """The row for this move. Raises TransitionError that says what is possible instead."""
    edge = node_edge(node.state, to)
    if edge is None:
        possible = sorted({row.target for row in edges_from(node.state)})
        raise TransitionError(
            f"{node.node_id} cannot go from {node.state} to {to}.",
            fix=f"From {node.state} it can go to {', '.join(possible)}."
            if possible
            else "Nothing leaves this state; add a successor node.",
        )
    return edge


def fill_payload(
    state: State,
    node: Node,
    edge: Edge,
    given: Mapping[str, Any],
    evidence: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The payload of a move: what the caller gave, and what the state itself can tell.

    Raises TransitionError when something required is missing or the guard does not hold.
    """
    payload = dict(given)
    if edge.id == "N01":
        payload.setdefault("deps", list(node.deps))
    elif edge.id == "N03":
        payload.setdefault("report", evidence[0] if evidence else "claim")
    elif edge.id == "N07":
        payload.setdefault("attempt", node.attempts + 1)
        for name in ("interruption", "round"):  # not the caller's to say: it would be no strike
            payload.pop(name, None)
    elif edge.id == "N09" and evidence:
        payload.setdefault("wake_evidence", evidence[0])
    elif edge.id == "N12" and evidence:
        payload.setdefault("amendment", evidence[0])
    elif edge.id == "N15" and evidence:
        payload.setdefault("decision", evidence[0])
    elif edge.id == "N10" and evidence:
        payload.setdefault("authority", evidence[0])
    missing = missing_payload(edge, payload)
    if missing:
        raise TransitionError(
            f"{node.node_id} {node.state} to {edge.target} must carry {', '.join(missing)}.",
            code="missing_payload",
            rule=edge.id,
            fix=f"Pass {', '.join(f'{name}=...' for name in missing)}.",
        )
    refusal = edge.guard(state, node, payload)
    if refusal:
        raise refused(node, edge, refusal)
    return payload


def refused(node: Node, edge: Edge, refusal: str) -> TransitionError:
    """The error for a guard that does not hold, with the cure where there is a usual one."""
    return TransitionError(
        f"{node.node_id} cannot go from {node.state} to {edge.target}: {refusal}.",
        code="guard_failed",
        rule=edge.id,
        fix=_FIXES.get(edge.id, f"`perdure show {node.node_id}` tells what it waits for."),
    )


_FIXES: Final = {
    "N01": "Finish what it depends on; `perdure ready` lists what may start now.",
    "N02": "`perdure ready` lists what may start now, `perdure inbox` what waits for a person.",
    "N09": "Answer what it waits for (`perdure inbox` lists it), or free it with `perdure retry"
    " NODE --reason WHY`.",
    "N12": "Amend its spec, or change the method with `perdure retry NODE --method NAME`.",
    "N11": "Change the method with `perdure retry NODE --method NAME`, or ask.",
}


def transition(
    node: Node, edge: Edge, payload: Mapping[str, Any], evidence: tuple[str, ...] = ()
) -> Draft:
    """The event of one move; what it says of the edge is the row's, whatever ``payload`` says."""
    move = {"from": edge.source, "to": edge.target, "edge": edge.id}
    return Draft("STATE_TRANSITION", "node", node.node_id, {**move, **payload, **move}, evidence)


def task_move(task_id: str, source: str, target: str) -> Draft:
    """The event of one move of the task. The caller knows that the table has the row."""
    edge = task_edge(source, target)
    invariant(edge is not None, f"there is no row from {source} to {target}")
    payload = {"from": source, "to": target, "edge": edge.id if edge is not None else ""}
    return Draft("STATE_TRANSITION", "task", task_id, payload)
