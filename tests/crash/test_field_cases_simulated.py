"""The field cases about crashes, on the simulated machine; ``tests/integration`` has them for real.

F1 and F2, torn records, and F3, the full disk, are in ``test_power_loss`` after every step.
"""

import errno
from random import Random

import pytest
from tests.crash import scenes
from tests.crash.checks import check_recovery, check_second_recovery, whole_commits
from tests.crash.sim_machine import JOURNAL, ROOT, SimMachine
from tests.crash.tally import chance_for

from perdure import HaltRuntime
from perdure.errors import CorruptError, FencedError, LeaseHeldError
from perdure.runtime.world import World
from perdure.testing import Model, SimProcesses, next_world, power_loss_states, sim_world


@pytest.fixture
def machine() -> SimMachine:
    machine = SimMachine.new()
    scenes.at_work(machine)
    return machine


def another_process(machine: SimMachine) -> World:
    """One more process of the machine, while the first one lives."""
    world = machine.world
    assert isinstance(world.processes, SimProcesses)
    other = world.processes.seen_from(world.processes.unused_pid())
    return sim_world(machine.disk.beside(), clock=machine.clock, processes=other)


def takeovers(runtime: HaltRuntime) -> list[str]:
    return [e.payload["text"] for e in runtime.events() if e.payload.get("op") == "takeover"]


@pytest.mark.parametrize("how", ["gone", "pid reused", "another boot"])
def test_f08_lease_whose_process_is_gone_is_taken_over_at_once(
    machine: SimMachine, how: str
) -> None:
    holder = machine.world.processes.me().pid
    disk = machine.disk.survive_kill()
    machine.bury()
    world = next_world(machine.world, disk, power_cut=how == "another boot")
    if how == "pid reused":
        assert isinstance(world.processes, SimProcesses)
        world.processes.spawn(holder, started=1e6)
    with HaltRuntime.resume(ROOT, world=world) as runtime:
        (told,) = takeovers(runtime)
        assert ("has been restarted" if how == "another boot" else "runs any more") in told
        assert runtime.engine.epoch == 2


@pytest.mark.parametrize("step_s", [-86_400.0, 86_400.0])
def test_f09_stepped_clock_changes_neither_order_nor_ownership(
    machine: SimMachine, step_s: float
) -> None:
    runtime = machine.runtimes[-1]
    machine.clock.step(step_s)
    runtime.note("after the step")
    with pytest.raises(LeaseHeldError):
        HaltRuntime.resume(ROOT, world=another_process(machine))
    machine.clock.advance(100.0)
    runtime.note("after a renewal")
    machine.acknowledge()
    after = machine.end()
    check_recovery(after, after.journal())
    check_second_recovery(after)


def test_f10_f14_stopped_holder_is_replaced_by_one_and_fenced(machine: SimMachine) -> None:
    old = machine.runtimes[-1]
    processes = machine.world.processes
    assert isinstance(processes, SimProcesses)
    pid = processes.me().pid
    processes.stop(pid)
    other = another_process(machine)
    with pytest.raises(LeaseHeldError):
        HaltRuntime.resume(ROOT, world=other)
    machine.clock.advance(3_600.0)
    with HaltRuntime.resume(ROOT, world=other) as new:
        processes.cont(pid)
        with pytest.raises(LeaseHeldError):
            HaltRuntime.resume(ROOT, world=another_process(machine))
        with pytest.raises(FencedError):
            old.note("too late")
        new.note("mine")
    with pytest.raises(FencedError):
        old.note("too late, still")


def test_f15_unreadable_artifact_is_reported_and_the_rest_recovers(machine: SimMachine) -> None:
    after = machine.end()
    path = f"{ROOT}/artifacts/N1/a.txt"
    after.disk.write(path, b"a")  # the same bytes at another time, so they are read again
    after.disk.fail(lambda op: op.kind == "read" and op.path == path, errno.EIO, times=None)
    runtime = after.open()
    assert runtime.recovered.suspects == ("N1",)
    assert (runtime.node("N1").state, runtime.node("N2").state) == ("DONE", "RETRYABLE")
    runtime.close()
    after.disk.heal()
    check_second_recovery(after)


def test_f19_flipped_bit_in_history_is_refused_and_left_alone(machine: SimMachine) -> None:
    chance = chance_for("f19")
    data = machine.journal()
    for _ in range(60):
        after = machine.end()
        for view in (".snapshot.json", "task-graph.json", "checkpoint.json"):
            after.disk.unlink(f"{ROOT}/{view}", durable=True)
        after.disk.unlink(f"{ROOT}/artifacts/registry.json", durable=True)
        # Not in the last line, whose damage cannot be told from an unfinished commit.
        position = chance.randrange(data.rfind(b"\n", 0, len(data) - 1))
        damaged = bytes([data[position] ^ 1 << chance.randrange(8)])
        after.disk.rewrite(JOURNAL, position, damaged)
        left = after.journal()
        line = data.count(b"\n", 0, position) + 1
        with pytest.raises(CorruptError, match=f"line {line}, byte"):
            after.open()
        assert after.journal() == left


@pytest.mark.parametrize("model", ["independent", "ordered"])
def test_f19_tail_that_a_power_cut_zeroed_or_tore_is_set_aside(
    machine: SimMachine, model: Model
) -> None:
    committed = machine.journal()
    machine.disk.open_append(JOURNAL).append(b'{"seq":99,"ts":"2027","actor":"nobody"}\n' * 3)
    shapes = set()
    for left in power_loss_states(machine.disk, model, chance=Random(19), limit=80):
        after = machine.next(left, power_cut=True)
        tail = after.journal()[len(committed) :]
        shapes.add(tail.strip(b"\0") == b"")
        if whole_commits(after.journal()) != committed:
            continue
        check_recovery(after, committed)
        assert after.journal().startswith(committed)
    assert shapes == {True, False}
