"""Programs that work through a job with ``map``: killed, interrupted, written carelessly."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.crash.tally import VARIABLE, chance_for
from tests.integration.job_map_child import key_of
from tests.unit.jobs.functions import wait_for_end

from perdure.jobs.inspection import verify_job
from perdure.storage.disk import RealDisk

REPOSITORY = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *map(os.path.abspath, filter(None, sys.path))]),
}


class Program:
    """The child program on one job, and the pipe that says how far it may get."""

    def __init__(self, root: Path, how: str, workers: int, items: int) -> None:
        self.directory = root / "job"
        self.permits = root / "permits"
        os.mkfifo(self.permits)
        self._pipe = os.open(self.permits, os.O_RDWR | os.O_NONBLOCK)
        arguments = [str(self.directory), how, str(workers), str(items), str(self.permits)]
        self._command = [sys.executable, "-m", "tests.integration.job_map_child", *arguments]
        self.process: subprocess.Popen[str] | None = None

    def start(self, permits: int) -> subprocess.Popen[str]:
        """Let it do so many items and no more."""
        while True:  # those of an earlier run that it did not use
            try:
                os.read(self._pipe, 1 << 16)
            except BlockingIOError:
                break
        os.write(self._pipe, b"." * permits)
        self.process = subprocess.Popen(
            self._command,
            cwd=REPOSITORY,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return self.process

    def log(self) -> bytes:
        """The whole lines of the log."""
        path = self.directory / "findings.jsonl"
        data = path.read_bytes() if path.exists() else b""
        return data[: data.rfind(b"\n") + 1]

    def wait_for(self, findings: int) -> bytes:
        """Wait until there are so many; what is in the log then."""
        assert self.process is not None
        while (log := self.log()).count(b"\n") < findings:
            assert self.process.poll() is None, self.process.communicate()
        return log

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.communicate()
        os.close(self._pipe)


def lines(log: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.splitlines()]


def family(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


@pytest.mark.parametrize(
    ("how", "workers", "items", "kills"), [("threads", 4, 2_000, 5), ("processes", 3, 300, 4)]
)
def test_program_that_is_killed_again_and_again_loses_nothing_and_does_nothing_twice(
    tmp_path: Path, how: str, workers: int, items: int, kills: int
) -> None:
    chance = chance_for("job map", how)
    points = sorted(chance.sample(range(1, items - 2 * workers), kills))
    print(f"{VARIABLE}={os.environ.get(VARIABLE, '1')}: killed with {points} of {items} findings")
    program = Program(tmp_path, how, workers, items)
    try:
        promised = b""
        for point in points:
            done = promised.count(b"\n")
            # More than it is killed at, so that some are at work when it happens.
            process = program.start(point - done + chance.randrange(1, 2 * workers))
            seen = program.wait_for(point)
            assert seen.startswith(promised)
            children = family(process.pid)
            process.kill()
            process.communicate()
            wait_for_end(*children)
            promised = program.log()
            assert promised.startswith(seen)
        process = program.start(items)
        told, errors = process.communicate(timeout=50)
        assert process.returncode == 0, errors
    finally:
        program.close()
    done = promised.count(b"\n")
    assert told.split() == [str(items - done), str(done), "0", "0"]
    log = program.log()
    assert log.startswith(promised)
    assert sorted(line["_key"] for line in lines(log)) == [key_of(n) for n in range(items)]
    assert all(line["_key"] == key_of(line["number"]) for line in lines(log))
    report = verify_job(RealDisk(), str(program.directory))
    assert report.ok, report.defects
    assert (report.counts["lost"], report.counts["duplicated"]) == (0, 0)


@pytest.mark.parametrize("how", ["threads", "processes"])
def test_ctrl_c_in_the_terminal_lets_items_at_work_be_recorded(tmp_path: Path, how: str) -> None:
    program = Program(tmp_path, how, 3, 1_000)
    try:
        process = program.start(10)
        program.wait_for(10)
        children = family(process.pid)
        # To everything in the foreground, as a terminal does.
        os.killpg(process.pid, signal.SIGINT)
        os.write(program._pipe, b"." * 100)
        _, errors = process.communicate(timeout=50)
        assert process.returncode == -signal.SIGINT
        assert "KeyboardInterrupt: MapReport(" in errors
        assert "interrupted=True" in errors
        wait_for_end(*children)
    finally:
        program.close()
    assert 10 <= len(lines(program.log())) < 1_000
    assert verify_job(RealDisk(), str(program.directory)).ok


def run(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "program.py"
    script.write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


def test_program_without_a_main_guard_is_told_so(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "from perdure.jobs.job import CheckpointedJob\n"
        "def f(item): return None\n"
        "job = CheckpointedJob('job', 'j')\n"
        "job.map(f, ['a'], processes=True)\n",
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "UsageError: worker_not_started" in last
    assert "if __name__ == '__main__':" in last


def test_program_ends_although_a_thread_was_left_behind(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "import os, signal, sys, threading\n"
        "from perdure.jobs.job import CheckpointedJob\n"
        "main = threading.main_thread().ident\n"
        "def inside(name):\n"
        "    frame = sys._current_frames()[main]\n"
        "    while frame:\n"
        "        if frame.f_code.co_name == name: return True\n"
        "        frame = frame.f_back\n"
        "def f(item):\n"
        "    signal.pthread_kill(main, signal.SIGINT)\n"
        "    while not inside('finish'): pass\n"
        "    signal.pthread_kill(main, signal.SIGINT)\n"
        "    threading.Event().wait()\n"
        "try:\n"
        "    with CheckpointedJob('job', 'j') as job: job.map(f, ['a'])\n"
        "except KeyboardInterrupt as interrupt:\n"
        "    print(interrupt.args[0].interrupted)\n",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_rich_is_imported_for_a_bar_only(tmp_path: Path) -> None:
    text = (
        "import sys\n"
        "from perdure.jobs.job import CheckpointedJob\n"
        "with CheckpointedJob('job', 'j') as job: job.map(lambda item: None, ['a'])\n"
        "print(sorted({'rich', 'multiprocessing'} & set(sys.modules)))\n"
    )
    assert run(tmp_path, text).stdout == "[]\n"
