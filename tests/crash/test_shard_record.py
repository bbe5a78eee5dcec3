"""What workers have brought, on a simulated disk: durable with its file, and once.

The worker itself syncs nothing. What was taken from it must be there whatever a power cut leaves,
and what comes for the same unit afterwards changes none of it.
"""

from collections.abc import Iterator

import pytest
from tests.crash.sim_machine import SimMachine
from tests.crash.tally import chance_for
from tests.crash.test_batch_power_loss import MODELS, begun

from perdure.control.batch_job import BatchJob
from perdure.control.inventory import Inventory, take_inventory
from perdure.control.shard_join import Landed
from perdure.control.shard_record import UnitRecord
from perdure.testing import power_loss_states

states_tried = 20


class Brought:
    """A batch node at work, and what two workers have brought for its one unit."""

    def __init__(self, machine: SimMachine, job: BatchJob, record: UnitRecord) -> None:
        self.machine = machine
        self.job = job
        self.record = record
        self.log = f"{machine.root}/artifacts/B/findings.jsonl"
        self.target = job.job.artifact_path("a").removeprefix(f"{machine.root}/")

    def land(self, slot: str, number: int) -> list[tuple[str, str]]:
        """Take what a worker has for the unit; what differs from what was there before."""
        found = f"artifacts/B/shards/{slot}/out.txt"
        if self.machine.bytes_of(found) is None:
            self.machine.write(found, slot.encode())
        unit = Landed("a", {"n": number}, f"{self.machine.root}/{found}")
        _, duplicates = self.record.land([(0, unit, slot)])
        return duplicates.differing(self.machine.disk, self.log)


@pytest.fixture
def brought() -> Iterator[Brought]:
    machine = SimMachine.new()
    runtime = machine.open("T")
    runtime.add_node("B", "batch", map={"list": ["a", "b"], "run": "true", "shard": 2})
    with begun(runtime) as job:
        inventory = take_inventory(runtime.engine, runtime.state.nodes["B"])
        assert isinstance(inventory, Inventory)
        record = UnitRecord(job, inventory.items, max_attempts=2, disk=machine.disk)
        record.survey(size=2, retry_wait_s=0.0)
        yield Brought(machine, job, record)
    runtime.close()


def test_a_unit_that_counts_has_its_file_whatever_a_power_cut_leaves(brought: Brought) -> None:
    assert brought.land("inv-1", 1) == []
    chance = chance_for("shard record")
    for model in MODELS:
        states = power_loss_states(
            brought.machine.disk, model, chance=chance, limit=states_tried
        )  # fmt: skip
        for left in states:
            after = brought.machine.next(left, power_cut=True)
            assert b'"_key":"a"' in (after.bytes_of("artifacts/B/findings.jsonl") or b"")
            assert after.bytes_of(brought.target) == b"inv-1", left.story()


def test_what_comes_later_for_a_unit_is_told_and_takes_nothing_away(brought: Brought) -> None:
    assert brought.land("inv-1", 1) == []
    assert brought.land("inv-2", 2) == [("a", "inv-2")]
    assert brought.record.processed == 1
    assert brought.machine.bytes_of(brought.target) == b"inv-1"
    assert brought.machine.bytes_of("artifacts/B/shards/inv-2/out.txt") == b"inv-2"
    log = brought.machine.bytes_of("artifacts/B/findings.jsonl") or b""
    assert log.count(b'"_key":"a"') == 1
