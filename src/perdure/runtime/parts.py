"""The parts of a node that is split: what is said of each, and what each has from the whole.

Invariants: a part is held to no less than the whole (its level of verification, its gates, its
class of effect), unless it says so itself; outputs, checks and commands are a part's own.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.core.commands import AddNode
from perdure.core.lookup import near
from perdure.core.model import Node, Spec
from perdure.errors import UsageError
from perdure.runtime.specs import make_spec

_OF_THE_NODE: Final = (
    "deps", "priority", "verification_level", "resume_policy", "effect",
)  # fmt: skip
_INHERITED: Final = ("goal", "inputs", "constraints", "budget", "env", "retry_budget", "gates")


def parts_of(
    node: Node, parts: Mapping[str, str | Mapping[str, Any]], *, chain: bool
) -> tuple[AddNode, ...]:
    """The parts as commands; raises UsageError for a field that no node has."""
    made: list[AddNode] = []
    for part_id, given in parts.items():
        fields = {"title": given} if isinstance(given, str) else dict(given)
        own = {name: fields.pop(name) for name in _OF_THE_NODE if name in fields}
        title = str(fields.pop("title", part_id))
        deps = own.pop("deps", ())
        deps = (deps,) if isinstance(deps, str) else tuple(map(str, deps))
        if chain and made:
            deps = (made[-1].node_id, *deps)
        command = AddNode(
            part_id,
            title,
            deps,
            make_spec(part_id, _inherited(node), fields),
            node.priority,
            node.verification_level,
            node.resume_policy,
            node.effect,
        )
        made.append(msgspec.structs.replace(command, **own))
    return tuple(made)


def _inherited(node: Node) -> Spec:
    return Spec(**{name: getattr(node.spec, name) for name in _INHERITED})


def parts_as_typed(given: Any) -> dict[str, str | Mapping[str, Any]]:
    """The parts of a call, which are ``{"node": ID, "title": TITLE, ...}`` each."""
    parts: dict[str, str | Mapping[str, Any]] = {}
    for entry in given if isinstance(given, list | tuple) else ():
        fields = dict(entry)
        part_id = str(fields.pop("node"))
        if part_id in parts:
            raise UsageError(
                f"{part_id} is named twice.", code="bad_split", fix="Give each part its own id."
            )
        unknown = [name for name in fields if name not in _KNOWN]
        if unknown:
            raise UsageError(
                f"a part has no field {unknown[0]!r}.",
                code="unknown_field",
                fix=f"Use some of {', '.join(_KNOWN)}.",
                suggestions=near(unknown[0], _KNOWN),
            )
        parts[part_id] = fields
    return parts


_KNOWN: Final = ("title", *_OF_THE_NODE, *Spec.__struct_fields__, "accept")
