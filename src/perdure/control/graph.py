"""Bringing a task's graph in line with its task file.

Job: add the nodes the file has and the task lacks, amend those whose plan has changed, in one
commit. Invariants: the graph is extended, never cut (TG-3); what is at work or done keeps its spec,
and a file that wants it otherwise is refused before anything is written; the same file again
changes nothing.
"""

import posixpath
from typing import Any

import msgspec

from perdure.control.taskfile import NodePlan, TaskFile
from perdure.core import commands as c
from perdure.core.model import AMENDABLE_STATES, DEAD_STATES, Node, State
from perdure.errors import RefusedError
from perdure.runtime.engine import Engine

_FIELDS = ("title", "priority", "verification_level", "resume_policy", "effect")


class GraphChange(msgspec.Struct, frozen=True):
    """What the task file changed."""

    added: tuple[str, ...] = ()
    amended: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    """Nodes of the task that the file no longer names; they stay."""
    ignored: tuple[str, ...] = ()
    """What the file says otherwise than when the task was created, and only a person may change."""


def source_of(task: TaskFile, workspace: str) -> dict[str, Any]:
    """What the journal keeps of where a task came from; relocatable together with the workspace."""
    return {
        "file": posixpath.basename(task.path),
        "sha256": task.sha256,
        "directory": posixpath.relpath(task.directory, workspace),
    }


def align_graph(engine: Engine, task: TaskFile) -> GraphChange:
    """Extend and amend the graph until it says what the file says. One commit, or none.

    Raises RefusedError (TG-1) when the file changes the spec of a node that is at work or closed.
    """
    state = engine.replica.state
    source = source_of(task, engine.layout.root)
    if state.source == source and all(plan.node_id in state.nodes for plan in task.nodes):
        return GraphChange(dropped=_dropped(engine, task), ignored=_ignored(engine, task))
    changes = {}
    for plan in task.nodes:
        node = state.nodes.get(plan.node_id)
        if node is not None:
            after = _difference(plan, node, state)
            if after:
                _check_amendable(plan, node, after)
                changes[plan.node_id] = after
    added = []
    with engine.batch():
        for plan in _in_dependency_order(task):
            if plan.node_id not in state.nodes:
                engine.execute(_add(plan, state))
                added.append(plan.node_id)
        for node_id, after in changes.items():
            engine.execute(c.AmendNode(node_id, after, "the task file changed"))
        if state.source != source:
            note = f"task file {source['file']}"
            engine.execute(c.WriteNote(note, "source", {"source": source}))
    return GraphChange(tuple(added), tuple(changes), _dropped(engine, task), _ignored(engine, task))


def _dropped(engine: Engine, task: TaskFile) -> tuple[str, ...]:
    named = {plan.node_id for plan in task.nodes}
    return tuple(name for name in engine.replica.state.nodes if name not in named)


def _ignored(engine: Engine, task: TaskFile) -> tuple[str, ...]:
    state = engine.replica.state
    pairs = {
        "goal": (task.goal, state.goal_statement),
        "acceptance": (task.acceptance, state.acceptance),
        "tier": (task.tier, state.tier),
        "policies": (task.policies, state.policies),
        "people": (task.people, state.people),
        "standing_authorities": (task.standing_authorities, state.standing_authorities),
    }
    return tuple(name for name, (asked, held) in pairs.items() if asked != held)


def _standing_deps(plan: NodePlan, state: State) -> tuple[str, ...]:
    """The deps of the file, each replaced by the node that has taken its place since (N14)."""
    found = []
    for dep in plan.deps:
        standing = dep
        while (held := state.nodes.get(standing)) is not None and held.successors:
            standing = held.successors[0]
        found.append(standing)
    return tuple(dict.fromkeys(found))


def _difference(plan: NodePlan, node: Node, state: State) -> dict[str, Any]:
    """The fields in which the file and the journal differ."""
    after: dict[str, Any] = {
        field: getattr(plan, field)
        for field in _FIELDS
        if getattr(plan, field) != getattr(node, field)
    }
    if plan.spec != node.spec:
        after["spec"] = msgspec.to_builtins(plan.spec)
    deps = _standing_deps(plan, state)
    if set(deps) != set(node.deps) and set(plan.deps) != set(node.deps):
        after["deps"] = list(deps)
    return after


def _check_amendable(plan: NodePlan, node: Node, after: dict[str, Any]) -> None:
    if node.state in AMENDABLE_STATES:
        return
    raise RefusedError(
        f"the task file changes {', '.join(sorted(after))} of {plan.node_id}, which is"
        f" {node.state} already.",
        code="spec_frozen",
        rule="TG-1",
        fix="Put the old text back, and add a node that does what is wanted now"
        " (with successor_of, if this one is quarantined or cancelled).",
    )


def _in_dependency_order(task: TaskFile) -> list[NodePlan]:
    """Deps before dependents; otherwise as in the file. The file has no cycles."""
    plans = {plan.node_id: plan for plan in task.nodes}
    ordered: dict[str, NodePlan] = {}
    for root in plans:
        stack = [root]
        while stack:
            name = stack[-1]
            waiting = [dep for dep in plans[name].deps if dep in plans and dep not in ordered]
            if name in ordered or not waiting:
                ordered.setdefault(stack.pop(), plans[name])
            else:
                stack += reversed(waiting)
    return list(ordered.values())


def _add(plan: NodePlan, state: State) -> c.AddNode:
    before = state.nodes.get(plan.successor_of or "")
    dead = before is not None and before.state in DEAD_STATES
    return c.AddNode(
        plan.node_id,
        plan.title,
        _standing_deps(plan, state),
        plan.spec,
        plan.priority,
        plan.verification_level,
        plan.resume_policy,
        plan.effect,
        plan.successor_of if dead else None,
    )
