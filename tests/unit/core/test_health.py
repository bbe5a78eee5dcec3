"""Health of dispatched work: what counts, the rate of first deaths, the ladder of modes."""

import pytest

from perdure.core.dispatching import DEATH_MODES, Health
from perdure.core.health import (
    WALLS,
    Resolution,
    end_of_attempt,
    end_of_slot,
    mode_due,
    rate,
    resolved,
)
from perdure.core.model import ActiveContract, Executor, Policies

POLICIES = Policies()
LANDED = Resolution()
FIRST = Resolution(first=True, mode="silent")
WALL = Resolution(first=True, environment=True, mode="failed")


def health_of(*ends: Resolution, **more: object) -> Health:
    health = Health(**more)  # type: ignore[arg-type]
    for end in ends:
        health = resolved(health, POLICIES, end)
    return health


# The rate


def test_missing_resolutions_count_as_survivals() -> None:
    assert rate(Health(), POLICIES) == 0.0
    assert rate(health_of(FIRST), POLICIES) == 1 / 8
    assert rate(health_of(*[FIRST] * 8), POLICIES) == 1.0


def test_only_the_newest_of_the_window_count() -> None:
    health = health_of(*[FIRST] * 8, *[LANDED] * 6)
    assert (len(health.window), rate(health, POLICIES)) == (8, 2 / 8)
    assert rate(health, Policies(first_death_window=4)) == 0.0
    assert rate(health, Policies(first_death_window=16)) == 2 / 16


def test_deaths_are_counted_by_mode_and_environment_failures_in_a_row() -> None:
    health = health_of(FIRST, WALL, WALL, Resolution(mode="killed"))
    assert health.deaths == {"silent": 1, "failed": 2, "killed": 1}
    assert health.environment_failures == 0
    assert health_of(WALL, WALL).environment_failures == 2


# What counts


def contract(kind: str = "process") -> ActiveContract:
    return ActiveContract("inv-1", "N1", Executor("coordinator:main", kind), 1, 0.0)  # type: ignore[arg-type]


DEATH = {"mode": "killed", "first": True, "cause": "network"}


@pytest.mark.parametrize(
    ("payload", "batch", "expected"),
    [
        ({"edge": "N03"}, False, LANDED),
        ({"edge": "N03"}, True, None),
        ({"edge": "N04", "death": DEATH}, False, Resolution(True, True, "killed")),
        ({"edge": "N04", "death": DEATH}, True, Resolution(True, True, "killed")),
        ({"edge": "N05", "death": DEATH}, False, Resolution(True, True, "killed")),
        ({"edge": "N04", "death": DEATH, "interruption": True}, False, None),
        ({"edge": "N04"}, False, None),
        ({"edge": "N04", "death": {"mode": "bored"}}, False, None),
        ({"edge": "N05"}, False, None),
        ({"edge": "N15", "death": DEATH}, False, None),
        (
            {"edge": "N04", "death": {"mode": "failed"}, "failure_class": "transient-environment"},
            False,
            Resolution(False, True, "failed"),
        ),
        (
            {"edge": "N05", "death": {"mode": "failed", "cause": "missing_program"}},
            False,
            Resolution(False, False, "failed"),
        ),
    ],
)
def test_what_the_end_of_an_attempt_resolves(
    payload: dict[str, object], batch: bool, expected: Resolution | None
) -> None:
    assert end_of_attempt(contract(), payload, batch=batch) == expected
    assert end_of_attempt(contract("session"), payload, batch=batch) is None
    assert end_of_attempt(None, payload, batch=batch) is None


def test_what_the_end_of_a_slot_resolves() -> None:
    assert end_of_slot({"end": "landed"}) == LANDED
    assert end_of_slot({"end": "recalled"}) is end_of_slot({"end": "abandoned"}) is None
    assert end_of_slot({"end": "nonsense"}) is end_of_slot({}) is None
    for mode in DEATH_MODES:
        assert end_of_slot({"end": mode, "first": True}) == Resolution(True, False, mode)
    for cause in WALLS:
        assert end_of_slot({"end": "failed", "cause": cause}) == Resolution(False, True, "failed")


# The ladder


@pytest.mark.parametrize(
    ("before", "end", "expected"),
    [
        (health_of(), LANDED, None),
        (health_of(FIRST), FIRST, None),
        (health_of(FIRST, FIRST), FIRST, "B"),
        (health_of(FIRST, FIRST, FIRST, mode="B"), LANDED, None),
        (health_of(*[FIRST] * 3, *[LANDED] * 5, mode="B"), LANDED, "A"),
        (health_of(WALL), LANDED, None),
        (health_of(WALL), FIRST, None),
        (health_of(WALL), WALL, "C"),
        (health_of(FIRST, FIRST, FIRST, WALL, mode="B"), WALL, "C"),
        (health_of(WALL, WALL, mode="C"), LANDED, None),
        (health_of(WALL, WALL, mode="C"), WALL, None),
        (health_of(WALL, WALL, mode="C", probing=True), LANDED, "A"),
        (health_of(WALL, WALL, mode="C", probing=True), Resolution(mode="killed"), "A"),
        (health_of(WALL, WALL, mode="C", probing=True), FIRST, None),
        (health_of(WALL, WALL, mode="C", probing=True), WALL, "C"),
        (health_of(mode="B", by_hand=True), LANDED, None),
        (health_of(WALL, mode="B", by_hand=True), WALL, "C"),
        (health_of(mode="C", by_hand=True), LANDED, None),
    ],
)
def test_the_ladder_of_modes(before: Health, end: Resolution, expected: str | None) -> None:
    change = mode_due(before, POLICIES, end)
    assert (change.mode if change is not None else None) == expected
    assert change is None or change.why


def test_a_surviving_probe_clears_the_window_and_a_dying_one_ends_the_probing() -> None:
    probing = health_of(*[FIRST] * 8, mode="C", probing=True)
    survived, died = mode_due(probing, POLICIES, LANDED), mode_due(probing, POLICIES, WALL)
    assert survived is not None
    assert died is not None
    assert survived.clear_window
    assert (died.mode, died.probing) == ("C", False)


def test_the_numbers_are_policies() -> None:
    strict = Policies(first_death_window=2, mixed_threshold=0.4, halt_after=1)
    change = mode_due(Health(), strict, FIRST)
    assert change is not None
    assert change.mode == "B"
    change = mode_due(Health(), strict, WALL)
    assert change is not None
    assert change.mode == "C"
