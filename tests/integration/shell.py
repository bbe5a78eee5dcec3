"""Calls of the command line as processes of their own, as users make them."""

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

PERDURE = (sys.executable, "-m", "perdure")


class Done(NamedTuple):
    """How a call ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What it answered with ``--json``."""
        envelope = json.loads(self.out.splitlines()[-1])
        assert envelope["schema_version"] == 1
        return envelope["data"]

    @property
    def error(self) -> Any:
        """What it refused with ``--json``."""
        envelope = json.loads(self.err)
        assert envelope["schema_version"] == 1
        return envelope["error"]


def environment(**more: str) -> dict[str, str]:
    """The surroundings of a user that has set nothing of ours."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PERDURE_", "PYTEST_"))}
    return {**kept, "USER": "tester", **more}


def start(*arguments: str, cwd: str | None = None, **more: str) -> subprocess.Popen[str]:
    """Start a call; its standard output and error are pipes."""
    return subprocess.Popen(
        [*PERDURE, *arguments],
        cwd=cwd,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(child: subprocess.Popen[str]) -> Done:
    """Wait for a call and say how it ended."""
    out, err = child.communicate(timeout=50)
    assert "Traceback" not in err, err
    return Done(child.returncode, out, err)


def call(*arguments: str, cwd: str | None = None, **more: str) -> Done:
    """Make a call and wait for its end."""
    return finish(start(*arguments, cwd=cwd, **more))
