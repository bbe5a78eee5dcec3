"""Items A5.1 and A5.2: on which level, by whom, and after which claim."""

from typing import Any

import pytest
from tests.unit.core.story import Story
from tests.unit.core.test_audit_truth import claimed, done
from tests.unit.core.test_task_audit_items import failures, of

from perdure.core import commands as c
from perdure.core.audit_verification import ClaimedFirst, LevelsHeld
from perdure.core.events import Draft
from perdure.core.model import Criterion, Executor

PASSED = {"check": "exists", "passed": True}
AUDIT = {
    "check": "audit", "passed": True, "by": "verifier:ann", "integrity": "clean",
    "independence": ["I1", "I2"],
}  # fmt: skip
HUMAN = {"check": "human", "passed": True, "by": "gatekeeper:ann"}


def verdict(level: str, *checks: dict[str, Any], verifier: str = "verifier:v1") -> Draft:
    return done("N1", verifier=verifier, level=level, checks=list(checks), artifacts={})


def held(story: Story) -> list[str]:
    return failures(of(story, LevelsHeld))


@pytest.mark.parametrize(
    ("level", "checks"),
    [("V0", ()), ("V1", (PASSED,)), ("V2", (PASSED, AUDIT)), ("V3", (PASSED, HUMAN))],
)
def test_what_was_asked_for_and_done_holds(level: str, checks: tuple[dict[str, Any], ...]) -> None:
    story = claimed(verification_level=level)
    story.commit(verdict(level, *checks))
    assert held(story) == []


@pytest.mark.parametrize(
    ("level", "draft", "said"),
    [
        ("V1", verdict("V0", PASSED), "asks for V1, and was verified at V0"),
        ("V2", verdict("V1", PASSED, AUDIT), "asks for V2, and was verified at V1"),
        ("V2", verdict("V2", PASSED), "no audit check passed"),
        ("V2", verdict("V2", {**AUDIT, "passed": False}), "no audit check passed"),
        ("V2", verdict("V2", {**AUDIT, "independence": ["I2"]}), "short of I1"),
        ("V2", verdict("V2", {**AUDIT, "independence": []}), "short of I1, I2"),
        ("V2", verdict("V2", {**AUDIT, "integrity": "violated"}), "integrity"),
        ("V2", verdict("V2", {**AUDIT, "by": "verifier:w"}), "audited its own work"),
        ("V3", verdict("V3", PASSED, AUDIT), "no human check passed"),
        ("V1", verdict("V1", PASSED, verifier="executor:w"), "verified its own work"),
        ("V1", verdict("V1", PASSED, verifier=""), "does not say who"),
    ],
)
def test_less_than_was_asked_for_fails(level: str, draft: Draft, said: str) -> None:
    story = Story()
    story.add("N1", verification_level=level)
    story.start("N1", executor=Executor("executor:w", "session", "here", "boot-1", 0, 0.0))
    story.register("N1", "A-N1")
    story.claim("N1")
    story.commit(draft)
    (failed,) = held(story)
    assert said in failed


def test_an_audit_is_as_independent_as_its_criterion_asks() -> None:
    wants = Criterion("audit", {"rubric": "It is right.", "independence": ["I3", "I5"]}, "V2")
    story = claimed(verification_level="V2", acceptance_criteria=(wants,))
    story.commit(verdict("V2", AUDIT))
    (failed,) = held(story)
    assert failed.endswith("is short of I3, I5")
    story = claimed(verification_level="V2", acceptance_criteria=(wants,))
    story.commit(verdict("V2", {**AUDIT, "independence": ["I1", "I3", "I5"]}))
    assert held(story) == []


def test_tier_2_asks_for_another_authority() -> None:
    story = Story(begun=False)
    story.do(c.StartTask("T1", "the goal", tier=2))
    story.add("N1", verification_level="V2")
    story.start("N1")
    story.register("N1", "A-N1")
    story.claim("N1")
    story.commit(verdict("V2", AUDIT))
    (failed,) = held(story)
    assert failed.endswith("is short of I5")


@pytest.mark.parametrize(
    ("actor", "fails"), [("sponsor:ann", False), ("coordinator:main", True), ("executor:w", True)]
)
def test_only_the_sponsor_lowers_a_level(actor: str, *, fails: bool) -> None:
    story = Story()
    story.add("N1", verification_level="V2")
    story.actor = actor
    payload = {"op": "amend_node", "target": "N1", "after": {"verification_level": "V1"}}
    story.commit(Draft("AMENDMENT", "node", "N1", payload))
    assert story.node("N1").verification_level == "V1"
    found = held(story)
    assert len(found) == fails
    assert all("from V2 to V1" in each for each in found)


def test_raising_a_level_is_nobodys_business() -> None:
    story = Story()
    story.add("N1")
    payload = {"op": "amend_node", "target": "N1", "after": {"verification_level": "V3"}}
    story.commit(Draft("AMENDMENT", "node", "N1", payload))
    assert held(story) == []


def test_a_verdict_of_others_that_names_nobody_is_not_judged() -> None:
    story = Story()
    story.add("N1")
    story.commit(done("N1", edge=None))
    findings = of(story, LevelsHeld)
    assert (findings.results, bool(findings.why)) == ((), True)


# A5.2


def test_a_verdict_follows_a_claim() -> None:
    story = claimed()
    story.conclude("N1", passed=False)
    story.finish("N1")
    findings = of(story, ClaimedFirst)
    assert failures(findings) == []
    assert len(findings.results) == 3  # N0 and two verdicts on N1


@pytest.mark.parametrize("edge", ["N06", "N07", "N08"])
def test_a_verdict_without_a_claim_fails(edge: str) -> None:
    story = Story()
    story.add("N1")
    story.start("N1")
    story.commit(
        Draft("STATE_TRANSITION", "node", "N1", {"from": "VERIFYING", "to": "DONE", "edge": edge})
    )
    (failed,) = failures(of(story, ClaimedFirst))
    assert f"N1 got {edge} without a claim" in failed


def test_one_claim_is_good_for_one_verdict() -> None:
    story = claimed()
    story.conclude("N1")
    story.commit(done("N1", artifacts={}))
    assert len(failures(of(story, ClaimedFirst))) == 1


def test_nothing_but_a_verdict_leads_to_done() -> None:
    story = claimed()
    payload = {"from": "RUNNING", "to": "DONE", "edge": "N02"}
    story.commit(Draft("STATE_TRANSITION", "node", "N1", payload))
    (failed,) = failures(of(story, ClaimedFirst))
    assert "N1 became DONE by N02" in failed


def test_moves_of_others_are_followed_by_their_states() -> None:
    story = Story()
    story.add("N1")
    for source, target in (("READY", "RUNNING"), ("RUNNING", "VERIFYING"), ("VERIFYING", "DONE")):
        story.commit(Draft("STATE_TRANSITION", "node", "N1", {"from": source, "to": target}))
    findings = of(story, ClaimedFirst)
    assert (failures(findings), len(findings.results)) == ([], 1)
    story.commit(Draft("STATE_TRANSITION", "node", "N1", {"from": "RUNNING", "to": "DONE"}))
    assert len(failures(of(story, ClaimedFirst))) == 1
