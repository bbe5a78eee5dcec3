"""Bringing a task's graph in line with its task file.

Job: add the nodes the file has and the task lacks, amend those whose entry has changed, in one
commit. Invariants: the graph is extended, never cut (TG-3); what is at work or done keeps its spec,
and a file that wants it otherwise is refused before anything is written; the same file again
changes nothing; a field whose text in the file is what it was never undoes what people have changed
since (``Node.plan`` remembers the entry, field by field).
"""

import posixpath
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import msgspec

from perdure.control.plan_digest import changed_fields, entry_digests
from perdure.control.taskfile import NodePlan, TaskFile
from perdure.control.taskfile_nodes import at_tier
from perdure.core import commands as c
from perdure.core.actions import ACTION_KINDS
from perdure.core.batch import action_of
from perdure.core.model import (
    AMENDABLE_FIELDS,
    AMENDABLE_STATES,
    DEAD_STATES,
    Node,
    Spec,
    State,
)
from perdure.errors import RefusedError
from perdure.runtime.engine import Engine
from perdure.runtime.masking import DECLARED

_ACTIONS: Final = frozenset(ACTION_KINDS)
"""What goes together where a node comes to do something of another kind."""


class GraphChange(msgspec.Struct, frozen=True):
    """What the task file changed."""

    added: tuple[str, ...] = ()
    amended: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    """Nodes of the task that the file no longer names; they stay."""
    ignored: tuple[str, ...] = ()
    """What the file says otherwise than when the task was created, and only a person may change."""
    kept: tuple[str, ...] = ()
    """Nodes that people changed where the file has not: ``NODE (FIELD, ...)``."""


def source_of(task: TaskFile, workspace: str) -> dict[str, Any]:
    """What the journal keeps of where a task came from; relocatable together with the workspace."""
    source: dict[str, Any] = {
        "file": posixpath.basename(task.path),
        "sha256": task.sha256,
        "directory": posixpath.relpath(task.directory, workspace),
    }
    return {**source, DECLARED: list(task.secrets)} if task.secrets else source


def align_graph(
    engine: Engine, task: TaskFile, check: Callable[[Iterable[Node]], None] = lambda _: None
) -> GraphChange:
    """Extend and amend the graph until it says what the file says. One commit, or none.

    ``check`` gets the nodes of the file as they will be, before anything is written, and may raise.
    Raises RefusedError (TG-1) when the file changes the spec of a node that is at work or closed.
    """
    state = engine.replica.state
    nodes = tuple(at_tier(plan, state.tier) for plan in task.nodes)
    task = msgspec.structs.replace(task, nodes=nodes)
    source = source_of(task, engine.layout.root)
    if state.source == source and all(plan.node_id in state.nodes for plan in task.nodes):
        check(state.nodes[plan.node_id] for plan in task.nodes)
        return _outcome(engine, task)
    changes, remembered = {}, {}
    for plan in task.nodes:
        node, entry = state.nodes.get(plan.node_id), entry_digests(plan)
        if node is None or node.plan == entry:
            continue
        after = _difference(plan, node, state)
        if after:
            _check_amendable(plan, node, after)
            changes[plan.node_id] = {**after, "plan": entry}
        elif node.state in AMENDABLE_STATES:
            remembered[plan.node_id] = {"plan": entry}
    check(_as_aligned(plan, state.nodes.get(plan.node_id), changes) for plan in task.nodes)
    added = []
    with engine.batch():
        for plan in _in_dependency_order(task):
            if plan.node_id not in state.nodes:
                engine.execute(_add(plan, state))
                added.append(plan.node_id)
        for node_id, after in (changes | remembered).items():
            engine.execute(c.AmendNode(node_id, after, "the task file changed"))
        if state.source != source:
            note = f"task file {source['file']}"
            engine.execute(c.WriteNote(note, "source", {"source": source}))
    return _outcome(engine, task, tuple(added), tuple(changes))


def _as_aligned(plan: NodePlan, node: Node | None, changes: dict[str, dict[str, Any]]) -> Node:
    """A node of the file as it will be once the graph says the same, but for its deps."""
    if node is None:
        return Node(
            plan.node_id,
            plan.title,
            plan.spec,
            verification_level=plan.verification_level,
            effect=plan.effect,
        )
    after = changes.get(plan.node_id, {})
    fields: dict[str, Any] = {name: after[name] for name in AMENDABLE_FIELDS if name in after}
    if "spec" in after:
        fields["spec"] = msgspec.convert(after["spec"], Spec)
    return msgspec.structs.replace(node, **fields)


def _outcome(
    engine: Engine, task: TaskFile, added: tuple[str, ...] = (), amended: tuple[str, ...] = ()
) -> GraphChange:
    kept = _kept(task, engine.replica.state)
    return GraphChange(added, amended, _dropped(engine, task), _ignored(engine, task), kept)


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
        "delegation": (task.delegation, state.delegation),
        "standing_authorities": (task.standing_authorities, state.standing_authorities),
    }
    return tuple(name for name, (asked, held) in pairs.items() if asked != held)


def _standing_deps(plan: NodePlan, state: State) -> tuple[str, ...]:
    """The deps of the file, each replaced by the nodes that have taken its place since (N14)."""
    found: dict[str, None] = {}
    stack = list(reversed(plan.deps))
    replaced = set()
    while stack:
        dep = stack.pop()
        held = state.nodes.get(dep)
        if held is None or not held.successors:
            found[dep] = None
        elif dep not in replaced:
            replaced.add(dep)
            stack += reversed(held.successors)
    return tuple(found)


def _difference(plan: NodePlan, node: Node, state: State) -> dict[str, Any]:
    """What an amendment has to change so that the node is what the file newly says of it."""
    changed = changed_fields(plan, node)
    after: dict[str, Any] = {
        name: getattr(plan, name)
        for name in AMENDABLE_FIELDS
        if name in changed and getattr(plan, name) != getattr(node, name)
    }
    spec = _merged(plan.spec, node.spec, changed)
    if spec != node.spec:
        after["spec"] = msgspec.to_builtins(spec)
    if "deps" in changed:
        deps = _standing_deps(plan, state)
        if set(deps) != set(node.deps) and set(plan.deps) != set(node.deps):
            after["deps"] = [*deps, *_added_deps(node, state, deps)]
    return after


def _merged(asked: Spec, held: Spec, changed: Collection[str]) -> Spec:
    """The spec as it stands, with those fields of the file that changed there."""
    names = {name for name in Spec.__struct_fields__ if name in changed}
    if names & _ACTIONS and action_of(asked) != action_of(held):
        names |= _ACTIONS
        if (asked.map is None) != (held.map is None):
            names.add("outputs")
    return msgspec.structs.replace(held, **{name: getattr(asked, name) for name in names})


def _added_deps(node: Node, state: State, deps: Collection[str]) -> list[str]:
    """Deps that people gave the node: on nodes that no file has named, such as corrections."""
    if not node.plan:
        return []
    return [
        dep
        for dep in node.deps
        if dep not in deps and dep in state.nodes and not state.nodes[dep].plan
    ]


def _kept(task: TaskFile, state: State) -> tuple[str, ...]:
    """What people changed and the file still says otherwise: theirs stands. One text a node."""
    found = []
    for plan in task.nodes:
        node = state.nodes.get(plan.node_id)
        if node is None or not node.amended_by or not node.plan:
            continue
        names = [name for name in AMENDABLE_FIELDS if getattr(plan, name) != getattr(node, name)]
        names += [
            name
            for name in Spec.__struct_fields__
            if getattr(plan.spec, name) != getattr(node.spec, name)
        ]
        if names:
            found.append(f"{plan.node_id} ({', '.join(names)})")
    return tuple(found)


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
        entry_digests(plan),
    )
