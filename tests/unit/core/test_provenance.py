"""Typed edges, read from events, and the walk over them: pure, bounded, always with an end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.core.story import Story

from perdure.core import commands as c
from perdure.core.closing import EDGE_KINDS
from perdure.core.codec import Scan
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.provenance import Edge, Provenance, derived_max, edges_of
from perdure.core.provenance_walk import Around, Sizes, Step, Walk, count_steps, sizes_of

GOLDEN = Path(__file__).parents[2] / "golden"
DEEP = Sizes(50)
JOURNALS = sorted((*GOLDEN.glob("journals/*/*.jsonl"), *GOLDEN.glob("foreign/*.jsonl")))


def read(journal: bytes) -> tuple[Replica, Provenance, list[Edge]]:
    replica, index, drawn = Replica(), Provenance(), list[Edge]()
    for events in Scan().commits([journal]):
        for event in events:
            replica.apply(event)
            index.see(event, replica)
            drawn += edges_of(event, replica)
    return replica, index, drawn


def tree(story: Story, name: str, sizes: Sizes = DEEP, **around: Any) -> Step:
    replica, index, _ = read(story.journal)
    return Walk(replica.state, index, sizes, Around(**around)).back_from(name)


def steps(step: Step) -> Iterator[Step]:
    yield step
    for child in step["children"]:
        yield from steps(child)


def find(step: Step, name: str) -> Step:
    """Where it is told, and not only named again."""
    return next(one for one in steps(step) if one["ref"] == name and one["more"] != "told already")


def drawn_by(story: Story) -> set[tuple[str, str, str]]:
    return {edge[:3] for edge in read(story.journal)[2]}


# What draws an edge


def test_a_result_is_derived_from_dependencies_and_inputs() -> None:
    story = Story()
    story.add("N1")
    story.add("N3")
    story.finish("N1")
    story.finish("N3")
    other = story.replica.state.artifacts["A-N3-1"].path
    story.add("N2", "N1", inputs=(other, "../data.csv"))
    story.finish("N2")
    drawn = drawn_by(story)
    for source in ("N2", "A-N1-1", "A-N3-1", "../data.csv"):
        assert ("DERIVED_FROM", "A-N2-1", source) in drawn
    assert ("SUPPORTS", "A-N2-1", "N2") in drawn
    assert ("DEPENDS_ON", "N2", "N1") in drawn


def test_results_of_many_go_back_to_the_node_that_made_them() -> None:
    """With names, a thousand results of a thousand would be a million edges."""
    story = Story()
    story.add("N1")
    story.start("N1")
    for number in range(derived_max + 1):
        story.register("N1", f"A-{number}")
    story.claim("N1")
    story.conclude("N1")
    story.add("N2", "N1")
    story.finish("N2")
    sources = {edge[2] for edge in drawn_by(story) if edge[:2] == ("DERIVED_FROM", "A-N2-1")}
    assert sources == {"N2", "N1"}


def test_a_change_of_the_goal_takes_back_what_it_leaves_out_and_the_goal_before() -> None:
    story = Story()
    story.add("N1")
    story.actor = "sponsor:ann"
    story.do(c.AmendGoal("one", "why", superseded=("N1",)))
    goals = [e.ref for e in story.events() if e.kind == "GOAL_AMENDED"]
    story.do(c.AmendGoal("two", "because"))
    assert ("INVALIDATES", goals[0], "N1") in drawn_by(story)
    told = tree(story, "goal", sizes_of("full", 5))
    (mark,) = find(told, goals[0])["marks"]
    assert mark.startswith("superseded by J-")


def test_parts_take_the_place_of_what_was_split() -> None:
    story = Story()
    story.bring_to("N1", "RETRYABLE")
    parts = tuple(c.AddNode(name, name) for name in ("P1", "P2"))
    story.do(c.SplitNode("N1", parts, "too large"))
    assert {("SUPERSEDES", "P1", "N1"), ("SUPERSEDES", "P2", "N1")} <= drawn_by(story)
    marks = find(tree(story, "N1"), "N1")["marks"]
    assert {"superseded by P1", "superseded by P2"} <= set(marks)


def test_an_effect_under_standing_authority_leads_to_where_that_was_given() -> None:
    story = Story(allowed=("N1",))
    story.add("N1", effect="S3")
    story.add("N2")
    story.start("N1")
    story.start("N2")
    assert ("SUPPORTS", "J-1", "N1") in drawn_by(story)
    assert ("SUPPORTS", "J-1", "N2") not in drawn_by(story)


def test_what_a_worker_brought_in_leads_to_its_order() -> None:
    story = Story()
    story.add("N1")
    payload = {"op": "slot_closed", "node": "N1", "end": "returned", "units": 3, "landed": 2}
    story.commit(Draft("NOTE", "slot", "inv-7", payload))
    story.commit(Draft("NOTE", "slot", "inv-8", {**payload, "landed": 0}))
    drawn = drawn_by(story)
    assert ("DERIVED_FROM", "N1", "contracts/inv-7.json") in drawn
    assert ("DERIVED_FROM", "N1", "contracts/inv-8.json") not in drawn


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_edges_of_any_journal_are_typed_and_lead_to_what_is_there(path: Path) -> None:
    replica, index, drawn = read(path.read_bytes())
    for edge in drawn:
        assert edge.kind in EDGE_KINDS
        assert edge.source
        assert edge.target
        assert edge.source != edge.target
        for end in (edge.source, edge.target, edge.ref):
            if end.startswith("J-"):
                assert 0 < int(end[2:]) <= replica.state.seq
    for name in (*index.about, *replica.state.nodes, *replica.state.artifacts):
        for view in ("summary", "full"):
            walk = Walk(replica.state, index, sizes_of(view, 50), Around())
            told = walk.back_from(name)
            assert count_steps(told) < 20 * (len(index.facts) + len(drawn) + 2)
            again = Walk(replica.state, index, sizes_of(view, 50), Around()).back_from(name)
            assert told == again, "the same journal gives the same answer"


# The walk


def test_what_was_taken_back_and_made_anew_is_told_so() -> None:
    story = Story()
    story.add("N1")
    story.finish("N1")
    payload = {"op": "audit", "passed": False, "verifier": "auditor:x"}
    story.commit(Draft("NOTE", "node", "N1", payload))
    told = find(tree(story, "N1"), "N1")["marks"]
    assert told == [f"invalidated (J-{story.replica.state.seq})"]
    story.replica.state.nodes["N1"].state_ref = f"J-{story.replica.state.seq + 1}"
    _, index, _ = read(story.journal)
    walk = Walk(story.replica.state, index, Sizes(), Around())
    assert "before it was made anew" in find(walk.back_from("N1"), "N1")["marks"][0]


def test_only_what_is_told_is_looked_at_on_the_disk() -> None:
    story = Story()
    for number in range(20):
        story.add(f"N{number}", *([f"N{number - 1}"] if number else []))
        story.finish(f"N{number}")
    looked: list[str] = []

    def wrong(name: str) -> str:
        looked.append(name)
        return "missing: it is not there" if name == "A-N18-1" else ""

    told = tree(story, "N19", Sizes(2), wrong=wrong)
    assert set(looked) <= {"A-N19-1", "A-N18-1", "A-N17-1"}
    assert find(told, "A-N18-1")["marks"] == ["on disk: missing: it is not there"]


def test_an_answer_is_bounded_and_says_what_it_leaves_out() -> None:
    story = Story()
    deps = [f"D{number}" for number in range(60)]
    for dep in deps:
        story.add(dep)
    story.add("N1", *deps)
    told = tree(story, "N1")
    assert "and 48 more: --view full" in [one["what"] for one in told["children"]]
    whole = tree(story, "N1", sizes_of("full", 2))
    assert {one["ref"] for one in whole["children"]} >= set(deps)


def test_the_full_view_tells_each_event_of_a_thing() -> None:
    story = Story()
    story.add("N1")
    for priority in (1, 2, 3):
        story.do(c.AmendNode("N1", {"priority": priority}, "because"))
    short, whole = (tree(story, "N1", sizes_of(view, 2)) for view in ("summary", "full"))
    assert [one["what"] for one in short["children"]].count("amended") == 1
    assert short["more"] == "2 more events: --view full"
    assert [one["what"] for one in whole["children"]].count("amended") == 3
    assert whole["more"] == ""


def test_an_entry_of_the_memory_store_is_shown_as_it_stood_when_it_was_cited() -> None:
    story = Story()
    story.add("N1")
    entry = {"id": "MEM-7", "store": "user", "sha256": "0" * 64, "flags": ["due"]}
    story.do(c.RecordDecision("DR-1", "so be it", memory=(entry,), edges=(("SUPPORTS", "N1"),)))
    told = find(tree(story, "N1"), "MEM-7")
    assert told["what"] == "entry of the user store"
    assert told["marks"] == ["due"]


def test_silence_that_settled_a_question_is_no_ruling() -> None:
    story = Story()
    story.add("N1")
    ask = {"op": "ask", "question_id": "Q1", "question": "which?", "node": "N1", "gate": "look"}
    story.commit(Draft("DECISION", "node", "N1", ask))
    answer = {"op": "answer", "question_id": "Q1", "ruling": "answer", "by_default": True}
    story.commit(Draft("DECISION", "node", "N1", answer))
    said = [one["what"] for one in steps(tree(story, "Q1"))]
    assert "settled by its default, as nobody answered" in said
    assert read(story.journal)[1].gates == {"look": "Q1"}
