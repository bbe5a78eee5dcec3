"""One command of a node: started, watched, stopped, and nothing of it left behind unseen.

Job: run a command in a session of its own with its output going to files, and say how it ended.
Invariants: what the child prints does not pass through this process, so its output survives our
death; nothing here blocks (the run loop waits on :meth:`RunningCommand.waitables`); a command is
not over until everything in its session, and everything that carries its invocation, is gone or
named (field case F13); without ``wall_s`` nothing is ever stopped for being silent (F12).
Never: interprets output as success, retries, or takes part in the journal.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final, Literal, NamedTuple

import msgspec

from perdure.control.child_files import ChildFiles
from perdure.control.child_log import ChildLog
from perdure.control.confinement import Confinement, capability, start_confined
from perdure.control.leftovers import Census, Sweep, SweepTimes, leftover_settle_s
from perdure.control.log_pump import LogPump
from perdure.control.outcome import Ended, classify, seconds_text
from perdure.errors import StorageError
from perdure.ports import Clock, Disk
from perdure.runtime.orphans import (
    INVOCATION_VARIABLE,
    Orphan,
    PidRecord,
    close_pidfd,
    descendants,
    open_pidfd,
    start_time,
    wait_for_any,
)

__all__ = ["Ended", "RunningCommand", "classify", "start_command", "wait_for_commands"]

stop_grace_s: Final = 10.0
"""Between SIGTERM and SIGKILL."""
end_wait_s: Final = 10.0
"""How long a run that failed waits for what it has killed; what hangs in the kernel stays."""


class _Exit(NamedTuple):
    code: int | None
    signal: int | None


def start_command(
    command: str | tuple[str, ...],
    *,
    cwd: str,
    environment: Mapping[str, str],
    log_path: str,
    record_path: str,
    wall_s: float | None,
    clock: Clock,
    disk: Disk,
    grace_s: float = stop_grace_s,
    output_path: str = "",
    error_path: str = "",
    input_path: str = "",
    census: Census | None = None,
    confinement: Confinement | None = None,
    pump: LogPump | None = None,
) -> "RunningCommand":
    """Start it and return at once.

    A text runs as ``/bin/sh -c``, a tuple as it stands. ``environment`` is all the child has;
    PERDURE_INVOCATION and PERDURE_NODE in it name what it belongs to. Output and error are appended
    to ``log_path``, or one of them to ``output_path`` or ``error_path``; its input is the file
    ``input_path``, or empty. ``record_path`` holds a PidRecord while the child lives. ``census``
    spares a look at every process at the end; ``confinement`` is what it is held to; with ``pump``
    its output is masked on the way. If this process dies, the child goes on, and ``find_orphans``
    finds it. A command that cannot be started
    is an :class:`Ended`; a file that cannot be opened or written here is a StorageError, and then
    no child is left running.
    """
    running = RunningCommand(
        log_path=log_path,
        record_path=record_path,
        invocation=environment.get(INVOCATION_VARIABLE, ""),
        node=environment.get("PERDURE_NODE", ""),
        wall_s=wall_s,
        grace_s=grace_s,
        clock=clock,
        disk=disk,
        census=census,
        pump=pump,
    )
    _let_children_be_waited_for()
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    files = {"output_path": output_path, "error_path": error_path, "input_path": input_path}
    shell = isinstance(command, str)
    running.spawn(words, cwd, environment, **files, confinement=confinement, shell=shell)
    return running


class RunningCommand:
    """A started command. Not for several threads at once."""

    def __init__(
        self,
        *,
        log_path: str,
        record_path: str,
        invocation: str,
        node: str,
        wall_s: float | None,
        grace_s: float,
        clock: Clock,
        disk: Disk,
        census: Census | None = None,
        pump: LogPump | None = None,
    ) -> None:
        self.pid = 0
        """Of its first process, which leads its session; 0 when it could not be started."""
        self.invocation = invocation
        self.node = node
        self._log = ChildLog(log_path, disk)
        self._record_path = record_path
        self._wall_s = wall_s
        self._grace_s = grace_s
        self._clock = clock
        self._disk = disk
        self._census = census
        self._pump = pump
        self._pumped: list[str] = []
        self._log_problem = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._started_at = clock.monotonic()
        self._ended_at: float | None = None
        self._ended: Ended | None = None
        self._stop_how: Literal["timed_out", "stopped"] | None = None
        self._stop_reason = ""
        self._kill_at: float | None = None
        self._killed = False
        self._confined = False
        self._shell = False
        self._sweep: Sweep | None = None
        self._family: list[Orphan] = []

    def spawn(
        self,
        words: list[str],
        cwd: str,
        environment: Mapping[str, str],
        *,
        output_path: str = "",
        error_path: str = "",
        input_path: str = "",
        confinement: Confinement | None = None,
        shell: bool = False,
    ) -> None:
        """For :func:`start_command`: open its files, start the child, write its record."""
        self._shell = shell
        with ChildFiles(self._disk, self._pump) as files:
            log, size_bytes = files.to_print(self._log.path)
            self._log.begin(size_bytes)
            output = files.to_print(output_path).descriptor if output_path else log
            error = files.to_print(error_path).descriptor if error_path else log
            given = files.to_read(input_path) if input_path else subprocess.DEVNULL
            self._pumped = files.pumped
            try:
                if not words:
                    raise ValueError("it is empty")
                start = partial(
                    _start_in_session, words, cwd, dict(environment), (given, output, error)
                )
                self._process = process = start_confined(confinement, start)
                self._confined = confinement is not None and capability().writes
            except (OSError, ValueError, subprocess.SubprocessError) as problem:
                reason = f"{words[0] if words else 'The command'} could not be started: {problem}"
                self._ended = Ended("not_started", log_tail=reason, reason=reason)
                return
        self.pid = process.pid
        if self._census is not None:
            self._census.expect(self.pid)
        self._pidfd = open_pidfd(self.pid)
        try:
            record = PidRecord(self.pid, start_time(self.pid), self.invocation, self.node)
            self._disk.replace(self._record_path, msgspec.json.encode(record), durable=False)
        except BaseException:
            self._signal_group(signal.SIGKILL)
            process.wait()
            self._forget()
            raise

    def poll(self) -> Ended | None:
        """How it ended, or None while any of it runs. Never blocks; call it when woken.

        This is also what enforces the time limit, sends the signals that are due, and stops what
        the command left behind: see :meth:`due_in_s`. After the end the same answer every time.
        """
        if self._ended is not None:
            return self._ended
        now = self._clock.monotonic()
        if self._ended_at is None:
            if not self._has_ended():
                self._enforce(now)
                return None
            self._ended_at = now
            self._flush_log()
            self._sweep = Sweep(
                self.invocation,
                self.node,
                self.pid,
                self._family,
                self._sweep_times(now),
                census=self._census,
            )
        assert self._sweep is not None
        if self._sweep.step(now):
            self._ended = self._close(self._sweep)
        else:
            self._log.mark_end()
        return self._ended

    def stop(self, reason: str, *, grace_s: float | None = None) -> None:
        """Begin the stop sequence: SIGTERM to its group now, SIGKILL after the grace.

        Returns at once; :meth:`poll` finishes the job. Harmless when it has already ended or is
        being stopped, except that a shorter ``grace_s`` then brings SIGKILL forward.
        """
        if self._ended is None and self._ended_at is None and not self._has_ended():
            self._begin_stop("stopped", reason)
        if grace_s is None:
            return
        kill_at = self._clock.monotonic() + grace_s
        if self._sweep is not None:
            self._sweep.hasten(kill_at)
        elif self._kill_at is not None:
            self._kill_at = min(self._kill_at, kill_at)

    def waitables(self) -> list[int]:
        """Descriptors that become readable when :meth:`poll` may have news; -1 where it must be
        called without being woken."""
        if self._ended is not None:
            return []
        return [self._pidfd] if self._sweep is None else self._sweep.waitables()

    def due_in_s(self) -> float | None:
        """When :meth:`poll` has to be called even if nothing wakes; None: not before that."""
        if self._ended is not None:
            return 0.0
        now = self._clock.monotonic()
        if self._sweep is not None:
            return max(0.0, self._sweep.due_at(now) - now)
        if self._kill_at is not None:
            return None if self._killed else max(0.0, self._kill_at - now)
        if self._wall_s is not None:
            return max(0.0, self._started_at + self._wall_s - now)
        return None

    def _has_ended(self) -> bool:
        """Without reaping it: while it is a zombie, its pid and its group can be nobody else's."""
        assert self._process is not None
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        try:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.pid, options) is not None
        except ChildProcessError:
            return True

    def _enforce(self, now: float) -> None:
        if self._stop_how is None:
            if self._wall_s is not None and now >= self._started_at + self._wall_s:
                self._begin_stop("timed_out", f"the time limit of {seconds_text(self._wall_s)}")
        elif self._kill_at is not None and now >= self._kill_at and not self._killed:
            self._killed = True
            self._signal_group(signal.SIGKILL)

    def _begin_stop(self, how: Literal["timed_out", "stopped"], reason: str) -> None:
        if self._stop_how is not None:
            return
        self._stop_how = how
        self._stop_reason = reason
        self._kill_at = self._clock.monotonic() + self._grace_s
        # Children that moved to sessions of their own are only known as long as it lives.
        self._family = descendants(self.pid, self.invocation, self.node)
        self._signal_group(signal.SIGTERM)
        # One that is suspended cannot act on SIGTERM.
        self._signal_group(signal.SIGCONT)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _sweep_times(self, now: float) -> SweepTimes:
        settled = now + leftover_settle_s
        if self._kill_at is None:
            return SweepTimes(term_at=settled, kill_at=settled + self._grace_s)
        # Time to vanish for what the last signal to the group reached a moment ago.
        return SweepTimes(term_at=now, again_at=settled, kill_at=max(settled, self._kill_at))

    def _close(self, sweep: Sweep) -> Ended:
        """Reap it, forget its record, and say how it was."""
        exit_ = self._reap()
        sweep.close()
        self._forget()
        self._flush_log()
        # A record that stays names a process that is gone, and proves nothing.
        with contextlib.suppress(StorageError):
            self._disk.unlink(self._record_path, durable=False)
        assert self._ended_at is not None
        return Ended(
            how=self._stop_how or "exited",
            exit_code=exit_.code,
            signal=exit_.signal,
            wall_s=self._ended_at - self._started_at,
            log_tail=self._log.tail() + self._log_problem,
            leftovers=sweep.named(),
            unstopped=sweep.unstopped(),
            cut=bool(sweep.named()) and self._log.has_grown_since_end(),
            reason=self._stop_reason,
            limit_s=self._wall_s,
            ended_at=self._clock.now(),
            confined=self._confined,
            shell=self._shell,
        )

    def _flush_log(self) -> None:
        """What it has printed is in its log from here on, as far as it can be written."""
        if problem := self._pump.flush(self._pumped) if self._pump is not None else "":
            self._log_problem = f"\n(the log could not be written: {problem})"

    def _reap(self) -> _Exit:
        assert self._process is not None
        if self._process.returncode is None:
            try:
                _, status = os.waitpid(self.pid, 0)
            except ChildProcessError:
                # Somebody else reaped it. Not knowing is not success.
                self._process.returncode = 1
                return _Exit(None, None)
            self._process.returncode = os.waitstatus_to_exitcode(status)
        code = self._process.returncode
        return _Exit(code, None) if code >= 0 else _Exit(None, -code)

    def _forget(self) -> None:
        """It was reaped: from now on its pid may be another's."""
        close_pidfd(self._pidfd)
        self._pidfd = -1
        if self._census is not None:
            self._census.forget(self.pid)


def wait_for_commands(
    commands: Collection[RunningCommand],
    *,
    timeout_s: float,
    clock: Clock,
    also: Collection[int] = (),
) -> list[int]:
    """Wait until :meth:`RunningCommand.poll` of one of them is worth calling, or ``timeout_s``.

    Returns the readable ones of ``also``, descriptors the caller waits for at the same time.
    """
    due = [due_s for c in commands if (due_s := c.due_in_s()) is not None]
    descriptors = [d for c in commands for d in c.waitables()]
    ready = wait_for_any(descriptors, timeout_s=min([timeout_s, *due]), clock=clock, also=also)
    return [d for d in ready if d in also]


def end_commands(commands: Collection[RunningCommand], *, clock: Clock) -> None:
    """Kill what is still at work and wait until it is gone, ``end_wait_s`` at most.

    For a run that has failed itself: what became of the commands is nobody's any more.
    """
    for command in commands:
        command.stop("the run ended", grace_s=0.0)
    give_up_at = clock.monotonic() + end_wait_s
    while left := [command for command in commands if command.poll() is None]:
        if (left_s := give_up_at - clock.monotonic()) <= 0:
            return
        wait_for_commands(left, timeout_s=left_s, clock=clock)


def _start_in_session(
    words: list[str], cwd: str, environment: dict[str, str], streams: tuple[int, int, int]
) -> subprocess.Popen[bytes]:
    given, output, error = streams
    return subprocess.Popen(
        words, cwd=cwd, env=environment, stdin=given, stdout=output, stderr=error,
        start_new_session=True,
    )  # fmt: skip


def _let_children_be_waited_for() -> None:
    """A parent may have left SIGCHLD ignored; then the kernel would throw exit codes away."""
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        # Outside the main thread it stays so, and the exit code is unknown, which is not success.
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
