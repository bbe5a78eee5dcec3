"""A local destructive effect (S1), with the process killed or the power lost after every step.

Whenever the journal says that such a node is at work, the copies of what it may change are on disk
with the bytes that the list says, and the list is the one that the journal cites; nothing is
changed before that. Recovery and another attempt need no help.
"""

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from tests.crash.checks import check_recovery
from tests.crash.sim_machine import SimMachine
from tests.crash.tally import Tally, chance_for
from tests.crash.test_power_loss import QUICK, killed_runs, last_step, states_of, told, whole_run
from tests.crash.workloads import AnyMachine

from perdure.core.model import Spec
from perdure.runtime.halt import HaltRuntime

OLD = {"shared/a.txt": b"old a", "shared/deep/b.txt": b"old b"}
NEW = {"shared/a.txt": b"new a", "shared/deep/b.txt": b"new b"}


def local_effect(machine: AnyMachine) -> None:
    """A node that changes two files, fails, and changes them again."""
    runtime = machine.open("T")
    for path, data in OLD.items():
        machine.write(path, data)
    runtime.add_node("N1", "first", spec=Spec(grants=("write:shared/*",)), effect="S1")
    machine.acknowledge()
    runtime.start("N1")
    machine.acknowledge()
    for path, data in NEW.items():
        machine.write(path, data)
    runtime.fail("N1", "transient-agent", "exit 1")
    machine.acknowledge()
    runtime.start("N1")
    machine.acknowledge()
    machine.write("artifacts/N1/done.txt", b"done")
    runtime.submit("N1")
    machine.acknowledge()
    runtime.close()


def copies(machine: SimMachine, said: dict[str, Any]) -> dict[str, bytes]:
    """The copies that a start cites, by path, after each was found to be what the list says."""
    data = machine.bytes_of(said["manifest"])
    assert data is not None, f"{said['manifest']} is gone"
    assert sha256(data).hexdigest() == said["sha256"]
    found = {}
    for entry in json.loads(data)["files"]:
        copy = machine.bytes_of(entry["copy"])
        assert copy is not None, f"{entry['copy']} is gone"
        assert sha256(copy).hexdigest() == entry["sha256"]
        found[entry["path"]] = copy
    return found


def starts(runtime: HaltRuntime) -> Iterator[dict[str, Any]]:
    for event in runtime.events():
        if event.payload.get("to") == "RUNNING":
            yield event.payload


def check(machine: SimMachine, journal: bytes, tally: Tally) -> None:
    tally.add("states")
    changed = any(machine.bytes_of(path) == data for path, data in NEW.items())
    runtime = check_recovery(machine, journal)
    said = [start["saved"] for start in starts(runtime)]
    if changed:
        assert said, "something was changed before the start was on record"
    if said:
        assert copies(machine, said[0]) == OLD
    for later in said[1:]:
        assert set(copies(machine, later)) == set(OLD)
    machine.boot_process()
    again = machine.open("T")
    if "N1" in again.state.nodes and again.node("N1").state in ("PENDING", "READY", "RETRYABLE"):
        again.start("N1")
        *_, last = starts(again)
        now = {path: machine.bytes_of(path) for path in OLD}
        there = {path: data for path, data in now.items() if data is not None}
        assert copies(machine, last["saved"]) == there if there else "saved" not in last
    again.close()


def test_c_s1_copies_are_whole_whenever_the_process_is_killed(tally: Tally) -> None:
    journal, _ = whole_run(local_effect)
    for killed in killed_runs(local_effect):
        with told("killed after", last_step(killed)):
            check(killed.end(), journal, tally)


def test_c_s1_copies_are_whole_whenever_the_power_is_lost(tally: Tally) -> None:
    journal, _ = whole_run(local_effect)
    chance = chance_for("local effect")
    for killed in killed_runs(local_effect):
        for _, left in states_of(killed.disk, QUICK, chance):
            with told("cut after", last_step(killed), left.story()):
                check(killed.next(left, power_cut=True), journal, tally)
