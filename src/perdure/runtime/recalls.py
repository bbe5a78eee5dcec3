"""The files by which an executor learns that its contract is void (PD-C1).

Job: once a commit has taken back work that may be under way, write the file
``contracts/<invocation>.recalled``, where the contract says to look. Invariants: the file follows
the commit and is no authority, the journal is; a crash in between leaves none, which means only
that nobody has been told; a failure to write it fails nothing.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from perdure.core.codec import to_json
from perdure.core.contract import recall_path
from perdure.core.events import Draft, Event
from perdure.core.model import ID_PATTERN, Node, State
from perdure.errors import StorageError
from perdure.ports import Disk

_TAKEN_BACK: Final = ("recalled", "abandoned")
"""Ends of a slot that its worker may not have noticed."""


class Void(NamedTuple):
    """A contract that a draft takes back."""

    invocation_id: str
    draft: int
    """Number of the draft in its commit."""


def recalled_by(state: State, drafts: Sequence[Draft], actor: str, before: int = 0) -> list[Void]:
    """The contracts that these drafts of ``actor`` end while somebody may be working under them.

    Not those whose holder hands in its work, or reports its own failure. ``state`` is as it was
    before the drafts; ``before`` counts what the same commit has in front of them.
    """
    found: list[Void] = []
    for number, draft in enumerate(drafts, before):
        if draft.kind == "STATE_TRANSITION" and draft.payload.get("from") == "RUNNING":
            node = state.nodes.get(draft.entity_id)
            if node is not None and draft.payload.get("to") != "VERIFYING":
                found += [Void(name, number) for name in _at_work(state, node, draft, actor)]
        elif draft.payload.get("op") == "slot_closed" and draft.payload.get("end") in _TAKEN_BACK:
            found.append(Void(draft.entity_id, number))
    return found


def _at_work(state: State, node: Node, draft: Draft, actor: str) -> Iterator[str]:
    """The invocations that a move out of RUNNING ends against their holders' will."""
    contract = state.contracts.get(node.invocation or "")
    reported = draft.payload.get("to") == "RETRYABLE" and not draft.payload.get("interruption")
    if contract is not None and not (reported and contract.executor.actor == actor):
        yield contract.invocation_id
    for slot in state.slots.values():
        if slot.node == node.node_id:
            yield slot.invocation_id


def tell(disk: Disk, root: str, voids: Sequence[Void], events: Sequence[Event]) -> None:
    """Write the file of each; the commit is durable. What the disk refuses is left out."""
    for void in voids:
        if not ID_PATTERN.match(void.invocation_id):
            continue  # a journal written by others
        event = events[void.draft]
        payload = event.payload
        why = payload.get("diagnosis") or payload.get("signature") or payload.get("reason")
        said = {
            "invocation_id": void.invocation_id,
            "ref": event.ref,
            "by": event.actor,
            "why": why or payload.get("observation") or f"{payload.get('to') or 'closed'}",
        }
        with contextlib.suppress(StorageError):
            path = f"{root}/{recall_path(void.invocation_id)}"
            disk.replace(path, to_json(said) + b"\n", durable=False)
