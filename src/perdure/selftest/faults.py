"""The system calls of ``storage.disk`` in a process that is to be killed, or to find a full disk.

Job: stand in the place of ``os`` there, count the calls that change the disk, and at one of them
end the process with SIGKILL or fail with ENOSPC. Invariants: every other call is the real one; a
process is killed before the call or, at a write, when half of the bytes are written.
"""

import errno
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal

Fault = Literal["kill", "half", "full"]
"""``full``: from that call on, whatever takes space fails."""

_CHANGING: Final = frozenset(
    {"write", "replace", "unlink", "mkdir", "ftruncate", "fsync", "fdatasync"}
)
_TAKING_SPACE: Final = frozenset({"write", "mkdir", "create"})


class FaultyOs:
    """``os`` with a fault at call number ``at``; 0 never."""

    def __init__(self, at: int, fault: Fault) -> None:
        self.calls: list[str] = []
        self._at = at
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)
        return partial(self._call, name, function) if name in _CHANGING else function

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        """Counted when it may make a new file."""
        if flags & os.O_CREAT:
            return int(self._call("create", os.open, path, flags, mode))
        return os.open(path, flags, mode)

    def _call(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        self.calls.append(name)
        count = len(self.calls)
        if self._fault == "full":
            if self._at and count >= self._at and name in _TAKING_SPACE:
                self._write_half(name, function, arguments)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        elif count == self._at:
            if self._fault == "half":
                self._write_half(name, function, arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)

    def _write_half(self, name: str, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
        if name == "write":
            descriptor, data = given
            function(descriptor, data[: len(data) // 2])
