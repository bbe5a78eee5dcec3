"""Figures of committing: notes, transitions, and the life of a node.

The limit is a loop that appends a line of the same size and syncs it. A ratio of 0.75 says that the
runtime commits three events in the time in which the bare loop writes four lines.
"""

import os
import statistics
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from measure import AppendLoop, Figure, alternate, replace_durably, sync_directory, timed
from workspaces import NOTE, make_workspace

from perdure import HaltRuntime
from perdure.runtime.projector import Projector


def note_figures(
    directory: Path, workspaces: dict[int, str], *, rounds: int, count: int
) -> Iterator[Figure]:
    """``note`` against the bare loop, by the number of events that are there already."""
    loop = AppendLoop(directory / "limit-notes")
    for events, workspace in workspaces.items():
        with HaltRuntime(workspace) as runtime:
            size_bytes = _note_bytes(runtime, workspace)
            result = alternate(
                rounds,
                {
                    "limit": partial(loop.run, count, size_bytes),
                    "note": partial(timed, _write_notes, runtime, count),
                },
            )
            sizes = {
                "line bytes": size_bytes,
                "note us": result.median_us("note", count),
                "limit us": result.median_us("limit", count),
                "per round": count,
            }
        name = f"note, {events:,} events in the journal"
        yield result.figure(name, "limit", "note", ">= 0.75", sizes)
    loop.close()


def attached_note_figure(directory: Path, workspace: str, *, rounds: int, count: int) -> Figure:
    """``note`` by a process that does not coordinate, and so gives the lock back each time."""
    loop = AppendLoop(directory / "limit-attached")
    runtime = HaltRuntime.attach(workspace)
    size_bytes = _note_bytes(runtime, workspace)
    result = alternate(
        rounds,
        {
            "limit": partial(loop.run, count, size_bytes),
            "note": partial(timed, _write_notes, runtime, count),
        },
    )
    runtime.close()
    loop.close()
    sizes = {
        "line bytes": size_bytes,
        "note us": result.median_us("note", count),
        "limit us": result.median_us("limit", count),
    }
    return result.figure("note, attached without a lease", "limit", "note", "", sizes)


def _note_bytes(runtime: HaltRuntime, workspace: str) -> int:
    before = os.path.getsize(f"{workspace}/journal.jsonl")
    runtime.note(NOTE)
    return os.path.getsize(f"{workspace}/journal.jsonl") - before


def _write_notes(runtime: HaltRuntime, count: int) -> None:
    for _ in range(count):
        runtime.note(NOTE)


def projected_figure(directory: Path, workspace: str, nodes: int, *, seconds: float) -> Figure:
    """Notes for some seconds, projections included: the mean, since a few commits pay for all."""
    loop = AppendLoop(directory / "limit-projected")
    written = _count_projections()
    limit_s = subject_s = 0.0
    ratios = []
    with HaltRuntime(workspace) as runtime:
        size_bytes = _note_bytes(runtime, workspace)
        written.clear()
        done = 0
        while subject_s < seconds:
            ours = timed(_write_notes, runtime, 50)
            limit = loop.run(50, size_bytes)
            subject_s, limit_s, done = subject_s + ours, limit_s + limit, done + 50
            ratios.append(limit / ours)
        sizes: dict[str, Any] = {
            "commits/s": done / subject_s,
            "projections": len(written),
            "their share %": sum(written) / subject_s * 100,
            "commits": done,
        }
    loop.close()
    name = f"note with the projection policy, {nodes:,} nodes"
    return Figure(name, limit_s / subject_s, min(ratios), max(ratios), "", sizes)


def _count_projections() -> list[float]:
    """The times that writing projections takes from now on, one for each, in seconds."""
    times: list[float] = []
    write = Projector.write

    def timed_write(*arguments: Any) -> None:
        times.append(timed(write, *arguments))

    Projector.write = timed_write  # type: ignore[assignment,method-assign]
    return times


class _Graph:
    """A workspace whose pending nodes are taken through edges that are one commit each."""

    def __init__(self, directory: Path, nodes: int) -> None:
        self._directory = directory
        self._nodes = nodes
        self._made = 0
        self.names: list[str] = []
        self.runtime = self._open()

    def _open(self) -> HaltRuntime:
        self._made += 1
        path = make_workspace(self._directory / f"graph-{self._nodes}-{self._made}", nodes=0)
        runtime = HaltRuntime(path)
        with runtime.batch():
            for number in range(self._nodes):
                deps = (f"N{number - 1}",) if number % 10 == 9 else ()
                runtime.add_node(f"N{number}", f"part {number}", deps=deps, outputs=())
        self.names = [f"N{n}" for n in range(self._nodes) if n % 10 != 9]
        return runtime

    def round(self, limit: AppendLoop) -> tuple[float, float, int, int]:
        """Nine nodes through N01, N05 and N09: seconds, those of the limit, moves, line bytes."""
        if len(self.names) < 9:
            self.runtime.close()
            self.runtime = self._open()
        names, self.names = self.names[:9], self.names[9:]
        move = self.runtime.transition
        before = self._journal_bytes()
        seconds = timed(lambda: [move(name, "READY") for name in names])
        middle = self._journal_bytes()
        for name in names:
            move(name, "RUNNING")
        after = self._journal_bytes()
        seconds += timed(
            lambda: [move(n, "BLOCKED", reason="a gate", wake="its answer") for n in names]
        )
        seconds += timed(lambda: [move(name, "READY", evidence=["J-1"]) for name in names])
        moves = 3 * len(names)
        size_bytes = round((middle - before + self._journal_bytes() - after) / moves)
        return seconds, limit.run(moves, size_bytes), moves, size_bytes

    def _journal_bytes(self) -> int:
        return os.path.getsize(self.runtime.engine.layout.journal)


def transition_figures(directory: Path, node_counts: list[int], *, rounds: int) -> Iterator[Figure]:
    """Single-commit edges (N01, N05, N09) against the bare loop, by the size of the graph."""
    loop = AppendLoop(directory / "limit-transitions")
    graphs = {nodes: _Graph(directory, nodes) for nodes in node_counts}
    seen: dict[int, list[tuple[float, float, int, int]]] = {nodes: [] for nodes in node_counts}
    for number in range(rounds + 1):
        for nodes, graph in graphs.items():
            times = graph.round(loop)
            if number:
                seen[nodes].append(times)
    for nodes, measured in seen.items():
        ratios = [limit / ours for ours, limit, _, _ in measured]
        sizes = {
            "line bytes": measured[-1][3],
            "transition us": statistics.median(m[0] / m[2] for m in measured) * 1e6,
            "limit us": statistics.median(m[1] / m[2] for m in measured) * 1e6,
            "per round": measured[0][2],
            "rounds": len(ratios),
        }
        name = f"transition, {nodes:,} nodes"
        target = ">= 0.65" if nodes == min(node_counts) else "within 20 %"
        median = statistics.median(ratios)
        yield Figure(name, median, min(ratios), max(ratios), target, sizes)
        graphs[nodes].runtime.close()
    loop.close()


def life_figure(directory: Path, nodes: int, *, rounds: int, count: int) -> Figure:
    """READY, RUNNING, register, VERIFYING, DONE against the syncs that this needs."""
    path = make_workspace(directory / f"life-{nodes}", nodes=0)
    limit = _LifeLimit(directory / f"limit-life-{nodes}")
    names = iter([f"L{number}" for number in range((rounds + 2) * count)])
    with HaltRuntime(path) as runtime:
        with runtime.batch():
            for number in range(nodes):
                runtime.add_node(f"N{number}", f"part {number}", outputs=())
            for number in range((rounds + 2) * count):
                outputs = (f"artifacts/L{number}/part.txt",)
                runtime.add_node(f"L{number}", f"part {number}", outputs=outputs)
        _live(runtime, islice(names, 1))  # the first one syncs what the others find done
        before = os.path.getsize(runtime.engine.layout.journal)
        syncs = _syncs_during(lambda: _live(runtime, islice(names, 1)))
        limit.line_bytes = (os.path.getsize(runtime.engine.layout.journal) - before) // 5
        contracts = Path(runtime.engine.layout.contracts)
        limit.contract_bytes = next(contracts.iterdir()).stat().st_size
        result = alternate(
            rounds,
            {
                "limit": partial(timed, limit.live, count),
                "life": lambda: timed(_live, runtime, islice(names, count)),
            },
        )
    sizes = {
        "life us": result.median_us("life", count),
        "limit us": result.median_us("limit", count),
        "syncs done": syncs,
        "syncs needed": _LifeLimit.syncs,
        "per round": count,
    }
    return result.figure(f"life of a node, {nodes:,} nodes", "limit", "life", "", sizes)


def _live(runtime: HaltRuntime, names: Iterable[str]) -> None:
    for name in names:
        output = f"artifacts/{name}/part.txt"
        runtime.transition(name, "READY")
        runtime.transition(name, "RUNNING")
        Path(runtime.engine.layout.root, output).write_bytes(b"done\n")
        runtime.register_artifact("", output, node_id=name)
        runtime.transition(name, "VERIFYING", output)
        runtime.transition(name, "DONE", output)


def _syncs_during(action: Callable[[], object]) -> int:
    """How often the process asked the system to make something durable."""
    count = 0
    originals = os.fsync, os.fdatasync

    def counting(sync: Any) -> Any:
        def call(descriptor: int) -> None:
            nonlocal count
            count += 1
            sync(descriptor)

        return call

    os.fsync, os.fdatasync = counting(originals[0]), counting(originals[1])
    try:
        action()
    finally:
        os.fsync, os.fdatasync = originals
    return count


class _LifeLimit:
    """The durable steps of a node's life and nothing else."""

    syncs = 10

    def __init__(self, root: Path) -> None:
        self._root = root
        self._number = 0
        self.line_bytes = self.contract_bytes = 0
        (root / "contracts").mkdir(parents=True)
        self._loop = AppendLoop(root / "journal")

    def live(self, count: int) -> None:
        """The lives of so many nodes."""
        for _ in range(count):
            self._number += 1
            self._live()

    def _live(self) -> None:
        """READY; scope, contract, RUNNING; output, registration; VERIFYING; DONE."""
        scope = self._root / f"scope-{self._number}"
        self._loop.run(1, self.line_bytes)
        scope.mkdir()
        sync_directory(str(self._root))
        contract = f"{self._root}/contracts/{self._number}.json"
        replace_durably(contract, b"x" * self.contract_bytes)
        self._loop.run(1, self.line_bytes)
        output = os.open(scope / "part.txt", os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(output, b"done\n")
        os.fsync(output)
        os.close(output)
        sync_directory(str(scope))
        self._loop.run(3, self.line_bytes)
