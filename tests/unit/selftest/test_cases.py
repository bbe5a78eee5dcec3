"""The order of the cases."""

from collections.abc import Iterator

from perdure.selftest.cases import Case, Chance, Kind, in_order


def cases(names: str) -> Iterator[Case]:
    return (Case(name, lambda root: None) for name in names)


def test_every_round_has_some_of_each_kind_until_none_is_left() -> None:
    kinds = [Kind("a", cases("12345"), 2), Kind("b", cases("xy"))]
    order = [(number, case.name) for number, _, case in in_order(kinds)]
    assert order == [(0, "1"), (0, "2"), (0, "x"), (1, "3"), (1, "4"), (1, "y"), (2, "5")]


def test_a_dear_kind_comes_in_every_nth_round() -> None:
    kinds = [Kind("a", cases("123456")), Kind("b", cases("xy"), 1, 3)]
    assert "".join(case.name for _, _, case in in_order(kinds)) == "1x234y56"


def test_the_same_seed_and_name_choose_the_same() -> None:
    things = list(range(100))
    first = Chance(1).named("x").shuffled(things)
    assert first == Chance(1).named("x").shuffled(things)
    assert sorted(first) == things
    assert first != Chance(2).named("x").shuffled(things)
    assert first != Chance(1).named("y").shuffled(things)
