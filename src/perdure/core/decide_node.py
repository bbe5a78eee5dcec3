"""Decisions about nodes: adding, amending, moving along FSM-N, cancelling.

Invariants: the graph is extended, never cut; a spec is frozen while its node is at work and once it
is closed (TG-1); nothing starts but what may (FR-1). How attempts end is in ``decide_ending``.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.core import commands as c
from perdure.core.codec import from_json, to_json
from perdure.core.decide_artifact import decide_quarantine
from perdure.core.decide_ending import check_receipt, decide_fail, decide_verdict
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.frontier import find_cycle
from perdure.core.lookup import contract_of, near, node_of
from perdure.core.machine import START, Edge, open_deps
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
from perdure.errors import RefusedError, TransitionError, UsageError


def decide_add(replica: Replica, command: c.AddNode, context: c.Context) -> c.Decision:
    """One AMENDMENT that extends the graph; a finished task is reopened for it (T09)."""
    state = replica.state
    check_id(command.node_id, "a node id", RESERVED_NODE_IDS)
    if command.node_id in state.nodes:
        raise RefusedError(
            f"node {command.node_id!r} exists already.",
            code="duplicate_id",
            rule="TG-3",
            fix="Choose a new id; `perdure show` tells what the existing one is.",
        )
    if len(state.nodes) >= nodes_max:
        raise RefusedError(
            f"a task holds at most {nodes_max} nodes.",
            code="limit",
            rule="D4",
            fix="Split the work into several tasks.",
        )
    if not command.title.strip() or len(command.title) > title_chars_max:
        raise UsageError(
            f"a title has 1 to {title_chars_max} characters.",
            code="bad_title",
            fix="Give a short title; details go into the goal of its spec.",
        )
    _check_deps(state, command.node_id, command.deps)
    if command.successor_of is not None:
        _check_successor(state, command.successor_of)
    node = Node(
        command.node_id,
        command.title,
        command.spec,
        deps=tuple(dict.fromkeys(command.deps)),
        priority=command.priority,
        verification_level=command.verification_level,
        resume_policy=command.resume_policy,
        effect=command.effect,
    )
    after = _storable(node, {})
    if command.successor_of is not None:
        after["successor_of"] = command.successor_of
    payload = {"op": "add_node", "target": command.node_id, "before": None, "after": after}
    drafts = [Draft("AMENDMENT", "node", command.node_id, payload)]
    if command.successor_of is not None:
        drafts += _repoint(replica, command.successor_of, command.node_id)
    if state.fsm_task in ("INIT", "FINAL_AUDIT"):
        drafts.insert(0, task_move(state.task_id, state.fsm_task, "DECOMPOSING"))
    return c.Decision(tuple(drafts))


def _storable(node: Node, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The node with these changes, as it will be read back. UsageError when it could not be."""
    try:
        fields = {**msgspec.to_builtins(node), **changes}
        stored: dict[str, Any] = msgspec.to_builtins(from_json(to_json(fields), Node))
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"node {node.node_id} would not be valid: {error}.", code="bad_spec", fix="Correct it."
        ) from None
    return stored


def _check_deps(state: State, node_id: str, deps: tuple[str, ...]) -> None:
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


def _repoint(replica: Replica, old_id: str, new_id: str) -> list[Draft]:
    """N14: the dependents of a dead node wait for its successor from now on."""
    drafts = []
    for dependent_id in sorted(replica.dependents.get(old_id, ()), key=id_key):
        node = replica.state.nodes[dependent_id]
        if node.state not in AMENDABLE_STATES:
            continue
        deps = [new_id if dep == old_id else dep for dep in node.deps]
        payload = {
            "op": "amend_node",
            "target": dependent_id,
            "before": {"deps": list(node.deps)},
            "after": {"deps": deps},
            "reason": f"{new_id} succeeds {old_id}",
        }
        drafts.append(Draft("AMENDMENT", "node", dependent_id, payload))
    return drafts


_AMENDABLE: Final = frozenset(
    {"title", "priority", "verification_level", "resume_policy", "effect", "spec", "deps"}
)


def decide_amend(replica: Replica, command: c.AmendNode, context: c.Context) -> c.Decision:
    """One AMENDMENT; refused while the node is at work, and once it is closed (TG-1)."""
    node = node_of(replica.state, command.node_id)
    if node.state not in AMENDABLE_STATES:
        raise RefusedError(
            f"the spec of {node.node_id} cannot change: it is {node.state}.",
            code="spec_frozen",
            rule="TG-1",
            fix="Add a node that corrects it, or wait until the attempt under way has ended.",
        )
    unknown = sorted(set(command.after) - _AMENDABLE)
    if unknown:
        raise UsageError(
            f"{', '.join(unknown)} cannot be amended.",
            code="unknown_field",
            rule="TG-1",
            fix=f"Name some of {', '.join(sorted(_AMENDABLE))}.",
            suggestions=near(unknown[0], _AMENDABLE),
        )
    deps = tuple(dict.fromkeys(command.after.get("deps", node.deps)))
    _check_deps(replica.state, node.node_id, deps)
    graph = {name: other.deps for name, other in replica.state.nodes.items()}
    cycle = find_cycle({**graph, node.node_id: deps})
    if cycle:
        raise RefusedError(
            f"that would make a cycle: {' -> '.join(cycle)}.",
            code="cyclic_deps",
            rule="D4",
            fix="Remove one of these dependencies.",
        )
    changes = {**command.after, "deps": deps} if "deps" in command.after else command.after
    stored = _storable(node, changes)
    payload = {
        "op": "amend_node",
        "target": node.node_id,
        "before": {name: getattr(node, name) for name in changes},
        "after": {name: stored.get(name, value) for name, value in changes.items()},
        "reason": command.reason,
    }
    drafts = [Draft("AMENDMENT", "node", node.node_id, payload)]
    if node.state == "RETRYABLE" and "spec" in changes and not open_deps(replica.state, node):
        # Another spec is a replan: the node is READY again, by this very amendment.
        cited = f"J-{replica.state.seq + 1}"
        edge = legal_edge(node, "READY")
        drafts.append(transition(node, edge, {"amendment": cited}, (cited,)))
    return c.Decision(tuple(drafts))


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
        return decide_verdict(replica, node, command)
    edge = legal_edge(node, to)
    if edge.id == "N04":
        given = command.payload
        failed = c.FailNode(
            node.node_id,
            str(given.get("failure_class") or ""),
            str(given.get("signature") or ""),
            detail=str(given.get("detail") or ""),
            evidence=command.evidence,
        )
        return decide_fail(replica, failed, context)
    if edge.id == "N03":
        check_receipt(node)
    payload = fill_payload(state, node, edge, command.payload, command.evidence)
    drafts = [transition(node, edge, payload, command.evidence)]
    moves: tuple[c.FileMove, ...] = ()
    if edge.id in ("N07", "N08"):
        quarantine = decide_quarantine(replica, node)
        drafts = [*quarantine.drafts, *drafts]
        moves = quarantine.moves
    return c.Decision(tuple(drafts), moves)


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
    if state.fsm_task in ("SUSPENDED", "ARCHIVED"):
        raise TransitionError(
            f"nothing starts while the task is {state.fsm_task}.",
            rule="FST-1",
            fix="Run `perdure resume` first.",
        )
    return edges[-1]


def _start(state: State, node: Node, command: c.MoveNode) -> tuple[Draft, ...]:
    edge = check_start(state, node)
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
