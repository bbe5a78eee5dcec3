"""How a command ended, and what kind of failure that is.

Job: the record of an end, and its place in the failure classes of protocol section 5. Invariants:
the same end always gets the same class and signature; a signature holds no pid and no measured
time, so that two equal failures look equal.
Never: decides whether a command failed.
"""

from typing import Final, Literal, NamedTuple

import msgspec

from perdure.core.diagnosis import diagnose
from perdure.core.dispatching import Cause, DeathMode
from perdure.core.model import FailureClass

signature_chars_max: Final = 160

How = Literal["exited", "timed_out", "stopped", "not_started"]


_SIGNALS: Final = 32
"""The lowest number that is no signal of everybody's."""


class Ended(msgspec.Struct, frozen=True):
    """How a command ended."""

    how: How
    exit_code: int | None = None
    """None when a signal ended it, when it never started, or when nobody can know."""
    signal: int | None = None
    wall_s: float = 0.0
    """From the start until its first process was seen to have ended."""
    log_tail: str = ""
    """The last 2,000 bytes of its output; for ``not_started`` the reason."""
    leftovers: tuple[tuple[int, str], ...] = ()
    """(pid, name) of what was still running after it ended and had to be stopped."""
    unstopped: tuple[tuple[int, str], ...] = ()
    """Those of the leftovers that even SIGKILL did not end."""
    cut: bool = False
    """Something it left running was still adding to its output, and had to be stopped."""
    reason: str = ""
    """Why it was stopped."""
    limit_s: float | None = None
    ended_at: float | None = None
    """Seconds since 1970; how long a wall stands that names its moment is counted from here."""
    confined: bool = False
    """Whether the system held it to what its contract grants."""
    shell: bool = False
    """It was a shell line, whose exit code names the signal that ended a command of it."""

    @property
    def killed_by(self) -> int | None:
        """The signal that ended it, or a command of its shell line (128 and the signal)."""
        code = self.exit_code or 0
        said = code - 128 if self.shell and 128 < code < 128 + _SIGNALS else None
        return said if self.signal is None else self.signal


_ENVIRONMENT_EXITS: Final = frozenset({69, 75})
_SPEC_EXITS: Final = frozenset({64, 65, 66, 78})
_RESOURCE_EXITS: Final = frozenset({126, 127})


class Judged(NamedTuple):
    """What kind of failure an end is."""

    failure_class: FailureClass
    signature: str
    """Equal for equal failures."""
    cause: Cause = ""
    retry_after_s: float | None = None


def judge_end(ended: Ended) -> Judged:
    """The failure class of protocol section 5, with the wall that stands behind it (PD-H2).

    For a command that failed; whether it did is not decided here. Exit codes 64 to 78 are those
    of sysexits.h. Output that names a well-known trouble of the surroundings makes an otherwise
    unexplained exit a failure of these; that a file is missing says nothing of the program.
    """
    if ended.how == "timed_out":
        limit = seconds_text(ended.limit_s or ended.wall_s)
        return Judged("transient-agent", f"timed out after {limit}")
    if ended.how == "stopped":
        return Judged("transient-agent", f"stopped: {ended.reason}"[:signature_chars_max])
    if ended.signal is not None:
        return Judged("transient-agent", f"signal {ended.signal}")
    if ended.killed_by is not None:
        return Judged("transient-agent", f"exit {ended.exit_code} (signal {ended.killed_by})")
    seen = diagnose(ended.log_tail, now=ended.ended_at, confined=ended.confined)
    if ended.how == "not_started":
        signature = " ".join(ended.log_tail.split())[:signature_chars_max]
        if seen.failure_class == "transient-environment":
            return Judged(seen.failure_class, signature, seen.cause, seen.retry_after_s)
        return Judged("permanent-resource", signature, "missing_program")
    signature = "exit unknown" if ended.exit_code is None else f"exit {ended.exit_code}"
    if ended.exit_code in _RESOURCE_EXITS:
        return Judged("permanent-resource", signature, "missing_program")
    if ended.exit_code in _ENVIRONMENT_EXITS:
        known = seen.failure_class == "transient-environment"
        return Judged(
            "transient-environment", signature, seen.cause if known else "", seen.retry_after_s
        )
    if ended.exit_code in _SPEC_EXITS:
        return Judged("permanent-spec", signature)
    if seen.signature and seen.cause != "missing_program":
        signature = f"{signature} ({seen.signature})"
        return Judged(seen.failure_class, signature, seen.cause, seen.retry_after_s)
    return Judged("transient-agent", signature)


def classify(ended: Ended) -> tuple[FailureClass, str]:
    """Failure class and signature of :func:`judge_end`."""
    judged = judge_end(ended)
    return judged.failure_class, judged.signature


def death_mode(ended: Ended) -> DeathMode:
    """How a command that failed died; ``silent`` is for who has looked at the disk (PD-J1)."""
    if ended.how == "timed_out":
        return "timed_out"
    if ended.how == "stopped" or ended.killed_by is not None:
        return "killed"
    return "failed"


def seconds_text(value: float) -> str:
    """A time as messages show it."""
    return f"{value:g} s"
