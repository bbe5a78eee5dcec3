"""Commands by which somebody says what was seen, what keeps work from going on, and how it is.

As in ``core.commands``: imperatives that carry facts the runtime has read already.
"""

from typing import Any

import msgspec


class Observe(msgspec.Struct, frozen=True):
    """Somebody saw something; it is truth about the world, not a move (supervision)."""

    kind: str
    """STEP_PROGRESS, STEP_COMPLETED, TASK_COMPLETED, EXTERNAL_OBSERVED or DOWNLOAD_OBSERVED."""
    entity_type: str
    entity_id: str
    """Empty: the task."""
    summary: str = ""
    facts: dict[str, str] = {}
    payload: dict[str, Any] = {}
    """What the kind needs besides: provider, job_id, state; status, path, ..."""
    claim: bool = False
    """Of STEP_COMPLETED: the node is claimed complete (N03) in the same commit."""


class ConfirmBlock(msgspec.Struct, frozen=True):
    """The owner says what keeps a node, or the task, from going on."""

    node_id: str
    """Empty: the task."""
    reason: str
    needs: tuple[str, ...]
    safe_next_step: str
    failure_type: str = ""
    facts: dict[str, str] = {}
    resume_token: str = ""
    summary: str = ""


class RecordReply(msgspec.Struct, frozen=True):
    """The owner answers the supervisor with one of the letters A to E."""

    letter: str
    node_id: str = ""
    summary: str = ""
    facts: dict[str, str] = {}
    reason: str = ""
    needs: tuple[str, ...] = ()
    safe_next_step: str = ""
    failure_type: str = ""
    resume_token: str = ""
    claim: bool = False
    """Of C with a node: the node is claimed complete (N03) in the same commit."""
