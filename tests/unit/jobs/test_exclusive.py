"""One process at a time on a job, one object in it, and no clean-up after the dead (JB-3)."""

import json
import os
import threading
from pathlib import Path

import pytest
from tests.unit.jobs.sim_host import NAME, ROOT, SimHost

from perdure.errors import BusyError, FencedError, HaltError, LeaseHeldError, RefusedError
from perdure.jobs import exclusive
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.records import Finding
from perdure.runtime.world import real_world
from perdure.testing import SimClock

# Processes


def test_a_second_process_is_refused_at_once_with_the_pid_of_the_first(host: SimHost) -> None:
    job = host.open()
    with pytest.raises(LeaseHeldError) as caught:
        CheckpointedJob(ROOT, NAME, world=host.beside())
    error = caught.value
    assert (error.code, error.rule, error.exit_code) == ("job_held", "JB-3", 5)
    pid = host.world.processes.me().pid
    assert f"held by pid {pid} on sim-host" in error.message
    assert str(pid) in error.fix
    job.record_finding("a")
    assert job.processed == 1


def test_a_dead_holder_is_no_obstacle(host: SimHost) -> None:
    host.open().record_finding("a")
    host.kill()
    assert host.open().is_done("a")


def test_a_holder_of_which_only_the_lock_is_known_is_called_another_process(
    host: SimHost,
) -> None:
    host.open()
    for content in (b"", b"not json", b'{"pid":1}', None):
        if content is None:
            host.remove(".holder.json")
        else:
            host.write(".holder.json", content)
        with pytest.raises(LeaseHeldError, match="another process"):
            CheckpointedJob(ROOT, NAME, world=host.beside())


def test_a_holder_file_of_a_dead_process_is_not_believed(host: SimHost) -> None:
    host.open()
    left = host.read(".holder.json")
    host.kill()
    host.open()
    host.write(".holder.json", left)
    with pytest.raises(LeaseHeldError, match="another process"):
        CheckpointedJob(ROOT, NAME, world=host.beside())


def test_a_holder_that_is_just_writing_who_it_is_is_waited_for(host: SimHost) -> None:
    host.open()
    said = host.read(".holder.json")
    host.remove(".holder.json")

    class Meanwhile(SimClock):
        def sleep(self, seconds: float) -> None:
            assert seconds == exclusive.holder_look_s
            host.write(".holder.json", said)

    other = host.beside()._replace(clock=Meanwhile())
    pid = host.world.processes.me().pid
    with pytest.raises(LeaseHeldError, match=f"held by pid {pid} "):
        CheckpointedJob(ROOT, NAME, world=other)


def test_the_holder_file_says_who_and_since_when_and_goes_with_the_job(host: SimHost) -> None:
    job = host.open()
    me = host.world.processes.me()
    holder = json.loads(host.read(".holder.json"))
    assert (holder["pid"], holder["host"], holder["started"]) == (me.pid, me.host, me.started)
    assert holder["at"].startswith("2027-01-15T08:00:00")
    job.close()
    assert ".holder.json" not in host.names()
    assert ".lock" in host.names()


def test_a_holder_file_that_cannot_be_written_is_no_obstacle(host: SimHost) -> None:
    host.disk.fail(lambda op: "holder" in op.path, 28, times=None)
    job = host.open()
    job.record_finding("a")
    job.close()


def test_two_jobs_in_two_directories_do_not_know_each_other(host: SimHost) -> None:
    one, two = (CheckpointedJob(f"/data/{n}", NAME, world=host.world) for n in (1, 2))
    one.record_finding("a")
    two.record_finding("b")
    assert (one.is_done("b"), two.is_done("a")) == (False, False)


# Objects of one process


def test_a_second_object_takes_over_and_the_first_is_fenced(host: SimHost) -> None:
    first = host.open()
    first.record_finding("a")
    second = host.open()
    assert second.is_done("a")
    for call in (
        lambda: first.record_finding("b"),
        lambda: first.record_error("b", "x"),
        lambda: first.record_many([Finding("b", {})]),
        lambda: first.is_done("a"),
        lambda: first.set_cursor(1),
        lambda: first.write_artifact("a", b""),
        first.checkpoint,
        first.finish,
    ):
        with pytest.raises(FencedError) as caught:
            call()
        assert caught.value.rule == "JB-3"
    second.record_finding("b")
    assert [found["_key"] for found in host.log()] == ["a", "b"]


def test_a_fenced_object_writes_nothing_when_it_goes(host: SimHost) -> None:
    first = host.open()
    first.set_cursor("old")
    second = host.open()
    second.set_cursor("new")
    second.checkpoint()
    before = len(host.disk.log)
    first.close()
    assert host.write_steps(before) == []
    assert host.state()["cursor"] == "new"
    with pytest.raises(LeaseHeldError):
        CheckpointedJob(ROOT, NAME, world=host.beside())


def test_a_second_object_of_another_name_is_refused_and_the_first_goes_on(host: SimHost) -> None:
    first = host.open()
    with pytest.raises(RefusedError, match="other_job"):
        host.open("other")
    first.record_finding("a")


def test_a_removed_lock_file_does_not_give_one_process_two_objects(host: SimHost) -> None:
    first = host.open()
    host.remove(".lock")
    second = host.open()
    with pytest.raises(FencedError):
        first.record_finding("a")
    second.record_finding("a")


def test_a_takeover_waits_for_the_call_that_the_older_object_is_in(
    host: SimHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = host.open()
    in_the_call, go_on = threading.Event(), threading.Event()
    append = first._engine.log._append

    def slow(data: bytes) -> None:
        in_the_call.set()
        assert go_on.wait(30)
        append(data)

    monkeypatch.setattr(first._engine.log, "_append", slow)
    recording = threading.Thread(target=first.record_finding, args=("a",))
    recording.start()
    assert in_the_call.wait(30)
    opened: list[CheckpointedJob] = []
    opening = threading.Thread(target=lambda: opened.append(host.open()))
    opening.start()
    go_on.set()
    recording.join()
    opening.join()
    assert opened[0].is_done("a")
    with pytest.raises(FencedError):
        first.record_finding("b")


def test_a_takeover_from_inside_a_call_ends_in_an_error(
    host: SimHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exclusive, "turn_wait_s", 0.01)
    job = host.open()
    refused: list[str] = []
    append = job._engine.log._append

    def opening_again(data: bytes) -> None:
        try:
            host.open()
        except BusyError as error:
            refused.append(error.code)
        append(data)

    monkeypatch.setattr(job._engine.log, "_append", opening_again)
    job.record_finding("a")
    assert refused == ["job_busy"]
    assert job.processed == 1


def test_many_threads_that_open_one_job_leave_exactly_one_holder(host: SimHost) -> None:
    jobs: list[CheckpointedJob] = []

    def opening() -> None:
        jobs.append(host.open())

    threads = [threading.Thread(target=opening) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(jobs) == 6
    able = 0
    for job in jobs:
        try:
            job.checkpoint()
            able += 1
        except FencedError:
            continue
    assert able == 1


# A forked child

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")


def in_child(act: object) -> str:
    """What ``act`` returns in a forked child, as text."""
    assert callable(act)
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = ""
        try:
            said = str(act())
        finally:
            os.write(writes, said.encode())
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said


def codes(*calls: object) -> str:
    said = []
    for call in calls:
        assert callable(call)
        try:
            call()
            said.append("done")
        except HaltError as error:
            said.append(error.code)
    return " ".join(said)


@needs_fork
def test_a_forked_child_is_refused_every_call_and_cannot_end_the_parents_hold(
    workspace: str,
) -> None:
    job = CheckpointedJob(f"{workspace}/job", NAME)
    job.record_finding("a")
    said = in_child(
        lambda: codes(
            lambda: job.record_finding("b"),
            lambda: job.record_error("b", "x"),
            lambda: job.is_done("a"),
            lambda: job.set_cursor(1),
            job.checkpoint,
            job.finish,
            job.close,
        )
    )
    assert said == " ".join(["job_forked"] * 6 + ["done"])
    said = in_child(lambda: codes(lambda: CheckpointedJob(f"{workspace}/job", NAME)))
    assert said == "job_held"
    job.record_finding("b")
    assert job.processed == 2
    assert Path(f"{workspace}/job/findings.jsonl").read_bytes().count(b"\n") == 2
    job.close()


@needs_fork
def test_a_child_forked_in_the_middle_of_a_call_is_refused_and_does_not_wait(
    workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CheckpointedJob(f"{workspace}/job", NAME)
    append = job._engine.log._append
    said = []

    def forking(data: bytes) -> None:
        said.append(in_child(lambda: codes(lambda: job.record_finding("b"), job.close)))
        append(data)

    monkeypatch.setattr(job._engine.log, "_append", forking)
    job.record_finding("a")
    assert said == ["job_forked done"]
    job.close()


@needs_fork
def test_a_forked_child_may_have_a_job_of_its_own(workspace: str) -> None:
    job = CheckpointedJob(f"{workspace}/job", NAME)

    def work() -> str:
        with CheckpointedJob(f"{workspace}/child", NAME) as own:
            own.record_finding("a")
            return str(own.processed)

    assert in_child(work) == "1"
    job.close()


def test_real_objects_of_one_process_supersede_each_other_across_disks(workspace: str) -> None:
    first = CheckpointedJob(workspace, NAME)
    second = CheckpointedJob(workspace, NAME, world=real_world())
    with pytest.raises(FencedError):
        first.record_finding("a")
    second.record_finding("a")
    second.close()
    third = CheckpointedJob(workspace, NAME)
    assert third.is_done("a")
    third.close()
