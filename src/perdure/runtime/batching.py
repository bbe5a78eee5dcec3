"""What one commit holds: its acknowledgement, the batch it is gathered in, its limits.

Job: the small records around a commit. Invariants: a batch is nothing until its commit is durable;
an acknowledgement exists only afterwards.
"""

import msgspec

from perdure.core.codec import ChainTip, Commit
from perdure.core.commands import FileMove
from perdure.core.events import Draft, Event
from perdure.core.model import event_bytes_max, events_per_commit_max
from perdure.errors import UsageError


class Committed(msgspec.Struct, frozen=True):
    """The acknowledgement of a command: its events are durable."""

    ref: str
    """``J-n`` of its first event, or of the event that had already said the same."""
    events: tuple[Event, ...]
    repeated: bool = False
    """Nothing was written now: the op id, or the fact itself, had been committed before."""


class Batch:
    """Commands that are to become one commit."""

    def __init__(self, tip: ChainTip, op: str | None, actor: str) -> None:
        self.tip = tip
        self.op = op
        self.actor = actor
        self.ts = ""
        """When its first event was decided, which is the time of all of them: what is folded
        before the commit must be what a replay folds."""
        self.drafts: list[Draft] = []
        self.events: list[Event] = []
        self.moves: list[FileMove] = []

    def check_actor(self, actor: str) -> None:
        """Raise UsageError for another actor: the commit has one, whom everything is folded for."""
        if actor != self.actor:
            raise UsageError(
                f"{actor} acts inside a batch of {self.actor}, which is committed under one name.",
                code="actor_in_batch",
                fix="Make the call outside the batch, or the whole batch as that actor.",
            )


def check_no_op_in_batch(op: str | None) -> None:
    """One commit carries one op id: that of the whole batch."""
    if op is not None:
        raise UsageError(
            f"op id {op!r} is given inside a batch, which is committed as one.",
            code="op_in_batch",
            fix="Give the op id to the batch, or make the call outside it.",
        )


def check_size(commit: Commit) -> None:
    """Raise UsageError for a commit that is larger than a journal takes."""
    count = len(commit.events)
    if count > events_per_commit_max:
        raise UsageError(
            f"one commit holds at most {events_per_commit_max} events, this has {count}.",
            code="too_large",
            fix="Split it into several.",
        )
    if len(commit.data) > event_bytes_max * count:
        raise UsageError(
            f"an event has at most {event_bytes_max} bytes.",
            code="too_large",
            fix="Write the content to a file and register that as an artifact.",
        )
