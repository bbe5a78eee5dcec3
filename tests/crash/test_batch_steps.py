"""A run with a batch node, killed at each of its steps and at calls in between.

The disk, the files and the locks are those of this machine, and so are the commands of the units;
the process of the run is killed as ``tests.crash.disk`` does it. After each death the next run has
to bring the task to its end: each unit in the findings once, none that was done before the death
run again, a ledger with all of them, and a workspace that ``verify`` finds nothing wrong with.
"""

import contextlib
import gc
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import psutil
import pytest
from tests.crash.disk import CutAppendFile, CutDisk, Fuse, Killed
from tests.crash.tally import Tally, chance_for
from tests.unit.fakes import FakeProcesses

from perdure.control.taskfile import load_task_file
from perdure.host import RandomIds, SystemClock
from perdure.jobs.inspection import verify_job
from perdure.runtime.engine import Engine
from perdure.runtime.inspection import verify_workspace
from perdure.runtime.world import World
from perdure.service.runs import run_task
from perdure.storage.disk import RealDisk

KEYS = ("a", "b", "c", "d")
ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath)}
TASK = """
task_id: t
nodes:
  - id: list
    run: printf 'a\\nb\\nc\\nd\\n' > "$PERDURE_SCOPE/items.txt"
    outputs: [artifacts/list/items.txt]
  - id: B
    deps: [list]
    map:
      items: artifacts/list/items.txt
      run: echo "$PERDURE_KEY" >> "$PERDURE_TASK_DIR/ran"; echo "$PERDURE_KEY" > "$PERDURE_FILE"
  - id: last
    deps: [B]
    run: wc -l < artifacts/B/findings.jsonl > "$PERDURE_SCOPE/n"
    outputs: [artifacts/last/n]
"""

calls_sampled = 6
When = Literal["before", "middle", "after"]


class Machine:
    """One host; each run is a process of its own."""

    task = TASK

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.root = f"{directory}/w"
        self.processes = FakeProcesses(pid=1)
        self.pid = 100
        os.makedirs(directory)

    def run(self, disk: CutDisk) -> str:
        """The outcome of a run in a process with this disk; Killed when it was."""
        self.pid += 1
        seen = self.processes.seen_from(self.pid)
        world = World(disk, SystemClock(), RandomIds(), seen, ENVIRONMENT)
        task = load_task_file(f"{self.directory}/task.yaml", self.task.encode())
        try:
            report = run_task(
                self.root,
                task,
                jobs=2,
                actor="coordinator:test",
                world=world,
                emit=lambda event: None,
                on_loop=lambda interrupt: None,
            )
            outcome: str = report["outcome"]
            return outcome
        finally:
            disk.die()
            self.processes.kill(self.pid)

    def die_in(self, disk: CutDisk, *, surely: bool = True) -> None:
        """A run that meets its end, unless it need not."""
        died, before = False, set(psutil.Process().children())
        # A killed process closes nothing; here its objects would try to, now or at some later time.
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            self.run(disk)
        except Killed:
            died = True
        finally:
            gc.collect()
            sys.unraisablehook = hook
        assert died or not surely
        for child in set(psutil.Process().children()) - before:
            child.wait(10)  # of the process that died, whose children are ours here

    def lines(self, path: str) -> list[dict[str, object]]:
        """The whole lines of a file of lines."""
        try:
            data = Path(f"{self.root}/{path}").read_bytes()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        found = []
        for line in whole.splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def done(self) -> list[str]:
        return [str(line["_key"]) for line in self.lines("artifacts/B/findings.jsonl")]

    def ran(self) -> Counter[str]:
        path = Path(f"{self.directory}/ran")
        return Counter(path.read_text(encoding="utf-8").split() if path.exists() else ())


def check_after(machine: Machine, tally: Tally, story: str) -> None:
    """The next run finishes, and nothing that was done is done again."""
    tally.add("states")
    tally.add("on the real disk")
    done, ran = machine.done(), machine.ran()
    try:
        assert machine.run(CutDisk()) == "finished"
        assert sorted(machine.done()) == list(KEYS), "each once"
        again = machine.ran() - ran
        assert not set(done) & set(again), "what has a finding is not run again"
        assert set(done) | set(again) == set(KEYS)
        status = {line["unit_id"]: line["status"] for line in machine.lines(LEDGER)}
        assert set(status) == set(KEYS)
        assert set(status.values()) <= {"ok", "skip-evidence"}
        check_files(machine)
    except BaseException as error:
        error.add_note(f"{story}; what is left: {machine.directory}")
        raise
    shutil.rmtree(machine.directory)


LEDGER = "artifacts/B/ledger.jsonl"


def check_files(machine: Machine) -> None:
    disk = RealDisk()
    world = World(disk, SystemClock(), RandomIds(), machine.processes, ENVIRONMENT)
    verification = verify_workspace(Engine(machine.root, world, "verifier:v1"))
    assert verification.problems == []
    report = verify_job(disk, f"{machine.root}/artifacts/B")
    assert report.ok, report.defects
    assert Path(f"{machine.root}/artifacts/last/n").read_text(encoding="utf-8").strip() == "4"
    for key in KEYS:
        sides = [p for p in Path(f"{machine.root}/artifacts/B/files").rglob("*") if p.is_file()]
        assert key in {side.read_text(encoding="utf-8").strip() for side in sides}


# Steps that have a name


class Step:
    """One step of a run: the ``number``-th time that something is done to a file."""

    def __init__(
        self, op: str, path: str, when: When, *, number: int = 1, has: bytes = b""
    ) -> None:
        self.op = op
        self.path = path
        self.when = when
        self.has = has
        self.left = number

    def is_it(self, op: str, path: str, data: bytes) -> bool:
        if op != self.op or not path.endswith(self.path) or self.has not in data:
            return False
        self.left -= 1
        return self.left == 0


class StepDisk(CutDisk):
    """Kills its process at a step."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step

    def at(self, op: str, path: str, act: Callable[[], None], data: bytes = b"") -> None:
        if not self.step.is_it(op, path, data):
            act()
        elif self.step.when == "after":
            act()
            self.die()
            raise Killed(f"after {op} {path}")
        else:
            self.fuse.at, self.fuse.when = self.fuse.count + 1, self.step.when
            act()

    def replace(self, path: str, data: bytes, *, durable: bool) -> None:
        act = lambda: super(StepDisk, self).replace(path, data, durable=durable)  # noqa: E731
        self.at("replace", path, act, data)

    def open_append(self, path: str) -> "StepFile":
        return StepFile(self, path, super().open_append(path))


class StepFile(CutAppendFile):
    """A log whose writes and syncs are steps."""

    def __init__(self, disk: StepDisk, path: str, file: CutAppendFile) -> None:
        super().__init__(disk, file._real)
        self.steps = disk
        self.path = path

    def append(self, data: bytes) -> None:
        self.steps.at("append", self.path, lambda: super(StepFile, self).append(data), data)

    def sync(self) -> None:
        self.steps.at("sync", self.path, super().sync)


FINDINGS = "artifacts/B/findings.jsonl"
JOURNAL = "journal.jsonl"
SUBMITTED = b'"path":"artifacts/B/findings.jsonl"'

STEPS: dict[str, Step] = {
    "recipe not on record": Step("replace", ".batch.json", "before"),
    "recipe on record, job not begun": Step("replace", ".batch.json", "after"),
    "ledger not made": Step("replace", LEDGER, "before"),
    "contract not written": Step("replace", ".json", "before", has=b'"node_id":"B"'),
    "contract written, not committed": Step("append", JOURNAL, "before", has=b'"edge":"N02"'),
    "committed, not synced": Step("sync", JOURNAL, "before", number=3),
    "finding not written": Step("append", FINDINGS, "before"),
    "finding torn": Step("append", FINDINGS, "middle"),
    "finding written, not synced": Step("sync", FINDINGS, "before"),
    "finding written, ledger line not": Step("append", LEDGER, "before"),
    "ledger line torn": Step("append", LEDGER, "middle"),
    "ledger line written, not synced": Step("sync", LEDGER, "before"),
    "between two units": Step("sync", LEDGER, "after"),
    "last finding torn": Step("append", FINDINGS, "middle", has=b'"_key":"d"'),
    "last ledger line torn": Step("append", LEDGER, "middle", has=b'"d"'),
    "units done, job not finished": Step("sync", LEDGER, "after", number=2),
    "finished, not submitted": Step("append", JOURNAL, "before", has=SUBMITTED),
    "submission torn": Step("append", JOURNAL, "middle", has=SUBMITTED),
    "submitted, not verified": Step("append", JOURNAL, "before", has=b'"units"'),
    "verified, verdict torn": Step("append", JOURNAL, "middle", has=b'"check":"units"'),
    "done, next one not begun": Step("append", JOURNAL, "after", has=b'"check":"units"'),
}


@pytest.mark.parametrize("name", STEPS)
def test_death_at_a_step_of_a_batch_costs_at_most_the_units_at_work(
    name: str, workspace: str, tally: Tally
) -> None:
    step = STEPS[name]
    fresh = Step(step.op, step.path, step.when, number=step.left, has=step.has)
    machine = Machine(f"{workspace}/m")
    machine.die_in(StepDisk(fresh))
    check_after(machine, tally, name)


@pytest.mark.parametrize("name", ["ledger line torn", "finding torn", "finished, not submitted"])
def test_death_at_the_same_step_of_the_next_run_is_no_other(
    name: str, workspace: str, tally: Tally
) -> None:
    machine = Machine(f"{workspace}/m")
    for _ in range(2):
        step = STEPS[name]
        fresh = Step(step.op, step.path, step.when, number=step.left, has=step.has)
        machine.die_in(StepDisk(fresh))
    check_after(machine, tally, f"{name}, twice")


# Any call


def whole_run(directory: str) -> int:
    """How many calls a run makes that nothing disturbs."""
    machine, fuse = Machine(directory), Fuse()
    assert machine.run(CutDisk(fuse)) == "finished"
    shutil.rmtree(directory)
    return fuse.count


@pytest.mark.parametrize(
    "count", [pytest.param(calls_sampled, id="some"),
              pytest.param(1 << 30, marks=pytest.mark.crash_full, id="all")]
)  # fmt: skip
def test_death_at_any_call_of_a_run_costs_at_most_the_units_at_work(
    count: int, workspace: str, tally: Tally
) -> None:
    calls = whole_run(f"{workspace}/whole")
    points = [(number, when) for number in range(1, calls + 1) for when in ("before", "middle")]
    for number, when in chance_for("batch").sample(points, min(count, len(points))):
        machine = Machine(f"{workspace}/m")
        fuse = Fuse(number, "middle" if when == "middle" else "before")
        # What ends together shares a write, so a run may have fewer calls than the first one.
        machine.die_in(CutDisk(fuse), surely=False)
        check_after(machine, tally, f"killed {when} call {number}, {fuse.trace[-1]}")
