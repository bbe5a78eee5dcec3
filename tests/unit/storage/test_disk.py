"""The file layer: what is on the medium when a call returns, and what a failure leaves."""

import errno
import gc
import os
import stat
from collections.abc import Callable
from typing import Any

import pytest

from perdure.errors import StorageError
from perdure.ports import AppendFile, Disk, FileLock, FileStat
from perdure.storage import disk as disk_module
from perdure.storage.disk import RealDisk


class Killed(BaseException):
    """Stands for the end of the process: nothing of ours may catch it and go on."""


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


@pytest.fixture
def log(disk: RealDisk, workspace: str) -> str:
    path = f"{workspace}/log"
    disk.replace(path, b"one\n", durable=True)
    return path


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


class Recorder:
    """Notes the calls that make things durable or visible, in order, and lets them through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        real_fsync, real_fdatasync = os.fsync, os.fdatasync
        real_replace, real_mkdir, real_unlink = os.replace, os.mkdir, os.unlink

        def name(descriptor: int) -> str:
            return os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))

        def fsync(descriptor: int) -> None:
            self.calls.append(f"fsync {name(descriptor)}")
            real_fsync(descriptor)

        def fdatasync(descriptor: int) -> None:
            self.calls.append(f"fdatasync {name(descriptor)}")
            real_fdatasync(descriptor)

        def replace(source: str, target: str) -> None:
            self.calls.append(f"rename to {os.path.basename(target)}")
            real_replace(source, target)

        def mkdir(path: str) -> None:
            self.calls.append(f"mkdir {os.path.basename(path)}")
            real_mkdir(path)

        def unlink(path: str) -> None:
            self.calls.append(f"unlink {os.path.basename(path)}")
            real_unlink(path)

        for function in (fsync, fdatasync, replace, mkdir, unlink):
            monkeypatch.setattr(os, function.__name__, function)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("names of open files come from /proc")
    gc.collect()  # a runtime that an earlier test dropped closes now, and not among our calls
    return Recorder(monkeypatch)


def test_real_disk_is_a_disk(disk: RealDisk, log: str) -> None:
    as_port: Disk = disk
    handle: AppendFile = as_port.open_append(log)
    lock: FileLock = as_port.lock(f"{log}.lock")
    handle.close()
    lock.close()


# ---------------------------------------------------------------------------------------- reading


def test_reads_the_whole_the_rest_and_a_piece(disk: RealDisk, workspace: str) -> None:
    path = f"{workspace}/f"
    disk.replace(path, b"0123456789", durable=False)
    assert disk.read(path) == b"0123456789"
    assert disk.read(path, 4) == b"456789"
    assert disk.read(path, 4, 3) == b"456"
    assert disk.read(path, 8, 100) == b"89"
    assert disk.read(path, 50) == b""
    assert disk.read(path, 0, 0) == b""
    assert list(disk.read_chunks(path, 4, 1)) == [b"1234", b"5678", b"9"]


def test_reads_what_was_appended_while_it_was_reading(
    disk: RealDisk, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_read = os.read
    grown: list[bool] = []

    def read(descriptor: int, length: int) -> bytes:
        if not grown:
            grown.append(True)
            with open(log, "ab") as other:
                other.write(b"two\n")
        return real_read(descriptor, length)

    monkeypatch.setattr(os, "read", read)
    assert disk.read(log) == b"one\ntwo\n"


def test_short_reads_are_continued(
    disk: RealDisk, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_read = os.read
    monkeypatch.setattr(os, "read", lambda fd, length: real_read(fd, min(length, 3)))
    assert disk.read(log) == b"one\n"
    assert disk.read(log, 0, 4) == b"one\n"


def test_reading_what_is_not_there_names_errno_and_path(disk: RealDisk, workspace: str) -> None:
    with pytest.raises(StorageError) as failed:
        disk.read(f"{workspace}/missing")
    assert failed.value.code == "io_error"
    assert "ENOENT" in failed.value.message
    assert f"{workspace}/missing" in failed.value.message
    with pytest.raises(StorageError, match="ENOENT"):
        list(disk.read_chunks(f"{workspace}/missing"))


def test_a_pipe_or_directory_in_the_place_of_a_file_is_an_error_not_a_wait(
    disk: RealDisk, workspace: str
) -> None:
    os.mkfifo(f"{workspace}/pipe")
    with pytest.raises(StorageError, match="not a regular file"):
        disk.read(f"{workspace}/pipe")
    with pytest.raises(StorageError, match="not a regular file"):
        disk.sync_file(f"{workspace}/pipe")
    with pytest.raises(StorageError, match="EISDIR"):
        disk.read(workspace)


def test_stat_tells_kinds_and_does_not_follow_links(disk: RealDisk, workspace: str) -> None:
    disk.replace(f"{workspace}/file", b"abc", durable=False)
    disk.make_dirs(f"{workspace}/dir")
    os.symlink("file", f"{workspace}/link")
    os.mkfifo(f"{workspace}/pipe")
    found = {n: disk.stat(f"{workspace}/{n}") for n in ("file", "dir", "link", "pipe")}
    assert {n: s.kind if s else None for n, s in found.items()} == {
        "file": "file",
        "dir": "dir",
        "link": "link",
        "pipe": "other",
    }
    seen = os.stat(f"{workspace}/file")
    assert found["file"] == FileStat(3, seen.st_mtime_ns, seen.st_ino, "file")


def test_stat_is_none_where_nothing_is_also_below_a_file(disk: RealDisk, log: str) -> None:
    assert disk.stat(f"{log}-missing") is None
    assert disk.stat(f"{log}/below/a/file") is None


def test_list_is_sorted_and_empty_for_a_missing_directory(disk: RealDisk, workspace: str) -> None:
    for name in ("b", "a", ".c"):
        disk.replace(f"{workspace}/{name}", b"", durable=False)
    assert disk.list_dir(workspace) == [".c", "a", "b"]
    assert disk.list_dir(f"{workspace}/missing") == []
    with pytest.raises(StorageError, match="ENOTDIR"):
        disk.list_dir(f"{workspace}/a")


# -------------------------------------------------------------------------------------- directories


def test_every_new_directory_is_synced_in_its_parent_top_down(
    disk: RealDisk, workspace: str, recorder: Recorder
) -> None:
    disk.make_dirs(workspace)
    recorder.calls.clear()
    disk.make_dirs(f"{workspace}/a/b/c")
    top = os.path.basename(workspace)
    assert recorder.calls == [
        "mkdir a", f"fsync {top}", "mkdir b", "fsync a", "mkdir c", "fsync b",
    ]  # fmt: skip
    recorder.calls.clear()
    disk.make_dirs(f"{workspace}/a/b/c")
    assert recorder.calls == []


def test_directory_that_need_not_be_durable_becomes_so_with_what_is_made_below_it(
    disk: RealDisk, workspace: str, recorder: Recorder
) -> None:
    disk.make_dirs(workspace)
    recorder.calls.clear()
    disk.make_dirs(f"{workspace}/a/b", durable=False)
    top = os.path.basename(workspace)
    assert recorder.calls == ["mkdir a", f"fsync {top}", "mkdir b"]
    recorder.calls.clear()
    disk.make_dirs(f"{workspace}/a/b/c")
    assert recorder.calls == ["fsync a", "mkdir c", "fsync b"]


def test_name_left_unsynced_by_a_killed_process_is_synced_by_the_next(
    workspace: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(disk_module, "_sync_file", raising(Killed()))
        first = RealDisk()
        first._anchored.add(workspace)
        with pytest.raises(Killed):
            first.make_dirs(f"{workspace}/a/b")
    assert os.listdir(workspace) == ["a"]
    recorder.calls.clear()
    RealDisk().make_dirs(f"{workspace}/a/b")
    assert recorder.calls == [f"fsync {os.path.basename(workspace)}", "mkdir b", "fsync a"]


def test_directory_made_by_somebody_quicker_is_synced_all_the_same(
    disk: RealDisk, workspace: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.make_dirs(workspace)
    recorder.calls.clear()
    mkdir = os.mkdir

    def beaten(path: str) -> None:
        mkdir(path)
        mkdir(path)

    monkeypatch.setattr(os, "mkdir", beaten)
    disk.make_dirs(f"{workspace}/a")
    assert recorder.calls[-1] == f"fsync {os.path.basename(workspace)}"
    assert os.path.isdir(f"{workspace}/a")


def test_directory_above_that_is_not_ours_to_write_is_left_alone(
    disk: RealDisk, workspace: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: path != os.path.dirname(workspace))
    disk.make_dirs(f"{workspace}/a")
    assert recorder.calls == ["mkdir a", f"fsync {os.path.basename(workspace)}"]


def test_file_in_the_place_of_a_directory_is_an_error(disk: RealDisk, log: str) -> None:
    with pytest.raises(StorageError, match="EEXIST"):
        disk.make_dirs(log)
    with pytest.raises(StorageError, match="EEXIST"):
        disk.make_dirs(f"{log}/below")


# ------------------------------------------------------------------------------------------ replace


def test_durable_replace_syncs_bytes_then_renames_then_syncs_the_name(
    disk: RealDisk, workspace: str, recorder: Recorder
) -> None:
    disk.replace(f"{workspace}/f", b"new", durable=True)
    temp, rename, name = recorder.calls
    assert temp.startswith(f"fsync .f.tmp-{os.getpid()}-")
    assert (rename, name) == ("rename to f", f"fsync {os.path.basename(workspace)}")
    assert os.listdir(workspace) == ["f"]


def test_replace_of_a_projection_syncs_nothing(
    disk: RealDisk, workspace: str, recorder: Recorder
) -> None:
    disk.replace(f"{workspace}/f", b"new", durable=False)
    assert recorder.calls == ["rename to f"]


@pytest.mark.parametrize(
    "failure",
    [
        ("write", errno.ENOSPC, "disk_full"),
        ("write", errno.EDQUOT, "disk_full"),
        ("fsync", errno.EIO, "io_error"),
        ("close", errno.ENOSPC, "disk_full"),
        ("replace", errno.EACCES, "permission_denied"),
        ("replace", errno.EROFS, "read_only"),
    ],
)
def test_failed_replace_leaves_the_old_file_and_no_temporary_one(
    disk: RealDisk,
    log: str,
    monkeypatch: pytest.MonkeyPatch,
    failure: tuple[str, int, str],
) -> None:
    function, number, code = failure
    with monkeypatch.context() as patched:
        if function == "close":
            real_close = os.close
            patched.setattr(os, "close", lambda fd: [real_close(fd), failing(number)()][0])
        else:
            patched.setattr(os, function, failing(number))
        with pytest.raises(StorageError) as failed:
            disk.replace(log, b"two\n", durable=True)
    assert failed.value.code == code
    assert failed.value.fix
    assert disk.read(log) == b"one\n"
    assert os.listdir(os.path.dirname(log)) == ["log"]


def test_full_disk_is_named_as_such_and_works_again_once_there_is_space(
    disk: RealDisk, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", failing(errno.ENOSPC))
        with pytest.raises(StorageError, match=r"ENOSPC.*space") as failed:
            disk.replace(log, b"two\n", durable=True)
    assert "permission" not in str(failed.value).lower()
    disk.replace(log, b"two\n", durable=True)
    assert disk.read(log) == b"two\n"


def test_failed_sync_of_the_directory_is_an_error(
    disk: RealDisk, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StorageError, match="EIO"):
        disk.replace(log, b"two\n", durable=True)
    assert os.listdir(os.path.dirname(log)) == ["log"]


def test_kill_between_temp_and_rename_leaves_the_old_file_and_a_name_nobody_reads(
    disk: RealDisk, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.path.dirname(log)
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", raising(Killed()))
        patched.setattr(os, "unlink", raising(Killed()))
        with pytest.raises(Killed):
            disk.replace(log, b"two\n", durable=True)
    assert disk.read(log) == b"one\n"
    left = [name for name in disk.list_dir(folder) if name != "log"]
    assert [name.startswith(".log.tmp-") for name in left] == [True]
    disk.replace(log, b"three\n", durable=True)
    assert disk.read(log) == b"three\n"


def test_interruption_leaves_no_temporary_file(
    disk: RealDisk, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        disk.replace(log, b"two\n", durable=True)
    assert os.listdir(os.path.dirname(log)) == ["log"]


def test_temporary_file_of_a_crashed_process_with_our_pid_is_stepped_over(
    disk: RealDisk, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container each run may have the same pid and count from the same number."""
    monkeypatch.setattr(disk_module, "_temp_numbers", iter(range(100)))
    left = [f"{os.path.dirname(log)}/.log.tmp-{os.getpid()}-{n}" for n in range(3)]
    for path in left:
        with open(path, "wb") as file:
            file.write(b"left")
    disk.replace(log, b"two\n", durable=True)
    assert disk.read(log) == b"two\n"
    assert [disk.read(path) for path in left] == [b"left"] * 3


def test_too_many_left_over_temporary_files_are_an_error_not_a_loop(
    disk: RealDisk, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "temp_names_max", 0)
    with pytest.raises(StorageError, match="too many temporary files"):
        disk.replace(log, b"two\n", durable=True)


def test_replace_keeps_the_permissions_of_the_file(disk: RealDisk, log: str) -> None:
    for mode in (0o600, 0o664, 0o755):
        os.chmod(log, mode)
        disk.replace(log, b"two\n", durable=False)
        assert stat.S_IMODE(os.stat(log).st_mode) == mode


def test_replace_over_a_directory_or_below_a_file_fails_clean(
    disk: RealDisk, workspace: str, log: str
) -> None:
    disk.make_dirs(f"{workspace}/dir")
    for path in (f"{workspace}/dir", f"{log}/below", f"{workspace}/missing/f"):
        with pytest.raises(StorageError):
            disk.replace(path, b"", durable=True)
    assert disk.list_dir(workspace) == ["dir", "log"]


def test_short_writes_are_continued(
    disk: RealDisk, workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, data[:3]))
    data = bytes(range(256))
    disk.replace(f"{workspace}/f", data, durable=True)
    assert disk.read(f"{workspace}/f") == data


# ---------------------------------------------------------------- rename, unlink, truncate, rewrite


def test_rename_syncs_the_new_name_before_the_loss_of_the_old_one(
    disk: RealDisk, log: str, recorder: Recorder
) -> None:
    folder = os.path.dirname(log)
    disk.make_dirs(f"{folder}/to")
    recorder.calls.clear()
    disk.rename(log, f"{folder}/to/log")
    assert recorder.calls == ["rename to log", "fsync to", f"fsync {os.path.basename(folder)}"]
    recorder.calls.clear()
    disk.rename(f"{folder}/to/log", f"{folder}/to/other")
    assert recorder.calls == ["rename to other", "fsync to"]
    disk.rename(f"{folder}/to", f"{folder}/moved")
    assert disk.read(f"{folder}/moved/other") == b"one\n"
    with pytest.raises(StorageError, match="ENOENT"):
        disk.rename(f"{folder}/missing", f"{folder}/x")


def test_unlink_of_a_missing_file_is_fine_and_durable_when_asked(
    disk: RealDisk, log: str, recorder: Recorder
) -> None:
    name = f"fsync {os.path.basename(os.path.dirname(log))}"
    disk.unlink(log, durable=True)
    assert recorder.calls == ["unlink log", name]
    disk.unlink(log, durable=True)
    assert recorder.calls[2:] == ["unlink log", name]
    disk.unlink(log, durable=False)
    assert recorder.calls[4:] == ["unlink log"]
    disk.unlink(f"{log}/below/missing", durable=True)
    with pytest.raises(StorageError):
        disk.unlink(os.path.dirname(log), durable=False)


def test_truncate_cuts_and_syncs(disk: RealDisk, log: str, recorder: Recorder) -> None:
    disk.truncate(log, 2)
    assert recorder.calls == ["fsync log"]
    assert disk.read(log) == b"on"


def test_rewrite_puts_bytes_where_they_stand_and_not_at_the_end(
    disk: RealDisk, log: str, recorder: Recorder
) -> None:
    disk.rewrite(log, 1, b"ne\n")
    assert disk.read(log) == b"one\n"
    assert recorder.calls == []
    disk.sync_file(log)
    assert recorder.calls == ["fsync log"]


def test_sync_of_what_is_missing_is_an_error(disk: RealDisk, workspace: str) -> None:
    for call in (disk.sync_file, disk.sync_dir, disk.open_append):
        with pytest.raises(StorageError, match="ENOENT"):
            call(f"{workspace}/missing")


# ------------------------------------------------------------------------------------------- append


def test_append_is_one_write_and_sync_covers_the_data(
    disk: RealDisk, log: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []
    real_write = os.write

    def write(descriptor: int, data: bytes) -> int:
        writes.append(data)
        return real_write(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    handle = disk.open_append(log)
    handle.append(b"two\nthree\n")
    handle.sync()
    assert writes == [b"two\nthree\n"]
    assert recorder.calls == ["fdatasync log"]
    assert handle.size() == 14
    with open(log, "ab") as other:
        other.write(b"x")
    assert handle.size() == 15
    handle.close()
    assert disk.read(log) == b"one\ntwo\nthree\nx"


def test_two_handles_append_after_each_other(disk: RealDisk, log: str) -> None:
    first, second = disk.open_append(log), disk.open_append(log)
    first.append(b"two\n")
    second.append(b"three\n")
    first.append(b"four\n")
    assert disk.read(log) == b"one\ntwo\nthree\nfour\n"
    first.close()
    second.close()


def test_descriptor_is_not_inherited(disk: RealDisk, log: str) -> None:
    handle = disk.open_append(log)
    assert not os.get_inheritable(handle._descriptor)
    handle.close()


def test_short_append_is_continued_until_it_is_whole(
    disk: RealDisk, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write = os.write
    handle = disk.open_append(log)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda fd, data: real_write(fd, data[:2]))
        handle.append(b"abcdefg\n")
    assert disk.read(log) == b"one\nabcdefg\n"
    handle.close()


def test_write_that_makes_no_progress_is_an_error_not_a_loop(
    disk: RealDisk, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", lambda fd, data: 0)
    with pytest.raises(StorageError, match="no further byte"):
        disk.open_append(log).append(b"x")


@pytest.mark.parametrize(
    "failure",
    [
        ("write", errno.ENOSPC, "disk_full"),
        ("write", errno.EIO, "io_error"),
        ("fdatasync", errno.EIO, "io_error"),
        ("fdatasync", errno.ENOSPC, "disk_full"),
        ("fstat", errno.EIO, "io_error"),
    ],
)
def test_handle_is_dead_after_its_first_failure_and_says_which_it_was(
    disk: RealDisk,
    log: str,
    monkeypatch: pytest.MonkeyPatch,
    failure: tuple[str, int, str],
) -> None:
    function, number, code = failure
    handle = disk.open_append(log)
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: handle.append(b"lost\n"),
        "fdatasync": handle.sync,
        "fstat": handle.size,
    }
    with monkeypatch.context() as patched:
        patched.setattr(os, function, failing(number))
        with pytest.raises(StorageError) as first:
            calls[function]()
    assert first.value.code == code
    for call in calls.values():
        with pytest.raises(StorageError, match="since this failed") as later:
            call()
        assert later.value.code == code
        assert first.value.message in later.value.message
    handle.close()
    assert disk.read(log) == b"one\n", "no retry, and nothing flushed on close"


def test_full_disk_in_the_middle_of_an_append_leaves_a_torn_tail_and_a_dead_handle(
    disk: RealDisk, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write = os.write
    room = [5]

    def write(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real_write(descriptor, data[: room[0]])
        room[0] -= written
        return written

    handle = disk.open_append(log)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        with pytest.raises(StorageError, match="ENOSPC"):
            handle.append(b"two\nthree\n")
    with pytest.raises(StorageError, match="since this failed"):
        handle.append(b"four\n")
    assert disk.read(log) == b"one\ntwo\nt"


def test_interruption_in_the_middle_of_an_append_kills_the_handle_too(
    disk: RealDisk, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, Callable[[AppendFile], None]]] = [
        ("write", lambda handle: handle.append(b"two\n")),
        ("fdatasync", lambda handle: handle.sync()),
    ]
    for function, call in calls:
        handle = disk.open_append(log)
        with monkeypatch.context() as patched:
            patched.setattr(os, function, raising(KeyboardInterrupt()))
            with pytest.raises(KeyboardInterrupt):
                call(handle)
        with pytest.raises(StorageError, match="KeyboardInterrupt"):
            handle.append(b"three\n")


def test_closed_handle_says_so(disk: RealDisk, log: str) -> None:
    handle = disk.open_append(log)
    handle.close()
    handle.close()
    with pytest.raises(StorageError, match="is closed"):
        handle.append(b"x")
