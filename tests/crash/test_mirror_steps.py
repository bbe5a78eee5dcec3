"""The journal of a critical task has a mirror: killed, cut from power, failed and rotten (J-2).

Everything that ``test_power_loss`` does to workloads is done to workloads of tier 2. Then what only
two files can have: each of them damaged, cut or gone while nobody looks, and a death at each step
of putting that right. ``check_recovery`` adds, for tier 2, that both files are the same bytes.
"""

import errno
from collections.abc import Callable
from random import Random

import pytest
from tests.crash import test_kill_every_step as real
from tests.crash import test_power_loss as power
from tests.crash.checks import check_live, check_mirror, check_second_recovery, replayed
from tests.crash.sim_machine import ROOT, SimMachine, run_until_killed
from tests.crash.tally import Tally, chance_for
from tests.crash.test_power_loss import QUICK, Thoroughness, Workload, deaths, last_step, told
from tests.crash.workloads import (
    AnyMachine,
    add_nodes,
    batch,
    create,
    graph_run,
    pause_and_resume,
    short_commands,
    steering,
    submit,
)

from perdure.core.codec import Scan
from perdure.errors import BusyError, CorruptError, HaltError, StorageError
from perdure.runtime.halt import HaltRuntime
from perdure.testing import SimDisk

JOURNAL, MIRROR = "journal.jsonl", "journal-mirror.jsonl"
PROJECTIONS = (
    ".snapshot.json", "task-graph.json", "checkpoint.json", "artifacts/registry.json",
)  # fmt: skip
BOTH = (JOURNAL, MIRROR)


def at_tier_2(workload: Callable[[AnyMachine], None]) -> Callable[[AnyMachine], None]:
    def critical(machine: AnyMachine) -> None:
        machine.tier = 2
        workload(machine)

    critical.__name__ = f"{workload.__name__}_at_tier_2"
    return critical


CRITICAL = tuple(map(at_tier_2, (create, submit, batch, short_commands, add_nodes, steering)))
quick_workloads = 4
"""So many of them are tried by default, and all of them thoroughly under crash_full."""

each_workload = pytest.mark.parametrize(
    ("workload", "how"),
    [
        case
        for case in power.cases(CRITICAL).args[1]
        if case.values[0] in CRITICAL[:quick_workloads] or case.values[1] is not QUICK
    ],
)


@each_workload
def test_a_process_killed_after_any_step_leaves_two_journals_that_become_one(
    workload: Workload, how: Thoroughness, tally: Tally
) -> None:
    power.test_a_process_killed_after_any_step_loses_nothing_even_when_power_fails_after_recovery(
        workload, how, tally
    )


@each_workload
def test_power_lost_after_any_step_takes_nothing_acknowledged_from_either(
    workload: Workload, how: Thoroughness, tally: Tally
) -> None:
    power.test_power_lost_after_any_step_takes_nothing_acknowledged(workload, how, tally)


@each_workload
def test_death_in_the_recovery_of_two_journals_is_recovered_from(
    workload: Workload, how: Thoroughness, tally: Tally
) -> None:
    power.test_death_at_any_step_of_a_recovery_from_any_death_is_recovered_from(
        workload, how, tally
    )


@each_workload
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_a_step_that_fails_in_either_costs_nothing_acknowledged(
    workload: Workload, how: Thoroughness, number: int, tally: Tally
) -> None:
    power.test_a_step_that_fails_costs_nothing_acknowledged_even_when_power_is_lost_later(
        workload, how, number, tally
    )


@pytest.mark.parametrize("workload", [create, submit, batch, short_commands])
def test_death_at_a_call_on_the_real_disk_is_no_different(
    workload: Callable[[AnyMachine], None], workspace: str, tally: Tally
) -> None:
    real.test_death_at_a_call_loses_nothing_and_leaves_nothing_to_clean_up(
        at_tier_2(workload), real.calls_sampled, workspace, tally
    )


def test_acknowledged_events_survive_a_power_cut_in_each_of_the_two(tally: Tally) -> None:
    """Not only in one of them: losing the other afterwards must cost nothing."""
    chance = chance_for("either")
    for killed in power.killed_runs(at_tier_2_short):
        for _, left in power.states_of(killed.disk, QUICK, chance):
            tally.add("states")
            machine = killed.next(left, power_cut=True)
            promised = killed.acknowledged
            with told("cut after", last_step(killed), left.story()):
                for name in BOTH:
                    assert (machine.bytes_of(name) or b"").startswith(promised), name


def at_tier_2_short(machine: SimMachine) -> None:
    at_tier_2(short_commands)(machine)


def check_each_survives_a_power_cut(machine: SimMachine, tally: Tally, name: str) -> None:
    """All that is acknowledged now is on the medium in each of the two, not only in one."""
    machine.acknowledge()
    for _, left in power.states_of(machine.disk, QUICK, chance_for("covered", name)):
        tally.add("states")
        after = machine.next(left, power_cut=True)
        with told(left.story()):
            for file in BOTH:
                assert (after.bytes_of(file) or b"").startswith(machine.acknowledged), file


def test_what_a_recovery_has_seen_is_covered_in_each_of_the_two(tally: Tally) -> None:
    for number, killed in enumerate(power.killed_runs(at_tier_2_short)):
        machine = killed.end()
        with told("killed after", last_step(killed)):
            machine.open("T")
            check_each_survives_a_power_cut(machine, tally, str(number))


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("command", ["short", "resume"])
def test_what_a_failed_sync_has_left_is_covered_by_the_next_commit_in_each(
    name: str, command: str, tally: Tally
) -> None:
    """Its pages are marked clean and are not on the medium: only writing them again helps."""
    for trial in range(12):
        machine = damaged(lambda _: None)
        with HaltRuntime.attach(ROOT, world=machine.world) as runtime:
            runtime.note("before")
        machine.boot_process()
        failing = HaltRuntime.attach(ROOT, world=machine.world)
        machine.disk.fail(
            lambda op: op.kind == "sync_file" and op.path.endswith(f"/{name}"), errno.EIO
        )
        with pytest.raises(StorageError):
            failing.note("written, and not on the medium")
        machine = machine.end()
        if command == "short":
            with HaltRuntime.attach(ROOT, world=machine.world) as runtime:
                runtime.note("after")
        else:
            resume(machine)
        check_each_survives_a_power_cut(machine, tally, f"{name} {command} {trial}")


# After a death the next one may be a short command, which recovers nothing


def test_a_short_command_after_any_death_brings_the_two_together_or_leaves_it_to_a_recovery(
    tally: Tally,
) -> None:
    chance = chance_for("short")
    for killed in power.killed_runs(at_tier_2_short):
        states = [killed.end()]
        states += [
            killed.next(left, power_cut=True)
            for _, left in power.states_of(killed.disk, QUICK, chance)
        ]
        for machine in states:
            tally.add("states")
            with told("ended after", last_step(killed), machine.disk.story()):
                check_short_command(machine)


def check_short_command(machine: SimMachine) -> None:
    promised = machine.acknowledged
    try:
        runtime = machine.attach()
    except HaltError:
        assert machine.bytes_of(JOURNAL) is None
        return
    try:
        runtime.note("from a short command")
    except BusyError:  # of another machine's process, as far as one can tell
        return
    machine.acknowledge()
    runtime.close()
    assert machine.journal().startswith(promised)
    assert machine.bytes_of(MIRROR) == machine.journal()
    replayed(machine.journal())


# Damage while nobody looks


def base(machine: SimMachine) -> None:
    """A finished piece of work, closed; eleven commits, one of them of several lines."""
    machine.tier = 2
    graph_run(machine)


def damaged(harm: Callable[[SimDisk], object]) -> SimMachine:
    machine = SimMachine.new()
    base(machine)
    machine.boot_process()
    harm(machine.disk)
    return machine


def path_of(name: str) -> str:
    return f"{ROOT}/{name}"


def flip(disk: SimDisk, name: str, at: int, bit: int = 0) -> None:
    data = bytearray(disk.read(path_of(name)))
    data[at] ^= 1 << bit
    disk.write(path_of(name), bytes(data))


def lose_projections(disk: SimDisk) -> None:
    for name in PROJECTIONS:
        disk.unlink(path_of(name), durable=True)


def resume(machine: SimMachine) -> HaltRuntime:
    runtime = HaltRuntime.resume(ROOT, world=machine.world)
    machine.runtimes.append(runtime)
    return runtime


def check_restored(machine: SimMachine, whole: bytes) -> HaltRuntime:
    runtime = resume(machine)
    assert machine.journal().startswith(whole), "a committed event is gone"
    check_live(machine, runtime)
    runtime.close()
    check_mirror(machine, runtime)
    return runtime


def whole_journal() -> bytes:
    machine = damaged(lambda _: None)
    assert machine.bytes_of(MIRROR) == machine.journal()
    return machine.journal()


def positions(whole: bytes, chance: Random, count: int) -> list[int]:
    """Byte positions in a journal: the first, the last, newlines, and any others."""
    line = whole.index(b"\n")
    return [0, line, len(whole) - 1, len(whole) - 2, *chance.sample(range(len(whole)), count)]


@pytest.mark.parametrize("projected", [True, False], ids=["projected", "bare"])
@pytest.mark.parametrize("name", BOTH)
def test_a_flipped_bit_in_either_costs_nothing(name: str, projected: bool, tally: Tally) -> None:
    whole = whole_journal()
    chance = chance_for("rot", name, projected)
    for at in positions(whole, chance, 40):
        tally.add("states")
        with told("flipped", at, "of", name):
            machine = damaged(lambda disk, at=at: flip(disk, name, at))  # type: ignore[misc]
            if not projected:
                lose_projections(machine.disk)
            harmed = machine.bytes_of(name) or b""
            runtime = check_restored(machine, whole)
            check_set_aside(machine, runtime, harmed, at)
            machine.acknowledge()
            check_second_recovery(machine)


def check_set_aside(machine: SimMachine, runtime: HaltRuntime, harmed: bytes, at: int) -> None:
    """The damaged bytes are kept, on record and quarantined; what was done is told."""
    told_of = " ".join((*runtime.recovered.found, *runtime.recovered.repaired))
    assert "mirror" in told_of
    fragments = [a for a in runtime.registry.values() if a.kind == "fragment"]
    assert fragments, runtime.recovered
    kept = [machine.bytes_of(fragment.path) or b"" for fragment in fragments]
    assert all(fragment.status == "quarantined" for fragment in fragments)
    assert any(harmed[at : at + 1] in data for data in kept)


@pytest.mark.parametrize("name", BOTH)
def test_either_that_is_gone_is_written_from_the_other(name: str, tally: Tally) -> None:
    whole = whole_journal()
    for projected in (True, False):
        machine = damaged(lambda disk: disk.unlink(path_of(name), durable=True))
        if not projected:
            lose_projections(machine.disk)
        runtime = check_restored(machine, whole)
        assert any("gone" in text for text in runtime.recovered.found), runtime.recovered
        assert any("mirror" in text for text in runtime.recovered.repaired), runtime.recovered
        tally.add("states")


@pytest.mark.parametrize("name", BOTH)
def test_either_that_was_cut_anywhere_is_completed_from_the_other(name: str, tally: Tally) -> None:
    whole = whole_journal()
    chance = chance_for("cut", name)
    ends = [n + 1 for n, byte in enumerate(whole) if byte == 10][:-1]
    for at in [0, *ends, *chance.sample(range(1, len(whole)), 25)]:
        tally.add("states")
        with told(name, "cut at", at):
            machine = damaged(lambda disk, at=at: disk.truncate(path_of(name), at))  # type: ignore[misc]
            check_restored(machine, whole)


@pytest.mark.parametrize("name", BOTH)
def test_lines_that_were_taken_out_or_put_in_are_put_right_from_the_other(
    name: str, tally: Tally
) -> None:
    whole = whole_journal()
    lines = whole.splitlines(keepends=True)
    for number in range(len(lines)):
        for bad in (
            [*lines[:number], *lines[number + 1 :]],
            [*lines[:number], lines[number], *lines[number:]],
            [*lines[:number], b"what somebody typed\n", *lines[number:]],
            [*lines[:number], b"\0" * 3000],
        ):
            tally.add("states")
            with told("line", number, "of", name):
                machine = damaged(
                    lambda disk, bad=bad: disk.write(path_of(name), b"".join(bad))  # type: ignore[misc]
                )
                check_restored(machine, whole)


def test_both_damaged_in_different_lines_are_one_whole_journal_again(tally: Tally) -> None:
    """Every line of the result is proved by the chain, whichever file it was read from."""
    whole = whole_journal()
    chance = chance_for("both")
    for _ in range(25):
        one, other = chance.sample(range(len(whole)), 2)
        tally.add("states")
        machine = damaged(
            lambda disk, one=one, other=other: (  # type: ignore[misc]
                flip(disk, JOURNAL, one),
                flip(disk, MIRROR, other),
            )
        )
        with told("flipped", one, "of the journal and", other, "of the mirror"):
            if commit_at(whole, one) == commit_at(whole, other):
                with pytest.raises(CorruptError):
                    resume(machine)
            else:
                check_restored(machine, whole)


def commit_at(whole: bytes, at: int) -> int:
    """The number of the commit that a byte belongs to."""
    end = 0
    for number, events in enumerate(Scan().commits([whole])):
        for _ in events:
            end = whole.index(b"\n", end) + 1
        if at < end:
            return number
    raise AssertionError(at)


@pytest.mark.parametrize("projected", [True, False], ids=["projected", "bare"])
def test_the_same_line_damaged_in_both_is_refused_and_nothing_is_changed(projected: bool) -> None:
    whole = whole_journal()
    at = whole.index(b"\n") + 40
    machine = damaged(lambda disk: (flip(disk, JOURNAL, at), flip(disk, MIRROR, at, bit=1)))
    if not projected:
        lose_projections(machine.disk)
    before = (machine.bytes_of(JOURNAL), machine.bytes_of(MIRROR))
    with pytest.raises(CorruptError) as caught:
        resume(machine)
    assert caught.value.exit_code == 6
    assert "line 2" in caught.value.message
    assert (machine.bytes_of(JOURNAL), machine.bytes_of(MIRROR)) == before


def test_both_cut_behind_a_line_that_a_projection_speaks_of_are_refused() -> None:
    whole = whole_journal()
    last = whole[:-1].rfind(b"\n") + 1
    machine = damaged(lambda disk: [disk.truncate(path_of(name), last) for name in BOTH])
    with pytest.raises(CorruptError):
        resume(machine)
    assert len(machine.journal()) == last


def test_two_that_both_verify_and_differ_are_a_fork_which_is_named() -> None:
    whole = whole_journal()
    other = SimMachine.new()
    other.clock.advance(3.0)
    base(other)
    fork = other.journal()
    machine = damaged(lambda disk: disk.write(path_of(MIRROR), fork))
    with pytest.raises(CorruptError) as caught:
        resume(machine)
    assert caught.value.code == "mirror_forked"
    assert "J-1" in caught.value.message
    assert machine.journal() == whole
    assert machine.bytes_of(MIRROR) == fork


def test_a_fork_at_the_last_line_is_named_by_it_and_stops_a_short_command_too() -> None:
    whole = whole_journal()
    machine = damaged(lambda _: None)
    with HaltRuntime.attach(ROOT, world=machine.world) as runtime:
        runtime.note("one")
    one = machine.journal()
    machine.disk.write(path_of(JOURNAL), whole)
    machine.disk.write(path_of(MIRROR), whole)
    machine.boot_process()
    lose_projections(machine.disk)
    with HaltRuntime.attach(ROOT, world=machine.world) as runtime:
        runtime.note("other")
        seq = runtime.state.seq
    machine.boot_process()
    machine.disk.write(path_of(MIRROR), one)
    two = machine.journal()
    with HaltRuntime.attach(ROOT, world=machine.world) as runtime, pytest.raises(CorruptError):
        runtime.note("and on")
    with pytest.raises(CorruptError) as caught:
        resume(machine)
    assert caught.value.code == "mirror_forked"
    assert f"J-{seq}" in caught.value.message
    assert (machine.journal(), machine.bytes_of(MIRROR)) == (two, one)


# Deaths while damage is put right

HARMS: dict[str, Callable[[SimDisk], object]] = {
    "journal gone": lambda disk: disk.unlink(path_of(JOURNAL), durable=True),
    "mirror gone": lambda disk: disk.unlink(path_of(MIRROR), durable=True),
    "journal rotten": lambda disk: flip(disk, JOURNAL, 700),
    "mirror rotten": lambda disk: flip(disk, MIRROR, 700),
    "first line rotten": lambda disk: flip(disk, JOURNAL, 3),
    "journal cut": lambda disk: disk.truncate(path_of(JOURNAL), 900),
    "mirror cut": lambda disk: disk.truncate(path_of(MIRROR), 900),
    "both rotten": lambda disk: (flip(disk, JOURNAL, 10), flip(disk, MIRROR, 3000)),
    "noise behind the mirror": lambda disk: disk.open_append(path_of(MIRROR)).append(b"\0" * 99),
    "noise behind both": lambda disk: [disk.open_append(path_of(n)).append(b"{x") for n in BOTH],
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_death_at_every_step_of_a_restoration_is_recovered_from(
    harm: Callable[[SimDisk], object], tally: Tally
) -> None:
    whole = whole_journal()
    chance = chance_for("restoration")
    first = damaged(harm)
    first.acknowledged = b""
    done = first.end()
    check_restored(done, whole)
    for step, torn_bytes in deaths(done.disk.log):
        killed = first.end(cut_after=step, torn_bytes=torn_bytes)
        assert run_until_killed(killed, lambda machine: resume(machine).close())
        tally.add("kills in recovery")
        states = [killed.end()]
        states += [
            killed.next(left, power_cut=True)
            for _, left in power.states_of(killed.disk, QUICK, chance)
        ]
        for machine in states:
            tally.add("states")
            with told("restoration ended after", last_step(killed), machine.disk.story()):
                check_restored(machine, whole)
                machine.acknowledge()
                check_second_recovery(machine)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_a_restoration_that_fails_is_done_by_the_next(
    harm: Callable[[SimDisk], object], number: int, tally: Tally
) -> None:
    whole = whole_journal()
    first = damaged(harm)
    done = first.end()
    check_restored(done, whole)
    for step in range(1, len(done.disk.log) + 1, 3):
        machine = first.end()
        machine.disk.fail(step, number, partial_bytes=5)
        try:
            resume(machine).close()
        except StorageError:
            tally.add("failures")
        with told("failed at", step):
            check_restored(machine.end(), whole)


# A full disk


def test_a_full_disk_at_the_mirror_acknowledges_nothing_and_ends_the_object() -> None:
    machine = damaged(lambda _: None)
    runtime = resume(machine)
    before = machine.journal()
    machine.disk.fail(lambda op: op.kind == "write" and op.path.endswith(MIRROR), errno.ENOSPC,
                      partial_bytes=9)  # fmt: skip
    with pytest.raises(StorageError, match="disk_full"):
        runtime.note("lost")
    with pytest.raises(StorageError, match="earlier failure"):
        runtime.note("again")
    machine.disk.heal()
    left = machine.bytes_of(MIRROR) or b""
    assert left.startswith(before)
    runtime.close()
    machine.boot_process()
    after = resume(machine)
    assert machine.journal() == machine.bytes_of(MIRROR)
    after.note("and on it goes")
    after.close()
    check_mirror(machine, after)


def test_pause_and_resume_keeps_both_alike() -> None:
    machine = SimMachine.new()
    machine.tier = 2
    pause_and_resume(machine)
    assert machine.bytes_of(MIRROR) == machine.journal()
