"""Recovery as a table: every situation has one rule, and what follows repairs it once."""

from itertools import product

import pytest
from tests.unit.core.story import Story

from perdure.core import commands as c
from perdure.core.codec import from_json, to_json
from perdure.core.fold import Replica
from perdure.core.machine import RC1, node_edge, task_edge
from perdure.core.model import NODE_STATES, State
from perdure.core.on_disk import FILES, Files, Fragment, register_fragment
from perdure.core.recovery import (
    CONTRACTS,
    NODE_RULES,
    Findings,
    NodeFacts,
    Plan,
    check_consistency,
    finish_plan,
    plan_recovery,
    rule_for,
)

SITUATIONS = [
    (state, NodeFacts(contract, files, effect_open))
    for state, contract, files, effect_open in product(NODE_STATES, CONTRACTS, FILES, (False, True))
]


def matching(state: str, facts: NodeFacts) -> list[int]:
    return [
        number
        for number, rule in enumerate(NODE_RULES)
        if state in rule.states
        and rule.contract in (None, facts.contract)
        and (rule.files is None or facts.files in rule.files)
        and rule.effect_open in (None, facts.effect_open)
    ]


def test_every_combination_has_exactly_one_rule() -> None:
    assert len(SITUATIONS) == 9 * 2 * 4 * 2
    for state, facts in SITUATIONS:
        found = matching(state, facts)
        assert len(found) == 1, (state, facts, found)
        assert rule_for(state, facts) is NODE_RULES[found[0]]


def test_every_rule_applies_to_something() -> None:
    used = {matching(state, facts)[0] for state, facts in SITUATIONS}
    assert used == set(range(len(NODE_RULES)))


EXPECTED = {
    # state, contract, files, effect open: what follows
    ("RUNNING", "live", "whole", False): "keep",
    ("RUNNING", "live", "whole", True): "keep",
    ("RUNNING", "dead", "whole", False): "interrupt",
    ("RUNNING", "dead", "whole", True): "hold_effect",
    ("VERIFYING", "dead", "missing", False): "verify_again",
    ("DONE", "dead", "whole", False): "keep",
    ("DONE", "dead", "missing", False): "reopen",
    ("DONE", "dead", "changed", False): "report",
    ("DONE", "dead", "unreadable", False): "report",
    ("PENDING", "dead", "missing", True): "keep",
    ("QUARANTINED", "dead", "missing", False): "keep",
}


@pytest.mark.parametrize(("situation", "repair"), EXPECTED.items())
def test_what_follows_is_what_the_protocol_says(
    situation: tuple[str, str, str, bool], repair: str
) -> None:
    state, *facts = situation
    assert rule_for(state, NodeFacts(*facts)).repair == repair  # type: ignore[arg-type]


# Plans


def at_work() -> Story:
    """One node in each state that recovery looks at, and one that rests."""
    story = Story()
    for state in ("RUNNING", "VERIFYING", "DONE", "PENDING"):
        story.bring_to(f"N-{state}", state)
    story.do(c.MoveTask("EXECUTING"))
    return story


def facts_of(story: Story, **files: Files) -> Findings:
    nodes = {}
    for node in story.replica.state.nodes.values():
        seen: Files = files.get(node.state, "whole")
        if node.state == "RUNNING" or seen != "whole":
            nodes[node.node_id] = NodeFacts(files=seen, details=("seen",))
    return Findings(nodes=nodes)


def plan(story: Story, findings: Findings) -> Plan:
    return plan_recovery(story.replica, findings, c.Context(story.now, "coordinator:main"))


def carry_out(story: Story, findings: Findings) -> None:
    """Plan, check, and commit, as the runtime does."""
    before = from_json(to_json(story.replica.state), State)
    made = plan(story, findings)
    planned = Replica(from_json(to_json(before), State))
    shadow = Story(begun=False)
    shadow.replica, shadow.tip = planned, story.tip
    if made.drafts:
        shadow.commit(*made.drafts)
    assert check_consistency(planned) == []
    drafts = finish_plan(made, before, planned)
    if drafts:
        story.commit(*drafts)


def test_a_consistent_workspace_gives_an_empty_plan() -> None:
    story = Story()
    story.bring_to("N1", "DONE")
    story.add("N2")
    assert plan(story, Findings()) == Plan((), (), (), (), ())
    assert finish_plan(plan(story, Findings()), story.replica.state, story.replica) == ()


def test_the_same_journal_and_facts_give_the_same_plan() -> None:
    plans = []
    for _ in range(2):
        story = at_work()
        plans.append(plan(story, facts_of(story, DONE="missing")))
    assert plans[0] == plans[1]
    copy = at_work()
    copy.replica = Replica(from_json(to_json(copy.replica.state), State))
    assert plan(copy, facts_of(copy, DONE="missing")) == plans[0]


def test_planning_changes_nothing() -> None:
    story = at_work()
    before = to_json(story.replica.state)
    plan(story, facts_of(story, DONE="missing"))
    assert to_json(story.replica.state) == before


FRAGMENT = Fragment("tmp/recovered/journal-tail-9-aaaa.bin", "a" * 64, 7, "torn tail (cut)")


@pytest.mark.parametrize("files", FILES)
@pytest.mark.parametrize("takeover", ["", "the lease of a:b was taken over"])
@pytest.mark.parametrize("fragments", [(), (FRAGMENT,)])
def test_after_the_repairs_there_is_nothing_left_to_do(
    files: Files, takeover: str, fragments: tuple[Fragment, ...]
) -> None:
    story = at_work()
    findings = facts_of(story, DONE=files)._replace(takeover=takeover, fragments=fragments)
    carry_out(story, findings)
    length = len(story.journal)
    again = facts_of(story, DONE=files)  # the disk is as it was; the process table too
    made = plan(story, again)
    assert (made.drafts, made.moves, made.repaired) == ((), (), ())
    carry_out(story, again)
    assert len(story.journal) == length


def test_every_repair_is_a_legal_move() -> None:
    story = at_work()
    carry_out(story, facts_of(story, DONE="missing"))
    states: dict[str, str] = {}
    for event in story.events():
        if event.kind != "STATE_TRANSITION":
            continue
        source, target, edge = (event.payload[key] for key in ("from", "to", "edge"))
        name = event.entity.id
        if event.entity.type == "task":
            row = task_edge(source, target)
            assert states.get(name, "INIT") == source
        else:
            row = RC1 if edge == "RC1" else node_edge(source, target)  # type: ignore[assignment]
            assert states.get(name, "PENDING") == source
        assert row is not None
        assert row.id == edge
        states[name] = target


def test_an_orphan_goes_retryable_as_an_interruption_and_its_files_move_away() -> None:
    story = at_work()
    story.register("N-RUNNING", "A-half", "artifacts/N-RUNNING/half.txt")
    made = plan(story, facts_of(story))
    carry_out(story, facts_of(story))
    node = story.node("N-RUNNING")
    assert (node.state, node.interruptions, node.strikes) == ("RETRYABLE", 1, 0)
    assert node.failure_class == "transient-agent"
    assert made.moves == (
        c.FileMove("artifacts/N-RUNNING/half.txt", "artifacts/old/A-half-1/half.txt"),
    )


def test_an_effect_without_a_receipt_waits_for_a_person() -> None:
    story = Story(allowed=("N1",))
    story.add("N1", effect="S3")
    story.start("N1")
    carry_out(story, Findings(nodes={"N1": NodeFacts(effect_open=True)}))
    assert story.state_of("N1") == "BLOCKED"
    (question,) = story.replica.state.questions.values()
    assert question.node == "N1"
    assert question.asked_ref < (story.node("N1").state_ref or "")


def test_a_done_node_without_its_files_is_ready_again_and_its_registration_stops_counting() -> None:
    story = at_work()
    carry_out(story, facts_of(story, DONE="missing"))
    assert story.state_of("N-DONE") == "READY"
    assert story.node("N-DONE").artifacts == ()
    assert story.replica.state.artifacts["A-N-DONE"].status == "quarantined"
    finding = [e for e in story.events() if e.payload.get("edge") == "RC1"]
    assert [event.payload["finding"] for event in finding] == ["seen"]


@pytest.mark.parametrize("files", ["changed", "unreadable"])
def test_changed_bytes_are_reported_and_not_repaired(files: Files) -> None:
    story = Story()
    story.bring_to("N1", "DONE")
    made = plan(story, facts_of(story, DONE=files))
    assert (made.suspects, made.drafts) == (("N1",), ())
    assert "N1 is DONE" in made.found[0]
    length = len(story.journal)
    carry_out(story, facts_of(story, DONE=files))
    assert len(story.journal) == length


def test_a_takeover_is_the_first_event_and_says_why() -> None:
    story = at_work()
    carry_out(story, facts_of(story)._replace(takeover="its process is gone"))
    new = [e for e in story.events() if e.seq > 0 and e.payload.get("op") == "takeover"]
    assert [event.payload["text"] for event in new] == ["its process is gone"]
    assert [event.payload["op"] for event in story.events() if event.kind == "NOTE"] == [
        "takeover",
        "recovered",
    ]


def test_the_recovery_note_lists_what_was_found_and_repaired() -> None:
    story = at_work()
    carry_out(story, facts_of(story, DONE="missing"))
    (note,) = [event for event in story.events() if event.payload.get("op") == "recovered"]
    assert len(note.payload["found"]) == len(note.payload["repaired"]) == 2


# FSM-T


def test_an_interrupted_task_comes_back_through_recovering() -> None:
    story = at_work()
    carry_out(story, facts_of(story))
    moves = [
        e.payload["to"] for e in story.events() if e.entity.type == "task" and e.payload.get("to")
    ]
    assert moves[-3:] == ["EXECUTING", "RECOVERING", "EXECUTING"]


def test_a_task_where_nothing_may_start_stays_in_recovering_until_something_may() -> None:
    story = Story(allowed=("N1",))
    story.add("N1", effect="S3")
    story.start("N1")
    story.add("N2")
    story.do(c.MoveTask("EXECUTING"))
    story.do(c.CancelNodes(("N2",), "not wanted"))
    carry_out(story, Findings(nodes={"N1": NodeFacts(effect_open=True)}))
    assert story.replica.state.fsm_task == "RECOVERING"
    carry_out(story, Findings())
    assert story.replica.state.fsm_task == "RECOVERING"
    story.do(c.RetryNode("N1", "it did not happen"))
    carry_out(story, Findings())
    assert story.replica.state.fsm_task == "EXECUTING"


def test_a_task_with_nothing_open_goes_to_its_final_audit() -> None:
    story = Story()
    story.bring_to("N1", "DONE")
    story.add("N2")
    story.do(c.MoveTask("EXECUTING"))
    story.do(c.MoveTask("RECOVERING"))
    story.do(c.CancelNodes(("N2",), "not wanted"))
    carry_out(story, Findings())
    assert story.replica.state.fsm_task == "FINAL_AUDIT"


# Fragments


def test_a_fragment_is_registered_as_quarantined() -> None:
    story = Story()
    story.commit(register_fragment(FRAGMENT))
    (artifact,) = story.replica.state.artifacts.values()
    assert (artifact.status, artifact.path) == ("quarantined", FRAGMENT.path)
    assert artifact.integrity.value == "a" * 64


def test_the_same_bytes_torn_off_twice_are_two_fragments() -> None:
    story = Story()
    other = FRAGMENT._replace(path="tmp/recovered/journal-tail-70-aaaa.bin")
    story.commit(register_fragment(FRAGMENT), register_fragment(other))
    paths = {artifact.path for artifact in story.replica.state.artifacts.values()}
    assert paths == {FRAGMENT.path, other.path}


# R6


def test_a_lived_task_is_consistent() -> None:
    story = Story()
    for number, state in enumerate(NODE_STATES):
        story.bring_to(f"N{number}", state)
        assert check_consistency(story.replica) == []


def test_what_a_state_rests_on_is_missed_when_it_is_not_there() -> None:
    story = Story()
    for number, state in enumerate(NODE_STATES):
        story.bring_to(f"N{number}", state)
    state = story.replica.state
    state.nodes["N0"].deps = ("GHOST",)
    state.nodes["N2"].invocation = "inv-other"
    state.nodes["N4"].blocked = None
    state.nodes["N5"].artifacts = ()
    state.nodes["N3"].artifacts = ("A-ghost",)
    wrong = check_consistency(story.replica)
    assert len(wrong) == 5
    for name in (
        "GHOST",
        "without a contract",
        "A-ghost",
        "without a reason",
        "without an artifact",
    ):
        assert any(name in line for line in wrong), name
    state.nodes["N2"].state = "READY"
    assert any("in force for nobody" in line for line in check_consistency(story.replica))
