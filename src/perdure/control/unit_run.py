"""What a batch node asks of whatever works through its units.

Job: the interface that a command for each unit (``item_run``) and workers that get many units each
(``shards``) have in common. Invariants: every outcome is durable before it counts; nothing here
waits, the caller owns the loop and decides how much runs. Never commits for the node itself.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from perdure.control.executor import RunningCommand
from perdure.control.item_list import ItemList
from perdure.core.model import FailureClass
from perdure.jobs.job import CheckpointedJob


class UnitRun(Protocol):
    """One run over the units of an open job. Not for several threads at once."""

    @property
    def job(self) -> CheckpointedJob:
        """Holds the findings, and the units that failed."""

    @property
    def items(self) -> ItemList:
        """The units."""

    @property
    def commands(self) -> Sequence[RunningCommand]:
        """What runs, to be waited for."""

    @property
    def failure(self) -> tuple[FailureClass, str] | None:
        """What ends the attempt as failed, whatever its units come to."""

    @property
    def is_idle(self) -> bool:
        """Nothing runs; what ended was recorded when it was collected."""

    @property
    def is_finished(self) -> bool:
        """Nothing runs and nothing is left to start, now or later."""

    @property
    def is_complete(self) -> bool:
        """Every unit is done."""

    def can_start(self) -> bool:
        """Whether :meth:`start_one` has something to start now."""

    def start_one(self) -> None:
        """Start the next command; only after ``can_start``. Raises HaltError when it cannot be."""

    def due_in_s(self) -> float | None:
        """When ``can_start`` will be true without anything ending; None when never."""

    def collect(self) -> None:
        """Record what has ended. Raises StorageError, and then nothing of it counts before the
        job is opened again."""

    def discard(self) -> None:
        """See what has ended and record nothing of it: the run has failed, or its job is lost."""

    def stop(self, reason: str, *, grace_s: float | None = None) -> None:
        """Start nothing more and stop what runs: SIGTERM now, SIGKILL after the grace."""

    def close(self) -> None:
        """Say that nothing of this run is at work any more; only when nothing runs."""

    def counts(self) -> dict[str, int]:
        """Where the units stand: ``total``, ``done``, ``exhausted`` among others."""

    def report(self) -> dict[str, Any]:
        """The counts, and what is odd about the input."""

    def first_error(self) -> str:
        """Why a unit has failed in this run; empty while none has."""
