"""Evidence: what the runtime itself finds on disk for a node, and the verdict it gives.

Job: register files by reading them back, resolve the refs that callers cite, and verify a node
(V0, V1). Invariants: a registration follows the sync of the file's bytes and name (AR-1); a
verdict rests only on bytes read in that call; a claim adds nothing to it (AX-3).
"""

import posixpath
import re
import subprocess
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from perdure.core.codec import timestamp
from perdure.core.commands import RegisterArtifact, Verdict
from perdure.core.model import Artifact, Integrity, Node
from perdure.errors import EvidenceError, PathError, RefusedError, StorageError
from perdure.runtime.contracts import environment_for
from perdure.runtime.engine import Engine
from perdure.runtime.verify import run_checks
from perdure.storage.workspace import normal_path, reserved_reason, resolve_inside

_JOURNAL_REF: Final = re.compile(r"J-(\d+)\Z")
_GIT_REF: Final = re.compile(r"git:[0-9a-f]{7,64}\Z")


def read_back(
    engine: Engine,
    path: str,
    kind: str,
    *,
    artifact_id: str = "",
    node_id: str | None = None,
    supersedes: str | None = None,
) -> RegisterArtifact:
    """Make a file durable, read it back and hash it: the facts of a registration (AR-1).

    Raises EvidenceError when it is missing or no regular file, PathError when it is not inside the
    workspace or belongs to the runtime.
    """
    clean = normal_path(path)
    reason = reserved_reason(clean)
    if reason is not None:
        raise PathError(reason, code="path_reserved", fix="Write it below artifacts/NODE/.")
    full = resolve_inside(engine.disk, engine.layout.root, clean)
    stat = engine.disk.stat(engine.disk.real_path(full))
    if stat is None or stat.kind != "file":
        what = "missing" if stat is None else f"a {stat.kind}, not a file"
        raise EvidenceError(
            f"{clean} is {what}: no disk, no registration.",
            code="artifact_missing",
            rule="AR-1",
            fix=f"Write the file first; the path is relative to {engine.layout.root}.",
        )
    real = engine.disk.real_path(full)
    engine.disk.sync_file(real)
    _sync_names(engine, real)
    value, size_bytes = hash_of(engine, real)
    after = engine.disk.stat(real)
    integrity = Integrity(
        "sha256",
        value,
        size_bytes,
        timestamp(engine.world.clock.now()),
        mtime_ns=after.mtime_ns if after == stat else None,
    )
    invocation = None
    if node_id is not None:
        node = engine.replica.state.nodes.get(node_id)
        invocation = node.invocation if node is not None else None
    return RegisterArtifact(artifact_id, clean, kind, integrity, node_id, invocation, supersedes)


def _sync_names(engine: Engine, path: str) -> None:
    """Make the file's name durable, and that of each directory between it and the workspace.

    Whoever wrote the file may have made the directories and synced none of them.
    """
    root = engine.disk.real_path(engine.layout.root)
    directory = path.rpartition("/")[0]
    while directory.startswith(root):
        engine.disk.sync_dir(directory)
        directory = directory.rpartition("/")[0]


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
        real = engine.disk.real_path(full)
        stat = engine.disk.stat(real)
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
        value, _ = hash_of(engine, real)
    except (PathError, StorageError) as error:
        return f"FAIL: unreadable: {artifact.path}: {error.message}"
    if value != known.value:
        return (
            f"FAIL: changed: {artifact.path} has sha256 {value[:16]}..., not {known.value[:16]}..."
        )
    return "PASS"


def _judge_commit(engine: Engine, artifact: Artifact) -> str:
    repo = posixpath.join(engine.layout.root, artifact.repo or ".")
    command = ["git", "-C", repo, "cat-file", "-e", f"{artifact.integrity.value}^{{commit}}"]
    try:
        found = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        return f"FAIL: unreadable: git cannot be run: {error}"
    return "PASS" if found.returncode == 0 else f"FAIL: missing: {artifact.path} in {repo}"


def resolve_refs(engine: Engine, node: Node | None, evidence: Iterable[str]) -> tuple[str, ...]:
    """The refs that evidence strings begin with. Raises EvidenceError for one that names nothing.

    A ref is an artifact id, ``J-n``, ``git:sha``, a contract, a receipt or a path that exists.
    """
    state, refs = engine.replica.state, []
    for text in evidence:
        ref = text.split()[0] if text.split() else ""
        match = _JOURNAL_REF.match(ref)
        if ref in state.artifacts or _GIT_REF.match(ref):
            known = True
        elif match is not None:
            known = 1 <= int(match[1]) <= state.seq
        else:
            try:
                full = resolve_inside(engine.disk, engine.layout.root, ref)
                known = engine.disk.stat(full) is not None
            except PathError:
                known = False
        if not known:
            where = f" of {node.node_id}" if node is not None else ""
            raise EvidenceError(
                f"evidence{where} cites {ref!r}, which is no artifact, event or file here.",
                code="evidence_unknown",
                fix="Cite the id of a registered artifact, J-n, or a path in the workspace.",
            )
        refs.append(ref)
    return tuple(dict.fromkeys(refs))


def missing_outputs(engine: Engine, node: Node) -> list[str]:
    """Outputs the spec names that have no current registration of this node."""
    state = engine.replica.state
    registered = {
        state.artifacts[name].path
        for name in node.artifacts
        if state.artifacts[name].status == "current"
    }
    return [path for path in node.spec.outputs or () if path not in registered]


def verify_node(engine: Engine, node: Node) -> Verdict:
    """The runtime's own verdict on a node, itemised (A-4), from bytes read in this call.

    Changes nothing. Raises EvidenceError where there is nothing to verify (PD-J1), RefusedError
    where the spec asks for a level that the runtime cannot give (VR-0).
    """
    if node.verification_level not in ("V0", "V1"):
        raise RefusedError(
            f"{node.node_id} asks for {node.verification_level}, and the runtime's own check is"
            " V1: a verdict short of the spec's minimum is not a pass.",
            code="verification_level",
            rule="VR-1",
            fix="Let an auditor or a person judge it, or have the sponsor lower the level.",
        )
    if node.effect == "S3" and node.receipt is None:
        raise EvidenceError(
            f"{node.node_id} has an external effect (S3) and no receipt for it.",
            code="receipt_missing",
            rule="C-S3",
            fix="Journal a RECEIPT event that names the node and the proof.",
        )
    items = [_item_for(engine, name) for name in _current(engine, node)]
    missing = missing_outputs(engine, node)
    if missing or (not items and node.spec.outputs != ()):
        what = (
            f"no registered file at {', '.join(missing[:5])}" if missing else "no artifact at all"
        )
        raise EvidenceError(
            f"{node.node_id} is not DONE: it has {what}. No disk, no DONE.",
            fix=f"Write it and register it: perdure artifact add {node.node_id} PATH",
        )
    criteria = node.spec.acceptance_criteria
    if criteria:
        items += _run_criteria(engine, node)
    elif node.spec.outputs == ():
        raise EvidenceError(
            f"{node.node_id} has neither outputs nor checks, so nothing can show that it is done.",
            fix=f"Give it an output or an acceptance check: perdure amend {node.node_id}",
        )
    failed = [item for item in items if not item["passed"]]
    return Verdict(
        passed=not failed,
        verifier="verifier:v1" if node.verification_level == "V1" else engine.actor,
        level=node.verification_level,
        checks=tuple(items),
        artifacts={
            name: engine.replica.state.artifacts[name].integrity.value
            for name in _current(engine, node)
        },
        diagnosis="; ".join(f"{item['check']}: {item['detail']}" for item in failed)[:2_000],
    )


def _current(engine: Engine, node: Node) -> list[str]:
    artifacts = engine.replica.state.artifacts
    return [name for name in node.artifacts if artifacts[name].status == "current"]


def _item_for(engine: Engine, artifact_id: str) -> dict[str, Any]:
    artifact = engine.replica.state.artifacts[artifact_id]
    result = judge_artifact(engine, artifact)
    return {
        "check": "sha256",
        "params": {"artifact": artifact_id, "path": artifact.path},
        "level": "V1",
        "passed": result.startswith("PASS"),
        "method": "The registered file was read whole and its sha256 compared with the record.",
        "inputs": [
            {
                "path": artifact.path,
                "sha256": artifact.integrity.value,
                "size_bytes": artifact.integrity.size_bytes,
            }
        ],
        "detail": result,
    }


def _run_criteria(engine: Engine, node: Node) -> Sequence[dict[str, Any]]:
    results = run_checks(
        engine.disk,
        engine.layout.root,
        node.node_id,
        node.spec.acceptance_criteria,
        environment=environment_for(engine, node),
        timeout_s=engine.replica.state.policies.check_timeout_s,
    )
    return [msgspec.to_builtins(result) for result in results]


def integrity_walk(engine: Engine, *, quick: bool = False) -> dict[str, str]:
    """``PASS...`` or ``FAIL...`` for every artifact that is current or superseded."""
    return {
        name: judge_artifact(engine, artifact, quick=quick)
        for name, artifact in engine.replica.state.artifacts.items()
        if artifact.status != "quarantined"
    }


def read_commit(
    engine: Engine, revision: str, repo: str, artifact_id: str, node_id: str
) -> RegisterArtifact:
    """Let git find a commit in ``repo`` and return the facts of its registration.

    Raises EvidenceError when git does not know it, or there is no git.
    """
    command = ["git", "-C", repo, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise EvidenceError(f"git cannot be run: {error}.", code="git_missing") from None
    commit = found.stdout.strip()
    if found.returncode != 0 or not commit:
        raise EvidenceError(
            f"git knows no commit {revision!r} in {repo}.",
            code="artifact_missing",
            rule="AR-1",
            fix="Commit the work first, and name the repository with --repo.",
        )
    node = engine.replica.state.nodes.get(node_id)
    integrity = Integrity("git", commit, 0, timestamp(engine.world.clock.now()))
    return RegisterArtifact(
        artifact_id,
        f"git:{commit}",
        "commit",
        integrity,
        node_id,
        node.invocation if node is not None else None,
        repo=posixpath.relpath(repo, engine.layout.root),
    )
