"""A process that adopts orphans can prove that a command left nothing behind.

Each test is a process of its own, because adopting holds for a whole process.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

START = """
import ctypes, os, signal, subprocess, sys, threading
from perdure.control import adoption as adoption_module
from perdure.control.adoption import adopt_orphans
from perdure.control.executor import start_command, wait_for_commands
from perdure.host import SystemClock
from perdure.storage.disk import RealDisk

CLOCK, DISK = SystemClock(), RealDisk()
root = os.getcwd()

def spawn(line):
    process = subprocess.Popen(["sh", "-c", line], start_new_session=True)
    return process

def orphan(line="exec sleep 3600"):
    'The pid of a process whose parent has ended.'
    reading, writing = os.pipe()
    words = ["sh", "-c", f"({line}) & echo $! >&{writing}"]
    parent = subprocess.Popen(words, pass_fds=[writing], start_new_session=True)
    pid = int(os.read(reading, 100))
    parent.wait()
    os.close(reading)
    os.close(writing)
    return pid

def is_subreaper():
    value = ctypes.c_int()
    ctypes.CDLL(None).prctl(37, ctypes.byref(value), 0, 0, 0)
    return value.value

def ended(command):
    while (seen := command.poll()) is None:
        wait_for_commands([command], timeout_s=10, clock=CLOCK)
    return seen

class StoppedClock(SystemClock):
    def monotonic(self):
        return 1000.0

def start(command, clock=CLOCK, **more):
    environment = {"PATH": os.environ["PATH"], "PERDURE_INVOCATION": f"inv-{os.getpid()}"}
    return start_command(
        command, cwd=root, environment=environment, log_path=f"{root}/out",
        record_path=f"{root}/record", wall_s=None, clock=clock, disk=DISK, **more,
    )
"""


def in_a_process(code: str, cwd: Path) -> None:
    program = START + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux adopts")


def test_an_orphan_keeps_the_list_of_children_from_being_clear(tmp_path: Path) -> None:
    code = """
    adoption = adopt_orphans()
    assert adoption.is_clear()
    pid = orphan()
    assert not adoption.is_clear()
    [stranger] = adoption.strangers()
    assert stranger.pid == pid
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    import select
    select.select([pidfd], [], [])
    assert adoption.is_clear()
    assert adoption.strangers() == []
    assert not os.path.exists(f"/proc/{pid}"), "nobody else reaps it"
    """
    in_a_process(code, tmp_path)


def test_expected_children_are_no_orphans_until_they_are_forgotten(tmp_path: Path) -> None:
    code = """
    adoption = adopt_orphans()
    child = spawn("exec sleep 3600")
    assert not adoption.is_clear()
    adoption.expect(child.pid)
    assert adoption.is_clear()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert adoption.is_clear()
    assert child.wait() == -9, "it was not reaped behind our back"
    adoption.forget(child.pid)
    assert adoption.is_clear()
    """
    in_a_process(code, tmp_path)


def test_children_that_were_there_before_are_known(tmp_path: Path) -> None:
    code = """
    child = spawn("exec sleep 3600")
    adoption = adopt_orphans()
    assert adoption.is_clear()
    pid = orphan()
    assert not adoption.is_clear()
    assert adoption.strangers() == [], "it could be an orphan of that child"
    os.kill(pid, signal.SIGKILL)
    child.kill()
    child.wait()
    """
    in_a_process(code, tmp_path)


def test_children_of_other_threads_are_neither_clear_nor_reaped(tmp_path: Path) -> None:
    code = """
    adoption = adopt_orphans()
    started, go, children = threading.Event(), threading.Event(), []

    def work():
        children.append(spawn("exit 7"))
        os.waitid(os.P_PID, children[0].pid, os.WEXITED | os.WNOWAIT)
        children.append(spawn("exec sleep 3600"))
        started.set()
        go.wait()
        children[1].kill()
        children[1].wait()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    assert not adoption.is_clear()
    assert adoption.strangers() == []
    assert children[0].wait() == 7
    go.set()
    thread.join()
    assert adoption.is_clear()
    """
    in_a_process(code, tmp_path)


def test_child_that_an_ended_thread_left_to_another_one_is_not_reaped(tmp_path: Path) -> None:
    code = """
    adoption = adopt_orphans()
    children = []
    line = ["sh", "-c", "exit 7"]
    thread = threading.Thread(target=lambda: children.append(subprocess.Popen(line)))
    thread.start()
    thread.join()
    os.waitid(os.P_PID, children[0].pid, os.WEXITED | os.WNOWAIT)
    assert adoption.is_clear(), "what is in our session was not left behind by a command"
    assert adoption.strangers() == []
    assert children[0].wait() == 7
    """
    in_a_process(code, tmp_path)


def test_in_another_thread_nothing_is_reaped(tmp_path: Path) -> None:
    code = """
    def work():
        adoption = adopt_orphans()
        os.mkfifo("end")
        pid = orphan("exec cat end")
        open("end", "w").close()
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert adoption.is_clear()
        assert adoption.strangers() == []
        done.append(os.waitid(os.P_PID, pid, os.WEXITED).si_pid == pid)
        adoption.close()

    done = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
    """
    in_a_process(code, tmp_path)


def test_adopting_ends_with_the_object_and_is_left_as_it_was_found(tmp_path: Path) -> None:
    code = """
    assert is_subreaper() == 0
    outer = adopt_orphans()
    assert is_subreaper() == 1
    inner = adopt_orphans()
    inner.close()
    assert is_subreaper() == 1
    outer.close()
    assert is_subreaper() == 0
    """
    in_a_process(code, tmp_path)


def test_where_children_are_hidden_nothing_is_adopted_and_nothing_is_clear(tmp_path: Path) -> None:
    code = """
    adoption = adopt_orphans()
    adoption_module._children = lambda: None
    assert not adoption.is_clear()
    assert adoption.strangers() == []
    adoption.close()
    assert adopt_orphans() is None
    assert is_subreaper() == 0
    """
    in_a_process(code, tmp_path)


def test_clear_list_spares_the_look_at_every_process(tmp_path: Path) -> None:
    code = """
    from perdure.control import leftovers
    looks = []
    scan = leftovers.scan_processes
    leftovers.scan_processes = lambda *args: looks.append(1) or scan(*args)
    adoption = adopt_orphans()
    assert ended(start(("true",), census=adoption)).exit_code == 0
    assert looks == []
    seen = ended(start("setsid sleep 3600 & exit 0", census=adoption))
    assert [name for _, name in seen.leftovers] == ["sleep"]
    assert looks != []
    count = len(looks)
    assert ended(start("(exit 0) & (exit 0) | cat; wait; exit 4", census=adoption)).exit_code == 4
    assert len(looks) == count
    assert adoption.is_clear()
    """
    in_a_process(code, tmp_path)


def test_commands_at_work_do_not_keep_each_other_from_being_clear(tmp_path: Path) -> None:
    code = """
    from perdure.control import leftovers
    adoption = adopt_orphans()
    leftovers.scan_processes = None
    os.mkfifo("go")
    first = start("cat go", census=adoption)
    second = start("exit 5", census=adoption)
    assert ended(second).exit_code == 5
    with open("go", "w") as file:
        file.write("x")
    assert ended(first).exit_code == 0
    """
    in_a_process(code, tmp_path)


def test_streams_of_a_command_may_go_to_files_of_their_own(tmp_path: Path) -> None:
    code = """
    with open("in", "w") as file:
        file.write("given")
    command = start("cat; echo wrong >&2", error_path=f"{root}/err", input_path=f"{root}/in")
    seen = ended(command)
    assert seen.log_tail == "given"
    assert open("out").read() == "given"
    assert open("err").read() == "wrong\\n"
    before = len(os.listdir("/proc/self/fd"))
    from perdure.errors import StorageError
    for more in ({"input_path": f"{root}/missing"}, {"error_path": root}):
        try:
            start("true", **more)
        except StorageError as error:
            assert list(more.values())[0] in error.message
        else:
            raise AssertionError("it started without its file")
    assert len(os.listdir("/proc/self/fd")) == before
    """
    in_a_process(code, tmp_path)


def test_output_that_was_cut_is_told_from_output_that_was_whole(tmp_path: Path) -> None:
    code = """
    assert ended(start("(while :; do echo more; done) & exit 0")).cut
    assert not ended(start("setsid sleep 3600 & echo done; exit 0")).cut
    os.mkfifo("go")
    command = start("(cat go; echo late) & exit 0", clock=StoppedClock())
    os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOWAIT)
    assert command.poll() is None
    with open("go", "w") as file:
        file.write("more")
    seen = ended(command)
    assert (seen.cut, seen.leftovers) == (False, ())
    """
    in_a_process(code, tmp_path)
