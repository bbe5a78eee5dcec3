"""The self-test's side of its processes.

Job: start, wait for and end the processes of ``child``. Invariants: ``close`` leaves none of them
running, also after Ctrl-C and also stopped ones; they import perdure from where this process did.
"""

import contextlib
import os
import signal
import subprocess
import sys
from typing import Final, NamedTuple

from perdure.core.codec import to_json
from perdure.errors import StorageError
from perdure.ports import Disk
from perdure.selftest.checks import NotHeldError, Promise, require
from perdure.selftest.child import Order

close_s: Final = 10.0
"""How long their server may take to end."""


class Ended(NamedTuple):
    """How a process ended, and what it had reported."""

    code: int
    """Exit code, or minus the signal."""
    lines: list[str]

    @property
    def killed(self) -> bool:
        """Whether it met its SIGKILL."""
        return self.code == -signal.SIGKILL

    @property
    def promises(self) -> list[Promise]:
        """What it had been told is durable."""
        return [
            Promise(int(seq), int(length), digest)
            for seq, length, digest in (words.split() for words in self.told("ack"))
        ]

    @property
    def written(self) -> list[int]:
        """The numbers of the events it had been told are durable."""
        return [int(line.split()[1]) for line in self.lines if line.startswith("wrote ")]

    def told(self, word: str) -> list[str]:
        """What stands behind this word."""
        return [line.partition(" ")[2] for line in self.lines if line.split(" ")[0] == word]

    @property
    def refusal(self) -> str:
        """Code of the HaltError that ended it; empty when there was none."""
        refused = self.told("refused")
        return refused[0].split()[0] if refused else ""


def environment() -> dict[str, str]:
    """Ours, and modules are found where this process finds them."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path))),
    }


def command(*arguments: str) -> list[str]:
    """The command line of ``child``; -P keeps the current directory out of its imports."""
    return [sys.executable, "-P", "-m", "perdure.selftest.child", *arguments]


class Children:
    """Every process that a self-test has started and not yet waited for."""

    def __init__(self, disk: Disk, scratch: str, setup: str = "") -> None:
        self._disk = disk
        self._scratch = scratch
        self._logs = 0
        self._alive: dict[int, str] = {}
        self._server = subprocess.Popen(
            command("serve", *([setup] if setup else [])),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=scratch,
            env=environment(),
            process_group=0,  # a Ctrl-C in the terminal is ours to deal with
        )

    def start(self, do: str, root: str, **options: object) -> int:
        """Start a process; returns its pid."""
        self._logs += 1
        log = f"{self._scratch}/child-{self._logs}.log"
        order = Order(do, root, log, **options)  # type: ignore[arg-type]
        pid = int(self._ask(b"start " + to_json(order)))
        self._alive[pid] = log
        return pid

    def said(self, pid: int) -> list[str]:
        """The lines that a living process has reported so far."""
        return self._lines(self._alive[pid])

    def wait(self, pid: int) -> Ended:
        """Wait for its end. Raises NotHeldError after a fault of perdure, or without an end."""
        code = int(self._ask(b"wait %d" % pid))
        log = self._alive.pop(pid)
        ended = Ended(code, self._lines(log))
        self._disk.unlink(log, durable=False)
        faults = ended.told("fault")
        require(not faults, f"a process met with {faults[0] if faults else ''}")
        timed_out = hasattr(signal, "SIGALRM") and code == -signal.SIGALRM
        require(not timed_out, "a process did not come to its end")
        return ended

    def run(self, do: str, root: str, **options: object) -> Ended:
        """Start a process and wait for its end."""
        return self.wait(self.start(do, root, **options))

    def kill(self, pid: int) -> None:
        """SIGKILL."""
        os.kill(pid, signal.SIGKILL)

    def go_on(self, pid: int) -> None:
        """SIGCONT, for one that is stopped."""
        os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        """End them all. Harmless when it was done before."""
        for pid in self._alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._alive.clear()
        if self._server.stdin is not None:
            with contextlib.suppress(OSError):
                self._server.stdin.close()
        try:
            self._server.wait(close_s)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        if self._server.stdout is not None:
            self._server.stdout.close()

    def _ask(self, line: bytes) -> str:
        if self._server.stdin is None or self._server.stdout is None:
            raise NotHeldError("the server of processes has no pipes")
        try:
            self._server.stdin.write(line + b"\n")
            self._server.stdin.flush()
            answer = self._server.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if not answer:
            raise StorageError(
                f"the processes of the self-test cannot be started with {sys.executable}.",
                code="no_processes",
                fix="See what it says on standard error; check that this Python runs perdure.",
            )
        return answer.decode().strip()

    def _lines(self, log: str) -> list[str]:
        data = self._disk.read(log) if self._disk.stat(log) is not None else b""
        whole, _, _ = data.rpartition(b"\n")
        return whole.decode("utf-8", "replace").splitlines()
