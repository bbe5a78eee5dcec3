"""A worker: for each unit of its contract, what one document says, found by rules alone.

A program of its own: standard library only, and an example of what a worker has to do. It reads its
contract, looks for a recall before each unit, writes the finding whole and then the unit's line in
the ledger, and says so where a document cannot be read.
"""

import hashlib
import json
import os
import re
import sys
from datetime import datetime, timezone
from typing import Any

FENCED = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1 *$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
UNDERLINED = re.compile(r"^(\S.*)\n(?:=+|-+)$", re.MULTILINE)
DATE = re.compile(r"\b(?:1[0-9]|20)\d{2}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])\b")
AMOUNT = re.compile(r"(?:[$€£] ?\d[\d,]*(?:\.\d+)?)|(?:\b\d[\d,]*(?:\.\d+)? ?(?:EUR|USD|GBP)\b)")
LINK = re.compile(r"\bhttps?://[^\s<>()\[\]\"'`]+[^\s<>()\[\]\"'`.,;:]")
WORD = re.compile(r"\w+")
listed_max = 200


def facts(content: bytes) -> dict[str, Any]:
    """What a text says; ValueError when it is none."""
    text = content.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    prose = FENCED.sub("", text)
    headings = [m.strip() for m in HEADING.findall(prose)] or UNDERLINED.findall(prose)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return {
        "title": (headings[0] if headings else first)[:200],
        "headings": headings[:listed_max],
        "dates": sorted(set(DATE.findall(text)))[:listed_max],
        "amounts": sorted(set(AMOUNT.findall(text)))[:listed_max],
        "links": sorted(set(LINK.findall(text)))[:listed_max],
        "words": len(WORD.findall(text)),
        "lines": len(text.splitlines()),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def finding_of(unit: dict[str, Any]) -> dict[str, Any]:
    """The finding of one unit; ValueError or OSError when there can be none."""
    item = unit["item"]
    with open(item["path"], "rb") as file:
        content = file.read()
    found = facts(content)
    if found["sha256"] != item["sha256"]:
        raise ValueError("the document has changed since it was listed")
    return {"_key": unit["key"], **found}


def append(path: str, entry: dict[str, Any]) -> None:
    """Add one whole line; it is on the disk when this returns."""
    with open(path, "ab") as file:
        file.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def main() -> int:
    """Work through the contract."""
    workspace = os.environ["PERDURE_WORKSPACE"]
    with open(os.environ["PERDURE_CONTRACT"], encoding="utf-8") as file:
        contract = json.load(file)
    findings, ledger = (os.path.join(workspace, path) for path in contract["outputs"])
    skip = contract["skip"] if isinstance(contract["skip"], list) else []
    for unit in contract["units"]["keys"]:
        if unit["key"] in skip:
            continue
        if os.path.exists(os.path.join(workspace, contract["recall"])):
            sys.stderr.write("recalled\n")
            return 1
        line = {"unit_id": unit["key"], "status": "ok"}
        try:
            append(findings, finding_of(unit))
        except (OSError, ValueError) as error:
            line |= {"status": "fail", "reason": str(error)}
        append(ledger, {**line, "ts": datetime.now(timezone.utc).isoformat()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
