"""A job killed, cut from power or failed after every step of its disk, and in its recovery.

Whatever is left, a new process opens the job and goes on. What must hold then is in ``check``:
acknowledged findings and attempts are there, nothing is that was not begun, ``state.json`` never
claims more than the log holds, opening twice is opening once, and working on does each item once.

By default every step and a few of the disks that are allowed, with a fixed seed; ``make crash``
takes many, with another seed each time. On the real disk a sample of the calls, or all of them.
"""

import contextlib
import errno
import re
import shutil
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

import pytest
from tests.crash.disk import Fuse
from tests.crash.disk import Killed as KilledOnDisk
from tests.crash.job_machine import (
    AnyJobMachine,
    Caller,
    RealJobMachine,
    SimJobMachine,
    Workload,
    findings_in,
    hashes_in,
    state_in,
)
from tests.crash.job_workloads import ALL, groups, large, loop, small_state_bytes_max
from tests.crash.tally import Tally, chance_for
from tests.crash.test_kill_every_step import fuse_at, kill_points, sampled, some_or_all
from tests.crash.test_power_loss import MODELS, deaths, last_step, told, torn_bytes_of_a_write

from perdure.errors import HaltError
from perdure.jobs import checkpoints
from perdure.jobs.lines import item_hash
from perdure.testing import Killed, Op, SimDisk, power_loss_states

QUICK = 1
THOROUGH = 6
"""Disks tried of each model for each step after which the power is cut; QUICK of one model."""


def cases(*workloads: Workload) -> pytest.MarkDecorator:
    """Every workload quickly, and thoroughly under crash_full."""
    quick = [pytest.param(one, QUICK, id=one.__name__) for one in workloads]
    full = [
        pytest.param(one, THOROUGH, id=f"{one.__name__}-thorough", marks=pytest.mark.crash_full)
        for one in workloads
    ]
    return pytest.mark.parametrize(("workload", "count"), [*quick, *full])


each_workload = cases(*ALL)


@pytest.fixture(autouse=True)
def few_items_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "small_state_bytes_max", small_state_bytes_max)


# What must hold


def check(machine: AnyJobMachine) -> Caller:
    """Open the job in a new process, and hold it to everything that was promised."""
    check_state_claims_no_more_than_the_log(machine)
    shown = max(cursor_in_state(machine), cursor_in_summary(machine))
    caller = Caller(machine)
    check_findings(machine)
    check_errors(caller)
    check_cursor(caller, shown)
    check_state_claims_no_more_than_the_log(machine)
    for name, data in machine.promises.files.items():
        assert machine.bytes_of(name) == data, name
    litter = [name for name in machine.file_names() if ".tmp-" in name and "/files/" not in name]
    assert litter == []
    return caller


def check_state_claims_no_more_than_the_log(machine: AnyJobMachine) -> None:
    state = state_in(machine)
    if state is not None:
        log = machine.bytes_of("findings.jsonl")
        assert log is not None, "state.json outlives its log"
        assert set(state["completed"]) <= set(hashes_in(log))


def check_findings(machine: AnyJobMachine) -> None:
    promises, log = machine.promises, machine.bytes_of("findings.jsonl") or b""
    found = findings_in(log)
    assert len({name for name, _ in found}) == len(found), "an item is done twice"
    for name, payload in promises.findings.items():
        assert (name, payload) in found, f"{name} was acknowledged and is gone"
    for name, payload in found:
        assert promises.begun.get(name) == payload, f"{name} was never recorded"
    job = machine.jobs[-1]
    assert {*job.state["completed"]} == {item_hash(name) for name, _ in found}
    assert job.processed == len(found)


def check_errors(caller: Caller) -> None:
    promises, job = caller.promises, caller.job
    queued = {entry.key: entry.attempts for entry in job.errors}
    assert not any(job.is_done(name) for name in queued)
    for name, attempts in promises.attempts.items():
        if not job.is_done(name):
            assert queued.get(name, 0) >= attempts, f"an attempt at {name} is forgotten"
    for name, attempts in queued.items():
        assert attempts <= promises.begun_attempts[name], f"{name} was not tried so often"


def check_cursor(caller: Caller, shown: int) -> None:
    """It does not fall behind a checkpoint, whether that returned or is only there to be read."""
    cursor = caller.job.cursor
    last = -1 if cursor is None else cursor["last"]
    assert max(shown, caller.promises.cursor) <= last <= caller.promises.begun_cursor


def cursor_in_state(machine: AnyJobMachine) -> int:
    cursor = (state_in(machine) or {}).get("cursor")
    return -1 if cursor is None else int(cursor["last"])


def cursor_in_summary(machine: AnyJobMachine) -> int:
    found = re.search(rb'Cursor: .*"last":(\d+)', machine.bytes_of("SUMMARY.md") or b"")
    return int(found[1]) if found else -1


def check_second_opening(machine: SimJobMachine, log: bytes | None) -> None:
    """Nothing is left to repair, whether the first process was killed or closed the job."""
    second = machine.end()
    check(second)
    assert second.bytes_of("findings.jsonl") == log
    second.bury()


def work_on(machine: SimJobMachine, workload: Workload) -> None:
    """The next process does the rest, and every item is done once."""
    workload(machine)
    after = machine.end()
    check(after)
    before = findings_in(after.bytes_of("findings.jsonl") or b"")
    after.bury()
    whole = findings_in(whole_run(workload)[0])
    assert sorted(map(repr, before)) == sorted(map(repr, whole))


# Runs that end early


@cache
def whole_run(workload: Workload) -> tuple[bytes, list[Op]]:
    """The log of a run that nothing disturbs, and its steps."""
    machine = SimJobMachine.new()
    workload(machine)
    log, steps = machine.bytes_of("findings.jsonl"), machine.disk.log.copy()
    machine.end()
    return log or b"", steps


def run_until_killed(machine: SimJobMachine, workload: Workload) -> bool:
    """Whether the process met its end in the workload."""
    with contextlib.suppress(Killed):
        workload(machine)
    if machine.disk.is_dead:
        machine.bury()
    return machine.disk.is_dead


@cache
def killed_runs(workload: Workload) -> list[SimJobMachine]:
    """One for each step after which the process can die, and for each write cut in the middle."""
    machines = []
    for step, torn_bytes in deaths(whole_run(workload)[1]):
        machine = SimJobMachine.new(cut_after=step, torn_bytes=torn_bytes)
        assert run_until_killed(machine, workload)
        del machine.disk.log[:-1]
        machines.append(machine)
    return machines


def states_of(disk: SimDisk, count: int, chance: Random) -> Iterator[SimDisk]:
    """Some of the disks that a power cut now may leave."""
    for model in (chance.choice(MODELS),) if count == QUICK else MODELS:
        allowed = list(power_loss_states(disk, model, chance=chance, limit=max(count, 6)))
        yield from chance.sample(allowed, min(count, len(allowed)))


def last(machine: SimJobMachine) -> str:
    return last_step(machine)  # type: ignore[arg-type]


# Deaths


@each_workload
def test_a_job_killed_after_any_step_keeps_its_promises_and_does_each_item_once(
    workload: Workload, count: int, tally: Tally
) -> None:
    for number, killed in enumerate(killed_runs(workload)):
        tally.add("states")
        with told("killed after", last(killed)):
            after = killed.end()
            check(after)
            if number % 3 == 0 or count == THOROUGH:
                check_second_opening(after.again(), after.bytes_of("findings.jsonl"))
                work_on(after, workload)
            after.bury()


@each_workload
def test_power_lost_after_any_step_takes_nothing_acknowledged(
    workload: Workload, count: int, tally: Tally
) -> None:
    chance = chance_for("job power", workload.__name__)
    for killed in killed_runs(workload):
        for left in states_of(killed.disk, count, chance):
            tally.add("states")
            with told("cut after", last(killed), left.story()):
                after = killed.next(left, power_cut=True)
                check(after)
                if count == THOROUGH:
                    work_on(after, workload)
                after.bury()


@each_workload
def test_what_an_opening_has_seen_survives_a_power_cut_after_it(
    workload: Workload, count: int, tally: Tally
) -> None:
    """What the page cache shows after a kill, and the opening believes, may still be lost."""
    chance = chance_for("job seen", workload.__name__)
    for killed in killed_runs(workload):
        opened = killed.end()
        with told("killed after", last(killed)):
            seen = Caller(opened).job.state
            for left in states_of(opened.disk, count, chance):
                tally.add("states")
                with told(left.story()):
                    after = opened.next(left, power_cut=True)
                    job = check(after).job
                    assert seen["completed"].keys() == job.state["completed"].keys()
                    assert [e["attempts"] for e in seen["errors"]] == [
                        e.attempts for e in job.errors
                    ]
                    assert seen["cursor"] == job.cursor
                    after.bury()
        opened.bury()


@cases(loop, large)
def test_a_job_killed_or_cut_from_power_in_its_opening_is_opened_by_the_next(
    workload: Workload, count: int, tally: Tally
) -> None:
    chance = chance_for("job recovery", workload.__name__)
    killed = killed_runs(workload)
    for damaged in killed if count == THOROUGH else chance.sample(killed, 8):
        whole = damaged.end()
        Caller(whole)
        log, steps = whole.bytes_of("findings.jsonl"), whole.disk.log.copy()
        whole.bury()
        for step, torn_bytes in deaths(steps):
            dying = damaged.end(cut_after=step, torn_bytes=torn_bytes)
            assert run_until_killed(dying, open_and_close)
            with told("killed after", last(damaged), "and in the opening after", last(dying)):
                tally.add("states")
                after = dying.end()
                check(after)
                assert after.bytes_of("findings.jsonl") == log
                after.bury()
                for left in states_of(dying.disk, 1, chance):
                    with told(left.story()):
                        cut = dying.next(left, power_cut=True)
                        check(cut)
                        cut.bury()


def open_and_close(machine: AnyJobMachine) -> None:
    Caller(machine).close()


@some_or_all
@pytest.mark.parametrize("tail", [b"", b'{"n":9,"_ke'], ids=["whole", "torn"])
def test_a_log_whose_writer_synced_nothing_is_believed_only_when_it_is_safe(
    count: int, tail: bytes, tally: Tally
) -> None:
    """As another program leaves it, with no state.json, and a name that is not safe either."""
    chance = chance_for("job foreign")
    written = SimJobMachine.new()
    loop(written)
    log = (written.bytes_of("findings.jsonl") or b"") + tail
    written.end()
    whole = foreign_machine(log, written.promises.begun).end()
    open_and_close(whole)
    for step, torn_bytes in deaths(whole.disk.log.copy()):
        left_by_it = foreign_machine(log, written.promises.begun)
        machine = left_by_it.end(cut_after=step, torn_bytes=torn_bytes)
        assert run_until_killed(machine, open_and_close)
        for left in power_loss_states(machine.disk, chance=chance, limit=min(2 * count, 100)):
            tally.add("states")
            with told("killed after", last(machine), left.story()):
                after = machine.next(left, power_cut=True)
                check_state_claims_no_more_than_the_log(after)
                seen = set(hashes_in(after.bytes_of("findings.jsonl") or b""))
                assert seen <= set(Caller(after).job.state["completed"])
                check_findings(after)
                after.bury()


def foreign_machine(log: bytes, begun: dict[str, Any]) -> SimJobMachine:
    machine = SimJobMachine.new()
    machine.promises.begun = begun
    machine.disk.write(f"{machine.root}/findings.jsonl", log)
    return machine


@some_or_all
def test_a_torn_group_costs_only_what_it_tore(count: int, tally: Tally) -> None:
    """Cut, full of zeros or noise, or with a hole before whole lines; nothing is thrown away."""
    step = max(whole_run(groups)[1], key=lambda op: len(op.data) * op.path.endswith(".jsonl"))
    machine = SimJobMachine.new(cut_after=step.number)
    assert run_until_killed(machine, groups)
    chance = chance_for("job torn")
    for left in power_loss_states(machine.disk, chance=chance, limit=min(count * 25, 5_000)):
        tally.add("states")
        with told(left.story()):
            after = machine.next(left, power_cut=True)
            log = after.bytes_of("findings.jsonl") or b""
            check(after)
            done = after.jobs[-1].state["completed"]
            assert set(hashes_in(log)) <= set(done), "a whole line does not count"
            aside = b"".join(
                held
                for path, held in after.disk.tree().items()
                if "/.torn/" in path and isinstance(held, bytes)
            )
            for piece in log.split(b"\n"):
                assert is_finding(piece) or piece in aside, "bytes are gone for good"
            check_second_opening(after, after.bytes_of("findings.jsonl"))


def is_finding(line: bytes) -> bool:
    return not line or any(hashes_in(line))


# Steps that fail


@each_workload
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_a_step_that_fails_costs_nothing_acknowledged_even_when_power_is_lost_later(
    workload: Workload, count: int, number: int, tally: Tally
) -> None:
    """Pages that a failed sync has left marked clean are seen by the next process, and believed."""
    chance = chance_for("job fail", number, workload.__name__)
    steps = whole_run(workload)[1]
    stride = 1 if count == THOROUGH else 4
    for step in range(1 + chance.randrange(stride), len(steps) + 1, stride):
        tally.add("failures")
        machine = SimJobMachine.new()
        machine.disk.fail(step, number, partial_bytes=torn_bytes_of_a_write)
        with contextlib.suppress(HaltError):
            workload(machine)
        for job in machine.jobs:  # as a program does that ends because of the error
            with contextlib.suppress(HaltError):
                job.close()
        with told("failed at", machine.disk.log[step - 1]):
            for left in states_of(machine.disk, count, chance):
                with told(left.story()):
                    cut = machine.next(left, power_cut=True)
                    check(cut)
                    cut.bury()
            after = machine.end()
            job = check(after).job
            seen = set(job.state["completed"])
            for left in states_of(after.disk, count, chance):
                with told("opened", left.story()):
                    cut = after.next(left, power_cut=True)
                    assert seen <= set(check(cut).job.state["completed"])
                    cut.bury()
            after.bury()


# The real disk


@pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.__name__)
@some_or_all
def test_a_job_killed_at_a_call_of_the_real_disk_keeps_its_promises(
    workload: Workload, count: int, workspace: str, tally: Tally
) -> None:
    root = f"{workspace}/job"
    whole = RealJobMachine(root)
    whole.boot_process(Fuse())
    workload(whole)
    whole.kill_process()
    for point in sampled(kill_points(whole.disk.fuse.trace), count, "job", workload.__name__):
        shutil.rmtree(root)
        machine = RealJobMachine(root)
        machine.boot_process(fuse_at(point))
        with pytest.raises(KilledOnDisk):
            workload(machine)
        tally.add("states")
        tally.add("on the real disk")
        with told(f"killed {point[1]} call {point[0]}", machine.disk.fuse.trace[-1]):
            machine.boot_process()
            check(machine)
            machine.boot_process()
            workload(machine)
            machine.boot_process()
            check(machine)
        machine.kill_process()
