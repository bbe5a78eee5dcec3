"""A simulated machine with one job directory, for tests of one process after the other."""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from perdure.jobs.job import CheckpointedJob
from perdure.jobs.records import AsOf, StateHead, Stats
from perdure.jobs.state_file import encode_state
from perdure.runtime.world import World
from perdure.testing import SimClock, SimDisk, SimProcesses, next_world, sim_world

ROOT = "/data/job"
NAME = "docs"
AT = "2027-01-15T08:00:00.000+00:00"


class SimHost:
    """The process of now, and the job's files."""

    def __init__(self) -> None:
        self._enter(sim_world(SimDisk()))

    def _enter(self, world: World) -> None:
        assert isinstance(world.disk, SimDisk)
        assert isinstance(world.clock, SimClock)
        self.world = world
        self.disk = world.disk
        self.clock = world.clock
        self.jobs: list[CheckpointedJob] = []

    def open(self, name: str = NAME, secrets: Sequence[str] = ()) -> CheckpointedJob:
        job = CheckpointedJob(ROOT, name, world=self.world, secrets=secrets)
        self.jobs.append(job)
        return job

    def kill(self) -> None:
        """SIGKILL for the process of now; the next one begins. What it had is not let go of."""
        disk = self.disk.survive_kill()
        dead = self.jobs
        self._enter(next_world(self.world, disk))
        for job in dead:  # a dead process runs no exit hooks
            job._closer.detach()

    def beside(self) -> World:
        """The world of another process of this machine, which runs at the same time."""
        processes = self.world.processes
        assert isinstance(processes, SimProcesses)
        other = processes.seen_from(processes.unused_pid())
        return self.world._replace(disk=self.disk.beside(), processes=other)

    def path(self, name: str) -> str:
        return f"{ROOT}/{name}"

    def read(self, name: str) -> bytes:
        held = self.disk.tree()[self.path(name)]
        assert isinstance(held, bytes)
        return held

    def write(self, name: str, data: bytes) -> None:
        """As another program writes a file."""
        self.disk.write(self.path(name), data)

    def remove(self, name: str) -> None:
        self.disk.unlink(self.path(name), durable=False)

    def names(self) -> list[str]:
        """Of the files in the directory."""
        return self.disk.list_dir(ROOT)

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.read("findings.jsonl").splitlines()]

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.read("state.json"))
        return state

    def summary(self) -> str:
        return self.read("SUMMARY.md").decode()

    def steps(self) -> list[str]:
        """What this process has done to the disk, as words: ``sync_file findings.jsonl``."""
        return [f"{op.kind} {op.path.rpartition('/')[2]}" for op in self.disk.log]

    def write_steps(self, first: int) -> list[str]:
        return self.steps()[first:]


def line(key: str, **fields: Any) -> bytes:
    """A finding as the contract has it, written by another implementation."""

    digest = sha256(key.encode()).hexdigest()[:16]
    return json.dumps({**fields, "_hash": digest, "_key": key, "_at": AT}).encode() + b"\n"


def our_state(as_of: AsOf | None, completed: dict[str, str] | None = None, **fields: Any) -> bytes:
    """A state.json as perdure writes it, with its proof."""
    known = {"started_at": AT, "updated_at": AT, "stats": Stats(0, 0, 4), "cursor": {"page": 7}}
    return encode_state(StateHead(NAME, as_of=as_of, **{**known, **fields}), completed or {})
