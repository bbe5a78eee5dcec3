"""What the worker processes of tests run; they import this and little else."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.util import Finalize
from typing import Any

import psutil


def double(item: int) -> dict[str, Any]:
    return {"double": 2 * item, "pid": os.getpid()}


def misbehave(item: str) -> object:
    """Does what the item says, to the process it runs in."""
    what, _, rest = item.partition(" ")
    returned = DEEDS[what](rest) if what in DEEDS else None
    return returned or {"pid": os.getpid()}


def kill(name: str) -> None:
    os.kill(os.getpid(), getattr(signal, name))


def hang(path: str) -> None:
    tell(path)
    threading.Event().wait()


def leave_child() -> int:
    """A child that holds on to everything that is open here."""
    child = os.fork()
    if child == 0:
        signal.pause()
    return child


def hang_with_child(path: str) -> None:
    tell(path, leave_child())
    threading.Event().wait()


def die_later(path: str) -> None:
    """After the result is sent, with nothing to do."""
    threading.Thread(target=die_when_asked, args=(path,)).start()


def leave_child_and_die_later(path: str) -> dict[str, int]:
    child = leave_child()
    die_later(path)
    return {"pid": os.getpid(), "child": child}


def fail(message: str) -> None:
    raise ValueError(message)


DEEDS: dict[str, Callable[[str], object]] = {
    "exit": lambda code: os._exit(int(code)),
    "sys.exit": lambda code: sys.exit(int(code)),
    "kill": kill,
    "hang": hang,
    "hang-with-child": hang_with_child,
    "die-later": die_later,
    "leave-child-and-die-later": leave_child_and_die_later,
    "raise": fail,
    "unpicklable": lambda _: {"lock": threading.Lock()},
    "environment": lambda name: {"value": os.environ.get(name)},
    "tell-at-end": lambda path: Finalize(None, tell, (path,), exitpriority=0) and None,
}


def tell(path: str, *pids: int) -> None:
    """Say in a file which processes there are; whole or not at all."""
    with open(f"{path}.new", "w") as file:
        file.write(" ".join(str(pid) for pid in (os.getpid(), *pids)))
    os.rename(f"{path}.new", path)


def told(path: str) -> list[int]:
    """Wait until a process has said so; its pid and those it told of."""
    while not os.path.exists(path):
        time.sleep(0.002)
    with open(path) as file:
        return [int(word) for word in file.read().split()]


def wait_for_end(*pids: int) -> None:
    """Wait until these processes have ended. A zombie has, whoever has not asked for it yet."""
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.002)


def die_when_asked(path: str) -> None:
    told(path)
    os._exit(1)


class CannotBePickled:
    def __reduce__(self) -> str:
        raise RuntimeError("stays here")


class CannotBeUnpickled:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return fail_to_make, ("only there",)


def fail_to_make(why: str) -> object:
    raise RuntimeError(why)


def return_cannot_be_unpickled(item: str) -> dict[str, Any]:
    return {"value": CannotBeUnpickled()}


class DiesOnce:
    """A function whose first worker does not live to call it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return live_the_second_time, (self.path,)

    def __call__(self, item: object) -> object:
        raise AssertionError


def live_the_second_time(path: str) -> Callable[[str], object]:
    if not os.path.exists(path):
        tell(path)
        os._exit(1)
    return misbehave
