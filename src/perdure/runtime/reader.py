"""Reading a workspace: the replica, the journal behind it, and how they are brought up to date.

Job: load what the snapshot and the tail behind it say, and follow what others commit. Invariants:
it never writes; it costs the tail, not the history; what an unfinished commit explains is not an
error, and damage in committed history always is.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final

from perdure.core.codec import EMPTY_TIP, Damage
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.late import LateModule
from perdure.core.secrets import Masker
from perdure.core.tiers import is_mirrored
from perdure.errors import CorruptError
from perdure.runtime.masking import masker_of
from perdure.runtime.projector import Projector
from perdure.runtime.world import World
from perdure.storage.journal import Journal, absent
from perdure.storage.lease import LeaseFile
from perdure.storage.projections import committed_offset, load_snapshot
from perdure.storage.workspace import Layout, is_workspace

_mirror: Final = LateModule("perdure.storage.mirror")


class Reader:
    """One look at one workspace, which can be brought up to date."""

    def __init__(self, root: str, world: World, actor: str) -> None:
        self.world = world
        self.disk = world.disk
        self.layout = Layout(root)
        self.actor = actor
        self.replica = Replica()
        self.journal = Journal(self.disk, self.layout.journal)
        self.lease_file = LeaseFile(self.disk, self.layout.lease, world.processes, world.clock)
        self.projector = Projector(self.disk, world.clock, self.layout)
        self._guard = threading.RLock()

    @property
    def masker(self) -> Masker:
        """What masks the secrets of this task, as this process can know them (SE-1)."""
        return masker_of(self)

    def takeovers(self) -> int:
        """A number that is another one as soon as a coordinator has come: the lease's epoch."""
        lease = self.lease_file.read()
        return lease.epoch if lease is not None else 0

    def load(self) -> Damage | None:
        """Read the workspace as it is; writes nothing. Returns what follows the last commit.

        Costs the snapshot and the tail behind it. Raises NotFoundError without a journal,
        CorruptError for damage that no unfinished commit explains; it says so where a mirror has
        what is damaged (J-2).
        """
        try:
            return self._load()
        except CorruptError as error:
            if self.disk.stat(self.layout.mirror) is None:
                raise
            raise _mirror.with_cure(self.disk, self.layout, error) from error

    def _load(self) -> Damage | None:
        if not is_workspace(self.disk, self.layout.root):
            raise absent(self.disk, self.layout)
        self.journal.close()
        self.journal = Journal(self.disk, self.layout.journal)
        self.replica = Replica()
        self.projector.written = EMPTY_TIP
        loaded = load_snapshot(self.disk, self.layout)
        if loaded is not None and self.journal.start_at(loaded[1]):
            self.replica = Replica(loaded[0])
            self.projector.written = loaded[1]
        torn = self._read_on()
        if not self.replica.state.created:
            raise CorruptError(
                f"{self.layout.journal} is not a journal of a task: line 1, byte 0 is not"
                " INSTANCE_STARTED.",
                code="not_a_journal",
                fix="Name another directory, or put the right journal back from a copy.",
            )
        if is_mirrored(self.replica.state.tier):
            self.journal.mirror = _mirror.Mirror(self.disk, self.layout.mirror, self.world.clock)
        return torn[0] if torn is not None else None

    def refresh(self) -> None:
        """Catch up with what others have committed; writes nothing."""
        with self._guard:  # another thread's commit is folded once, by that thread
            self._read_on()

    def watch(self, take: Callable[[Sequence[Event]], None]) -> None:
        """Hand over the events committed since the last look; writes nothing."""

        def fold(events: list[Event]) -> None:
            self.replica.apply_all(events)
            take(events)

        self.journal.catch_up(fold)

    def _read_on(self) -> tuple[Damage, bytes] | None:
        """Fold what is new. Returns the torn tail behind it, if there is one.

        Raises CorruptError for damage that no unfinished commit explains.
        """
        if not self.journal.has_more():
            return None
        torn = None
        if self.journal.catch_up(self.replica.apply_all) is not None:
            known = committed_offset(self.disk, self.layout)
            torn = self.journal.judge(self.replica.apply_all, known)
        self.replica.state.unchained += self.journal.take_unchained()
        return torn
