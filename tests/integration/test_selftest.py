"""``perdure selftest``: it holds here, breakages are caught by name, nothing stays behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shell import PERDURE, environment

REPOSITORY = Path(__file__).resolve().parents[2]


def selftest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PERDURE, "selftest", "--seed", "7", "--minutes", "0", *arguments],
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_everything_holds_here_and_nothing_is_left_behind(tmp_path: Path) -> None:
    done = selftest(tmp_path.parent, "-C", str(tmp_path / "workspace"), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(done.stdout)["data"]
    assert data["ok"]
    assert data["seed"] == 7
    assert data["failures"] == []
    assert {row["kind"] for row in data["kinds"] if not row["tried"]} == set()
    assert len(data["kinds"]) >= 12
    assert data["ground"]["directory"] == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_text_shows_ground_kinds_and_seed(tmp_path: Path) -> None:
    done = selftest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == f"testing {tmp_path}"
    assert any(line.startswith("  locks ") for line in lines)
    assert any(line.startswith("process killed at a system call ") for line in lines)
    assert lines[-1].startswith("everything held: ")
    assert lines[-1].endswith("seed 7")


def broken(breakage: str, only: str, rounds: int, directory: Path) -> Any:
    words = [breakage, directory, only, str(rounds)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.broken_selftest", *words],
        cwd=REPOSITORY,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(directory.iterdir()) == []
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("breakage", "kind", "rounds", "why"),
    [
        ("tail_is_not_cut", "journal cut", 1, "written by somebody else"),
        ("tail_is_not_cut", "zero-filled", 1, "written by somebody else"),
        ("sums_are_not_checked", "projection", 10, "not what the journal says"),
        ("the_dead_are_thought_alive", "process killed at", 1, "lease_held"),
        ("fencing_is_off", "two coordinators", 1, "committed after it was taken over"),
        ("hashes_are_not_compared", "artifact", 1, "does not name"),
        ("lock_fails_behind_the_ground", "several processes", 3, ""),
    ],
)
def test_a_breakage_is_caught_by_name(
    breakage: str, kind: str, rounds: int, why: str, tmp_path: Path
) -> None:
    report = broken(breakage, kind, rounds, tmp_path)
    assert report["exit_code"] == 1, report
    found = [failure["why"] for failure in report["failures"] if kind in failure["kind"]]
    assert any(why in reason for reason in found), report["failures"]


@pytest.mark.parametrize("kind", ["journal", "projection", "several processes", "artifact"])
def test_the_same_kinds_hold_when_nothing_is_broken(kind: str, tmp_path: Path) -> None:
    report = broken("nothing", kind, 3, tmp_path)
    assert report["exit_code"] == 0, report


def test_a_lock_that_keeps_nobody_out_is_refused(tmp_path: Path) -> None:
    report = broken("lock_lets_everybody_in", "", 0, tmp_path)
    assert report["exit_code"] == 7
    assert report["refused"]["code"] == "no_locks"
    assert "two processes got the same lock" in report["refused"]["message"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_behind_after_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*PERDURE, "selftest", "--minutes", "5"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"testing {tmp_path}\n"
    (scratch,) = tmp_path.iterdir()
    assert scratch.name.startswith(".perdure-selftest-")
    process.send_signal(number)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err.strip() == ""
    assert list(tmp_path.iterdir()) == []
    assert processes_below(scratch) == []


def processes_below(directory: Path) -> list[str]:
    """Processes whose current directory is or was this one."""
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        try:
            if name.isdigit() and str(directory) in os.readlink(f"/proc/{name}/cwd"):
                found.append(name)
        except OSError:
            continue
    return found


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = selftest(tmp_path, "--dir", "nowhere", "--json")
    assert done.returncode == 7
    assert json.loads(done.stderr)["error"]["code"] == "no_directory"
    assert list(tmp_path.iterdir()) == []


def on_own_mount(directory: Path, options: str, before: str = "true") -> tuple[int, Any, str]:
    """A self-test on a file system that only it sees: exit code, error, and what it left."""
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("only root mounts")
    script = (
        f'mount -t tmpfs -o size=1m none "$1" || exit 99; cd "$1"; {before};'
        f' mount -o remount,{options} "$1"; "$2" -m perdure selftest --json; code=$?;'
        ' ls -A "$1"; exit $code'
    )
    done = subprocess.run(
        [unshare, "--mount", "sh", "-c", script, "sh", str(directory), sys.executable],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 99:
        pytest.skip(done.stderr)
    return done.returncode, json.loads(done.stderr)["error"], done.stdout


def test_a_read_only_directory_is_refused(tmp_path: Path) -> None:
    code, error, left = on_own_mount(tmp_path, "ro")
    assert code == 7
    assert error["code"] == "read_only"
    assert left == ""


def test_a_full_disk_is_refused(tmp_path: Path) -> None:
    code, error, left = on_own_mount(tmp_path, "size=1m", "head -c 2m /dev/zero > ballast 2>&-")
    assert code == 7
    assert error["code"] == "disk_full"
    assert left == "ballast\n"
