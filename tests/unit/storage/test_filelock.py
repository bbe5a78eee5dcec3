"""The operating-system lock: one holder, and none once it is gone."""

import errno
import gc
import os
from collections.abc import Callable

import pytest

from perdure.errors import StorageError
from perdure.storage import filelock
from perdure.storage.disk import RealDisk

# A test runner that works in parallel has threads; the children only touch the lock and end.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture
def path(workspace: str) -> str:
    return f"{workspace}/.journal.lock"


def in_child(action: Callable[[], bool]) -> bool:
    """Run it in a forked child, and bring back what it said."""
    child = os.fork()
    if child == 0:
        answer = 2
        try:
            answer = 0 if action() else 1
        finally:
            os._exit(answer)
    answer = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert answer in {0, 1}, "the child failed"
    return answer == 0


def test_second_object_of_the_same_process_does_not_get_it(path: str) -> None:
    first, second = RealDisk().lock(path), RealDisk().lock(path)
    assert first.try_acquire()
    assert not second.try_acquire()
    assert not first.try_acquire(), "nor does the holder get it twice"
    first.release()
    first.release()
    assert second.try_acquire()
    second.close()
    assert first.try_acquire()
    first.close()
    first.close()


def test_lock_file_is_created_empty_and_never_removed(path: str) -> None:
    lock = RealDisk().lock(path)
    lock.try_acquire()
    lock.close()
    assert os.stat(path).st_size == 0


def test_another_process_does_not_get_it_until_it_is_released(path: str) -> None:
    lock = RealDisk().lock(path)
    assert lock.try_acquire()
    assert not in_child(lambda: RealDisk().lock(path).try_acquire())
    lock.release()
    assert in_child(lambda: RealDisk().lock(path).try_acquire())
    assert lock.try_acquire(), "the child took it to its grave"
    lock.close()


def test_forked_child_neither_has_nor_frees_the_lock_of_its_parent(path: str) -> None:
    lock = RealDisk().lock(path)
    assert lock.try_acquire()

    def misuse() -> bool:
        lock.release()
        got = lock.try_acquire()
        lock.close()
        return got

    assert not in_child(misuse)
    assert not RealDisk().lock(path).try_acquire(), "the parent still has it"
    lock.release()
    assert RealDisk().lock(path).try_acquire()


def test_forked_child_does_not_keep_the_lock_alive_after_its_parent(path: str) -> None:
    ready_r, ready_w = os.pipe()
    end_r, end_w = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            lock = RealDisk().lock(path)
            if lock.try_acquire() and os.fork() == 0:
                os.close(end_w)
                os.write(ready_w, b"x")
                os.read(end_r, 1)  # outlives the parent, until the test is over
        finally:
            os._exit(0)
    assert os.read(ready_r, 1) == b"x"
    os.waitpid(parent, 0)
    got = RealDisk().lock(path).try_acquire()
    for descriptor in (ready_r, ready_w, end_r, end_w):
        os.close(descriptor)
    assert got


def test_deleted_lock_file_does_not_let_the_next_ones_lock_different_files(path: str) -> None:
    first = RealDisk().lock(path)
    os.unlink(path)
    second = RealDisk().lock(path)
    assert first.try_acquire()
    assert not second.try_acquire()
    first.release()
    os.unlink(path)
    assert second.try_acquire()
    assert os.path.exists(path)
    assert not first.try_acquire()
    first.close()
    second.close()


def test_forgotten_lock_is_free_and_leaks_no_descriptor(path: str) -> None:
    lock = RealDisk().lock(path)
    assert lock.try_acquire()
    descriptors = len(filelock._lock_descriptors)
    del lock
    gc.collect()
    assert len(filelock._lock_descriptors) == descriptors - 1
    assert RealDisk().lock(path).try_acquire()


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EACCES, "permission_denied"), (errno.EROFS, "read_only")]
)
def test_directory_that_is_not_ours_to_write_is_named(
    path: str, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StorageError) as failed:
        RealDisk().lock(path)
    assert failed.value.code == code
    assert path in failed.value.message


def test_missing_directory_is_an_error(path: str) -> None:
    with pytest.raises(StorageError, match="ENOENT"):
        RealDisk().lock(f"{path}-missing/lock")


def test_file_system_without_locks_is_an_error_not_a_refusal(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RealDisk().lock(path)

    def unsupported(*_: object) -> bool:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(filelock, "_lock_now", unsupported)
    with pytest.raises(StorageError, match="ENOLCK"):
        lock.try_acquire()


def test_lock_file_swapped_at_every_attempt_is_a_no_not_a_loop(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RealDisk().lock(path)
    monkeypatch.setattr(filelock.RealFileLock, "_is_named", lambda _: False)
    assert not lock.try_acquire()
