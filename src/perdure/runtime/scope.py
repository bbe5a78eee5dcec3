"""What an attempt leaves in its node's scope, and what of it may stay there.

Job: clear the way for the next attempt, and name the files that one is registered with. Invariants:
nothing is deleted, what moves goes to ``tmp/recovered``; a truncated output can never be taken for
a complete one; the records of a checkpointed job stay with its findings, and without these nothing
is left that could claim an item was done. Repeating it after a crash moves the rest.
"""

from collections.abc import Collection
from typing import Final

from perdure.core.batch import LEDGER_NAME, LOG_NAME, log_path
from perdure.core.model import Node
from perdure.errors import StorageError
from perdure.ports import Disk
from perdure.runtime.engine import Engine
from perdure.storage.workspace import resolve_inside

_LEDGERS: Final = frozenset({LEDGER_NAME, LOG_NAME, "state.json", "SUMMARY.md"})
_SIDE_FILES: Final = "files/"


def clear_scope(engine: Engine, node: Node) -> list[str]:
    """Move what earlier attempts left unregistered to ``tmp/recovered``; returns where it is.

    Ledgers and jobs stay: they are how an attempt goes on where the last one stopped. Of a batch
    node everything stays as long as its log of findings is there, because what lies there belongs
    to units that are done; once that is gone, everything else goes as well. Links are moved, not
    followed.
    """
    if node.spec.map is not None:
        log = engine.disk.stat(f"{engine.layout.root}/{log_path(node.node_id)}")
        kept = log is not None and log.kind == "file"
        return [] if kept else set_aside(engine, node)
    strays, whole = _strays(engine, node)
    jobs = _jobs_among(strays)
    return [
        _move(engine, node, path) for path in strays if whole or not _is_of_a_ledger(path, jobs)
    ]


def set_aside(engine: Engine, node: Node) -> list[str]:
    """Move all that is not registered out of the scope and the outputs, ledgers and jobs as well.

    In one rename where nothing in the scope is registered. Otherwise the log of findings is the
    first to go: a crash in the middle must not leave findings whose history is gone.
    """
    scope = f"artifacts/{node.node_id}"
    if not any(path.startswith(f"{scope}/") for path in engine.replica.paths):
        outside = [path for path in _outside(engine, node) if _is_stray(engine, path)]
        whole = [scope] if _holds_anything(engine, scope) else []
        return [_move(engine, node, path) for path in whole + outside]
    strays, _ = _strays(engine, node)
    strays.sort(key=lambda path: path != log_path(node.node_id))
    return [_move(engine, node, path) for path in strays]


def _strays(engine: Engine, node: Node) -> tuple[list[str], bool]:
    """What is not registered, and whether that is the scope itself.

    A scope that is no directory any more, or that cannot be walked, is moved as a whole.
    """
    scope = f"artifacts/{node.node_id}"
    keep = engine.replica.paths
    stat = engine.disk.stat(f"{engine.layout.root}/{scope}")
    strays: list[str] = []
    try:
        whole = stat is not None and stat.kind != "dir"
        strays = [path for path in files_below(engine, scope) if path not in keep]
    except StorageError:
        whole = not any(path.startswith(f"{scope}/") for path in keep)
        if not whole:
            raise
    outside = [path for path in _outside(engine, node) if _is_stray(engine, path)]
    return ([scope] if whole else strays) + outside, whole


def _outside(engine: Engine, node: Node) -> list[str]:
    """The outputs that lie outside the scope and are not registered."""
    scope, keep = f"artifacts/{node.node_id}/", engine.replica.paths
    return [p for p in node.spec.outputs or () if not p.startswith(scope) and p not in keep]


def _is_stray(engine: Engine, path: str) -> bool:
    """Whether something lies at an output outside the scope, in a directory of the workspace."""
    parent = path.rpartition("/")[0]
    if parent:
        resolve_inside(engine.disk, engine.layout.root, parent)
    return engine.disk.stat(f"{engine.layout.root}/{path}") is not None


def _holds_anything(engine: Engine, scope: str) -> bool:
    stat = engine.disk.stat(f"{engine.layout.root}/{scope}")
    try:
        return stat is not None and (
            stat.kind != "dir" or bool(engine.disk.list_dir(f"{engine.layout.root}/{scope}"))
        )
    except StorageError:
        return True  # what cannot be listed can still be renamed


def _move(engine: Engine, node: Node, path: str) -> str:
    target = free_recovered_path(engine, node, path)
    root, disk = engine.layout.root, engine.disk
    disk.make_dirs(f"{root}/{target}".rpartition("/")[0])
    disk.rename(f"{root}/{path}", f"{root}/{target}")
    return target


def free_recovered_path(engine: Engine, node: Node, path: str) -> str:
    """Where in ``tmp/recovered`` something of this node's last attempt can go; not taken yet."""
    target = f"tmp/recovered/{node.node_id}-{node.attempts}/{path}"
    number = 1
    while engine.disk.stat(f"{engine.layout.root}/{target}") is not None:
        number += 1
        target = f"tmp/recovered/{node.node_id}-{node.attempts}.{number}/{path}"
    return target


def files_below(engine: Engine, directory: str) -> list[str]:
    """Workspace-relative paths of all that is not a directory below one; links are not followed."""
    stat = engine.disk.stat(f"{engine.layout.root}/{directory}")
    found, stack = [], [directory] if stat is not None and stat.kind == "dir" else []
    while stack:
        current = stack.pop()
        for name in engine.disk.list_dir(f"{engine.layout.root}/{current}"):
            path = f"{current}/{name}"
            stat = engine.disk.stat(f"{engine.layout.root}/{path}")
            if stat is not None and stat.kind == "dir":
                stack.append(path)
            elif stat is not None:
                found.append(path)
    return sorted(found)


def has_content(disk: Disk, path: str) -> bool:
    """Whether a file, or any file below a directory, is not empty; ``path`` need not be there.

    An empty file is what a program leaves that died before it wrote. Raises StorageError.
    """
    stat = disk.stat(path)
    if stat is None or stat.kind != "dir":
        return stat is not None and stat.size_bytes > 0
    return any(has_content(disk, f"{path}/{name}") for name in disk.list_dir(path))


def products_below(engine: Engine, directory: str) -> list[str]:
    """The files below a directory that are work, and not the bookkeeping of work."""
    return products_among(files_below(engine, directory))


def products_among(paths: Collection[str]) -> list[str]:
    """Those of the files below one directory that are work, and not the bookkeeping of work."""
    jobs = _jobs_among(paths)
    return [path for path in paths if not _is_record(path, jobs)]


def _jobs_among(paths: Collection[str]) -> set[str]:
    """The directories that hold a checkpointed job: those with a log of findings."""
    return {head for head, _, name in (p.rpartition("/") for p in paths) if name == LOG_NAME}


def _is_of_a_ledger(path: str, jobs: Collection[str]) -> bool:
    """Whether an attempt needs the file to go on where the last one stopped."""
    return _is_record(path, jobs) or any(
        inside.startswith(_SIDE_FILES) for inside in _inside_jobs(path, jobs)
    )


def _is_record(path: str, jobs: Collection[str]) -> bool:
    """Whether a file is how a job or a ledger keeps count."""
    if path.rpartition("/")[2] in _LEDGERS:
        return True
    return any(inside.startswith(".") for inside in _inside_jobs(path, jobs))


def _inside_jobs(path: str, jobs: Collection[str]) -> list[str]:
    """The path as seen from each of these directories that it lies in."""
    if not jobs:
        return []
    parts = path.split("/")
    heads = ["/".join(parts[:count]) for count in range(1, len(parts))]
    return [path[len(head) + 1 :] for head in heads if head in jobs]
