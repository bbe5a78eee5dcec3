"""What people and agents read of a state: plain data, bounded in size.

Job: turn a replica into the answers of ``status`` and ``ready``. Invariants: each is a function of
the state alone; texts that others wrote are cut, never interpreted; an answer that an agent reads
at every step has a ceiling.
"""

from typing import Any, Final

import msgspec

from perdure.core.budget import usage_of
from perdure.core.dispatching import Slot
from perdure.core.fold import Replica
from perdure.core.frontier import frontier
from perdure.core.gates import approval_of, gates_at, is_overdue, refused_as_it_is
from perdure.core.health import health_view
from perdure.core.late import LateModule
from perdure.core.machine import (
    count_states,
    open_deps,
    open_question,
    start_refusal,
    unreplaced,
    waits_for_gates_alone,
)
from perdure.core.model import CLOSED_STATES, ActiveContract, Node, State
from perdure.core.with_people import with_people

Data = dict[str, Any]

_settling: Final = LateModule("perdure.core.settling")

line_chars_max: Final = 160
items_max: Final = 8


def cut(text: str, most: int = line_chars_max) -> str:
    """The text on one line, at most this long."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."


def status(replica: Replica, *, limit: int) -> Data:
    """The whole task at a glance; ``nodes`` is cut at ``limit``, counts are not."""
    state = replica.state
    ready = frontier(replica)
    shown = dict(list(state.nodes.items())[:limit])
    return {
        "task_id": state.task_id,
        "goal": state.goal_statement,
        "fsm_task": state.fsm_task,
        "tier": state.tier,
        "seq_last": state.seq,
        "updated_at": state.updated_at,
        "counts": count_states(state),
        "total": len(state.nodes),
        "nodes": {name: node.state for name, node in shown.items()},
        "nodes_cut": max(0, len(state.nodes) - limit),
        "running": [_at_work(item) for item in list(state.contracts.values())[:items_max]],
        "slots": [_out(slot) for slot in list(state.slots.values())[:items_max]],
        "slots_total": len(state.slots),
        "dispatch": health_view(state),
        "usage": _used(state),
        "frontier": ready[:limit],
        "artifacts": len(state.artifacts),
        "questions": {q.question_id: cut(q.text) for q in state.questions.values()},
        "stuck": stuck(replica),
        "with_people": with_people(state)[:items_max],
        "closing": _closing(state),
        "masked": dict(state.masked),
        "next_hint": state.next_hint,
        **_walk(state),
    }


def _walk(state: State) -> Data:
    """The newest walk over all files, where there has been one (tier 2)."""
    walk = state.walk
    if walk is None:
        return {}
    told = {"ref": walk.ref, "at": walk.at, "checked": walk.checked}
    return {"walk": {**told, "failed": list(walk.failed[:items_max])}}


def _closing(state: State) -> Data:
    closing = state.closing
    then = ""
    if state.fsm_task == "FINAL_AUDIT" and not state.parent:  # a nested task ends with its parent
        then = "perdure archive"
    elif closing.accepted and not closing.closed:
        then = "perdure archive --close"
    elif closing.sub_state and not closing.accepted:
        then = "perdure archive --accept TEXT --actor sponsor:NAME"
    return {
        "sub_state": closing.sub_state,
        "audit": closing.audit or None,
        "next": then,
    }


def _at_work(contract: ActiveContract) -> Data:
    data: Data = {
        "node": contract.node,
        "executor": contract.executor.actor,
        "invocation": contract.invocation_id,
    }
    return data | ({"suspected": contract.suspected} if contract.suspected else {})


def _out(slot: Slot) -> Data:
    """A worker of a batch node that is out."""
    data: Data = {
        "node": slot.node,
        "executor": slot.executor,
        "invocation": slot.invocation_id,
        "units": slot.units,
    }
    return data | ({"suspected": slot.suspected} if slot.suspected else {})


def _used(state: State) -> Data | None:
    """What the work of the task has used, as far as anybody said; None when nobody did."""
    total = usage_of(state)
    if total is None:
        return None
    data: Data = msgspec.to_builtins(total)
    data.pop("model", None)
    return data


def held(replica: Replica) -> dict[str, str]:
    """Open nodes that go on only when somebody does something, and why."""
    state, found = replica.state, {}
    for node in state.nodes.values():
        question = open_question(state, node.node_id)
        if node.state == "BLOCKED":
            found[node.node_id] = str((node.blocked or {}).get("reason") or "")
        elif question and node.state not in CLOSED_STATES:
            found[node.node_id] = state.questions[question].text
        elif node.state in ("PENDING", "READY", "RETRYABLE") and not open_deps(state, node):
            refusal = start_refusal(state, node)
            if refusal:
                found[node.node_id] = refusal
    return found


def stuck(replica: Replica) -> list[Data]:
    """The first few nodes that need somebody, open or dead, and why.

    Where a question is open ``question`` names it; ``then`` is the command that goes on from there.
    """
    state = replica.state
    found: list[Data] = [
        {
            "node": name,
            "state": state.nodes[name].state,
            "why": cut(why),
            **_way_on(state, state.nodes[name]),
        }
        for name, why in held(replica).items()
    ]
    for name in unreplaced(state):
        why = "quarantined without a successor; what depends on it cannot go on"
        found.append({"node": name, "state": "QUARANTINED", "why": why})
    return found[:items_max]


def _way_on(state: State, node: Node) -> Data:
    name = open_question(state, node.node_id)
    if name:
        return {"question": name, "then": _settling.command_for(state, state.questions[name])}
    if waits_for_gates_alone(state, node) and any(
        approval_of(state, node, gate, None) is None and not refused_as_it_is(state, node, gate)
        for gate in gates_at(state, node, "start")
    ):
        return {"then": f"perdure start {node.node_id}, which asks"}
    return {}


def open_questions(replica: Replica, now: float, *, limit: int) -> list[Data]:
    """The open questions in short, oldest first, each with the command that settles it."""
    state = replica.state
    return [
        {
            "id": question.question_id,
            "kind": question.kind,
            "node": question.node,
            "text": cut(question.text),
            "overdue": is_overdue(question, now),
            "then": _settling.command_for(state, question),
        }
        for question in list(state.questions.values())[:limit]
    ]


def ready(replica: Replica, *, limit: int, after: str | None) -> Data:
    """A page of the frontier, best first."""
    names = frontier(replica)
    start = names.index(after) + 1 if after in names else 0
    page = names[start : start + limit]
    nodes = replica.state.nodes
    return {
        "ready": [
            {
                "node": name,
                "title": cut(nodes[name].title, 80),
                "priority": nodes[name].priority,
                "attempt": nodes[name].attempts + 1,
            }
            for name in page
        ],
        "total": len(names),
        "next": page[-1] if start + limit < len(names) else None,
    }
