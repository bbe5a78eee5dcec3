"""Calls between the task and people: questions, and the rulings on them.

Job: one function for each call of the table in ``calls``, by the same name. Invariants: an answer
names the event that acknowledges it; a refusal has written nothing, unless it says what it asked
instead.
"""

from collections.abc import Sequence

from perdure.core import commands as c
from perdure.core.events import Event
from perdure.core.model import State
from perdure.core.people import ANSWERS, Ruling
from perdure.runtime import answers
from perdure.runtime.answers import Answer, Args, node_of_call
from perdure.runtime.engine import Engine
from perdure.runtime.rulings import rule


def ask(engine: Engine, args: Args, op: str | None) -> Answer:
    """Put a question to a person (H2); the node that is named waits for the answer."""
    with engine.writing():
        node_id = node_of_call(engine, args).node_id if args.get("node") else None
        timeout_s = args.get("timeout_s")
        command = c.AskQuestion(
            str(args["text"]),
            str(args.get("id") or ""),
            node_id,
            tuple(map(str, args.get("options") or ())),
            str(args.get("default") or ""),
            str(args.get("to") or ANSWERS),
            str(args.get("context") or ""),
            str(args.get("consequences") or ""),
            tuple(map(str, args.get("links") or ())),
            bool(args.get("keep_working")),
            None if timeout_s is None else float(timeout_s),
        )
        committed = engine.execute(command, op=op)
        told = tell_ask(engine.replica.state, committed.events)
        return answers.answer(committed, **(told or {"question": command.question_id}))


def tell_ask(state: State, events: Sequence[Event]) -> Answer:
    """The question that was put, and where the node stands that waits for the answer."""
    for event in events:
        if event.kind == "DECISION" and event.payload.get("op") == "ask":
            found = {"question": event.payload["question_id"]}
            name = event.payload.get("node")
            return {**found, "node": name, "state": state.nodes[name].state} if name else found
    return {}


def answer(engine: Engine, args: Args, op: str | None) -> Answer:
    """A person answers a question."""
    return _ruled(engine, "answer", args, op)


def approve(engine: Engine, args: Args, op: str | None) -> Answer:
    """A person consents to what a gate shows; work that waited for it is verified (GA-3)."""
    return _ruled(engine, "approve", args, op)


def revise(engine: Engine, args: Args, op: str | None) -> Answer:
    """A person wants it otherwise, with changes of the spec where there are any."""
    return _ruled(engine, "revise", args, op)


def reject(engine: Engine, args: Args, op: str | None) -> Answer:
    """A person refuses it."""
    return _ruled(engine, "reject", args, op)


def _ruled(engine: Engine, ruling: Ruling, args: Args, op: str | None) -> Answer:
    ruled = rule(engine, str(args["question"]), ruling, args, op=op)
    told = tell_answer(engine.replica.state, ruled.committed.events)
    found = answers.answer(ruled.committed, **told)
    return found | ({"why": ruled.why} if ruled.why else {})


def tell_answer(state: State, events: Sequence[Event]) -> Answer:
    """The ruling, where its node stands, the verdict on that, and what was asked instead."""
    found: Answer = {}
    for event in events:
        payload = event.payload
        op = payload.get("op") if event.kind == "DECISION" else ""
        if op == "answer":
            found = {"question": payload["question_id"], "ruling": payload["ruling"]}
            if payload.get("node"):
                name = payload["node"]
                found |= {"node": name, **answers.standing_of(state, name)}
        elif found and op == "ask":
            found.setdefault("asked", []).append(answers.asked(payload))
        if found and event.entity.id == found.get("node"):
            found |= answers.verdict(payload)
    return found


tell_approve = tell_revise = tell_reject = tell_answer
