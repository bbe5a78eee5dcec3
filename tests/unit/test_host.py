"""The process table: ``gone`` only when it is proven, whatever the clock and the pids do."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from perdure import host
from perdure.host import (
    LinuxProcesses,
    PsutilProcesses,
    RandomIds,
    SystemClock,
    SystemProcesses,
    inherited_environment,
)
from perdure.ports import Clock, Ids, Processes, ProcessIdentity

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
both = pytest.mark.parametrize(
    "processes",
    [pytest.param(LinuxProcesses, id="proc", marks=on_linux), pytest.param(PsutilProcesses)],
    indirect=True,
)
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture
def processes(request: pytest.FixtureRequest) -> Processes:
    made: Processes = request.param()
    return made


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that does nothing until it is killed."""
    started = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started
        started.kill()


def identity_of(processes: Processes, pid: int) -> ProcessIdentity:
    """Who the process says it is itself, told from outside."""
    if isinstance(processes, LinuxProcesses):
        seen = host._proc_stat(pid)
        assert seen is not None
        return processes.me()._replace(pid=pid, started=seen[1])
    import psutil

    return processes.me()._replace(pid=pid, started=psutil.Process(pid).create_time())


def test_real_ones_fit_the_ports() -> None:
    clock: Clock = SystemClock()
    ids: Ids = RandomIds()
    table: Processes = SystemProcesses()
    assert clock.now() > 1_700_000_000
    assert clock.monotonic() <= clock.monotonic()
    clock.sleep(-1.0)
    assert table.me().pid == os.getpid()
    tokens = {ids.token() for _ in range(50)}
    assert len(tokens) == 50
    assert all(len(t) == 8 and set(t) <= set("0123456789abcdef") for t in tokens)


def test_commands_inherit_a_copy_with_this_interpreter_first_on_the_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PERDURE_PROBE", "1")
    monkeypatch.setenv("PATH", "/first:/second")
    environment = inherited_environment()
    assert environment["PERDURE_PYTHON"] == sys.executable
    assert environment["PATH"] == f"{os.path.dirname(sys.executable)}:/first:/second"
    environment["PERDURE_PROBE"] = "2"
    assert os.environ["PERDURE_PROBE"] == "1"


@both
def test_this_process_is_alive_and_asked_once(processes: Processes) -> None:
    me = processes.me()
    assert processes.me() is me
    assert processes.state(me) == "alive"
    assert type(processes)().me() == me, "every object, at every time, gives the same answer"


@both
def test_stopped_and_killed_children_are_seen(
    processes: Processes, child: "subprocess.Popen[bytes]"
) -> None:
    who = identity_of(processes, child.pid)
    assert processes.state(who) == "alive"
    os.kill(child.pid, signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    assert processes.state(who) == "stopped"
    os.kill(child.pid, signal.SIGCONT)
    os.waitid(os.P_PID, child.pid, os.WCONTINUED)
    assert processes.state(who) == "alive"
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.state(who) == "gone", "a zombie runs no more"
    child.wait()
    assert processes.state(who) == "gone"


@both
def test_living_process_with_a_reused_pid_is_somebody_else(
    processes: Processes, child: "subprocess.Popen[bytes]"
) -> None:
    who = identity_of(processes, child.pid)
    assert processes.state(who._replace(started=who.started - 3.0)) == "gone"
    assert processes.state(who._replace(started=who.started + 3.0)) == "gone"


@both
def test_another_host_is_never_judged(processes: Processes) -> None:
    assert processes.state(processes.me()._replace(host="elsewhere")) == "unknown"


@both
@pytest.mark.parametrize("pid", [0, -1, -12345, 1 << 40])
def test_impossible_pids_are_gone_and_never_signalled(processes: Processes, pid: int) -> None:
    assert processes.state(processes.me()._replace(pid=pid)) == "gone"


@both
def test_forked_child_is_another_process(processes: Processes) -> None:
    mine = processes.me()
    child = os.fork()
    if child == 0:
        answer = 2
        try:
            theirs = processes.me()
            different = theirs.pid == os.getpid() != mine.pid
            answer = 0 if different and processes.state(mine) == "alive" else 1
        finally:
            os._exit(answer)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@on_linux
def test_process_of_another_boot_is_gone_though_its_pid_lives() -> None:
    processes = LinuxProcesses()
    assert processes.state(processes.me()._replace(boot_id="another")) == "gone"


@on_linux
def test_start_is_counted_from_boot_so_that_no_clock_step_moves_it() -> None:
    with open("/proc/uptime", encoding="ascii") as file:
        uptime_s = float(file.read().split()[0])
    assert 0 < LinuxProcesses().me().started <= uptime_s


def test_elsewhere_the_start_decides_and_not_a_boot_time_that_moves_with_the_clock() -> None:
    processes = PsutilProcesses()
    me = processes.me()
    assert processes.state(me._replace(boot_id="boot-0", started=me.started + 1.5)) == "alive"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("7 (sh) S 1 " + "0 " * 17 + "4200 0", ("S", 42.0)),
        ("7 (a) b (c) R) T 1 " + "0 " * 17 + "150 0", ("T", 1.5)),
        ("7 ()) 9 9 (x) Z 1 " + "0 " * 17 + "100", ("Z", 1.0)),
        ("", None),
        ("7 (sh) S 1", None),
    ],
)
def test_command_with_blanks_and_parentheses_does_not_shift_the_fields(
    monkeypatch: pytest.MonkeyPatch, line: str, expected: tuple[str, float] | None
) -> None:
    monkeypatch.setattr(host, "_read_text", lambda _: line)
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    assert host._proc_stat(7) == expected


@on_linux
def test_process_hidden_by_proc_is_alive_when_the_kernel_knows_its_pid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processes = LinuxProcesses()
    other = processes.me()._replace(pid=4711)
    monkeypatch.setattr(host, "_proc_stat", lambda _: None)

    def forbidden(pid: int, signal_number: int) -> None:
        assert (pid, signal_number) == (4711, 0)
        raise PermissionError

    def unknown(pid: int, signal_number: int) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", forbidden)
    assert processes.state(other) == "alive"
    monkeypatch.setattr(os, "kill", unknown)
    assert processes.state(other) == "gone"


@on_linux
def test_tracing_stop_is_not_a_job_control_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = LinuxProcesses()
    me = processes.me()
    monkeypatch.setattr(host, "_proc_stat", lambda _: ("t", me.started))
    assert processes.state(me) == "alive"


@on_linux
@pytest.mark.parametrize(
    ("namespace", "suffix"),
    [("pid:[4026531836]", ""), ("pid:[4026532233]", "/pid:[4026532233]"), (None, "")],
)
def test_process_of_another_pid_namespace_is_one_of_another_host(
    monkeypatch: pytest.MonkeyPatch, namespace: str | None, suffix: str
) -> None:
    def readlink(path: str) -> str:
        if namespace is None:
            raise PermissionError(path)
        return namespace

    monkeypatch.setattr(os, "readlink", readlink)
    processes = LinuxProcesses()
    assert processes.me().host == os.uname().nodename + suffix
    if suffix:
        outside = processes.me()._replace(host=os.uname().nodename)
        assert processes.state(outside) == "unknown"
