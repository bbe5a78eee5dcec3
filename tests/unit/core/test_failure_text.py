"""What people read of a failure."""

import pytest

from perdure.core.failure_text import as_seen, last_said, said_chars_max


@pytest.mark.parametrize(
    ("detail", "seen"),
    [
        ("", "exit 1"),
        ("\n \n", "exit 1"),
        ("begun\ncannot  open x\n\n", "exit 1: cannot open x"),
        ("it says exit 1\nexit 1\n", "exit 1"),
    ],
)
def test_a_failure_is_its_signature_and_the_last_line_that_says_something(
    detail: str, seen: str
) -> None:
    assert as_seen("exit 1", detail) == seen


def test_a_long_line_is_cut() -> None:
    assert last_said("x" * 1_000) == "x" * (said_chars_max - 3) + "..."
