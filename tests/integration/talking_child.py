"""A child process of a test that is told what to do and answers, one line each."""

import json
import os
import subprocess
import sys
from typing import Any

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class TalkingChild:
    """A process of ``module`` that works in ``directory``, as another user when one is given."""

    def __init__(self, module: str, directory: str, uid: int | None = None) -> None:
        command = [sys.executable, "-m", module, directory]
        self.process = subprocess.Popen(
            [*command, *([] if uid is None else [str(uid)])],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else None

    def ask(self, what: str) -> Any:
        self.say(what)
        return self.hear()
