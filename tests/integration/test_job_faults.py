"""Faults of a real machine upon a job: kills, full and closed disks, damage, too many processes.

Real processes, real locks, a real disk. What must hold after each is looked up in the three files
as any other program would: every line whole, each item once, nothing acknowledged missing, and a
checkpoint that claims no more than the log.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.crash.tally import chance_for
from tests.integration.job_child import KEYS, NAME
from tests.integration.shell import call, environment, start
from tests.integration.talking_child import REPOSITORY, TalkingChild
from tests.integration.test_real_faults import mounted, nobody, until

from perdure import CheckpointedJob
from perdure.errors import BusyError, FencedError, RefusedError, StorageError
from perdure.jobs.inspection import verify_job
from perdure.storage.disk import RealDisk

MEBIBYTE = 1 << 20
calls_sampled = 12
kills = 12


class Child(TalkingChild):
    """A process of ``job_child``."""

    def __init__(self, directory: str, uid: int | None = None) -> None:
        super().__init__("tests.integration.job_child", directory, uid)

    def end(self, number: signal.Signals) -> list[Any]:
        """End it with this signal; what it had said until then."""
        self.process.send_signal(number)
        out, _ = self.process.communicate()
        assert self.process.returncode == -number
        return [json.loads(line) for line in out.split("\n")[:-1]]


@contextlib.contextmanager
def children(directory: str, count: int = 1, uid: int | None = None) -> Iterator[list[Child]]:
    found = [Child(directory, uid) for _ in range(count)]
    try:
        assert [child.hear() for child in found] == ["ready"] * count
        yield found
    finally:
        for child in found:
            child.process.kill()
            child.process.communicate()


@pytest.fixture
def directory(workspace: str) -> str:
    return f"{workspace}/job"


# What anybody can see


def read(directory: str, name: str = "findings.jsonl") -> bytes:
    return Path(directory, name).read_bytes()


def append(directory: str, data: bytes) -> None:
    with open(f"{directory}/findings.jsonl", "ab") as log:
        log.write(data)


def findings(directory: str) -> list[dict[str, Any]]:
    """Every line, each of which must be a whole finding under the hash of its key."""
    data = read(directory)
    assert data.endswith(b"\n") or not data
    found = [json.loads(line) for line in data.decode("utf-8").split("\n") if line.strip()]
    for finding in found:
        assert finding["_hash"] == sha256(finding["_key"].encode()).hexdigest()[:16]
    return found


def keys(directory: str) -> list[str]:
    return [finding["_key"] for finding in findings(directory)]


def state(directory: str) -> dict[str, Any]:
    found = json.loads(read(directory, "state.json"))
    assert isinstance(found, dict)
    return found


def check(directory: str, acknowledged: set[str]) -> None:
    """Each item once, nothing promised missing, no claim beyond the log, nothing left over."""
    found = keys(directory)
    assert [key for key, times in Counter(found).items() if times > 1] == []
    assert acknowledged <= set(found), acknowledged - set(found)
    hashes = {finding["_hash"] for finding in findings(directory)}
    assert set(state(directory)["completed"]) <= hashes
    assert {entry["hash"] for entry in state(directory)["errors"]}.isdisjoint(hashes)
    check_no_litter(directory)
    report = verify_job(RealDisk(), directory)
    assert report.ok, report.defects


def check_no_litter(directory: str) -> None:
    assert [name for name in os.listdir(directory) if ".tmp-" in name] == []


def with_findings(directory: str, *names: str) -> None:
    with CheckpointedJob(directory, NAME) as job:
        for name in names:
            job.record_finding(name, {"text": f"of {name}"})


# F1, F2: what is left of an unfinished append


def test_f01_finding_without_its_newline_is_kept_and_the_next_one_gets_a_line_of_its_own(
    directory: str,
) -> None:
    with_findings(directory, "a", "b")
    whole = read(directory)
    os.truncate(f"{directory}/findings.jsonl", len(whole) - 1)
    with CheckpointedJob(directory, NAME) as job:
        assert job.is_done("b")
        assert not job.record_finding("b", {"text": "again"})
        job.record_finding("c", {})
    assert read(directory).startswith(whole)
    assert keys(directory) == ["a", "b", "c"]
    check(directory, {"a", "b", "c"})


@pytest.mark.parametrize(
    "fragment",
    [b'{"text":"of c","_hash":"2e7d2c0', b'{"t":"\xe2\x82', b'{"text":"of c"}', b"\0" * 4_096],
    ids=["half a line", "half a character", "no key", "zeros"],
)
@pytest.mark.parametrize("checkpoint", [True, False])
def test_f01_f02_fragment_is_set_aside_and_reported_and_its_item_is_done_again(
    directory: str, fragment: bytes, checkpoint: bool
) -> None:
    with_findings(directory, "a", "b")
    before = read(directory)
    append(directory, fragment)
    if not checkpoint:
        os.unlink(f"{directory}/state.json")
    with CheckpointedJob(directory, NAME) as job:
        (notice,) = [notice for notice in job.notices if notice.byte == len(before)]
        assert notice.line == 3
        assert not job.is_done("c")
        assert job.record_finding("c", {})
    assert read(directory).startswith(before)
    (torn,) = Path(directory, ".torn").iterdir()
    assert torn.read_bytes() == fragment
    check(directory, {"a", "b", "c"})
    with CheckpointedJob(directory, NAME) as job:
        assert list(job.notices) == []


# F3: a disk that is full, read-only or closed


def fill(job: CheckpointedJob, acknowledged: set[str]) -> StorageError:
    """Record until there is no place."""
    try:
        for number in range(100_000):
            key = f"filler-{number}"
            job.record_finding(key, {"text": "x" * 2_000})
            acknowledged.add(key)
    except StorageError as error:
        return error
    raise AssertionError("the file system did not fill up")


def test_f03_full_disk_loses_nothing_and_the_job_goes_on_once_there_is_space(
    workspace: str,
) -> None:
    with mounted(f"{workspace}/small", "1m") as small:
        directory = f"{small}/job"
        Path(small, "ballast").write_bytes(bytes(200_000))
        acknowledged: set[str] = set()
        job = CheckpointedJob(directory, NAME)
        error = fill(job, acknowledged)
        assert (error.code, error.exit_code) == ("disk_full", 7)
        assert "disk space" in str(error)
        assert len(acknowledged) > 200
        for call_again in (
            lambda: job.record_finding("after", {}),
            lambda: job.record_error("after", "no answer"),
        ):
            with pytest.raises(StorageError) as caught:
                call_again()
            assert caught.value.code == "disk_full"
        with contextlib.suppress(StorageError):
            job.close()
        check_no_litter(directory)
        os.unlink(f"{small}/ballast")
        with CheckpointedJob(directory, NAME) as job:
            assert all(job.is_done(key) for key in acknowledged)
            job.record_finding("on it goes", {})
        check(directory, {*acknowledged, "on it goes"})


def test_f03_command_on_a_full_disk_says_so_and_goes_on_once_there_is_space(
    workspace: str,
) -> None:
    with mounted(f"{workspace}/small", "1m") as small:
        items = Path(workspace, "items.txt")
        items.write_text("".join(f"item-{number}\n" for number in range(40)))
        program = [sys.executable, "-c", "import sys; print(sys.argv[1] * 4000)"]
        line = ["map", "--job", f"{small}/job", "--items", str(items), "--", *program, "{}"]
        Path(small, "ballast").write_bytes(bytes(300_000))
        done = call(*line)
        assert done.code == 7, done
        assert "disk space" in done.err
        check_no_litter(f"{small}/job")
        kept = set(keys(f"{small}/job")) if Path(small, "job/findings.jsonl").exists() else set()
        os.unlink(f"{small}/ballast")
        subprocess.run(["mount", "-o", "remount,size=8m", small], check=True)
        assert call(*line).code == 0
        check(f"{small}/job", {*kept, *items.read_text().split()})


def test_job_on_a_file_system_that_became_read_only_is_refused(workspace: str) -> None:
    with mounted(f"{workspace}/small", "2m") as small:
        directory = f"{small}/job"
        with_findings(directory, "a")
        before = read(directory)
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)
        with pytest.raises(StorageError) as caught:
            CheckpointedJob(directory, NAME)
        assert (caught.value.code, caught.value.exit_code) == ("read_only", 7)
        assert small in str(caught.value)
        assert call("job", "verify", directory).code == 0, "looking writes nothing"
        assert call("job", "status", directory).code == 0
        subprocess.run(["mount", "-o", "remount,rw", small], check=True)
        assert read(directory) == before
        with_findings(directory, "b")
        check(directory, {"a", "b"})


def test_directory_that_is_closed_to_us_is_named_and_no_harm_done() -> None:
    base = tempfile.mkdtemp(prefix="perdure-")
    try:
        os.chmod(base, 0o755)
        directory = f"{base}/job"
        with_findings(directory, "a")
        uid = nobody if os.geteuid() == 0 else None
        if uid is not None:
            subprocess.run(["chown", "-R", str(uid), directory], check=True)
        os.chmod(directory, 0o555)
        before = read(directory)
        with children(directory, uid=uid) as (child,):
            refused = child.ask("open")
            assert (refused["refused"], refused["exit_code"]) == ("permission_denied", 7), refused
            assert directory in refused["text"]
            assert read(directory) == before
            os.chmod(directory, 0o755)
            assert child.ask("open") == {"opened": 1}
            assert child.ask("record b") == {"recorded": True}
            assert child.ask("close") == "closed"
        check(directory, {"a", "b"})
    finally:
        shutil.rmtree(base)


# F14: two at once, and a kill at every step


def test_f14_of_two_processes_at_once_one_has_the_job_and_the_other_learns_its_pid(
    directory: str,
) -> None:
    with children(directory, 2) as both:
        for child in both:
            child.say("open")
        told = {child: child.hear() for child in both}
        (winner,) = [child for child, answer in told.items() if "opened" in answer]
        (loser,) = [child for child in both if child is not winner]
        refused = told[loser]
        assert (refused["refused"], refused["exit_code"]) == ("job_held", 5), refused
        assert str(winner.process.pid) in refused["text"]
        assert winner.ask("record a") == {"recorded": True}
        assert loser.ask("open")["refused"] == "job_held"
        winner.end(signal.SIGKILL)
        assert loser.ask("open") == {"opened": 1}
        assert loser.ask("record b") == {"recorded": True}
        assert loser.ask("close") == "closed"
    check(directory, {"a", "b"})


def test_command_on_a_held_job_is_refused_at_once(directory: str, workspace: str) -> None:
    Path(workspace, "items.txt").write_text("a\n")
    with children(directory) as (child,):
        assert child.ask("open") == {"opened": 0}
        line = ["--job", directory, "--items", f"{workspace}/items.txt", "--name", NAME]
        done = call("map", *line, "--", "true")
        assert done.code == 5, done
        assert str(child.process.pid) in done.err
        assert call("job", "status", directory).code == 0, "looking takes no lock"
        assert child.ask("close") == "closed"


def run_killed(directory: str, at: int) -> tuple[int, list[Any]]:
    """Do the work until call number ``at``; how it ended, and what it had promised."""
    command = [sys.executable, "-m", "tests.integration.job_child", directory, "--kill-at"]
    done = subprocess.run(
        [*command, str(at)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def check_killed_at(directory: str, at: int) -> None:
    code, promises = run_killed(directory, at)
    assert code == -signal.SIGKILL
    acknowledged = {promise["done"] for promise in promises if "done" in promise}
    attempts: dict[str, int] = {}
    for promise in promises:
        attempts |= promise.get("attempts", {})
    with CheckpointedJob(directory, NAME) as job:
        assert all(job.is_done(key) for key in acknowledged)
        queued = {entry.key: entry.attempts for entry in job.errors}
        for key, times in attempts.items():
            assert job.is_done(key) or queued[key] == times
        assert job.cursor in (None, {"last": "a-2"})
    check(directory, acknowledged)
    code, _ = run_killed(directory, 0)
    assert code == 0
    check(directory, set(KEYS))
    assert sorted(keys(directory)) == sorted(KEYS)
    assert state(directory)["stats"]["processed"] == len(KEYS)
    assert state(directory)["errors"] == []
    assert Path(directory, "files").is_dir()


def check_kills(workspace: str, sample: int | None) -> None:
    code, promises = run_killed(f"{workspace}/whole", 0)
    assert code == 0
    calls = promises[-1]["calls"]
    numbers = list(range(1, calls + 1))
    if sample is not None:
        numbers = sorted(chance_for("job").sample(numbers, sample))
    for at in numbers:
        directory = f"{workspace}/job"
        try:
            check_killed_at(directory, at)
        except BaseException as error:
            error.add_note(f"killed at call {at} of {calls}; what is left: {directory}")
            raise
        shutil.rmtree(directory)
    print(f"killed at {len(numbers)} of {calls} calls")


def test_f14_job_killed_at_a_call_is_gone_on_with(workspace: str) -> None:
    check_kills(workspace, calls_sampled)


@pytest.mark.crash_full
def test_f14_job_killed_at_every_call_is_gone_on_with(workspace: str) -> None:
    check_kills(workspace, None)


def test_job_killed_at_random_moments_loses_nothing_and_does_nothing_twice(directory: str) -> None:
    chance = chance_for("random kills")
    acknowledged: set[str] = set()
    for number in range(kills):
        with children(directory) as (child,):
            child.say("open")
            if number % 3 == 0:  # while it opens, wherever it is by then
                child.end(signal.SIGKILL)
                continue
            assert child.hear() == {"opened": len(set(keys(directory)))}
            child.say(f"many run-{number} 1000000")
            acknowledged |= {child.hear() for _ in range(chance.randrange(1, 150))}
            acknowledged |= set(child.end(signal.SIGKILL))
    with CheckpointedJob(directory, NAME) as job:
        assert job.processed == len(keys(directory)) >= len(acknowledged)
        assert all(job.is_done(key) for key in acknowledged)
        job.finish()
    check(directory, acknowledged)
    assert len(state(directory)["completed"]) == len(keys(directory))


# The command, killed with its children


def command_line(workspace: str, items: int) -> list[str]:
    file = Path(workspace, "items.txt")
    file.write_text("".join(f"item {number}\n" for number in range(items)))
    return ["map", "--job", f"{workspace}/job", "--items", str(file), "--", "echo", "{}"]


@contextlib.contextmanager
def killed(line: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command that is killed at the end of the block, in which it has not ended."""
    child = start(*line)
    try:
        yield child
        assert child.poll() is None, child.communicate()
    finally:
        child.kill()
        child.communicate()


def check_command_killed(workspace: str, items: int) -> None:
    line, directory = command_line(workspace, items), f"{workspace}/job"
    chance = chance_for("map")
    log, holder = Path(directory, "findings.jsonl"), Path(directory, ".holder.json")

    def count() -> int:
        return log.read_bytes().count(b"\n") if log.exists() else 0

    def grown(child: subprocess.Popen[str], wanted: int) -> bool | None:
        return True if count() >= wanted or child.poll() is not None else None

    for _ in range(5):
        wanted = count() + chance.randrange(1, items // 8)
        with killed(line) as child:
            until(partial(grown, child, wanted))
    with killed(line) as child:  # once more, as soon as it has the job and recovers
        until(lambda: True if f'"pid":{child.pid},' in holder.read_text() else None)
    last = start(*line)
    told = last.communicate()
    assert last.returncode == 0, told
    assert sorted(keys(directory)) == sorted(f"item {number}" for number in range(items))
    assert all(finding["output"] == finding["_key"] for finding in findings(directory))
    verdict = call("job", "verify", directory, "--json")
    assert verdict.code == 0
    assert (verdict.data["counts"]["lost"], verdict.data["counts"]["duplicated"]) == (0, 0)
    check(directory, set())


def test_map_killed_five_times_and_while_it_recovers_does_each_item_once(workspace: str) -> None:
    check_command_killed(workspace, 300)


@pytest.mark.crash_full
def test_map_of_10_000_items_killed_five_times_does_each_item_once(workspace: str) -> None:
    check_command_killed(workspace, 10_000)


# SIGTERM


@pytest.mark.parametrize("busy", [False, True])
def test_sigterm_leaves_a_fresh_checkpoint_and_ends_the_process(directory: str, busy: bool) -> None:
    with children(directory) as (child,):
        assert child.ask("open") == {"opened": 0}
        child.say(f"many item {1_000_000 if busy else 300}")
        acknowledged = {child.hear() for _ in range(300)}
        if not busy:
            assert child.hear() == "recorded"
            assert child.ask("fail bad") == {"attempts": 1}
        acknowledged |= set(child.end(signal.SIGTERM))
    found = state(directory)
    assert set(found["completed"]) == {finding["_hash"] for finding in findings(directory)}
    assert found["as_of"]["offset"] == len(read(directory))
    assert [entry["key"] for entry in found["errors"]] == ([] if busy else ["bad"])
    assert f"{len(found['completed'])}" in read(directory, "SUMMARY.md").decode()
    check(directory, acknowledged)


# F20: large findings


# A bare interpreter starts it: what the system says of a process begins with its parent's size.
PEAK = """
import os, sys
pid = os.posix_spawn(sys.executable, [sys.executable, "-m", "perdure", *sys.argv[1:]], os.environ)
_, status, usage = os.wait4(pid, 0)
print()
print(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak_bytes(*arguments: str) -> int:
    """The peak memory of a command that succeeds."""
    command = [sys.executable, "-S", "-c", PEAK, *arguments]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


def test_f20_finding_of_12_mb_is_kept_and_looked_at_in_little_memory(directory: str) -> None:
    text = "".join(chance_for("text").choices("abcdefgh ", k=12 * MEBIBYTE))
    with_findings(directory, "before")
    with CheckpointedJob(directory, NAME) as job:
        job.record_finding("large", {"text": text})
        job.record_finding("after", {})
    assert [finding.get("text") for finding in findings(directory)][1] == text
    assert len(read(directory, "SUMMARY.md")) < 20_000
    with CheckpointedJob(directory, NAME) as job:
        assert job.is_done("large")
    check(directory, {"before", "large", "after"})
    assert peak_bytes("job", "status", directory) < 100 * MEBIBYTE
    os.unlink(f"{directory}/state.json")
    assert peak_bytes("job", "status", directory) < 100 * MEBIBYTE


@pytest.mark.crash_full
def test_f20_status_of_a_log_of_200_mb_takes_less_than_100_mb(directory: str) -> None:
    with CheckpointedJob(directory, NAME) as job:
        for number in range(200):
            job.record_finding(f"large-{number}", {"text": "x" * MEBIBYTE})
    assert peak_bytes("job", "status", directory) < 100 * MEBIBYTE
    assert peak_bytes("job", "verify", directory) < 100 * MEBIBYTE


# Others


def test_job_of_another_name_is_refused_and_left_alone(directory: str) -> None:
    with_findings(directory, "a")
    before = {name: read(directory, name) for name in ("findings.jsonl", "state.json")}
    with pytest.raises(RefusedError, match="other_job") as caught:
        CheckpointedJob(directory, "another")
    assert NAME in str(caught.value)
    assert {name: read(directory, name) for name in before} == before
    with_findings(directory, "b")
    check(directory, {"a", "b"})


def test_eight_threads_at_once_record_each_item_once(directory: str) -> None:
    written: list[tuple[int, str]] = []
    ready = threading.Barrier(8)

    def record(job: CheckpointedJob, number: int) -> None:
        ready.wait()
        for count in range(40):
            written.extend(
                (number, key)
                for key in (f"shared-{count}", f"own-{number}-{count}")
                if job.record_finding(key, {"by": number, "text": "é" * (1 + count)})
            )

    with CheckpointedJob(directory, NAME) as job:
        threads = [threading.Thread(target=record, args=(job, number)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert job.processed == 40 + 8 * 40
    assert len(written) == 40 + 8 * 40
    assert sorted(written) == sorted((f["by"], f["_key"]) for f in findings(directory))
    check(directory, {key for _, key in written})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_child_is_refused_and_its_end_takes_nothing_away(directory: str) -> None:
    with children(directory) as (child,):
        assert child.ask("open") == {"opened": 0}
        assert child.ask("record a") == {"recorded": True}
        before = read(directory, "state.json")
        child.say("fork")
        refused = child.hear()
        assert refused["exit_code"] == 5, refused
        assert child.hear() == {"child": 0}
        assert read(directory, "state.json") == before, "the child's exit hooks wrote nothing"
        with pytest.raises(BusyError):
            CheckpointedJob(directory, NAME)
        assert child.ask("record b") == {"recorded": True}
        assert child.ask("close") == "closed"
    check(directory, {"a", "b"})
    assert keys(directory) == ["a", "b"]


def test_second_object_in_one_process_takes_the_job_over(directory: str, workspace: str) -> None:
    first = CheckpointedJob(directory, NAME)
    first.record_finding("a", {})
    os.symlink(directory, f"{workspace}/link")
    second = CheckpointedJob(f"{workspace}/link", NAME)
    assert second.is_done("a")
    for refused in (
        lambda: first.record_finding("b", {}),
        lambda: first.record_error("b", "no answer"),
        first.checkpoint,
    ):
        with pytest.raises(FencedError):
            refused()
    first.close()
    assert second.record_finding("b", {})
    with children(directory) as (child,):
        assert child.ask("open")["refused"] == "job_held", "closing the first gave nothing away"
    second.close()
    check(directory, {"a", "b"})
