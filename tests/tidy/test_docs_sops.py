"""docs/sops.md names every key, type word, route and code of cards, and no others."""

import re
from pathlib import Path

import pytest

from perdure.control import sop_interface, sop_reader
from perdure.control.sop_card import ROUTES
from perdure.control.sop_inputs import WORDS
from perdure.control.sop_problems import RULES_OF

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sops.md").read_text(encoding="utf-8")
ELSEWHERE = {"sop_unknown", "sop_inputs"}


def first_cells(header: str) -> set[str]:
    """The words in backquotes in the first column of the tables with this header."""
    found = set()
    for table in re.findall(rf"^\| {header} \|.*\n\|[ |-]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        for row in table.splitlines():
            found |= set(re.findall(r"`([^`]+)`", row.split("|")[1]))
    return found


def test_every_key_is_described() -> None:
    keys = {*sop_reader.CARD_KEYS, *sop_interface.INPUT_KEYS}
    assert first_cells("key") == keys
    for name in (*sop_reader.KEY_ALIASES, *sop_interface.OUTPUT_KEYS):
        assert f"`{name}`" in PAGE


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("type word", set(WORDS)),
        ("route", set(ROUTES)),
        ("code", {*RULES_OF, *ELSEWHERE} - {"sop_invalid"}),
    ],
)
def test_every_word_of_a_closed_set_is_described(header: str, words: set[str]) -> None:
    assert first_cells(header) == words
