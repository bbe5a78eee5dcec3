"""The files of the survey: where they lie and how one is written.

Invariants: a node writes below its own scope only (``PERDURE_SCOPE``); under its final name a
file is always whole, because it is written beside it first and then renamed. A node killed in
the middle leaves at most a ``.part`` file, which nobody reads and its next attempt overwrites.

Not done here: syncing to disk. perdure syncs every output itself before it records its hash.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]

SHARDS = 4

# Every command of a task runs in the workspace, so these are relative to it.
INVENTORY = Path("artifacts/inventory/inventory.jsonl")
SUMMARY = Path("artifacts/inventory/summary.json")
TABLE_CSV = Path("artifacts/table/table.csv")
TABLE_JSON = Path("artifacts/table/table.json")
MANIFEST = Path("artifacts/manifest/SHA256SUMS")
PLOT_LINES = Path("artifacts/plot-lines/lines.svg")
PLOT_IMPORTS = Path("artifacts/plot-imports/imports.svg")
REPORT = Path("artifacts/report/report.md")


def facts_path(shard: int) -> Path:
    """Where the facts of one shard (1 to ``SHARDS``) lie."""
    return Path(f"artifacts/facts-{shard}/facts.jsonl")


def shard_of(path: str) -> int:
    """The shard (1 to ``SHARDS``) that a source file belongs to.

    A hash of its name, not its place in the list: the same on every machine and in every run,
    so a shard that is run again gets exactly the files it had before. (``hash()`` would not do:
    it differs from process to process.)
    """
    return 1 + int(hashlib.sha256(path.encode()).hexdigest()[:8], 16) % SHARDS


def write_whole(name: str, text: str) -> None:
    """Put one file of this node in place: the old content or the new one, never a part."""
    target = Path(os.environ["PERDURE_SCOPE"]) / name
    part = target.with_name(target.name + ".part")
    part.write_text(text, encoding="utf-8", newline="\n")
    part.replace(target)


def to_json(value: object) -> str:
    """One value, readable, the same text for the same value."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def to_jsonl(rows: Iterable[Row]) -> str:
    """One row a line, keys sorted."""
    return "".join(json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n" for row in rows)


def read_json(path: Path) -> Row:
    """One object from a file."""
    value: Row = json.loads(path.read_text(encoding="utf-8"))
    return value


def read_jsonl(path: Path) -> list[Row]:
    """Every row of a file. Lines end with a newline only, whatever else a name may hold."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
