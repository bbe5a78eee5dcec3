"""What has become of each unit of a batch node that is worked through by workers.

Job: where the units stood when the run began, the outcomes that are made durable since, and the
figures. Invariants: findings are durable before their ledger lines, and both before anything counts
(JB-8); a unit that is done stays done, whoever brings it once more; a unit fails for good when it
has failed as often as it may. In memory are the inventory and the units that failed.
"""

from array import array
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from perdure.control.batch_job import BatchJob, SettledUnit
from perdure.control.changed_items import find_changed
from perdure.control.item_list import ItemList
from perdure.control.item_run import absent_kept_max
from perdure.control.shard_adoption import record_findings
from perdure.control.shard_join import Duplicates, Landed
from perdure.control.shard_queue import ShardQueue
from perdure.jobs.records import Failure, Finding
from perdure.ports import Disk


class UnitFailure(NamedTuple):
    """A unit that failed by itself this time."""

    place: int
    why: str


class UnitRecord:
    """The outcomes of one run over the units of an open job."""

    def __init__(
        self, batch_job: BatchJob, items: ItemList, *, max_attempts: int, disk: Disk
    ) -> None:
        """Reads the log once more when items have content that may have changed."""
        self.items: Final = items
        self.processed = 0
        """Units that were done by this run."""
        self.first_error = ""
        """Why a unit has failed in this run."""
        self._batch_job = batch_job
        self._job = batch_job.job
        self._max_attempts = max_attempts
        self._attempts: dict[int, int] = {}
        """Of the units that are in the error queue."""
        self._exhausted = 0
        self._changed = find_changed(items, self._job.is_done, self._job.directory, disk=disk)

    def survey(self, *, size: int, retry_wait_s: float) -> ShardQueue:
        """Sort the units into done, failed before and fresh; what is to be done."""
        errors = {entry.key: entry.attempts for entry in self._job.errors}
        fresh, again, self.skipped = array("L"), list[int](), 0
        for place, key in enumerate(self.items.keys):
            if self._job.is_done(key):
                self.skipped += 1
                """Units that were done before, by whatever worker."""
            elif key not in errors:
                fresh.append(place)
            else:
                self._attempts[place] = errors[key]
                if errors[key] < self._max_attempts:
                    again.append(place)
                else:
                    self._exhausted += 1
        known = set(self.items.keys) if len(self._attempts) < len(errors) else set(errors)
        absent = [key for key in errors if key not in known]
        self._absent, self._absent_count = absent[:absent_kept_max], len(absent)
        return ShardQueue(fresh, again, size=size, retry_wait_s=retry_wait_s)

    def is_done(self, place: int) -> bool:
        """Whether there is a finding for the unit at this place."""
        return self._job.is_done(self.items.keys[place])

    @property
    def is_complete(self) -> bool:
        """Every unit is done."""
        return self.skipped + self.processed == len(self.items)

    def land(
        self,
        landed: Sequence[tuple[int, Landed, str]],
        failures: Sequence[UnitFailure] = (),
    ) -> tuple[list[int], Duplicates]:
        """Make durable what workers have brought, and what has failed by itself.

        ``landed`` is the place of a unit, what was found, and the slot it is from; of two for one
        unit the first counts, and the others are returned to be compared. Also returned: places of
        units that failed and may be tried again. Raises StorageError.
        """
        duplicates, findings = Duplicates(), dict[int, Finding]()
        for place, unit, slot in landed:
            if place in findings or self._job.is_done(unit.key):
                duplicates.add(unit.key, unit.payload, slot)
                continue
            if unit.artifact:
                self._batch_job.place(unit.key, unit.artifact)
            findings[place] = Finding(unit.key, unit.payload, self.items[place].digest)
        taken = set(record_findings(self._batch_job, findings.values()))
        refused = []
        for place, finding in findings.items():
            if finding.key not in taken:
                why = "its finding is none: it has a reserved name, or is too large"
                refused.append(UnitFailure(place, why))
                continue
            self.processed += 1
            if self._attempts.pop(place, 0) >= self._max_attempts:
                self._exhausted -= 1
        return self._fail([*failures, *refused]), duplicates

    def _fail(self, failures: Sequence[UnitFailure]) -> list[int]:
        """Record them, and the ledger lines of those that have failed for good; which may go on."""
        mask = self._job.masked
        outcomes = {one.place: mask(one.why) for one in failures if not self.is_done(one.place)}
        if not outcomes:
            return []
        keys = self.items.keys
        self._job.record_many([Failure(keys[place], why) for place, why in outcomes.items()])
        again, gone = [], []
        for place, why in outcomes.items():
            self.first_error = self.first_error or why
            attempts = self._attempts[place] = self._attempts.get(place, 0) + 1
            if attempts < self._max_attempts:
                again.append(place)
            elif attempts == self._max_attempts:
                self._exhausted += 1
                gone.append(SettledUnit(keys[place], False, why))
        self._batch_job.settle(gone)
        return again

    def counts(self) -> dict[str, int]:
        """Where the units stand; ``failed`` counts those that are not done, ``exhausted`` too."""
        return {
            "total": len(self.items),
            "done": self.skipped + self.processed,
            "processed": self.processed,
            "skipped": self.skipped,
            "failed": len(self._attempts),
            "exhausted": self._exhausted,
        }

    def report(self) -> dict[str, Any]:
        """What is odd about the input."""
        return {
            "duplicates": [duplicate._asdict() for duplicate in self.items.duplicates],
            "duplicate_count": self.items.duplicate_count,
            "differing_count": self.items.differing_count,
            "changed": self._changed.keys,
            "changed_count": self._changed.total,
            "absent": self._absent,
            "absent_count": self._absent_count,
        }
