"""The runtime itself on a simulated disk: killed, cut from power or failed after every step of it.

In everything a runtime does (``workloads``) and in recoveries from every kind of damage
(``scenes``). The disk may keep less than it showed, in two models; ``perdure.testing.crash`` says
what is allowed. After each death a new process recovers; ``checks`` says what must hold then.

By default every step, and of each a few of the disks that are allowed, with a fixed seed; ``make
crash`` takes many, with another seed each time.
"""

import contextlib
import errno
from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import NamedTuple

import pytest
from tests.crash.checks import (
    check_evidence,
    check_live,
    check_recovery,
    check_second_recovery,
    finish,
)
from tests.crash.scenes import SCENES
from tests.crash.sim_machine import SimMachine, run_until_killed
from tests.crash.tally import Tally, chance_for
from tests.crash.workloads import ALL, graph_run

from perdure.errors import HaltError
from perdure.testing import Model, Op, SimDisk, power_loss_states

MODELS: tuple[Model, ...] = ("independent", "ordered")
torn_bytes_of_a_write = 7
choices_min = 6
"""From at least so many allowed disks those to be tried are drawn."""

Workload = Callable[[SimMachine], object]


class Thoroughness(NamedTuple):
    """How much of what is possible is tried."""

    states_max: int
    """Disks tried for each step and model after which the power is cut; 0: one, of any model."""
    stride: int
    """Of so many states, one is also recovered again; of twice as many, worked on to its end."""
    share: int
    """Of so many deaths, one is followed by deaths in the recovery from it."""


QUICK = Thoroughness(0, 8, 8)
THOROUGH = Thoroughness(6, 4, 4)


def cases(of: tuple[Workload, ...]) -> pytest.MarkDecorator:
    """Every one of them quickly, and all of them thoroughly under crash_full."""
    quick = [pytest.param(one, QUICK, id=one.__name__) for one in of]
    marks = pytest.mark.crash_full
    full = [pytest.param(one, THOROUGH, id=f"{one.__name__}-thorough", marks=marks) for one in of]
    return pytest.mark.parametrize(("workload", "how"), [*quick, *full])


each_workload = cases(ALL)
each_scene = cases(SCENES)


# What a machine is after each step


@cache
def whole_run(workload: Workload) -> tuple[bytes, list[Op]]:
    """The journal of a run that nothing disturbs, and its steps."""
    machine = SimMachine.new()
    assert not run_until_killed(machine, workload)
    journal, steps = machine.journal(), machine.disk.log.copy()
    machine.end()
    return journal, steps


def deaths(steps: list[Op]) -> list[tuple[int, int | None]]:
    """After how many steps a process can die, and of the next one how many bytes are written."""
    found: list[tuple[int, int | None]] = []
    for number, step in enumerate(steps):
        found += [(number, None), *([(number, torn_bytes_of_a_write)] if step.data else [])]
    return found


@cache
def killed_runs(workload: Workload) -> list[SimMachine]:
    """One for each step after which the process can die, and for each write cut in the middle.

    They are only ever asked for copies of what is left of them, so all tests may share them.
    """
    machines = []
    for step, torn_bytes in deaths(whole_run(workload)[1]):
        machine = SimMachine.new(cut_after=step, torn_bytes=torn_bytes)
        assert run_until_killed(machine, workload)
        del machine.disk.log[:-1]  # some thousand logs are more than all files together
        machines.append(machine)
    return machines


def states_of(disk: SimDisk, how: Thoroughness, chance: Random) -> Iterator[tuple[Model, SimDisk]]:
    """Some of the disks that a power cut now may leave, with the model that allows each."""
    for model in MODELS if how.states_max else (chance.choice(MODELS),):
        count = how.states_max or 1
        allowed = list(power_loss_states(disk, model, chance=chance, limit=max(count, choices_min)))
        for left in chance.sample(allowed, min(count, len(allowed))):
            yield model, left


def last_step(machine: SimMachine) -> str:
    return str(machine.disk.log[-1]) if machine.disk.log else "nothing"


@contextlib.contextmanager
def told(*story: object) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(", ".join(map(str, story)))
        raise


def after_each_kill(workload: Workload, check: Callable[[SimMachine], object]) -> None:
    """Check what is left wherever the process is killed."""
    for killed in killed_runs(workload):
        with told("killed after", last_step(killed)):
            check(killed.end())


def after_each_power_cut(workload: Workload, check: Callable[[SimMachine], object]) -> None:
    """Check some of what may be left wherever the power is cut."""
    chance = chance_for(workload.__name__)
    for killed in killed_runs(workload):
        for _, left in states_of(killed.disk, QUICK, chance):
            with told("cut after", last_step(killed), left.story()):
                check(killed.next(left, power_cut=True))


class Trial:
    """One test's chance, thoroughness and count, and the checks of one state after the other."""

    def __init__(self, tally: Tally, how: Thoroughness, *names: object) -> None:
        self.tally = tally
        self.how = how
        self.chance = chance_for(*names)
        self.count = 0

    def check(self, machine: SimMachine, *possible: bytes) -> SimMachine:
        """Recover one state; now and then recover again, and work on. Returns the first process."""
        self.count += 1
        self.tally.add("states")
        check_recovery(machine, *possible)
        recovered = machine.next(machine.disk.holding(machine.disk.files.copy()), power_cut=False)
        if self.count % self.how.stride == 0:
            check_second_recovery(recovered)
        if self.count % (2 * self.how.stride) == 0:
            finish(recovered)
        return machine

    def cut_power(self, machine: SimMachine, *possible: bytes) -> None:
        """The power fails now, in some of the ways it can."""
        for _, left in states_of(machine.disk, self.how, self.chance):
            with told(left.story()):
                self.check(machine.next(left, power_cut=True), *possible)


# Deaths in everything a runtime does


@each_workload
def test_a_process_killed_after_any_step_loses_nothing_even_when_power_fails_after_recovery(
    workload: Workload, how: Thoroughness, tally: Tally
) -> None:
    """What the page cache shows after a kill, and recovery believes, may still be lost."""
    journal, _ = whole_run(workload)
    trial = Trial(tally, how, "kill", workload.__name__)
    for killed in killed_runs(workload):
        tally.add("kills")
        with told("killed after", last_step(killed)):
            recovered = trial.check(killed.end(), journal)
            recovered.acknowledge()
            trial.cut_power(recovered, recovered.acknowledged)


@each_workload
def test_power_lost_after_any_step_takes_nothing_acknowledged(
    workload: Workload, how: Thoroughness, tally: Tally
) -> None:
    journal, _ = whole_run(workload)
    trial = Trial(tally, how, "power", workload.__name__)
    for killed in killed_runs(workload):
        with told("cut after", last_step(killed)):
            trial.cut_power(killed, journal)


# Deaths in recoveries


def recover(machine: SimMachine) -> None:
    machine.open("T").close()


def die_in_recovery(trial: Trial, damaged: SimMachine, stride: int = 1) -> None:
    """Recover, killed or cut from power after each step of it, or after one of ``stride``."""
    before = damaged.journal()
    whole = damaged.end()
    recover(whole)
    after = whole.acknowledged
    first = trial.chance.randrange(stride)
    for step, torn_bytes in deaths(whole.disk.log)[first::stride]:
        killed = damaged.end(cut_after=step, torn_bytes=torn_bytes)
        assert run_until_killed(killed, recover)
        trial.tally.add("kills in recovery")
        with told("recovery killed after", last_step(killed)):
            trial.check(killed.end(), before, after)
            trial.cut_power(killed, before, after)


@each_scene
def test_death_at_every_step_of_a_recovery_is_recovered_from(
    workload: Workload, how: Thoroughness, tally: Tally
) -> None:
    machine = SimMachine.new()
    workload(machine)
    die_in_recovery(Trial(tally, how, "scene", workload.__name__), machine)


@each_workload
def test_death_at_any_step_of_a_recovery_from_any_death_is_recovered_from(
    workload: Workload, how: Thoroughness, tally: Tally
) -> None:
    trial = Trial(tally, how, "again", workload.__name__)
    for killed in killed_runs(workload)[trial.chance.randrange(how.share) :: how.share]:
        with told("killed after", last_step(killed)):
            die_in_recovery(trial, killed, how.stride)


# A run of several nodes that dies again and again


def live_until_it_is_done(machine: SimMachine, trial: Trial, how_often: int) -> int:
    """Run the graph with processes that die within ``how_often`` steps; how many it took."""
    chance = trial.chance
    for lives in range(1, 400):
        # Patience grows, or a run whose recoveries are longer than its lives would never end.
        cut = chance.randrange(how_often + lives)
        torn_bytes = chance.choice((None, torn_bytes_of_a_write))
        machine = machine.end(cut_after=cut, torn_bytes=torn_bytes)
        with told("life", lives, "cut after", cut):
            if not run_until_killed(machine, graph_run):
                return lives
            machine = machine.end() if chance.random() < 0.5 else after_power_cut(machine, chance)
            trial.tally.add("states")
            assert machine.journal().startswith(machine.acknowledged), "an event is gone"
    raise AssertionError("the run does not come to its end")


def after_power_cut(machine: SimMachine, chance: Random) -> SimMachine:
    ((_, left),) = states_of(machine.disk, QUICK, chance)
    return machine.next(left, power_cut=True)


@pytest.mark.parametrize(
    "runs", [pytest.param(6, id="few"), pytest.param(400, marks=pytest.mark.crash_full, id="many")]
)
def test_a_run_whose_processes_keep_dying_comes_to_its_end_with_each_node_done_once(
    runs: int, tally: Tally
) -> None:
    trial = Trial(tally, QUICK, "lives")
    lives = 0
    for number in range(runs):
        machine = SimMachine.new()
        with told("run", number):
            lives += live_until_it_is_done(machine, trial, 20 * (1 + number % 6))
    tally.add("lives", lives)


# Steps that fail


@each_workload
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_a_step_that_fails_costs_nothing_acknowledged_even_when_power_is_lost_later(
    workload: Workload, how: Thoroughness, number: int, tally: Tally
) -> None:
    """Pages that a failed sync has left marked clean are seen by the next process, and believed."""
    steps = whole_run(workload)[1]
    trial = Trial(tally, how, "fail", number, workload.__name__)
    stride = 1 if how is THOROUGH else 5
    for step in range(1 + number % stride, len(steps) + 1, stride):
        machine = SimMachine.new()
        machine.disk.fail(step, number, partial_bytes=torn_bytes_of_a_write)
        with contextlib.suppress(HaltError):
            workload(machine)
        tally.add("failures")
        with told("failed at", machine.disk.log[step - 1]):
            check_after_failure(trial, machine)


def check_after_failure(trial: Trial, machine: SimMachine) -> None:
    for _, left in states_of(machine.disk, trial.how, trial.chance):
        with told(left.story()):
            check_acknowledged(trial, machine.next(left, power_cut=True))
    after = machine.end()
    check_acknowledged(trial, after)
    after.acknowledge()
    for _, left in states_of(after.disk, trial.how, trial.chance):
        with told("recovered", left.story()):
            check_acknowledged(trial, after.next(left, power_cut=True))


def check_acknowledged(trial: Trial, machine: SimMachine) -> None:
    """As ``check_recovery``, but a caller that goes on after a refusal may write other events."""
    trial.tally.add("states")
    assert machine.journal().startswith(machine.acknowledged), "an acknowledged event is gone"
    runtime = machine.open("T")
    check_live(machine, runtime)
    check_evidence(machine, runtime.state)
    runtime.close()
