"""The records behind the figures of a task, and how one of them is told.

Invariants: no behaviour beyond adding up; one :class:`NodeTime` for each node and nothing for each
event, so memory is bounded by the graph.
"""

from typing import Any, Final

import msgspec

from perdure.core.dispatching import Usage

Data = dict[str, Any]

PHASES: Final = ("work", "verifying", "people", "interrupted", "queued", "blocked")
"""What the time of a node goes into, from its being READY to its end.

``people``: a question about it is open and nobody works on it; ``interrupted``: its coordinator was
dead and nobody had taken over; ``queued``: it could have been started.
"""


class NodeTime(msgspec.Struct, gc=False):
    """What one node took."""

    node: str
    deps: tuple[str, ...] = ()
    state: str = "PENDING"
    since: float | None = None
    """When the time that is running now began."""
    started: float | None = None
    ended: float | None = None
    asked: int = 0
    """Open questions about it."""
    questions: int = 0
    attempts: int = 0
    longest_attempt_s: float = 0.0
    attempt_from: float | None = None
    retries: int = 0
    interruptions: int = 0
    phases: dict[str, float] | None = None
    usage: Usage | None = None

    def add(self, phase: str, seconds: float) -> None:
        """More time of a kind."""
        if seconds > 0:
            self.phases = self.phases or {}
            self.phases[phase] = self.phases.get(phase, 0.0) + seconds

    @property
    def busy_s(self) -> float:
        """Work and verification."""
        phases = self.phases or {}
        return phases.get("work", 0.0) + phases.get("verifying", 0.0)


class FailureCount(msgspec.Struct):
    """What failed in one way."""

    count: int = 0
    deaths: int = 0
    lost_s: float = 0.0
    """Work of the attempts that ended so."""
    causes: dict[str, int] = {}
    """Deaths by their mode and, where one was recognised, by the wall that they ran into."""
    nodes: set[str] = msgspec.field(default_factory=set)


class DayCount(msgspec.Struct):
    """What one day brought."""

    events: int = 0
    started: int = 0
    done: int = 0
    failed: int = 0
    interrupted: int = 0
    asked: int = 0
    answered: int = 0
    cost_usd: float = 0.0
    tokens: int = 0
    tool_calls: int = 0


def node_row(node: NodeTime) -> Data:
    """What is told of one node."""
    phases = node.phases or {}
    wall = None
    if node.started is not None and node.ended is not None:
        wall = round(node.ended - node.started, 3)
    return {
        "node": node.node,
        "state": node.state,
        "wall_s": wall,
        "time_s": {name: round(phases[name], 3) for name in PHASES if name in phases},
        "attempts": node.attempts,
        "longest_attempt_s": round(node.longest_attempt_s, 3),
        "retries": node.retries,
        "interruptions": node.interruptions,
        "questions": node.questions,
        "usage": usage_of(node.usage or Usage()),
    }


def usage_of(usage: Usage) -> Data:
    """Tokens, tool calls and cost; None for what nobody said."""
    told = {"tokens": usage.tokens, "tool_calls": usage.tool_calls}
    cost = round(usage.cost_usd, 6) if usage.cost_usd is not None else None
    return {**told, "cost_usd": cost}


def usage_sum(known: Usage, used: Usage) -> Usage:
    """Both together."""
    return Usage(
        _plus(known.wall_s, used.wall_s),
        _plus(known.tool_calls, used.tool_calls),
        _plus(known.tokens, used.tokens),
        _plus(known.cost_usd, used.cost_usd),
    )


def _plus(known: Any, more: Any) -> Any:
    return known if more is None else more if known is None else known + more
