"""From a result back to who decided it, on whose evidence, by whose right (INV-9)."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.host import Host
from tests.conformance.test_nesting import DONE, Caller

from perdure import HaltRuntime
from perdure.errors import CorruptError, HaltError, NotFoundError
from perdure.runtime.calls import perform
from perdure.runtime.provenance import why


def plan(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "count the pages", outputs=["artifacts/N1/out.txt"])
    rt.add_node("N2", "sum them up", deps=["N1"], outputs=["artifacts/N2/out.txt"])
    host.finish(rt, "N1")
    host.finish(rt, "N2")


def all_text(rt: HaltRuntime, name: str, depth: int = 5) -> str:
    return str(why(rt.engine, name, depth=depth))


def decide(rt: HaltRuntime, text: str, *edges: list[str], **args: object) -> str:
    told = perform(rt.engine, "decide", {"text": text, "edges": list(edges), **args})
    return str(told["decision"])


def test_inv_9_a_result_leads_back_to_who_planned_started_and_verified_it(host: Host) -> None:
    with host.open() as rt:
        plan(host, rt)
        said = all_text(rt, "A-N2")
        for edge in ("DERIVED_FROM", "DEPENDS_ON", "BEGAN"):
            assert edge in said
        for event in rt.events():
            if event.entity.id == "N2" and event.kind in ("AMENDMENT", "STATE_TRANSITION"):
                if event.payload.get("edge") in ("N01", None):
                    continue
                assert f"J-{event.seq}" in said, "each step can be looked up"
        assert "coordinator:main" in said


def test_inv_9_a_decision_says_on_whose_authority(host: Host) -> None:
    with host.open() as rt:
        plan(host, rt)
        name = decide(rt, "PDFs alone", ["SUPPORTS", "N1"], authority="sponsor:ann")
        said = all_text(rt, "N1")
        assert name in said
        assert "SUPPORTS" in said
        assert "sponsor:ann" in said


def test_inv_9_what_was_taken_back_is_marked_and_stays(host: Host) -> None:
    with host.open() as rt:
        plan(host, rt)
        old = decide(rt, "PDFs alone", ["SUPPORTS", "N1"])
        new = decide(rt, "All files", ["SUPERSEDES", old], ["INVALIDATES", "A-N1"])
        said = all_text(rt, old)
        assert new in said
        assert "superseded" in said.lower()
        assert "invalidated" in all_text(rt, "A-N1").lower()
        assert new in all_text(rt, "A-N1")


@pytest.mark.parametrize("kind", ["SUPPORTS", "INVALIDATES", "SUPERSEDES", "DERIVED_FROM"])
def test_inv_9_an_edge_leads_to_something_that_exists(host: Host, kind: str) -> None:
    with host.open() as rt:
        plan(host, rt)
        before = host.read()
        with pytest.raises(HaltError) as caught:
            decide(rt, "of nothing", [kind, "N77"])
        assert caught.value.exit_code == 3
        assert host.read() == before


def test_inv_9_a_circle_of_decisions_ends(host: Host) -> None:
    with host.open() as rt:
        plan(host, rt)
        one = decide(rt, "one")
        two = decide(rt, "two", ["DERIVED_FROM", one])
        decide(rt, "three", ["SUPPORTS", one], ["DERIVED_FROM", two])
        assert one in all_text(rt, two, depth=50)


def test_inv_9_asking_writes_nothing_and_an_unknown_name_has_near_misses(host: Host) -> None:
    with host.open() as rt:
        plan(host, rt)
        before = host.read()
        all_text(rt, "N1")
        with pytest.raises(NotFoundError) as caught:
            why(rt.engine, "A-M1")
        assert "A-N1" in caught.value.suggestions
        assert host.read() == before


def test_inv_9_depth_bounds_the_answer(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N0", "first")
        for number in range(1, 30):
            rt.add_node(f"N{number}", "next", deps=[f"N{number - 1}"])
        assert "'N20'" not in all_text(rt, "N29", depth=2)
        assert "N5" in all_text(rt, "N29", depth=50)


@pytest.mark.parametrize(
    "ref", ["DR-77", "contracts/inv-none.json", "instances/inv-none", "contracts/../../etc", "J-99"]
)
def test_inv_9_a_decision_cites_only_what_there_is(host: Host, ref: str) -> None:
    with host.open() as rt:
        plan(host, rt)
        before = host.read()
        with pytest.raises(HaltError) as caught:
            decide(rt, "on nothing", ["DERIVED_FROM", ref])
        assert (caught.value.code, caught.value.exit_code) == ("unknown_ref", 3)
        assert host.read() == before
        one = decide(rt, "on a work order", ["DERIVED_FROM", f"contracts/{invocation(rt)}.json"])
        decide(rt, "on that", ["DERIVED_FROM", one])


def invocation(rt: HaltRuntime) -> str:
    return str(rt.state.nodes["N2"].invocation)


def walk(rt: HaltRuntime, name: str, **more: Any) -> list[dict[str, Any]]:
    """All steps of a walk, the first one first."""
    steps = [why(rt.engine, name, **more)["why"]]
    for step in steps:
        steps += step["children"]
    return steps


def marks_of(rt: HaltRuntime, name: str, ref: str) -> list[str]:
    return [mark for step in walk(rt, name) if step["ref"] == ref for mark in step["marks"]]


def test_inv_9_evidence_that_is_not_on_disk_as_registered_is_marked(host: Host) -> None:
    with host.open() as rt:
        plan(host, rt)
        assert marks_of(rt, "A-N2", "A-N1") == []
        host.write("artifacts/N1/out.txt", "other")
        os.unlink(os.path.join(host.workspace, "artifacts/N2/out.txt"))
        (changed,) = marks_of(rt, "A-N2", "A-N1")
        assert changed.startswith("on disk: changed: artifacts/N1/out.txt")
        assert marks_of(rt, "A-N2", "A-N2") == ["on disk: missing: artifacts/N2/out.txt"]


def test_inv_9_an_outside_file_that_has_changed_since_is_marked(host: Host) -> None:
    source = os.path.join(os.path.dirname(host.workspace), "source.csv")
    Path(source).write_text("a,b\n", encoding="utf-8")
    with host.open() as rt:
        told = perform(rt.engine, "doc", {"path": source, "purpose": "prices"})
        rt.add_node("N1", "sum", inputs=[told["path"]], outputs=["artifacts/N1/out.txt"])
        host.finish(rt, "N1")
        assert marks_of(rt, "A-N1", told["path"]) == []
        Path(source).write_text("a,b,c\n", encoding="utf-8")
        (live,) = marks_of(rt, "A-N1", told["path"])
        assert live == "on disk: has 6 bytes, not 4"
    with host.resume() as rt:
        (known,) = marks_of(rt, "A-N1", told["path"])
        assert known.startswith("stale since J-")


def test_inv_9_the_way_can_begin_at_a_path_a_work_order_or_the_goal(host: Host) -> None:
    with host.open() as rt:
        plan(host, rt)
        assert walk(rt, "artifacts/N2/out.txt") == walk(rt, "A-N2")
        order = walk(rt, f"contracts/{invocation(rt)}.json")
        assert order[0]["what"] == "work order"
        assert "started" in [step["what"] for step in order]
        assert walk(rt, "goal")[0]["what"] == "task created"
        ref = rt.goal("all files", "the sponsor wants them", by="sponsor:ann").ref
        assert [step["actor"] for step in walk(rt, "goal") if step["ref"] == ref] == ["sponsor:ann"]


def test_inv_9_the_way_leads_into_the_instance_that_made_a_result(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    try:
        caller.add()
        order = caller.start()
        assert caller.run_child() == 0
        assert caller.executor.read_end(order, DONE).claims
        caller.runtime.submit("call")
        rt, child = caller.runtime, caller.node.child_ref
        refs = [step["ref"] for step in walk(rt, "call")]
        assert f"instances/{child}" in refs
        assert f"{child}#A-make" in refs
        assert f"{child}#J-1" in refs, "down to the call of the instance"
        Path(caller.child, "journal.jsonl").write_bytes(b"{}\n{}\n")
        (mark,) = [m for step in walk(rt, "call") for m in step["marks"]]
        assert mark.startswith("cannot be read: "), "and the rest of the answer stands"
    finally:
        caller.runtime.close()


def test_inv_9_a_damaged_journal_is_not_walked(host: Host) -> None:
    with host.open() as rt:
        plan(host, rt)
    path = os.path.join(host.workspace, "journal.jsonl")
    lines = host.read().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"N', b'"M', 1)
    Path(path).write_bytes(b"".join(lines))
    rt = host.attach()
    with pytest.raises(CorruptError) as caught:
        why(rt.engine, "A-N2")
    assert caught.value.exit_code == 6
    assert "line 4" in caught.value.message
    rt.close()
