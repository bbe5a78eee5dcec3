"""What the workloads of the other crash tests of jobs and batch nodes cannot notice.

When exactly a group counts, for somebody who asks meanwhile; that a checkpoint is durable; that
bytes which leave the log are safe before they do; and that a batch node which was finished after a
kill, or after a sync that failed, stays finished when power fails then.
"""

import contextlib
import errno
from collections.abc import Iterator

import pytest
from tests.crash.job_machine import NAME, ROOT, SimJobMachine
from tests.crash.job_workloads import key, loop, payload
from tests.crash.sim_machine import SimMachine, run_until_killed
from tests.crash.tally import Tally, chance_for
from tests.crash.test_batch_power_loss import Story, check_goes_on, killed_runs, some_or_many
from tests.crash.test_job_every_step import open_and_close
from tests.crash.test_job_every_step import run_until_killed as run_job_until_killed
from tests.crash.test_power_loss import MODELS, deaths, told

from perdure.errors import HaltError, StorageError
from perdure.jobs import repair, scan
from perdure.jobs.inspection import verify_job
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.records import Finding
from perdure.testing import Op, SimDisk, power_loss_states

LOG = f"{ROOT}/findings.jsonl"


# When a group counts


@pytest.mark.parametrize("kind", ["write", "sync_file"])
def test_nothing_of_a_group_counts_before_all_of_it_is_synced(kind: str) -> None:
    """Not for another thread that asks meanwhile, and not after a failure."""
    machine = SimJobMachine.new()
    job = CheckpointedJob(ROOT, NAME, world=machine.world)
    keys = [key(number) for number in range(3)]
    seen: list[bool] = []

    def is_the_step(op: Op) -> bool:
        if (op.kind, op.path) != (kind, LOG):
            return False
        seen.extend(job.is_done(name) for name in keys)
        return True

    machine.disk.fail(is_the_step, errno.EIO)
    with pytest.raises(StorageError):
        job.record_many([Finding(name, payload(0)) for name in keys])
    assert seen == [False] * 3
    assert not any(job.is_done(name) for name in keys)
    assert job.processed == 0
    job.close()


# What a checkpoint says


@pytest.mark.parametrize("call", ["opening", "record_finding", "checkpoint", "finish", "close"])
def test_what_a_checkpoint_has_written_is_there_when_power_fails(call: str, tally: Tally) -> None:
    """Both files, whole, whatever wrote them; an agent resumes by the summary alone."""
    machine = SimJobMachine.new()
    job = CheckpointedJob(ROOT, NAME, world=machine.world)
    if call != "opening":
        job.set_cursor({"last": 1})
        job.record_finding(key(1), payload(1))
    if call in ("checkpoint", "finish", "close"):
        job.set_cursor({"last": 2})
        getattr(job, call)()
    written = {name: machine.bytes_of(name) for name in ("state.json", "SUMMARY.md")}
    assert None not in written.values()
    for model in MODELS:
        for left in power_loss_states(machine.disk, model, chance=chance_for("shown"), limit=20):
            tally.add("states")
            with told(left.story()):
                after = machine.next(left, power_cut=True)
                assert {name: after.bytes_of(name) for name in written} == written
    job.close()


# What leaves the log


def damaged_logs() -> Iterator[tuple[str, bytes, bytes]]:
    """A name, a log that a power cut may leave, and what of it is no finding."""
    machine = SimJobMachine.new()
    loop(machine)
    whole = machine.bytes_of("findings.jsonl") or b""
    machine.end()
    torn = b'{"n":9,"text":"what it'
    yield "torn", whole + torn, torn
    hole = b"\0" * 40 + b'what it came to"}'
    yield "hole", hole + b"\n" + whole, hole


@pytest.mark.parametrize(
    ("log", "lost"), [case[1:] for case in damaged_logs()], ids=["torn", "hole"]
)
def test_what_an_opening_takes_from_the_log_is_safe_before_it_does(
    log: bytes, lost: bytes, tally: Tally
) -> None:
    """Whatever the opening dies at, and though power fails then, the bytes are somewhere."""
    chance = chance_for("job aside", lost)
    damaged = SimJobMachine.new()
    damaged.disk.make_dirs(ROOT)
    damaged.disk.replace(LOG, log, durable=True)
    whole = damaged.end()
    open_and_close(whole)
    for step, torn_bytes in deaths(whole.disk.log.copy()):
        dying = damaged.end(cut_after=step, torn_bytes=torn_bytes)
        assert run_job_until_killed(dying, open_and_close)
        for model in MODELS:
            for left in power_loss_states(dying.disk, model, chance=chance, limit=12):
                tally.add("states")
                with told("killed after", str(dying.disk.log[-1:]), left.story()):
                    assert is_kept(left, lost)


@pytest.fixture
def everything_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few bytes from the end no crash explains a bad line."""
    monkeypatch.setattr(scan, "group_bytes_max", 50)
    monkeypatch.setattr(repair, "group_bytes_max", 50)


def cure(machine: SimJobMachine) -> None:
    """As `perdure job retry DIR --lost`."""
    with CheckpointedJob(ROOT, NAME, world=machine.world) as job:
        machine.jobs.append(job)
        job.set_damage_aside()
        job.forget(job.state["completed"])


@pytest.mark.usefixtures("everything_is_old")
def test_what_is_set_aside_when_asked_for_is_safe_before_it_leaves_the_log(tally: Tally) -> None:
    """Whatever it dies at; and asked again it does the rest, and no finding is touched."""
    chance = chance_for("job cure")
    machine = SimJobMachine.new()
    loop(machine)
    found = machine.bytes_of("findings.jsonl") or b""
    lost = b"no finding, and no crash explains it"
    damaged = machine.end()
    cut = found.index(b"\n") + 1
    damaged.disk.replace(LOG, found[:cut] + lost + b"\n" + found[cut:], durable=True)
    whole = damaged.end()
    cure(whole)
    cured = whole.bytes_of("findings.jsonl")
    assert cured is not None
    assert lost not in cured
    for step, torn_bytes in deaths(whole.disk.log.copy()):
        dying = damaged.end(cut_after=step, torn_bytes=torn_bytes)
        assert run_job_until_killed(dying, cure)  # type: ignore[arg-type]
        for model in MODELS:
            for left in power_loss_states(dying.disk, model, chance=chance, limit=6):
                tally.add("states")
                with told("killed after", str(dying.disk.log[-1:]), left.story()):
                    assert is_kept(left, lost)
                    after = dying.next(left, power_cut=True)
                    cure(after)
                    assert after.bytes_of("findings.jsonl") == cured
                    assert verify_job(after.disk, ROOT).ok
                    after.bury()


def is_kept(disk: SimDisk, lost: bytes) -> bool:
    return any(
        isinstance(held, bytes) and lost in held
        for path, held in disk.tree().items()
        if path == LOG or path.startswith(f"{ROOT}/.torn/")
    )


# Batch nodes


def check_stays_finished(machine: SimMachine, tally: Tally, count: int) -> None:
    """After a process that finished the node: power fails, and the node holds what it promised."""
    chance = chance_for("batch finished", count)
    for left in power_loss_states(machine.disk, chance=chance, limit=count):
        tally.add("states")
        with told(left.story()):
            check_goes_on(machine.next(left, power_cut=True), set())


def is_of_the_ledger(op: Op) -> bool:
    return op.path.endswith("/ledger.jsonl")


@some_or_many
def test_a_batch_that_is_finished_after_a_kill_stays_finished_when_power_fails(
    count: int, tally: Tally
) -> None:
    """What was read of the ledger after the kill may have been in the page cache only."""
    for killed, promised in killed_runs():
        last = killed.disk.log[-1] if killed.disk.log else None
        if count <= 2 and (last is None or not is_of_the_ledger(last)):
            continue
        tally.add("kills")
        with told("killed after", str(last)):
            after = killed.end()
            check_goes_on(after, promised)
            check_stays_finished(after, tally, count)


@some_or_many
def test_a_batch_that_is_finished_after_a_failed_sync_stays_finished_when_power_fails(
    count: int, tally: Tally
) -> None:
    """Pages of a ledger whose sync failed may be marked clean, and a later sync skips them."""
    whole = SimMachine.new()
    assert not run_until_killed(whole, Story())
    steps = [op for op in whole.disk.log if is_of_the_ledger(op) and op.kind == "sync_file"]
    assert steps
    for step in steps:
        tally.add("failures")
        machine, story = SimMachine.new(), Story()
        machine.disk.fail(step.number, errno.EIO)
        with contextlib.suppress(HaltError):
            story(machine)
        with told("failed at", str(step)):
            after = machine.end()
            check_goes_on(after, story.promised)
            check_stays_finished(after, tally, count)
