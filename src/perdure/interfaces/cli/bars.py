"""Bars at the bottom of a terminal, with lines of text going by above them.

Job: the one place that draws with rich. Invariants: the terminal is left as it was, with the last
state of the bars on it; text of others is never taken for markup. It decides nothing.
"""

from typing import Any


class Bars:
    """Some bars, drawn from ``start`` to ``stop``."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]}", markup=False),
            TimeElapsedColumn(),
        )

    def start(self) -> None:
        """Begin to draw."""
        self._progress.start()

    def add(self, label: str) -> Any:
        """A new bar of unknown length; what it returns names it."""
        return self._progress.add_task(label, total=None, count="")

    def label(self, bar: Any, text: str) -> None:
        """Call a bar something else."""
        self._progress.update(bar, description=text)

    def move(self, bar: Any, done: int, total: int, count: str) -> None:
        """Say how far it is; ``count`` stands beside it."""
        self._progress.update(bar, completed=done, total=total, count=count)

    def remove(self, bar: Any) -> None:
        """Take a bar away."""
        self._progress.remove_task(bar)

    def write(self, line: str) -> None:
        """A line of text above the bars."""
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> bool:
        """End drawing; False when the terminal is gone."""
        try:
            self._progress.stop()
        except OSError:
            return False
        return True
