"""What work has used, held against what it may use.

Invariants: pure; what nobody measured is never over a limit; the words name the limit and not the
figure, so that two overruns of one limit look equal.
"""

from typing import Any, Final

from msgspec.structs import replace

from perdure.core.dispatching import Usage
from perdure.core.grants import spend_limit_usd
from perdure.core.model import Budget, Node, State

_LIMITS: Final = (
    ("max_wall_s", "wall_s", "s of wall time"),
    ("max_tool_calls", "tool_calls", "tool calls"),
    ("max_tokens", "tokens", "tokens"),
    ("max_cost_usd", "cost_usd", "USD"),
)


def budget_of(node: Node) -> Budget:
    """What an attempt at a node may use; of its budget and its grants to spend the least counts."""
    own = node.spec.budget
    granted = spend_limit_usd(node.spec.grants)
    if granted is None or (own.max_cost_usd is not None and own.max_cost_usd <= granted):
        return own
    return replace(own, max_cost_usd=granted)


def with_usage(held: Usage | None, more: Usage) -> Usage:
    """Both together; what neither knows stays unknown, and the newer model stands."""
    if held is None:
        return more

    def total(name: str) -> Any:
        one, other = getattr(held, name), getattr(more, name)
        return other if one is None else one if other is None else one + other

    totals = {measure: total(measure) for _, measure, _ in _LIMITS}
    return Usage(**totals, model=more.model or held.model)


def usage_of(state: State) -> Usage | None:
    """What all attempts at all nodes have used, as far as they said; None when none did."""
    total: Usage | None = None
    for node in state.nodes.values():
        if node.usage is not None:
            total = with_usage(total, node.usage)
    return total


def over_budget(budget: Budget, usage: Usage | None) -> str:
    """What an attempt has used beyond its budget, as a signature; empty when nothing."""
    if usage is None:
        return ""
    spent = [
        f"{limit:g} {unit}"
        for name, measure, unit in _LIMITS
        if (limit := getattr(budget, name)) is not None
        and (used := getattr(usage, measure)) is not None
        and used > limit
    ]
    return f"budget spent: {', '.join(spent)}" if spent else ""
