"""Calls about what is wanted: the goal and the reference policies.

Job: one function for each call of the table in ``calls``, by the same name. Invariants: an answer
names the event that acknowledges it; a refusal has written nothing.
"""

from collections.abc import Sequence
from typing import Any

from perdure.core import commands as c
from perdure.core.durations import seconds_of
from perdure.core.events import Event
from perdure.core.machine import stranded
from perdure.core.model import State
from perdure.core.policies import policy_table
from perdure.errors import UsageError
from perdure.runtime.answers import Answer, Args, answer
from perdure.runtime.engine import Engine
from perdure.runtime.goals import change_goal


def goal(engine: Engine, args: Args, op: str | None) -> Answer:
    """Change the goal; answers with its blast radius and with what followed from it."""
    accept = args.get("accept")
    committed = change_goal(
        engine,
        str(args["text"]),
        str(args.get("reason") or ""),
        reverify=map(str, args.get("reverify") or ()),
        superseded=map(str, args.get("supersede") or ()),
        acceptance=map(str, accept) if accept else None,
        op=op,
    )
    return answer(committed, **tell_goal(engine.replica.state, committed.events))


def tell_goal(state: State, events: Sequence[Event]) -> Answer:
    """The blast radius of a change of the goal, and what followed from it."""
    found: Answer = {}
    for event in events:
        if found or event.kind == "GOAL_AMENDED":
            _tell(found, event)
    waiting = stranded(state) if found else []
    return found | ({"stranded": waiting[:100]} if waiting else {})


def _tell(found: Answer, event: Event) -> None:
    payload, name = event.payload, event.entity.id
    if event.kind == "GOAL_AMENDED":
        found |= {"goal": payload["new"], "count": payload["count"]}
        found |= {**payload["blast_radius"], "recalled": []}
    elif event.kind == "AMENDMENT" and payload["op"] == "add_node":
        found.setdefault("corrective", []).append(name)
    elif event.kind == "STATE_TRANSITION" and payload["from"] in ("RUNNING", "VERIFYING"):
        if name not in found["superseded"]:
            found["recalled"].append(name)
    elif event.kind == "DECISION" and payload["op"] == "ask" and payload["node"] is None:
        found["question"] = payload["question_id"]


def policy(engine: Engine, args: Args, op: str | None) -> Answer:
    """Override a reference policy, with reason and measurement window."""
    name = str(args["name"])
    command = c.ChangePolicy(
        name, _number(name, args["value"]), str(args.get("reason") or ""),
        str(args.get("window") or ""),
    )  # fmt: skip
    committed = engine.execute(command, op=op)
    return answer(committed, **tell_policy(engine.replica.state, committed.events))


def tell_policy(state: State, events: Sequence[Event]) -> Answer:
    """The policy that was changed, as it is from then on."""
    for event in events:
        if event.kind == "DECISION" and event.payload.get("op") == "policy":
            name = event.payload["name"]
            return {"policy": name, **policy_table(state)[name]}
    return {}


def _number(name: str, given: Any) -> float:
    """The value; of a length of time also as ``20m`` or ``1h30m``."""
    if isinstance(given, int | float):
        return float(given)
    text = str(given)
    try:
        value = seconds_of(text) if name.endswith("_s") else float(text)
    except ValueError:
        value = None
    if value is None:
        kind = "a length of time, such as 90, 20m or 1h30m" if name.endswith("_s") else "a number"
        raise UsageError(f"{text!r} is not {kind}.", code="bad_policy", fix=f"Give {kind}.")
    return value
