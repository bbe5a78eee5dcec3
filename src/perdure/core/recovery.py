"""Recovery as a table: what was found, and what follows (protocol section 9, R3 to R7).

``NODE_RULES`` covers every combination of a node's state and what the disk and the process table
say about it; a test enumerates them all and finds exactly one rule for each. Invariants: planning
changes nothing; a consistent workspace gives an empty plan, so a clean recovery appends nothing;
repairs are ordinary events by legal edges, all in one commit.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from perdure.core import commands as c
from perdure.core.decide_artifact import quarantine
from perdure.core.decide_ending import decide_fail
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.late import LateModule
from perdure.core.machine import RC1, open_nodes, task_edge
from perdure.core.model import CLOSED_STATES, NODE_STATES, Node, State
from perdure.core.moves import task_move, transition
from perdure.core.on_disk import Files, Fragment, register_fragment

Repair = Literal["keep", "interrupt", "hold_effect", "verify_again", "reopen", "report"]
Contract = Literal["live", "dead"]

CONTRACTS: Final[tuple[Contract, ...]] = ("live", "dead")
_decide_steering: Final = LateModule("perdure.core.decide_steering")  # of few recoveries
_rehearsal: Final = LateModule("perdure.core.rehearsal")

steering_events_max: Final = 20_000
"""Events that a recovery's commit gives to instructions, before the rest have to follow it."""


class NodeFacts(NamedTuple):
    """What is known about one node besides its state."""

    contract: Contract = "dead"
    files: Files = "whole"
    effect_open: bool = False
    """An S3 effect was allowed and there is no receipt for it."""
    details: tuple[str, ...] = ()


class Rule(NamedTuple):
    """One row: None matches anything."""

    states: tuple[str, ...]
    contract: Contract | None
    files: tuple[Files, ...] | None
    effect_open: bool | None
    repair: Repair
    why: str


_RESTING: Final = tuple(
    state for state in NODE_STATES if state not in ("RUNNING", "VERIFYING", "DONE")
)

NODE_RULES: Final = (
    Rule(("RUNNING",), "live", None, None, "keep", "its executor lives"),
    Rule(
        ("RUNNING",),
        "dead",
        None,
        True,
        "hold_effect",
        "its executor is gone and its external effect has no receipt: probably done",
    ),
    Rule(("RUNNING",), "dead", None, False, "interrupt", "its executor is gone"),
    Rule(("VERIFYING",), None, None, None, "verify_again", "verification is idempotent"),
    Rule(("DONE",), None, ("whole",), None, "keep", "its evidence is on disk"),
    Rule(("DONE",), None, ("missing",), None, "reopen", "files it rests on are gone"),
    Rule(
        ("DONE",),
        None,
        ("changed", "unreadable"),
        None,
        "report",
        "files it rests on are not what was registered",
    ),
    Rule(_RESTING, None, None, None, "keep", "nothing is under way"),
)


def rule_for(state: str, facts: NodeFacts) -> Rule:
    """The one row that applies."""
    for rule in NODE_RULES:
        if (
            state in rule.states
            and rule.contract in (None, facts.contract)
            and (rule.files is None or facts.files in rule.files)
            and rule.effect_open in (None, facts.effect_open)
        ):
            return rule
    raise AssertionError(f"no recovery rule for {state} with {facts}")


class Findings(NamedTuple):
    """Everything R2 saw that may need a repair."""

    takeover: str = ""
    """Why the previous holder's lease was taken over; empty after a clean release."""
    nodes: Mapping[str, NodeFacts] = {}
    fragments: tuple[Fragment, ...] = ()
    stale_views: tuple[str, ...] = ()
    moves: tuple[c.FileMove, ...] = ()
    """Moves that a commit ordered and that did not happen."""
    steering: Mapping[str, str] = {}
    """Instructions on record that nothing has acted on, oldest first: id to its words."""


class Plan(NamedTuple):
    """What recovery will do, before it does anything."""

    drafts: tuple[Draft, ...]
    moves: tuple[c.FileMove, ...]
    found: tuple[str, ...]
    repaired: tuple[str, ...]
    suspects: tuple[str, ...]
    """Nodes whose evidence does not hold, for a person to look at."""


def plan_recovery(replica: Replica, findings: Findings, context: c.Context) -> Plan:
    """R3 and R4: the repairs, in memory. Deterministic: same journal and facts, same plan."""
    state = replica.state
    drafts: list[Draft] = []
    moves = list(findings.moves)
    found, repaired, suspects = [], [], []
    if findings.takeover:
        found.append(findings.takeover)
        found.extend(_slots_found(state))
    for fragment in findings.fragments:
        found.append(f"{fragment.what}: {fragment.size_bytes} bytes")
        repaired.append(f"set aside as {fragment.path}")
        drafts.append(register_fragment(fragment))
    for node_id, facts in findings.nodes.items():
        node = state.nodes[node_id]
        rule = rule_for(node.state, facts)
        if rule.repair in ("keep", "verify_again"):
            continue
        found.append(_describe(node, facts, rule))
        # An archived task takes no further work (FST-3): what it has lost is told, not made again.
        if rule.repair == "report" or (state.fsm_task == "ARCHIVED" and rule.repair == "reopen"):
            suspects.append(node_id)
            continue
        repair = _REPAIRS[rule.repair](replica, node, facts, context)
        drafts += repair.drafts
        moves += repair.moves
        repaired.append(f"{node_id}: {_OUTCOMES[rule.repair]}")
    repaired.extend(
        f"moved {move.source} to {move.target}, as had been committed" for move in findings.moves
    )
    if findings.takeover:
        note = {"op": "takeover", "text": findings.takeover, "epoch": state.epoch}
        drafts.insert(0, Draft("NOTE", "task", state.task_id, note))
    return Plan(tuple(drafts), tuple(moves), tuple(found), tuple(repaired), tuple(suspects))


def _slots_found(state: State) -> list[str]:
    """What a dead coordinator left open, one line a node; the next start of it judges the disk."""
    out: dict[str, int] = {}
    for slot in state.slots.values():
        out[slot.node] = out.get(slot.node, 0) + 1
    return [
        f"{node_id} has {count} open slot{'s' if count > 1 else ''}; what the disk holds of them is"
        " judged when it starts again"
        for node_id, count in out.items()
    ]


def entry_move(plan: Plan, before: State, *, steered: bool = False) -> tuple[Draft, ...]:
    """The task's move into RECOVERING, which comes before every repair; none where it is there.

    ``steered``: whether there are instructions to propagate besides the plan's repairs.
    """
    if before.fsm_task == "SUSPENDED" or (
        before.fsm_task == "EXECUTING" and (plan.drafts or plan.repaired or steered)
    ):
        return (task_move(before.task_id, before.fsm_task, "RECOVERING"),)
    return ()


def plan_steering(
    plan: Plan, planned: Replica, pending: Mapping[str, str], context: c.Context
) -> Plan:
    """The plan with S2 to S4 of these instructions behind its repairs (R4).

    ``planned`` is a copy that has the entry and the repairs folded; it is taken along. What a
    commit cannot hold any more stays pending: it is propagated right behind the recovery.
    """
    drafts, moves = list(plan.drafts), list(plan.moves)
    found, repaired = list(plan.found), list(plan.repaired)
    for steering_id, words in pending.items():
        if len(drafts) > steering_events_max:
            break
        steering = planned.state.steering[steering_id]
        while not steering.acknowledged and len(drafts) <= steering_events_max:
            command = c.PropagateSteering(steering_id, words)
            decision = _decide_steering.decide_propagate(planned, command, context)
            _rehearsal.apply_drafts(planned, decision.drafts, context)
            drafts += decision.drafts
            moves += decision.moves
        found.append(f"steering {steering_id} was logged ({steering.ref}) and not propagated")
        repaired.append(f"steering {steering_id}: propagated, read as {steering.reading}")
    return Plan(tuple(drafts), tuple(moves), tuple(found), tuple(repaired), plan.suspects)


def finish_plan(plan: Plan, before: State, planned: Replica) -> tuple[Draft, ...]:
    """R7: the task's own moves and the recovery NOTE, in front of and behind the repairs.

    ``planned`` is the state with the repairs applied. Empty when there is nothing to say, and for a
    task that is closed, to which nothing is written (FST-3).
    """
    if before.closing.closed:
        return ()
    interrupted = before.fsm_task in ("EXECUTING", "RECOVERING") and bool(
        plan.drafts or plan.repaired
    )
    waiting = before.fsm_task in ("RECOVERING", "SUSPENDED")
    drafts = list(plan.drafts)
    moves = entry_move(plan, before)
    note: list[Draft] = []
    # Suspects alone are told to whoever opens, each time anew, and not journaled each time.
    if plan.repaired or (drafts and len(plan.found) > 1):
        payload = {
            "op": "recovered",
            "text": "recovered",
            "found": list(plan.found),
            "repaired": list(plan.repaired),
        }
        note.append(Draft("NOTE", "task", before.task_id, payload))
    target = _resting_place(planned)
    after = []
    halted = any(draft.payload.get("to") == "SUSPENDED" for draft in drafts)
    if (interrupted or waiting) and target and not halted:
        after.append(task_move(before.task_id, "RECOVERING", target))
    elif planned.state.fsm_task == "FINAL_AUDIT" and open_nodes(planned.state):
        after.append(task_move(before.task_id, "FINAL_AUDIT", "DECOMPOSING"))
    return (*moves, *drafts, *note, *after)


def _resting_place(planned: Replica) -> str:
    """Where RECOVERING leads, or empty when it has to wait for a person."""
    state = planned.state
    if not state.nodes:
        return "DECOMPOSING"
    if not open_nodes(state):
        edge = task_edge("RECOVERING", "FINAL_AUDIT")
        return "FINAL_AUDIT" if edge is not None and not edge.guard(state) else ""
    edge = task_edge("RECOVERING", "EXECUTING")
    return "EXECUTING" if edge is not None and not edge.guard(state) else ""


def check_consistency(replica: Replica) -> list[str]:
    """R6: every state has what it rests on. Returns what does not hold; empty is consistent."""
    state = replica.state
    wrong: list[str] = []
    for node in state.nodes.values():
        where = f"{node.node_id} is {node.state}"
        wrong.extend(
            f"{node.node_id} depends on {dep}, which does not exist"
            for dep in node.deps
            if dep not in state.nodes
        )
        if node.state == "RUNNING" and node.invocation not in state.contracts:
            wrong.append(f"{where} without a contract")
        if node.state == "DONE" and not node.artifacts and node.spec.outputs is None:
            wrong.append(f"{where} without an artifact")
        if node.state == "BLOCKED" and not node.blocked:
            wrong.append(f"{where} without a reason")
        wrong.extend(
            f"{node.node_id} names artifact {artifact_id}, never registered"
            for artifact_id in node.artifacts
            if artifact_id not in state.artifacts
        )
    for slot in state.slots.values():
        sender = state.nodes.get(slot.node)
        if sender is None or sender.state in CLOSED_STATES:
            wrong.append(f"slot {slot.invocation_id} is open for nobody who waits for it")
    for contract in state.contracts.values():
        holder = state.nodes.get(contract.node)
        if holder is None or holder.state != "RUNNING":
            wrong.append(f"contract {contract.invocation_id} is in force for nobody at work")
    return wrong


def _describe(node: Node, facts: NodeFacts, rule: Rule) -> str:
    details = f" ({'; '.join(facts.details)})" if facts.details else ""
    return f"{node.node_id} is {node.state}: {rule.why}{details}"


_OUTCOMES: Final = {
    "interrupt": "RETRYABLE, as an interruption",
    "hold_effect": "BLOCKED until a person says whether the effect happened",
    "reopen": "READY again",
}


def _interrupt(replica: Replica, node: Node, facts: NodeFacts, context: c.Context) -> c.Decision:
    return decide_fail(
        replica,
        c.FailNode(
            node.node_id,
            "transient-agent",
            "; ".join(facts.details) or "its executor is gone",
            interruption=True,
        ),
        context,
    )


def _reopen(replica: Replica, node: Node, facts: NodeFacts, context: c.Context) -> c.Decision:
    """RC1, and the registrations whose bytes are gone stop counting."""
    reason = "files it was registered with are gone"
    lost = quarantine(replica, node, node.artifacts, reason)
    reopened = transition(node, RC1, {"finding": "; ".join(facts.details)})
    return c.Decision((*lost.drafts, reopened), lost.moves)


_REPAIRS: Final = {"interrupt": _interrupt, "hold_effect": _interrupt, "reopen": _reopen}
"""An interrupted attempt whose effect is open is held by the decision itself (C-S3)."""
