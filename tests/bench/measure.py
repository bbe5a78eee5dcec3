"""Measuring beside a physical limit: alternate short rounds of both, compare round by round.

The machine is never quiet, so no time means anything by itself. Limit and subject take turns, each
round gives one ratio, and what is reported is the median of the ratios with the smallest and the
largest. Which of the two goes first changes from round to round. Nothing here judges: a figure that
misses its target is printed like any other.
"""

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Timed = Callable[[], float]
"""One short round; returns its time in seconds."""


class Figure(NamedTuple):
    """One line of the result: how a subject compares with its limit, round by round."""

    name: str
    ratio: float
    """Median of the rounds."""
    smallest: float
    largest: float
    target: str
    """As the plan says it, for instance ``>= 0.75``; empty where there is none."""
    sizes: dict[str, Any]
    """Counts, sizes, and the median times behind the ratio."""

    def line(self) -> str:
        """The figure as a line for people."""
        numbers = f"{self.ratio:8.3f}  ({self.smallest:.3f} .. {self.largest:.3f})"
        sizes = ", ".join(f"{name} {_shown(value)}" for name, value in self.sizes.items())
        return f"  {self.name:<50} {numbers:<28} {self.target:<9} {sizes}"


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


class Rounds:
    """The times of each participant, round by round."""

    def __init__(self, names: Sequence[str]) -> None:
        self.times: dict[str, list[float]] = {name: [] for name in names}

    def median_us(self, name: str, per: int = 1) -> float:
        """Microseconds of one of ``per`` operations in a round."""
        return statistics.median(self.times[name]) / per * 1e6

    def ratios(self, above: str, below: str) -> list[float]:
        """Time of ``above`` divided by time of ``below`` in the same round, for each round."""
        return [a / b for a, b in zip(self.times[above], self.times[below], strict=True)]

    def figure(
        self, name: str, above: str, below: str, target: str, sizes: dict[str, Any]
    ) -> Figure:
        """The ratio of two participants as a figure."""
        ratios = self.ratios(above, below)
        sizes = {**sizes, "rounds": len(ratios)}
        return Figure(name, statistics.median(ratios), min(ratios), max(ratios), target, sizes)


def alternate(rounds: int, participants: dict[str, Timed], *, warm_up: int = 1) -> Rounds:
    """Let the participants take turns; the first of a round goes last in the next one."""
    result = Rounds(list(participants))
    order = list(participants)
    gc.collect()
    for number in range(warm_up + rounds):
        for name in order:
            seconds = participants[name]()
            if number >= warm_up:
                result.times[name].append(seconds)
        order.append(order.pop(0))
    return result


def timed(action: Callable[..., object], *arguments: object) -> float:
    """How long one call takes, in seconds."""
    began = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - began


class AppendLoop:
    """The limit of a commit: append a line and wait until it is on the medium, nothing else."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def run(self, count: int, line_bytes: int) -> float:
        """Seconds for ``count`` lines of that size, newline included."""
        line = b"x" * (line_bytes - 1) + b"\n"
        descriptor, write, sync = self._descriptor, os.write, _sync_data
        began = time.perf_counter()
        for _ in range(count):
            write(descriptor, line)
            sync(descriptor)
        return time.perf_counter() - began

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)


if sys.platform == "darwin":
    import fcntl

    def _sync_data(descriptor: int) -> None:
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:
    _sync_data = os.fdatasync


def replace_durably(path: str, data: bytes) -> None:
    """The bare steps of putting a file in place: write, sync, rename, sync the directory."""
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(descriptor, data)
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(f"{path}.new", path)
    sync_directory(os.path.dirname(path))


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)


class ProcessTimer:
    """Whole processes, from spawn to exit, with their output thrown away."""

    def __init__(self) -> None:
        self._null = os.open(os.devnull, os.O_RDWR)

    def run(self, arguments: Sequence[str]) -> float:
        """Seconds of one run. Raises RuntimeError when it fails: then its time means nothing."""
        files = [(os.POSIX_SPAWN_DUP2, self._null, number) for number in (0, 1, 2)]
        began = time.perf_counter()
        pid = os.posix_spawn(arguments[0], list(arguments), os.environ, file_actions=files)
        status = os.waitpid(pid, 0)[1]
        seconds = time.perf_counter() - began
        if status:
            raise RuntimeError(f"exit code {os.waitstatus_to_exitcode(status)}: {arguments}")
        return seconds


def file_system(directory: Path) -> str:
    """The type of the file system there, from the mount table; ``unknown`` where there is none."""
    try:
        table = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return "unknown"
    best, kind = "", "unknown"
    for line in table:
        _, mount, found = line.split()[:3]
        inside = directory.resolve().is_relative_to(mount)
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind
