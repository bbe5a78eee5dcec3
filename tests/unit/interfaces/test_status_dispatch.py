"""How the status tells of dispatched work: nothing where there is nothing, and a bounded list."""

from typing import Any

from perdure.interfaces.cli.dispatch import measured, mode_words
from perdure.interfaces.cli.task import _dispatch_lines, _working

DISPATCH: dict[str, Any] = {
    "dispatch_mode": "A", "first_death_rate": 0.0, "first_death_rate_window": [],
    "window_size": 8, "environment_failures": 0, "probing": False, "by_hand": False,
    "since": "", "deaths": {},
}  # fmt: skip
QUIET: dict[str, Any] = {"slots": [], "slots_total": 0, "dispatch": DISPATCH, "usage": None}


def test_a_task_that_dispatches_nothing_has_no_lines_for_it() -> None:
    assert _dispatch_lines(QUIET) == []


def test_workers_mode_and_use_are_told() -> None:
    slot = {"node": "B", "executor": "executor:w", "invocation": "inv-1", "units": 10}
    halted = {
        **DISPATCH, "dispatch_mode": "C", "first_death_rate_window": [True, True],
        "environment_failures": 2, "since": "J-31",
    }  # fmt: skip
    data = {
        "slots": [slot, {**slot, "invocation": "inv-2", "suspected": "J-9"}],
        "slots_total": 5,
        "dispatch": halted,
        "usage": {"wall_s": 12.34567, "tokens": 12_345_678, "cost_usd": 0.42},
    }
    assert [" ".join(line.split()) for line in _dispatch_lines(data)] == [
        "workers inv-1 (10 units of B)",
        "inv-2 (10 units of B, suspected dead (J-9))",
        "and 3 more",
        (
            "dispatch C (halted): 2 of the last 8 died before any output,"
            " 2 of the environment in a row, since J-31"
        ),
        "used 12.3457 s, 12,345,678 tokens, 0.42 USD",
    ]


def test_the_mode_says_whether_somebody_has_chosen_it() -> None:
    assert mode_words({**DISPATCH, "dispatch_mode": "B"}) == "B (untouched work first)"
    by_hand = {**DISPATCH, "dispatch_mode": "C", "by_hand": True}
    assert mode_words(by_hand) == "C (halted, by hand)"
    probing = {**DISPATCH, "dispatch_mode": "C", "probing": True}
    assert mode_words(probing) == "C (halted, a small batch is out)"
    told = _dispatch_lines({**QUIET, "dispatch": by_hand})
    assert told[-1].strip() == "to go on: perdure dispatch A --reason WHY"
    assert measured(DISPATCH) == "0 of the last 8 died before any output"


def test_a_suspected_executor_is_told_with_its_node() -> None:
    item = {"node": "N1", "executor": "coordinator:main", "suspected": "J-9"}
    assert _working(item) == "N1 (coordinator:main), suspected dead (J-9)"
