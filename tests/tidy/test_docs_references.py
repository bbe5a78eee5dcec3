"""What the documents point to is there: other documents, files, tests and public names."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
FENCED = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1 *$", re.DOTALL | re.MULTILINE)
TEST = re.compile(r"(?P<file>tests/[\w/-]+\.(?:py|txt))(?:::(?P<name>test_\w+))?")
HEADING = re.compile(r"^#+ +(?P<text>.+?) *$", re.MULTILINE)

each_document = pytest.mark.parametrize(
    "path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix()
)


def anchors(text: str) -> set[str]:
    """The anchors that a renderer makes of the headings."""
    headings = HEADING.findall(FENCED.sub("", text))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def broken_links(path: Path) -> list[str]:
    found = []
    for match in LINK.finditer(FENCED.sub("", path.read_text(encoding="utf-8"))):
        target, _, anchor = match["target"].partition("#")
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        file = path.parent / target if target else path
        there = file.exists()
        if not there or (anchor and anchor not in anchors(file.read_text(encoding="utf-8"))):
            found.append(match["target"])
    return found


def unknown_tests(text: str) -> list[str]:
    found = []
    for match in TEST.finditer(text):
        file = ROOT / match["file"]
        if not file.is_file():
            found.append(match["file"])
        elif match["name"] and f"def {match['name']}(" not in file.read_text(encoding="utf-8"):
            found.append(f"{match['file']}::{match['name']}")
    return found


@each_document
def test_links_lead_somewhere(path: Path) -> None:
    assert broken_links(path) == []


@each_document
def test_the_tests_that_are_cited_exist(path: Path) -> None:
    assert unknown_tests(path.read_text(encoding="utf-8")) == []


def test_every_decision_record_is_in_the_index() -> None:
    index = (ROOT / "docs/adr/README.md").read_text(encoding="utf-8")
    records = {path.name for path in (ROOT / "docs/adr").glob("[0-9]*.md")}
    assert records == {target for target in LINK.findall(index) if target in records}
    assert len(records) == len({name[:4] for name in records})


def test_a_reference_to_nothing_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A B\n\n[x](#a-b) [y](#c) [z](none.md)\n", encoding="utf-8")
    assert broken_links(page) == ["#c", "none.md"]
    here = "tests/tidy/test_docs_references.py"
    assert unknown_tests(f"{here} {here}::test_links_lead_somewhere") == []
    assert unknown_tests(f"tests/none.py {here}::test_nothing") == [
        "tests/none.py",
        f"{here}::test_nothing",
    ]
