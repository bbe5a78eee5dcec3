"""The ``verb`` decorator: makes a function a command that also takes the common options.

Invariants: the docstring is the help, so the two cannot differ; what the function returns is the
exit code, nothing meaning 0. Never parses or prints anything itself.
"""

from collections.abc import Callable
from typing import Any

import click

from perdure.interfaces.cli.request import common_options


def verb(name: str, *, writes: bool = False) -> Callable[[Callable[..., Any]], click.Command]:
    """Make the function below the command of this name; ``writes`` gives it ``--op-id``."""

    def make(function: Callable[..., Any]) -> click.Command:
        op = ", --op-id ID" if writes else ""
        epilog = f"Also: -C DIR, --json, --actor ROLE:ID{op}; see perdure --help."
        command = click.command(name, epilog=epilog)(function)
        command.params += common_options(writes=writes)
        return command

    return make
