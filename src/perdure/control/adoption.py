"""The proof that a finished command left nothing behind, without a look at every process.

Job: make this process the one that adopts the orphans of its descendants (Linux), so that whatever
outlives a command becomes a child of ours; then a short list of children tells what is left.
Invariants: ``is_clear`` is True only when no child but the expected ones lives, and each of those
leads a command of its own; what cannot be known is not clear, and the caller looks at all processes
instead; only orphans that were adopted are reaped, and never a child of this session, because a
command and all that it starts are in sessions of their own.
Never: signals a process, unless ``stop_strangers`` is called.

Why that is a proof: when a process ends, the kernel hands its children to the nearest ancestor that
adopts, before the end can be seen. So the living descendants of commands that have ended hang below
children of ours that nobody expects. Two ways out remain: a process that somebody else started on
behalf of the command (a service manager, a container engine), which was never its descendant, and
one in another pid namespace that the command could enter. The second is found by its environment
only, as long as something else keeps the list from being clear.
"""

import ctypes
import os
import sys
import threading
from typing import Any, Final

from perdure.ports import Clock
from perdure.runtime.orphans import Orphan, start_time, start_tolerance_s, stop_orphans

stranger_grace_s: Final = 2.0
"""Between SIGTERM and SIGKILL for what hid from every look but the last."""

_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37


def adopt_orphans() -> "Adoption | None":
    """Adopt from now on, until ``close``. None where the system has no such thing, or hides it.

    Holds for the whole process. The caller's thread starts no other children meanwhile, unless it
    says so with ``expect``; those that were there before are known.
    """
    if sys.platform != "linux":
        return None
    before = ctypes.c_int(0)
    if _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before)) != 0:
        return None
    children = _children()
    if children is None or _prctl(_PR_SET_CHILD_SUBREAPER, 1) != 0:
        return None
    known = {pid: start_time(pid) for pid in [*children[0], *children[1]]}
    return Adoption(known, before.value)


class Adoption:
    """The children of this process: those that are expected, and those it adopted."""

    def __init__(self, before: dict[int, float], setting: int) -> None:
        self._expected: set[int] = set()
        self._before = before
        self._alone = not before
        self._setting = setting
        # Orphans come to the main thread. Elsewhere they cannot be told from children of others.
        self._reaps = threading.get_native_id() == os.getpid()

    def expect(self, pid: int) -> None:
        """A child that the caller started and will reap."""
        self._expected.add(pid)

    def forget(self, pid: int) -> None:
        """It was reaped, so that its pid may become another's."""
        self._expected.discard(pid)

    def is_clear(self) -> bool:
        """Whether it is proven that no command that has ended left a process behind."""
        children = _children()
        if children is None:
            return False
        return not any(self._is_stranger(pid, False) for pid in children[0]) and not [
            pid for pid in children[1] if self._is_stranger(pid, self._reaps)
        ]

    def strangers(self) -> list[Orphan]:
        """The living orphans that were adopted: when no command runs, what commands left behind.

        Empty where that is not proven: outside the main thread, and when this process had children
        before, whose orphans would be among them.
        """
        import psutil

        children = _children() if self._reaps and self._alone else None
        found = []
        for pid in children[1] if children is not None else []:
            if not self._is_stranger(pid, True):
                continue
            try:
                process = psutil.Process(pid)
                found.append(Orphan(pid, process.name(), "", process.create_time()))
            except psutil.Error:
                continue
        return found

    def close(self) -> None:
        """Reap what has ended and leave adopting as it was found."""
        self.is_clear()
        _prctl(_PR_SET_CHILD_SUBREAPER, self._setting)

    def _is_stranger(self, pid: int, reap: bool) -> bool:
        """A living child that nobody expects. One that has ended is reaped when that is ours."""
        if pid in self._expected or self._was_before(pid):
            return False
        options = os.WEXITED | os.WNOHANG | (0 if reap else os.WNOWAIT)
        try:
            # A thread that has ended may have left such a child to another one, which waits for it.
            if os.getsid(pid) == os.getsid(0):
                return False
            return os.waitid(os.P_PID, pid, options) is None
        except (ChildProcessError, ProcessLookupError):
            return False

    def _was_before(self, pid: int) -> bool:
        started = self._before.get(pid)
        if started is None:
            return False
        if abs(started - start_time(pid)) <= start_tolerance_s:
            return True
        del self._before[pid]
        return False


def stop_strangers(adoption: Adoption | None, clock: Clock) -> tuple[list[Orphan], list[Orphan]]:
    """Stop what commands left that hid from every other look, once no command runs any more.

    What was found, and what of it is still there. Such a process has left its session and lost its
    environment and its parent: only that we adopted it tells whose it is.
    """
    strangers = adoption.strangers() if adoption is not None else []
    if not strangers:
        return [], []
    return strangers, stop_orphans(strangers, clock=clock, grace_s=stranger_grace_s)


def _children() -> tuple[list[int], list[int]] | None:
    """The children of other threads, and those of the main thread; None when they are hidden.

    A thread that ends hands its children to the main thread, so that one is read last. In the list
    of a thread a child can only be missed while that thread reaps another one.
    """
    main = os.getpid()
    try:
        others = [int(name) for name in os.listdir("/proc/self/task") if int(name) != main]
        of_others = [pid for thread in others for pid in _children_of(thread, missing_ok=True)]
        return of_others, _children_of(main, missing_ok=False)
    except OSError:
        return None


def _children_of(thread: int, *, missing_ok: bool) -> list[int]:
    try:
        with open(f"/proc/self/task/{thread}/children", "rb", buffering=0) as file:
            pieces = list(iter(lambda: file.read(1 << 16), b""))
    except (FileNotFoundError, ProcessLookupError):
        if missing_ok:
            return []
        raise
    return [int(pid) for pid in b"".join(pieces).split()]


def _prctl(option: int, value: Any) -> int:
    try:
        result: int = ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        return -1
    return result
