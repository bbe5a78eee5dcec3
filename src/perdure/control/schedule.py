"""The line in the user's crontab that keeps ``perdure monitor`` going without a daemon.

Job: put the line of a workspace in, and take it out. Invariants: the line is known by its mark,
which names the workspace by a digest of its path; every other line keeps its bytes and its place;
putting it in twice is putting it in once; what was written is read back. Never starts anything
itself, and never touches the crontab of another user.
"""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from perdure.errors import NotFoundError, StorageError, UsageError
from perdure.ports import Clock, Disk

MARK: Final = "# perdure-monitor:"
crontab_limit_s: Final = 20.0
lock_wait_s: Final = 5.0

_NO_CRONTAB: Final = re.compile(rb"(?i)no crontab|can't open .*: no such file")
"""How the programs of the usual systems, and that of busybox, say that there is none yet."""


class _Answer(NamedTuple):
    code: int
    out: bytes
    err: bytes


def mark_of(workspace: str) -> str:
    """What the line of a workspace ends with."""
    return f"{MARK}{sha256(os.fsencode(workspace)).hexdigest()[:16]}"


def cron_times(interval_s: float) -> str:
    """The five fields for an interval in seconds. Raises UsageError for what cron cannot do."""
    minutes = round(interval_s / 60)
    hours = minutes // 60
    if minutes * 60 == interval_s:
        if 1 <= minutes < 60 and 60 % minutes == 0:
            return f"{_every(minutes)} * * * *"
        if 1 <= hours < 24 and minutes == hours * 60 and 24 % hours == 0:
            return f"0 {_every(hours)} * * *"
        if hours == 24 and minutes == hours * 60:
            return "0 0 * * *"
    raise UsageError(
        f"cron cannot run anything evenly every {interval_s:g} s.",
        code="interval_refused",
        fix="Take minutes that divide an hour (1m, 5m, 15m, 30m), or hours that divide a day.",
    )


def _every(number: int) -> str:
    return "*" if number == 1 else f"*/{number}"


def line_for(workspace: str, interval_s: float, notify_file: str | None) -> str:
    """The whole line. Its program is this interpreter, by its absolute path."""
    words = [sys.executable, "-m", "perdure", "-C", workspace, "monitor", "--apply", "--scheduled"]
    if notify_file is not None:
        words += ["--notify", notify_file]
    command = shlex.join(words)
    if "\n" in command or "\0" in command:
        raise UsageError(
            f"{workspace!r} cannot stand in a crontab.",
            fix="Move it to a path without line breaks.",
        )
    escaped = command.replace("%", r"\%")  # cron makes a line break of a bare one
    return f"{cron_times(interval_s)} {escaped} {mark_of(workspace)}"


class Crontab:
    """The crontab of this user, through the program ``crontab``."""

    def __init__(self, environment: Mapping[str, str], disk: Disk, clock: Clock) -> None:
        self._environment = environment
        self._disk = disk
        self._clock = clock

    def put(self, line: str, mark: str) -> bool:
        """Have ``line`` in it, once, in place of every line with this mark. False: it was there.

        Raises NotFoundError where there is no crontab, StorageError where it cannot be changed.
        """
        return self._edit(mark, [os.fsencode(line)])

    def remove(self, mark: str) -> bool:
        """Have no line with this mark. False: there was none. Raises as :meth:`put`."""
        return self._edit(mark, [])

    def _edit(self, mark: str, wanted: list[bytes]) -> bool:
        with self._alone():
            lines = self._lines()
            end = mark.encode()
            if [line for line in lines if line.endswith(end)] == wanted:
                return False
            changed = [*(line for line in lines if not line.endswith(end)), *wanted]
            answer = self._run("-", b"".join(line + b"\n" for line in changed))
            if answer.code != 0 or self._lines() != changed:
                raise _failed("changed", answer)
            return True

    def _lines(self) -> list[bytes]:
        answer = self._run("-l", b"")
        if answer.code == 0:
            return answer.out.removesuffix(b"\n").split(b"\n") if answer.out else []
        if _NO_CRONTAB.search(answer.err):
            return []
        raise _failed("read", answer)

    def _run(self, argument: str, data: bytes) -> _Answer:
        try:
            done = subprocess.run(
                ["crontab", argument],
                input=data,
                capture_output=True,
                env=dict(self._environment),
                timeout=crontab_limit_s,
                check=False,
            )
        except FileNotFoundError as error:
            raise NotFoundError(
                "there is no crontab on this machine, so nothing can be scheduled.",
                code="no_crontab",
                fix="Install cron, or keep `perdure monitor --apply --watch` running instead.",
            ) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            return _Answer(-1, b"", os.fsencode(str(error)))
        return _Answer(done.returncode, done.stdout, done.stderr)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other monitors of this user out: a crontab is read, changed and written back.

        Where that cannot be had in time it goes on without, as any editor of crontabs does.
        """
        user = os.getuid() if hasattr(os, "getuid") else 0
        path = os.path.join(tempfile.gettempdir(), f"perdure-crontab-{user}.lock")
        lock = None
        with contextlib.suppress(StorageError):
            lock = self._disk.lock(path)
            give_up_at = self._clock.monotonic() + lock_wait_s
            while not lock.try_acquire() and self._clock.monotonic() < give_up_at:
                self._clock.sleep(0.02)
        try:
            yield
        finally:
            if lock is not None:
                lock.close()


def _failed(what: str, answer: _Answer) -> StorageError:
    reason = (answer.err or answer.out).decode("utf-8", "replace").strip()[:200]
    return StorageError(
        f"the crontab cannot be {what}: {reason or f'it ended with {answer.code}'}.",
        code="crontab_failed",
        fix="See what `crontab -l` and `crontab -e` say.",
    )
