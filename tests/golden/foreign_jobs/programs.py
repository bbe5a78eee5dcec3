"""The two programs of this directory, as a test calls them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
COMMANDS = {
    "python": [sys.executable, str(HERE / "job.py")],
    "node": ["node", str(HERE / "job.mjs")],
}


def _has_node() -> bool:
    """Whether there is a Node that knows ``isWellFormed``, which began with version 20."""
    if shutil.which("node") is None:
        return False
    asked = ["node", "-e", "process.exit(''.isWellFormed ? 0 : 1)"]
    return subprocess.run(asked, capture_output=True, check=False, timeout=20).returncode == 0


without_node = pytest.mark.skipif(not _has_node(), reason="there is no Node 20 here")
each_program = pytest.mark.parametrize(
    "program", ["python", pytest.param("node", marks=without_node)]
)


def key_of(number: int) -> str:
    """The key of an item, as both programs make it."""
    return f"https://例え.example/página/{number}?q=é"


def call(program: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run one of them to its end, whatever that is."""
    return subprocess.run(
        [*COMMANDS[program], *map(str, words)],
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=50,
    )


def answer(program: str, *words: object) -> dict[str, Any]:
    """What it says of the job: ``completed``, ``cursor``, ``errors``. It has to end well."""
    done = call(program, *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
