"""Claims that land in one commit, with the process killed or the power lost at every step.

Their files are synced together, ahead of the commit that registers them: whatever is left, each
registered file is there with the bytes that the journal names, also when the first sync failed.
"""

import errno
import random

from tests.crash.checks import check_evidence, check_recovery, replayed, whole_commits
from tests.crash.sim_machine import SimMachine
from tests.crash.tally import Tally
from tests.crash.test_power_loss import after_each_kill, after_each_power_cut, whole_run
from tests.crash.workloads import AnyMachine

from perdure.control.endings import Claim, Endings
from perdure.control.pacing import RetryPacing
from perdure.runtime.halt import HaltRuntime
from perdure.testing import SimDisk, next_world, power_loss_states, sim_world

NODES = ("N1", "N2", "N3")
CLAIMS = [Claim(name, "", 1.0) for name in NODES]


def claimed_together(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    with runtime.batch():
        for name in NODES:
            runtime.add_node(name, name, outputs=[f"artifacts/{name}/deep/out.txt"])
    machine.acknowledge()
    with runtime.batch():
        for name in NODES:
            runtime.start(name)
    machine.acknowledge()
    for name in NODES:
        machine.write(f"artifacts/{name}/deep/out.txt", name.encode())
    endings = Endings(runtime, RetryPacing(runtime.engine), lambda event: None)
    assert endings.claim_all(CLAIMS) == set(NODES)
    machine.acknowledge()
    runtime.close()


def check(machine: SimMachine, journal: bytes, tally: Tally) -> None:
    tally.add("states")
    left = whole_commits(machine.journal())
    if left:
        check_evidence(machine, replayed(left)[0])
    check_recovery(machine, journal)


def test_each_file_is_there_whenever_the_process_is_killed(tally: Tally) -> None:
    journal, _ = whole_run(claimed_together)
    after_each_kill(claimed_together, lambda machine: check(machine, journal, tally))


def test_each_file_is_there_whenever_the_power_is_lost(tally: Tally) -> None:
    journal, _ = whole_run(claimed_together)
    after_each_power_cut(claimed_together, lambda machine: check(machine, journal, tally))


def test_a_sync_that_fails_once_is_made_good_for_by_the_claims_one_by_one() -> None:
    disk = SimDisk()
    world = sim_world(disk)
    runtime = HaltRuntime("/some/where/w", "t", world=world)
    paths = {name: f"artifacts/{name}/out.txt" for name in NODES}
    for name, path in paths.items():
        runtime.add_node(name, name, outputs=[path])
        runtime.start(name)
        disk.write(f"/some/where/w/{path}", name.encode())
    disk.fail(lambda op: op.kind == "sync_file" and op.path.endswith("N2/out.txt"), errno.EIO)
    endings = Endings(runtime, RetryPacing(runtime.engine), lambda event: None)
    assert endings.claim_all(CLAIMS) == set(NODES)
    states = list(power_loss_states(disk, chance=random.Random(1), limit=100))
    assert states
    for after in states:
        again = HaltRuntime.resume("/some/where/w", world=next_world(world, after, power_cut=True))
        assert again.recovered.suspects == (), after.story()
        for name, path in paths.items():
            assert after.read(f"/some/where/w/{path}") == name.encode(), after.story()
