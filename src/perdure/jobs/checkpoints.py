"""When ``state.json`` and ``SUMMARY.md`` are written, and in which order (ADR 0012).

Job: the policy, and the two files. Invariants: what is written claims only what the log holds
durably; ``state.json`` is on the medium before ``.recent.jsonl``, whose lines it includes, is
emptied; the cursor that ``SUMMARY.md`` shows is on the medium before it; renewals take at most a
twentieth of the run, and all that is written for them at most as much as the log itself and a
summary a second. It starts no thread: a renewal that is due happens at the next record.
"""

from collections.abc import Iterable
from typing import Final

from perdure.jobs.log import FindingLog
from perdure.jobs.position import Position
from perdure.jobs.recent import RecentFile
from perdure.jobs.records import ErrorEntry
from perdure.jobs.state_file import encode_state
from perdure.jobs.summary import Status, render_summary
from perdure.runtime.world import World

STATE_NAME: Final = "state.json"
SUMMARY_NAME: Final = "SUMMARY.md"

first_records_max: Final = 64
"""So many records of a process renew the summary each: a small job's is always fresh."""
small_state_bytes_max: Final = 8 << 10
"""A state.json of at most so many bytes goes with each of the first renewals."""
renewal_interval_s: Final = 1.0
renewal_share: Final = 20
"""A renewal that took t seconds is followed by the next one after so many times t."""
_entry_bytes: Final = 51
"""Of ``state.json`` for one item that is done; close enough to tell a small one from a large."""
_error_bytes: Final = 115
"""Of an entry of the error queue, without its texts."""


class Checkpoints:
    """The checkpoints of one open job. Not for two threads at once."""

    def __init__(
        self,
        world: World,
        root: str,
        position: Position,
        log: FindingLog,
        recent: RecentFile,
    ) -> None:
        self._disk = world.disk
        self._clock = world.clock
        self._state_path = f"{root}/{STATE_NAME}"
        self._summary_path = f"{root}/{SUMMARY_NAME}"
        self._position = position
        self._log = log
        self._recent = recent
        self._records = 0
        self._due_at = 0.0
        self._saved_changes = -1
        """Of the position, what ``state.json`` shows."""
        self._said: Status | None = None
        """What the summary that stands there was written for."""
        self._saved_cursor = 0
        """Of the position, the cursor that is on the medium."""
        self._state_bytes = 0
        self._written_then = 0
        """Bytes of log and recent lines when state.json was written last."""
        self._is_ours = False
        """Whether the state.json on the disk says which recent lines it includes."""

    def knows(self, state_bytes: int, log_offset: int, *, is_ours: bool) -> None:
        """What ``state.json`` is like at opening: its size, and how much of the log it includes."""
        self._state_bytes = state_bytes
        self._written_then = log_offset
        self._is_ours = is_ours

    def begin(self, errors: Iterable[ErrorEntry]) -> None:
        """The files of a job that has just been opened.

        A large ``state.json`` is not replaced by an opening: what it lacks besides findings, of
        which ``errors`` are a part, becomes a line each. Both files durable on return.
        """
        if self._is_small():
            self._write_state()
        else:
            self._recent.begin(self._position.resumes, self._position.cursor, errors)
            self._saved_cursor = self._position.cursor_changes
        self._write_summary("running")

    def after(self, records: int) -> None:
        """So many outcomes were recorded: renew what is due."""
        self._records += records
        is_early = self._records - records < first_records_max
        if is_early or self._clock.monotonic() >= self._due_at:
            self._renew()

    def write(self, status: Status) -> None:
        """Both files, now."""
        self._write_state()
        self._write_summary(status)

    def end(self, status: Status) -> None:
        """Both files, when the process lets go of the job: ``state.json`` if it lacks anything."""
        if self._saved_changes != self._position.changes:
            self._write_state()
        elif self._said == "finished":
            return  # ``finish`` has just written both
        self._write_summary(status)

    def _renew(self) -> None:
        began = self._clock.monotonic()
        if self._is_state_due():
            self._write_state()
        elif self._saved_cursor != self._position.cursor_changes:
            self._recent.add_cursor(self._position.cursor)
            self._saved_cursor = self._position.cursor_changes
        self._write_summary("running")
        ended = self._clock.monotonic()
        self._due_at = ended + max(renewal_interval_s, renewal_share * (ended - began))

    def _is_state_due(self) -> bool:
        if not self._is_ours:
            # Beside a file that does not number them, cursor lines would not count.
            return True
        if self._records <= first_records_max and self._is_small():
            return True
        return self._written() - self._written_then >= self._state_bytes

    def _is_small(self) -> bool:
        size = _entry_bytes * len(self._position.completed)
        errors = self._position.errors
        if size + _error_bytes * len(errors) > small_state_bytes_max:
            return False
        size += sum(_error_bytes + len(e.key) + len(e.error) for e in errors.values())
        return size <= small_state_bytes_max

    def _written(self) -> int:
        return self._log.offset + self._recent.size_bytes

    def _write_state(self) -> None:
        self._log.check_in_place()
        position = self._position
        head = position.head(self._log.as_of(self._recent.n, position.damage))
        data = encode_state(head, position.completed)
        self._disk.replace(self._state_path, data, durable=True)
        self._state_bytes = len(data)
        self._is_ours = True
        self._saved_changes = position.changes
        self._saved_cursor = position.cursor_changes
        self._recent.empty()
        self._written_then = self._written()

    def _write_summary(self, status: Status) -> None:
        data = render_summary(self._position.facts(status))
        self._disk.replace(self._summary_path, data, durable=True)
        self._said = status
