"""A run that is redirected while it goes on: recalled, amended, halted, and never confused by it.

The commands are real; instructions come in through the drop box, as from another process.
"""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.batches import RAN, BatchProject
from tests.conformance.test_run import STARTED, as_read
from tests.conformance.test_run_gates import PeopleProject

from perdure import HaltRuntime
from perdure.control.batch import BatchNodes
from perdure.control.dispatch_control import DispatchControl
from perdure.control.endings import Endings
from perdure.control.pacing import RetryPacing
from perdure.control.report import conclude_run
from perdure.core.events import Event
from perdure.core.model import contract_bytes_max
from perdure.runtime.calls import perform
from perdure.runtime.engine import Engine
from perdure.service.tasks import Service

Interrupt = Callable[[int], None]

# At work until it is stopped, unless its contract carries an instruction.
UNTIL_TOLD = """
grep -q "Use tabs" "$PERDURE_CONTRACT" && touch "$PERDURE_SCOPE/x" && exit
echo half > "$PERDURE_SCOPE/x"; sleep 60
"""


class SteeredProject(PeopleProject):
    """A project with scripts beside its task file, and instructions from ada."""

    def script(self, name: str, text: str) -> str:
        (self.directory / name).write_text(text, encoding="utf-8")
        return f'sh "$PERDURE_TASK_DIR/{name}"'

    def steer_once(
        self, node: str, text: str, **args: Any
    ) -> Callable[[dict[str, Any], Interrupt], None]:
        """Drops one instruction when the command of this node has been started."""
        said: list[str] = []

        def steer(event: dict[str, Any], interrupt: Interrupt) -> None:
            if event["event"] == "started" and event["node"] == node and not said:
                said.append(text)
                self.drop("s1", "steer", {"text": text, **args}, "sponsor:ada")

        return steer

    def contracts(self, node: str) -> list[dict[str, Any]]:
        """The contracts of a node, in the order of their starts."""
        paths = [
            event.payload["contract"]
            for event in self.journal()
            if event.payload.get("edge") in ("N02", "N11") and event.entity.id == node
        ]
        return [json.loads(Path(self.workspace, path).read_bytes()) for path in paths]

    def chain(self) -> list[str]:
        """The journal in words: what happened, to whom."""
        return [_word(event) for event in self.journal()]


def _word(event: Event) -> str:
    what = event.payload.get("edge") or event.payload.get("op") or event.kind
    return f"{what} {event.entity.id}"


@pytest.fixture
def project(workspace: str) -> SteeredProject:
    return SteeredProject(workspace)


def task(run: str, *, more: str = "") -> str:
    return f"""
task_id: pages
grants: ['write:$TASK/*']
nodes:
  - id: a
    run: {STARTED} {run}
    outputs: [artifacts/a/x]
    {more}
  - id: b
    deps: [a]
    run: {STARTED} touch "$PERDURE_SCOPE/x"
    outputs: [artifacts/b/x]
"""


def test_work_is_recalled_and_starts_again_under_the_instruction(project: SteeredProject) -> None:
    text = task(project.script("a.sh", UNTIL_TOLD))
    report = project.run(text, on=project.steer_once("a", "Use tabs", reading="amendment"))
    assert report["outcome"] == "finished", report
    assert project.starts() == ["a", "a", "b"]
    first, second = project.contracts("a")
    assert not any("Use tabs" in text for text in first["constraints"])
    assert any("Use tabs" in text for text in second["constraints"])
    assert any("Use tabs" in text for text in project.contracts("b")[0]["constraints"])
    assert project.edges("a") == ["N01", "N02", "N04", "N12", "N02", "N03", "N06"]
    assert project.node("a")["interruptions"] == 1
    assert "strikes" not in project.node("a")


def test_the_run_says_what_came_in_and_what_it_was_applied_to(project: SteeredProject) -> None:
    text = task(project.script("a.sh", UNTIL_TOLD))
    project.run(text, on=project.steer_once("a", "Use tabs", reading="amendment", nodes=["a"]))
    (told,) = project.told("steered")
    assert (told["steering"], told["reading"], told["text"]) == ("ST-001", "amendment", "Use tabs")
    assert list(told["applied"]) == ["a"]
    assert "recalled J-" in told["applied"]["a"]
    assert "amended J-" in told["applied"]["a"]
    kinds = [e["event"] for e in project.events if e.get("node") == "a" or e["event"] == "steered"]
    assert kinds == ["started", "steered", "ended", "started", "done"]


def test_a_changed_spec_is_what_runs_next_and_the_file_does_not_undo_it(
    project: SteeredProject,
) -> None:
    text = task("sleep 60;")
    changes = {"run": f'{STARTED} touch "$PERDURE_SCOPE/x"'}
    steer = project.steer_once("a", "Do not sleep", nodes=["a"], changes=changes)
    report = project.run(text, on=steer)
    assert report["outcome"] == "finished", report
    assert report["kinds"] == {"Q-ST-001": "confirmation"}, "nobody said how it was meant"
    assert project.run(text)["outcome"] == "finished"
    assert project.told("graph")[0]["kept"] == ["a (run)"]


def test_the_chain_from_words_to_work_is_in_order(project: SteeredProject) -> None:
    text = task(project.script("a.sh", UNTIL_TOLD))
    project.run(text, on=project.steer_once("a", "Use tabs", reading="amendment", nodes=["a"]))
    chain = project.chain()
    wanted = [
        "N02 a", "STEERING_LOGGED ST-001", "classify ST-001", "N04 a", "amend_node a", "N12 a",
        "acknowledged ST-001", "N02 a", "N03 a", "N06 a",
    ]  # fmt: skip
    found = iter(chain)
    assert all(step in found for step in wanted), chain


def test_what_a_recalled_command_left_is_out_of_the_way(project: SteeredProject) -> None:
    script = project.script("a.sh", UNTIL_TOLD.replace("touch", "test ! -e $PERDURE_SCOPE/x; :>"))
    report = project.run(task(script), on=project.steer_once("a", "Use tabs", nodes=["a"]))
    assert report["outcome"] == "finished", report
    assert Path(project.workspace, "artifacts/a/x").read_bytes() == b""


def test_a_halt_suspends_the_task_and_leaves_nothing_at_work(project: SteeredProject) -> None:
    script = project.script("a.sh", 'echo $$ > "$PERDURE_TASK_DIR/pid"; sleep 60')
    steer = project.steer_once("a", "Stop everything", reading="halt")
    report = project.run(task(script), on=steer)
    assert (report["outcome"], report["exit_code"]) == ("paused", 10)
    status = project.service.status()
    assert (status["fsm_task"], status["nodes"]["a"]) == ("SUSPENDED", "RETRYABLE")
    assert status["running"] == []
    assert project.starts() == ["a"]
    (handoff,) = [e for e in project.journal() if e.payload.get("op") == "handoff"]
    assert "ST-001" in handoff.payload["text"]
    # It may have been stopped before it wrote.
    with contextlib.suppress(FileNotFoundError, ValueError):
        pid = int((project.directory / "pid").read_text(encoding="utf-8"))
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_halted_task_goes_on_with_the_next_run(project: SteeredProject) -> None:
    script = project.script("a.sh", 'test -e ../go || exec sleep 60; touch "$PERDURE_SCOPE/x"')
    steer = project.steer_once("a", "Stop everything", reading="halt")
    assert project.run(task(script), on=steer)["outcome"] == "paused"
    Path(project.workspace).parent.joinpath("go").touch()
    assert project.run(task(script))["outcome"] == "finished"


def test_a_halt_of_one_node_holds_it_and_lets_the_others_go_on(project: SteeredProject) -> None:
    script = project.script("a.sh", 'test -e ../go || exec sleep 60; touch "$PERDURE_SCOPE/x"')
    more = "  - {id: c, run: 'true', outputs: none, accept: ['script: true']}\n"
    steer = project.steer_once("a", "Not this one", reading="halt", nodes=["a"])
    report = project.run(task(script) + more, on=steer)
    assert (report["outcome"], report["waiting"]) == ("needs_person", ["a"])
    assert project.node("c")["state"] == "DONE"
    (question,) = report["questions"]
    assert [e["question"] for e in project.told("asked")] == [question]
    Path(project.workspace).parent.joinpath("go").touch()
    Service(project.workspace, actor="sponsor:ada").call(
        "answer", {"question": question, "text": "go on", "choice": "go on"}
    )
    assert project.run(task(script) + more)["outcome"] == "finished"


def test_an_instruction_about_finished_work_gives_the_run_more_to_do(
    project: SteeredProject,
) -> None:
    """It comes in while the last node is at work; what corrects the first is for somebody."""
    steer = project.steer_once("b", "Number the pages", reading="amendment", nodes=["a"])
    taken = "test -e ../dropped && ! test -e steering/spool/s1.json"
    wait = project.script("wait.sh", f"until {taken}; do sleep 0.01; done")
    first, second = task('touch "$PERDURE_SCOPE/x"').split("  - id: b")
    text = f"{first}  - id: b{second.replace('touch', f'{wait}; touch')}"
    report = project.run(text, on=steer)
    assert report["exit_code"] == 10, report
    assert project.node("a")["state"] == "DONE"
    assert report["by_hand"] == ["a.fix1"]


def test_what_is_said_as_the_last_node_ends_is_heard_by_the_run(project: SteeredProject) -> None:
    def steer(event: dict[str, Any], interrupt: Interrupt) -> None:
        if event["event"] == "done" and event["node"] == "b":
            args = {"text": "Number the pages", "reading": "amendment", "nodes": ["b"]}
            project.drop("s1", "steer", args, "sponsor:ada")

    report = project.run(task('touch "$PERDURE_SCOPE/x"'), on=steer)
    assert (report["exit_code"], report["by_hand"]) == (10, ["b.fix1"])
    assert [event["steering"] for event in project.told("steered")] == ["ST-001"]


def test_a_change_of_the_goal_recalls_what_is_at_work(project: SteeredProject) -> None:
    said: list[str] = []

    def change(event: dict[str, Any], interrupt: Interrupt) -> None:
        if event["event"] == "started" and not said:
            said.append(event["node"])
            args = {"text": "Use tabs", "reason": "spaces are too wide"}
            project.drop("g1", "goal", args, "sponsor:ada")

    report = project.run(task(project.script("a.sh", UNTIL_TOLD)), on=change)
    assert report["outcome"] == "finished", report
    assert [event["text"] for event in project.told("goal_changed")] == ["Use tabs"]
    assert project.edges("a")[:4] == ["N01", "N02", "N04", "N11"]


# Batch nodes


@pytest.fixture
def batch(workspace: str) -> BatchProject:
    return BatchProject(workspace)


UNITS = """
task_id: t
grants: ['write:$TASK/*']
nodes:
  - id: B
    map:
      list: [k1, k2, k3, k4]
      run: {run}
      workers: 1
    resume: skip_if_checksum
"""


def test_a_batch_that_is_recalled_keeps_the_units_that_have_landed(batch: BatchProject) -> None:
    """The second unit hangs until the instruction recalls it; the first is not done again."""
    (batch.directory / "unit.sh").write_text(
        RAN + 'test "$PERDURE_KEY" != k2 || grep -q Hurry "$PERDURE_CONTRACT" || exec sleep 60\n',
        encoding="utf-8",
    )
    text = UNITS.format(run='sh "$PERDURE_TASK_DIR/unit.sh"')
    people = PeopleProject(str(batch.directory))
    said: list[int] = []

    def steer(event: dict[str, Any], interrupt: Interrupt) -> None:
        if event["event"] == "units" and event["done"] == 1 and not said:
            said.append(1)
            args = {"text": "Hurry", "reading": "amendment", "nodes": ["B"]}
            people.drop("s1", "steer", args, "sponsor:ada")

    report = batch.run(text, on=steer)
    assert report["outcome"] == "finished", report
    assert batch.ran()["k1"] == 1
    assert batch.ran()["k2"] == 2
    assert sorted(batch.done()) == ["k1", "k2", "k3", "k4"]
    assert any("Hurry" in text for text in batch.contract()["constraints"])
    assert batch.edges("B") == ["N01", "N02", "N04", "N12", "N02", "N03", "N06"]
    assert batch.contract()["skip"] == 1


def test_a_node_that_could_not_be_started_is_tried_again_once_it_is_amended(
    batch: BatchProject,
) -> None:
    """No contract can hold what it is told; an instruction that says it shortly puts that right."""
    taken = "test -e ../dropped && ! test -e steering/spool/s1.json"
    (batch.directory / "wait.sh").write_text(f"until {taken}; do sleep 0.01; done")
    text = """
task_id: t
grants: ['write:$TASK/*']
nodes:
  - {id: long, run: 'true', outputs: none, accept: ['script: true']}
  - {id: c, run: sh "$PERDURE_TASK_DIR/wait.sh", outputs: none, accept: ['script: true']}
"""
    batch.run(text, on=lambda event, interrupt: interrupt(15))
    with HaltRuntime.attach(batch.workspace, actor="coordinator:ada") as runtime:
        runtime.amend_node("long", "more to tell", constraints=["x" * contract_bytes_max])
    people = PeopleProject(str(batch.directory))

    def steer(event: dict[str, Any], interrupt: Interrupt) -> None:
        if event["event"] == "refused":
            args = {"text": "Shorter", "nodes": ["long"], "changes": {"constraints": ["x"]}}
            people.drop("s1", "steer", args, "sponsor:ada")

    report = batch.run(text, on=steer)
    assert [event["node"] for event in batch.told("refused")] == ["long"]
    assert report["outcome"] == "finished", report


# What comes in with the very commit


def come_in_at_next_commit(engine: Engine, instruction: dict[str, Any]) -> None:
    """As if the message lay in the drop box when the loop takes the lock for its next commit."""
    waiting = [instruction]

    def ingest(of: Engine) -> None:
        if waiting:
            args = waiting.pop()
            with of.acting_as("sponsor:ada"):
                perform(of, "steer", args)

    engine.ingest = ingest
    engine._ingest_at = 0.0


def test_a_batch_that_is_amended_by_the_commit_that_starts_it_has_the_new_units(
    batch: BatchProject,
) -> None:
    told: list[dict[str, Any]] = []
    with HaltRuntime(batch.workspace, "T1") as runtime:
        runtime.add_node("a", "A", map={"list": ["k1"], "run": "true"})
        runtime.move_task("EXECUTING")
        endings = Endings(runtime, RetryPacing(runtime.engine), told.append)
        control = DispatchControl(runtime.engine, told.append)
        nodes = BatchNodes(runtime, endings, control, jobs=1, emit=told.append)
        args = {"text": "Two", "nodes": ["a"], "changes": {"map": TWO_UNITS}}
        come_in_at_next_commit(runtime.engine, args)
        nodes.start(runtime.state.nodes["a"])
        nodes.close()
    assert batch.contract("a")["units"]["total"] == 2
    assert batch.contract("a")["map"]["list"] == ["k1", "k2"]
    assert told[-1]["units"] == 2


TWO_UNITS = {"list": ["k1", "k2"], "run": "true"}


def test_a_task_that_is_reopened_by_the_commit_that_finishes_it_is_not_finished(
    project: SteeredProject,
) -> None:
    with HaltRuntime(project.workspace, "T1") as runtime:
        runtime.add_node("a", "A", outputs=["artifacts/a/x"])
        runtime.move_task("EXECUTING")
        runtime.start("a")
        Path(project.workspace, "artifacts/a/x").write_text("x", encoding="utf-8")
        runtime.submit("a")
        args = {"text": "Otherwise", "reading": "amendment", "nodes": ["a"]}
        come_in_at_next_commit(runtime.engine, args)
        report = conclude_run(runtime, unstoppable=set(), paused=False, signal=0)
        assert report is None
        assert "a.fix1" in runtime.state.nodes
        again = conclude_run(runtime, unstoppable=set(), paused=False, signal=0)
        assert again is not None
        assert again.by_hand == ("a.fix1",)


@pytest.mark.parametrize("ending", ["claim", "fail", "interrupt"])
def test_an_attempt_that_is_recalled_by_the_commit_that_ends_it_ends_once(
    project: SteeredProject, ending: str
) -> None:
    told: list[dict[str, Any]] = []
    with HaltRuntime(project.workspace, "T1") as runtime:
        runtime.add_node("a", "A", outputs=["artifacts/a/x"], run="true")
        runtime.move_task("EXECUTING")
        runtime.start("a")
        Path(project.workspace, "artifacts/a/x").write_text("x", encoding="utf-8")
        endings = Endings(runtime, RetryPacing(runtime.engine), told.append)
        args = {"text": "Otherwise", "reading": "amendment", "nodes": ["a"]}
        come_in_at_next_commit(runtime.engine, args)
        if ending == "claim":
            endings.claim("a", wall_s=0.0)
        elif ending == "fail":
            endings.fail("a", "transient-agent", "exit 1", wall_s=0.0)
        else:
            endings.interrupt("a", "stopped")
        node = runtime.state.nodes["a"]
        assert (node.state, node.strikes, node.interruptions) == ("READY", 0, 1)
    assert as_read(told[0]) == {"event": "ended", "node": "a", "state": "READY"}
