"""The supervisor: looks at a task as it is, decides on one action, and has it delivered.

Job: :class:`Supervisor`: ``perdure monitor`` for one workspace. Invariants: it has no writer of
the journal, so it cannot author truth; looking changes nothing at all; acting changes nothing
but ``supervision.json``, under a lock of its own, and what is due is durable before it is sent: a
supervisor may be killed at any moment, and two of them do not send one thing twice. It never kills,
resumes or changes any work.
"""

import contextlib
import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.control.delivery import (
    Emit,
    Sender,
    Tally,
    deliver,
    is_deliverable,
    mark_shown,
    unshown,
)
from perdure.control.facts import gather_facts
from perdure.control.notify_channels import Courier
from perdure.control.notify_config import NotifyConfig, find_notify_file, read_notify_file
from perdure.control.outbox import take_note
from perdure.control.schedule import Crontab, line_for, mark_of
from perdure.control.supervision_report import Report, error_report, report_of
from perdure.core.codec import moment_least_s, moment_most_s
from perdure.core.model import State
from perdure.core.supervision import derive
from perdure.core.supervision_decide import decide_action
from perdure.core.supervision_records import Action, Derived, Schedule, SupervisionFile
from perdure.errors import BusyError, HaltError, UsageError
from perdure.ports import FileLock
from perdure.runtime.masking import masker_for
from perdure.runtime.reader import Reader
from perdure.runtime.world import World, real_world
from perdure.storage.supervision_file import SupervisionStore
from perdure.storage.workspace import is_workspace

lock_wait_s: Final = 2.0
"""How long a second supervisor waits for the first before it only looks."""
stop_patience_s: Final = 86_400.0
"""After STOP_AND_DELETE, how long it goes on for messages that no channel has taken."""
_lock_pause_s: Final = 0.05


class _Look(NamedTuple):
    state: State
    derived: Derived
    action: Action


class Supervisor:
    """Supervision of one workspace.

    ``config`` says where messages go: a
    :class:`~perdure.control.notify_config.NotifyConfig`, the path of a ``notify.yaml``, or None for
    the file that applies to the workspace, if there is one. ``emit`` is called with each message
    (a mapping) that goes to the terminal; without it nobody is at one, and what is for the terminal
    alone stays queued.
    """

    def __init__(
        self,
        workspace: str | os.PathLike[str],
        *,
        world: World | None = None,
        config: NotifyConfig | str | None = None,
        emit: Emit | None = None,
    ) -> None:
        self.workspace = os.path.abspath(os.fspath(workspace))
        self._world = world or real_world()
        self._config = config
        self._emit = emit
        masker = masker_for(self._world.environment)
        self._store = SupervisionStore(self._world.disk, self.workspace, masker)
        self._kept: FileLock | None = None
        """Held while messages of the last report are on their way to whoever is to see them."""

    def evaluate(self, now: float | None = None) -> Report:
        """What supervision says at ``now`` (seconds since 1970), as a mapping. Changes nothing.

        Raises nothing for what is wrong with the workspace: then the report has ``state`` ERROR and
        an ``error`` with code, rule, message and fix. Raises UsageError for a ``now`` outside the
        years 1 to 9999.
        """
        at = self._moment(now)
        try:
            return self._evaluate(at)
        except HaltError as error:
            return error_report(self.workspace, error)

    def apply(self, now: float | None = None, *, until_shown: bool = False) -> Report:
        """The same, and does it: queues what is due, durably, and delivers what waits.

        ``now`` is the time of everything that is stored. A crash anywhere delivers again, under the
        same id, at most what was being sent. While another supervisor is at work it only looks, and
        the report says so (``applied`` is False). With ``until_shown`` it is at work until
        :meth:`shown` is called for the messages of the report, if there are any: nobody else finds
        them meanwhile. Raises as :meth:`evaluate`.
        """
        at = self._moment(now)
        try:
            self._require()
            if (kept := self._take_kept()) is not None:
                kept.close()
            lock = self._store.lock()
            try:
                if not self._acquire(lock):
                    notice = "another supervisor is at work here, so this one only looked"
                    return self._evaluate(at, notice)
                report = self._apply(at)
                if until_shown and report["messages"]:
                    self._kept = lock
                return report
            finally:
                if lock is not self._kept:
                    lock.close()
        except HaltError as error:
            return error_report(self.workspace, error)

    def shown(self, messages: Sequence[Report], now: float | None = None) -> None:
        """``messages`` of a report were shown to whoever is at the terminal: they have arrived.

        For programs that show them themselves. A crash before leaves them for the next report.
        Raises nothing: what cannot be marked now is in the next report again.
        """
        at = self._world.clock.now() if now is None else now
        with contextlib.suppress(HaltError), _Holding(self):
            file, _ = self._load(self._read().replica.state.task_id)
            config, _ = self._channels()
            if config is not None:
                mark_shown(file, config, {message["id"] for message in messages}, at)
                self._store.save(file)

    def schedule(self, interval_s: float, notify_file: str | None = None) -> bool:
        """Have cron run ``perdure monitor --apply`` every ``interval_s`` seconds.

        False: it does so already. It ends by itself at STOP_AND_DELETE. A crash in the middle
        leaves the crontab as it was or with the line. Raises NotFoundError without a workspace or a
        crontab, UsageError for an interval that cron cannot do, BusyError, StorageError.
        """
        self._require()
        line, mark = line_for(self.workspace, interval_s, notify_file), mark_of(self.workspace)
        with _Holding(self):
            file, _ = self._load(self._read().replica.state.task_id)
            former = file.schedule
            # Known before it is there: so a line that is there is always one that is taken out.
            file.schedule = Schedule(mark, interval_s, self._world.clock.now())
            self._store.save(file)
            try:
                return self._crontab().put(line, mark)
            except HaltError:
                file.schedule = former
                self._store.save(file)
                raise

    def unschedule(self) -> bool:
        """Take the line out of the crontab. False: there was none.

        Works for a workspace that is gone as well. Raises NotFoundError without a crontab,
        BusyError, StorageError.
        """
        marks = {mark_of(self.workspace)}
        if not is_workspace(self._world.disk, self.workspace):
            return self._remove_lines(marks)
        with _Holding(self):
            file, _ = self._load(self._read().replica.state.task_id)
            if file.schedule is not None:
                marks.add(file.schedule.mark)
            found = self._remove_lines(marks)
            if file.schedule is not None:
                file.schedule = None
                self._store.save(file)
            return found

    def _moment(self, now: float | None) -> float:
        at = self._world.clock.now() if now is None else now
        if not moment_least_s <= at <= moment_most_s:
            raise UsageError(
                "this moment is outside the years 1 to 9999.",
                code="bad_time",
                fix="Name one that a calendar has.",
            )
        return at

    # Looking

    def _require(self) -> None:
        """Before anything is created in a directory that is no workspace. Raises NotFoundError."""
        if not is_workspace(self._world.disk, self.workspace):
            self._read()

    def _read(self) -> Reader:
        reader = Reader(self.workspace, self._world, "recorder:supervisor")
        try:
            reader.load()
        finally:
            reader.journal.close()
        return reader

    def _look(self, reader: Reader, file: SupervisionFile, now: float) -> _Look:
        state = reader.replica.state
        derived = derive(state, gather_facts(reader, now), now)
        action = decide_action(
            derived, state.policies, file.memory, now, undelivered=len(file.pending)
        )
        return _Look(state, derived, action)

    def _evaluate(self, now: float, notice: str = "") -> Report:
        reader = self._read()
        loaded = self._store.load(reader.replica.state.task_id)
        notices = [notice] if notice else []
        if loaded.damage:
            notices.append(f"{self._store.path} {loaded.damage}; --apply sets it aside")
        return self._report(self._look(reader, loaded.file, now), loaded.file, notices)

    def _report(
        self,
        look: _Look,
        file: SupervisionFile,
        notices: list[str],
        tally: Tally | None = None,
        notify_error: HaltError | None = None,
    ) -> Report:
        return report_of(
            self.workspace,
            look.state,
            look.derived,
            look.action,
            file,
            notices=notices,
            tally=tally,
            notify_error=notify_error,
        )

    # Acting

    def _load(self, task_id: str) -> tuple[SupervisionFile, list[str]]:
        """The file, with a damaged one set aside. Under the lock."""
        loaded = self._store.load(task_id)
        if not loaded.damage:
            return loaded.file, []
        kept = self._store.set_aside()
        return loaded.file, [f"{self._store.path} {loaded.damage}; it is kept as {kept}"]

    def _apply(self, now: float) -> Report:
        reader = self._read()
        file, notices = self._load(reader.replica.state.task_id)
        look = self._look(reader, file, now)
        take_note(file, look.state, look.derived, look.action, now)
        self._store.save(file)
        config, notify_error = self._channels()
        tally, messages = Tally([], []), []
        if config is not None:
            sender = Sender(
                self.workspace,
                config,
                Courier(self._world.environment, self.workspace),
                self._emit,
                lambda: self._store.save(file),
            )
            tally = deliver(file, sender, now)
            if self._emit is None:
                messages = unshown(file, self.workspace, config)
        waits = config is None or is_deliverable(file, config)
        delivering = waits and now - (file.stopped_at or now) < stop_patience_s
        if look.action.state == "STOP_AND_DELETE":
            notices += self._end_schedule(file, delivering=delivering)
        report = self._report(look, file, notices, tally, notify_error)
        return {**report, "messages": messages, "delivering": delivering}

    def _channels(self) -> tuple[NotifyConfig | None, HaltError | None]:
        """Where messages go; a file that is wrong holds the messages, and nothing else."""
        if isinstance(self._config, NotifyConfig):
            return self._config, None
        disk, environment = self._world.disk, self._world.environment
        try:
            path = self._config or find_notify_file(disk, self.workspace, environment, ".")
            return (NotifyConfig() if path is None else read_notify_file(disk, path)), None
        except HaltError as error:
            return None, error

    def _end_schedule(self, file: SupervisionFile, *, delivering: bool) -> list[str]:
        """Take out the line of a task that is over, unless a message still needs it."""
        if file.schedule is None:
            return []
        if delivering:
            return ["the schedule stays until what is queued is delivered, a day at most"]
        try:
            self._remove_lines({file.schedule.mark, mark_of(self.workspace)})
        except HaltError as error:
            return [f"the schedule could not be removed: {error.message}"]
        file.schedule = None
        self._store.save(file)
        return ["the schedule was removed"]

    def _remove_lines(self, marks: set[str]) -> bool:
        crontab = self._crontab()
        removed = [mark for mark in sorted(marks) if crontab.remove(mark)]
        return bool(removed)

    def _crontab(self) -> Crontab:
        return Crontab(self._world.environment, self._world.disk, self._world.clock)

    def _take_kept(self) -> FileLock | None:
        kept, self._kept = self._kept, None
        return kept

    def _acquire(self, lock: FileLock) -> bool:
        clock = self._world.clock
        give_up_at = clock.monotonic() + lock_wait_s
        while not lock.try_acquire():
            if clock.monotonic() >= give_up_at:
                return False
            clock.sleep(_lock_pause_s)
        return True


class _Holding:
    """The supervision lock for the length of a block. Raises BusyError."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        kept = supervisor._take_kept()
        self._is_held = kept is not None
        self._lock = kept or supervisor._store.lock()

    def __enter__(self) -> None:
        if not (self._is_held or self._supervisor._acquire(self._lock)):
            self._lock.close()
            raise BusyError(
                f"another supervisor is at work in {self._supervisor.workspace}.",
                code="supervisor_busy",
                fix="Try again in a moment.",
            )

    def __exit__(self, *_: object) -> None:
        self._lock.close()
