"""Escalations on a real disk: AD-1, AD-2, FSN-3, GE-4, whichever way the strikes came about.

What the bundle says of the disk is what lay there before the attempt was set aside.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.batches import BatchProject
from tests.conformance.host import Host
from tests.conformance.test_run import Project

from perdure import HaltRuntime
from perdure.core.people import Question
from perdure.errors import HaltError, StorageError
from perdure.runtime import disk_facts as seen
from perdure.runtime.calls import perform
from perdure.service.tasks import Service

ANNA = "gatekeeper:anna"
OUT = "artifacts/N1/a.txt"
PART = "artifacts/N1/part.txt"


def begin(host: Host, **fields: Any) -> HaltRuntime:
    runtime = host.open()
    runtime.add_node("N1", "First", outputs=[OUT], **fields)
    runtime.add_node("N2", "Second", deps=["N1"])
    return runtime


def only(runtime: HaltRuntime) -> Question:
    (question,) = runtime.state.questions.values()
    return question


def facts_of(runtime: HaltRuntime) -> dict[str, Any]:
    facts: dict[str, Any] = only(runtime).package["disk_facts"]
    return facts


def work(host: Host, runtime: HaltRuntime, content: str) -> None:
    """An attempt that leaves half of its work, and nothing that it owes."""
    runtime.start("N1", session=True)
    host.write(PART, content)
    host.clock.advance(40.0)


def by_fail(runtime: HaltRuntime, signature: str) -> None:
    runtime.fail("N1", "transient-agent", signature)


def by_call(runtime: HaltRuntime, signature: str) -> None:
    perform(runtime.engine, "fail", {"node": "N1", "reason": signature})


def by_transition(runtime: HaltRuntime, signature: str) -> None:
    how = {"failure_class": "transient-agent", "signature": signature}
    runtime.transition("N1", "RETRYABLE", **how)


# Three strikes by N04


@pytest.mark.parametrize("end", [by_fail, by_call, by_transition])
def test_three_attempts_that_fail_are_put_to_a_person_with_what_the_disk_held(
    host: Host, end: Callable[[HaltRuntime, str], None]
) -> None:
    runtime = begin(host)
    for number in (1, 2, 3):
        assert runtime.state.questions == {}
        work(host, runtime, "x" * number)
        end(runtime, f"exit {number}")
    question = only(runtime)
    assert (question.kind, question.node, question.default) == (
        "escalation", "N1", "remain-blocked",
    )  # fmt: skip
    tried = [(item["attempt"], item["signature"]) for item in question.package["signatures"]]
    assert tried == [(1, "exit 1"), (2, "exit 2"), (3, "exit 3")]
    assert question.package["failure_classes"] == ["transient-agent x3"]
    facts = question.package["disk_facts"]
    assert facts == {
        "files": 1,
        "named": [{"path": PART, "size_bytes": 3}],
        "missing": [OUT],
        "last_heartbeat_s": None,
        "worked_s": 40.0,
    }
    assert list(question.options) == ["retry", "amend", "split", "cancel"]
    with pytest.raises(HaltError) as refused:
        runtime.start("N1")
    assert "FSN-3" in str(refused.value) or "Q-N1-3" in str(refused.value)


def test_the_facts_are_those_before_the_scope_was_cleared(host: Host) -> None:
    runtime = begin(host, retry_budget=1)
    runtime.start("N1")
    host.write(PART, "half")
    host.write(OUT, "whole")
    runtime.register_artifact("A-part", PART, "output", node_id="N1")
    runtime.fail("N1", "transient-agent", "exit 3")
    facts = facts_of(runtime)
    assert facts["files"] == 2
    assert {item["path"] for item in facts["named"]} == {PART, OUT}
    assert "missing" not in facts
    (moved,) = facts["moved"]
    assert moved["path"] == PART
    assert Path(host.workspace, moved["to"]).read_text() == "half"
    assert not Path(host.workspace, PART).exists()
    runtime.answer(only(runtime).question_id, "otherwise", choice="retry", method="m", by=ANNA)
    runtime.start("N1")
    assert not Path(host.workspace, OUT).exists(), "now the scope is clear"


def test_a_sign_of_life_is_among_the_facts(host: Host) -> None:
    runtime = begin(host, retry_budget=1)
    runtime.start("N1", session=True)
    host.clock.advance(100.0)
    runtime.beat(["N1"])
    host.clock.advance(7.5)
    runtime.fail("N1", "transient-agent", "silent")
    facts = facts_of(runtime)
    assert (facts["last_heartbeat_s"], facts["worked_s"]) == (7.5, 107.5)


def test_an_attempt_that_left_nothing_is_said_to_have_left_nothing(host: Host) -> None:
    runtime = begin(host, retry_budget=1)
    runtime.start("N1")
    runtime.fail("N1", "transient-agent", "exit 3")
    facts = facts_of(runtime)
    assert (facts["files"], facts["named"], facts["missing"]) == (0, [], [OUT])


def test_many_files_are_counted_and_a_few_are_named(host: Host) -> None:
    runtime = begin(host, retry_budget=1)
    runtime.start("N1")
    for number in range(40):
        host.write(f"artifacts/N1/deep/{number}/f.txt", "x")
    runtime.fail("N1", "transient-agent", "exit 3")
    facts = facts_of(runtime)
    assert (facts["files"], len(facts["named"])) == (40, 10)


def test_a_declared_output_outside_the_scope_is_looked_at_as_well(host: Host) -> None:
    runtime = host.open()
    outputs = ["out/there.txt", "out/missing.txt"]
    runtime.add_node("N1", "First", outputs=outputs, retry_budget=1)
    runtime.start("N1")
    host.write("out/there.txt", "abc")
    runtime.fail("N1", "transient-agent", "exit 3")
    facts = facts_of(runtime)
    assert facts["named"] == [{"path": "out/there.txt", "size_bytes": 3}]
    assert facts["missing"] == ["out/missing.txt"]


def test_records_of_a_job_are_not_called_work(host: Host) -> None:
    runtime = begin(host, retry_budget=1)
    runtime.start("N1")
    host.write("artifacts/N1/findings.jsonl", "{}\n")
    host.write("artifacts/N1/state.json", "{}")
    host.write(PART)
    runtime.fail("N1", "transient-agent", "exit 3")
    facts = facts_of(runtime)
    assert (facts["files"], facts["records"]) == (1, 2)


def test_what_cannot_be_read_is_said_and_the_failure_is_committed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*given: Any) -> list[str]:
        raise StorageError("artifacts/N1 cannot be listed: no permission.")

    runtime = begin(host, retry_budget=1)
    runtime.start("N1", session=True)
    monkeypatch.setattr(seen, "files_below", unreadable)
    runtime.fail("N1", "transient-agent", "exit 3")
    facts = facts_of(runtime)
    assert "cannot be listed" in facts["problem"]
    assert "worked_s" in facts, "and hides nothing else"
    assert runtime.node("N1").state == "RETRYABLE"


def test_a_repeated_call_escalates_once(host: Host) -> None:
    runtime = begin(host, retry_budget=1)
    runtime.start("N1")
    first = runtime.fail("N1", "transient-agent", "exit 3", op="once")
    again = runtime.fail("N1", "transient-agent", "exit 3", op="once")
    assert again.ref == first.ref
    assert len(runtime.state.questions) == 1


# Three strikes by failed verification


def test_three_verifications_that_fail_are_put_to_a_person(host: Host) -> None:
    runtime = begin(host, accept=[f"matches: {OUT} good"])
    for number in (1, 2, 3):
        assert runtime.state.questions == {}
        runtime.start("N1")
        host.write(OUT, "b" * number)
        host.write(PART, "p")
        runtime.submit("N1")
    assert runtime.node("N1").state == "QUARANTINED"
    question = only(runtime)
    assert question.package["kind"] == "verification_failed"
    tried = question.package["signatures"]
    assert [item["attempt"] for item in tried] == [1, 2, 3]
    assert all("matches" in item["signature"] for item in tried)
    facts = question.package["disk_facts"]
    assert facts["files"] == 2
    assert {"path": OUT, "size_bytes": 3} in facts["named"]
    (verified,) = facts["verified"]
    assert verified["path"] == OUT
    assert runtime.state.artifacts["A-N1-3"].integrity.value == verified["sha256"]
    assert [item["check"] for item in facts["failed_checks"]] == ["matches"]
    (moved,) = facts["moved"]
    assert Path(host.workspace, moved["to"]).read_text() == "bbb"
    assert list(question.options) == ["successor", "leave"]
    runtime.add_node("N3", "Another", successor_of="N1")
    assert runtime.state.questions == {}
    assert runtime.node("N2").deps == ("N3",)


def test_a_person_who_refuses_for_good_is_asked_how_it_is_to_go_on(host: Host) -> None:
    gate = {"gate_id": "G-look", "question": "Is it good?", "revise_max": 1}
    runtime = begin(host, gates=[gate])
    runtime.start("N1")
    host.write(OUT, "bad")
    runtime.submit("N1")
    runtime.reject("G-look", "in French", by=ANNA)
    question = only(runtime)
    assert question.package["kind"] == "result_refused"
    facts = question.package["disk_facts"]
    assert [item["path"] for item in facts["shown"]] == [OUT]
    (moved,) = facts["moved"]
    assert Path(host.workspace, moved["to"]).read_text() == "bad"


# What is no strike


def test_a_coordinator_that_dies_escalates_nothing(host: Host) -> None:
    begin(host).close()
    for number in range(5):
        runtime = host.resume(101 + number)
        runtime.start("N1")
        host.die(runtime)
    runtime = host.resume(110)
    node = runtime.node("N1")
    assert (node.state, node.interruptions, node.strikes) == ("RETRYABLE", 5, 0)
    assert (runtime.state.questions, node.failures) == ({}, ())
    for number in (1, 2, 3):
        work(host, runtime, "x")
        runtime.fail("N1", "transient-agent", f"exit {number}")
    tried = [item["signature"] for item in only(runtime).package["signatures"]]
    assert tried == ["exit 1", "exit 2", "exit 3"]


# After a crash, and for ever


def test_the_bundle_is_what_the_journal_says_whoever_reads_it(host: Host) -> None:
    runtime = begin(host, retry_budget=1)
    work(host, runtime, "half")
    runtime.fail("N1", "transient-agent", "exit 3")
    before = only(runtime)
    host.die(runtime)
    os.unlink(os.path.join(host.workspace, PART))
    for name in ("checkpoint.json", "task-graph.json", ".snapshot.json"):
        Path(host.workspace, name).unlink(missing_ok=True)
    again = host.resume(101)
    assert only(again) == before


def test_nothing_happens_however_long_nobody_answers(host: Host) -> None:
    runtime = begin(host, retry_budget=1)
    work(host, runtime, "half")
    runtime.fail("N1", "transient-agent", "exit 3")
    runtime.close()
    journal = host.read()
    host.clock.advance(1e8)
    runtime = host.resume()
    assert only(runtime).question_id == "Q-N1-1"
    assert runtime.frontier() == []
    runtime.close()
    assert host.read().startswith(journal)
    moved = [event.kind for event in runtime.events() if event.seq > journal.count(b"\n")]
    assert "DECISION" not in moved


# In a run

TASK = """
task_id: t
grants: ['write:$TASK/*']
nodes:
  - id: make
    run: 'echo half > "$PERDURE_SCOPE/part"; exit 7'
    outputs: [artifacts/make/whole]
  - id: after
    deps: [make]
    run: 'true'
    outputs: none
    accept: ["script: true"]
"""
WRONG = """
task_id: t
grants: ['write:$TASK/*']
nodes:
  - id: make
    run: 'echo bad > "$PERDURE_SCOPE/whole"'
    outputs: [artifacts/make/whole]
    accept: ["matches: artifacts/make/whole good"]
"""


@pytest.fixture
def project(workspace: str) -> Project:
    return Project(workspace)


def test_a_run_that_is_out_of_strikes_ends_with_the_bundle(project: Project) -> None:
    report = project.run(TASK)
    assert (report["outcome"], report["exit_code"]) == ("needs_person", 10)
    (entry,) = project.service.inbox()["questions"]
    tried = [item["signature"] for item in entry["package"]["signatures"]]
    assert tried == ["exit 7"] * 3
    facts = entry["package"]["disk_facts"]
    assert facts["named"] == [{"path": "artifacts/make/part", "size_bytes": 5}]
    assert facts["missing"] == ["artifacts/make/whole"]
    assert entry["commands"][-1] == f"perdure answer {entry['id']} WHY --choice cancel"


def test_a_node_that_was_given_up_fails_the_run_and_its_question_is_listed(
    project: Project,
) -> None:
    report = project.run(WRONG)
    assert (report["outcome"], report["exit_code"]) == ("failed", 1)
    assert report["failed"] == ["make"]
    assert list(report["questions"]) == ["Q-make-3"]
    assert report["kinds"] == {"Q-make-3": "escalation"}
    again = project.run(WRONG)
    assert (again["outcome"], list(again["questions"])) == ("failed", ["Q-make-3"])
    Service(project.workspace, actor=ANNA).call(
        "answer", {"question": "Q-make-3", "text": "so be it", "choice": "leave"}
    )
    last = project.run(WRONG)
    assert (last["outcome"], last["questions"]) == ("failed", {})


def test_any_other_question_still_needs_a_person(project: Project) -> None:
    project.run(WRONG)
    project.service.call("ask", {"text": "Which licence?", "id": "Q-licence"})
    report = project.run(WRONG)
    assert (report["outcome"], report["exit_code"]) == ("needs_person", 10)
    assert list(report["questions"]) == ["Q-make-3", "Q-licence"]


def test_a_spec_that_cannot_be_met_asks_what_replaces_it(project: Project) -> None:
    report = project.run(TASK.replace("exit 7", "exit 64"))
    assert project.node("make")["state"] == "QUARANTINED"
    assert (report["outcome"], report["exit_code"]) == ("needs_person", 10)
    (question,) = report["questions"]
    entry = project.service.inbox()["questions"][0]
    assert (entry["id"], entry["kind"]) == (question, "question")
    assert entry["commands"][0] == "perdure add ID TITLE --successor-of make"


def test_a_batch_node_is_put_to_a_person_with_its_units_counted(workspace: str) -> None:
    project = BatchProject(workspace)
    text = """
task_id: t
grants: ['write:$TASK/*']
nodes:
  - id: B
    map: {list: [a, b], run: 'exit 3', max_attempts: 1}
    retry: 1
"""
    report = project.run(text)
    assert report["outcome"] in ("needs_person", "failed")
    (entry,) = project.service.inbox()["questions"]
    assert entry["kind"] == "escalation"
    assert entry["package"]["disk_facts"]["records"] >= 1


# GE-4


def test_acceptance_that_keeps_failing_is_proposed_to_the_sponsor(project: Project) -> None:
    project.run(WRONG)
    before = project.journal()
    (found,) = project.service.inbox()["proposals"]
    assert found["node"] == "make"
    assert found["signs"] == ["its acceptance has failed 3 times"]
    assert "perdure goal TEXT --reason WHY" in found["commands"]
    assert project.journal() == before
