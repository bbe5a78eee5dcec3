"""The end of a task, with the process killed or the power lost after each step of it.

Whatever is left, the next process finds the task open, archived, accepted or closed and nothing in
between, takes it to its last word by the same calls, and does none of it twice.
"""

import pytest
from tests.crash.sim_machine import SimMachine
from tests.crash.tally import Tally, chance_for
from tests.crash.test_power_loss import QUICK, killed_runs, last_step, states_of, told
from tests.crash.workloads import AnyMachine, Workload

from perdure.runtime.calls import perform
from perdure.runtime.halt import HaltRuntime

OUT = "artifacts/N1/a.txt"
ONCE = ("memory_proposals", "handoff", "accept_content", "close_task")


def ended(machine: AnyMachine) -> None:
    runtime = machine.open("T")
    if "N1" not in runtime.state.nodes:
        runtime.add_node("N1", "first", outputs=[OUT], verification_level="V1")
    machine.acknowledge()
    bring_to_its_end(machine, runtime)
    runtime.close()


def ended_at_tier_2(machine: AnyMachine) -> None:
    machine.tier = 2
    ended(machine)


each_tier = pytest.mark.parametrize("end", [ended, ended_at_tier_2])


def bring_to_its_end(machine: AnyMachine, runtime: HaltRuntime) -> None:
    node = runtime.node("N1")
    if node.state == "RUNNING":
        runtime.fail("N1", "transient-agent", "lost")
    if runtime.node("N1").state not in ("DONE", "VERIFYING"):
        runtime.start("N1")
        machine.write(OUT, b"a")
        runtime.submit("N1")
    elif runtime.node("N1").state == "VERIFYING":
        runtime.check("N1")
    machine.acknowledge()
    engine = runtime.engine
    perform(engine, "archive", {"scope": "project:p"})
    machine.acknowledge()
    with engine.acting_as("sponsor:ann"):
        perform(engine, "accept", {"text": "as ordered"})
    machine.acknowledge()
    perform(engine, "close", {})
    machine.acknowledge()


def check(machine: SimMachine, tally: Tally) -> None:
    tally.add("states")
    promised = machine.acknowledged
    runtime = machine.open("T")
    assert machine.journal().startswith(promised)
    closing = runtime.state.closing
    if closing.sub_state:  # archived: then with all that it takes, or not at all
        assert closing.proposals
        assert closing.handoff
        assert closing.audit_passed
        assert runtime.state.terminal
    if "N1" not in runtime.state.nodes:
        runtime.add_node("N1", "first", outputs=[OUT], verification_level="V1")
    if not closing.closed:
        bring_to_its_end(machine, runtime)
    assert perform(runtime.engine, "close", {})["repeated"] is True
    assert runtime.state.closing.sub_state == "TASK_CLOSED"
    ops = [e.payload.get("op") for e in runtime.events() if e.kind in ("NOTE", "DECISION")]
    for op in ONCE:
        assert ops.count(op) == 1, op
    edges = [e.payload.get("edge") for e in runtime.events()]
    assert edges.count("T10") == 1
    if runtime.state.tier == 2:
        assert machine.bytes_of("journal-mirror.jsonl") == machine.journal()
    runtime.close()


@each_tier
def test_an_end_that_is_killed_anywhere_is_brought_to_its_last_word_once(
    end: Workload, tally: Tally
) -> None:
    for killed in killed_runs(end):
        with told("killed after", last_step(killed)):
            check(killed.end(), tally)


@each_tier
def test_an_end_that_loses_its_power_anywhere_is_brought_to_its_last_word_once(
    end: Workload, tally: Tally
) -> None:
    chance = chance_for(f"archive {end.__name__}")
    for killed in killed_runs(end):
        for _, left in states_of(killed.disk, QUICK, chance):
            with told("cut after", last_step(killed), left.story()):
                check(killed.next(left, power_cut=True), tally)
