"""Which files a pattern names, as items.

Job: expand a glob through the Disk port, from any directory. Invariants: the answer is sorted,
names each file once, and depends on names and kinds only; the walk is bounded, and never goes in
circles, because ``**`` enters no link. Never: reads the content of a file, or leaves out a
directory silently because it cannot be read.
"""

import fnmatch
import os
import re
from typing import Final

from perdure.errors import UsageError
from perdure.ports import Disk

glob_entries_max: Final = 20_000_000
"""Names looked at for one pattern."""

_WILD: Final = re.compile(r"[*?\[]")


def matching_paths(disk: Disk, directory: str, pattern: str, *, skip: str = "") -> list[str]:
    """The regular files a pattern names, sorted, as paths that begin as the pattern does.

    ``*``, ``?`` and ``[...]`` stay inside one name and do not match a leading dot; ``**`` is any
    depth of directories. A link to a file is a file; a link to a directory is entered where a part
    of the pattern names it, never by ``**``. What lies in ``skip``, an absolute path, is left out.
    UsageError when the pattern names nothing or looks at more than ``glob_entries_max`` names;
    StorageError when a directory cannot be read.
    """
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if not parts or "\0" in pattern:
        raise UsageError(
            f"the pattern {pattern!r} names no files.",
            rule="JB-4",
            fix="Write one such as 'texts/**/*.md', in quotes.",
        )
    start = "/" if pattern.startswith("/") else ""
    walk = _Walk(disk, directory, pattern, disk.real_path(skip) if skip else "")
    waiting = [(start, 0)]
    seen = set(waiting)
    while waiting:
        folder, at = waiting.pop()
        for entry in walk.step(folder, parts, at):
            if entry not in seen:
                seen.add(entry)
                waiting.append(entry)
    return sorted(walk.files)


class _Walk:
    """One expansion under way."""

    def __init__(self, disk: Disk, directory: str, pattern: str, skip: str) -> None:
        self.files: set[str] = set()
        self._disk = disk
        self._directory = directory
        self._pattern = pattern
        self._skip = skip
        self._looked_at = 0

    def step(self, folder: str, parts: list[str], at: int) -> list[tuple[str, int]]:
        """Match one part in one folder: collects files, returns where to go on."""
        part, last = parts[at], at + 1 == len(parts)
        found = self._entries(folder, "*" if part == "**" else part)
        if last:
            self.files.update(path for path, kind in found if kind in ("file", "file link"))
        if part == "**":
            deeper = [(path, at) for path, kind in found if kind == "dir"]
            # It stands for no directory as well.
            return deeper if last else [*deeper, (folder, at + 1)]
        if last:
            return []
        return [(path, at + 1) for path, kind in found if kind in ("dir", "dir link")]

    def _entries(self, folder: str, part: str) -> list[tuple[str, str]]:
        """The names in a folder that a part matches, as paths, each with its kind."""
        if _WILD.search(part):
            names = self._disk.list_dir(os.path.join(self._directory, folder))
            self._count(len(names))
            matches = re.compile(fnmatch.translate(part)).match
            names = [n for n in names if matches(n) and (n[0] != "." or part[0] == ".")]
        else:
            names = [part]
            self._count(1)
        found = []
        for name in names:
            path = f"{folder.rstrip('/')}/{name}" if folder else name
            if (kind := self._kind(path)) is not None:
                found.append((path, kind))
        return found

    def _kind(self, path: str) -> str | None:
        full = os.path.join(self._directory, path)
        seen = self._disk.stat(full)
        if seen is None or (seen.kind == "dir" and self._is_skipped(full)):
            return None
        if seen.kind != "link":
            return seen.kind
        target = self._disk.stat(self._disk.real_path(full))
        return f"{target.kind} link" if target is not None else None

    def _is_skipped(self, full: str) -> bool:
        # Most names differ, which is cheap to see.
        same_name = os.path.basename(full) == os.path.basename(self._skip)
        return same_name and self._disk.real_path(full) == self._skip

    def _count(self, names: int) -> None:
        self._looked_at += names
        if self._looked_at > glob_entries_max:
            raise UsageError(
                f"the pattern {self._pattern!r} looks at more than {glob_entries_max:,} names.",
                rule="JB-4",
                fix="Begin it with the directory that holds the files.",
            )
