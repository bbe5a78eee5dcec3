"""``monitor --schedule``: one line in the crontab that works, and goes when it is not needed."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.monitoring import Watched
from tests.integration.shell import environment
from tests.integration.webhook import Webhook
from tests.unit.control.test_schedule import FAKE, OTHERS


class Machine(Watched):
    """A task on a machine whose crontab is a file."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"{directory}/w 100%")
        self.table = Path(directory, "table")
        self.table.write_bytes(OTHERS)
        program = Path(directory, "bin", "crontab")
        program.parent.mkdir()
        program.write_text(FAKE)
        program.chmod(0o755)
        self.environment = {
            "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
            "TABLE": str(self.table),
        }
        self.script(
            """
            init T1
            add N1 First --output artifacts/N1/a.txt
            start N1
            """
        )

    @property
    def lines(self) -> list[str]:
        """Those in the crontab that are ours; the others are as they were."""
        data = self.table.read_bytes()
        assert data.startswith(OTHERS)
        return data.removeprefix(OTHERS).decode().splitlines()

    def run_as_cron(self, **more: str) -> "subprocess.CompletedProcess[str]":
        """What cron does with the line: the shell gets it, with a bare environment."""
        (line,) = self.lines
        command = re.sub(r"^(\S+ ){5}", "", line).replace(r"\%", "%")
        bare = {
            name: value
            for name, value in environment(**self.environment).items()
            if name in ("PATH", "PYTHONPATH", "HOME", "TABLE")
        }
        return subprocess.run(
            ["/bin/sh", "-c", command],
            env={**bare, **more},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )

    def finish(self) -> None:
        self.script("write artifacts/N1/a.txt\nsubmit N1\nobserve task-completed")


@pytest.fixture
def machine(workspace: str) -> Machine:
    return Machine(workspace)


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with Webhook() as hook:
        yield hook


def schedule(machine: Machine, *arguments: str) -> Any:
    (changed,) = (
        machine.perdure("monitor", "--schedule", "--json", *arguments).data["scheduled"].values()
    )
    return changed


def test_scheduled_twice_is_scheduled_once_and_other_lines_stay(machine: Machine) -> None:
    assert schedule(machine) is True
    assert schedule(machine) is False
    (line,) = machine.lines
    assert line.startswith("*/5 * * * * /")
    assert schedule(machine, "--interval", "15m") is True
    (line,) = machine.lines
    assert line.startswith("*/15 * * * * /")
    done = machine.perdure("monitor", "--unschedule")
    assert done.out.endswith(": taken out of the crontab\n")
    assert machine.table.read_bytes() == OTHERS
    assert machine.perdure("monitor", "--unschedule").out.endswith(": was not scheduled\n")


def test_the_line_runs_and_says_nothing_when_all_is_well(machine: Machine) -> None:
    schedule(machine)
    before = machine.journal()
    done = machine.run_as_cron()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert Path(machine.workspace, "supervision.json").exists()
    assert machine.journal() == before


def test_it_takes_itself_out_when_the_task_is_over(machine: Machine) -> None:
    schedule(machine)
    machine.finish()
    done = machine.run_as_cron()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.table.read_bytes() == OTHERS
    # What is for a terminal waits for somebody at one.
    kinds = [message["kind"] for message in machine.look(apply=True)["messages"]]
    assert kinds == ["STEP_COMPLETED", "COMPLETED_HANDOFF"]


def test_it_stays_until_what_is_queued_is_delivered(machine: Machine, hook: Webhook) -> None:
    Path(machine.workspace, "notify.yaml").write_text("requester: [{webhook: '${HOOK}'}]")
    schedule(machine)
    machine.finish()
    hook.status = 503
    assert machine.run_as_cron(HOOK=hook.url).returncode == 0
    assert len(machine.lines) == 1
    hook.status = 200
    machine.look("+1m", apply=True, HOOK=hook.url)
    assert machine.table.read_bytes() == OTHERS
    assert {message["kind"] for message in hook.messages} == {
        "STEP_COMPLETED",
        "COMPLETED_HANDOFF",
    }


def test_it_does_not_stay_longer_than_a_day_for_that(machine: Machine) -> None:
    Path(machine.workspace, "notify.yaml").write_text("requester: [{webhook: '${HOOK}'}]")
    schedule(machine)
    machine.finish()
    assert len(machine.look(apply=True)["failed"]) == 1
    assert len(machine.lines) == 1
    machine.look("+25h", apply=True)
    assert machine.table.read_bytes() == OTHERS


def test_the_file_of_channels_that_was_named_goes_into_the_line(
    machine: Machine, hook: Webhook, tmp_path: Path
) -> None:
    named = tmp_path / "it's mine.yaml"
    named.write_text("requester: [{webhook: '${HOOK}'}]")
    schedule(machine, "--notify", str(named))
    machine.finish()
    assert machine.run_as_cron(HOOK=hook.url).returncode == 0
    assert len(hook.of_kind("COMPLETED_HANDOFF")) == 1


def test_trouble_is_said_so_that_cron_mails_it(machine: Machine) -> None:
    schedule(machine)
    Path(machine.workspace, "notify.yaml").write_text("owner: nobody")
    assert "notify.yaml:1:8: owner must be a list" in machine.run_as_cron().stdout
    shutil.rmtree(machine.workspace)
    gone = machine.run_as_cron()
    assert (gone.returncode, gone.stdout) == (3, "")
    assert "no_workspace" in gone.stderr
    assert not os.path.exists(machine.workspace)


def test_a_workspace_that_is_gone_can_be_unscheduled(machine: Machine) -> None:
    schedule(machine)
    shutil.rmtree(machine.workspace)
    machine.perdure("monitor", machine.workspace, "--unschedule")
    assert machine.table.read_bytes() == OTHERS


def test_a_workspace_that_was_moved_takes_its_old_line_along(machine: Machine) -> None:
    schedule(machine)
    moved = f"{machine.workspace}-moved"
    os.rename(machine.workspace, moved)
    machine.workspace = moved
    machine.perdure("monitor", "--unschedule")
    assert machine.table.read_bytes() == OTHERS


def test_without_crontab_nothing_is_said_to_be_scheduled(machine: Machine) -> None:
    machine.environment["PATH"] = str(Path(machine.workspace).parent)
    done = machine.perdure("monitor", "--schedule", "--json", code=3)
    assert done.error["code"] == "no_crontab"
    assert "--watch" in done.error["fix"]
    assert "schedule" not in Path(machine.workspace, "supervision.json").read_text()
