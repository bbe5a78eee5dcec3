"""What a node of a task file does: ``python``, ``agent``, ``sop`` and ``human``; and its grants.

Job: read each into its record of ``core.actions``. Invariants: what comes back names what it calls
in a form that its executor takes; arguments and inputs are JSON values; a grant has the grammar of
``core.grants``. Never: looks whether a program, a function or a card is there.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from perdure.control.taskfile_fields import FieldReader, shown
from perdure.control.taskfile_tree import Fields, Items, Place, Scalar, Tree, plain_value
from perdure.core.actions import (
    AGENT_NAMES,
    AGENT_PLACEHOLDERS,
    PLACEHOLDERS_TEXT,
    AgentCall,
    AgentName,
    HumanSlot,
    PythonCall,
    SopCall,
    unknown_placeholders,
)
from perdure.core.grants import grant_problem, grants_max

PYTHON_KEYS: Final = ("call", "args")
AGENT_KEYS: Final = ("agent", "model", "args", "command")
SOP_KEYS: Final = ("sop", "version", "inputs")
HUMAN_KEYS: Final = ("who",)

_PYTHON_HINTS: Final = {
    "function": "call", "target": "call", "module": "call: MODULE:FUNCTION", "kwargs": "args",
    "arguments": "args", "inputs": "args", "with": "args",
}  # fmt: skip
_AGENT_HINTS: Final = {
    "name": "agent", "kind": "agent", "type": "agent", "cmd": "command", "run": "command",
    "flags": "args", "arguments": "args", "options": "args",
    "prompt": "goal, at the node: what to do is in the contract",
    "message": "goal, at the node: what to do is in the contract",
    "timeout": "budget: {wall: ...}, at the node",
}  # fmt: skip
_SOP_HINTS: Final = {
    "id": "sop", "name": "sop", "sop_id": "sop", "card": "sop", "path": "sop", "with": "inputs",
    "args": "inputs", "params": "inputs",
}  # fmt: skip
_HUMAN_HINTS: Final = {
    "name": "who", "person": "who", "actor": "who", "executor": "who",
    "timeout": "budget: {wall: ...}, at the node", "question": "gate, at the node",
}  # fmt: skip

_CALL: Final = re.compile(
    r"(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*|[^:\0]+\.py):[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z"
)


def read_python(reader: FieldReader, tree: Tree) -> PythonCall | None:
    """``python``: a function, or a mapping of it and its arguments; None after a problem."""
    if isinstance(tree, Scalar):
        call = _call(reader, tree, "python")
        return PythonCall(call) if call else None
    fields = reader.section(tree, "python", PYTHON_KEYS, _PYTHON_HINTS)
    args = json_mapping(reader, fields["args"][1], "python.args") if "args" in fields else {}
    if _missing(reader, tree, fields, "call", "add call: MODULE:FUNCTION"):
        return None
    call = _call(reader, fields["call"][1], "python.call")
    return PythonCall(call, args) if call else None


def _call(reader: FieldReader, tree: Tree, name: str) -> str:
    call = reader.text(tree, name)
    if call and not _CALL.match(call):
        fix = "write MODULE:FUNCTION, or PATH.py:FUNCTION with the path beside the task file"
        reader.bad(tree.place, f"{name} {shown(call)} names no function", fix)
        return ""
    return call


def read_agent(reader: FieldReader, tree: Tree, name: str = "agent") -> AgentCall | None:
    """``agent``: its name, or a mapping of how it is started; None after a problem."""
    if isinstance(tree, Scalar):
        return _named_agent(reader, tree, name)
    noted = len(reader.problems)
    fields = reader.section(tree, name, AGENT_KEYS, _AGENT_HINTS)
    agent = "command" if "command" in fields and "agent" not in fields else ""
    if "agent" in fields:
        agent = reader.word(fields["agent"][1], f"{name}.agent", AGENT_NAMES) or ""
    elif not agent and len(reader.problems) == noted:
        fix = f"add agent: one of {', '.join(AGENT_NAMES)}"
        reader.bad(tree.place, f"{name} does not say which agent", fix)
    command = _words(reader, fields, "command", name)
    if agent == "command" and "command" not in fields:
        fix = 'add command: [PROGRAM, ..., "{message}"]'
        reader.bad(tree.place, f"{name}: the agent command has no command", fix)
    if "command" in fields and not command and len(reader.problems) == noted:
        reader.bad(fields["command"][1].place, f"{name}.command must start with a program")
    for unknown in unknown_placeholders(command):
        fix = f"{reader.near_fix(unknown, AGENT_PLACEHOLDERS)} it knows {PLACEHOLDERS_TEXT}".strip()
        what = f"{name}.command has no {{{unknown}}} to fill in"
        reader.bad(fields["command"][1].place, what, fix)
    if agent not in ("", "command") and "command" in fields:
        what = f"{name}: {agent} is started in its own way and takes no command"
        reader.bad(fields["command"][0], what, "write agent: command, or more words as args")
    if agent == "command" and "args" in fields:
        what = f"{name}: the agent command takes no args"
        reader.bad(fields["args"][0], what, "write the words into command")
    model = reader.text(fields["model"][1], f"{name}.model") if "model" in fields else ""
    if model.startswith("-"):
        reader.bad(fields["model"][1].place, f"{name}.model {shown(model)} begins like an option")
    if len(reader.problems) > noted:
        return None
    return AgentCall(cast(AgentName, agent), command, model, _words(reader, fields, "args", name))


def _named_agent(reader: FieldReader, tree: Scalar, name: str) -> AgentCall | None:
    if tree.text == "command":
        fix = 'write {agent: command, command: [PROGRAM, ..., "{message}"]}'
        reader.bad(tree.place, f"{name}: the agent command has no command", fix)
        return None
    agent = reader.word(tree, name, AGENT_NAMES)
    return AgentCall(cast(AgentName, agent)) if agent else None


def read_sop(reader: FieldReader, tree: Tree) -> SopCall | None:
    """``sop``: a card, or a mapping of it, its version and its inputs; None after a problem."""
    if isinstance(tree, Scalar):
        sop = reader.text(tree, "sop")
        return SopCall(sop) if sop else None
    fields = reader.section(tree, "sop", SOP_KEYS, _SOP_HINTS)
    version = reader.text(fields["version"][1], "sop.version") if "version" in fields else ""
    given = fields["inputs"][1] if "inputs" in fields else None
    inputs = json_mapping(reader, given, "sop.inputs") if given is not None else {}
    if _missing(reader, tree, fields, "sop", "add sop: CARD"):
        return None
    sop = reader.text(fields["sop"][1], "sop.sop")
    return SopCall(sop, version, inputs) if sop else None


def read_human(reader: FieldReader, tree: Tree) -> HumanSlot | None:
    """``human``: ``true`` for whoever takes it, a name, or a mapping; None after a problem."""
    who = tree
    if isinstance(tree, Fields):
        fields = reader.section(tree, "human", HUMAN_KEYS, _HUMAN_HINTS)
        if "who" not in fields:
            return HumanSlot()
        who = fields["who"][1]
    elif isinstance(value := plain_value(tree), bool):
        if not value:
            reader.bad(tree.place, "human is false", "remove it, or name somebody")
        return HumanSlot() if value else None
    name = reader.text(who, "human")
    if name and (name != name.strip() or any(char.isspace() for char in name)):
        fix = "write the name as it stands in --actor executor:NAME"
        reader.bad(who.place, f"human: {shown(name)} holds a blank", fix)
        return None
    return HumanSlot(name) if name else None


def read_grants(reader: FieldReader, tree: Tree) -> tuple[str, ...]:
    """``grants``: what a contract allows beyond the node's own scope; faulty ones are left out."""
    found: dict[str, None] = {}
    for place, text in reader.texts(tree, "grants"):
        if problem := grant_problem(text):
            fix = "write write:PATH, write:DIR/*, network:read, network:write or spend:max_usd=N"
            reader.bad(place, f"{shown(text)} is no grant: {problem}", fix)
        else:
            found[text] = None
    if len(found) > grants_max:
        what = f"grants has {len(found)} entries; {grants_max} is the most"
        reader.bad(tree.place, what, "grant a directory with write:DIR/*")
    return tuple(found)


def _missing(
    reader: FieldReader, tree: Tree, fields: Mapping[str, tuple[Place, Tree]], key: str, fix: str
) -> bool:
    """Whether a mapping lacks what it is about; told, unless a wrong key is what lacks."""
    if key not in fields and isinstance(tree, Fields) and len(tree.fields) == len(fields):
        reader.bad(tree.place, f"there is no {key}", fix)
    return key not in fields


def _words(
    reader: FieldReader, fields: Mapping[str, tuple[Place, Tree]], key: str, name: str
) -> tuple[str, ...]:
    """A list of words, of which any but the first may be empty."""
    if key not in fields:
        return ()
    tree = fields[key][1]
    if not isinstance(tree, Items):
        reader.bad(tree.place, f"{name}.{key} must be a list of words", "write [WORD, ...]")
        return ()
    words = []
    for number, item in enumerate(tree.items):
        empty = isinstance(item, Scalar) and not item.plain and not item.text
        first = key == "command" and number == 0
        words.append("" if empty and not first else reader.text(item, f"each word of {name}.{key}"))
    return tuple(words)


def json_mapping(reader: FieldReader, tree: Tree, name: str) -> dict[str, Any]:
    """A mapping of JSON values, as the journal keeps it."""
    if not isinstance(tree, Fields):
        reader.bad(tree.place, f"{name} must be a mapping of names to values")
        return {}
    if place := _endless(tree):
        reader.bad(place, f"{name} holds a number that is too large", "write it in quotes")
        return {}
    return cast(dict[str, Any], plain_value(tree))


def _endless(tree: Tree) -> Place | None:
    """Where a number stands that JSON does not have."""
    if isinstance(tree, Scalar):
        value = plain_value(tree)
        return tree.place if isinstance(value, float) and not math.isfinite(value) else None
    values = tree.items if isinstance(tree, Items) else [value for _, value in tree.fields.values()]
    return next((place for value in values if (place := _endless(value))), None)
