"""Lengths of time as people write them."""

import pytest

from perdure.core.durations import seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("0.5", 0.5),
        ("90s", 90.0),
        ("10m", 600.0),
        ("2h", 7_200.0),
        ("1d", 86_400.0),
        ("1h30m", 5_400.0),
        (" 1h 30m ", 5_400.0),
        ("1.5m", 90.0),
        ("0s", 0.0),
    ],
)
def test_time_is_a_number_of_seconds_or_parts_with_their_units(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1", "1h30", "1e3", "nan", "1w", "1.s", ".5s", "1s!"])
def test_other_text_is_no_time(text: str) -> None:
    assert seconds_of(text) is None
