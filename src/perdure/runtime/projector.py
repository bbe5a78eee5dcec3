"""When the projections of a workspace are written.

Job: keep what people and the next opening read fresh enough, at a bounded share of the time.
Invariants: it writes only what is committed already; a failure costs freshness and nothing else,
because readers replay the tail behind a projection; it never syncs.
"""

from typing import Final

from perdure.core.codec import EMPTY_TIP, ChainTip
from perdure.core.fold import Replica
from perdure.errors import StorageError
from perdure.ports import Clock, Disk
from perdure.storage.projections import write_projections
from perdure.storage.workspace import Layout

interval_s: Final = 1.0
share_max: Final = 0.02
"""Part of the time that rewriting projections may take while commits keep coming."""
small_snapshot_bytes: Final = 64 << 10
"""Up to this size every short command renews the projections."""
tail_share_max: Final = 8
"""A larger snapshot is renewed when the tail behind it exceeds its size divided by this."""


class Projector:
    """The projections of one workspace, as one engine keeps them."""

    __slots__ = ("_clock", "_disk", "_layout", "_snapshot_bytes", "due_at", "written")

    def __init__(self, disk: Disk, clock: Clock, layout: Layout) -> None:
        self._disk = disk
        self._clock = clock
        self._layout = layout
        self._snapshot_bytes = 0
        self.due_at = clock.monotonic() + interval_s
        """Before this moment of the clock a coordinator need not ask."""
        self.written: ChainTip = EMPTY_TIP
        """What the snapshot on disk stands for, as far as this engine knows."""

    def write_when_due(self, replica: Replica, tip: ChainTip, *, coordinating: bool) -> None:
        """Renew them if they are behind and it is time: by the clock; but the first commit of
        somebody who does not coordinate by the length of the tail, as it may be the only one."""
        if tip.seq == self.written.seq:
            return
        if coordinating or self._snapshot_bytes:
            due = self._clock.monotonic() >= self.due_at
        else:
            due = self.tail_is_long(tip)
        if due:
            self.write(replica, tip)

    def tail_is_long(self, tip: ChainTip) -> bool:
        """Whether what readers would have to replay is much, measured by what they load anyway."""
        size = self._snapshot_bytes
        if not size:
            stat = self._disk.stat(self._layout.snapshot)
            size = stat.size_bytes if stat is not None else 0
        return size <= small_snapshot_bytes or tip.offset - self.written.offset > (
            size // tail_share_max
        )

    def write(self, replica: Replica, tip: ChainTip) -> None:
        """Renew them all. What cannot be written now is written by a later commit or recovery."""
        began = self._clock.monotonic()
        try:
            self._disk.make_dirs(self._layout.artifacts)
            self._snapshot_bytes = write_projections(self._disk, self._layout, replica, tip)
        except StorageError:
            # The events are durable and acknowledged, so the commit has not failed.
            pass
        else:
            self.written = tip
        ended = self._clock.monotonic()
        self.due_at = ended + max(interval_s, (ended - began) / share_max)
