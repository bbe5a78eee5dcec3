"""``audit --recompute`` and ``--amend`` as users type them, on a real disk."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shell import Done, call


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with one node that is done."""
    root = tmp_path_factory.mktemp("audited")
    workspace = root / "w"
    for arguments in (
        ("init", "T1", "--goal", "g"),
        ("add", "N1", "first", "--output", "artifacts/N1/a.txt"),
        ("start", "N1"),
    ):
        assert call("-C", str(workspace), *arguments).code == 0
    (workspace / "artifacts/N1").mkdir(parents=True, exist_ok=True)
    (workspace / "artifacts/N1/a.txt").write_text("a")
    assert call("-C", str(workspace), "submit", "N1").code == 0
    return root


def audit(root: Path, *arguments: str, as_json: bool = False) -> Done:
    before = ("--json",) if as_json else ()
    return call("-C", str(root / "w"), *before, "audit", *arguments, cwd=str(root))


def record_of(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(audit(root, as_json=True).out)
    return found


def test_what_the_command_prints_is_what_it_takes_again(finished: Path) -> None:
    (finished / "audit.json").write_text(audit(finished, as_json=True).out)
    done = audit(finished, "--recompute", "audit.json")
    assert (done.code, done.err) == (0, "")
    assert "all of it holds (32 holds)" in done.out
    told = audit(finished, "--recompute", "audit.json", as_json=True).data
    assert told["holds"] is True


def test_a_file_that_lies_is_told_item_by_item(finished: Path) -> None:
    printed = record_of(finished)
    entry = next(each for each in printed["data"]["items"] if each["item"] == "A1.2")
    entry["results"][0]["ref"] = "contracts/other.json"
    (finished / "false.json").write_text(json.dumps(printed))
    done = audit(finished, "--recompute", "false.json")
    assert done.code == 1
    assert "A1.2" in done.out
    assert "never held: said PASS, is PASS" in done.out


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ("{", 2, "not_a_record"),
        ("[1, 2]", 2, "not_a_record"),
        ('{"score": "14/14 PASS"}', 2, "not_a_record"),
        (None, 3, "file_not_found"),
    ],
)
def test_what_is_no_record_is_refused(
    finished: Path, content: str | None, code: int, said: str
) -> None:
    path = finished / "none.json"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_text(content)
    done = audit(finished, "--recompute", "none.json")
    assert (done.code, said in done.err, "fix:" in done.err) == (code, True, True)


def test_a_record_of_another_task_is_refused(finished: Path) -> None:
    printed = record_of(finished)
    printed["data"]["task_id"] = "T2"
    (finished / "other.json").write_text(json.dumps(printed))
    done = audit(finished, "--recompute", "other.json", as_json=True)
    assert (done.code, json.loads(done.err)["error"]["code"]) == (4, "another_task")


def test_only_what_is_on_record_and_was_false_is_corrected(finished: Path) -> None:
    (finished / "audit.json").write_text(audit(finished, as_json=True).out)
    assert audit(finished, "--recompute", "audit.json", "--amend", "--reason", "x").code == 2
    on_record = audit(finished, "--record", as_json=True).data["committed"]
    assert audit(finished, "--recompute", on_record).code == 0
    assert audit(finished, "--recompute", on_record, "--amend").code == 2  # no reason
    done = audit(finished, "--recompute", on_record, "--amend", "--reason", "x")
    assert (done.code, "nothing_false" in done.err) == (4, True)
    shown = call("-C", str(finished / "w"), "--json", "show", on_record).data
    assert shown["corrected_by"] == ""
