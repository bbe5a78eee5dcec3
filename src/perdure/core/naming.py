"""What callers write, judged as text: ids, free text, and paths in a workspace (PL-4).

Job: the one reading of both, for the library, the command line, task files and checks alike.
Invariants: what passes is safe to make a path of, whatever the file system; a path is made
canonical, and that of a canonical path is the path itself. Never looks at a disk: where symbolic
links lead is ``storage.workspace``'s to say.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from perdure.core.model import ID_PATTERN, text_bytes_max
from perdure.core.observed import fact_chars_max, facts_kept_max
from perdure.errors import UsageError

path_chars_max: Final = 4_096

_DRIVE: Final = re.compile(r"[A-Za-z]:")


def check_text(text: str, what: str) -> None:
    """Raise UsageError when a text is empty or longer than an event may hold."""
    if not text.strip():
        fix = "Say why: --reason WHY." if what == "reason" else "Say something."
        raise UsageError(f"the {what} is empty.", code="empty_text", fix=fix)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > text_bytes_max:
        raise UsageError(
            f"the {what} has {size} bytes; the limit is {text_bytes_max}.",
            code="too_large",
            fix="Write it to a file and register that as an artifact.",
        )


def check_facts(facts: Mapping[Any, Any]) -> None:
    """Raise UsageError for facts that are not names with values, or that are too many or long."""
    for name, value in facts.items():
        texts = isinstance(name, str) and isinstance(value, str)
        if not texts or not name.strip() or max(len(name), len(value)) > fact_chars_max:
            raise UsageError(
                f"{str(name)[:80]!r} is not a fact: a name and a value of at most {fact_chars_max}"
                " characters.",
                code="bad_fact",
                rule="OB-1",
                fix="Write it as NAME=VALUE; what is longer belongs into a file.",
            )
    if len(facts) > facts_kept_max:
        raise UsageError(
            f"one observation has at most {facts_kept_max} facts, this has {len(facts)}.",
            code="too_large",
            fix="Write them to a file and register that as an artifact.",
        )


def check_id(text: str, what: str, reserved: Collection[str] = ()) -> None:
    """Raise UsageError unless this can be ``what``, which says its article, as in ``a node id``."""
    if ID_PATTERN.match(text) and text not in reserved:
        return
    taken = f"; not {' or '.join(sorted(reserved))}" if reserved else ""
    raise UsageError(
        f"{text!r} cannot be {what}.",
        code="bad_id",
        rule="PL-4",
        fix="Use up to 64 letters, digits, dots, dashes or underscores, starting with a letter or"
        f" a digit{taken}.",
    )


def path_problem(path: str) -> str:
    """Why this cannot be a path in a workspace, as the end of a sentence; empty when it can.

    Any ``..`` is refused, also one that would stay inside: behind a symbolic link it may not.
    """
    parts = canonical_path(path).split("/")
    if path.startswith("/") or _DRIVE.match(path):
        return "is absolute"
    if parts == [""]:
        return "names no file"
    if ".." in parts:
        return "climbs out with '..'"
    if "\\" in path or "\0" in path:
        return "holds a backslash" if "\\" in path else "holds a NUL character"
    if len(path) > path_chars_max:
        return f"is longer than {path_chars_max} characters"
    return "is not valid UTF-8" if any("\ud800" <= char <= "\udfff" for char in path) else ""


def canonical_path(path: str) -> str:
    """The path without ``.`` and empty parts."""
    return "/".join(part for part in path.split("/") if part not in ("", "."))
