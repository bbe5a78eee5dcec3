"""A line of ``perdure log`` says why an attempt ended, in the words of what failed."""

import pytest

from perdure.interfaces.cli.log import event_line


def _line(**payload: object) -> str:
    moved = {"from": "RUNNING", "to": "RETRYABLE", "edge": "N04", "signature": "exit 1", **payload}
    head = {"ref": "J-9", "ts": "T", "actor": "coordinator:c", "kind": "STATE_TRANSITION"}
    return event_line({**head, "entity": {"type": "node", "id": "N1"}, "payload": moved})


_PLAIN = "J-9 T coordinator:c STATE_TRANSITION N1 RUNNING -> RETRYABLE (N04): exit 1"


def test_a_failed_command_is_told_with_the_last_line_that_it_printed() -> None:
    assert _line(detail="working\ncp: no such file\n") == f"{_PLAIN}: cp: no such file"


@pytest.mark.parametrize("detail", ["", " \n", None, 7])
def test_without_such_a_line_the_failure_is_told_by_its_signature(detail: object) -> None:
    assert _line(detail=detail) == _PLAIN
