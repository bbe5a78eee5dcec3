"""What an audit is about, read from the disk.

Job: the digests of a node's products and declared inputs, as they are now. Invariants: bytes are
hashed in the call that needs them; what cannot be read has words in the place of its digest, so
that it equals no content (and ``core.audits`` can tell). Never writes.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from perdure.core.audits import audited_commits, audited_paths
from perdure.core.model import Node
from perdure.errors import PathError, StorageError
from perdure.runtime.engine import Engine
from perdure.runtime.probe import hash_file
from perdure.runtime.scope import files_below
from perdure.storage.workspace import resolve_inside

directory_files_max: Final = 10_000
"""In a directory that is declared as an input; a larger one counts as not hashed."""


def audited_files(
    engine: Engine, node: Node, known: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Path to digest of what an audit of the node is about; empty where nothing is.

    ``known`` holds what this very call has read already.
    """
    read, state = known or {}, engine.replica.state
    paths = audited_paths(state, node)
    files = {path: read[path] if path in read else _digest(engine, path) for path in paths}
    return files | audited_commits(state, node)


def _digest(engine: Engine, path: str) -> str:
    try:
        full = engine.disk.real_path(resolve_inside(engine.disk, engine.layout.root, path))
        found = engine.disk.stat(full)
        if found is None:
            return ""
        if found.kind == "dir":
            return _digest_of_directory(engine, path)
        return hash_file(engine.disk, full)[0] if found.kind == "file" else f"a {found.kind}"
    except PathError:
        return "outside the workspace"
    except StorageError as error:
        return f"not readable: {error.code}"


def _digest_of_directory(engine: Engine, path: str) -> str:
    """One digest over the names and the digests of all files below; links count by name alone."""
    names = files_below(engine, path)
    if len(names) > directory_files_max:
        return f"a directory with more than {directory_files_max} files"
    whole = sha256()
    for name in names:
        full = f"{engine.layout.root}/{name}"
        found = engine.disk.stat(full)
        is_file = found is not None and found.kind == "file"
        digest = hash_file(engine.disk, full)[0] if is_file else ""
        whole.update(f"{digest} {name}\n".encode("utf-8", "surrogateescape"))
    return f"tree:{whole.hexdigest()}"
