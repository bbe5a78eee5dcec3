"""Contracts that are issued in one batch, with the process killed or the power lost at every step.

Their files are synced together, right before the one commit that cites them: whatever is left, the
contract of every attempt on record is there with the bytes that the journal names.
"""

from tests.crash.checks import check_evidence, check_recovery, replayed, whole_commits
from tests.crash.sim_machine import SimMachine
from tests.crash.tally import Tally
from tests.crash.test_power_loss import after_each_kill, after_each_power_cut, whole_run
from tests.crash.workloads import AnyMachine

NODES = ("N1", "N2", "N3")


def started_together(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    with runtime.batch():
        for name in NODES:
            runtime.add_node(name, name)
    machine.acknowledge()
    with runtime.batch():
        for name in NODES:
            runtime.start(name)
    machine.acknowledge()
    for name in NODES:
        machine.write(f"artifacts/{name}/out.txt", name.encode())
        runtime.submit(name)
        machine.acknowledge()
    runtime.close()


def check(machine: SimMachine, journal: bytes, tally: Tally) -> None:
    tally.add("states")
    left = whole_commits(machine.journal())
    if left:
        check_evidence(machine, replayed(left)[0])
    runtime = check_recovery(machine, journal)
    states = {runtime.state.nodes[name].attempts for name in NODES if name in runtime.state.nodes}
    assert len(states) <= 1, "some were started, and others not"


def test_each_contract_is_there_whenever_the_process_is_killed(tally: Tally) -> None:
    journal, _ = whole_run(started_together)
    after_each_kill(started_together, lambda machine: check(machine, journal, tally))


def test_each_contract_is_there_whenever_the_power_is_lost(tally: Tally) -> None:
    journal, _ = whole_run(started_together)
    after_each_power_cut(started_together, lambda machine: check(machine, journal, tally))
