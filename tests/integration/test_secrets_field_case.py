"""Field case F25: a worker prints an API key, and it ends up in files that are kept and shared."""

import os
from pathlib import Path

import pytest
from tests.integration.shell import Done, call

SHAPED = "sk-proj-" + "aB3dE5fG7h" * 4
DECLARED = "correct horse battery"
LIKELY = "k9-Xy77-pq12"

TASK = """
task_id: leaks
goal: 'use {shaped} for it'
secrets: [HOUSE_PHRASE]
grants: ['write:$TASK/*']
nodes:
  - id: says
    run: >-
      echo "the key is $SHAPED and $HOUSE_PHRASE and $SERVICE_API_KEY";
      echo "$SHAPED" >&2;
      echo done > "$PERDURE_SCOPE/a.txt"
    outputs: [artifacts/says/a.txt]
  - id: fails
    deps: [says]
    run: echo "refused $SHAPED, $HOUSE_PHRASE, $SERVICE_API_KEY"; exit 7
    retry: 1
    outputs: [artifacts/fails/a.txt]
  - id: units
    deps: [says]
    map:
      list: [one, two]
      run: echo "$PERDURE_KEY $SHAPED $HOUSE_PHRASE $SERVICE_API_KEY"
"""
SECRETS = {"SHAPED": SHAPED, "HOUSE_PHRASE": DECLARED, "SERVICE_API_KEY": LIKELY}


def run(*arguments: str, cwd: Path) -> Done:
    return call(*arguments, cwd=str(cwd), **SECRETS)


def leaks(directory: Path, *, besides: str = "", least: int = 6) -> list[str]:
    """Files that hold one of the secrets, and which."""
    found = []
    files = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            if str(path) == besides:
                continue
            files += 1
            data = path.read_bytes()
            found += [f"{path}: {w}" for w, secret in SECRETS.items() if secret.encode() in data]
    assert files >= least
    return found


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A task that was run, some of whose work failed, with every secret printed by it."""
    file = tmp_path / "task.yaml"
    file.write_text(TASK.replace("{shaped}", SHAPED), encoding="utf-8")
    done = run("run", "task.yaml", cwd=tmp_path)
    assert done.code in {1, 10}, done.err
    return tmp_path


def test_f25_a_key_that_a_worker_prints_is_in_no_file_and_in_no_answer(finished: Path) -> None:
    own = str(finished / "task.yaml")
    assert leaks(finished, besides=own) == []
    journal = b"".join(path.read_bytes() for path in finished.rglob("journal.jsonl"))
    assert b"[masked:openai-key]" in journal
    assert b"[masked:HOUSE_PHRASE]" in journal, "the end of what a failed command said"
    assert b"[masked:SERVICE_API_KEY]" in journal
    assert b'"secrets":["HOUSE_PHRASE"]' in journal
    logs = b"".join(p.read_bytes() for p in finished.rglob("*.log"))
    assert b"[masked:openai-key] and [masked:HOUSE_PHRASE] and [masked:SERVICE_API_KEY]" in logs
    findings = b"".join(p.read_bytes() for p in finished.rglob("findings.jsonl"))
    assert findings.count(b"[masked:openai-key]") == 2
    for arguments in (
        ("status",), ("log",), ("show", "fails"), ("show", "says", "--json"), ("verify", "--json"),
        ("log", "--json"), ("next",),
    ):  # fmt: skip
        answer = run(*arguments, cwd=finished)
        said = answer.out + answer.err
        assert not [name for name, secret in SECRETS.items() if secret in said], arguments


def test_f25_what_people_write_is_masked_and_they_are_told(finished: Path) -> None:
    done = run("steer", f"log in with {SHAPED}", "--json", cwd=finished)
    assert done.code == 0, done.err
    assert done.data["masked"] == {"openai-key": 1}
    assert run("note", f"the phrase: {DECLARED}", cwd=finished).code == 0
    assert leaks(finished, besides=str(finished / "task.yaml")) == []


def test_f25_items_of_a_map_that_print_a_key(tmp_path: Path) -> None:
    (tmp_path / "items").write_text("a\nb\n", encoding="utf-8")
    command = 'echo "{} $SHAPED"; echo "e $SHAPED $SERVICE_API_KEY" >&2; [ {} = a ]'
    done = run(
        "map", "--job", "job", "--items", "items", "--max-attempts", "1", "--", "sh", "-c", command,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 1, done.err
    assert "e [masked:openai-key] [masked:SERVICE_API_KEY]" in done.out + done.err
    assert SHAPED not in done.out + done.err
    assert leaks(tmp_path, least=3) == []
    errors = run("job", "errors", "job", cwd=tmp_path)
    assert "[masked:openai-key]" in errors.out


def test_f25_an_item_with_a_key_for_a_name_runs_nothing_at_all(tmp_path: Path) -> None:
    (tmp_path / "items").write_text(f"a\n{SHAPED}\nb\n")
    touch = ["--", "sh", "-c", f"touch {tmp_path}/ran.{{}}; echo '{{}}'"]
    done = call("map", "--job", "j", "--items", "items", *touch, cwd=str(tmp_path))
    assert done.code == 2
    assert "secret_in_key" in done.err
    assert SHAPED not in done.err
    assert list(tmp_path.glob("ran.*")) == []


def test_f25_a_command_with_a_key_in_it_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(
        f"task_id: t\nnodes:\n  - id: bad\n    run: curl -u x:{SHAPED} host\n", encoding="utf-8"
    )
    done = run("run", "task.yaml", "--json", cwd=tmp_path)
    assert done.code == 4, done.out
    assert (done.error["code"], done.error["rule"]) == ("secret_in_spec", "SE-1")
    assert "bad: spec.run" in done.error["message"]
    assert SHAPED not in done.out + done.err
    assert leaks(tmp_path, besides=str(tmp_path / "task.yaml"), least=0) == []
