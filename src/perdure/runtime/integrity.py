"""Whether registered artifacts are what was registered, from the disk.

Invariants: changes nothing; a verdict says what it rests on (``weak`` where there is no hash);
whatever the disk may do becomes a FAIL that says so.
"""

import posixpath
from hashlib import sha256
from typing import Final

from perdure.core.late import LateModule
from perdure.core.model import Artifact
from perdure.errors import EvidenceError, PathError, StorageError
from perdure.runtime.engine import Engine
from perdure.storage.workspace import resolve_inside

_git: Final = LateModule("perdure.runtime.git")


def hash_of(engine: Engine, path: str) -> tuple[str, int]:
    """sha256 and size of a file, read piece by piece."""
    digest, size_bytes = sha256(), 0
    for chunk in engine.disk.read_chunks(path):
        digest.update(chunk)
        size_bytes += len(chunk)
    return digest.hexdigest(), size_bytes


def judge_artifact(engine: Engine, artifact: Artifact, *, quick: bool = False) -> str:
    """``PASS`` or ``FAIL: why`` for one registered artifact, from the disk.

    ``quick`` skips the hash of a file whose size and modification time are as they were hashed.
    Raises nothing for what the disk may do: an unreadable file is a FAIL that says so.
    """
    if artifact.integrity.algo == "git":
        return _judge_commit(engine, artifact)
    try:
        full = resolve_inside(engine.disk, engine.layout.root, artifact.path)
        stat = engine.disk.stat(full)
        if stat is not None and stat.kind == "link":
            full = engine.disk.real_path(full)
            stat = engine.disk.stat(full)
        if stat is None:
            return f"FAIL: missing: {artifact.path}"
        known = artifact.integrity
        if stat.size_bytes != known.size_bytes and known.size_bytes >= 0:
            return (
                f"FAIL: changed: {artifact.path} has {stat.size_bytes} bytes, not"
                f" {known.size_bytes}"
            )
        if quick and known.mtime_ns is not None and stat.mtime_ns == known.mtime_ns:
            return "PASS"
        if known.algo != "sha256":
            return "PASS (weak: size only)"
        value, _ = hash_of(engine, full)
    except (PathError, StorageError) as error:
        return f"FAIL: unreadable: {artifact.path}: {error.message}"
    if value != known.value:
        return (
            f"FAIL: changed: {artifact.path} has sha256 {value[:16]}..., not {known.value[:16]}..."
        )
    return "PASS"


def integrity_walk(engine: Engine, *, quick: bool = False) -> dict[str, str]:
    """``PASS...`` or ``FAIL...`` for every artifact that is current or superseded."""
    return {
        name: judge_artifact(engine, artifact, quick=quick)
        for name, artifact in engine.replica.state.artifacts.items()
        if artifact.status != "quarantined"
    }


def _judge_commit(engine: Engine, artifact: Artifact) -> str:
    repo = posixpath.join(engine.layout.root, artifact.repo or ".")
    try:
        found = _git.find_commit(repo, artifact.integrity.value)
    except EvidenceError as error:
        return f"FAIL: unreadable: {error.message}"
    return "PASS" if found else f"FAIL: missing: {artifact.path} in {repo}"
