"""Acceptance checks that count again instead of believing.

    python check.py inventory | facts SHARD | manifest | table | plot FILE | report

Each reads what a node wrote and compares it with something the node did not write: the files on
disk, an earlier node's output, another way of counting. Exit code 0 means that it held; a line
on standard error says what did not. Nothing is changed.
"""

import csv
import hashlib
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

from inventory import is_test, source_files
from survey import (
    INVENTORY,
    MANIFEST,
    REPORT,
    SUMMARY,
    TABLE_CSV,
    TABLE_JSON,
    facts_path,
    read_json,
    read_jsonl,
    shard_of,
)

SVG = "{http://www.w3.org/2000/svg}"


def require(holds: object, message: str) -> None:
    """Go on when it holds, else fail the check with the reason."""
    if not holds:
        sys.exit(f"check failed: {message}")


def root() -> Path:
    """The directory that was inventoried."""
    return Path(read_json(SUMMARY)["root"])


def check_inventory() -> None:
    """The list is sorted, holds each library file on disk once, and every checksum is right."""
    rows, base = read_jsonl(INVENTORY), root()
    paths = [row["path"] for row in rows]
    require(paths == sorted(set(paths)), "paths are not sorted, or one occurs twice")
    require(set(paths) == {p for p in source_files(base) if not is_test(p)}, "not the files there")
    for row in rows:
        digest = hashlib.sha256((base / row["path"]).read_bytes()).hexdigest()
        require(digest == row["sha256"], f"{row['path']} has another checksum")
    require(read_json(SUMMARY)["files"] == len(rows), "the summary counts other files")


def check_facts(shard: str) -> None:
    """One row for each inventoried file of the shard: same checksum, same number of lines."""
    rows, base = read_jsonl(facts_path(int(shard))), root()
    expected = [row for row in read_jsonl(INVENTORY) if shard_of(row["path"]) == int(shard)]
    found = [(row["path"], row["sha256"]) for row in rows]
    require(found == [(row["path"], row["sha256"]) for row in expected], "not the shard's files")
    for row in rows:
        with (base / row["path"]).open("rb") as file:
            lines = sum(1 for _ in file)
        require(row["lines"] == lines, f"{row['path']} has {lines} lines")
        require(row["status"] in ("parsed", "unparsed"), f"{row['path']} has no status")


def check_manifest() -> None:
    """The checksums are those of the inventory."""
    lines = MANIFEST.read_text(encoding="utf-8").splitlines()
    expected = [f"{row['sha256']}  {row['path']}" for row in read_jsonl(INVENTORY)]
    require(lines == expected, "the checksums are not those of the inventory")


def check_table() -> None:
    """As many rows as inventoried files, in the same order, and sums that add up both ways."""
    with TABLE_CSV.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    inventory, table = read_jsonl(INVENTORY), read_json(TABLE_JSON)
    require(len(rows) == len(inventory), f"{len(rows)} rows for {len(inventory)} files")
    for row, entry in zip(rows, inventory, strict=True):
        same = (row["path"], row["sha256"]) == (entry["path"], entry["sha256"])
        require(same, f"{entry['path']} is not in its place")
    for name in ("lines", "code_lines", "bytes", "definitions", "undocumented"):
        by_module = sum(int(row[name] or 0) for row in rows)
        by_package = sum(package[name] for package in table["packages"])
        require(by_module == by_package == table["total"][name], f"{name} does not add up")
    require(table["total"]["bytes"] == sum(row["bytes"] for row in inventory), "bytes differ")


def check_plot(name: str) -> None:
    """A well-formed SVG with title and description, no bar over the edge, longest bar first."""
    tree = ET.parse(name).getroot()
    require(tree.findtext(f"{SVG}title"), "no title")
    require(tree.findtext(f"{SVG}desc"), "no description")
    bars = [bar for bar in tree.iter(f"{SVG}rect") if bar.get("class") == "bar"]
    lengths = [float(bar.get("width", "0")) for bar in bars]
    ends = [float(bar.get("x", "0")) + length for bar, length in zip(bars, lengths, strict=True)]
    require(lengths and lengths == sorted(lengths, reverse=True), "the bars are not in order")
    require(max(ends) < float(tree.get("width", "0")), "a bar leaves the picture")


def check_report() -> None:
    """The totals are those of the table, and every file it links to exists."""
    text, total = REPORT.read_text(encoding="utf-8"), read_json(TABLE_JSON)["total"]
    for name in ("modules", "lines", "code_lines", "public_names", "undocumented"):
        require(f"{total[name]:,}" in text, f"the number of {name} is not in the report")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    require(len(targets) == 3, "not two charts and the table")
    for target in targets:
        require((REPORT.parent / target).is_file(), f"{target} does not exist")


CHECKS: dict[str, Callable[..., None]] = {
    "inventory": check_inventory,
    "facts": check_facts,
    "manifest": check_manifest,
    "table": check_table,
    "plot": check_plot,
    "report": check_report,
}

if __name__ == "__main__":
    CHECKS[sys.argv[1]](*sys.argv[2:])
    print(" ".join(sys.argv[1:]), "holds")
