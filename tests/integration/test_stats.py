"""Figures of a task on the command line, and their picture."""

import builtins
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.integration.shell import call

from perdure.errors import UsageError
from perdure.service.stats import read_stats, task_stats, write_plot
from perdure.service.stats_plot import draw

TASK = """
task_id: figures
nodes:
  - id: a
    run: echo 1 > "$PERDURE_SCOPE/a.txt"
    outputs: [artifacts/a/a.txt]
  - id: b
    deps: [a]
    run: echo 2 > "$PERDURE_SCOPE/b.txt"
    outputs: [artifacts/b/b.txt]
  - id: c
    deps: [a]
    run: exit 3
"""
ME = "coordinator:tester"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "task.yaml").write_text(TASK, encoding="utf-8")
    assert call("run", "task.yaml", "-C", "w", cwd=str(tmp_path)).code == 10
    return tmp_path / "w"


def test_the_text_says_where_time_went_and_what_failed(workspace: Path) -> None:
    done = call("stats", "-C", str(workspace))
    assert done.code == 0, done.err
    assert "figures: " in done.out
    assert "2 DONE" in done.out
    assert "failures" in done.out
    assert "a > b" in done.out or "a > c" in done.out
    before = sorted(workspace.rglob("*"))
    call("stats", "-C", str(workspace))
    assert sorted(workspace.rglob("*")) == before


def test_rows_come_a_page_at_a_time(workspace: Path) -> None:
    seen: list[str] = []
    after = None
    while True:
        page = task_stats(str(workspace), actor=ME, by="node", limit=2, after=after)
        seen += [row["node"] for row in page["rows"]]
        after = page["next"]
        if after is None:
            break
    assert sorted(seen) == ["a", "b", "c"]
    wrong = call("stats", "--by", "node", "--after", "zz", "-C", str(workspace), "--json")
    assert wrong.code == 3
    for by in ("class", "day"):
        assert call("stats", "--by", by, "-C", str(workspace), "--json").data["rows"]


def test_the_picture_is_whole_the_same_each_time_and_fetches_nothing(
    workspace: Path, tmp_path: Path
) -> None:
    one, other = tmp_path / "1.svg", tmp_path / "2.svg"
    done = call("stats", "--svg", str(one), "-C", str(workspace))
    assert done.code == 0, done.err
    write_plot(str(workspace), str(other), actor=ME)
    text = one.read_text(encoding="utf-8")
    assert text == other.read_text(encoding="utf-8")
    assert ET.fromstring(text).tag.endswith("svg")
    assert "<script" not in text
    assert "href=" not in text.replace('xlink:href="#', "")
    assert ">a</text>" in text
    assert "failures and deaths by class" in text
    left = [one for one in sys.meta_path if not hasattr(one, "find_spec")]
    assert left == [], "drawing leaves imports as they were"


def test_text_of_others_is_no_markup_in_the_picture(tmp_path: Path) -> None:
    call("init", "t", "-C", "w", cwd=str(tmp_path))
    stats = read_stats(str(tmp_path / "w"), actor=ME)
    from_others = stats._node("<script>alert(1)</script>")
    from_others.attempts = 1
    from_others.add("work", 5)
    stats._failure("<b>&").count = 1
    text = draw(stats).decode()
    assert "<script" not in text
    assert "<b>" not in text
    ET.fromstring(text)


def test_without_the_extra_it_says_what_to_install(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("pygal"):
            raise ImportError(name)
        return known(name, *rest)

    for name in [name for name in sys.modules if name.startswith("pygal")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match="pygal") as refusal:
        write_plot(str(workspace), str(workspace.parent / "x.svg"), actor=ME)
    assert "pip install 'perdure[plot]'" in refusal.value.fix
    assert not (workspace.parent / "x.svg").exists()
