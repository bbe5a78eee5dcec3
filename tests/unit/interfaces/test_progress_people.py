"""What people and a run say to each other, as its output shows it."""

from typing import Any

import pytest
from tests.unit.interfaces.test_progress_units import units

from perdure.interfaces.cli.progress import TaskBars, answer_lines, event_lines

ASKED = {
    "event": "asked", "question": "G-a-review", "kind": "gate", "to": "gatekeeper", "node": "a",
    "state": "VERIFYING", "done": 0, "total": 2, "text": "Is it good?", "ref": "J-9",
}  # fmt: skip
ANSWERED = {
    "event": "answered", "question": "G-a-review", "node": "a", "state": "VERIFYING", "done": 0,
    "total": 2, "ruling": "approve", "by": "gatekeeper:eve", "ref": "J-10", "text": "",
    "by_default": False,
}  # fmt: skip

EVENTS: list[tuple[dict[str, Any], list[str]]] = [
    (ASKED, ["asked G-a-review about a: Is it good? (perdure approve G-a-review)"]),
    (
        {**ASKED, "question": "Q-001", "kind": "question", "node": None, "state": None},
        ["asked Q-001: Is it good? (perdure answer Q-001 TEXT)"],
    ),
    (
        {**ASKED, "question": "up-1-G-b", "kind": "question", "consent": True},
        ["asked up-1-G-b about a: Is it good? (perdure approve up-1-G-b)"],
    ),
    (
        {"event": "blocked", "node": "a", "state": "BLOCKED", "questions": ["inv-1#Q-1"]},
        ["blocked a: waits for the answer to inv-1#Q-1"],
    ),
    (
        {"event": "late", "slot": "inv-1", "units": 1},
        ["late output of inv-1: 1 unit landed"],
    ),
    (ANSWERED, ["answered G-a-review: approve by gatekeeper:eve (J-10)"]),
    (
        {**ANSWERED, "ruling": "reject", "by": "coordinator:x", "by_default": True},
        ["answered G-a-review: reject by coordinator:x, for nobody ruled in time (J-10)"],
    ),
    ({**ANSWERED, "ruling": "replaced"}, ["closed G-a-review (J-10)"]),
    ({**ANSWERED, "ruling": "", "ref": ""}, ["closed G-a-review"]),
    (
        {
            "event": "steered", "steering": "ST-001", "reading": "amendment", "source": "sponsor:a",
            "text": "Use CSV\ninstead", "ref": "J-20",
            "applied": {"a": "recalled J-15, amended J-16", "b": "amended J-18"},
        },
        [
            "steered ST-001 (amendment): Use CSV instead",
            "  applied to a recalled J-15, amended J-16; b amended J-18 (J-20)",
        ],
    ),
    (
        {"event": "waiting", "questions": {}, "kinds": {"G-a-review": "gate", "Q-1": "effect"}},
        ["waiting for a person: perdure approve G-a-review, perdure show Q-1"],
    ),
    ({"event": "goal_changed", "text": "A\nletter"}, ["goal changed: A letter"]),
    (
        {"event": "overdue", "question": "G-a-review", "node": "a"},
        ["overdue G-a-review: nobody ruled on it in time"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("event", "lines"), EVENTS, ids=[str(e["event"]) for e, _ in EVENTS])
def test_words_of_people_as_lines(event: dict[str, Any], lines: list[str]) -> None:
    assert event_lines(event) == lines


def test_text_of_others_stays_on_its_line() -> None:
    [line] = event_lines({**ASKED, "text": "yes\n12:00:00 done b\x1b[2J"})
    assert line.startswith("asked G-a-review about a: yes 12:00:00 done b")
    assert "\x1b" not in line


def test_every_kind_of_question_has_its_command() -> None:
    assert answer_lines("E", "effect")[0].startswith("answer E TEXT --choice done")
    assert answer_lines("J", "judgement") == answer_lines("J", "gate")
    assert answer_lines("Q", "escalation") == ["answer Q TEXT"]
    assert answer_lines("U", "question", consent=True) == ["approve U", "reject U --reason WHY"]


def test_a_node_that_is_asked_about_has_no_bar_unless_it_goes_on() -> None:
    bars = TaskBars()
    try:
        bars.event({"event": "started", "node": "a", "attempt": 1, "title": "A"})
        bars.event({"event": "started", "node": "B", "attempt": 1, "title": "B"})
        bars.event(units(1, 1.0))
        bars.event({**ASKED, "node": "B", "state": "RUNNING"})
        assert set(bars._nodes) == {"a", "B"}
        bars.event(ASKED)
        assert set(bars._nodes) == {"B"}
        bars.event(ANSWERED)
        assert bars._bars._progress.tasks[0].total == 2
    finally:
        bars.close()
