"""Whatever the values of inputs are, they stand where the card says, whole, and nowhere else."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.control.sop_graph import instance_plan
from perdure.control.sop_inputs import bind_inputs
from perdure.control.sop_reader import load_card
from perdure.control.sop_values import fill, tree_of
from perdure.control.taskfile_tree import Place, plain_value
from perdure.core.model import FAILURE_CLASSES

CARD = load_card(
    "card.yaml",
    (
        "sop_id: a.b\nversion: 1.0.0\n"
        "inputs: [{name: one, required: true}, {name: many, schema: texts, required: true},"
        " {name: free, schema: any}]\n"
        f"escalation: {{{', '.join(f'{name}: ask_user' for name in FAILURE_CLASSES)}}}\n"
        "phases: [intake, plan, work: [{id: a, run: [x, '{{one}}', '-t={{one}}', '{{many}}'],"
        " env: {E: '{{one}}'}, goal: 'About {{ one }}.', python: '{{free}}'}], verify, report]\n"
    ).encode(),
)

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
values = words.filter(str.strip)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values, st.lists(values, max_size=4))
def test_a_value_stays_the_one_word_that_it_is(one: str, many: list[str]) -> None:
    bound = bind_inputs(CARD, {"one": one, "many": many}, directory="/d")
    (node,) = instance_plan(CARD, bound, task_id="t", workspace="/w").task.nodes
    assert node.spec.run == ("x", one, f"-t={one}", *many)
    assert node.spec.env["E"] == one
    assert node.spec.goal == f"About {one}."
    fits = len(one.encode()) <= 1_024
    assert node.spec.env["PERDURE_INPUT_ONE"] == (one if fits else "")
    assert not fits or json.loads(node.spec.env["PERDURE_INPUT_MANY"] or "[]") in (many, [])


@given(json_values)
def test_a_json_value_comes_through_a_tree_as_it_is(value: Any) -> None:
    tree = tree_of(value, Place(1, 1))
    assert plain_value(tree) == value


@given(st.text())
def test_a_value_is_not_looked_into_again(text: str) -> None:
    place = Place(1, 1)
    filled = fill(tree_of({"a": "x{{one}}y"}, place), {"one": text})
    assert filled is not None
    assert plain_value(filled) == {"a": f"x{text}y"}
