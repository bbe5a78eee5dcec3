"""Hold the table against the documents themselves, and say on standard output what is wrong.

A program of its own: standard library only; it shares nothing with those that made the table. Each
document is read again: it has one row, no row is of anything else, and where the table has a hash
it is that of the document. Ends with 1 when something is wrong.
"""

import csv
import hashlib
import json
import os
import sys
from collections import Counter

problems_max = 50


def main() -> int:
    """Compare, and print the verdict."""
    artifacts = os.path.join(os.environ["PERDURE_WORKSPACE"], "artifacts")
    with open(os.path.join(artifacts, "inventory/documents.jsonl"), encoding="utf-8") as file:
        documents = {entry["key"]: entry for entry in map(json.loads, file)}
    with open(os.path.join(artifacts, "table/table.csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    counts = Counter(row["document"] for row in rows)
    problems = [f"{key} has {counts[key]} rows" for key in documents if counts[key] != 1]
    problems += [f"{key} is no document" for key in counts if key not in documents]
    for row in rows:
        entry = documents.get(row["document"])
        if entry is None:
            continue
        with open(entry["path"], "rb") as file:
            now = hashlib.sha256(file.read()).hexdigest()
        if now != entry["sha256"]:
            problems.append(f"{row['document']} has changed since it was listed")
        elif row.get("sha256", now) != now:
            problems.append(f"{row['document']}: the table was made from another content")
    verdict = {"documents": len(documents), "rows": len(rows), "problems": problems[:problems_max]}
    sys.stdout.write(json.dumps(verdict, indent=1) + "\n")
    for problem in problems[:problems_max]:
        sys.stderr.write(f"{problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
