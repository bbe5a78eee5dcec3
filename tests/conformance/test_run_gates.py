"""A run and the people it asks: gates hold what they hold, and everything else goes on.

The commands are real, the run is the service call behind ``perdure run``; rulings are given between
runs by the service, or during one through the drop box, as another process would.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.test_run import STARTED, Project, as_read

from perdure.errors import RefusedError
from perdure.runtime.world import real_world
from perdure.service.runs import read_task_file, run_task
from perdure.service.tasks import Service
from perdure.storage import spool
from perdure.storage.workspace import Layout

Interrupt = Callable[[int], None]


class PeopleProject(Project):
    """A project whose gatekeeper is eve."""

    def rule(self, ruling: str, question: str, **args: Any) -> dict[str, Any]:
        """What eve says between two runs."""
        service = Service(self.workspace, actor="gatekeeper:eve")
        return as_read(service.call(ruling, {"question": question, **args}))

    def drop(self, name: str, command: str, args: dict[str, Any], actor: str) -> None:
        """What somebody says while the run is on."""
        message = spool.Message(name, command, args, actor, 0.0)
        spool.drop(real_world().disk, Layout(self.workspace), message)
        (self.directory / "dropped").touch()

    def stay(self, text: str, on: Callable[[dict[str, Any], Interrupt], None]) -> dict[str, Any]:
        """One ``run --wait``."""
        path = self.directory / "task.yaml"
        path.write_text(text, encoding="utf-8")
        self.events = []
        interrupts: list[Interrupt] = []

        def emit(event: dict[str, Any]) -> None:
            self.events.append(as_read(event))
            if interrupts:
                on(event, interrupts[0])

        report = run_task(
            self.workspace,
            read_task_file(str(path), real_world()),
            jobs=1,
            actor="coordinator:test",
            world=real_world(),
            emit=emit,
            on_loop=interrupts.append,
            wait=True,
        )
        return as_read(report)


@pytest.fixture
def project(workspace: str) -> PeopleProject:
    return PeopleProject(workspace)


def task(gate: str, *, head: str = "", a: str = "echo text", more: str = "") -> str:
    return f"""
task_id: letter
grants: ['write:$TASK/*']
{head}
nodes:
  - id: write
    title: Write the letter
    run: {STARTED} {a} > "$PERDURE_SCOPE/letter"
    outputs: [artifacts/write/letter]
    {more}
    {gate}
  - id: send
    deps: [write]
    run: {STARTED} true
    outputs: none
    accept: ['exists: artifacts/write/letter']
  - id: other
    run: {STARTED} true
    outputs: none
    accept: ['script: true']
"""


DONE_GATE = "gate: Is the letter good?"
START_GATE = "gate: {blocks: start, question: May I write it?}"


def test_a_gate_before_done_holds_its_dependents_and_nothing_else(project: PeopleProject) -> None:
    for again in range(2):
        report = project.run(task(DONE_GATE))
        assert (report["outcome"], report["exit_code"]) == ("needs_person", 10)
        assert report["questions"] == {"G-write-review": "Is the letter good?"}
        assert report["kinds"] == {"G-write-review": "gate"}
        assert report["waiting"] == ["write"]
        assert project.node("write")["state"] == "VERIFYING"
        assert sorted(project.starts()) == ["other", "write"]
        assert len(project.told("asked")) == 1 - again, "asked once, not in each run"
    assert project.rule("approve", "G-write-review")["state"] == "DONE"
    assert project.run(task(DONE_GATE))["outcome"] == "finished"
    assert sorted(project.starts()) == ["other", "send", "write"]
    assert project.edges("write") == ["N01", "N02", "N03", "N06"]


def test_a_claim_that_waits_for_an_answer_is_verified_once(project: PeopleProject) -> None:
    check = "accept: ['script: echo x >> \"$PERDURE_TASK_DIR/checks\"']"
    for _ in range(3):
        project.run(task(DONE_GATE, more=check))
    assert (project.directory / "checks").read_text(encoding="utf-8") == "x\n"


def test_a_gate_before_the_start_lets_nothing_begin(project: PeopleProject) -> None:
    report = project.run(task(START_GATE))
    assert report["questions"] == {"G-write-start": "May I write it?"}
    assert project.starts() == ["other"]
    assert project.service.status()["nodes"]["write"] == "PENDING"
    project.rule("approve", "G-write-start")
    assert project.run(task(START_GATE))["outcome"] == "finished"


def test_what_was_approved_for_the_start_and_changes_is_asked_anew(project: PeopleProject) -> None:
    project.run(task(START_GATE))
    project.rule("approve", "G-write-start")
    report = project.run(task(START_GATE, a="echo another text"))
    assert list(report["questions"]) == ["G-write-start.2"]
    assert project.starts() == ["other"]
    assert project.told("refused") == []
    project.rule("approve", "G-write-start.2")
    report = project.run(task(START_GATE, a="echo another text").replace("Write the", "Compose a"))
    assert report["outcome"] == "finished", "a title is description: it voids nothing (F26)"


def test_a_file_that_changes_after_the_approval_of_a_start_is_noticed(
    project: PeopleProject,
) -> None:
    """The start is refused in the run, the question is open, and the rest of the run goes on."""
    gate = "gate: {blocks: start, question: Write by these notes?, content: [notes.txt]}"
    notes = Path(project.workspace, "notes.txt")
    project.run(task(gate))
    notes.write_text("be polite", encoding="utf-8")
    assert list(project.run(task(gate))["questions"]) == ["G-write-start"]
    with pytest.raises(RefusedError, match="has changed since"):
        project.rule("approve", "G-write-start")
    project.rule("approve", "G-write-start.2")
    notes.write_text("be rude", encoding="utf-8")
    report = project.run(task(gate))
    assert list(report["questions"]) == ["G-write-start.3"]
    assert project.starts() == ["other"]
    assert project.told("refused") == []


def test_a_revised_node_is_done_again_and_meets_the_same_gate(project: PeopleProject) -> None:
    project.run(task(DONE_GATE))
    changed = STARTED + 'echo shorter > "$PERDURE_SCOPE/letter"'
    project.rule("revise", "G-write-review", text="Shorter", changes={"run": changed})
    report = project.run(task(DONE_GATE))
    assert list(report["questions"]) == ["G-write-review.2"]
    assert project.told("graph")[0]["kept"] == ["write (run)"]
    assert Path(project.workspace, "artifacts/write/letter").read_text() == "shorter\n"
    project.rule("approve", "G-write-review.2")
    assert project.run(task(DONE_GATE))["outcome"] == "finished"
    assert project.edges("write") == ["N01", "N02", "N03", "N07", "N12", "N02", "N03", "N06"]


def test_a_rejected_result_is_done_again_until_its_rounds_are_over(project: PeopleProject) -> None:
    text = task("gate: {question: Good?, revise_max: 2}")
    project.run(text)
    project.rule("reject", "G-write-review", text="No")
    project.run(text)
    project.rule("reject", "G-write-review.2", text="Still no")
    report = project.run(text)
    assert report["exit_code"] == 10
    assert project.node("write")["state"] == "QUARANTINED"
    (kind,) = report["kinds"].values()
    assert kind == "escalation"


def test_a_judgement_is_asked_with_its_rubric(project: PeopleProject) -> None:
    more = "verify: V3\n    accept: [{human: {rubric: Polite and short, judge: eve}}]"
    report = project.run(task("", more=more))
    assert report["kinds"] == {"G-write-judge": "judgement"}
    assert project.rule("approve", "G-write-judge")["state"] == "DONE"
    (done,) = [
        e for e in project.journal()
        if e.payload.get("edge") == "N06" and e.entity.id == "write"
    ]  # fmt: skip
    assert done.payload["level"] == "V3"
    assert "gatekeeper:eve" in done.payload["verifier"]


def test_the_delegation_ladder_asks_where_the_file_declares_nothing(project: PeopleProject) -> None:
    head = "delegation: {S1: EXPLICIT_APPROVAL, S2: REVIEW_REQUIRED}"
    text = task("effect: S1", head=head).replace("id: other\n", "id: other\n    effect: S2\n")
    report = project.run(text)
    assert set(report["questions"]) == {"G-write-start", "G-other-review"}


def test_silence_rejects_where_the_file_says_so_and_never_approves(project: PeopleProject) -> None:
    text = task("gate: {question: Good?, timeout: 0.2, fallback: reject, revise_max: 1}")
    report = project.stay(text, lambda event, interrupt: None)
    assert report["exit_code"] == 10
    assert [e["question"] for e in project.told("overdue")] == ["G-write-review"]
    (answered,) = [e for e in project.told("answered") if e["question"] == "G-write-review"]
    assert (answered["ruling"], answered["by_default"]) == ("reject", True)
    assert project.node("write")["state"] == "QUARANTINED"


def test_what_is_overdue_and_may_wait_is_told_once_and_stays_open(project: PeopleProject) -> None:
    def stop(event: dict[str, Any], interrupt: Interrupt) -> None:
        if event["event"] == "overdue":
            interrupt(15)

    report = project.stay(task("gate: {question: Good?, timeout: 0.2}"), stop)
    assert list(report["questions"]) == ["G-write-review"]
    assert len(project.told("overdue")) == 1
    assert project.node("write")["state"] == "VERIFYING"


# Staying


def test_a_run_that_waits_goes_on_with_the_answer(project: PeopleProject) -> None:
    def approve(event: dict[str, Any], interrupt: Interrupt) -> None:
        if event["event"] == "waiting":
            args = {"question": next(iter(event["questions"]))}
            project.drop("m1", "approve", args, "gatekeeper:eve")

    report = project.stay(task(DONE_GATE), approve)
    assert report["outcome"] == "finished", report
    kinds = [e["event"] for e in project.events]
    asked, answered = kinds.index("asked"), kinds.index("answered")
    assert kinds.index("waiting", asked) < answered < kinds.index("done", answered)
    (told,) = project.told("answered")
    assert (told["ruling"], told["by"]) == ("approve", "gatekeeper:eve")
    assert [e.actor for e in project.journal() if e.payload.get("op") == "answer"] == [
        "gatekeeper:eve"
    ]


def test_a_run_that_waits_is_interrupted_like_any_other(project: PeopleProject) -> None:
    def stop(event: dict[str, Any], interrupt: Interrupt) -> None:
        if event["event"] == "waiting":
            interrupt(15)

    report = project.stay(task(DONE_GATE), stop)
    assert report["exit_code"] == 128 + 15
    assert project.service.status()["fsm_task"] == "SUSPENDED"
    assert len(project.told("waiting")) == 1
    project.rule("approve", "G-write-review")
    assert project.run(task(DONE_GATE))["outcome"] == "finished"


def test_a_run_does_not_stay_for_what_no_answer_can_free(project: PeopleProject) -> None:
    """Its node is given up: it takes another one, which only the next run can add."""
    report = project.stay(task("", a="exit 64;"), lambda event, interrupt: None)
    assert report["exit_code"] == 10
    assert project.node("write")["state"] == "QUARANTINED"
    assert project.told("waiting") == []


def test_a_suspended_task_that_nothing_can_start_goes_on_when_an_answer_comes(
    project: PeopleProject,
) -> None:
    text = task(START_GATE)
    project.run(text)
    project.service.call("pause", {"reason": "the night"})
    assert project.service.status()["fsm_task"] == "SUSPENDED"

    def approve(event: dict[str, Any], interrupt: Interrupt) -> None:
        if event["event"] == "waiting":
            project.drop("m1", "approve", {"question": "G-write-start"}, "gatekeeper:eve")

    assert project.stay(text, approve)["outcome"] == "finished"


# A question about work that goes on


def test_a_question_that_comes_in_while_a_claim_is_checked_holds_the_verdict(
    project: PeopleProject,
) -> None:
    """The check lasts until the message has been taken in; its verdict must not end the run."""
    wait = "until test -e steering/spool/q1.result.json; do sleep 0.01; done"

    def ask(event: dict[str, Any], interrupt: Interrupt) -> None:
        if event["event"] == "started" and event["node"] == "write":
            args = {"text": "Wait!", "node": "write", "id": "Q-7", "keep_working": True}
            project.drop("q1", "ask", args, "sponsor:ada")

    report = project.run(task("", more=f"accept: ['script: {wait}']"), on=ask)
    assert report["exit_code"] == 10, report
    assert project.node("write")["state"] == "VERIFYING"
    service = Service(project.workspace, actor="sponsor:ada")
    assert service.call("answer", {"question": "Q-7", "text": "go on"})["state"] == "DONE"
