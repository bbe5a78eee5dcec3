"""Opening a job: take it, read what is done, put the end of the log in order.

Job: the order of the first steps. Invariants: the job is taken before anything is read that
another process may change; nothing read from the log is believed before the log and its directory
were synced (JB-2); another holder, another job and anything in the place of a file of the job are
refused before anything but the lock was changed, and a log that never was one before it was changed
itself (temporary files are gone by then, and a state.json that cannot be read stands aside); done
again after a crash at any step it does the rest. A log is born whole and durable, before any other
file of the job.
"""

import shlex
from codecs import getincrementaldecoder
from collections.abc import Sequence
from typing import Final

from perdure.core.codec import timestamp, to_json
from perdure.errors import RefusedError, UsageError
from perdure.jobs import endings
from perdure.jobs.checkpoints import STATE_NAME, SUMMARY_NAME
from perdure.jobs.engine import JobEngine
from perdure.jobs.exclusive import HOLDER_NAME, Claim, other_job, take_job
from perdure.jobs.lines import Line, judge_line
from perdure.jobs.log import LOG_NAME, FindingLog
from perdure.jobs.place import check_place
from perdure.jobs.position import Position
from perdure.jobs.recent import RECENT_NAME, Recent, RecentFile, load_recent, merged_errors
from perdure.jobs.records import (
    STATE_VERSION,
    ErrorEntry,
    Notice,
    StateHead,
    is_job_name,
    name_chars_max,
)
from perdure.jobs.repair import TORN_NAME, settle_log, utc_name
from perdure.jobs.report import shown, shown_number
from perdure.jobs.scan import NO_DAMAGE, LogScan, known_part
from perdure.jobs.state_file import decode_state
from perdure.ports import TEMP_MARK, Disk, is_temp_name
from perdure.runtime.world import World

last_findings_bytes_max: Final = 256 << 10
"""So much of the log's end is read to show the last findings again."""

_OURS: Final = (LOG_NAME, STATE_NAME, SUMMARY_NAME, RECENT_NAME, HOLDER_NAME)
_piece_bytes: Final = 1 << 20
_text_bytes: Final = 4 << 10


def open_job(world: World, directory: str, name: str, secrets: Sequence[str] = ()) -> JobEngine:
    """Take the job ``name`` in ``directory`` and bring it to where it stands, making it if new.

    A crash in the middle costs nothing: the next opening does the same. Raises UsageError,
    RefusedError, LeaseHeldError, BusyError, CorruptError, StorageError; then the job is released.
    """
    _check_name(name)
    root = world.disk.real_path(directory)
    check_place(world.disk, root)
    world.disk.make_dirs(root)
    claim = take_job(world, root, name)
    try:
        engine = _Opening(world, root, name, claim).engine(secrets)
        endings.watch(engine)
    except BaseException:
        claim.release()
        raise
    finally:
        claim.guard.release()
    return engine


class _Opening:
    """One opening of one job, by its only holder."""

    def __init__(self, world: World, root: str, name: str, claim: Claim) -> None:
        self.world = world
        self.disk: Disk = world.disk
        self.root = root
        self.name = name
        self.claim = claim
        self.log_path = f"{root}/{LOG_NAME}"
        self.state_path = f"{root}/{STATE_NAME}"
        self.recent_path = f"{root}/{RECENT_NAME}"
        self.cure = (
            f"Put the log back from a copy, or run `perdure job retry {shlex.quote(root)} --lost`."
        )
        """Of a log that lacks what state.json knows."""
        self.now = world.clock.now()
        self.position = Position(name, timestamp(self.now))
        self.notices: list[Notice] = self.position.notices
        self.state_bytes = 0

    def engine(self, secrets: Sequence[str]) -> JobEngine:
        """The job, read and in order, its files renewed."""
        check_place(self.disk, self.root)
        head = self._read_state()
        self._remove_orphans()
        is_new_log = self.disk.stat(self.log_path) is None
        existed = head is not None or not is_new_log
        if is_new_log:
            self._note_lost_log()
            self.disk.replace(self.log_path, b"", durable=True)
        proven, log = self._read_log(head, is_new=is_new_log)
        try:
            as_of = head.as_of if head else None
            recent = load_recent(self.disk, self.recent_path, as_of, self.notices)
            self._place(head, recent, existed=existed)
            file = RecentFile(self.disk, self.recent_path, recent.n, recent.size_bytes)
            engine = JobEngine(self.world, self.claim, self.position, log, file, secrets=secrets)
            engine.checkpoints.knows(self.state_bytes, proven, is_ours=as_of is not None)
            engine.checkpoints.begin(
                [self.position.errors[e] for e in recent.errors if e in self.position.errors]
            )
        except BaseException:
            log.close()
            raise
        return engine

    def _remove_orphans(self) -> None:
        """Files in the making of our own that a crash has left. Other programs' files stay."""
        begins = tuple(f".{name}{TEMP_MARK}" for name in _OURS)
        for found in self.disk.list_dir(self.root):
            if found.startswith(begins):
                self.disk.unlink(f"{self.root}/{found}", durable=False)
        for found in self.disk.list_dir(f"{self.root}/{TORN_NAME}"):
            if is_temp_name(found):
                self.disk.unlink(f"{self.root}/{TORN_NAME}/{found}", durable=False)

    # state.json

    def _read_state(self) -> StateHead | None:
        """None: there is none that can be used, and the log alone says what is done."""
        stat = self.disk.stat(self.state_path)
        if stat is None:
            return None
        completed = self.position.completed
        try:
            head = decode_state(self.disk.read_chunks(self.state_path, _piece_bytes), completed)
        except ValueError as error:
            completed.clear()
            self._keep_corrupt_state(str(error))
            return None
        if not is_job_name(head.job):
            raise RefusedError(
                f"{self.state_path} names the job {shown(head.job)}, which is no name: 1 to"
                f" {name_chars_max} printable characters.",
                code="bad_state_name",
                rule="JB-2",
                fix="Correct `job` in it while nobody has the job open.",
            )
        if head.job != self.name:
            raise other_job(self.root, head.job, self.name)
        if head.version > STATE_VERSION:
            raise RefusedError(
                f"{self.state_path} has version {shown_number(head.version)}; this program knows"
                f" version {STATE_VERSION}.",
                code="newer_job",
                rule="JB-2",
                fix="Use the newer program, or another directory.",
            )
        self.state_bytes = stat.size_bytes
        return head

    def _keep_corrupt_state(self, reason: str) -> None:
        kept = f"{self.state_path}.corrupt-{self._utc()}"
        number = 1
        while self.disk.stat(kept) is not None:
            number += 1
            kept = f"{self.state_path}.corrupt-{self._utc()}-{number}"
        self.disk.rename(self.state_path, kept)
        self.notices.append(
            Notice(
                "state_corrupt",
                None,
                None,
                f"{self.state_path} could not be read ({reason}). It was kept as {kept}; what is"
                " done was read from the log, and cursor and attempts begin anew.",
                "Nothing needs to be done.",
            )
        )

    def _note_lost_log(self) -> None:
        """Items that a state.json claims, beside no log at all."""
        count = len(self.position.completed)
        if count:
            self.notices.append(
                Notice(
                    "log_missing",
                    None,
                    None,
                    f"{self.log_path} is gone, but {self.state_path} says that {count} items are"
                    " done. Their findings are lost; they do not run again.",
                    self.cure,
                )
            )

    # findings.jsonl

    def _read_log(self, head: StateHead | None, *, is_new: bool) -> tuple[int, FindingLog]:
        """Enter what is done. Returns the proven offset, and the log, open and on the medium."""
        stat = self.disk.stat(self.log_path)
        size_bytes = 0 if stat is None else stat.size_bytes
        as_of = head.as_of if head else None
        known = known_part(self.disk, self.log_path, as_of, size_bytes)
        proven, damage = known or (0, NO_DAMAGE)
        completed = self.position.completed
        scan = LogScan(proven, completed)
        scan.read(self.disk, self.log_path)
        self._check_is_log(head, scan)
        # A newline that is all that is missing is put back below.
        is_short = as_of is not None and as_of.offset - size_bytes > (1 if scan.tail_bytes else 0)
        if as_of is not None and is_short and not is_new:
            self._note_short_log(as_of.offset, size_bytes)
        settled = settle_log(self.disk, self.root, scan, proven, known=damage, utc=self._utc())
        if settled.completed is not None:
            completed[settled.completed[0]] = settled.completed[1]
        self.notices += settled.notices
        self.position.damage = settled.damage
        self._restore_last(settled.offset)
        return proven, FindingLog(self.disk, self.log_path, settled.offset, settled.last)

    def _check_is_log(self, head: StateHead | None, scan: LogScan) -> None:
        """Refuse a text that was never a log: repairing it would take its end away.

        A line that cannot be text is what a power cut makes of a first append.
        """
        if head is not None or scan.findings or not scan.bad:
            return
        first = scan.bad[0]
        line = self.disk.read(self.log_path, first.byte, _text_bytes).partition(b"\n")[0]
        if _is_text(line):
            raise RefusedError(
                f"{self.log_path} holds no finding at all: line {first.line + 1}, byte"
                f" {first.byte}: {first.reason}.",
                code="not_a_log",
                rule="JB-7",
                fix="Name another directory for the job, or move that file away.",
            )

    def _note_short_log(self, offset: int, size_bytes: int) -> None:
        self.notices.append(
            Notice(
                "log_short",
                None,
                size_bytes,
                f"{self.log_path} has {size_bytes} bytes, but {self.state_path} speaks of {offset}:"
                " findings at its end are lost. Their items do not run again.",
                self.cure,
            )
        )

    def _restore_last(self, end: int) -> None:
        """The findings that ``SUMMARY.md`` shows, from the end of the log."""
        start = max(0, end - last_findings_bytes_max)
        lines = self.disk.read(self.log_path, start, end - start).split(b"\n")
        if start:
            del lines[0]  # cut in the middle, or a whole one too many
        shown = self.position.last
        for raw in reversed(lines):
            if len(shown) == shown.maxlen:
                break
            judged = judge_line(raw)
            if isinstance(judged, Line):
                self.position.add_last(judged.key or judged.hash, judged.at, raw)

    # Where the job stands

    def _place(self, head: StateHead | None, recent: Recent, *, existed: bool) -> None:
        position = self.position
        queued: tuple[ErrorEntry, ...] = ()
        if head is not None:
            position.started_at = head.started_at or position.started_at
            position.finished_at = head.finished_at
            position.cursor = to_json(head.cursor)
            position.resumes = head.stats.resumes
            queued = head.errors
            if recent.cursor is not None:
                position.cursor = recent.cursor
            if recent.resumes is not None:
                position.resumes = max(position.resumes, recent.resumes)
        elif position.completed:
            first = next(iter(position.completed.values()))
            position.started_at = first or position.started_at
        position.errors = merged_errors(queued, recent, position.completed)
        if existed:
            position.resumes += 1
            position.changes += 1

    def _utc(self) -> str:
        return utc_name(self.now)


def _is_text(line: bytes) -> bool:
    """Whether these bytes, of which the end may be missing, can be text."""
    try:
        getincrementaldecoder("utf-8")().decode(line)
    except UnicodeDecodeError:
        return False
    return b"\0" not in line


def _check_name(name: object) -> None:
    if not is_job_name(name):
        raise UsageError(
            f"a job has a name: 1 to {name_chars_max} printable characters.",
            code="bad_job_name",
            rule="JB-4",
            fix="Name it after what it does, such as 'docs'.",
        )
