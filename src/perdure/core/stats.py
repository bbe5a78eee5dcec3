"""Where the time of a task went, what failed, who was waited for, what it cost.

Job: one pass over the events, oldest first, and the answers. Invariants: a function of the events
alone, so it says the same on every machine and ends at the last event, not at the present; memory
is one small record for each node and question, whatever the length of the history; a clock that
stepped back never gives a negative time: the later moment is kept, and the step is told.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from perdure.core.codec import moment, timestamp
from perdure.core.dispatching import Usage
from perdure.core.events import Event
from perdure.core.model import CLOSED_STATES, id_key
from perdure.core.payload import mapping, record, text, texts
from perdure.core.stats_records import (
    PHASES,
    DayCount,
    FailureCount,
    NodeTime,
    node_row,
    usage_of,
    usage_sum,
)

Data = dict[str, Any]

path_max: Final = 100
slowest_max: Final = 10

_PHASE_OF: Final[dict[str, str]] = {
    "READY": "queued", "RETRYABLE": "queued", "RUNNING": "work", "VERIFYING": "verifying",
    "BLOCKED": "blocked",
}  # fmt: skip
_FAILING: Final = frozenset({"N04", "N05", "N07", "N08"})


class Stats:
    """The figures of a task, taken in event by event."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeTime] = {}
        self.failures: dict[str, FailureCount] = {}
        self.deaths: dict[str, int] = {}
        self.days: dict[str, DayCount] = {}
        self.events = 0
        self.began: float | None = None
        self.now: float | None = None
        self.clock_steps = 0
        self.clock_back_s = 0.0
        self.usage = Usage()
        self.task_id = ""
        self.takeovers = 0
        self._open: dict[str, tuple[str, float | None]] = {}
        self._waits: list[float] = []
        self._dead_since: float | None = None
        self._day = DayCount()

    def take_all(self, events: Iterable[Event]) -> "Stats":
        """Take them in, the oldest first."""
        for event in events:
            self.take(event)
        return self

    def take(self, event: Event) -> None:
        """Take in the next event."""
        before = self.now
        self._tell_time(event)
        payload = event.payload
        if event.kind == "STATE_TRANSITION":
            if event.entity.type == "node":
                self._moved(event, payload)
            elif payload.get("edge") == "T03":
                self._died(before)
        elif event.kind == "AMENDMENT":
            self._amended(event, payload)
        elif event.kind == "DECISION":
            self._decided(payload)
        elif event.kind == "NOTE":
            op = payload.get("op")
            if op == "takeover":
                self.takeovers += 1
                self._died(before)
            elif op == "recovered":
                self._dead_since = None
            elif op in ("slot_closed", "audit"):
                name = text(payload.get("node"), event.entity.id)
                self._used(self._node(name), payload)
                self._death(name, payload, 0.0)
        elif event.kind == "INSTANCE_STARTED" and not self.task_id:
            self.task_id = text(payload.get("task")) or event.entity.id

    def _tell_time(self, event: Event) -> None:
        self.events += 1
        at = moment(event.ts)
        if at is not None:
            if self.now is not None and at < self.now:
                self.clock_steps += 1
                self.clock_back_s = max(self.clock_back_s, self.now - at)
            self.now = at if self.now is None else max(self.now, at)
            self.began = self.now if self.began is None else self.began
        self._day = self.days.setdefault(_day_of(at), DayCount())
        self._day.events += 1

    def _node(self, name: str) -> NodeTime:
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = NodeTime(name)
        return node

    def _amended(self, event: Event, payload: Mapping[str, Any]) -> None:
        if payload.get("op") in ("add_node", "amend_node"):
            after = mapping(payload.get("after"))
            node = self._node(text(payload.get("target"), event.entity.id))
            if "deps" in after:
                node.deps = texts(after["deps"])
            if payload.get("op") == "add_node" and node.since is None:
                node.state = text(after.get("state"), "PENDING")
                node.since = self.now

    def _died(self, last_sign: float | None) -> None:
        """A coordinator is gone: since its last event nobody worked on what was at work."""
        if self._dead_since is None:
            self._dead_since = last_sign

    # Moves

    def _moved(self, event: Event, payload: Mapping[str, Any]) -> None:
        node, target = self._node(event.entity.id), text(payload.get("to"))
        self._spend(node, interrupted=bool(payload.get("interruption")))
        left, node.state = node.state, target
        if target == "RUNNING":
            node.attempts += 1
            node.attempt_from = self.now
            node.started = self.now if node.started is None else node.started
            node.ended = None
            self._day.started += 1
            return
        lost = self._attempt_ended(node, left)
        if left == "RUNNING":
            self._used(node, payload)
        if payload.get("interruption"):
            node.interruptions += 1
            self._day.interrupted += 1
        elif payload.get("edge") in _FAILING and "failure_class" in payload:
            self._failed(node, payload, lost)
        if target == "DONE":
            self._day.done += 1
        if target in CLOSED_STATES:
            node.ended = self.now

    def _attempt_ended(self, node: NodeTime, left: str) -> float:
        """How long the attempt has lasted that ends with this; 0 where none does."""
        if left not in ("RUNNING", "VERIFYING") or node.attempt_from is None or self.now is None:
            return 0.0
        took = self.now - node.attempt_from
        node.longest_attempt_s = max(node.longest_attempt_s, took)
        if node.state != "VERIFYING":
            node.attempt_from = None
        return took

    def _failed(self, node: NodeTime, payload: Mapping[str, Any], lost: float) -> None:
        if "round" in payload:  # a person wants it otherwise: no failure
            return
        if node.state == "RETRYABLE":
            node.retries += 1
        self._day.failed += 1
        known = self._failure(text(payload.get("failure_class")))
        known.count += 1
        known.lost_s += lost
        known.nodes.add(node.node)
        self._death(node.node, payload, lost)

    def _failure(self, name: str) -> FailureCount:
        return self.failures.setdefault(name or "unclassified", FailureCount())

    def _death(self, node: str, payload: Mapping[str, Any], lost: float) -> None:
        death = mapping(payload.get("death"))
        if not death:
            return
        mode, cause = text(death.get("mode"), "unknown"), text(death.get("cause"))
        self.deaths[mode] = self.deaths.get(mode, 0) + 1
        known = self._failure(text(payload.get("failure_class")))
        known.deaths += 1
        known.nodes.add(node)
        for name in (mode, cause):
            if name:
                known.causes[name] = known.causes.get(name, 0) + 1

    def _spend(self, node: NodeTime, *, interrupted: bool = False) -> None:
        """The time since the last look went into what the node was in."""
        since, now = node.since, self.now
        node.since = now
        phase = _PHASE_OF.get(node.state)
        if since is None or now is None or phase is None:
            return
        if node.state != "RUNNING" and node.asked:
            phase = "people"
        if interrupted and node.state == "RUNNING" and self._dead_since is not None:
            dead_since = max(since, self._dead_since)
            node.add("interrupted", now - dead_since)
            now = dead_since
        node.add(phase, now - since)

    def _used(self, node: NodeTime, payload: Mapping[str, Any]) -> None:
        used = record(payload.get("usage"), Usage) if "usage" in payload else None
        if used is not None:
            node.usage = usage_sum(node.usage or Usage(), used)
            self.usage = usage_sum(self.usage, used)
            self._day.cost_usd += used.cost_usd or 0.0
            self._day.tokens += used.tokens or 0
            self._day.tool_calls += used.tool_calls or 0

    # Questions

    def _decided(self, payload: Mapping[str, Any]) -> None:
        op, name = payload.get("op"), text(payload.get("question_id"))
        if op == "ask":
            replaced = text(payload.get("replaces"))
            if replaced:
                self._close(replaced, answered=False)
            node_id = text(payload.get("node"))
            if node_id:
                node = self._node(node_id)
                self._spend(node)
                node.asked += 1
                node.questions += 1
            self._close(name, answered=False)
            self._open[name] = (node_id, self.now)
            self._day.asked += 1
        elif op == "answer":
            self._close(name, answered=True)

    def _close(self, name: str, *, answered: bool) -> None:
        node_id, since = self._open.pop(name, (None, None))
        if node_id is None:
            return
        if node_id:
            node = self._node(node_id)
            self._spend(node)
            node.asked = max(0, node.asked - 1)
        if answered:
            self._day.answered += 1
            if since is not None and self.now is not None:
                self._waits.append(self.now - since)

    # Answers

    def finish(self) -> "Stats":
        """Count what still runs up to the last event."""
        for node in self.nodes.values():
            self._spend(node)
        return self

    def summary(self) -> Data:
        """The figures of the whole task, its slowest nodes and its critical path."""
        wall = (self.now or 0.0) - (self.began or 0.0)
        states: dict[str, int] = {}
        phases = dict.fromkeys(PHASES, 0.0)
        for node in self.nodes.values():
            states[node.state] = states.get(node.state, 0) + 1
            for name, seconds in (node.phases or {}).items():
                phases[name] += seconds
        done, hours = states.get("DONE", 0), wall / 3600
        return {
            "task_id": self.task_id,
            "events": self.events,
            "wall_s": round(wall, 3),
            "nodes": states,
            "time_s": {name: round(seconds, 3) for name, seconds in phases.items()},
            "attempts": sum(node.attempts for node in self.nodes.values()),
            "retries": sum(node.retries for node in self.nodes.values()),
            "interruptions": sum(node.interruptions for node in self.nodes.values()),
            "takeovers": self.takeovers,
            "deaths": dict(sorted(self.deaths.items())),
            "failures": self.by_class(),
            "questions": self._questions(),
            "usage": usage_of(self.usage),
            "per_hour": {
                "nodes_done": round(done / hours, 2) if hours else None,
                "events": round(self.events / hours, 2) if hours else None,
            },
            "slowest": self.by_node()[:slowest_max],
            "critical_path": self.critical_path(),
            "clock": {"steps_back": self.clock_steps, "most_s": round(self.clock_back_s, 3)},
        }

    def _questions(self) -> Data:
        waits = sorted(self._waits)
        count = len(waits)
        median = (waits[(count - 1) // 2] + waits[count // 2]) / 2 if waits else None
        return {
            "asked": sum(day.asked for day in self.days.values()),
            "answered": sum(day.answered for day in self.days.values()),
            "open": len(self._open),
            "median_s": round(median, 3) if median is not None else None,
            "longest_s": round(waits[-1], 3) if waits else None,
        }

    def by_node(self) -> list[Data]:
        """What each node took, the longest at work first."""
        nodes = sorted(self.nodes.values(), key=lambda node: (-node.busy_s, id_key(node.node)))
        return [node_row(node) for node in nodes]

    def by_class(self) -> list[Data]:
        """What failed, by failure class, the most frequent first."""
        found = sorted(self.failures.items(), key=lambda item: (-item[1].count, item[0]))
        return [
            {
                "class": name,
                "failures": known.count,
                "deaths": known.deaths,
                "nodes": len(known.nodes),
                "lost_s": round(known.lost_s, 3),
                "causes": dict(sorted(known.causes.items())),
            }
            for name, known in found
        ]

    def by_day(self) -> list[Data]:
        """What each day (UTC) brought, the oldest first."""
        return [
            {"day": name, **msgspec.to_builtins(day), "cost_usd": round(day.cost_usd, 6)}
            for name, day in sorted(self.days.items())
        ]

    def critical_path(self) -> Data:
        """The chain of nodes that ended last: from the newest end back, at each node, to the one of
        its deps that it waited for longest. Shortening anything else ends the task no sooner."""
        ended = [node for node in self.nodes.values() if node.ended is not None]
        at = max(ended, key=lambda node: (node.ended or 0.0, id_key(node.node)), default=None)
        path: list[NodeTime] = []
        seen: set[str] = set()
        while at is not None and at.node not in seen:
            seen.add(at.node)
            path.append(at)
            deps = [self.nodes[name] for name in at.deps if name in self.nodes]
            over = [node for node in deps if node.ended is not None]
            at = max(over, key=lambda node: (node.ended or 0.0, id_key(node.node)), default=None)
        return {
            "nodes": [node.node for node in reversed(path[:path_max])],
            "length": len(path),
            "busy_s": round(sum(node.busy_s for node in path), 3),
        }


def _day_of(at: float | None) -> str:
    """The day of a moment, in UTC."""
    return timestamp(at)[:10] if at is not None else "unknown"
