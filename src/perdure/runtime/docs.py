"""Documents of a task, as they are on disk (PL-2).

Job: look at a document that is to be noted, and find those that are not what was noted any more.
Invariants: only looked at, never changed; a time that changed alone makes nothing stale, the bytes
do; a path inside the workspace is relative to it, one outside relative to the workspace where both
lie below one directory of the user's, so that they may move together.
"""

import os
from typing import Final

from perdure.core import closing_commands as k
from perdure.core.closing import Doc
from perdure.errors import EvidenceError, PathError, StorageError
from perdure.ports import Disk
from perdure.runtime.engine import Engine
from perdure.runtime.probe import hash_file
from perdure.runtime.reader import Reader
from perdure.storage.workspace import normal_path, reserved_reason, resolve_inside

ascents_max: Final = 6
"""How far up a relative path to an outside file may lead; farther away it is kept whole."""


def look(engine: Engine, path: str, purpose: str, directory: str) -> k.NoteDoc:
    """A document as it is now. ``path`` is relative to the workspace, or to ``directory`` when it
    lies elsewhere. Raises EvidenceError when no file is there, PathError for one that the runtime
    writes itself, StorageError."""
    full, external = _find(engine, path, directory)
    disk = engine.disk
    stat = disk.stat(full)
    if stat is not None and stat.kind == "link":
        stat = disk.stat(disk.real_path(full))
    if stat is None or stat.kind != "file":
        what = "there is no file" if stat is None else f"a {stat.kind} is"
        raise EvidenceError(
            f"{what} at {full}.",
            code="doc_missing",
            rule="PL-2",
            fix="Write it first; its path is relative to the workspace, or to where you are.",
        )
    root = engine.layout.root
    name = _outside(root, full) if external else os.path.relpath(full, root)
    if not external:
        _check_name(name)
    digest, size = hash_file(disk, full)
    return k.NoteDoc(name, purpose, external, size, stat.mtime_ns, digest)


def _check_name(name: str) -> None:
    """Refuse what the runtime writes itself, which another commit makes stale at once."""
    why = reserved_reason(name)
    if why is not None and name.partition("/")[0] not in _NOT_REWRITTEN:
        raise PathError(
            f"{name} is no document: {why}",
            code="path_reserved",
            rule="PL-2",
            fix="Note your own files: those in artifacts/, in tmp/, or outside of the workspace.",
        )


_NOT_REWRITTEN: Final = frozenset({"contracts", "sops", "tmp"})
"""Of the runtime's own directories those in which it leaves the files of others alone, and its own
once they are written."""


def _find(engine: Engine, path: str, directory: str) -> tuple[str, bool]:
    """Where a document is, and whether that is outside the workspace."""
    root = engine.layout.root
    if not os.path.isabs(path):
        try:
            inside = resolve_inside(engine.disk, root, normal_path(path))
        except PathError:
            inside = ""
        if inside and engine.disk.stat(inside) is not None:
            return inside, False
    full = os.path.normpath(os.path.join(directory, path))
    return full, not full.startswith(f"{root}/")


def _outside(root: str, full: str) -> str:
    relative = os.path.relpath(full, root)
    return full if relative.split("/").count("..") > ascents_max else relative


def stale_docs(reader: Reader) -> dict[str, str]:
    """Documents that are not what was noted, and what was seen; costs a look at each file."""
    found = {}
    for path, doc in reader.replica.state.docs.items():
        why = _changed(reader.disk, os.path.join(reader.layout.root, path), doc)
        if why:
            found[path] = why
    return found


def _changed(disk: Disk, full: str, doc: Doc) -> str:
    try:
        stat = disk.stat(full)
        if stat is not None and stat.kind == "link":
            full = disk.real_path(full)
            stat = disk.stat(full)
        if stat is None or stat.kind != "file":
            return "is gone"
        if stat.size_bytes != doc.size_bytes:
            return f"has {stat.size_bytes} bytes, not {doc.size_bytes}"
        if stat.mtime_ns == doc.mtime_ns:
            return ""
        return "" if hash_file(disk, full)[0] == doc.sha256 else "has other content"
    except StorageError as error:
        return f"cannot be read ({error.message})"


def note_stale(engine: Engine) -> None:
    """Put on record what is newly stale; a workspace whose documents hold appends nothing."""
    docs = engine.replica.state.docs
    fresh = {path: why for path, why in stale_docs(engine).items() if not docs[path].stale}
    if fresh:
        engine.execute(k.NoteStale(fresh))
