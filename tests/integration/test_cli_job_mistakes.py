"""Mistakes that are easily made with ``perdure map`` and ``perdure job``, and what they cost."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shell import PERDURE, Done, call, environment

BATCH = """
task_id: t
nodes:
  - id: b
    map: {list: [x, y], run: echo done}
"""


def run_map(directory: Path, *arguments: str) -> Done:
    return call("map", *arguments, cwd=str(directory))


def state_of(job: Path) -> Any:
    return json.loads((job / "state.json").read_bytes())


def listing(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.parametrize("arguments", [("map", "--job", "", "--items", "i"), ("job", "status", "")])
def test_a_job_without_a_directory_is_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "i").write_text("a\n", encoding="utf-8")
    more = ("--", "true") if arguments[0] == "map" else ()
    done = call(*arguments, *more, cwd=str(tmp_path))
    assert done.code == 2
    assert "the directory of the job is an empty text" in done.err
    assert listing(tmp_path) == {"i"}


def test_a_field_that_no_item_has_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("city,country\nTurin,Italy\n", encoding="utf-8")
    done = run_map(tmp_path, "--job", "j", "--items", "c.csv", "--", "echo", "{cty}")
    assert done.code == 2
    assert "the item 'Turin' in line 2 of c.csv has no such field" in done.err
    assert "did you mean city" in done.err
    (tmp_path / "c.jsonl").write_text('{"id":"a","x":1}\n{"id":"b"}\n', encoding="utf-8")
    arguments = ("--job", "j", "--items", "c.jsonl", "--key", "id")
    done = run_map(tmp_path, *arguments, "--", "echo", "{x}")
    assert done.code == 2
    assert "the item 'b' in line 2 of c.jsonl has no such field" in done.err
    assert listing(tmp_path) == {"c.csv", "c.jsonl"}
    # With a blank it is text, as a program of awk has it.
    done = run_map(tmp_path, *arguments, "--", "awk", "BEGIN { print }")
    assert done.code == 0, done.err


def test_no_items_do_not_finish_a_job_that_has_failed_ones(tmp_path: Path) -> None:
    (tmp_path / "i").write_text("a\nb\n", encoding="utf-8")
    failing = ("--", "sh", "-c", 'test "$1" = a', "sh", "{}")
    arguments = ("--job", "j", "--max-attempts", "1")
    assert run_map(tmp_path, *arguments, "--items", "i", *failing).code == 1
    (tmp_path / "none").write_text("", encoding="utf-8")
    done = run_map(tmp_path, *arguments, "--items", "none", *failing)
    assert done.code == 1
    assert "there are no items" in done.out
    assert state_of(tmp_path / "j")["finished_at"] is None


def test_the_job_of_a_batch_node_is_not_worked_on_by_hand(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(BATCH, encoding="utf-8")
    workspace = str(tmp_path / "w")
    assert call("-C", workspace, "run", "task.yaml", cwd=str(tmp_path)).code == 0
    job = f"{workspace}/artifacts/b"
    (tmp_path / "i").write_text("z\n", encoding="utf-8")
    done = run_map(tmp_path, "--job", job, "--items", "i", "--", "echo", "{}")
    assert done.code == 4
    assert "belongs to a batch node" in done.err
    assert call("job", "retry", job).code == 4
    assert call("job", "verify", job).code == 0
    assert call("-C", workspace, "verify").code == 0


def test_a_key_that_cannot_be_typed_is_named_by_its_hash(tmp_path: Path) -> None:
    names = [" edge", "a\tb", "-x"]
    lines = "".join(f"{json.dumps({'id': name})}\n" for name in names)
    (tmp_path / "i.jsonl").write_text(lines, encoding="utf-8")
    arguments = ("--job", "j", "--items", "i.jsonl", "--key", "id", "--max-attempts", "1")
    assert run_map(tmp_path, *arguments, "--", "false").code == 1
    shown = call("job", "errors", "j", cwd=str(tmp_path)).out
    assert '" edge"  ' in shown
    assert '"a\\tb"  ' in shown
    errors = call("job", "errors", "j", "--json", cwd=str(tmp_path)).data["errors"]
    by_key = {entry["key"]: entry["hash"] for entry in errors}
    assert set(by_key) == set(names)
    assert by_key[" edge"] in shown
    done = call("job", "retry", "j", by_key["a\tb"], "--json", cwd=str(tmp_path))
    assert (done.code, done.data["reset"]) == (0, 1)
    assert call("job", "retry", "j", "--", "-x", cwd=str(tmp_path)).code == 0


def test_items_may_come_through_a_pipe(tmp_path: Path) -> None:
    words = shlex.join([*PERDURE, "map", "--job", "j", "--items"])
    script = f"{words} <(printf 'a\\nb\\n') -- echo {{}}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "all done: 2 of 2 items done" in done.stdout


def test_a_batch_whose_check_fails_leaves_no_job_without_findings(tmp_path: Path) -> None:
    text = BATCH.replace("run: echo done}", "run: echo done}\n    accept: ['script: false']")
    (tmp_path / "task.yaml").write_text(f"{text}    retry: 1\n", encoding="utf-8")
    workspace = tmp_path / "w"
    done = call("-C", str(workspace), "run", "task.yaml", cwd=str(tmp_path))
    assert "QUARANTINED" in done.out or "RETRYABLE" in done.out, done.out
    scope = workspace / "artifacts" / "b"
    assert not scope.exists() or listing(scope) == set()
    assert call("-C", str(workspace), "verify").code == 0


def test_a_process_that_hides_from_every_look_ends_with_the_run(tmp_path: Path) -> None:
    hidden = (
        'at="$PERDURE_SCOPE/at"; mkfifo "$at";'
        ' env -i "$(command -v setsid)" "$(command -v sh)" -c '
        '\'echo hidden > "$1"; exec "$0" 3600\' "$(command -v sleep)" "$at" &'
        ' read hidden < "$at"; rm "$at";'
        ' echo $! > "$PERDURE_SCOPE/pid"'
    )
    text = f"task_id: t\nnodes:\n  - id: n\n    run: {json.dumps(hidden)}\n"
    (tmp_path / "task.yaml").write_text(text, encoding="utf-8")
    done = call("-C", str(tmp_path / "w"), "run", "task.yaml", cwd=str(tmp_path))
    assert done.code == 0, done.out
    pid = int((tmp_path / "w/artifacts/n/pid").read_text(encoding="utf-8"))
    assert "stopped what a command left running" in done.out
    assert f"({pid})" in done.out


def test_nobody_elses_files_are_removed_with_those_of_former_runs(tmp_path: Path) -> None:
    (tmp_path / "i").write_text("a\n", encoding="utf-8")
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years", encoding="utf-8")
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / ".run").symlink_to(precious)
    arguments = ("--job", "j", "--items", "i", "--", "echo", "{}")
    done = run_map(tmp_path, *arguments)
    assert done.code == 4
    assert ".run is a symbolic link" in done.err
    assert listing(precious) == {"thesis.txt"}
    (tmp_path / "j" / ".run").unlink()
    (tmp_path / "j" / ".run").mkdir()
    (tmp_path / "j" / ".run" / "notes").write_text("mine", encoding="utf-8")
    assert run_map(tmp_path, *arguments).code == 0
    assert listing(tmp_path / "j" / ".run") == {"notes"}


def test_a_damaged_line_costs_a_batch_one_unit(tmp_path: Path) -> None:
    run = 'echo "$PERDURE_KEY" >> ran; test "$PERDURE_KEY" != z || test -e fixed'
    node = f"  - id: b\n    map: {{list: [x, y, z], run: {json.dumps(run)}, max_attempts: 1}}\n"
    text = f"task_id: t\ngrants: ['write:ran']\nnodes:\n{node}    retry: 1\n"
    (tmp_path / "task.yaml").write_text(text, encoding="utf-8")
    workspace = tmp_path / "w"
    line = ("-C", str(workspace), "run", "task.yaml", "--jobs", "1")
    assert call(*line, cwd=str(tmp_path)).code == 10
    log = workspace / "artifacts" / "b" / "findings.jsonl"
    log.write_bytes(b"!" + log.read_bytes()[1:])
    (workspace / "fixed").touch()
    assert call("-C", str(workspace), "retry", "b", "--method", "again").code == 0
    done = call(*line, cwd=str(tmp_path))
    assert done.code == 0, done.out
    assert "set aside in .torn/" in done.out
    assert Path(workspace / "ran").read_text(encoding="utf-8").split() == ["x", "y", "z", "z", "x"]
    assert call("-C", str(workspace), "verify").code == 0
