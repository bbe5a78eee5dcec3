"""Decisions about artifacts: registering, superseding, quarantining.

Invariants: a registered path's content is frozen (AR-3); a superseded artifact says by which at
that moment (AR-2); nothing is ever deleted: quarantined bytes move to ``artifacts/old/``.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.core import commands as c
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.lookup import artifact_of, node_of
from perdure.core.model import CLOSED_STATES, RESERVED_ARTIFACT_IDS, Node, State
from perdure.core.naming import check_id
from perdure.errors import RefusedError, TransitionError

_VERSIONED: Final = re.compile(r"(?P<stem>.+?)(?:\.v(?P<n>\d+))?(?P<ext>\.[^./]*)?\Z")


def decide_register(
    replica: Replica, command: c.RegisterArtifact, context: c.Context
) -> c.Decision:
    """One ARTIFACT_REGISTERED, or the event that already says the same."""
    state = replica.state
    if command.node_id is not None:
        node = node_of(state, command.node_id)
        if node.state in CLOSED_STATES:
            raise TransitionError(
                f"{node.node_id} is {node.state}: nothing more is registered for it.",
                rule="AR-1",
                fix="Register it for the node that is at work, or for none.",
            )
    artifact_id = command.artifact_id or _free_id(state, command)
    check_id(artifact_id, "an artifact id", RESERVED_ARTIFACT_IDS)
    holder_id = replica.paths.get(command.path)
    if holder_id is not None:
        holder = state.artifacts[holder_id]
        if holder.integrity.value == command.integrity.value:
            node_id = command.node_id
            if node_id is not None and holder_id not in state.nodes[node_id].artifacts:
                return decide_attach(replica, c.AttachArtifact(node_id, holder_id), context)
            return c.Decision(answer=f"J-{holder.commit_event}")
        raise RefusedError(
            f"{command.path} is registered as {holder_id} with other content, and a registered"
            " path's content is frozen.",
            code="content_frozen",
            rule="AR-3",
            fix=f"Write the new content to a new path, such as {next_version(command.path)},"
            " and register that under a new id.",
        )
    if artifact_id in state.artifacts:
        raise RefusedError(
            f"artifact {artifact_id!r} exists already, at {state.artifacts[artifact_id].path}.",
            code="duplicate_id",
            rule="AR-3",
            fix="Choose a new id for new content.",
        )
    payload = {
        "path": command.path,
        "kind": command.kind,
        "produced_by_node": command.node_id,
        "produced_by_invocation": command.invocation,
        "integrity": msgspec.to_builtins(command.integrity),
        "status": "current",
    }
    if command.repo is not None:
        payload["repo"] = command.repo
    supersedes = command.supersedes or _earlier_version(replica, command.path)
    if supersedes is not None:
        if artifact_of(state, supersedes).status != "current":
            raise RefusedError(
                f"{supersedes} is {state.artifacts[supersedes].status}; only a current artifact is"
                " superseded.",
                code="not_current",
                rule="AR-2",
                fix="Name the artifact that is current, or none.",
            )
        payload["supersedes"] = [supersedes]
    draft = Draft("ARTIFACT_REGISTERED", "artifact", artifact_id, payload, (command.path,))
    return c.Decision((draft,))


def _free_id(state: State, command: c.RegisterArtifact) -> str:
    base = f"A-{command.node_id or 'task'}"[:56]
    if base not in state.artifacts:
        return base
    node = state.nodes.get(command.node_id or "")
    number = max(2, len(node.artifacts) if node is not None else 0)
    while f"{base}-{number}" in state.artifacts:
        number += 1
    return f"{base}-{number}"


def next_version(path: str) -> str:
    """The path that new content of ``path`` goes to (``name.v2.ext``)."""
    head, slash, name = path.rpartition("/")
    match = _VERSIONED.match(name)
    if match is None:
        return path + ".v2"
    number = int(match["n"] or 1) + 1
    return f"{head}{slash}{match['stem']}.v{number}{match['ext'] or ''}"


def _earlier_version(replica: Replica, path: str) -> str | None:
    """The artifact that a versioned path replaces by its name (AR-3), if it is current."""
    head, slash, name = path.rpartition("/")
    match = _VERSIONED.match(name)
    if match is None or match["n"] is None:
        return None
    for number in range(int(match["n"]) - 1, 0, -1):
        version = f".v{number}" if number > 1 else ""
        earlier = f"{head}{slash}{match['stem']}{version}{match['ext'] or ''}"
        artifact_id = replica.paths.get(earlier)
        if artifact_id and replica.state.artifacts[artifact_id].status == "current":
            return artifact_id
    return None


def decide_attach(replica: Replica, command: c.AttachArtifact, context: c.Context) -> c.Decision:
    """Count an artifact among a node's, once."""
    node = node_of(replica.state, command.node_id)
    artifact_of(replica.state, command.artifact_id)
    if command.artifact_id in node.artifacts:
        return c.Decision(answer=node.notes_ref or "J-1")
    payload = {
        "op": "attach_artifact",
        "target": node.node_id,
        "artifact": command.artifact_id,
    }
    return c.Decision((Draft("AMENDMENT", "node", node.node_id, payload),))


def decide_quarantine(replica: Replica, node: Node) -> c.Decision:
    """Quarantine what the attempt under way registered; its bytes move out of the way (AR-2)."""
    artifacts = replica.state.artifacts
    mine = [
        name
        for name in node.artifacts
        if name in artifacts
        and artifacts[name].produced_by_node == node.node_id
        and not _is_relied_on(replica, name)
    ]
    return quarantine(
        replica, node, mine, f"attempt {node.attempts} of {node.node_id} did not pass"
    )


def quarantine(replica: Replica, node: Node, names: Iterable[str], reason: str) -> c.Decision:
    """One AMENDMENT for each of these artifacts that is current, and the move of its bytes.

    They go to ``artifacts/old/<id>-<attempt>/``, which frees their path for a new id.
    """
    drafts, moves = [], []
    for artifact_id in names:
        artifact = replica.state.artifacts[artifact_id]
        if artifact.status != "current":
            continue
        moved_to = None
        if artifact.integrity.algo != "git":
            name = artifact.path.rpartition("/")[2]
            moved_to = f"artifacts/old/{artifact_id}-{node.attempts}/{name}"
            moves.append(c.FileMove(artifact.path, moved_to))
        payload = {
            "op": "quarantine_artifact",
            "target": artifact_id,
            "node": node.node_id,
            "before": {"status": artifact.status, "path": artifact.path},
            "moved_to": moved_to,
            "reason": reason,
        }
        drafts.append(Draft("AMENDMENT", "artifact", artifact_id, payload))
    return c.Decision(tuple(drafts), tuple(moves))


def _is_relied_on(replica: Replica, artifact_id: str) -> bool:
    """Whether a node that is DONE counts this artifact among its own: its bytes stay then."""
    return any(
        artifact_id in other.artifacts
        for other in replica.state.nodes.values()
        if other.state == "DONE"
    )
