"""Figures of looking and of writing projections, by the size of the graph.

The limits: for the frontier one plain pass over the nodes; for the status that pass and one look at
each registered file; for the projections a bare replace of files of the same sizes.
"""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from measure import Figure, alternate, timed

from perdure import HaltRuntime
from perdure.core.frontier import frontier
from perdure.runtime.engine import Engine
from perdure.runtime.world import real_world
from perdure.service.tasks import Service
from perdure.storage.disk import RealDisk
from perdure.storage.projections import write_projections


def query_figures(workspaces: dict[int, str], *, rounds: int) -> Iterator[Figure]:
    """``frontier()`` and ``status()`` of an open workspace, and ``status`` opened anew."""
    for nodes, workspace in workspaces.items():
        runtime = HaltRuntime.attach(workspace)
        service = Service(workspace, actor="bench:reader")
        result = alternate(
            rounds,
            {
                "pass": partial(timed, _pass, runtime),
                "stats": partial(timed, _stats, runtime),
                "frontier": partial(timed, frontier, runtime.engine.replica),
                "status": partial(timed, runtime.status),
                "opened": partial(timed, service.status),
            },
            warm_up=2,
        )
        sizes = {"us": result.median_us("frontier"), "pass us": result.median_us("pass")}
        yield result.figure(f"frontier(), {nodes:,} nodes", "frontier", "pass", "", sizes)
        sizes = {
            "us": result.median_us("status"),
            "limit us": result.median_us("stats"),
            "artifacts": len(runtime.registry),
        }
        yield result.figure(f"status(), {nodes:,} nodes", "status", "stats", "", sizes)
        sizes = {"us": result.median_us("opened"), "limit us": result.median_us("stats")}
        name = f"status from a closed workspace, {nodes:,} nodes"
        yield result.figure(name, "opened", "stats", "", sizes)
        runtime.close()


def _pass(runtime: HaltRuntime) -> int:
    return sum(node.state == "READY" for node in runtime.state.nodes.values())


def _stats(runtime: HaltRuntime) -> int:
    root = runtime.engine.layout.root
    files = [f"{root}/{artifact.path}" for artifact in runtime.registry.values()]
    return _pass(runtime) + sum(os.lstat(path).st_size for path in files)


def projection_figures(workspaces: dict[int, str], *, rounds: int) -> Iterator[Figure]:
    """Writing all projections against a bare replace of the same bytes; neither is synced."""
    for nodes, workspace in workspaces.items():
        engine = Engine(workspace, real_world(), "bench:writer")
        engine.load()
        layout = engine.layout
        paths = (layout.task_graph, layout.checkpoint, layout.registry, layout.snapshot)
        project = partial(write_projections, RealDisk(), layout, engine.replica, engine.journal.tip)
        project()
        contents = {path: Path(path).read_bytes() for path in paths}
        result = alternate(
            rounds,
            {
                "limit": partial(timed, _replace_all, contents),
                "project": partial(timed, project),
            },
        )
        sizes = {
            "ms": result.median_us("project") / 1e3,
            "limit ms": result.median_us("limit") / 1e3,
            "bytes": sum(map(len, contents.values())),
        }
        yield result.figure(f"projections, {nodes:,} nodes", "project", "limit", "", sizes)


def _replace_all(contents: dict[str, bytes]) -> None:
    for path, data in contents.items():
        temp = f"{path}.bench"
        descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(descriptor, data)
        os.close(descriptor)
        os.rename(temp, path)
