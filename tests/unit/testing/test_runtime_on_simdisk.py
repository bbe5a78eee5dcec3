"""The runtime itself on a simulated disk: killed, cut from power or failed at every step of it.

By default three workloads and few states each, which takes seconds; ``make crash`` takes all
workloads, many states and another seed each time.
"""

import contextlib
import errno
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

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

MODELS: tuple[Model, ...] = ("independent", "ordered")
torn_bytes_of_a_write = 7

Workload = Callable[[SimMachine], None]


class Thoroughness(NamedTuple):
    """How much of what is possible is tried."""

    states_max: int
    """Disks tried for each step after which the power is cut."""
    stride: int
    """Of so many, one is also recovered again and worked on to its end."""
    seed: int


QUICK = Thoroughness(3, 5, 1)
THOROUGH = Thoroughness(20, 4, random.randrange(1 << 32))
CASES = [
    *(
        pytest.param(workload, QUICK, id=workload.__name__)
        for workload in (workloads.submit, workloads.fail_and_retry, workloads.batch)
    ),
    *(
        pytest.param(
            workload,
            THOROUGH,
            id=f"{workload.__name__}-thorough",
            marks=pytest.mark.crash_full,
        )
        for workload in workloads.ALL
    ),
]
each_case = pytest.mark.parametrize(("workload", "how"), CASES)
each_model = pytest.mark.parametrize("model", MODELS)


def whole_run(workload: Workload) -> tuple[bytes, int]:
    machine = SimMachine.new()
    assert not run_until_killed(machine, workload)
    return machine.journal(), len(machine.disk.log)


def killed_runs(workload: Workload, steps: int) -> Iterator[SimMachine]:
    """One for each step after which the process can die, and for each write cut in the middle."""
    for step in range(steps):
        for torn_bytes in (None, torn_bytes_of_a_write):
            machine = SimMachine.new(cut_after=step, torn_bytes=torn_bytes)
            assert run_until_killed(machine, workload)
            if torn_bytes is None or machine.disk.log[-1].kind == "write":
                yield machine


def last_step(machine: SimMachine) -> str:
    return str(machine.disk.log[-1]) if machine.disk.log else "nothing"


@contextlib.contextmanager
def told(story: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(story)
        raise


@each_case
def test_a_process_killed_after_any_step_loses_nothing(
    workload: Workload, how: Thoroughness
) -> None:
    journal, steps = whole_run(workload)
    count = 0
    for killed in killed_runs(workload, steps):
        count += 1
        with told(f"killed after {last_step(killed)}"):
            recovered = check_recovery(killed.end(), journal)
            check_second_recovery(recovered)
            if count % how.stride == 0 or how is THOROUGH:
                finish(recovered.end())
    print(f"killed {count} times in {steps} steps")


@each_case
@each_model
def test_power_lost_after_any_step_takes_nothing_acknowledged(
    workload: Workload, how: Thoroughness, model: Model
) -> None:
    journal, steps = whole_run(workload)
    chance = random.Random(f"{how.seed} {model}")
    count = 0
    for killed in killed_runs(workload, steps):
        for left in power_loss_states(killed.disk, model, chance=chance, limit=how.states_max):
            count += 1
            with told(f"{how}, cut after {last_step(killed)}, {left.story()}"):
                recovered = check_recovery(killed.next(left, power_cut=True), journal)
                if count % how.stride == 0:
                    check_second_recovery(recovered)
                    finish(recovered.end())
    print(f"{model}: {count} states after {steps} steps, {how}")


@each_case
@each_model
def test_power_lost_after_a_recovery_takes_nothing_that_it_believed(
    workload: Workload, how: Thoroughness, model: Model
) -> None:
    journal, steps = whole_run(workload)
    chance = random.Random(f"{how.seed} {model} again")
    count = 0
    for killed in list(killed_runs(workload, steps))[:: how.stride]:
        recovered = check_recovery(killed.end(), journal)
        recovered.acknowledge()
        for left in power_loss_states(recovered.disk, model, chance=chance, limit=how.states_max):
            count += 1
            with told(f"{how}, cut after {last_step(killed)}, recovered, {left.story()}"):
                check_recovery(recovered.next(left, power_cut=True), recovered.acknowledged)
    print(f"{model}: {count} states after recoveries, {how}")


@each_case
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_a_step_that_fails_costs_nothing_acknowledged_even_when_power_is_lost_later(
    workload: Workload, how: Thoroughness, number: int
) -> None:
    """Pages that a failed sync has left marked clean are seen by the next process, and believed."""
    steps = whole_run(workload)[1]
    chance = random.Random(f"{how.seed} {number}")
    stride = 1 if how is THOROUGH else 2
    for step in range(1 + number % stride, steps + 1, stride):
        machine = SimMachine.new()
        machine.disk.fail(step, number, partial_bytes=torn_bytes_of_a_write)
        with contextlib.suppress(HaltError):
            workload(machine)
        model = chance.choice(MODELS)
        with told(f"{how}, failed at {machine.disk.log[step - 1]}"):
            for left in power_loss_states(machine.disk, model, chance=chance, limit=1):
                check_acknowledged(machine.next(left, power_cut=True))
            after = machine.end()
            check_acknowledged(after)
            after.acknowledge()
            for left in power_loss_states(
                after.disk, model, chance=chance, limit=how.states_max - 1
            ):
                check_acknowledged(after.next(left, power_cut=True))


def check_acknowledged(machine: SimMachine) -> None:
    assert machine.journal().startswith(machine.acknowledged), "an acknowledged event is gone"
    runtime = machine.open("T")
    check_holds(machine, runtime)
    runtime.close()
    check_second_recovery(machine)
