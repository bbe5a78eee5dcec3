"""The processes of the self-test that are killed, stopped and raced.

Job: ``python -m perdure.selftest.child serve`` forks one process for each order it reads on its
standard input, so that a death costs a fork and not a start of Python; ``full DIRECTORY BYTES``
fills a small file system of its own. Invariants: each order runs the production code on the real
disk; what it reports is in its log file before it goes on; when the self-test is gone, however it
ended, so is every one of these, also a stopped one.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Final, NoReturn

import msgspec

from perdure.errors import HaltError
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.world import World, real_world
from perdure.selftest.checks import NotHeldError, promise_of
from perdure.selftest.faults import Fault, FaultyOs
from perdure.selftest.fullness import fill
from perdure.selftest.workload import TASK, live
from perdure.storage import disk as disk_module
from perdure.storage.filelock import RealFileLock

life_s: Final = 60
"""An order that takes longer is killed by its own alarm."""


class Order(msgspec.Struct):
    """What one process is to do."""

    do: str
    root: str
    log: str
    at: int = 0
    fault: Fault = "kill"
    count: int = 0
    """Commits to make."""
    name: str = ""


def say(text: str) -> None:
    """One line of the log, at once; past the disk whose calls are counted."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _live(order: Order, world: World) -> None:
    def promise(seq: int) -> None:
        _, length, digest = promise_of(world, order.root, seq)
        say(f"ack {seq} {length} {digest}")

    live(world, order.root, promise)


def _recover(order: Order, world: World) -> None:
    HaltRuntime(order.root, TASK, world=world).close()


def _write(order: Order, world: World) -> None:
    runtime = HaltRuntime.attach(order.root, actor=f"executor:{order.name}", world=world)
    for number in range(order.count):
        event = runtime.note(f"{order.name} {number}")
        say(f"wrote {event.seq}")
    runtime.close()


def _hold(order: Order, world: World) -> None:
    runtime = HaltRuntime(order.root, TASK, world=world)
    event = runtime.note("I coordinate")
    say(f"wrote {event.seq}")
    while order.name != "stop":
        world.clock.sleep(1.0)
    os.kill(os.getpid(), signal.SIGSTOP)
    event = runtime.note("I still coordinate")
    say(f"wrote {event.seq}")


def _lock(order: Order, world: World) -> None:
    lock = RealFileLock(order.root)
    say("taken" if lock.try_acquire() else "kept out")


_ORDERS: Final[dict[str, Callable[[Order, World], None]]] = {
    "live": _live,
    "recover": _recover,
    "write": _write,
    "hold": _hold,
    "lock": _lock,
}


def _carry_out(order: Order) -> None:
    """In the forked process: the order, its end told in the log."""
    signal.alarm(life_s)
    log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    counted = FaultyOs(order.at, order.fault)
    vars(disk_module)["os"] = counted
    try:
        _ORDERS[order.do](order, real_world())
    except HaltError as error:
        say(f"refused {error.code} {error.exit_code} {error.message}")
    except BaseException as error:  # noqa: BLE001 - the log is the only place to say it
        text = " ".join(str(error).split())
        say(f"fault {type(error).__name__}: {text}")
    else:
        say(f"calls {len(counted.calls)}")


def serve() -> None:
    """Carry out orders until the self-test closes the pipe, then leave nobody behind."""
    children: set[int] = set()
    try:
        for line in sys.stdin.buffer:
            word, _, rest = line.partition(b" ")
            if word == b"start":
                order = msgspec.json.decode(rest, type=Order)
                child = os.fork()
                if not child:
                    _end(order)
                children.add(child)
                say(str(child))
            else:
                child = int(rest)
                _, status = os.waitpid(child, 0)
                children.discard(child)
                say(str(os.waitstatus_to_exitcode(status)))
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _end(order: Order) -> NoReturn:
    try:
        _carry_out(order)
    finally:
        os._exit(0)


def full(directory: str, size_bytes: int) -> None:
    """Mount a small file system, which vanishes with this process, and fill it.

    Says ``held N`` for N acknowledged commits, ``broken WHY``, or ``unavailable WHY`` where no file
    system can be mounted.
    """
    options = f"size={size_bytes}"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", directory],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not os.path.ismount(directory):
        say(f"unavailable {done.stderr.strip() or 'mount failed'}")
        return
    try:
        say(f"held {fill(real_world(), directory)}")
    except (NotHeldError, HaltError, AssertionError) as error:
        say(f"broken {error}")


def main(arguments: list[str]) -> None:
    """``serve [MODULE:FUNCTION]``, whose function is called first; or ``full DIRECTORY BYTES``."""
    if arguments[0] == "full":
        full(arguments[1], int(arguments[2]))
        return
    if len(arguments) > 1:
        module, _, function = arguments[1].partition(":")
        getattr(import_module(module), function)()
    with contextlib.suppress(BrokenPipeError):  # the self-test was killed
        serve()
    os._exit(0)  # without another flush into that pipe


if __name__ == "__main__":
    main(sys.argv[1:])
