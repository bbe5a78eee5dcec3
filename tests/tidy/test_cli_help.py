"""Every command explains itself, and docs/cli.md says what the help says.

``PERDURE_REWRITE=1 pytest tests/tidy/test_cli_help.py`` writes docs/cli.md anew from the help.
"""

import os
from pathlib import Path

import click
import pytest

from perdure.interfaces.cli.program import GROUPS, build_program

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "cli.md"
WIDTH = 90

# What the outside contract promises of this release.
PROMISED = [
    "init", "add", "start", "beat", "submit", "check", "fail", "retry", "receipt", "artifact add",
    "cancel", "pause", "resume", "note", "decide", "steer", "ask", "answer",
    "approve", "revise", "reject", "status", "ready", "next", "show",
    "log", "verify", "doctor", "selftest", "explain", "run", "map", "job status",
    "job verify", "job errors", "job retry", "observe progress", "observe completed",
    "observe task-completed", "observe external", "observe download", "block", "reply",
    "amend", "split", "quarantine", "goal", "policy", "dispatch", "judge",
    "audit", "why", "archive", "export", "import", "stats",
    "memory add", "memory search", "memory show", "memory supersede", "memory due",
    "memory proposals",
]  # fmt: skip
WRITING = [
    "add", "start", "beat", "submit", "check", "fail", "retry", "receipt", "artifact add", "cancel",
    "pause", "note", "decide", "steer", "ask", "answer", "approve", "revise", "reject",
    "observe progress", "observe completed", "observe task-completed", "observe external",
    "observe download", "block", "reply", "amend", "split", "quarantine", "goal", "policy",
    "dispatch", "judge", "audit", "archive", "memory", "memory add", "memory supersede",
]  # fmt: skip


def root_context(program: click.Group) -> click.Context:
    settings = {**program.context_settings, "terminal_width": WIDTH}
    return click.Context(program, info_name="perdure", **settings)


def commands() -> dict[str, tuple[click.Command, click.Context]]:
    """Every command by its words, with the context that its help is made in."""
    program = build_program()
    root = root_context(program)
    found = {}
    for name in program.list_commands(root):
        command = program.get_command(root, name)
        assert command is not None, f"{name} is in the table and not in its module"
        context = click.Context(command, parent=root, info_name=name, terminal_width=WIDTH)
        found[name] = (command, context)
        for inner, below in getattr(command, "commands", {}).items():
            inside = click.Context(below, parent=context, info_name=inner, terminal_width=WIDTH)
            found[f"{name} {inner}"] = (below, inside)
    return found


COMMANDS = commands()


def help_of(name: str) -> str:
    command, context = COMMANDS[name]
    return command.get_help(context)


def page() -> str:
    """docs/cli.md as the help has it."""
    program = build_program()
    root = root_context(program)
    lines = [
        "# Command line",
        "",
        "What `perdure --help` and `perdure COMMAND --help` print. It is made from them: see",
        "`tests/tidy/test_cli_help.py`.",
        "",
        "```text",
        program.get_help(root),
        "```",
    ]
    for title, group in GROUPS.items():
        lines += ["", f"## {title}"]
        for name in COMMANDS:
            if name.split()[0] in group:
                lines += ["", f"### perdure {name}", "", "```text", help_of(name), "```"]
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"


def test_every_promised_command_is_there() -> None:
    assert set(PROMISED) <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_it_does_with_an_example(name: str) -> None:
    command, _ = COMMANDS[name]
    text = help_of(name)
    assert "Example:\n" in text
    assert f"perdure {name}" in text.split("Example:\n")[1]
    first = command.get_short_help_str(limit=1_000)
    assert first.endswith(".")
    assert len(first) <= 70, f"{len(first)} characters do not fit a line of the list"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_the_common_options(name: str) -> None:
    options = {option for param in COMMANDS[name][0].params for option in param.opts}
    assert {"-C", "--workspace", "--json", "--actor"} <= options
    assert ("--op-id" in options) == (name in [*WRITING, "artifact", "observe"])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    command, _ = COMMANDS[name]
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert [param.name for param in options if not param.help] == []


def test_help_fits_its_width() -> None:
    longest = max(page().splitlines(), key=len)
    assert len(longest) <= 100, longest


def test_page_says_what_the_help_says() -> None:
    if os.environ.get("PERDURE_REWRITE") == "1":
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()
