"""Count again what the index says, from the texts themselves and without perdure.

    python check.py JOB [--root DIR]

Exit code 0 means that each text has exactly one finding that is true of it, and its file of words;
what does not hold is said on standard error. Nothing is changed.
"""

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from texts import find_texts

LETTERS = re.compile(r"[^\W\d_]")


def problems_of(finding: dict[str, Any], path: Path, job: Path) -> list[str]:
    """What is wrong with one finding."""
    data = path.read_bytes()
    with path.open("rb") as file:
        lines = sum(1 for _ in file)
    counts = json.loads((job / finding["words_in"]).read_bytes())
    letters = len(LETTERS.findall(data.decode("utf-8", errors="replace").lower()))
    item_hash = hashlib.sha256(finding["_key"].encode()).hexdigest()[:16]
    claims = {
        "another sha256": finding["sha256"] == hashlib.sha256(data).hexdigest(),
        "another number of lines": finding["lines"] == lines,
        "another number of bytes": finding["bytes"] == path.stat().st_size,
        "words that do not add up": finding["words"] == sum(counts.values()),
        "words that are not its own": letters
        == sum(len(LETTERS.findall(word)) * count for word, count in counts.items()),
        "no title": bool(finding["title"]) or not data.strip(),
        "another hash": finding["_hash"] == item_hash,
    }
    return [claim for claim, holds in claims.items() if not holds]


def main() -> int:
    """Check all of it."""
    parser = argparse.ArgumentParser(description="Check an index of texts.")
    parser.add_argument("job", type=Path)
    parser.add_argument("--root", type=Path)
    options = parser.parse_args()
    paths = {text.key: text.path for text in find_texts(options.root)}
    log = (options.job / "findings.jsonl").read_bytes()
    findings = [json.loads(line) for line in log.split(b"\n") if line]
    times = Counter(finding["_key"] for finding in findings)
    found = [f"{key}: {n} findings" for key, n in times.items() if n != 1]
    found += [f"{key}: not in the index" for key in paths.keys() - times.keys()]
    found += [f"{key}: in the index and not on disk" for key in times.keys() - paths.keys()]
    for finding in findings:
        if path := paths.get(finding["_key"]):
            found += [f"{finding['_key']}: {p}" for p in problems_of(finding, path, options.job)]
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    words = sum(finding["words"] for finding in findings)
    print(f"{len(findings)} findings for {len(paths)} texts, {words:,} words")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
