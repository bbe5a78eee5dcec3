"""Reading what an event carries, whoever wrote it.

Job: typed values out of a payload. Invariants: nothing here raises; what cannot be read as it
should be counts as absent, so that a fold never refuses what is committed; two readings of the
same payload give the same.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def text(value: object, default: str = "") -> str:
    """A text, or a number as text."""
    if isinstance(value, str):
        return value or default
    return str(value) if isinstance(value, int | float) else default


def text_or_none(value: object) -> str | None:
    """A text that says something, or None."""
    return text(value) or None


def texts(value: object) -> tuple[str, ...]:
    """A list of texts; a text alone is a list of one."""
    if isinstance(value, str):
        return (value,)
    return tuple(map(text, value)) if isinstance(value, list | tuple) else ()


def number(value: object) -> float | None:
    """A number, or None."""
    return float(value) if isinstance(value, int | float) else None


def mapping(value: object) -> dict[str, Any]:
    """A mapping, empty when it is none."""
    return dict(value) if isinstance(value, Mapping) else {}


def record(raw: object, kind: type[T]) -> T | None:
    """A typed record, or None when others wrote it in a way that we cannot read."""
    if not isinstance(raw, Mapping):
        return None
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        return None
