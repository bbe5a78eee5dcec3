"""Both cards that come along, used as people use them: on real documents, and killed."""

import csv
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shell import PERDURE, Done, call, environment
from tests.integration.test_real_faults import until

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
EXTRACTION = "perdure.batch-extraction"
REVIEW = "perdure.review-and-revise"

pytestmark = pytest.mark.timeout(120)


def run(directory: Path, card: str, *words: str) -> Done:
    return call("sop", "run", card, *words, "--json", "--jobs", "4", cwd=str(directory))


def documents_of(directory: Path) -> dict[str, str]:
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*.md")
    }


def rows_of(workspace: Path) -> list[dict[str, str]]:
    with (workspace / "artifacts/table/table.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """The documents of perdure itself, where nobody else changes them."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    return tmp_path


def test_every_document_is_in_the_table_once_with_its_own_facts(docs: Path) -> None:
    done = run(docs, EXTRACTION, "documents=docs/**/*.md", "shard=4")
    assert (done.code, done.data["outcome"], done.data["result"]["status"]) == (
        0, "finished", "done",
    )  # fmt: skip
    workspace = Path(done.data["workspace"])
    held = documents_of(docs / "docs")
    assert {row["document"]: row["sha256"] for row in rows_of(workspace)} == held
    for row in rows_of(workspace):
        text = (docs / "docs" / row["document"]).read_text(encoding="utf-8")
        assert int(row["words"]) == len(re.findall(r"\w+", text))
        assert int(row["lines"]) == len(text.splitlines())
    listed = {one["name"]: one for one in done.data["result"]["artifacts"]}
    assert {*listed} == {"table", "findings", "report"}
    for one in listed.values():
        content = (workspace / one["path"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == one["checksum_sha256"]


def test_one_document_goes_first_and_alone(docs: Path) -> None:
    done = run(docs, EXTRACTION, "documents=docs/*.md", "shard=4")
    contracts = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in (Path(done.data["workspace"]) / "contracts").glob("*.json")
    ]
    shards = sorted(
        (len(one["units"]["keys"]) for one in contracts if (one["units"] or {}).get("keys")),
    )
    assert shards[0] == 1
    assert sum(shards) == len([*(docs / "docs").glob("*.md")])
    assert max(shards) == 4


def test_a_second_run_of_the_same_line_does_nothing_again(docs: Path) -> None:
    first = run(docs, EXTRACTION, "documents=docs/*.md")
    again = run(docs, EXTRACTION, "documents=docs/*.md")
    assert (again.code, again.data["result"]) == (0, first.data["result"])
    started = [line for line in again.out.splitlines() if '"event":"started"' in line]
    assert started == []


def test_killed_between_documents_it_goes_on_and_none_is_twice(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(60):
        text = f"# Document {number}\n\nOf 2026-01-{number % 28 + 1:02}, {number} EUR.\n"
        (tmp_path / "many" / f"d{number}.md").write_text(text, encoding="utf-8")
    words = ("documents=many/*.md", "shard=2")
    line = [*PERDURE, "sop", "run", EXTRACTION, *words, "--jobs", "2"]
    landed = 0
    for wanted in (3, 15, 30):
        kill_after(line, tmp_path, wanted)
        assert lines_landed(tmp_path) >= landed
        landed = lines_landed(tmp_path)
    done = run(tmp_path, EXTRACTION, *words)
    assert (done.code, done.data["result"]["status"]) == (0, "done")
    rows = rows_of(Path(done.data["workspace"]))
    assert [row["document"] for row in rows] == sorted(f"d{number}.md" for number in range(60))
    assert {row["dates"] for row in rows} == {"1"}
    summary = done.data["result"]["state_summary"]
    assert summary["units_ok"] + summary["units_skipped_evidence"] == summary["units_total"] == 60


def kill_after(line: list[str], directory: Path, lines: int) -> None:
    """Run it, and kill it once so many findings have landed."""
    child = subprocess.Popen(
        line,
        cwd=directory,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: True if lines_landed(directory) >= lines or child.poll() is not None else None)
    child.kill()
    assert child.wait() == -signal.SIGKILL, "it was over before it could be killed"


def lines_landed(directory: Path) -> int:
    logs = [*directory.glob(".perdure/tasks/*/artifacts/extract/findings.jsonl")]
    return sum(log.read_bytes().count(b"\n") for log in logs)


def test_a_document_that_is_no_text_fails_and_the_run_says_which(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n", encoding="utf-8")
    (tmp_path / "b.md").write_bytes(b"\xff\xfe no text")
    done = run(tmp_path, EXTRACTION, "documents=*.md")
    assert done.code in (1, 10)
    assert done.data["result"]["status"] != "done"
    assert "b.md" in done.out


def test_a_pattern_that_names_nothing_is_no_empty_success(tmp_path: Path) -> None:
    done = run(tmp_path, EXTRACTION, "documents=none/*.md")
    assert done.code in (1, 10)
    assert done.data["result"]["status"].startswith(("failed", "blocked"))


def test_a_worker_of_ones_own_is_held_to_a_schema_of_ones_own(docs: Path) -> None:
    example = EXAMPLES / "batch-extraction"
    words = (
        "documents=docs/*.md",
        "shard=3",
        f"--inputs={example / 'finding.json'}",
        f"worker={sys.executable} {example / 'commands.py'}",
    )
    done = run(docs, EXTRACTION, *words)
    assert (done.code, done.data["result"]["status"]) == (0, "done")
    findings = Path(done.data["workspace"]) / "artifacts/extract/findings.jsonl"
    found = [json.loads(line) for line in findings.read_text(encoding="utf-8").splitlines()]
    shown = {one["_key"]: one["commands"] for one in found}
    assert any(line.startswith("perdure run") for line in shown["task-file.md"])


# Review and revise


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", ".perdure")
    shutil.copytree(EXAMPLES / "review-and-revise", tmp_path / "desk", ignore=ignored)
    return tmp_path / "desk"


def review(desk: Path, *more: str) -> Done:
    words = (
        "--inputs=inputs.json",
        f"reviser={sys.executable} {desk / 'reviser.py'}",
        f"judge={sys.executable} {desk / 'judge.py'}",
    )
    return run(desk, REVIEW, *words, *more)


def events_of(workspace: Path) -> list[dict[str, Any]]:
    lines = (workspace / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_a_text_is_revised_until_the_judge_is_content_and_a_person_releases_it(desk: Path) -> None:
    done = review(desk)
    assert (done.code, done.data["outcome"]) == (10, "needs_person")
    assert done.data["result"]["status"] == "blocked(ask:G-release-review)"
    workspace = Path(done.data["workspace"])
    audits = [e["payload"] for e in events_of(workspace) if e["payload"].get("op") == "audit"]
    assert [audit["passed"] for audit in audits] == [False, False, False, True]
    assert {audit["integrity"] for audit in audits} == {"clean"}
    assert all({"I1", "I2"} <= {*audit["independence"]} for audit in audits)
    assert all(len(audit["items"]) == 3 for audit in audits)
    assert (workspace / "artifacts/release/text.md").stat().st_size > 0

    ruling = call("approve", "G-release-review", "--actor", "gatekeeper:ann", cwd=str(desk))
    assert ruling.code == 0, ruling
    again = review(desk)
    assert (again.code, again.data["result"]["status"]) == (0, "done")
    text = (workspace / "artifacts/release/text.md").read_text(encoding="utf-8")
    assert text == (workspace / "artifacts/revise/text.md").read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 100
    assert "and and" not in text
    assert "What it costs" not in text


def test_a_text_that_never_holds_is_put_to_a_person_after_the_last_round(desk: Path) -> None:
    done = review(desk, "rounds=1")
    assert done.code in (1, 10)
    assert done.data["result"]["status"] != "done"
    workspace = Path(done.data["workspace"])
    assert not (workspace / "artifacts/release/text.md").exists()
    former = [path.read_bytes() for path in workspace.glob("artifacts/old/A-revise*/text.md")]
    assert (desk / "draft.md").read_bytes() in former


# As nodes of another task

TASK = """\
task_id: both
nodes:
  - id: extract
    sop: {{sop: {extraction}, inputs: {{documents: 'docs/*.md', shard: 4}}}}
  - id: review
    sop:
      sop: {review}
      version: "1.0"
      inputs:
        draft: desk/draft.md
        rubric: {rubric}
        rounds: 4
        reviser: ["{python}", "{desk}/reviser.py"]
        judge: ["{python}", "{desk}/judge.py"]
"""


def test_both_cards_are_nodes_of_a_task_and_its_people_rule_at_the_gate(
    docs: Path, desk: Path
) -> None:
    inputs = json.loads((desk / "inputs.json").read_text(encoding="utf-8"))
    text = TASK.format(
        extraction=EXTRACTION,
        review=REVIEW,
        rubric=json.dumps(inputs["rubric"]),
        python=sys.executable,
        desk=desk,
    )
    (docs / "task.yaml").write_text(text, encoding="utf-8")
    done = call("run", "task.yaml", "--json", cwd=str(docs))
    assert (done.code, done.data["waiting"]) == (10, ["review"])
    (question,) = done.data["questions"]
    ruling = call(
        "answer", question, "good", "--choice", "approve", "--actor", "gatekeeper:ann",
        cwd=str(docs),
    )  # fmt: skip
    assert ruling.code == 0, ruling
    again = call("run", "task.yaml", "--json", cwd=str(docs))
    assert (again.code, again.data["counts"]) == (0, {"DONE": 2})
    artifacts = Path(again.data["workspace"]) / "artifacts"
    lines = (artifacts / "extract/table.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + len([*(docs / "docs").glob("*.md")])
    assert "and and" not in (artifacts / "review/text.md").read_text(encoding="utf-8")


def test_a_pattern_that_names_nothing_is_not_tried_again(tmp_path: Path) -> None:
    done = run(tmp_path, EXTRACTION, "documents=none/*.md")
    events = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 1
    assert [e["node"] for e in events if e.get("event") == "started"] == ["inventory"]
    assert done.data["status"] == "failed(permanent-spec)"


# What is refused, and before anything is created


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        ((EXTRACTION,), "sop_inputs", 2),
        ((EXTRACTION, "documents=a", "shard=0"), "sop_inputs", 2),
        ((EXTRACTION, "documents=a", "shards=2"), "sop_inputs", 2),
        ((EXTRACTION, "documents"), "sop_inputs", 2),
        ((EXTRACTION, "documents=a", "--version", "9"), "sop_unknown", 3),
        ((EXTRACTION, "documents=a", "--version", "new"), "sop_bad_version", 2),
        ((EXTRACTION, "documents=a", "--inputs", "none.json"), "sop_inputs", 2),
        (("perdure.batch-extractoin",), "sop_unknown", 3),
        (("./none.yaml",), "sop_unknown", 3),
        (("./bad.yaml",), "sop_unmapped_failure", 2),
    ],
)
def test_what_cannot_be_run_creates_nothing(
    tmp_path: Path, words: tuple[str, ...], code: str, exit_code: int
) -> None:
    bad = "sop_id: a.b\nversion: 1.0.0\nphases: [intake, plan, w: [{id: a}], verify, report]\n"
    (tmp_path / "bad.yaml").write_text(bad, encoding="utf-8")
    done = run(tmp_path, words[0], *words[1:])
    assert (done.error["code"], done.code) == (code, exit_code), done
    assert sorted(os.listdir(tmp_path)) == ["bad.yaml"]


def test_cards_are_listed_shown_and_checked(tmp_path: Path) -> None:
    (tmp_path / ".perdure" / "sops").mkdir(parents=True)
    bad = tmp_path / ".perdure" / "sops" / "bad.yaml"
    bad.write_text("sop_id: acme.bad\nversion: 1.0.0\n", encoding="utf-8")
    listed = call("sop", "list", "--json", cwd=str(tmp_path))
    assert [(card["sop_id"], card["place"]) for card in listed.data["cards"]] == [
        (EXTRACTION, "shipped"),
        (REVIEW, "shipped"),
    ]
    assert [one["sop_id"] for one in listed.data["problems"]] == ["acme.bad"]
    text = call("sop", "list", cwd=str(tmp_path))
    assert EXTRACTION in text.out
    assert "escalation has no route for" in text.out
    shown = call("sop", "show", REVIEW, "--json", cwd=str(tmp_path))
    assert [phase["phase"] for phase in shown.data["phases"]] == [
        "intake", "plan", "revise", "verify", "report",
    ]  # fmt: skip
    assert call("sop", "check", REVIEW, cwd=str(tmp_path)).out == (
        f"{REVIEW} 1.0.0 is good: 3 nodes in 5 phases\n"
    )
    refused = call("sop", "check", str(bad), "--json", cwd=str(tmp_path))
    assert (refused.code, refused.error["code"]) == (2, "sop_invalid")
    assert f"{bad}:1:1: phases is missing" in refused.error["message"]
    assert call("sop", "show", "acme.bad", "--json", cwd=str(tmp_path)).code == 2
