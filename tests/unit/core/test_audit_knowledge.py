"""Items A10.1 to A10.3, over what the check of a store may say and what a task has on record."""

from typing import Any

import pytest
from tests.unit.core.story import Story
from tests.unit.core.test_audit_parallel import on_disk
from tests.unit.core.test_task_audit_items import failures

from perdure.core.audit_knowledge import EntriesAreSuperseded, IndexIsTrue, KnowledgeNotProgress
from perdure.core.events import Draft
from perdure.core.task_audit import DiskFacts, Item

WHOLE: dict[str, Any] = {
    "problems": [], "damage": [], "entries": 3, "heads": 2, "drafts": 1, "due": ["MEM-0002"],
    "index": "whole", "imperative": ["MEM-0001"], "progress": ["MEM-0003"],
}  # fmt: skip
GOOD = {
    "kind": "method",
    "scope": "project:p",
    "statement": "The parser needs 2 MB.",
    "evidence": ["T1#J-3"],
}


def store(**change: Any) -> DiskFacts:
    return DiskFacts(memory={**WHOLE, **change})


def test_without_a_store_there_is_nothing_to_judge() -> None:
    for item in (KnowledgeNotProgress(), EntriesAreSuperseded(), IndexIsTrue()):
        findings = on_disk(Story(), DiskFacts(), item)
        assert (findings.results, bool(findings.why)) == ((), True)


def test_wording_is_named_and_fails_nothing() -> None:
    named: list[tuple[Item, str]] = [
        (KnowledgeNotProgress(), "MEM-0003"),
        (IndexIsTrue(), "MEM-0001"),
    ]
    for item, name in named:
        findings = on_disk(Story(), store(), item)
        assert failures(findings) == []
        assert name in [result.ref for result in findings.results]


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        ({}, False),
        ({"index": "stale"}, False),
        ({"index": "edited"}, True),
        ({"index": "ahead"}, True),
        ({"index": "missing"}, True),
        ({"index": "missing", "entries": 0}, False),
        ({"index": "unheard of"}, True),
    ],
)
def test_an_index_has_to_be_what_the_entries_say(change: dict[str, Any], *, fails: bool) -> None:
    assert bool(failures(on_disk(Story(), store(**change), IndexIsTrue()))) == fails


def test_an_edited_entry_is_not_an_edited_index() -> None:
    edited = store(damage=["line 2 was edited."], problems=["line 2 was edited."])
    assert failures(on_disk(Story(), edited, EntriesAreSuperseded()))
    assert not failures(on_disk(Story(), edited, IndexIsTrue()))
    page = store(problems=["MEM-INDEX.md was edited."], index="edited")
    assert not failures(on_disk(Story(), page, EntriesAreSuperseded()))


@pytest.mark.parametrize("missing", ["id", "store", "sha256", "flags"])
def test_a_citation_says_which_entry_and_how_fresh_it_was(missing: str) -> None:
    cited = {"id": "MEM-0001", "store": "project", "sha256": "ab" * 32, "flags": ["due"]}
    whole, short = Story(), Story()
    for story, entry in ((whole, cited), (short, {k: v for k, v in cited.items() if k != missing})):
        decided = {"op": "decision", "id": "DR-1", "rationale": "x", "memory": [entry]}
        story.commit(Draft("DECISION", "task", "T1", decided))
    assert failures(on_disk(whole, DiskFacts(), EntriesAreSuperseded())) == []
    assert missing in failures(on_disk(short, DiskFacts(), EntriesAreSuperseded()))[0]


def archived(*proposals: dict[str, Any], made: bool = True) -> Story:
    story = Story()
    story.add("N1")
    if made:
        note = {"op": "memory_proposals", "proposals": list(proposals)}
        story.commit(Draft("NOTE", "task", "T1", note))
    move = {"from": "FINAL_AUDIT", "to": "ARCHIVED", "edge": "T10"}
    story.commit(Draft("STATE_TRANSITION", "task", "T1", move))
    return story


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        ({}, False),
        ({"kind": "rumour"}, True),
        ({"scope": ""}, True),
        ({"statement": " "}, True),
        ({"evidence": []}, True),
        ({"evidence": ["somebody said so"]}, True),
        ({"statement": "N1 is DONE."}, True),
    ],
)
def test_a_proposal_is_knowledge_with_evidence(change: dict[str, Any], *, fails: bool) -> None:
    story = archived({**GOOD, **change})
    assert bool(failures(on_disk(story, DiskFacts(), KnowledgeNotProgress()))) == fails


def test_proposals_come_before_the_archive_even_if_there_are_none() -> None:
    assert failures(on_disk(archived(), DiskFacts(), KnowledgeNotProgress())) == []
    late = archived(made=False)
    late.commit(Draft("NOTE", "task", "T1", {"op": "memory_proposals", "proposals": []}))
    assert failures(on_disk(late, DiskFacts(), KnowledgeNotProgress()))
