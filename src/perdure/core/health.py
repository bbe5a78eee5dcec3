"""How dispatched work fares, and the mode of dispatch that follows (HALT-07 section 4).

Job: say which end of work counts, what it does to the rate of first deaths, and which mode is due.
Invariants: pure; the decision that ends work and the fold of what was committed read the same end
with the same function, so they cannot differ; an interruption counts for nothing, and what people
do by hand neither; a change of mode is in the commit of the end that causes it (PD-H1).
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.dispatching import DEATH_MODES, Death, DispatchMode, Health
from perdure.core.events import Draft
from perdure.core.model import ActiveContract, Node, Policies, State
from perdure.core.payload import record, text

ENVIRONMENT: Final = "transient-environment"
"""The failure class of trouble that lies around the work and not in it."""
WALLS: Final = frozenset({"quota", "rate_limit", "network", "credentials", "disk"})
"""Causes that stand in the way of all work alike; a missing program is a matter of one command."""

_ENDS: Final = frozenset({"N03", "N04", "N05"})
"""Edges by which work under a contract ends."""


class Resolution(NamedTuple):
    """One piece of dispatched work that is over."""

    first: bool = False
    """It died before any output."""
    environment: bool = False
    """It died of its environment."""
    mode: str = ""
    """The death mode; empty for work that landed."""


def end_of_attempt(
    contract: ActiveContract | None, payload: Mapping[str, Any], *, batch: bool = False
) -> Resolution | None:
    """What a move out of RUNNING resolves; None when it does not count.

    Only work that a coordinator dispatched counts, and how it died is the coordinator's to say. Of
    a batch node the slots and units count, and its own claim does not.
    """
    if contract is None or contract.executor.kind != "process" or payload.get("interruption"):
        return None
    edge = payload.get("edge")
    if edge not in _ENDS:
        return None
    if edge == "N03":
        return None if batch else Resolution()
    death = record(payload.get("death"), Death)
    if death is None:
        return None
    environment = payload.get("failure_class") == ENVIRONMENT or death.cause in WALLS
    return Resolution(death.first, environment, death.mode)


def end_of_slot(payload: Mapping[str, Any]) -> Resolution | None:
    """What the end of a slot resolves; None for one that was recalled or abandoned."""
    end = text(payload.get("end"))
    if end == "landed":
        return Resolution()
    if end not in DEATH_MODES:
        return None
    return Resolution(bool(payload.get("first")), payload.get("cause") in WALLS, end)


def resolved(health: Health, policies: Policies, end: Resolution) -> Health:
    """The health after one more resolution; the mode is as it was."""
    window = (*health.window, end.first)[-max(1, policies.first_death_window) :]
    deaths = health.deaths
    if end.mode in DEATH_MODES:
        deaths = {**deaths, end.mode: deaths.get(end.mode, 0) + 1}
    return msgspec.structs.replace(
        health,
        window=window,
        environment_failures=health.environment_failures + 1 if end.environment else 0,
        deaths=deaths,
    )


def rate(health: Health, policies: Policies) -> float:
    """The rolling rate of first deaths: those in the window, over the size of the window (PD-H1).

    Resolutions that are missing at the start count as survivals.
    """
    size = max(1, policies.first_death_window)
    return sum(health.window[-size:]) / size


class ModeChange(NamedTuple):
    """What dispatch changes to, and why."""

    mode: DispatchMode
    why: str
    probing: bool = False
    clear_window: bool = False
    by_hand: bool = False


def mode_due(before: Health, policies: Policies, end: Resolution) -> ModeChange | None:
    """The change of mode that this end causes; None when the mode stays.

    Out of C leads only the survival of a probe (PD-H3): work that lands, or that dies neither of
    its environment nor before any output. A probe that dies of the environment ends the probing.
    What a person has chosen holds, but that failures of the environment halt B all the same.
    """
    after = resolved(before, policies, end)
    if before.mode == "C":
        if not before.probing or before.by_hand:
            return None
        if end.environment:
            return ModeChange("C", "the probe died of the environment as well")
        if end.mode and end.first:
            return None
        return ModeChange("A", "the probe has survived", clear_window=True)
    if after.environment_failures >= policies.halt_after:
        count = after.environment_failures
        return ModeChange("C", f"{count} failures of the environment in a row")
    if before.by_hand:
        return None
    share = rate(after, policies)
    mode: DispatchMode = "B" if share > policies.mixed_threshold else "A"
    if mode == before.mode:
        return None
    sign = ">" if mode == "B" else "<="
    return ModeChange(mode, f"first deaths {share:.3g} {sign} {policies.mixed_threshold:g}")


def mode_drafts(state: State, end: Resolution | None) -> tuple[Draft, ...]:
    """The DECISION for the change of mode that this end causes, to be committed right behind it."""
    if end is None:
        return ()
    change = mode_due(state.health, state.policies, end)
    if change is None:
        return ()
    after = resolved(state.health, state.policies, end)
    return (mode_draft(state, after, change, authority="reference policy"),)


def ended(state: State, node: Node, move: Draft) -> tuple[Draft, ...]:
    """A move out of RUNNING, and right behind it the change of mode that it causes."""
    contract = state.contracts.get(node.invocation or "")
    end = end_of_attempt(contract, move.payload, batch=node.spec.map is not None)
    return (move, *mode_drafts(state, end))


def mode_draft(state: State, health: Health, change: ModeChange, *, authority: str) -> Draft:
    """The DECISION that changes the mode, with what it was measured on."""
    policies = state.policies
    payload = {
        "op": "mode",
        "mode": change.mode,
        "before": state.health.mode,
        "rationale": change.why,
        "authority": authority,
        "first_death_rate": round(rate(health, policies), 4),
        "window": list(health.window),
        "environment_failures": health.environment_failures,
    }
    if change.probing:
        payload["probing"] = True
    if change.clear_window:
        payload["clear_window"] = True
    if change.by_hand:
        payload["by_hand"] = True
    return Draft("DECISION", "task", state.task_id, payload)


def health_view(state: State) -> dict[str, Any]:
    """How dispatch stands, as the status and the checkpoint show it."""
    health, policies = state.health, state.policies
    return {
        "dispatch_mode": health.mode,
        "first_death_rate": round(rate(health, policies), 4),
        "first_death_rate_window": list(health.window),
        "window_size": policies.first_death_window,
        "environment_failures": health.environment_failures,
        "probing": health.probing,
        "by_hand": health.by_hand,
        "since": health.since,
        "deaths": dict(health.deaths),
    }
