"""People and a run, each a process of its own: redirected, killed, resumed, approved, finished."""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shell import Done, call, finish, start

# Says on a pipe that it is at work, and goes on when somebody writes into the other one.
MEASURE = """
echo at work > "$PERDURE_TASK_DIR/at-work"
read go < "$PERDURE_TASK_DIR/gate"
echo "12 ${UNITS:-feet}" > "$PERDURE_SCOPE/length"
"""

TASK = """
task_id: bridge
grants: ['write:$TASK/*']
people: {sponsor: ada, gatekeeper: eve}
nodes:
  - id: survey
    title: Look at the river
    run: echo wide > "$PERDURE_SCOPE/river"
    outputs: [artifacts/survey/river]
  - id: measure
    title: Measure it
    deps: [survey]
    run: sh "$PERDURE_TASK_DIR/measure.sh"
    outputs: [artifacts/measure/length]
  - id: draw
    title: Draw the bridge
    deps: [measure]
    run: cat artifacts/measure/length > "$PERDURE_SCOPE/plan"
    outputs: [artifacts/draw/plan]
    accept: ["nonempty: artifacts/draw/plan"]
    gate: Is this the bridge?
  - id: build
    title: Build it
    deps: [draw]
    run: cat artifacts/draw/plan > "$PERDURE_SCOPE/bridge"
    outputs: [artifacts/build/bridge]
"""


class Site:
    """A directory with the task, and the two pipes of its slow node."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.workspace = directory / ".perdure/tasks/bridge"
        self.runs: list[subprocess.Popen[str]] = []
        (directory / "task.yaml").write_text(TASK, encoding="utf-8")
        (directory / "measure.sh").write_text(MEASURE, encoding="utf-8")
        os.mkfifo(directory / "at-work")
        os.mkfifo(directory / "gate")

    def run(self, *more: str) -> subprocess.Popen[str]:
        self.runs.append(start("run", "task.yaml", *more, cwd=str(self.directory)))
        return self.runs[-1]

    def say(self, *arguments: str) -> Done:
        """What somebody types meanwhile, or afterwards."""
        return call(*arguments, cwd=str(self.directory))

    def wait_until_at_work(self) -> None:
        assert (self.directory / "at-work").read_text(encoding="utf-8") == "at work\n"

    def let_it_go_on(self) -> None:
        (self.directory / "gate").write_text("go\n", encoding="utf-8")

    def log(self) -> list[str]:
        """``perdure log`` as people read it, without times."""
        lines = self.say("log", "--limit", "500").out.splitlines()
        return [re.sub(r"^(J-\d+) \S+ ", r"\1 ", line) for line in lines]

    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.say("log", "--limit", "500", "--json").data["events"]
        return found

    def contract(self, attempt: int) -> dict[str, Any]:
        """The contract of the slow node's n-th attempt."""
        starts = [
            event["payload"]["contract"]
            for event in self.events()
            if event["payload"].get("edge") in ("N02", "N11") and event["entity"]["id"] == "measure"
        ]
        read: dict[str, Any] = json.loads((self.workspace / starts[attempt - 1]).read_bytes())
        return read


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    for run in made.runs:
        run.kill()
        run.wait()


def in_order(lines: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Those of the patterns that are not matched by a line behind the match of the one before."""
    rest = iter(lines)
    return [pattern for pattern in wanted if not any(re.search(pattern, line) for line in rest)]


CHAIN = (
    r"INSTANCE_STARTED bridge",
    r"AMENDMENT measure add_node Measure it",
    r"survey VERIFYING -> DONE \(N06\)",
    r"measure READY -> RUNNING \(N02\)",
    r"sponsor:ada STEERING_LOGGED ST-001 Measure in metres",
    r"DECISION ST-001 classify ST-001: amendment",
    r"measure RUNNING -> RETRYABLE \(N04\): .*\[ST-001\]",
    r"AMENDMENT measure amend_node .*\[ST-001\]",
    r"measure RETRYABLE -> READY \(N12\).*\[ST-001\]",
    r"NOTE ST-001 ST-001 acknowledged: logged as J-\d+, read as amendment: measure recalled",
    r"measure READY -> RUNNING \(N02\)",  # and killed in this attempt
    r"NOTE bridge .*(takeover|took over|taken over)",
    r"measure RUNNING -> RETRYABLE \(N04\)",
    r"measure RETRYABLE -> RUNNING \(N11\)",
    r"ARTIFACT_REGISTERED A-measure\S* artifacts/measure/length",
    r"measure VERIFYING -> DONE \(N06\)",
    r"draw READY -> RUNNING \(N02\)",
    r"draw RUNNING -> VERIFYING \(N03\)",
    r"DECISION draw ask G-draw-review: Is this the bridge\?",
    r"gatekeeper:eve DECISION draw answer G-draw-review: approve",
    r"draw VERIFYING -> DONE \(N06\)",
    r"build VERIFYING -> DONE \(N06\)",
    r"bridge EXECUTING -> FINAL_AUDIT \(T07\)",
)  # fmt: skip


def test_a_run_is_redirected_killed_resumed_approved_and_finished(site: Site) -> None:
    run = site.run()
    site.wait_until_at_work()
    steered = site.say(
        "steer", "Measure in metres", "--node", "measure", "--as", "amendment",
        "--set", 'env={"UNITS": "metres"}', "--actor", "sponsor:ada", "--json",
    )  # fmt: skip
    assert steered.code == 0, steered.err
    site.wait_until_at_work()  # the second attempt: the first was recalled
    run.kill()
    finish(run)

    run = site.run()
    site.wait_until_at_work()
    site.let_it_go_on()
    stopped = finish(run)
    assert stopped.code == 10, stopped.out
    assert "stopped what a former run had left running" in stopped.out
    assert "asked G-draw-review about draw: Is this the bridge?" in stopped.out
    assert "perdure approve G-draw-review" in stopped.out.partition("then")[2]

    refused = site.say("approve", "G-draw-review", "--actor", "gatekeeper:mallory")
    assert (refused.code, "eve" in refused.err) == (4, True)
    assert site.say("approve", "G-draw-review", "--actor", "gatekeeper:eve").code == 0
    done = finish(site.run())
    assert done.code == 0, done.out
    assert "finished: 4 DONE" in done.out

    log = site.log()
    assert in_order(log, CHAIN) == [], "\n".join(log)
    built = site.workspace / "artifacts/build/bridge"
    assert built.read_text(encoding="utf-8") == "12 metres\n"
    said = [any("Measure in metres" in c for c in site.contract(n)["constraints"]) for n in (1, 2)]
    assert said == [False, True]
    again = finish(site.run())
    assert (again.code, "started" in again.out) == (0, False)
    assert "kept as people changed it, the file says otherwise: measure (env)" in again.out


def test_a_run_that_waits_takes_in_what_other_processes_say(site: Site) -> None:
    run = site.run("--wait", "--json")
    site.wait_until_at_work()
    site.let_it_go_on()
    assert run.stdout is not None
    for line in run.stdout:
        if json.loads(line).get("event") == "waiting":
            break
    approved = site.say("approve", "G-draw-review", "--actor", "gatekeeper:eve", "--json")
    assert approved.code == 0, approved.err
    done = finish(run)
    assert done.code == 0, done.out
    events = [json.loads(line) for line in done.out.splitlines()]
    kinds = [event.get("event") for event in events[:-1]]
    assert kinds == ["answered", "done", "started", "done", "finished"]
    assert (events[0]["ruling"], events[0]["by"]) == ("approve", "gatekeeper:eve")


def test_a_halt_stops_the_run_and_the_same_line_goes_on(site: Site) -> None:
    run = site.run()
    site.wait_until_at_work()
    halt = site.say("steer", "Stop, the river rises", "--as", "halt", "--actor", "sponsor:ada")
    assert halt.code == 0, halt.err
    halted = finish(run)
    assert halted.code == 10, halted.out
    assert "steered ST-001 (halt): Stop, the river rises" in halted.out
    assert "paused: " in halted.out
    assert site.say("status").out.startswith("task bridge: SUSPENDED")
    run = site.run()
    site.wait_until_at_work()
    site.let_it_go_on()
    assert finish(run).code == 10
    assert site.say("approve", "G-draw-review", "--actor", "gatekeeper:eve").code == 0
    assert finish(site.run()).code == 0
