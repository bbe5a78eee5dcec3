"""Which files of a workspace a glob names.

Job: expand a workspace-relative glob through the Disk port. Invariants: the answer is sorted and
depends on names only; the walk is bounded and never leaves the workspace, because it never enters
a link. Never reads the content of a file.
"""

import re
from typing import Final

from perdure.errors import CheckFailedError, PathError
from perdure.ports import Disk
from perdure.storage.workspace import reserved_reason

glob_entries_max: Final = 1_000_000


def matching_files(disk: Disk, root: str, glob: str) -> tuple[list[str], int]:
    """The regular files a glob names, sorted, and how many links it would have named.

    ``*`` and ``?`` stay inside one name and do not match a leading dot, ``**`` is any depth. Links
    are neither followed nor counted. A wildcard does not name what the runtime itself keeps in the
    workspace, whose number is no fact about the work. Raises :class:`CheckFailedError` when it
    would look at more than ``glob_entries_max`` names, and :class:`StorageError` when a folder
    cannot be read.
    """
    files: set[str] = set()
    links: set[str] = set()
    looked_at = 0
    seen: set[tuple[str, int]] = set()
    parts = glob.split("/")
    waiting = [("", 0)]
    while waiting:
        folder, at = waiting.pop()
        if (folder, at) in seen:
            continue
        seen.add((folder, at))
        part = parts[at]
        # A folder of ours that the glob spells out was meant.
        guarded = ("*" in part or "?" in part) and not (folder and _is_ours(f"{folder}/x"))
        if part == "**" and at + 1 < len(parts):
            waiting.append((folder, at + 1))
        names = disk.list_dir(f"{root}/{folder}" if folder else root)
        looked_at += len(names)
        if looked_at > glob_entries_max:
            raise CheckFailedError(f"{glob} looks at more than {glob_entries_max} names.")
        name_matches = _name_pattern(part).match
        for name in names:
            path = f"{folder}/{name}" if folder else name
            if not name_matches(name):
                continue
            found = disk.stat(f"{root}/{path}")
            last = at + 1 == len(parts)
            if found is None:
                continue
            # Of a directory it is asked whether a file in it would be ours.
            if guarded and _is_ours(f"{path}/x" if found.kind == "dir" else path):
                continue
            if found.kind == "dir" and (part == "**" or not last):
                waiting.append((path, at if part == "**" else at + 1))
            elif found.kind == "file" and last:
                files.add(path)
            elif found.kind == "link" and (last or part == "**"):
                links.add(path)
    return sorted(files), len(links)


def _name_pattern(part: str) -> re.Pattern[str]:
    if "*" not in part and "?" not in part:
        return re.compile(re.escape(part) + r"\Z")
    wild = {"*": ".*", "?": "."}
    body = "".join(wild.get(char) or re.escape(char) for char in re.sub(r"\*+", "*", part))
    return re.compile(("" if part.startswith(".") else r"(?!\.)") + body + r"\Z", re.DOTALL)


def _is_ours(path: str) -> bool:
    """Whether the place is one where no output may be, so that nothing there is work."""
    try:
        return reserved_reason(path) is not None
    except PathError:
        return False  # somebody's odd name, such as one with a backslash
