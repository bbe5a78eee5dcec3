"""A procedure called from a node, with the process killed or the power lost after each step of it.

From the call (card, invocation, contract) over the child's own work and its result to the copies
that its parent registers. Whatever the disk has after the death, the same steps taken again end
with one instance, its work done once, and the outputs of the child as those of the node. The
commands of the run loop are left out: what they make is written as they would, and synced by
nobody.
"""

import json

from tests.crash.sim_machine import ROOT, SimMachine
from tests.crash.tally import Tally, chance_for
from tests.crash.test_power_loss import QUICK, killed_runs, last_step, states_of, told
from tests.integration.nested import card

from perdure.control.executors import order_for
from perdure.control.instance import InstanceRun
from perdure.control.nested import SopExecutor, start_facts
from perdure.control.outcome import Ended
from perdure.control.report import RunReport, conclude_run
from perdure.core.actions import SopCall
from perdure.runtime import work
from perdure.runtime.engine import Engine
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.inspection import verify_workspace

CARD = "/some/cards/one.yaml"
MADE = b"made\n"
NODES = """
    - id: make
      run: "true"
      outputs: [artifacts/make/made.txt]
"""


class ByHand:
    """A run loop whose commands write what they are to write, and nothing else."""

    def __init__(self, machine: SimMachine, runtime: HaltRuntime) -> None:
        self.machine = machine
        self.runtime = runtime

    def run(self, task: None) -> RunReport:
        runtime = self.runtime
        if runtime.state.fsm_task != "FINAL_AUDIT":
            runtime.move_task("EXECUTING")
        for node in list(runtime.state.nodes.values()):
            if node.state == "VERIFYING":
                runtime.check(node.node_id)
            elif node.state != "DONE":
                runtime.start(node.node_id)
                path = f"{runtime.engine.layout.node_scope(node.node_id)}/made.txt"
                self.machine.disk.write(path, MADE)
                runtime.submit(node.node_id)
        report = conclude_run(runtime, unstoppable=set(), paused=False, signal=0)
        assert report is not None
        return report


def call_and_conclude(machine: SimMachine) -> None:
    """Take the task from wherever it is to its end."""
    if machine.disk.stat(CARD) is None:
        machine.disk.make_dirs("/some/cards")
        machine.disk.replace(CARD, card(NODES).encode(), durable=True)
    runtime = machine.open("T")
    if "call" not in runtime.state.nodes:
        outputs = ["artifacts/call/made.txt"]
        runtime.add_node("call", "calls", sop=SopCall(CARD), outputs=outputs)
    while (node := runtime.state.nodes["call"]).state != "DONE":
        if node.state == "VERIFYING":
            runtime.check("call")
            continue
        engine = runtime.engine
        work.start(engine, "call", payload=start_facts(engine, node))
        executor, order = SopExecutor(engine), order_for(engine, runtime.state.nodes["call"])
        (directory, *_) = executor.launch(order).write
        run_child(machine, directory)
        assert executor.read_end(order, Ended("exited", exit_code=0)).claims
        work.submit(engine, "call")
    machine.acknowledge()


def run_child(machine: SimMachine, directory: str) -> None:
    child = InstanceRun(
        directory, actor="coordinator:child", world=machine.world, emit=lambda event: None
    )
    machine.runtimes.append(child.runtime)
    ending = child.drive(ByHand(machine, child.runtime))  # type: ignore[arg-type]
    assert ending.result is not None
    assert ending.result.status == "done"
    child.close()


def check(machine: SimMachine, tally: Tally) -> None:
    tally.add("states")
    acknowledged = machine.acknowledged
    call_and_conclude(machine)
    assert machine.journal().startswith(acknowledged)
    instances = machine.disk.list_dir(f"{ROOT}/instances")
    assert len(instances) == 1
    below = f"instances/{instances[0]}"
    assert machine.bytes_of("artifacts/call/made.txt") == MADE
    result = machine.bytes_of(f"{below}/result.json")
    assert result == machine.bytes_of("artifacts/call/result.json")
    journal = machine.bytes_of(f"{below}/journal.jsonl") or b""
    events = [json.loads(line) for line in journal.splitlines()]
    moves = [(event["entity"]["id"], event["payload"].get("edge")) for event in events]
    assert moves.count(("make", "N06")) == 1
    moved = [e for e in events if e["kind"] == "STATE_TRANSITION"]
    phases = [e["payload"]["to"] for e in moved if e["entity"]["type"] == "instance"]
    assert phases == ["intake", "plan", "work", "verify", "report"]
    begins = next(n for n, e in enumerate(events) if e["payload"].get("to") == "work")
    assert begins < moves.index(("make", "N02")), "a phase is entered before its work starts"
    assert sum(e["payload"].get("op") == "plan" for e in events) == 1
    for root in (ROOT, f"{ROOT}/{below}"):
        found = verify_workspace(Engine(root, machine.world, "verifier:me"))
        assert found.exit_code == 0, found
    machine.bury()


def test_a_call_that_a_kill_ends_anywhere_is_concluded_once(tally: Tally) -> None:
    for killed in killed_runs(call_and_conclude):
        with told("killed after", last_step(killed)):
            check(killed.end(), tally)


def test_a_call_that_a_power_cut_ends_anywhere_is_concluded_once(tally: Tally) -> None:
    chance = chance_for("instances")
    for killed in killed_runs(call_and_conclude):
        for _, left in states_of(killed.disk, QUICK, chance):
            with told("cut after", last_step(killed), left.story()):
                check(killed.next(left, power_cut=True), tally)
