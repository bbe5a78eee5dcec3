"""What writing calls take and answer: plain data, with the event that acknowledges it.

Invariants: ``committed`` names a durable event, or is None where nothing was written; a repeated op
is answered from its own events, so with what was true then.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.gates import is_of_gate
from perdure.core.lookup import complete, node_of
from perdure.core.model import Node, State
from perdure.errors import RefusedError
from perdure.runtime.batching import Committed
from perdure.runtime.engine import Engine
from perdure.runtime.eventlog import EventLog

Args = Mapping[str, Any]
Answer = dict[str, Any]
Tell = Callable[[State, Sequence[Event]], Answer]
"""What a call answers besides the event that acknowledges it, of a state and the commit that made
it so; nothing for a commit of another call."""


def answer(committed: Committed, **more: Any) -> Answer:
    """The answer to a call that came to this commit."""
    found: Answer = {"committed": committed.ref, **more}
    if committed.repeated:
        found["repeated"] = True
    return found


def node_of_call(engine: Engine, args: Args) -> Node:
    """The node that ``args`` names, by id or unique prefix. Raises NotFoundError or UsageError."""
    state = engine.replica.state
    return node_of(state, complete(str(args["node"]), state.nodes, "node"))


def standing_of(state: State, node_id: str) -> Answer:
    """The state of a node, and the gates that it waits for as ``{question, text}``."""
    found: Answer = {"state": state.nodes[node_id].state}
    waits_for = [
        {"question": question.question_id, "text": question.text}
        for question in state.questions.values()
        if question.node == node_id and is_of_gate(question)
    ]
    return found | ({"waits_for": waits_for} if waits_for else {})


def told_again(engine: Engine, op: str, seq: int, tell: Tell | None) -> Answer:
    """The answer to an op that was committed before; writes nothing.

    ``tell`` is what the call makes its own answer of. It gets the state as it was right after that
    commit; where it knows nothing to say of the events, since they are of another call, they are
    told as they are.
    """
    if tell is not None:
        replica, events = Replica(), list[Event]()
        for event in EventLog(engine.disk, engine.layout.journal, engine.replica.state.seq):
            if event.seq >= seq:
                if event.op != op:
                    break
                events.append(event)
            replica.apply(event)
        told = tell(replica.state, events)
        if told:
            return {"committed": f"J-{seq}", "repeated": True, **told}
    return repeated(engine, op, seq)


def repeated(engine: Engine, op: str, seq: int) -> Answer:
    """The answer to an op that was committed before, from its events; writes nothing."""
    found: Answer = {"committed": f"J-{seq}", "repeated": True}
    states: dict[str, str] = {}
    log = EventLog(engine.disk, engine.layout.journal, engine.replica.state.seq)
    for event in log:
        if event.seq >= seq and event.op != op:
            break
        if event.kind == "STATE_TRANSITION":
            states[event.entity.id] = event.payload.get("to", "")
        if event.seq < seq:
            continue
        told = _told_by(event)
        # What else moved in that commit (a dependent that became READY) is not what was asked for.
        node = told.get("node")
        if node is None or found.setdefault("node", node) == node:
            put = told.pop("asked", None)
            if put is not None:
                # What a ruling led to, or what the work that was submitted waits for.
                name = "asked" if "ruling" in found else "waits_for"
                found.setdefault(name, []).append(put)
            found.update(told)
    if "node" in found and ("question" in found or "waits_for" in found):
        found.setdefault("state", states.get(found["node"], "PENDING"))
    return found


_OF_A_NODE: Final = frozenset({"add_node", "amend_node", "split", "replan"})


def _told_by(event: Event) -> Answer:
    payload, name = event.payload, event.entity.id
    if event.kind == "GOAL_AMENDED":
        return {"goal": payload.get("new"), "count": payload.get("count")}
    if "goal" in payload:  # what followed from that is not what was asked for
        return {}
    if event.kind == "STATE_TRANSITION" and event.entity.type == "node":
        contract: Answer = {
            key: payload[key] for key in ("invocation", "contract") if key in payload
        }
        return {"node": name, "state": payload["to"], **contract, **verdict(payload)}
    if event.kind == "ARTIFACT_REGISTERED":
        return {"artifact": name, "path": payload.get("path")}
    if event.kind == "AMENDMENT" and payload.get("op") in _OF_A_NODE:
        return {"node": name}
    if event.kind == "DECISION":
        return _told_by_decision(payload)
    return {"steering": name} if event.kind == "STEERING_LOGGED" else {}


def _told_by_decision(payload: Mapping[str, Any]) -> Answer:
    op, question = payload.get("op"), payload.get("question_id")
    node: Answer = {"node": payload["node"]} if payload.get("node") else {}
    if op == "ask" and payload.get("kind", "question") != "question":
        return {**node, "asked": asked(payload)}
    if op == "ask":
        return {"question": question, **node}
    if op == "answer":
        return {"question": question, "ruling": payload.get("ruling"), **node}
    return {} if op == "void" else {"decision": payload.get("id")}


def asked(payload: Mapping[str, Any]) -> Answer:
    """A question that was put, by the event that put it."""
    return {"question": payload.get("question_id"), "text": payload.get("question")}


def check_ruled(found: Answer) -> None:
    """Raise the refusal again that a repeated approval came to (``content_changed``).

    What it committed then was the question about the changed content, under its op id.
    """
    if "ruling" not in found and found.get("waits_for"):
        raise content_changed(found["waits_for"][-1]["question"])


def content_changed(now_asked: str) -> RefusedError:
    """The refusal of an approval for what is not there any more (GA-3).

    ``now_asked`` is the question about what is; empty when a person has refused that already.
    """
    if not now_asked:
        return RefusedError(
            "what was to be approved has changed since, into what a person has refused already.",
            code="content_changed",
            rule="GA-3",
            fix="Have it changed; then it is asked about anew.",
        )
    return RefusedError(
        "what was to be approved has changed since it was asked about, so nothing was approved:"
        f" {now_asked} asks about what is there now.",
        code="content_changed",
        rule="GA-3",
        fix=f"Look at it (`perdure show {now_asked}`), then `perdure approve {now_asked}`.",
    )


def verdict(payload: Mapping[str, Any]) -> Answer:
    """The verdict that a transition carries, if it carries one."""
    if "checks" not in payload:
        return {}
    return {
        "passed": payload.get("to") == "DONE",
        "diagnosis": payload.get("diagnosis", ""),
        "checks": payload["checks"],
    }
