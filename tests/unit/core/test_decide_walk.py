"""What a walk over all registered files puts on record, and whom it asks about what (WK-1)."""

from tests.unit.core.story import Story
from tests.unit.core.test_decide import refusal

from perdure.core import closing_commands as k
from perdure.core.decide_walk import failed_kept_max, named_max

GONE = "FAIL: missing: artifacts/N1/a.txt"


def with_files(*names: str) -> Story:
    story = Story()
    story.add("N1")
    story.start("N1")
    for name in names:
        story.register("N1", name)
    return story


def walk(story: Story, failed: dict[str, str], checked: int = 2) -> list[str]:
    """The ids of the questions that it asks; they come in the commit of the walk itself."""
    note, *asked = story.do(k.RecordWalk(checked, failed, "900 s since the last one"))
    assert (note.kind, note.payload["op"]) == ("NOTE", "walk")
    assert all(event.tx == note.tx for event in asked)
    return [event.payload["question_id"] for event in asked]


def test_a_walk_on_which_all_holds_asks_nothing() -> None:
    story = with_files("A-1", "A-2")
    assert walk(story, {}) == []
    on_record = story.replica.state.walk
    assert on_record is not None
    assert (on_record.checked, on_record.failed) == (2, ())


def test_each_file_is_asked_about_once_and_again_when_it_had_been_whole_in_between() -> None:
    story = with_files("A-1", "A-2")
    assert walk(story, {"A-1": GONE}) == ["Q-walk"]
    assert walk(story, {"A-1": GONE}) == []
    assert walk(story, {"A-1": GONE, "A-2": GONE}) == ["Q-walk.2"]
    second = story.replica.state.questions["Q-walk.2"]
    assert "A-2" in second.text
    assert "A-1" not in second.text
    assert walk(story, {}) == []
    assert walk(story, {"A-1": GONE}) == ["Q-walk.3"]


def test_the_question_is_the_sponsors_and_holds_no_node() -> None:
    story = with_files("A-1")
    walk(story, {"A-1": GONE})
    question = story.replica.state.questions["Q-walk"]
    assert (question.to, question.node) == ("sponsor", None)
    assert question.package["links"] == ["N1"]
    assert GONE in question.package["context"]


def test_what_was_set_aside_meanwhile_proves_nothing_and_is_left_out() -> None:
    story = with_files("A-1", "A-2")
    story.fail("N1")  # which quarantines what the attempt had registered
    assert walk(story, {"A-1": GONE}) == []
    on_record = story.replica.state.walk
    assert on_record is not None
    assert on_record.failed == ()


def test_a_walk_over_what_is_not_registered_is_refused() -> None:
    story = with_files("A-1")
    assert refusal(story, k.RecordWalk(1, {"A-9": GONE}, "x")).exit_code == 3


def test_very_many_damaged_files_are_counted_and_not_all_named() -> None:
    names = [f"A-{number:04d}" for number in range(failed_kept_max + 50)]
    story = with_files(*names)
    note, asked = story.do(k.RecordWalk(len(names), dict.fromkeys(names, GONE), "x"))
    assert len(note.payload["failed"]) == failed_kept_max
    assert note.payload["failed_total"] == len(names)
    assert f"and {failed_kept_max - named_max} more" in asked.payload["question"]
