"""Node ``table``: the four shards joined.

Writes ``table.csv`` (one row per module) and ``table.json`` (totals, one entry per top-level
package, and how many modules import each name). Refuses when a file of the inventory is missing
or appears twice: a join that quietly loses rows is worse than none.
"""

import csv
import io
import sys
from collections import Counter

from survey import (
    INVENTORY,
    SHARDS,
    SUMMARY,
    Row,
    facts_path,
    read_json,
    read_jsonl,
    to_json,
    write_whole,
)

SUMS = (
    "lines", "code_lines", "bytes", "functions", "classes", "constants", "definitions",
    "undocumented",
)  # fmt: skip
COLUMNS = ("module", "path", "package", "status", *SUMS, "public", "imports", "sha256")


def joined_rows() -> list[Row]:
    """All rows of all shards by path, after comparing them with the inventory."""
    rows = [row for shard in range(1, SHARDS + 1) for row in read_jsonl(facts_path(shard))]
    rows.sort(key=lambda row: row["path"])
    inventoried = [(entry["path"], entry["sha256"]) for entry in read_jsonl(INVENTORY)]
    if [(row["path"], row["sha256"]) for row in rows] != inventoried:
        sys.exit(f"{len(rows)} rows of facts do not match {len(inventoried)} inventoried files.")
    return rows


def total(rows: list[Row]) -> Row:
    """The sums over some modules."""
    sums: Row = {name: sum(row.get(name, 0) for row in rows) for name in SUMS}
    public = sum(len(row.get("public_names", [])) for row in rows)
    return {"modules": len(rows), "public_names": public, **sums}


def by_package(rows: list[Row]) -> list[Row]:
    """One entry per top-level module or package, the longest first."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["package"], []).append(row)
    packages = [{"package": name, **total(group)} for name, group in groups.items()]
    return sorted(packages, key=lambda entry: (-entry["lines"], entry["package"]))


def imported_by(rows: list[Row]) -> list[Row]:
    """For each imported name the number of modules that import it, without its own package's."""
    counts = Counter(
        name for row in rows for name in row.get("imports", []) if name != row["package"]
    )
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"name": name, "modules": count} for name, count in ordered]


def to_csv(rows: list[Row]) -> str:
    """The table, one row per module; lists inside a cell are separated by blanks."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        public = len(row.get("public_names", []))
        writer.writerow(row | {"public": public, "imports": " ".join(row.get("imports", []))})
    return text.getvalue()


def main() -> None:
    """Join, count, write."""
    rows = joined_rows()
    table: Row = {
        "python": read_json(SUMMARY)["python"],
        "total": total(rows),
        "unparsed": [row["path"] for row in rows if row["status"] != "parsed"],
        "modules_without_docstring": sum(row.get("module_docstring") is False for row in rows),
        "packages": by_package(rows),
        "imported": imported_by(rows),
    }
    write_whole("table.csv", to_csv(rows))
    write_whole("table.json", to_json(table))
    print(f"{len(rows)} modules in {len(table['packages'])} packages")


if __name__ == "__main__":
    main()
