"""Holding a child process to what its contract grants (INV-10).

Job: on Linux, start a child that may write only where it is granted and reach the network only
when that is granted (Landlock); elsewhere say that it is a matter of policy. Invariants: nothing is
ever promised that the kernel does not hold; the restriction lies on the thread that starts the
child and on the child with all that it starts, never on this process; reading is not restricted.
What is not covered: chmod and other changes of what already exists under another name, datagrams
and raw sockets, and whatever a service outside does on the child's behalf.
"""

import _thread
import ctypes
import os
import platform
import struct
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

from perdure.errors import StorageError

T = TypeVar("T")

_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
"""The same numbers on every architecture that has them."""
_VERSION_FLAG: Final = 1
_RULE_PATH_BENEATH: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38

_WRITE_FILE: Final = 1 << 1
_REMOVE_DIR: Final = 1 << 4
_MAKE_ALL: Final = sum(1 << bit for bit in range(6, 13))
_REMOVE_FILE: Final = 1 << 5
_REFER: Final = 1 << 13
_TRUNCATE: Final = 1 << 14
_TREE: Final = _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_ALL
_NETWORK: Final = 0b11
"""Binding and connecting of TCP."""


class Capability(NamedTuple):
    """What the kernel can hold a child to."""

    abi: int
    """Of Landlock; 0 where there is none."""

    @property
    def writes(self) -> bool:
        """Whether it can be kept from writing elsewhere."""
        return self.abi >= 1

    @property
    def network(self) -> bool:
        """Whether it can be kept from the network, as far as that is TCP."""
        return self.abi >= 4

    def as_dict(self) -> dict[str, Any]:
        """As contracts and ``perdure doctor`` show it."""
        return {
            "writes": "landlock" if self.writes else "policy only",
            "network": "landlock (TCP)" if self.network else "policy only",
            "abi": self.abi,
        }


class Confinement(NamedTuple):
    """What a child is held to."""

    write: tuple[str, ...] = ()
    """Absolute paths: a directory with all below it, or a file. What is not there is skipped."""
    network: bool = False


@cache
def capability() -> Capability:
    """What this kernel can do; asked once."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64", "riscv64"):
        return Capability(0)
    try:
        version = _syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError:
        return Capability(0)
    return Capability(max(0, version))


def start_confined(confinement: Confinement | None, start: Callable[[], T]) -> T:
    """Call ``start``, which starts a child, so that the child is confined; what it returns.

    Without a confinement, or where the kernel has none, it is simply called. What it raises is
    raised here. Raises StorageError when the kernel refuses what it said it could do: then nothing
    was started.
    """
    if confinement is None or not capability().writes:
        return start()
    outcome: list[T] = []
    problem: list[BaseException] = []

    def restricted() -> None:
        try:
            _restrict_this_thread(confinement, capability())
            outcome.append(start())
        except BaseException as error:  # noqa: BLE001  (raised again by the caller's thread)
            problem.append(error)
        finally:
            ended.release()

    # The restriction is the thread's, and what it starts inherits it; this thread keeps its rights.
    # A bare thread, for a run waits for one at each start: ``threading`` takes three times as long.
    ended = threading.Lock()
    ended.acquire()
    _thread.start_new_thread(restricted, ())
    ended.acquire()
    if problem:
        raise problem[0]
    return outcome[0]


def _restrict_this_thread(confinement: Confinement, able: Capability) -> None:
    handled = _TREE
    if able.abi >= 2:
        handled |= _REFER
    if able.abi >= 3:
        handled |= _TRUNCATE
    network = _NETWORK if able.network and not confinement.network else 0
    attributes = struct.pack("QQ", handled, network) if able.abi >= 4 else struct.pack("Q", handled)
    try:
        ruleset = _syscall(_CREATE_RULESET, attributes, len(attributes), 0)
        try:
            for path in (*confinement.write, os.devnull):
                _allow(ruleset, path, handled)
            if _library().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "no_new_privs was refused")
            _syscall(_RESTRICT_SELF, ruleset, 0)
        finally:
            os.close(ruleset)
    except OSError as error:
        raise StorageError.from_os(error, "Landlock", "Confining a command") from error


def _allow(ruleset: int, path: str, handled: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights = handled if os.path.isdir(path) else handled & (_WRITE_FILE | _TRUNCATE)
        _syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)


@cache
def _library() -> Any:
    """The C library; opening it again for each call would cost more than the calls."""
    return ctypes.CDLL(None, use_errno=True)


def _syscall(number: int, *arguments: Any) -> int:
    library = _library()
    given = [
        ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a or 0) for a in arguments
    ]
    result = int(library.syscall(ctypes.c_long(number), *given))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
