"""A machine for crash tests of jobs: one process after the other on one job, each killed.

``SimJobMachine`` is simulated, killed or cut from power; ``RealJobMachine`` is killed on the real
disk. Both keep what the calls that returned have promised, and what was begun at all: nothing that
was not begun may ever be found.
"""

import contextlib
import copy
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.crash.disk import CutDisk, Fuse
from tests.unit.fakes import FakeClock, FakeIds, FakeProcesses

from perdure.jobs.job import CheckpointedJob
from perdure.jobs.records import Failure, Finding
from perdure.runtime.world import World
from perdure.testing import Killed, SimClock, SimDisk, next_world, sim_world

ROOT = "/some/job"
NAME = "docs"


@dataclass
class Promises:
    """What the callers of a job rely on."""

    findings: dict[str, Any] = field(default_factory=dict)
    """Acknowledged: key to payload."""
    attempts: dict[str, int] = field(default_factory=dict)
    """Acknowledged by ``record_error``; an item that is done since has none."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Side files that were written."""
    cursor: int = -1
    """Set before the last checkpoint that returned."""
    begun: dict[str, Any] = field(default_factory=dict)
    begun_attempts: dict[str, int] = field(default_factory=dict)
    begun_cursor: int = -1
    log: bytes = b""
    """The log when the last call returned."""


class AnyJobMachine(Protocol):
    """A machine with one job on it, whatever its disk is made of."""

    root: str
    promises: Promises
    jobs: list[CheckpointedJob]

    @property
    def world(self) -> World: ...
    def bytes_of(self, name: str) -> bytes | None: ...
    def file_names(self) -> list[str]: ...
    def advance(self, seconds: float) -> None: ...


Workload = Callable[[AnyJobMachine], None]


class Caller:
    """A program that uses a job, and writes down what it was promised."""

    def __init__(self, machine: AnyJobMachine) -> None:
        self.machine = machine
        self.promises = machine.promises
        self.job = CheckpointedJob(machine.root, NAME, world=machine.world)
        machine.jobs.append(self.job)
        self._cursor = -1 if self.job.cursor is None else self.job.cursor["last"]
        self._returned()

    def _returned(self) -> None:
        self.promises.log = self.machine.bytes_of("findings.jsonl") or b""

    def finding(self, key: str, payload: Mapping[str, Any]) -> None:
        self.promises.begun[key] = dict(payload)
        self.job.record_finding(key, payload)
        self._done(key, payload)

    def error(self, key: str, text: str) -> None:
        begun = self.promises.begun_attempts
        begun[key] = begun.get(key, 0) + 1
        self.promises.attempts[key] = self.job.record_error(key, text)
        self._returned()

    def many(self, outcomes: list[Finding | Failure]) -> None:
        begun = self.promises.begun_attempts
        for outcome in outcomes:
            if isinstance(outcome, Finding):
                self.promises.begun[outcome.key] = dict(outcome.payload)
            else:
                begun[outcome.key] = begun.get(outcome.key, 0) + 1
        self.job.record_many(outcomes)
        for outcome in outcomes:
            if isinstance(outcome, Finding):
                self._done(outcome.key, outcome.payload)
        for entry in self.job.errors:
            self.promises.attempts[entry.key] = entry.attempts

    def cursor(self, number: int) -> None:
        self.promises.begun_cursor = max(number, self.promises.begun_cursor)
        self.job.set_cursor({"last": number})
        self._cursor = number

    def reset(self, name: str) -> None:
        self.promises.attempts.pop(name, None)
        self.job.reset_attempts([name])
        self.promises.begun_attempts[name] = 0

    def side_file(self, key: str, data: bytes) -> None:
        path = self.job.write_artifact(key, data, ".bin")
        self.promises.files[path.removeprefix(f"{self.machine.root}/")] = data

    def checkpoint(self) -> None:
        self.job.checkpoint()
        self._saved()

    def finish(self) -> None:
        self.job.finish()
        self._saved()

    def close(self) -> None:
        self.job.close()
        self._saved()

    def _done(self, key: str, payload: Mapping[str, Any]) -> None:
        self.promises.findings[key] = dict(payload)
        self.promises.attempts.pop(key, None)
        self._returned()

    def _saved(self) -> None:
        self.promises.cursor = self._cursor


class SimJobMachine:
    """A simulated machine with one job on it."""

    def __init__(self, world: World, promises: Promises) -> None:
        assert isinstance(world.disk, SimDisk)
        self.root = ROOT
        self.world = world
        self.disk: SimDisk = world.disk
        self.promises = promises
        self.jobs: list[CheckpointedJob] = []

    @classmethod
    def new(cls, *, cut_after: int | None = None, torn_bytes: int | None = None) -> "SimJobMachine":
        return cls(sim_world(SimDisk(cut_after=cut_after, torn_bytes=torn_bytes)), Promises())

    def next(self, disk: SimDisk, *, power_cut: bool) -> "SimJobMachine":
        """The next process, on what is left of this one's disk; this one can be asked again."""
        world = next_world(self.world, disk, power_cut=power_cut)
        return SimJobMachine(world, copy.deepcopy(self.promises))

    def end(
        self, *, cut_after: int | None = None, torn_bytes: int | None = None
    ) -> "SimJobMachine":
        """The process is killed, if it is not dead; the next one of the machine begins."""
        disk = self.disk.survive_kill(cut_after=cut_after, torn_bytes=torn_bytes)
        self.bury()
        return self.next(disk, power_cut=False)

    def again(self) -> "SimJobMachine":
        """The next process of a machine that goes its own way; this one lives on."""
        return self.next(self.disk.holding(self.disk.files.copy()), power_cut=False)

    def bury(self) -> None:
        """Let go of what the dead process had, now and not at some garbage collection."""
        for job in self.jobs:
            with contextlib.suppress(Killed):
                job.close()
        self.jobs.clear()

    def advance(self, seconds: float) -> None:
        assert isinstance(self.world.clock, SimClock)
        self.world.clock.advance(seconds)

    def bytes_of(self, name: str) -> bytes | None:
        found = self.disk.tree().get(f"{ROOT}/{name}")
        return found if isinstance(found, bytes) else None

    def file_names(self) -> list[str]:
        return [path for path, held in self.disk.tree().items() if held is not None]


class RealJobMachine:
    """The real disk, with processes that are killed at a call that changes it."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.promises = Promises()
        self.jobs: list[CheckpointedJob] = []
        self.clock = FakeClock()
        self.processes = FakeProcesses(pid=1)
        self.pid = 100
        self.disk = CutDisk()

    def boot_process(self, fuse: Fuse | None = None) -> None:
        """The next process begins; the one before it, if it lives, is killed."""
        self.kill_process()
        self.pid += 1
        self.clock.advance(1.0)
        self.disk = CutDisk(fuse)

    def kill_process(self) -> None:
        """SIGKILL, if it has not met it already."""
        self.disk.die()
        for job in self.jobs:
            with contextlib.suppress(BaseException):
                job.close()
        self.jobs.clear()
        self.processes.kill(self.pid)

    @property
    def world(self) -> World:
        processes = self.processes.seen_from(self.pid)
        return World(self.disk, self.clock, FakeIds(), processes, {})

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def bytes_of(self, name: str) -> bytes | None:
        try:
            with open(f"{self.root}/{name}", "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def file_names(self) -> list[str]:
        return [
            os.path.join(folder, name) for folder, _, names in os.walk(self.root) for name in names
        ]


# What is in the files, read as another program would


def findings_in(log: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Key and payload of every line. Raises ValueError for a line that is no finding."""
    return [
        (fields.pop("_key"), {name: fields[name] for name in fields if name[0] != "_"})
        for fields in map(json.loads, filter(bytes.strip, log.split(b"\n")))
    ]


def hashes_in(log: bytes) -> Iterator[str]:
    """The ``_hash`` of every line that is whole."""
    for line in log.split(b"\n"):
        try:
            yield json.loads(line)["_hash"]
        except (ValueError, KeyError, TypeError):
            continue


def state_in(machine: AnyJobMachine) -> dict[str, Any] | None:
    data = machine.bytes_of("state.json")
    return None if data is None else json.loads(data)
