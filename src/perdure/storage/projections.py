"""Writing and loading the projections of a workspace.

Invariants: each file is replaced atomically and never synced, since it can be rebuilt; loading
believes only the snapshot, and only when the journal itself proves it; ``task-graph.json``,
``checkpoint.json``, ``artifacts/registry.json``, ``steering/inbox.md`` and what lies below
``docs/`` are for people and other programs and are never read back, except to learn how far the
journal had once been committed.
"""

from collections.abc import Callable, Iterator
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
_plan: Final = LateModule("perdure.core.plan_page")
_progress: Final = LateModule("perdure.core.progress_page")
_ledger: Final = LateModule("perdure.core.doc_ledger")

_VIEWS: Final[dict[str, Callable[[Replica], object]]] = {
    "task_graph": lambda replica: graph_view(replica.state),
    "checkpoint": checkpoint_view,
    "registry": lambda replica: registry_view(replica.state),
}


VIEW_NAMES: Final = tuple(_VIEWS)


def sealed_view(name: str, replica: Replica, tip: ChainTip) -> bytes:
    """The file that one of ``VIEW_NAMES`` (properties of :class:`Layout`) is at this tip."""
    return seal(_VIEWS[name](replica), tip)


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
    for path, page in _pages(layout, replica):
        disk.make_dirs(path.rpartition("/")[0], durable=False)
        disk.replace(path, page, durable=False)
    snapshot = seal_snapshot(replica.state, tip)
    disk.replace(layout.snapshot, snapshot, durable=False)
    return len(snapshot)


def _pages(layout: Layout, replica: Replica) -> Iterator[tuple[str, bytes]]:
    """The pages for people, each where there has ever been something to say on it."""
    state = replica.state
    if state.questions or state.closed_questions or state.steering:
        yield layout.inbox, _page.inbox_page(replica)
    if state.nodes:
        yield f"{layout.docs}/task-plan.md", _plan.plan_page(replica)
        yield f"{layout.docs}/progress.md", _progress.progress_page(replica)
    if state.docs:
        yield f"{layout.docs}/DOC-LEDGER.md", _ledger.doc_ledger(replica)


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
    for path, page in _pages(layout, replica):
        if projection_bytes(disk, path) != page:
            wrong.append(path.removeprefix(layout.root + "/"))
    return wrong
