"""One job, handed from one implementation to the next: Python, perdure, Node, and back.

The other two know the three files and nothing else (``tests/golden/foreign_jobs``). Each of them is
killed in the middle of a line at some point.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.golden.foreign_jobs.programs import answer, call, each_program, key_of, without_node

from perdure.jobs.inspection import verify_job
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.lines import item_hash
from perdure.jobs.report import JobReport
from perdure.storage.disk import RealDisk

NAME = "handed on"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data" / "jobs" / "shared"


def work(job: CheckpointedJob, end: int, failing: tuple[int, ...] = ()) -> list[int]:
    """Do what is not done below ``end``; returns the numbers of the items that were."""
    done = []
    for number in range(end):
        key = key_of(number)
        if job.is_done(key):
            continue
        if number in failing:
            job.record_error(key, f"item {number} failed")
        else:
            job.record_finding(key, {"n": number, "by": "perdure", "text": "zwölf \u2028 €"})
            done.append(number)
        job.set_cursor({"last": number})
    return done


def numbers_in(directory: Path) -> Counter[int]:
    """Which items the log has, read as another program would."""
    lines = (directory / "findings.jsonl").read_bytes().split(b"\n")
    return Counter(json.loads(line)["n"] for line in lines if line.strip())


def verified(directory: Path) -> JobReport:
    report = verify_job(RealDisk(), str(directory))
    assert report.ok, report.defects
    return report


@without_node
def test_a_job_that_is_killed_in_each_language_loses_and_repeats_nothing(directory: Path) -> None:
    assert call("python", "run", directory, NAME, 0, 100, "--tear-at", 50).returncode == 9
    assert verified(directory).counts["torn_bytes"] > 0
    with CheckpointedJob(directory, NAME) as job:
        assert work(job, 100) == list(range(50, 100))
    assert call("node", "run", directory, NAME, 0, 200, "--tear-at=150").returncode == -9
    assert verified(directory).counts["torn_bytes"] > 0
    with CheckpointedJob(directory, NAME) as job:
        assert job.processed == 150
        assert work(job, 160) == list(range(150, 160))
    found = answer("python", "run", directory, NAME, 0, 170)
    assert len(found["completed"]) == 170
    with CheckpointedJob(directory, NAME) as job:
        assert work(job, 180) == list(range(170, 180))
        job.finish()
        assert job.state["stats"] == {"processed": 180, "failed": 0, "resumes": 5}
    assert numbers_in(directory) == Counter(range(180))
    report = verified(directory)
    assert (report.counts["items"], report.counts["completed"]) == (180, 180)
    assert [notice.what for notice in report.notices] == ["set_aside"]
    assert len(answer("node", "open", directory, NAME)["completed"]) == 180


@each_program
def test_errors_and_cursor_go_from_ours_to_theirs_and_back(program: str, directory: Path) -> None:
    with CheckpointedJob(directory, NAME) as job:
        work(job, 80, failing=(7, 20))
        job.record_error(key_of(7), "item 7 failed again")
    found = answer(program, "open", directory, NAME)
    assert found["cursor"] == {"last": 79}
    assert [(entry["key"], entry["attempts"]) for entry in found["errors"]] == [
        (key_of(20), 1),
        (key_of(7), 2),
    ]
    # They fail at 7 once more and at 85 for the first time; 20 succeeds, and leaves the queue.
    command = ["run", directory, NAME, 0, 90]
    command += ["--fail", "7,85"] if program == "python" else ["--fail=7,85"]
    assert len(answer(program, *command)["completed"]) == 88
    with CheckpointedJob(directory, NAME) as job:
        assert job.cursor == {"last": 89}
        assert [(e.key, e.attempts) for e in job.errors] == [(key_of(7), 3), (key_of(85), 1)]
        assert [entry.hash for entry in job.retryable(3)] == [item_hash(key_of(85))]
        assert work(job, 90) == [7, 85]
        assert job.errors == []
        job.finish()
    assert numbers_in(directory) == Counter(range(90))
    assert verified(directory).counts["errors"] == 0


KILLED = """
import os, sys
from perdure.jobs.job import CheckpointedJob
from tests.golden.foreign_jobs.programs import key_of
job = CheckpointedJob(sys.argv[1], sys.argv[2])
for number in range(200):
    job.record_finding(key_of(number), {"n": number})
for attempt in range(2):
    job.record_error(key_of(200), "failed")
job.set_cursor({"last": 200})
os._exit(9)
"""


@each_program
def test_what_only_our_own_files_know_is_not_lost_between(program: str, directory: Path) -> None:
    """Killed far from a checkpoint, then continued by a program that knows the three files only."""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, directory, NAME], cwd=root, check=False, timeout=50
    )
    assert done.returncode == 9
    assert len(answer(program, "open", directory, NAME)["completed"]) == 200
    answer(program, "run", directory, NAME, 210, 220)
    with CheckpointedJob(directory, NAME) as job:
        assert job.processed == 210
        assert job.cursor == {"last": 219}, "theirs is the newer one"
        assert [(e.key, e.attempts) for e in job.errors] == [(key_of(200), 2)]
    assert verified(directory).counts["items"] == 210


def test_a_program_that_takes_the_lock_and_we_keep_each_other_out(directory: Path) -> None:
    with CheckpointedJob(directory, NAME):
        refused = call("python", "open", directory, NAME)
        assert refused.returncode == 1
        assert "somebody else has this job open" in refused.stderr
    assert answer("python", "open", directory, NAME)["completed"] == []
