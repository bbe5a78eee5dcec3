"""One process's hold on one job: record, checkpoint, let go.

Job: what each call of ``CheckpointedJob`` does, one at a time. Invariants: nothing counts before
its line is durable (JB-1); after a failed write or sync nothing is written any more, not even a
checkpoint, and only a new object, which reads the log again, goes on; whatever interrupts a call
in the middle counts as such a failure; a forked child and a superseded object write nothing. It
knows no item, no function and no policy.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import get_ident
from typing import Any, Final

import msgspec

from perdure.core.codec import timestamp
from perdure.errors import BusyError, HaltError, StorageError, UsageError
from perdure.jobs import endings
from perdure.jobs.checkpoints import Checkpoints
from perdure.jobs.exclusive import Claim
from perdure.jobs.lines import encode_value, item_hash
from perdure.jobs.log import FindingLog
from perdure.jobs.masked import check_cursor, masked_error, masked_line
from perdure.jobs.position import Position, decoded, shown_error
from perdure.jobs.recent import RecentFile
from perdure.jobs.records import ErrorEntry, Failure, Finding, Notice
from perdure.jobs.repair import TORN_NAME, clear_damage, utc_name
from perdure.jobs.scan import LogScan, group_bytes_max
from perdure.jobs.side_files import SideFiles
from perdure.runtime.masking import masker_for
from perdure.runtime.world import World

cursor_bytes_max: Final = 1 << 20


class _Turn:
    """A call that changes something, as a context. A class, because every record enters it."""

    __slots__ = ("_claim", "_engine")

    def __init__(self, engine: "JobEngine") -> None:
        self._engine = engine
        self._claim = engine.claim

    def __enter__(self) -> None:
        engine, claim = self._engine, self._claim
        if claim.lost:  # asked first: in a forked child the guard may be held for ever
            claim.refuse()
        engine.take_turn()
        try:
            engine.refuse()
        except BaseException:
            engine.end_turn()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        engine = self._engine
        ends = engine.end_wanted
        try:
            if kind is not None:
                engine.fail(error)
            if ends:
                engine.save_at_end_of_turn()
        finally:
            engine.end_turn()
        if ends:
            endings.go_on_ending()


class JobEngine:
    """An open job."""

    def __init__(
        self,
        world: World,
        claim: Claim,
        position: Position,
        log: FindingLog,
        recent: RecentFile,
        *,
        secrets: Sequence[str] = (),
    ) -> None:
        self.root = root = claim.root
        self.claim = claim
        self.position = position
        self.log = log
        self.recent = recent
        self.checkpoints = Checkpoints(world, root, position, log, recent)
        self.side_files = SideFiles(world.disk, root)
        self.failure: HaltError | None = None
        """What ended this object; nothing is written any more."""
        self.end_wanted = False
        self.masker = masker_for(world.environment, secrets)
        self._disk = world.disk
        self._now: Callable[[], float] = world.clock.now
        self._turn = _Turn(self)
        self._inside = 0
        """The thread whose turn it is; 0 while it is nobody's."""
        self._is_closed = False
        self._is_finished = False

    # Turns

    def take_turn(self) -> None:
        """Wait for the guard. Raises BusyError in a call from inside a call, which never ends."""
        guard = self.claim.guard
        if not guard.acquire(blocking=False):
            if self._inside == get_ident():
                raise BusyError(
                    f"the job in {self.root} was called from inside one of its own calls.",
                    code="job_busy",
                    rule="JB-3",
                    fix="Do not use a job in a signal handler; set a flag there instead.",
                )
            guard.acquire()
        self._inside = get_ident()

    def end_turn(self) -> None:
        """Let the next call have its turn."""
        self._inside = 0
        self.claim.guard.release()

    def refuse(self) -> None:
        """Raise what keeps this object from going on, if anything does."""
        if self.claim.lost:
            self.claim.refuse()
        failure = self.failure
        if failure is not None:
            raise type(failure)(
                f"nothing more is recorded in {self.root} since this failed: {failure.message}",
                code=failure.code,
                rule=failure.rule,
                fix=f"{failure.fix} Open the job again: that finds out what was written.",
            )

    def fail(self, error: object) -> None:
        """A call was broken off: what stands in the files is unknown from here on."""
        if isinstance(error, HaltError):
            self.failure = error
        else:
            self.failure = StorageError(
                f"a call on the job in {self.root} was interrupted ({type(error).__name__}).",
                code="interrupted",
                fix="Run it again.",
            )

    # Recording

    def is_done(self, digest: str) -> bool:
        """Whether the item of this hash is done. Takes no lock."""
        lost = self.claim.lost
        if lost and lost != "closed":
            self.claim.refuse()
        return digest in self.position.completed

    def record_finding(self, key: str, payload: Mapping[str, Any] | None, item: str | None) -> bool:
        """As ``CheckpointedJob.record_finding``."""
        at = timestamp(self._now())
        digest, line = masked_line(self.masker, key, {} if payload is None else payload, at, item)
        with self._turn:
            if digest in self.position.completed:
                return False
            self.log.append(line, line)
            self.position.add_finding(digest, key, at, line)
            self.checkpoints.after(1)
        return True

    def record_error(self, key: str, error: object) -> int:
        """As ``CheckpointedJob.record_error``."""
        digest = item_hash(key)
        # Before the turn: the object's own code may raise.
        text = masked_error(self.masker, key, shown_error(error))
        at = timestamp(self._now())
        with self._turn:
            if digest in self.position.completed:
                return 0
            entry = self.position.failed_again(key, text, at)
            self.recent.add_errors([entry])
            self.position.add_error(entry)
            self.checkpoints.after(1)
        return entry.attempts

    def record_many(self, outcomes: Sequence[Finding | Failure]) -> int:
        """As ``CheckpointedJob.record_many``."""
        at = timestamp(self._now())
        lines: dict[str, tuple[str, bytes]] = {}
        failures: dict[str, tuple[str, str]] = {}
        for outcome in outcomes:
            if isinstance(outcome, Finding):
                payload = outcome.payload
                digest, line = masked_line(self.masker, outcome.key, payload, at, outcome.item)
                lines.setdefault(digest, (outcome.key, line))
            else:
                text = masked_error(self.masker, outcome.key, shown_error(outcome.error))
                failure = outcome.key, text
                failures.setdefault(item_hash(outcome.key), failure)
        with self._turn:
            completed = self.position.completed
            fresh = [(name, *line) for name, line in lines.items() if name not in completed]
            for group in _groups(fresh):
                self._append_group(group, at)
            entries = [
                self.position.failed_again(key, text, at)
                for digest, (key, text) in failures.items()
                if digest not in completed
            ]
            if entries:
                self.recent.add_errors(entries)
                for entry in entries:
                    self.position.add_error(entry)
            if fresh or entries:
                self.checkpoints.after(len(fresh) + len(entries))
        return len(fresh)

    def _append_group(self, group: list[tuple[str, str, bytes]], at: str) -> None:
        self.log.append(b"".join([line for _, _, line in group]), group[-1][2])
        for digest, key, line in group:
            self.position.add_finding(digest, key, at, line)

    @property
    def cursor(self) -> Any:
        """As ``CheckpointedJob.cursor``."""
        return decoded(self.position.cursor)

    def set_cursor(self, value: Any) -> None:
        """As ``CheckpointedJob.set_cursor``."""
        data = encode_value(value, "cursor")
        check_cursor(self.masker, data)
        if len(data) > cursor_bytes_max:
            raise UsageError(
                f"the cursor has {len(data)} bytes as JSON; {cursor_bytes_max} is the most.",
                code="cursor_too_long",
                rule="JB-4",
                fix="Keep where the listing stands in it, not what was listed.",
            )
        at = timestamp(self._now())
        with self._turn:
            self.position.set_cursor(data, at)

    # Checkpoints and the end

    def checkpoint(self) -> None:
        """As ``CheckpointedJob.checkpoint``."""
        with self._turn:
            self.checkpoints.write("running")

    def finish(self) -> None:
        """As ``CheckpointedJob.finish``."""
        if self._is_finished:
            return
        at = timestamp(self._now())
        with self._turn:
            self.position.finish(at)
            self.checkpoints.write("finished")
            self._is_finished = True
        self.close()

    def close(self) -> None:
        """As ``CheckpointedJob.close``. Does nothing in a forked child."""
        if self._is_closed or self.claim.lost == "forked":
            return
        self.take_turn()
        try:
            self._let_go()
        finally:
            self.end_turn()
            if self.end_wanted:  # nobody asks a job again that is not open any more
                self.end_wanted = False
                endings.go_on_ending()

    def _let_go(self) -> None:
        if self._is_closed:  # by another thread, meanwhile
            return
        self._is_closed = True
        try:
            if not self.claim.lost and self.failure is None:
                self.checkpoints.end("stopped")
        finally:
            self.log.close()
            self.recent.close()
            endings.unwatch(self)
            self.claim.release()

    def save_for_end(self) -> bool:
        """As ``endings.Saved``."""
        guard = self.claim.guard
        if not guard.acquire(blocking=False):
            self.end_wanted = True
            # That call may have ended before it could see this.
            if not guard.acquire(blocking=False):
                return False
        try:
            self.save_at_end_of_turn()
        finally:
            guard.release()
        return True

    def save_at_end_of_turn(self) -> None:
        """A last checkpoint of a process that was told to end; nobody is left to hear of errors."""
        self.end_wanted = False
        if not self.claim.lost and self.failure is None:
            with suppress(HaltError):
                self.checkpoints.end("stopped")

    # Looking

    def state(self) -> dict[str, Any]:
        """As ``CheckpointedJob.state``."""
        return self.position.mapping()

    def errors(self) -> list[ErrorEntry]:
        """As ``CheckpointedJob.errors``."""
        return list(self.position.errors.values())

    # The error queue and what cannot be proven

    def reset_attempts(self, keys: Iterable[str] | None) -> int:
        """As ``CheckpointedJob.reset_attempts``."""
        wanted = None if keys is None else {item_hash(key) for key in keys}
        with self._turn:
            count = 0
            for digest, entry in self.position.errors.items():
                if wanted is None or digest in wanted:
                    self.position.errors[digest] = msgspec.structs.replace(entry, attempts=0)
                    count += 1
            if count:
                self.position.changes += 1
                self.checkpoints.write("running")
        return count

    def forget(self, hashes: Iterable[str]) -> int:
        """As ``CheckpointedJob.forget``."""
        with self._turn:
            proven: dict[str, str] = {}
            LogScan(0, proven).read(self._disk, self.log.path)
            dropped, changed = self.position.keep_proven(hashes, proven)
            if changed:
                self.checkpoints.write("running")
        return dropped

    def set_damage_aside(self, forget: Iterable[str] | None = None) -> int:
        """As ``CheckpointedJob.set_damage_aside``."""
        utc = utc_name(self._now())
        with self._turn:
            self.log.check_in_place()
            proven: dict[str, str] | None = None if forget is None else {}
            count = clear_damage(self._disk, self.root, utc, proven)
            changed = bool(count or self.position.damage.total)
            if changed:
                notice = None
                if count:
                    message = (
                        f"{count} lines of {self.log.path} that are no findings were set aside in"
                        f" {self.root}/{TORN_NAME} and blanked, as was asked for."
                    )
                    fix = "Nothing needs to be done: items that have no other line run again."
                    notice = Notice("set_aside", None, None, message, fix)
                self.position.settle_damage(notice)
            if forget is not None and proven is not None:
                changed = self.position.keep_proven(forget, proven)[1] or changed
            if changed:
                self.checkpoints.write("running")
        return count

    def write_artifact(self, name: str, data: bytes) -> None:
        """As ``CheckpointedJob.write_artifact``; not a turn, so several threads may write."""
        self.refuse()
        self.side_files.write(name, data)


def _groups(
    findings: list[tuple[str, str, bytes]],
) -> Iterable[list[tuple[str, str, bytes]]]:
    """Findings that share an append: at most ``group_bytes_max`` together, or a single one."""
    group: list[tuple[str, str, bytes]] = []
    size = 0
    for finding in findings:
        length = len(finding[2])
        if group and size + length > group_bytes_max:
            yield group
            group, size = [], 0
        group.append(finding)
        size += length
    if group:
        yield group
