"""The ``map`` section of a node: one command for each of many items.

Job: read it into a :class:`~perdure.core.model.MapSpec`. Invariants: what comes back names exactly
one source of items, and a command; a file of JSON or CSV items comes with the field that names an
item. Never: looks for the items, which may only be made by the nodes before this one.
"""

from typing import Final, cast

from perdure.control.taskfile_actions import json_mapping, read_agent
from perdure.control.taskfile_fields import FieldReader
from perdure.control.taskfile_tree import Fields, Items, Place, Scalar, Tree
from perdure.core.batch import (
    is_of_workspace,
    map_problem,
    shard_units_max,
    unit_attempts_max,
    units_workers_max,
)
from perdure.core.model import ITEMS_FORMATS, ItemsFormat, MapSpec
from perdure.errors import PathError
from perdure.storage.workspace import normal_path

MAP_KEYS: Final = (
    "items", "glob", "list", "format", "key", "run", "workers", "max_attempts", "timeout", "shard",
    "agent", "smoke", "schema",
)  # fmt: skip
_MAP_HINTS: Final = {
    "file": "items", "files": "glob", "command": "run", "cmd": "run", "script": "run",
    "attempts": "max_attempts", "retries": "max_attempts", "jobs": "workers", "wall": "timeout",
    "timeout_s": "timeout", "parallel": "workers", "shards": "shard", "batch": "shard",
    "chunk": "shard", "smoke_test": "smoke", "finding": "schema",
}  # fmt: skip
_FIXES: Final = {
    "needs one of": "write items: FILE, or glob: PATTERN, or list: [KEY, ...]",
    "no command": 'write run: [PROGRAM, "{}"], or a shell line that reads $PERDURE_KEY',
    "both run and agent": "remove one of the two",
    "no shards": "add shard: 10, so that a worker writes its findings itself, or remove it",
    "has a key": "remove it, or write format: jsonl or csv",
    "has a format": "remove it",
    "has a list": "give each item a key of its own",
}
"""By a part of the problem that ``core.batch.map_problem`` tells."""


def read_run(reader: FieldReader, tree: Tree) -> str | tuple[str, ...] | None:
    """A command as nodes and maps have it: a shell line, or a list of words; None on a problem."""
    if isinstance(tree, Items):
        words = []
        for item in tree.items:
            empty = isinstance(item, Scalar) and not item.plain and not item.text
            words.append("" if empty else reader.text(item, "each word of run"))
        if not words or not words[0]:
            reader.bad(tree.place, "run must start with a program", "write [PROGRAM, ...]")
        return tuple(words)
    if isinstance(tree, Fields):
        reader.bad(tree.place, "run must be a command line or a list of words")
        return None
    return reader.text(tree, "run") or None


def read_map(reader: FieldReader, tree: Tree, place: Place) -> MapSpec:
    """The section at ``place``; after a problem a harmless stand-in, with the problem noted."""
    noted = len(reader.problems)
    fields = reader.section(tree, "map", MAP_KEYS, _MAP_HINTS)

    def value(name: str) -> Tree | None:
        return fields[name][1] if name in fields else None

    def whole(name: str, most: int) -> int | None:
        entry = value(name)
        return None if entry is None else reader.whole(entry, f"map.{name}", 1, most)

    run, listed, key = value("run"), value("list"), value("key")
    layout, timeout, agent = value("format"), value("timeout"), value("agent")
    smoke, schema = value("smoke"), value("schema")
    batch = MapSpec(
        run=(read_run(reader, run) if run else None) or (),
        items=_path(reader, value("items"), "items"),
        glob=_path(reader, value("glob"), "glob"),
        list=tuple(text for _, text in reader.texts(listed, "map.list")) if listed else None,
        format=cast(
            ItemsFormat | None, reader.word(layout, "map.format", ITEMS_FORMATS) if layout else None
        ),
        key=(reader.text(key, "map.key") or None) if key else None,
        workers=whole("workers", units_workers_max),
        max_attempts=whole("max_attempts", unit_attempts_max) or MapSpec().max_attempts,
        timeout_s=reader.duration_s(timeout, "map.timeout") if timeout else None,
        shard=whole("shard", shard_units_max),
        agent=read_agent(reader, agent, "map.agent") if agent else None,
        smoke=reader.truth(smoke, "map.smoke") if smoke else False,
        schema=json_mapping(reader, schema, "map.schema") if schema else None,
    )
    problem = map_problem(batch)
    # What follows from a problem that is told already need not be told as well.
    if problem and len(reader.problems) == noted:
        fixes = [fix for part, fix in _FIXES.items() if part in problem]
        reader.bad(place, problem, fixes[0])
    return batch


def _path(reader: FieldReader, tree: Tree | None, name: str) -> str | None:
    """Where items lie: made canonical where that is the workspace, else as it is written."""
    if tree is None:
        return None
    text = reader.text(tree, f"map.{name}")
    if not text:
        return None
    if "\\" in text:
        reader.bad(tree.place, f"map.{name} holds a backslash", "write forward slashes")
        return None
    if not is_of_workspace(text):
        return text
    try:
        return normal_path(text)
    except PathError as error:
        reader.bad(tree.place, error.message.rstrip("."), error.fix.rstrip("."))
        return None
