"""Steering at work: logged first, then propagated, whatever happens in between (S1 to S4).

Job: the two commits of an instruction, and taking up those of which only the first was made.
Invariants: the words are durable before anything acts on them; between the two commits nothing
starts (FR-2); a crash between them costs nothing, because whoever writes next propagates what is
pending first. Never changes words, and never decides what they mean.
"""

from collections.abc import Iterable
from typing import Any, Final

from perdure.core import commands as c
from perdure.core.lookup import pending_steering
from perdure.runtime.batching import Committed
from perdure.runtime.engine import Engine
from perdure.runtime.eventlog import EventLog

runtime_actor: Final = "coordinator:perdure"
"""Who propagates, and reports what it found, where nobody coordinates."""


def coordinating_actor(engine: Engine) -> str:
    """Under whose name the runtime itself acts: the coordinator's, if there is one."""
    holder = engine.lease.holder if engine.lease is not None else ""
    return holder if holder.startswith(("coordinator:", "coord:")) else runtime_actor


def steer(engine: Engine, command: c.LogSteering, *, op: str | None = None) -> Committed:
    """Log an instruction, and propagate it before anything else happens.

    Returns the commit that logged it. A crash in between leaves it pending. The same id with the
    same words again changes nothing.
    """
    with engine.writing():
        propagate_pending(engine)
        logged = engine.execute(command, op=op)
        steering_id = steering_of(engine, logged, command.steering_id)
        if steering_id:
            propagate(engine, steering_id, command.text)
        return logged


def steering_of(engine: Engine, logged: Committed, given: str) -> str:
    """The id of the instruction that a commit logged, or that had been logged before."""
    for event in logged.events:
        if event.kind == "STEERING_LOGGED":
            return event.entity.id
    known = engine.replica.state.steering
    return given or next((name for name in reversed(known) if known[name].ref == logged.ref), "")


def propagate(engine: Engine, steering_id: str, words: str) -> None:
    """S2 to S4 of one instruction: durable on return. Harmless when it was done before."""
    steering = engine.replica.state.steering[steering_id]
    with engine.writing(), engine.acting_as(coordinating_actor(engine)):
        while not steering.acknowledged:
            engine.execute(c.PropagateSteering(steering_id, words))
            steering = engine.replica.state.steering[steering_id]


def propagate_pending(engine: Engine) -> int:
    """Propagate what is on record and was not acted on; says how many there were."""
    pending = pending_steering(engine.replica.state)
    for steering_id, words in words_of(engine, pending).items():
        propagate(engine, steering_id, words)
    return len(pending)


def words_of(engine: Engine, steering_ids: Iterable[str]) -> dict[str, str]:
    """The words of logged instructions, read from the journal, in the order they came in."""
    state = engine.replica.state
    wanted = {int(state.steering[name].ref.removeprefix("J-")): name for name in steering_ids}
    if not wanted:
        return {}
    found = dict.fromkeys(wanted.values(), "")
    for event in EventLog(engine.disk, engine.layout.journal, max(wanted)):
        name = wanted.get(event.seq)
        if name is not None:
            found[name] = str(event.payload.get("verbatim") or event.payload.get("text") or "")
    return found


def acknowledgement(engine: Engine, steering_id: str) -> dict[str, Any]:
    """How far an instruction has come, for whoever sent it; empty for an unknown one."""
    state = engine.replica.state
    steering = state.steering.get(steering_id)
    if steering is None:
        return {}
    same = {"same_as": steering.same_as} if steering.same_as else {}
    applied = state.steering[steering.same_as].applied if same else steering.applied
    return {
        "steering": steering_id,
        "reading": steering.reading,
        "acknowledged": steering.acknowledged or None,
        "applied": dict(applied),
        "recalled": [name for name, what in applied.items() if what.startswith("recalled")],
        **same,
    }
