"""What a task file said of a node, remembered field by field.

Job: digests of the fields of an entry, as ``Node.plan`` keeps them, and which fields differ from
them now. Invariants: equal entries have equal digests, in every version of the format (whatever
has its default is left out, so a new field changes nothing); an entry that nobody remembers counts
as changed in everything. It holds no values: what people changed is compared, never restored.
"""

from functools import cache
from typing import Any, Final

import msgspec

from perdure.control.taskfile_nodes import NodePlan
from perdure.core.model import Node, Spec, text_digest

digest_chars: Final = 8
_PLAN_FIELDS: Final = tuple(
    name
    for name in NodePlan.__struct_fields__
    # The id is the entry's name, and a successor is one from the moment it is added.
    if name not in ("node_id", "spec", "successor_of", "level_by_tier")
)
_ALL: Final = frozenset({*_PLAN_FIELDS, *Spec.__struct_fields__})


def entry_digests(plan: NodePlan) -> str:
    """The entry as ``FIELD:DIGEST`` words, by name; what has its default is not among them."""
    entry = _plain(plan)
    values = {**{name: entry[name] for name in _PLAN_FIELDS if name in entry}, **_plain(plan.spec)}
    return " ".join(f"{name}:{_digest(values[name])}" for name in sorted(values))


def changed_fields(plan: NodePlan, node: Node) -> frozenset[str]:
    """The fields that the file has changed since the node was last brought in line with it."""
    if not node.plan:
        return _ALL
    held, asked = _parse(node.plan), _parse(entry_digests(plan))
    return frozenset(name for name in held | asked if held.get(name) != asked.get(name))


def _parse(digests: str) -> dict[str, str]:
    return {name: value for name, _, value in (word.partition(":") for word in digests.split())}


def _plain(value: Any) -> Any:
    """JSON values, and of each record what differs from its default: equal, not identical."""
    if isinstance(value, msgspec.Struct):
        held = {name: getattr(value, name) for name in value.__struct_fields__}
        defaults = _defaults(type(value))
        return {
            name: _plain(one)
            for name, one in held.items()
            if name not in defaults or one != defaults[name]
        }
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value


@cache
def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of a record that need not be given, and what they are then."""
    return {
        field.name: field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        for field in msgspec.structs.fields(kind)
        if not field.required
    }


def _digest(value: object) -> str:
    return text_digest(msgspec.json.encode(value, order="sorted").decode())[:digest_chars]
