"""The questions by which a node that is out of ways of its own gets to a person.

Job: one draft for each way to get there: out of strikes, given up by verification, refused by a
person as often as its gate allows (FSN-3, VR-3). Invariants: the question carries the whole bundle
of ``escalation``, the attempt that ends in the same commit included; it is the last event of what
led to it, and opens nothing but itself.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from perdure.core import commands as c
from perdure.core.asking import ask_draft, free_id
from perdure.core.escalation import (
    OUT_OF_STRIKES,
    RESULT_REFUSED,
    SAFE_DEFAULT,
    START_REFUSED,
    VERIFICATION_FAILED,
    as_shown,
    bundle,
    choices_of,
    of_verdict,
    with_moves,
)
from perdure.core.events import Draft
from perdure.core.failure_text import as_seen
from perdure.core.model import Node, State
from perdure.core.people import Failure, Gate, Question
from perdure.errors import invariant


def out_of_strikes(
    state: State, node: Node, command: c.FailNode, quarantine: c.Decision, now: float
) -> Draft:
    """Of a node whose method has used up its budget (FSN-3)."""
    seen = as_seen(command.signature, command.detail)
    text = (
        f"{node.title}: method {node.method!r} is out of strikes (last: {seen})."
        " Retry it with another method, or cancel it."
    )
    last = _failure(state, node, command.failure_class, command.signature, len(quarantine.drafts))
    facts = with_moves(command.disk_facts, quarantine.moves)
    question_id = _by_attempt(state, node)
    package = bundle(node, question_id, kind=OUT_OF_STRIKES, last=last, disk_facts=facts)
    return _question(state, node, text, package, now)


def given_up(
    state: State, node: Node, command: c.MoveNode, quarantine: c.Decision, now: float
) -> Draft:
    """Of a node whose verification has failed for the last time (N08)."""
    verdict = command.verdict
    invariant(verdict is not None, f"{node.node_id} is given up without a verdict")
    assert verdict is not None
    text = (
        f"{node.title}: its verification has failed for the last time ({verdict.diagnosis})."
        " What takes its place?"
    )
    last = _failure(state, node, "transient-agent", verdict.diagnosis, len(quarantine.drafts))
    facts = of_verdict(state, verdict.artifacts, verdict.checks, command.disk_facts)
    facts = with_moves(facts, quarantine.moves)
    question_id = _by_attempt(state, node)
    package = bundle(node, question_id, kind=VERIFICATION_FAILED, last=last, disk_facts=facts)
    return _question(state, node, text, package, now)


def _by_attempt(state: State, node: Node) -> str:
    return free_id(state, f"Q-{node.node_id}-{node.attempts}")


def _failure(state: State, node: Node, failure_class: str, signature: str, before: int) -> Failure:
    """The attempt that ends in this commit, ``before`` drafts behind its beginning."""
    ref = f"J-{state.seq + before + 1}"
    return Failure(ref, node.attempts, failure_class, signature, node.method)


class Refusal(NamedTuple):
    """The last refusal that a gate allows."""

    gate: Gate
    question: Question
    """What was refused, with the files that the person was shown."""
    why: str
    changes: Mapping[str, Any]
    """What the person wants changed, where nothing is left that could be changed."""
    quarantine: c.Decision | None
    """Of a node that is given up with it; its events are in front of that."""


def refused_for_good(state: State, node: Node, refusal: Refusal, now: float) -> Draft:
    """Of what a person has refused as often as its gate allows (VR-3)."""
    gate, quarantine = refusal.gate, refusal.quarantine
    number = node.rounds.get(gate.gate_id, 0) + 1
    often, rounds = ("once", "1 round") if number == 1 else (f"{number} times", f"{number} rounds")
    facts = as_shown(refusal.question.files)
    if quarantine is None:
        kind, last, outcome = START_REFUSED, None, f"{gate.gate_id} stays closed"
    else:  # the ruling comes first in the commit
        before = 1 + len(quarantine.drafts)
        kind, outcome = RESULT_REFUSED, f"{node.node_id} was given up"
        last = _failure(state, node, "transient-agent", refusal.why, before)
        facts = with_moves(facts, quarantine.moves)
    question_id = free_id(state, f"E-{node.node_id}-{node.attempts}")
    package: dict[str, Any] = {
        **bundle(node, question_id, kind=kind, last=last, disk_facts=facts),
        "context": f"{outcome} after {rounds} of revision.",
        "gate": gate.gate_id,
        "rounds": number,
    }
    wanted = {"rubric": gate.rubric, "changes": dict(refusal.changes)}
    package |= {name: value for name, value in wanted.items() if value}
    text = (
        f"{node.title}: refused {often} at gate {gate.gate_id}, the last time with:"
        f" {refusal.why}. How is it to go on?"
    )
    return _question(state, node, text, package, now)


def _question(state: State, node: Node, text: str, package: dict[str, Any], now: float) -> Draft:
    """The event that asks it; the bundle goes into it whole, with what is empty in it."""
    asked = ask_draft(
        state,
        node,
        package["escalation_id"],
        text,
        kind="escalation",
        options=choices_of(package["kind"]),
        default=SAFE_DEFAULT,
        now=now,
    )
    return msgspec.structs.replace(asked, payload={**asked.payload, "package": package})
