"""A real child process, killed with SIGKILL at the system calls that change the disk.

Here nothing is simulated: the system calls, the process table and the locks are those of this
machine. A sample of the calls by default, with the session's seed; all under ``crash_full``.
"""

import os
import shutil
import signal
import subprocess
import sys
from hashlib import sha256

import pytest
from tests.crash.checks import check_recovery, check_second_recovery, finish
from tests.crash.machine import Machine
from tests.crash.tally import chance_for

from perdure.core.codec import Scan
from perdure.runtime.world import World, real_world

calls_sampled = 20
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class RealMachine(Machine):
    """This machine. Its processes are one: the test's."""

    def boot_process(self, fuse: object = None) -> None:
        self.kill_process()

    def kill_process(self) -> None:
        for runtime in self.runtimes:
            runtime.close()
        self.runtimes.clear()

    def world(self) -> World:
        return real_world()


def run_child(root: str, at: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.integration.sigkill_child", root, str(at)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def story(data: bytes) -> list[tuple[object, ...]]:
    """What happened, without the times and ids that differ from run to run."""
    commits = Scan().commits([data])
    return [
        (event.kind, event.entity, event.payload.get("to"), event.payload.get("op"))
        for events in commits
        for event in events
    ]


def whole_run(root: str) -> tuple[list[tuple[object, ...]], int]:
    done = run_child(root, 0)
    assert done.returncode == 0, done.stderr
    with open(f"{root}/journal.jsonl", "rb") as file:
        told = story(file.read())
    return told, int(done.stdout.rsplit("calls ", 1)[1])


def check_killed_at(root: str, at: int, told: list[tuple[object, ...]]) -> None:
    killed = run_child(root, at)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    machine = RealMachine(root)
    promises = [line.split() for line in killed.stdout.splitlines()]
    left = machine.journal()
    if promises:
        _, length, digest = promises[-1]
        machine.acknowledged = left[: int(length)]
        assert sha256(machine.acknowledged).hexdigest() == digest
    happened = story(left)
    assert happened == told[: len(happened)]
    check_recovery(machine, left)
    check_second_recovery(machine)
    finish(machine)
    machine.kill_process()


def check_all(workspace: str, sample: int | None) -> None:
    told, calls = whole_run(f"{workspace}/whole")
    numbers = list(range(1, calls + 1))
    if sample is not None:
        numbers = sorted(chance_for("sigkill").sample(numbers, sample))
    for at in numbers:
        root = f"{workspace}/w"
        try:
            check_killed_at(root, at, told)
        except BaseException as error:
            error.add_note(f"killed at call {at} of {calls}; what is left: {root}")
            raise
        shutil.rmtree(root)
    print(f"killed at {len(numbers)} of {calls} calls")


def test_process_killed_at_a_call_is_recovered_from(workspace: str) -> None:
    check_all(workspace, calls_sampled)


@pytest.mark.crash_full
def test_process_killed_at_every_call_is_recovered_from(workspace: str) -> None:
    check_all(workspace, None)
