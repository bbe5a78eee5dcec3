"""Whether registered artifacts are what was registered, from the disk.

Invariants: changes nothing; a verdict says what it rests on (``weak`` where there is no hash);
whatever the disk may do becomes a FAIL that says so.
"""

import posixpath
from collections.abc import Mapping
from typing import Final, NamedTuple

from perdure.core.late import LateModule
from perdure.core.model import Artifact
from perdure.core.on_disk import Files
from perdure.errors import EvidenceError, PathError, StorageError
from perdure.runtime.probe import hash_file
from perdure.runtime.reader import Reader
from perdure.storage.workspace import resolve_inside

_git: Final = LateModule("perdure.runtime.git")


class Finding(NamedTuple):
    """How one registered artifact stands on the disk."""

    files: Files
    text: str
    """``PASS``, ``PASS (weak: ...)`` or ``FAIL: FILES: why``."""

    @property
    def holds(self) -> bool:
        """Whether it is what was registered."""
        return self.files == "whole"


def _failed(files: Files, why: str) -> Finding:
    return Finding(files, f"FAIL: {files}: {why}")


def judge_artifact(reader: Reader, artifact: Artifact, *, quick: bool = False) -> Finding:
    """What the disk says of one registered artifact.

    ``quick`` skips the hash of a file whose size and modification time are as they were hashed.
    Raises nothing for what the disk may do: an unreadable file is a FAIL that says so.
    """
    if artifact.integrity.algo == "git":
        return _judge_commit(reader, artifact)
    try:
        full = resolve_inside(reader.disk, reader.layout.root, artifact.path)
        stat = reader.disk.stat(full)
        if stat is not None and stat.kind == "link":
            full = reader.disk.real_path(full)
            stat = reader.disk.stat(full)
        if stat is None:
            return _failed("missing", artifact.path)
        known = artifact.integrity
        if stat.size_bytes != known.size_bytes and known.size_bytes >= 0:
            size = f"{stat.size_bytes} bytes, not {known.size_bytes}"
            return _failed("changed", f"{artifact.path} has {size}")
        if quick and known.mtime_ns is not None and stat.mtime_ns == known.mtime_ns:
            return Finding("whole", "PASS")
        if known.algo != "sha256":
            return Finding("whole", "PASS (weak: size only)")
        value, _ = hash_file(reader.disk, full)
    except (PathError, StorageError) as error:
        return _failed("unreadable", f"{artifact.path}: {error.message}")
    if value != known.value:
        found = f"sha256 {value[:16]}..., not {known.value[:16]}..."
        return _failed("changed", f"{artifact.path} has {found}")
    return Finding("whole", "PASS")


def integrity_walk(reader: Reader, *, quick: bool = False) -> dict[str, str]:
    """``PASS...`` or ``FAIL...`` for every artifact that is current or superseded."""
    return {
        name: judge_artifact(reader, artifact, quick=quick).text
        for name, artifact in reader.replica.state.artifacts.items()
        if artifact.status != "quarantined"
    }


def failures(walk: Mapping[str, str]) -> dict[str, str]:
    """Those of an :func:`integrity_walk` that are not what was registered."""
    return {name: text for name, text in walk.items() if not text.startswith("PASS")}


def _judge_commit(reader: Reader, artifact: Artifact) -> Finding:
    repo = posixpath.join(reader.layout.root, artifact.repo or ".")
    try:
        found = _git.find_commit(repo, artifact.integrity.value)
    except EvidenceError as error:
        return _failed("unreadable", error.message)
    return Finding("whole", "PASS") if found else _failed("missing", f"{artifact.path} in {repo}")
