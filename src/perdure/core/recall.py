"""Taking back what is at work, because an instruction wants it otherwise (S3).

Job: end the attempt at a node as an interruption, never as a strike. Invariants: what the attempt
registered is quarantined and its bytes move out of the way, but for a batch node, whose units that
have landed stand (its resume policy says which of them count); an external effect that may have
happened is held for a person and not recalled (C-S3).
"""

from typing import Any

from perdure.core import commands as c
from perdure.core.decide_artifact import decide_quarantine, quarantine
from perdure.core.decide_ending import decide_fail
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.machine import node_edge
from perdure.core.model import Node
from perdure.core.moves import transition
from perdure.errors import invariant


def recall(replica: Replica, node: Node, cause: str, context: c.Context) -> c.Decision:
    """End the attempt at a node that is RUNNING or VERIFYING, because of ``cause``.

    N04 or N07 as an interruption, or N05 where an external effect is open. The caller knows that
    the node is at work.
    """
    if node.state == "RUNNING":
        failed = c.FailNode(node.node_id, "transient-agent", cause, interruption=True)
        return decide_fail(replica, failed, context)
    edge = node_edge(node.state, "RETRYABLE")
    invariant(edge is not None, f"{node.node_id} is {node.state}, so nothing of it is at work")
    assert edge is not None
    released = _release(replica, node) if node.spec.map is not None else None
    quarantined = released or decide_quarantine(replica, node)
    payload: dict[str, Any] = {
        "diagnosis": cause,
        "attempt": node.attempts + 1,
        "failure_class": "transient-agent",
        "interruption": True,
    }
    moved = transition(node, edge, payload)
    return c.Decision((*quarantined.drafts, moved), quarantined.moves)


def _release(replica: Replica, node: Node) -> c.Decision:
    """The registrations of a batch node end, and its files stay where the next attempt goes on."""
    ended = quarantine(replica, node, node.artifacts, "its node was recalled; the files stay")
    drafts = tuple(
        Draft(draft.kind, draft.entity_type, draft.entity_id, {**draft.payload, "moved_to": None})
        for draft in ended.drafts
    )
    return c.Decision(drafts)
