"""What README.md and docs/ tell people to type does what they say.

A comment right above a fenced block says what becomes of it:

``<!-- tidy: run -->``          each line ``$ COMMAND`` of a console block is run (a line ``> MORE``
                                continues it); a python block is run as a script
``<!-- tidy: run exit=4 -->``   the same, and the last command ends with this code
``<!-- tidy: file NAME -->``    the block is the content of this file
``<!-- tidy: skip REASON -->``  it cannot run here

The blocks of one document run one after the other in one shell, in an empty directory with a copy
of ``examples/``, so a document reads, and runs, as one session. Lines below a command are its
output: ``...`` stands for anything within a line, and alone on a line for any lines; where no
output is shown none is compared. A console block without such a comment is an error, so that
nobody forgets one.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCUMENTS = sorted([*ROOT.glob("README.md"), *(ROOT / "docs").rglob("*.md")])

FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,}|~{3,}) *(?P<language>[\w+-]*)[^`]*")
MARK = re.compile(r" *<!-- tidy: (?P<text>.*?) *-->")
INSTRUCTION = re.compile(r"(?P<verb>run|file|skip)(?: +(?P<rest>.+))?")
END_OF_COMMAND = "\x1e"


class Block(NamedTuple):
    """A fenced block, and what is to become of it; ``verb`` is empty when nothing says so."""

    line: int
    language: str
    verb: str
    rest: str
    text: str


class Step(NamedTuple):
    """A command, and what it is said to print (None: not said) and to end with."""

    line: int
    command: str
    output: str | None
    exit_code: int


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a document. A comment that no block follows is an error."""
    lines = iter(enumerate(text.splitlines(), 1))
    verb = rest = ""
    for number, line in lines:
        if mark := MARK.fullmatch(line):
            instruction = INSTRUCTION.fullmatch(mark["text"])
            assert instruction, f"line {number}: unknown instruction {line.strip()!r}"
            assert not verb, f"line {number}: the comment before this one has no block"
            verb, rest = instruction["verb"], instruction["rest"] or ""
        elif fence := FENCE.fullmatch(line):
            content = []
            for _, inner in lines:
                if re.fullmatch(rf" *{fence['ticks'][0]}{{{len(fence['ticks'])},}} *", inner):
                    break
                content.append(inner.removeprefix(fence["indent"]))
            yield Block(number, fence["language"], verb, rest, "\n".join(content) + "\n")
            verb = rest = ""
        else:
            assert not (verb and line.strip()), f"line {number}: a block should follow the comment"
    assert not verb, "the last comment has no block"


def commands(block: Block) -> list[Step]:
    steps: list[Step] = []
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            steps.append(Step(number, line[2:], None, 0))
            continue
        assert steps, f"line {number}: a console block starts with `$ COMMAND`"
        last = steps[-1]
        if line.startswith("> ") and last.output is None:
            steps[-1] = last._replace(command=f"{last.command}\n{line[2:]}")
        else:
            steps[-1] = last._replace(output=f"{last.output or ''}{line}\n")
    return steps


def steps_of(text: str) -> list[Step]:
    """Everything a document does, in order, as shell commands."""
    steps: list[Step] = []
    for number, block in enumerate(blocks(text)):
        if block.verb == "file":
            assert block.rest, f"line {block.line}: which file?"
            steps.append(Step(block.line, heredoc(block.rest, block.text), None, 0))
        elif block.verb == "skip":
            assert block.rest, f"line {block.line}: say why this cannot run"
        elif block.verb == "run":
            steps += runnable(block, f".block-{number}.py")
        else:
            forgotten = block.language == "console"
            assert not forgotten, f"line {block.line}: say `tidy: run` or `tidy: skip REASON`"
    return steps


def runnable(block: Block, script: str) -> list[Step]:
    if block.language == "python":
        command = f"{heredoc(script, block.text)}\npython {script}"
        found = [Step(block.line, command, None, 0)]
    else:
        assert block.language == "console", f"line {block.line}: only console and python can run"
        found = commands(block)
    assert found, f"line {block.line}: nothing to run"
    if block.rest:
        expected = re.fullmatch(r"exit=(\d+)", block.rest)
        assert expected, f"line {block.line}: unknown option {block.rest!r}"
        found[-1] = found[-1]._replace(exit_code=int(expected[1]))
    return found


def heredoc(name: str, text: str) -> str:
    return (
        f"mkdir -p \"$(dirname '{name}')\" && cat > '{name}' <<'END-OF-BLOCK'\n{text}END-OF-BLOCK"
    )


def agrees(expected: str, actual: str) -> bool:
    """Whether the output is as shown, apart from ``...`` and space at the ends of lines."""
    pattern = ""
    for line in expected.strip().splitlines():
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*"
        else:
            parts = map(re.escape, line.rstrip().split("..."))
            pattern += r"[^\n]*".join(parts) + "\n"
    text = "".join(f"{line.rstrip()}\n" for line in actual.strip().splitlines())
    return re.fullmatch(pattern, text) is not None


def environment(home: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PERDURE_", "PYTEST_"))}
    bin_directory = os.path.dirname(sys.executable)
    return kept | {
        "PATH": f"{bin_directory}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "HOME": str(home),
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }


def complaints(text: str, directory: Path) -> list[str]:
    """Run a document in ``directory``; what does not go as it says."""
    steps = steps_of(text)
    mark = f"printf '\\n{END_OF_COMMAND}%d\\n' $?"
    script = "".join(f"{step.command}\n{mark}\n" for step in steps)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=directory,
        env=environment(directory),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
        timeout=150,
    )
    parts = re.split(rf"\n{END_OF_COMMAND}(\d+)\n", done.stdout)
    results = list(zip(parts[0::2], map(int, parts[1::2]), strict=False))
    found = []
    for step, (output, exit_code) in zip(steps, results, strict=False):
        told = f"line {step.line}: $ {step.command}\n{output}"
        if exit_code != step.exit_code:
            found.append(f"{told}\nended with {exit_code}, should be {step.exit_code}")
        elif step.output is not None and not agrees(step.output, output):
            found.append(f"{told}\nshould be\n{step.output}")
    if len(results) < len(steps):
        found.append(f"line {steps[len(results)].line}: the shell ended here\n{parts[-1]}")
    return found


@pytest.mark.timeout(180)
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_in_the_documents_do_what_is_shown(path: Path, tmp_path: Path) -> None:
    if (ROOT / "examples").is_dir():
        ignored = shutil.ignore_patterns("__pycache__", ".perdure")
        shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=ignored)
    found = complaints(path.read_text(encoding="utf-8"), tmp_path)
    assert not found, "\n\n".join(found)


@pytest.mark.skipif(not README.exists(), reason="there is no README.md")
def test_the_readme_has_commands_that_run() -> None:
    steps = steps_of(README.read_text(encoding="utf-8"))
    assert any("perdure" in step.command for step in steps)


SESSION = """
<!-- tidy: file sub/greeting.txt -->
```yaml
hello
```

<!-- tidy: run -->
```console
$ cd sub
$ cat \\
> greeting.txt
{hello}
```

1. In the same directory:

   <!-- tidy: run exit={code} -->
   ```console
   $ printf 'a 1\\nb 2\\nc 3\\n'
   a ...
   ...
   $ sh -c 'ls; exit 3'
   greeting.txt
   ```

<!-- tidy: run -->
```python
print(open("greeting.txt").read())
```

<!-- tidy: skip it needs a network -->
```console
$ false
```
"""


def test_a_document_that_tells_the_truth_passes(tmp_path: Path) -> None:
    assert complaints(SESSION.format(hello="hello", code=3), tmp_path) == []


def test_wrong_output_is_reported(tmp_path: Path) -> None:
    (complaint,) = complaints(SESSION.format(hello="goodbye", code=3), tmp_path)
    assert complaint.startswith("line 10: $ cat")
    assert "hello" in complaint


def test_wrong_exit_code_is_reported(tmp_path: Path) -> None:
    (complaint,) = complaints(SESSION.format(hello="hello", code=4), tmp_path)
    assert complaint.endswith("ended with 3, should be 4")


def test_a_shell_that_ends_early_is_reported(tmp_path: Path) -> None:
    (complaint,) = complaints("<!-- tidy: run -->\n```console\n$ exit\n$ true\n```\n", tmp_path)
    assert complaint.startswith("line 3: the shell ended here")


@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ true\n```\n",
        "<!-- tidy: run -->\n\nNo block.\n",
        "<!-- tidy: run -->\n",
        "<!-- tidy: run -->\n```console\n```\n",
        "<!-- tidy: walk -->\n```console\n$ true\n```\n",
        "<!-- tidy: run fast -->\n```console\n$ true\n```\n",
        "<!-- tidy: skip -->\n```console\n$ true\n```\n",
    ],
)
def test_a_block_that_would_not_run_is_an_error(text: str) -> None:
    with pytest.raises(AssertionError):
        steps_of(text)


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("committed J-... ok", "committed J-42 ok  \n", True),
        ("a\n...\nz", "a\nz\n", True),
        ("a\n...\nz", "a\nb\nc\nz\n", True),
        ("a\n...\nz", "a\nb\n", False),
        ("a.c", "abc\n", False),
        ("a", "a\nb\n", False),
        ("...", "", True),
    ],
)
def test_dots_stand_for_what_differs(expected: str, actual: str, same: bool) -> None:
    assert agrees(expected, actual) is same
