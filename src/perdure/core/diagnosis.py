"""What an error text says of its cause, before anything is tuned or tried again (PD-H2).

Job: one ordered table from signatures, as programs and the command lines of coding agents print
them, to a cause, a failure class and what helps. Invariants: pure; the first row that fits decides,
so that a spent quota is never taken for a limit per minute; equal failures have equal signatures,
without times, ids and counts; a text that says nothing known is an agent's failure. Never decides
whether something failed.
"""

import re
from typing import Final, NamedTuple

from perdure.core.dispatching import Cause
from perdure.core.model import FailureClass

text_chars_max: Final = 20_000
"""The end of a text that is looked at: what went wrong stands there."""
retry_after_s_max: Final = 31 * 86_400.0


class Diagnosis(NamedTuple):
    """What stands behind a failure, as far as its text says."""

    cause: Cause = ""
    failure_class: FailureClass = "transient-agent"
    signature: str = ""
    """The exit code and what was seen, such as ``exit 1 (rate limit)``."""
    retry_after_s: float | None = None
    """How long it takes until it may work again, where the text says so."""


class _Row(NamedTuple):
    cause: Cause
    failure_class: FailureClass
    seen: str
    advice: str
    """What helps, in a sentence."""
    pattern: str
    exits: tuple[int, ...] = ()
    """Exit codes that say it alone; only those of one known program."""


def diagnose(
    text: str, exit_code: int | None = None, *, now: float | None = None, confined: bool = False
) -> Diagnosis:
    """The diagnosis of a failure by what it printed and by its exit code.

    ``now`` (seconds since 1970) lets a moment that the text names be told as a time from now.
    ``confined``: the system held it to what its contract grants.
    """
    tail = text[-text_chars_max:]
    if confined and _SCOPE.search(tail):
        row = SCOPE_ROW
        return Diagnosis(row.cause, row.failure_class, _signature(exit_code, row.seen))
    for row, pattern in _PATTERNS:
        if pattern.search(tail) or (exit_code is not None and exit_code in row.exits):
            wait_s = _retry_after(tail, now) if row.cause in _WAITS else None
            signature = _signature(exit_code, row.seen)
            return Diagnosis(row.cause, row.failure_class, signature, wait_s)
    return Diagnosis(signature=_signature(exit_code, ""))


def advice_for(cause: Cause) -> str:
    """What helps against a wall, in a sentence; empty where the cause is not known."""
    rows = (*ROWS, SCOPE_ROW)
    return next((row.advice for row in rows if cause and row.cause == cause), "")


def _signature(exit_code: int | None, seen: str) -> str:
    if exit_code is None:
        return seen
    return f"exit {exit_code} ({seen})" if seen else f"exit {exit_code}"


_STATUS: Final = (
    r"\b(?:http(?:/[0-9.]+)?|status|code|error|response|rejected)\W{0,4}(?:code\W{0,3})?"
)
"""What stands before a number that is the status of an answer."""

ROWS: Final = (
    _Row(
        "rate_limit", "transient-environment", "rate limit",
        "Wait as long as it says, and send less at once.",
        # A quota for each minute is a limit of the rate, whatever it is called.
        r"per[ _-]?min(?:ute)?\b|PerMinute|(?:RPM|TPM)\b.{0,40}limit"
        r"|rate limit reached for|retry in [0-9.]+ ?m?s\b",
    ),
    _Row(
        "quota", "transient-environment", "quota used up",
        "Wait for the reset that it names, or let a person raise the limit.",
        r"usage[ _]limit(?: has been)?[ _](?:reached|exceeded)"
        r"|hit your (?:usage |session |weekly )?limit|(?:limit|quota) will reset"
        r"|(?:5-hour|weekly|daily|monthly|session|spend(?:ing)?) (?:usage )?limit"
        r" (?:reached|exceeded|hit)|exhausted your (?:daily quota|capacity)"
        r"|exceeded your current quota|(?<!disk )quota[ _]exceeded|insufficient[ _]quota"
        r"|TerminalQuotaError|out of credits|credit balance is too low"
        r"|billing (?:hard )?limit|payment required|PerDay",
    ),
    _Row(
        "credentials", "permanent-resource", "no valid credentials",
        "Let a person log in again or set the key; trying again does not help before that.",
        r"invalid (?:x-)?api[ _-]?key|incorrect api key|api key not valid|invalid bearer token"
        r"|authentication_error|permission_error|not logged in|please run /login|codex login"
        r"|set an auth method|missing bearer"
        r"|missing environment variable: .\w*(?:key|token)|token (?:has )?(?:expired|been revoked)"
        r"|(?:api[ _]key|credentials?) (?:is |are |was |were )?"
        r"(?:missing|not set|not found|required)"
        rf"|\b401 unauthorized\b|\b403 forbidden\b|{_STATUS}40[13]\b|\bunauthori[sz]ed\b"
        r"|could not (?:read|resolve) (?:username|authentication)",
        exits=(41,),
    ),
    _Row(
        "rate_limit", "transient-environment", "rate limit",
        "Wait as long as it says, and send less at once.",
        rf"rate.?limit|too many requests|resource.{{0,12}}exhausted|{_STATUS}429\b|retry-after:"
        rf"|overloaded_error|is overloaded|{_STATUS}529\b|\b429 too many",
    ),
    _Row(
        "disk", "transient-environment", "no space",
        "Make room; nothing can be written before that.",
        r"no space left on device|disk quota exceeded|disk (?:is )?full|\bENOSPC\b|\bEDQUOT\b"
        r"|read-only file system|\bEROFS\b",
    ),
    _Row(
        "network", "transient-environment", "network",
        "Probe the connection first; then try again.",
        r"\bECONN(?:REFUSED|RESET|ABORTED)\b|\b(?:ETIMEDOUT|EHOSTUNREACH|ENETUNREACH)\b"
        r"|\b(?:ENOTFOUND|EAI_AGAIN|UND_ERR_\w+)\b|socket hang up|fetch failed"
        r"|connection ?(?:refused|reset|error|timed out|closed)|unable to connect to api"
        r"|network is unreachable|no route to host|could not resolve host|name resolution"
        r"|name or service not known|getaddrinfo|stream disconnected|error sending request"
        r"|request timed out|tls handshake|ssl(?:_error| error| handshake|: )"
        r"|certificate (?:verif|has expired|is not trusted)|local issuer certificate"
        r"|bad gateway|service unavailable|gateway time-?out"
        rf"|{_STATUS}50[0234]\b",
    ),
    _Row(
        "", "transient-environment", "out of memory or handles",
        "Run less at once.",
        r"resource temporarily unavailable|cannot allocate memory|out of memory|\bENOMEM\b"
        r"|too many open files|\bEMFILE\b|\bENFILE\b|text file busy|\bEAGAIN\b",
    ),
    _Row(
        "missing_program", "permanent-resource", "program not found",
        "Let a person install it, or correct the command.",
        r"could not be started: .{0,80}no such file|\bspawn \S+ ENOENT\b",
        exits=(126, 127),
    ),
)  # fmt: skip

SCOPE_ROW: Final = _Row(
    "scope", "permanent-resource", "permission denied; its contract grants no more",
    "Let it write below its scope, or grant the path or the network (`grants` in the task file).",
    r"permission denied|operation not permitted|permissionerror|\bEACCES\b|\bEPERM\b",
)  # fmt: skip
"""Only of who is held to a contract: for everybody else it says nothing of that."""
"""From the most particular to the most general: the first that fits decides."""

_PATTERNS: Final = tuple(
    (row, re.compile(row.pattern, re.IGNORECASE | re.MULTILINE)) for row in ROWS
)
_SCOPE: Final = re.compile(SCOPE_ROW.pattern, re.IGNORECASE)
_WAITS: Final = frozenset({"quota", "rate_limit"})

_WORDS: Final = "ms|days?|hours?|hrs?|minutes?|mins?|seconds?|secs?|[dhms]"
_SPAN: Final = rf"((?:[0-9.]+ ?(?:{_WORDS})[, ]*(?:and )?)+)"
_AFTER: Final = (
    re.compile(r"retry-after\W{1,4}([0-9.]+)\b(?! ?ms)", re.IGNORECASE),
    re.compile(r"(?:resets?|retry)_in_seconds\W{1,4}([0-9.]+)", re.IGNORECASE),
    re.compile(rf"(?:try again|retry|resets?|reset) (?:in|after) {_SPAN}", re.IGNORECASE),
    re.compile(rf"\"?retryDelay\"?\W{{1,6}}{_SPAN}", re.IGNORECASE),
)
_AT: Final = re.compile(r"(?:limit reached\||resets_at\W{1,4})(1[0-9]{9})\b", re.IGNORECASE)
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|[dhms])", re.IGNORECASE)
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def _retry_after(text: str, now: float | None) -> float | None:
    """The longest that the text asks to wait; None when it names no time."""
    found: list[float] = []
    for pattern in _AFTER:
        found += [_seconds(match[1]) for match in pattern.finditer(text)]
    if now is not None:
        found += [float(match[1]) - now for match in _AT.finditer(text)]
    waits = [wait for wait in found if 0 < wait <= retry_after_s_max]
    return max(waits, default=None)


def _seconds(span: str) -> float:
    parts = _PART.findall(span)
    if parts:
        return sum(float(value) * _UNIT_S[unit.lower()] for value, unit in parts)
    try:
        return float(span.rstrip("."))
    except ValueError:
        return 0.0
