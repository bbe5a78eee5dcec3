"""The package of a question in words: what a person reads of it, as lines of plain text.

Job: one wording of context, attempts, disk facts and changes for the terminal and for the page.
Invariants: a package is data that anybody may have written, so whatever is in it has some wording;
bounded in lines and in characters, whatever its size; texts are cut, never interpreted.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from perdure.core.views import cut

items_max: Final = 12
"""Lines of one part, and entries of one list."""
item_chars_max: Final = 300
depth_max: Final = 3

TEXTS: Final = ("context", "consequences", "rubric", "scope", "disk", "last_ruling")
"""Parts that are texts as somebody wrote them."""


def package_words(package: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Each part of a package that a person should see, by its name, in the order of reading."""
    for name in TEXTS:
        value = package.get(name)
        if value:
            yield name, [value if isinstance(value, str) else flat(value)]
    lists = {
        "rounds": _rounds(package),
        "signatures": _attempts(package.get("signatures")),
        "disk_facts": _disk_facts(package.get("disk_facts")),
        "changes": _changes(package.get("changes")),
        "links": _entries(package.get("links")),
        "options": _options(package.get("options")),
    }
    for name, lines in lists.items():
        if lines:
            yield name, lines


_SILENCE: Final[Mapping[str, str]] = {
    "remain-blocked": "it stays as it is",
    "reject": "it is rejected",
}


def silence_words(default: str) -> str:
    """What an unanswered question comes to."""
    return _SILENCE.get(default, default)


def _rounds(package: Mapping[str, Any]) -> list[str]:
    rounds, cap = package.get("rounds"), package.get("revise_max")
    if not rounds:
        return []
    often = "once" if rounds == 1 else f"{flat(rounds)} times"
    return [f"sent back {often}" + (f" of at most {flat(cap)}" if cap else "")]


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    entries = value if isinstance(value, list | tuple) else []
    return [entry for entry in entries[: items_max + 1] if isinstance(entry, Mapping)]


def _attempts(value: Any) -> list[str]:
    """``attempt 2 by default: exit 3 (transient-agent, J-9)``, the newest last."""
    entries = value[-items_max:] if isinstance(value, list | tuple) else value
    return [
        f"attempt {flat(item.get('attempt'))} by {flat(item.get('method'))}:"
        f" {flat(item.get('signature'))}"
        f" ({flat(item.get('failure_class') or 'no class')}, {flat(item.get('event'))})"
        for item in _mappings(entries)
    ]


def _options(value: Any) -> list[str]:
    return [f"{flat(item.get('id'))}: {flat(item.get('desc'))}" for item in _mappings(value)]


_LISTS: Final[Mapping[str, str]] = {
    "named": "{path}, {size_bytes} bytes",
    "verified": "verified {path}, sha256 {sha256:.16}",
    "shown": "shown {path}, sha256 {sha256:.16}",
    "moved": "{path} is now {to}",
    "failed_checks": "check {check} failed: {detail}",
}
_SINGLE: Final[Mapping[str, str]] = {
    "problem": "not all of it could be read: {}",
    "last_heartbeat_s": "last sign of life {} s before the end",
    "worked_s": "under way for {} s",
}


class _Shown(dict[str, str]):
    """The fields of an entry in words; one that it lacks is nothing."""

    def __missing__(self, name: str) -> str:
        return ""


def _disk_facts(value: Any) -> list[str]:
    """What lay there when the attempt ended, and where it is now."""
    if not isinstance(value, Mapping):
        return []
    lines = []
    if "files" in value:
        records = f", {flat(value['records'])} of its own records" if value.get("records") else ""
        files = "1 file" if value["files"] == 1 else f"{flat(value['files'])} files"
        lines.append(f"{files} of work{records}")
    lines += [f"missing {path}" for path in _entries(value.get("missing"))]
    for name, text in _LISTS.items():
        for item in _mappings(value.get(name)):
            shown = _Shown({str(key): flat(entry) for key, entry in item.items()})
            lines.append(text.format_map(shown))
    for name, text in _SINGLE.items():
        if value.get(name) is not None:
            lines.append(text.format(flat(value[name])))
    return lines


def _changes(value: Any) -> list[str]:
    """What differs from what was last approved, or what a person wanted changed."""
    return [f"{name}: {flat(entry)}" for name, entry in _items(value)]


def _items(value: Any) -> list[tuple[str, Any]]:
    found = value.items() if isinstance(value, Mapping) else ()
    return list(islice(((flat(name), entry) for name, entry in found), items_max))


def _entries(value: Any) -> list[str]:
    if isinstance(value, list | tuple):
        shown = [flat(entry) for entry in value[:items_max]]
        more = len(value) - items_max
        return [*shown, *([f"and {more} more"] if more > 0 else [])]
    return [flat(value)] if value else []


def flat(value: Any, depth: int = depth_max) -> str:
    """Any value as words on one line, cut to a length."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping | list | tuple) and not depth:
        return "..."
    if isinstance(value, Mapping):
        found = islice(value.items(), items_max)
        return cut(
            ", ".join(f"{cut(str(k), 64)} {flat(v, depth - 1)}" for k, v in found), item_chars_max
        )
    if isinstance(value, list | tuple):
        return cut(", ".join(flat(entry, depth - 1) for entry in value[:items_max]), item_chars_max)
    return cut(str(value)[: item_chars_max + 1], item_chars_max)
