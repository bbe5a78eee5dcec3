"""Figures of whole processes: one durable command, one query, and where their time goes.

The limit is ``python -c pass`` by the same interpreter of the same virtual environment.
"""

import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from measure import Figure, ProcessTimer, alternate

_NOTE_PAST_THE_CLI = """
import sys
from perdure.service.tasks import Service
Service(sys.argv[1], actor="coordinator:bench").call("note", {"text": "x"})
"""
_IMPORT_LINE = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \|\s*(\S+)")


def command_figures(short: str, long: str, events: int, *, rounds: int) -> Iterator[Figure]:
    """``perdure note`` and ``perdure status``, at 100 events and at many."""
    timer = ProcessTimer()
    commands = {
        "pass": [sys.executable, "-c", "pass"],
        "note": [*_perdure(), "-C", short, "note", "x"],
        "note, long": [*_perdure(), "-C", long, "note", "x"],
        "status": [*_perdure(), "-C", short, "status"],
        "status, long": [*_perdure(), "-C", long, "status"],
        "service": [sys.executable, "-c", _NOTE_PAST_THE_CLI, short],
    }
    result = alternate(
        rounds, {name: partial(timer.run, command) for name, command in commands.items()}
    )
    pass_ms = result.median_us("pass") / 1e3
    titles = {
        "note": ("perdure note, 100 events", "<= 8"),
        "note, long": (f"perdure note, {events:,} events", "<= 8"),
        "status": ("perdure status, 100 events", "<= 8"),
        "status, long": (f"perdure status, {events:,} events", "<= 8"),
        "service": ("note through the service, without the CLI", ""),
    }
    for name, (title, target) in titles.items():
        sizes = {"ms": result.median_us(name) / 1e3, "python -c pass ms": pass_ms}
        yield result.figure(title, name, "pass", target, sizes)
    for verb in ("note", "status"):
        title = f"perdure {verb}: {events:,} events against 100"
        yield result.figure(title, f"{verb}, long", verb, "the same", {})


def _perdure() -> list[str]:
    return [str(Path(sys.executable).parent / "perdure")]


class ImportShare:
    """Where the time of a command goes, from ``-X importtime``, in milliseconds."""

    def __init__(self, workspace: str, runs: int) -> None:
        command = ["-m", "perdure", "-C", workspace, "note", "x"]
        ours = [_import_times(command) for _ in range(runs)]
        bare = [_import_times(["-c", "pass"]) for _ in range(runs)]
        self.bare_ms = statistics.median(sum(run.values()) for run in bare) / 1e3
        self.all_ms = statistics.median(sum(run.values()) for run in ours) / 1e3
        start = set(bare[0])
        names = {name for run in ours for name in run} - start
        self_ms = {
            name: statistics.median(run.get(name, 0) for run in ours) / 1e3 for name in names
        }
        self.modules = sorted(self_ms.items(), key=lambda item: -item[1])

    def lines(self, count: int) -> Iterator[str]:
        """The imports beyond those of the bare interpreter, dearest first."""
        packages: dict[str, float] = {}
        for name, cost_ms in self.modules:
            package = name.partition(".")[0]
            packages[package] = packages.get(package, 0.0) + cost_ms
        top = sorted(packages.items(), key=lambda item: -item[1])[:count]
        yield (
            f"  imports {self.all_ms:.1f} ms, of which {self.bare_ms:.1f} ms are the interpreter's"
            f" own; {len(self.modules)} modules more (measured with -X importtime, which is slower)"
        )
        yield f"  by package: {', '.join(f'{name} {ms:.1f}' for name, ms in top)}"
        for name, cost_ms in self.modules[:count]:
            yield f"    {cost_ms:6.2f} ms  {name}"


def _import_times(arguments: list[str]) -> dict[str, int]:
    """Module to its own import time in microseconds."""
    command = [sys.executable, "-X", "importtime", *arguments]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    matches = map(_IMPORT_LINE.match, finished.stderr.splitlines())
    return {match[3]: int(match[1]) for match in matches if match}
