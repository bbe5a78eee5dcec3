"""Proving a job directory, whoever wrote it: ``verify_job``.

Job: compare state.json with the log, look at every line and every entry, and say what does not
hold, with its place and the cure. Invariants: it only reads, and takes no lock; a job that is being
written meanwhile raises no false alarm, because state.json is read before the log, which only
grows; what a kill leaves, and the next start puts right, is a notice and no defect; one bad thing
does not hide the others. Memory is about 100 bytes an item, whatever the lines hold.
"""

import shlex
from typing import Any, Final

import msgspec

from perdure.core.codec import from_json
from perdure.errors import NotFoundError, UsageError
from perdure.jobs.checkpoints import STATE_NAME, SUMMARY_NAME
from perdure.jobs.lines import item_hash
from perdure.jobs.log import LOG_NAME
from perdure.jobs.log_check import LogCheck
from perdure.jobs.place import obstacles, only_reading
from perdure.jobs.recent import RECENT_NAME, load_recent, merged_errors
from perdure.jobs.records import (
    STATE_VERSION,
    AsOf,
    ErrorEntry,
    Notice,
    StateHead,
    is_job_name,
    name_chars_max,
)
from perdure.jobs.repair import TORN_NAME
from perdure.jobs.report import JobReport, ReportDraft, shown, shown_number
from perdure.jobs.state_file import decode_state
from perdure.ports import Disk, is_temp_name

JOB_FILES: Final = (LOG_NAME, STATE_NAME, SUMMARY_NAME)


def verify_job(disk: Disk, directory: str) -> JobReport:
    """Check a whole job directory. Writes nothing; may run while somebody works on the job.

    Not ``ok`` when an item is lost (JB-2) or has two lines, and for every other ``Defect``. Raises
    NotFoundError where there is no job, StorageError.
    """
    with only_reading():
        return _verify(disk, directory)


def _verify(disk: Disk, directory: str) -> JobReport:
    require_job(disk, directory)
    names = disk.list_dir(directory)
    draft = ReportDraft()
    odd: set[str] = set()
    for found in obstacles(disk, directory):
        odd.add(found.name)
        draft.defect(found.what, found.message, found.fix)
    proven: dict[int, bool] = {}
    head = None
    if STATE_NAME not in odd:
        head = _check_state(disk, directory, draft, proven)
    errors: list[ErrorEntry] = []
    if head is not None:
        errors = _errors(disk, directory, draft, head, is_odd=RECENT_NAME in odd)
    log = LogCheck(draft, proven, directory)
    if LOG_NAME not in odd:
        _check_log(disk, directory, log, draft, head)
    _check_lost(directory, log, draft, head)
    _check_done(errors, proven, draft)
    _look_around(disk, directory, [name for name in names if name not in odd], draft)
    return draft.report()


def require_job(disk: Disk, directory: str) -> None:
    """Raise NotFoundError when none of the three files is there."""
    if not any(disk.stat(f"{directory}/{name}") is not None for name in JOB_FILES):
        raise NotFoundError(
            f"{directory} holds no job: neither {LOG_NAME} nor {STATE_NAME}.",
            code="no_job",
            rule="JB-2",
            fix="Name the directory of a job, such as data/jobs/docs.",
        )


# state.json


class _Unproven(dict[str, str]):
    """What ``decode_state`` enters, kept as numbers, none of which is proven yet."""

    def __init__(self, proven: dict[int, bool]) -> None:
        super().__init__()
        self._proven = proven

    def __setitem__(self, name: str, at: str) -> None:
        self._proven[int(name, 16)] = False


class _Queue(msgspec.Struct):
    """The error queue of a state.json, of any type."""

    errors: Any = None


def _check_state(
    disk: Disk, directory: str, draft: ReportDraft, proven: dict[int, bool]
) -> StateHead | None:
    """Enter what state.json claims into ``proven``. None when it says nothing that counts."""
    path = f"{directory}/{STATE_NAME}"
    if disk.stat(path) is None:
        draft.notice("no_state", f"there is no {STATE_NAME}.", _IS_MADE)
        return None
    _check_entries(disk.read(path), draft)
    try:
        head = decode_state(disk.read_chunks(path), _Unproven(proven))
    except ValueError as error:
        proven.clear()
        draft.defect("state", f"{STATE_NAME} is no state of a job: {error}.", _STATE_FIX)
        return None
    draft.job = head.job
    if not is_job_name(head.job):
        message = (
            f"{STATE_NAME} names the job {shown(head.job)}, which is no name: 1 to {name_chars_max}"
            " printable characters. No start of the job accepts it."
        )
        draft.defect("state", message, "Correct `job` in it while nobody has the job open.")
    if head.version > STATE_VERSION:
        version = shown_number(head.version)
        message = f"{STATE_NAME} has version {version}; {STATE_VERSION} is known here."
        draft.defect("state", message, "Use the version of perdure that wrote it.")
        return None
    return head


def _check_entries(data: bytes, draft: ReportDraft) -> None:
    """Every entry of the error queue as it stands: decoding puts right what it can."""
    try:
        entries = from_json(data.removeprefix(b"\xef\xbb\xbf"), _Queue).errors
    except (ValueError, RecursionError):
        return  # decoding it says what is wrong
    seen: set[str] = set()
    for number, entry in enumerate(entries if isinstance(entries, list) else [], 1):
        wrong = _fault(entry, seen)
        if wrong:
            key = entry.get("key") if isinstance(entry, dict) else None
            name = f" ({shown(key)})" if isinstance(key, str) else ""
            message = f"entry {number} of the error queue{name} {wrong}."
            draft.defect("error_entry", message, _ENTRY_FIX)


def _fault(entry: object, seen: set[str]) -> str:
    """What is wrong with an entry of the error queue; empty when nothing is."""
    if not isinstance(entry, dict):
        return "is no mapping"
    try:
        digest = item_hash(entry.get("key"))  # type: ignore[arg-type]  # what is no key is refused
    except UsageError as error:
        return f"has no good key: {error.message.rstrip('.')}"
    attempts = entry.get("attempts")
    if entry.get("hash") != digest:
        return f"has another hash than that of its key, {digest}"
    if isinstance(attempts, bool) or not isinstance(attempts, int | float) or attempts < 0:
        return "does not count its attempts"
    if not isinstance(entry.get("error"), str) or not isinstance(entry.get("last_at"), str):
        return "does not say in texts what failed and when"
    if digest in seen:
        return "is of the same item as an earlier one"
    seen.add(digest)
    return ""


def _errors(
    disk: Disk, directory: str, draft: ReportDraft, head: StateHead, *, is_odd: bool
) -> list[ErrorEntry]:
    """The error queue as the next start finds it, items that are done included."""
    if is_odd:
        return list(head.errors)
    unread: list[Notice] = []
    recent = load_recent(disk, f"{directory}/{RECENT_NAME}", head.as_of, unread)
    for notice in unread:
        draft.notice(notice.what, notice.message, notice.fix)
    return list(merged_errors(head.errors, recent, {}).values())


# The log


def _check_log(
    disk: Disk, directory: str, log: LogCheck, draft: ReportDraft, head: StateHead | None
) -> None:
    path = f"{directory}/{LOG_NAME}"
    claimed = len(log.proven)
    as_of = head.as_of if head is not None else None
    if head is not None and head.is_changed:
        draft.notice("as_of", _CHANGED, _READS_ALL)
    stat = disk.stat(path)
    if stat is not None:
        if not log.read(disk, path, stat.size_bytes, as_of) and as_of is not None:
            draft.notice("as_of", _unproven(as_of, log.size_bytes), _READS_ALL)
    elif claimed:
        message = f"there is no {LOG_NAME}, and {STATE_NAME} says that {claimed} items are done."
        draft.defect("no_log", message, "Put the log back from a copy.")
    else:
        draft.notice("no_log", f"there is no {LOG_NAME}.", _IS_MADE)


def _unproven(as_of: AsOf, size_bytes: int) -> str:
    if size_bytes < as_of.offset:
        return f"the log has {size_bytes} bytes, and {STATE_NAME} knows of {as_of.offset}."
    return f"no line that {STATE_NAME} knows ends at byte {as_of.offset} of the log."


def _check_lost(directory: str, log: LogCheck, draft: ReportDraft, head: StateHead | None) -> None:
    """Whether the log proves all that state.json claims, and the other way round."""
    counts = draft.counts
    counts["completed"] = len(log.proven)
    counts["lost"] = counts["completed"] - counts["items"]
    if log.behind and head is not None:
        message = f"items of the log that {STATE_NAME} does not have yet: {log.behind}."
        fix = "Nothing needs to be done: the next checkpoint takes them in."
        draft.notice("state_behind", message, fix)
    if not counts["lost"]:
        return
    fix = f"Run `perdure job retry {shlex.quote(directory)} --lost`, then the job again."
    for number, proven in log.proven.items():
        if not proven:
            digest = f"{number:016x}"
            message = f"{STATE_NAME} says that item {digest} is done, and no line of the log is it."
            draft.defect("lost", message, fix, digest=digest)
            if not draft.has_room("lost"):
                break


def _check_done(errors: list[ErrorEntry], proven: dict[int, bool], draft: ReportDraft) -> None:
    """Whether an item of the error queue is done."""
    done = [entry for entry in errors if int(entry.hash, 16) in proven]
    draft.counts["errors"] = len(errors) - len(done)
    if done:
        first = shown(done[0].key)
        message = f"entries of the error queue whose items are done: {len(done)}, first {first}."
        draft.notice("stale_error", message, "Nothing needs to be done: they are dropped.")


# The rest of the directory


def _look_around(disk: Disk, directory: str, names: list[str], draft: ReportDraft) -> None:
    """Files that a crash or an earlier start left. ``names`` were there before the log was read."""
    after = set(disk.list_dir(directory))
    if SUMMARY_NAME not in after:
        draft.notice("no_summary", f"there is no {SUMMARY_NAME}.", _IS_MADE)
    # Those of a living process are gone by now.
    temps = [name for name in names if is_temp_name(name) and name in after]
    if temps:
        message = f"temporary files were left behind: {len(temps)}, first {shown(temps[0])}."
        draft.notice("temp_file", message, "The next start removes them.")
    aside = [name for name in names if name.startswith(f"{STATE_NAME}.corrupt-")]
    if aside:
        message = f"a {STATE_NAME} that could not be read was kept, last as {shown(aside[-1])}."
        draft.notice("state_aside", message, _LOOK_FIX)
    torn = disk.list_dir(f"{directory}/{TORN_NAME}") if TORN_NAME in names else []
    if torn:
        message = f".torn/ keeps what was cut out of the log: {len(torn)} pieces."
        draft.notice("set_aside", message, _LOOK_FIX)


_IS_MADE: Final = "Nothing needs to be done: the next start of the job makes it."
_READS_ALL: Final = "Nothing needs to be done: the next start reads the whole log."
_CHANGED: Final = (
    f"{STATE_NAME} was changed or written anew since perdure wrote it, so its as_of proves nothing."
)
_LOOK_FIX: Final = "Look at them; then they may be removed."
_STATE_FIX: Final = (
    "Start the job: it keeps the file aside and takes what is done from the log. The cursor and the"
    " error queue start anew."
)
_ENTRY_FIX: Final = "Correct the entry, or take it out, while nobody has the job open."
