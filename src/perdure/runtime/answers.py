"""What writing calls take and answer: plain data, with the event that acknowledges it.

Invariants: ``committed`` names a durable event, or is None where nothing was written; a repeated op
is answered from its own events, so with what was true then.
"""

from collections.abc import Mapping
from typing import Any

from perdure.core.events import Event
from perdure.core.lookup import complete, node_of
from perdure.core.model import Node
from perdure.runtime.batching import Committed
from perdure.runtime.engine import Engine
from perdure.runtime.eventlog import EventLog

Args = Mapping[str, Any]
Answer = dict[str, Any]


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


def repeated(engine: Engine, op: str, seq: int) -> Answer:
    """The answer to an op that was committed before, from its events; writes nothing."""
    found: Answer = {"committed": f"J-{seq}", "repeated": True}
    log = EventLog(engine.disk, engine.layout.journal, engine.replica.state.seq)
    for event in log:
        if event.seq < seq:
            continue
        if event.op != op:
            break
        told = _told_by(event)
        # What else moved in that commit (a dependent that became READY) is not what was asked for.
        node = told.get("node")
        if node is None or found.setdefault("node", node) == node:
            found.update(told)
    return found


def _told_by(event: Event) -> Answer:
    payload, name = event.payload, event.entity.id
    if event.kind == "STATE_TRANSITION" and event.entity.type == "node":
        contract: Answer = {
            key: payload[key] for key in ("invocation", "contract") if key in payload
        }
        return {"node": name, "state": payload["to"], **contract, **verdict(payload)}
    if event.kind == "ARTIFACT_REGISTERED":
        return {"artifact": name, "path": payload.get("path")}
    if event.kind == "AMENDMENT" and payload.get("op") == "add_node":
        return {"node": name}
    if event.kind == "DECISION":
        return {"decision": payload.get("id")}
    return {"steering": name} if event.kind == "STEERING_LOGGED" else {}


def verdict(payload: Mapping[str, Any]) -> Answer:
    """The verdict that a transition carries, if it carries one."""
    if "checks" not in payload:
        return {}
    return {
        "passed": payload.get("to") == "DONE",
        "diagnosis": payload.get("diagnosis", ""),
        "checks": payload["checks"],
    }
