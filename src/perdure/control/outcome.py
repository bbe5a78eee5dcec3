"""How a command ended, and what kind of failure that is.

Job: the record of an end, and its place in the failure classes of protocol section 5. Invariants:
the same end always gets the same class and signature; a signature holds no pid and no measured
time, so that two equal failures look equal.
Never: decides whether a command failed.
"""

import re
from typing import Final, Literal

import msgspec

from perdure.core.model import FailureClass

signature_chars_max: Final = 160

How = Literal["exited", "timed_out", "stopped", "not_started"]


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


_ENVIRONMENT: Final = re.compile(
    r"no space left on device|disk quota exceeded|connection (?:refused|reset)"
    r"|temporary failure in name resolution|resource temporarily unavailable"
    r"|cannot allocate memory|too many open files|text file busy"
    r"|rate.?limit|quota|too many requests|service unavailable"
    r"|(?:http(?:/[0-9.]+)?|status|code|error|response)\W{0,3}(?:code\W{0,3})?(?:429|503)\b",
    re.IGNORECASE,
)
_ENVIRONMENT_EXITS: Final = frozenset({69, 75})
_SPEC_EXITS: Final = frozenset({64, 65, 66, 78})
_RESOURCE_EXITS: Final = frozenset({126, 127})


def classify(ended: Ended) -> tuple[FailureClass, str]:
    """The failure class of protocol section 5, and a short text that is equal for equal failures.

    For a command that failed; whether it did is not decided here. Exit codes 64 to 78 are those
    of sysexits.h. Output that names a well-known trouble of the surroundings makes an otherwise
    unexplained exit ``transient-environment``.
    """
    trouble = _ENVIRONMENT.search(ended.log_tail)
    seen = trouble[0].lower() if trouble else ""
    if ended.how == "not_started":
        signature = " ".join(ended.log_tail.split())[:signature_chars_max]
        return ("transient-environment" if seen else "permanent-resource"), signature
    if ended.how == "timed_out":
        return "transient-agent", f"timed out after {seconds_text(ended.limit_s or ended.wall_s)}"
    if ended.how == "stopped":
        return "transient-agent", f"stopped: {ended.reason}"[:signature_chars_max]
    if ended.signal is not None:
        return "transient-agent", f"signal {ended.signal}"
    signature = "exit unknown" if ended.exit_code is None else f"exit {ended.exit_code}"
    if ended.exit_code in _RESOURCE_EXITS:
        return "permanent-resource", signature
    if ended.exit_code in _ENVIRONMENT_EXITS:
        return "transient-environment", signature
    if ended.exit_code in _SPEC_EXITS:
        return "permanent-spec", signature
    if seen:
        return "transient-environment", f"{signature} ({seen})"
    return "transient-agent", signature


def seconds_text(value: float) -> str:
    """A time as messages show it."""
    return f"{value:g} s"
