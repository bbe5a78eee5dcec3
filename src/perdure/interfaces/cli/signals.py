"""Signals of the terminal and of service managers, for commands that drive work.

Job: SIGINT, SIGTERM and SIGHUP (a closed window) ask the loop to stop instead of ending the
process. Invariants: a signal that comes before there is a loop is kept for it; what was set before
is set again afterwards; a SIGHUP that whoever started us had ignored (``nohup``) stays ignored.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Interrupt = Callable[[int], None]


@contextmanager
def signals_to_the_loop() -> Iterator[Callable[[Interrupt], None]]:
    """Yields the function that takes the loop's own ``interrupt`` once there is a loop.

    A second signal before that ends the command with KeyboardInterrupt.
    """
    loops: list[Interrupt] = []
    early: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if loops:
            loops[0](number)
        elif early:
            raise KeyboardInterrupt
        else:
            early.append(number)

    def on_loop(interrupt: Interrupt) -> None:
        loops.append(interrupt)
        for number in early:
            interrupt(number)

    before = {number: signal.signal(number, handle) for number in _numbers()}
    try:
        yield on_loop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _numbers() -> list[int]:
    numbers: list[int] = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers
