"""What is wanted changes by rule: GE-1 to GE-3, FR-2; and the policies, with their reasons."""

import json
from typing import Any

import pytest
from tests.conformance.host import Host, edges

from perdure import HaltError, HaltRuntime, Policies, RefusedError
from perdure.core.decide_goal import DIRECTIVE, goal_chars_max
from perdure.core.model import NODE_STATES
from perdure.runtime import goals
from perdure.runtime.calls import perform

ANN = "sponsor:ann"


def call(rt: HaltRuntime, what: str, by: str = ANN, op: str | None = None, **args: Any) -> Any:
    with rt.engine.acting_as(by):
        return perform(rt.engine, what, args, op=op)


def one_of_each(host: Host, rt: HaltRuntime) -> None:
    """A node in every state, named after it."""
    for state in NODE_STATES:
        rt.add_node("PENDING" if state == "PENDING" else state, f"is {state}")
    rt.add_node("FIRST", "never done")
    rt.amend_node("PENDING", "it waits", deps=["FIRST"])
    for name in ("RUNNING", "VERIFYING", "BLOCKED", "RETRYABLE"):
        rt.start(name)
    host.finish(rt, "DONE")
    rt.register_artifact("", host.write("artifacts/VERIFYING/o"), node_id="VERIFYING")
    rt.transition("VERIFYING", "VERIFYING")
    rt.transition("BLOCKED", "BLOCKED", reason="wall", wake="gone")
    rt.fail("RETRYABLE", "transient-agent", "exit 3")
    rt.transition("READY", "READY")
    rt.quarantine("QUARANTINED", "no")
    rt.cancel(["CANCELLED"], "no")
    assert {name: rt.node(name).state for name in NODE_STATES} == {n: n for n in NODE_STATES}


# GE-1


def test_ge_1_only_the_sponsor_changes_the_goal(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first")
    before = rt.seq_last
    for actor in ("coordinator:main", "gatekeeper:bob", "executor:x", "verifier:v"):
        with pytest.raises(RefusedError) as caught:
            rt.goal("another", "why", by=actor)
        assert (caught.value.rule, caught.value.code) == ("AU-1", "role_may_not")
        assert "sponsor" in caught.value.message
    assert (rt.seq_last, rt.state.goal_statement) == (before, "g")
    with pytest.raises(RefusedError) as caught:
        rt.append("GOAL_AMENDED", {"type": "task", "id": "T1"}, {"new": "another"})
    assert "goal" in caught.value.fix


def test_ge_1_the_change_says_old_new_why_and_all_that_it_touches(
    host: Host, rt: HaltRuntime
) -> None:
    one_of_each(host, rt)
    host.clock.advance(10)
    event = rt.goal("another", "the market moved", acceptance=["sold"], by=ANN)
    payload = event.payload
    assert (payload["old"], payload["new"], payload["reason"], payload["count"]) == (
        "g",
        "another",
        "the market moved",
        1,
    )
    assert (event.actor, payload["authority"], payload["at"]) == (ANN, ANN, host.clock.now())
    assert (payload["acceptance"], rt.state.acceptance) == (["sold"], ("sold",))
    radius = payload["blast_radius"]
    assert set(radius["amended"]) == {
        "PENDING", "READY", "RUNNING", "VERIFYING", "BLOCKED", "RETRYABLE", "FIRST",
    }  # fmt: skip
    assert radius["done_stand"] == ["DONE"]
    assert radius["done_reverified"] == radius["superseded"] == []
    assert radius["failed"] == {}
    assert (rt.state.goal_statement, rt.state.goal_amendments) == ("another", 1)


def test_ge_1_open_nodes_are_told_and_what_is_at_work_is_recalled_in_the_same_commit(
    host: Host, rt: HaltRuntime
) -> None:
    one_of_each(host, rt)
    event = rt.goal("another", "the market moved", by=ANN)
    told = f"{DIRECTIVE}another ({event.ref})"
    for name in NODE_STATES:
        open_before = name not in ("DONE", "QUARANTINED", "CANCELLED")
        assert rt.node(name).directives == ((told,) if open_before else ()), name
    assert not rt.state.contracts
    for name, edge in (("RUNNING", "N04"), ("VERIFYING", "N07")):
        node = rt.node(name)
        assert (node.state, edges(rt, name)[-1]) == ("RETRYABLE", edge)
        assert (node.strikes, node.interruptions, node.checks_failed) == (0, 1, 0)
        assert "goal" in node.diagnosis
    assert rt.state.artifacts["A-VERIFYING"].status == "quarantined"
    assert host.read("artifacts/old/A-VERIFYING-1/o")
    assert rt.state.observed.errors == 1, "a recall is no error; RETRYABLE failed before"
    caused = [e for e in rt.events() if "goal" in e.payload and e.kind != "INSTANCE_STARTED"]
    assert {e.payload["goal"] for e in caused} == {event.ref}
    amended = [e for e in caused if e.payload.get("op") == "amend_node"]
    assert len(amended) == 7
    assert all(rt.node(e.entity.id).amended_by[-1] == e.ref for e in amended)


def test_fr_2_the_next_contract_carries_the_newest_goal_and_no_older_one(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("N1", "first")
    perform(rt.engine, "amend", {"node": "N1", "reason": "x", "directives": ["be brief"]})
    rt.start("N1")
    rt.goal("second", "why", by=ANN)
    third = rt.goal("third", "why", by=ANN)
    assert rt.frontier() == ["N1"]
    rt.start("N1")
    contract = json.loads(host.read(f"contracts/{rt.node('N1').invocation}.json"))
    assert contract["constraints"][-2:] == ["be brief", f"{DIRECTIVE}third ({third.ref})"]
    assert contract["parent"]["goal"] == "third"
    assert "goal" in contract["previous_failure"]


def test_ge_1_what_the_new_goal_leaves_out_is_cancelled_by_decision(
    host: Host, rt: HaltRuntime
) -> None:
    one_of_each(host, rt)
    rt.add_node("LATER", "waits for it", deps=["READY"])
    leave = ["PENDING", "READY", "RUNNING", "VERIFYING", "BLOCKED", "RETRYABLE", "DONE"]
    answer = call(rt, "goal", text="another", reason="why", supersede=leave)
    assert {rt.node(name).state for name in leave} == {"CANCELLED"}
    assert (answer["superseded"], answer["amended"]) == (leave, ["FIRST", "LATER"])
    assert (answer["recalled"], answer["stranded"]) == ([], ["LATER"])
    decided = next(e for e in rt.events() if e.payload.get("op") == "cancel" and e.actor == ANN)
    assert decided.payload["nodes"] == leave
    assert host.read("artifacts/DONE/out.txt"), "files stay"


# GE-2


def test_ge_2_what_holds_stays_done_and_what_does_not_gets_a_corrective_node(
    host: Host, rt: HaltRuntime
) -> None:
    for name in ("A", "B"):
        rt.add_node(name, name, outputs=[f"artifacts/{name}/out.txt"], constraints=["be brief"])
        host.finish(rt, name)
    rt.add_node("C", "rests on both", deps=["A", "B"])
    rt.add_node("D", "rests on one", deps=["A"])
    rt.start("C")
    host.write("artifacts/B/out.txt", "not what it was")
    answer = call(rt, "goal", text="another", reason="why", reverify=["A", "B"])
    assert answer["done_reverified"] == ["A"]
    assert list(answer["failed"]) == ["B"]
    assert "artifacts/B/out.txt" in answer["failed"]["B"]
    assert (answer["corrective"], answer["recalled"]) == (["B.fix1"], ["C"])
    assert rt.node("A").state == rt.node("B").state == "DONE", "history stays"
    fix = rt.node("B.fix1")
    assert (fix.deps, fix.state, fix.spec.constraints) == (("B",), "PENDING", ("be brief",))
    assert "artifacts/B/out.txt" in fix.spec.goal
    assert fix.directives == rt.node("C").directives
    assert rt.node("C").deps == ("A", "B", "B.fix1")
    assert rt.node("D").deps == ("A",)
    assert set(rt.frontier()) == {"B.fix1", "D"}


def test_ge_2_a_finished_task_goes_on_when_something_does_not_hold(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("A", "first", outputs=["artifacts/A/out.txt"])
    host.finish(rt, "A")
    rt.move_task("FINAL_AUDIT")
    event = rt.goal("another", "why", reverify=["A"], by=ANN)
    assert event.payload["blast_radius"]["done_reverified"] == ["A"]
    assert rt.state.fsm_task == "FINAL_AUDIT"
    host.write("artifacts/A/out.txt", "not what it was")
    second = rt.goal("one more", "why", reverify=["A"], by=ANN)
    assert (rt.state.fsm_task, rt.frontier()) == ("DECOMPOSING", ["A.fix1"])
    assert rt.events()[-1].payload["goal"] == second.ref


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"reason": ""}, "empty_text"),
        ({"text": " "}, "empty_text"),
        ({"text": "x" * (goal_chars_max + 1)}, "too_large"),
        ({"text": "g"}, "nothing_changed"),
        ({"reverify": ["N1"]}, "guard_failed"),
        ({"reverify": ["nobody"]}, "unknown_node"),
        ({"supersede": ["dead"]}, "guard_failed"),
        ({"reverify": ["D"], "supersede": ["D"]}, "guard_failed"),
    ],
)
def test_a_change_that_makes_no_sense_changes_nothing(
    host: Host, rt: HaltRuntime, args: dict[str, Any], code: str
) -> None:
    rt.add_node("N1", "open")
    rt.add_node("D", "done")
    host.finish(rt, "D")
    rt.add_node("dead", "given up")
    rt.cancel(["dead"], "no")
    before = rt.seq_last
    with pytest.raises(HaltError) as caught:
        call(rt, "goal", **{"text": "another", "reason": "why", **args})
    assert (caught.value.code, rt.seq_last) == (code, before)
    assert caught.value.fix


def test_a_node_that_moves_while_it_is_verified_refuses_the_change(
    host: Host, rt: HaltRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    rt.add_node("A", "first")
    host.finish(rt, "A")
    fault = goals._fault

    def meanwhile(*args: Any) -> str:
        rt.cancel(["A"], "not wanted")
        return fault(*args)

    monkeypatch.setattr(goals, "_fault", meanwhile)
    with pytest.raises(RefusedError) as caught:
        rt.goal("another", "why", reverify=["A"], by=ANN)
    assert (caught.value.code, rt.state.goal_statement) == ("changed_meanwhile", "g")


def test_a_check_that_a_coordinator_may_have_ended_corrects_nothing(
    host: Host, rt: HaltRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    rt.add_node("A", "first")
    host.finish(rt, "A")
    rt.close()

    def ended(*args: Any) -> str:
        host.open(300).close()
        return "script: ended by signal 15"

    monkeypatch.setattr(goals, "_fault", ended)
    with host.attach(200, actor=ANN) as beside, pytest.raises(RefusedError) as caught:
        beside.goal("another", "why", reverify=["A"])
    assert (caught.value.code, caught.value.rule) == ("changed_meanwhile", "GE-2")


def test_the_same_op_changes_the_goal_once(rt: HaltRuntime) -> None:
    rt.add_node("N1", "open")
    first = call(rt, "goal", op="op-1", text="another", reason="why")
    before = rt.seq_last
    again = call(rt, "goal", op="op-1", text="another", reason="why")
    assert (again["committed"], again["repeated"]) == (first["committed"], True)
    assert (again["goal"], again["count"], rt.seq_last) == ("another", 1, before)
    assert "node" not in again


# GE-3


def test_ge_3_too_many_changes_within_a_window_are_put_to_the_sponsor(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("N1", "open")
    for number in range(3):
        rt.goal(f"goal {number}", "why", by=ANN)
    assert rt.state.questions == {}
    rt.goal("goal 3", "why", by=ANN)
    question = rt.state.questions["E-goal"]
    assert (question.kind, question.to, question.node) == ("escalation", "sponsor", None)
    assert "4 times" in question.text
    assert question.default
    assert question.options
    assert rt.frontier() == ["N1"], "it holds no work"
    with pytest.raises(RefusedError):
        rt.answer("E-goal", "carry on", by="gatekeeper:bob")
    rt.answer("E-goal", "carry on", by=ANN)
    rt.goal("goal 4", "why", by=ANN)
    assert list(rt.state.questions) == ["E-goal.2"]
    host.clock.advance(90_000)
    rt.answer("E-goal.2", "carry on", by=ANN)
    rt.goal("goal 5", "why", by=ANN)
    assert rt.state.questions == {}, "the window has passed"
    assert rt.state.goal_amendments == 6


def test_ge_3_the_limit_is_a_policy(rt: HaltRuntime) -> None:
    rt.policy("goal_amendments_max", 1, "a steady sponsor", window="last year")
    rt.goal("one", "why", by=ANN)
    rt.goal("two", "why", by=ANN)
    assert list(rt.state.questions) == ["E-goal"]


def test_a_goal_outlives_the_process_that_heard_it(host: Host) -> None:
    runtime = host.open()
    runtime.add_node("N1", "open")
    runtime.start("N1")
    event = runtime.goal("another", "why", by=ANN)
    host.die(runtime)
    with host.resume(200) as again:
        assert again.state.goal_statement == "another"
        assert again.recovered.committed != event.ref
        assert again.node("N1").directives == (f"{DIRECTIVE}another ({event.ref})",)
        assert again.frontier() == ["N1"]


# Policies


def test_a_policy_is_changed_by_decision_with_reason_and_window(rt: HaltRuntime) -> None:
    event = rt.policy("nudge_after_s", 2_700, "builds take long", window="last week")
    assert (event.kind, event.payload["op"]) == ("DECISION", "policy")
    assert (event.payload["before"], event.payload["value"]) == (1_800.0, 2_700.0)
    assert rt.state.policies.nudge_after_s == 2_700.0
    rt.engine.project()
    checkpoint = json.loads(rt.engine.disk.read(rt.engine.layout.checkpoint))
    assert checkpoint["policy_params"]["nudge_after_s"] == {
        "value": 2_700.0,
        "reason": "builds take long",
        "window": "last week",
        "ref": event.ref,
    }
    assert checkpoint["policy_params"]["retry_budget"]["reason"] == "reference policy"
    assert set(checkpoint["policy_params"]) == set(Policies.__struct_fields__)


def test_a_policy_takes_effect_at_once(rt: HaltRuntime) -> None:
    rt.add_node("N1", "first")
    answer = call(rt, "policy", "coordinator:main", name="retry_budget", value="1", reason="dear")
    assert (answer["value"], answer["reason"]) == (1, "dear")
    rt.start("N1")
    rt.fail("N1", "transient-agent", "exit 1")
    assert [q.node for q in rt.state.questions.values()] == ["N1"]


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("retry_budgt", 3, "unknown_policy"),
        ("retry_budget", 1.5, "bad_policy"),
        ("retry_budget", -1, "bad_policy"),
        ("lease_ttl_s", 0, "bad_policy"),
        ("lease_ttl_s", float("inf"), "bad_policy"),
        ("lease_ttl_s", float("nan"), "bad_policy"),
        ("lease_ttl_s", "soon", "bad_policy"),
        ("nudges_max", "many", "bad_policy"),
    ],
)
def test_a_policy_that_makes_no_sense_changes_nothing(
    rt: HaltRuntime, name: str, value: object, code: str
) -> None:
    before = rt.seq_last
    with pytest.raises(HaltError) as caught:
        call(rt, "policy", name=name, value=value, reason="why")
    assert (caught.value.code, rt.seq_last) == (code, before)
    with pytest.raises(HaltError) as caught:
        call(rt, "policy", name="retry_budget", value=3, reason="")
    assert caught.value.code == "empty_text"


def test_lengths_of_time_are_read_as_people_write_them(rt: HaltRuntime) -> None:
    assert call(rt, "policy", name="idle_after_s", value="1h30m", reason="x")["value"] == 5_400.0
