"""A run whose units are done by workers, killed at each of its steps and at calls in between.

As ``test_batch_steps``, with the workers as real processes that live on when their coordinator has
died. After each death the next run has to bring the task to its end: each unit in the findings
once; nothing that a worker had completed on disk, whoever knew of it, is begun again; every slot
that was opened is closed, once; and ``verify`` finds nothing wrong.
"""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.crash.disk import CutDisk, Fuse
from tests.crash.tally import Tally, chance_for
from tests.crash.test_batch_steps import ENVIRONMENT, KEYS, LEDGER, Machine, Step, StepDisk

from perdure.host import RandomIds, SystemClock
from perdure.jobs.inspection import verify_job
from perdure.runtime.engine import Engine
from perdure.runtime.inspection import verify_workspace
from perdure.runtime.world import World
from perdure.storage.disk import RealDisk

WORKER = Path(__file__).parents[1] / "integration" / "standins" / "shard_worker.py"
BEHAVIOUR = {"b": ["artifact", "artifact"], "c": ["kill"]}
calls_sampled = 6


class ShardMachine(Machine):
    """One host; its workers get two units each, and the first that comes to ``c`` dies."""

    task = f"""
task_id: t
nodes:
  - id: B
    map:
      list: [{", ".join(KEYS)}]
      run: [{json.dumps(sys.executable)}, {json.dumps(str(WORKER))}]
      shard: 2
  - id: last
    deps: [B]
    run: wc -l < artifacts/B/findings.jsonl > "$PERDURE_SCOPE/n"
    outputs: [artifacts/last/n]
"""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        path = Path(f"{directory}/behaviour.json")
        path.write_text(json.dumps(BEHAVIOUR), encoding="utf-8")

    def ran(self) -> Counter[str]:
        path = Path(f"{self.root}/tmp/ran")
        return Counter(path.read_text(encoding="utf-8").split() if path.exists() else ())

    def on_disk(self) -> set[str]:
        """The units that a worker has completed, in whatever directory."""
        found: set[str] = set()
        for ledger in Path(f"{self.root}/artifacts/B").glob("shards*/**/ledger.jsonl"):
            here = str(ledger.parent.relative_to(self.root))
            keys = {str(line["_key"]) for line in self.lines(f"{here}/findings.jsonl")}
            found |= keys & {str(line["unit_id"]) for line in self.lines(f"{here}/ledger.jsonl")}
        return found

    def of(self, op: str) -> Counter[str]:
        """How often each slot has an event with this ``op``."""
        events: list[dict[str, Any]] = self.lines("journal.jsonl")
        return Counter(e["entity"]["id"] for e in events if e["payload"].get("op") == op)

    def landed(self) -> list[int]:
        """How many units each closed slot is said to have brought."""
        events: list[dict[str, Any]] = self.lines("journal.jsonl")
        payloads = [event["payload"] for event in events]
        return [said["landed"] for said in payloads if said.get("op") == "slot_closed"]


def check_after(machine: ShardMachine, tally: Tally, story: str) -> None:
    """The next run finishes, and nothing that was done is done again."""
    tally.add("states")
    tally.add("on the real disk")
    done, ran = machine.on_disk() | set(machine.done()), machine.ran()
    try:
        landed = sum(machine.landed())
        assert landed <= len(machine.done()), "a slot closes when its units are durable"
        assert machine.run(CutDisk()) == "finished"
        assert sorted(machine.done()) == list(KEYS), "each once"
        again = machine.ran() - ran
        assert not done & set(again), "what a worker had completed is not begun again"
        status = {line["unit_id"]: line["status"] for line in machine.lines(LEDGER)}
        assert set(status) == set(KEYS)
        assert set(status.values()) <= {"ok", "skip-evidence"}
        opened = machine.of("slot")
        assert opened == machine.of("slot_closed"), "each slot is closed once"
        check_files(machine)
    except BaseException as error:
        error.add_note(f"{story}; what is left: {machine.directory}")
        raise
    shutil.rmtree(machine.directory)


def check_files(machine: ShardMachine) -> None:
    disk = RealDisk()
    world = World(disk, SystemClock(), RandomIds(), machine.processes, ENVIRONMENT)
    verification = verify_workspace(Engine(machine.root, world, "verifier:v1"))
    assert verification.problems == []
    report = verify_job(disk, f"{machine.root}/artifacts/B")
    assert report.ok, report.defects
    artifacts = {str(line["unit_id"]): str(line["artifact"]) for line in machine.lines(LEDGER)}
    side = Path(f"{machine.root}/{artifacts['b']}")
    assert side.read_text(encoding="utf-8") == "of b"
    assert Path(f"{machine.root}/artifacts/last/n").read_text(encoding="utf-8").strip() == "4"


FINDINGS = "artifacts/B/findings.jsonl"
JOURNAL = "journal.jsonl"
SLOT = b'"op":"slot"'
CLOSED = b'"op":"slot_closed"'

STEPS: dict[str, Step] = {
    "log not made": Step("replace", FINDINGS, "before"),
    "log made, job not begun": Step("replace", FINDINGS, "after"),
    "contract of the node written, not committed": Step(
        "append", JOURNAL, "before", has=b'"edge":"N02"'
    ),
    "contract of a slot not written": Step("replace", ".json", "before", has=b'"shard"'),
    "contract of a slot written, slot not": Step("append", JOURNAL, "before", has=SLOT),
    "slot torn": Step("append", JOURNAL, "middle", has=SLOT),
    "slot recorded, worker not started": Step("append", JOURNAL, "after", has=SLOT),
    "second slot recorded, worker not started": Step(
        "append", JOURNAL, "after", number=2, has=SLOT
    ),
    "worker ended, finding not written": Step("append", FINDINGS, "before"),
    "finding torn": Step("append", FINDINGS, "middle"),
    "finding written, not synced": Step("sync", FINDINGS, "before"),
    "finding written, ledger line not": Step("append", LEDGER, "before"),
    "ledger line torn": Step("append", LEDGER, "middle"),
    "units joined, slot not closed": Step("append", JOURNAL, "before", has=CLOSED),
    "closing torn": Step("append", JOURNAL, "middle", has=CLOSED),
    "slot closed": Step("append", JOURNAL, "after", has=CLOSED),
    "second slot closed": Step("append", JOURNAL, "after", number=2, has=CLOSED),
    "last finding torn": Step("append", FINDINGS, "middle", has=b'"_key":"d"'),
    "done, next one not begun": Step("append", JOURNAL, "after", has=b'"check":"units"'),
}


def fresh(step: Step) -> Step:
    return Step(step.op, step.path, step.when, number=step.left, has=step.has)


@pytest.mark.parametrize("name", STEPS)
def test_death_at_a_step_costs_at_most_what_workers_had_not_completed(
    name: str, workspace: str, tally: Tally
) -> None:
    machine = ShardMachine(f"{workspace}/m")
    machine.die_in(StepDisk(fresh(STEPS[name])))
    check_after(machine, tally, name)


@pytest.mark.parametrize(
    "name",
    [
        "slot recorded, worker not started",
        "finding torn",
        "units joined, slot not closed",
        "closing torn",
    ],
)
def test_death_at_the_same_step_of_the_next_run_is_no_other(
    name: str, workspace: str, tally: Tally
) -> None:
    machine = ShardMachine(f"{workspace}/m")
    machine.die_in(StepDisk(fresh(STEPS[name])))
    machine.die_in(StepDisk(fresh(STEPS[name])), surely=False)
    check_after(machine, tally, f"{name}, twice")


# Looking into what a former coordinator has left, killed as well

SEALING = "shards-closed/1"


class RenameDisk(StepDisk):
    """Kills its process at a rename."""

    def rename(self, source: str, target: str) -> None:
        act = lambda: super(RenameDisk, self).rename(source, target)  # noqa: E731
        self.at("rename", target, act)


ADOPTION: dict[str, Step] = {
    "not joined": Step("append", FINDINGS, "before"),
    "joined, slots not closed": Step("append", JOURNAL, "before", has=CLOSED),
    "slots closed, not sealed": Step("append", JOURNAL, "after", has=CLOSED),
    "not sealed": Step("rename", SEALING, "before"),
    "sealed": Step("rename", SEALING, "after"),
}


@pytest.mark.parametrize("name", ADOPTION)
def test_death_while_looking_into_a_former_attempt_changes_nothing(
    name: str, workspace: str, tally: Tally
) -> None:
    machine = ShardMachine(f"{workspace}/m")
    machine.die_in(StepDisk(fresh(STEPS["worker ended, finding not written"])))
    machine.die_in(RenameDisk(fresh(ADOPTION[name])))
    check_after(machine, tally, f"adoption: {name}")


def test_a_contract_that_is_not_the_one_on_record_proves_nothing(workspace: str) -> None:
    machine = ShardMachine(f"{workspace}/m")
    machine.die_in(StepDisk(fresh(STEPS["worker ended, finding not written"])))
    brought, ran = machine.on_disk(), machine.ran()
    assert brought
    for contract in Path(f"{machine.root}/contracts").glob("*.json"):
        contract.write_bytes(contract.read_bytes() + b" ")
    assert machine.run(CutDisk()) == "finished"
    assert brought <= set(machine.ran() - ran), "it was done again, under contracts that hold"
    assert sorted(machine.done()) == list(KEYS)


# Any call


def whole_run(directory: str) -> int:
    """How many calls a run makes that nothing disturbs."""
    machine, fuse = ShardMachine(directory), Fuse()
    assert machine.run(CutDisk(fuse)) == "finished"
    shutil.rmtree(directory)
    return fuse.count


@pytest.mark.parametrize(
    "count", [pytest.param(calls_sampled, id="some"),
              pytest.param(1 << 30, marks=pytest.mark.crash_full, id="all")]
)  # fmt: skip
def test_death_at_any_call_costs_at_most_what_workers_had_not_completed(
    count: int, workspace: str, tally: Tally
) -> None:
    calls = whole_run(f"{workspace}/whole")
    points = [(number, when) for number in range(1, calls + 1) for when in ("before", "middle")]
    for number, when in chance_for("shards").sample(points, min(count, len(points))):
        machine = ShardMachine(f"{workspace}/m")
        fuse = Fuse(number, "middle" if when == "middle" else "before")
        # What ends together shares a write, so a run may have fewer calls than the first one.
        machine.die_in(CutDisk(fuse), surely=False)
        check_after(machine, tally, f"killed {when} call {number}, {fuse.trace[-1]}")
