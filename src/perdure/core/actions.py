"""What a node does when it is dispatched: the action of its spec, one at most.

Invariants: an action is data (names, arguments, inputs) and never code; which executor carries it
out follows from it alone; a node without one is done by hand. Never looks at a disk.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, Literal, get_args

import msgspec

from perdure.core.record import Record

AgentName = Literal["claude", "codex", "gemini", "command"]
ActionKind = Literal["run", "map", "python", "agent", "sop", "human"]

AGENT_NAMES: Final[tuple[str, ...]] = get_args(AgentName)
ACTION_KINDS: Final[tuple[str, ...]] = get_args(ActionKind)

AGENT_PLACEHOLDERS: Final = ("message", "contract", "scope", "workspace", "task_dir")
"""What is filled in where a command of an agent has it in braces."""
PLACEHOLDERS_TEXT: Final = ", ".join(f"{{{name}}}" for name in AGENT_PLACEHOLDERS)
_PLACEHOLDER: Final = re.compile(r"(?<!\$)\{([a-z_]+)\}")


def unknown_placeholders(command: Iterable[str]) -> list[str]:
    """The names in braces that mean nothing; those of a shell's variables are not meant."""
    found = [name for word in command for name in _PLACEHOLDER.findall(word)]
    return [name for name in dict.fromkeys(found) if name not in AGENT_PLACEHOLDERS]


class PythonCall(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A function that is called in a process of its own."""

    call: str
    """``module:function``, or ``path/to/file.py:function`` relative to the task file."""
    args: dict[str, Any] = {}
    """Keyword arguments, as JSON has them."""


class AgentCall(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A coding agent without a window, or any program that is given a line of text to act on."""

    agent: AgentName
    command: tuple[str, ...] = ()
    """Of ``command``: the argument vector; ``{message}``, ``{contract}``, ``{scope}``,
    ``{workspace}`` and ``{task_dir}`` are filled in, and without ``{message}`` that is the last
    argument."""
    model: str = ""
    args: tuple[str, ...] = ()
    """More arguments for the agent's own command line, before the message."""


class SopCall(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A procedure with a graph and a journal of its own, run as a child instance."""

    sop: str
    """The id of a card, or a path of one relative to the task file."""
    version: str = ""
    """Empty: the newest that is found."""
    inputs: dict[str, Any] = {}


class HumanSlot(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A slot that a person fills: the same contract, the same look at the disk."""

    who: str = ""
    """Empty: whoever takes it."""
