"""The way from children to their logs through one process that masks secrets (SE-1).

Job: start that process when it is first needed, hand it the pipes, and wait for what a child has
printed. Invariants: raw output of a child is in pipes and in memory, never in a file; what was
printed before :meth:`LogPump.flush` is in the log after it, masked; the process is in a session of
its own and outlives the coordinator for as long as a child prints; where it cannot be had, nothing
is started. It never waits longer than ``flush_wait_s``.
"""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from perdure.control import log_pump_main
from perdure.errors import StorageError
from perdure.ports import Clock
from perdure.runtime.orphans import INVOCATION_VARIABLE

flush_wait_s: Final = 5.0
end_wait_s: Final = 1.0
"""How long its own end is waited for; without children it takes no time."""


class LogPump:
    """The masking process of one coordinator. Not for several threads at once."""

    def __init__(
        self,
        names: Mapping[str, str],
        clock: Clock,
        *,
        expect: Callable[[int], object] | None = None,
    ) -> None:
        """``names`` are the declared secrets: name to value. ``expect`` is told of the process."""
        self._names = dict(names)
        self._clock = clock
        self._expect = expect
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._number = 0
        self._unread = b""

    def open(self, target: int) -> tuple[int, str]:
        """A descriptor for a child to print to, whose output goes to the log open at ``target``,
        and the name to flush it by. The caller closes both descriptors once the child has them.

        Raises StorageError when the process cannot be started.
        """
        source, sink = os.pipe()
        self._number += 1
        name = str(self._number)
        try:
            self._send({"open": name}, (source, target))
        except OSError:
            self._forget()  # it was killed: another one takes the next children
            try:
                self._send({"open": name}, (source, target))
            except OSError as error:
                os.close(sink)
                raise StorageError.from_os(error, "the log of a child", "Masking") from error
        finally:
            os.close(source)
        return sink, name

    def flush(self, names: Sequence[str]) -> str:
        """Wait until all that was printed so far is in the logs; returns what kept it from that."""
        if self._control is None:
            return ""
        self._number += 1
        try:
            self._send({"flush": list(names), "number": self._number}, ())
            errors = self._answer(self._number)
        except OSError:
            return "the process that masks logs has ended"
        return "; ".join(errors.values())

    def close(self) -> None:
        """Let it go: it ends by itself when the last child has."""
        self._forget()

    def _send(self, order: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        if self._control is None:
            self._start()
        assert self._control is not None
        data = json.dumps(order).encode() + b"\n"
        if descriptors:
            socket.send_fds(self._control, [data], descriptors)
        else:
            self._control.sendall(data)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PERDURE_")}
        environment.pop(INVOCATION_VARIABLE, None)
        command = [sys.executable, "-m", log_pump_main.__name__]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                    cwd="/",
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        if self._expect is not None:
            self._expect(self._process.pid)
        self._control = ours
        ours.sendall(json.dumps({"names": self._names}).encode() + b"\n")

    def _answer(self, number: int) -> dict[str, str]:
        assert self._control is not None
        give_up_at = self._clock.monotonic() + flush_wait_s
        while True:
            while b"\n" in self._unread:
                line, _, self._unread = self._unread.partition(b"\n")
                said = json.loads(line)
                if said["flushed"] == number:
                    errors: dict[str, str] = said["errors"]
                    return errors
            left_s = give_up_at - self._clock.monotonic()
            if left_s <= 0 or not select.select([self._control], [], [], left_s)[0]:
                return {"": f"no answer within {flush_wait_s:g} s"}
            data = self._control.recv(1 << 16)
            if not data:
                raise ConnectionResetError
            self._unread += data

    def _forget(self) -> None:
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.close()
        self._control = None
        self._unread = b""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(end_wait_s)
        except subprocess.TimeoutExpired:
            process.returncode = 0  # a child still prints: it ends with it, whoever reaps it then
