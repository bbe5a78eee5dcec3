"""The mode that the journal says is the one that the ends of work come to (PD-H1)."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.story import ME, Story, replay

from perdure.core import commands as c
from perdure.core import dispatch_commands as d
from perdure.core.dispatching import DEATH_MODES, Death, Usage
from perdure.core.health import WALLS, Resolution, health_view, mode_due, resolved
from perdure.core.model import MapSpec, Policies

POLICIES = Policies()
ENDS = st.tuples(
    st.sampled_from(["landed", *DEATH_MODES, "recalled"]),
    st.booleans(),
    st.sampled_from(["", "", "network", "quota", "missing_program"]),
)
STEPS = st.lists(
    st.one_of(
        ENDS,
        st.sampled_from(["probe", "A", "B", "C"]),
        st.sampled_from(["node landed", "node died", "node interrupted"]),
    ),
    max_size=30,
)


def step(story: Story, number: int, what: object) -> Resolution | None:
    """Carry out one step; what it resolves, by what was asked for and not by what was folded."""
    if isinstance(what, tuple):
        end, first, cause = what
        invocation = f"inv-{number}"
        if story.replica.state.health.mode == "C" and not story.replica.state.health.probing:
            return None
        story.do(d.OpenSlot("B", invocation, "ab" * 32, "executor:w", 2))
        landed = 2 if end == "landed" else 0
        story.do(d.CloseSlot(invocation, end, landed, 2 - landed, first, cause, "seen"))
        if end == "recalled":
            return None
        return Resolution() if landed else Resolution(first, cause in WALLS, end)
    if what == "probe":
        if story.replica.state.health.mode == "C" and not story.replica.state.health.by_hand:
            story.do(d.ChangeMode("C", "it passed", probing=True))
        return None
    if what in ("A", "B", "C"):
        story.do(d.ChangeMode(what, "by hand"))  # type: ignore[arg-type]
        return None
    name = f"N{number}"
    story.add(name)
    story.start(name, executor=ME)
    if what == "node landed":
        story.do(c.MoveNode(name, "VERIFYING", payload={"usage": Usage(tokens=3)}))
        return Resolution()
    if what == "node died":
        story.fail(name, death=Death("killed", first=True), usage=Usage(tokens=4))
        return Resolution(True, False, "killed")
    story.fail(name, interruption=True)
    return None


@given(STEPS)
def test_the_fold_has_the_mode_that_health_computes(steps: list[object]) -> None:
    story = Story()
    story.add("B", map=MapSpec(("tool",), list=("a", "b"), shard=2))
    story.start("B")
    for number, what in enumerate(steps):
        before = story.replica.state.health
        events_before = story.replica.state.seq
        end = step(story, number, what)
        after = story.replica.state.health
        if end is None:
            continue
        expected = resolved(before, POLICIES, end)
        change = mode_due(before, POLICIES, end)
        assert after.mode == (change.mode if change is not None else before.mode)
        assert after.deaths == expected.deaths
        cleared = change is not None and change.clear_window
        assert after.window == (() if cleared else expected.window)
        assert story.replica.state.seq > events_before
    assert replay(story.journal)[0].state == story.replica.state
    assert health_view(story.replica.state)["dispatch_mode"] == story.replica.state.health.mode
