"""Changes of a spec as they are typed: ``FIELD=VALUE``."""

import pytest

from perdure.errors import UsageError
from perdure.interfaces.cli.changes import changes_of


def test_what_is_typed_as_text_stays_text_and_lists_gather() -> None:
    given = ["goal=7", "run=make all", "constraints=a", "constraints=b", "cost=2.5", "draft=false"]
    assert changes_of(given) == {
        "goal": "7",
        "run": "make all",
        "constraints": ["a", "b"],
        "cost": 2.5,
        "draft": False,
    }


def test_values_that_are_no_json_stay_what_they_are() -> None:
    assert changes_of(['env={"A": "1"}', "retry-budget=x", "outputs=none"]) == {
        "env": {"A": "1"},
        "retry_budget": "x",
        "outputs": "none",
    }
    assert changes_of(["goal=a=b"]) == {"goal": "a=b"}
    assert changes_of([]) == {}


@pytest.mark.parametrize(
    "given", [["goal"], ["=x"], [" = x"], ["goal=a", "goal=b"], ["cost=1", "cost=1"]]
)
def test_what_sets_nothing_or_twice_is_refused(given: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        changes_of(given)
    assert caught.value.code == "bad_setting"
