"""Items A11.1 to A11.3: the walk back, forks, verdicts; and A6.1 to A6.3: what is bounded."""

from typing import Any

import pytest
from tests.unit.core.story import Story
from tests.unit.core.test_audit_parallel import on_disk
from tests.unit.core.test_task_audit_items import failures, of

from perdure.core import commands as c
from perdure.core.audit_auditability import ForksAreDecided, VerdictsAreItemised, WalkIsWhole
from perdure.core.audit_bounds import FirstReadIsBounded, OverBudgetIsEnded, SelfContained
from perdure.core.audit_results import essence
from perdure.core.dispatching import Usage
from perdure.core.events import Draft
from perdure.core.model import Budget, contract_bytes_max
from perdure.core.task_audit import DiskFacts, Seen


def moved(story: Story, edge: str, node: str = "N1", *evidence: str, **payload: Any) -> None:
    to = {"N02": "RUNNING", "N06": "DONE", "N12": "READY", "N15": "CANCELLED"}[edge]
    move = {"from": "X", "to": to, "edge": edge, **payload}
    story.commit(Draft("STATE_TRANSITION", "node", node, move, evidence))


def test_the_way_back_is_told_from_the_result_to_the_beginning() -> None:
    story = Story()
    story.add("N1")
    story.add("N2", "N1")
    story.finish("N1")
    story.finish("N2")
    findings = of(story, WalkIsWhole)
    assert failures(findings) == []
    assert [result.ref for result in findings.results] == ["N1", "N2", "edges"]
    assert all(result.note.endswith("from J-1") for result in findings.results[:2])


@pytest.mark.parametrize(
    ("evidence", "payload", "why"),
    [
        (("J-3", "A-1 is there"), {}, ""),
        (("J-999",), {}, "J-999, which is not there"),
        ((), {"approvals": {"G-1": "J-1"}}, "consent at G-1"),
    ],
)
def test_a_reference_to_what_is_not_there_is_a_hole(
    evidence: tuple[str, ...], payload: dict[str, Any], why: str
) -> None:
    story = Story()
    story.add("N1")
    story.start("N1")
    moved(story, "N06", "N1", *evidence, **payload)
    assert why in "".join(failures(of(story, WalkIsWhole)))


def test_an_edge_into_nothing_is_a_hole() -> None:
    story = Story()
    decided = {"op": "decision", "id": "DR-1", "rationale": "x", "edges": [["SUPPORTS", "J-2"]]}
    story.commit(Draft("DECISION", "task", "T1", decided))
    assert failures(of(story, WalkIsWhole)) == []
    decided["edges"] = [["SUPPORTS", "J-99"]]
    story.commit(Draft("DECISION", "task", "T1", decided))
    assert "J-99, which is not there" in failures(of(story, WalkIsWhole))[0]


@pytest.mark.parametrize("hole", ["start", "dep", "amendment"])
def test_a_step_that_is_missing_is_a_hole(hole: str) -> None:
    story = Story()
    story.add("N0")
    story.add("N1", *(["N0"] if hole == "dep" else []))
    if hole != "start":
        moved(story, "N02", invocation="inv-1")
    if hole == "amendment":
        moved(story, "N12", amendment="J-1")
    moved(story, "N06")
    assert len(failures(of(story, WalkIsWhole))) == 1


@pytest.mark.parametrize(
    ("kind", "payload", "why"),
    [
        ("DECISION", {"op": "cancel", "rationale": "x", "authority": "sponsor:a"}, ""),
        ("DECISION", {"op": "cancel", "rationale": "x"}, "no authority"),
        ("DECISION", {"op": "retry", "rationale": " ", "authority": "a:b"}, "no rationale"),
        ("DECISION", {"op": "policy", "authority": "a:b"}, "no rationale"),
        ("DECISION", {"op": "mode", "authority": "a:b", "mode": "A"}, "no rationale"),
        ("DECISION", {"op": "answer", "authority": "a:b", "ruling": "approve"}, ""),
        ("DECISION", {"op": "answer", "authority": "a:b"}, "ruling or answer or choice"),
        ("DECISION", {"op": "ask"}, ""),
        ("AMENDMENT", {"op": "replan", "target": "N1"}, "no reason"),
        ("AMENDMENT", {"op": "add_node", "target": "N1"}, ""),
        ("GOAL_AMENDED", {"reason": "x", "authority": "sponsor:a", "blast_radius": {}}, "blast"),
        ("GOAL_AMENDED", {"reason": "x", "authority": "e:a", "blast_radius": {"a": []}}, "e:a"),
    ],
)
def test_a_fork_has_its_reason_and_its_authority(
    kind: str, payload: dict[str, Any], why: str
) -> None:
    story = Story()
    story.commit(Draft(kind, "task", "T1", payload))
    found = failures(of(story, ForksAreDecided))
    assert bool(found) == bool(why)
    assert why in "".join(found)


def test_an_external_effect_is_somebodys_to_allow() -> None:
    allowed, refused = Story(allowed=("N1",)), Story()
    for story in (allowed, refused):
        story.add("N1", effect="S3")
        moved(story, "N02", invocation="inv-1")
    assert failures(of(allowed, ForksAreDecided)) == []
    assert "started without G-N1-start" in failures(of(refused, ForksAreDecided))[0]


CHECK = {"check": "exists", "method": "It was looked for.", "inputs": [], "passed": True}


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"checks": [CHECK]}, ""),
        ({"checks": []}, "no checks"),
        ({"checks": "14/14 PASS"}, "no checks"),
        ({"checks": [CHECK, {**CHECK, "method": " "}]}, "check 2"),
        ({"checks": [{**CHECK, "inputs": "all"}]}, "check 1"),
        ({"checks": [{**CHECK, "passed": "yes"}]}, "check 1"),
    ],
)
def test_a_verdict_is_itemised(payload: dict[str, Any], why: str) -> None:
    story = Story()
    story.add("N1")
    moved(story, "N06", verifier="verifier:v1", **payload)
    found = failures(of(story, VerdictsAreItemised))
    assert bool(found) == bool(why)
    assert why in "".join(found)


# What is bounded


def test_the_essence_of_a_contract_is_all_that_is_judged() -> None:
    whole = {
        "goal": "g" * 5_000, "title": "t", "parent": {"task_id": "T1"}, "acceptance": [{"x": 1}],
        "units": {"keys": [{"key": "k"}]}, "budget": {"max_wall_s": 3}, "outputs": None, "run": "x",
    }  # fmt: skip
    brief = essence(whole)
    assert len(brief["goal"]) == 80
    assert (brief["acceptance"], brief["budget"], brief["outputs"]) == ([], {}, None)
    assert (brief["units"], brief["parent"]) == (whole["units"], whole["parent"])


def issued(**change: Any) -> tuple[Story, DiskFacts]:
    """A contract of N1 that is on disk as it was cited."""
    story = Story()
    story.add("N1")
    story.start("N1")
    path = "contracts/inv-N1-1.json"
    contract = {
        "invocation_id": "inv-N1-1", "parent": {"task_id": "T1", "node_id": "N1"}, "goal": "g",
        "title": "t", "message": f"Read {path} and carry it out.", "steering_channel": "s",
        "recall": "r", "acceptance": [], "constraints": [], "authority_grants": [], "budget": {},
        "reporting": {}, "outputs": None,
    }  # fmt: skip
    lacking = [name for name, value in change.items() if value is ...]
    contract = {k: v for k, v in {**contract, **change}.items() if k not in lacking}
    facts = DiskFacts(contracts={path: Seen("ab" * 32, 900)}, contract_texts={path: contract})
    return story, facts


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"goal": ""}, "lacks goal"),
        ({"outputs": ...}, "lacks outputs"),
        ({"acceptance": ...}, "lacks acceptance"),
        ({"recall": ...}, "lacks recall"),
        ({"invocation_id": "inv-2"}, "the contract of inv-2"),
        ({"parent": {"task_id": "T1", "node_id": "N9"}}, "another task or node"),
        ({"message": "Read contracts/inv-N1-1.json\nand more"}, "one line"),
        ({"message": "You know what to do."}, "one line"),
    ],
)
def test_a_contract_is_complete_in_itself(change: dict[str, Any], why: str) -> None:
    story, facts = issued(**change)
    found = failures(on_disk(story, facts, SelfContained()))
    assert bool(found) == bool(why)
    assert why in "".join(found)


def test_what_cannot_be_read_as_a_contract_is_none() -> None:
    story, facts = issued()
    facts.contract_texts.clear()
    assert "no contract" in failures(on_disk(story, facts, SelfContained()))[0]


def test_a_contract_has_its_ceiling() -> None:
    story, facts = issued()
    assert failures(on_disk(story, facts, FirstReadIsBounded())) == []
    facts.contracts["contracts/inv-N1-1.json"] = Seen("ab" * 32, contract_bytes_max + 1)
    assert len(failures(on_disk(story, facts, FirstReadIsBounded()))) == 1


@pytest.mark.parametrize(("tokens", "fails"), [(10, False), (11, True), (None, False)])
def test_work_over_its_budget_is_not_claimed_as_done(tokens: int | None, *, fails: bool) -> None:
    story = Story()
    story.add("N1", budget=Budget(max_tokens=10))
    story.start("N1")
    story.register("N1", "A-1")
    used = {"usage": Usage(tokens=tokens)}
    story.do(c.MoveNode("N1", "VERIFYING", ("A-1",), used))
    assert bool(failures(of(story, OverBudgetIsEnded))) == fails
