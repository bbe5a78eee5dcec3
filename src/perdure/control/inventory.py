"""The units of a batch node: which there are, as its attempt begins.

Job: read the items that a node's ``map`` names and say what its contract is to say of them.
Invariants: the inventory is generated, never typed, and checked three ways: each name stands in it
once, its count and digest are those of what was read, a sample of it was found again in its source;
what cannot be read is an error of this node and of no other. Never runs or writes anything.
"""

import os
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

from perdure.control.item_list import ItemList, items_of
from perdure.control.items import STDIN, glob_items, read_items
from perdure.core.batch import format_of, inventory_digest, is_of_workspace
from perdure.core.model import FailureClass, ItemsFormat, MapSpec, Node
from perdure.errors import HaltError, NotFoundError, PathError, UsageError
from perdure.ports import Disk
from perdure.runtime.contracts import environment_for
from perdure.runtime.engine import Engine
from perdure.storage.workspace import resolve_inside

sample_size: Final = 3
sample_chars_max: Final = 200
"""Of a key that the contract shows."""
row_lines_max: Final = 1_000
"""Lines that the last row of a table is read back over."""
_FROZEN: Final = "artifacts/"


class Inventory(NamedTuple):
    """The units of one attempt."""

    items: ItemList
    order: dict[str, Any]
    """What the contract says of them."""


class Uncounted(NamedTuple):
    """Why there is no inventory, and what kind of failure that is."""

    failure_class: FailureClass
    error: HaltError


def take_inventory(engine: Engine, node: Node) -> Inventory | Uncounted:
    """The units of a batch node, read from where its ``map`` says.

    What another content of a file would cure is ``permanent-resource``; what only another spec can
    cure, also because a registered file is frozen (AR-3), is ``permanent-spec``.
    """
    batch = node.spec.map
    assert batch is not None
    try:
        items, where = _read(engine, node, batch)
        if batch.items is not None:
            _read_back(engine.disk, os.path.join(where, batch.items), batch, items)
    except (NotFoundError, PathError, UsageError) as error:
        return Uncounted(_class_of(error, batch), error)
    except HaltError as error:  # the disk says no, and may say yes another time
        return Uncounted("permanent-resource", error)
    return Inventory(items, _order(batch, items))


def _read(engine: Engine, node: Node, batch: MapSpec) -> tuple[ItemList, str]:
    """The items, and the directory that their source is relative to."""
    if batch.list is not None:
        return items_of("the list of the task file", batch.list), ""
    source = batch.items or batch.glob or ""
    directory = environment_for(engine, node)["PERDURE_TASK_DIR"]
    if is_of_workspace(source):
        directory = engine.layout.root
    if batch.items is not None:
        if is_of_workspace(source):
            resolve_inside(engine.disk, directory, source)
        read = read_items(
            source, form=format_of(batch), key=batch.key, directory=directory, disk=engine.disk
        )
        return read, directory
    own = engine.layout.node_scope(node.node_id)
    found = glob_items(source, directory=directory, disk=engine.disk, skip=own)
    if not found:
        raise NotFoundError(
            f"the glob {source} names no file in {directory}.",
            code="no_items",
            fix="Put the files there, or correct the glob.",
        )
    return found, directory


def _class_of(error: HaltError, batch: MapSpec) -> FailureClass:
    if isinstance(error, NotFoundError):
        return "permanent-resource"
    cured_by_content = batch.items is not None and not batch.items.startswith(_FROZEN)
    resource = cured_by_content and not isinstance(error, PathError)
    return "permanent-resource" if resource else "permanent-spec"


def _order(batch: MapSpec, items: ItemList) -> dict[str, Any]:
    source = {
        name: value for name in ("items", "glob") if (value := getattr(batch, name)) is not None
    }
    return {
        **source,
        "total": len(items),
        "sha256": inventory_digest(items.keys),
        "duplicates": items.duplicate_count,
        "sample": [items.keys[index][:sample_chars_max] for index in _sample(items)],
    }


def _sample(items: ItemList) -> list[int]:
    """The first, the one in the middle and the last."""
    last = len(items) - 1
    return sorted({last * n // (sample_size - 1) for n in range(sample_size)}) if items else []


def _read_back(disk: Disk, path: str, batch: MapSpec, items: ItemList) -> None:
    """Find the sampled items once more where they were read, by reading only their lines.

    Raises UsageError when one of them is not there: the file was changed while it was read.
    """
    wanted = _sample(items)
    if not wanted:
        return
    form = format_of(batch)
    spans = [_lines_of_item(items, i, form) for i in wanted]
    if form == "csv":
        spans.append(range(1, items[0].line))  # the names of the columns
    again = read_items(
        STDIN,
        form=form,
        key=batch.key,
        directory="",
        disk=disk,
        stdin=_lines_of(disk, disk.real_path(path), spans),
    )
    missing = [items.keys[i] for i in wanted if items.keys[i] not in again.keys]
    if missing:
        raise UsageError(
            f"{batch.items} changed while it was read:"
            f" {missing[0][:sample_chars_max]!r} is not there any more.",
            code="bad_item",
            rule="JB-7",
            fix="Let whoever writes it finish, then retry the node.",
        )


def _lines_of_item(items: ItemList, index: int, form: ItemsFormat) -> range:
    """Where an item stands: in one line, but a row of a table may have several."""
    line = items[index].line
    if form != "csv":
        return range(line, line + 1)
    last = index + 1 == len(items)
    return range(line, line + row_lines_max if last else items[index + 1].line)


def _lines_of(disk: Disk, path: str, spans: Collection[range]) -> Iterator[bytes]:
    """The lines of a file whose number, from 1, is in one of the spans."""
    number, rest = 1, b""
    last = max(span.stop for span in spans)
    for chunk in disk.read_chunks(path):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if any(number in span for span in spans):
                yield line + b"\n"
            number += 1
        if number >= last:
            return
    if rest and any(number in span for span in spans):
        yield rest
