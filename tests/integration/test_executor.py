"""Commands as real processes: what survives, what is stopped, and what a failure is called."""

import os
import signal
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from perdure.control.executor import (
    Ended,
    RunningCommand,
    classify,
    start_command,
    wait_for_commands,
)
from perdure.errors import StorageError
from perdure.host import SystemClock
from perdure.ports import Clock
from perdure.runtime.orphans import PidRecord
from perdure.storage.disk import RealDisk

CLOCK = SystemClock()
INVOCATION = "inv-20261130T100000-0badcafe"
patience_s = 30.0


class HandClock:
    """A clock that moves only by hand, so that no machine is too slow for a limit."""

    def __init__(self) -> None:
        self.moment = 1_000.0

    def now(self) -> float:
        return self.moment

    def monotonic(self) -> float:
        return self.moment

    def sleep(self, seconds: float) -> None:
        CLOCK.sleep(seconds)


class Box:
    """A directory to run commands in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "logs" / "N1" / "x.log"
        self.record = root / "run" / "x.json"
        self.record.parent.mkdir()

    def start(
        self,
        command: str | tuple[str, ...],
        *,
        wall_s: float | None = None,
        grace_s: float = 20.0,
        cwd: str = "",
        clock: Clock = CLOCK,
    ) -> RunningCommand:
        return start_command(
            command,
            cwd=cwd or str(self.root),
            environment={
                "PATH": os.environ["PATH"],
                "PERDURE_INVOCATION": f"{INVOCATION}-{self.root.name}",
                "PERDURE_NODE": "N1",
            },
            log_path=str(self.log),
            record_path=str(self.record),
            wall_s=wall_s,
            grace_s=grace_s,
            clock=clock,
            disk=RealDisk(),
        )

    def run(
        self,
        command: str | tuple[str, ...],
        *,
        wall_s: float | None = None,
        grace_s: float = 20.0,
        cwd: str = "",
    ) -> Ended:
        return finish(self.start(command, wall_s=wall_s, grace_s=grace_s, cwd=cwd))

    def inner(self, name: str) -> "Box":
        (self.root / name).mkdir()
        return Box(self.root / name)

    def fifo(self, name: str) -> Path:
        path = self.root / name
        os.mkfifo(path)
        return path


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def finish(command: RunningCommand) -> Ended:
    deadline = CLOCK.monotonic() + patience_s
    while (ended := command.poll()) is None:
        left_s = deadline - CLOCK.monotonic()
        assert left_s > 0, "the command does not end"
        wait_for_commands([command], timeout_s=left_s, clock=CLOCK)
    return ended


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_output_of_both_streams_is_appended_to_the_log_in_order(box: Box) -> None:
    box.log.parent.mkdir(parents=True)
    box.log.write_text("earlier\n")
    ended = box.run("echo one; echo two >&2; exit 3")
    assert (ended.how, ended.exit_code, ended.signal) == ("exited", 3, None)
    assert box.log.read_text() == "earlier\none\ntwo\n"
    assert ended.log_tail == "one\ntwo\n"
    assert ended.leftovers == ended.unstopped == ()


def test_tail_is_the_last_2000_bytes(box: Box) -> None:
    script = "import sys; sys.stdout.write('x' * 100_000 + 'é' * 1_000)"
    ended = box.run((sys.executable, "-X", "utf8", "-c", script))
    assert ended.log_tail == "é" * 1_000
    assert box.log.stat().st_size == 102_000


def test_argument_vector_runs_without_a_shell_and_with_the_given_environment_only(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_PARENT", "1")
    ended = box.run(("env",))
    assert "SECRET_OF_THE_PARENT" not in ended.log_tail
    assert "PERDURE_NODE=N1" in ended.log_tail
    assert box.run(("printf", "%s", "$HOME;*")).log_tail.endswith("$HOME;*")


def test_standard_input_is_empty(box: Box) -> None:
    assert box.run("cat; echo end").log_tail == "end\n"


def test_command_leads_a_session_of_its_own_and_its_record_names_it(box: Box) -> None:
    ready, go = box.fifo("ready"), box.fifo("go")
    command = box.start(f"echo > {ready}; cat {go}")
    ready.read_text()
    assert command.poll() is None
    record = msgspec.json.decode(box.record.read_bytes(), type=PidRecord)
    assert record.pid == command.pid == os.getsid(command.pid) == os.getpgid(command.pid)
    assert record.started == pytest.approx(psutil.Process(command.pid).create_time())
    assert (record.invocation, record.node) == (f"{INVOCATION}-{box.root.name}", "N1")
    assert command.due_in_s() is None, "without a limit nothing is ever due (F12)"
    go.write_text("done\n")
    assert finish(command).exit_code == 0
    assert not box.record.exists()
    assert command.waitables() == []


def test_answer_after_the_end_stays_the_same(box: Box) -> None:
    command = box.start("exit 4")
    ended = finish(command)
    command.stop("too late")
    assert command.poll() == ended
    assert ended.reason == ""


def test_death_by_signal_is_told_from_an_exit_code(box: Box) -> None:
    ended = box.run("kill -9 $$")
    assert (ended.how, ended.exit_code, ended.signal) == ("exited", None, 9)


@pytest.mark.parametrize("command", [("./no-such-program",), (), ("echo", "a\0b")])
def test_command_that_cannot_start_is_an_end_and_not_an_exception(
    box: Box, command: tuple[str, ...]
) -> None:
    running = box.start(command)
    ended = finish(running)
    assert (ended.how, ended.exit_code) == ("not_started", None)
    assert "could not be started" in ended.log_tail
    assert running.waitables() == []
    assert not box.record.exists()


def test_program_without_permission_or_directory_is_not_started(box: Box) -> None:
    program = box.root / "program"
    program.write_text("#!/bin/sh\n")
    assert "Permission denied" in box.run((str(program),)).log_tail
    assert box.run("true", cwd=str(box.root / "missing")).how == "not_started"


def test_log_that_cannot_be_opened_is_a_storage_error(box: Box) -> None:
    box.log.mkdir(parents=True)
    with pytest.raises(StorageError, match="EISDIR"):
        box.start("true")


def test_no_child_is_left_when_its_record_cannot_be_written(box: Box) -> None:
    box.record.parent.rmdir()
    before = set(psutil.Process().children())  # the fork server of multiprocessing, for one
    with pytest.raises(StorageError):
        box.start("exec sleep 3600")
    assert set(psutil.Process().children()) <= before


def test_time_limit_stops_the_whole_group(box: Box) -> None:
    ready, clock = box.fifo("ready"), HandClock()
    command = box.start(
        f"sleep 3600 & sleep 3600 & echo $!; echo > {ready}; wait", wall_s=10, clock=clock
    )
    ready.read_text()
    clock.moment += 9.75
    assert command.poll() is None
    assert command.due_in_s() == 0.25
    clock.moment += 0.25
    ended = finish(command)
    assert (ended.how, ended.exit_code, ended.signal) == ("timed_out", None, signal.SIGTERM)
    assert (ended.wall_s, ended.limit_s) == (10.0, 10.0)
    assert not is_running(int(ended.log_tail))
    assert ended.leftovers == ()
    assert classify(ended) == ("transient-agent", "timed out after 10 s")


def test_command_that_ends_at_the_limit_by_itself_is_not_timed_out(box: Box) -> None:
    command = box.start("exit 0", wall_s=0.0)
    os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOWAIT)
    assert finish(command).how == "exited"


def test_exit_code_after_a_polite_stop_is_kept(box: Box) -> None:
    ready = box.fifo("ready")
    command = box.start(f"trap 'echo saved; exit 7' TERM; echo > {ready}; sleep 3600 & wait")
    ready.read_text()
    command.stop("paused")
    ended = finish(command)
    assert (ended.how, ended.exit_code, ended.reason) == ("stopped", 7, "paused")
    assert ended.log_tail == "saved\n"
    assert classify(ended) == ("transient-agent", "stopped: paused")


def test_child_that_ignores_sigterm_is_killed_after_the_grace(box: Box) -> None:
    ready, clock = box.fifo("ready"), HandClock()
    command = box.start(
        f"trap '' TERM; sleep 3600 & echo > {ready}; wait; sleep 3600", grace_s=5.0, clock=clock
    )
    ready.read_text()
    command.stop("paused")
    command.stop("another reason")
    clock.moment += 4.5
    assert command.poll() is None
    assert command.due_in_s() == 0.5
    clock.moment += 0.5
    ended = finish(command)
    assert (ended.how, ended.signal, ended.reason) == ("stopped", signal.SIGKILL, "paused")
    assert (ended.wall_s, ended.leftovers, ended.unstopped) == (5.0, (), ())


def test_second_stop_brings_the_kill_forward(box: Box) -> None:
    ready = box.fifo("ready")
    command = box.start(f"trap '' TERM; echo > {ready}; sleep 3600", grace_s=3_600.0)
    ready.read_text()
    command.stop("paused")
    assert command.poll() is None
    command.stop("now", grace_s=0.0)
    assert finish(command).signal == signal.SIGKILL


def test_suspended_child_can_be_stopped(box: Box) -> None:
    ready = box.fifo("ready")
    command = box.start(f"trap 'exit 5' TERM; echo > {ready}; kill -STOP $$; sleep 3600 & wait")
    ready.read_text()
    os.waitid(os.P_PID, command.pid, os.WSTOPPED | os.WNOWAIT)
    command.stop("paused")
    assert finish(command).exit_code == 5


def test_leftover_in_a_session_of_its_own_is_found_named_and_stopped(box: Box) -> None:
    ended = box.run("setsid sleep 3600 & exit 0")
    assert (ended.how, ended.exit_code) == ("exited", 0)
    assert [name for _, name in ended.leftovers] == ["sleep"]
    assert not any(is_running(pid) for pid, _ in ended.leftovers)
    assert ended.unstopped == ()


def test_leftover_that_hides_its_environment_is_found_in_the_session(box: Box) -> None:
    ended = box.run("env -i sleep 3600 & exit 0")
    assert [name for _, name in ended.leftovers] == ["sleep"]
    assert not any(is_running(pid) for pid, _ in ended.leftovers)


def test_leftover_that_ignores_sigterm_is_killed(box: Box) -> None:
    ready = box.fifo("ready")
    stubborn = f'trap "" TERM; echo > {ready}; while :; do sleep 3600; done'
    ended = box.run(f"setsid sh -c '{stubborn}' & cat {ready}", grace_s=0.2)
    assert ended.exit_code == 0
    assert sorted(name for _, name in ended.leftovers) == ["sh", "sleep"]
    assert not any(is_running(pid) for pid, _ in ended.leftovers)


def test_helper_that_finishes_by_itself_is_neither_signalled_nor_named(box: Box) -> None:
    go = box.fifo("go")
    command = box.start(f"(cat {go}; echo last words) & exit 0", clock=HandClock())
    os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOWAIT)
    assert command.poll() is None, "the slot stays open while the helper runs"
    go.write_text("")
    ended = finish(command)
    assert ended.leftovers == ()
    assert ended.log_tail == "last words\n"


def test_children_in_other_sessions_are_stopped_with_their_parent(box: Box) -> None:
    # What a nested run looks like: a session and an invocation of its own.
    ready, pid_file = box.fifo("ready"), box.root / "pid"
    inner = f"echo $$ > {pid_file}; echo > {ready}; exec sleep 3600"
    command = box.start(f"PERDURE_INVOCATION=inv-other setsid -w sh -c '{inner}'; true")
    ready.read_text()
    command.stop("paused")
    ended = finish(command)
    pid = int(pid_file.read_text())
    assert pid in [leftover for leftover, _ in ended.leftovers]
    assert not is_running(pid)


def test_many_commands_are_waited_for_at_once(box: Box) -> None:
    boxes = [box.inner(str(i)) for i in range(4)]
    running = [b.start(f"exit {i}") for i, b in enumerate(boxes)]
    reading, writing = os.pipe()
    os.write(writing, b"x")
    assert wait_for_commands(running, timeout_s=5, clock=CLOCK, also=[reading]) == [reading]
    assert [finish(command).exit_code for command in running] == [0, 1, 2, 3]
    assert wait_for_commands([], timeout_s=5, clock=CLOCK, also=[reading]) == [reading]
    os.close(reading)
    os.close(writing)


def test_no_descriptor_is_left_open(box: Box) -> None:
    box.run("true")
    before = psutil.Process().num_fds()
    box.run("setsid sleep 3600 & true")
    box.run(("./missing",))
    assert psutil.Process().num_fds() == before


def test_exit_code_survives_a_parent_that_ignored_sigchld(box: Box) -> None:
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert box.run("exit 9").exit_code == 9
    finally:
        signal.signal(signal.SIGCHLD, old)


def test_child_that_somebody_else_reaped_did_not_succeed(box: Box) -> None:
    command = box.start("exit 0")
    os.waitpid(command.pid, 0)
    ended = finish(command)
    assert (ended.how, ended.exit_code, ended.signal) == ("exited", None, None)
    assert classify(ended) == ("transient-agent", "exit unknown")


@pytest.mark.parametrize(
    ("ended", "failure", "signature"),
    [
        (Ended("exited", exit_code=3), "transient-agent", "exit 3"),
        (Ended("exited", exit_code=126), "permanent-resource", "exit 126"),
        (Ended("exited", exit_code=127), "permanent-resource", "exit 127"),
        (Ended("exited", exit_code=75), "transient-environment", "exit 75"),
        (Ended("exited", exit_code=69), "transient-environment", "exit 69"),
        (Ended("exited", exit_code=64), "permanent-spec", "exit 64"),
        (Ended("exited", exit_code=78, log_tail="quota"), "permanent-spec", "exit 78"),
        (Ended("exited", signal=9, log_tail="quota"), "transient-agent", "signal 9"),
        (Ended("timed_out", signal=15, limit_s=10.0), "transient-agent", "timed out after 10 s"),
        (Ended("not_started", log_tail="x: [2]\n no"), "permanent-resource", "x: [2] no"),
        (
            Ended("not_started", log_tail="Resource temporarily unavailable"),
            "transient-environment",
            "Resource temporarily unavailable",
        ),
    ],
)  # fmt: skip
def test_failure_has_a_class_and_a_stable_signature(
    ended: Ended, failure: str, signature: str
) -> None:
    assert classify(ended) == (failure, signature)


@pytest.mark.parametrize(
    "output",
    [
        "tar: write error: No space left on device",
        "curl: (7) Connection refused",
        "read: connection reset by peer",
        "Temporary failure in name resolution",
        "You hit your rate limit",
        "RateLimitError: insufficient_quota",
        "HTTP/1.1 503 Service Unavailable",
        "status code: 429",
        "error 429",
        'urllib.error.HTTPError: HTTP Error 503: ""',
    ],
)
def test_trouble_of_the_surroundings_is_recognised_in_the_output(output: str) -> None:
    failure, signature = classify(Ended("exited", exit_code=1, log_tail=output))
    assert failure == "transient-environment"
    assert signature.startswith("exit 1 (")


@pytest.mark.parametrize("output", ["read 429 lines", "item 503 of 1000", "port 4290", ""])
def test_numbers_in_the_output_are_not_trouble(output: str) -> None:
    assert classify(Ended("exited", exit_code=1, log_tail=output))[0] == "transient-agent"
