"""Pages below docs/ are views, and documents worth keeping are on record (PL-1, PL-2)."""

import os

import pytest
from tests.conformance.host import Host

from perdure import HaltRuntime
from perdure.errors import EvidenceError, PathError
from perdure.runtime.calls import perform
from perdure.runtime.docs import stale_docs
from perdure.runtime.inspection import diagnose, verify_workspace
from perdure.service.tasks import Service

PAGES = ("docs/task-plan.md", "docs/progress.md")


def doc(host: Host, rt: HaltRuntime, path: str, purpose: str = "draft") -> None:
    perform(rt.engine, "doc", {"path": path, "purpose": purpose, "directory": host.workspace})


def two_nodes(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "count the pages", outputs=["artifacts/N1/out.txt"])
        rt.add_node("N2", "sum them up", deps=["N1"])
        host.finish(rt, "N1")


def test_pl_1_a_page_is_rendered_from_the_journal_and_never_believed(host: Host) -> None:
    two_nodes(host)
    whole = {page: host.read(page) for page in PAGES}
    for page in PAGES:
        host.write(page, "N2 is DONE, and so is everything else\n")
    with host.resume() as rt:
        assert rt.state.nodes["N2"].state == "READY"
        perform(rt.engine, "note", {"text": "go on"})
    for page, before in whole.items():
        now = host.read(page)
        assert b"everything else" not in now
        assert now.splitlines()[0] == before.splitlines()[0]


def test_pl_1_next_points_at_what_may_start_and_how(host: Host) -> None:
    two_nodes(host)
    page = host.read("docs/progress.md").decode()
    said = page.split("## NEXT")[1]
    assert "**`N2`**" in said
    assert "perdure start N2" in said
    assert "perdure start N1" not in said


def test_pl_1_the_same_journal_gives_the_same_pages(host: Host) -> None:
    two_nodes(host)
    whole = {page: host.read(page) for page in PAGES}
    for page in PAGES:
        os.unlink(os.path.join(host.workspace, page))
    before = host.read()
    with host.attach(actor="coordinator:main") as rt:
        rt.engine.projector.write(rt.engine.replica, rt.engine.journal.tip)
    assert host.read() == before
    assert {page: host.read(page) for page in PAGES} == whole


def test_pl_1_no_text_becomes_structure_of_a_page(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "x\n## NEXT\n\n**`N9`**: `perdure start N9` | a | b\n<!-- y")
    for page in PAGES:
        text = host.read(page).decode()
        assert not [line for line in text.splitlines() if line.startswith("**`N9`**")]
        assert text.count("\n## NEXT") == (page == "docs/progress.md")
        assert "<!-- y" not in text.replace("`", "") or '`"' in text


def test_pl_2_a_document_is_on_record_with_purpose_and_time(host: Host) -> None:
    with host.open() as rt:
        host.write("tmp/draft.md", "one\n")
        doc(host, rt, "tmp/draft.md", "outline of chapter 2")
        event = rt.events()[-1]
        assert event.kind == "NOTE"
        assert event.payload["purpose"] == "outline of chapter 2"
    page = host.read("docs/DOC-LEDGER.md").decode()
    assert "tmp/draft.md" in page
    assert "outline of chapter 2" in page
    assert f"J-{event.seq}" in page


def test_pl_2_what_changed_since_is_stale_and_a_time_alone_changes_nothing(host: Host) -> None:
    outside = os.path.join(os.path.dirname(host.workspace), "source.csv")
    with open(outside, "w", encoding="utf-8") as stream:
        stream.write("a,b\n")
    with host.open() as rt:
        host.write("tmp/draft.md", "one\n")
        doc(host, rt, "tmp/draft.md")
        doc(host, rt, outside, "prices of May")
        os.utime(outside, (1, 1))
        assert stale_docs(rt.engine) == {}
        with open(outside, "w", encoding="utf-8") as stream:
            stream.write("a,c\n")
        os.unlink(os.path.join(host.workspace, "tmp/draft.md"))
        assert len(stale_docs(rt.engine)) == 2
    with host.resume() as rt:
        told = [e for e in rt.events() if e.kind == "NOTE" and "stale" in str(e.payload)]
        assert told, "whoever opens the task is told"
        assert verify_workspace(rt.engine).ok, "a document is no artifact"
        doc(host, rt, outside, "prices of May")
        assert list(stale_docs(rt.engine)) == ["tmp/draft.md"]


@pytest.mark.parametrize("path", ["tmp/none.md", "artifacts", ""])
def test_pl_2_what_is_no_file_is_not_noted(host: Host, path: str) -> None:
    with host.open() as rt:
        before = host.read()
        with pytest.raises(EvidenceError) as caught:
            doc(host, rt, path)
        assert caught.value.rule == "PL-2"
        assert host.read() == before


@pytest.mark.parametrize(
    "path",
    ["journal.jsonl", "docs/progress.md", "task-graph.json", "steering/inbox.md", "lease.json"],
)
def test_pl_2_what_the_runtime_writes_itself_is_no_document(host: Host, path: str) -> None:
    with host.open() as rt:
        rt.add_node("N1", "first")
        perform(rt.engine, "ask", {"text": "which?"})
        rt.engine.project()
        before = host.read()
        with pytest.raises(PathError) as caught:
            doc(host, rt, path)
        assert (caught.value.code, caught.value.rule) == ("path_reserved", "PL-2")
        assert host.read() == before


def test_pl_2_contracts_may_be_noted_as_they_stay_as_they_are(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "first")
        rt.start("N1")
        doc(host, rt, f"contracts/{rt.node('N1').invocation}.json")
        assert stale_docs(rt.engine) == {}


def test_pl_2_whoever_looks_is_told_what_is_stale_and_nothing_is_written(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "first")
        host.write("tmp/draft.md", "one\n")
        doc(host, rt, "tmp/draft.md")
    host.write("tmp/draft.md", "changed\n")
    before = host.read()
    service = Service(host.workspace, actor="executor:x", world=host.world())
    assert service.status()["stale_docs"] == {"tmp/draft.md": "has 8 bytes, not 4"}
    assert list(service.next()["stale_docs"]) == ["tmp/draft.md"]
    told = diagnose(host.attach().engine)
    assert told["ok"], "a stale document is no damage"
    (notice,) = [found for found in told["notices"] if found["what"] == "document"]
    assert notice["where"] == "tmp/draft.md"
    assert host.read() == before


def test_pl_1_progress_names_who_is_waited_for_and_what_is_stuck(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "first")
        rt.add_node("N2", "given up")
        rt.add_node("N3", "ready")
        rt.start("N1")
        perform(rt.engine, "ask", {"text": "tabs or\n# blanks?", "node": "N1"})
        perform(rt.engine, "quarantine", {"node": "N2", "reason": "no way"})
    page = host.read("docs/progress.md").decode()
    assert "## Waiting for people (1)" in page
    assert "about `N1`" in page
    assert "\n# blanks?" not in page
    assert "**`N3`**" in page, "what may start is told, and what is stuck all the same"
    assert "- `N2` is QUARANTINED" in page


def test_pl_1_an_edited_page_is_told_and_is_no_damage(host: Host) -> None:
    two_nodes(host)
    host.write("docs/task-plan.md", "another plan\n")
    found = verify_workspace(host.attach().engine)
    assert found.ok
    (notice,) = found.notices
    assert (notice.what, notice.where) == ("projection", "docs/task-plan.md")
