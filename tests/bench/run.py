"""The benchmarks: ratios against a limit that is measured beside them, in the same run.

``python tests/bench/run.py [--quick] [--json FILE] [--dir DIR] [--only WORD]``. Prints each figure
with its target and never fails on one: times are judged by people. Needs POSIX and the package
installed (``make bench`` sees to that); docs/performance.md says what the figures mean.
"""

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import commits
import crash_states
import dispatch
import jobs
import ledgers
import opening
import processes
import queries
import shards
from measure import Figure, file_system
from workspaces import make_workspace

import perdure


class Plan(NamedTuple):
    """How much is measured."""

    events: int
    node_counts: tuple[int, ...]
    item_counts: tuple[int, ...]
    """Items of a job that are done already."""
    short_rounds: int
    """Of 25 or so commits, 10 ms: the noise of a machine changes faster than that of a second."""
    rounds: int
    slow_rounds: int
    """Of figures whose round takes seconds."""
    seconds: float
    shard_units: int
    dispatch_nodes: int


notes_per_round = 25
FULL = Plan(
    1_000_000, (10, 1_000, 10_000), (1_000, 100_000, 1_000_000), 200, 40, 5, 8.0, 100_000, 1_000
)
QUICK = Plan(50_000, (10, 1_000), (1_000, 50_000), 60, 12, 3, 2.0, 5_000, 200)


class Report:
    """Prints figures as they come and keeps them."""

    def __init__(self) -> None:
        self.sections: dict[str, list[dict[str, Any]]] = {}

    def show(self, title: str, figures: Iterator[Figure]) -> None:
        """Measure and print one section."""
        if title not in self.sections:
            print(f"\n{title}")
        kept = self.sections.setdefault(title, [])
        for figure in figures:
            print(figure.line(), flush=True)
            kept.append(figure._asdict())


def main() -> None:
    """Measure what was asked for."""
    options = _options()
    plan = QUICK if options.quick else FULL
    directory = Path(tempfile.mkdtemp(prefix="perdure-bench-", dir=options.dir))
    about = _about(directory, plan)
    report = Report()
    try:
        for name, value in about.items():
            print(f"{name}: {value}")
        if about["file system"] == "tmpfs":
            print("This is memory and not a disk: a sync costs nothing here. Use --dir.")
        _measure(plan, directory, report, options.only)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if options.json:
        result = {"about": about, "sections": report.sections}
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure perdure against physical limits.")
    parser.add_argument("--quick", action="store_true", help="less than a minute")
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    parser.add_argument("--only", metavar="WORD", default="", help="sections with it in the title")
    parser.add_argument(
        "--dir", default=_default_directory(), help="where the workspaces are made for the run"
    )
    return parser.parse_args()


def _default_directory() -> str:
    """The temporary directory, unless it is in memory."""
    usual = tempfile.gettempdir()
    on_disk = [path for path in (usual, "/var/tmp") if file_system(Path(path)) != "tmpfs"]
    return on_disk[0] if on_disk else usual


def _about(directory: Path, plan: Plan) -> dict[str, Any]:
    return {
        "perdure": perdure.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "file system": file_system(directory),
        "installed": "from a wheel" if "site-packages" in perdure.__file__ else "editable",
        "plan": f"{'full' if plan is FULL else 'quick'}, {plan.events:,} events",
    }


class Workspaces(NamedTuple):
    """The workspaces that are measured."""

    short: str
    long: str
    empty: str
    by_nodes: dict[int, str]


def _workspaces(plan: Plan, directory: Path) -> Workspaces:
    return Workspaces(
        make_workspace(directory / "short", nodes=10, events=100),
        make_workspace(directory / "long", nodes=10, events=plan.events),
        make_workspace(directory / "empty", nodes=0),
        {n: make_workspace(directory / f"nodes-{n}", nodes=n) for n in plan.node_counts},
    )


Sections = dict[str, tuple[Callable[[], Iterator[Figure]], ...]]


def _measure(plan: Plan, directory: Path, report: Report, only: str) -> None:
    made = cache(partial(_workspaces, plan, directory))  # when the first of them is needed
    job_sizes = jobs.Sizes(
        plan.item_counts, plan.short_rounds, plan.rounds, plan.slow_rounds, plan.seconds
    )
    sections = {**_task_sections(plan, directory, made), **jobs.sections(directory, job_sizes)}
    for title, parts in sections.items():
        if only.lower() in title.lower():
            for part in parts:
                report.show(title, part())
    title = "Where the time of `perdure note` goes"
    if only.lower() in title.lower():
        print(f"\n{title}")
        for line in processes.ImportShare(made().short, plan.slow_rounds).lines(12):
            print(line)


def _task_sections(plan: Plan, directory: Path, made: Callable[[], Workspaces]) -> Sections:
    rounds, slow = plan.rounds, plan.slow_rounds
    most = plan.node_counts[-1]
    return {
        "Commits: share of the speed of a bare append and sync loop (more is better)": (
            lambda: commits.note_figures(
                directory,
                {0: made().empty, plan.events: made().long},
                rounds=plan.short_rounds,
                count=notes_per_round,
            ),
            lambda: commits.transition_figures(
                directory, [plan.node_counts[0], most], rounds=plan.short_rounds
            ),
            lambda: iter(
                [
                    commits.life_figure(directory, nodes, rounds=rounds, count=3)
                    for nodes in (plan.node_counts[0], most)
                ]
            ),
            lambda: iter(
                [
                    commits.projected_figure(directory, made().by_nodes[n], n, seconds=plan.seconds)
                    for n in plan.node_counts
                ]
            ),
            lambda: iter(
                [commits.attached_note_figure(directory, made().short, rounds=rounds, count=10)]
            ),
        ),
        "Opening: times the same with 100 events (less is better)": (
            lambda: opening.opening_figures(made().short, made().long, plan.events, rounds=rounds),
            lambda: iter(
                [opening.memory_figure(made().short, made().long, plan.events, rounds=slow)]
            ),
        ),
        "Batch nodes: times a bare typed decode of ledger and log (less is better)": (
            lambda: ledgers.recovery_figures(directory, plan.shard_units, rounds=slow),
        ),
        "Replay: times a bare typed decode and a hash of the file (less is better)": (
            lambda: opening.replay_figures(made().long, rounds=slow),
        ),
        "Processes: times `python -c pass` (less is better)": (
            lambda: processes.command_figures(
                made().short, made().long, plan.events, rounds=rounds
            ),
        ),
        "Queries and projections: times the limit (less is better)": (
            lambda: queries.query_figures(made().by_nodes, rounds=rounds),
            lambda: queries.projection_figures(made().by_nodes, rounds=rounds // 2),
        ),
        "Dispatch: times an append and a sync of one line (less is better)": (
            lambda: dispatch.dispatch_figures(directory, plan.dispatch_nodes),
        ),
        "Shards: share of the speed of the same commands in a bare pool (more is better)": (
            lambda: shards.shard_figures(directory, plan.shard_units),
        ),
        "Crash tests: times opening a closed workspace on a simulated disk (less is better)": (
            lambda: crash_states.figures(rounds, states_per_round=20),
        ),
    }


if __name__ == "__main__":
    main()
