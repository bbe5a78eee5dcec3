"""Figures from events, told by hand and lived by the core."""

from typing import Any

from perdure.core.codec import timestamp
from perdure.core.events import Entity, Event
from perdure.core.stats import Stats

START = 1_800_000_000.0


class Told:
    """Events at moments that a test chooses, in seconds after the beginning."""

    def __init__(self) -> None:
        self.stats = Stats()
        self.seq = 0
        self.add(0, "INSTANCE_STARTED", Entity("task", "T"), task="T")

    def add(self, at: float, kind: str, entity: Entity, **payload: Any) -> None:
        self.seq += 1
        ts = timestamp(START + at)
        self.stats.take(Event(self.seq, ts, "coordinator:a", kind, None, entity, payload))

    def node(self, at: float, name: str, *deps: str) -> None:
        after = {"deps": list(deps)}
        self.add(at, "AMENDMENT", Entity("node", name), op="add_node", target=name, after=after)

    def move(self, at: float, name: str, edge: str, to: str, **more: Any) -> None:
        self.add(at, "STATE_TRANSITION", Entity("node", name), edge=edge, to=to, **more)

    def row(self, name: str) -> dict[str, Any]:
        return next(row for row in self.stats.by_node() if row["node"] == name)

    def ask(self, at: float, name: str, node: str) -> None:
        self.add(at, "DECISION", Entity("node", node), op="ask", question_id=name, node=node)

    def answer(self, at: float, name: str) -> None:
        self.add(at, "DECISION", Entity("node", "x"), op="answer", question_id=name)


def done(told: Told, name: str, at: float, work: float, verify: float = 1.0) -> None:
    told.move(at, name, "N02", "RUNNING")
    told.move(at + work, name, "N03", "VERIFYING")
    told.move(at + work + verify, name, "N06", "DONE")


def test_time_goes_into_what_the_node_was_in() -> None:
    told = Told()
    told.node(0, "a")
    told.move(10, "a", "N01", "READY")
    done(told, "a", 15, 20, 3)
    row = told.row("a")
    assert row["time_s"] == {"work": 20.0, "verifying": 3.0, "queued": 5.0}
    assert (row["wall_s"], row["attempts"], row["longest_attempt_s"]) == (23.0, 1, 23.0)


def test_a_failed_attempt_is_a_retry_and_counts_by_its_class() -> None:
    told = Told()
    told.node(0, "a")
    told.move(0, "a", "N02", "RUNNING")
    death = {"mode": "killed", "first": True, "cause": "quota"}
    usage = {"tokens": 100, "cost_usd": 0.5}
    told.move(8, "a", "N04", "RETRYABLE", failure_class="transient-agent", death=death, usage=usage)
    done(told, "a", 10, 4)
    summary = told.stats.finish().summary()
    assert (summary["retries"], summary["attempts"], summary["interruptions"]) == (1, 2, 0)
    assert summary["deaths"] == {"killed": 1}
    assert summary["failures"] == [
        {
            "class": "transient-agent", "failures": 1, "deaths": 1, "nodes": 1, "lost_s": 8.0,
            "causes": {"killed": 1, "quota": 1},
        }
    ]  # fmt: skip
    assert summary["usage"] == {"tokens": 100, "tool_calls": None, "cost_usd": 0.5}
    assert told.row("a")["usage"]["tokens"] == 100


def test_a_round_that_a_person_wants_is_no_failure() -> None:
    told = Told()
    told.move(0, "a", "N02", "RUNNING")
    told.move(1, "a", "N03", "VERIFYING")
    told.move(2, "a", "N07", "RETRYABLE", failure_class="transient-agent", round=1)
    assert told.stats.summary()["retries"] == 0
    assert told.stats.by_class() == []


def test_time_in_which_the_coordinator_was_dead_is_no_work() -> None:
    told = Told()
    told.move(0, "a", "N02", "RUNNING")
    told.add(10, "HEARTBEAT", Entity("contract", "x"))
    told.add(500, "STATE_TRANSITION", Entity("task", "T"), edge="T03", to="RECOVERING")
    told.add(500, "NOTE", Entity("task", "T"), op="takeover")
    told.move(500, "a", "N04", "RETRYABLE", interruption=True, failure_class="transient-agent")
    told.add(500, "NOTE", Entity("task", "T"), op="recovered")
    done(told, "a", 505, 5)
    row = told.row("a")
    assert row["time_s"] == {"work": 15.0, "verifying": 1.0, "interrupted": 490.0, "queued": 5.0}
    assert (row["retries"], row["interruptions"]) == (0, 1)
    assert told.stats.summary()["takeovers"] == 1


def test_waiting_for_people_is_told_from_work_and_verification() -> None:
    told = Told()
    told.move(0, "a", "N02", "RUNNING")
    told.ask(4, "Q-1", "a")
    told.move(5, "a", "N05", "BLOCKED")
    told.answer(65, "Q-1")
    told.move(65, "a", "N09", "READY")
    told.move(70, "a", "N02", "RUNNING")
    told.move(72, "a", "N03", "VERIFYING")
    told.ask(73, "G-1", "a")
    told.answer(173, "G-1")
    told.move(174, "a", "N06", "DONE")
    row = told.row("a")
    assert row["time_s"] == {"work": 7.0, "verifying": 2.0, "people": 160.0, "queued": 5.0}
    assert row["questions"] == 2
    asked = told.stats.summary()["questions"]
    assert asked == {"asked": 2, "answered": 2, "open": 0, "median_s": 80.5, "longest_s": 100.0}


def test_a_clock_that_steps_back_gives_no_negative_time_and_is_told() -> None:
    told = Told()
    told.move(100, "a", "N02", "RUNNING")
    told.move(40, "a", "N03", "VERIFYING")
    told.move(130, "a", "N06", "DONE")
    summary = told.stats.finish().summary()
    assert told.row("a")["time_s"] == {"verifying": 30.0}
    assert summary["clock"] == {"steps_back": 1, "most_s": 60.0}
    assert summary["wall_s"] == 130.0


def test_what_still_runs_counts_up_to_the_last_event_and_no_further() -> None:
    told = Told()
    told.move(10, "a", "N02", "RUNNING")
    told.add(25, "HEARTBEAT", Entity("contract", "x"))
    told.stats.finish()
    assert told.row("a")["time_s"] == {"work": 15.0}
    assert told.row("a")["wall_s"] is None


def test_the_critical_path_goes_back_over_the_deps_that_ended_last() -> None:
    told = Told()
    for name, *deps in (("a",), ("b",), ("c", "a", "b"), ("d",), ("e", "c", "d")):
        told.node(0, name, *deps)
    done(told, "a", 0, 5)
    done(told, "b", 6, 44)
    done(told, "d", 51, 1)
    done(told, "c", 53, 9)
    done(told, "e", 63, 4)
    path = told.stats.critical_path()
    assert path == {"nodes": ["b", "c", "e"], "length": 3, "busy_s": 60.0}


def test_slots_and_audits_add_to_what_their_node_has_used() -> None:
    told = Told()
    told.node(0, "b")
    slot = Entity("slot", "inv-1")
    told.add(1, "NOTE", slot, op="slot_closed", node="b", usage={"tokens": 5}, end="killed",
             death={"mode": "killed"}, failure_class="transient-agent")  # fmt: skip
    told.add(2, "NOTE", Entity("node", "b"), op="audit", usage={"tokens": 7, "tool_calls": 2})
    assert told.row("b")["usage"] == {"tokens": 12, "tool_calls": 2, "cost_usd": None}
    assert told.stats.by_class()[0]["deaths"] == 1


def test_days_are_those_of_the_events() -> None:
    told = Told()
    day = 86_400.0
    done(told, "a", 0, 5)
    done(told, "b", day, 5)
    rows = told.stats.by_day()
    assert [row["done"] for row in rows] == [1, 1]
    assert rows[0]["day"] < rows[1]["day"]


def test_lines_of_others_without_what_is_needed_are_no_fault() -> None:
    stats = Stats()
    for kind in ("STATE_TRANSITION", "AMENDMENT", "DECISION", "NOTE", "SOMETHING"):
        stats.take(Event(1, "whenever", "x", kind, None, Entity("node", "n"), {"op": "answer"}))
    assert stats.finish().summary()["events"] == 5
    assert stats.critical_path()["nodes"] == []


def test_a_hundred_thousand_nodes_take_one_pass() -> None:
    told = Told()
    for number in range(100_000):
        told.move(number, f"n{number}", "N02", "RUNNING")
    assert told.stats.finish().summary()["attempts"] == 100_000
