"""How a worker of a batch node has ended, by what the disk holds of it.

Job: put the end of a slot into one of the ends that the journal knows. Invariants: the units on
disk decide, and what a worker says of itself decides nothing: one that reports success and has left
nothing is dead (PD-J1); one that was stopped has not died. Pure.
"""

from typing import NamedTuple

from perdure.control.executor_port import Report
from perdure.control.outcome import Ended, seconds_text
from perdure.control.shard_join import Adjudged
from perdure.control.shard_worker import Worker, observation_chars_max
from perdure.core.dispatching import Cause, SlotEnd


class SlotVerdict(NamedTuple):
    """How a slot ended, by what the disk holds of it."""

    end: SlotEnd
    observation: str
    cause: Cause = ""

    @property
    def died(self) -> bool:
        """Whether it came to nothing by itself: neither landed nor stopped."""
        return self.end not in ("landed", "recalled", "abandoned")


def judge_slot(units: int, adjudged: Adjudged, ended: Ended, report: Report) -> SlotVerdict:
    """The end of a slot with so many units, from what was found and how its worker ended."""
    found = f"{len(adjudged.landed)} of {units} units on disk"
    if adjudged.failed:
        found += f", {len(adjudged.failed)} failed"
    how = _how(ended, report)
    observation = f"{how}; {found}"[:observation_chars_max]
    moved = bool(adjudged.landed or adjudged.failed)
    if not adjudged.left:
        return SlotVerdict("landed", observation)
    if ended.how == "stopped":
        return SlotVerdict("recalled", observation)
    if ended.how == "timed_out":
        return SlotVerdict("timed_out", observation, report.cause)
    if ended.killed_by is not None:
        return SlotVerdict("killed", observation, report.cause)
    if report.claims:
        return SlotVerdict("landed" if moved else "silent", observation)
    return SlotVerdict("failed", observation, report.cause)


def _how(ended: Ended, report: Report) -> str:
    if ended.how == "stopped":
        return f"stopped: {ended.reason}"
    if ended.how == "timed_out":
        return f"stopped at the time limit of {seconds_text(ended.limit_s or ended.wall_s)}"
    if report.claims:
        return "it reported success"
    if report.failure is not None:
        return report.failure[1]
    if report.questions:
        return f"it asks: {report.questions[0].text}"
    return "it failed without a word"


class WorkerEnd(NamedTuple):
    """A worker that has ended, and what was found."""

    worker: Worker
    report: Report
    adjudged: Adjudged
    verdict: SlotVerdict

    @property
    def is_death_of_its_unit(self) -> bool:
        """Whether it died on a single unit, and of no wall: the one death that counts for a unit.

        Whatever it wrote first; a unit that ends each of its workers would come back for ever.
        """
        alone = len(self.worker.keys) == 1 and len(self.adjudged.left) == 1
        return alone and self.verdict.died and not self.verdict.cause

    @property
    def has_moved(self) -> bool:
        """Whether anything of it is settled now."""
        return bool(self.adjudged.landed or self.adjudged.failed)
