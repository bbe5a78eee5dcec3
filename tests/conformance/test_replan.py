"""Planning anew: amendments (TG-1), splitting and giving up (N12, N13, N14, N15)."""

import json

import pytest
from tests.conformance.host import Host, edges

from perdure import (
    HaltError,
    HaltRuntime,
    NotFoundError,
    RefusedError,
    TransitionError,
    UsageError,
)
from perdure.core.people import Gate
from perdure.runtime.calls import perform


def bring_to(host: Host, rt: HaltRuntime, node_id: str, state: str) -> None:
    """Take a node that is there to a state by legal edges."""
    if state == "READY":
        rt.transition(node_id, "READY")
    elif state != "PENDING":
        rt.start(node_id)
    if state in ("VERIFYING", "DONE"):
        rt.register_artifact("", host.write(f"artifacts/{node_id}/o"), node_id=node_id)
        rt.transition(node_id, "VERIFYING")
    if state == "DONE":
        rt.transition(node_id, "DONE", [f"A-{node_id}"])
    elif state == "BLOCKED":
        rt.transition(node_id, "BLOCKED", reason="wall", wake="the wall is gone")
    elif state == "RETRYABLE":
        rt.fail(node_id, "transient-agent", "exit 3")
    assert rt.node(node_id).state == state


def chain(rt: HaltRuntime) -> None:
    """A, then B which is to be replanned, then C and D."""
    rt.add_node("A", "first")
    rt.add_node("B", "second", deps=["A"])
    rt.add_node("C", "third", deps=["A", "B"])
    rt.add_node("D", "fourth", deps=["B"])


def refused(rt: HaltRuntime, node_id: str, verb: str = "split") -> HaltError:
    """How it is refused; nothing has changed by it."""
    before = rt.seq_last
    verbs = {
        "split": lambda: rt.split(node_id, {"X": "part"}, "why"),
        "quarantine": lambda: rt.quarantine(node_id, "why"),
    }
    with pytest.raises(HaltError) as caught:
        verbs[verb]()
    assert rt.seq_last == before
    assert caught.value.fix
    return caught.value


# Amendments


def test_tg_1_an_amendment_says_before_after_and_why_and_the_node_points_to_it(
    rt: HaltRuntime,
) -> None:
    rt.add_node("N1", "first", goal="long", outputs=["artifacts/N1/a"])
    first = rt.amend_node("N1", "the editor asked", goal="short", title="one")
    second = rt.amend_node("N1", "again", priority=4)
    node = rt.node("N1")
    assert node.amended_by == (first.ref, second.ref)
    assert (node.title, node.spec.goal, node.spec.outputs, node.priority) == (
        "one",
        "short",
        ("artifacts/N1/a",),
        4,
    )
    payload = first.payload
    assert (payload["op"], payload["reason"]) == ("amend_node", "the editor asked")
    assert payload["before"]["title"] == "first"
    assert payload["before"]["spec"]["goal"] == "long"
    assert payload["after"]["spec"]["goal"] == "short"


@pytest.mark.parametrize("state", ["RUNNING", "VERIFYING", "DONE"])
def test_tg_1_a_spec_does_not_change_under_work_or_once_it_is_done(
    host: Host, rt: HaltRuntime, state: str
) -> None:
    rt.add_node("N1", "first")
    bring_to(host, rt, "N1", state)
    with pytest.raises(RefusedError) as caught:
        rt.amend_node("N1", "why", goal="other")
    assert (caught.value.code, caught.value.rule) == ("spec_frozen", "TG-1")


def test_tg_1_a_directive_is_carried_by_the_next_contract(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first")
    for text in ("be brief", "be kind", "be brief"):
        perform(rt.engine, "amend", {"node": "N1", "reason": "asked", "directives": [text]})
    assert rt.node("N1").directives == ("be brief", "be kind")
    rt.start("N1")
    contract = json.loads(host.read(f"contracts/{rt.node('N1').invocation}.json"))
    assert contract["constraints"][-2:] == ["be brief", "be kind"]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"reason": "x"}, "nothing_named"),
        ({"title": "x"}, "empty_text"),
        ({"title": "x", "reason": " "}, "empty_text"),
        ({"spec": {"gaol": "x"}, "reason": "x"}, "unknown_field"),
        ({"deps": ["nobody"], "reason": "x"}, "unknown_node"),
        ({"deps": ["D"], "reason": "x"}, "cyclic_deps"),
        ({"spec": {"outputs": ["../x"]}, "reason": "x"}, "path_refused"),
    ],
)
def test_an_amendment_that_makes_no_sense_changes_nothing(
    rt: HaltRuntime, args: dict[str, object], code: str
) -> None:
    chain(rt)
    before = rt.seq_last
    with pytest.raises(HaltError) as caught:
        perform(rt.engine, "amend", {"node": "B", **args})
    assert (caught.value.code, rt.seq_last) == (code, before)


# Splitting


@pytest.mark.parametrize(
    ("state", "taken", "left"),
    [
        ("READY", ["N01", "N13"], "QUARANTINED"),
        ("RETRYABLE", ["N01", "N02", "N04", "N12", "N13"], "QUARANTINED"),
    ],
)
def test_n12_n13_a_node_that_may_start_is_split_into_parts_that_point_back(
    host: Host, rt: HaltRuntime, state: str, taken: list[str], left: str
) -> None:
    chain(rt)
    host.finish(rt, "A")
    if state == "RETRYABLE":
        bring_to(host, rt, "B", state)
    before = rt.seq_last
    committed = rt.split("B", {"B1": "half", "B2": "the other half"}, "too large")
    kinds = [(e.kind, e.payload.get("op")) for e in committed.events if e.kind == "AMENDMENT"]
    assert kinds == [
        ("AMENDMENT", "split"),
        ("AMENDMENT", "add_node"),
        ("AMENDMENT", "add_node"),
        ("AMENDMENT", "amend_node"),
        ("AMENDMENT", "amend_node"),
    ]
    assert committed.ref == f"J-{before + 1}", "it is one commit"
    assert edges(rt, "B") == taken
    b = rt.node("B")
    assert (b.state, b.successors) == (left, ("B1", "B2"))
    assert rt.node("B1").deps == rt.node("B2").deps == ("A",)
    assert rt.node("C").deps == ("A", "B1", "B2")
    assert rt.node("D").deps == ("B1", "B2")
    assert set(rt.frontier()) == {"B1", "B2"}
    if state == "RETRYABLE":
        replanned = next(e for e in committed.events if e.payload.get("edge") == "N12")
        assert replanned.payload["amendment"] == committed.ref


def test_n15_a_node_that_waits_for_others_is_cancelled_and_its_parts_wait_instead(
    host: Host, rt: HaltRuntime
) -> None:
    chain(rt)
    rt.split("B", {"B1": "half", "B2": "the other half"}, "too large", chain=True)
    b = rt.node("B")
    assert (b.state, b.successors, edges(rt, "B")) == ("CANCELLED", ("B1", "B2"), ["N15"])
    assert rt.node("B1").deps == ("A",)
    assert rt.node("B2").deps == ("A", "B1")
    decided = [e for e in rt.events() if e.kind == "DECISION"]
    assert [(e.payload["op"], e.payload["nodes"]) for e in decided] == [("cancel", ["B"])]
    for name in ("A", "B1", "B2", "C", "D"):
        host.finish(rt, name)
    rt.move_task("FINAL_AUDIT")
    assert rt.state.fsm_task == "FINAL_AUDIT"


def test_n14_what_was_quarantined_without_a_successor_is_split_as_well(
    host: Host, rt: HaltRuntime
) -> None:
    chain(rt)
    host.finish(rt, "A")
    rt.start("B")
    rt.fail("B", "permanent-spec", "it cannot be done")
    assert [q.node for q in rt.state.questions.values()] == ["B"]
    rt.split("B", {"B1": "half", "B2": "the other half"}, "another way")
    assert rt.node("B").successors == ("B1", "B2")
    assert not rt.state.questions, "it asked what replaces it"
    assert rt.node("D").deps == ("B1", "B2")
    error = refused(rt, "B")
    assert "B1" in error.fix


@pytest.mark.parametrize(
    ("state", "rule", "cure"),
    [
        ("RUNNING", "N12", "perdure fail B --class permanent-spec"),
        ("VERIFYING", "N12", "perdure quarantine B"),
        ("BLOCKED", "N09", "perdure retry B"),
        ("DONE", "N13", "corrects"),
    ],
)
def test_n12_what_is_at_work_waits_or_is_done_is_not_split_and_the_cure_is_told(
    host: Host, rt: HaltRuntime, state: str, rule: str, cure: str
) -> None:
    chain(rt)
    host.finish(rt, "A")
    bring_to(host, rt, "B", state)
    error = refused(rt, "B")
    assert isinstance(error, TransitionError)
    assert error.rule == rule
    assert cure in error.fix
    assert state in error.message


def test_parts_are_held_to_no_less_than_the_whole(rt: HaltRuntime) -> None:
    rt.add_node(
        "N1",
        "first",
        goal="all of it",
        outputs=["artifacts/N1/a"],
        accept=["exists: artifacts/N1/a"],
        run="make",
        constraints=["be brief"],
        env={"A": "1"},
        gates=[Gate("G-pub", question="Publish?")],
        priority=3,
        verification_level="V2",
        effect="S2",
    )
    perform(rt.engine, "amend", {"node": "N1", "reason": "asked", "directives": ["be kind"]})
    rt.split("N1", {"P1": "half", "P2": {"title": "other", "outputs": ["artifacts/P2/b"]}}, "why")
    one, two = rt.node("P1"), rt.node("P2")
    for part in (one, two):
        assert (part.priority, part.verification_level, part.effect) == (3, "V2", "S2")
        assert (part.spec.goal, part.spec.constraints) == ("all of it", ("be brief",))
        assert [gate.gate_id for gate in part.spec.gates] == ["G-pub"]
        assert part.directives == ("be kind",)
        assert (part.spec.run, part.spec.acceptance_criteria) == (None, ())
    assert (one.spec.outputs, two.spec.outputs) == (None, ("artifacts/P2/b",))


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({}, "bad_split"),
        ({"A": "taken"}, "duplicate_id"),
        ({"x y": "bad"}, "bad_id"),
        ({"X": ""}, "bad_title"),
        ({"X": {"title": "t", "deps": "nobody"}}, "unknown_node"),
        ({"X": {"title": "t", "gaol": "g"}}, "unknown_field"),
    ],
)
def test_parts_that_make_no_sense_change_nothing(
    rt: HaltRuntime, parts: dict[str, object], code: str
) -> None:
    chain(rt)
    before = rt.seq_last
    with pytest.raises(HaltError) as caught:
        rt.split("B", parts, "why")  # type: ignore[arg-type]
    assert (caught.value.code, rt.seq_last) == (code, before)


def test_a_part_named_twice_in_a_call_is_refused(rt: HaltRuntime) -> None:
    chain(rt)
    twice = [{"node": "X", "title": "one"}, {"node": "X", "title": "two"}]
    with pytest.raises(UsageError):
        perform(rt.engine, "split", {"node": "B", "into": twice})


def test_c_s3_an_effect_that_has_happened_is_not_planned_away(host: Host, rt: HaltRuntime) -> None:
    rt.close()
    with HaltRuntime(
        f"{host.workspace}-2", "T2", standing_authorities=["*"], world=host.world()
    ) as other:
        other.add_node("pay", "pay", effect="S3")
        other.start("pay")
        other.receipt("pay", "order 7")
        other.fail("pay", "transient-agent", "exit 1")
        assert other.node("pay").state == "RETRYABLE"
        for verb in ("split", "quarantine"):
            error = refused(other, "pay", verb)
            assert error.rule == "C-S3"
            assert "R-pay-1" in error.message


# Giving up


@pytest.mark.parametrize(
    ("state", "last"), [("PENDING", "N13"), ("READY", "N13"), ("RETRYABLE", "N13")]
)
def test_n13_a_node_is_given_up_and_a_replacement_is_waited_for_instead(
    host: Host, rt: HaltRuntime, state: str, last: str
) -> None:
    rt.add_node("B", "the old way")
    rt.add_node("N", "the new way")
    rt.add_node("D", "behind it", deps=["B"])
    bring_to(host, rt, "B", state)
    committed = rt.quarantine("B", "the site is gone", replacement="N")
    assert edges(rt, "B")[-1] == last
    assert committed.events[0].payload["reason"] == "the site is gone"
    assert (rt.node("B").state, rt.node("B").successors) == ("QUARANTINED", ("N",))
    assert rt.node("D").deps == ("N",)
    host.finish(rt, "N")
    host.finish(rt, "D")
    rt.move_task("FINAL_AUDIT")


def test_n08_what_is_being_verified_is_given_up_with_its_files_moved_away(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("B", "the old way")
    bring_to(host, rt, "B", "VERIFYING")
    rt.quarantine("B", "wrong idea")
    assert edges(rt, "B")[-1] == "N08"
    assert rt.state.artifacts["A-B"].status == "quarantined"
    assert host.read("artifacts/old/A-B-1/o")
    assert rt.node("B").successors == ()
    rt.add_node("S", "successor", successor_of="B")
    assert rt.node("B").successors == ("S",)


@pytest.mark.parametrize("state", ["RUNNING", "BLOCKED", "DONE"])
def test_what_is_at_work_waits_or_is_done_is_not_given_up(
    host: Host, rt: HaltRuntime, state: str
) -> None:
    rt.add_node("B", "the old way")
    bring_to(host, rt, "B", state)
    assert state in refused(rt, "B", "quarantine").message


def test_n14_nothing_is_given_up_twice(rt: HaltRuntime) -> None:
    rt.add_node("B", "the old way")
    rt.quarantine("B", "wrong idea")
    error = refused(rt, "B", "quarantine")
    assert (error.rule, "--successor-of B" in error.fix) == ("N14", True)


def test_a_replacement_is_there_alive_and_does_not_wait_for_what_waits(rt: HaltRuntime) -> None:
    chain(rt)
    rt.add_node("dead", "given up")
    rt.quarantine("dead", "why")
    for name, kind, code in (
        ("nobody", NotFoundError, "unknown_node"),
        ("dead", RefusedError, "bad_replacement"),
        ("B", RefusedError, "bad_replacement"),
        ("D", RefusedError, "cyclic_deps"),
    ):
        before = rt.seq_last
        with pytest.raises(kind) as caught:
            rt.quarantine("B", "why", replacement=name)
        assert (caught.value.code, rt.seq_last) == (code, before)


def test_a_repeated_call_answers_with_the_first_one(rt: HaltRuntime) -> None:
    chain(rt)
    args = {"node": "B", "into": [{"node": "B1", "title": "half"}], "reason": "why"}
    first = perform(rt.engine, "split", args, op="op-1")
    assert (first["state"], first["parts"], first["repointed"]) == ("CANCELLED", ["B1"], ["C", "D"])
    before = rt.seq_last
    again = perform(rt.engine, "split", args, op="op-1")
    assert (again["repeated"], again["committed"], again["node"]) == (
        True,
        first["committed"],
        "B",
    )
    assert rt.seq_last == before
