"""What ``run`` does with a task file, end to end in one process: effects, retries, changed files.

The commands are real, the run is the service call behind ``perdure run``. Each test counts the
starts of its commands by a line that they write beside the task file.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.core.events import Event
from perdure.runtime.eventlog import EventLog
from perdure.runtime.world import real_world
from perdure.service.runs import read_task_file, run_task
from perdure.service.tasks import Service
from perdure.storage import spool
from perdure.storage.workspace import Layout

Hook = Callable[[dict[str, Any], Callable[[int], None]], None]

STARTED = 'echo "$PERDURE_NODE" >> "$PERDURE_TASK_DIR/started"; '


def as_read(data: dict[str, Any]) -> dict[str, Any]:
    """An answer as a program reads it: lists, no tuples."""
    read: dict[str, Any] = json.loads(json.dumps(data))
    return read


class Project:
    """A task file, its workspace, and the runs over it."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)
        self.workspace = f"{directory}/w"
        self.service = Service(self.workspace, actor="sponsor:ada")
        self.events: list[dict[str, Any]] = []

    def run(self, text: str, *, on: Hook | None = None) -> dict[str, Any]:
        """One run of this task file; ``on`` gets each event and how to interrupt the run."""
        path = self.directory / "task.yaml"
        path.write_text(text, encoding="utf-8")
        self.events = []
        interrupts: list[Callable[[int], None]] = []

        def emit(event: dict[str, Any]) -> None:
            self.events.append(as_read(event))
            if on is not None and interrupts:
                on(event, interrupts[0])

        world = real_world()
        report = run_task(
            self.workspace,
            read_task_file(str(path), world),
            jobs=1,
            actor="coordinator:test",
            world=world,
            emit=emit,
            on_loop=interrupts.append,
        )
        return as_read(report)

    def starts(self) -> list[str]:
        """The nodes whose commands were started, in all runs."""
        path = self.directory / "started"
        return path.read_text(encoding="utf-8").split() if path.exists() else []

    def node(self, node_id: str) -> dict[str, Any]:
        return as_read(self.service.show(node_id))

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    def journal(self) -> list[Event]:
        log = EventLog(real_world().disk, Layout(self.workspace).journal, 10**9)
        return list(log)

    def edges(self, entity: str) -> list[str]:
        """The rows that a node, or the task, has taken."""
        moves = [event for event in self.journal() if event.kind == "STATE_TRANSITION"]
        return [event.payload["edge"] for event in moves if event.entity.id == entity]


@pytest.fixture
def project(workspace: str) -> Project:
    return Project(workspace)


# External effects (C-S3)


def effect(command: str, *, more: str = "", allowed: str = "pay") -> str:
    return f"""
task_id: shop
grants: ['write:$TASK/*']
standing_authorities: [{allowed}]
nodes:
  - id: pay
    title: Pay the invoice
    effect: S3
    run: >-
      {STARTED} {command}
    outputs: [artifacts/pay/slip]
    {more}
"""


SLIP = 'echo paid > "$PERDURE_SCOPE/slip"'


@pytest.mark.parametrize(
    ("command", "more"),
    [
        (SLIP, ""),
        ("exit 1", ""),
        ("exit 64", ""),
        ("exit 75", ""),
        ("nosuchprogram-of-this-test", ""),
        ("exit 126", ""),
        ("echo invalid api key; exit 1", ""),
        ("exec sleep 60", "budget: {wall: 0.2}"),
    ],
    ids=[
        "success",
        "failure",
        "bad-input",
        "trouble-outside",
        "no-program",
        "not-executable",
        "credentials",
        "time-limit",
    ],
)
def test_an_effect_that_ends_without_a_receipt_is_held_and_not_started_again(
    project: Project, command: str, more: str
) -> None:
    text = effect(command, more=more)
    for _ in range(2):
        report = project.run(text)
        assert (report["outcome"], report["exit_code"]) == ("needs_person", 10)
        assert project.node("pay")["state"] == "BLOCKED"
        assert project.starts() == ["pay"]
        (question,) = report["questions"].values()
        assert "did its external effect happen?" in question
        assert report["waiting"] == ["pay"]
    assert project.edges("pay") == ["N01", "N02", "N05"]


def test_an_effect_whose_program_could_not_be_started_asks_for_the_program_alone(
    project: Project,
) -> None:
    text = effect("").replace(f"run: >-\n      {STARTED} ", "run: [./nosuchprogram]")
    assert project.run(text)["exit_code"] == 10
    node = project.node("pay")
    assert node["state"] == "BLOCKED"
    (question,) = project.run(text)["questions"].values()
    assert "could not be started" in question
    assert "effect" not in question


def test_an_effect_that_is_interrupted_is_held_and_not_started_again(project: Project) -> None:
    def stop(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "started":
            (project.directory / "at-work").read_text(encoding="utf-8")
            interrupt(15)

    os.mkfifo(project.directory / "at-work")
    text = effect('echo > "$PERDURE_TASK_DIR/at-work"; exec sleep 60')
    report = project.run(text, on=stop)
    assert (report["outcome"], report["exit_code"]) == ("interrupted", 128 + 15)
    assert project.node("pay")["state"] == "BLOCKED"
    assert project.run(text)["exit_code"] == 10
    assert project.starts() == ["pay"]


def test_a_receipt_frees_the_node_and_its_command_is_told_not_to_repeat(project: Project) -> None:
    text = effect(
        'echo "receipt: $PERDURE_RECEIPT" >> "$PERDURE_TASK_DIR/seen";'
        f' test -z "$PERDURE_RECEIPT" && exit 1; {SLIP}'
    )
    assert project.run(text)["exit_code"] == 10
    answer = project.service.call("receipt", {"node": "pay", "proof": "order 4711", "id": "R-1"})
    assert (answer["state"], answer["receipt"]) == ("READY", "R-1")
    assert project.run(text)["outcome"] == "finished"
    seen = (project.directory / "seen").read_text(encoding="utf-8").splitlines()
    assert seen == ["receipt: ", "receipt: R-1"]


def test_a_person_who_says_not_done_allows_the_command_once(project: Project) -> None:
    text = effect("exit 1")
    project.run(text)
    project.service.call("retry", {"node": "pay", "reason": "the shop has no order"})
    assert project.run(text)["exit_code"] == 10
    assert project.run(text)["exit_code"] == 10
    assert project.starts() == ["pay", "pay"]


def test_a_command_records_its_own_receipt_through_the_drop_box(project: Project) -> None:
    text = effect(f'"$PERDURE_PYTHON" -m perdure receipt pay --proof "order 4711" && {SLIP}')
    report = project.run(text)
    assert report["outcome"] == "finished", report
    receipts = [event for event in project.journal() if event.kind == "RECEIPT"]
    assert [event.payload["proof"] for event in receipts] == ["order 4711"]
    assert project.starts() == ["pay"]


def test_an_effect_without_authority_waits_for_a_person_who_allows_it(project: Project) -> None:
    report = project.run(effect(SLIP, allowed="other"))
    assert (report["outcome"], report["exit_code"]) == ("needs_person", 10)
    assert report["waiting"] == ["pay"]
    assert report["kinds"] == {"G-pay-start": "gate"}
    assert project.starts() == []
    (stuck,) = project.service.status()["stuck"]
    assert stuck["node"] == "pay"
    asked = project.node("G-pay-start")
    assert "No authority that was recorded when the task was created" in asked["package"]["context"]


def test_a_star_is_the_authority_for_every_effect(project: Project) -> None:
    project.run(effect("exit 1", allowed='"*"'))
    assert project.starts() == ["pay"]


# Changed files


def chain(middle: str, *, more: str = "", deps: str = "middle", head: str = "") -> str:
    return f"""
task_id: chain
grants: ['write:$TASK/*']
{head}
nodes:
  - id: middle
    run: {middle}
    outputs: none
    accept: ["script: test -e good"]
    retry: 1
  {more}
  - id: last
    deps: [{deps}]
    run: {STARTED}
    outputs: none
    accept: ["script: 'true'"]
"""


REPLACEMENT = """
  - id: instead
    run: touch good
    outputs: none
    accept: ["exists: good"]
    successor_of: middle
"""


def test_a_successor_in_the_file_takes_over_and_the_dependents_wait_for_it(
    project: Project,
) -> None:
    report = project.run(chain("'true'"))
    assert (report["outcome"], report["failed"]) == ("failed", ["middle"])
    assert project.edges("middle")[-1] == "N08"
    report = project.run(chain("'true'", more=REPLACEMENT))
    assert report["outcome"] == "finished", report
    assert report["counts"] == {"QUARANTINED": 1, "DONE": 2}
    assert project.node("middle")["successors"] == ["instead"]
    assert project.node("last")["deps"] == ["instead"]
    before = len(project.journal())
    assert project.run(chain("'true'", more=REPLACEMENT))["outcome"] == "finished"
    assert len(project.journal()) == before, "the same file again changes nothing"
    # The file still says that last depends on middle, for which instead stands in.
    changed = chain("'true'", more=REPLACEMENT, head="# another text")
    assert project.run(changed)["outcome"] == "finished"
    assert project.node("last")["deps"] == ["instead"]


def test_a_node_added_later_waits_for_the_successor_of_its_dep(project: Project) -> None:
    project.run(chain("'true'"))
    project.run(chain("'true'", more=REPLACEMENT))
    rest = 'run: "true", outputs: none, accept: ["exists: good"]'
    later = f"\n  - {{id: later, deps: [middle], {rest}}}"
    assert project.run(chain("'true'", more=REPLACEMENT + later))["outcome"] == "finished"
    assert project.node("later")["deps"] == ["instead"]


def test_deps_that_change_twice_in_the_file_change_twice_in_the_graph(project: Project) -> None:
    other = '\n  - {id: other, run: "exit 1", outputs: none, accept: ["exists: good"], retry: 1}'
    text = chain("exit 1", more=other)
    project.run(text)
    for deps in ("middle, other", "other"):
        project.run(text.replace("deps: [middle]", f"deps: [{deps}]"))
        assert project.node("last")["deps"] == deps.split(", ")


def test_another_command_in_the_file_gives_a_used_up_node_new_tries(project: Project) -> None:
    report = project.run(chain("exit 1"))
    assert report["exit_code"] == 10
    assert project.node("middle")["state"] == "RETRYABLE"
    assert project.run(chain("exit 1"))["waiting"] == ["middle"], "not tried again"
    report = project.run(chain("touch good"))
    assert report["outcome"] == "finished", report
    assert project.edges("middle") == ["N01", "N02", "N04", "N12", "N02", "N03", "N06"]
    (amended,) = [e for e in project.journal() if e.payload.get("op") == "amend_node"]
    (replanned,) = [e for e in project.journal() if e.payload.get("edge") == "N12"]
    assert replanned.payload["amendment"] == amended.ref
    assert project.node("middle").get("strikes_by_method", {}) == {}


def test_what_was_set_when_the_task_was_created_is_reported_and_not_taken_over(
    project: Project,
) -> None:
    project.run(chain("touch good"))
    assert project.told("graph")[0]["ignored"] == []
    head = "goal: another one\npolicies: {retry_budget: 9}\npeople: {sponsor: ada}\ntier: 2"
    project.run(chain("touch good", head=head))
    (told,) = project.told("graph")
    assert set(told["ignored"]) == {"goal", "policies", "people", "tier"}
    status = project.service.status()
    assert (status["goal"], status["tier"]) == ("", 1)
    project.run(chain("touch good"))
    assert project.told("graph") == []


# Retries


def test_a_spec_that_cannot_work_stops_for_a_person_who_names_a_replacement(
    project: Project,
) -> None:
    report = project.run(chain("exit 64"))
    assert (report["outcome"], report["exit_code"]) == ("needs_person", 10)
    assert project.edges("middle") == ["N01", "N02", "N04", "N12", "N13"]
    (question,) = report["questions"].values()
    assert "What replaces it?" in question
    assert project.run(chain("exit 64", more=REPLACEMENT))["outcome"] == "finished"


def test_a_node_without_retries_starts_again_after_an_interruption(project: Project) -> None:
    def stop(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "started":
            interrupt(15)

    text = chain("exec sleep 60").replace("retry: 1", "retry: 0")
    assert project.run(text, on=stop)["outcome"] == "interrupted"
    assert project.node("middle")["interruptions"] == 1
    project.run(text.replace("exec sleep 60", "touch good"))
    assert project.node("middle")["state"] == "DONE"
    assert project.node("middle")["attempts"] == 2


# Pausing


def test_a_pause_waits_until_what_is_at_work_has_been_verified(project: Project) -> None:
    def pause(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "started":
            message = spool.Message("m1", "pause", {"reason": "the night"}, "sponsor:ada", 0.0)
            spool.drop(real_world().disk, Layout(project.workspace), message)
            (project.directory / "dropped").touch()

    # At work until the message has been taken in.
    taken = "test -e ../dropped && ! test -e steering/spool/m1.json"
    wait = f"until {taken}; do sleep 0.01; done; touch good"
    report = project.run(chain(wait), on=pause)
    assert (report["outcome"], report["exit_code"]) == ("paused", 10)
    assert project.node("middle")["state"] == "DONE"
    assert project.node("last")["state"] == "READY"
    assert project.starts() == []
    journal = [event.payload.get("edge") for event in project.journal()]
    assert journal.index("N06") < journal.index("T04")
    assert project.service.status()["fsm_task"] == "SUSPENDED"
    assert project.run(chain(wait))["outcome"] == "finished"


# A verdict and the attempt it is about

CHECKED_LATE = """
echo x >> "$PERDURE_TASK_DIR/checks"
case $(wc -l < "$PERDURE_TASK_DIR/checks") in
  2) exit 1;;
  1) "$PERDURE_PYTHON" -m perdure check slow
     for _ in $(seq 100); do
       "$PERDURE_PYTHON" -m perdure show slow > "$PERDURE_TASK_DIR/shown"
       grep -q "^attempts: 2" "$PERDURE_TASK_DIR/shown" &&
         grep -q "^state: VERIFYING" "$PERDURE_TASK_DIR/shown" && exit 0
     done
     exit 1;;
esac
"""


def test_a_verdict_on_an_attempt_that_is_over_does_not_count_for_the_next_one(
    project: Project,
) -> None:
    """The first check is overtaken by one that fails; it ends when the next attempt has claimed."""
    (project.directory / "late.sh").write_text(CHECKED_LATE, encoding="utf-8")
    report = project.run(f"""
task_id: late
grants: ['write:$TASK/*']
nodes:
  - id: slow
    run: {STARTED} echo $$ > "$PERDURE_SCOPE/out"
    outputs: [artifacts/slow/out]
    accept: ['script: sh "$PERDURE_TASK_DIR/late.sh"']
""")
    assert report["outcome"] == "finished", report
    assert project.starts() == ["slow", "slow"]
    assert (project.directory / "checks").read_text(encoding="utf-8").count("x") == 3
    (done,) = [event for event in project.journal() if event.payload.get("edge") == "N06"]
    assert list(done.payload["artifacts"]) == project.node("slow")["artifacts"]


# Why something failed


WHY = "cannot open the register"
FAILING = f"""
task_id: why
policies: {{retry_budget: 1}}
nodes:
  - id: n
    run: echo first; echo {WHY} >&2; echo; exit 1
"""


def test_what_a_command_said_last_is_told_wherever_its_failure_is(project: Project) -> None:
    report = project.run(FAILING)
    seen = f"exit 1: {WHY}"
    (question,) = report["questions"].values()
    assert seen in question
    node = project.node("n")
    assert node["diagnosis"] == seen
    assert [failure["signature"] for failure in node["failures"]] == ["exit 1"]
    (failed,) = project.told("failed")
    assert (failed["why"], failed["said"]) == ("exit 1", WHY)
    with open(f"{project.workspace}/{failed['log']}", encoding="utf-8") as log:
        assert WHY in log.read()


def test_the_next_contract_tells_what_the_last_attempt_said(project: Project) -> None:
    project.run(FAILING.replace("retry_budget: 1", "retry_budget: 2"))
    told = []
    for started in project.told("started"):
        path = Path(project.workspace, "contracts", f"{started['invocation']}.json")
        told.append(json.loads(path.read_text(encoding="utf-8"))["previous_failure"])
    assert told == ["", f"exit 1: {WHY}"]


def test_a_shell_line_whose_command_was_killed_has_died_of_the_signal(project: Project) -> None:
    text = "task_id: k\npolicies: {retry_budget: 1}\nnodes:\n  - id: n\n    run: "
    project.run(text + "\"sh -c 'kill -9 $$'; exit $?\"\n")
    (failed,) = project.told("failed")
    assert (failed["why"], failed["death"]["mode"]) == ("exit 137 (signal 9)", "killed")


def test_pd_h1_an_empty_file_is_no_output_and_the_death_is_a_first_one(project: Project) -> None:
    text = "task_id: e\npolicies: {retry_budget: 1}\nnodes:\n  - id: n\n    run: "
    project.run(text + "': > \"$PERDURE_SCOPE/table.csv\"; exit 1'\n")
    (failed,) = project.told("failed")
    assert failed["death"]["first"]
    assert "nothing on disk" in failed["death"]["observation"]


# Tiers

ENTRY = "  - {id: ID, run: 'true', outputs: none, accept: [\"script: 'true'\"]MORE}\n"


@pytest.mark.parametrize(("created", "written", "level"), [(2, "", "V2"), (1, "tier: 2", "V1")])
def test_a_level_that_nobody_names_is_that_of_the_tier_that_the_task_has(
    project: Project, created: int, written: str, level: str
) -> None:
    first = ENTRY.replace("ID", "first").replace("MORE", ", verify: V1")
    late = ENTRY.replace("ID", "late").replace("MORE", "")
    project.run(f"task_id: t\ntier: {created}\nnodes:\n{first}")
    for _ in range(2):
        project.run(f"task_id: t\n{written}\nnodes:\n{first}{late}")
        assert project.node("late").get("verification_level", "V1") == level
        assert project.node("first")["state"] == "DONE"
