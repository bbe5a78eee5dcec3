"""What a journal line says: the event record, the kinds, the closed list of ops, upcasting.

Invariants: an event is a fact that was committed; a :class:`Draft` is one that a decision wants
committed. Reading is tolerant (unknown fields and kinds are kept, missing optional fields have
defaults); writing is strict: no decision makes an event whose kind and op are not in ``KINDS`` and
``OPS`` (tests/unit/core/test_decide.py). The fold also reads the ops that only others write.
"""

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from perdure.core.record import Record

KINDS: Final = frozenset(
    {
        "STATE_TRANSITION", "ARTIFACT_REGISTERED", "DECISION", "AMENDMENT", "GOAL_AMENDED",
        "RECEIPT", "NOTE", "HEARTBEAT", "INSTANCE_STARTED", "INSTANCE_ENDED", "STEERING_LOGGED",
        "STEP_PROGRESS", "STEP_COMPLETED", "TASK_COMPLETED", "BLOCKED_CONFIRMED",
        "OWNER_RESUMED", "OWNER_REPLY_RECORDED", "EXTERNAL_OBSERVED", "DOWNLOAD_OBSERVED",
    }
)  # fmt: skip

ENTITY_TYPES: Final = frozenset(
    {
        "task", "node", "artifact", "contract", "gate", "steering", "instance", "slot", "unit",
        "external_job", "download",
    }
)  # fmt: skip

OPS: Final = {
    "AMENDMENT": frozenset(
        {
            "add_node", "amend_node", "replan", "split", "direct_task", "attach_artifact",
            "quarantine_artifact", "correct_audit",
        }
    ),
    "DECISION": frozenset(
        {
            "decision", "ask", "answer", "void", "cancel", "retry", "classify", "policy",
            "revoke_authority", "slot", "mode", "plan", "accept_content", "close_task",
        }
    ),
    "NOTE": frozenset(
        {
            "note", "takeover", "recovered", "handoff", "hint", "source", "acknowledged",
            "slot_closed", "suspected", "late_output", "audit", "task_audit", "memory_proposals",
            "doc", "doc_stale", "walk",
        }
    ),
}  # fmt: skip
"""The ``op`` of the kinds that say several things; nothing else is written."""


class Entity(Record, msgspec.Struct, frozen=True):
    """What an event is about."""

    type: str = "task"
    id: str = ""


class Event(Record, msgspec.Struct):
    """One committed journal line (protocol section 3), without its chain value ``h``."""

    seq: int
    ts: str
    actor: str
    kind: str
    tx: str | None = None
    entity: Entity = Entity()
    payload: dict[str, Any] = {}
    evidence: list[Any] = []
    epoch: int = 0
    c: list[int] | UnsetType = UNSET
    op: str | UnsetType = UNSET

    @property
    def ref(self) -> str:
        """How other events cite this one."""
        return f"J-{self.seq}"


class Draft(msgspec.Struct, frozen=True):
    """An event that a decision wants committed; sequence, time and chain come with the commit."""

    kind: str
    entity_type: str
    entity_id: str
    payload: dict[str, Any]
    evidence: tuple[str, ...] = ()


def upcast(raw: dict[str, Any]) -> dict[str, Any]:
    """Bring a line that our typed decoder refused into today's shape, or return it as it is.

    Lines written by other implementations carry ``seq`` as text, a null payload or evidence, or an
    entity that is a bare id.
    """
    line = dict(raw)
    if isinstance(line.get("seq"), str) and line["seq"].isdecimal():
        line["seq"] = int(line["seq"])
    entity = line.get("entity")
    if isinstance(entity, str):
        line["entity"] = {"type": "task", "id": entity}
    elif isinstance(entity, dict):
        line["entity"] = {
            "type": str(entity.get("type") or "task"),
            "id": str(entity.get("id") or ""),
        }
    for field, default in _ABSENT.items():
        if line.get(field) is None:
            line[field] = type(default)() if isinstance(default, (dict, list)) else default
    for field in ("c", "op"):
        if line.get(field, "") is None:
            del line[field]
    return line


_ABSENT: Final[dict[str, Any]] = {
    "entity": {},
    "payload": {},
    "evidence": [],
    "epoch": 0,
    "ts": "",
    "actor": "",
}
