"""The task machine over the library: pausing, coming back, and what reopens a finished task."""

import os

import pytest
from tests.conformance.host import Host, edges, moves

from perdure import HaltRuntime, TransitionError


def task_edges(rt: HaltRuntime) -> list[str]:
    """The rows that the journal says the task has taken."""
    return [e.payload["edge"] for e in moves(rt) if e.entity.type == "task"]


def test_t05_and_t06_opening_a_suspended_task_resumes_it(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "first")
        rt.pause("the day is over")
        assert rt.state.fsm_task == "SUSPENDED"
    with host.open(pid=101) as rt:
        assert task_edges(rt) == ["T01", "T02", "T04", "T05", "T06"]
        assert rt.state.fsm_task == "EXECUTING"
        rt.start("N1")


def test_t05_a_suspended_task_where_nothing_may_start_waits_in_recovering(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "first")
        rt.add_node("N2", "second")
        rt.start("N1")
        rt.fail("N1", "permanent-resource", "no licence key")
        rt.pause("the day is over")
        rt.cancel(["N2"], "not wanted")
    with host.resume() as rt:
        assert rt.state.fsm_task == "RECOVERING"
        rt.retry("N1", "the key has come")
    with host.resume() as rt:
        assert rt.state.fsm_task == "EXECUTING"


def test_t05_a_short_command_leaves_a_suspended_task_as_it_is(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "first")
        rt.pause("the day is over")
    with host.attach() as rt:
        rt.note("said meanwhile")
        assert rt.state.fsm_task == "SUSPENDED"


def test_t09_a_finished_task_whose_file_is_gone_leaves_its_final_audit(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "first")
        host.finish(rt, "N1")
        rt.move_task("FINAL_AUDIT")
    os.unlink(os.path.join(host.workspace, "artifacts/N1/out.txt"))
    with host.resume() as rt:
        assert edges(rt, "N1")[-1] == "RC1"
        assert (task_edges(rt)[-1], rt.state.fsm_task) == ("T09", "DECOMPOSING")
        host.finish(rt, "N1")
        rt.move_task("FINAL_AUDIT")
    length = len(host.read())
    host.resume().close()
    assert len(host.read()) == length, "nothing is left to repair"


def test_t10_nothing_takes_a_task_to_archived_in_this_version(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "first")
        host.finish(rt, "N1")
        rt.move_task("FINAL_AUDIT")
        with pytest.raises(TransitionError) as caught:
            rt.move_task("ARCHIVED")
        assert caught.value.rule == "FST-1"
        assert rt.state.fsm_task == "FINAL_AUDIT"
