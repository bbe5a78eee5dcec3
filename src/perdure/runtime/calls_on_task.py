"""Calls about the task as a whole, and what people put on record.

Job: one function for each call of the table in ``calls``, by the same name. Invariants: an answer
names the event that acknowledges it; a refusal has written nothing.
"""

from collections.abc import Sequence
from typing import Final, cast

from perdure.core import commands as c
from perdure.core.authority import check_authority
from perdure.core.dispatch_commands import ChangeMode
from perdure.core.dispatching import DispatchMode
from perdure.core.events import Event
from perdure.core.health import health_view
from perdure.core.late import LateModule
from perdure.core.model import State
from perdure.runtime.answers import Answer, Args, answer
from perdure.runtime.engine import Engine

_provenance: Final = LateModule("perdure.runtime.provenance")


def pause(engine: Engine, args: Args, op: str | None) -> Answer:
    """Suspend the task, or ask the run loop to."""
    reason = str(args.get("reason") or "")
    if engine.on_pause is not None:
        check_authority(engine.replica.state, c.MoveTask("SUSPENDED"), engine.context())
        return answer(engine.on_pause(reason, op), state="EXECUTING", pausing=True)
    committed = engine.execute(c.MoveTask("SUSPENDED", reason), op=op)
    if not committed.ref:
        return {"committed": None, "repeated": True, "state": engine.replica.state.fsm_task}
    return answer(committed, **tell_pause(engine.replica.state, committed.events))


def tell_pause(state: State, events: Sequence[Event]) -> Answer:
    """Where the task stands that was suspended."""
    moved = [e for e in events if e.kind == "STATE_TRANSITION" and e.entity.type == "task"]
    return {"state": state.fsm_task} if moved else {}


def dispatch(engine: Engine, args: Args, op: str | None) -> Answer:
    """Change the mode of dispatch: A normal, B untouched work first, C halted (PD-H3)."""
    mode, reason = str(args["mode"]).upper(), str(args.get("reason") or "")
    committed = engine.execute(ChangeMode(cast(DispatchMode, mode), reason), op=op)
    state = engine.replica.state
    if not committed.events and not committed.ref:  # it has been so from the beginning
        return {"committed": None, "repeated": True, "dispatch": health_view(state)}
    return answer(committed, **(tell_dispatch(state, committed.events) or _as_it_is(state)))


def tell_dispatch(state: State, events: Sequence[Event]) -> Answer:
    """How work is dispatched from then on."""
    changed = [e for e in events if e.kind == "DECISION" and e.payload.get("op") == "mode"]
    return _as_it_is(state) if changed else {}


def _as_it_is(state: State) -> Answer:
    return {"dispatch": health_view(state)}


def note(engine: Engine, args: Args, op: str | None) -> Answer:
    """Write a NOTE."""
    return answer(engine.execute(c.WriteNote(str(args["text"])), op=op))


def decide(engine: Engine, args: Args, op: str | None) -> Answer:
    """Record a DECISION."""
    command = c.RecordDecision(
        str(args.get("id") or ""),
        str(args["text"]),
        tuple(args.get("options") or ()),
        str(args.get("choice") or ""),
        str(args.get("authority") or ""),
        tuple(args.get("memory") or ()),
        tuple((str(kind), str(ref)) for kind, ref in args.get("edges") or ()),
    )
    if command.edges:
        _provenance.check_cited(engine, [ref for _, ref in command.edges])
    committed = engine.execute(command, op=op)
    made = [event.payload.get("id") for event in committed.events]
    return answer(committed, decision=made[0] if made else None)
