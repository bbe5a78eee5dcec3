"""Decisions about steering: an instruction logged, read, propagated and acknowledged (S1 to S4).

Job: two commits for each instruction, the words first and what follows from them second.
Invariants: it is on record, word for word, before anything acts on it; what is logged is always
propagated, whatever the state has become meanwhile, so nothing on record is ever refused; who does
not say how an instruction is meant gets the stronger reading, and is asked whether that is right
(ST-1).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from perdure.core import commands as c
from perdure.core.authority import is_sponsor
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.gates import delegation_of
from perdure.core.late import LateModule
from perdure.core.lookup import near, node_of
from perdure.core.machine import open_nodes
from perdure.core.model import State, text_digest
from perdure.core.naming import check_id, check_text
from perdure.core.people import READINGS
from perdure.core.propagation import Propagation, nodes_per_commit_max
from perdure.core.steered_amendment import NODE_FIELDS, amend, changed_fields, check_changes
from perdure.core.steered_halt import halt
from perdure.core.views import cut
from perdure.errors import NotFoundError, RefusedError, UsageError

_replan: Final = LateModule("perdure.core.decide_replan")  # of few instructions

STRONGER: Final = "amendment"
"""How an instruction is read whose sender does not say how it is meant."""
PROVENANCES: Final = ("original", "re-stated")

targets_max: Final = 1_000
"""Nodes that one instruction may name."""
applied_told_max: Final = 1_000
"""Nodes that an acknowledgement lists."""
question_chars_max: Final = 2_000


def decide_log(replica: Replica, command: c.LogSteering, context: c.Context) -> c.Decision:
    """S1: the words, verbatim, and nothing else."""
    state = replica.state
    check_text(command.text, "steering")
    steering_id = command.steering_id or _free_steering_id(state)
    check_id(steering_id, "a steering id")
    known = state.steering.get(steering_id)
    if known is not None:
        if known.digest == text_digest(command.text):
            return c.Decision(answer=known.ref)
        raise RefusedError(
            f"steering {steering_id} is another text already (see {known.ref}).",
            code="duplicate_id",
            rule="S1",
            fix="Send it under another id, or under none: it is numbered then.",
        )
    _check_meaning(state, command)
    _check_gates_kept(state, command, context)
    payload: dict[str, Any] = {
        "id": steering_id,
        "source": command.source or context.actor,
        "verbatim": command.text,
        "received_via": command.received_via or "call",
        "provenance": command.provenance,
    }
    for name in ("reading", "targets", "changes", "revokes"):
        if given := getattr(command, name):
            payload[name] = list(given) if isinstance(given, tuple) else given
    return c.Decision((Draft("STEERING_LOGGED", "steering", steering_id, payload),))


def _free_steering_id(state: State) -> str:
    number = len(state.steering) + 1
    while (steering_id := f"ST-{number:03d}") in state.steering:
        number += 1
    return steering_id


def _check_meaning(state: State, command: c.LogSteering) -> None:
    """Raise for what the sender can still put right: before the words are on record."""
    if command.reading and command.reading not in READINGS:
        raise UsageError(
            f"an instruction is not read as {command.reading!r}.",
            code="unknown_reading",
            rule="S2",
            fix=f"Say one of {', '.join(READINGS)}, or nothing.",
            suggestions=near(command.reading, READINGS),
        )
    if command.provenance not in PROVENANCES:
        raise UsageError(
            f"{command.provenance!r} is no provenance.",
            code="unknown_provenance",
            rule="ST-2",
            fix=f"Say one of {', '.join(PROVENANCES)}.",
        )
    if len(command.targets) > targets_max:
        raise UsageError(
            f"an instruction names at most {targets_max} nodes.",
            code="too_large",
            rule="S3",
            fix="Name none, which means every open node, or send several.",
        )
    nodes = [node_of(state, name) for name in command.targets]
    check_changes(command.changes, nodes, command.reading or STRONGER)
    for name in command.revokes if command.provenance == "original" else ():
        if name not in state.standing_authorities:
            raise NotFoundError(
                f"there is no standing authority {name!r}.",
                code="unknown_authority",
                fix="`perdure status --json` lists what is in force.",
                suggestions=near(name, state.standing_authorities),
            )


def _check_gates_kept(state: State, command: c.LogSteering, context: c.Context) -> None:
    """Raise RefusedError for fields that take a gate away, unless the sponsor says so (VR-1)."""
    if set(command.changes) <= set(NODE_FIELDS) or is_sponsor(state, context.actor):
        return
    for name in command.targets or open_nodes(state):
        node = state.nodes[name]
        try:
            lost = _replan.gates_lost(state, node, changed_fields(node, command.changes))
        except (TypeError, ValueError, OverflowError):
            continue  # it does not fit this node, and is not set there
        if lost:
            raise RefusedError(
                f"{name} would lose {', '.join(lost)}, and only the sponsor asks for less.",
                code="role_may_not",
                rule="VR-1",
                fix="Let the sponsor say it: --actor sponsor:NAME",
            )


def decide_propagate(
    replica: Replica, command: c.PropagateSteering, context: c.Context
) -> c.Decision:
    """S2 to S4 in one commit; for very many nodes in several, of which the last acknowledges.

    It never refuses what is on record. An instruction that was propagated is answered with its
    acknowledgement.
    """
    state, steering_id = replica.state, command.steering_id
    steering = state.steering.get(steering_id)
    if steering is None:
        raise NotFoundError(
            f"there is no steering {steering_id!r}.",
            code="unknown_steering",
            fix="`perdure inbox` lists them.",
            suggestions=near(steering_id, state.steering),
        )
    if steering.acknowledged:
        return c.Decision(answer=steering.acknowledged)
    given = steering.reading if steering.reading in READINGS else ""
    plan = Propagation(replica, steering_id, command.text, given or STRONGER, context)
    before = _said_before(state, steering_id)
    if not steering.applied:
        _classify(plan, given)
    if state.fsm_task == "ARCHIVED":
        plan.outcomes.append("the task is archived, so nothing was changed")
    elif not before:
        if not steering.applied:
            _revoke(plan)
        _EFFECTS[plan.reading](plan)
        if steering.changes and plan.reading != STRONGER:
            plan.doubts.append(f"what it sets was not set: a {plan.reading} changes no field")
    if plan.is_whole:
        _confirm(plan, given, before)
        _acknowledge(plan, before)
    return c.Decision(tuple(plan.drafts), tuple(plan.moves))


def _said_before(state: State, steering_id: str) -> str:
    """The instruction that this one says again, when that one arrived after all (ST-2)."""
    mine = state.steering[steering_id]
    if mine.provenance == "original":
        return ""
    for name, other in state.steering.items():
        same = (other.digest, other.targets, other.changes, other.revokes)
        if other.acknowledged and same == (mine.digest, mine.targets, mine.changes, mine.revokes):
            return name
    return ""


# S2


def _classify(plan: Propagation, given: str) -> None:
    payload = {
        "op": "classify",
        "reading": plan.reading,
        "options": list(READINGS),
        "rationale": f"so said {plan.steering.source}"
        if given
        else "nobody said how it is meant, so it gets the stronger reading (ST-1)",
        "authority": plan.steering.source if given else plan.context.actor,
    }
    evidence = (plan.steering.ref,)
    plan.add(Draft("DECISION", "steering", plan.steering_id, payload, evidence))


# S3


def _revoke(plan: Propagation) -> None:
    """Take standing authorities back, and recall what is at work by nothing else."""
    state = plan.state
    left = [name for name in state.standing_authorities if name not in plan.steering.revokes]
    for name in dict.fromkeys(plan.steering.revokes):
        if name not in state.standing_authorities:
            plan.doubts.append(f"the authority {name!r} was not in force any more")
            continue
        payload = {"op": "revoke_authority", "name": name, "rationale": plan.cause}
        ref = plan.add(Draft("DECISION", "task", state.task_id, payload, (plan.steering.ref,)))
        plan.outcomes.append(f"authority {name} revoked {ref}")
    if len(left) < len(state.standing_authorities) and "*" not in left:
        for contract in list(state.contracts.values()):
            node = state.nodes[contract.node]
            if delegation_of(state, node) == "STANDING_AUTHORITY" and node.node_id not in left:
                plan.recall(node)


def _clarify(plan: Propagation) -> None:
    """It changes nothing: that it is on record is all."""


def _question(plan: Propagation) -> None:
    """The coordinator owes an answer."""
    text = cut(plan.text, question_chars_max)
    asker = f"Asked by {plan.steering.source}."
    ref = plan.ask(None, text, "question", "coordinator", context=asker)
    plan.outcomes.append(f"put to the coordinator {ref}")


def _amend(plan: Propagation) -> None:
    done = plan.steering.applied
    if not plan.steering.targets and not done:
        payload = {
            "op": "direct_task",
            "target": plan.state.task_id,
            "before": None,
            "after": {"text": plan.directive_beside(held.text for held in plan.state.directives)},
            "reason": plan.cause,
        }
        ref = plan.add(Draft("AMENDMENT", "task", plan.state.task_id, payload))
        plan.outcomes.append(f"whatever is added later {ref}")
    nodes = [node for node in plan.targets() if node.node_id not in done]
    if not plan.steering.targets and not nodes and not done:
        plan.doubts.append("nothing is open: what is DONE is corrected where it is named")
    plan.is_whole = len(nodes) <= nodes_per_commit_max
    amend(plan, nodes[:nodes_per_commit_max])


_EFFECTS: Final[Mapping[str, Callable[[Propagation], None]]] = {
    "clarification": _clarify,
    "question": _question,
    "amendment": _amend,
    "halt": halt,
}


# S4


def _confirm(plan: Propagation, given: str, before: str) -> None:
    """Put to the sponsor what was decided for them, and what could not be done as they said."""
    told = list(plan.doubts)
    if not given and not before:
        where = ", ".join(plan.steering.targets[:5]) or "everything that is open"
        told.insert(0, f"nobody said how it is meant, so it was taken to change {where}")
    if not told:
        return
    said = cut(plan.text, 400)
    text = f"{plan.steering_id} ({said}): {'; '.join(told[:20])}. Is that right?"
    options = ("right", "not right: steer again")
    plan.ask(None, text, "confirmation", "sponsor", options=options, default="as it was read")


def _acknowledge(plan: Propagation, before: str) -> None:
    """On record where, read how, applied to what."""
    applied = {**plan.steering.applied, **plan.applied}
    recalled = [name for name, what in applied.items() if what.startswith("recalled")]
    shown = [f"{name} {what}" for name, what in list(applied.items())[:10]]
    shown += [f"{len(applied) - 10} more nodes"] if len(applied) > 10 else []
    shown += plan.outcomes
    if before:
        said = f"said before as {before}, which stands"
    else:
        said = "; ".join(shown) or "nothing had to change"
    payload = {
        "op": "acknowledged",
        "reading": plan.reading,
        "text": f"logged as {plan.steering.ref}, read as {plan.reading}: {said}",
        "log": plan.steering.ref,
        "applied": dict(list(applied.items())[:applied_told_max]),
        "applied_count": len(applied),
        "recalled": recalled[:applied_told_max],
    }
    if before:
        payload["same_as"] = before
    evidence = (plan.steering.ref,)
    plan.add(Draft("NOTE", "steering", plan.steering_id, payload, evidence))
