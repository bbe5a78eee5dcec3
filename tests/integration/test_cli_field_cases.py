"""Field cases at the command line: full disk, a race for one node, a producer that is killed."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.integration.shell import Done, call, finish, start


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[str]:
    """A file system of one mebibyte."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("a file system can only be mounted by root")
    try:
        yield str(place)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def fill_up(directory: str) -> None:
    """Leave no space at all."""
    ballast = os.open(f"{directory}/ballast", os.O_CREAT | os.O_WRONLY)
    with contextlib.suppress(OSError):
        while os.write(ballast, b"\0" * 4096):
            pass
    os.close(ballast)


def files_below(directory: str) -> set[str]:
    return {
        os.path.relpath(os.path.join(parent, name), directory)
        for parent, _, names in os.walk(directory)
        for name in names
    }


def test_f03_full_disk_is_named_and_nothing_is_acknowledged(small_disk: str) -> None:
    workspace = f"{small_disk}/w"
    assert call("-C", workspace, "init", "T1").code == 0
    assert call("-C", workspace, "note", "before").code == 0
    before = files_below(workspace)
    fill_up(small_disk)
    text = "x" * 100_000
    done = call("-C", workspace, "note", text)
    assert done.code == 7
    assert done.out == ""
    assert "disk_full" in done.err
    assert "disk space" in done.err
    assert "permission" not in done.err
    assert files_below(workspace) == before
    as_json = call("-C", workspace, "note", text, "--json")
    assert (as_json.code, as_json.error["code"]) == (7, "disk_full")

    Path(small_disk, "ballast").unlink()
    assert call("-C", workspace, "note", text).code == 0
    events = call("-C", workspace, "log", "--json").data["events"]
    said = [event["payload"]["text"] for event in events if event["kind"] == "NOTE"]
    assert [one for one in said if one in ("before", text)] == ["before", text]
    assert call("-C", workspace, "verify").code == 0


def test_f05_of_eight_processes_that_claim_a_node_one_gets_it(workspace: str) -> None:
    assert call("-C", workspace, "init", "T1").code == 0
    assert call("-C", workspace, "add", "N1", "First").code == 0
    actors = [f"executor:w{number}" for number in range(8)]
    children = [start("-C", workspace, "start", "N1", "--actor", actor) for actor in actors]
    ends = [finish(child) for child in children]
    winners = [actor for actor, end in zip(actors, ends, strict=True) if end.code == 0]
    assert len(winners) == 1
    losers = [end for end in ends if end.code != 0]
    assert all(end.code in (4, 5) and winners[0] in end.err for end in losers), losers
    events = call("-C", workspace, "log", "--json").data["events"]
    assert [event["actor"] for event in events if event["payload"].get("edge") == "N02"] == winners


# Writes thirty of its three hundred lines; goes on once the file ``go`` is there, else it says that
# it has come so far and waits to be killed.
PRODUCER = """
import os, sys
out = open(os.path.join(os.environ["PERDURE_SCOPE"], "lines.txt"), "w")
for number in range(300):
    print(number, file=out, flush=True)
    if number == 29 and not os.path.exists("go"):
        with open("reached", "w") as reached:
            print(os.getpid(), file=reached, flush=True)
        open("never", "r").read()
"""

TASK = """
task_id: produce
grants: ['write:$TASK/*']
nodes:
  - id: lines
    title: Write three hundred lines
    run: [python, producer.py]
    outputs: [artifacts/lines/lines.txt]
"""


def has_ended(pid: int) -> bool:
    """Whether it is gone, or only waits for its new parent to take notice."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Production:
    """A producer in a workspace, and the run that drives it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.workspace = directory / "w"
        self.workspace.mkdir()
        (self.workspace / "producer.py").write_text(PRODUCER, encoding="utf-8")
        (directory / "task.yaml").write_text(TASK, encoding="utf-8")
        os.mkfifo(self.workspace / "never")
        os.mkfifo(self.workspace / "reached")
        self.run = start("-C", str(self.workspace), "run", str(directory / "task.yaml"))

    def wait_for_thirty_lines(self) -> int:
        """The process id of the producer, once it has written a tenth of its lines."""
        return int((self.workspace / "reached").read_text(encoding="utf-8"))

    def let_go(self) -> None:
        (self.workspace / "go").touch()

    def again(self) -> Done:
        return call("-C", str(self.workspace), "run", str(self.directory / "task.yaml"))

    def check(self) -> None:
        """What is DONE is whole, and what was cut off was never taken for it."""
        lines = (self.workspace / "artifacts/lines/lines.txt").read_text().splitlines()
        assert lines == [str(number) for number in range(300)]
        workspace = str(self.workspace)
        shown = call("-C", workspace, "show", "A-lines", "--json").data
        assert shown["integrity"]["size_bytes"] == sum(len(line) + 1 for line in lines)
        events = call("-C", workspace, "log", "--limit", "1000", "--json").data["events"]
        assert [e["kind"] for e in events].count("ARTIFACT_REGISTERED") == 1
        cut_off = list((self.workspace / "tmp/recovered").rglob("lines.txt"))
        assert [len(path.read_text().splitlines()) for path in cut_off] == [30]
        assert call("-C", workspace, "verify").code == 0


def test_f16_output_of_a_producer_that_was_killed_is_not_taken_as_complete(
    tmp_path: Path,
) -> None:
    production = Production(tmp_path)
    producer = production.wait_for_thirty_lines()
    production.let_go()
    os.kill(producer, signal.SIGKILL)
    done = finish(production.run)
    assert done.code == 0, done.out + done.err
    assert "failed lines: signal 9" in done.out
    production.check()


def test_f16_output_that_a_killed_run_left_behind_is_not_taken_as_complete(tmp_path: Path) -> None:
    production = Production(tmp_path)
    producer = production.wait_for_thirty_lines()
    production.run.kill()
    production.run.communicate()
    production.let_go()
    done = production.again()
    assert done.code == 0, done.out + done.err
    assert "stopped what a former run had left running" in done.out
    assert has_ended(producer)
    production.check()
