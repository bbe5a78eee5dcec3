"""What a killed coordinator leaves running is found by proof, and only that is stopped."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from perdure.host import SystemClock
from perdure.runtime.orphans import (
    Hold,
    Orphan,
    PidRecord,
    discard_records,
    find_orphans,
    stop_orphans,
)
from perdure.storage.disk import RealDisk

CLOCK = SystemClock()
DISK = RealDisk()

COORDINATOR = """
import os, signal, sys
from perdure.control.executor import start_command
from perdure.host import SystemClock
from perdure.storage.disk import RealDisk

root, invocation, command = sys.argv[1:]
start_command(
    command, cwd=root,
    environment={**os.environ, "PERDURE_INVOCATION": invocation, "PERDURE_NODE": "N1"},
    log_path=f"{root}/logs/{invocation}.log", record_path=f"{root}/run/{invocation}.json",
    wall_s=None, clock=SystemClock(), disk=RealDisk(),
)
with open(f"{root}/ready") as ready:
    ready.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


class Scene:
    """A workspace of a coordinator that gets killed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.run_dir = root / "run"
        self.run_dir.mkdir()
        os.mkfifo(root / "ready")
        # Unique on this machine, so that no test sees the processes of another.
        self.invocation = f"inv-{os.getpid()}-{root.name}"
        self.started: list[subprocess.Popen[bytes]] = []

    def kill_a_coordinator_that_runs(self, command: str) -> None:
        """The command must open the fifo ``ready`` for writing once it is under way."""
        words = [sys.executable, "-c", COORDINATOR, str(self.root), self.invocation, command]
        done = subprocess.run(words, timeout=50, check=False)
        assert done.returncode == -signal.SIGKILL

    def find(self, *, running: tuple[str, ...] = ()) -> list[Orphan]:
        known = {self.invocation: "N1"}
        return find_orphans(known, str(self.run_dir), disk=DISK, running=running)

    def spawn(self, *words: str, invocation: str = "", session: bool = False) -> int:
        environment = {**os.environ, **({"PERDURE_INVOCATION": invocation} if invocation else {})}
        process = subprocess.Popen(words, env=environment, start_new_session=session)
        self.started.append(process)
        return process.pid

    def record(self, pid: int, started: float, invocation: str = "") -> Path:
        record = PidRecord(pid, started, invocation or self.invocation, "N1")
        path = self.run_dir / f"{record.invocation}.json"
        path.write_bytes(msgspec.json.encode(record))
        return path


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    stop_orphans(scene.find(), clock=CLOCK, grace_s=0.0)
    for process in scene.started:
        process.kill()
        process.wait()


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_command_of_a_killed_coordinator_runs_on_and_its_output_is_kept(scene: Scene) -> None:
    go = scene.root / "go"
    os.mkfifo(go)
    scene.kill_a_coordinator_that_runs(f"echo before; echo > ready; cat {go}; echo after")
    [orphan] = [o for o in scene.find() if o.name == "sh"]
    pidfd = os.pidfd_open(orphan.pid)
    go.write_text("meanwhile\n")
    # Not our child: its end shows on the descriptor.
    [_] = wait_until_readable(pidfd)
    log = scene.root / "logs" / f"{scene.invocation}.log"
    assert log.read_text() == "before\nmeanwhile\nafter\n"
    assert scene.find() == []


def wait_until_readable(pidfd: int) -> list[int]:
    try:
        return select.select([pidfd], [], [], 30.0)[0]
    finally:
        os.close(pidfd)


def test_orphans_of_a_killed_coordinator_are_found_and_stopped(scene: Scene) -> None:
    scene.kill_a_coordinator_that_runs("setsid sleep 3600 & echo > ready; sleep 3600; true")
    orphans = scene.find()
    assert {o.invocation for o in orphans} == {scene.invocation}
    assert {o.node for o in orphans} == {"N1"}
    assert len(orphans) >= 2
    assert stop_orphans(orphans, clock=CLOCK, grace_s=20.0) == []
    assert not any(is_running(o.pid) for o in orphans)
    assert scene.find() == []


def test_orphan_without_its_environment_is_found_through_the_record(scene: Scene) -> None:
    scene.kill_a_coordinator_that_runs("exec env -i sh -c 'sleep 3600 & echo > ready; wait'")
    orphans = scene.find()
    assert len(orphans) == 2
    assert stop_orphans(orphans, clock=CLOCK, grace_s=20.0) == []
    assert not any(is_running(o.pid) for o in orphans)


def test_orphan_without_a_record_is_found_through_its_environment(scene: Scene) -> None:
    scene.kill_a_coordinator_that_runs("echo > ready; exec sleep 3600")
    discard_records(str(scene.run_dir), disk=DISK)
    assert list(scene.run_dir.iterdir()) == []
    assert len(scene.find()) == 1


def test_record_alone_names_an_invocation_nobody_asked_for(scene: Scene) -> None:
    scene.kill_a_coordinator_that_runs("echo > ready; exec sleep 3600")
    [orphan] = find_orphans({}, str(scene.run_dir), disk=DISK)
    assert (orphan.invocation, orphan.node) == (scene.invocation, "N1")


def test_orphan_that_ignores_sigterm_is_killed_after_the_grace(scene: Scene) -> None:
    scene.kill_a_coordinator_that_runs("trap '' TERM; echo > ready; while :; do sleep 3600; done")
    orphans = scene.find()
    assert stop_orphans(orphans, clock=CLOCK, grace_s=0.1) == []
    assert not any(is_running(o.pid) for o in orphans)


def test_record_of_a_reused_pid_is_not_touched(scene: Scene) -> None:
    pid = scene.spawn("sleep", "3600", session=True)
    started = psutil.Process(pid).create_time()
    scene.record(pid, started - 100.0)
    assert scene.find() == []
    scene.record(pid, started)
    assert [o.pid for o in scene.find()] == [pid]


def test_orphan_whose_pid_was_reused_before_the_stop_is_not_touched(scene: Scene) -> None:
    pid = scene.spawn("sleep", "3600")
    started = psutil.Process(pid).create_time()
    stale = Orphan(pid, "sleep", scene.invocation, started - 100.0)
    assert stop_orphans([stale], clock=CLOCK, grace_s=0.0) == []
    assert is_running(pid)


def test_step_of_the_clock_does_not_hide_a_process_that_carries_the_invocation(
    scene: Scene,
) -> None:
    pid = scene.spawn("sleep", "3600", invocation=scene.invocation)
    started = psutil.Process(pid).create_time()
    stepped = Orphan(pid, "sleep", scene.invocation, started - 3_600.0)
    assert stop_orphans([stepped], clock=CLOCK, grace_s=20.0) == []
    assert not is_running(pid)


def test_members_of_a_dead_leaders_group_need_proof_of_their_own(scene: Scene) -> None:
    # The leader is gone and reaped, so its number proves nothing about who is in the session now.
    script = f"sleep 3600 & echo $! > {scene.root}/member; exit 0"
    pid = scene.spawn("sh", "-c", script, session=True)
    scene.started[-1].wait()
    member = int((scene.root / "member").read_text())
    scene.record(pid, CLOCK.now())
    try:
        assert scene.find() == []
        assert is_running(member)
    finally:
        os.kill(member, signal.SIGKILL)


def test_other_invocations_and_prefixes_are_not_touched(scene: Scene) -> None:
    scene.spawn("sleep", "3600", invocation=f"{scene.invocation}0")
    scene.spawn("sleep", "3600")
    assert scene.find() == []


def test_invocations_of_the_caller_are_left_out(scene: Scene) -> None:
    pid = scene.spawn("sleep", "3600", invocation=scene.invocation)
    scene.record(pid, psutil.Process(pid).create_time())
    assert [o.pid for o in scene.find()] == [pid]
    assert scene.find(running=(scene.invocation,)) == []


def test_a_process_inside_the_invocation_never_finds_itself_nor_stops_its_parent(
    scene: Scene,
) -> None:
    script = """
import sys
from perdure.runtime.orphans import find_orphans, stop_orphans
from perdure.host import SystemClock
from perdure.storage.disk import RealDisk
orphans = find_orphans({sys.argv[1]: "N1"}, sys.argv[2], disk=RealDisk())
left = stop_orphans(orphans, clock=SystemClock(), grace_s=20.0)
print(*(f"{o.name}:{o.pid}" for o in left))
"""
    # The parent waits, as the shell of an agent does that runs perdure itself.
    command = f'echo $$; {sys.executable} -c "$SCRIPT" {scene.invocation} {scene.run_dir}; echo ok'
    done = subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, "PERDURE_INVOCATION": scene.invocation, "SCRIPT": script},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    parent, left, ok = done.stdout.splitlines()
    assert (left, ok) == (f"sh:{parent}", "ok")


def test_zombies_count_as_gone(scene: Scene) -> None:
    pid = scene.spawn("true", invocation=scene.invocation)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert scene.find() == []
    orphan = Orphan(pid, "true", scene.invocation, psutil.Process(pid).create_time())
    hold = Hold(orphan)
    assert not hold.is_alive()
    hold.close()
    hold.close()


def test_unreadable_records_prove_nothing_and_stop_nothing(scene: Scene) -> None:
    for name, data in {
        "torn.json": b'{"pid": 1',
        "empty.json": b"",
        "wrong.json": b'{"pid": "1"}',
        "zero.json": b'{"pid":0,"started":0.0,"invocation":"x"}',
        "init.json": b'{"pid":1,"started":0.0,"invocation":"x"}',
        "huge.json": b'{"pid":99999999999999999999,"started":1.0,"invocation":"x"}',
        "beyond.json": b'{"pid":4000000000,"started":1.0,"invocation":"x"}',
        "negative.json": b'{"pid":-1,"started":1.0,"invocation":"x"}',
        ".x.json.tmp-1-1": b"",
    }.items():
        (scene.run_dir / name).write_bytes(data)
    (scene.run_dir / "directory.json").mkdir()
    assert scene.find() == []


def test_workspace_without_records_has_no_orphans(scene: Scene) -> None:
    assert find_orphans({}, str(scene.root / "missing"), disk=DISK) == []
    assert stop_orphans([], clock=CLOCK) == []


def test_discarded_records_are_all_but_the_kept_ones(scene: Scene) -> None:
    for name in ("inv-a", "inv-b"):
        scene.record(1, 0.0, name)
    discard_records(str(scene.run_dir), disk=DISK, keep={"inv-b"})
    assert [p.name for p in scene.run_dir.iterdir()] == ["inv-b.json"]
