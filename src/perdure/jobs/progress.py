"""How far a loop over items is: a bar on a terminal, or a call.

Job: show the counts it is told. Invariants: rich is imported only when a bar is shown; the bar goes
to standard error and what the program prints to standard output stays there; showing costs little,
however often it is told. It decides nothing and counts nothing.
"""

import contextlib
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Protocol, Self

from perdure.ports import Clock

renew_s: Final = 0.1
"""Between two renewals of the bar."""

OnProgress = Callable[[int, int, int | None], object]
"""Called with done, failed, total; total is None where nobody knows it."""


class Progress(Protocol):
    """Somewhere to say how far it is."""

    def __call__(self, done: int, failed: int) -> None:
        """So many items need nothing more, so many have failed so far."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing more comes."""


class Quiet(contextlib.AbstractContextManager["Quiet"]):
    """Shows nothing; or calls ``told``."""

    def __init__(self, told: OnProgress | None = None, total: int | None = None) -> None:
        self._told = told
        self._total = total

    def __call__(self, done: int, failed: int) -> None:
        """Pass it on."""
        if self._told is not None:
            self._told(done, failed, self._total)

    def __exit__(self, *_: object) -> None:
        """Nothing to put in order."""


class Bar(contextlib.AbstractContextManager["Bar"]):
    """A bar at the bottom of a terminal, with rate and time left. It stays when it is closed."""

    def __init__(self, total: int | None, clock: Clock, *, force: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        stdout = sys.stdout
        self._progress: Any = RichProgress(
            BarColumn(),
            TextColumn("{task.fields[count]}", markup=False),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeElapsedColumn(),
            *([] if total is None else [TextColumn("left", markup=False), TimeRemainingColumn()]),
            console=Console(file=sys.stderr, force_terminal=True if force else None),
            get_time=clock.monotonic,
            # What is printed goes above the bar where it would go through it; a file that the
            # output was sent to gets it all the same.
            redirect_stdout=stdout is not None and stdout.isatty(),
        )
        self._clock = clock
        self._total = total
        self._due_at = 0.0
        self._counts = (0, 0)
        self._task = self._progress.add_task("", total=total, count="", rate="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __call__(self, done: int, failed: int) -> None:
        """Show it, now or with one of the next calls."""
        self._counts = done, failed
        now = self._clock.monotonic()
        if now >= self._due_at:
            self._due_at = now + renew_s
            self._renew()

    def __exit__(self, *_: object) -> None:
        """Show the last counts and leave the terminal as it was."""
        self._renew()
        with contextlib.suppress(OSError):  # a terminal that is gone takes nothing else along
            self._progress.stop()

    def _renew(self) -> None:
        done, failed = self._counts
        speed = self._progress.tasks[0].speed
        self._progress.update(
            self._task,
            completed=done + failed,
            count=count_text(done, failed, self._total),
            rate="" if speed is None else f"{speed:,.1f}/s",
        )


def progress_for(wish: bool | OnProgress | None, total: int | None, clock: Clock) -> Progress:
    """What a caller wants to see: a bar, a call, nothing; None: a bar on a terminal."""
    if callable(wish):
        return Quiet(wish, total)
    if wish or (wish is None and sys.stderr is not None and sys.stderr.isatty()):
        return Bar(total, clock, force=bool(wish))
    return Quiet()


def count_text(done: int, failed: int, total: int | None) -> str:
    """The counts in words."""
    text = f"{done:,}" if total is None else f"{done:,}/{total:,}"
    return f"{text}, {failed:,} failed" if failed else text
