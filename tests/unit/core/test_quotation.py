"""Names and blocks of code: text of others that stays a text. Spans are tested with SUMMARY.md."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jobs.test_summary import HOSTILE, MARKDOWN

from perdure.core.quotation import block, block_columns, named


def rows(text: str, **limits: int) -> list[str]:
    return block(text, **{"chars_max": 1_000, "rows_max": 100, **limits}).rows


@pytest.mark.parametrize("name", ["Q-001", "N-042.3", "sponsor:anna", "a@b.org", "G_x", "7"])
def test_a_name_is_shown_as_it_is(name: str) -> None:
    assert named(name) == f"`{name}`"


@pytest.mark.parametrize("name", ["", " ", "a b", "`", "*a*", "<b>", "a\nb", "x" * 200, "-"])
def test_anything_else_is_quoted(name: str) -> None:
    shown = named(name)
    assert shown[1] == '"'
    assert shown.count("`") == 2
    assert len(shown) < 80


def test_lines_stay_lines() -> None:
    assert rows("one\n  two\r\nthree\rfour\n\nfive") == [
        "    one", "      two", "    three", "    four", "    ", "    five",
    ]  # fmt: skip


def test_a_long_line_goes_on_in_the_next_row() -> None:
    shown = rows("word " * 60)
    assert max(map(len, shown)) <= block_columns + 4
    assert " ".join(" ".join(shown).split()) == ("word " * 60).strip()
    assert len(rows("x" * 500)) == -(-500 // block_columns)


def test_what_is_cut_is_said() -> None:
    assert block("x" * 10, chars_max=10, rows_max=1).is_whole
    assert not block("x" * 11, chars_max=10, rows_max=1).is_whole
    assert not block("a\nb", chars_max=10, rows_max=1).is_whole
    assert block("a\nb", chars_max=10, rows_max=1).rows == ["    a"]
    assert block("a\n\n\n", chars_max=10, rows_max=1).is_whole


def test_nothing_is_still_a_block() -> None:
    for text in ("", " ", "\n\n", "\x0b"):
        assert rows(text) == ['    ""']


def test_what_is_not_seen_is_shown() -> None:
    assert rows("\x1b[2Ja\u202eb\u200bc\ufe0fd") == ["    \\u001b[2Ja\\u202eb\\u200bc\\ufe0fd"]
    assert rows("a\tb\u00a0c\u2028d\x85e") == ["    a   b c d e"]


def parsed(text: str) -> list[tuple[str, int]]:
    page = "\n".join(["# Head", "", "Asked:", "", *rows(text), "", "Settle it:", ""])
    return [(token.type, token.level) for token in MARKDOWN.parse(page)]


HARMLESS = parsed("harmless")


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:24]))
def test_no_text_leaves_its_block(text: str) -> None:
    assert parsed(text) == HARMLESS


@given(st.text(max_size=200))
def test_no_text_whatsoever_leaves_its_block(text: str) -> None:
    assert parsed(text) == HARMLESS
    data = "\n".join(rows(text))
    assert data.splitlines() == data.split("\n")
