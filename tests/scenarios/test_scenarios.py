"""Scripts of command line calls with the output that is expected of them.

Each ``*.txt`` beside this file is a story in one empty directory. Lines of a script:

``# TEXT``              a remark
``$ perdure ARGS``      a call; ``<<< TEXT`` at its end is its standard input
``$ write PATH TEXT``   also ``append``, ``remove``, ``mkdir``, ``link PATH TARGET``, ``cd``,
                        ``set NAME VALUE``, ``unset NAME``: the world around the calls
``! TEXT``              a line that is expected on standard error
``? N``                 the exit code, when it is not 0
``|``                   an empty line that is expected on standard output
anything else           a line that is expected on standard output

What differs from run to run (times, ids, hashes, process ids, the directory) is shown as a word
in capitals. ``PERDURE_REWRITE=1 pytest tests/scenarios`` writes what happens into the scripts; read
the difference before you believe it.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.interfaces.cli import main

HERE = Path(__file__).parent
SCRIPTS = sorted(HERE.glob("*.txt"))
REWRITE = os.environ.get("PERDURE_REWRITE") == "1"

VOLATILE = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(?:Z|[+-]\d\d:\d\d)"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?\b"), "TIME"),
    (re.compile(r"\bsha256 [0-9a-f]{16}, "), "sha256 SHA..., "),
    (re.compile(r"^(  (?:writes|network) +)(?:landlock.*|policy only)$"), r"\1HELD"),
    (re.compile(r"^\d\d:\d\d:\d\d "), "CLOCK "),
    (re.compile(r"\b\d{8}T\d{6}Z\b"), "STAMP"),
    (re.compile(r"\b[01] s old\b"), "SECONDS old"),
    (re.compile(r"inv-\d{14}-[0-9a-f]+"), "INVOCATION"),
    (re.compile(r"WH-\d{14}-[0-9a-f]{8}"), "WRITTEN"),
    (re.compile(r"\bop-\d+-[0-9a-f]+"), "OP"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "SHA256"),
    (re.compile(r"\b[0-9a-f]{16}\.\.\."), "SHA..."),
    (re.compile(r'"pid":\d+'), '"pid":PID'),
    (re.compile(r"\bpid \d+( on \S+)?"), "pid PID"),
    (re.compile(r'_at":\d+\.\d+'), '_at":SECONDS'),
    (re.compile(r'"mtime_ns":\d+'), '"mtime_ns":NS'),
    (re.compile(r'"bytes":\d+'), '"bytes":N'),
    (re.compile(r"mtime_ns: \d+"), "mtime_ns: NS"),
    (re.compile(r"_at: \d+\.\d+"), "_at: SECONDS"),
    (re.compile(r"under way for [\d.]+ s"), "under way for SECONDS s"),
    (re.compile(r"(last_heartbeat_s|worked_s)(\"?: ?)[\d.]+"), r"\1\2SECONDS"),
]


class Stage:
    """Plays the commands of a script in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def play(self, line: str) -> list[str]:
        """What a command prints and how it ends, as lines of a script."""
        words = shlex.split(line.replace("/DIR", str(self.directory)))
        if words[0] == "perdure":
            return self._call(words[1:])
        getattr(self, f"_{words[0]}")(*words[1:])
        return []

    def _call(self, arguments: list[str]) -> list[str]:
        given = ""
        if "<<<" in arguments:
            place = arguments.index("<<<")
            given = arguments[place + 1]
            del arguments[place : place + 2]
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setattr("sys.stdin", io.StringIO(given))
            code = main(arguments)
        lines = out.getvalue().splitlines()
        lines += [f"! {text}" for text in err.getvalue().splitlines()]
        return [self._steady(text) for text in lines] + ([f"? {code}"] if code else [])

    def _steady(self, line: str) -> str:
        line = line.replace(str(self.directory), "/DIR")
        for pattern, word in VOLATILE:
            line = pattern.sub(word, line)
        return line.rstrip() or "|"

    def _write(self, path: str, text: str = "") -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text.replace("\\n", "\n"), encoding="utf-8")

    def _append(self, path: str, text: str) -> None:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text.replace("\\n", "\n"))

    def _remove(self, path: str) -> None:
        if Path(path).is_dir():
            shutil.rmtree(path)
        else:
            Path(path).unlink()

    def _mkdir(self, path: str) -> None:
        Path(path).mkdir(parents=True)

    def _link(self, path: str, target: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).symlink_to(target)

    def _cd(self, path: str) -> None:
        os.chdir(path)

    def _set(self, name: str, value: str) -> None:
        os.environ[name] = value

    def _unset(self, name: str) -> None:
        del os.environ[name]


def played(script: str, stage: Stage) -> str:
    """The script as it should read: its remarks and commands, and what they print now."""
    lines: list[str] = []
    for line in script.splitlines():
        if line.startswith(("#", "$")) or not line:
            lines.append(line)
        if line.startswith("$ "):
            lines += stage.play(line[2:])
    return "\n".join(lines) + "\n"


@pytest.fixture
def stage(workspace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """An empty directory to be in, and an environment that says nothing."""
    directory = os.getcwd()
    monkeypatch.chdir(workspace)
    for name in [name for name in os.environ if name.startswith("PERDURE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("USER", "tester")
    monkeypatch.setenv("PERDURE_MEMORY", f"{workspace}.memory")
    before = dict(os.environ)
    yield Stage(Path(workspace))
    os.environ.clear()
    os.environ.update(before)
    os.chdir(directory)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scenario(path: Path, stage: Stage) -> None:
    expected = path.read_text(encoding="utf-8")
    actual = played(expected, stage)
    if REWRITE and actual != expected:
        path.write_text(actual, encoding="utf-8")
        return
    assert actual.splitlines() == expected.splitlines()


def test_there_are_scenarios() -> None:
    assert len(SCRIPTS) >= 8


def test_a_script_that_tells_something_else_is_noticed(stage: Stage) -> None:
    script = "# remark\n$ perdure init T1\nnonsense\n? 3\n"
    assert played(script, stage).splitlines() == [
        "# remark",
        "$ perdure init T1",
        "task T1 in /DIR/.perdure/tasks/T1",
        "committed J-1",
    ]
