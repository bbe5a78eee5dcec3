"""The simulated disk: its log, the deaths of its processes, and the faults it injects."""

import errno
import gc

import pytest

from perdure.errors import StorageError
from perdure.testing import Killed, SimClock, SimDisk


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs("/w")
    disk.replace("/w/log", b"one\n", durable=True)
    disk.log.clear()
    return disk


def kinds(disk: SimDisk) -> list[str]:
    return [op.kind for op in disk.log]


# ------------------------------------------------------------------------------------------ the log


def test_each_call_is_a_sequence_of_numbered_steps(disk: SimDisk) -> None:
    disk.replace("/w/f", b"abc", durable=True)
    handle = disk.open_append("/w/log")
    handle.append(b"two\n")
    handle.sync()
    assert [str(op) for op in disk.log] == [
        "1 create .f.tmp-1-1",
        "2 write .f.tmp-1-1 3 bytes at 0",
        "3 sync_file .f.tmp-1-1",
        "4 rename .f.tmp-1-1 to f",
        "5 sync_dir w",
        "6 write log 4 bytes at 4",
        "7 sync_file log",
    ]


def test_reading_and_what_is_refused_are_no_steps(disk: SimDisk) -> None:
    disk.read("/w/log")
    disk.stat("/w/log")
    disk.list_dir("/w")
    with pytest.raises(StorageError):
        disk.rename("/w/missing", "/w/x")
    assert disk.log == []


def test_the_same_calls_give_the_same_log_names_and_inodes() -> None:
    def run() -> tuple[list[object], dict[str, object]]:
        disk = SimDisk(clock=SimClock())
        disk.make_dirs("/a/b")
        disk.replace("/a/b/c", b"x", durable=True)
        disk.lock("/a/.lock")
        return [*disk.log], {path: disk.stat(path) for path in disk.tree()}

    assert run() == run()


def test_files_get_their_times_from_the_clock() -> None:
    clock = SimClock(1_000.0)
    disk = SimDisk(clock=clock)
    disk.write("/w/f", b"x")
    clock.advance(5.0)
    disk.write("/w/g", b"x")
    times = {path: seen.mtime_ns for path in ("/w/f", "/w/g", "/w") if (seen := disk.stat(path))}
    assert times == {"/w/f": 1_000 * 10**9, "/w/g": 1_005 * 10**9, "/w": 1_005 * 10**9}


# ------------------------------------------------------------------------------------------- deaths


def test_a_killed_process_does_nothing_after_its_last_step() -> None:
    whole = SimDisk()
    whole.write("/w/f", b"abc")
    for step in range(len(whole.log) + 1):
        disk = SimDisk(cut_after=step)
        if step < len(whole.log):
            with pytest.raises(Killed):
                disk.write("/w/f", b"abc")
        else:
            disk.write("/w/f", b"abc")
        assert kinds(disk) == kinds(whole)[:step]
        for call in (disk.read, disk.stat, disk.list_dir, disk.make_dirs, disk.lock):
            with pytest.raises(Killed):
                call("/w/f")


def test_a_directory_that_need_not_be_durable_becomes_so_with_what_is_made_below_it(
    disk: SimDisk,
) -> None:
    disk.make_dirs("/w/a/b", durable=False)
    assert kinds(disk) == ["mkdir", "sync_dir", "mkdir"]
    disk.log.clear()
    disk.make_dirs("/w/a/b/c")
    assert kinds(disk) == ["sync_dir", "mkdir", "sync_dir"]


def test_the_next_process_sees_what_was_written_and_can_still_lose_it(disk: SimDisk) -> None:
    disk.write("/w/f", b"abc")
    after = disk.survive_kill()
    assert after.read("/w/f") == b"abc"
    assert after.log == []
    assert after.files.waiting.keys() == disk.files.waiting.keys()
    after.write("/w/g", b"")
    assert "/w/g" not in disk.tree(), "two ends of one crash do not share files"
    with pytest.raises(Killed):
        disk.read("/w/f")


def test_a_write_can_be_cut_in_the_middle(disk: SimDisk) -> None:
    handle = disk.survive_kill(cut_after=0, torn_bytes=2).open_append("/w/log")
    with pytest.raises(Killed):
        handle.append(b"two\n")
    handle.close()
    torn = disk.survive_kill(cut_after=1, torn_bytes=2)
    with pytest.raises(Killed):
        torn.replace("/w/f", b"abc", durable=True)
    assert sorted(torn.tree()) == ["/w", "/w/.f.tmp-1-0", "/w/log"]
    assert torn.tree()["/w/.f.tmp-1-0"] == b"ab"


def test_a_death_frees_the_locks_of_its_process_only(disk: SimDisk) -> None:
    other, third = disk.beside(), disk.beside()
    mine, theirs = disk.lock("/w/.a"), other.lock("/w/.b")
    assert mine.try_acquire()
    assert theirs.try_acquire()
    disk.kill()
    freed = third.lock("/w/.a")
    assert freed.try_acquire()
    assert not third.lock("/w/.b").try_acquire()
    mine.release()  # what is left of the dead frees nobody's lock
    assert not third.lock("/w/.a").try_acquire()
    with pytest.raises(Killed):
        mine.try_acquire()


def test_no_lock_outlives_the_machine(disk: SimDisk) -> None:
    lock = disk.lock("/w/.a")
    assert lock.try_acquire()
    assert disk.survive_kill().lock("/w/.a").try_acquire()


def test_letting_go_after_death_is_silent(disk: SimDisk) -> None:
    handle, lock = disk.open_append("/w/log"), disk.lock("/w/.a")
    disk.kill()
    handle.close()
    lock.close()
    del handle, lock
    gc.collect()


def test_death_is_told_once_and_to_latecomers_at_once(disk: SimDisk) -> None:
    told: list[str] = []
    disk.at_end(lambda: told.append("early"))
    disk.kill()
    disk.kill()
    disk.at_end(lambda: told.append("late"))
    assert told == ["early", "late"]


# ------------------------------------------------------------------------------------------- faults


def test_a_step_fails_by_its_number_or_by_what_it_is(disk: SimDisk) -> None:
    disk.fail(2, errno.EIO)
    with pytest.raises(StorageError, match=r"Writing failed on /w/f: EIO"):
        disk.replace("/w/f", b"abc", durable=True)
    assert kinds(disk) == ["create", "write", "unlink"]
    disk.fail(lambda op: op.kind == "rename" and op.target == "/w/f", errno.EROFS)
    with pytest.raises(StorageError) as failed:
        disk.replace("/w/f", b"abc", durable=True)
    assert failed.value.code == "read_only"
    disk.replace("/w/f", b"abc", durable=True)
    assert disk.list_dir("/w") == ["f", "log"]


def test_a_full_disk_stays_full_until_it_is_healed(disk: SimDisk) -> None:
    disk.fail(lambda op: op.kind in {"create", "write", "mkdir"}, errno.ENOSPC, times=None)
    for _ in range(3):
        with pytest.raises(StorageError) as failed:
            disk.replace("/w/f", b"abc", durable=True)
        assert failed.value.code == "disk_full"
    disk.unlink("/w/log", durable=True)
    disk.heal()
    disk.replace("/w/f", b"abc", durable=True)
    assert disk.list_dir("/w") == ["f"]


def test_a_failed_append_may_leave_a_prefix_and_ends_the_file(disk: SimDisk) -> None:
    handle = disk.open_append("/w/log")
    disk.fail(lambda op: op.kind == "write", errno.ENOSPC, partial_bytes=2)
    with pytest.raises(StorageError, match="ENOSPC"):
        handle.append(b"two\n")
    for call in (lambda: handle.append(b"x"), handle.sync, handle.size):
        with pytest.raises(StorageError, match="since this failed"):
            call()
    assert disk.read("/w/log") == b"one\ntw"


def test_reading_can_fail_too(disk: SimDisk) -> None:
    for kind, call in (
        ("read", lambda: disk.read("/w/log")),
        ("read", lambda: list(disk.read_chunks("/w/log"))),
        ("stat", lambda: disk.stat("/w/log")),
        ("list", lambda: disk.list_dir("/w")),
    ):
        disk.fail(lambda op, kind=kind: op.kind == kind, errno.EIO)  # type: ignore[misc]
        with pytest.raises(StorageError, match="EIO"):
            call()
        call()
    assert disk.log == []


def test_a_process_can_be_given_some_more_steps(disk: SimDisk) -> None:
    disk.kill_after(2)
    with pytest.raises(Killed):
        disk.replace("/w/f", b"abc", durable=True)
    assert kinds(disk) == ["create", "write"]
    other = disk.survive_kill()
    other.kill_after(0)
    assert other.is_dead
