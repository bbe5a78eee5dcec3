"""The field cases that concern a workspace and the processes at it, one test or a few for each.

What went wrong for people doing this job with other tools; each test is named after its case.
"""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.crash.disk import CutDisk, FailingFuse
from tests.crash.machine import Machine, check_no_litter, replay

from perdure.core.codec import encode_commit
from perdure.core.events import Draft
from perdure.errors import (
    BusyError,
    CorruptError,
    FencedError,
    LeaseHeldError,
    StorageError,
    TransitionError,
)
from perdure.runtime.halt import HaltRuntime
from perdure.storage.lease import Lease

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MEBIBYTE = 1 << 20


class Child:
    """A process of ``field_child``, stopped at its start line."""

    def __init__(self, what: str, root: str, name: str, count: int = 0) -> None:
        command = [sys.executable, "-m", "tests.integration.field_child", what, root, name]
        self.process = subprocess.Popen(
            [*command, str(count)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> tuple[int, Any]:
        """Its exit code and what it told last."""
        out, _ = self.process.communicate()
        lines = out.strip().splitlines()
        return self.process.returncode, json.loads(lines[-1]) if lines else None


def race(what: str, root: str, names: list[str], count: int = 0) -> dict[str, tuple[int, Any]]:
    """Several children begin at once; how each of them ended."""
    children = {name: Child(what, root, name, count) for name in names}
    for child in children.values():
        child.go()
    return {name: child.end() for name, child in children.items()}


def with_one_node(root: str) -> None:
    with HaltRuntime(root, "T") as runtime:
        runtime.add_node("N1", "the only one", outputs=["artifacts/N1/a.txt"])


def write(root: str, path: str, data: bytes) -> None:
    full = f"{root}/{path}"
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "wb") as file:
        file.write(data)


def read(root: str, path: str) -> bytes:
    with open(f"{root}/{path}", "rb") as file:
        return file.read()


def append_to_journal(root: str, data: bytes) -> None:
    with open(f"{root}/journal.jsonl", "ab") as file:
        file.write(data)


def finish_node(runtime: HaltRuntime, node_id: str, data: bytes = b"done") -> None:
    runtime.start(node_id)
    write(runtime.engine.layout.root, f"artifacts/{node_id}/a.txt", data)
    runtime.submit(node_id)
    assert runtime.node(node_id).state == "DONE"


# F1, F2: what is left of an unfinished append


@pytest.mark.parametrize(
    "tail", [b'{"seq":5,"ts":"20', b'{"seq":5,"ts":"","kind":"NOTE","actor":""}']
)
def test_f01_record_without_newline_is_set_aside_and_reported(workspace: str, tail: bytes) -> None:
    root = f"{workspace}/w"
    with HaltRuntime(root, "T") as runtime:
        runtime.note("one")
        runtime.note("two")
    before = read(root, "journal.jsonl")
    append_to_journal(root, tail)
    HaltRuntime.attach(root).note("three")
    assert read(root, "journal.jsonl").startswith(before)
    state, _ = replay(root)
    (fragment,) = [entry for entry in state.artifacts.values() if entry.kind == "fragment"]
    assert fragment.status == "quarantined"
    assert read(root, fragment.path) == tail
    texts = [event.payload.get("text") for event in HaltRuntime.attach(root).events()]
    assert texts[-4:-1] == ["one", "two", "three"]


def test_f02_half_a_character_at_the_end_does_not_stop_the_next_commit(workspace: str) -> None:
    root = f"{workspace}/w"
    HaltRuntime(root, "T").close()
    append_to_journal(root, b'{"t":"\xe2\x82')
    with HaltRuntime.resume(root) as runtime:
        assert any("torn tail" in line for line in runtime.recovered.found)
        runtime.note("on it goes")
    state, _ = replay(root)
    (fragment,) = state.artifacts.values()
    assert read(root, fragment.path) == b'{"t":"\xe2\x82'


# F3: no space left


@contextlib.contextmanager
def small_file_system(directory: str) -> Iterator[str]:
    """A file system of 1 MB, for whoever may mount one."""
    os.mkdir(directory)
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"mounting is refused here: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


def fill_up(runtime: HaltRuntime) -> tuple[int, StorageError]:
    for number in range(1_000):
        try:
            runtime.note(f"{number} ".ljust(30_000, "x"))
        except StorageError as error:
            return number, error
    raise AssertionError("the disk did not fill up")


def check_full_disk(runtime: HaltRuntime, error: StorageError, acknowledged: bytes) -> None:
    root = runtime.engine.layout.root
    assert (error.code, error.exit_code) == ("disk_full", 7)
    assert "disk space" in str(error)
    assert "ermission" not in str(error)
    check_no_litter(root)
    assert read(root, "journal.jsonl").startswith(acknowledged)
    with pytest.raises(StorageError, match="earlier failure"):
        runtime.note("once more")


def test_f03_full_file_system_is_named_and_work_goes_on_once_there_is_space(workspace: str) -> None:
    with small_file_system(f"{workspace}/small") as small:
        write(small, "ballast", b"b" * 300_000)
        root = f"{small}/w"
        runtime = HaltRuntime(root, "T")
        written, error = fill_up(runtime)
        assert written > 10
        acknowledged = read(root, "journal.jsonl")[: runtime.engine.journal.tip.offset]
        check_full_disk(runtime, error, acknowledged)
        runtime.close()
        os.unlink(f"{small}/ballast")
        with HaltRuntime.resume(root) as again:
            assert read(root, "journal.jsonl").startswith(acknowledged)
            again.note("there is space")
        state, _ = replay(root)
        assert state.seq > written


def test_f03_disk_that_fills_up_in_the_middle_of_an_append(workspace: str) -> None:
    machine = Machine(f"{workspace}/w")
    machine.boot_process()
    machine.open("T")
    machine.boot_process(FailingFuse(60, 28, lasting=True))
    runtime = machine.open()
    written, error = fill_up(runtime)
    assert written > 1
    tip = runtime.engine.journal.tip.offset
    check_full_disk(runtime, error, machine.journal()[:tip])
    kept = machine.journal()[:tip]
    machine.boot_process()
    machine.open().note("there is space")
    assert machine.journal().startswith(kept)
    replay(machine.root)


# F4, F5, F7: many processes at once


def check_appended(root: str, names: list[str], count: int) -> None:
    ended = race("append", root, names, count)
    assert {code for code, _ in ended.values()} == {0}, ended
    seen: dict[str, list[int]] = {name: [] for name in names}
    for event in HaltRuntime.attach(root).events():
        if event.kind == "NOTE":
            name, number = event.payload["text"].split()[0].rsplit("-", 1)
            seen[name].append(int(number))
    assert seen == {name: list(range(count)) for name in names}
    state, tip = replay(root)
    assert state.seq == tip.seq >= len(names) * count


def test_f04_eight_processes_append_and_no_record_is_lost_or_torn(workspace: str) -> None:
    root = f"{workspace}/w"
    HaltRuntime(root, "T").close()
    check_appended(root, [f"p{number}" for number in range(8)], 300)


@pytest.mark.crash_full
def test_f04_eight_processes_append_three_thousand_records_each(workspace: str) -> None:
    root = f"{workspace}/w"
    HaltRuntime(root, "T").close()
    check_appended(root, [f"p{number}" for number in range(8)], 3_000)


def test_f05_of_eight_processes_that_claim_a_node_one_has_it(workspace: str) -> None:
    root = f"{workspace}/w"
    with_one_node(root)
    ended = race("claim", root, [f"p{number}" for number in range(8)])
    winners = [name for name, (code, _) in ended.items() if code == 0]
    assert len(winners) == 1, ended
    for name, (code, told) in ended.items():
        if name not in winners:
            assert code in (4, 5)
            assert told["code"] == "already_running", told
            assert f"executor:{winners[0]}" in told["text"]
    state, _ = replay(root)
    (contract,) = state.contracts.values()
    assert contract.executor.actor == f"executor:{winners[0]}"


def test_f07_two_processes_that_update_their_own_nodes_lose_nothing(workspace: str) -> None:
    root = f"{workspace}/w"
    with HaltRuntime(root, "T") as runtime:
        runtime.add_node("A", "one")
        runtime.add_node("B", "other")
    ended = race("update", root, ["A", "B"], 200)
    assert {code for code, _ in ended.values()} == {0}, ended
    state, _ = replay(root)
    assert [state.nodes[name].priority for name in "AB"] == [200, 200]
    assert [len(state.nodes[name].amended_by) for name in "AB"] == [200, 200]


# F8, F9, F10, F14: leases


def lease_of(machine: Machine, **changes: Any) -> bytes:
    me = machine.processes.me()
    now = machine.clock.now()
    fields = {
        "holder": "coordinator:main",
        "epoch": 7,
        "host": me.host,
        "boot_id": me.boot_id,
        "pid": me.pid,
        "started": me.started,
        "acquired_at": now,
        "expires_at": now + 60.0,
        **changes,
    }
    assert set(fields) <= set(Lease.__struct_fields__)
    return json.dumps(fields).encode()


@pytest.mark.parametrize("case", ["empty", "reused pid", "another boot"])
def test_f08_lease_that_binds_nobody_is_taken_over_with_a_note(workspace: str, case: str) -> None:
    machine = Machine(f"{workspace}/w")
    machine.boot_process()
    machine.open("T").close()
    leases = {
        "empty": b"",
        "reused pid": lease_of(machine, started=3.0),
        "another boot": lease_of(machine, boot_id="boot-0"),
    }
    machine.write("lease.json", leases[case])
    machine.boot_process()
    runtime = machine.open()
    notes = [event for event in runtime.events() if event.payload.get("op") == "takeover"]
    assert len(notes) == 1
    assert notes[0].epoch == runtime.engine.epoch
    assert runtime.engine.epoch == (2 if case == "empty" else 8)


def test_f08_lease_of_another_host_is_refused_until_it_expires(workspace: str) -> None:
    machine = Machine(f"{workspace}/w")
    machine.boot_process()
    machine.open("T").close()
    machine.write("lease.json", lease_of(machine, host="elsewhere"))
    before = machine.journal()
    machine.boot_process()
    for opening in (machine.open, lambda: machine.attach().note("hello")):
        with pytest.raises(LeaseHeldError, match="elsewhere") as caught:
            opening()
        assert caught.value.exit_code == 5
    assert machine.journal() == before
    machine.clock.advance(61.0)
    assert "another host" in machine.open().recovered.found[0]


@pytest.mark.parametrize("step_s", [-3_600.0, 3_600.0])
def test_f09_stepped_clock_changes_neither_order_nor_ownership(
    workspace: str, step_s: float
) -> None:
    machine = Machine(f"{workspace}/w")
    machine.boot_process()
    runtime = machine.open("T")
    owner, pid = machine.world(), machine.pid
    runtime.note("before")
    machine.clock.step(step_s)
    runtime.note("after")
    machine.clock.advance(25.0)  # a renewal is due
    runtime.note("renewed")
    machine.clock.step(-step_s)
    machine.clock.advance(25.0)
    runtime.note("renewed again")
    other = owner._replace(processes=machine.processes.seen_from(pid + 1), disk=CutDisk())
    with pytest.raises(LeaseHeldError):
        HaltRuntime.resume(machine.root, world=other)
    runtime.note("still mine")
    texts = [event.payload.get("text") for event in runtime.events() if event.kind == "NOTE"]
    assert texts == ["before", "after", "renewed", "renewed again", "still mine"]
    assert [event.seq for event in runtime.events()] == list(range(1, runtime.seq_last + 1))


def test_f10_coordinator_that_comes_back_is_fenced_and_offers_nothing_done(workspace: str) -> None:
    machine = Machine(f"{workspace}/w")
    machine.boot_process()
    old = machine.open("T")
    old.add_node("N1", "the only one", outputs=["artifacts/N1/a.txt"])
    machine.processes.stop(machine.pid)  # a laptop lid is closed
    machine.clock.advance(3_600.0)
    world = machine.world()._replace(
        processes=machine.processes.seen_from(machine.pid + 1), disk=CutDisk()
    )
    machine.processes.stop(machine.pid)
    with HaltRuntime.resume(machine.root, world=world) as new:
        finish_node(new, "N1")
        machine.processes.carry_on(machine.pid)
        for call in (lambda: old.note("hello"), lambda: old.start("N1")):
            with pytest.raises(FencedError) as caught:
                call()
            assert caught.value.exit_code == 5
        assert old.frontier() == []
        assert old.node("N1").state == "DONE"
    journal = machine.journal()
    with pytest.raises(FencedError):  # also after the new one has gone
        old.start("N1")
    old.close()
    assert machine.journal() == journal


def test_f14_of_two_resumes_at_once_one_wins(workspace: str) -> None:
    root = f"{workspace}/w"
    with_one_node(root)
    children = {name: Child("coordinate", root, name) for name in ("a", "b")}
    for child in children.values():
        child.go()
    told = {name: json.loads(child.line()) for name, child in children.items()}
    winners = [name for name, line in told.items() if "resumed" in line]
    assert len(winners) == 1, told
    (winner,) = winners
    children[winner].go()
    codes = {name: child.end()[0] for name, child in children.items()}
    assert codes.pop(winner) == 0
    assert codes.popitem()[1] == 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_f14_forked_child_that_closes_does_not_give_the_lease_away(workspace: str) -> None:
    root = f"{workspace}/w"
    with_one_node(root)
    (ended,) = race("fork", root, ["f"]).values()
    assert ended == (0, {"held": True, "epoch": 2})
    texts = [event.payload.get("text") for event in HaltRuntime.attach(root).events()]
    assert texts[-2:] == ["before the fork", "after the child has closed"]


# F15, F17: artifacts that cannot be read, or are not what they were


class UnreadableDisk(CutDisk):
    """A medium with a bad sector in one file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def read_chunks(
        self, path: str, chunk_bytes: int = 1 << 20, offset: int = 0
    ) -> Iterator[bytes]:
        if path == self.path:
            raise StorageError.from_os(OSError(5, "Input/output error"), path, "Reading")
        return super().read_chunks(path, chunk_bytes, offset)


def test_f15_unreadable_artifact_is_reported_and_the_rest_recovers(workspace: str) -> None:
    machine = Machine(f"{workspace}/w")
    machine.boot_process()
    runtime = machine.open("T")
    for name in ("N1", "N2"):
        runtime.add_node(name, "one of two", outputs=[f"artifacts/{name}/a.txt"])
    runtime.move_task("EXECUTING")
    finish_node(runtime, "N1")
    runtime.start("N2")
    os.utime(f"{machine.root}/artifacts/N1/a.txt")
    machine.boot_process()
    machine.disk = UnreadableDisk(f"{machine.root}/artifacts/N1/a.txt")
    runtime = machine.open()
    assert runtime.recovered.suspects == ("N1",)
    assert any("N1" in line and "EIO" in line for line in runtime.recovered.found)
    assert (runtime.node("N1").state, runtime.node("N2").state) == ("DONE", "RETRYABLE")
    runtime.close()
    machine.boot_process()
    runtime = machine.open()  # the sector can be read again
    assert runtime.recovered.suspects == ()
    assert (runtime.node("N1").state, runtime.node("N2").state) == ("DONE", "RETRYABLE")


@pytest.mark.parametrize("keep_time", [False, True])
def test_f17_changed_byte_of_an_artifact_is_named(workspace: str, keep_time: bool) -> None:
    root = f"{workspace}/w"
    with_one_node(root)
    with HaltRuntime.resume(root) as runtime:
        finish_node(runtime, "N1", b"original")
    path = f"{root}/artifacts/N1/a.txt"
    stat = os.stat(path)
    write(root, "artifacts/N1/a.txt", b"oRiginal")
    if keep_time:
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with HaltRuntime.resume(root) as runtime:
        if not keep_time:
            assert runtime.recovered.suspects == ("N1",)
            assert any("A-N1" in line and "changed" in line for line in runtime.recovered.found)
        assert not runtime.verify_artifact("A-N1")
        assert runtime.integrity_walk()["A-N1"].startswith("FAIL: changed")
        assert runtime.node("N1").state == "DONE"


# F19: damage to the journal


def journal_with_notes(root: str, count: int = 20) -> bytes:
    with HaltRuntime(root, "T") as runtime:
        for number in range(count):
            runtime.note(f"note number {number}")
    return read(root, "journal.jsonl")


def forget_projections(root: str) -> None:
    for name in (".snapshot.json", "task-graph.json", "checkpoint.json", "artifacts/registry.json"):
        os.unlink(f"{root}/{name}")


def test_f19_flipped_byte_is_named_with_line_and_offset(workspace: str) -> None:
    root = f"{workspace}/w"
    data = journal_with_notes(root)
    chance = random.Random(19)
    for _ in range(50):
        position = chance.randrange(len(data) - data[::-1].index(b"\n", 1))
        damaged = bytearray(data)
        damaged[position] ^= 1 << chance.randrange(8)
        write(root, "journal.jsonl", bytes(damaged))
        with contextlib.suppress(FileNotFoundError):
            forget_projections(root)
        with pytest.raises(CorruptError) as caught:
            HaltRuntime.resume(root)
        assert caught.value.exit_code == 6
        line = data.count(b"\n", 0, position) + 1
        start = data.rfind(b"\n", 0, position) + 1
        assert f"line {line}, byte {start}" in str(caught.value), (position, damaged[position])
        assert read(root, "journal.jsonl") == bytes(damaged)


def test_f19_zero_filled_tail_is_a_torn_tail(workspace: str) -> None:
    root = f"{workspace}/w"
    data = journal_with_notes(root)
    forget_projections(root)
    cut = data.rfind(b"\n", 0, len(data) - 1) + 40
    write(root, "journal.jsonl", data[:cut] + b"\0" * (len(data) - cut))
    with HaltRuntime.resume(root) as runtime:
        assert any("torn tail" in line for line in runtime.recovered.found)
        texts = [event.payload.get("text") for event in runtime.events()]
        assert "note number 18" in texts
        assert "note number 19" not in texts
    state, _ = replay(root)
    assert len(state.artifacts) == 1


def test_f19_damage_in_a_last_line_that_a_projection_covers_is_corruption(workspace: str) -> None:
    root = f"{workspace}/w"
    data = journal_with_notes(root)
    cut = data.rfind(b"\n", 0, len(data) - 1) + 40
    for damaged in (data[:cut] + b"\0" * (len(data) - cut), data[:cut], data[:-1] + b" "):
        write(root, "journal.jsonl", damaged)
        with pytest.raises(CorruptError) as caught:
            HaltRuntime.resume(root)
        assert caught.value.exit_code == 6
        assert f"line {len(data.splitlines())}" in str(caught.value)
        assert read(root, "journal.jsonl") == damaged


# F20: large workspaces


def large_journal(root: str, size_bytes: int) -> int:
    """Notes of 2 KB until the journal has this size. Returns how many events there are."""
    HaltRuntime(root, "T").close()
    forget_projections(root)
    state, tip = replay(root)
    draft = Draft("NOTE", "task", "T", {"op": "note", "text": "x" * 2_000})
    with open(f"{root}/journal.jsonl", "ab") as file:
        while tip.offset < size_bytes:
            commit = encode_commit(tip, [draft], ts="", actor="executor:main", epoch=state.epoch)
            file.write(commit.data)
            tip = commit.tip
    return tip.seq


def memory_to_open(root: str) -> dict[str, int]:
    child = Child("measure", root, "m")
    child.go()
    code, told = child.end()
    assert code == 0, told
    return dict(told)


def test_f20_memory_to_open_does_not_grow_with_the_journal(workspace: str) -> None:
    small, large = f"{workspace}/small", f"{workspace}/large"
    large_journal(small, MEBIBYTE)
    count = large_journal(large, 24 * MEBIBYTE)
    told = memory_to_open(large)
    assert told["seq"] == count
    assert told["peak"] - memory_to_open(small)["peak"] < 10 * MEBIBYTE


@pytest.mark.crash_full
def test_f20_journal_of_200_mb_is_opened_in_less_than_100_mb(workspace: str) -> None:
    root = f"{workspace}/w"
    count = large_journal(root, 200 * MEBIBYTE)
    told = memory_to_open(root)
    assert told["seq"] == count
    assert told["peak"] < 100 * MEBIBYTE
    HaltRuntime.resume(root).close()
    assert memory_to_open(root)["peak"] < 100 * MEBIBYTE


def test_f20_artifact_of_12_mb_is_committed_and_looked_at_in_little_memory(workspace: str) -> None:
    root = f"{workspace}/w"
    with_one_node(root)
    with HaltRuntime.resume(root) as runtime:
        finish_node(runtime, "N1", os.urandom(12 * MEBIBYTE))
    os.utime(f"{root}/artifacts/N1/a.txt")  # so that it is hashed again
    told = memory_to_open(root)
    assert told["peak"] - told["before"] < 12 * MEBIBYTE
    assert told["peak"] < 100 * MEBIBYTE


# F27, F28: copies


def test_f27_same_journal_gives_the_same_state_and_diverged_ones_do_not(workspace: str) -> None:
    machine = Machine(f"{workspace}/w")
    machine.boot_process()
    runtime = machine.open("T")
    runtime.add_node("N1", "the only one")
    runtime.note("so far together")
    runtime.close()
    machine.kill_process()
    copies = {}
    for name in ("a", "b", "c"):
        shutil.copytree(machine.root, f"{workspace}/{name}")
        copies[name] = Machine(f"{workspace}/{name}")
        copies[name].boot_process()
        copies[name].open().note("apart" if name == "c" else "together")
        copies[name].open().close()
    assert copies["a"].bytes_of(".snapshot.json") == copies["b"].bytes_of(".snapshot.json")
    assert copies["a"].projections() == copies["b"].projections()
    assert copies["a"].bytes_of(".snapshot.json") != copies["c"].bytes_of(".snapshot.json")


@pytest.mark.parametrize("how", ["moved", "copied with new times"])
def test_f28_workspace_in_another_place_runs_nothing_again(workspace: str, how: str) -> None:
    old, new = f"{workspace}/old", f"{workspace}/elsewhere/new"
    with_one_node(old)
    with HaltRuntime.resume(old) as runtime:
        finish_node(runtime, "N1")
        runtime.move_task("FINAL_AUDIT")
    os.mkdir(f"{workspace}/elsewhere")
    if how == "moved":
        os.rename(old, new)
    else:
        shutil.copytree(old, new, copy_function=shutil.copy)
        os.utime(f"{new}/artifacts/N1/a.txt", (1, 1))
    before = read(new, "journal.jsonl")
    with HaltRuntime.resume(new) as runtime:
        assert runtime.recovered.committed == ""
        assert runtime.frontier() == []
        assert runtime.node("N1").state == "DONE"
        assert set(runtime.integrity_walk().values()) == {"PASS"}
        with pytest.raises((TransitionError, BusyError)):
            runtime.start("N1")
    assert read(new, "journal.jsonl") == before
