"""When a coordinator looks into the drop box."""

from perdure.runtime.engine import ingest_interval_s
from perdure.runtime.halt import HaltRuntime
from perdure.storage import spool
from perdure.testing import SimClock, sim_world


def open_task() -> tuple[HaltRuntime, SimClock]:
    clock = SimClock()
    return HaltRuntime("/w", "T", world=sim_world(clock=clock)), clock


def drop(runtime: HaltRuntime, message_id: str) -> None:
    engine = runtime.engine
    message = spool.Message(message_id, "note", {"text": message_id}, "executor:main", 0.0)
    spool.drop(engine.disk, engine.layout, message)


def texts(runtime: HaltRuntime) -> list[str]:
    return [event.payload["text"] for event in runtime.events() if event.kind == "NOTE"]


def test_commits_in_quick_succession_look_once() -> None:
    runtime, clock = open_task()
    clock.advance(ingest_interval_s)
    runtime.note("one")
    drop(runtime, "message")
    runtime.note("two")
    assert texts(runtime) == ["one", "two"]
    clock.advance(ingest_interval_s)
    runtime.note("three")
    assert texts(runtime) == ["one", "two", "message", "three"]


def test_a_tick_looks_at_once() -> None:
    runtime, _ = open_task()
    runtime.note("one")
    drop(runtime, "message")
    runtime.engine.tick()
    assert texts(runtime) == ["one", "message"]
