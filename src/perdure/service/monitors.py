"""Supervising workspaces, one or many, once or for as long as there is something to supervise.

Job: find the workspaces and the file that says where messages go, look at each, and keep going when
asked to. Invariants: a workspace that cannot be looked at hides no other; nothing is created and
nothing written where nothing is to be applied; whoever interrupts a watch finds everything durable
that was done.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from threading import Event
from typing import Any, Final

from perdure.control.notify_config import VARIABLE, read_notify_file
from perdure.control.supervisor import Supervisor
from perdure.core.codec import timestamp
from perdure.core.durations import seconds_of
from perdure.errors import HaltError, UsageError
from perdure.runtime.world import World, real_world
from perdure.service.tasks import locate
from perdure.storage.workspace import find_workspace, is_workspace

Data = dict[str, Any]
Emit = Callable[[Data], None]

watch_interval_default_s: Final = 60.0
schedule_interval_default_s: Final = 300.0
watch_interval_least_s: Final = 0.1
_tick_s: Final = 0.2
"""How soon a watch notices that it is to end."""


class Monitoring:
    """The workspaces that one call of ``perdure monitor`` is about."""

    def __init__(
        self,
        named: Sequence[str],
        *,
        directory: str | None,
        start_dir: str,
        environ: Mapping[str, str],
        notify: str | None = None,
        emit: Emit | None = None,
        shows: bool = False,
        world: World | None = None,
    ) -> None:
        """``named`` are directories: workspaces, or projects, which mean their current task.

        Without any it is the workspace that every command means. ``notify`` names the file of
        channels; ``emit`` gets each message for the terminal. With ``shows`` the caller shows those
        it finds in what was looked at, and calls :meth:`shown`. Raises NotFoundError without a
        workspace, and for a ``notify`` that is not there; UsageError for one that is invalid.
        """
        self.world = world or real_world()
        self._end = Event()
        given = [os.path.abspath(os.path.join(start_dir, name)) for name in named]
        found = [self._workspace(path) for path in given] or [locate(directory, start_dir, environ)]
        self.workspaces: Final = list(dict.fromkeys(found))
        self._shows = shows
        self._notify = self._notify_file(notify, start_dir, environ)
        if notify is not None and self._notify is not None:
            read_notify_file(self.world.disk, self._notify)
        self._supervisors = [
            Supervisor(path, world=self.world, config=self._notify, emit=emit)
            for path in self.workspaces
        ]

    def _workspace(self, path: str) -> str:
        """A workspace as it was named, or the current task of a project."""
        disk = self.world.disk
        if not is_workspace(disk, path) and disk.stat(os.path.join(path, ".perdure")) is not None:
            try:
                return find_workspace(disk, path, None)
            except HaltError:
                return path  # said in its report, beside those of the others
        return path

    @staticmethod
    def _notify_file(notify: str | None, start_dir: str, environ: Mapping[str, str]) -> str | None:
        named = notify or environ.get(VARIABLE)
        return os.path.abspath(os.path.join(start_dir, named)) if named else None

    def look(self, *, at: float | None = None, apply: bool = False) -> Data:
        """One look at each.

        ``at`` is the time of everything, also of what ``apply`` stores; None is now. Raises
        HaltError when none of them could be evaluated.
        """
        data = self._look(self.world.clock.now() if at is None else at, apply)
        errors = [report["error"] for report in data["reports"]]
        if all(errors):
            raise _failure(errors)
        return data

    def _look(self, now: float, apply: bool) -> Data:
        reports = [
            supervisor.apply(now, until_shown=self._shows) if apply else supervisor.evaluate(now)
            for supervisor in self._supervisors
        ]
        return {"generated_at": timestamp(now), "reports": reports}

    def watch(self, *, interval_s: float, apply: bool) -> Iterator[Data]:
        """Looks, one every ``interval_s`` seconds, until every task is over, or :meth:`end`.

        What could not be delivered yet keeps it going for a day after the end of its task.

        Raises HaltError when the first look could evaluate none. What cannot be evaluated later is
        looked at again, as a disk may come back.
        """
        data = self.look(apply=apply)
        while True:
            yield data
            if self._end.is_set() or all(map(_is_over, data["reports"])):
                return
            self._wait(max(interval_s, watch_interval_least_s))
            if self._end.is_set():
                return
            data = self._look(self.world.clock.now(), apply)

    def shown(self, data: Data) -> None:
        """The messages for the terminal in what was looked at have been printed. Raises nothing."""
        for supervisor, report in zip(self._supervisors, data["reports"], strict=True):
            if report["messages"]:
                supervisor.shown(report["messages"])

    def end(self, number: int = 0) -> None:
        """Ask a watch to end; it does so between two looks. May be called from a signal handler."""
        self._end.set()

    def _wait(self, seconds: float) -> None:
        clock = self.world.clock
        until = clock.monotonic() + seconds
        while not self._end.is_set() and (left := until - clock.monotonic()) > 0:
            clock.sleep(min(left, _tick_s))

    def schedule(self, interval_s: float) -> Data:
        """Have cron look at each, and apply. Raises as ``Supervisor.schedule``."""
        changed = {s.workspace: s.schedule(interval_s, self._notify) for s in self._supervisors}
        return {"scheduled": changed, "interval_s": interval_s}

    def unschedule(self) -> Data:
        """Have cron look at none of them. Raises as ``Supervisor.unschedule``."""
        return {"unscheduled": {s.workspace: s.unschedule() for s in self._supervisors}}

    def moment(self, text: str) -> float:
        """The moment that ``--at`` names: ISO-8601, or ``+1h`` and ``-10m`` from now.

        A time without an offset is one of this machine's. Raises UsageError.
        """
        if text[:1] in ("+", "-"):
            seconds = seconds_of(text[1:])
            if seconds is not None:
                return self.world.clock.now() + (seconds if text[0] == "+" else -seconds)
        try:
            return datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError, OSError):
            raise UsageError(
                f"{text!r} is not a moment.",
                code="bad_time",
                fix="Write it as 2026-12-01T10:00:00Z, or from now as +1h or +90m.",
            ) from None


def _is_over(report: Data) -> bool:
    return report["state"] == "STOP_AND_DELETE" and not report["delivering"]


def interval_of(text: str | None, default_s: float) -> float:
    """The seconds of ``--interval``. Raises UsageError."""
    if text is None:
        return default_s
    seconds = seconds_of(text)
    if not seconds:
        raise UsageError(
            f"{text!r} is not an interval.", code="bad_interval", fix="Write it as 30s, 5m or 1h."
        )
    return seconds


def _failure(errors: Sequence[Data]) -> HaltError:
    """That nothing could be evaluated, as the error it is."""
    first = errors[0]
    message = first["message"]
    if len(errors) > 1:
        message = f"none of {len(errors)} workspaces could be evaluated; of the first: {message}"
    failure = HaltError(
        message,
        code=first["code"],
        rule=first["rule"],
        fix=first["fix"],
        suggestions=first["suggestions"],
    )
    failure.exit_code = first["exit_code"]
    return failure
