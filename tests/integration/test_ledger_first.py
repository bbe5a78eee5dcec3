"""A batch node of 10^5 units is opened and recovered from its ledger and its log alone.

Counted on the real disk, each call that reads: recovery reads nothing of the node, the next attempt
reads the ledger once and the log once, and whatever files the units have of their own is not so
much as looked at. So the cost of a death follows the length of two files, and not how many units
there are.
"""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.host import Host

from perdure import HaltRuntime
from perdure.control.batch_job import BatchJob, SettledUnit
from perdure.core.batch import ledger_path, log_path
from perdure.jobs.records import Finding
from perdure.ports import FileStat
from perdure.runtime import work
from perdure.runtime.contracts import Units
from perdure.runtime.engine import Engine
from perdure.runtime.world import World
from perdure.storage.disk import RealDisk

units = 100_000
with_files = 50
"""Units that left a file of their own as well."""
tail_bytes_max = 2 << 20
"""What may be read again of a file: its end, which is shown, and written again for an honest sync.
"""


class WatchedDisk(RealDisk):
    """The real disk, and what was read and looked at."""

    __slots__ = ("listed", "read_bytes", "stats")

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes: Counter[str] = Counter()
        self.stats: Counter[str] = Counter()
        self.listed: Counter[str] = Counter()

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        data = super().read(path, offset, length)
        self.read_bytes[path] += len(data)
        return data

    def read_chunks(
        self, path: str, chunk_bytes: int = 1 << 20, offset: int = 0
    ) -> Iterator[bytes]:
        for chunk in super().read_chunks(path, chunk_bytes, offset):
            self.read_bytes[path] += len(chunk)
            yield chunk

    def stat(self, path: str) -> FileStat | None:
        self.stats[path] += 1
        return super().stat(path)

    def list_dir(self, path: str) -> list[str]:
        self.listed[path] += 1
        return super().list_dir(path)

    def clear(self) -> None:
        for counter in (self.read_bytes, self.stats, self.listed):
            counter.clear()


class Stage:
    """A task of tier 2 whose batch node was at work, nearly done, when its coordinator died."""

    def __init__(self, directory: str) -> None:
        self.host = Host(directory)
        self.disk = WatchedDisk()
        self.keys = [f"u{n:06}" for n in range(units)]
        self.scope = f"{self.host.workspace}/artifacts/B"
        runtime = HaltRuntime(self.host.workspace, "T1", tier=2, world=self.host.world())
        self.host.write("tmp/items.txt", "".join(f"{key}\n" for key in self.keys))
        runtime.add_node("B", "batch", map={"run": "true", "items": "tmp/items.txt"})
        counted = Units({"total": units}, 0)
        work.start(runtime.engine, "B", units=lambda node: counted)
        self._work(runtime.engine, runtime)
        self.host.die(runtime)
        self.log_bytes = os.path.getsize(f"{self.host.workspace}/{log_path('B')}")
        self.ledger_bytes = os.path.getsize(f"{self.host.workspace}/{ledger_path('B')}")

    def _work(self, engine: Engine, runtime: HaltRuntime) -> None:
        job = BatchJob(engine, runtime.state.nodes["B"])
        job.adopt(self.keys)
        for key in self.keys[:with_files]:
            job.job.write_artifact(key, b"of its own")
        done = self.keys[:-1]
        for start in range(0, len(done), 5_000):
            group = done[start : start + 5_000]
            job.job.record_many([Finding(key, {"n": 1}) for key in group])
            job.settle(SettledUnit(key, True) for key in group)
        # The last unit: its finding is durable, and the process dies before its ledger line.
        job.job.record_many([Finding(self.keys[-1], {"n": 1})])

    def world(self) -> World:
        return self.host.world(101)._replace(disk=self.disk)

    def read_of_the_node(self) -> dict[str, int]:
        """Bytes read below the node's place, by file."""
        inside = f"{self.scope}/"
        found: dict[str, int] = {
            path.removeprefix(inside): size
            for path, size in self.disk.read_bytes.items()
            if path.startswith(inside) and size
        }
        return found

    def file_of(self, job: BatchJob, key: str) -> str:
        return job.job.artifact_path(key)

    def looks_at_unit_files(self) -> list[str]:
        files = f"{self.scope}/files"
        looked = [*self.disk.stats, *self.disk.listed, *self.disk.read_bytes]
        return [path for path in looked if path == files or path.startswith(f"{files}/")]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(str(tmp_path_factory.mktemp("ledger-first")))


def test_a_death_among_10_5_units_costs_one_pass_over_ledger_and_log(stage: Stage) -> None:
    with HaltRuntime.resume(stage.host.workspace, world=stage.world()) as runtime:
        assert runtime.node("B").state == "RETRYABLE"
        assert stage.read_of_the_node() == {}, "recovery is the journal's"
        assert stage.looks_at_unit_files() == []
        stage.disk.clear()

        node: Any = runtime.state.nodes["B"]
        job = BatchJob(runtime.engine, node)
        try:
            assert job.adopt(stage.keys) == units
        finally:
            job.close()
        read = stage.read_of_the_node()
        assert read.pop("ledger.jsonl") <= stage.ledger_bytes + tail_bytes_max
        assert read.pop("findings.jsonl") <= stage.log_bytes + tail_bytes_max
        assert set(read) <= {"state.json", ".recent.jsonl", ".batch.json", "SUMMARY.md"}
        # Of the one unit whose line was lost it is asked what that line is to name.
        assert stage.looks_at_unit_files() == [stage.file_of(job, stage.keys[-1])]
