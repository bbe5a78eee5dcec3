"""Writing and loading the projections of a workspace.

Invariants: each file is replaced atomically and never synced, since it can be rebuilt; loading
believes only the snapshot, and only when the journal itself proves it; ``task-graph.json``,
``checkpoint.json``, ``artifacts/registry.json`` and ``steering/inbox.md`` are for people and other
programs and are never read back, except to learn how far the journal had once been committed.
"""

from collections.abc import Callable
from typing import Final

from perdure.core.codec import ChainTip
from perdure.core.fold import Replica
from perdure.core.late import LateModule
from perdure.core.model import State
from perdure.core.projection import (
    checkpoint_view,
    graph_view,
    read_as_of,
    registry_view,
    seal,
    seal_snapshot,
    unseal_snapshot,
)
from perdure.ports import Disk
from perdure.storage.workspace import Layout

_page: Final = LateModule("perdure.core.inbox_page")

_VIEWS: Final[dict[str, Callable[[Replica], object]]] = {
    "task_graph": lambda replica: graph_view(replica.state),
    "checkpoint": checkpoint_view,
    "registry": lambda replica: registry_view(replica.state),
}


def load_snapshot(disk: Disk, layout: Layout) -> tuple[State, ChainTip] | None:
    """The state in the snapshot and its position, or None when there is none that is whole."""
    return unseal_snapshot(projection_bytes(disk, layout.snapshot))


def projection_bytes(disk: Disk, path: str) -> bytes:
    """What is in a projection; nothing when there is none, or something that cannot be read."""
    stat = disk.stat(path)
    if stat is None or stat.kind != "file":
        return b""
    return disk.read(path)


def write_projections(disk: Disk, layout: Layout, replica: Replica, tip: ChainTip) -> int:
    """Replace all of them; returns the size of the snapshot in bytes.

    The views come first: a crash in between leaves an older snapshot, which is proved against the
    journal like any other.
    """
    for name, render in _VIEWS.items():
        disk.replace(getattr(layout, name), seal(render(replica), tip), durable=False)
    _write_inbox(disk, layout, replica)
    snapshot = seal_snapshot(replica.state, tip)
    disk.replace(layout.snapshot, snapshot, durable=False)
    return len(snapshot)


def _has_inbox(state: State) -> bool:
    """Whether anybody has ever asked or said anything: else there is no page."""
    return bool(state.questions or state.closed_questions or state.steering)


def _write_inbox(disk: Disk, layout: Layout, replica: Replica) -> None:
    """Render the page for people, where there has ever been something to say on it."""
    if _has_inbox(replica.state):
        disk.make_dirs(layout.steering)
        disk.replace(layout.inbox, _page.inbox_page(replica), durable=False)


def committed_offset(disk: Disk, layout: Layout) -> int:
    """The furthest journal position of which any whole projection says that it was committed."""
    furthest = 0
    for path in (layout.snapshot, layout.task_graph, layout.checkpoint, layout.registry):
        as_of = read_as_of(projection_bytes(disk, path))
        if as_of is not None:
            furthest = max(furthest, as_of.offset)
    return furthest


def stale_views(disk: Disk, layout: Layout, replica: Replica, tip: ChainTip) -> list[str]:
    """Names of the views whose bytes are not what the journal says (R3: cache)."""
    wrong = []
    for name, render in _VIEWS.items():
        path = getattr(layout, name)
        if projection_bytes(disk, path) != seal(render(replica), tip):
            wrong.append(path.removeprefix(layout.root + "/"))
    if _has_inbox(replica.state):
        page: bytes = _page.inbox_page(replica)
        if projection_bytes(disk, layout.inbox) != page:
            wrong.append(layout.inbox.removeprefix(layout.root + "/"))
    return wrong
