"""What a state would be once events were committed that are not committed yet.

Job: let a decision that builds on itself, or a plan of several, look at its own outcome.
Invariants: the replica that is asked stays as it is; what is folded is what a replay of these
events would fold.
"""

from collections.abc import Iterable

import msgspec

from perdure.core import commands as c
from perdure.core.codec import EMPTY_TIP, encode_commit, from_json, timestamp, to_json
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.model import State


def rehearse(replica: Replica, drafts: Iterable[Draft], context: c.Context) -> Replica:
    """A copy of the replica with these events folded, numbered as they would be."""
    copy = Replica(from_json(to_json(replica.state), State))
    apply_drafts(copy, drafts, context)
    return copy


def apply_drafts(copy: Replica, drafts: Iterable[Draft], context: c.Context) -> None:
    """Fold these events into a replica that :func:`rehearse` gave."""
    state, drafts = copy.state, list(drafts)
    if not drafts:
        return
    commit = encode_commit(
        msgspec.structs.replace(EMPTY_TIP, seq=state.seq),
        drafts,
        ts=timestamp(context.now),
        actor=context.actor,
        epoch=state.epoch,
    )
    copy.apply_all(commit.events)
