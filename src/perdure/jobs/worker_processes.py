"""Processes that work on the items of a job, each led by a thread of this process.

Job: run the function in a process of its own, which may be killed or die without harm to the rest.
Invariants: the death of a worker is an error of the item it had, and of no other; a worker that is
gone is replaced when the next task comes; a time limit ends the worker and what it started in its
process group; no worker outlives the loop: when this process is gone, however it went, its workers
read the end of their pipe and kill themselves. It never shares state with a worker: function, items
and results travel pickled.

The processes are made by a fork server where there is one, else started anew; both import the
program's main module again, so that needs ``if __name__ == "__main__":`` around what it does.
"""

import contextlib
import multiprocessing
import os
import pickle  # between this program and its own processes, never from a file
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, Final

from perdure.errors import StorageError, UsageError
from perdure.jobs.records import Failure, Finding
from perdure.jobs.workers import Task, error_text, payload_of

stop_grace_s: Final = 5.0
"""For a worker that is told to end, or has let go of its pipe, before it is killed."""
starts_max: Final = 2
"""Tries to start a worker. One that imports the program when Ctrl-C is pressed dies of it."""

# What a worker says, each before the rest of a message.
_READY: Final = b"R"
_NO_FUNCTION: Final = b"X"
_PAYLOAD: Final = b"P"
_ERROR: Final = b"E"
_END: Final = b""  # said to a worker; a pickled item is never empty

_methods: Final = multiprocessing.get_all_start_methods()
_context: Final[Any] = multiprocessing.get_context(
    "forkserver" if "forkserver" in _methods else "spawn"
)
# multiprocessing looks at all its children when it starts one, and the end of a child can be
# learned only once: so one thread at a time.
_children: Final = threading.Lock()


def pickled_function(function: Callable[[Any], object]) -> bytes:
    """The function as workers get it. Raises UsageError for one that they could not import."""
    try:
        return pickle.dumps(function)
    except Exception as error:
        raise UsageError(
            f"this function cannot be sent to another process: {error_text(error)}.",
            code="function_not_importable",
            fix="Define it with def at the top of a module, or use threads (processes=False).",
        ) from error


class WorkerProcess:
    """A ``workers.Worker`` whose function runs in a process, started with the first task."""

    def __init__(self, function: bytes, timeout_s: float | None) -> None:
        self._function = function
        self._timeout_s = timeout_s
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection[Any, Any] | None = None
        self._killed = False

    def run(self, task: Task) -> Finding | Failure | None:
        """As the protocol says. Raises UsageError or StorageError when no worker can be had."""
        try:
            item = pickle.dumps(task.item)
        except Exception as error:  # noqa: BLE001 - its __reduce__ may raise anything
            return Failure(task.key, f"the item cannot be pickled: {error_text(error)}")
        if not self._send(item):
            return None
        assert self._process is not None
        assert self._pipe is not None
        if not wait([self._pipe, self._process.sentinel], self._timeout_s):
            self._bury()
            late = f"took longer than {self._timeout_s:g} s"
            return None if self._killed else Failure(task.key, late)
        said = self._hear()
        if said is None:
            code = self._bury(stop_grace_s)
            return None if self._killed else Failure(task.key, death_text(code))
        return _outcome(task.key, said)

    def close(self) -> None:
        """End the process, patiently at first. It is gone on return."""
        if self._process is None or self._pipe is None:
            return
        is_dead = self._is_dead()
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(_END)
        self._bury(stop_grace_s, long_dead=is_dead)

    def kill(self) -> bool:
        """As the protocol says; the process is dying on return."""
        with _children:
            self._killed = True
            if not self._is_dead():
                self._kill_group()
        return True

    def _send(self, item: bytes) -> bool:
        """Give the item to a worker that is alive; False when ``kill`` forbids to start one."""
        while True:
            if self._process is None and not self._start():
                return False
            assert self._process is not None
            assert self._pipe is not None
            # One that died with nothing to do did no item any harm.
            is_dead = self._is_dead()
            if not is_dead:
                with contextlib.suppress(OSError):
                    self._pipe.send_bytes(item)
                    return True
            self._bury(long_dead=is_dead)

    def _is_dead(self) -> bool:
        return self._process is None or bool(wait([self._process.sentinel], 0))

    def _start(self) -> bool:
        """A worker that waits for an item; False when ``kill`` forbids it."""
        for _ in range(starts_max):
            if not self._spawn():
                return False
            said = self._hear()
            if said == _READY:
                return True
            code = self._bury(stop_grace_s)
            if self._killed:
                return False
            if said is not None:
                raise UsageError(
                    f"a worker process cannot load the function: {said[1:].decode()}.",
                    code="function_not_importable",
                    fix="Define it with def at the top of a module that can be imported, or use"
                    " threads (processes=False).",
                )
        raise UsageError(
            f"a worker process ended before it could begin: {death_text(code)}.",
            code="worker_not_started",
            fix="See what it printed; the program needs `if __name__ == '__main__':` around what"
            " it does when it is run.",
        )

    def _hear(self) -> bytes | None:
        """Wait for what the worker says; None when it died instead."""
        assert self._process is not None
        assert self._pipe is not None
        # The end of the pipe alone would not do: what a worker has forked may hold it open.
        if self._pipe in wait([self._pipe, self._process.sentinel]):
            with contextlib.suppress(EOFError, OSError):
                return self._pipe.recv_bytes()
        return None

    def _spawn(self) -> bool:
        with _children:
            if self._killed:
                return False
            self._pipe, its_end = _context.Pipe()
            process = _context.Process(
                target=_serve, args=(its_end, self._function, dict(os.environ)), name="perdure-map"
            )
            try:
                process.start()
            except (OSError, RuntimeError, AssertionError) as error:
                self._pipe.close()
                raise StorageError(
                    f"a worker process could not be started: {error_text(error)}.",
                    code="no_processes",
                    fix="Use fewer workers, or threads (processes=False).",
                ) from error
            finally:
                its_end.close()
            self._process = process
        return True

    def _bury(self, grace_s: float = 0.0, *, long_dead: bool = False) -> int:
        """Kill what is left of it, and forget it. Returns its exit code; minus the signal.

        Of one that is ``long_dead`` nothing is killed: its number may be somebody else's by now.
        """
        assert self._process is not None
        assert self._pipe is not None
        wait([self._process.sentinel], grace_s)  # a process lets go of its pipe, then ends
        if not long_dead:
            with _children:
                self._kill_group()
        wait([self._process.sentinel])
        with _children:
            process, self._process = self._process, None
            process.join()
            code = process.exitcode
            process.close()
        self._pipe.close()
        return 255 if code is None else code

    def _kill_group(self) -> None:
        """SIGKILL to the process, and to what it started, unless that left its group.

        For one that runs, or ended a moment ago, when no other can have its number yet.
        """
        if self._process is None or self._process.pid is None:
            return
        # One that was only just started is in our own group still.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            self._process.kill()
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


def death_text(code: int) -> str:
    """How a worker ended, in words."""
    if code >= 0:
        return f"its worker process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"its worker process was killed by {name}"


def _outcome(key: str, said: bytes) -> Finding | Failure:
    kind, rest = said[:1], said[1:]
    if kind == _ERROR:
        return Failure(key, rest.decode())
    try:
        return Finding(key, pickle.loads(rest))  # noqa: S301 - our own worker made it
    except Exception as error:  # noqa: BLE001 - what unpickles may raise anything
        return Failure(key, f"the result cannot be unpickled: {error_text(error)}")


# In the worker


def _serve(pipe: "Connection[Any, Any]", function: bytes, environment: dict[str, str]) -> None:
    """What a worker process does from beginning to end."""
    if hasattr(os, "setpgid"):
        # A Ctrl-C in the terminal is for the parent, which lets us finish what we have; and what
        # the function starts can be killed with us.
        os.setpgid(0, 0)
    os.environ.clear()  # a fork server keeps the one it was started with
    os.environ.update(environment)
    try:
        call = pickle.loads(function)  # noqa: S301 - our parent made it
    except BaseException as error:  # noqa: BLE001 - an import may raise anything
        pipe.send_bytes(_NO_FUNCTION + error_text(error).encode())
        return
    inbox: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, inbox), daemon=True).start()
    try:
        pipe.send_bytes(_READY)
        while data := inbox.get():
            pipe.send_bytes(_do(call, data))
    except OSError:
        _die()


def _do(call: Callable[[Any], object], data: bytes) -> bytes:
    try:
        item = pickle.loads(data)  # noqa: S301 - our parent made it
        return _PAYLOAD + pickle.dumps(payload_of(call(item)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this item's outcome
        return _ERROR + error_text(error).encode()


def _listen(pipe: "Connection[Any, Any]", inbox: "SimpleQueue[bytes]") -> None:
    """Take items in, also while the function runs, so that the end of the parent is noticed."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            inbox.put(pipe.recv_bytes())
    _die()


def _die() -> None:
    """The parent is gone and nobody wants the result: end at once, with what the function began."""
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
