"""Where a job stands, without opening it: what state.json says, and what was recorded since."""

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from perdure.errors import NotFoundError
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.lines import encode_line, item_hash
from perdure.jobs.status import job_errors, job_status
from perdure.ports import Processes
from perdure.runtime.world import World
from perdure.testing import Killed, SimDisk, SimProcesses, next_world, sim_world

JOB = "/data/jobs/docs"
AT = "2026-11-30T11:43:57.755+00:00"


def open_job(world: World) -> CheckpointedJob:
    return CheckpointedJob(JOB, "docs", world=world)


def record(job: CheckpointedJob, first: int, end: int) -> None:
    for number in range(first, end):
        job.record_finding(f"k{number}", {"n": number})


def status(world: World) -> dict[str, Any]:
    return job_status(world.disk, JOB, processes=world.processes)


def killed(world: World, job: CheckpointedJob | None = None) -> World:
    """The machine after a SIGKILL of this process, as the next one finds it."""
    assert isinstance(world.disk, SimDisk)
    after = next_world(world, world.disk.survive_kill())
    if job is not None:  # a dead process runs no exit hooks; this one would
        with contextlib.suppress(Killed):
            job.close()
    return after


def test_an_open_job_is_running_and_says_by_whom() -> None:
    world = sim_world()
    job = open_job(world)
    record(job, 0, 5)
    job.record_error("bad", "no")
    found = status(world)
    assert (found["job"], found["status"]) == ("docs", "running")
    assert found["stats"] == {"processed": 5, "failed": 1, "resumes": 0}
    me = world.processes.me()
    assert found["holder"] == {"pid": me.pid, "host": me.host}
    assert found["summary"] == f"{JOB}/SUMMARY.md"
    assert [entry["key"] for entry in found["errors"]] == ["bad"]
    job.close()
    found = status(world)
    assert (found["status"], found["holder"]) == ("stopped", None)


def test_a_finished_job_is_finished_until_something_is_recorded() -> None:
    world = sim_world()
    job = open_job(world)
    record(job, 0, 3)
    job.finish()
    found = status(world)
    assert found["status"] == "finished"
    assert found["finished_at"]
    after = killed(world)
    open_job(after).close()
    assert status(after)["status"] == "finished"
    job = open_job(after)
    job.record_error("bad", "no")
    found = status(killed(after, job))
    assert (found["status"], found["finished_at"]) == ("stopped", None)


def test_what_was_recorded_since_the_last_checkpoint_counts() -> None:
    world = sim_world()
    job = open_job(world)
    record(job, 0, 100)
    job.record_error("k200", "no")
    job.record_error("bad", "no")
    job.checkpoint()
    record(job, 100, 300)
    job.record_error("bad", "again")
    after = killed(world, job)
    state = json.loads(after.disk.read(f"{JOB}/state.json"))
    assert state["stats"]["processed"] == 100, "the job went on without a checkpoint"
    found = status(after)
    assert found["status"] == "stopped"
    assert found["stats"]["processed"] == 300
    # k200 is done by now, and bad failed twice.
    assert [(entry["key"], entry["attempts"]) for entry in found["errors"]] == [("bad", 2)]
    assert found["updated_at"] >= state["updated_at"]
    with open_job(after) as job:
        assert job.state["stats"]["processed"] == 300
        assert [entry.key for entry in job.errors] == ["bad"]


def test_cursor_and_resumes_are_those_the_next_start_finds() -> None:
    world = sim_world()
    with open_job(world) as job:
        record(job, 0, 400)
        job.set_cursor({"page": 1})
    world = killed(world)
    job = open_job(world)
    job.set_cursor({"page": 2})
    record(job, 400, 401)
    after = killed(world, job)
    found = status(after)
    assert found["stats"]["resumes"] == 1
    assert found["cursor"] == {"page": 2}
    with open_job(after) as job:
        assert job.cursor == {"page": 2}
        assert job.state["stats"]["resumes"] == 2


class Counting:
    """A disk that counts the bytes that are read of the log."""

    def __init__(self, disk: Any) -> None:
        self.disk = disk
        self.log_bytes = 0
        self.before_recent: Callable[[], object] = lambda: None

    def read_chunks(self, path: str, chunk_bytes: int = 1 << 20, offset: int = 0) -> Any:
        for piece in self.disk.read_chunks(path, chunk_bytes, offset):
            self.log_bytes += len(piece) if path.endswith("findings.jsonl") else 0
            yield piece

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Any:
        if path.endswith(".recent.jsonl"):
            self.before_recent()
        return self.disk.read(path, offset, length)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.disk, name)


def test_only_the_end_of_the_log_is_read() -> None:
    world = sim_world()
    with open_job(world) as job:
        record(job, 0, 1_000)
        job.checkpoint()
        record(job, 1_000, 1_010)
        disk = Counting(world.disk)
        found = job_status(disk, JOB, processes=world.processes)  # type: ignore[arg-type]
        assert found["stats"]["processed"] == 1_010
        size = world.disk.stat(f"{JOB}/findings.jsonl")
        assert size is not None
        assert 0 < disk.log_bytes < size.size_bytes / 50


def test_state_json_that_is_replaced_meanwhile_is_read_again() -> None:
    """Else the failures between the old one and the emptied .recent.jsonl would be missing."""
    world = sim_world()
    with open_job(world) as job:
        record(job, 0, 400)
        job.checkpoint()
        job.record_error("bad", "no")
        disk = Counting(world.disk)

        def renew() -> None:
            disk.before_recent = lambda: None
            job.checkpoint()

        disk.before_recent = renew
        found = job_status(disk, JOB, processes=world.processes)  # type: ignore[arg-type]
        assert found["stats"]["failed"] == 1


# Jobs of others, and damage


def state(**fields: Any) -> bytes:
    known = {"job": "docs", "version": 1, "completed": {}, "errors": [], "stats": {}}
    return json.dumps(known | fields).encode()


def line(key: str) -> bytes:
    return encode_line(key, {}, AT)[1]


def directory(log: bytes | None, state: bytes | None) -> SimDisk:
    disk = SimDisk()
    for name, data in {"findings.jsonl": log, "state.json": state}.items():
        if data is not None:
            disk.write(f"{JOB}/{name}", data)
    return disk


NOBODY: Processes = SimProcesses()


def looked(disk: SimDisk) -> dict[str, Any]:
    return job_status(disk, JOB, processes=NOBODY)


def test_without_a_position_the_whole_log_is_counted_once() -> None:
    completed = {item_hash(key): AT for key in "abc"}
    log = line("a") + line("b") + line("b") + line("d")
    found = looked(directory(log + line("c") + line("e")[:-1], state(completed=completed)))
    assert found["stats"]["processed"] == 5
    assert looked(directory(None, state(completed=completed)))["stats"]["processed"] == 3
    assert looked(directory(log + line("e")[:20], None))["stats"]["processed"] == 3
    # A position that proves nothing is none.
    as_of = {"offset": 7, "line_bytes": 5, "hash": "0" * 16, "recent": 0}
    found = looked(directory(log, state(completed=completed, as_of=as_of)))
    assert found["stats"]["processed"] == 3


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "there is no state.json"),
        (b'{"job":"docs","compl', "is no state of a job"),
        (state(version=2), "has version 2"),
    ],
)
def test_a_state_that_says_nothing_is_told(data: bytes | None, words: str) -> None:
    found = looked(directory(line("a") + line("b"), data))
    assert found["stats"]["processed"] == 2
    (notice,) = found["notices"]
    assert words in notice["message"]
    assert notice["fix"]


def test_what_is_no_job_is_not_found() -> None:
    for ask in (looked, lambda disk: job_errors(disk, JOB, limit=5)):
        with pytest.raises(NotFoundError):
            ask(SimDisk())


def test_a_holder_that_was_killed_is_none() -> None:
    world = sim_world()
    job = open_job(world)
    record(job, 0, 3)
    after = killed(world, job)
    assert after.disk.stat(f"{JOB}/.holder.json") is not None
    assert status(after)["status"] == "stopped"


# The error queue


def queue(count: int) -> SimDisk:
    errors = [
        {"key": f"k{n}", "hash": item_hash(f"k{n}"), "error": "no", "attempts": n, "last_at": AT}
        for n in range(count)
    ]
    return directory(b"", state(errors=errors))


def test_errors_come_in_pages_oldest_first() -> None:
    disk = queue(25)
    seen: list[str] = []
    after = None
    for expected in (10, 10, 5):
        page = job_errors(disk, JOB, limit=10, after=after)
        assert (page["total"], len(page["errors"])) == (25, expected)
        seen += [entry["key"] for entry in page["errors"]]
        after = page["next"]
    assert after is None
    assert seen == [f"k{number}" for number in range(25)]
    assert page["errors"][0].keys() == {"key", "hash", "error", "attempts", "last_at"}


def test_a_page_of_nothing_has_no_next() -> None:
    assert job_errors(queue(0), JOB, limit=5) == {"errors": [], "total": 0, "next": None}
    assert job_errors(queue(5), JOB, limit=5)["next"] is None
    assert job_errors(queue(5), JOB, limit=5, after=item_hash("k4"))["errors"] == []


def test_status_shows_the_last_ten_errors_and_counts_all() -> None:
    found = looked(queue(25))
    assert [entry["key"] for entry in found["errors"]] == [f"k{n}" for n in range(15, 25)]
    assert found["stats"]["failed"] == 25


def test_errors_since_the_last_checkpoint_are_in_the_queue() -> None:
    world = sim_world()
    job = open_job(world)
    record(job, 0, 400)
    job.record_error("bad", "no")
    page = job_errors(killed(world, job).disk, JOB, limit=5)
    assert [entry["key"] for entry in page["errors"]] == ["bad"]
