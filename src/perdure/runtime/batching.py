"""What one commit holds: its acknowledgement, the batch it is gathered in, its limits.

Job: the small records around a commit. Invariants: a batch is nothing until its commit is durable;
an acknowledgement exists only afterwards.
"""

import os
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, Final

import msgspec

from perdure.core.codec import ChainTip, Commit
from perdure.core.commands import Decision, FileMove
from perdure.core.events import Draft, Event
from perdure.core.late import LateModule
from perdure.core.model import State, event_bytes_max, events_per_commit_max
from perdure.errors import UsageError
from perdure.ports import Disk
from perdure.runtime.recalls import Void, recalled_by

_futures: Final = LateModule("concurrent.futures")

syncs_alone_max: Final = 6
"""Fewer than these are done one after the other."""
syncs_at_once_max: Final = 4


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
        self.unsynced: list[str] = []
        """Files that the events of the batch cite, to be durable before its commit."""
        self.voids: list[Void] = []
        """Contracts that it ends, for whoever works under them."""

    def hold(self, state: State, decision: Decision, commit: Commit) -> None:
        """Take in a decision; ``state`` is as it was before it."""
        self.voids += recalled_by(state, decision.drafts, self.actor, len(self.drafts))
        self.tip = commit.tip
        self.drafts += decision.drafts
        self.events += commit.events
        self.moves += decision.moves

    def check_actor(self, actor: str) -> None:
        """Raise UsageError for another actor: the commit has one, whom everything is folded for."""
        if actor != self.actor:
            raise UsageError(
                f"{actor} acts inside a batch of {self.actor}, which is committed under one name.",
                code="actor_in_batch",
                fix="Make the call outside the batch, or the whole batch as that actor.",
            )


def make_durable(disk: Disk, paths: Sequence[str]) -> None:
    """Sync files that are whole and their names, each directory once."""
    sync_all(disk, paths, list(dict.fromkeys(path.rpartition("/")[0] for path in paths)))


def sync_all(disk: Disk, files: Sequence[str], directories: Sequence[str]) -> None:
    """Sync all these, in any order; several at once where that is quicker.

    Raises StorageError when one of them fails; then nothing is known of the others.
    """
    steps = [partial(disk.sync_file, path) for path in files]
    steps += [partial(disk.sync_dir, path) for path in directories]
    if len(steps) < syncs_alone_max or not disk.syncs_at_once:
        for step in steps:
            step()
        return
    # A device that is asked by several takes their requests together.
    asked = [_pool(os.getpid()).submit(step) for step in steps]
    _futures.wait(asked)
    for done in asked:
        done.result()


@cache
def _pool(pid: int) -> Any:
    """Threads that wait for the device, of this process: a forked one has none of them."""
    return _futures.ThreadPoolExecutor(syncs_at_once_max, "sync")


def carry_out(disk: Disk, root: str, moves: Sequence[FileMove]) -> None:
    """Move files of the workspace; what is not there any more has been moved already."""
    for move in moves:
        source, target = f"{root}/{move.source}", f"{root}/{move.target}"
        if disk.stat(source) is not None:
            disk.make_dirs(target.rpartition("/")[0])
            disk.rename(source, target)


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
