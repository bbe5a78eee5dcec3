"""Output that comes in after the slot of its worker was closed (RT-3).

Job: remember what dead workers have not brought, and see when their files grow. Invariants: late
output is judged like any other, in the directory of its own worker; a worker is looked at again
only when its files have changed; how many are remembered is bounded, the newest ones.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from perdure.control.shard_join import Errors, Landed, adjudicate
from perdure.control.shard_worker import Worker
from perdure.core.batch import LEDGER_NAME, LOG_NAME
from perdure.ports import Disk

dead_watched_max: Final = 1_000


def written_bytes(disk: Disk, directory: str) -> int:
    """The size of what a worker has written of findings and ledger."""
    seen = [disk.stat(f"{directory}/{name}") for name in (LOG_NAME, LEDGER_NAME)]
    return sum(stat.size_bytes for stat in seen if stat is not None)


class _Dead(NamedTuple):
    """A worker that has ended with units left, which it may still bring."""

    directory: str
    units: dict[str, int]
    """Key to place."""
    size_bytes: int
    """Of its files when they were looked at."""


class DeadWorkers:
    """The workers of one run that may still bring something."""

    def __init__(self, disk: Disk, errors_of: Errors | None) -> None:
        self._disk = disk
        self._errors_of = errors_of
        self._dead: OrderedDict[str, _Dead] = OrderedDict()

    def watch(self, worker: Worker, left: list[str]) -> None:
        """Its slot is closed, and these of its units were not on disk."""
        size = written_bytes(self._disk, worker.directory)
        places = worker.places
        units = {key: places[key] for key in left}
        self._dead[worker.invocation] = _Dead(worker.directory, units, size)
        if len(self._dead) > dead_watched_max:
            self._dead.popitem(last=False)

    def look(self) -> list[tuple[str, list[tuple[int, Landed, str]]]]:
        """What has come in since the last look: invocation, and its units with their places.

        Each unit is told once. Raises StorageError.
        """
        found = []
        for invocation, dead in list(self._dead.items()):
            size = written_bytes(self._disk, dead.directory)
            if size == dead.size_bytes:
                continue
            self._dead[invocation] = dead._replace(size_bytes=size)
            adjudged = adjudicate(
                self._disk, dead.directory, list(dead.units), errors_of=self._errors_of
            )
            units = [(dead.units.pop(unit.key), unit, invocation) for unit in adjudged.landed]
            if units:
                found.append((invocation, units))
            if not dead.units:
                del self._dead[invocation]
        return found
