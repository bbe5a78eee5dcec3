"""Changes of several artifacts at tier 2, with the process killed or the power lost at every step.

A claim registers all that its node owes, a verdict against it sets all of it aside, and a batch
registers what it was given: each is one commit in journal and mirror (C-TX). Whatever is left, in
each of the two and after the recovery, all of such a change stands or none of it.
"""

from collections import Counter

from tests.crash.checks import check_recovery, check_second_recovery, replayed, whole_commits
from tests.crash.sim_machine import SimMachine
from tests.crash.tally import Tally
from tests.crash.test_power_loss import after_each_kill, after_each_power_cut, whole_run
from tests.crash.workloads import AnyMachine

from perdure.core.model import State
from perdure.runtime.halt import HaltRuntime

OUTPUTS = {
    name: [f"artifacts/{name}/{part}" for part in ("a.txt", "b.txt", "deep/c.txt")]
    for name in ("GOOD", "BAD", "HAND")
}
BOTH = ("journal.jsonl", "journal-mirror.jsonl")


def several_at_once(machine: AnyMachine) -> None:
    machine.tier = 2
    runtime = machine.open("T")
    with runtime.batch():
        for name, outputs in OUTPUTS.items():
            runtime.add_node(name, name, outputs=outputs, verification_level="V1",
                             accept=[f"nonempty: {outputs[1]}"])  # fmt: skip
    machine.acknowledge()
    for name in OUTPUTS:
        work_on(machine, runtime, name)
    runtime.close()


def work_on(machine: AnyMachine, runtime: HaltRuntime, name: str) -> None:
    """One attempt, from wherever the node may start."""
    runtime.start(name)
    machine.acknowledge()
    a, b, c = OUTPUTS[name]
    machine.write(a, b"a")
    machine.write(b, b"" if name == "BAD" else b"b")
    machine.write(c, b"c")
    if name == "HAND":
        with runtime.batch():
            for path in OUTPUTS[name]:
                runtime.register_artifact("", path, node_id=name)
        machine.acknowledge()
    runtime.submit(name)
    machine.acknowledge()


def check_whole(state: State) -> None:
    """Of each node all three files of an attempt are registered, or set aside, or none is."""
    found = Counter(
        (artifact.produced_by_node, artifact.produced_by_invocation, artifact.status)
        for artifact in state.artifacts.values()
        if artifact.produced_by_node is not None  # a torn end of the journal is nobody's
    )
    assert set(found.values()) <= {3}, found
    for node in state.nodes.values():
        assert len(node.artifacts) == 3 or node.state != "DONE", node.node_id


def check(machine: SimMachine, journal: bytes, tally: Tally) -> None:
    tally.add("states")
    for name in BOTH:
        kept = whole_commits(machine.bytes_of(name) or b"")
        if kept:
            check_whole(replayed(kept)[0])
    runtime = check_recovery(machine, journal)
    check_whole(runtime.state)
    assert runtime.state.tier == 2
    check_second_recovery(machine)


def test_a_change_of_several_artifacts_is_whole_wherever_the_process_is_killed(
    tally: Tally,
) -> None:
    journal, _ = whole_run(several_at_once)
    after_each_kill(several_at_once, lambda machine: check(machine, journal, tally))


def test_a_change_of_several_artifacts_is_whole_wherever_the_power_is_lost(tally: Tally) -> None:
    journal, _ = whole_run(several_at_once)
    after_each_power_cut(several_at_once, lambda machine: check(machine, journal, tally))


def test_the_undisturbed_run_changes_three_artifacts_in_one_commit_each_time() -> None:
    """What the other tests kill is what they speak of."""
    journal, _ = whole_run(several_at_once)
    state, _ = replayed(journal)
    assert {name: node.state for name, node in state.nodes.items()} == {
        "GOOD": "DONE", "BAD": "RETRYABLE", "HAND": "DONE",
    }  # fmt: skip
    statuses = Counter(artifact.status for artifact in state.artifacts.values())
    assert statuses == {"current": 6, "quarantined": 3}
