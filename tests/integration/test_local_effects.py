"""A local destructive effect (S1) of a real command: its copies, and what it may change."""

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.integration.shell import call

TASK = """
task_id: edits
nodes:
  - id: edit
    effect: S1
    grants: ['write:$TASK/notes/*']
    run: echo more >> "$PERDURE_TASK_DIR/notes/a.txt"; echo edited > "$PERDURE_SCOPE/done.txt"
    outputs: [artifacts/edit/done.txt]
"""


def workspace_of(directory: Path) -> Path:
    return directory / ".perdure" / "tasks" / "edits"


def starts(directory: Path) -> list[dict[str, Any]]:
    lines = (workspace_of(directory) / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    payloads = [json.loads(line)["payload"] for line in lines]
    return [payload for payload in payloads if payload.get("to") == "RUNNING"]


def test_c_s1_a_command_finds_its_files_copied_and_changes_them(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("old\n", encoding="utf-8")
    (tmp_path / "beside.txt").write_text("not granted\n", encoding="utf-8")
    (tmp_path / "task.yaml").write_text(TASK, encoding="utf-8")
    done = call("run", "task.yaml", cwd=str(tmp_path))
    assert (done.code, done.err) == (0, ""), done
    assert (tmp_path / "notes" / "a.txt").read_text(encoding="utf-8") == "old\nmore\n"
    [start] = starts(tmp_path)
    workspace = workspace_of(tmp_path)
    manifest = (workspace / start["saved"]["manifest"]).read_bytes()
    assert hashlib.sha256(manifest).hexdigest() == start["saved"]["sha256"]
    [entry] = json.loads(manifest)["files"]
    assert entry["path"] == str((tmp_path / "notes" / "a.txt").resolve())
    assert (workspace / entry["copy"]).read_text(encoding="utf-8") == "old\n"
    assert call("-C", str(workspace), "verify").code == 0


def test_pd_c1_a_command_finds_all_it_needs_in_its_contract(tmp_path: Path) -> None:
    """The copy of the contract that a command makes for itself has all it needs."""
    task = """
task_id: edits
nodes:
  - id: reads
    run: cp "$PERDURE_CONTRACT" "$PERDURE_SCOPE/seen.json"
    outputs: [artifacts/reads/seen.json]
"""
    (tmp_path / "task.yaml").write_text(task, encoding="utf-8")
    assert call("run", "task.yaml", cwd=str(tmp_path)).code == 0
    seen = json.loads((workspace_of(tmp_path) / "artifacts/reads/seen.json").read_bytes())
    assert seen["recall"] == f"contracts/{seen['invocation_id']}.recalled"
    assert seen["executor_kind"] == "run"
    assert seen["enforcement"]["writes"] in ("landlock", "policy only")
    assert seen["message"].startswith(f"Read contracts/{seen['invocation_id']}.json")
