"""What ``perdure map`` shows while it goes on."""

import json
from typing import Any

import pytest

from perdure.interfaces.cli.map import _summary
from perdure.interfaces.cli.map_progress import (
    MapLines,
    duration_text,
    map_lines,
    progress_line_every_s,
    rate_text,
    show_for,
    shown_max,
)

OPENED = {"event": "opened", "name": "docs", "total": 10, "done": 4, "queued": 0, "exhausted": 0,
          "notices": []}  # fmt: skip
EVENTS = [
    (OPENED, ["job docs: 10 items, 4 done"]),
    (OPENED | {"queued": 1, "exhausted": 2, "notices": ["line 3\nis bad."]},
     ["job docs: 10 items, 4 done, 1 to be tried again, 2 failed too often",
      "notice: line 3 is bad."]),
    ({"event": "progress", "done": 1_200, "total": 3_000, "failed": 2, "rate_per_s": 40.25,
      "eta_s": 44.7}, ["1,200/3,000 done, 2 failed, 40.2 a second, 45 s left"]),
    ({"event": "progress", "done": 0, "total": 3, "failed": 0, "rate_per_s": 0.0, "eta_s": None},
     ["0/3 done"]),
    ({"event": "failed", "key": "a\nb", "error": "exit 1: \x1b[2J", "attempts": 1},
     ["failed a b: exit 1: \\x1b[2J"]),
    ({"event": "failed", "key": "a", "error": "exit 1", "attempts": 2},
     ["failed a (attempt 2): exit 1"]),
    ({"event": "retry_round", "round": 1, "items": 1, "wait_s": 0.5},
     ["trying 1 failed item again in 0.5 s"]),
    ({"event": "retry_round", "round": 2, "items": 12, "wait_s": 30.0},
     ["trying 12 failed items again in 30 s"]),
    ({"event": "orphans_stopped", "processes": [[7, "sleep"]]},
     ["stopped what a former run had left running: sleep (7)"]),
    ({"event": "leftovers", "key": "a", "processes": [[7, "sleep"]], "left": [[8, "dd"]]},
     ["stopped what a left running: sleep (7)", "could not stop dd (8)"]),
    ({"event": "leftovers", "key": None, "processes": [[7, "sleep"]], "left": []},
     ["stopped what a command left running: sleep (7)"]),
    ({"event": "stopping", "signal": 2, "at_once": False},
     ["finishing what is at work (signal 2); once more kills it"]),
    ({"event": "stopping", "signal": 15, "at_once": True},
     ["killing what is at work (signal 15)"]),
    ({"event": "finished", "outcome": "finished"}, []),
    ({"event": "something new", "key": "a"}, ["something new a"]),
]  # fmt: skip


@pytest.mark.parametrize(("event", "lines"), EVENTS, ids=[str(e["event"]) for e, _ in EVENTS])
def test_events_of_a_map_as_lines(event: dict[str, Any], lines: list[str]) -> None:
    assert map_lines(event) == lines


def progress(done: int, wall_s: float) -> dict[str, Any]:
    return {"event": "progress", "done": done, "total": 100, "failed": 0, "wall_s": wall_s}


def test_progress_takes_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    show = MapLines()
    for second in range(100):
        show.event(progress(second, float(second)))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 100 // progress_line_every_s - 1
    assert lines[0].endswith(" 10/100 done")


@pytest.mark.parametrize(
    "event",
    [
        {"event": "failed", "key": "a", "error": "exit 1", "attempts": 1},
        {"event": "retry_round", "round": 1, "items": 1, "wait_s": 1.0},
        {"event": "leftovers", "key": "a", "processes": [[7, "x"]], "left": []},
    ],
    ids=lambda event: str(event["event"]),
)
def test_what_happens_for_every_item_does_not_fill_the_log(
    event: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    show = MapLines()
    for _ in range(1_000):
        show.event(event)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == shown_max + 1
    assert "more of this is not shown" in lines[-1]


def test_programs_get_every_event(capsys: pytest.CaptureFixture[str]) -> None:
    show = show_for(True, terminal=True)
    for second in range(30):
        show.event(progress(second, float(second)))
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["done"] for event in events] == list(range(30))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.01, "1 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3_599, "59 min 59 s"),
     (3_600, "1 h 0 min"), (360_060, "100 h 1 min"), (36_000_000, "10,000 h 0 min")],
)  # fmt: skip
def test_time_left_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("per_s", "text"),
    [(12_345.6, "12,346 a second"), (123.4, "123 a second"), (41.26, "41.3 a second"),
     (1, "1 a second"), (0.2, "12 a minute"), (0.004, "0.24 a minute")],
)  # fmt: skip
def test_rate_is_told_in_three_digits(per_s: float, text: str) -> None:
    assert rate_text(per_s) == text


REPORT = {
    "outcome": "finished", "total": 3, "done": 3, "processed": 3, "failed": 0, "exhausted": 0,
    "interrupted": 0, "duplicates": [], "duplicate_count": 0, "changed": [], "changed_count": 0,
    "absent": [], "absent_count": 0, "summary": "/j/SUMMARY.md",
}  # fmt: skip
SUMMARY = "  summary    /j/SUMMARY.md"


def test_summary_of_a_run_that_did_everything_is_short() -> None:
    assert _summary("j", REPORT) == ["all done: 3 of 3 items done", SUMMARY]
    empty = REPORT | {"total": 0, "done": 0, "processed": 0}
    assert _summary("j", empty) == ["nothing to do: there are no items", SUMMARY]


def test_summary_names_the_first_few_and_counts_the_rest() -> None:
    twice = [{"key": f"k{n}", "first": n, "line": n + 20, "same": n > 1} for n in range(1, 21)]
    lines = _summary(
        "my job",
        REPORT
        | {
            "outcome": "interrupted", "done": 1, "processed": 0, "failed": 2, "exhausted": 1,
            "interrupted": 4, "duplicates": twice, "duplicate_count": 30,
            "changed": ["a", "b"], "changed_count": 7, "absent": ["x"], "absent_count": 1,
        },
    )  # fmt: skip
    assert lines == [
        "interrupted: 1 of 3 items done (0 now), 2 failed",
        "  duplicates k1 in line 21, as in line 1; the rest of the line differs and was not used",
        *(f"             k{n} in line {n + 20}, as in line {n}" for n in range(2, 6)),
        "             and 25 more",
        "  changed    done with other content, and not run again: a, b and 5 more",
        "  absent     failed, and not among these items: x",
        "  stopped    4 at work, to be run again",
        SUMMARY,
        "  then       perdure job errors 'my job' (what failed, and why)",
        "             perdure job retry 'my job' (new attempts; then the same line again)",
        "             run the same line again; it goes on from here",
    ]
