"""Decisions that plan anew: a node amended, split into several, given up for another (N12 to N14).

Invariants: the graph is extended, never cut: what is given up stays, and what takes its place
points back to it; a spec is frozen while its node is at work and once it is closed (TG-1); who
waited for a node that is given up waits for all of its successors from the same commit on; an
external effect that has happened, or may have, is never planned away (C-S3).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core import commands as c
from perdure.core.authority import is_sponsor
from perdure.core.decide_artifact import decide_quarantine
from perdure.core.decide_node import (
    add_draft,
    amend,
    decide_cancel,
    reopening,
    repoint,
    repointed,
)
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.frontier import find_cycle
from perdure.core.gates import gates_of, judgements
from perdure.core.lookup import near, node_of
from perdure.core.machine import OBSOLETE, REPLAN, open_deps
from perdure.core.model import AMENDABLE_FIELDS, AMENDABLE_STATES, DEAD_STATES, Node, State
from perdure.core.moves import legal_edge, transition
from perdure.core.naming import check_text
from perdure.core.payload import record
from perdure.errors import RefusedError, TransitionError, UsageError

parts_max: Final = 1_000
"""Nodes that one node is split into."""

_AMENDABLE: Final = frozenset({*AMENDABLE_FIELDS, "spec", "deps", "directives"})
_KEPT: Final = frozenset({"plan"})
"""What the runtime itself keeps of a node; nobody else names it."""


def decide_amend(replica: Replica, command: c.AmendNode, context: c.Context) -> c.Decision:
    """One AMENDMENT; refused while the node is at work, and once it is closed (TG-1).

    Less verification than before takes the sponsor, whose DECISION goes before it (VR-1).
    """
    node = node_of(replica.state, command.node_id)
    if node.state not in AMENDABLE_STATES:
        raise RefusedError(
            f"the spec of {node.node_id} cannot change: it is {node.state}.",
            code="spec_frozen",
            rule="TG-1",
            fix="Add a node that corrects it, or wait until the attempt under way has ended.",
        )
    unknown = sorted(set(command.after) - _AMENDABLE - _KEPT)
    if unknown:
        raise UsageError(
            f"{', '.join(unknown)} cannot be amended.",
            code="unknown_field",
            rule="TG-1",
            fix=f"Name some of {', '.join(sorted(_AMENDABLE))}.",
            suggestions=near(unknown[0], _AMENDABLE),
        )
    lowered = _lowering(replica.state, node, command, context)
    drafts = amend(replica, node, command.after, command.reason, before=len(lowered))
    return c.Decision((*lowered, *drafts))


def _lowering(
    state: State, node: Node, command: c.AmendNode, context: c.Context
) -> tuple[Draft, ...]:
    """The DECISION to verify less than before; none where nobody asks for less."""
    level = command.after.get("verification_level", node.verification_level)
    lost = gates_lost(state, node, command.after)
    given_up = [f"lose {', '.join(lost)}"] if lost else []
    if isinstance(level, str) and level < node.verification_level:
        given_up.insert(0, f"be verified at {level} instead of {node.verification_level}")
    if not given_up:
        return ()
    if not is_sponsor(state, context.actor):
        raise RefusedError(
            f"{node.node_id} would {' and '.join(given_up)}, and only the sponsor asks for less.",
            code="role_may_not",
            rule="VR-1",
            fix=f"Let the sponsor do it: perdure amend {node.node_id} with --actor sponsor:NAME",
        )
    payload = {
        "op": "decision",
        "id": f"DR-{state.decisions + 1}",
        "rationale": command.reason,
        "options": [node.verification_level, *lost],
        "choice": level,
        "authority": context.actor,
        "node": node.node_id,
    }
    return (Draft("DECISION", "node", node.node_id, payload),)


def gates_lost(state: State, node: Node, after: Mapping[str, Any]) -> list[str]:
    """Gates that hold the node now and would not once it is amended (GA-1).

    One that its effect class implies may give way to a declared one of the same move.
    """
    if not {"spec", "effect", "verification_level"} & set(after):
        return []
    amended = record({**msgspec.to_builtins(node), **after}, Node)
    if amended is None:
        return []
    left = gates_of(state, amended)
    names, points = {gate.gate_id for gate in left}, {gate.blocks for gate in left}
    own = {gate.gate_id for gate in (*node.spec.gates, *(gate for _, gate in judgements(node)))}
    return [
        f"gate {gate.gate_id}"
        for gate in gates_of(state, node)
        if gate.gate_id not in names and (gate.gate_id in own or gate.blocks not in points)
    ]


def decide_split(replica: Replica, command: c.SplitNode, context: c.Context) -> c.Decision:
    """The node given up, its parts added, and whoever waited for it waiting for all of them.

    One commit: the AMENDMENT that says so, the edges that lead out of its state, an AMENDMENT for
    each part and for each dependent.
    """
    state = replica.state
    node = node_of(state, command.node_id)
    check_text(command.reason, "reason")
    if not 1 <= len(command.parts) <= parts_max:
        raise UsageError(
            f"a node is split into 1 to {parts_max} others.",
            code="bad_split",
            rule="N14",
            fix=f"Name its parts: perdure split {node.node_id} --into ID:TITLE --into ID:TITLE",
        )
    if node.successors:
        raise _refused(
            node,
            f"{', '.join(node.successors[:5])} took its place already",
            "N14",
            f"Split one of those: perdure split {node.successors[0]} --into ID:TITLE",
        )
    names = [part.node_id for part in command.parts]
    out = _way_out(replica, node, _Plan("split", names, command.reason), context)
    parts = [_part(state, node, part, names[:i]) for i, part in enumerate(command.parts)]
    return c.Decision(
        (*reopening(state), *out.drafts, *parts, *repoint(replica, node.node_id, names)), out.moves
    )


def _part(state: State, node: Node, part: c.AddNode, earlier: Sequence[str]) -> Draft:
    """A part waits for what the whole waited for, and follows what the whole was told."""
    command = msgspec.structs.replace(
        part, deps=(*node.deps, *part.deps), successor_of=node.node_id
    )
    return add_draft(state, command, beside=earlier, directives=node.directives)


def decide_give_up(replica: Replica, command: c.QuarantineNode, context: c.Context) -> c.Decision:
    """The node quarantined by the edges that lead there; one that waits for others is cancelled.

    With a replacement, which is a node that there is, whoever waited for the one waits for the
    other. Without one the task is not finished before a successor is added.
    """
    state = replica.state
    node = node_of(state, command.node_id)
    check_text(command.reason, "reason")
    if node.state in DEAD_STATES:
        raise _refused(
            node,
            "it is given up already",
            "N14",
            f"Add what takes its place: perdure add ID TITLE --successor-of {node.node_id}",
        )
    names = [command.replacement] if command.replacement else []
    for name in names:
        _check_replacement(replica, node, name)
    out = _way_out(replica, node, _Plan("replan", names, command.reason), context)
    drafts = (*reopening(state), *out.drafts, *repoint(replica, node.node_id, names))
    return c.Decision(drafts, out.moves)


def _check_replacement(replica: Replica, node: Node, name: str) -> None:
    replacement = node_of(replica.state, name)
    if replacement is node or replacement.state in DEAD_STATES:
        what = "itself" if replacement is node else f"{name}, which is {replacement.state}"
        raise RefusedError(
            f"{node.node_id} is not replaced by {what}.",
            code="bad_replacement",
            rule="N13",
            fix="Name a node that is open or DONE.",
        )
    graph = {other: at.deps for other, at in replica.state.nodes.items()}
    for dependent in replica.dependents.get(node.node_id, ()):
        graph[dependent] = repointed(graph[dependent], node.node_id, [name])
    cycle = find_cycle(graph)
    if cycle:
        raise RefusedError(
            f"that would make a cycle: {' -> '.join(cycle)}.",
            code="cyclic_deps",
            rule="D4",
            fix="Name a replacement that does not wait for what waits for it.",
        )


class _Plan(NamedTuple):
    """What is to come of a node that is given up."""

    op: str
    names: Sequence[str]
    """What takes its place."""
    reason: str

    def amendment(self, node: Node) -> Draft:
        """The event that says so."""
        payload = {
            "op": self.op,
            "target": node.node_id,
            "before": None,
            "after": {"successors": list(self.names)},
            "reason": self.reason,
        }
        return Draft("AMENDMENT", "node", node.node_id, payload)

    def obsolete(self) -> dict[str, Any]:
        """What the move to QUARANTINED says of it."""
        return {
            "replacement": ", ".join(self.names) or "to be named",
            "successors": list(self.names),
        }


def _way_out(replica: Replica, node: Node, plan: _Plan, context: c.Context) -> c.Decision:
    """The AMENDMENT that gives a node up, and the moves by which it leaves the work.

    READY or startable: N13, behind N01 where that is due. RETRYABLE: N12 and N13. VERIFYING, when
    it is not split: N08. One that waits for others has no such edge and is cancelled by decision.
    One that is dead stays as it is.
    """
    state, amendment = replica.state, plan.amendment(node)
    cited = f"J-{state.seq + len(reopening(state)) + 1}"
    if node.state in DEAD_STATES:
        return c.Decision((amendment,))
    if node.effect == "S3" and node.receipt is not None:
        raise _refused(
            node, f"its effect has happened (receipt {node.receipt})", "C-S3", "Let it be finished."
        )
    if node.state == "PENDING" and open_deps(state, node):
        cancelled = decide_cancel(replica, c.CancelNodes((node.node_id,), plan.reason), context)
        return c.Decision((amendment, *cancelled.drafts), cancelled.moves)
    if node.state == "VERIFYING" and plan.op == "replan":
        quarantine = decide_quarantine(replica, node)
        manifest = {"artifacts": list(node.artifacts), "diagnosis": plan.reason}
        payload = {"manifest": manifest, "diagnosis": plan.reason, **plan.obsolete()}
        moved = transition(node, legal_edge(node, "QUARANTINED"), payload, (cited,))
        return c.Decision((amendment, *quarantine.drafts, moved), quarantine.moves)
    if node.state not in _LEAVES:
        raise _stays(node)
    moves: list[Draft] = []
    if node.state == "PENDING":
        moves.append(transition(node, legal_edge(node, "READY"), {"deps": list(node.deps)}))
    elif node.state == "RETRYABLE":
        moves.append(transition(node, REPLAN, {"amendment": cited}, (cited,)))
    moves.append(transition(node, OBSOLETE, plan.obsolete(), (cited,)))
    return c.Decision((amendment, *moves))


_LEAVES: Final = frozenset({"PENDING", "READY", "RETRYABLE"})
"""States from which a node is given up without an attempt or a wait being in the way."""


def _stays(node: Node) -> TransitionError:
    """Why this node is not given up now, and what has to happen first."""
    name = node.node_id
    if node.state == "DONE":
        return _refused(node, "its work counts", "N13", "Add a node that corrects or continues it.")
    if node.state == "BLOCKED":
        wake = (node.blocked or {}).get("wake") or "an answer"
        fix = f"Answer that first, or let it go on: perdure retry {name} --reason WHY"
        return _refused(node, f"it waits for {wake}", "N09", fix)
    fix = f"End it first: perdure fail {name} --class permanent-spec --reason WHY"
    if node.state == "VERIFYING":
        fix = f"Let it be verified, or quarantine it first: perdure quarantine {name} --reason WHY"
    return _refused(node, "an attempt at it is under way", "N12", fix)


def _refused(node: Node, why: str, rule: str, fix: str) -> TransitionError:
    return TransitionError(
        f"{node.node_id} is {node.state}: {why}.", code="guard_failed", rule=rule, fix=fix
    )
