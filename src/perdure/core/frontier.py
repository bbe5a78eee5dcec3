"""The frontier: which nodes may start now, in which order (protocol section 7, FR-1, FR-2).

Invariants: recomputed from the state each time, never patched; the order is total (priority
descending, longest remaining critical path, cheapest, node id by number), so two coordinators
with the same journal pick the same work.
"""

from perdure.core.fold import Replica
from perdure.core.gates import (
    approval_of,
    gates_at,
    is_stale,
    open_question_of,
    refused_as_it_is,
)
from perdure.core.machine import startable, waits_for_gates_alone
from perdure.core.model import CLOSED_STATES, Node, State, id_key
from perdure.core.people import Gate


def frontier(replica: Replica) -> list[str]:
    """Ids of the nodes that may legally start now, best first."""
    nodes = replica.state.nodes
    ready = [node for node in nodes.values() if startable(replica.state, node)]
    if len(ready) > 1:
        remaining = critical_paths(replica)
        ready.sort(key=lambda node: _rank(node, remaining[node.node_id]))
    return [node.node_id for node in ready]


def due_gates(replica: Replica) -> list[tuple[Node, Gate]]:
    """The start gates that are to be asked about now, in the order of the graph.

    Those of nodes that wait for nothing else, which are neither approved nor refused as they are
    nor asked about with the content that the record knows. What the disk knows better,
    ``decide_gate.decide_ask_gate`` finds out from the files that the runtime reads for it.
    """
    state = replica.state
    return [
        (node, gate)
        for node in state.nodes.values()
        if node.state not in CLOSED_STATES
        for gate in gates_at(state, node, "start")
        if _is_due(state, node, gate)
    ]


def _is_due(state: State, node: Node, gate: Gate) -> bool:
    if not waits_for_gates_alone(state, node) or approval_of(state, node, gate, None) is not None:
        return False
    question = open_question_of(state, node, gate.gate_id)
    if question is not None:
        return is_stale(state, node, gate, question)
    return not refused_as_it_is(state, node, gate)


def _rank(node: Node, remaining: float) -> tuple[object, ...]:
    return (-node.priority, -remaining, node.spec.cost, id_key(node.node_id))


def critical_paths(replica: Replica) -> dict[str, float]:
    """For each node its cost and that of the longest chain of open work behind it.

    Worked out from the ends of the graph towards its roots, each dependency once. A cycle, which
    only a journal written by others can hold, has no end and counts as nothing.
    """
    nodes = replica.state.nodes
    behind = dict.fromkeys(nodes, 0.0)
    waits_for = dict.fromkeys(nodes, 0)
    for node in nodes.values():
        if node.state not in CLOSED_STATES:
            for dep in node.deps:
                if dep in waits_for:
                    waits_for[dep] += 1
    settled = [name for name, count in waits_for.items() if not count]
    while settled:
        node = nodes[settled.pop()]
        if node.state in CLOSED_STATES:
            continue
        length = node.spec.cost + behind[node.node_id]
        for dep in node.deps:
            if dep in waits_for:
                behind[dep] = max(behind[dep], length)
                waits_for[dep] -= 1
                if not waits_for[dep]:
                    settled.append(dep)
    return {name: node.spec.cost + behind[name] for name, node in nodes.items()}


def find_cycle(deps: dict[str, tuple[str, ...]]) -> list[str]:
    """A cycle among these dependencies as ``[a, b, a]``, or an empty list."""
    settled: set[str] = set()
    for root in deps:
        path: list[str] = []
        on_path: set[str] = set()
        stack: list[tuple[str, int]] = [(root, 0)]
        while stack:
            name, index = stack.pop()
            if index == 0:
                if name in settled:
                    continue
                path.append(name)
                on_path.add(name)
            nexts = [dep for dep in deps.get(name, ()) if dep in deps]
            if index < len(nexts):
                stack.append((name, index + 1))
                following = nexts[index]
                if following in on_path:
                    return [*path[path.index(following) :], following]
                stack.append((following, 0))
            else:
                settled.add(name)
                on_path.discard(name)
                path.pop()
    return []
