"""A workspace that is supervised through the command line, and the looks at it."""

import contextlib
import hashlib
import io
import os
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shell import Done, environment

from perdure.interfaces.cli import main


def call_here(*arguments: str, **more: str) -> Done:
    """A call of the command line without the start of a process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in [name for name in os.environ if name.startswith("PERDURE_")]:
            patch.delenv(name)
        for name, value in environment(**more).items():
            patch.setenv(name, value)
        code = main(list(arguments))
    return Done(code, out.getvalue(), err.getvalue())


class Watched:
    """Calls of the command line on one workspace; a look never changes its journal."""

    def __init__(self, workspace: str) -> None:
        self.workspace = workspace
        self.environment: dict[str, str] = {}

    def perdure(self, *arguments: str, code: int = 0) -> Done:
        done = call_here("-C", self.workspace, *arguments, **self.environment)
        assert done.code == code, (arguments, done)
        return done

    def script(self, text: str) -> None:
        """Each line is a call that succeeds; ``write PATH`` writes a file."""
        for line in filter(None, map(str.strip, text.splitlines())):
            words = line.split(" ")
            if words[0] == "write":
                path = Path(self.workspace, words[1])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("something\n")
            else:
                self.perdure(*words)

    def look(self, at: str = "", *, apply: bool = False, **more: str) -> dict[str, Any]:
        """The report of one look."""
        arguments = ["--json", *(["--at", at] if at else []), *(["--apply"] if apply else [])]
        before = self.journal()
        others = self.others() if not apply else None
        done = call_here("-C", self.workspace, "monitor", *arguments, **self.environment, **more)
        assert done.code == 0, done
        assert self.journal() == before
        assert others is None or self.others() == others
        (report,) = done.data["reports"]
        found: dict[str, Any] = report
        return found

    def journal(self) -> str:
        return hashlib.sha256(Path(self.workspace, "journal.jsonl").read_bytes()).hexdigest()

    def others(self) -> dict[str, bytes]:
        """Every file there is."""
        return {
            os.path.join(parent, name): Path(parent, name).read_bytes()
            for parent, _, names in os.walk(self.workspace)
            for name in names
            if Path(parent, name).is_file()
        }

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        events = self.perdure("log", "--json", "--limit", "1000").data["events"]
        return [event for event in events if kind in ("", event["kind"])]
