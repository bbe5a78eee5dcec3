"""Finding things by the names people type."""

import pytest
from tests.unit.core.story import Story

from perdure.core.lookup import artifact_of, complete, near, node_of
from perdure.errors import NotFoundError, UsageError


def story() -> Story:
    told = Story()
    for name in ("build", "build-2", "deploy"):
        told.add(name)
    told.start("build")
    told.register("build", "A-build")
    return told


def test_an_exact_name_is_found_also_when_it_is_a_prefix_of_another() -> None:
    assert node_of(story().replica.state, "build").node_id == "build"
    assert complete("build", ["build", "build-2"], "node") == "build"


def test_a_unique_prefix_is_completed() -> None:
    assert complete("dep", story().replica.state.nodes, "node") == "deploy"


def test_a_prefix_of_several_is_not_guessed() -> None:
    with pytest.raises(UsageError) as caught:
        complete("W1", ["W10", "W1.2", "W100", "X"], "node")
    assert caught.value.code == "ambiguous_id"
    assert caught.value.suggestions == ["W1.2", "W10", "W100"]


def test_nothing_typed_is_no_prefix_of_everything() -> None:
    with pytest.raises(NotFoundError):
        complete("", ["only"], "node")


def test_an_unknown_name_comes_with_what_was_probably_meant() -> None:
    state = story().replica.state
    for ask in (lambda: node_of(state, "biuld"), lambda: complete("biuld", state.nodes, "node")):
        with pytest.raises(NotFoundError) as caught:
            ask()
        assert caught.value.code == "unknown_node"
        assert caught.value.suggestions == ["build"]
        assert "Did you mean build?" in str(caught.value)
    with pytest.raises(NotFoundError) as caught:
        artifact_of(state, "A-biuld")
    assert (caught.value.code, caught.value.suggestions) == ("unknown_artifact", ["A-build"])


def test_what_is_far_from_everything_has_no_suggestion() -> None:
    assert near("quartz", ["build", "deploy"]) == []
    assert near("", ["a"]) == ["a"]
    assert near("x", []) == []


def test_suggestions_are_the_nearest_first_then_by_number_and_at_most_three() -> None:
    assert near("node-1", ["node-12", "node-2", "node-10", "nodes-1"]) == [
        "node-2",
        "node-10",
        "node-12",
    ]


def test_a_swap_of_neighbours_is_one_slip() -> None:
    assert near("ab", ["ba"]) == ["ba"]
    assert near("READ", ["READY", "DONE"]) == ["READY"]
