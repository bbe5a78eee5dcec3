"""The crontab line of a workspace comes and goes, and every other line stays as it is."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perdure.control.schedule import Crontab, cron_times, line_for, mark_of
from perdure.errors import NotFoundError, StorageError, UsageError
from perdure.host import SystemClock
from perdure.storage.disk import RealDisk

OTHERS = (
    b"# mine\nMAILTO=\"\"\n\n0 4 * * *\tbackup --all '%d' \xff\n"
    b"@reboot  thing   # perdure-monitor: no\n"
)

FAKE = """#!/bin/sh
if [ "$1" = -l ]; then
  [ -e "$TABLE" ] || { echo "no crontab for tester" >&2; exit 1; }
  exec cat "$TABLE"
fi
[ -z "$CRON_DENIED" ] || { echo "you are not allowed" >&2; exit 1; }
cat > "$TABLE"
"""


class Machine:
    """A user with a crontab, or without one."""

    def __init__(self, directory: Path) -> None:
        self.table = directory / "table"
        self.environment = {"PATH": f"{directory}/bin:{os.defpath}", "TABLE": str(self.table)}
        self.program = directory / "bin" / "crontab"
        self.program.parent.mkdir()
        self.program.write_text(FAKE)
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    @property
    def crontab(self) -> Crontab:
        return Crontab(self.environment, RealDisk(), SystemClock())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def put(machine: Machine, workspace: str, interval_s: float = 300.0) -> bool:
    line = line_for(workspace, interval_s, None)
    return machine.crontab.put(line, mark_of(workspace))


def test_a_line_is_put_in_once_and_taken_out_without_a_trace(machine: Machine) -> None:
    machine.table.write_bytes(OTHERS)
    assert put(machine, "/w")
    once = machine.table.read_bytes()
    assert once.startswith(OTHERS)
    assert once.count(b"\n") == OTHERS.count(b"\n") + 1
    assert not put(machine, "/w")
    assert machine.table.read_bytes() == once
    assert machine.crontab.remove(mark_of("/w"))
    assert machine.table.read_bytes() == OTHERS
    assert not machine.crontab.remove(mark_of("/w"))


def test_another_interval_takes_the_place_of_the_line(machine: Machine) -> None:
    put(machine, "/w")
    put(machine, "/w", 3_600.0)
    (line,) = machine.table.read_text().splitlines()
    assert line.startswith("0 * * * * ")


def test_two_workspaces_have_a_line_each(machine: Machine) -> None:
    put(machine, "/w")
    put(machine, "/w/other")
    machine.crontab.remove(mark_of("/w"))
    (line,) = machine.table.read_text().splitlines()
    assert " /w/other " in line


def test_workspaces_that_are_scheduled_at_once_do_not_lose_each_others_lines(
    machine: Machine,
) -> None:
    machine.table.write_bytes(OTHERS)
    workspaces = [f"/w{number}" for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(lambda workspace: put(machine, workspace), workspaces))
    text = machine.table.read_text(errors="replace")
    assert [workspace for workspace in workspaces if mark_of(workspace) not in text] == []


def test_a_last_line_without_its_end_gets_one(machine: Machine) -> None:
    machine.table.write_bytes(b"0 1 * * * a")
    put(machine, "/w")
    machine.crontab.remove(mark_of("/w"))
    assert machine.table.read_bytes() == b"0 1 * * * a\n"


def test_the_line_names_this_interpreter_and_survives_the_shell() -> None:
    line = line_for("/a b/100%/it's", 300.0, "/n o/notify.yaml")
    times, command = line[: line.index(sys.executable)], line[line.index(sys.executable) :]
    assert times == "*/5 * * * * "
    command = command.replace(r"\%", "%").replace(sys.executable, "printf '%s\\n'", 1)
    printed = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert printed.stdout.splitlines() == [
        *("-m", "perdure", "-C", "/a b/100%/it's", "monitor", "--apply", "--scheduled"),
        *("--notify", "/n o/notify.yaml"),
    ]


@pytest.mark.parametrize(
    ("interval_s", "times"),
    [
        (60, "* * * * *"),
        (300, "*/5 * * * *"),
        (1_800, "*/30 * * * *"),
        (3_600, "0 * * * *"),
        (7_200, "0 */2 * * *"),
        (86_400, "0 0 * * *"),
    ],
)
def test_intervals_that_cron_can_do(interval_s: float, times: str) -> None:
    assert cron_times(interval_s) == times


@pytest.mark.parametrize("interval_s", [1, 90, 420, 5_400, 18_000, 90_000, 172_800])
def test_an_interval_that_cron_cannot_do_is_refused(interval_s: float) -> None:
    with pytest.raises(UsageError, match="evenly"):
        cron_times(interval_s)


def test_a_path_with_a_line_break_is_refused() -> None:
    with pytest.raises(UsageError, match="crontab"):
        line_for("/a\nb", 300.0, None)


def test_a_machine_without_crontab_is_told_so(machine: Machine) -> None:
    machine.program.unlink()
    machine.environment["PATH"] = str(machine.program.parent)
    with pytest.raises(NotFoundError, match="no_crontab") as caught:
        put(machine, "/w")
    assert "--watch" in caught.value.fix


@pytest.mark.parametrize(
    "said", ["no crontab for tester", "crontab: can't open 'tester': No such file or directory"]
)
def test_a_user_that_has_no_crontab_yet_gets_one(machine: Machine, said: str) -> None:
    machine.program.write_text(FAKE.replace("no crontab for tester", said))
    assert put(machine, "/w")
    assert machine.table.read_bytes().count(b"\n") == 1


def test_a_crontab_that_cannot_be_read_is_not_taken_for_none(machine: Machine) -> None:
    machine.program.write_text(FAKE.replace("no crontab for tester", "it is on fire"))
    with pytest.raises(StorageError, match="on fire"):
        put(machine, "/w")


def test_a_crontab_that_may_not_be_changed_is_left_alone(machine: Machine) -> None:
    machine.table.write_bytes(OTHERS)
    machine.environment["CRON_DENIED"] = "1"
    with pytest.raises(StorageError, match="not allowed"):
        put(machine, "/w")
    assert machine.table.read_bytes() == OTHERS
