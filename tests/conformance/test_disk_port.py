"""What every disk behind ``ports.Disk`` does: the real one and the simulated one, side by side.

First the promises of the port, each a test that both pass. Then both are given the same calls, at
random, and must answer the same, fail with the same words, leave the same files and take the same
steps in the same order: what a crash test proves on one would else say nothing about the other.
"""

import errno
import os
import random
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import pytest

from perdure.errors import StorageError
from perdure.ports import Disk
from perdure.storage import disk as disk_module
from perdure.storage.disk import RealDisk
from perdure.testing import SimDisk

T = TypeVar("T")

KINDS = ("RealDisk", "SimDisk")
calls_per_story = 60
stories = 25


class Subject(NamedTuple):
    """A disk under test with an empty directory on it."""

    disk: Disk
    root: str
    link: Callable[[str, str], None]
    another: Callable[[], Disk]
    """The same disk as another object, as another process has it."""


def make_subject(kind: str, root: str) -> Subject:
    if kind == "RealDisk":
        return Subject(RealDisk(), root, os.symlink, RealDisk)
    sim = SimDisk()
    sim.make_dirs(root)
    return Subject(sim, root, sim.symlink, sim.beside)


@pytest.fixture(params=KINDS)
def subject(request: pytest.FixtureRequest, workspace: str) -> Subject:
    return make_subject(request.param, workspace)


@pytest.fixture
def disk(subject: Subject) -> Disk:
    return subject.disk


@pytest.fixture
def log(subject: Subject) -> str:
    path = f"{subject.root}/log"
    subject.disk.replace(path, b"one\n", durable=True)
    return path


# ---------------------------------------------------------------------------------------- reading


def test_reads_the_whole_the_rest_and_a_piece(disk: Disk, log: str) -> None:
    disk.replace(log, b"0123456789", durable=False)
    assert disk.read(log) == b"0123456789"
    assert disk.read(log, 4) == b"456789"
    assert disk.read(log, 4, 3) == b"456"
    assert disk.read(log, 8, 100) == b"89"
    assert disk.read(log, 50) == b""
    assert disk.read(log, 50, 5) == b""
    assert disk.read(log, 0, 0) == b""
    assert list(disk.read_chunks(log, 4, 1)) == [b"1234", b"5678", b"9"]
    assert list(disk.read_chunks(log, offset=10)) == []


def test_pieces_see_what_is_appended_while_they_are_read(disk: Disk, log: str) -> None:
    pieces = disk.read_chunks(log, 3)
    assert next(pieces) == b"one"
    handle = disk.open_append(log)
    handle.append(b"two\n")
    assert list(pieces) == [b"\ntw", b"o\n"]
    handle.close()


def test_reading_what_is_no_file_is_an_error(disk: Disk, log: str) -> None:
    folder = os.path.dirname(log)
    for path, name in (
        (f"{folder}/missing", "ENOENT"),
        (folder, "EISDIR"),
        (f"{log}/below", "ENOTDIR"),
    ):
        with pytest.raises(StorageError, match=f"{re.escape(path)}: {name}"):
            disk.read(path)
        pieces = disk.read_chunks(path)
        with pytest.raises(StorageError, match=name):
            next(pieces)


def test_stat_tells_kinds_and_sizes_and_follows_no_link(subject: Subject, log: str) -> None:
    disk, root = subject.disk, subject.root
    disk.make_dirs(f"{root}/dir")
    subject.link("log", f"{root}/link")
    subject.link("nowhere", f"{root}/dangling")
    found = {name: disk.stat(f"{root}/{name}") for name in ("log", "dir", "link", "dangling")}
    kinds = {name: seen.kind if seen else None for name, seen in found.items()}
    assert kinds == {"log": "file", "dir": "dir", "link": "link", "dangling": "link"}
    assert found["log"] is not None
    assert found["log"].size_bytes == 4
    assert disk.stat(f"{root}/missing") is None
    assert disk.stat(f"{log}/below/it") is None


def test_stat_shows_that_a_file_was_replaced(disk: Disk, log: str) -> None:
    before = disk.stat(log)
    disk.replace(log, b"one\n", durable=False)
    after = disk.stat(log)
    assert before is not None
    assert after is not None
    assert before.inode != after.inode


def test_links_are_resolved_on_the_way_and_at_the_end(subject: Subject, log: str) -> None:
    disk, root = subject.disk, subject.root
    disk.make_dirs(f"{root}/a/b")
    subject.link("a/b", f"{root}/short")
    subject.link(f"{root}/log", f"{root}/a/b/log")
    subject.link("nowhere", f"{root}/dangling")
    assert disk.real_path(f"{root}/short/log") == f"{root}/log"
    assert disk.real_path(f"{root}/short/../x/./y") == f"{root}/a/x/y"
    assert disk.real_path(f"{root}/dangling/x") == f"{root}/nowhere/x"
    assert disk.read(f"{root}/short/log") == b"one\n"
    assert disk.list_dir(f"{root}/short") == ["log"]


def test_list_is_sorted_and_empty_where_nothing_is(disk: Disk, log: str) -> None:
    folder = os.path.dirname(log)
    for name in ("b", "a", ".c", "\xe4", "Z"):
        disk.replace(f"{folder}/{name}", b"", durable=False)
    assert disk.list_dir(folder) == [".c", "Z", "a", "b", "log", "\xe4"]
    assert disk.list_dir(f"{folder}/missing") == []
    with pytest.raises(StorageError, match="ENOTDIR"):
        disk.list_dir(log)


# --------------------------------------------------------------------------------------- changing


def test_directories_are_made_with_all_above_them(disk: Disk, log: str) -> None:
    folder = os.path.dirname(log)
    disk.make_dirs(f"{folder}/a/b/c")
    disk.make_dirs(f"{folder}/a/b")
    assert disk.list_dir(f"{folder}/a/b") == ["c"]
    for path in (log, f"{log}/below"):
        with pytest.raises(StorageError, match="EEXIST"):
            disk.make_dirs(path)


def test_replace_puts_a_new_file_in_place_of_the_old_one(disk: Disk, log: str) -> None:
    handle = disk.open_append(log)
    for durable in (False, True):
        disk.replace(log, b"new", durable=durable)
    assert disk.read(log) == b"new"
    assert disk.list_dir(os.path.dirname(log)) == ["log"]
    handle.append(b"to the old one")
    assert disk.read(log) == b"new"
    handle.close()


def test_a_link_is_itself_replaced_and_removed(subject: Subject, log: str) -> None:
    disk, link = subject.disk, f"{subject.root}/link"
    subject.link("log", link)
    disk.replace(link, b"new", durable=True)
    assert (disk.read(link), disk.read(log)) == (b"new", b"one\n")
    disk.unlink(link, durable=True)
    subject.link("log", link)
    disk.unlink(link, durable=True)
    assert disk.list_dir(subject.root) == ["log"]


def test_a_refused_replace_leaves_no_temporary_file(disk: Disk, log: str) -> None:
    folder = os.path.dirname(log)
    disk.make_dirs(f"{folder}/dir")
    for path in (f"{folder}/dir", f"{log}/below", f"{folder}/missing/f"):
        with pytest.raises(StorageError):
            disk.replace(path, b"", durable=True)
    assert disk.list_dir(folder) == ["dir", "log"]


def test_rename_moves_files_and_whole_directories(disk: Disk, log: str) -> None:
    folder = os.path.dirname(log)
    disk.make_dirs(f"{folder}/from/deep")
    disk.rename(log, f"{folder}/from/deep/log")
    disk.rename(f"{folder}/from", f"{folder}/to")
    assert disk.read(f"{folder}/to/deep/log") == b"one\n"
    disk.replace(f"{folder}/other", b"two\n", durable=False)
    disk.rename(f"{folder}/other", f"{folder}/to/deep/log")
    assert disk.read(f"{folder}/to/deep/log") == b"two\n"
    assert disk.list_dir(folder) == ["to"]


def test_an_impossible_rename_changes_nothing(disk: Disk, log: str) -> None:
    folder = os.path.dirname(log)
    disk.make_dirs(f"{folder}/full/inner")
    disk.make_dirs(f"{folder}/empty")
    for source, target, name in (
        ("missing", "log", "ENOENT"),
        ("log", "missing/log", "ENOENT"),
        ("log", "full", "EISDIR"),
        ("empty", "log", "ENOTDIR"),
        ("empty", "full", "ENOTEMPTY"),
        ("full", "full/inner/itself", "EINVAL"),
        ("log", "log/below", "ENOTDIR"),
    ):
        with pytest.raises(StorageError, match=name):
            disk.rename(f"{folder}/{source}", f"{folder}/{target}")
    assert disk.list_dir(folder) == ["empty", "full", "log"]
    assert disk.list_dir(f"{folder}/full") == ["inner"]


def test_unlink_of_what_is_missing_is_fine(disk: Disk, log: str) -> None:
    folder = os.path.dirname(log)
    for path in (log, log, f"{folder}/missing/f"):
        disk.unlink(path, durable=True)
    assert disk.list_dir(folder) == []
    disk.make_dirs(f"{folder}/dir")
    with pytest.raises(StorageError):
        disk.unlink(f"{folder}/dir", durable=False)


def test_truncate_cuts_and_rewrite_writes_where_it_is_told(disk: Disk, log: str) -> None:
    disk.truncate(log, 2)
    disk.rewrite(log, 1, b"NE")
    assert disk.read(log) == b"oNE"
    disk.rewrite(log, 5, b"!")
    assert disk.read(log) == b"oNE\0\0!"
    disk.sync_file(log)
    disk.sync_dir(os.path.dirname(log))
    for call in (
        lambda path: disk.truncate(path, 0),
        lambda path: disk.rewrite(path, 0, b"x"),
        disk.sync_file,
        disk.sync_dir,
        disk.open_append,
    ):
        with pytest.raises(StorageError, match="ENOENT"):
            call(f"{log}-missing")


# ------------------------------------------------------------------------------ append files, locks


def test_appends_follow_what_others_appended(subject: Subject, log: str) -> None:
    first, second = subject.disk.open_append(log), subject.another().open_append(log)
    first.append(b"two\n")
    second.append(b"three\n")
    first.append(b"four\n")
    first.sync()
    assert subject.disk.read(log) == b"one\ntwo\nthree\nfour\n"
    assert first.size() == second.size() == 19
    for handle in (first, second):
        handle.close()
        handle.close()
        with pytest.raises(StorageError, match="is closed"):
            handle.append(b"x")


def test_a_lock_has_one_holder(subject: Subject, log: str) -> None:
    path = f"{subject.root}/.lock"
    first, second = subject.disk.lock(path), subject.another().lock(path)
    assert first.try_acquire()
    assert not first.try_acquire()
    assert not second.try_acquire()
    second.release()
    assert not second.try_acquire()
    first.release()
    first.release()
    assert second.try_acquire()
    second.close()
    assert first.try_acquire()
    first.close()
    assert first.try_acquire()
    first.close()
    assert subject.disk.list_dir(subject.root) == [".lock", "log"]


def test_a_lock_that_nobody_refers_to_is_free(subject: Subject) -> None:
    path = f"{subject.root}/.lock"
    lock = subject.disk.lock(path)
    assert lock.try_acquire()
    del lock
    assert subject.disk.lock(path).try_acquire()


def test_a_swapped_lock_file_does_not_make_two_holders_of_the_next_ones(subject: Subject) -> None:
    path = f"{subject.root}/.lock"
    first, second, third = (subject.disk.lock(path) for _ in range(3))
    subject.disk.unlink(path, durable=False)
    assert first.try_acquire()
    assert not second.try_acquire()
    assert not third.try_acquire()


def test_a_lock_needs_a_place_for_its_file(disk: Disk, log: str) -> None:
    with pytest.raises(StorageError, match="Opening the lock"):
        disk.lock(f"{log}/below")
    with pytest.raises(StorageError, match="EISDIR"):
        disk.lock(os.path.dirname(log))


# ------------------------------------------------------------------------------------ both at once


class RecordedOs:
    """``os`` for ``storage.disk``: notes each call that changes or syncs something."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.fail_at = 0
        """Number of the step that fails, if it is ``fail_what``."""
        self.fail_what = ""
        self.errno = 0
        self._names: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _step(self, what: str, act: Callable[[], T]) -> T:
        if len(self.steps) + 1 == self.fail_at and comparable([what]) == [self.fail_what]:
            self.steps.append(what)
            raise OSError(self.errno, os.strerror(self.errno))
        result = act()
        self.steps.append(what)
        return result

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        def act() -> int:
            descriptor = os.open(path, flags, mode)
            self._names[descriptor] = path
            return descriptor

        if flags & os.O_CREAT and not os.path.lexists(path):
            return self._step(f"create {path}", act)
        return act()

    def write(self, descriptor: int, data: bytes) -> int:
        what = f"write {self._names[descriptor]} {len(data)}"
        return self._step(what, lambda: os.write(descriptor, data))

    def ftruncate(self, descriptor: int, size_bytes: int) -> None:
        what = f"truncate {self._names[descriptor]} {size_bytes}"
        self._step(what, lambda: os.ftruncate(descriptor, size_bytes))

    def fsync(self, descriptor: int) -> None:
        kind = "sync_dir" if os.path.isdir(self._names[descriptor]) else "sync_file"
        self._step(f"{kind} {self._names[descriptor]}", lambda: None)

    def fdatasync(self, descriptor: int) -> None:
        self.fsync(descriptor)

    def replace(self, source: str, target: str) -> None:
        self._step(f"rename {source} {target}", lambda: os.replace(source, target))

    def unlink(self, path: str) -> None:
        self._step(f"unlink {path}", lambda: os.unlink(path))

    def mkdir(self, path: str) -> None:
        self._step(f"mkdir {path}", lambda: os.mkdir(path))


def sim_steps(disk: SimDisk) -> list[str]:
    details = {
        "write": lambda op: f" {len(op.data)}",
        "truncate": lambda op: f" {op.offset}",
        "rename": lambda op: f" {op.target}",
    }
    return [f"{op.kind} {op.path}{details.get(op.kind, lambda _: '')(op)}" for op in disk.log]


def comparable(steps: list[str]) -> list[str]:
    """Without the numbers of temporary files, which hold the real pid."""
    return [re.sub(r"\.tmp-\d+-\d+", ".tmp", step) for step in steps]


def without_temps(tree: dict[str, bytes | str | None]) -> dict[str, bytes | str | None]:
    return {re.sub(r"\.tmp-\d+-\d+", ".tmp", path): content for path, content in tree.items()}


def real_tree(root: str) -> dict[str, bytes | str | None]:
    found: dict[str, bytes | str | None] = {}
    for folder, folders, names in os.walk(root):
        for name in [*folders, *names]:
            path = f"{folder}/{name}"
            if os.path.islink(path):
                found[path] = os.readlink(path)
            elif os.path.isdir(path):
                found[path] = None
            else:
                with open(path, "rb") as file:
                    found[path] = file.read()
    return found


Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def random_call(chance: random.Random, root: str) -> Call:
    def path() -> str:
        depth = chance.choice((1, 1, 2, 3))
        return "/".join([root, *(chance.choice("abcd") for _ in range(depth))])

    data = chance.randbytes(chance.choice((0, 1, 7, 50)))
    number = chance.randrange(20)
    calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "read": ((path(), number, chance.choice((None, 0, 5))), {}),
        "stat": ((path(),), {}),
        "real_path": ((path(),), {}),
        "list_dir": ((path(),), {}),
        "make_dirs": ((path(),), {}),
        "replace": ((path(), data), {"durable": chance.random() < 0.5}),
        "rename": ((path(), path()), {}),
        "unlink": ((path(),), {"durable": chance.random() < 0.5}),
        "truncate": ((path(), number), {}),
        "rewrite": ((path(), number, data), {}),
        "sync_file": ((path(),), {}),
        "sync_dir": ((path(),), {}),
        "append": ((path(), data), {}),
        "link": ((chance.choice(("a", "b/c", "../a", "loop", path())), path()), {}),
    }
    name = chance.choice([*calls, "replace", "make_dirs", "append"])
    return name, *calls[name]


def answer(subject: Subject, call: Call) -> object:
    """What a call comes to, as far as both disks must agree."""
    name, args, options = call
    try:
        if name == "append":
            handle = subject.disk.open_append(args[0])
            try:
                handle.append(args[1])
                handle.sync()
                return handle.size()
            finally:
                handle.close()
        if name == "link":
            return subject.link(*args)
        result = getattr(subject.disk, name)(*args, **options)
    except StorageError as error:
        return str(error)
    except OSError as error:  # of a link that the test itself makes
        return f"link: {errno.errorcode[error.errno or 0]}"
    if name == "stat" and result is not None:
        return result.kind, result.size_bytes if result.kind != "dir" else 0
    return result


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> RecordedOs:
    recorder = RecordedOs()
    monkeypatch.setattr(disk_module, "os", recorder)
    return recorder


def both_answer(
    real: Subject, sim: Subject, recorded: RecordedOs, call: Call, failure: tuple[int, int]
) -> tuple[object, object]:
    """The answers of both, when the step of this number fails with this errno in both.

    The simulated one goes first and says which step that is; the real one may try others before,
    which do nothing and so have no number, such as the removal of a file that is not there.
    """
    assert isinstance(sim.disk, SimDisk)
    recorded.steps.clear()
    sim.disk.log.clear()
    recorded.fail_at, recorded.errno = failure
    if recorded.fail_at:
        sim.disk.fail(*failure)
    simulated = answer(sim, call)
    sim.disk.heal()
    steps = comparable(sim_steps(sim.disk))
    recorded.fail_what = steps[failure[0] - 1] if 0 < failure[0] <= len(steps) else ""
    return answer(real, call), simulated


@pytest.mark.skipif(os.name == "nt", reason="Windows syncs no directories")
@pytest.mark.parametrize("failing", [False, True], ids=["whole", "failing"])
@pytest.mark.parametrize("seed", range(stories))
def test_both_disks_do_the_same_in_the_same_steps(
    seed: int, failing: bool, workspace: str, recorded: RecordedOs
) -> None:
    real, sim = make_subject("RealDisk", workspace), make_subject("SimDisk", workspace)
    assert isinstance(sim.disk, SimDisk)
    chance = random.Random(seed)
    for subject in (real, sim):
        subject.disk.make_dirs(workspace)
    for number in range(calls_per_story):
        call = random_call(chance, workspace)
        failure = (0, 0)
        if failing and call[0] != "link" and chance.random() < 0.5:
            failure = (chance.randrange(1, 6), chance.choice((errno.EIO, errno.ENOSPC)))
        answers = both_answer(real, sim, recorded, call, failure)
        story = f"call {number}: {call} with failure {failure}"
        if call[0] != "link":
            assert answers[0] == answers[1], story
            assert comparable(sim_steps(sim.disk)) == comparable(recorded.steps), story
        left = {
            path: it for path, it in sim.disk.tree().items() if path.startswith(f"{workspace}/")
        }
        # A temporary file stays where its own removal failed; its name holds the real pid.
        assert without_temps(left) == without_temps(real_tree(workspace)), story


# ---------------------------------------------------------------------------- trees in the making


def test_a_new_file_is_empty_and_never_takes_a_name_from_another(disk: Disk, log: str) -> None:
    path = f"{log}.new"
    disk.create_file(path)
    disk.open_append(path).append(b"x")
    assert disk.read(path) == b"x"
    for taken in (path, log):
        with pytest.raises(StorageError, match="EEXIST"):
            disk.create_file(taken)


def test_a_file_gets_back_the_time_it_had(disk: Disk, log: str) -> None:
    disk.restore_facts(log, mtime_ns=1_700_000_000_123_456_789, executable=False)
    seen = disk.stat(log)
    assert seen is not None
    assert (seen.mtime_ns, seen.executable) == (1_700_000_000_123_456_789, False)
    assert disk.read(log) == b"one\n"


def test_a_file_gets_back_the_right_to_be_run(workspace: str) -> None:
    disk, path = RealDisk(), f"{workspace}/tool"
    disk.create_file(path)
    disk.restore_facts(path, mtime_ns=5, executable=True)
    seen = disk.stat(path)
    assert seen is not None
    assert (seen.executable, seen.mtime_ns) == (True, 5)


def test_a_tree_is_removed_and_what_its_links_lead_to_is_not(subject: Subject, log: str) -> None:
    disk, tree = subject.disk, f"{subject.root}/tree"
    disk.make_dirs(f"{tree}/a/b")
    disk.replace(f"{tree}/a/b/file", b"x", durable=False)
    subject.link(log, f"{tree}/a/link")
    subject.link(subject.root, f"{tree}/a/up")
    disk.remove_tree(tree)
    disk.remove_tree(tree)
    assert disk.stat(tree) is None
    assert disk.read(log) == b"one\n"
