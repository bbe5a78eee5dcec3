"""The job of a batch node on a simulated disk: killed or cut from power after every step.

Two attempts at a node of four units, as a run makes them but without its commands. After each death
a new process recovers and finishes the node; what was promised must still be done then, and the
verdict rests on a ledger and a log that agree.
"""

import contextlib
import json
from collections.abc import Iterator

import pytest
from tests.crash.sim_machine import SimMachine, run_until_killed
from tests.crash.tally import Tally, chance_for

from perdure.control.batch_job import BatchJob, SettledUnit
from perdure.control.inventory import Inventory, take_inventory
from perdure.core.model import Node
from perdure.jobs.records import Failure, Finding
from perdure.runtime import work
from perdure.runtime.contracts import Units
from perdure.runtime.halt import HaltRuntime
from perdure.testing import Killed, Model, power_loss_states

KEYS = ("a", "b", "c", "d")
MODELS: tuple[Model, ...] = ("independent", "ordered")
states_quick, states_thorough = 2, 40
torn_bytes_of_a_write = 7

some_or_many = pytest.mark.parametrize(
    "count",
    [
        pytest.param(states_quick, id="some"),
        pytest.param(states_thorough, id="many", marks=pytest.mark.crash_full),
    ],
)


class Story:
    """What one process does, and what it has promised meanwhile."""

    def __init__(self) -> None:
        self.promised: set[str] = set()
        """Units of which it was said that they are done."""

    def __call__(self, machine: SimMachine) -> None:
        runtime = machine.open("T")
        runtime.add_node("B", "batch", map={"list": list(KEYS), "run": "true"})
        with begun(runtime) as job:
            self.do(job, "a")
            self.do(job, "b", "c")
            job.job.record_many([Failure("d", "exit 1")])
            job.settle([SettledUnit("d", False, "exit 1")])
        runtime.fail("B", "transient-agent", "1 of 4 units failed: d")
        with begun(runtime) as job:
            self.do(job, "d")
            job.finish()
        work.submit(runtime.engine, "B", units_done=True)
        assert runtime.state.nodes["B"].state == "DONE"
        runtime.close()

    def do(self, job: BatchJob, *keys: str) -> None:
        job.job.record_many([Finding(key, {"of": key}) for key in keys])
        self.promised |= set(keys)
        job.settle([SettledUnit(key, True) for key in keys])


@contextlib.contextmanager
def begun(runtime: HaltRuntime) -> Iterator[BatchJob]:
    """An attempt at the node, under its contract."""
    opened: list[BatchJob] = []

    def prepare(node: Node) -> Units:
        inventory = take_inventory(runtime.engine, node)
        assert isinstance(inventory, Inventory)
        opened.append(BatchJob(runtime.engine, node))
        done = opened[0].adopt(inventory.items.keys)
        return Units(inventory.order, done)

    try:
        work.start(runtime.engine, "B", units=prepare)
        yield opened[0]
    finally:
        for job in opened:
            with contextlib.suppress(Killed):
                job.close()


def check_goes_on(machine: SimMachine, promised: set[str]) -> None:
    """The next process finishes the node, and does nothing again that was promised."""
    runtime = machine.open("T")
    if "B" not in runtime.state.nodes:
        assert not promised
        return
    if runtime.state.nodes["B"].state == "VERIFYING":
        work.check(runtime.engine, "B")
    elif runtime.state.nodes["B"].state != "DONE":
        with begun(runtime) as job:
            left = [key for key in KEYS if not job.job.is_done(key)]
            assert not promised.intersection(left), "what was promised is gone"
            job.job.record_many([Finding(key, {}) for key in left])
            job.settle([SettledUnit(key, True) for key in left])
            job.finish()
        work.submit(runtime.engine, "B", units_done=True)
    node = runtime.state.nodes["B"]
    assert node.state == "DONE", node.diagnosis
    verdict, _ = work.check(runtime.engine, "B")
    assert verdict.passed, verdict.diagnosis
    lines = (machine.bytes_of("artifacts/B/findings.jsonl") or b"").splitlines()
    keys = [json.loads(line)["_key"] for line in lines if line.strip()]
    assert sorted(keys) == list(KEYS), "each once"
    runtime.close()


def killed_runs() -> Iterator[tuple[SimMachine, set[str]]]:
    """The process killed after each of its steps, and in the middle of each write."""
    whole = SimMachine.new()
    assert not run_until_killed(whole, Story())
    steps = whole.disk.log.copy()
    for number, step in enumerate(steps):
        for torn_bytes in (None, torn_bytes_of_a_write) if step.data else (None,):
            machine, story = SimMachine.new(cut_after=number, torn_bytes=torn_bytes), Story()
            assert run_until_killed(machine, story)
            yield machine, story.promised


@some_or_many
def test_death_after_any_step_of_a_batch_loses_no_unit_that_was_promised(
    count: int, tally: Tally
) -> None:
    chance = chance_for("batch job", count)
    for machine, promised in killed_runs():
        tally.add("kills")
        last = str(machine.disk.log[-1]) if machine.disk.log else "nothing"
        allowed = [
            state
            for model in MODELS
            for state in power_loss_states(machine.disk, model, chance=chance, limit=count)
        ]
        for left in chance.sample(allowed, min(count, len(allowed))):
            tally.add("states")
            try:
                check_goes_on(machine.next(left, power_cut=True), promised)
            except BaseException as error:
                error.add_note(f"cut after {last}: {left.story()}")
                raise
        tally.add("states")
        try:
            check_goes_on(machine.end(), promised)
        except BaseException as error:
            error.add_note(f"killed after {last}")
            raise
