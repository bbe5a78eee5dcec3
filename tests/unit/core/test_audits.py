"""Audits as far as state and digests decide: the plan, the profile, and what a verdict is worth."""

from typing import Any

import msgspec
import pytest
from tests.unit.core.story import Story, replay
from tests.unit.core.test_decide import refusal

from perdure.core import commands as c
from perdure.core.actions import AgentCall
from perdure.core.audits import (
    DEFAULT_POINT,
    AuditPlan,
    Circumstances,
    Findings,
    audit_items,
    audit_plan,
    audits_max,
    awaits_audit,
    files_of_items,
    independence_met,
    item_detail_chars_max,
    item_evidence_max,
    model_chars_max,
    producer_model,
    producer_names,
    read_findings,
    shortfall,
    unhashed,
    verdict_bytes_max,
)
from perdure.core.criteria import parse_criterion
from perdure.core.dispatch_commands import RecordAudit
from perdure.core.dispatching import Audit, Usage
from perdure.core.model import Criterion, Executor, MapSpec, Spec

BYTES = "ab" * 32
FILES = {"artifacts/N1/A-N1.txt": BYTES}
BOB = Executor("executor:bob")


def criteria(*given: Any) -> tuple[Criterion, ...]:
    return tuple(parse_criterion({"audit": entry}) for entry in given)


def claimed(*given: Any, **fields: Any) -> Story:
    """N1, done by bob, claimed, and to be audited."""
    story = Story()
    story.add("N1", acceptance_criteria=criteria(*(given or ("Sound?",))), **fields)
    story.start("N1", executor=BOB)
    story.register("N1", "A-N1")
    story.claim("N1")
    return story


def plan_of(story: Story) -> AuditPlan:
    plan = audit_plan(story.replica.state, story.node("N1"))
    assert plan is not None
    return plan


def verdict(story: Story, *passed: bool, **more: Any) -> RecordAudit:
    plan = plan_of(story)
    said = passed or (True,) * len(plan.points)
    items = tuple(
        {"point": point, "passed": good, "detail": "", "evidence": []}
        for point, good in zip(plan.points, said, strict=True)
    )
    known: dict[str, Any] = {
        "node_id": "N1",
        "verifier": "verifier:ann",
        "passed": all(said),
        "integrity": "clean",
        "independence": ("I1", "I2"),
        "files": FILES,
        "rubric": plan.rubric,
        "items": items,
    }
    return RecordAudit(**{**known, **more})


def record(story: Story, command: RecordAudit) -> None:
    before, story.actor = story.actor, command.verifier
    story.do(command)
    story.actor = before


def items_of(story: Story, files: dict[str, str] | None = None) -> list[dict[str, Any]]:
    return audit_items(story.replica.state, story.node("N1"), FILES if files is None else files)


# The plan


def test_a_node_that_asks_for_none_has_no_plan() -> None:
    story = Story()
    story.add("N1")
    assert audit_plan(story.replica.state, story.node("N1")) is None
    assert items_of(story) == []


def test_the_level_alone_asks_for_one_point() -> None:
    story = Story()
    story.add("N1", verification_level="V2")
    assert (plan_of(story).points, plan_of(story).dispatches) == ((DEFAULT_POINT,), False)


def test_several_criteria_are_one_audit_by_the_first_auditor_that_is_named() -> None:
    story = claimed(
        "One",
        {"rubric": ["Two", "One"], "agent": "claude", "model": "m", "independence": ["I4"]},
        {"rubric": "Three", "run": "judge"},
    )
    plan = plan_of(story)
    assert plan.points == ("One", "Two", "Three")
    assert plan.independence == ("I1", "I2", "I4")
    assert (plan.agent, plan.run, plan.model) == (AgentCall("claude", model="m"), None, "m")
    assert [i["params"].get("rubric") for i in items_of(story)] == ["One", ["Two", "One"], "Three"]


def test_a_plan_can_be_made_of_what_others_wrote_into_a_journal() -> None:
    story = Story()
    odd = Criterion("audit", {"agent": 7, "run": None, "rubric": 3, "independence": "I3"}, "V2")
    story.add("N1", acceptance_criteria=(odd,))
    plan = plan_of(story)
    assert (plan.points, plan.agent, plan.dispatches) == ((DEFAULT_POINT,), None, False)


# What a verdict says


@pytest.mark.parametrize("point", [1, "1", "Sound?", " Sound? "])
def test_a_point_is_named_by_its_text_or_its_number(point: Any) -> None:
    data = msgspec.json.encode(
        {"verdict": "pass", "items": [{"point": point, "passed": True}], "model": "m"}
    )
    item = {"point": "Sound?", "passed": True, "detail": "", "evidence": []}
    assert read_findings(data, ["Sound?"]) == Findings(True, (item,), "m")


def test_items_come_in_the_order_of_the_rubric_and_are_bounded() -> None:
    long = {"passed": False, "detail": "x" * 9_999, "evidence": ["e", " ", *map(str, range(99))]}
    data = msgspec.json.encode({"verdict": "fail", "items": [{"point": 2, **long},
                                                            {"point": 1, **long}]})  # fmt: skip
    found = read_findings(data, ["a", "b"])
    assert [item["point"] for item in found.items] == ["a", "b"]
    assert len(found.items[0]["detail"]) == item_detail_chars_max
    assert len(found.items[0]["evidence"]) == item_evidence_max


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[" * 5_000, b"1", b"x" * (verdict_bytes_max + 1), b'{"verdict": 1}']
)
def test_what_is_no_verdict_is_told_and_never_raised(data: bytes) -> None:
    found = read_findings(data, ["a"])
    assert (found.passed, found.items, found.problem != "") == (False, (), True)


def test_the_number_of_a_point_has_no_more_digits_than_a_rubric_has_points() -> None:
    data = msgspec.json.encode({"verdict": "pass", "items": [{"point": "1" * 5_000}]})
    assert "no point of the rubric" in read_findings(data, ["a"]).problem


def test_the_name_of_a_model_is_a_name() -> None:
    data = msgspec.json.encode(
        {"verdict": "pass", "items": [{"point": 1, "passed": True}], "model": "m" * 99_999}
    )
    assert read_findings(data, ["a"]).model == "m" * model_chars_max


# How independent it is


def test_the_profile_is_what_was_seen() -> None:
    assert independence_met(Circumstances()) == ("I1", "I2")
    everything = Circumstances("a", "b", evidence=True, authority=True)
    assert independence_met(everything) == ("I1", "I2", "I3", "I4", "I5")
    assert "I3" not in independence_met(Circumstances("a", "a"))
    assert "I3" not in independence_met(Circumstances("a", ""))


def test_the_model_of_the_producer_is_what_it_said_or_what_was_asked_for() -> None:
    story = claimed()
    node = story.node("N1")
    assert producer_model(node) == ""
    asked = msgspec.structs.replace(node, spec=Spec(agent=AgentCall("codex", model="a")))
    assert producer_model(asked) == "a"
    batch = MapSpec(items="i", agent=AgentCall("codex", model="b"))
    assert producer_model(msgspec.structs.replace(node, spec=Spec(map=batch))) == "b"
    assert producer_model(msgspec.structs.replace(asked, usage=Usage(model="c"))) == "c"


def test_the_model_of_an_auditor_is_never_taken_for_that_of_the_producer() -> None:
    story = claimed()
    record(story, verdict(story, usage=Usage(cost_usd=1.5, model="auditor")))
    assert producer_model(story.node("N1")) == ""
    assert story.events()[-1].payload["model"] == "auditor"
    usage = story.node("N1").usage
    assert usage is not None
    assert usage.cost_usd == 1.5


# Whether it holds


def test_a_verdict_holds_for_its_content_and_its_rubric() -> None:
    story = claimed()
    assert awaits_audit(items_of(story))
    record(story, verdict(story))
    [item] = items_of(story)
    assert (item["passed"], item["by"], item.get("pending")) == (True, "verifier:ann", None)
    assert files_of_items([item]) == FILES
    assert awaits_audit(items_of(story, {"artifacts/N1/A-N1.txt": "cd" * 32}))
    assert awaits_audit(items_of(story, {**FILES, "data/in.csv": ""}))
    plan, audit = plan_of(story), story.node("N1").audit
    assert audit is not None
    other = plan._replace(points=("Other?",))
    assert "another rubric" in shortfall(other, audit, FILES)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"integrity": "suspect"}, "suspect"),
        ({"integrity": "violation"}, "violation"),
        ({"independence": ("I1",)}, "short of I2"),
    ],
)
def test_a_verdict_that_falls_short_decides_nothing_whatever_it_says(
    more: dict[str, Any], why: str
) -> None:
    for good in (True, False):
        story = claimed()
        record(story, verdict(story, good, **more))
        [item] = items_of(story)
        assert item["pending"]
        assert why in item["detail"]


def test_a_criterion_fails_by_its_own_points_alone() -> None:
    story = claimed("One", "Two")
    record(story, verdict(story, True, False))
    one, two = items_of(story)
    assert (one["passed"], two["passed"]) == (True, False)
    assert two["detail"] == "Two."


def test_words_in_the_place_of_a_digest_are_no_digest() -> None:
    assert unhashed({"a": BYTES, "b": "", "c": "tree:ab", "d": "a fifo or so"}) == [
        "d is a fifo or so"
    ]


def test_a_passing_verdict_without_the_audit_moves_nothing() -> None:
    story = claimed()
    checks = ({"check": "audit", "passed": False, "pending": True},)
    command = c.MoveNode("N1", "DONE", verdict=c.Verdict(True, "verifier:v1", "V1", checks, {}))
    decision = story.decide(command)
    assert (decision.drafts, decision.answer) == ((), story.node("N1").state_ref)


# The record


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"rubric": "another"}, "audit_rubric"),
        ({"files": {}}, "audit_content"),
        ({"items": ()}, "audit_incomplete"),
        ({"passed": False}, "audit_incomplete"),
        ({"independence": ("I9",)}, "usage"),
        ({"verifier": "verifier:bob"}, "auditor_is_producer"),
        ({"verifier": "verifier:inv-N1-1"}, "auditor_is_producer"),
        ({"verifier": "verifier:"}, "role_may_not"),
    ],
)
def test_what_is_no_verdict_on_this_work_is_refused(more: dict[str, Any], code: str) -> None:
    story = claimed()
    command = verdict(story, **more)
    story.actor = command.verifier
    assert refusal(story, command).code == code


def test_an_auditor_does_not_judge_under_the_contract_of_the_work() -> None:
    story = claimed()
    command = verdict(story, contract="contracts/inv-N1-1.json")
    assert refusal(story, command).code == "auditor_is_producer"


def test_nobody_gives_a_verdict_in_the_name_of_somebody_else() -> None:
    story = claimed()
    command = verdict(story)
    for story.actor in ("verifier:zoe", "coordinator:main"):
        assert refusal(story, command).code == "role_may_not"
    story.do(verdict(story, contract="contracts/inv-audit.json"))  # of an auditor that was sent
    assert story.node("N1").audit is not None


def test_who_did_the_work_is_known_by_name_and_by_contract() -> None:
    story = claimed()
    assert producer_names(story.node("N1")) == ("bob", "inv-N1-1")


def test_verdicts_that_decide_nothing_are_counted_for_one_attempt() -> None:
    story = claimed(retry_budget=9)
    for number in range(1, audits_max + 2):
        record(story, verdict(story, integrity="suspect"))
        assert story.node("N1").audit == msgspec.structs.replace(
            _audit(story), round=number, attempt=1
        )
    assert len(story.replica.state.questions) == 1
    record(story, verdict(story))
    assert (_audit(story).round, story.replica.state.questions) == (1, {})
    story.conclude("N1", passed=False)
    story.start("N1", executor=BOB)
    story.register("N1", "A-2", "artifacts/N1/b")
    story.claim("N1")
    files = {"artifacts/N1/b": BYTES}
    record(story, verdict(story, integrity="suspect", files=files))
    assert (_audit(story).round, _audit(story).attempt) == (1, 2)


def _audit(story: Story) -> Audit:
    audit = story.node("N1").audit
    assert audit is not None
    return audit


def test_what_is_replayed_is_what_was_decided() -> None:
    story = claimed("One", "Two")
    record(story, verdict(story, True, False))
    replica, _ = replay(story.journal)
    assert replica.state == story.replica.state
