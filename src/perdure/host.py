"""The real clock, process table and source of ids.

Job: everything perdure learns from the machine that is neither a file nor an argument. Invariant:
``gone`` is said only of a process that certainly runs no more; every doubt is ``alive`` or
``unknown``, because the takeover of a living coordinator costs more than a wait. It never signals
a process, and on Linux it never imports psutil.

What tells two processes apart. On Linux: the kernel's boot id, the pid, and the start time in
seconds since boot, which no step of the clock moves and which is compared exactly. Elsewhere: the
pid, and the start time on the wall clock to within two seconds; the boot id is information only,
because it comes from a boot time that moves when the clock is set.

The containers of one machine share its boot id and may share a host name, and a pid of one means
nothing in another. So ``host`` names the pid namespace too, unless it is the machine's first: a
process of another namespace is one of another host, ``unknown`` until its lease expires. Not
detected: a ``/proc`` of another namespace mounted over this one, and two machines of the same
host name on one shared workspace, which look like one machine that was restarted.
"""

import os
import sys
import time
from typing import Final

from perdure.ports import ProcessIdentity, ProcessState

if sys.platform == "win32":
    import platform

    def _node_name() -> str:
        return platform.node()

else:

    def _node_name() -> str:
        return os.uname().nodename


start_tolerance_s: Final = 2.0
"""How far two readings of one start time may lie apart, where it is on the wall clock."""

_FIRST_PID_NAMESPACE: Final = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel, a constant


def processor_count() -> int:
    """Processors that this process may run on; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


class SystemClock:
    """``ports.Clock`` of this machine."""

    __slots__ = ()

    now = staticmethod(time.time)
    """Seconds since 1970, UTC; steps when somebody sets the clock."""
    monotonic = staticmethod(time.monotonic)
    """Seconds since some fixed moment; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait; not at all for a time that is over already."""
        time.sleep(max(seconds, 0.0))


class RandomIds:
    """``ports.Ids`` from the randomness of the operating system."""

    __slots__ = ()

    def token(self) -> str:
        """Eight random lower-case hexadecimal digits."""
        return os.urandom(4).hex()


class LinuxProcesses:
    """``ports.Processes`` from ``/proc``: cheap enough to ask at every start."""

    __slots__ = ("_me",)

    def __init__(self) -> None:
        self._me: ProcessIdentity | None = None

    def me(self) -> ProcessIdentity:
        """This process; asked once, and again in a forked child."""
        if self._me is None or self._me.pid != os.getpid():
            seen = _proc_stat(os.getpid())
            self._me = ProcessIdentity(
                host=_linux_host(),
                boot_id=_read_text("/proc/sys/kernel/random/boot_id"),
                pid=os.getpid(),
                started=seen[1] if seen else 0.0,
            )
        return self._me

    def state(self, who: ProcessIdentity) -> ProcessState:
        """As the port says. A zombie is gone: it runs no more, only its exit code is left.

        ``alive`` without a look at the start time where ``/proc`` hides other users' processes.
        """
        me = self.me()
        if who.host != me.host:
            return "unknown"
        if who.boot_id != me.boot_id or who.pid <= 0:
            return "gone"
        seen = _proc_stat(who.pid)
        if seen is None:
            return "alive" if _exists(who.pid) else "gone"
        letter, started = seen
        if letter in "ZXx" or (who.started and who.started != started):
            return "gone"
        return "stopped" if letter == "T" else "alive"


class PsutilProcesses:
    """``ports.Processes`` through psutil, on every other platform."""

    __slots__ = ("_me",)

    def __init__(self) -> None:
        self._me: ProcessIdentity | None = None

    def me(self) -> ProcessIdentity:
        """This process; asked once, and again in a forked child."""
        if self._me is None or self._me.pid != os.getpid():
            import psutil

            self._me = ProcessIdentity(
                host=_node_name(),
                boot_id=f"boot-{round(psutil.boot_time(), -1):.0f}",
                pid=os.getpid(),
                started=psutil.Process().create_time(),
            )
        return self._me

    def state(self, who: ProcessIdentity) -> ProcessState:
        """As the port says, with a zombie as gone.

        Pid and start time decide whatever the boot id says: after a restart nothing has both.
        """
        if who.host != self.me().host:
            return "unknown"
        if who.pid <= 0:
            return "gone"
        import psutil

        try:
            process = psutil.Process(who.pid)
            if abs(process.create_time() - who.started) > start_tolerance_s:
                return "gone"
            status = process.status()
        except (psutil.NoSuchProcess, OverflowError):
            return "gone"
        except psutil.AccessDenied:
            return "alive"
        if status in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}:
            return "gone"
        return "stopped" if status == psutil.STATUS_STOPPED else "alive"


if sys.platform == "linux":
    SystemProcesses = LinuxProcesses
else:
    SystemProcesses = PsutilProcesses


def _linux_host() -> str:
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = _FIRST_PID_NAMESPACE
    name = _node_name()
    return name if namespace == _FIRST_PID_NAMESPACE else f"{name}/{namespace}"


def _proc_stat(pid: int) -> tuple[str, float] | None:
    """State letter and start in seconds since boot; None when the process table has no such line.

    The command, in the second field, may hold blanks and parentheses: fields count from its last
    closing one.
    """
    text = _read_text(f"/proc/{pid}/stat")
    fields = text[text.rfind(")") + 1 :].split()
    if len(fields) < 20:
        return None
    return fields[0], int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _exists(pid: int) -> bool:
    """Whether the kernel knows the pid (signal 0 only asks)."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _read_text(path: str) -> str:
    """The text of a file of the kernel; empty when there is none."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def inherited_environment() -> dict[str, str]:
    """What commands and check scripts inherit: ours, with this interpreter first on the path.

    So ``python`` in a task file is the Python that perdure runs on, whatever else is installed.
    ``PERDURE_PYTHON`` is its absolute path.
    """
    here = os.path.dirname(sys.executable)
    path = os.environ.get("PATH", os.defpath)
    return {
        **os.environ,
        "PATH": f"{here}{os.pathsep}{path}" if here else path,
        "PERDURE_PYTHON": sys.executable,
    }
