"""Revise a text: first as it is, then whatever the last verdict said, and nothing else.

It starts from the text that was judged last, which lies in artifacts/old once a verdict has sent it
back, and from the draft before that. It cures one point a round, so that there are rounds to see.
"""

import json
import os
import sys
from pathlib import Path

from rules import CURES


def newest(workspace: Path) -> Path:
    """The text to start from."""
    artifacts = workspace / "artifacts"
    former = [*artifacts.glob("old/A-revise*/text.md")]
    draft = artifacts / "draft" / "draft.md"
    return max(former, key=lambda path: path.stat().st_mtime_ns) if former else draft


def main() -> int:
    workspace = Path(os.environ["PERDURE_WORKSPACE"])
    contract = json.loads(Path(os.environ["PERDURE_CONTRACT"]).read_text(encoding="utf-8"))
    text = newest(workspace).read_text(encoding="utf-8")
    failed = [point for point in CURES if point in contract["previous_failure"]]
    for point in failed[:1]:
        text = CURES[point](text)
        print("cured:", point)
    (Path(os.environ["PERDURE_SCOPE"]) / "text.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
