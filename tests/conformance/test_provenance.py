"""From a result back to who decided it, on whose evidence, by whose right (INV-9)."""

import pytest
from tests.conformance.host import Host

from perdure import HaltRuntime
from perdure.errors import HaltError, NotFoundError
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
