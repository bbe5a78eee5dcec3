"""The scripts of examples/stdlib-survey, on a tiny tree instead of the standard library."""

import csv
import hashlib
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SURVEY = Path(__file__).parents[2] / "examples" / "stdlib-survey"
SHARDS = (1, 2, 3, 4)

SOURCES = {
    "alpha.py": '"""Alpha."""\n\nimport os, beta.one\nfrom sys import path\n\n'
    "# A comment.\nLIMIT = 3\n\n\ndef open_it():\n    return os\n\n\ndef _hidden():\n    pass\n",
    "beta/__init__.py": '__all__ = ["one", "Two"]\n\n\nclass Two:\n    """Documented."""\n\n'
    "    def method(self):\n        return 2\n",
    "beta/one.py": "from . import Two\nimport os",
    "beta/empty.py": "",
    "broken.py": "def broken(:\n    pass\n",
    "latin.py": b"# -*- coding: latin-1 -*-\nNAME = '\xe9'\n",
    "gamma.py": "try:\n    import json\nexcept ImportError:\n    def json(): pass\n",
    "beta/tests/test_one.py": "import beta\n",
    "site-packages/other.py": "import alpha\n",
    "__pycache__/alpha.py": "",
    "notes.txt": "not Python\n",
}
LISTED = [
    "alpha.py",
    "beta/__init__.py",
    "beta/empty.py",
    "beta/one.py",
    "broken.py",
    "gamma.py",
    "latin.py",
]


class Workspace:
    """Runs the scripts as the runtime would: in the workspace, with a scope of their own."""

    def __init__(self, base: Path) -> None:
        self.sources = base / "lib"
        self.path = base / "workspace"
        for name, text in SOURCES.items():
            target = self.sources / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text if isinstance(text, bytes) else text.encode())

    def script(self, node: str, script: str, *args: object) -> subprocess.CompletedProcess[str]:
        scope = self.path / "artifacts" / node
        scope.mkdir(parents=True, exist_ok=True)
        return subprocess.run(
            [sys.executable, "-B", str(SURVEY / script), *map(str, args)],
            cwd=self.path,
            env={**os.environ, "PERDURE_SCOPE": str(scope)},
            capture_output=True,
            text=True,
            check=False,
        )

    def node(self, node: str, script: str, *args: object) -> None:
        result = self.script(node, script, *args)
        assert result.returncode == 0, result.stderr

    def check(self, *args: object) -> subprocess.CompletedProcess[str]:
        return self.script("check", "check.py", *args)

    def inventory(self) -> None:
        self.node("inventory", "inventory.py", "--root", self.sources)

    def rows(self, path: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / path).read_text("utf-8").splitlines()]

    def facts(self) -> dict[str, dict[str, Any]]:
        found = [row for n in SHARDS for row in self.rows(f"artifacts/facts-{n}/facts.jsonl")]
        return {row["path"]: row for row in found}

    def run_all(self) -> None:
        self.inventory()
        for shard in SHARDS:
            self.node(f"facts-{shard}", "facts.py", shard)
        self.node("manifest", "manifest.py")
        self.node("table", "table.py")
        self.node("plot-lines", "plot.py", "lines")
        self.node("plot-imports", "plot.py", "imports")
        self.node("report", "report.py")

    def files(self) -> dict[str, bytes]:
        found = (self.path / "artifacts").rglob("*")
        return {
            str(file.relative_to(self.path)): file.read_bytes() for file in found if file.is_file()
        }


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = Workspace(tmp_path_factory.mktemp("survey"))
    workspace.run_all()
    return workspace


@pytest.fixture
def fresh(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(SURVEY))
    import demo as module  # type: ignore[import-not-found]

    yield module
    for name in ("demo", "history"):
        del sys.modules[name]


@pytest.fixture
def history(demo: Any) -> Callable[[bytes], Any]:
    return demo.History


def moves(*found: tuple[str, str, str], commit: tuple[int, int] | None = None) -> bytes:
    lines = b""
    for node, state, edge in found:
        event: dict[str, Any] = {"kind": "STATE_TRANSITION", "entity": {"type": "node", "id": node}}
        event["payload"] = {"to": state, "edge": edge}
        if commit:
            event["c"] = list(commit)
        lines += json.dumps(event).encode() + b"\n"
    return lines


def test_inventory_lists_library_files_in_order_and_counts_tests(finished: Workspace) -> None:
    rows = finished.rows("artifacts/inventory/inventory.jsonl")
    assert [row["path"] for row in rows] == LISTED
    alpha = (finished.sources / "alpha.py").read_bytes()
    assert rows[0]["sha256"] == hashlib.sha256(alpha).hexdigest()
    summary = json.loads((finished.path / "artifacts/inventory/summary.json").read_text())
    assert summary["files"] == len(LISTED)
    assert summary["test_files_left_out"] == 1


def test_every_file_is_in_exactly_one_shard(finished: Workspace) -> None:
    paths = [r["path"] for n in SHARDS for r in finished.rows(f"artifacts/facts-{n}/facts.jsonl")]
    assert sorted(paths) == LISTED


def test_facts_tell_code_lines_names_and_imports(finished: Workspace) -> None:
    alpha = finished.facts()["alpha.py"]
    assert (alpha["lines"], alpha["code_lines"]) == (15, 7)
    assert alpha["public_names"] == ["LIMIT", "open_it"]
    assert alpha["imports"] == ["beta", "os", "sys"]
    assert (alpha["definitions"], alpha["undocumented"]) == (1, 1)
    assert alpha["module_docstring"]


def test_literal_all_says_what_is_public(finished: Workspace) -> None:
    beta = finished.facts()["beta/__init__.py"]
    assert beta["module"] == "beta"
    assert beta["public_names"] == ["Two", "one"]
    assert (beta["definitions"], beta["undocumented"]) == (2, 1)


def test_relative_import_is_the_own_package_and_a_last_line_needs_no_newline(
    finished: Workspace,
) -> None:
    one = finished.facts()["beta/one.py"]
    assert (one["imports"], one["lines"]) == (["beta", "os"], 2)


def test_unparsable_file_is_recorded_and_not_dropped(finished: Workspace) -> None:
    broken = finished.facts()["broken.py"]
    assert broken["status"] == "unparsed"
    assert broken["error"].startswith("SyntaxError")
    assert broken["lines"] == 2
    assert "`broken.py`" in (finished.path / "artifacts/report/report.md").read_text("utf-8")


def test_declared_encoding_is_honoured(finished: Workspace) -> None:
    assert finished.facts()["latin.py"]["public_names"] == ["NAME"]


def test_conditional_definitions_count(finished: Workspace) -> None:
    gamma = finished.facts()["gamma.py"]
    assert (gamma["functions"], gamma["imports"]) == (1, ["json"])


def test_table_has_one_row_per_inventoried_file(finished: Workspace) -> None:
    with (finished.path / "artifacts/table/table.csv").open(newline="") as file:
        assert [row["path"] for row in csv.DictReader(file)] == LISTED
    table = json.loads((finished.path / "artifacts/table/table.json").read_text())
    assert table["imported"][:2] == [{"name": "os", "modules": 2}, {"name": "beta", "modules": 1}]
    assert table["unparsed"] == ["broken.py"]


def test_charts_have_title_description_and_bars_inside(finished: Workspace) -> None:
    for name in ("artifacts/plot-lines/lines.svg", "artifacts/plot-imports/imports.svg"):
        svg = ET.parse(finished.path / name).getroot()
        assert [child.tag.rpartition("}")[2] for child in svg[:2]] == ["title", "desc"]


@pytest.mark.parametrize(
    "args",
    [
        ("inventory",),
        *[("facts", shard) for shard in SHARDS],
        ("manifest",),
        ("table",),
        ("plot", "artifacts/plot-lines/lines.svg"),
        ("plot", "artifacts/plot-imports/imports.svg"),
        ("report",),
    ],
)
def test_check_holds_on_what_the_node_wrote(finished: Workspace, args: tuple[object, ...]) -> None:
    result = finished.check(*args)
    assert result.returncode == 0, result.stderr


def test_the_same_sources_give_the_same_bytes(finished: Workspace) -> None:
    before = finished.files()
    finished.run_all()
    assert finished.files() == before
    assert not [name for name in before if name.endswith(".part")]


def test_facts_refuse_a_file_that_changed_since_the_inventory(fresh: Workspace) -> None:
    fresh.inventory()
    for name in LISTED:
        (fresh.sources / name).write_text("changed = True\n")
    results = [fresh.script(f"facts-{shard}", "facts.py", shard) for shard in SHARDS]
    refused = [result for result in results if result.returncode]
    assert len(refused) >= 2
    assert not list((fresh.path / "artifacts").glob("facts-*/*.part"))
    assert all("is not the file that was inventoried" in result.stderr for result in refused)


def test_check_of_the_inventory_fails_when_a_file_is_missing_from_it(fresh: Workspace) -> None:
    fresh.inventory()
    inventory = fresh.path / "artifacts/inventory/inventory.jsonl"
    inventory.write_text("".join(inventory.read_text().splitlines(keepends=True)[1:]))
    result = fresh.check("inventory")
    assert result.returncode == 1
    assert "not the files there" in result.stderr


def test_table_refuses_facts_that_lost_a_row(fresh: Workspace) -> None:
    fresh.inventory()
    for shard in SHARDS:
        fresh.node(f"facts-{shard}", "facts.py", shard)
    longest = max(
        (fresh.path / "artifacts").glob("facts-*/facts.jsonl"), key=lambda f: f.stat().st_size
    )
    longest.write_text("".join(longest.read_text().splitlines(keepends=True)[:-1]))
    result = fresh.script("table", "table.py")
    assert result.returncode == 1
    assert "do not match" in result.stderr


def test_history_forgets_a_torn_line_and_an_incomplete_commit(
    history: Callable[[bytes], Any],
) -> None:
    whole = moves(("a", "READY", "N01")) + moves(("a", "RUNNING", "N02"))
    half = moves(("a", "DONE", "N06"), commit=(1, 2))
    assert history(whole + half + b'{"kind"').data == whole
    assert history(whole).states == {"a": "RUNNING"}
    assert history(b"").lines == 0


def test_history_sees_a_node_that_ran_again_after_it_was_done(
    history: Callable[[bytes], Any],
) -> None:
    once = moves(("a", "RUNNING", "N02"), ("a", "DONE", "N06"))
    assert history(once).started_when_done() == []
    assert history(once + moves(("a", "READY", "RC1"), ("a", "RUNNING", "N02"))).started_when_done()


def test_demo_claims_break_on_a_journal_that_was_rewritten(demo: Any) -> None:
    ran = [(node, "RUNNING", "N02") for node in demo.NODES]
    done = [(node, "DONE", "N06") for node in demo.NODES]
    kills = [demo.Kill(1.0, demo.History(moves(*ran[:3]))) for _ in range(2)]
    sound = demo.History(moves(*ran, *done))
    assert all(claim.held for claim in demo.claims(kills, sound, demo.Codes(0, 0, 0)))
    rewritten = demo.History(moves(*ran[::-1], *done))
    assert [c.text for c in demo.claims(kills, rewritten, demo.Codes(0, 0, 0)) if not c.held] == [
        "the journal begins with what it said at each kill (3 + 3 lines)"
    ]
    twice = demo.History(moves(*ran, *done, *ran[:1], *done[:1]))
    assert sum(not claim.held for claim in demo.claims(kills, twice, demo.Codes(0, 0, 0))) == 2
    assert sum(not claim.held for claim in demo.claims(kills[:1], sound, demo.Codes(1, 6, 1))) == 4


@pytest.mark.parametrize("kills", [2, 3, 4, 5])
def test_demo_draws_moments_in_order_that_leave_something_to_do(demo: Any, kills: int) -> None:
    for seed in range(50):
        done = [moment.nodes_done for moment in demo.draw_moments(seed, kills)]
        assert done == sorted(done)
        assert len(done) == kills
        assert done[-1] <= len(demo.NODES) - 3
    assert demo.draw_moments(7, kills) == demo.draw_moments(7, kills)
