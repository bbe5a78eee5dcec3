"""The inbox as data: what of a question and of an instruction it shows, and how it is paged."""

from typing import Any

import msgspec
import pytest
from tests.unit.core.story import Story, replay

from perdure.core import commands as c
from perdure.core.codec import to_json
from perdure.core.events import Draft
from perdure.core.inbox import STAGES, cut_names, inbox, stage_of, stages, with_words
from perdure.core.package_words import (
    flat,
    item_chars_max,
    items_max,
    package_words,
    silence_words,
)
from perdure.core.people import Gate, Steering, steering_chars_kept_max
from perdure.core.settling import command_for, commands_for
from perdure.core.views import Data, open_questions


def ask(story: Story, count: int, **more: Any) -> None:
    for number in range(1, count + 1):
        story.do(c.AskQuestion(f"Question {number}?", f"Q-{number:03d}", **more))


def say(story: Story, text: str, **more: Any) -> str:
    """Log an instruction and propagate it; its id."""
    before, story.actor = story.actor, "sponsor:ann"
    (logged,) = story.do(c.LogSteering("", text, **more))
    story.actor = "coordinator:perdure"
    story.do(c.PropagateSteering(logged.entity.id, text))
    story.actor = before
    return logged.entity.id


def look(story: Story, limit: int = 10, **where: Any) -> Data:
    return inbox(story.replica, now=story.now, limit=limit, **where)


def ids(entries: list[Data]) -> list[str]:
    return [entry["id"] for entry in entries]


# Questions


def test_an_empty_inbox_says_so() -> None:
    data = look(Story())
    assert (data["questions"], data["steering"], data["proposals"]) == ([], [], [])
    assert (data["questions_total"], data["steering_total"]) == (0, 0)
    assert (data["next"], data["earlier"], data["pending"], data["overdue"]) == (None, None, [], [])


def test_a_question_comes_with_all_that_an_answer_takes() -> None:
    story = Story()
    story.add("N1")
    story.do(
        c.AskQuestion(
            "Which licence?", "", "N1", ("MIT", "Apache-2.0"), "MIT is taken",
            context="We publish", consequences="It is for good", links=("J-3",), timeout_s=60.0,
        )
    )  # fmt: skip
    (entry,) = look(story)["questions"]
    package = {"context": "We publish", "consequences": "It is for good", "links": ["J-3"]}
    assert entry["package"] == package
    assert (entry["id"], entry["kind"], entry["node"]) == ("Q-001", "question", "N1")
    assert (entry["question"], entry["for"]) == ("Which licence?", "gatekeeper")
    assert (entry["options"], entry["default"]) == (["MIT", "Apache-2.0"], "MIT is taken")
    assert (entry["asked"], entry["asked_by"]) == ("J-4", "coordinator:main")
    assert entry["asked_at"] < entry["expires_at"]
    assert entry["commands"] == ["perdure answer Q-001 TEXT --choice OPTION"]
    assert not entry["overdue"]


def test_a_package_cannot_pass_for_the_record_itself() -> None:
    story = Story()
    package = {"id": "Q-9", "kind": "gate", "commands": ["rm"], "overdue": False, "asked": "J-1"}
    ask_payload = {
        "op": "ask", "question_id": "Q-001", "question": "?", "node": None, "package": package,
    }  # fmt: skip
    story.commit(Draft("DECISION", "task", "T1", ask_payload))
    (entry,) = look(story)["questions"]
    assert (entry["id"], entry["kind"], entry["asked"]) == ("Q-001", "question", "J-3")
    assert entry["commands"] == ["perdure answer Q-001 TEXT"]
    assert entry["package"] == package


@pytest.mark.parametrize("at", [1e300, float("1e15"), -1e15])
def test_a_time_that_no_calendar_has_is_none(at: float) -> None:
    story = Story()
    ask_payload = {
        "op": "ask", "question_id": "Q-1", "question": "?", "node": None, "asked_at": at,
        "expires_at": at,
    }  # fmt: skip
    story.commit(Draft("DECISION", "task", "T1", ask_payload))
    (entry,) = look(story)["questions"]
    assert (entry["asked_at"], entry["expires_at"]) == (None, None)


def test_it_is_overdue_from_its_time_on_and_nothing_else_happens() -> None:
    story = Story()
    ask(story, 1, timeout_s=60.0)
    due = story.replica.state.questions["Q-001"].expires_at
    assert due is not None
    before = to_json(story.replica.state)
    for now, late in ((due - 0.001, False), (due, True), (due + 1e6, True)):
        data = inbox(story.replica, now=now, limit=1)
        assert data["questions"][0]["overdue"] is late
        assert data["overdue"] == (["Q-001"] if late else [])
        (short,) = open_questions(story.replica, now, limit=1)
        assert short["overdue"] is late
    assert to_json(story.replica.state) == before


def test_questions_come_oldest_first_a_page_at_a_time() -> None:
    story = Story()
    ask(story, 5)
    page = look(story, 2)
    seen = ids(page["questions"])
    while page["next"]:
        page = look(story, 2, after=int(page["next"][2:]))
        seen += ids(page["questions"])
        assert page["steering"] == []
        assert page["questions_total"] == 5
    assert seen == [f"Q-{number:03d}" for number in range(1, 6)]


def test_a_page_goes_on_where_it_ended_though_its_last_question_is_settled_meanwhile() -> None:
    story = Story()
    ask(story, 5)
    page = look(story, 2)
    story.rule("Q-002", "answer", "so")
    story.rule("Q-001", "answer", "so")
    assert ids(look(story, 2, after=int(page["next"][2:]))["questions"]) == ["Q-003", "Q-004"]


def test_a_page_of_exactly_the_rest_is_the_last() -> None:
    story = Story()
    ask(story, 4)
    page = look(story, 2)
    assert look(story, 2, after=int(page["next"][2:]))["next"] is None
    assert look(story, 4)["next"] is None


# What settles a question


def test_each_kind_of_question_has_its_commands() -> None:
    story = Story()
    story.add("pay", effect="S3")
    story.do(c.AskGate("pay", "G-pay-start"))
    state = story.replica.state
    gate = state.questions["G-pay-start"]
    assert commands_for(state, gate) == [
        "perdure approve G-pay-start",
        "perdure revise G-pay-start --text WHAT",
        "perdure reject G-pay-start --reason WHY",
    ]
    assert command_for(state, gate) == "perdure approve G-pay-start"


def test_whether_an_effect_happened_is_not_suggested() -> None:
    story = Story(allowed=("pay",))
    story.add("pay", effect="S3")
    story.start("pay")
    story.fail("pay")
    state = story.replica.state
    question = state.questions["Q-pay-1"]
    assert commands_for(state, question) == [
        "perdure answer Q-pay-1 PROOF --choice done",
        "perdure answer Q-pay-1 WHY --choice not-done",
    ]
    assert command_for(state, question) == "perdure show Q-pay-1"


def test_a_node_that_cannot_be_as_specified_asks_for_another_one() -> None:
    story = Story()
    story.add("N1")
    story.start("N1")
    story.fail("N1", "permanent-spec")
    state = story.replica.state
    (question,) = state.questions.values()
    assert commands_for(state, question) == [
        "perdure add ID TITLE --successor-of N1",
        f"perdure answer {question.question_id} TEXT",
    ]


def test_a_resource_that_is_missing_is_answered_for() -> None:
    story = Story()
    story.add("N1")
    story.start("N1")
    story.fail("N1", "permanent-resource")
    state = story.replica.state
    (question,) = state.questions.values()
    assert commands_for(state, question) == ["perdure answer Q-N1-1 TEXT"]


def test_a_name_that_others_made_up_is_quoted_for_the_shell() -> None:
    story = Story()
    payload = {"op": "ask", "question_id": "Q; rm -rf x", "question": "?", "node": None}
    story.commit(Draft("DECISION", "task", "T1", payload))
    state = story.replica.state
    (question,) = state.questions.values()
    assert commands_for(state, question) == ["perdure answer 'Q; rm -rf x' TEXT"]


# Stages


def test_an_instruction_is_delivered_before_anything_acts_on_it() -> None:
    story = Story()
    story.actor = "sponsor:ann"
    (logged,) = story.do(c.LogSteering("", "metric units"))
    data = look(story)
    (entry,) = data["steering"]
    assert (entry["stage"], entry["delivered"]) == ("delivered", logged.ref)
    assert (entry["acknowledged"], entry["reading"]) == (None, None)
    assert data["pending"] == ["ST-001"]


def test_an_instruction_is_followed_from_node_to_node() -> None:
    story = Story()
    story.add("N1")
    story.add("N2", "N1")
    story.start("N1")
    name = say(story, "metric units", reading="amendment")
    (entry,) = look(story)["steering"]
    assert entry["stage"] == "applied"
    assert entry["acknowledged"]
    assert list(entry["applied"]) == ["N1", "N2"]
    assert "recalled" in entry["applied"]["N1"]
    assert entry["reached"] == {}
    (started,) = story.start("N1")
    assert look(story)["steering"][0]["reached"] == {"N1": started.ref}
    assert look(story)["steering"][0]["stage"] == "applied"
    story.register("N1", "A-1")
    story.claim("N1")
    story.conclude("N1")
    story.start("N2")
    (entry,) = look(story)["steering"]
    assert (entry["id"], entry["stage"]) == (name, "reached")


def test_what_changes_nothing_ends_with_the_acknowledgement() -> None:
    story = Story()
    story.add("N1")
    say(story, "by metric I mean kilometres", reading="clarification")
    (entry,) = look(story)["steering"]
    assert (entry["stage"], entry["applied"]) == ("acknowledged", {})


def test_the_stages_are_in_order() -> None:
    applied = {"N1": "amended J-4"}
    said = Steering("J-1", "d")
    stages = [
        stage_of(said),
        stage_of(msgspec.structs.replace(said, acknowledged="J-3")),
        stage_of(msgspec.structs.replace(said, acknowledged="J-5", applied=applied)),
        stage_of(
            msgspec.structs.replace(
                said, acknowledged="J-5", applied=applied, reached={"N1": "J-9"}
            )
        ),
    ]
    assert stages == list(STAGES[1:])


def test_of_a_long_instruction_the_state_has_the_beginning_alone() -> None:
    story = Story()
    say(story, "x" * (steering_chars_kept_max + 1), reading="clarification")
    (entry,) = look(story)["steering"]
    assert entry["text"] == "x" * steering_chars_kept_max
    short = stages("ST-1", Steering("J-1", "d", "short"))
    assert cut_names([entry, short]) == ["ST-001"]
    with_words([entry, short], {"ST-001": "all of it"})
    assert (entry["text"], short["text"]) == ("all of it", "short")


def test_instructions_come_newest_first_a_page_at_a_time() -> None:
    story = Story()
    for number in range(5):
        say(story, f"number {number}", reading="clarification")
    page = look(story, 2)
    seen = ids(page["steering"])
    while page["earlier"]:
        page = look(story, 2, before=int(page["earlier"][2:]))
        assert page["questions"] == []
        seen += ids(page["steering"])
    assert seen == [f"ST-{number:03d}" for number in range(5, 0, -1)]
    assert page["steering_total"] == 5


def test_the_record_alone_gives_the_same_inbox() -> None:
    story = Story()
    story.add("N1", gates=(Gate("G-go", "start"),))
    story.do(c.AskGate("N1", "G-go"))
    say(story, "metric units")
    replica, _ = replay(story.journal)
    again = inbox(replica, now=story.now, limit=10)
    assert again == look(story)
    to_json(again)


# Words


def test_a_package_is_told_in_the_order_of_reading() -> None:
    package = {
        "links": ["J-3", "docs/a.md"], "context": "c", "consequences": "q", "rounds": 2,
        "revise_max": 3, "changes": {"since": "J-9", "changed": ["a", "b"], "spec": True},
        "rubric": "r", "unheard": "of",
    }  # fmt: skip
    assert dict(package_words(package)) == {
        "context": ["c"],
        "consequences": ["q"],
        "rubric": ["r"],
        "rounds": ["sent back 2 times of at most 3"],
        "changes": ["since: J-9", "changed: a, b", "spec: yes"],
        "links": ["J-3", "docs/a.md"],
    }
    assert list(dict(package_words(package)))[:2] == ["context", "consequences"]


def test_one_round_is_told_as_once() -> None:
    words = dict(package_words({"rounds": 1, "revise_max": 3}))
    assert words["rounds"] == ["sent back once of at most 3"]


def test_disk_facts_are_told_with_where_everything_is() -> None:
    facts = {
        "files": 1, "records": 2, "named": [{"path": "a.txt", "size_bytes": 7}],
        "missing": ["b.txt"], "verified": [{"path": "a.txt", "sha256": "ab" * 32}],
        "moved": [{"path": "a.txt", "to": "old/a.txt"}], "problem": "no right to read it",
        "failed_checks": [{"check": "exists", "detail": "b.txt is not there"}],
        "last_heartbeat_s": 4.5, "worked_s": 60.0,
    }  # fmt: skip
    assert dict(package_words({"disk_facts": facts}))["disk_facts"] == [
        "1 file of work, 2 of its own records",
        "missing b.txt",
        "a.txt, 7 bytes",
        "verified a.txt, sha256 abababababababab",
        "a.txt is now old/a.txt",
        "check exists failed: b.txt is not there",
        "not all of it could be read: no right to read it",
        "last sign of life 4.5 s before the end",
        "under way for 60.0 s",
    ]
    assert dict(package_words({"disk_facts": {"files": 0}}))["disk_facts"] == ["0 files of work"]


DEEP: list[Any] = []
for _ in range(300):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "value",
    [None, True, 0, 7.5, "", "text", [], [1, "a", None], {}, {"a": {"b": {"c": {"d": 1}}}}, DEEP,
     [{"path": {"x": 1}}], [[{"id": []}]], "x" * 100_000, ["x" * 9_000] * 9_000],
    ids=lambda value: ascii(value)[:20],
)  # fmt: skip
@pytest.mark.parametrize(
    "name",
    ["context", "rounds", "revise_max", "signatures", "disk_facts", "changes", "links", "options"],
)
def test_whatever_is_in_a_package_has_some_wording(name: str, value: Any) -> None:
    for part, lines in package_words({"rounds": 1, name: value, "kind": value}):
        assert len(lines) <= 5 * items_max
        if part != "context":
            assert all(len(line) <= 4 * item_chars_max for line in lines)
    facts = ["files", "named", "missing", "moved", "failed_checks", "problem", "worked_s"]
    for part, lines in package_words({"disk_facts": dict.fromkeys(facts, value)}):
        assert part == "disk_facts"
        assert lines == [line for line in lines if "\n" not in line]


def test_a_value_is_words_on_one_line() -> None:
    assert flat({"a": [1, {"b": True}]}) == "a 1, b yes"
    assert flat("one\ntwo") == "one two"
    assert flat([[[[1]]]]) == "..."


def test_silence_is_put_in_words() -> None:
    assert silence_words("remain-blocked") == "it stays as it is"
    assert silence_words("MIT is taken") == "MIT is taken"
