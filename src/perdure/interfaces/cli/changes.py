"""Fields of a spec as they are typed: ``FIELD=VALUE`` and repeated options.

Job: turn them into what ``add_node`` takes. Invariants: what is text in a spec stays the
text that was typed; a field that holds several values gathers them in order; what is neither is
read as JSON. Whether a field exists, and may hold that value, is for the call itself to say.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from perdure.errors import UsageError

_TEXTS: Final = frozenset({"goal", "run", "title"})
_LISTS: Final = frozenset(
    {"accept", "acceptance", "acceptance_criteria", "constraints", "inputs", "outputs"}
)


def changes_of(given: Iterable[str]) -> dict[str, Any]:
    """The fields that these ``FIELD=VALUE`` set. Raises UsageError for what is no such text."""
    changes: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not sign or not name:
            raise UsageError(
                f"{text!r} sets nothing.",
                code="bad_setting",
                fix="Write FIELD=VALUE, for example goal='One page, no more'.",
            )
        if name in _LISTS:
            changes.setdefault(name, []).append(value)
        elif name in changes:
            raise UsageError(
                f"{name} is set twice.",
                code="bad_setting",
                fix="Set it once; only lists gather several values.",
            )
        else:
            changes[name] = value if name in _TEXTS else _decoded(value)
    if changes.get("outputs") == ["none"]:
        changes["outputs"] = "none"
    return changes


def list_or_none(option: str, given: tuple[str, ...]) -> list[str]:
    """The values of a repeated option, of which ``none`` says that there are none."""
    if "none" not in given:
        return list(given)
    if len(given) > 1:
        raise UsageError(
            f"{option} none stands alone.", fix=f"Leave out {option} none, or the others."
        )
    return []


def _decoded(value: str) -> Any:
    """The JSON value; text that is none is itself."""
    try:
        return json.loads(value)
    except ValueError:
        return value
