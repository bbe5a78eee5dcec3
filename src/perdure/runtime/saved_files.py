"""Copies of what a local destructive effect (S1) may change, made before it may.

Job: ahead of the N02 or N11 of such a node, copy every existing file that its contract lets it
write outside its own place to ``artifacts/old``, and say so in that event. Invariants: the copies
and the list of them are durable before the event that cites them; all of it is copied or the node
does not start (C-S1); the runtime's own files are never among them, however wide a grant is. A
crash before the event leaves copies that nobody cites. It never restores anything.
"""

import hashlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from perdure.core.codec import to_json
from perdure.core.grants import grants_of
from perdure.core.model import Node
from perdure.errors import RefusedError
from perdure.runtime.contracts import places_of
from perdure.runtime.copies import copy_file
from perdure.runtime.engine import Engine

saved_files_max: Final = 10_000
saved_bytes_max: Final = 1 << 30
"""Of one attempt at one node."""
MANIFEST_NAME: Final = "saved.json"

_PROJECT_NAME: Final = ".perdure"
"""Tasks of a project lie in it."""


class _Found(NamedTuple):
    """Something that may be changed."""

    path: str
    """Absolute."""
    size_bytes: int
    is_link: bool


def save_files(engine: Engine, node: Node) -> dict[str, Any]:
    """Copy what the next attempt at an S1 node may change; what its start is to say of that.

    ``manifest`` (a path of the workspace), its ``sha256``, and how many ``files`` and ``bytes``
    there are; empty for another node, and where there is nothing to copy. Durable on return. Raises
    RefusedError ``too_much_to_save`` (C-S1) before anything is copied; StorageError.
    """
    if node.effect != "S1":
        return {}
    found = sorted(_find(engine, node))
    if not found:
        return {}
    _check_limits(node, found)
    target = _free_directory(engine, node)
    entries = [_save(engine, target, number, item) for number, item in enumerate(found, 1)]
    for directory in (f"{target}/files", target):
        engine.disk.sync_dir(f"{engine.layout.root}/{directory}")
    manifest = f"{target}/{MANIFEST_NAME}"
    data = to_json({"node": node.node_id, "attempt": node.attempts + 1, "files": entries}) + b"\n"
    engine.disk.replace(f"{engine.layout.root}/{manifest}", data, durable=True)
    return {
        "manifest": manifest,
        "sha256": hashlib.sha256(data).hexdigest(),
        "files": len(entries),
        "bytes": sum(entry["size_bytes"] for entry in entries),
    }


def _find(engine: Engine, node: Node) -> set[_Found]:
    """The files below everything that is granted outside the node's own place and scratch."""
    own = (f"write:artifacts/{node.node_id}/*", "write:tmp/*")
    grants = [text for text in grants_of(node) if text not in own]
    found: set[_Found] = set()
    for path in places_of(engine, grants):
        # A link on the way is followed once: what is written is what it leads to.
        found.update(_files_at(engine, engine.disk.real_path(path)))
    return found


def _files_at(engine: Engine, start: str) -> Iterator[_Found]:
    """What lies at a path and below it, without the files of the runtime."""
    root = engine.disk.real_path(engine.layout.root)
    own = {root, f"{root}/artifacts/old"}
    stack = [start]
    number = 0
    while stack:
        path = stack.pop()
        stat = engine.disk.stat(path)
        if stat is None or path in own or path.endswith(f"/{_PROJECT_NAME}"):
            continue
        if stat.kind == "dir":
            stack += [f"{path.rstrip('/')}/{name}" for name in engine.disk.list_dir(path)]
        elif stat.kind != "other":
            number += 1
            yield _Found(path, stat.size_bytes, stat.kind == "link")
            if number > saved_files_max:  # it will be refused
                return


def _check_limits(node: Node, found: list[_Found]) -> None:
    size = sum(item.size_bytes for item in found)
    if len(found) <= saved_files_max and size <= saved_bytes_max:
        return
    files = f"{len(found):,}" if len(found) <= saved_files_max else f"more than {saved_files_max:,}"
    raise RefusedError(
        f"{node.node_id} may change {files} files with {size:,} bytes, and each would be copied"
        f" first; the limits are {saved_files_max:,} files and {saved_bytes_max:,} bytes.",
        code="too_much_to_save",
        rule="C-S1",
        fix="Grant it only what it has to change, or keep copies yourself and make its effect S0.",
    )


def _free_directory(engine: Engine, node: Node) -> str:
    """Where the copies of this attempt go; not taken yet."""
    base = f"artifacts/old/{node.node_id}-{node.attempts + 1}.saved"
    target, number = base, 1
    while engine.disk.stat(f"{engine.layout.root}/{target}") is not None:
        number += 1
        target = f"{base}.{number}"
    engine.disk.make_dirs(f"{engine.layout.root}/{target}/files")
    return target


def _save(engine: Engine, target: str, number: int, item: _Found) -> dict[str, Any]:
    """Copy one file; its bytes are durable, and its name once the directory is synced."""
    root = engine.disk.real_path(engine.layout.root)
    path = item.path.removeprefix(f"{root}/")
    if item.is_link:
        return {"path": path, "link_to": engine.disk.real_path(item.path), "size_bytes": 0}
    copy = f"{target}/files/{number:06}"
    full = f"{engine.layout.root}/{copy}"
    digest, size = copy_file(engine.disk, item.path, full)
    return {"path": path, "copy": copy, "size_bytes": size, "sha256": digest}
