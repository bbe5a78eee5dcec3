"""What a task proposes for the memory store when it is archived (MB-2)."""

from tests.unit.core.story import Story

from perdure.core import commands as c
from perdure.core.proposals import Proposal, proposals_max, propose


def proposed(story: Story) -> dict[str, list[Proposal]]:
    found: dict[str, list[Proposal]] = {}
    for one in propose(story.replica.state, "project:p"):
        found.setdefault(one.kind, []).append(one)
    return found


def check_evidence(story: Story, one: Proposal) -> None:
    """It cites events of this task that are there."""
    assert one.evidence
    for ref in one.evidence:
        task, _, seq = ref.partition("#J-")
        assert task == "T1"
        assert 1 <= int(seq) <= story.replica.state.seq


def test_a_task_in_which_nothing_happened_has_nothing_to_say() -> None:
    story = Story()
    story.add("N1")
    story.finish("N1")
    assert propose(story.replica.state, "project:p") == ()


def test_one_failure_is_an_accident_and_two_alike_are_a_pitfall() -> None:
    story = Story()
    story.add("N1")
    story.start("N1")
    story.fail("N1")
    assert proposed(story) == {}
    story.start("N1")
    story.fail("N1")
    ((pitfall,),) = proposed(story).values()
    assert pitfall.statement.startswith("2 attempts at work of the kind 'title of N1' failed alike")
    assert "exit 3" in pitfall.statement
    assert len(pitfall.evidence) == 2
    check_evidence(story, pitfall)


def test_failures_alike_at_several_nodes_are_one_pitfall() -> None:
    story = Story()
    for name in ("N1", "N2", "N3"):
        story.add(name)
        story.start(name)
        story.fail(name)
    ((pitfall,),) = proposed(story).values()
    assert pitfall.statement.startswith("3 attempts at 3 nodes failed alike")


def test_a_method_that_came_through_is_told_with_the_one_that_had_failed() -> None:
    story = Story()
    story.add("N1")
    story.start("N1")
    story.fail("N1")
    story.do(c.RetryNode("N1", "smaller pieces", method="pieces"))
    story.finish("N1")
    (method,) = proposed(story)["method"]
    assert "'pieces' came through" in method.statement
    check_evidence(story, method)


def test_what_was_given_up_is_told_with_its_reason_and_the_title_as_it_is_written() -> None:
    story = Story()
    story.do(c.AddNode("N1", "Fetch HTTP pages"))
    story.start("N1")
    story.fail("N1", "permanent-spec")
    (given_up,) = proposed(story)["postmortem"]
    assert given_up.statement.startswith("Work of the kind 'Fetch HTTP pages' was given up: exit 3")
    check_evidence(story, given_up)


def steer(story: Story, steering_id: str, text: str, **how: object) -> None:
    before, story.actor = story.actor, "sponsor:ann"
    story.do(c.LogSteering(steering_id, text, **how))  # type: ignore[arg-type]
    story.actor = before
    story.do(c.PropagateSteering(steering_id, text))


def test_what_people_asked_of_all_work_is_a_preference_and_what_of_one_node_is_none() -> None:
    story = Story()
    story.add("N1")
    steer(story, "S-1", "Metric units", reading="amendment")
    steer(story, "S-2", "Shorter", reading="amendment", targets=("N1",))
    steer(story, "S-3", "How far is it?", reading="question")
    (wish,) = proposed(story)["preference"]
    assert wish.statement == "sponsor:ann wanted of all work of one task: 'Metric units'."
    check_evidence(story, wish)


def test_a_policy_that_was_changed_is_told_with_its_reason() -> None:
    story = Story()
    story.actor = "sponsor:ann"
    story.do(c.ChangePolicy("retry_budget", 5, "the service is flaky", "one day"))
    (changed,) = proposed(story)["env"]
    assert "retry_budget was 5 here" in changed.statement
    assert "the service is flaky, measured over one day" in changed.statement
    check_evidence(story, changed)


def test_proposals_are_numbered_bounded_and_the_same_each_time() -> None:
    story = Story()
    for number in range(proposals_max + 5):
        name = f"N{number}"
        story.do(c.AddNode(name, f"kind {number}"))
        story.start(name)
        story.fail(name, "permanent-spec")
    found = propose(story.replica.state, "project:p")
    assert [one.id for one in found] == [f"P-{n}" for n in range(1, proposals_max + 1)]
    assert found == propose(story.replica.state, "project:p")
    assert {one.scope for one in found} == {"project:p"}
