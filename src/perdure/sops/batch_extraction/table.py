"""Make a table of the findings, on standard output: a row for each document, sorted by its key.

A program of its own: standard library only. A list becomes how many entries it has; fields that
only some findings have are empty in the others.
"""

import csv
import json
import os
import sys
from typing import Any

FIRST = ("document", "title")


def rows_of(findings: str) -> list[dict[str, Any]]:
    """The findings as rows of plain values."""
    rows = []
    with open(findings, encoding="utf-8") as file:
        for line in file:
            found = json.loads(line)
            row = {k: plain(v) for k, v in found.items() if not k.startswith("_")}
            rows.append({"document": found["_key"], **row})
    return sorted(rows, key=lambda row: row["document"])


def plain(value: Any) -> Any:
    """What stands in a cell."""
    if isinstance(value, list):
        return len(value)
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else value


def main() -> int:
    """Write the table."""
    workspace = os.environ["PERDURE_WORKSPACE"]
    rows = rows_of(os.path.join(workspace, "artifacts/extract/findings.jsonl"))
    names = sorted({name for row in rows for name in row} - set(FIRST))
    columns = [name for name in (*FIRST, *names) if any(name in row for row in rows)]
    writer = csv.DictWriter(sys.stdout, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.exit(main())
