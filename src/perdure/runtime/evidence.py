"""Evidence: what the runtime itself finds on disk for a node, and the verdict it gives.

Job: register files by reading them back, resolve the refs that callers cite, and verify a node
(V0, V1; V2 and V3 by what auditors and people have said). Invariants: a registration follows the
sync of the file's bytes and name (AR-1); a verdict rests only on bytes read in that call; a claim
adds nothing to it (AX-3).
"""

import contextlib
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from perdure.core.audits import audit_items, audit_plan, audit_verifier, files_of_items
from perdure.core.batch import criteria_of
from perdure.core.codec import timestamp
from perdure.core.commands import FileMove, RegisterArtifact, Verdict
from perdure.core.effects import check_receipt
from perdure.core.gates import approval_of, judgements
from perdure.core.model import AT_WORK_STATES, Integrity, Node, State, text_digest
from perdure.errors import EvidenceError, PathError, StorageError
from perdure.runtime.audited import audited_files
from perdure.runtime.batching import sync_all
from perdure.runtime.contracts import environment_for
from perdure.runtime.engine import Engine
from perdure.runtime.gates import contents_of
from perdure.runtime.git import find_commit
from perdure.runtime.integrity import judge_artifact
from perdure.runtime.probe import CitedContract, hash_file
from perdure.runtime.verify import judgement_item, run_checks
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
    synced: set[str] | None = None,
) -> RegisterArtifact:
    """Make a file durable, read it back and hash it: the facts of a registration (AR-1).

    ``synced`` holds the files and directories that were synced since all the files that are being
    registered were there (:func:`sync_ahead`); none of them is synced again.

    Raises EvidenceError when it is missing or no regular file, PathError when it is not inside the
    workspace or belongs to the runtime.
    """
    clean = normal_path(path)
    reason = reserved_reason(clean)
    if reason is not None:
        raise PathError(reason, code="path_reserved", fix="Write it below artifacts/NODE/.")
    real = engine.disk.real_path(resolve_inside(engine.disk, engine.layout.root, clean))
    stat = engine.disk.stat(real)
    if stat is None or stat.kind != "file":
        what = "missing" if stat is None else f"a {stat.kind}, not a file"
        raise EvidenceError(
            f"{clean} is {what}: no disk, no registration.",
            code="artifact_missing",
            rule="AR-1",
            fix=f"Write the file first; the path is relative to {engine.layout.root}.",
        )
    behind = real.removeprefix(engine.disk.real_path(engine.layout.root)).lstrip("/")
    reason = reserved_reason(behind) if behind != clean else None
    if reason is not None:
        raise PathError(reason, code="path_reserved", fix="Name the file itself, not a link to it.")
    synced = set() if synced is None else synced
    _sync_bytes(engine, {real: clean}, synced)
    _sync_names(engine, [real], synced)
    value, size_bytes = hash_file(engine.disk, real)
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
        if node is not None and node.state in AT_WORK_STATES:
            invocation = node.invocation
    return RegisterArtifact(artifact_id, clean, kind, integrity, node_id, invocation, supersedes)


def sync_ahead(engine: Engine, paths: Iterable[str]) -> set[str]:
    """Make files that are to be registered durable, with their names, many at once.

    Returns what was synced, for :func:`read_back`. What is no file in the workspace is left out:
    registering it tells why. Raises StorageError when a sync fails; a later one makes good for it.
    """
    disk, files = engine.disk, {}
    for path in paths:
        with contextlib.suppress(PathError):
            clean = normal_path(path)
            real = disk.real_path(resolve_inside(disk, engine.layout.root, clean))
            stat = disk.stat(real)
            if stat is not None and stat.kind == "file":
                files[real] = clean
    synced: set[str] = set()
    _sync_bytes(engine, files, synced)
    _sync_names(engine, files, synced)
    return synced


def _sync_bytes(engine: Engine, files: Mapping[str, str], synced: set[str]) -> None:
    """Make the bytes of files durable, also when an earlier sync of one has failed.

    ``files`` maps where each really is to its path in the workspace. After a failed sync its pages
    may be marked clean, so that the next sync skips them and says that all is well. A mark beside
    the workspace's scratch files remembers the failure for whoever tries again on this boot; then
    the bytes are written over themselves first. After a restart there is nothing to remember: what
    was not written is gone.
    """
    disk = engine.disk
    marks = {
        real: f"{engine.layout.tmp}/unsynced-{text_digest(path)}"
        for real, path in files.items()
        if real not in synced
    }
    marked = [real for real, mark in marks.items() if disk.stat(mark) is not None]
    try:
        for real in marked:
            offset = 0
            for chunk in disk.read_chunks(real):
                disk.rewrite(real, offset, chunk)
                offset += len(chunk)
        sync_all(disk, list(marks), ())
    except StorageError:
        with contextlib.suppress(StorageError):  # the failure itself is what must be told
            disk.make_dirs(engine.layout.tmp)
            for real, mark in marks.items():
                disk.replace(mark, files[real].encode(), durable=False)
        raise
    for real in marked:
        disk.unlink(marks[real], durable=False)
    synced.update(marks)


def _sync_names(engine: Engine, files: Iterable[str], synced: set[str]) -> None:
    """Make the names of files durable, and of each directory between them and the workspace.

    Whoever wrote a file may have made the directories and synced none of them.
    """
    root = engine.disk.real_path(engine.layout.root)
    above: list[str] = []
    for path in files:
        directory = path.rpartition("/")[0]
        while directory.startswith(root) and directory not in synced:
            above.append(directory)
            synced.add(directory)
            directory = directory.rpartition("/")[0]
    sync_all(engine.disk, (), above)


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

    Changes nothing. Raises EvidenceError where there is nothing to verify (PD-J1). What only an
    auditor can say (V2) is taken from the record as far as it holds, and is ``pending`` else.
    """
    state, names = engine.replica.state, _current(engine, node)
    check_receipt(state, node)
    missing = missing_outputs(engine, node)
    if missing or (not names and node.spec.outputs != ()):
        what = (
            f"no registered file at {', '.join(missing[:5])}" if missing else "no artifact at all"
        )
        raise EvidenceError(
            f"{node.node_id} is not DONE: it has {what}. No disk, no DONE.",
            fix=f"Write it and register it: perdure artifact add {node.node_id} PATH",
        )
    judged: Sequence[dict[str, Any]] = ()
    if criteria_of(node):
        judged = _run_criteria(engine, node)
    elif node.spec.outputs == () and not judgements(node) and audit_plan(state, node) is None:
        raise EvidenceError(
            f"{node.node_id} has neither outputs nor checks, so nothing can show that it is done.",
            fix="Give it an output or an acceptance check, in the task file or by amend_node.",
        )
    # The files last: a check script may have changed them.
    items = [*(_item_for(engine, name) for name in names), *judged]
    artifacts = state.artifacts
    read = {artifacts[name].path: artifacts[name].integrity.value for name in names}
    if audit_plan(state, node) is not None:  # its inputs are read for nothing else
        items += audit_items(state, node, audited_files(engine, node, read))
    verdict = Verdict(
        passed=False,
        verifier=engine.actor if node.verification_level == "V0" else "verifier:v1",
        level="V0" if node.verification_level == "V0" else "V1",
        checks=tuple(items),
        artifacts={name: artifacts[name].integrity.value for name in names},
        contents=contents_of(engine, node, "done", read),
    )
    return add_judgements(state, node, verdict)


def is_overtaken(engine: Engine, verdict: Verdict, since: int) -> bool:
    """Whether a verdict is of checks that somebody may have ended from outside.

    A coordinator that opens the task ends what it finds running of its commands, and a check script
    looks like one. ``since`` is ``engine.takeovers()`` as it was when the checks began.
    """
    return not verdict.passed and engine.takeovers() != since


def add_judgements(state: State, node: Node, verdict: Verdict) -> Verdict:
    """The verdict with what auditors (V2) and people (V3) have said of exactly its content.

    A judgement that is still to come fails nothing: it holds the node (N06), and the level of the
    verdict stays what the runtime's own checks give.
    """
    items = [item for item in verdict.checks if item["check"] not in ("human", "audit")]
    audited = files_of_items(verdict.checks)
    if audited is not None:
        items += audit_items(state, node, audited)
    judges: list[str] = []
    for criterion, gate in judgements(node):
        files = verdict.contents.get(gate.gate_id, {})
        approval = approval_of(state, node, gate, files)
        items.append(judgement_item(criterion, gate, approval, files))
        judges += [approval.by] if approval is not None else []
    failed = [item for item in items if not item["passed"] and not item.get("pending")]
    judged: dict[str, Any] = {}
    auditor = audit_verifier(node, items)
    if auditor:
        judged = {"level": "V2", "verifier": auditor}
    if node.verification_level == "V3" and not any(item.get("pending") for item in items):
        judged = {"level": "V3", "verifier": ", ".join(dict.fromkeys(judges))}
    return msgspec.structs.replace(
        verdict,
        passed=not failed,
        checks=tuple(items),
        diagnosis="; ".join(f"{item['check']}: {item['detail']}" for item in failed)[:2_000],
        **judged,
    )


def _current(engine: Engine, node: Node) -> list[str]:
    artifacts = engine.replica.state.artifacts
    return [name for name in node.artifacts if artifacts[name].status == "current"]


def _item_for(engine: Engine, artifact_id: str) -> dict[str, Any]:
    artifact = engine.replica.state.artifacts[artifact_id]
    found = judge_artifact(engine, artifact)
    return {
        "check": "sha256",
        "params": {"artifact": artifact_id, "path": artifact.path},
        "level": "V1",
        "passed": found.holds,
        "method": "The registered file was read whole and its sha256 compared with the record.",
        "inputs": [
            {
                "path": artifact.path,
                "sha256": artifact.integrity.value,
                "size_bytes": artifact.integrity.size_bytes,
            }
        ],
        "detail": found.text,
    }


def _run_criteria(engine: Engine, node: Node) -> Sequence[dict[str, Any]]:
    results = run_checks(
        engine.disk,
        engine.layout.root,
        node.node_id,
        [item for item in criteria_of(node) if item.check not in ("human", "audit")],
        environment=environment_for(engine, node, actor="verifier:v1"),
        timeout_s=engine.replica.state.policies.check_timeout_s,
        contract=_contract_of_units(node),
    )
    return [msgspec.to_builtins(result) for result in results]


def _contract_of_units(node: Node) -> CitedContract | None:
    """The contract that names the units of a batch node, as the journal cites it."""
    if node.spec.map is None:
        return None
    return CitedContract(f"contracts/{node.invocation}.json", node.contract_sha256)


def unfinished_moves(engine: Engine, node_id: str | None = None) -> tuple[FileMove, ...]:
    """Moves that a commit ordered and that a crash prevented, of one node or of all."""
    moves = []
    root, state = engine.layout.root, engine.replica.state
    for artifact in state.artifacts.values():
        origin, producer_id = artifact.origin, artifact.produced_by_node
        if origin is None or origin in engine.replica.paths:
            continue
        if node_id is not None and producer_id != node_id:
            continue
        producer = state.nodes.get(producer_id or "")
        if producer is not None and producer.state in AT_WORK_STATES:
            continue  # what lies there now is of the attempt under way
        if engine.disk.stat(f"{root}/{artifact.path}") is not None:
            continue
        if engine.disk.stat(f"{root}/{origin}") is None:
            continue
        here = msgspec.structs.replace(artifact, path=origin)
        if judge_artifact(engine, here).text == "PASS":
            moves.append(FileMove(origin, artifact.path))
    return tuple(moves)


def read_commit(
    engine: Engine, revision: str, repo: str, artifact_id: str, node_id: str
) -> RegisterArtifact:
    """Let git find a commit in ``repo`` and return the facts of its registration.

    Raises EvidenceError when git does not know it, or there is no git.
    """
    commit = find_commit(repo, revision)
    if not commit:
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
