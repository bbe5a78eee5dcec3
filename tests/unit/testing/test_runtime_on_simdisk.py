"""The runtime itself on a simulated disk: killed, and cut from power, after every step of it.

Small workloads and few states, so that it takes seconds; the long runs are the crash tests'.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from random import Random

import pytest
from tests.crash import workloads
from tests.unit.testing.sim_machine import (
    SimMachine,
    check_holds,
    check_recovery,
    check_second_recovery,
    finish,
    run_until_killed,
)

from perdure.errors import HaltError
from perdure.testing import Model, power_loss_states

SEED = int(os.environ.get("PERDURE_TEST_SEED", "1"))
LIMIT = int(os.environ.get("PERDURE_TEST_STATES", "3"))
STRIDE = int(os.environ.get("PERDURE_TEST_STRIDE", "4"))
WORKLOADS = (
    workloads.ALL
    if os.environ.get("PERDURE_TEST_ALL")
    else (workloads.submit, workloads.fail_and_retry, workloads.batch)
)
MODELS: tuple[Model, ...] = ("independent", "ordered")
Workload = Callable[[SimMachine], None]


def whole_run(workload: object) -> tuple[bytes, int]:
    machine = SimMachine.new()
    assert not run_until_killed(machine, workload)
    return machine.journal(), len(machine.disk.log)


def killed_runs(workload: object, steps: int) -> Iterator[SimMachine]:
    """One for each step after which the process can die, and for each write cut in the middle."""
    for step in range(steps):
        for torn_bytes in (None, 7):
            machine = SimMachine.new(cut_after=step, torn_bytes=torn_bytes)
            assert run_until_killed(machine, workload)
            if torn_bytes is None or machine.disk.log[-1].kind == "write":
                yield machine


each_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: it.__name__)


@each_workload
def test_a_process_killed_after_any_step_loses_nothing(workload: object) -> None:
    journal, steps = whole_run(workload)
    count = 0
    for killed in killed_runs(workload, steps):
        recovered = check_recovery(killed.end(), journal)
        check_second_recovery(recovered)
        finish(recovered.end())
        count += 1
    print(f"killed {count} times in {steps} steps")


@each_workload
@pytest.mark.parametrize("model", MODELS)
def test_power_lost_after_any_step_loses_nothing_acknowledged(
    workload: object, model: Model
) -> None:
    journal, steps = whole_run(workload)
    chance = Random(f"{SEED} {model}")
    count = 0
    for killed in killed_runs(workload, steps):
        for left in power_loss_states(killed.disk, model, chance=chance, limit=LIMIT):
            count += 1
            story = left.story()
            try:
                recovered = check_recovery(killed.next(left, power_cut=True), journal)
                if count % STRIDE == 0:
                    check_second_recovery(recovered)
                    finish(recovered.end())
            except BaseException as error:
                error.add_note(f"seed {SEED}, cut after {killed.disk.log[-1:]}; {story}")
                raise
    print(f"{model}: {count} states after {steps} steps, seed {SEED}")


@each_workload
@pytest.mark.parametrize("model", MODELS)
def test_power_lost_after_a_recovery_takes_nothing_that_it_believed(
    workload: object, model: Model
) -> None:
    journal, steps = whole_run(workload)
    chance = Random(f"{SEED} {model} again")
    for killed in list(killed_runs(workload, steps))[::STRIDE]:
        recovered = check_recovery(killed.end(), journal)
        recovered.acknowledge()
        for left in power_loss_states(recovered.disk, model, chance=chance, limit=LIMIT):
            check_recovery(recovered.next(left, power_cut=True), recovered.acknowledged)


@each_workload
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_a_step_that_fails_costs_nothing_acknowledged_even_when_power_is_lost_later(
    workload: Workload, number: int
) -> None:
    journal, steps = whole_run(workload)
    chance = Random(f"{SEED} {number}")
    for step in range(1, steps + 1):
        machine = SimMachine.new()
        machine.disk.fail(step, number, partial_bytes=7)
        with contextlib.suppress(HaltError):
            workload(machine)
        model = chance.choice(MODELS)
        try:
            for left in power_loss_states(machine.disk, model, chance=chance, limit=2):
                check_acknowledged(machine.next(left, power_cut=True))
            # Pages that the failed sync left marked clean are still seen by the next process.
            after = machine.end()
            check_acknowledged(after)
            after.acknowledge()
            for left in power_loss_states(after.disk, model, chance=chance, limit=LIMIT):
                check_acknowledged(after.next(left, power_cut=True))
        except BaseException as error:
            error.add_note(f"seed {SEED}, failed at {machine.disk.log[step - 1]}")
            raise


def check_acknowledged(machine: SimMachine) -> None:
    assert machine.journal().startswith(machine.acknowledged), "an acknowledged event is gone"
    runtime = machine.open("T")
    check_holds(machine, runtime)
    runtime.close()
    check_second_recovery(machine)
