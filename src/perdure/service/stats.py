"""Figures of a task for the command line.

Job: stream the journal through ``core.stats``, cut pages, and write the plot. Invariants: the
workspace is only read; the whole history is read once, from its first byte.
"""

from typing import Any, Final

from perdure.core.late import LateModule
from perdure.core.lookup import near
from perdure.core.stats import Stats
from perdure.errors import NotFoundError, PathError
from perdure.runtime.eventlog import EventLog
from perdure.runtime.reader import Reader
from perdure.runtime.world import World, real_world

Data = dict[str, Any]

_plot: Final = LateModule("perdure.service.stats_plot")


def task_stats(
    workspace: str,
    *,
    actor: str,
    by: str | None = None,
    limit: int = 20,
    after: str | None = None,
    world: World | None = None,
) -> Data:
    """Where the time went and what failed: all of it, or a page of rows ``by`` node, class or day.

    ``next`` is the row to go on after. Raises NotFoundError for an ``after`` that is no row.
    """
    stats = read_stats(workspace, actor=actor, world=world)
    if by is None:
        return stats.summary()
    rows: list[Data] = getattr(stats, f"by_{by}")()
    names = [str(row[by]) for row in rows]
    start = 0
    if after is not None:
        if after not in names:
            raise NotFoundError(
                f"there is no {by} {after!r} to go on after.",
                fix=f"`perdure stats --by {by}` begins with the first.",
                suggestions=near(after, names),
            )
        start = names.index(after) + 1
    page = rows[start : start + limit]
    more = start + limit < len(rows)
    return {
        "task_id": stats.task_id,
        "by": by,
        "rows": page,
        "count": len(rows),
        "next": names[start + limit - 1] if more and page else None,
        "clock": stats.summary()["clock"],
    }


def read_stats(workspace: str, *, actor: str, world: World | None = None) -> Stats:
    """The figures up to the last commit. Raises NotFoundError, CorruptError as reading does."""
    world = world or real_world()
    reader = Reader(workspace, world, actor)
    reader.load()
    log = EventLog(world.disk, reader.layout.journal, reader.replica.state.seq)
    return Stats().take_all(log).finish()


def write_plot(workspace: str, file: str, *, actor: str, world: World | None = None) -> Data:
    """Draw the figures as an SVG to ``file`` (absolute), replacing it; durable on return.

    The same history gives the same bytes. Raises PathError in the workspace, UsageError without
    the extra ``plot``.
    """
    world = world or real_world()
    home = world.disk.real_path(workspace)
    if f"{world.disk.real_path(file)}/".startswith(f"{home}/"):
        raise PathError(f"{file} lies in the workspace.", fix="Write it to a place outside.")
    data: bytes = _plot.draw(read_stats(workspace, actor=actor, world=world))
    world.disk.replace(file, data, durable=True)
    return {"svg": file, "size_bytes": len(data)}
