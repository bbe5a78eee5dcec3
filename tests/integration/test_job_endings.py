"""How processes with an open job end: SIGTERM, exit, errors, forks. Nothing here is simulated.

The log alone loses nothing; these are about the checkpoint that a process leaves when it is asked
to go, and about ending exactly as it would have without a job.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import weakref
from typing import Any

import pytest
from tests.integration.job_ending_child import MANY

from perdure.jobs.job import CheckpointedJob

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


class Child:
    """A child in a situation, which has said that it is ready."""

    def __init__(self, directory: str, situation: str) -> None:
        self.directory = directory
        command = [sys.executable, "-m", "tests.integration.job_ending_child"]
        self.process = subprocess.Popen(
            [*command, directory, situation],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        assert self.process.stdout is not None
        while (text := self.process.stdout.readline()) and text != "ready\n":
            self.said.append(text.strip())

    def end(self, number: int | None = None) -> int:
        """Send a signal, if any, let it go on, and wait: its exit code."""
        if number is not None:
            self.process.send_signal(number)
            if self.process.stdin is not None and number == signal.SIGTERM:
                self.process.wait(50)
        out, self.err = self.process.communicate(timeout=50)
        self.said += out.splitlines()
        return self.process.returncode


def state_of(directory: str) -> dict[str, Any]:
    with open(f"{directory}/state.json", "rb") as file:
        state: dict[str, Any] = json.load(file)
    return state


def summary_of(directory: str) -> str:
    with open(f"{directory}/SUMMARY.md", encoding="utf-8") as file:
        return file.read()


def check_saved(directory: str, items: int) -> None:
    state = state_of(directory)
    assert state["cursor"] == "last"
    assert len(state["completed"]) == items
    assert "Status: stopped" in summary_of(directory)
    with CheckpointedJob(directory, "docs") as job:
        assert job.processed == items


# SIGTERM


def test_sigterm_leaves_a_checkpoint_and_ends_the_process_as_it_would_have(workspace: str) -> None:
    child = Child(workspace, "at_rest")
    assert len(state_of(workspace)["completed"]) < MANY
    assert child.end(signal.SIGTERM) == -signal.SIGTERM
    assert child.err == ""
    check_saved(workspace, MANY)


def test_every_open_job_is_saved(workspace: str) -> None:
    assert Child(workspace, "two_jobs").end(signal.SIGTERM) == -signal.SIGTERM
    for name in ("one", "two"):
        check_saved(f"{workspace}/{name}", MANY)


def test_a_call_under_way_is_finished_first(workspace: str) -> None:
    child = Child(workspace, "in_a_call")
    assert child.end() == -signal.SIGTERM
    assert "went on" not in child.said
    check_saved(workspace, MANY + 1)


def test_sigterm_during_close_ends_the_process_behind_it(workspace: str) -> None:
    child = Child(workspace, "in_close")
    assert child.end() == -signal.SIGTERM
    assert "went on" not in child.said
    check_saved(workspace, MANY)


def test_a_call_of_another_thread_is_finished_first(workspace: str) -> None:
    child = Child(workspace, "in_a_call_of_a_thread")
    assert child.process.poll() is None
    assert child.end() == -signal.SIGTERM
    assert "went on" not in child.said
    check_saved(workspace, MANY + 1)


def test_a_second_sigterm_does_not_wait(workspace: str) -> None:
    child = Child(workspace, "told_twice")
    assert child.end() == -signal.SIGTERM
    assert "went on" not in child.said
    with CheckpointedJob(workspace, "docs") as job:
        assert job.processed == MANY


def test_a_programs_own_handler_stays(workspace: str) -> None:
    assert Child(workspace, "own_handler").end(signal.SIGTERM) == 7
    check_saved(workspace, MANY)  # by the exit hook


def test_a_job_that_was_not_opened_by_the_main_thread_installs_no_handler(workspace: str) -> None:
    child = Child(workspace, "opened_in_a_thread")
    assert child.said == ["True"]
    assert child.end(signal.SIGTERM) == -signal.SIGTERM


def test_after_the_last_job_the_default_action_is_back(workspace: str) -> None:
    child = Child(workspace, "closed")
    assert child.said == ["False", "True"]
    assert child.end(signal.SIGTERM) == -signal.SIGTERM


def test_sigkill_loses_nothing_that_was_recorded(workspace: str) -> None:
    assert Child(workspace, "at_rest").end(signal.SIGKILL) == -signal.SIGKILL
    with CheckpointedJob(workspace, "docs") as job:
        assert job.processed == MANY


# Forks


def test_a_forked_child_ends_at_once_and_the_parents_job_goes_on(workspace: str) -> None:
    child = Child(workspace, "forked")
    os.kill(int(child.said[0]), signal.SIGTERM)
    assert child.end() == 0
    assert child.said[1:] == [f"child {-signal.SIGTERM}"]
    check_saved(workspace, MANY + 1)


def test_exit_hooks_of_a_forked_child_leave_the_parents_job_alone(workspace: str) -> None:
    child = Child(workspace, "forked_exit")
    assert child.end() == 0
    assert child.err == ""
    check_saved(workspace, MANY + 1)


def test_a_child_that_was_forked_in_a_call_does_not_wait_for_the_parents_job(
    workspace: str,
) -> None:
    child = Child(workspace, "forked_in_a_call")
    assert child.end() == 0
    assert f"child {-signal.SIGTERM}" in child.said


# Exit


def test_a_process_that_ends_without_closing_leaves_a_checkpoint(workspace: str) -> None:
    child = Child(workspace, "runs_to_its_end")
    assert child.end() == 0
    assert child.err == ""
    check_saved(workspace, MANY)


def test_a_process_that_ends_with_an_error_leaves_a_checkpoint(workspace: str) -> None:
    child = Child(workspace, "ends_with_an_error")
    assert child.end() == 1
    assert "RuntimeError: docs" in child.err
    check_saved(workspace, MANY)


def test_exit_hooks_keep_no_job_alive(workspace: str) -> None:
    job = CheckpointedJob(workspace, "docs")
    job.set_cursor("here")
    gone = weakref.ref(job)
    engine = weakref.ref(job._engine)
    del job
    gc.collect()
    assert gone() is None
    assert engine() is None
    assert state_of(workspace)["cursor"] == "here"
