"""The edits of ``make crash-mutants`` find their places, and the tests they are for are there.

Whether those tests notice them takes minutes to find out and is not tried here.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch) -> Sequence[Any]:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "crash"))
    found: Sequence[Any] = import_module("mutants").ALL
    return found


def test_each_edit_has_one_place(mutants: Sequence[Any]) -> None:
    lost = []
    for mutant in mutants:
        file = ROOT / "src" / "perdure" / mutant.file
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        if text.count(mutant.old) != 1:
            lost.append(f"{mutant.name}: {text.count(mutant.old)} times in {mutant.file}")
    assert lost == []


def test_each_has_a_name_of_its_own_and_tests_that_are_there(mutants: Sequence[Any]) -> None:
    assert len({mutant.name for mutant in mutants}) == len(mutants) > 100
    assert {test for m in mutants for test in m.tests if not (ROOT / test).exists()} == set()
