"""Calls about the task as a whole, and what people put on record.

Job: one function for each call of the table in ``calls``, by the same name. Invariants: an answer
names the event that acknowledges it; a refusal has written nothing.
"""

from perdure.core import commands as c
from perdure.runtime.answers import Answer, Args, answer
from perdure.runtime.engine import Engine


def pause(engine: Engine, args: Args, op: str | None) -> Answer:
    """Suspend the task, or ask the run loop to."""
    reason = str(args.get("reason") or "")
    if engine.on_pause is not None:
        return answer(engine.on_pause(reason, op), state="EXECUTING", pausing=True)
    committed = engine.execute(c.MoveTask("SUSPENDED", reason), op=op)
    if not committed.ref:
        return {"committed": None, "repeated": True, "state": engine.replica.state.fsm_task}
    return answer(committed, state=engine.replica.state.fsm_task)


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
    )
    committed = engine.execute(command, op=op)
    made = [event.payload.get("id") for event in committed.events]
    return answer(committed, decision=made[0] if made else None)


def steer(engine: Engine, args: Args, op: str | None) -> Answer:
    """Log an instruction, verbatim (S1)."""
    command = c.LogSteering(
        str(args.get("id") or ""),
        str(args["text"]),
        str(args.get("source") or ""),
        str(args.get("received_via") or "command"),
    )
    committed = engine.execute(command, op=op)
    logged = [event.entity.id for event in committed.events]
    return answer(committed, steering=logged[0] if logged else args.get("id"))
