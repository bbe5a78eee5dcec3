"""The first and the last node of ``task.yaml``: which pages there are, and what was in them.

python pages.py list      writes urls.txt: an address a line, from the service at $PAGES
python pages.py totals    writes totals.json from the findings of the batch node
"""

import json
import os
import sys
from pathlib import Path

from fetch import OPENER

FINDINGS = Path("artifacts/pages/findings.jsonl")


def write_whole(name: str, text: str) -> None:
    """Put one file of this node in place: whole or not at all."""
    target = Path(os.environ["PERDURE_SCOPE"]) / name
    part = target.with_name(f"{name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(target)


def list_pages() -> None:
    """Ask the service."""
    with OPENER.open(f"{os.environ['PAGES']}/pages.txt", timeout=10) as answer:
        write_whole("urls.txt", answer.read().decode())


def add_up() -> None:
    """Count what the findings say."""
    lines = FINDINGS.read_text(encoding="utf-8").split("\n")
    found = [json.loads(line) for line in lines if line]
    totals = {
        "pages": len(found),
        "words": sum(finding["words"] for finding in found),
        "bytes": sum(finding["bytes"] for finding in found),
    }
    write_whole("totals.json", json.dumps(totals) + "\n")


if __name__ == "__main__":
    {"list": list_pages, "totals": add_up}[sys.argv[1]]()
