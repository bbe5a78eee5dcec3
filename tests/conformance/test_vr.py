"""VR-0 to VR-2 and INV-6 over the library: what an audit decides, and what it cannot (V2)."""

import os
from typing import Any

import msgspec
import pytest
from tests.conformance.host import Host, edges

from perdure import HaltError, HaltRuntime
from perdure.core.audits import audits_max
from perdure.core.dispatching import Usage
from perdure.core.events import Event
from perdure.core.rules import explain_rule
from perdure.runtime import audits
from perdure.runtime.calls import perform

POINTS = ["It names its sources", "Its sums add up"]
OUT = "artifacts/N1/out.txt"


def items(*passed: bool, evidence: str = OUT) -> list[dict[str, Any]]:
    return [
        {"point": point, "passed": good, "detail": "seen", "evidence": [evidence]}
        for point, good in zip(POINTS, passed or (True, True), strict=True)
    ]


def verdict(*passed: bool, **more: Any) -> dict[str, Any]:
    said = "pass" if all(passed) else "fail"
    return {"verdict": said, "items": items(*passed), **more}


def submitted(host: Host, rt: HaltRuntime, audit: Any = None, **fields: Any) -> None:
    """N1, done by executor:bob, and claimed."""
    given = {"rubric": POINTS} if audit is None else audit
    accept = [{"audit": given}] if given else []
    rt.add_node("N1", "first", acceptance_criteria=accept, **fields)
    with rt.engine.acting_as("executor:bob"):
        perform(rt.engine, "start", {"node": "N1"})
    host.write(OUT, "work")
    rt.submit("N1")
    assert rt.node("N1").state == "VERIFYING"


def judge(rt: HaltRuntime, said: Any, by: str = "verifier:ann", **args: Any) -> dict[str, Any]:
    with rt.engine.acting_as(by):
        return perform(rt.engine, "judge", {"node": "N1", "verdict": said, **args})


def refused(rt: HaltRuntime, said: Any, by: str = "verifier:ann") -> HaltError:
    before = rt.seq_last
    with pytest.raises(HaltError) as caught:
        judge(rt, said, by)
    assert rt.seq_last == before
    return caught.value


def sent(rt: HaltRuntime) -> audits.Sent:
    return audits.send(rt.engine, rt.node("N1"), enforcement={})


def write_verdict(host: Host, one: audits.Sent, said: Any) -> None:
    text = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    host.write(f"{one.place}/verdict.json", text)


def last_audit(rt: HaltRuntime) -> Event:
    found = [e for e in rt.events() if e.kind == "NOTE" and e.payload.get("op") == "audit"]
    return found[-1]


@pytest.mark.parametrize("rule", ["VR-0", "VR-1", "VR-2", "INV-6"])
def test_the_rule_can_be_explained(rule: str) -> None:
    assert explain_rule(rule)["meaning"]


# What it decides


def test_vr_1_work_is_done_by_the_verdict_of_an_auditor_at_v2(host: Host, rt: HaltRuntime) -> None:
    submitted(host, rt)
    answer = judge(rt, verdict())
    assert (answer["audit"], answer["state"], answer["passed"]) == ("pass", "DONE", True)
    done = list(rt.events())[-1]
    assert (done.payload["edge"], done.payload["level"]) == ("N06", "V2")
    assert done.payload["verifier"] == "verifier:ann"
    [item] = [i for i in done.payload["checks"] if i["check"] == "audit"]
    assert [entry["point"] for entry in item["items"]] == POINTS
    assert (item["ref"], item["inputs"][0]["path"]) == (last_audit(rt).ref, OUT)


def test_vr_1_a_level_without_a_criterion_has_one_audit_of_one_point(
    host: Host, rt: HaltRuntime
) -> None:
    submitted(host, rt, {}, verification_level="V2")
    judge(rt, {"verdict": "pass", "items": [{"point": 1, "passed": True}]})
    assert list(rt.events())[-1].payload["level"] == "V2"


def test_vr_1_work_that_fails_its_audit_is_tried_again_with_what_was_found(
    host: Host, rt: HaltRuntime
) -> None:
    submitted(host, rt)
    answer = judge(rt, verdict(True, False))
    assert (answer["state"], answer["passed"]) == ("RETRYABLE", False)
    assert edges(rt, "N1")[-1] == "N07"
    assert "Its sums add up" in rt.node("N1").diagnosis
    assert "It names its sources" not in rt.node("N1").diagnosis


def test_vr_1_the_mechanical_checks_come_first_and_their_failure_needs_no_auditor(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("N1", "first", acceptance_criteria=["audit: Sound?", "exists: artifacts/N1/b"])
    rt.start("N1")
    host.write(OUT, "work")
    rt.submit("N1")
    assert (rt.node("N1").state, rt.node("N1").audit) == ("RETRYABLE", None)


def test_vr_1_without_a_verdict_nothing_is_done_and_nothing_has_failed(
    host: Host, rt: HaltRuntime
) -> None:
    submitted(host, rt)
    before = rt.seq_last
    found = perform(rt.engine, "check", {"node": "N1"})
    assert (found["passed"], found["state"], rt.seq_last) == (True, "VERIFYING", before)
    assert [i["pending"] for i in found["checks"] if i["check"] == "audit"] == [True]


def test_vr_3_a_person_is_asked_after_the_auditor_and_not_before(
    host: Host, rt: HaltRuntime
) -> None:
    submitted(host, rt, gates=["May it go out?"])
    assert not rt.state.questions
    judge(rt, verdict())
    assert [*rt.state.questions] == ["G-N1-review"]
    rt.approve("G-N1-review", by="gatekeeper:eve")
    assert rt.node("N1").state == "DONE"


def test_ga_3_a_verdict_does_not_hold_for_other_content(host: Host, rt: HaltRuntime) -> None:
    submitted(host, rt, inputs=["data/in.csv"])
    with rt.engine.acting_as("verifier:ann"):
        audits.judge(rt.engine, "N1", verdict())
    host.write("data/in.csv", "came later")
    rt.check("N1")
    assert rt.node("N1").state == "VERIFYING"
    judge(rt, verdict())
    assert rt.node("N1").state == "DONE"


def test_ga_3_files_that_are_not_what_was_registered_are_not_audited(
    host: Host, rt: HaltRuntime
) -> None:
    submitted(host, rt)
    host.write(OUT, "changed")
    assert refused(rt, verdict()).code == "audit_content"


# Who may


@pytest.mark.parametrize("name", ["bob", None])
def test_inv_6_the_producer_does_not_audit_its_own_work(
    host: Host, rt: HaltRuntime, name: str | None
) -> None:
    submitted(host, rt)
    error = refused(rt, verdict(), f"verifier:{name or rt.node('N1').invocation}")
    assert (error.code, error.rule) == ("auditor_is_producer", "INV-6")


def test_inv_6_a_coordinator_that_did_the_work_itself_is_its_producer(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("N1", "first", acceptance_criteria=[{"audit": {"rubric": POINTS}}])
    rt.start("N1")
    host.write(OUT, "work")
    rt.submit("N1")
    assert refused(rt, verdict(), "verifier:main").code == "auditor_is_producer"


@pytest.mark.parametrize("actor", ["coordinator:main", "sponsor:eve", "executor:x"])
def test_au_1_only_a_verifier_gives_a_verdict_by_hand(
    host: Host, rt: HaltRuntime, actor: str
) -> None:
    submitted(host, rt)
    assert refused(rt, verdict(), actor).code == "role_may_not"


def test_h4_where_verifiers_are_named_they_audit_and_nobody_else(workspace: str) -> None:
    host = Host(workspace)
    people = {"verifier": ["ann"]}
    with HaltRuntime(host.workspace, "T1", people=people, world=host.world()) as rt:
        submitted(host, rt, {"rubric": POINTS, "independence": ["I5"]})
        assert refused(rt, verdict(), "verifier:zoe").code == "not_the_holder"
        judge(rt, verdict())
        assert rt.node("N1").state == "DONE"


def test_a_node_that_asks_for_no_audit_gets_none(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first")
    rt.start("N1")
    assert refused(rt, verdict()).code == "no_audit"


def test_n06_work_that_is_not_finished_is_not_judged(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first", acceptance_criteria=["audit: Sound?"])
    rt.start("N1")
    said = {"verdict": "pass", "items": [{"point": 1, "passed": True}]}
    assert refused(rt, said).rule == "N06"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("no JSON", "not JSON"),
        ({"verdict": "good", "items": []}, "neither pass nor fail"),
        ({"verdict": "pass"}, "no list of items"),
        ({"verdict": "pass", "items": items()[:1]}, "does not judge the point"),
        ({"verdict": "pass", "items": [*items(), items()[0]]}, "twice"),
        ({"verdict": "pass", "items": items(True, False)}, "its items say otherwise"),
        ({"verdict": "fail", "items": items()}, "its items say otherwise"),
        ({"verdict": "pass", "items": [{"point": 3, "passed": True}]}, "no point of the rubric"),
        ({"verdict": "pass", "items": [{"point": 1, "passed": 1}]}, "neither true nor false"),
        ({"verdict": "pass", "items": [1]}, "no JSON object"),
        ([1], "no JSON object"),
    ],
)
def test_a_4_a_verdict_judges_each_point_or_is_none(
    host: Host, rt: HaltRuntime, said: Any, why: str
) -> None:
    submitted(host, rt)
    error = refused(rt, said)
    assert (error.code, error.exit_code) == ("audit_incomplete", 2)
    assert why in error.message


# VR-0: the profile


def test_vr_0_a_verdict_records_the_independence_that_was_seen(host: Host, rt: HaltRuntime) -> None:
    submitted(host, rt)
    judge(rt, {"verdict": "pass", "items": items(evidence="artifacts/N1/nothing")})
    assert last_audit(rt).payload["independence"] == ["I1", "I2"]
    assert last_audit(rt).payload["integrity"] == "clean"


def test_vr_0_evidence_of_its_own_counts_when_all_of_it_is_found(
    host: Host, rt: HaltRuntime
) -> None:
    submitted(host, rt, {"rubric": POINTS, "independence": ["I4"]})
    judge(rt, {"verdict": "pass", "items": items(evidence="artifacts/N1/nothing")})
    assert rt.node("N1").state == "VERIFYING"
    judge(rt, verdict())
    assert rt.node("N1").state == "DONE"


@pytest.mark.parametrize(("model", "met"), [("other", True), ("same", False), ("", False)])
def test_vr_0_another_model_counts_when_both_are_known(
    host: Host, rt: HaltRuntime, model: str, met: bool
) -> None:
    submitted(host, rt, {"rubric": POINTS, "run": "judge", "model": model or None})
    rt.node("N1").usage = Usage(model="same")
    one = sent(rt)
    write_verdict(host, one, verdict())
    audits.record(rt.engine, one, held=True)
    assert ("I3" in last_audit(rt).payload["independence"]) is met


def test_vr_0_tier_2_asks_for_another_authority(workspace: str) -> None:
    host = Host(workspace)
    with HaltRuntime(host.workspace, "T1", tier=2, world=host.world()) as rt:
        submitted(host, rt)
        judge(rt, verdict())  # of whom nobody has said that he does not answer to the producer
        assert rt.node("N1").state == "VERIFYING"
        one = sent(rt)
        write_verdict(host, one, verdict())
        audits.record(rt.engine, one, held=True)
        assert "I5" in last_audit(rt).payload["independence"]
        rt.check("N1")
        assert rt.node("N1").state == "DONE"


# VR-2: integrity


def test_vr_2_an_auditor_gets_a_contract_that_lets_it_write_its_verdict_and_nothing_else(
    host: Host, rt: HaltRuntime
) -> None:
    submitted(host, rt)
    one = sent(rt)
    order = msgspec.json.decode(host.read(f"contracts/{one.invocation}.json"))
    assert order["authority_grants"] == [f"write:{one.place}/*"]
    assert order["audit"]["rubric"] == POINTS
    assert order["audit"]["verdict"] == f"{one.place}/verdict.json"
    assert [*order["audit"]["files"]] == [OUT]
    assert one.invocation != rt.node("N1").invocation
    note = list(rt.events())[-1]
    assert note.payload["contract"] == f"contracts/{one.invocation}.json"


def test_vr_2_whatever_changes_under_an_audit_makes_it_a_violation(
    host: Host, rt: HaltRuntime
) -> None:
    submitted(host, rt, inputs=["data"])
    host.write("data/a.csv", "1")
    one = sent(rt)
    write_verdict(host, one, verdict())
    host.write("data/a.csv", "2")
    audits.record(rt.engine, one, held=False)
    seen = last_audit(rt).payload
    assert (seen["integrity"], seen["diagnosis"]) == (
        "violation",
        "data changed while it was audited",
    )
    rt.check("N1")
    assert rt.node("N1").state == "VERIFYING"


def test_vr_2_what_cannot_be_hashed_is_suspect_unless_the_kernel_held_the_auditor(
    host: Host, rt: HaltRuntime
) -> None:
    submitted(host, rt, inputs=["data/pipe"])
    os.makedirs(f"{host.workspace}/data")
    os.mkfifo(f"{host.workspace}/data/pipe")
    for held, integrity in ((False, "suspect"), (True, "clean")):
        one = sent(rt)
        write_verdict(host, one, verdict())
        audits.record(rt.engine, one, held=held)
        assert last_audit(rt).payload["integrity"] == integrity


@pytest.mark.parametrize("said", ["", "{}", {"verdict": "pass", "items": []}])
def test_vr_2_a_malformed_verdict_is_suspect_and_decides_nothing(
    host: Host, rt: HaltRuntime, said: Any
) -> None:
    submitted(host, rt)
    one = sent(rt)
    if said:
        write_verdict(host, one, said)
    audits.record(rt.engine, one, held=True)
    assert last_audit(rt).payload["integrity"] == "suspect"
    rt.check("N1")
    assert rt.node("N1").state == "VERIFYING"


def test_vr_2_a_verdict_behind_a_link_is_none(host: Host, rt: HaltRuntime) -> None:
    submitted(host, rt)
    one = sent(rt)
    host.write("elsewhere.txt", msgspec.json.encode(verdict()).decode())
    os.symlink(f"{host.workspace}/elsewhere.txt", f"{host.workspace}/{one.place}/verdict.json")
    audits.record(rt.engine, one, held=True)
    assert last_audit(rt).payload["diagnosis"] == "there is no verdict"


def test_qa_1_after_a_few_audits_without_a_verdict_a_person_is_asked(
    host: Host, rt: HaltRuntime
) -> None:
    submitted(host, rt)
    for number in range(1, audits_max + 1):
        assert not rt.state.questions
        audits.record(rt.engine, sent(rt), held=True, problem="exit 3")
        assert last_audit(rt).payload["round"] == number
    [question] = rt.state.questions.values()
    assert "exit 3" in question.text
    assert rt.node("N1").state == "VERIFYING"
    judge(rt, verdict())  # settles the question as well
    assert (rt.node("N1").state, rt.state.questions) == ("DONE", {})


def test_qa_1_the_answer_lets_it_be_audited_again(host: Host, rt: HaltRuntime) -> None:
    submitted(host, rt)
    for _ in range(audits_max):
        audits.record(rt.engine, sent(rt), held=True, problem="exit 3")
    [name] = rt.state.questions
    rt.answer(name, "it can be audited now", by="gatekeeper:eve")
    assert (rt.node("N1").state, rt.state.questions) == ("VERIFYING", {})
    audits.record(rt.engine, sent(rt), held=True, problem="exit 3")
    assert len(rt.state.questions) == 1


# Replay, and repetition


def test_the_same_verdict_under_the_same_op_id_is_recorded_once(
    host: Host, rt: HaltRuntime
) -> None:
    submitted(host, rt)
    with rt.engine.acting_as("verifier:ann"):
        args = {"node": "N1", "verdict": verdict()}
        first = perform(rt.engine, "judge", args, op="op-1")
        again = perform(rt.engine, "judge", args, op="op-1")
    assert (again["committed"], again["repeated"]) == (first["committed"], True)
    assert (again["audit"], again["node"]) == ("pass", "N1")


def test_a_recorded_verdict_survives_the_death_of_whoever_recorded_it(host: Host) -> None:
    rt = host.open()
    submitted(host, rt)
    with rt.engine.acting_as("verifier:ann"):
        audits.judge(rt.engine, "N1", verdict())
    host.die(rt)
    with host.resume(101) as again:
        assert again.node("N1").state == "VERIFYING"
        again.check("N1")
        assert again.node("N1").state == "DONE"


# Afterwards


def test_r4_audited_work_stands_when_what_it_used_is_done_again(host: Host) -> None:
    rt = host.open()
    rt.add_node("N0", "before")
    host.finish(rt, "N0")
    submitted(host, rt, deps=["N0"])
    judge(rt, verdict())
    host.die(rt)
    os.unlink(f"{host.workspace}/artifacts/N0/out.txt")
    with host.resume(101) as again:
        assert (again.node("N0").state, again.node("N1").state) == ("READY", "DONE")


def test_ge_2_a_goal_finds_audited_work_whose_inputs_are_others_now(
    host: Host, rt: HaltRuntime
) -> None:
    submitted(host, rt, inputs=["data/in.csv"])
    host.write("data/in.csv", "1")
    judge(rt, verdict())
    host.write("data/in.csv", "2")
    with rt.engine.acting_as("sponsor:eve"):
        wanted = {"text": "more", "reason": "asked", "reverify": ["N1"]}
        perform(rt.engine, "goal", wanted)
    amended = [e for e in rt.events() if e.kind == "GOAL_AMENDED"][-1]
    assert (
        "what was audited is not what is there now" in msgspec.json.encode(amended.payload).decode()
    )
