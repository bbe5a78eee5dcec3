"""Bad input is refused by name, with its exit code, and leaves everything as it was."""

import contextlib
import hashlib
import io
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perdure.interfaces.cli import main


class Refusal(NamedTuple):
    """How a call was refused."""

    code: int
    error: Any


def say(*arguments: str, given: str = "") -> tuple[int, str, str]:
    """Make a call in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("sys.stdin", io.StringIO(given))
        code = main(list(arguments))
    return code, out.getvalue(), err.getvalue()


def done(*arguments: str) -> None:
    code, out, err = say(*arguments)
    assert code == 0, out + err


def refused(*arguments: str, given: str = "") -> Refusal:
    code, out, err = say("--json", *arguments, given=given)
    assert out == ""
    return Refusal(code, json.loads(err)["error"])


def contents(directory: Path, *, but: str = "\0") -> dict[str, str]:
    """Every name below a directory but those with ``but``, and a hash of what it stands for."""
    found = {}
    for parent, folders, names in os.walk(directory):
        for name in [*folders, *names]:
            path = Path(parent, name)
            if path.is_symlink():
                what = f"link to {path.readlink()}"
            elif path.is_file():
                what = hashlib.sha256(path.read_bytes()).hexdigest()
            else:
                what = "directory"
            found[str(path.relative_to(directory))] = what
    return {name: what for name, what in found.items() if but not in name}


TASK_FILES = {
    "no-yaml.yaml": "nodes: [unclosed",
    "list.yaml": "- a\n- b\n",
    "unknown-key.yaml": "task_id: T1\nnodes:\n  - {id: A, titel: x}\n",
    "cycle.yaml": "task_id: T1\nnodes:\n  - {id: A, deps: [B]}\n  - {id: B, deps: [A]}\n",
    "unknown-dep.yaml": "task_id: T1\nnodes:\n  - {id: A, deps: [Z]}\n",
    "climbs.yaml": "task_id: T1\nnodes:\n  - {id: A, outputs: [../x]}\n",
    "twice.yaml": "task_id: T1\nnodes:\n  - {id: A}\n  - {id: A}\n",
    "other.yaml": "task_id: T2\nnodes:\n  - {id: A, run: 'true'}\n",
}


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with nodes in several states, in the current directory."""
    for name in [name for name in os.environ if name.startswith("PERDURE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("USER", "tester")
    monkeypatch.chdir(tmp_path)
    workspace = tmp_path / "w"
    monkeypatch.setenv("PERDURE_WORKSPACE", str(workspace))
    done("init", "T1")
    done("add", "running", "At work", "--output", "artifacts/running/a.txt")
    done("add", "pending-1", "Waits", "--dep", "running")
    done("add", "pending-2", "Waits too", "--dep", "running")
    done("start", "running")
    (workspace / "artifacts/running/kept.txt").write_text("one\n", encoding="utf-8")
    done("artifact", "add", "running", "artifacts/running/kept.txt")
    (workspace / "artifacts/running/kept.txt").write_text("two\n", encoding="utf-8")
    (workspace / "artifacts/running/link.txt").symlink_to("/etc/passwd")
    for name, text in TASK_FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


BAD = {
    # Things that are not there.
    "unknown node": (["start", "nobody"], 3, "unknown_node"),
    "unknown record": (["show", "nothing"], 3, "unknown_record"),
    "unknown event": (["show", "J-999"], 3, "unknown_event"),
    "unknown rule": (["explain", "XY-1"], 3, "unknown_rule"),
    "unknown dependency": (["add", "x", "X", "--dep", "nobody"], 3, "unknown_node"),
    "no workspace": (["-C", "nowhere", "status"], 3, "no_workspace"),
    "no task file": (["run", "nothing.yaml"], 3, "no_task_file"),
    # Calls that are malformed.
    "no such command": (["statsu"], 2, "unknown_command"),
    "no such option": (["status", "--limt", "1"], 2, "unknown_option"),
    "argument missing": (["start"], 2, "usage"),
    "argument too many": (["start", "a", "b"], 2, "usage"),
    "no number": (["status", "--limit", "many"], 2, "usage"),
    "no such level": (["add", "x", "X", "--verify", "V9"], 2, "usage"),
    "actor without a role": (["note", "x", "--actor", "me"], 2, "bad_actor"),
    "op id with a blank": (["note", "x", "--op-id", "a b"], 2, "bad_id"),
    "several meant": (["start", "pend"], 2, "ambiguous_id"),
    "id with a path": (["add", "../x", "X"], 2, "bad_id"),
    "reserved id": (["add", "old", "X"], 2, "bad_id"),
    "title too long": (["add", "x", "X" * 501], 2, "bad_title"),
    "no check method": (["add", "x", "X", "--accept", "exits: 0"], 2, "criterion_invalid"),
    "no regex": (["add", "x", "X", "--accept", "matches: a ("], 2, "criterion_invalid"),
    "empty note": (["note", ""], 2, "empty_text"),
    "empty steering": (["steer", "  "], 2, "empty_text"),
    "nothing to cancel": (["cancel"], 2, "usage"),
    "neither path nor commit": (["artifact", "add", "running"], 2, "usage"),
    # Paths.
    "output that climbs": (["add", "x", "X", "--output", "../x"], 4, "path_refused"),
    "absolute output": (["add", "x", "X", "--output", "/tmp/x"], 4, "path_refused"),
    "reserved output": (["add", "x", "X", "--output", "lease.json"], 4, "path_reserved"),
    "output of another": (
        ["add", "x", "X", "--output", "artifacts/running/x"], 4, "path_reserved",
    ),
    "artifact that climbs": (["artifact", "add", "running", "../no-yaml.yaml"], 4, "path_refused"),
    "absolute artifact": (["artifact", "add", "running", "/etc/passwd"], 4, "path_refused"),
    "artifact through a link": (
        ["artifact", "add", "running", "artifacts/running/link.txt"], 4, "path_refused",
    ),
    "artifact that is ours": (["artifact", "add", "running", "journal.jsonl"], 4, "path_reserved"),
    "missing artifact": (["artifact", "add", "running", "artifacts/no"], 4, "artifact_missing"),
    "directory as artifact": (
        ["artifact", "add", "running", "artifacts/running"], 4, "artifact_missing",
    ),
    "other content": (
        ["artifact", "add", "running", "artifacts/running/kept.txt"], 4, "content_frozen",
    ),
    "commit of no repository": (
        ["artifact", "add", "running", "--git", "HEAD", "--repo", "."], 4, "artifact_missing",
    ),
    # The graph, and moves that are none.
    "id that is taken": (["add", "running", "Again"], 4, "duplicate_id"),
    "cycle of one": (["add", "x", "X", "--dep", "x"], 4, "cyclic_deps"),
    "claimed already": (["start", "running"], 4, "already_running"),
    "waits for another": (["start", "pending-1"], 4, "guard_failed"),
    "submitted before it began": (["submit", "pending-1"], 4, "illegal_transition"),
    "failed before it began": (["fail", "pending-1"], 4, "illegal_transition"),
    "beat for nobody": (["beat", "pending-1"], 4, "illegal_transition"),
    "submitted without its file": (["submit", "running"], 4, "evidence_missing"),
    "evidence that is nothing": (
        ["submit", "running", "--evidence", "A-0"], 4, "evidence_unknown",
    ),
    "second creation": (["init", "T1"], 4, "task_exists"),
    # Task files.
    "no YAML": (["run", "no-yaml.yaml"], 2, "task_file_invalid"),
    "no mapping": (["run", "list.yaml"], 2, "task_file_invalid"),
    "unknown key": (["run", "unknown-key.yaml"], 2, "task_file_invalid"),
    "cycle": (["run", "cycle.yaml"], 2, "task_file_invalid"),
    "dependency of a file": (["run", "unknown-dep.yaml"], 2, "task_file_invalid"),
    "climbing output": (["run", "climbs.yaml"], 2, "task_file_invalid"),
    "id twice": (["run", "twice.yaml"], 2, "task_file_invalid"),
    "task of another workspace": (["run", "other.yaml"], 4, "task_mismatch"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_refused_and_nothing_changed(task: Path, case: str) -> None:
    arguments, exit_code, code = BAD[case]
    before = contents(task)
    refusal = refused(*arguments)
    assert (refusal.code, refusal.error["code"]) == (exit_code, code), refusal.error
    assert refusal.error["message"]
    assert refusal.error["fix"], "a refusal says what puts it right"
    assert contents(task) == before
    assert say(*arguments)[1] == "", "the same as text: nothing on standard output"


def test_too_much_text_is_refused_with_the_limit(task: Path) -> None:
    before = contents(task)
    refusal = refused("note", "-", given="x" * (9 << 20))
    assert (refusal.code, refusal.error["code"]) == (2, "too_large")
    assert contents(task) == before


@pytest.mark.parametrize("command", [["status"], ["note", "x"], ["resume"], ["next"], ["log"]])
def test_damaged_journal_is_refused_with_line_and_byte_and_not_touched(
    task: Path, command: list[str]
) -> None:
    journal = task / "w/journal.jsonl"
    data = bytearray(journal.read_bytes())
    data[data.index(b"INSTANCE_STARTED")] ^= 1
    journal.write_bytes(data)
    (task / "w/.snapshot.json").unlink()
    # Who recovers takes the lease first, also where there is nothing to be done.
    before = contents(task, but="lease.json")
    refusal = refused(*command)
    assert (refusal.code, refusal.error["code"]) == (6, "journal_corrupt")
    assert "line 1, byte 0" in refusal.error["message"]
    assert contents(task, but="lease.json") == before
    code, out, _ = say("verify", "--json")
    assert code == 6
    assert json.loads(out)["data"]["problems"][0]["what"] == "journal"


def test_file_that_is_no_journal_is_refused(task: Path) -> None:
    (task / "other").mkdir()
    (task / "other/journal.jsonl").write_text("hello\n", encoding="utf-8")
    before = contents(task, but=".journal.lock")
    refusal = refused("-C", "other", "note", "x")
    assert refusal.code == 6
    assert refusal.error["code"] in ("not_a_journal", "journal_corrupt")
    assert contents(task, but=".journal.lock") == before


@pytest.fixture
def frozen(task: Path) -> Iterator[Path]:
    """The workspace on a file system that is read-only."""
    place = task / "w"
    mounted = subprocess.run(
        ["mount", "--bind", str(place), str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a file system can only be mounted by root")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
        yield task
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def test_read_only_file_system_is_named_and_can_be_read(frozen: Path) -> None:
    before = contents(frozen)
    refusal = refused("note", "x")
    assert (refusal.code, refusal.error["code"]) == (7, "read_only")
    assert [say(command)[0] for command in ("status", "next", "log")] == [0, 0, 0]
    assert contents(frozen) == before


def test_directory_without_write_access_is_named(task: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (task / "w").chmod(0o500)
    (task / "w/journal.jsonl").chmod(0o400)
    try:
        refusal = refused("note", "x")
    finally:
        (task / "w").chmod(0o700)
    assert (refusal.code, refusal.error["code"]) == (7, "permission_denied")
