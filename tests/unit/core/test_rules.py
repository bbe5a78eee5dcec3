"""Every rule that perdure cites can be explained."""

import re
from pathlib import Path

import pytest

import perdure
from perdure.core.machine import NODE_EDGES, TASK_EDGES
from perdure.core.rules import RULES, explain_rule, meaning_of, rule_ids
from perdure.errors import NotFoundError

SOURCE = Path(perdure.__file__).parent
CITED = sorted(
    {
        match[1]
        for path in SOURCE.rglob("*.py")
        for match in re.finditer(r'\brule ?= ?"([^"]+)"', path.read_text(encoding="utf-8"))
    }
)


def test_errors_cite_rules() -> None:
    assert {"AR-1", "AR-3", "PD-J1", "FSN-1", "lease"} <= set(CITED)


@pytest.mark.parametrize("rule", CITED)
def test_a_rule_that_an_error_cites_is_explained(rule: str) -> None:
    assert explain_rule(rule)["meaning"]


def test_every_edge_is_explained_from_its_row() -> None:
    for edge in NODE_EDGES:
        assert edge.meaning in meaning_of(edge.id)
        assert edge.target in meaning_of(edge.id)
    for row in TASK_EDGES:
        assert meaning_of(row.id) == f"{row.source} -> {row.target}: {row.meaning}."
    assert {f"N{number:02d}" for number in range(1, 16)} <= set(rule_ids())
    assert {f"T{number:02d}" for number in range(1, 13)} <= set(rule_ids())


def test_a_meaning_is_one_sentence_of_one_line() -> None:
    for text in RULES.values():
        assert text.endswith(".")
        assert "\n" not in text
        assert len(text) <= 90


def test_case_does_not_matter_and_a_slip_is_suggested() -> None:
    assert explain_rule("ar-3") == explain_rule("AR-3")
    with pytest.raises(NotFoundError) as caught:
        explain_rule("AR3")
    assert caught.value.suggestions[0] == "AR-3"
