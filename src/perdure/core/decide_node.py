"""Decisions about nodes: adding, moving along FSM-N, cancelling; and how a spec is amended.

Invariants: the graph is extended, never cut; a spec is frozen while its node is at work and once it
is closed (TG-1); nothing starts but what may (FR-1). How attempts end is in ``decide_ending``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from perdure.core import commands as c
from perdure.core.codec import from_json, to_json
from perdure.core.decide_artifact import decide_quarantine
from perdure.core.decide_ending import claim_drafts, decide_fail, decide_verdict
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.frontier import find_cycle
from perdure.core.gates import approval_of, gate_problem, gates_at
from perdure.core.grants import check_grants
from perdure.core.lookup import check_propagated, contract_of, near, node_of
from perdure.core.machine import REPLAN, START, Edge, open_deps
from perdure.core.model import (
    AMENDABLE_STATES,
    DEAD_STATES,
    NODE_STATES,
    RESERVED_NODE_IDS,
    Node,
    State,
    id_key,
    nodes_max,
    title_chars_max,
)
from perdure.core.moves import fill_payload, legal_edge, refused, task_move, transition
from perdure.core.naming import check_id
from perdure.core.people import gates_max
from perdure.core.tiers import default_level
from perdure.errors import RefusedError, TransitionError, UsageError

fix_base_chars_max: Final = 56
"""Of a node's id, what the id of its correction begins with: an id has at most 64."""


def decide_add(replica: Replica, command: c.AddNode, context: c.Context) -> c.Decision:
    """One AMENDMENT that extends the graph; a finished task is reopened for it (T09)."""
    state = replica.state
    drafts = [add_draft(state, command)]
    if command.successor_of is not None:
        _check_successor(state, command.successor_of)
        drafts += repoint(replica, command.successor_of, [command.node_id])
    return c.Decision((*reopening(state), *drafts))


def reopening(state: State) -> tuple[Draft, ...]:
    """The move of the task that comes before new work, where it is not open for work."""
    if state.fsm_task not in ("INIT", "FINAL_AUDIT"):
        return ()
    return (task_move(state.task_id, state.fsm_task, "DECOMPOSING"),)


def add_draft(
    state: State,
    command: c.AddNode,
    *,
    beside: Collection[str] = (),
    directives: Iterable[str] = (),
    cause: Mapping[str, Any] | None = None,
) -> Draft:
    """The AMENDMENT that adds a node; raises what is wrong with it.

    ``beside`` are nodes that the same commit adds in front of it; ``directives`` are the node's own
    behind those of the task; ``cause`` goes into the event besides.
    """
    check_id(command.node_id, "a node id", RESERVED_NODE_IDS)
    if command.node_id in state.nodes or command.node_id in beside:
        raise RefusedError(
            f"node {command.node_id!r} exists already.",
            code="duplicate_id",
            rule="TG-3",
            fix="Choose a new id; `perdure show` tells what the existing one is.",
        )
    if len(state.nodes) + len(beside) >= nodes_max:
        raise RefusedError(
            f"a task holds at most {nodes_max} nodes.",
            code="limit",
            rule="D4",
            fix="Split the work into several tasks.",
        )
    _check_title(command.title)
    check_deps(state, command.node_id, [dep for dep in command.deps if dep not in beside])
    node = Node(
        command.node_id,
        command.title,
        command.spec,
        deps=tuple(dict.fromkeys(command.deps)),
        priority=command.priority,
        verification_level=command.verification_level or default_level(state.tier),
        resume_policy=command.resume_policy,
        effect=command.effect,
        plan=command.plan,
        directives=tuple(dict.fromkeys((*(held.text for held in state.directives), *directives))),
    )
    after = storable(node, {})
    if command.successor_of is not None:
        after["successor_of"] = command.successor_of
    payload = {"op": "add_node", "target": command.node_id, "before": None, "after": after}
    return Draft("AMENDMENT", "node", command.node_id, {**payload, **(cause or {})})


def free_fix_id(state: State, node_id: str, *, beside: Collection[str] = ()) -> str:
    """Id of a node that corrects this one: ``N.fix1``, or the next number that is free.

    ``beside`` are ids that the same commit gives to others.
    """
    base, number = node_id[:fix_base_chars_max], 1
    while (fix_id := f"{base}.fix{number}") in state.nodes or fix_id in beside:
        number += 1
    return fix_id


def storable(node: Node, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The node with these changes, as it will be read back. UsageError when it could not be."""
    try:
        fields = {**msgspec.to_builtins(node), **changes}
        read = from_json(to_json(fields), Node)
        stored: dict[str, Any] = msgspec.to_builtins(read)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"node {node.node_id} would not be valid: {error}.", code="bad_spec", fix="Correct it."
        ) from None
    if "title" in changes:
        _check_title(read.title)
    if read.spec.gates:
        _check_gates(read)
    check_grants(read.spec.grants)
    return stored


def _check_title(title: str) -> None:
    if not title.strip() or len(title) > title_chars_max:
        raise UsageError(
            f"a title has 1 to {title_chars_max} characters.",
            code="bad_title",
            fix="Give a short title; details go into the goal of its spec.",
        )


def _check_gates(node: Node) -> None:
    """Raise UsageError unless each gate has an id of its own and a content that can be read."""
    if len(node.spec.gates) > gates_max:
        raise UsageError(
            f"{node.node_id} would have {len(node.spec.gates)} gates; {gates_max} is the most.",
            code="bad_gate",
            rule="GA-1",
            fix="Ask about several things in one question.",
        )
    for gate in node.spec.gates:
        check_id(gate.gate_id, "a gate id")
        problem = gate_problem(node, gate)
        if problem:
            raise UsageError(
                f"gate {gate.gate_id} of {node.node_id} would not be valid: {problem}.",
                code="bad_gate",
                rule="GA-2",
                fix="Correct it; each gate has an id of its own, and paths are of the workspace.",
            )


def check_deps(state: State, node_id: str, deps: Iterable[str]) -> None:
    """Raise NotFoundError for a dep that there is not, RefusedError for the node itself (D4)."""
    for dep in deps:
        if dep == node_id:
            raise RefusedError(
                f"node {node_id!r} cannot depend on itself.",
                code="cyclic_deps",
                rule="D4",
                fix="Remove it from its own deps.",
            )
        node_of(state, dep)


def _check_successor(state: State, old_id: str) -> None:
    old = node_of(state, old_id)
    if old.state not in DEAD_STATES:
        raise TransitionError(
            f"{old_id} is {old.state}; only a quarantined or cancelled node has successors.",
            rule="N14",
            fix="Add the node without naming a predecessor.",
        )


def repoint(replica: Replica, old_id: str, names: Sequence[str]) -> list[Draft]:
    """N14: whoever waited for a node that is given up waits for these from now on."""
    drafts = []
    for dependent_id in sorted(replica.dependents.get(old_id, ()), key=id_key):
        node = replica.state.nodes[dependent_id]
        if node.state not in AMENDABLE_STATES or not names:
            continue
        payload = {
            "op": "amend_node",
            "target": dependent_id,
            "before": {"deps": list(node.deps)},
            "after": {"deps": list(repointed(node.deps, old_id, names))},
            "reason": f"{', '.join(names)} {'succeed' if names[1:] else 'succeeds'} {old_id}",
        }
        drafts.append(Draft("AMENDMENT", "node", dependent_id, payload))
    return drafts


def repointed(deps: Sequence[str], old_id: str, names: Sequence[str]) -> tuple[str, ...]:
    """The deps with these names in the place of one, each once."""
    new = [name for dep in deps for name in (names if dep == old_id else (dep,))]
    return tuple(dict.fromkeys(new))


def amend(
    replica: Replica,
    node: Node,
    changes: Mapping[str, Any],
    reason: str,
    *,
    before: int = 0,
    failed: bool = False,
    cause: Mapping[str, Any] | None = None,
) -> list[Draft]:
    """The AMENDMENT of a node that may be amended, and N12 with it where that makes it a replan.

    ``before`` counts the drafts in front of it in the same commit; ``failed`` says that they bring
    the node to RETRYABLE; ``cause`` goes into the AMENDMENT besides.
    """
    state = replica.state
    if "deps" in changes:
        deps = tuple(dict.fromkeys(changes["deps"]))
        check_deps(state, node.node_id, deps)
        _check_acyclic(state, node, deps)
        changes = {**changes, "deps": deps}
    stored = storable(node, changes)
    if "title" in changes:
        _check_title(stored["title"])
    payload = {
        "op": "amend_node",
        "target": node.node_id,
        "before": {name: getattr(node, name) for name in changes},
        "after": {name: stored.get(name, value) for name, value in changes.items()},
        "reason": reason,
        **(cause or {}),
    }
    drafts = [Draft("AMENDMENT", "node", node.node_id, payload)]
    if (failed or node.state == "RETRYABLE") and "spec" in changes and not open_deps(state, node):
        # Another spec is a replan: the node is READY again, by this very amendment.
        cited = f"J-{state.seq + before + 1}"
        drafts.append(transition(node, REPLAN, {"amendment": cited}, (cited,)))
    return drafts


def _check_acyclic(state: State, node: Node, deps: tuple[str, ...]) -> None:
    graph = {name: other.deps for name, other in state.nodes.items()}
    cycle = find_cycle({**graph, node.node_id: deps})
    if cycle:
        raise RefusedError(
            f"that would make a cycle: {' -> '.join(cycle)}.",
            code="cyclic_deps",
            rule="D4",
            fix="Remove one of these dependencies.",
        )


def decide_move(replica: Replica, command: c.MoveNode, context: c.Context) -> c.Decision:
    """One edge of FSM-N, with what the same commit must hold besides it."""
    state, to = replica.state, command.to
    node = node_of(state, command.node_id)
    if to not in NODE_STATES:
        raise TransitionError(
            f"{to!r} is not a state of a node.",
            code="unknown_state",
            fix=f"Use one of {', '.join(NODE_STATES)}.",
            suggestions=near(to, NODE_STATES),
        )
    if to == node.state == "READY" and node.state_ref is not None:
        return c.Decision(answer=node.state_ref)
    if to == "RUNNING":
        return c.Decision(_start(state, node, command))
    if to == "DONE" or command.verdict is not None:
        return decide_verdict(replica, node, command, context)
    edge = legal_edge(node, to)
    if edge.id == "N04":
        given = command.payload
        failed = c.FailNode(
            node.node_id,
            str(given.get("failure_class") or ""),
            str(given.get("signature") or ""),
            detail=str(given.get("detail") or ""),
            evidence=command.evidence,
            disk_facts=command.disk_facts,
        )
        return decide_fail(replica, failed, context)
    if edge.id == "N03":
        return c.Decision(claim_drafts(state, node, command.payload, command.evidence))
    payload = fill_payload(state, node, edge, command.payload, command.evidence)
    moved = transition(node, edge, payload, command.evidence)
    if edge.id not in ("N07", "N08"):
        return c.Decision((moved,))
    quarantine = decide_quarantine(replica, node)
    return c.Decision((*quarantine.drafts, moved), quarantine.moves)


def check_start(state: State, node: Node) -> Edge:
    """The edge by which work on this node may start now; raises TransitionError when it may not."""
    if node.state == "RUNNING":
        contract = contract_of(state, node)
        owner = contract.executor.actor if contract is not None else "somebody"
        raise TransitionError(
            f"{node.node_id} is at work already, under {owner} (contract {node.invocation}).",
            code="already_running",
            rule="FSN-2",
            fix="`perdure ready` lists what else may start now.",
        )
    pending = node.state == "PENDING"
    edges = (legal_edge(node, "READY"), START) if pending else (legal_edge(node, "RUNNING"),)
    for edge in edges:
        refusal = edge.guard(state, node, {})
        if refusal:
            raise refused(node, edge, refusal)
    check_propagated(state)
    if state.fsm_task in ("SUSPENDED", "ARCHIVED"):
        raise TransitionError(
            f"nothing starts while the task is {state.fsm_task}.",
            rule="FST-1",
            fix="Run `perdure resume` first.",
        )
    return edges[-1]


def _check_contents(state: State, node: Node, command: c.MoveNode) -> None:
    """Raise RefusedError (GA-3) unless each start gate was approved for what was just read."""
    for gate in gates_at(state, node, "start"):
        if approval_of(state, node, gate, command.contents.get(gate.gate_id, {})) is None:
            raise RefusedError(
                f"what was approved at gate {gate.gate_id} is not what is there now.",
                code="approval_void",
                rule="GA-3",
                fix=f"Have what is there now approved: perdure approve {gate.gate_id}",
            )


def _start(state: State, node: Node, command: c.MoveNode) -> tuple[Draft, ...]:
    edge = check_start(state, node)
    _check_contents(state, node, command)
    contract = command.contract
    if contract is None:
        raise TransitionError(
            f"{node.node_id} cannot start without a contract.",
            rule=edge.id,
            fix="Start it through the runtime, which issues one.",
        )
    drafts = []
    if node.state == "PENDING":
        ready = legal_edge(node, "READY")
        payload = fill_payload(state, node, ready, {})
        drafts.append(transition(node, ready, payload))
    payload = {
        **command.payload,
        "contract": f"contracts/{contract.invocation_id}.json",
        "contract_sha256": contract.sha256,
        "invocation": contract.invocation_id,
        "executor": msgspec.to_builtins(contract.executor),
        "budget": contract.budget,
        "issued_at": command.payload.get("issued_at", 0.0),
        "expires_at": contract.expires_at,
        "attempt": node.attempts + 1,
    }
    if contract.out_of_order:
        payload["out_of_order"] = contract.out_of_order
    evidence = (payload["contract"], *command.evidence)
    drafts.append(transition(node, edge, payload, evidence))
    return tuple(drafts)


def decide_cancel(replica: Replica, command: c.CancelNodes, context: c.Context) -> c.Decision:
    """A DECISION and one N10 or N15 for each node; files stay where they are."""
    state = replica.state
    nodes = [node_of(state, node_id) for node_id in dict.fromkeys(command.node_ids)]
    if not nodes:
        raise UsageError("no node is named.", code="nothing_named", fix="Name what to cancel.")
    for node in nodes:
        legal_edge(node, "CANCELLED")
    decision_id = f"DR-{state.decisions + 1}"
    decision = {
        "op": "cancel",
        "id": decision_id,
        "nodes": [node.node_id for node in nodes],
        "rationale": command.reason,
        "authority": context.actor,
    }
    drafts = [Draft("DECISION", "task", state.task_id, decision)]
    for node in nodes:
        edge = legal_edge(node, "CANCELLED")
        payload = {"decision": decision_id, "authority": context.actor, "reason": command.reason}
        drafts.append(transition(node, edge, payload, (decision_id,)))
    return c.Decision(tuple(drafts))
