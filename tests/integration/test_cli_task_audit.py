"""``perdure audit`` as users type it, on a real disk: what it says, what it writes, how it ends."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shell import Done, call


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with one node that is done, to be copied."""
    root = tmp_path_factory.mktemp("model")
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
    return workspace


@pytest.fixture
def root(model: Path, tmp_path: Path) -> Path:
    shutil.copytree(model, tmp_path / "w")
    return tmp_path


def audit(root: Path, *arguments: str, as_json: bool = False) -> Done:
    before = ("--json",) if as_json else ()
    return call("-C", str(root / "w"), *before, "audit", *arguments, cwd=str(root))


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted((root / "w").rglob("*"))
        if path.is_file()
    }


def flip(root: Path, line: int) -> int:
    """One bit of this line of the journal; returns where the line begins."""
    path = root / "w/journal.jsonl"
    data = bytearray(path.read_bytes())
    start = sum(map(len, bytes(data).splitlines(keepends=True)[: line - 1]))
    data[start + 40] ^= 1
    path.write_bytes(data)
    return start


def test_a_sound_workspace_passes_and_is_left_as_it_was(root: Path) -> None:
    before = tree(root)
    for form in ((), ("--verbose",), ("--format", "markdown"), ("--item", "A2")):
        done = audit(root, *form)
        assert (done.code, done.err) == (0, "")
    assert audit(root, as_json=True).code == 0
    assert tree(root) == before


def test_the_text_names_every_item_and_the_json_is_the_record(root: Path) -> None:
    text = audit(root).out
    record = audit(root, as_json=True).data
    assert len(record["items"]) == 32
    for entry in record["items"]:
        assert f"  {entry['item']:<6}{entry['verdict']:<5}{entry['title']}\n" in text
        assert entry["method"].endswith(".")
        assert entry.get("results") or entry["why"]
    assert (record["cannot"], record["exit_code"], record["passed"]) == ([], 0, True)


def test_the_page_has_method_inputs_and_results_of_every_item(root: Path) -> None:
    page = audit(root, "--format", "markdown").out
    record = audit(root, as_json=True).data
    for entry in record["items"]:
        assert f"### {entry['item']} {entry['verdict']}: {entry['title']}" in page
        assert entry["method"] in page
        if entry["verdict"] != "N/A":
            assert f"digest `{entry['digest']}`" in page
    assert page.count("\nInputs: ") == record["counts"]["PASS"]


def test_one_item_or_one_group_is_audited_by_itself(root: Path) -> None:
    named = [e["item"] for e in audit(root, "--item", "a2", "--item", "A5.2", as_json=True).data["items"]]  # fmt: skip  # noqa: E501
    assert named == ["A2.1", "A2.2", "A2.3", "A5.2"]
    unknown = audit(root, "--item", "A22", as_json=True)
    assert (unknown.code, unknown.error["code"]) == (3, "unknown_item")
    assert "A2" in " ".join(unknown.error["suggestions"])


def test_what_does_not_hold_is_named_and_ends_with_1(root: Path) -> None:
    (root / "w/artifacts/N1/a.txt").write_text("b")
    done = audit(root)
    assert done.code == 1
    assert "not passed" in done.out
    assert "A2.2  FAIL" in done.out
    assert "      A-N1: changed: artifacts/N1/a.txt" in done.out
    assert done.out.count("  FAIL ") == 1
    assert audit(root, "--item", "A5").code == 0


def test_no_workspace_ends_with_3(tmp_path: Path) -> None:
    done = call("audit", cwd=str(tmp_path))
    assert (done.code, done.out) == (3, "")
    assert "no_workspace" in done.err


@pytest.mark.parametrize("line", [1, 4])
def test_damage_ends_with_6_and_says_from_where_nothing_can_be_audited(
    root: Path, line: int
) -> None:
    start = flip(root, line)
    before = tree(root)
    done = audit(root)
    assert done.code == 6
    assert f"line {line}, byte {start}" in done.out
    assert "not audited" in done.out
    assert "A4.1  FAIL" in done.out
    told = audit(root, as_json=True)
    assert told.code == 6
    assert told.data["seq"] < line
    assert f"line {line}, byte {start}" in told.data["cannot"][0]
    assert tree(root) == before


@pytest.mark.parametrize("line", [1, 4])
def test_nothing_is_put_on_record_behind_damage(root: Path, line: int) -> None:
    flip(root, line)
    before = tree(root)
    done = audit(root, "--record")
    assert done.code == 6
    assert "nothing is written to a damaged journal" in done.out
    assert "committed" not in done.out
    assert tree(root) == before


def test_a_journal_that_is_gone_or_empty_is_damage(root: Path) -> None:
    (root / "w/journal.jsonl").write_bytes(b"")
    assert audit(root).code == 6
    (root / "w/journal.jsonl").unlink()
    assert audit(root).code == 6


def journal(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "w/journal.jsonl").read_bytes().splitlines()]


def test_a_record_is_put_on_record_whole(root: Path) -> None:
    printed = audit(root, as_json=True).data
    done = audit(root, "--record")
    assert done.code == 0
    (event,) = [each for each in journal(root) if each["payload"].get("op") == "task_audit"]
    assert f"committed J-{event['seq']}" in done.out
    record = event["payload"]["record"]
    assert record["items"] == printed["items"]
    assert record["seq"] == printed["seq"] == event["seq"] - 1
    assert audit(root, "--recompute", f"J-{event['seq']}").code == 0


def test_a_record_that_fails_is_put_on_record_as_well(root: Path) -> None:
    (root / "w/artifacts/N1/a.txt").unlink()
    done = audit(root, "--record", as_json=True)
    assert done.code == 1
    record = journal(root)[-1]["payload"]["record"]
    assert (record["passed"], record["counts"]["FAIL"]) == (False, 1)
    assert done.data["committed"] == f"J-{journal(root)[-1]['seq']}"


def test_a_read_only_workspace_is_audited(root: Path) -> None:
    paths = [root / "w", *(root / "w").rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    try:
        for path in paths:
            path.chmod(0o555 if path.is_dir() else 0o444)
        assert audit(root).code == 0
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
