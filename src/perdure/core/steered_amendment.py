"""What an instruction changes: open nodes are amended, done ones get a corrective node (S3).

Job: the AMENDMENTs of one instruction, and what has to be recalled for them. Invariants: the spec
of a node at work does not change, so its attempt ends first (TG-1); what is DONE stays DONE, and is
corrected by a new node that everything open which rests on it waits for (ST-3); a node that follows
the instruction already is left alone. Changes that do not fit a node are told, never forced.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from perdure.core.batch import action_problem, outputs_with_findings
from perdure.core.codec import from_json, to_json
from perdure.core.events import Draft
from perdure.core.lookup import near
from perdure.core.machine import REPLAN, open_deps
from perdure.core.model import (
    AT_WORK_STATES,
    CLOSED_STATES,
    DEAD_STATES,
    DIRECTED,
    Node,
    Spec,
    id_key,
    title_chars_max,
)
from perdure.core.moves import task_move, transition
from perdure.core.propagation import Propagation
from perdure.errors import UsageError

NODE_FIELDS: Final = ("title", "priority", "resume_policy")
"""Fields of a node besides its spec that an instruction may set."""
_NOT_BY_STEERING: Final = frozenset({"gates", "draft"})
SETTABLE: Final = (
    *NODE_FIELDS,
    *(name for name in Spec.__struct_fields__ if name not in _NOT_BY_STEERING),
)


def check_changes(changes: Mapping[str, Any], nodes: list[Node], reading: str) -> None:
    """Raise UsageError for a field that no instruction sets, or a value that a node cannot have."""
    if changes and reading != "amendment":
        raise UsageError(
            f"a {reading} sets no field.",
            code="sets_nothing",
            rule="S3",
            fix="Leave the fields out, or let it be read as an amendment.",
        )
    check_names(changes)
    for node in nodes or [Node("any", "any node", Spec())]:
        try:
            changed_fields(node, changes)
        except (TypeError, ValueError, OverflowError) as error:
            raise UsageError(
                f"node {node.node_id} would not be valid: {error}.",
                code="bad_spec",
                fix="Correct the value.",
            ) from None


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError for a field that no instruction sets."""
    for name in names:
        if name not in SETTABLE:
            raise UsageError(
                f"an instruction does not set {name!r}.",
                code="unknown_field",
                rule="TG-1",
                fix=f"Set some of {', '.join(SETTABLE)}; the rest is for `perdure amend`.",
                suggestions=near(name, SETTABLE),
            )


def changed_fields(node: Node, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The ``after`` of an AMENDMENT that sets these fields of a node or of its spec.

    Raises TypeError, ValueError or OverflowError for what the node cannot have.
    """
    after = {name: changes[name] for name in changes if name in NODE_FIELDS}
    if "title" in after and not 0 < len(str(after["title"]).strip()) <= title_chars_max:
        raise ValueError(f"a title has 1 to {title_chars_max} characters")
    spec = {name: value for name, value in changes.items() if name not in NODE_FIELDS}
    if spec:
        after["spec"] = {**msgspec.to_builtins(node.spec), **spec}
    stored = from_json(to_json({**msgspec.to_builtins(node), **after}), Node)
    if problem := action_problem(stored.spec):
        raise ValueError(problem)
    if stored.spec.map is not None:
        outputs = outputs_with_findings(node.node_id, stored.spec.outputs)
        stored.spec = msgspec.structs.replace(stored.spec, outputs=outputs)
    return {name: msgspec.to_builtins(getattr(stored, name)) for name in after}


class _Touch:
    """What a node that is open has to take in."""

    def __init__(self) -> None:
        self.directed = False
        self.deps: list[str] = []


def amend(plan: Propagation, nodes: list[Node]) -> None:
    """Amend these nodes, or correct what is done; recall what is at work."""
    touched: dict[str, _Touch] = {}
    done = {node.node_id: node for node in nodes if node.state == "DONE"}
    for node in _in_order(done):
        _correct(plan, node, touched, done)
    for node in nodes:
        if node.node_id in done:
            continue
        if node.state in DEAD_STATES:
            plan.tell(node.node_id, f"{node.state}, and stays so")
            plan.doubts.append(f"{node.node_id} is {node.state}, so nothing was changed there")
        elif plan.directive in node.directives and not plan.steering.changes:
            plan.tell(node.node_id, "follows it already")
        else:
            touched.setdefault(node.node_id, _Touch()).directed = True
    for node_id, touch in touched.items():
        _change(plan, plan.state.nodes[node_id], touch)


def _change(plan: Propagation, node: Node, touch: _Touch) -> None:
    """One AMENDMENT, behind the recall of what is at work, and READY again where it may be."""
    after = _after(plan, node, touch)
    at_work = node.state in AT_WORK_STATES
    state = plan.recall(node) if at_work else node.state
    held = {name: getattr(node, name) for name in after if name != DIRECTED}
    before = msgspec.to_builtins(held)
    payload = {
        "op": "amend_node",
        "target": node.node_id,
        "before": before,
        "after": after,
        "reason": plan.cause,
    }
    ref = plan.add(Draft("AMENDMENT", "node", node.node_id, payload))
    plan.tell(node.node_id, f"amended {ref}")
    waits = touch.deps or open_deps(plan.state, node)
    if state == "RETRYABLE" and not waits and (at_work or "spec" in after):
        plan.add(transition(node, REPLAN, {"amendment": ref}, (ref,)))


def _after(plan: Propagation, node: Node, touch: _Touch) -> dict[str, Any]:
    after: dict[str, Any] = {}
    if touch.directed:
        if plan.directive not in node.directives:
            after[DIRECTED] = plan.directive_beside(node.directives)
        after |= _fitting(plan, node)
    if touch.deps:
        after["deps"] = [*node.deps, *touch.deps]
    return after


def _fitting(plan: Propagation, node: Node) -> dict[str, Any]:
    """The changed fields; none of those that do not fit this node, which the sponsor hears of."""
    known = {name: value for name, value in plan.steering.changes.items() if name in SETTABLE}
    try:
        return changed_fields(node, known)
    except (TypeError, ValueError, OverflowError) as error:
        plan.doubts.append(f"what it sets does not fit {node.node_id} ({error})")
        return {}


def _in_order(done: Mapping[str, Node]) -> list[Node]:
    """These nodes as given, but none before one that it rests on."""
    left, ordered = dict(done), list[Node]()
    while left:
        for node in [node for node in left.values() if not any(dep in left for dep in node.deps)]:
            ordered.append(left.pop(node.node_id))
    return ordered


def _correct(
    plan: Propagation, done: Node, touched: dict[str, _Touch], corrected: Collection[str]
) -> None:
    """A new node behind one that is DONE, and in front of all that is open and rests on it.

    ``corrected`` are all that this instruction corrects. Of two of them of which one rests on the
    other, the correction of the one waits for that of the other.
    """
    fix_id = _free_fix_id(plan, done.node_id)
    task_wide = (directive.text for directive in plan.state.directives)
    held = tuple(dict.fromkeys((*task_wide, *done.directives)))
    node = Node(
        fix_id,
        f"Correct {done.node_id} by {plan.steering_id}",
        Spec(goal=plan.directive, constraints=done.spec.constraints),
        deps=(done.node_id, *(plan.corrects[dep] for dep in done.deps if dep in plan.corrects)),
        priority=done.priority,
        verification_level=done.verification_level,
        directives=tuple(dict.fromkeys((*held, plan.directive_beside(held)))),
    )
    after = {**msgspec.to_builtins(node), **_fitting(plan, node)}
    if plan.state.fsm_task == "FINAL_AUDIT" and not plan.corrects:
        plan.add(task_move(plan.state.task_id, "FINAL_AUDIT", "DECOMPOSING"))
    payload = {"op": "add_node", "target": fix_id, "before": None, "after": after}
    ref = plan.add(Draft("AMENDMENT", "node", fix_id, payload))
    plan.corrects[done.node_id] = fix_id
    plan.tell(fix_id, f"corrective node {ref}")
    plan.tell(done.node_id, f"DONE, corrected by {fix_id}")
    standing = []
    for name in sorted(plan.replica.dependents.get(done.node_id, ()), key=id_key):
        dependent = plan.state.nodes[name]
        if dependent.state == "DONE":
            standing += [] if name in corrected else [name]
        elif dependent.state not in CLOSED_STATES:
            touched.setdefault(name, _Touch()).deps.append(fix_id)
    if standing:
        named = ", ".join(standing[:5]) + (" and others" if len(standing) > 5 else "")
        plan.doubts.append(f"{named} rests on {done.node_id} and is DONE, so it stands as it is")


def _free_fix_id(plan: Propagation, node_id: str) -> str:
    base, number = node_id[:56], 1
    while (fix_id := f"{base}.fix{number}") in plan.state.nodes or fix_id in plan.corrects.values():
        number += 1
    return fix_id
