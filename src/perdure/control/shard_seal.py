"""Directories of workers whose attempt is over: put away, and looked at for what still comes in.

Job: move them away in one rename, set aside what appears under their names afterwards, and tell
what still grows where they lie now, for a file that is open moves with its directory (RT-3).
Invariants: nothing of that counts for any unit, and all of it is on record; it is told again only
when there is more of it. A crash between a look and its record tells the same once more.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.control.shard_late import written_bytes
from perdure.control.shard_worker import shards_directory
from perdure.core import dispatch_commands as d
from perdure.core.model import Node
from perdure.ports import Disk
from perdure.runtime.engine import Engine
from perdure.runtime.scope import free_recovered_path

CLOSED_NAME: Final = "shards-closed"
"""In the scope of a batch node: the directories of workers of former attempts; nothing counts."""
_SIZES_NAME: Final = ".sizes.json"
"""Beside the directories of one attempt: how much of each has been seen."""
_WHY: Final = "output came in under an attempt that is over"


def is_worker(name: str) -> bool:
    """Whether a name below ``shards/`` is that of a worker's directory."""
    return name.startswith("inv-")


def seal(engine: Engine, node: Node) -> None:
    """Move the directories of workers that were looked at away; a crash leaves all or none moved.

    Raises StorageError.
    """
    disk, directory = engine.disk, shards_directory(engine, node.node_id)
    present = disk.list_dir(directory)
    if not present:
        return
    closed = _closed(engine, node)
    _write_sizes(disk, directory, _sizes(disk, directory, filter(is_worker, present)))
    numbers = [int(name) for name in disk.list_dir(closed) if name.isdecimal()]
    disk.make_dirs(closed)
    disk.rename(directory, f"{closed}/{max(numbers, default=0) + 1}")


def late_in_sealed(engine: Engine, node: Node) -> list[str]:
    """What has come in from workers whose directory was sealed, as notices; each is on record.

    What appeared under their names is moved to ``tmp/recovered``; what grew where they lie stays
    there. Raises HaltError.
    """
    moved = [f"late output was set aside as {path}" for path in _set_aside(engine, node)]
    return moved + [f"late output came into {path}" for path in _grown(engine, node)]


def _set_aside(engine: Engine, node: Node) -> list[str]:
    """A crash between a move and its event leaves the file set aside and untold."""
    directory = shards_directory(engine, node.node_id)
    present = [name for name in engine.disk.list_dir(directory) if is_worker(name)]
    if not present:
        return []
    closed = _closed(engine, node)
    sealed = {
        name for number in engine.disk.list_dir(closed)
        for name in engine.disk.list_dir(f"{closed}/{number}")
    }  # fmt: skip
    moved = []
    for name in present:
        if name not in sealed or name in engine.replica.state.slots:
            continue
        target = free_recovered_path(engine, node, f"artifacts/{node.node_id}/shards/{name}")
        full = f"{engine.layout.root}/{target}"
        engine.disk.make_dirs(full.rpartition("/")[0])
        engine.disk.rename(f"{directory}/{name}", full)
        engine.execute(d.RecordLate(node.node_id, name, set_aside=target, why=_WHY))
        moved.append(target)
    return moved


def _grown(engine: Engine, node: Node) -> list[str]:
    """The directories that hold more than was seen of them, each on record; paths of W."""
    disk, closed = engine.disk, _closed(engine, node)
    found = []
    for number in disk.list_dir(closed):
        directory = f"{closed}/{number}"
        seen = _read_sizes(disk, directory)
        now = _sizes(disk, directory, seen)
        for name in (name for name, size in now.items() if size != seen[name]):
            where = f"artifacts/{node.node_id}/{CLOSED_NAME}/{number}/{name}"
            engine.execute(d.RecordLate(node.node_id, name, set_aside=where, why=_WHY))
            found.append(where)
        if now != seen:
            _write_sizes(disk, directory, now)
    return found


def _closed(engine: Engine, node: Node) -> str:
    return f"{engine.layout.node_scope(node.node_id)}/{CLOSED_NAME}"


def _sizes(disk: Disk, directory: str, names: Iterable[str]) -> dict[str, int]:
    return {name: written_bytes(disk, f"{directory}/{name}") for name in names}


def _read_sizes(disk: Disk, directory: str) -> dict[str, int]:
    """What was seen of each; of a record that is not there or not whole nothing is told."""
    path = f"{directory}/{_SIZES_NAME}"
    if disk.stat(path) is None:
        return {}
    try:
        return msgspec.json.decode(disk.read(path), type=dict[str, int])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _write_sizes(disk: Disk, directory: str, sizes: dict[str, int]) -> None:
    disk.replace(f"{directory}/{_SIZES_NAME}", msgspec.json.encode(sizes), durable=False)
