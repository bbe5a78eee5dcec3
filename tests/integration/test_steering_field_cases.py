"""F6, with real processes: what people say is on record once, whoever is killed meanwhile."""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.shell import call, environment, start

from perdure.control import run
from perdure.core.events import Event
from perdure.runtime.eventlog import EventLog
from perdure.runtime.world import real_world
from perdure.service.tasks import Service
from perdure.storage import spool
from perdure.storage.workspace import Layout

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 5
SENDERS = ("ada", "ben")
EACH = 100
patience_s = 40.0


class Child:
    """A process that is talked to line by line."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"tests.integration.{module}", *arguments],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def expect(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == word

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def children() -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for child in started:
        child.kill()


def journal(root: str) -> list[Event]:
    return list(EventLog(real_world().disk, Layout(root).journal, 10**9))


def logged(root: str) -> Counter[str]:
    return Counter(
        event.payload["verbatim"] for event in journal(root) if event.kind == "STEERING_LOGGED"
    )


def everything(root: str) -> dict[str, bytes]:
    return {
        os.path.join(folder, name): Path(folder, name).read_bytes()
        for folder, _, names in os.walk(root)
        for name in names
    }


def wait_for_growth(root: str, by: int) -> None:
    """Until the journal is so much longer, or does not grow any more."""
    path, deadline = f"{root}/journal.jsonl", time.monotonic() + patience_s
    began = os.path.getsize(path)
    while os.path.getsize(path) < began + by:
        assert time.monotonic() < deadline


def test_f06_two_senders_and_a_coordinator_that_is_killed_again_and_again(
    workspace: str, children: list[Child]
) -> None:
    root, chance = f"{workspace}/w", random.Random(6)
    assert call("-C", root, "init", "T1").code == 0
    assert call("-C", root, "add", "N1", "First").code == 0
    senders = [Child("sender_child", root, name) for name in SENDERS]
    children += senders
    for sender in senders:
        sender.expect("ready")
    for number in range(ROUNDS):
        coordinator = Child("coordinator_child", root)
        children.append(coordinator)
        coordinator.expect("ready")
        coordinator.tell("work")
        coordinator.expect("heard")
        Path(f"{root}/steering/write-here.md").write_text(f"page {number}\n", encoding="utf-8")
        for sender in senders:
            sender.tell(str(EACH // ROUNDS))
        wait_for_growth(root, chance.randrange(500, 9_000))
        coordinator.kill()
        for sender in senders:
            sender.expect("sent")
    assert call("-C", root, "resume").code == 0
    said = logged(root)
    wanted = {f"{name} says {number}" for name in SENDERS for number in range(1, EACH + 1)}
    pages = {f"page {number}\n" for number in range(ROUNDS)}
    assert set(said) == wanted | pages
    assert set(said.values()) == {1}, "each once"
    acknowledged = Counter(
        event.entity.id for event in journal(root) if event.payload.get("op") == "acknowledged"
    )
    assert len(acknowledged) == len(said)
    assert set(acknowledged.values()) == {1}
    assert spool.pending(real_world().disk, Layout(root)) == ([], [])
    assert call("-C", root, "verify").code == 0

    before = everything(root)
    service = Service(root, actor="sponsor:ada")
    assert service.inbox(limit=1_000)["steering_total"] == len(said)
    service.status()
    assert call("-C", root, "log", "--limit", "5").code == 0
    assert everything(root) == before, "looking changes nothing"


def test_f06_a_message_to_a_run_is_taken_in_within_a_second(workspace: str) -> None:
    """The run answers while the sender still waits, which is no longer than two seconds."""
    assert run.tick_s <= 0.5
    root = f"{workspace}/w"
    text = "task_id: t\nnodes:\n  - id: slow\n    run: sleep 60\n    outputs: none\n"
    text += "    accept: ['script: true']\n"
    Path(workspace, "task.yaml").write_text(text, encoding="utf-8")
    running = start("-C", root, "run", f"{workspace}/task.yaml")
    try:
        deadline = time.monotonic() + patience_s
        while not os.path.exists(f"{root}/journal.jsonl") or not any(
            node.get("node") == "slow" for node in Service(root, actor="a:b").status()["running"]
        ):
            assert time.monotonic() < deadline
        done = call("-C", root, "steer", "metric units", "--as", "amendment", "--json")
        assert done.code == 0, done.err
        assert done.data["committed"], "taken in while the sender waited"
        assert done.data["recalled"] == ["slow"]
        assert done.data["acknowledged"]
    finally:
        running.terminate()
        running.communicate(timeout=50)


def test_an_instruction_is_shown_stage_by_stage(workspace: str) -> None:
    root = f"{workspace}/w"
    for arguments in (["init", "T1"], ["add", "N1", "First"], ["start", "N1"]):
        assert call("-C", root, *arguments).code == 0
    done = call("-C", root, "steer", "metric units", "--node", "N1", "--as", "amendment")
    assert done.out.splitlines() == [
        "steering ST-001",
        "  read as    amendment",
        "  applied    N1 recalled J-8, amended J-9",
        "  ack        J-11",
        "committed J-6",
    ]
    assert call("-C", root, "steer", "x", "--node", "N9").code == 3
    assert call("-C", root, "steer", "x", "--as", "maybe").code == 2
    assert call("-C", root, "steer", "x", "--set", "colour=red").code == 2
    assert call("-C", root, "steer", "x", "--actor", "executor:x").code == 4
    resumed = call("-C", root, "resume", "--json").data
    assert resumed["inbox_empty"] is True
    assert resumed["last_contact"]["by"] == "sponsor:tester"
