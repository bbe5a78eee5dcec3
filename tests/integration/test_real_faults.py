"""Faults of a real machine that no simulation has: stopped processes, mounts, lost permissions.

Real processes, real locks, a real clock. Nothing waits longer than it must: whatever another
process is to reach is asked for again and again until it is there.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from tests.crash.checks import check_second_recovery
from tests.crash.machine import Machine, check_no_litter, replay
from tests.integration.talking_child import TalkingChild

from perdure import HaltRuntime
from perdure.core.model import Policies
from perdure.errors import LeaseHeldError, StorageError
from perdure.storage.disk import RealDisk

T = TypeVar("T")
wait_s_max = 20.0
lease_ttl_s = 0.3
nobody = 65_534

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def until(found: Callable[[], T | None]) -> T:
    """What the call gives once it gives something."""
    give_up_at = time.monotonic() + wait_s_max
    while (result := found()) is None:
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(0.005)
    return result


class Child(TalkingChild):
    """A process of ``fault_child``."""

    def __init__(self, root: str, uid: int | None = None) -> None:
        super().__init__("tests.integration.fault_child", root, uid)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def children(root: str, count: int = 1, uid: int | None = None) -> Iterator[list[Child]]:
    found = [Child(root, uid) for _ in range(count)]
    try:
        assert [child.hear() for child in found] == ["ready"] * count
        yield found
    finally:
        for child in found:
            child.close()


def with_short_lease(root: str) -> None:
    with HaltRuntime(root, "T", policies=Policies(lease_ttl_s=lease_ttl_s)) as runtime:
        runtime.add_node("N1", "the only one", outputs=["artifacts/N1/a.txt"])


def notes(root: str) -> list[str]:
    events = HaltRuntime.attach(root).events()
    return [e.payload["text"] for e in events if e.kind == "NOTE" and e.payload["op"] == "note"]


# A coordinator that is stopped, and comes back


def resumed(root: str) -> HaltRuntime | None:
    with contextlib.suppress(LeaseHeldError):
        return HaltRuntime.resume(root, actor="coordinator:other")
    return None


def test_stopped_holder_loses_the_lease_at_its_expiry_and_is_fenced_when_it_goes_on(
    workspace: str,
) -> None:
    root = f"{workspace}/w"
    with_short_lease(root)
    with children(root) as (old,):
        assert old.ask("coordinate") == "coordinates"
        assert "committed" in old.ask("note before")
        os.kill(old.process.pid, signal.SIGSTOP)
        new = until(lambda: resumed(root))
        (takeover,) = [e for e in new.events() if e.payload.get("op") == "takeover"]
        assert "is stopped" in takeover.payload["text"]
        new.note("by the new one")
        length = os.path.getsize(f"{root}/journal.jsonl")
        os.kill(old.process.pid, signal.SIGCONT)
        for call in ("note after", "start N1"):
            refused = old.ask(call)
            assert (refused["refused"], refused["exit_code"]) == ("fenced", 5)
        assert os.path.getsize(f"{root}/journal.jsonl") == length
        assert old.ask("close") == "closed"
        new.note("still mine")
        new.close()
    assert notes(root) == ["before", "by the new one", "still mine"]


@linux_only
def test_holder_that_is_stopped_in_the_middle_of_a_commit_is_waited_for_until_it_is_killed(
    workspace: str,
) -> None:
    """It has the operating system's lock, which nobody takes from it; its death frees it."""
    root = f"{workspace}/w"
    with_short_lease(root)
    with children(root) as (old,):
        assert old.ask("coordinate") == "coordinates"
        old.say("stop-in-a-commit")
        until(lambda: True if state_of(old.process.pid) == "T" else None)
        left = replay_of_whole_commits(root)
        lock = RealDisk().lock(f"{root}/.journal.lock")
        assert not lock.try_acquire()
        assert HaltRuntime.attach(root).frontier() == ["N1"], "reading takes no lock"
        old.kill()
        assert lock.try_acquire()
        lock.close()
        with HaltRuntime.resume(root) as new:
            assert any("torn tail" in line for line in new.recovered.found)
            new.note("on it goes")
    assert read(root, "journal.jsonl").startswith(left)
    assert notes(root) == ["on it goes"]
    replay(root)


def state_of(pid: int) -> str:
    """``T`` for a process that is stopped."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0]


def read(root: str, path: str) -> bytes:
    with open(f"{root}/{path}", "rb") as file:
        return file.read()


def replay_of_whole_commits(root: str) -> bytes:
    runtime = HaltRuntime.attach(root)
    return read(root, "journal.jsonl")[: runtime.engine.journal.tip.offset]


# A file system that is full, read-only, or closed to us


@contextlib.contextmanager
def mounted(directory: str, size: str) -> Iterator[str]:
    """A file system in memory, for whoever may mount one."""
    os.mkdir(directory)
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting is refused here: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


def check_after_fault(root: str, acknowledged: bytes) -> None:
    """What was acknowledged is there, a new process goes on, and another finds nothing to do."""
    assert read(root, "journal.jsonl").startswith(acknowledged)
    with HaltRuntime.resume(root) as runtime:
        assert set(runtime.integrity_walk().values()) <= {"PASS"}
        assert all(node.state != "DONE" or node.artifacts for node in runtime.state.nodes.values())
        runtime.note("on it goes")
    check_no_litter(root)
    machine = Machine(root)
    machine.boot_process()
    machine.open().close()
    check_second_recovery(machine)
    machine.kill_process()


def work_until_it_fails(runtime: HaltRuntime, root: str) -> StorageError:
    """Node after node with a file of 20 KB each, whether there is place for it or not."""
    try:
        for number in range(1_000):
            name = f"W{number}"
            path = f"{root}/artifacts/{name}/a.bin"
            runtime.add_node(name, name, outputs=[f"artifacts/{name}/a.bin"])
            runtime.start(name)
            with contextlib.suppress(OSError), open(path, "wb") as file:
                file.write(bytes(20_000))
            if os.path.exists(path):
                runtime.submit(name)
            else:
                runtime.fail(name, "transient-environment", "no place for its file")
            runtime.note("x" * 10_000)
    except StorageError as error:
        return error
    raise AssertionError("the file system did not fill up")


def test_file_system_that_fills_up_while_nodes_are_worked_on_loses_nothing(workspace: str) -> None:
    with mounted(f"{workspace}/small", "1m") as small:
        root = f"{small}/w"
        with open(f"{small}/ballast", "wb") as file:
            file.write(bytes(200_000))
        runtime = HaltRuntime(root, "T")
        error = work_until_it_fails(runtime, root)
        assert (error.code, error.exit_code) == ("disk_full", 7)
        assert sum(node.state == "DONE" for node in runtime.state.nodes.values()) > 5
        acknowledged = read(root, "journal.jsonl")[: runtime.engine.journal.tip.offset]
        runtime.close()
        os.unlink(f"{small}/ballast")
        check_after_fault(root, acknowledged)


def test_file_system_that_becomes_read_only_between_two_calls_is_named(workspace: str) -> None:
    with mounted(f"{workspace}/small", "2m") as small:
        root = f"{small}/w"
        with HaltRuntime(root, "T") as runtime:
            runtime.add_node("N1", "the only one", outputs=["artifacts/N1/a.txt"])
        acknowledged = read(root, "journal.jsonl")
        attached = HaltRuntime.attach(root)
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)
        for call in (lambda: attached.note("x"), lambda: HaltRuntime.resume(root)):
            with pytest.raises(StorageError) as caught:
                call()
            assert (caught.value.code, caught.value.exit_code) == ("read_only", 7)
            assert small in str(caught.value)
        assert attached.frontier() == HaltRuntime.attach(root).frontier() == ["N1"]
        attached.close()
        subprocess.run(["mount", "-o", "remount,rw", small], check=True)
        check_after_fault(root, acknowledged)


@pytest.fixture
def of_nobody() -> Iterator[tuple[str, int | None]]:
    """A directory and the user it belongs to: one whom permissions stop, unlike root."""
    directory = tempfile.mkdtemp(prefix="perdure-")
    uid = nobody if os.geteuid() == 0 else None
    os.chmod(directory, 0o755)
    yield directory, uid
    shutil.rmtree(directory)


@pytest.mark.parametrize("lost", ["contracts", "artifacts"])
def test_directory_that_is_closed_to_us_in_the_middle_of_work_is_named(
    of_nobody: tuple[str, int | None], lost: str
) -> None:
    root, uid = f"{of_nobody[0]}/w", of_nobody[1]
    with_short_lease(root)
    if uid is not None:
        subprocess.run(["chown", "-R", str(uid), root], check=True)
    with children(root, uid=uid) as (child,):
        assert child.ask("coordinate") == "coordinates"
        os.chmod(f"{root}/{lost}", 0o555)
        length = os.path.getsize(f"{root}/journal.jsonl")
        refused = child.ask("start N1")
        assert (refused["refused"], refused["exit_code"]) == ("permission_denied", 7), refused
        assert f"{root}/{lost}" in refused["text"]
        assert os.path.getsize(f"{root}/journal.jsonl") == length
        os.chmod(f"{root}/{lost}", 0o755)
        assert "committed" in child.ask("start N1")
        assert child.ask("close") == "closed"
    check_after_fault(root, replay_of_whole_commits(root))


# Many processes, some of which are killed


def test_of_eight_processes_one_has_the_lease_and_each_death_hands_it_to_one_other(
    workspace: str,
) -> None:
    root = f"{workspace}/w"
    with_short_lease(root)
    with children(root, 8) as racers:
        living = list(racers)
        while living:
            for child in living:
                child.say("coordinate")
            told = {child: child.hear() for child in living}
            (holder,) = [child for child, answer in told.items() if answer == "coordinates"]
            assert {a["refused"] for c, a in told.items() if c is not holder} <= {"lease_held"}
            assert "committed" in holder.ask("note mine")
            holder.kill()
            living.remove(holder)
    mine = [e for e in HaltRuntime.attach(root).events() if e.payload.get("text") == "mine"]
    assert len({event.epoch for event in mine}) == len({event.actor for event in mine}) == 8
    state, _ = replay(root)
    assert state.epoch == max(event.epoch for event in mine)


def test_of_eight_processes_that_commit_at_once_and_half_of_which_are_killed_nothing_is_lost(
    workspace: str,
) -> None:
    root = f"{workspace}/w"
    with_short_lease(root)
    acknowledged: list[str] = []
    with children(root, 8) as racers:
        for number, child in enumerate(racers):
            child.say(f"append p{number} 60")
        for number, child in enumerate(racers[::2]):
            acknowledged += [child.hear() for _ in range(5 * (number + 1))]
            child.kill()
        for child in racers:
            while (line := child.hear()) is not None and line != "appended":
                acknowledged.append(line)
    written = notes(root)
    assert len(written) == len(set(written))
    assert set(acknowledged) <= set(written)
    for number in range(8):
        mine = [text for text in written if text.startswith(f"p{number}-")]
        assert mine == [f"p{number}-{count}" for count in range(len(mine))]
        assert number % 2 == 0 or len(mine) == 60
    replay(root)
