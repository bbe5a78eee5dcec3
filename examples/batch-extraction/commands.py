"""A worker of one's own: which commands a Markdown document shows in its console blocks.

It gets some documents with one contract and writes a finding for each; killed in the middle, the
findings that it has written stay, and another worker gets the rest.
"""

import json
import os
import re
import sys
from pathlib import Path

CONSOLE = re.compile(r"^```(?:console|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands_in(text: str) -> list[str]:
    lines = [line for block in CONSOLE.findall(text) for line in block.splitlines()]
    return [line.removeprefix("$ ").strip() for line in lines if line.startswith("$ ")]


def add_line(path: Path, entry: dict[str, object]) -> None:
    """One whole line, on the disk when this returns."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
        file.flush()
        os.fsync(file.fileno())


def main() -> int:
    workspace = Path(os.environ["PERDURE_WORKSPACE"])
    contract = json.loads(Path(os.environ["PERDURE_CONTRACT"]).read_text(encoding="utf-8"))
    findings, ledger = (workspace / path for path in contract["outputs"])
    for unit in contract["units"]["keys"]:
        if (workspace / contract["recall"]).exists():  # the work is not wanted any more
            return 1
        text = Path(unit["item"]["path"]).read_text(encoding="utf-8")
        commands = commands_in(text)
        programs = sorted({line.split()[0] for line in commands if line})
        finding = {"_key": unit["key"], "commands": commands, "programs": " ".join(programs)}
        add_line(findings, finding)
        add_line(ledger, {"unit_id": unit["key"], "status": "ok"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
