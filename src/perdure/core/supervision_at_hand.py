"""Which blocker or overdue question wants something now (line 3 of the precedence).

Job: ``at_hand``. Invariants: pure; what a person has to hear comes before what the owner is asked,
and of several things the owner is asked about the one that was asked about longest ago, so that
nothing waits behind another for good; what has been escalated is never at hand again.
"""

from typing import Literal, NamedTuple

from perdure.core.model import Policies
from perdure.core.supervision_parts import BlockInForce, OpenQuestion
from perdure.core.supervision_records import Derived, Memory

Kind = Literal["", "escalate", "partial", "retry"]


class AtHand(NamedTuple):
    """What is to be done about blockers: nothing, to tell a person, or to ask the owner first."""

    kind: Kind = ""
    blocks: tuple[BlockInForce, ...] = ()
    questions: tuple[OpenQuestion, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """What an escalation of all this is remembered by."""
        return (*(b.key for b in self.blocks), *(q.key for q in self.questions))


def at_hand(derived: Derived, policies: Policies, memory: Memory, now: float) -> AtHand:
    """The blockers and overdue questions that are next, all of one kind."""
    by_kind: dict[Kind, list[BlockInForce]] = {}
    for block in derived.blocks:
        if block.key not in memory.escalated:
            by_kind.setdefault(_kind(block, derived, policies, memory, now), []).append(block)
    overdue = [q for q in derived.questions if q.overdue and q.key not in memory.escalated]
    to_person = by_kind.get("escalate", [])
    if to_person or overdue:
        return AtHand("escalate", tuple(to_person), tuple(overdue))
    for kind in ("partial", "retry"):
        blocks = by_kind.get(kind)
        if blocks:
            longest_ago = min(blocks, key=lambda b: memory.told.get(about(kind, b), float("-inf")))
            return AtHand(kind, (longest_ago,))
    return AtHand()


def about(kind: Kind, block: BlockInForce) -> str:
    """What the owner is asked about; of partial success the step, whatever confirms its block."""
    return f"partial:{block.node}" if kind == "partial" else f"{kind}:{block.key}"


def _kind(
    block: BlockInForce, derived: Derived, policies: Policies, memory: Memory, now: float
) -> Kind:
    if block.retry_first and block.retries < policies.retries_max:
        return "retry"
    asked = memory.told.get(about("partial", block))
    if derived.outputs and not _reconciled(block, derived, asked, now, policies.renotify_s):
        return "partial"
    return "escalate"


def _reconciled(
    block: BlockInForce, derived: Derived, asked: float | None, now: float, renotify_s: float
) -> bool:
    """Whether the owner, once asked, has confirmed the blocker or let the interval go by."""
    if asked is None:
        return False
    said = derived.reply_at if derived.reply_letter == "B" else None
    if said is not None and said >= max(asked, block.at) and derived.reply_node == block.node:
        return True
    return asked >= block.at and now - asked >= renotify_s
