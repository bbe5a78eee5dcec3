"""The commit: lock, catch up, decide, append and sync, fold, acknowledge, project.

Job: keep one replica of one workspace and let commands change it, alone or beside other
processes. Invariants: nothing is visible (replica, files moved, projections, return value) before
its events are durable; each commit is made under the operating system's lock, by a holder whose
epoch is current or while nobody coordinates; after a failed write or sync the engine refuses
everything, and only a new one, which reads the file again, goes on. It takes no decision itself
and knows no rule of the protocol.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from perdure.core.codec import Damage, timestamp
from perdure.core.commands import Command, Context, Decision, FileMove
from perdure.core.decide import decide
from perdure.core.events import Draft, Event
from perdure.core.late import LateModule
from perdure.core.model import Policies
from perdure.core.on_disk import Fragment, name_fragment, register_fragment
from perdure.errors import HaltError, RefusedError, StorageError, invariant
from perdure.ports import FileLock
from perdure.runtime import batching, recalls
from perdure.runtime.batching import Batch, Committed, check_no_op_in_batch, check_size
from perdure.runtime.locking import open_lock, wait_for_lock
from perdure.runtime.masking import counted, encode_masked
from perdure.runtime.reader import Reader
from perdure.runtime.world import World
from perdure.storage.lease import Lease
from perdure.storage.spool import Stamp

_mirroring: Final = LateModule("perdure.runtime.mirroring")
ingest_interval_s: Final = 0.005
"""Commits that follow each other faster do not each look into the drop box."""


class _Writing:
    """The writer lock as a context. A class, because every commit pays for entering it."""

    __slots__ = ("_engine",)

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    def __enter__(self) -> None:
        engine = self._engine
        engine._guard.acquire()
        try:
            if not engine._depth:
                engine._check_usable()
                engine.lock()
            engine._depth += 1
            if engine._depth == 1:
                engine._prepare()
        except BaseException:
            self._leave()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        try:
            if kind is None and self._engine._depth == 1:
                self._engine._project_when_due()
        finally:
            self._leave()

    def _leave(self) -> None:
        engine = self._engine
        if engine._depth == 1:
            engine.unlock()
        engine._depth = max(0, engine._depth - 1)
        engine._guard.release()


class Engine(Reader):
    """One process's hold on one workspace."""

    def __init__(self, root: str, world: World, actor: str) -> None:
        super().__init__(root, world, actor)
        self.lease: Lease | None = None
        self.fragments: list[Fragment] = []
        """Bytes set aside by this engine that no event names yet."""
        self.ingest: Callable[[Engine], object] | None = None
        """Takes in what was left for the task: called under the lock before a commit, but not again
        within ``ingest_interval_s``, and by every tick."""
        self.on_pause: Callable[[str, str | None], Committed] | None = None
        """Set by a run loop, which has to come to a commit boundary before it can pause."""
        self.spool_stamp: Stamp | None = None
        self.taken_stamp: Stamp | None = None
        self.stays_in_box: set[str] = set()
        """Names in the drop box that are settled and cannot be removed."""
        self.masked_before: dict[str, int] = {}
        """What was masked in the call that commits next, before it was decided (SE-1)."""
        self._lock: FileLock | None = None
        self._depth = 0
        self._batch: Batch | None = None
        self._broken: HaltError | None = None
        self._closed = False
        self._wrote = False
        self._renew_at = self._ingest_at = self._entered_at = 0.0

    def refresh(self) -> None:
        """Catch up with what others have committed; a batch under way stays as it is."""
        with self._guard:
            if self._batch is None:
                super().refresh()

    # Writing

    def execute(self, command: Command, *, op: str | None = None) -> Committed:
        """Decide a command and commit what it comes to.

        On return its events are durable and folded. A refusal (HaltError) leaves everything as it
        was. A crash leaves either the whole commit or nothing. With ``op`` the same id again
        answers with the first result and writes nothing.
        """
        with self.writing():
            if self._batch is not None:
                check_no_op_in_batch(op)
                return self._execute_in_batch(self._batch, command)
            before = self.repeated(op)
            if before is not None:
                return before
            decision = self._decide(command)
            if not decision.drafts:
                return Committed(decision.answer, (), True)
            events = self.commit(decision.drafts, op=op)
            self.move_files(decision.moves)
            return Committed(events[0].ref, events)

    def repeated(self, op: str | None) -> Committed | None:
        """The first result of an op id that was committed before; None for a new one."""
        seq = None if op is None else self.replica.state.ops.get(op)
        return None if seq is None else Committed(f"J-{seq}", (), True)

    def _decide(self, command: Command) -> Decision:
        decision = decide(self.replica, command, self.context())
        return counted(self, decision) if self.masked_before else decision

    def context(self) -> Context:
        """Who asks, and when."""
        return Context(self.world.clock.now(), self.actor)

    def _execute_in_batch(self, batch: Batch, command: Command) -> Committed:
        batch.check_actor(self.actor)
        decision = self._decide(command)
        if not decision.drafts:
            said = tuple(event for event in batch.events if event.ref == decision.answer)
            return Committed(decision.answer, said, True)
        batch.ts = batch.ts or timestamp(self.world.clock.now())
        commit = encode_masked(self, batch.tip, decision.drafts, ts=batch.ts, op=batch.op)
        batch.hold(self.replica.state, decision, commit)
        self.replica.apply_all(commit.events)
        return Committed(commit.events[0].ref, commit.events)

    @contextmanager
    def batch(self, *, op: str | None = None) -> Iterator[None]:
        """Everything inside becomes one commit at the end, or nothing at all.

        Inside, this engine already sees the effects; nobody else does. An exception inside, or a
        failed commit, throws them away and reads the workspace again.
        """
        with self._guard, self.writing():
            if self._batch is not None:
                check_no_op_in_batch(op)
                yield
                return
            batch = self._batch = Batch(self.journal.tip, op, self.actor)
            try:
                yield
                self._batch = None
                if batch.drafts:
                    batching.make_durable(self.disk, batch.unsynced)
                    events = self._append(batch.drafts, op, batch.ts)
                    # Folded already, but for what the commit holds besides.
                    self.replica.apply_all(events[len(batch.drafts) :])
                    recalls.tell(self.disk, self.layout.root, batch.voids, events)
            except BaseException:
                self._batch = None
                self._forget_provisional()
                raise
            self.move_files(batch.moves)

    def make_durable(self, path: str) -> None:
        """Sync a file and its name: at once, or with others before the batch's commit."""
        if self._batch is None:
            batching.make_durable(self.disk, [path])
        else:
            self._batch.unsynced.append(path)

    @property
    def moves_after_commit(self) -> bool:
        """Whether the batch under way has files to move once it is committed."""
        return self._batch is not None and bool(self._batch.moves)

    def _forget_provisional(self) -> None:
        """Bring the replica back to what is committed, after a batch that was not."""
        try:
            self.load()
        except HaltError as error:  # the batch's own failure is what the caller must hear of
            self._broken = self._broken or error

    def commit(self, drafts: Sequence[Draft], *, op: str | None = None) -> tuple[Event, ...]:
        """Make these events durable, then fold them. The caller is inside ``writing``."""
        invariant(self._depth, "commit outside the writer lock")
        voids = recalls.recalled_by(self.replica.state, drafts, self.actor)
        events = self._append(drafts, op)
        self.replica.apply_all(events)
        recalls.tell(self.disk, self.layout.root, voids, events)
        return events[: len(drafts)]

    def _append(self, drafts: Sequence[Draft], op: str | None, ts: str = "") -> tuple[Event, ...]:
        """Commit the drafts, and in the same commit what was set aside and not yet recorded."""
        self._check_usable()
        if self.fragments:
            drafts = [*drafts, *map(register_fragment, self.fragments)]
        ts = ts or timestamp(self.world.clock.now())
        commit = encode_masked(self, self.journal.tip, drafts, ts=ts, op=op)
        check_size(commit)
        try:
            self.journal.append(commit)
        except HaltError as error:
            self._broken = error
            raise
        self.fragments, self._wrote = [], True
        return commit.events

    @property
    def epoch(self) -> int:
        """The epoch that commits carry."""
        return self.lease.epoch if self.lease is not None else max(1, self.replica.state.epoch)

    def writing(self) -> _Writing:
        """Hold the writer lock, caught up and entitled to commit. Re-entrant in one thread."""
        return _Writing(self)

    @contextmanager
    def locked_by_caller(self) -> Iterator[None]:
        """Commit inside, under a lock that the caller took with ``lock`` and has caught up."""
        invariant(not self._depth, "the writer lock is not re-entered this way")
        self._depth = 1
        try:
            yield
        finally:
            self._depth = 0

    @property
    def is_usable(self) -> bool:
        """Whether this object may still commit: no write has failed and nobody closed it."""
        return self._broken is None and not self._closed

    def _check_usable(self) -> None:
        if self._closed:
            raise RefusedError(
                "this object was closed.", code="closed", fix="Open the workspace again."
            )
        if self._broken is not None:
            raise StorageError(
                f"an earlier failure ended this object: {self._broken.message}",
                code=self._broken.code,
                fix="Put the cause right, then open the workspace again.",
            ) from self._broken

    def lock(self) -> None:
        """Take the operating system's lock, waiting at most ``lock_wait_s``."""
        if self._lock is None:
            self._lock = open_lock(self.disk, self.layout.journal_lock, self.replica.state)
        if not self._lock.try_acquire():
            wait_for_lock(self._lock, self.world.clock, self.layout.root)

    def unlock(self) -> None:
        """Give the operating system's lock back."""
        if self._lock is not None:
            self._lock.release()

    def _prepare(self) -> None:
        """Under the lock: may this engine write, and does it know everything? (J-4)"""
        now = self._entered_at = self.world.clock.monotonic()
        if self.lease is not None:
            if not self.lease_file.is_current(self.lease.epoch):
                raise self.lease_file.fenced(self.lease.epoch)
            if now >= self._renew_at:
                self.renew()
        else:
            self.lease_file.check_free()
        torn = self._read_on()
        if self.journal.mirror is not None:
            torn = _mirroring.agree(self, torn).torn
        if torn is not None:
            self.set_aside(*torn)
        self.journal.write_again()
        if now >= self._ingest_at and self.ingest is not None:
            self._ingest_at = now + ingest_interval_s
            self.ingest(self)

    def set_aside(self, damage: Damage, tail: bytes) -> None:
        """Copy a torn tail to ``tmp/recovered`` and cut it; the next commit registers the copy."""
        fragment = name_fragment(self.journal.tip.offset, damage.reason, tail)
        self.disk.make_dirs(self.layout.recovered)
        self.disk.replace(f"{self.layout.root}/{fragment.path}", tail, durable=True)
        self.journal.cut()
        self.fragments.append(fragment)

    def move_files(self, moves: Sequence[FileMove]) -> None:
        """Carry out the moves a commit has ordered. Recovery repeats what a crash left undone.

        A failure ends this object, although the commit stands: only recovery may go on.
        """
        try:
            batching.carry_out(self.disk, self.layout.root, moves)
        except StorageError as error:
            self._broken = error
            raise

    def project(self) -> None:
        """Renew the projections now."""
        self.projector.write(self.replica, self.journal.tip)

    def _project_when_due(self) -> None:
        if self.lease is not None and self._entered_at < self.projector.due_at:
            return
        # A projection must not speak of lines that a power cut may still take.
        if self._batch is None and self._broken is None and self.journal.is_durable:
            self.projector.write_when_due(
                self.replica, self.journal.tip, coordinating=self.lease is not None
            )

    # The lease

    def tick(self) -> None:
        """What a coordinator owes while nothing is committed: renew the lease, take messages in,
        bring the projections up to date. Raises FencedError when another one took over."""
        self._ingest_at = 0.0
        with self.writing():
            pass

    @contextmanager
    def acting_as(self, actor: str) -> Iterator[None]:
        """Commit inside under another actor's name: the one whose message is carried out."""
        own, self.actor = self.actor, actor
        try:
            yield
        finally:
            self.actor = own

    def renew(self) -> None:
        """Push the expiry of our own lease into the future."""
        if self.lease is not None:
            self.lease = self.lease_file.renew(self.lease)
            pause_s = self.replica.state.policies.lease_ttl_s / 3
            self._renew_at = self.world.clock.monotonic() + pause_s

    def take_lease(self, policies: Policies) -> str:
        """Become the coordinator. The caller holds the lock. Returns why it was taken over."""
        ttl_s = policies.lease_ttl_s
        self.lease, over = self.lease_file.acquire(self.actor, ttl_s, self.replica.state.epoch)
        self._renew_at = self.world.clock.monotonic() + ttl_s / 3
        return over or ""

    def close(self, *, project: bool = True) -> None:
        """Write the projections, give the lease back and let go. Safe to call again.

        Also after a failure, but then without projections: the next holder recovers anyway.
        Called inside a batch, it ends the batch with nothing committed.
        """
        with self._guard:
            lease, self.lease = self.lease, None
            self._closed = True
            self._let_go(lease, project=project and self._broken is None and self._batch is None)
            self.journal.close()
            if self._lock is not None and not self._depth:
                self._lock.close()

    def _let_go(self, lease: Lease | None, *, project: bool) -> None:
        """Leave fresh projections behind, unless others have committed since, and no lease."""
        if lease is not None and lease.pid != self.world.processes.me().pid:
            return  # a fork of the holder: the lease is not its to give back
        if lease is None and not (project and self._wrote):
            return
        try:
            if not self._depth:
                self.lock()
        except HaltError:
            return  # the lease of a dead process is taken over at once, so nothing is lost
        try:
            tip = self.journal.tip
            if lease is None:
                ours = self.journal.size() == tip.offset and self.projector.tail_is_long(tip)
            else:
                ours = self.lease_file.is_current(lease.epoch)
            stale = project and tip.seq != self.projector.written.seq
            if ours and stale and self.journal.is_durable:
                self.project()
            if ours and lease is not None:
                self.lease_file.release(lease)
        except HaltError:
            pass  # as above; and readers replay the tail behind a projection
        finally:
            if not self._depth:
                self.unlock()
