"""The programs of the cards that come along, on their own: what they find, and what they notice."""

import csv
import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "src" / "perdure" / "sops" / "batch_extraction"
TEXT = """\
Report of the year
==================

On 2026-02-03 and 2026-02-03, not 2026-13-01: $1,200.50, 30 EUR, €7.

See <https://example.org/a_(b)>, https://example.org/x. And `http://x.example/y`.

```
# no heading
```
"""


class Workspace:
    """Runs the scripts as the runtime would."""

    def __init__(self, base: Path) -> None:
        self.docs = base / "docs"
        self.path = base / "workspace"
        for directory in (self.docs, self.path / "sops", self.path / "shard"):
            directory.mkdir(parents=True)

    def script(self, name: str, *, pattern: str = "**/*.md") -> subprocess.CompletedProcess[str]:
        inputs = {"documents": f"{self.docs}/{pattern}"}
        (self.path / "sops/inputs.json").write_text(json.dumps(inputs), encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-B", str(SCRIPTS / name)],
            env={
                "PATH": os.environ["PATH"],
                "PERDURE_WORKSPACE": str(self.path),
                "PERDURE_INPUTS": "sops/inputs.json",
                "PERDURE_CONTRACT": str(self.path / "contract.json"),
            },
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def keep(self, where: str, text: str) -> None:
        path = self.path / "artifacts" / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def inventory(self) -> list[dict[str, Any]]:
        done = self.script("inventory.py")
        assert done.returncode == 0, done
        self.keep("inventory/documents.jsonl", done.stdout)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def extract(
        self, items: Sequence[dict[str, Any]], *, skip: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        contract = {
            "outputs": ["shard/findings.jsonl", "shard/ledger.jsonl"],
            "units": {"keys": [{"key": item["key"], "item": item} for item in items]},
            "skip": list(skip),
            "recall": "contracts/inv.recalled",
        }
        (self.path / "contract.json").write_text(json.dumps(contract), encoding="utf-8")
        return self.script("extract.py")

    def lines(self, name: str) -> list[dict[str, Any]]:
        path = self.path / "shard" / name
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def tabled(self) -> list[dict[str, str]]:
        """Everything up to the table."""
        assert self.extract(self.inventory()).returncode == 0
        findings = (self.path / "shard/findings.jsonl").read_text(encoding="utf-8")
        self.keep("extract/findings.jsonl", findings)
        done = self.script("table.py")
        assert done.returncode == 0, done
        self.keep("table/table.csv", done.stdout)
        return [*csv.DictReader(io.StringIO(done.stdout))]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def test_documents_are_listed_below_what_has_no_wildcard(workspace: Workspace) -> None:
    for name in ("b.md", "a/ö.md", "a/b/c.md", "a/x.txt", ".hidden.md"):
        workspace.write(name, name)
    (workspace.docs / "dir.md").mkdir()
    listed = workspace.inventory()
    assert [item["key"] for item in listed] == ["a/b/c.md", "a/ö.md", "b.md"]
    assert listed[2] == {
        "key": "b.md",
        "path": str(workspace.docs / "b.md"),
        "bytes": 4,
        "sha256": hashlib.sha256(b"b.md").hexdigest(),
    }


def test_one_document_is_listed_by_its_name(workspace: Workspace) -> None:
    workspace.write("b.md", "b")
    done = workspace.script("inventory.py", pattern="b.md")
    assert json.loads(done.stdout)["key"] == "b.md"


def test_nothing_to_list_is_a_failure(workspace: Workspace) -> None:
    done = workspace.script("inventory.py")
    assert (done.returncode, done.stdout) == (66, "")  # trying again would change nothing
    assert "no document matches" in done.stderr


def test_what_a_document_says_is_found(workspace: Workspace) -> None:
    workspace.write("a.md", TEXT)
    assert workspace.extract(workspace.inventory()).returncode == 0
    (found,) = workspace.lines("findings.jsonl")
    assert found == {
        "_key": "a.md",
        "title": "Report of the year",
        "headings": ["Report of the year"],
        "dates": ["2026-02-03"],
        "amounts": ["$1,200.50", "30 EUR", "€7"],
        "links": ["http://x.example/y", "https://example.org/a_", "https://example.org/x"],
        "words": found["words"],
        "lines": 10,
        "sha256": hashlib.sha256(TEXT.encode()).hexdigest(),
    }
    (line,) = workspace.lines("ledger.jsonl")
    assert (line["unit_id"], line["status"]) == ("a.md", "ok")


def test_the_title_is_the_first_heading_else_the_first_line(workspace: Workspace) -> None:
    workspace.write("a.md", "intro\n\n## Two ##\n# One\n")
    workspace.write("b.md", "\n\n  only text\n")
    workspace.write("c.md", "")
    workspace.extract(workspace.inventory())
    assert [f["title"] for f in workspace.lines("findings.jsonl")] == ["Two", "only text", ""]


def test_a_unit_that_is_done_is_skipped(workspace: Workspace) -> None:
    for name in ("a.md", "b.md"):
        workspace.write(name, name)
    workspace.extract(workspace.inventory(), skip=["a.md"])
    assert [f["_key"] for f in workspace.lines("findings.jsonl")] == ["b.md"]


def test_a_document_that_cannot_be_read_has_a_reason_and_the_others_their_findings(
    workspace: Workspace,
) -> None:
    for name, content in {"a.md": b"\xff", "b.md": b"b", "c.md": b"c", "d.md": b"d"}.items():
        workspace.write(name, content)
    items = workspace.inventory()
    workspace.write("b.md", "changed")
    (workspace.docs / "c.md").unlink()
    assert workspace.extract(items).returncode == 0
    ledger = {line["unit_id"]: line for line in workspace.lines("ledger.jsonl")}
    assert [f["_key"] for f in workspace.lines("findings.jsonl")] == ["d.md"]
    assert [ledger[name]["status"] for name in ["a.md", "b.md", "c.md", "d.md"]] == [
        "fail", "fail", "fail", "ok",
    ]  # fmt: skip
    assert "changed since it was listed" in ledger["b.md"]["reason"]


def test_a_worker_that_is_recalled_stops_before_the_next_unit(workspace: Workspace) -> None:
    workspace.write("a.md", "a")
    (workspace.path / "contracts").mkdir()
    (workspace.path / "contracts/inv.recalled").write_text("cancelled", encoding="utf-8")
    done = workspace.extract(workspace.inventory())
    assert (done.returncode, workspace.lines("findings.jsonl")) == (1, [])


def test_the_table_has_a_row_for_each_document_in_their_order(workspace: Workspace) -> None:
    workspace.write("z.md", '# A "quoted", title\n')
    workspace.write("a.md", TEXT)
    rows = workspace.tabled()
    assert [row["document"] for row in rows] == ["a.md", "z.md"]
    assert (rows[0]["amounts"], rows[1]["title"]) == ("3", 'A "quoted", title')


def test_findings_of_another_worker_make_a_table_as_well(workspace: Workspace) -> None:
    found = [{"_key": "b", "tags": ["x", "y"]}, {"_key": "a", "more": {"k": 1}, "n": None}]
    workspace.keep("extract/findings.jsonl", "".join(json.dumps(f) + "\n" for f in found))
    done = workspace.script("table.py")
    assert done.stdout.splitlines() == ["document,more,n,tags", 'a,"{""k"": 1}",,', "b,,,2"]


def test_the_check_passes_what_is_right(workspace: Workspace) -> None:
    workspace.write("a.md", TEXT)
    workspace.tabled()
    done = workspace.script("check.py")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"documents": 1, "rows": 1, "problems": []}


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda rows: rows[:1], "b.md has 0 rows"),
        (lambda rows: [*rows, rows[0]], "a.md has 2 rows"),
        (lambda rows: [*rows, {**rows[0], "document": "x.md"}], "x.md is no document"),
        (lambda rows: [{**rows[0], "sha256": "0"}, rows[1]], "made from another content"),
    ],
)
def test_the_check_notices_a_table_that_is_wrong(
    workspace: Workspace, damage: Any, complaint: str
) -> None:
    for name in ("a.md", "b.md"):
        workspace.write(name, name)
    rows = workspace.tabled()
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(damage(rows))
    workspace.keep("table/table.csv", text.getvalue())
    done = workspace.script("check.py")
    assert done.returncode == 1
    assert complaint in done.stderr


def test_the_check_notices_a_document_that_has_changed(workspace: Workspace) -> None:
    workspace.write("a.md", "a")
    workspace.tabled()
    workspace.write("a.md", "other")
    done = workspace.script("check.py")
    assert (done.returncode, done.stderr) == (1, "a.md has changed since it was listed\n")


def test_the_report_adds_up(workspace: Workspace) -> None:
    workspace.write("a.md", "one two")
    workspace.write("b.md", "three")
    workspace.tabled()
    report = workspace.script("report.py").stdout
    assert "2 documents." in report
    assert "| words | 3 | 2 |" in report
    assert "- `a.md`: 2 words" in report
