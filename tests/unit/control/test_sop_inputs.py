"""The inputs of a procedure are typed, complete and told apart from what they are not."""

from typing import Any

import pytest

from perdure.control.sop_card import Card, CardInput
from perdure.control.sop_inputs import (
    WORDS,
    bind_inputs,
    inputs_bytes_max,
    read_input_words,
    sample_of,
    value_bytes_max,
    value_problem,
)
from perdure.errors import UsageError


def card_of(*inputs: CardInput) -> Card:
    return Card("acme.x", "1.0.0", "X", "", (), {}, inputs)


def one(word: str, **more: Any) -> CardInput:
    return CardInput(more.pop("name", "it"), word, WORDS[word], **more)


def bind(card: Card, given: dict[str, Any], **more: Any) -> dict[str, Any]:
    return bind_inputs(card, given, directory="/here", **more)


def refusal(card: Card, given: dict[str, Any]) -> str:
    with pytest.raises(UsageError) as caught:
        bind(card, given)
    assert (caught.value.code, caught.value.exit_code) == ("sop_inputs", 2)
    return caught.value.message


@pytest.mark.parametrize(
    ("word", "good", "bad"),
    [
        ("text", ["a", "7"], ["", " ", 7, None, ["a"], "a\0"]),
        ("path", ["a/b"], ["", 1]),
        ("glob", ["a/*.md"], [["a"]]),
        ("command", ["ls -l", ["ls", "-l"]], ["", [], [""], [1], {}]),
        ("integer", [0, -3], [1.5, "1", True]),
        ("number", [1, 1.5], [True, "1", float("nan")]),
        ("boolean", [True, False], [1, "true"]),
        ("texts", [[], ["a"]], ["a", [""], [1]]),
        ("object", [{}, {"a": 1}], [[], "a"]),
        ("any", [None, 1, "a", [1], {}], [float("inf"), {1, 2}]),
    ],
)
def test_a_type_word_takes_its_values_and_no_others(
    word: str, good: list[Any], bad: list[Any]
) -> None:
    assert [value for value in good if value_problem(one(word), value)] == []
    assert [value for value in bad if not value_problem(one(word), value)] == []


def test_a_schema_of_the_card_is_held_to() -> None:
    rubric = CardInput("it", "", {"type": "array", "minItems": 1})
    assert value_problem(rubric, ["a"]) == ""
    assert "[]" in value_problem(rubric, [])


def test_a_schema_that_refers_to_nothing_is_told_and_raises_nothing_else() -> None:
    lost = CardInput("it", "", {"properties": {"a": {"$ref": "#/none"}}})
    assert value_problem(lost, {}) == ""
    assert "#/none" in value_problem(lost, {"a": 1}) or "lacks" in value_problem(lost, {"a": 1})


def test_defaults_fill_in_and_what_has_none_has_no_value() -> None:
    card = card_of(one("integer", name="n", default=3), one("text", name="t"))
    assert bind(card, {}) == {"n": 3, "t": None}
    assert bind(card, {"n": None, "t": "x"}) == {"n": 3, "t": "x"}


def test_everything_that_is_wrong_is_told_at_once() -> None:
    card = card_of(one("integer", name="shard"), one("text", name="topic", required=True))
    message = refusal(card, {"shrad": 3, "shard": "x"})
    assert "there is no input 'shrad' (did you mean shard?)" in message
    assert "shard: it must be a whole number" in message
    assert "topic is missing" in message


def test_paths_and_patterns_come_back_absolute() -> None:
    card = card_of(one("path", name="p"), one("glob", name="g"), one("text", name="t"))
    bound = bind(card, {"p": "a/../b.md", "g": "./docs/*.md", "t": "docs/x"})
    assert bound == {"p": "/here/b.md", "g": "/here/docs/*.md", "t": "docs/x"}
    assert bind(card, {"p": "/a", "g": "/b/*"}) == {"p": "/a", "g": "/b/*", "t": None}


def test_what_lies_in_the_workspace_of_the_caller_is_found_there() -> None:
    card = card_of(one("path", name="p"), one("path", name="q"))
    bound = bind(card, {"p": "artifacts/N1/a.md", "q": "docs/a.md"}, workspace="/w")
    assert bound == {"p": "/w/artifacts/N1/a.md", "q": "/here/docs/a.md"}


def test_values_have_a_limited_size() -> None:
    assert "is the most" in refusal(card_of(one("text")), {"it": "x" * value_bytes_max})
    many = [one("text", name=f"n{number}") for number in range(5)]
    text = "x" * (inputs_bytes_max // 5 + 1)
    assert "is the most" in refusal(card_of(*many), {item.name: text for item in many})


def test_words_are_read_by_the_type_of_their_input() -> None:
    card = card_of(
        one("text", name="t"),
        one("integer", name="n"),
        one("texts", name="l"),
        one("texts", name="m"),
        one("command", name="c"),
        one("command", name="d"),
        one("boolean", name="b"),
        CardInput("s", "", {"type": "string"}),
        CardInput("o", "", {"type": "object"}),
        one("any", name="a"),
        one("any", name="e"),
    )
    words = [
        "t=7", "n=7", "l=a", "l=b=c", 'm=["x"]', "c=ls -l", 'd=["ls"]', "b=true", "s=plain",
        'o={"a": 1}', "other=1", "a=claude",
        'e={"agent": "codex"}',
    ]  # fmt: skip
    values, told = read_input_words(card, words)
    assert told == {}
    assert values == {
        "t": "7", "n": 7, "l": ["a", "b=c"], "m": ["x"], "c": "ls -l", "d": ["ls"], "b": True,
        "s": "plain", "o": {"a": 1}, "other": "1", "a": "claude",
        "e": {"agent": "codex"},
    }  # fmt: skip


@pytest.mark.parametrize("words", [["n"], ["=3"], ["n=x"], ["n=1", "n=2"]])
def test_words_that_say_nothing_are_refused(words: list[str]) -> None:
    card = card_of(one("integer", name="n"))
    values, told = read_input_words(card, words)
    with pytest.raises(UsageError) as caught:
        bind(card, values, told=told)
    assert caught.value.code == "sop_inputs"


def test_what_is_wrong_with_words_is_told_with_all_else_and_once() -> None:
    card = card_of(*(one("integer", name=name, required=True) for name in "abcd"))
    values, told = read_input_words(card, ["a=1", "a=2", "b=x", "e=1", "c"])
    with pytest.raises(UsageError) as caught:
        bind(card, values, told=told)
    lines = [line.strip() for line in caught.value.message.splitlines()[1:]]
    assert [line[: len("a stands here twice")] for line in lines] == [
        "a stands here twice",
        "b: 'x' is no JSON v",
        "'c' is not NAME=VAL",
        "there is no input '",
        "d is missing (write",
    ]


@pytest.mark.parametrize("word", WORDS)
def test_every_type_word_has_a_sample_that_it_takes(word: str) -> None:
    needed = one(word, required=True)
    assert value_problem(needed, sample_of(needed)) == ""
    assert sample_of(one(word)) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": ["a", "b"]},
        {"const": 4},
        {"type": "integer", "minimum": 3},
        {"type": ["boolean", "null"]},
        {"type": "string"},
        {"type": "object", "examples": [{"a": 1}], "required": ["a"]},
        {},
    ],
)
def test_a_schema_has_a_sample_that_it_takes(schema: dict[str, Any]) -> None:
    needed = CardInput("it", "", schema, required=True)
    assert value_problem(needed, sample_of(needed)) == ""
