"""Judge a text by its rubric, and write the verdict where the contract of the audit wants it.

The judge is another process than the reviser, with a contract of its own; it may read everything
and write nothing but its verdict. A point that it does not understand does not hold.
"""

import json
import os
import sys
from pathlib import Path

from rules import FAULTS

TEXT = "artifacts/revise/text.md"


def item(point: str, text: str) -> dict[str, object]:
    if point not in FAULTS:
        return {"point": point, "passed": False, "detail": "this judge cannot tell", "evidence": []}
    lines = FAULTS[point](text)
    detail = f"broken in line {', '.join(map(str, lines))}" if lines else "holds in every line"
    return {"point": point, "passed": not lines, "detail": detail, "evidence": [TEXT]}


def main() -> int:
    workspace = Path(os.environ["PERDURE_WORKSPACE"])
    audit = json.loads(Path(os.environ["PERDURE_CONTRACT"]).read_text(encoding="utf-8"))["audit"]
    text = (workspace / TEXT).read_text(encoding="utf-8")
    items = [item(point, text) for point in audit["rubric"]]
    verdict = "pass" if all(entry["passed"] for entry in items) else "fail"
    target = workspace / audit["verdict"]
    target.write_text(json.dumps({"verdict": verdict, "items": items}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
