"""Steering as decisions: logged, read, propagated, acknowledged (S1 to S4, ST-1 to ST-3)."""

from typing import Any

import pytest
from tests.unit.core.story import Story

from perdure.core import commands as c
from perdure.core import decide_steering
from perdure.core.codec import to_json
from perdure.core.events import Draft, Event
from perdure.core.frontier import frontier
from perdure.core.model import (
    Criterion,
    MapSpec,
    Spec,
    State,
    contract_bytes_max,
    title_chars_max,
)
from perdure.core.people import READINGS
from perdure.core.propagation import directive_chars_max
from perdure.errors import HaltError, NotFoundError, RefusedError, UsageError

ANNA = "sponsor:anna"


class Steered(Story):
    """A story in which a sponsor speaks, and the coordinator propagates."""

    def log(self, text: str = "Metric units", **how: Any) -> str:
        self.actor = ANNA
        (event,) = self.do(c.LogSteering(how.pop("steering_id", ""), text, **how))
        self.actor = "coordinator:main"
        return event.entity.id

    def propagate(self, steering_id: str, text: str = "Metric units") -> list[Event]:
        return self.do(c.PropagateSteering(steering_id, text))

    def steer(self, text: str = "Metric units", **how: Any) -> list[Event]:
        return self.propagate(self.log(text, **how), text)

    @property
    def state(self) -> State:
        return self.replica.state


M = "STATE_TRANSITION"


@pytest.fixture
def story() -> Steered:
    """N1 is DONE; N2, which rests on it, is at work; N3 waits for N2; N4 is free."""
    story = Steered()
    story.add("N1")
    story.add("N2", "N1")
    story.add("N3", "N2")
    story.add("N4")
    story.finish("N1")
    story.start("N2")
    return story


def kinds(events: list[Event]) -> list[str]:
    return [str(event.payload.get("op") or event.payload.get("edge")) for event in events]


def refusal(story: Steered, command: c.Command) -> HaltError:
    with pytest.raises(HaltError) as caught:
        story.decide(command)
    return caught.value


# S1: the words, before anything


def test_words_are_on_record_with_what_their_sender_meant_and_nothing_has_happened(
    story: Steered,
) -> None:
    before = {name: node.state for name, node in story.state.nodes.items()}
    steering_id = story.log(
        "Faster\u2028now", reading="amendment", targets=("N4",), changes={"priority": 3}
    )
    entry = story.state.steering[steering_id]
    assert (entry.reading, entry.targets, entry.changes) == ("amendment", ("N4",), {"priority": 3})
    assert (entry.source, entry.acknowledged, entry.applied) == (ANNA, "", {})
    assert {name: node.state for name, node in story.state.nodes.items()} == before


@pytest.mark.parametrize(
    ("how", "code", "error"),
    [
        ({"reading": "suggestion"}, "unknown_reading", UsageError),
        ({"provenance": "rumour"}, "unknown_provenance", UsageError),
        ({"targets": ("N9",)}, "unknown_node", NotFoundError),
        ({"revokes": ("deploy",)}, "unknown_authority", NotFoundError),
        ({"changes": {"colour": "red"}}, "unknown_field", UsageError),
        ({"changes": {"gates": []}}, "unknown_field", UsageError),
        ({"changes": {"deps": ["N1"]}}, "unknown_field", UsageError),
        ({"changes": {"priority": "high"}}, "bad_spec", UsageError),
        ({"changes": {"outputs": 7}, "targets": ("N4",)}, "bad_spec", UsageError),
    ],
)
def test_what_the_sender_can_still_put_right_is_refused_before_it_is_logged(
    story: Steered, how: dict[str, Any], code: str, error: type[HaltError]
) -> None:
    refused = refusal(story, c.LogSteering("", "do it", **how))
    assert (refused.code, type(refused)) == (code, error)


def test_more_nodes_than_an_instruction_may_name_are_refused(
    story: Steered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide_steering, "targets_max", 1)
    assert refusal(story, c.LogSteering("", "x", targets=("N3", "N4"))).code == "too_large"


# S2: how it is read


@pytest.mark.parametrize("reading", READINGS)
def test_an_instruction_is_read_as_its_sender_says(story: Steered, reading: str) -> None:
    events = story.steer(reading=reading, targets=("N4",))
    assert events[0].payload["op"] == "classify"
    assert events[0].payload["reading"] == reading == story.state.steering["ST-001"].reading
    assert not [q for q in story.state.questions.values() if q.kind == "confirmation"]


def test_in_doubt_the_stronger_reading_holds_and_the_sponsor_is_asked(story: Steered) -> None:
    story.steer(targets=("N4",))
    assert story.state.steering["ST-001"].reading == "amendment"
    (question,) = story.state.questions.values()
    assert (question.kind, question.to, question.node) == ("confirmation", "sponsor", None)
    assert "N4" in question.text
    story.start("N4")  # it holds nothing


def test_a_clarification_changes_nothing(story: Steered) -> None:
    events = story.steer(reading="clarification")
    assert kinds(events) == ["classify", "acknowledged"]
    assert story.node("N2").state == "RUNNING"


def test_a_question_goes_to_the_coordinator_and_holds_nothing(story: Steered) -> None:
    events = story.steer("Why so slow?", reading="question")
    assert kinds(events) == ["classify", "ask", "acknowledged"]
    (question,) = story.state.questions.values()
    assert (question.kind, question.to, question.node) == ("question", "coordinator", None)
    assert question.text == "Why so slow?"


# S3: what it changes


def test_everything_that_is_open_follows_it_and_what_is_added_later(story: Steered) -> None:
    story.steer(reading="amendment")
    for name in ("N2", "N3", "N4"):
        assert story.node(name).directives == ("Metric units",)
        assert story.node(name).amended_by
    assert story.node("N1").directives == ()
    story.add("N5")
    assert story.node("N5").directives == ("Metric units",)


def test_a_named_node_follows_it_alone(story: Steered) -> None:
    story.steer(reading="amendment", targets=("N4",))
    assert [name for name, node in story.state.nodes.items() if node.directives] == ["N4"]
    story.add("N5")
    assert story.node("N5").directives == ()
    assert story.node("N2").state == "RUNNING"


def test_work_under_way_is_recalled_as_an_interruption_and_ready_again(story: Steered) -> None:
    story.register("N2", "A-half")
    story.steer(reading="amendment", targets=("N2",))
    node = story.node("N2")
    assert (node.state, node.interruptions, node.strikes, node.directives) == (
        "READY", 1, 0, ("Metric units",),
    )  # fmt: skip
    assert story.state.contracts == {}
    assert story.state.artifacts["A-half"].status == "quarantined"
    assert [move.source for move in story.moves] == ["artifacts/N2/A-half.txt"]
    assert "recalled by steering ST-001" in node.diagnosis


def test_a_claim_that_is_being_verified_is_recalled_without_a_strike(story: Steered) -> None:
    story.register("N2", "A-2")
    story.claim("N2")
    events = story.steer(reading="amendment", targets=("N2",))
    node = story.node("N2")
    assert (node.state, node.strikes, node.interruptions, node.checks_failed) == ("READY", 0, 1, 0)
    assert [e.payload["edge"] for e in events if e.kind == M] == ["N07", "N12"]
    assert story.state.artifacts["A-2"].status == "quarantined"


def test_units_of_a_batch_node_that_have_landed_stay_where_they_are(story: Steered) -> None:
    spec = Spec(map=MapSpec(run="x", list=("a", "b")), outputs=("artifacts/B/findings.jsonl",))
    story.do(c.AddNode("B", "many", spec=spec))
    story.start("B")
    story.register("B", "A-B", "artifacts/B/findings.jsonl")
    story.claim("B")
    story.steer(reading="amendment", targets=("B",))
    artifact = story.state.artifacts["A-B"]
    assert (artifact.status, artifact.path) == ("quarantined", "artifacts/B/findings.jsonl")
    assert story.moves == []
    assert "artifacts/B/findings.jsonl" not in story.replica.paths
    assert story.node("B").state == "READY"


def test_an_effect_that_may_have_happened_is_held_and_amended() -> None:
    story = Steered(allowed=("S",))
    story.add("S", effect="S3")
    story.start("S")
    story.steer(reading="amendment", targets=("S",))
    node = story.node("S")
    assert (node.state, node.directives) == ("BLOCKED", ("Metric units",))
    assert [q.kind for q in story.state.questions.values()] == ["effect"]


def test_fields_that_it_sets_are_set_in_the_same_commit(story: Steered) -> None:
    changes = {"priority": 7, "goal": "in metres", "constraints": ["no feet"]}
    story.steer(reading="amendment", targets=("N2", "N4"), changes=changes)
    for name in ("N2", "N4"):
        node = story.node(name)
        assert (node.priority, node.spec.goal, node.spec.constraints) == (
            7, "in metres", ("no feet",),
        )  # fmt: skip


def test_a_node_out_of_strikes_is_free_again_when_its_spec_changes(story: Steered) -> None:
    story.fail("N2")
    for _ in range(2):
        story.start("N2")
        story.fail("N2")
    assert story.state.questions
    story.steer(reading="amendment", targets=("N2",), changes={"goal": "by hand"})
    assert story.node("N2").state == "READY"
    assert not story.state.questions
    story.start("N2")


def test_a_blocked_node_stays_blocked_and_its_question_open(story: Steered) -> None:
    story.do(c.FailNode("N2", "permanent-resource", "no disk"))
    asked = list(story.state.questions)
    story.steer(reading="amendment", targets=("N2",), changes={"goal": "elsewhere"})
    assert story.node("N2").state == "BLOCKED"
    assert story.node("N2").directives
    assert list(story.state.questions) == asked


def test_done_work_gets_a_corrective_node_that_everything_open_waits_for(story: Steered) -> None:
    story.steer("N1 is in feet", reading="amendment", targets=("N1",))
    assert story.node("N1").state == "DONE"
    fix = story.node("N1.fix1")
    assert (fix.deps, fix.directives, fix.spec.goal) == (
        ("N1",), ("N1 is in feet",), "N1 is in feet",
    )  # fmt: skip
    assert story.node("N2").deps == ("N1", "N1.fix1")
    assert story.node("N2").state == "RETRYABLE", "recalled: it rests on what is being corrected"
    assert story.node("N3").deps == ("N2",)
    story.finish("N1.fix1")
    story.start("N2")


def test_each_correction_of_one_node_is_a_node_of_its_own(story: Steered) -> None:
    story.steer("first", reading="amendment", targets=("N1",))
    story.steer("second", reading="amendment", targets=("N1",))
    assert story.node("N1.fix2").deps == ("N1",)
    assert story.node("N2").deps == ("N1", "N1.fix1", "N1.fix2")


def test_a_correction_of_the_longest_id_has_an_id(story: Steered) -> None:
    name = "N" * 64
    story.add(name)
    story.start(name)
    story.register(name, "A-long")
    story.claim(name)
    story.conclude(name)
    story.steer(reading="amendment", targets=(name,))
    (fix,) = [node for node in story.state.nodes if node.endswith(".fix1")]
    assert len(fix) <= 64


def test_done_work_behind_a_correction_stands_and_the_sponsor_hears_of_it(story: Steered) -> None:
    story.register("N2", "A-2")
    story.claim("N2")
    story.conclude("N2")
    story.steer(reading="amendment", targets=("N1",))
    assert story.node("N2").state == "DONE"
    (question,) = story.state.questions.values()
    assert "N2 rests on N1 and is DONE" in question.text


def test_a_finished_task_is_opened_again_once_for_two_corrections(story: Steered) -> None:
    story.register("N2", "A-2")
    story.claim("N2")
    story.conclude("N2")
    story.finish("N3")
    story.finish("N4")
    story.do(c.MoveTask("FINAL_AUDIT"))
    events = story.steer(reading="amendment", targets=("N1", "N4"))
    assert story.state.fsm_task == "DECOMPOSING"
    assert [e.payload["edge"] for e in events if e.kind == M] == ["T09"]


def test_steering_against_what_was_given_up_is_told_and_changes_nothing(story: Steered) -> None:
    story.do(c.CancelNodes(("N4",), "not wanted"))
    story.steer(reading="amendment", targets=("N4",))
    assert story.node("N4").state == "CANCELLED"
    (question,) = story.state.questions.values()
    assert (question.kind, question.to) == ("confirmation", "sponsor")
    assert "N4 is CANCELLED" in question.text
    assert story.state.steering["ST-001"].applied["N4"].startswith("CANCELLED")


def test_the_same_words_again_do_not_recall_what_follows_them(story: Steered) -> None:
    story.steer(reading="amendment")
    story.start("N2")
    story.steer(reading="amendment")
    assert story.node("N2").state == "RUNNING"
    assert story.node("N2").directives == ("Metric units",)


def test_a_long_instruction_is_cut_where_contracts_carry_it(story: Steered) -> None:
    text = "x" * (directive_chars_max + 500)
    story.steer(text, reading="amendment", targets=("N4",))
    (directive,) = story.node("N4").directives
    assert len(directive) < directive_chars_max + 50
    assert story.state.steering["ST-001"].ref in directive


def test_authorities_are_taken_back_and_what_works_by_them_is_recalled() -> None:
    story = Steered(allowed=("pay", "mail"))
    story.add("pay", effect="S3")
    story.add("mail", effect="S3")
    story.start("pay")
    story.start("mail")
    story.steer("No more payments", reading="clarification", revokes=("pay",))
    assert story.state.standing_authorities == ("mail",)
    assert story.node("pay").state == "BLOCKED"
    assert story.node("mail").state == "RUNNING"
    assert story.state.steering["ST-001"].applied["pay"].startswith("recalled")


# Halting


def test_a_halt_recalls_and_suspends_in_one_commit(story: Steered) -> None:
    story.do(c.MoveTask("EXECUTING"))
    story.start("N4")
    events = story.steer("Stop", reading="halt")
    assert story.state.fsm_task == "SUSPENDED"
    assert story.state.contracts == {}
    assert {story.node(name).state for name in ("N2", "N4")} == {"RETRYABLE"}
    assert [e.payload["edge"] for e in events if e.kind == M] == ["N04", "N04", "T04"]
    assert "handoff" in kinds(events)
    assert refusal(story, c.MoveNode("N4", "RUNNING")).rule == "FST-1"


def test_a_halt_of_nodes_recalls_and_holds_each_until_somebody_lets_it_go_on(
    story: Steered,
) -> None:
    story.steer("Wait", reading="halt", targets=("N1", "N2", "N4"))
    assert story.state.fsm_task != "SUSPENDED"
    held = {question.node: question for question in story.state.questions.values()}
    assert set(held) == {"N2", "N4"}
    assert {question.to for question in held.values()} == {"sponsor"}
    assert story.node("N2").state == "RETRYABLE"
    for name in ("N2", "N4"):
        assert "question" in refusal(story, c.MoveNode(name, "RUNNING")).message
    applied = story.state.steering["ST-001"].applied
    assert applied["N4"].startswith("held J-")
    assert applied["N1"].startswith("DONE")


def test_a_halt_where_the_task_cannot_be_suspended_holds_every_open_node() -> None:
    story = Steered()
    story.add("N1", draft=True)
    story.steer("Stop", reading="halt")
    assert story.state.fsm_task == "DECOMPOSING"
    assert [question.node for question in story.state.questions.values()] == ["N1"]


def test_a_halt_of_a_task_without_work_is_acknowledged_and_told() -> None:
    story = Steered()
    story.steer("Stop", reading="halt")
    (question,) = story.state.questions.values()
    assert "nothing to stop" in question.text


# S4: the acknowledgement


def test_the_acknowledgement_is_last_and_says_where_it_is_logged_and_what_it_did(
    story: Steered,
) -> None:
    events = story.steer(reading="amendment", targets=("N1", "N2", "N4"))
    last = events[-1]
    entry = story.state.steering["ST-001"]
    assert (last.kind, last.payload["op"], last.payload["log"]) == (
        "NOTE", "acknowledged", entry.ref,
    )  # fmt: skip
    assert entry.acknowledged == last.ref
    assert last.payload["recalled"] == ["N2"]
    assert last.payload["applied"] == entry.applied
    refs = {event.ref: event for event in events}
    for node_id, what in entry.applied.items():
        for word in what.replace(",", "").split():
            if word.startswith("J-"):
                assert refs[word].entity.id == node_id


def test_every_event_that_it_causes_names_it(story: Steered) -> None:
    events = story.steer(targets=("N1", "N2"))
    assert {event.payload.get("steering") for event in events} == {"ST-001"}
    assert len({event.tx for event in events}) == 1


def test_a_citation_of_the_amendment_is_the_number_it_has(story: Steered) -> None:
    events = story.steer(reading="amendment", targets=("N1", "N2", "N4"))
    by_ref = {event.ref: event for event in events}
    for event in events:
        if event.payload.get("edge") == "N12":
            cited = by_ref[event.payload["amendment"]]
            assert (cited.kind, cited.entity.id) == ("AMENDMENT", event.entity.id)


def test_propagating_again_is_answered_with_the_acknowledgement(story: Steered) -> None:
    story.steer()
    again = story.decide(c.PropagateSteering("ST-001", "Metric units"))
    assert again == c.Decision(answer=story.state.steering["ST-001"].acknowledged)
    assert refusal(story, c.PropagateSteering("ST-9", "")).code == "unknown_steering"


def test_a_contract_that_carries_it_is_told_at_its_stages(story: Steered) -> None:
    story.steer(reading="amendment", targets=("N4",))
    entry = story.state.steering["ST-001"]
    assert entry.reached == {}
    (*_, started) = story.start("N4")
    assert entry.reached == {"N4": started.ref}


# FR-2, and what has become of things meanwhile


def test_nothing_starts_between_the_two_commits(story: Steered) -> None:
    story.log(targets=("N3",))
    refused = refusal(story, c.MoveNode("N4", "RUNNING"))
    assert (refused.code, refused.rule, type(refused)) == ("steering_pending", "FR-2", RefusedError)
    story.propagate("ST-001")
    story.start("N4")


def test_the_next_start_is_by_the_new_order(story: Steered) -> None:
    story.add("N5")
    assert frontier(story.replica)[0] == "N4"
    story.steer(reading="amendment", targets=("N5",), changes={"priority": 9})
    assert frontier(story.replica)[0] == "N5"


@pytest.mark.parametrize("reading", ["", *READINGS])
def test_what_is_on_record_is_propagated_whatever_has_become_of_the_task(
    story: Steered, reading: str
) -> None:
    """A journal of others may hold anything; one of ours may have gone on in between."""
    payload = {
        "id": "X-1",
        "verbatim": "",
        "reading": reading,
        "targets": ["N1", "N4", "gone", "N2"],
        "changes": {"colour": "red", "priority": "high", "run": 7},
        "revokes": ["nobody"],
    }
    story.commit(Draft("STEERING_LOGGED", "steering", "X-1", payload))
    story.do(c.CancelNodes(("N4",), "not wanted"))
    story.propagate("X-1", "")
    assert story.state.steering["X-1"].acknowledged
    assert any("'gone'" in q.text for q in story.state.questions.values()) or reading in (
        "clarification", "question",
    )  # fmt: skip


def test_very_many_nodes_are_amended_in_several_commits_and_acknowledged_in_the_last(
    story: Steered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide_steering, "nodes_per_commit_max", 2)
    for number in range(5, 9):
        story.add(f"N{number}")
    steering_id = story.log(reading="amendment")
    commits = []
    while not story.state.steering[steering_id].acknowledged:
        commits.append(kinds(story.propagate(steering_id)))
    assert len(commits) == 4
    assert [commit.count("classify") for commit in commits] == [1, 0, 0, 0]
    assert sum(commit.count("direct_task") for commit in commits) == 1
    assert commits[-1][-1] == "acknowledged"
    entry = story.state.steering[steering_id]
    assert set(entry.applied) == {"N2", "N3", "N4", "N5", "N6", "N7", "N8"}
    for name in entry.applied:
        assert story.node(name).directives == ("Metric units",)


def test_an_archived_task_hears_it_and_changes_nothing(story: Steered) -> None:
    steering_id = story.log(reading="amendment")
    move = {"from": "FINAL_AUDIT", "to": "ARCHIVED", "edge": "T10"}
    story.commit(Draft("STATE_TRANSITION", "task", "T1", move))
    assert kinds(story.propagate(steering_id)) == ["classify", "acknowledged"]
    assert story.node("N2").state == "RUNNING"


# Said again (ST-2)


def test_what_was_said_before_and_arrived_is_told_and_not_done_twice(story: Steered) -> None:
    story.steer("N1 is in feet", reading="amendment", targets=("N1",))
    said = story.log("N1 is in feet", reading="amendment", targets=("N1",), provenance="re-stated")
    events = story.propagate(said, "N1 is in feet")
    assert kinds(events) == ["classify", "acknowledged"]
    assert events[-1].payload["same_as"] == "ST-001"
    assert "N1.fix2" not in story.state.nodes
    assert story.state.steering[said].provenance == "re-stated"
    assert story.state.steering[said].same_as == "ST-001"


def test_what_was_said_before_and_never_arrived_is_done(story: Steered) -> None:
    story.steer("Metric units", reading="amendment", targets=("N4",), provenance="re-stated")
    assert story.node("N4").directives == ("Metric units",)


def test_the_newest_word_of_the_sponsor_is_remembered(story: Steered) -> None:
    story.steer()
    entry, contact = story.state.steering["ST-001"], story.state.last_contact
    assert contact is not None
    assert (contact.ref, contact.at, contact.by) == (entry.ref, entry.at, ANNA)
    story.do(c.WriteNote("the coordinator's own words"))
    assert story.state.last_contact == contact


# Many instructions, and odd ones


def amendment_of(events: list[Event], node_id: str) -> dict[str, Any]:
    (event,) = [
        event
        for event in events
        if event.payload.get("op") == "amend_node" and event.entity.id == node_id
    ]
    return event.payload


def test_an_instruction_costs_its_own_words_however_many_came_before(story: Steered) -> None:
    sizes = []
    for number in range(20):
        said = story.steer(f"{number:02d} {'x' * 500}", reading="amendment", targets=("N4",))
        sizes.append(len(to_json(amendment_of(said, "N4"))))
    assert max(sizes) - min(sizes) < 20, "not those of the ones before it"
    assert len(story.node("N4").directives) == 20


def test_no_number_of_instructions_outgrows_a_contract(story: Steered) -> None:
    for number in range(200):
        text = f"{number} {'x' * directive_chars_max}"
        story.steer(text, reading="amendment", targets=("N4",) if number % 2 else ())
    story.add("N5")
    for name in ("N4", "N5"):
        directives = story.node(name).directives
        assert sum(map(len, directives)) < contract_bytes_max / 2
        whole = story.state.steering["ST-199"].ref
        assert f"(whole: {whole})" in directives[-1 if name == "N5" else -2]


def test_a_node_that_is_named_twice_is_meant_once(story: Steered) -> None:
    story.steer(reading="amendment", targets=("N1", "N4", "N1", "N4"))
    assert [name for name in story.state.nodes if name.startswith("N1.")] == ["N1.fix1"]
    story.steer("Stop", reading="halt", targets=("N2", "N2"))
    assert [q.node for q in story.state.questions.values()] == ["N2"]


def test_corrections_of_what_rests_on_each_other_wait_for_each_other(story: Steered) -> None:
    story.add("A")
    story.add("B", "A")
    story.add("C", "B")
    story.finish("A")
    story.finish("B")
    events = story.steer(reading="amendment", targets=("B", "A"))
    added = [event.entity.id for event in events if event.payload.get("op") == "add_node"]
    assert added == ["A.fix1", "B.fix1"]
    assert story.node("B.fix1").deps == ("B", "A.fix1")
    assert story.node("C").deps == ("B", "B.fix1")
    assert story.state.questions == {}, "nothing stands uncorrected"


def test_with_nothing_open_the_sponsor_hears_that_nothing_changed() -> None:
    story = Steered()
    story.add("N1")
    story.finish("N1")
    story.steer(reading="amendment")
    (question,) = story.state.questions.values()
    assert (question.kind, question.to) == ("confirmation", "sponsor")
    assert "nothing is open" in question.text


@pytest.mark.parametrize("reading", ["clarification", "question", "halt"])
def test_only_an_amendment_sets_fields(story: Steered, reading: str) -> None:
    said = {"reading": reading, "targets": ("N4",), "changes": {"priority": 5}}
    story.actor = ANNA
    assert refusal(story, c.LogSteering("", "Now", **said)).code == "sets_nothing"
    story.actor = "coordinator:main"
    logged = {"id": "ST-X", "verbatim": "Now", "source": ANNA, **said}
    story.commit(Draft("STEERING_LOGGED", "steering", "ST-X", logged))
    story.propagate("ST-X", "Now")
    assert story.node("N4").priority == 0
    told = [q for q in story.state.questions.values() if q.kind == "confirmation"]
    assert "what it sets was not set" in told[0].text
    assert len(story.state.questions) == (1 if reading == "clarification" else 2)


def test_a_receipt_says_of_a_halt_what_was_recalled_and_what_holds_it(story: Steered) -> None:
    story.steer("Stop", reading="halt", targets=("N2",))
    said = story.state.steering["ST-001"].applied["N2"]
    assert said.startswith("recalled J-")
    assert ", held J-" in said


def test_a_revocation_is_said_again_like_anything_else() -> None:
    """Once it has arrived there is nothing left to take back, which whoever says it cannot know."""
    story = Steered(allowed=("pay",))
    story.add("pay", effect="S3")
    said = {"reading": "clarification", "revokes": ("pay", "pay")}
    first = story.steer("No payments", **said)
    assert [e.payload["op"] for e in first].count("revoke_authority") == 1
    story.actor = ANNA
    assert refusal(story, c.LogSteering("", "No payments", **said)).code == "unknown_authority"
    again = story.steer("No payments", provenance="re-stated", **said)
    assert again[-1].payload["same_as"] == "ST-001"


@pytest.mark.parametrize("targets", [("judged",), ()])
def test_only_the_sponsor_takes_a_gate_away(story: Steered, targets: tuple[str, ...]) -> None:
    human = Criterion("human", {"question": "Good?"}, "V3")
    story.add("judged", acceptance_criteria=(human,))
    command = c.LogSteering("", "Faster", targets=targets, changes={"acceptance_criteria": []})
    assert refusal(story, command).rule == "VR-1"
    story.steer("Faster", reading="amendment", targets=targets, changes=command.changes)
    assert story.node("judged").spec.acceptance_criteria == ()


def test_an_archived_task_says_so_in_the_acknowledgement(story: Steered) -> None:
    steering_id = story.log(reading="amendment")
    move = {"from": "FINAL_AUDIT", "to": "ARCHIVED", "edge": "T10"}
    story.commit(Draft("STATE_TRANSITION", "task", "T1", move))
    assert "archived" in story.propagate(steering_id)[-1].payload["text"]


def test_a_title_stays_one(story: Steered) -> None:
    story.actor = ANNA
    for title in ("", "  ", "x" * (title_chars_max + 1)):
        command = c.LogSteering("", "Now", targets=("N4",), changes={"title": title})
        assert refusal(story, command).code == "bad_spec"
