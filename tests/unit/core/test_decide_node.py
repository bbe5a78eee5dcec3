"""Decisions about nodes: the graph, each edge, how attempts end, and who may go on."""

from typing import Any

import msgspec
import pytest
from tests.unit.core.story import ME, Story
from tests.unit.core.test_decide import refusal
from tests.unit.core.test_machine import LEGAL

from perdure.core import commands as c
from perdure.core.model import FAILURE_CLASSES, NODE_STATES, Spec, title_chars_max
from perdure.errors import NotFoundError, RefusedError, TransitionError, UsageError


def edges(story: Story, node_id: str) -> list[str]:
    """The edges this node has taken."""
    return [
        event.payload["edge"]
        for event in story.events()
        if event.kind == "STATE_TRANSITION" and event.entity.id == node_id
    ]


# The graph


def test_a_node_is_one_amendment_that_holds_all_of_it() -> None:
    story = Story()
    story.add("N1")
    (event,) = story.do(
        c.AddNode("N2", "second", ("N1", "N1"), Spec(outputs=("a.txt",)), priority=3)
    )
    assert event.kind == "AMENDMENT"
    assert (event.payload["op"], event.payload["target"]) == ("add_node", "N2")
    node = story.node("N2")
    assert (node.deps, node.priority, node.spec.outputs) == (("N1",), 3, ("a.txt",))


@pytest.mark.parametrize("node_id", ["", "old", "registry.json", "a/b", ".x", "x" * 65, "a b"])
def test_a_bad_node_id_is_refused(node_id: str) -> None:
    assert refusal(Story(), c.AddNode(node_id, "x")).code == "bad_id"


def test_an_id_is_used_once() -> None:
    story = Story()
    story.bring_to("N1", "CANCELLED")
    error = refusal(story, c.AddNode("N1", "again"))
    assert (error.code, error.rule) == ("duplicate_id", "TG-3")


@pytest.mark.parametrize("title", ["", " ", "x" * (title_chars_max + 1)])
def test_a_title_says_something_and_is_short(title: str) -> None:
    assert refusal(Story(), c.AddNode("N1", title)).code == "bad_title"
    story = Story()
    story.add("N1")
    assert refusal(story, c.AmendNode("N1", {"title": title}, "so")).code == "bad_title"


def test_deps_exist_and_are_not_the_node_itself() -> None:
    story = Story()
    story.add("N1")
    error = refusal(story, c.AddNode("N2", "x", ("N11",)))
    assert isinstance(error, NotFoundError)
    assert error.suggestions == ["N1"]
    assert refusal(story, c.AddNode("N2", "x", ("N2",))).code == "cyclic_deps"


@pytest.mark.parametrize(
    "fields",
    [{"priority": "high"}, {"verification_level": "V9"}, {"effect": "S7"}, {"resume_policy": "x"},
     {"spec": Spec(cost=float("inf"))}, {"spec": Spec(cost=float("nan"))},
     {"spec": Spec(env={"A": 1})}, {"title": 7}, {"priority": 1.5}],  # type: ignore[dict-item]
)  # fmt: skip
def test_what_could_not_be_read_back_is_not_written(fields: dict[str, Any]) -> None:
    story = Story()
    title = fields.pop("title", "x")
    with pytest.raises((UsageError, AttributeError)):
        story.decide(c.AddNode("N1", title, **fields))


def test_a_new_node_reopens_a_finished_task() -> None:
    story = Story()
    story.bring_to("N1", "CANCELLED")
    story.do(c.MoveTask("FINAL_AUDIT"))
    events = story.do(c.AddNode("N2", "a defect"))
    assert [event.kind for event in events] == ["STATE_TRANSITION", "AMENDMENT"]
    assert story.replica.state.fsm_task == "DECOMPOSING"


# Amending


@pytest.mark.parametrize("state", NODE_STATES)
def test_a_spec_is_frozen_at_work_and_once_closed(state: str) -> None:
    story = Story()
    story.bring_to("N1", state)
    command = c.AmendNode("N1", {"priority": 7}, "so")
    if state in ("PENDING", "READY", "RETRYABLE", "BLOCKED"):
        story.do(command)
        assert story.node("N1").priority == 7
    else:
        assert refusal(story, command).rule == "TG-1"


def test_an_amendment_says_what_was_before_and_why() -> None:
    story = Story()
    story.add("N1")
    (event,) = story.do(c.AmendNode("N1", {"priority": 7, "title": "new"}, "it is urgent"))
    assert event.payload["before"] == {"priority": 0, "title": "title of N1"}
    assert event.payload["after"] == {"priority": 7, "title": "new"}
    assert event.payload["reason"] == "it is urgent"


def test_unknown_fields_are_refused_with_a_suggestion() -> None:
    story = Story()
    story.add("N1")
    error = refusal(story, c.AmendNode("N1", {"prioritty": 7}, "so"))
    assert (error.code, error.suggestions) == ("unknown_field", ["priority"])
    assert refusal(story, c.AmendNode("N1", {"state": "DONE"}, "so")).code == "unknown_field"


@pytest.mark.parametrize(
    "after", [{"priority": "high"}, {"effect": "S9"}, {"spec": {"cost": "much"}}, {"spec": 3}]
)
def test_an_amendment_that_could_not_be_read_back_is_refused(after: dict[str, Any]) -> None:
    story = Story()
    story.add("N1")
    assert refusal(story, c.AmendNode("N1", after, "so")).code == "bad_spec"


def test_an_amendment_never_makes_a_cycle() -> None:
    story = Story()
    story.add("N1")
    story.add("N2", "N1")
    story.add("N3", "N2")
    error = refusal(story, c.AmendNode("N1", {"deps": ["N3"]}, "so"))
    assert (error.code, error.rule) == ("cyclic_deps", "D4")
    assert "N1 -> N3 -> N2 -> N1" in error.message


def test_deps_given_twice_still_count_once() -> None:
    story = Story()
    story.add("N1")
    story.add("N2")
    story.do(c.AmendNode("N2", {"deps": ["N1", "N1"]}, "so"))
    assert (story.node("N2").deps, story.replica.dependents["N1"]) == (("N1",), ["N2"])
    story.finish("N1")
    assert story.state_of("N2") == "READY"


# Moving


@pytest.mark.parametrize("source", NODE_STATES)
@pytest.mark.parametrize("target", NODE_STATES)
def test_an_illegal_move_says_what_is_possible(source: str, target: str) -> None:
    if (source, target) in LEGAL or (source, target) in (
        ("READY", "READY"),
        ("PENDING", "RUNNING"),
    ):
        return
    story = Story()
    story.bring_to("N1", source)
    error = refusal(story, c.MoveNode("N1", target, ("J-1",)))
    assert isinstance(error, TransitionError)
    assert error.fix


def test_an_unknown_state_or_node_is_refused_with_a_suggestion() -> None:
    story = Story()
    story.add("N1")
    error = refusal(story, c.MoveNode("N1", "REDY"))
    assert (error.code, error.suggestions) == ("unknown_state", ["READY"])
    assert refusal(story, c.MoveNode("N2", "READY")).code == "unknown_node"


def test_asking_for_ready_again_is_answered_with_the_event_that_made_it_so() -> None:
    story = Story()
    story.add("N1")
    (event,) = story.do(c.MoveNode("N1", "READY"))
    assert story.decide(c.MoveNode("N1", "READY")) == c.Decision(answer=event.ref)


def test_a_payload_cannot_change_what_the_move_is() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    forged = {"from": "VERIFYING", "to": "DONE", "edge": "N06"}
    (event,) = story.do(c.MoveNode("N1", "VERIFYING", payload=forged))
    assert [event.payload[key] for key in ("from", "to", "edge")] == ["RUNNING", "VERIFYING", "N03"]
    assert story.state_of("N1") == "VERIFYING"


def test_a_start_without_a_contract_is_refused() -> None:
    story = Story()
    story.add("N1")
    assert refusal(story, c.MoveNode("N1", "RUNNING")).rule == "N02"


def test_a_start_from_pending_takes_both_edges_in_one_commit() -> None:
    story = Story()
    story.add("N1")
    first, second = story.start("N1")
    assert (first.payload["edge"], second.payload["edge"]) == ("N01", "N02")
    assert second.payload["contract"] == "contracts/inv-N1-1.json"
    assert second.payload["executor"]["pid"] == ME.pid
    assert second.evidence == ["contracts/inv-N1-1.json"]
    assert first.tx == second.tx is not None


def test_a_node_has_one_executor_at_a_time() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    contract = c.IssuedContract("inv-2", "ab" * 32, ME, None, {})
    error = refusal(story, c.MoveNode("N1", "RUNNING", contract=contract))
    assert (error.code, error.rule) == ("already_running", "FSN-2")
    assert ME.actor in error.message


def test_nothing_starts_in_a_suspended_task() -> None:
    story = Story()
    story.add("N1")
    story.do(c.MoveTask("SUSPENDED"))
    contract = c.IssuedContract("inv-2", "ab" * 32, ME, None, {})
    error = refusal(story, c.MoveNode("N1", "RUNNING", contract=contract))
    assert (error.rule, "resume" in error.fix) == ("FST-1", True)


@pytest.mark.parametrize(
    ("source", "target"),
    [("RUNNING", "BLOCKED"), ("BLOCKED", "READY"), ("BLOCKED", "CANCELLED"),
     ("RETRYABLE", "READY"), ("READY", "QUARANTINED"), ("VERIFYING", "RETRYABLE"),
     ("VERIFYING", "QUARANTINED"), ("PENDING", "CANCELLED")],
)  # fmt: skip
def test_a_move_without_what_it_must_carry_is_refused_and_told_what(
    source: str, target: str
) -> None:
    story = Story()
    story.bring_to("N1", source)
    error = refusal(story, c.MoveNode("N1", target))
    assert error.code == "missing_payload"
    assert "=..." in error.fix


# Ending an attempt


def test_a_passing_verdict_wakes_exactly_the_dependents_that_waited_for_it_alone() -> None:
    story = Story()
    story.add("N1")
    story.add("N2")
    for name, deps in {"A": ("N1",), "B": ("N1", "N2"), "C": ("N2",)}.items():
        story.add(name, *deps)
    events = story.finish("N1")
    assert [(e.entity.id, e.payload["edge"]) for e in events] == [("N1", "N06"), ("A", "N01")]
    assert [story.state_of(name) for name in "ABC"] == ["READY", "PENDING", "PENDING"]
    assert [e.entity.id for e in story.finish("N2")] == ["N2", "B", "C"]


def test_a_claim_changes_nothing_else() -> None:
    story = Story()
    story.add("N1")
    story.add("N2", "N1")
    story.start("N1")
    story.register("N1", "A-1")
    story.claim("N1")
    assert (story.state_of("N2"), story.node("N1").artifacts) == ("PENDING", ("A-1",))


def test_saying_done_is_not_being_done() -> None:
    story = Story()
    story.bring_to("N1", "VERIFYING")
    error = refusal(story, c.MoveNode("N1", "DONE", ("A-N1",)))
    assert (error.code, error.rule) == ("evidence_missing", "PD-J1")


def test_a_verdict_is_recorded_itemised_with_what_it_rests_on() -> None:
    story = Story()
    story.bring_to("N1", "VERIFYING")
    (done,) = story.conclude("N1")
    assert done.payload["verifier"] == "verifier:v1"
    assert done.payload["checks"] == [{"passed": True}]
    assert done.payload["artifacts"] == {"A-N1": "ab" * 32}
    assert done.evidence == ["A-N1"]


def test_a_failing_verdict_can_be_redone_until_it_is_out_of_strikes() -> None:
    story = Story()
    story.add("N1")
    for attempt in (1, 2, 3):
        story.start("N1")
        story.register("N1", f"A-{attempt}")
        story.claim("N1")
        story.conclude("N1", passed=False)
    assert edges(story, "N1") == [
        *("N01", "N02", "N03", "N07"),
        *("N11", "N03", "N07"),
        *("N11", "N03", "N08"),
    ]
    assert story.node("N1").artifacts == ()
    statuses = {artifact.status for artifact in story.replica.state.artifacts.values()}
    assert statuses == {"quarantined"}
    assert len(story.moves) == 3


def test_a_caller_cannot_call_a_failed_verification_an_interruption() -> None:
    story = Story()
    story.bring_to("N1", "VERIFYING")
    payload = {"diagnosis": "wrong", "interruption": True}
    story.do(c.MoveNode("N1", "RETRYABLE", payload=payload))
    assert (story.node("N1").strikes, story.node("N1").interruptions) == (1, 0)


@pytest.mark.parametrize("kind", FAILURE_CLASSES)
def test_the_class_of_a_failure_decides_where_it_leads(kind: str) -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.register("N1", "A-1")
    story.fail("N1", kind)
    leads = {"permanent-spec": "QUARANTINED", "permanent-resource": "BLOCKED"}
    assert story.state_of("N1") == leads.get(kind, "RETRYABLE")
    assert story.replica.state.artifacts["A-1"].status == "quarantined"
    assert story.replica.state.contracts == {}
    asked = [question.node for question in story.replica.state.questions.values()]
    assert asked == (["N1"] if kind.startswith("permanent-") else [])


def test_a_spec_that_cannot_work_takes_three_edges_in_one_commit() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    events = story.fail("N1", "permanent-spec")
    assert edges(story, "N1")[-3:] == ["N04", "N12", "N13"]
    assert len({event.tx for event in events}) == 1
    assert len(story.replica.state.questions) == 1


def test_a_spec_that_cannot_work_cites_its_replan_and_asks_what_replaces_it() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.add("N2", "N1")
    story.register("N1", "A-1")  # quarantined in the same commit, in front of N04
    events = story.fail("N1", "permanent-spec")
    replan = next(event for event in events if event.payload.get("op") == "replan")
    replanned = next(event for event in events if event.payload.get("edge") == "N12")
    assert replanned.payload["amendment"] == replan.ref
    (question,) = story.replica.state.questions.values()
    assert (question.node, "What replaces it?" in question.text) == ("N1", True)
    story.add("N1b", successor_of="N1")
    assert story.replica.state.questions == {}
    assert story.node("N2").deps == ("N1b",)


def test_a_failure_names_a_known_class_and_what_was_seen() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    error = refusal(story, c.FailNode("N1", "transient-agnet", "exit 3"))
    assert (error.code, error.suggestions) == ("missing_payload", ["transient-agent"])
    assert refusal(story, c.FailNode("N1", "transient-agent", " ")).code == "missing_payload"


@pytest.mark.parametrize("state", [s for s in NODE_STATES if s != "RUNNING"])
def test_only_an_attempt_under_way_can_fail(state: str) -> None:
    story = Story()
    story.bring_to("N1", state)
    assert isinstance(refusal(story, c.FailNode("N1", "transient-agent", "x")), TransitionError)


def fail_three_times(story: Story) -> None:
    story.add("N1")
    for _ in range(3):
        story.start("N1")
        story.fail("N1")


def test_a_fourth_identical_try_is_refused_and_a_person_is_asked() -> None:
    story = Story()
    fail_three_times(story)
    assert [question.node for question in story.replica.state.questions.values()] == ["N1"]
    contract = c.IssuedContract("inv-4", "ab" * 32, ME, None, {})
    error = refusal(story, c.MoveNode("N1", "RUNNING", contract=contract))
    assert error.rule == "N11"
    assert "FSN-3" in error.message
    assert refusal(story, c.RetryNode("N1", "once more")).rule == "FSN-3"


def test_retrying_by_the_same_method_buys_no_more_tries() -> None:
    story = Story()
    story.add("N1")
    for _ in range(2):
        story.start("N1")
        story.fail("N1")
        story.do(c.RetryNode("N1", "again"))
    story.start("N1")
    story.fail("N1")
    assert refusal(story, c.RetryNode("N1", "again")).rule == "FSN-3"


def test_replanning_without_an_amendment_buys_no_more_tries() -> None:
    story = Story()
    fail_three_times(story)
    error = refusal(story, c.MoveNode("N1", "READY", payload={"amendment": "J-1"}))
    assert error.rule == "N12"


def test_another_method_may_go_on_and_the_question_is_answered() -> None:
    story = Story()
    fail_three_times(story)
    story.do(c.RetryNode("N1", "by hand then", "by hand"))
    assert story.replica.state.questions == {}
    story.start("N1")
    assert story.node("N1").attempts == 4


def test_a_method_that_was_used_up_before_stays_used_up() -> None:
    story = Story()
    fail_three_times(story)  # method "default"
    story.do(c.RetryNode("N1", "otherwise", "by hand"))
    story.start("N1")
    story.fail("N1")
    assert refusal(story, c.RetryNode("N1", "as at first", "default")).rule == "FSN-3"
    assert story.node("N1").method == "by hand"


def test_a_used_up_method_does_not_come_back_through_blocked() -> None:
    story = Story()
    fail_three_times(story)
    story.do(c.RetryNode("N1", "otherwise", "by hand"))
    story.start("N1")
    story.fail("N1", "permanent-resource")
    assert refusal(story, c.RetryNode("N1", "as at first", "default")).rule == "FSN-3"
    story.do(c.RetryNode("N1", "the disk has space again"))
    assert (story.state_of("N1"), story.node("N1").method) == ("READY", "by hand")


def test_strikes_of_a_method_are_kept_while_another_is_tried() -> None:
    story = Story()
    story.add("N1")
    for method in ("a", "b", "a", "b", "a"):
        story.start("N1")
        story.fail("N1")
        story.do(c.RetryNode("N1", "next", method))
    # One strike as "default", then one each as a, b, a, b.
    assert story.node("N1").strikes_by_method == {"default": 1, "a": 2, "b": 2}
    assert (story.node("N1").method, story.node("N1").method_strikes) == ("a", 2)
    story.start("N1")
    story.fail("N1")
    assert refusal(story, c.RetryNode("N1", "next", "a")).rule == "FSN-3"


def test_another_spec_makes_a_failed_node_ready_and_gives_new_tries() -> None:
    story = Story()
    fail_three_times(story)
    spec = msgspec.to_builtins(Spec(goal="another way"))
    amended, moved = story.do(c.AmendNode("N1", {"spec": spec}, "it was wrong"))
    assert (moved.payload["edge"], moved.payload["amendment"]) == ("N12", amended.ref)
    assert (story.state_of("N1"), story.node("N1").strikes) == ("READY", 3)
    assert (story.node("N1").method_strikes, story.node("N1").strikes_by_method) == (0, {})
    assert story.replica.state.questions == {}
    for _ in range(3):
        story.start("N1")
        story.fail("N1")
    assert len(story.replica.state.questions) == 1


def test_another_title_is_no_other_spec_and_buys_no_more_tries() -> None:
    story = Story()
    fail_three_times(story)
    (amended,) = story.do(c.AmendNode("N1", {"title": "once more"}, "nicer"))
    assert story.state_of("N1") == "RETRYABLE"
    error = refusal(story, c.MoveNode("N1", "READY", (amended.ref,)))
    assert (error.rule, "FSN-3" in error.message) == ("N12", True)


def test_another_spec_does_not_answer_for_the_person_that_a_blocked_node_waits_for() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.fail("N1", "permanent-resource")
    story.do(c.AmendNode("N1", {"spec": {"goal": "another way"}}, "clearer"))
    assert story.state_of("N1") == "BLOCKED"
    assert [question.node for question in story.replica.state.questions.values()] == ["N1"]


def test_a_node_without_retries_starts_again_after_an_interruption_only() -> None:
    story = Story()
    story.add("N1", retry_budget=0)
    story.start("N1")
    story.fail("N1", interruption=True)
    story.start("N1")
    story.fail("N1")
    contract = c.IssuedContract("inv-3", "ab" * 32, ME, None, {})
    assert refusal(story, c.MoveNode("N1", "RUNNING", contract=contract)).rule == "N11"
    assert [question.node for question in story.replica.state.questions.values()] == ["N1"]


def test_interruptions_never_use_up_the_budget() -> None:
    story = Story()
    story.add("N1")
    for _ in range(5):
        story.start("N1")
        story.fail("N1", interruption=True)
    assert (story.node("N1").interruptions, story.node("N1").strikes) == (5, 0)
    assert story.replica.state.questions == {}
    story.start("N1")


def test_a_blocked_node_does_not_wake_past_its_open_question() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.fail("N1", "permanent-resource")
    error = refusal(story, c.MoveNode("N1", "READY", ("J-1",)))
    assert (error.rule, "perdure retry" in error.fix) == ("N09", True)


def test_cancelling_nothing_is_refused() -> None:
    assert refusal(Story(), c.CancelNodes((), "x")).code == "nothing_named"


def test_a_blocked_node_wakes_by_a_decision_with_its_reason() -> None:
    story = Story()
    story.bring_to("N1", "RUNNING")
    story.fail("N1", "permanent-resource")
    events = story.do(c.RetryNode("N1", "the disk has space again"))
    assert [event.kind for event in events] == ["DECISION", "STATE_TRANSITION"]
    assert events[1].payload["wake_evidence"] == "the disk has space again"
    assert (story.state_of("N1"), story.replica.state.questions) == ("READY", {})


@pytest.mark.parametrize("state", [s for s in NODE_STATES if s not in ("RETRYABLE", "BLOCKED")])
def test_only_what_waits_for_a_decision_can_be_retried(state: str) -> None:
    story = Story()
    story.bring_to("N1", state)
    assert isinstance(refusal(story, c.RetryNode("N1", "x")), TransitionError)


# Cancelling, replacing


def test_cancelling_several_is_one_decision_and_one_move_each() -> None:
    story = Story()
    story.add("N1")
    story.bring_to("N2", "BLOCKED")
    events = story.do(c.CancelNodes(("N1", "N2", "N1"), "not wanted"))
    assert [e.kind for e in events] == ["DECISION", "STATE_TRANSITION", "STATE_TRANSITION"]
    assert [e.payload.get("edge") for e in events[1:]] == ["N15", "N10"]
    assert all(event.payload["authority"] == story.actor for event in events)
    assert events[1].evidence == [events[0].payload["id"]]


def test_cancelling_is_all_or_nothing() -> None:
    story = Story()
    story.add("N1")
    story.bring_to("N2", "QUARANTINED")
    assert isinstance(refusal(story, c.CancelNodes(("N1", "N2"), "x")), TransitionError)
    assert story.state_of("N1") == "PENDING"


def test_a_successor_takes_over_the_dependents_in_the_same_commit() -> None:
    story = Story()
    story.bring_to("N1", "QUARANTINED")
    story.add("other")
    story.add("N2", "N1", "other")
    events = story.do(c.AddNode("N1b", "another way", successor_of="N1"))
    assert [event.payload["op"] for event in events] == ["add_node", "amend_node"]
    assert story.node("N2").deps == ("N1b", "other")
    assert story.node("N1").successors == ("N1b",)
    story.finish("other")
    story.finish("N1b")
    assert story.state_of("N2") == "READY"


@pytest.mark.parametrize("state", [s for s in NODE_STATES if s not in ("QUARANTINED", "CANCELLED")])
def test_only_a_dead_node_has_successors(state: str) -> None:
    story = Story()
    story.bring_to("N1", state)
    error = refusal(story, c.AddNode("N2", "x", successor_of="N1"))
    assert isinstance(error, RefusedError)
    assert error.rule == "N14"
