"""The rows of the task machine, one test each where a whole story does not hold it already."""

import pytest
from tests.conformance.host import Host, moves

from perdure import HaltRuntime, TransitionError
from perdure.core.machine import task_edge
from perdure.core.model import Node, Spec, State


def task_edges(rt: HaltRuntime) -> list[str]:
    """The rows that the journal says the task has taken."""
    return [e.payload["edge"] for e in moves(rt) if e.entity.type == "task"]


def test_t01_creation_leads_to_decomposing(host: Host) -> None:
    with host.open() as rt:
        assert (task_edges(rt), rt.state.fsm_task) == (["T01"], "DECOMPOSING")


def test_t02_executing_takes_something_to_start(host: Host) -> None:
    with host.open() as rt:
        with pytest.raises(TransitionError) as caught:
            rt.move_task("EXECUTING")
        assert caught.value.rule == "T02"
        rt.add_node("N1", "first")
        rt.move_task("EXECUTING")
        assert (task_edges(rt), rt.state.fsm_task) == (["T01", "T02"], "EXECUTING")


def test_t03_work_that_was_interrupted_leads_through_recovering(host: Host) -> None:
    rt = host.open()
    rt.add_node("N1", "first")
    rt.move_task("EXECUTING")
    rt.start("N1")
    host.die(rt)
    with host.open(pid=101) as rt:
        assert task_edges(rt)[-2:] == ["T03", "T06"]


def test_t04_no_pause_while_work_is_under_way(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "first")
        rt.move_task("EXECUTING")
        rt.start("N1")
        with pytest.raises(TransitionError) as caught:
            rt.pause()
        assert caught.value.rule == "T04"
        rt.fail("N1", "transient-agent", "gave up")
        rt.pause("enough for today")
        assert task_edges(rt)[-1] == "T04"


def test_t07_the_final_audit_waits_for_every_node(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "first")
        rt.add_node("N2", "second")
        host.finish(rt, "N1")
        with pytest.raises(TransitionError) as caught:
            rt.move_task("FINAL_AUDIT")
        assert caught.value.rule == "T07"
        host.finish(rt, "N2")
        rt.move_task("FINAL_AUDIT")
        assert task_edges(rt)[-1] == "T07"


def test_t08_work_that_was_missed_is_planned_at_any_time(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "first")
        rt.move_task("EXECUTING")
        rt.start("N1")
        rt.move_task("DECOMPOSING", "a step is missing")
        assert task_edges(rt)[-1] == "T08"
        rt.add_node("N2", "second")


def test_t11_recovery_of_a_task_without_nodes_goes_on_planning(host: Host) -> None:
    assert task_edge("RECOVERING", "DECOMPOSING") is not None
    rt = host.open()
    rt.add_node("N1", "first")
    rt.pause()
    rt.cancel(["N1"], "not wanted")
    host.die(rt)
    with host.open(pid=101) as rt:
        rt.move_task("DECOMPOSING", "what is wanted instead")
        assert rt.state.fsm_task == "DECOMPOSING"
        assert task_edges(rt)[-1] in ("T09", "T11")


def test_t12_recovery_of_a_task_with_nothing_open_leads_to_its_final_audit(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "first")
        host.finish(rt, "N1")
        rt.add_node("N2", "second")
        rt.pause()
        rt.cancel(["N2"], "not wanted")
    with host.resume() as rt:
        assert task_edges(rt)[-2:] == ["T05", "T12"]
        assert rt.state.fsm_task == "FINAL_AUDIT"


@pytest.mark.parametrize("target", ["FINAL_AUDIT", "ARCHIVED"])
def test_t10_nothing_that_is_open_gets_past_an_audit(target: str) -> None:
    source = "FINAL_AUDIT" if target == "ARCHIVED" else "EXECUTING"
    row = task_edge(source, target)
    assert row is not None
    assert row.guard(State())
    assert row.guard(State(nodes={"N1": Node("N1", "first", Spec())}))
    done = Node("N1", "first", Spec(), state="DONE")
    dead = Node("N2", "second", Spec(), state="QUARANTINED")
    assert "without a successor" in row.guard(State(nodes={"N1": done, "N2": dead}))
