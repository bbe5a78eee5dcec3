"""Figures of the run loop: what a node costs beyond its command, and whether it keeps cores busy.

The limit is one line of the same size appended and synced. Beside it, in the same rounds, the very
command of the nodes is started and waited for without anything else, free and confined as the run
confines it: what that takes is not dispatch and is taken out.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from measure import AppendLoop, Figure

from perdure.control.confinement import Confinement, start_confined

jobs: Final = 8
rounds: Final = 5
spawns: Final = 200
"""Of each kind, before and after each run."""
appends: Final = 400
line_bytes: Final = 600
"""About the mean of what a run writes; the figures say what it was."""

_DEVICES: Final = ("/dev/tty", "/dev/zero", "/dev/full", "/dev/ptmx", "/dev/pts")


class _Run(NamedTuple):
    dispatch_s: float
    """From the first contract to the last verdict, by the journal."""
    whole_s: float
    cpu_s: float
    """User and system, of the coordinator and all its children."""
    peak_kb: int
    line_bytes: int


def dispatch_figures(directory: Path, nodes: int) -> Iterator[Figure]:
    """``nodes`` nodes that write one file each, under ``--jobs 8``."""
    place = directory / "dispatch"
    place.mkdir()
    bare = _BareStarts(place)
    append = AppendLoop(place / "log")
    runs: list[_Run] = []
    costs: dict[str, list[float]] = {"append": [], "plain": [], "confined": []}
    limits: dict[str, Callable[[], float]] = {
        "append": lambda: append.run(appends, line_bytes) / appends,
        "plain": lambda: bare.run(spawns, confined=False) / spawns,
        "confined": lambda: bare.run(spawns, confined=True) / spawns,
    }
    for number in range(rounds):
        around: dict[str, list[float]] = {name: [] for name in costs}
        for name, measure in limits.items():
            around[name].append(measure())
        runs.append(_run(place / f"run-{number}", nodes))
        for name, measure in reversed(limits.items()):
            around[name].append(measure())
        for name, found in around.items():
            costs[name].append(sum(found) / len(found))
    append.close()
    yield from _figures(nodes, runs, costs)


def _figures(nodes: int, runs: list[_Run], costs: dict[str, list[float]]) -> Iterator[Figure]:
    per_node = [run.dispatch_s / nodes for run in runs]
    append, plain, confined = (costs[name] for name in ("append", "plain", "confined"))
    beyond = [a - b for a, b in zip(per_node, confined, strict=True)]
    shown = {"us": _us(beyond), "append and sync us": _us(append), "nodes": nodes, "jobs": jobs,
             "bytes a line": runs[-1].line_bytes}  # fmt: skip
    yield _figure("a node, beyond the start of its command", beyond, append, "<= 6", shown)
    shown = {"us": _us(per_node), "whole run s": statistics.median(r.whole_s for r in runs)}
    yield _figure("a node, with its command", per_node, append, "", shown)
    yield _figure("the command alone, confined", confined, append, "", {"us": _us(confined)})
    yield _figure("the command alone, free", plain, append, "", {"us": _us(plain)})
    cores = os.cpu_count() or 1
    shown = {"cpu s": statistics.median(run.cpu_s for run in runs), "cores": cores}
    used = [run.cpu_s for run in runs]
    whole = [run.whole_s * cores for run in runs]
    yield _figure("processor time used, of all there is", used, whole, "near 1", shown)
    peaks = [run.peak_kb / 1024 for run in runs]
    yield Figure("memory of the coordinator, MB", statistics.median(peaks), min(peaks), max(peaks),
                 "", {"nodes": nodes})  # fmt: skip


def _figure(
    name: str, above: list[float], below: list[float], target: str, sizes: dict[str, object]
) -> Figure:
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    sizes = {**sizes, "rounds": len(ratios)}
    return Figure(name, statistics.median(ratios), min(ratios), max(ratios), target, sizes)


def _us(times: list[float]) -> float:
    return statistics.median(times) * 1e6


class _BareStarts:
    """The command of a node, started in a session of its own and waited for: nothing else."""

    def __init__(self, place: Path) -> None:
        self._place = place / "bare"
        self._place.mkdir()
        self._confinement = Confinement((str(self._place), *_DEVICES))
        self._count = 0

    def run(self, count: int, *, confined: bool) -> float:
        """Seconds for ``count`` of them, as many at once as in the run."""
        began = time.perf_counter()
        for _ in range(count // jobs):
            started = [self._start(confined) for _ in range(jobs)]
            if any(child.wait() for child in started):
                raise RuntimeError("a bare command failed")
        return (time.perf_counter() - began) * count / (count // jobs * jobs)

    def _start(self, confined: bool) -> "subprocess.Popen[bytes]":
        self._count += 1
        command = _command(f"{self._place}/out-{self._count}.txt")
        return start_confined(self._confinement if confined else None, lambda: _spawn(command))


def _spawn(command: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip


def _command(path: str) -> str:
    return f"echo done > {path}"


def _run(place: Path, nodes: int) -> _Run:
    """A whole run in a workspace that stays: ext4 is slow to make files after many were removed."""
    place.mkdir()
    lines = ["task_id: bench", "nodes:"]
    for number in range(nodes):
        path = f"artifacts/N{number}/out.txt"
        lines += [f"  - id: N{number}", f"    run: {_command(path)}", f"    outputs: [{path}]"]
    (place / "task.yaml").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "perdure", "-C", str(place / "w"), "run"]
    began = time.perf_counter()
    child = subprocess.Popen(
        [*command, str(place / "task.yaml"), "--jobs", str(jobs)], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    whole_s = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise RuntimeError(f"the run ended with {child.returncode}")
    span_s, line_bytes = _span(place / "w" / "journal.jsonl", nodes)
    return _Run(span_s, whole_s, used.ru_utime + used.ru_stime, used.ru_maxrss, line_bytes)


def _span(journal: Path, nodes: int) -> tuple[float, int]:
    """Seconds from the first contract to the last verdict, and the mean size of a line."""
    moments, size_bytes, count = [], 0, 0
    for line in journal.read_bytes().splitlines(keepends=True):
        event = json.loads(line)
        size_bytes, count = size_bytes + len(line), count + 1
        if event["payload"].get("edge") in ("N02", "N06"):
            moments.append((event["payload"]["edge"], event["ts"]))
    done = sum(edge == "N06" for edge, _ in moments)
    if done != nodes:
        raise RuntimeError(f"{done} of {nodes} nodes are done")
    first, last = (datetime.fromisoformat(ts) for ts in (moments[0][1], moments[-1][1]))
    return (last - first).total_seconds(), size_bytes // count
