"""Node ``report``: the findings in Markdown, with both charts.

Every number comes from the table. Nothing of the run enters (no time, no host), so the same
sources give the same report, byte for byte, however often the work was interrupted.
"""

import csv
import os
from pathlib import Path

from survey import (
    PLOT_IMPORTS,
    PLOT_LINES,
    SUMMARY,
    TABLE_CSV,
    TABLE_JSON,
    Row,
    read_json,
    write_whole,
)

TOP = 15


def link(target: Path) -> str:
    """``target`` as seen from the report, so that the workspace can be moved."""
    return Path(os.path.relpath(target, os.environ["PERDURE_SCOPE"])).as_posix()


def share(part: int, whole: int) -> str:
    """A part of a whole in percent."""
    return f"{100 * part / whole:.1f} %" if whole else "n/a"


def markdown_table(head: list[str], rows: list[list[str | int]]) -> list[str]:
    """The first column is text, the others are numbers and stand to the right."""
    cells = [[f"{c:,}" if isinstance(c, int) else c for c in row] for row in rows]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *cells]
    return ["| " + " | ".join(line) + " |" for line in lines]


def totals(table: Row, summary: Row) -> list[str]:
    """The paragraph of totals."""
    total = table["total"]
    parsed = total["modules"] - len(table["unparsed"])
    bare = table["modules_without_docstring"]
    unparsed = ", ".join(f"`{path}`" for path in table["unparsed"])
    lines = f"""\
- **{total["modules"]:,} modules** in {len(table["packages"]):,} top-level packages,
  {total["bytes"]:,} bytes ({summary["test_files_left_out"]:,} test files left out).
- **{total["lines"]:,} lines**, of which {total["code_lines"]:,} hold code
  ({share(total["code_lines"], total["lines"])}).
- **{total["public_names"]:,} public names**; at the top level of modules {total["functions"]:,}
  functions, {total["classes"]:,} classes and {total["constants"]:,} constants.
- Without a docstring: {bare:,} modules ({share(bare, parsed)}) and {total["undocumented"]:,} of
  {total["definitions"]:,} public functions, classes and methods
  ({share(total["undocumented"], total["definitions"])}).
- Not parsed, counted by lines only: {unparsed or "none"}."""
    return lines.split("\n")


def packages(table: Row) -> list[str]:
    """The table of the largest packages."""
    rows = [
        [
            f"`{p['package']}`", p["modules"], p["lines"], p["code_lines"], p["public_names"],
            share(p["undocumented"], p["definitions"]),
        ]
        for p in table["packages"][:TOP]
    ]  # fmt: skip
    head = ["package", "modules", "lines", "code lines", "public names", "undocumented"]
    return markdown_table(head, rows)


def modules(column: str, count: int) -> list[str]:
    """The modules with the largest value of one column."""
    with TABLE_CSV.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    found.sort(key=lambda row: (-int(row[column] or 0), row["module"]))
    rows: list[list[str | int]] = [[f"`{r['module']}`", int(r[column])] for r in found[:count]]
    return markdown_table(["module", "lines" if column == "lines" else "public names"], rows)


def main() -> None:
    """Write ``report.md``."""
    table, summary = read_json(TABLE_JSON), read_json(SUMMARY)
    imported: list[list[str | int]] = [
        [f"`{entry['name']}`", entry["modules"]] for entry in table["imported"][:TOP]
    ]
    lines = [
        f"# The standard library of Python {table['python']}",
        "",
        *totals(table, summary),
        "",
        f"## Largest packages\n\n![Largest packages by lines]({link(PLOT_LINES)})\n",
        *packages(table),
        "\n## Largest modules\n",
        *modules("lines", 5),
        f"\n## Most imported\n\n![Most imported modules]({link(PLOT_IMPORTS)})\n",
        *markdown_table(["module", "imported by modules"], imported),
        "\n## Most public names\n",
        *modules("public", 5),
        f"\nAll modules: [table.csv]({link(TABLE_CSV)}).",
        "",
    ]
    write_whole("report.md", "\n".join(lines))
    print(f"report of {table['total']['modules']} modules")


if __name__ == "__main__":
    main()
