"""How the units of a batch node are shown while a run goes on."""

from typing import Any

import pytest

from perdure.interfaces.cli import progress
from perdure.interfaces.cli.progress import Lines, Show, TaskBars, event_lines


def units(done: int, wall_s: float, *, node: str = "B", failed: int = 0) -> dict[str, Any]:
    return {
        "event": "units", "node": node, "done": done, "total": 9, "failed": failed,
        "wall_s": wall_s,
    }  # fmt: skip


def shown(show: Show, *events: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(progress, "write_line", lambda text: lines.append(text.split(" ", 1)[1]))
    for event in events:
        show.event(event)
    return lines


def test_lines_tell_units_every_ten_seconds_and_the_last_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = [units(1, 1.0), units(2, 9.9), units(3, 10.0), units(4, 19.9), units(5, 20.0)]
    found = shown(Lines(), *events, units(9, 20.5), monkeypatch=monkeypatch)
    assert found == ["units B  3/9", "units B  5/9", "units B  9/9"]


def test_each_node_has_its_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [units(3, 12.0), units(1, 11.0, node="C"), units(4, 13.0), units(2, 12.0, node="C")]
    assert shown(Lines(), *events, monkeypatch=monkeypatch) == ["units B  3/9", "units C  1/9"]


def test_failed_units_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shown(Lines(), units(7, 2.0, failed=2), monkeypatch=monkeypatch)
    assert found == ["units B  7/9, 2 failed"]


def test_a_notice_is_one_line_whatever_stands_in_it() -> None:
    event = {"event": "notice", "node": "B", "why": "set aside:\n# not a heading\x1b[31m"}
    [line] = event_lines(event)
    assert line.startswith("notice B: set aside: # not a heading")
    assert "\x1b" not in line


def test_units_move_the_bar_of_their_node_and_not_that_of_the_task() -> None:
    bars = TaskBars()
    try:
        started = {"event": "started", "node": "B", "attempt": 1}
        bars.event({**started, "title": "B"})
        bars.event(units(4, 1.0, failed=1))
        bars.event({"event": "notice", "node": "B", "why": "x"})
        of_task, of_node = bars._bars._progress.tasks
        assert (of_node.completed, of_node.total) == (4, 9)
        assert of_node.fields["count"] == "4/9, 1 failed"
        assert (of_task.completed, of_task.total) == (0, None)
        bars.event(units(5, 2.0, node="unknown"))
        bars.event({"event": "done", "node": "B", "done": 1, "total": 1, "state": "DONE"})
        assert len(bars._bars._progress.tasks) == 1
    finally:
        bars.close()
