"""What was used against what may be used."""

from perdure.core.budget import budget_of, over_budget
from perdure.core.dispatching import Usage
from perdure.core.grants import grants_of
from perdure.core.model import Budget, Node, Spec

BUDGET = Budget(max_wall_s=60.0, max_tool_calls=10, max_cost_usd=0.5, max_tokens=1_000)


def test_what_nobody_measured_is_never_over() -> None:
    assert over_budget(BUDGET, None) == ""
    assert over_budget(BUDGET, Usage()) == ""
    assert over_budget(Budget(), Usage(9e9, 10**9, 10**9, 9e9)) == ""


def test_the_limit_itself_is_not_over() -> None:
    assert over_budget(BUDGET, Usage(60.0, 10, 1_000, 0.5)) == ""


def test_everything_that_is_over_is_named_by_its_limit() -> None:
    assert over_budget(BUDGET, Usage(cost_usd=0.51)) == "budget spent: 0.5 USD"
    found = over_budget(BUDGET, Usage(61.0, 11, 1_001, 0.51))
    assert found == "budget spent: 60 s of wall time, 10 tool calls, 1000 tokens, 0.5 USD"
    assert found == over_budget(BUDGET, Usage(99.0, 99, 9_999, 9.9))


def test_of_budget_and_grants_to_spend_the_least_counts() -> None:
    granted = ("spend:max_usd=5", "spend:max_usd=2", "what others wrote")
    assert budget_of(Node("N1", "first", Spec(grants=granted))) == Budget(max_cost_usd=2.0)
    for own, least in ((1.0, 1.0), (9.0, 2.0)):
        spec = Spec(budget=Budget(max_tokens=7, max_cost_usd=own), grants=granted)
        node = Node("N1", "first", spec)
        assert budget_of(node) == Budget(max_tokens=7, max_cost_usd=least)
        assert [g for g in grants_of(node) if g.startswith("spend:")] == [
            f"spend:max_usd={least:g}"
        ]
    assert budget_of(Node("N1", "first", Spec())) == Budget()
