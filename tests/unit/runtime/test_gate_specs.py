"""Gates as callers write them: what is made of them, and what is refused."""

from typing import Any

import pytest

from perdure.core.people import Gate
from perdure.errors import HaltError, UsageError
from perdure.runtime.specs import make_spec


def gates(*given: Any) -> tuple[Gate, ...]:
    return make_spec("N1", None, {"gates": list(given)}).gates


def test_a_text_is_a_question_before_the_node_is_done() -> None:
    assert gates("May it go out?") == (Gate("G-N1-review", "done", "May it go out?"),)
    assert make_spec("N1", None, {"gates": "May it go out?"}).gates == gates("May it go out?")


def test_a_mapping_names_what_it_wants_and_gets_an_id() -> None:
    entry = {"blocks": "start", "gatekeeper": "anna", "content": ["./a//b.md", "a/b.md"]}
    (gate,) = gates(entry)
    assert gate == Gate("G-N1-start", "start", gatekeeper=("anna",), content=("a/b.md",))
    assert gates(gate) == (gate,)
    assert gates({**entry, "gate_id": "G-mine"})[0].gate_id == "G-mine"


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"qestion": "x"}, "bad_gate"),
        ({"blocks": "middle"}, "bad_gate"),
        ({"content": ["../x"]}, "path_refused"),
        ({"fallback": "approve"}, "bad_gate"),
        (7, "bad_gate"),
        (None, "bad_gate"),
    ],
)
def test_a_gate_that_could_not_be_kept_is_refused(entry: object, code: str) -> None:
    with pytest.raises(HaltError) as caught:
        gates(entry)
    assert caught.value.code == code


def test_a_misspelt_field_of_a_gate_is_refused_with_the_right_one() -> None:
    with pytest.raises(UsageError) as caught:
        gates({"qestion": "x"})
    assert caught.value.suggestions == ["question"]
