"""Names that callers choose, judged as text: ids, and paths in a workspace (PL-4).

Job: the one reading of both, for the library, the command line, task files and checks alike.
Invariants: what passes is safe to make a path of, whatever the file system; a path is made
canonical, and that of a canonical path is the path itself. Never looks at a disk: where symbolic
links lead is ``storage.workspace``'s to say.
"""

import re
from collections.abc import Collection
from typing import Final

from perdure.core.model import ID_PATTERN
from perdure.errors import UsageError

path_chars_max: Final = 4_096

_DRIVE: Final = re.compile(r"[A-Za-z]:")


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
