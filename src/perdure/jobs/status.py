"""Where a job stands and what failed, without opening it: ``job_status`` and ``job_errors``.

Job: take state.json without the items in it, add what the log and ``.recent.jsonl`` say since, and
show that. Invariants: it only reads, and takes no lock; a completed item takes no more memory than
its bytes in state.json; lists have a limit. Whether the numbers are proven is for ``inspection`` to
say.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from perdure.host import SystemProcesses
from perdure.jobs.checkpoints import STATE_NAME, SUMMARY_NAME
from perdure.jobs.exclusive import Holder, read_holder
from perdure.jobs.inspection import require_job
from perdure.jobs.lines import Line, judge_line
from perdure.jobs.log import LOG_NAME
from perdure.jobs.place import obstacles, only_reading
from perdure.jobs.position import decoded
from perdure.jobs.recent import RECENT_NAME, Recent, load_recent, merged_errors
from perdure.jobs.records import STATE_VERSION, ErrorEntry, Notice, StateHead
from perdure.jobs.repair import tell_damage
from perdure.jobs.report import shown_number
from perdure.jobs.scan import NO_DAMAGE, LogScan, Unkept, known_part
from perdure.jobs.seen import SeenHashes
from perdure.jobs.state_file import decode_state
from perdure.jobs.summary import errors_max
from perdure.ports import Disk, Processes

Data = dict[str, Any]

_looks_max: Final = 3
"""Times state.json is read again because it was replaced while we looked."""


def job_status(disk: Disk, directory: str, *, processes: Processes | None = None) -> Data:
    """The whole job at a glance, as JSON-like data; ``processes`` say whether its holder lives.

    ``status`` is ``running`` while a process has the job open, else ``finished`` or ``stopped``.
    Raises NotFoundError where there is no job, StorageError.
    """
    found = _look(disk, directory)
    head = found.head
    holder = _living(read_holder(disk, directory), processes or SystemProcesses())
    finished_at = None if found.is_further else head.finished_at
    idle = "stopped" if finished_at is None else "finished"
    summary = f"{directory}/{SUMMARY_NAME}"
    return {
        "job": head.job or None,
        "directory": directory,
        "status": "running" if holder is not None else idle,
        "started_at": head.started_at or None,
        "updated_at": found.updated_at or None,
        "finished_at": finished_at,
        "cursor": found.cursor,
        "stats": {
            "processed": found.processed,
            "failed": len(found.errors),
            "resumes": found.resumes,
        },
        "errors": [msgspec.to_builtins(entry) for entry in found.errors[-errors_max:]],
        "holder": None if holder is None else {"pid": holder.pid, "host": holder.host},
        "summary": summary if disk.stat(summary) is not None else None,
        "notices": [msgspec.to_builtins(notice) for notice in found.notices],
    }


def job_errors(disk: Disk, directory: str, *, limit: int, after: str | None = None) -> Data:
    """A page of the error queue, oldest failure first: ``errors``, ``total``, and ``next``.

    ``after`` is the ``next`` of the page before: the hash of its last entry. One that has left the
    queue meanwhile begins the list anew. Raises as :func:`job_status`.
    """
    errors = _look(disk, directory).errors
    names = [entry.hash for entry in errors]
    start = names.index(after) + 1 if after in names else 0
    page = errors[start : start + limit]
    return {
        "errors": [msgspec.to_builtins(entry) for entry in page],
        "total": len(errors),
        "next": page[-1].hash if page and start + limit < len(errors) else None,
    }


class _Found(NamedTuple):
    """What the files say together."""

    head: StateHead
    processed: int
    is_further: bool
    """Something was recorded that state.json does not know."""
    errors: list[ErrorEntry]
    cursor: Any
    resumes: int
    updated_at: str
    notices: list[Notice]


class _Tail(dict[str, str]):
    """What scanning the log enters; of the items themselves only their number is kept."""

    def __init__(self, errors: dict[str, ErrorEntry]) -> None:
        super().__init__()
        self.last_at = ""
        self._errors = errors
        self.count = 0
        """How many different ones were entered."""
        self._seen = SeenHashes()

    def __setitem__(self, name: str, at: str) -> None:
        self.count += self._seen.add(name)
        self.last_at = at or self.last_at
        self._errors.pop(name, None)


def _look(disk: Disk, directory: str) -> _Found:
    with only_reading():
        return _look_closely(disk, directory)


def _look_closely(disk: Disk, directory: str) -> _Found:
    require_job(disk, directory)
    odd = obstacles(disk, directory)
    names = {found.name for found in odd}
    head, recent, notices = _read_state(disk, directory, names)
    notices = [Notice(found.what, None, None, found.message, found.fix) for found in odd] + notices
    errors = merged_errors(head.errors, recent, {})
    tail = _Tail(errors)
    known = head.completed_count
    if LOG_NAME in names or _read_log(disk, directory, head, tail, notices):
        processed = known + tail.count
    else:  # the log from its first byte, which has what state.json has
        processed = max(known, tail.count)
    last_errors = [entry.last_at for entry in recent.errors.values()]
    return _Found(
        head,
        processed,
        processed > known or bool(recent.errors),
        list(errors.values()),
        head.cursor if recent.cursor is None else decoded(recent.cursor),
        max(head.stats.resumes, recent.resumes or 0),
        max([head.updated_at, tail.last_at, *last_errors]),
        notices,
    )


def _read_state(
    disk: Disk, directory: str, odd: set[str]
) -> tuple[StateHead, Recent, list[Notice]]:
    """state.json and ``.recent.jsonl`` of one moment, as far as a living job lets us see one."""
    path = f"{directory}/{STATE_NAME}"
    for _ in range(_looks_max):
        before = disk.stat(path)
        notices: list[Notice] = []
        recent = Recent()
        head = StateHead("")
        if before is None:
            notices.append(Notice("no_state", None, None, f"there is no {STATE_NAME}.", _IS_MADE))
        elif STATE_NAME not in odd:
            head = _head(disk.read_chunks(path), notices)
        if RECENT_NAME not in odd:
            recent = load_recent(disk, f"{directory}/{RECENT_NAME}", head.as_of, notices)
        after = disk.stat(path)
        if after is None or before is None or after.inode == before.inode:
            break
    return head, recent, notices


def _head(pieces: Iterable[bytes], notices: list[Notice]) -> StateHead:
    try:
        head = decode_state(pieces, Unkept())
    except ValueError as error:
        message = f"{STATE_NAME} is no state of a job: {error}."
        fix = "Start the job, which keeps it aside and takes what is done from the log."
        notices.append(Notice("state", None, None, message, fix))
        return StateHead("")
    if head.version > STATE_VERSION:
        version = shown_number(head.version)
        message = f"{STATE_NAME} has version {version}; {STATE_VERSION} is known here."
        fix = "Use the version of perdure that wrote it."
        notices.append(Notice("state", None, None, message, fix))
    return head


def _read_log(
    disk: Disk, directory: str, head: StateHead, tail: _Tail, notices: list[Notice]
) -> bool:
    """Enter what state.json does not know; False: nothing proves what that is, and all is read."""
    path = f"{directory}/{LOG_NAME}"
    stat = disk.stat(path)
    if stat is None:
        return True
    known = known_part(disk, path, head.as_of, stat.size_bytes)
    start, damage = known or (0, NO_DAMAGE)
    scan = LogScan(start, tail)
    scan.read(disk, path)
    last = judge_line(scan.tail)
    if isinstance(last, Line) and last.key is not None:
        tail[last.hash] = last.at
    notices += tell_damage(disk, directory, damage, scan)[1]
    return known is not None


def _living(holder: Holder | None, processes: Processes) -> Holder | None:
    """The holder, unless it is known to be gone: one that was killed leaves its name behind."""
    if holder is None or processes.state(holder.process()) == "gone":
        return None
    return holder


_IS_MADE: Final = "Nothing needs to be done: the next start of the job makes it."
