"""The reference policies of a task as they are told: value, reason, window of measurement.

Invariants: a function of the state alone; a policy that nobody has changed says so.
"""

from typing import Any, Final

from perdure.core.model import Policies, State

_REFERENCE: Final = Policies()

MAY_BE_ZERO: Final = frozenset(
    {"retry_budget", "nudges_max", "retries_max", "revise_max", "mixed_threshold"}
)
"""Never again, or none at all. With another of them at 0 nothing would ever run, or be told."""


def policy_table(state: State) -> dict[str, dict[str, Any]]:
    """Every policy with its value, the reason for it and the window that it was measured in."""
    return {name: _row(state, name) for name in Policies.__struct_fields__}


def _row(state: State, name: str) -> dict[str, Any]:
    value = getattr(state.policies, name)
    held = state.policy_reasons.get(name)
    if held is not None:
        return {key: held.get(key, "") for key in ("value", "reason", "window", "ref")}
    default = value == getattr(_REFERENCE, name)
    reason = "reference policy" if default else "set when the task was created"
    return {"value": value, "reason": reason, "window": ""}
