"""Say what the table holds, as Markdown on standard output.

A program of its own: standard library only. Numbers are added up; texts are not repeated, except
the names of the largest documents.
"""

import csv
import os
import sys

shown_max = 10


def number(text: str) -> int | None:
    """The whole number that a cell holds."""
    return int(text) if text.isdecimal() else None


def main() -> int:
    """Write the report."""
    table = os.path.join(os.environ["PERDURE_WORKSPACE"], "artifacts/table/table.csv")
    with open(table, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = [c for c in rows[0] if all(number(row[c]) is not None for row in rows)]
    lines = ["# What was found", "", f"{len(rows)} documents.", ""]
    if columns:
        lines += ["| in all of them | sum | most in one |", "| --- | --- | --- |"]
    for column in columns:
        values = [number(row[column]) or 0 for row in rows]
        lines.append(f"| {column} | {sum(values)} | {max(values)} |")
    if "words" in columns:
        largest = sorted(rows, key=lambda row: (-int(row["words"]), row["document"]))[:shown_max]
        lines += ["", "The largest:", ""]
        lines += [f"- `{row['document']}`: {row['words']} words" for row in largest]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.exit(main())
