"""Every way perdure says no, in one tree.

    HaltError
    |-- CheckFailedError        exit 1   a check or a verification failed
    |-- UsageError              exit 2   the call is malformed (also a ValueError)
    |   |-- TaskFileError                a task file does not validate
    |   `-- CardError                    nor does the card of a procedure
    |-- NotFoundError           exit 3   no such workspace, node, artifact or event
    |-- RefusedError            exit 4   a rule of the protocol forbids it
    |   |-- TransitionError              not an edge of FSM-N or FSM-T, or its guard fails
    |   |-- EvidenceError                DONE or a registration without proof on disk
    |   `-- PathError                    a path that leaves the workspace
    |-- BusyError               exit 5   somebody else may write, try later
    |   |-- LeaseHeldError               a living coordinator holds the lease
    |   `-- FencedError                  this object's epoch is over
    |-- CorruptError            exit 6   committed history is damaged
    `-- StorageError            exit 7   input or output failed, nothing was acknowledged

Invariants: a ``code`` never changes its meaning once released; ``str(error)`` always holds the
code, the rule or edge id, the message and the fix. A refusal is the caller's
fault or the world's; a fault of our own is an ``AssertionError`` raised by :func:`invariant`.
"""

import errno as _errno
from collections.abc import Sequence


class HaltError(Exception):
    """perdure refused, and the workspace is as it was before the call."""

    code = "refused"
    exit_code = 4
    rule = "IN-3"

    def __init__(
        self,
        message: str = "",
        *,
        code: str = "",
        rule: str = "",
        fix: str = "",
        suggestions: Sequence[str] = (),
    ) -> None:
        self.code = code or type(self).code
        self.rule = rule or type(self).rule
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.fix = fix
        self.suggestions = list(suggestions)
        super().__init__(self.message)

    def __str__(self) -> str:
        text = f"{self.code} ({self.rule}): {self.message}"
        if self.suggestions:
            text += f" Did you mean {', '.join(self.suggestions)}?"
        if self.fix:
            text += f" Fix: {self.fix}"
        return text

    def as_dict(self) -> dict[str, object]:
        """The ``error`` object of the machine output: code, rule, message, fix, suggestions."""
        return {
            "code": self.code,
            "rule": self.rule,
            "message": self.message,
            "fix": self.fix,
            "suggestions": self.suggestions,
        }


class CheckFailedError(HaltError):
    """A check or a verification failed."""

    code = "check_failed"
    exit_code = 1
    rule = "INV-6"


class UsageError(HaltError, ValueError):
    """The call is malformed."""

    code = "usage"
    exit_code = 2
    rule = "IN-1"


class TaskFileError(UsageError):
    """The task file does not validate."""

    code = "task_file_invalid"


class CardError(UsageError):
    """The card of a procedure does not validate."""

    code = "sop_invalid"


class NotFoundError(HaltError):
    """There is nothing of that name here."""

    code = "not_found"
    exit_code = 3
    rule = "IN-2"


class RefusedError(HaltError):
    """A rule of the protocol forbids this."""


class TransitionError(RefusedError):
    """This is not a legal transition."""

    code = "illegal_transition"
    rule = "FSN-1"


class EvidenceError(RefusedError):
    """There is no evidence on disk for this."""

    code = "evidence_missing"
    rule = "PD-J1"


class PathError(RefusedError):
    """The path leaves the workspace."""

    code = "path_refused"
    rule = "PL-4"


class BusyError(HaltError):
    """Somebody else is writing; try again later."""

    code = "busy"
    exit_code = 5
    rule = "lease"


class LeaseHeldError(BusyError):
    """A living coordinator holds the lease."""

    code = "lease_held"
    rule = "lease"


class FencedError(BusyError):
    """A newer coordinator has taken over; this one may not write any more."""

    code = "fenced"
    rule = "lease"


class CorruptError(HaltError):
    """Committed history is damaged; nothing was changed."""

    code = "journal_corrupt"
    exit_code = 6
    rule = "J-1"


class StorageError(HaltError):
    """Input or output failed; nothing was acknowledged."""

    code = "io_error"
    exit_code = 7
    rule = "IO-1"

    @classmethod
    def from_os(cls, error: OSError, path: str, doing: str) -> "StorageError":
        """Name the errno, the path and what was being done, with a cure for the known causes."""
        number = error.errno or 0
        name = _errno.errorcode.get(number, "EUNKNOWN")
        code, fix = _OS_CAUSES.get(number, ("io_error", "Check the device, then run it again."))
        message = f"{doing} failed on {path}: {name} ({error.strerror or error})."
        return cls(message, code=code, fix=fix)


_OS_CAUSES = {
    _errno.ENOSPC: ("disk_full", "Free some disk space, then run the same command again."),
    _errno.EDQUOT: ("disk_full", "The disk space quota is used up; free some, then run it again."),
    _errno.EACCES: ("permission_denied", "Give this user write access to it, then run it again."),
    _errno.EPERM: ("permission_denied", "Give this user write access to it, then run it again."),
    _errno.EROFS: ("read_only", "The file system is read-only; make it writable or move away."),
    _errno.EMFILE: ("too_many_files", "Raise the limit on open files, then run it again."),
}


def invariant(condition: object, message: str) -> None:
    """Stop on a fault of our own. Never used for what a caller or a disk may do."""
    if not condition:
        raise AssertionError(f"perdure is at fault: {message}")
