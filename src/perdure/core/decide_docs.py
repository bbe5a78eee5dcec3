"""Decisions about documents that a task keeps.

Invariants: a document is noted as it was just seen; what is stale stays on record as it was noted.
"""

from typing import Final

from perdure.core import closing_commands as k
from perdure.core.commands import Context, Decision
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.naming import check_text
from perdure.errors import NotFoundError, RefusedError

docs_max: Final = 10_000
"""Documents of one task."""


def decide_doc(replica: Replica, command: k.NoteDoc, context: Context) -> Decision:
    """A NOTE of a document; the same as it is on record already writes nothing."""
    check_text(command.purpose, "purpose")
    state = replica.state
    known = state.docs.get(command.path)
    now = (command.purpose, command.sha256, command.size_bytes)
    if known is not None and not known.stale and (known.purpose, known.sha256) == now[:2]:
        return Decision(answer=known.ref)
    if known is None and len(state.docs) >= docs_max:
        raise RefusedError(
            f"the task has {docs_max} documents on record.",
            code="too_many_docs",
            rule="PL-2",
            fix="Note a list of the files instead of each of them.",
        )
    payload = {
        "op": "doc",
        "text": f"{command.path}: {command.purpose}",
        "path": command.path,
        "purpose": command.purpose,
        "external": command.external,
        "size_bytes": command.size_bytes,
        "mtime_ns": command.mtime_ns,
        "sha256": command.sha256,
    }
    return Decision((Draft("NOTE", "task", state.task_id, payload, (command.path,)),))


def decide_stale(replica: Replica, command: k.NoteStale, context: Context) -> Decision:
    """A NOTE of documents that are not what was noted; those that are known to be are left out."""
    state = replica.state
    unknown = [path for path in command.paths if path not in state.docs]
    if unknown:
        raise NotFoundError(
            f"no document {unknown[0]!r} was noted.",
            code="unknown_doc",
            rule="PL-2",
            fix="Note it first: perdure note --doc PATH --purpose TEXT",
        )
    fresh = {path: why for path, why in command.paths.items() if not state.docs[path].stale}
    if not fresh:
        return Decision()
    payload = {
        "op": "doc_stale",
        "text": "; ".join(f"{path} {why}" for path, why in list(fresh.items())[:10]),
        "paths": fresh,
    }
    return Decision((Draft("NOTE", "task", state.task_id, payload),))
