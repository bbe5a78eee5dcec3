"""What commands do while a coordinator holds the lease: they hand over a message."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.shell import call, environment

ROOT = Path(__file__).resolve().parents[2]


class Coordinator:
    """A process that coordinates the task ``T1`` of a workspace."""

    def __init__(self, workspace: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.coordinator_child", workspace],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._expect("ready")

    def _expect(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == word

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        self._expect("heard")

    def end(self) -> None:
        self.process.communicate(timeout=50)


@pytest.fixture
def coordinator(workspace: str) -> Iterator[Coordinator]:
    assert call("-C", workspace, "init", "T1").code == 0
    assert call("-C", workspace, "add", "N1", "First").code == 0
    assert call("-C", workspace, "start", "N1").code == 0
    child = Coordinator(workspace)
    yield child
    child.process.kill()
    if child.process.stdin is not None and not child.process.stdin.closed:
        child.process.communicate()


def notes(workspace: str) -> list[str]:
    events = call("-C", workspace, "log", "--limit", "100", "--json").data["events"]
    texts = [event["payload"].get("text", "") for event in events if event["kind"] == "NOTE"]
    return [text for text in texts if text.startswith("said")]


def test_coordinator_at_work_answers_with_the_event(
    workspace: str, coordinator: Coordinator
) -> None:
    coordinator.tell("work")
    done = call("-C", workspace, "note", "said while it works")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("committed J-")
    assert notes(workspace) == ["said while it works"]


def test_message_waits_for_a_coordinator_that_is_busy_and_is_taken_in_once(
    workspace: str, coordinator: Coordinator
) -> None:
    done = call("-C", workspace, "note", "said meanwhile", "--op-id", "one")
    assert done.code == 0
    assert done.out == "queued one (the coordinator takes it in within a second)\n"
    assert notes(workspace) == []
    coordinator.tell("work")
    again = call("-C", workspace, "note", "said meanwhile", "--op-id", "one")
    assert (again.code, again.out[:12]) == (0, "committed J-")
    coordinator.end()
    assert notes(workspace) == ["said meanwhile"]


def test_queued_message_says_so_to_programs(workspace: str, coordinator: Coordinator) -> None:
    done = call("-C", workspace, "steer", "said to it", "--json")
    assert done.code == 0
    assert done.data["queued"] is True
    assert done.data["committed"] is None
    assert done.data["id"].startswith("op-")


def test_message_survives_a_coordinator_that_is_killed(
    workspace: str, coordinator: Coordinator
) -> None:
    assert call("-C", workspace, "note", "said before it died").out.startswith("queued op-")
    coordinator.process.kill()
    coordinator.process.wait()
    resumed = call("-C", workspace, "resume")
    assert resumed.code in (0, 10), resumed.err
    assert notes(workspace) == ["said before it died"]


def test_refusal_of_the_coordinator_is_the_refusal_of_the_command(
    workspace: str, coordinator: Coordinator
) -> None:
    coordinator.tell("work")
    done = call("-C", workspace, "fail", "N9", "--reason", "x", "--json")
    assert done.code == 3
    assert done.error["code"] == "unknown_node"
    assert done.error["suggestions"] == ["N1"]


def test_work_is_not_claimed_behind_the_coordinators_back(
    workspace: str, coordinator: Coordinator
) -> None:
    done = call("-C", workspace, "add", "N2", "Second")
    assert done.code == 5
    assert "lease" in done.err
    assert "coordinator:other" in done.err
    assert str(coordinator.process.pid) in done.err


def test_readers_need_nobodys_leave(workspace: str, coordinator: Coordinator) -> None:
    done = call("-C", workspace, "status", "--json")
    assert done.code == 0
    assert done.data["coordinator"]["holder"] == "coordinator:other"
    assert done.data["coordinator"]["pid"] == coordinator.process.pid
    assert call("-C", workspace, "verify").code == 0
