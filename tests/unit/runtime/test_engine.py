"""The commit: what is promised, what is taken back, and what a failure leaves usable."""

import os
import threading
from collections.abc import Callable
from functools import partial

import pytest
from tests.crash.disk import CutDisk, FailingFuse, Fuse, Killed, disk_full
from tests.crash.machine import Machine, check_live_equals_replayed, replay

from perdure.errors import (
    CorruptError,
    FencedError,
    LeaseHeldError,
    RefusedError,
    StorageError,
    UsageError,
)
from perdure.runtime.halt import HaltRuntime


@pytest.fixture
def machine(workspace: str) -> Machine:
    machine = Machine(f"{workspace}/w")
    machine.boot_process()
    machine.open("T")
    machine.boot_process()
    return machine


def texts(runtime: HaltRuntime) -> list[str]:
    return [event.payload["text"] for event in runtime.events() if event.kind == "NOTE"]


# Batches


def batch_of(runtime: HaltRuntime, *calls: Callable[[], object]) -> None:
    with runtime.batch():
        for call in calls:
            call()


def change_my_mind() -> None:
    raise KeyError


def test_batch_is_one_commit(machine: Machine) -> None:
    runtime = machine.open()
    machine.disk.fuse.trace.clear()
    with runtime.batch():
        runtime.add_node("N1", "first")
        runtime.add_node("N2", "second", deps=["N1"])
        assert runtime.frontier() == ["N1"]
    assert machine.disk.fuse.trace.count("fdatasync") == 1
    first, second = list(runtime.events())[-2:]
    assert (first.tx, first.c, second.c) == (second.tx, [1, 2], [2, 2])
    assert second.payload["tx_end"] is True


def test_after_a_batch_the_live_state_is_that_of_a_replay(machine: Machine) -> None:
    runtime = machine.open()
    with runtime.engine.batch(op="op-1"):
        runtime.add_node("N1", "first")
        machine.clock.advance(5.0)
        runtime.note("five seconds later")
        machine.clock.advance(5.0)
    check_live_equals_replayed(machine, runtime)
    assert runtime.state.ops == {"op-1": runtime.seq_last - 1}


def test_empty_batch_writes_nothing(machine: Machine) -> None:
    runtime = machine.open()
    before = machine.journal()
    with runtime.batch():
        pass
    assert machine.journal() == before


def test_exception_in_a_batch_throws_all_of_it_away(machine: Machine) -> None:
    runtime = machine.open()
    before = machine.journal()
    with pytest.raises(KeyError):
        batch_of(runtime, lambda: runtime.add_node("N1", "first"), change_my_mind)
    assert machine.journal() == before
    assert "N1" not in runtime.state.nodes
    check_live_equals_replayed(machine, runtime)
    runtime.add_node("N1", "first")  # and the object works on
    check_live_equals_replayed(machine, runtime)


def test_batch_in_a_batch_is_part_of_it(machine: Machine) -> None:
    runtime = machine.open()
    before = machine.journal()
    inner = partial(batch_of, runtime, lambda: runtime.note("inside"))
    with pytest.raises(KeyError):
        batch_of(runtime, inner, change_my_mind)
    assert machine.journal() == before


def test_op_id_inside_a_batch_is_refused_because_it_would_be_lost(machine: Machine) -> None:
    runtime = machine.open()
    with pytest.raises(UsageError) as caught, runtime.batch():
        runtime.note("once", op="op-1")
    assert caught.value.code == "op_in_batch"
    assert "once" not in texts(runtime)


def test_batch_that_is_too_large_is_refused_whole(machine: Machine) -> None:
    runtime = machine.open()
    before = machine.journal()
    large = "x" * (17 << 20)
    with pytest.raises(UsageError) as caught, runtime.batch():
        runtime.append("EXTERNAL_OBSERVED", {"type": "task", "id": "T"}, {"body": large})
    assert caught.value.code == "too_large"
    assert machine.journal() == before
    runtime.note("and on it goes")


def test_failed_batch_ends_the_object_and_shows_only_what_was_committed(machine: Machine) -> None:
    machine.boot_process(disk_full(10_000))
    runtime = machine.open()
    machine.disk.fuse.at = machine.disk.fuse.count + 1  # the append of the batch
    with pytest.raises(StorageError) as caught:
        batch_of(
            runtime,
            lambda: runtime.add_node("N1", "first"),
            lambda: runtime.add_node("N2", "second"),
        )
    assert caught.value.code == "disk_full"
    assert runtime.state.nodes == {}
    with pytest.raises(StorageError, match="earlier failure"):
        runtime.note("hello")
    machine.boot_process()
    assert machine.open().state.nodes == {}


def test_node_does_not_start_again_in_the_batch_that_failed_it(machine: Machine) -> None:
    runtime = machine.open()
    runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt"])
    runtime.start("N1")
    machine.write("artifacts/N1/a.txt", b"a")
    runtime.register_artifact("", "artifacts/N1/a.txt", node_id="N1")
    with pytest.raises(RefusedError) as caught:
        batch_of(
            runtime,
            lambda: runtime.fail("N1", "transient-agent", "exit 1"),
            lambda: runtime.start("N1"),
        )
    assert caught.value.code == "batch_order"
    assert runtime.node("N1").state == "RUNNING"
    assert machine.bytes_of("artifacts/N1/a.txt") == b"a"


# Op ids


def test_same_op_id_answers_with_the_first_event(machine: Machine) -> None:
    first = machine.open().note("once", op="op-1")
    before = machine.journal()
    machine.boot_process()
    assert machine.open().note("once", op="op-1") == first
    assert machine.open().note("other words", op="op-1") == first
    assert machine.journal()[: len(before)] == before
    assert texts(machine.open()).count("once") == 1


# Failures


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_failed_commit_is_not_acknowledged_and_ends_the_object(machine: Machine, call: str) -> None:
    machine.boot_process(FailingFuse(0, 5))
    runtime = machine.open()
    runtime.note("before")
    kept = machine.journal()
    seq = runtime.seq_last
    machine.disk.fuse.at = machine.disk.fuse.count + (1 if call == "write" else 2)
    with pytest.raises(StorageError, match="EIO"):
        runtime.note("lost")
    assert machine.disk.fuse.trace[machine.disk.fuse.at - 1].startswith(call)
    assert runtime.state.seq == seq
    for _ in range(2):
        with pytest.raises(StorageError, match="earlier failure"):
            runtime.note("again")
    left = machine.journal()
    assert left.startswith(kept)
    runtime.close()
    assert machine.journal() == left
    assert not runtime.engine.lease_file.is_current(runtime.engine.epoch)


def test_lease_of_an_object_that_failed_is_given_back_by_closing_it(machine: Machine) -> None:
    machine.boot_process(FailingFuse(0, 5))
    runtime = machine.open()
    machine.disk.fuse.at = machine.disk.fuse.count + 1
    with pytest.raises(StorageError):
        runtime.note("lost")
    elsewhere = machine.world()._replace(processes=machine.processes.seen_from(999), disk=CutDisk())
    with pytest.raises(LeaseHeldError):
        HaltRuntime.resume(machine.root, world=elsewhere)
    runtime.close()
    with HaltRuntime.resume(machine.root, world=elsewhere) as other:
        other.note("goes on")


def test_lease_is_given_back_although_the_disk_is_full(machine: Machine) -> None:
    machine.boot_process(disk_full(10_000, lasting=True))
    runtime = machine.open()
    machine.disk.fuse.at = machine.disk.fuse.count
    runtime.close()
    elsewhere = machine.world()._replace(processes=machine.processes.seen_from(999), disk=CutDisk())
    with HaltRuntime.resume(machine.root, world=elsewhere) as other:
        assert other.engine.epoch == runtime.engine.replica.state.epoch + 1


def test_file_move_that_fails_ends_the_object_and_recovery_makes_it(machine: Machine) -> None:
    machine.boot_process(FailingFuse(0, 5))
    runtime = machine.open()
    runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt"])
    runtime.start("N1")
    machine.write("artifacts/N1/a.txt", b"a")
    runtime.register_artifact("", "artifacts/N1/a.txt", node_id="N1")
    machine.disk.fuse.at = machine.disk.fuse.count + 3  # behind write and fdatasync
    with pytest.raises(StorageError):
        runtime.fail("N1", "transient-agent", "exit 1")
    assert runtime.node("N1").state == "RETRYABLE"  # that is committed
    with pytest.raises(StorageError, match="earlier failure"):
        runtime.start("N1")
    machine.boot_process()
    assert machine.open().recovered.repaired != ()
    assert machine.bytes_of("artifacts/old/A-N1-1/a.txt") == b"a"


def test_short_command_that_starts_a_node_first_makes_the_move_a_crash_prevented(
    machine: Machine,
) -> None:
    runtime = machine.open()
    runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt"])
    runtime.start("N1")
    machine.write("artifacts/N1/a.txt", b"a")
    runtime.register_artifact("", "artifacts/N1/a.txt", node_id="N1")
    machine.disk.fuse.at = machine.disk.fuse.count + 3
    with pytest.raises(Killed):
        runtime.fail("N1", "transient-agent", "exit 1")
    machine.boot_process()
    assert machine.attach().node("N1").state == "RETRYABLE"
    assert os.path.exists(f"{machine.root}/artifacts/N1/a.txt")
    machine.attach().start("N1", session=True)
    assert machine.bytes_of("artifacts/old/A-N1-1/a.txt") == b"a"
    assert not os.path.exists(f"{machine.root}/artifacts/N1/a.txt")


def test_failed_projection_costs_nothing(machine: Machine) -> None:
    machine.boot_process(FailingFuse(0, 28))
    runtime = machine.open()
    machine.clock.advance(2.0)  # projections are due
    machine.disk.fuse.at = machine.disk.fuse.count + 3
    runtime.note("there all the same")
    assert machine.disk.fuse.failed != []  # type: ignore[attr-defined]
    assert texts(machine.attach())[-1] == "there all the same"
    runtime.note("and on it goes")


# What others have written


def test_last_commit_of_another_process_is_written_again_before_ours(machine: Machine) -> None:
    # Its sync may have failed, and ours would then skip its pages.
    before = len(machine.journal())
    machine.attach().note("by another process")
    length = len(machine.journal()) - before
    machine.boot_process()
    runtime = machine.attach()
    machine.disk.fuse.trace.clear()
    runtime.note("ours")
    assert machine.disk.fuse.trace[0] == f"write {length}"
    machine.disk.fuse.trace.clear()
    runtime.note("ours again")
    writes = [what for what in machine.disk.fuse.trace if what.startswith("write")]
    assert len(writes) == 1  # the append: ours is synced, so it is not written again


def test_projections_do_not_speak_of_lines_whose_sync_is_unknown(machine: Machine) -> None:
    machine.attach().note("once", op="op-1")
    projections, length = machine.projections(), len(machine.journal())
    machine.boot_process(FailingFuse(0, 5))
    failing = machine.attach()
    machine.disk.fuse.at = machine.disk.fuse.count + 3  # behind the last commit, again, and ours
    with pytest.raises(StorageError):
        failing.note("written, and not synced")
    assert machine.disk.fuse.trace[-1] == "fdatasync"
    machine.boot_process()
    assert len(machine.journal()) > length
    machine.attach().note("once", op="op-1")  # said before: nothing to commit
    assert machine.projections() == projections


def test_journal_that_has_become_shorter_is_not_continued(machine: Machine) -> None:
    runtime = machine.open()
    runtime.note("hello")
    os.truncate(machine.layout.journal, len(machine.journal()) - 10)
    left = machine.journal()
    for call in (lambda: runtime.note("more"), runtime.frontier):
        with pytest.raises(CorruptError) as caught:
            call()
        assert caught.value.code == "journal_truncated"
    assert machine.journal() == left


def test_journal_that_was_replaced_is_not_continued(machine: Machine) -> None:
    runtime = machine.open()
    with open(f"{machine.root}/copy", "wb") as file:
        file.write(machine.journal())
    os.replace(f"{machine.root}/copy", machine.layout.journal)
    with pytest.raises(CorruptError) as caught:
        runtime.note("more")
    assert caught.value.code == "journal_replaced"


@pytest.mark.parametrize("blanks", [b"\n", b"\r\n\r\n", b"  \n\t\n"])
def test_blank_lines_at_the_end_do_not_shift_what_follows(machine: Machine, blanks: bytes) -> None:
    with open(machine.layout.journal, "ab") as file:
        file.write(blanks)
    runtime = machine.attach()
    for number in range(3):
        runtime.note(f"note {number}")
    assert texts(machine.attach())[-3:] == ["note 0", "note 1", "note 2"]
    _, tip = replay(machine.root)
    assert tip.offset == len(machine.journal()) == runtime.engine.journal.tip.offset


# Closing


def test_closed_object_refuses_and_closing_again_is_harmless(machine: Machine) -> None:
    runtime = machine.open()
    runtime.close()
    runtime.close()
    with pytest.raises(RefusedError) as caught:
        runtime.note("hello")
    assert caught.value.code == "closed"


def test_closing_inside_a_batch_commits_nothing_and_frees_the_lock(machine: Machine) -> None:
    runtime = machine.open()
    before = machine.journal()
    projections = machine.projections()
    with pytest.raises(RefusedError):
        batch_of(runtime, lambda: runtime.add_node("N1", "first"), runtime.close)
    assert machine.journal() == before
    assert machine.projections() == projections
    elsewhere = machine.world()._replace(processes=machine.processes.seen_from(999), disk=CutDisk())
    with HaltRuntime.resume(machine.root, world=elsewhere) as other:
        assert other.state.nodes == {}


def test_object_that_is_dropped_gives_the_lease_back(machine: Machine) -> None:
    runtime = machine.open()
    machine.runtimes.clear()
    del runtime
    elsewhere = machine.world()._replace(processes=machine.processes.seen_from(999), disk=CutDisk())
    HaltRuntime.resume(machine.root, world=elsewhere).close()


def test_object_that_lost_its_lease_does_not_give_the_new_one_back(machine: Machine) -> None:
    first = machine.open()
    second = machine.open()
    first.close()
    second.note("still the holder")
    with pytest.raises(RefusedError):
        first.note("not any more")


def test_older_object_of_this_process_is_fenced(machine: Machine) -> None:
    first = machine.open()
    second = machine.open()
    with pytest.raises(FencedError):
        first.note("too late")
    second.note("in time")


# Threads


def test_threads_that_read_while_others_write_fold_each_event_once(machine: Machine) -> None:
    runtime = machine.open()
    runtime.add_node("N1", "first")
    stop = threading.Event()
    failures: list[BaseException] = []

    def look() -> None:
        try:
            while not stop.is_set():
                runtime.frontier()
                runtime.engine.refresh()
        except BaseException as error:  # noqa: BLE001 (told to the test)
            failures.append(error)

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1, 101):
        runtime.amend_node("N1", "again", priority=number)
    stop.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert len(runtime.node("N1").amended_by) == 100
    check_live_equals_replayed(machine, runtime)


def test_threads_that_write_take_turns(machine: Machine) -> None:
    runtime = machine.open()

    def write(name: str) -> None:
        for number in range(50):
            runtime.note(f"{name} {number}")

    writers = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    for name in "abc":
        own = [text for text in texts(runtime) if text.startswith(name)]
        assert own == [f"{name} {number}" for number in range(50)]
    check_live_equals_replayed(machine, runtime)


# Files of artifacts


def test_every_new_directory_name_is_synced_before_a_file_in_it_is_registered(
    machine: Machine,
) -> None:
    class Recording(CutDisk):
        def sync_dir(self, path: str) -> None:
            synced.append(path)
            super().sync_dir(path)

    synced: list[str] = []
    machine.disk = Recording(Fuse())
    runtime = machine.open()
    synced.clear()
    machine.write("artifacts/N1/deep/down/a.txt", b"a")
    runtime.register_artifact("A-1", "artifacts/N1/deep/down/a.txt")
    root = machine.root
    for path in ("artifacts/N1/deep/down", "artifacts/N1/deep", "artifacts/N1", "artifacts"):
        assert f"{root}/{path}" in synced
