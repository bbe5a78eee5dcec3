"""The call by which somebody outside audits finished work (V2).

Job: one function for each call of the table in ``calls``, by the same name. Invariants: an answer
names the event that acknowledges it; the verdict is on record before the node moves by it.
"""

from collections.abc import Sequence

from perdure.core.events import Event
from perdure.core.model import State
from perdure.errors import EvidenceError, RefusedError
from perdure.runtime import work
from perdure.runtime.answers import Answer, Args, answer, node_of_call, standing_of, verdict
from perdure.runtime.audits import judge as record_judgement
from perdure.runtime.engine import Engine


def judge(engine: Engine, args: Args, op: str | None) -> Answer:
    """Record the verdict, then verify the node, which rests on it.

    A run verifies by itself, beside its loop, what has a verdict. The lock is not held while checks
    run; a crash before they have ended leaves the verdict on record, and the next check goes on.
    """
    with engine.writing():
        node_id = node_of_call(engine, args).node_id
        committed = record_judgement(engine, node_id, args["verdict"], op=op)
        told = tell_judge(engine.replica.state, committed.events)
        found = answer(committed, **(told or {"node": node_id}))
    if engine.on_pause is not None or committed.repeated:
        return found | standing_of(engine.replica.state, node_id)
    try:
        checked, moved = work.check(engine, node_id)
    except (EvidenceError, RefusedError) as error:
        return found | standing_of(engine.replica.state, node_id) | {"why": error.message}
    found |= standing_of(engine.replica.state, node_id)
    if moved is not None:
        found |= {"passed": checked.passed, "diagnosis": checked.diagnosis}
        found["checks"] = list(checked.checks)
    return found


def tell_judge(state: State, events: Sequence[Event]) -> Answer:
    """The verdict that was recorded, and where its node stands."""
    found: Answer = {}
    for event in events:
        payload, name = event.payload, event.entity.id
        if event.kind == "NOTE" and payload.get("op") == "audit":
            found = {
                "node": name,
                "audit": "pass" if payload.get("passed") else "fail",
                "integrity": payload.get("integrity"),
                "independence": payload.get("independence"),
                **standing_of(state, name),
            }
        elif found and name == found["node"]:
            found |= verdict(payload)
    return found
