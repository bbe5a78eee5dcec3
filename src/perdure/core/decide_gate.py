"""Decisions that put a gate to a person: the question about one content.

Invariants: whoever rules finds in the question itself what it takes to rule (GA-2); a gate is asked
about once for one content, and about another content in place of the older question (GA-3). What a
ruling does is in ``decide_ruling``.
"""

from collections.abc import Mapping
from typing import Any, Final

from perdure.core import commands as c
from perdure.core.asking import ask_draft, free_id
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.gates import (
    approval_of,
    complete_files,
    content_digest,
    digest_of,
    gate_named,
    gates_at,
    gates_of,
    kind_of,
    open_question_of,
    revise_cap,
)
from perdure.core.lookup import near, node_of
from perdure.core.model import AMENDABLE_STATES, Node, State, id_key
from perdure.core.people import Approval, Gate
from perdure.errors import NotFoundError, TransitionError

changes_listed_max: Final = 100
dependents_named_max: Final = 5


def gate_of(state: State, node: Node, gate_id: str) -> Gate:
    """The node's gate of this id. Raises NotFoundError with near misses."""
    gate = gate_named(state, node, gate_id)
    if gate is None:
        raise NotFoundError(
            f"{node.node_id} has no gate {gate_id!r}.",
            code="unknown_gate",
            fix=f"`perdure show {node.node_id}` tells what it waits for.",
            suggestions=near(gate_id, [gate.gate_id for gate in gates_of(state, node)]),
        )
    return gate


def decide_ask_gate(replica: Replica, command: c.AskGate, context: c.Context) -> c.Decision:
    """The question of a gate about this content; the event that settles it when there is one.

    An approval of another content is voided in the same commit, an open question about another
    content replaced. A start that was refused is not asked about again while it is the same: the
    answer is the event that refused it.
    """
    state = replica.state
    node = node_of(state, command.node_id)
    gate = gate_of(state, node, command.gate_id)
    waiting = node.state in AMENDABLE_STATES if gate.blocks == "start" else (
        node.state == "VERIFYING"
    )  # fmt: skip
    if not waiting:
        raise TransitionError(
            f"{node.node_id} is {node.state}: it does not stand at gate {gate.gate_id}.",
            code="guard_failed",
            rule="GA-1",
            fix="A gate is asked about right before the move that it guards.",
        )
    known = _settled_by(state, node, gate, command.files)
    if known:
        return c.Decision(answer=known)
    return c.Decision(_ask_about(replica, node, gate, command.files, context, disk=command.disk))


def ask_at_end(
    replica: Replica, node: Node, command: c.MoveNode, context: c.Context
) -> c.Decision | None:
    """What a passing verdict comes to while a gate of N06 is not approved for this content.

    The questions that are not open yet; when all are, the event that asked the first. None when
    every gate is approved for exactly what was verified.
    """
    state, waits_for = replica.state, ""
    drafts: list[Draft] = []
    for gate in gates_at(state, node, "done"):
        files = _verified_files(state, gate, command)
        if approval_of(state, node, gate, files) is not None:
            continue
        known = _settled_by(state, node, gate, files)
        waits_for = waits_for or known
        if not known:
            drafts += _ask_about(replica, node, gate, files, context)
    if drafts:
        return c.Decision(tuple(drafts))
    return c.Decision(answer=waits_for) if waits_for else None


def _verified_files(state: State, gate: Gate, command: c.MoveNode) -> dict[str, str]:
    """A done gate's content as the runtime read it; its own artifacts are in the verdict itself."""
    read = command.contents.get(gate.gate_id)
    if read is not None:
        return read
    if gate.content or command.verdict is None:
        return {}
    known = state.artifacts
    return {known[name].path: value for name, value in command.verdict.artifacts.items()}


def _settled_by(state: State, node: Node, gate: Gate, files: Mapping[str, str]) -> str:
    """The event that approved, asked about or (at a start) refused this very content, or empty."""
    content = content_digest(state, node, gate, files)
    approval = approval_of(state, node, gate, files)
    if approval is not None:
        return approval.ref
    question = open_question_of(state, node, gate.gate_id)
    if question is not None and question.content == content:
        return question.asked_ref
    if gate.blocks == "start" and node.rejected.get(gate.gate_id) == content:
        asked = (name for name in state.closed_questions if _is_of(name, gate.gate_id))
        last = [state.closed_questions[name] for name in asked]
        return last[-1] if last else node.notes_ref or "J-1"
    return ""


def _is_of(question_id: str, gate_id: str) -> bool:
    return question_id == gate_id or question_id.startswith(f"{gate_id}.")


def _ask_about(
    replica: Replica,
    node: Node,
    gate: Gate,
    files: Mapping[str, str],
    context: c.Context,
    *,
    disk: str = "",
) -> tuple[Draft, ...]:
    """The question about this content, behind the void of an approval of another one (GA-3)."""
    state, drafts = replica.state, []
    whole = complete_files(state, node, gate, files)
    approval = node.approvals.get(gate.gate_id)
    changes = changes_since(node, gate, approval, whole) if approval is not None else {}
    if approval is not None:
        void = {
            "op": "void",
            "node": node.node_id,
            "gate": gate.gate_id,
            "approval": approval.ref,
            "content": approval.content,
            "rationale": "what was approved has changed",
        }
        drafts.append(Draft("DECISION", "node", node.node_id, void, (approval.ref,)))
    replaced = open_question_of(state, node, gate.gate_id)
    drafts.append(
        ask_draft(
            state,
            node,
            free_id(state, gate.gate_id),
            gate.question or _asked_of(node, gate),
            kind=kind_of(gate),
            options=("approve", "revise", "reject", *gate.options),
            default=gate.fallback,
            package={
                **_package(replica, node, gate),
                "changes": changes,
                "disk": disk,
            },
            now=context.now,
            timeout_s=gate.timeout_s,
            gate=gate.gate_id,
            content=content_digest(state, node, gate, files),
            files=whole,
            replaces=replaced.question_id if replaced is not None else "",
        )
    )
    return tuple(drafts)


def _asked_of(node: Node, gate: Gate) -> str:
    if gate.blocks == "start":
        return f"May work on {node.title!r} start?"
    if gate.rubric:
        return f"Is {node.title!r} as it should be? {gate.rubric}"
    return f"Is the result of {node.title!r} accepted?"


def _package(replica: Replica, node: Node, gate: Gate) -> dict[str, Any]:
    """What whoever rules has to know besides the question itself (GA-2)."""
    state = replica.state
    rounds, cap = node.rounds.get(gate.gate_id, 0), revise_cap(state, gate)
    package: dict[str, Any] = {
        "blocks": gate.blocks,
        "context": gate.context or node.spec.goal,
        "consequences": gate.consequences or _consequences(replica, node, gate, rounds + 1, cap),
        "links": list(gate.links),
        "rubric": gate.rubric,
        "scope": gate.scope,
        "gatekeeper": list(gate.gatekeeper),
    }
    if rounds:
        package |= {"rounds": rounds, "revise_max": cap}
        if gate.blocks == "done":
            package["last_ruling"] = node.diagnosis
    return package


def _consequences(replica: Replica, node: Node, gate: Gate, number: int, cap: int) -> str:
    name = node.node_id
    if gate.blocks == "start":
        return (
            f"approve: {name} may start under this spec. revise or reject: it stays where it is"
            " until its spec changes."
        )
    waiting = sorted(replica.dependents.get(name, ()), key=id_key)
    named = ", ".join(waiting[:dependents_named_max])
    more = " and others" if len(waiting) > dependents_named_max else ""
    after = f", and {named}{more} may go on" if waiting else ""
    again = (
        f"it is done again (round {number} of {cap})"
        if number < cap
        else f"this was the last of {cap} rounds: it is given up and escalated"
    )
    return f"approve: {name} is DONE{after}. revise or reject: {again}."


def changes_since(
    node: Node, gate: Gate, approval: Approval, files: Mapping[str, str]
) -> dict[str, Any]:
    """How this content differs from what was last approved."""
    before = approval.files
    lists = {
        "added": [path for path in files if path not in before],
        "changed": [p for p, value in files.items() if p in before and before[p] != value],
        "removed": [path for path in before if path not in files],
    }
    found: dict[str, Any] = {"since": approval.ref}
    for name, paths in lists.items():
        if paths:
            found[name] = sorted(paths)[:changes_listed_max]
    if approval.scope != gate.scope:
        found["scope"] = {"before": approval.scope, "now": gate.scope}
    elif digest_of(node, gate, before) != approval.content:
        found["spec"] = True
    return found
