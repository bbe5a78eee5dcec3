"""One test for each rule of the node machine and of what it rests on, over the library.

The names are those of the protocol: section 5 (N01 to N15, FSN, PD-J1, VR), section 6 (FST),
section 7 (FR), section 8 (AR), section 3 (J) and section 9 (RC1).
"""

import os
from typing import Any

import pytest
from tests.conformance.host import Host, edges, moves

from perdure import (
    CheckFailedError,
    CorruptError,
    EvidenceError,
    HaltError,
    HaltRuntime,
    NotFoundError,
    PathError,
    RefusedError,
    TransitionError,
    UsageError,
)
from perdure.core.model import NODE_STATES


def bring_to(host: Host, rt: HaltRuntime, node_id: str, state: str) -> None:
    """Add a node and take it to a state by legal edges."""
    rt.add_node(node_id, "a node")
    if state in ("READY", "QUARANTINED"):
        rt.transition(node_id, "READY")
    if state in ("RUNNING", "VERIFYING", "DONE", "BLOCKED", "RETRYABLE"):
        rt.start(node_id)
    if state in ("VERIFYING", "DONE"):
        rt.register_artifact("", host.write(f"artifacts/{node_id}/o"), node_id=node_id)
        rt.transition(node_id, "VERIFYING")
    if state == "DONE":
        rt.transition(node_id, "DONE", [f"A-{node_id}"])
    elif state == "BLOCKED":
        rt.transition(node_id, "BLOCKED", reason="wall", wake="gone")
    elif state == "RETRYABLE":
        rt.fail(node_id, "transient-agent", "exit 3")
    elif state == "QUARANTINED":
        rt.transition(node_id, "QUARANTINED", replacement="none")
    elif state == "CANCELLED":
        rt.cancel([node_id], "not wanted")
    assert rt.node(node_id).state == state


# The edges


def test_n01_ready_takes_every_dep_done_and_lists_them(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first")
    rt.add_node("N2", "second", deps=["N1"])
    with pytest.raises(TransitionError) as caught:
        rt.transition("N2", "READY")
    assert caught.value.rule == "N01"
    assert "N1 is PENDING" in caught.value.message
    event = rt.transition("N1", "READY")
    assert event.payload == {"from": "PENDING", "to": "READY", "edge": "N01", "deps": []}


def test_n02_running_takes_a_contract_that_is_on_disk_and_names_one_executor(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("N1", "first")
    rt.transition("N1", "READY")
    event = rt.transition("N1", "RUNNING")
    assert (event.payload["edge"], event.payload["executor"]["actor"]) == (
        "N02",
        "coordinator:main",
    )
    assert {"contract", "executor", "budget", "contract_sha256"} <= set(event.payload)
    assert host.read(event.payload["contract"])
    with pytest.raises(TransitionError) as caught:
        rt.start("N1")
    assert caught.value.rule == "FSN-2"


def test_n03_a_claim_carries_its_report(host: Host, rt: HaltRuntime) -> None:
    bring_to(host, rt, "N1", "RUNNING")
    event = rt.transition("N1", "VERIFYING", evidence="A-N1 finished, says the worker")
    assert (event.payload["edge"], event.payload["report"]) == (
        "N03",
        "A-N1 finished, says the worker",
    )


def test_n04_a_failed_attempt_carries_class_signature_and_the_next_number(
    host: Host, rt: HaltRuntime
) -> None:
    bring_to(host, rt, "N1", "RUNNING")
    with pytest.raises(TransitionError) as caught:
        rt.transition("N1", "RETRYABLE", failure_class="bad luck", signature="exit 3")
    assert caught.value.rule == "N04"
    event = rt.transition("N1", "RETRYABLE", failure_class="transient-agent", signature="exit 3")
    assert (event.payload["edge"], event.payload["attempt"]) == ("N04", 2)
    assert event.payload["signature"] == "exit 3"


def test_n05_blocked_carries_reason_and_wake_condition(host: Host, rt: HaltRuntime) -> None:
    bring_to(host, rt, "N1", "RUNNING")
    with pytest.raises(TransitionError) as caught:
        rt.transition("N1", "BLOCKED", reason="quota")
    assert "wake" in caught.value.message
    event = rt.transition("N1", "BLOCKED", reason="quota", wake="the quota is renewed")
    assert event.payload["edge"] == "N05"


def test_n06_done_carries_verifier_checks_and_artifacts(host: Host, rt: HaltRuntime) -> None:
    bring_to(host, rt, "N1", "VERIFYING")
    event = rt.transition("N1", "DONE", ["A-N1"])
    assert (event.payload["edge"], event.payload["verifier"]) == ("N06", "verifier:v1")
    (check,) = event.payload["checks"]
    assert check["passed"] is True
    assert {"method", "inputs", "detail"} <= set(check)
    assert list(event.payload["artifacts"]) == ["A-N1"]


def test_n07_a_failed_check_can_be_redone_and_frees_the_path(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first", outputs=["artifacts/N1/o"], accept=["matches: artifacts/N1/o ^good"])
    rt.start("N1")
    host.write("artifacts/N1/o", "bad")
    rt.submit("N1")
    assert edges(rt, "N1") == ["N01", "N02", "N03", "N07"]
    assert "matches" in rt.node("N1").diagnosis
    assert rt.registry["A-N1"].status == "quarantined"
    assert host.read("artifacts/old/A-N1-1/o") == b"bad"
    rt.start("N1")
    host.write("artifacts/N1/o", "good")
    rt.submit("N1")
    assert rt.node("N1").state == "DONE"


def test_n08_the_third_failed_verification_quarantines(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first", outputs=["artifacts/N1/o"], accept=["matches: artifacts/N1/o ^good"])
    for _ in range(3):
        rt.start("N1")
        host.write("artifacts/N1/o", "bad")
        rt.submit("N1")
    assert edges(rt, "N1")[-1] == "N08"
    assert "manifest" in moves(rt)[-1].payload
    with pytest.raises(TransitionError):
        rt.start("N1")


def test_n09_a_blocked_node_wakes_on_evidence(host: Host, rt: HaltRuntime) -> None:
    bring_to(host, rt, "N1", "BLOCKED")
    with pytest.raises(TransitionError) as caught:
        rt.transition("N1", "READY")
    assert caught.value.rule == "N09"
    event = rt.transition("N1", "READY", evidence=["J-1"])
    assert (event.payload["edge"], event.payload["wake_evidence"]) == ("N09", "J-1")


def test_n10_cancelling_what_waits_names_the_authority(host: Host, rt: HaltRuntime) -> None:
    bring_to(host, rt, "N1", "BLOCKED")
    rt.cancel(["N1"], "not wanted")
    assert edges(rt, "N1")[-1] == "N10"
    assert moves(rt)[-1].payload["authority"] == "coordinator:main"


def test_n11_a_retry_takes_a_new_contract(host: Host, rt: HaltRuntime) -> None:
    bring_to(host, rt, "N1", "RETRYABLE")
    first = rt.node("N1").invocation
    rt.start("N1")
    assert edges(rt, "N1")[-1] == "N11"
    assert rt.node("N1").invocation != first
    assert rt.node("N1").attempts == 2


def test_n12_replanning_cites_an_amendment_made_since(host: Host, rt: HaltRuntime) -> None:
    bring_to(host, rt, "N1", "RETRYABLE")
    with pytest.raises(TransitionError) as caught:
        rt.transition("N1", "READY", evidence=["J-1"])
    assert caught.value.rule == "N12"
    amended = rt.amend_node("N1", "another way", title="by hand")
    event = rt.transition("N1", "READY", evidence=[amended.ref])
    assert (event.payload["edge"], event.payload["amendment"]) == ("N12", amended.ref)


def test_n12_another_spec_is_a_replan_by_itself_and_gives_new_tries(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("N1", "first", retry_budget=1)
    rt.start("N1")
    rt.fail("N1", "transient-agent", "exit 3")
    assert list(rt.status()["questions"]) == ["Q-N1-1"]
    amended = rt.amend_node("N1", "another way", constraints=["by hand"])
    move = moves(rt)[-1]
    assert (move.payload["edge"], move.payload["amendment"]) == ("N12", amended.ref)
    assert move.tx == amended.tx is not None
    assert rt.status()["questions"] == {}
    assert rt.frontier() == ["N1"]
    host.finish(rt, "N1")
    assert edges(rt, "N1") == ["N01", "N02", "N04", "N12", "N02", "N03", "N06"]


def test_n12_and_n13_a_spec_that_cannot_work_asks_what_replaces_it(
    host: Host, rt: HaltRuntime
) -> None:
    bring_to(host, rt, "N1", "RUNNING")
    rt.add_node("N2", "waits for N1", deps=["N1"])
    committed = rt.fail("N1", "permanent-spec", "exit 64")
    assert edges(rt, "N1") == ["N01", "N02", "N04", "N12", "N13"]
    assert len({event.tx for event in committed.events}) == 1
    (question,) = rt.status()["questions"].values()
    assert "What replaces it?" in question
    rt.add_node("N1b", "instead", successor_of="N1")
    assert rt.status()["questions"] == {}
    assert rt.node("N2").deps == ("N1b",)


def test_n13_an_obsolete_node_names_its_replacement(host: Host, rt: HaltRuntime) -> None:
    bring_to(host, rt, "N1", "READY")
    with pytest.raises(TransitionError):
        rt.transition("N1", "QUARANTINED")
    event = rt.transition("N1", "QUARANTINED", replacement="N2")
    assert (event.payload["edge"], event.payload["replacement"]) == ("N13", "N2")


def test_n14_successors_are_new_nodes_that_point_back_and_take_the_dependents(
    host: Host, rt: HaltRuntime
) -> None:
    bring_to(host, rt, "N1", "QUARANTINED")
    rt.add_node("N2", "waits for N1", deps=["N1"])
    event = rt.add_node("N1b", "instead", successor_of="N1")
    assert (event.kind, event.payload["after"]["successor_of"]) == ("AMENDMENT", "N1")
    assert rt.node("N1").successors == ("N1b",)
    assert rt.node("N2").deps == ("N1b",)
    for state in NODE_STATES:
        with pytest.raises(TransitionError):
            rt.transition("N1", state, ["J-1"])


@pytest.mark.parametrize("state", [s for s in NODE_STATES if s not in ("QUARANTINED", "CANCELLED")])
def test_n15_the_authority_cancels_anything_that_is_not_over(
    host: Host, rt: HaltRuntime, state: str
) -> None:
    bring_to(host, rt, "N1", state)
    rt.cancel(["N1"], "not wanted")
    decision = next(e for e in rt.events() if e.payload.get("op") == "cancel")
    move = moves(rt)[-1]
    assert move.payload["edge"] == ("N10" if state == "BLOCKED" else "N15")
    assert move.payload["decision"] == decision.payload["id"]


# FSN


@pytest.mark.parametrize("state", NODE_STATES)
def test_fsn_1_nothing_else_moves_a_node(host: Host, rt: HaltRuntime, state: str) -> None:
    legal = {
        "PENDING": {"READY", "RUNNING", "CANCELLED"},
        "READY": {"READY", "RUNNING", "QUARANTINED", "CANCELLED"},
        "RUNNING": {"VERIFYING", "RETRYABLE", "BLOCKED", "CANCELLED"},
        "VERIFYING": {"DONE", "RETRYABLE", "QUARANTINED", "CANCELLED"},
        "BLOCKED": {"READY", "CANCELLED"},
        "RETRYABLE": {"RUNNING", "READY", "CANCELLED"},
        "DONE": {"CANCELLED"},
    }.get(state, set())
    bring_to(host, rt, "N1", state)
    before = rt.seq_last
    for target in NODE_STATES:
        if target not in legal:
            with pytest.raises(TransitionError) as caught:
                rt.transition("N1", target, ["J-1"])
            assert caught.value.rule
            assert caught.value.fix
    assert (rt.node("N1").state, rt.seq_last) == (state, before)
    with pytest.raises(RefusedError):
        rt.append("STATE_TRANSITION", {"type": "node", "id": "N1"}, {"to": "DONE"})


def test_fsn_2_one_executor_has_the_node_and_is_named(host: Host, rt: HaltRuntime) -> None:
    bring_to(host, rt, "N1", "RUNNING")
    with pytest.raises(TransitionError) as caught:
        rt.start("N1")
    assert (caught.value.code, caught.value.rule) == ("already_running", "FSN-2")
    assert "coordinator:main" in caught.value.message


def test_fsn_3_a_fourth_identical_try_is_refused_and_a_question_is_open(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("N1", "first")
    for _ in range(3):
        rt.start("N1")
        rt.fail("N1", "transient-agent", "exit 3")
    assert list(rt.status()["questions"]) == ["Q-N1-3"]
    assert rt.frontier() == []
    with pytest.raises(TransitionError) as caught:
        rt.start("N1")
    assert "FSN-3" in str(caught.value)
    rt.retry("N1", "a person does it", method="by hand")
    assert rt.frontier() == ["N1"]


def test_fsn_3_strikes_are_kept_for_every_method(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first", retry_budget=1)
    for method in ("A", "B"):
        rt.start("N1")
        rt.fail("N1", "transient-agent", "exit 3")
        rt.retry("N1", "another way", method=method)
    assert rt.node("N1").strikes_by_method == {"default": 1, "A": 1}
    rt.start("N1")
    rt.fail("N1", "transient-agent", "exit 3")
    for method in ("", "A", "B", "default"):
        with pytest.raises(TransitionError) as caught:
            rt.retry("N1", "once more", method=method)
        assert caught.value.rule == "FSN-3"
    rt.retry("N1", "a third way", method="C")
    assert rt.frontier() == ["N1"]


def test_fsn_3_an_interruption_is_no_try_even_where_none_is_left(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("N1", "first", retry_budget=0)
    rt.start("N1")
    rt.fail("N1", "transient-agent", "the run was stopped", interruption=True)
    assert rt.frontier() == ["N1"]
    rt.start("N1")
    rt.fail("N1", "transient-agent", "exit 3")
    assert rt.frontier() == []


def test_fsn_4_a_claim_changes_nothing_else_and_n06_alone_wakes_dependents(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("N1", "first")
    rt.add_node("N2", "second", deps=["N1"])
    rt.start("N1")
    rt.register_artifact("A-1", host.write("artifacts/N1/o"), node_id="N1")
    rt.transition("N1", "VERIFYING", ["A-1"])
    assert rt.node("N2").state == "PENDING"
    done = rt.transition("N1", "DONE", ["A-1"])
    assert done.payload["edge"] == "N06"
    assert rt.node("N2").state == "READY"
    woken = moves(rt)[-1]
    assert (woken.entity.id, woken.payload["edge"]) == ("N2", "N01")
    assert done.tx == woken.tx is not None


# PD-J1, VR


def test_pd_j1_no_disk_no_done(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first")
    rt.start("N1")
    with pytest.raises(EvidenceError) as caught:
        rt.submit("N1")
    assert caught.value.rule == "PD-J1"
    assert rt.node("N1").state == "RUNNING"
    rt.transition("N1", "VERIFYING", evidence="trust me")
    for evidence in (None, "trust me", ["A-N1"], ["J-1"]):
        with pytest.raises(EvidenceError):
            rt.transition("N1", "DONE", evidence)
    assert rt.node("N1").state == "VERIFYING"


@pytest.mark.parametrize("damage", ["removed", "changed", "shortened"])
def test_pd_j1_the_registered_bytes_must_be_on_disk_now(
    host: Host, rt: HaltRuntime, damage: str
) -> None:
    bring_to(host, rt, "N1", "VERIFYING")
    path = os.path.join(host.workspace, "artifacts/N1/o")
    if damage == "removed":
        os.unlink(path)
    else:
        host.write("artifacts/N1/o", {"changed": "cOntent", "shortened": ""}[damage])
    with pytest.raises(CheckFailedError):
        rt.transition("N1", "DONE", ["A-N1"])
    assert rt.node("N1").state == "VERIFYING"


def test_pd_j1_every_declared_output_counts(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first", outputs=["artifacts/N1/a", "artifacts/N1/b"])
    rt.start("N1")
    host.write("artifacts/N1/a")
    with pytest.raises(EvidenceError) as caught:
        rt.submit("N1")
    assert "artifacts/N1/b" in caught.value.message
    assert rt.registry == {}, "a refused submission registers nothing"
    host.write("artifacts/N1/b")
    rt.submit("N1")
    assert rt.node("N1").state == "DONE"


def test_pd_j1_a_node_without_outputs_needs_a_check_that_passed(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("N1", "first", outputs="none", accept=["exists: made.txt"])
    rt.start("N1")
    host.write("made.txt")
    rt.submit("N1")
    assert rt.node("N1").state == "DONE"
    rt.add_node("N2", "second", outputs="none")
    rt.start("N2")
    with pytest.raises(EvidenceError):
        rt.submit("N2")


def test_vr_1_a_verdict_short_of_the_minimum_is_not_a_pass(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first", verification_level="V2")
    rt.start("N1")
    host.write("artifacts/N1/o")
    rt.submit("N1")
    with pytest.raises(RefusedError) as caught:
        rt.transition("N1", "DONE", evidence=["artifacts/N1/o"])
    assert (caught.value.code, caught.value.rule) == ("audit_pending", "VR-1")
    assert rt.node("N1").state == "VERIFYING"


# TG


@pytest.mark.parametrize("state", NODE_STATES)
def test_tg_1_a_spec_changes_only_by_an_amendment_and_not_at_work(
    host: Host, rt: HaltRuntime, state: str
) -> None:
    bring_to(host, rt, "N1", state)
    if state in ("PENDING", "READY", "RETRYABLE", "BLOCKED"):
        event = rt.amend_node("N1", "urgent", priority=5)
        assert (event.kind, event.payload["before"]) == ("AMENDMENT", {"priority": 0})
        assert rt.node("N1").amended_by == (event.ref,)
    else:
        with pytest.raises(RefusedError) as caught:
            rt.amend_node("N1", "urgent", priority=5)
        assert caught.value.rule == "TG-1"


def test_tg_1_an_amendment_keeps_the_fields_it_does_not_name(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first", outputs=["artifacts/N1/o"], accept="nonempty: artifacts/N1/o")
    rt.add_node("N2", "second")
    rt.amend_node("N1", "clearer", goal="all of it", retry_budget=1, title="1st", deps="N2")
    node = rt.node("N1")
    assert (node.title, node.deps, node.spec.goal) == ("1st", ("N2",), "all of it")
    assert (node.spec.outputs, node.spec.retry_budget) == (("artifacts/N1/o",), 1)
    assert [criterion.check for criterion in node.spec.acceptance_criteria] == ["nonempty"]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"outputs": ["../elsewhere"]}, PathError),
        ({"outputs": ["artifacts/N2/o"]}, PathError),
        ({"accept": ["exist: artifacts/N1/o"]}, UsageError),
        ({"output": ["artifacts/N1/o"]}, UsageError),
        ({"retry_budget": "many"}, UsageError),
        ({"effect": "S9"}, UsageError),
        ({"deps": ["N9"]}, NotFoundError),
    ],
)
def test_tg_1_an_amendment_is_held_to_what_a_new_node_is(
    rt: HaltRuntime, fields: dict[str, Any], error: type[HaltError]
) -> None:
    rt.add_node("N1", "first")
    before = rt.seq_last
    with pytest.raises(error):
        rt.amend_node("N1", "so", **fields)
    assert (rt.node("N1").amended_by, rt.seq_last) == ((), before)


def test_tg_3_an_id_is_never_used_again(host: Host, rt: HaltRuntime) -> None:
    bring_to(host, rt, "N1", "CANCELLED")
    with pytest.raises(RefusedError) as caught:
        rt.add_node("N1", "again")
    assert caught.value.rule == "TG-3"


# AR


def test_ar_1_a_missing_file_is_not_registered_and_a_present_one_is_read_back(
    host: Host, rt: HaltRuntime
) -> None:
    with pytest.raises(EvidenceError) as caught:
        rt.register_artifact("A-1", "artifacts/N1/o")
    assert caught.value.rule == "AR-1"
    with pytest.raises(PathError):
        rt.register_artifact("A-1", "../outside.txt")
    entry = rt.register_artifact("A-1", host.write("artifacts/N1/o", "abc"))
    assert (entry.integrity.algo, entry.integrity.size_bytes) == ("sha256", 3)
    assert rt.verify_artifact("A-1")
    event = rt.events()[-1]
    assert (event.kind, event.payload["path"]) == ("ARTIFACT_REGISTERED", "artifacts/N1/o")


def test_ar_2_a_superseded_artifact_keeps_bytes_and_entry(host: Host, rt: HaltRuntime) -> None:
    rt.register_artifact("A-1", host.write("report.md", "one"))
    rt.register_artifact("A-2", host.write("report.v2.md", "two"))
    assert rt.registry["A-1"].status == "superseded(by:A-2)"
    assert host.read("report.md") == b"one"
    assert rt.integrity_walk() == {"A-1": "PASS", "A-2": "PASS"}


def test_ar_3_a_registered_path_is_frozen(host: Host, rt: HaltRuntime) -> None:
    first = rt.register_artifact("A-1", host.write("report.md", "one"))
    assert rt.register_artifact("A-1", "report.md") == first
    host.write("report.md", "two")
    for name in ("A-1", "A-2"):
        with pytest.raises(RefusedError) as caught:
            rt.register_artifact(name, "report.md")
        assert caught.value.rule == "AR-3"
        assert "report.v2.md" in caught.value.fix


def test_ar_3_the_same_file_for_another_node_counts_for_both(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first")
    rt.add_node("N2", "second", outputs=["shared.txt"])
    rt.start("N1")
    rt.start("N2")
    first = rt.register_artifact("A-1", host.write("shared.txt"), node_id="N1")
    again = rt.register_artifact("A-2", "shared.txt", node_id="N2")
    assert again == first
    assert list(rt.registry) == ["A-1"]
    assert rt.node("N2").artifacts == ("A-1",)
    before = rt.seq_last
    rt.register_artifact("A-2", "shared.txt", node_id="N2")
    assert rt.seq_last == before
    rt.submit("N2")
    assert rt.node("N2").state == "DONE"


@pytest.mark.parametrize(
    "target", ["journal.jsonl", "lease.json", "contracts/c.json", "artifacts/registry.json"]
)
def test_pl_4_a_link_to_what_the_runtime_keeps_is_no_artifact(
    host: Host, rt: HaltRuntime, target: str
) -> None:
    rt.add_node("N1", "first")
    rt.start("N1")
    if not os.path.exists(os.path.join(host.workspace, target)):
        host.write(target)
    link = os.path.join(host.workspace, "artifacts/N1/o")
    os.symlink(os.path.join(host.workspace, target), link)
    with pytest.raises(PathError) as caught:
        rt.register_artifact("A-1", "artifacts/N1/o", node_id="N1")
    assert caught.value.code == "path_reserved"
    assert rt.registry == {}
    os.unlink(link)
    host.write("artifacts/N1/real")
    os.symlink("real", link)
    rt.register_artifact("A-1", "artifacts/N1/o", node_id="N1")


# J


def test_j_1_the_journal_only_grows(host: Host, rt: HaltRuntime) -> None:
    before = host.read()
    for step in (
        lambda: rt.add_node("N1", "first"),
        lambda: host.finish(rt, "N1"),
        lambda: rt.cancel(["N1"], "after all"),
        lambda: rt.decision("DR-1", "so"),
    ):
        step()
        after = host.read()
        assert after.startswith(before)
        assert len(after) > len(before)
        before = after


def test_j_1_damage_in_history_is_refused_with_line_and_byte(host: Host) -> None:
    with host.open() as rt:
        for number in range(5):
            rt.note(f"note {number}")
    data = host.read()
    at = data.index(b"note 2")
    path = os.path.join(host.workspace, "journal.jsonl")
    with open(path, "r+b") as stream:
        stream.seek(at)
        stream.write(b"nOte 2")
    os.unlink(os.path.join(host.workspace, ".snapshot.json"))
    for attempt in (host.resume, host.attach):
        with pytest.raises(CorruptError) as caught:
            attempt()
        line = data[:at].count(b"\n") + 1
        byte = data.rindex(b"\n", 0, at) + 1
        assert f"line {line}, byte {byte}" in str(caught.value)
    assert len(host.read()) == len(data)


def test_j_4_the_sequence_comes_from_the_file_whoever_wrote(host: Host) -> None:
    host.open().close()
    writers = [host.attach(pid) for pid in (101, 102, 103)]
    for round_number in range(3):
        for writer in writers:
            writer.note(f"round {round_number}")
    assert [event.seq for event in writers[0].events()] == list(range(1, 12))
    for writer in writers:
        assert writer.seq_last == 11
        writer.close()


# FR, RC1, FST


def test_fr_1_work_starts_from_the_frontier_and_a_start_out_of_order_is_journaled(
    host: Host, rt: HaltRuntime
) -> None:
    rt.add_node("N1", "first", priority=1)
    rt.add_node("N2", "second")
    rt.add_node("N3", "third", deps=["N1"])
    assert rt.frontier() == rt.status()["frontier"] == ["N1", "N2"]
    with pytest.raises(TransitionError):
        rt.start("N3")
    committed = rt.start("N2", reason="its input is warm")
    assert committed.events[-1].payload["out_of_order"] == "its input is warm"
    assert "out_of_order" not in rt.start("N1").events[-1].payload


def test_rc1_done_without_its_files_is_ready_again_in_recovery_only(host: Host) -> None:
    rt = host.open()
    rt.add_node("N1", "first")
    rt.add_node("N2", "second", deps=["N1"])
    host.finish(rt, "N1")
    with pytest.raises(TransitionError):
        rt.transition("N1", "READY", ["J-1"])
    rt.close()
    os.unlink(os.path.join(host.workspace, "artifacts/N1/out.txt"))
    with host.resume() as rt:
        assert rt.node("N1").state == "READY"
        assert edges(rt, "N1")[-1] == "RC1"
        assert "missing" in moves(rt)[-1].payload["finding"]
        assert rt.frontier() == ["N1"], "its dependent waits again"
        host.finish(rt, "N1")
        assert rt.frontier() == ["N2"]
    length = len(host.read())
    host.resume().close()
    assert len(host.read()) == length


def test_fst_1_after_a_stop_the_way_into_executing_leads_through_recovering(host: Host) -> None:
    rt = host.open()
    rt.add_node("N1", "first")
    rt.move_task("EXECUTING")
    rt.pause("the day is over")
    with pytest.raises(TransitionError) as caught:
        rt.start("N1")
    assert caught.value.rule == "FST-1"
    rt.move_task("EXECUTING")
    rt.start("N1")
    host.die(rt)
    with host.resume(pid=101) as rt:
        moved = [e.payload["to"] for e in moves(rt) if e.entity.type == "task"]
        assert moved == [
            *("DECOMPOSING", "EXECUTING", "SUSPENDED"),
            *("RECOVERING", "EXECUTING"),
            *("RECOVERING", "EXECUTING"),
        ]


def test_names_that_do_not_exist_are_refused_with_what_was_meant(rt: HaltRuntime) -> None:
    rt.add_node("build", "first")
    with pytest.raises(NotFoundError) as caught:
        rt.transition("biuld", "READY")
    assert caught.value.suggestions == ["build"]
