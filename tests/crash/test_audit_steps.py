"""An audit, with the process killed or the power lost after each step of it.

Whatever is left, the next process finds a contract behind each auditor that is on record as sent
and a whole verdict or none, sends another auditor where there is none, and comes to one N06 that
rests on a verdict about the files as they are registered.
"""

from collections.abc import Iterator
from hashlib import sha256

import msgspec
from tests.crash.checks import check_evidence, check_live
from tests.crash.sim_machine import SimMachine
from tests.crash.tally import Tally, chance_for
from tests.crash.test_power_loss import QUICK, killed_runs, last_step, states_of, told
from tests.crash.workloads import AnyMachine

from perdure.runtime import audits
from perdure.runtime.calls import perform
from perdure.runtime.halt import HaltRuntime

OUT = "artifacts/N1/a.txt"
SAID = msgspec.json.encode(
    {
        "verdict": "pass",
        "items": [{"point": n, "passed": True, "evidence": [OUT]} for n in (1, 2)],
    }
)


def audited_by_an_auditor_that_is_sent(machine: AnyMachine) -> None:
    runtime = submitted(machine)
    audit(machine, runtime, b"{")
    audit(machine, runtime, SAID)
    runtime.check("N1")
    machine.acknowledge()
    runtime.close()


def audited_by_hand(machine: AnyMachine) -> None:
    runtime = submitted(machine)
    with runtime.engine.acting_as("verifier:ann"):
        perform(runtime.engine, "judge", {"node": "N1", "verdict": SAID.decode()}, op="op-1")
    machine.acknowledge()
    runtime.close()


def submitted(machine: AnyMachine) -> HaltRuntime:
    runtime = machine.open("T")
    accept = [{"audit": {"rubric": ["so", "all of it"]}}]
    runtime.add_node("N1", "first", outputs=[OUT], accept=accept)
    runtime.start("N1")
    machine.write(OUT, b"a")
    runtime.submit("N1")
    machine.acknowledge()
    return runtime


def audit(machine: AnyMachine, runtime: HaltRuntime, said: bytes) -> None:
    sent = audits.send(runtime.engine, runtime.node("N1"), enforcement={})
    machine.acknowledge()
    machine.write(f"{sent.place}/verdict.json", said)
    audits.record(runtime.engine, sent, held=True)
    machine.acknowledge()


def check(machine: SimMachine, tally: Tally) -> None:
    tally.add("states")
    promised = machine.acknowledged
    runtime = machine.open("T")
    assert machine.journal().startswith(promised)
    check_contracts(machine, runtime)
    if "N1" in runtime.state.nodes:
        bring_to_its_end(machine, runtime)
        moves = [e.payload.get("edge") for e in runtime.events() if e.entity.id == "N1"]
        assert moves.count("N06") == 1
        node = runtime.node("N1")
        assert node.audit is not None
        registered = {a.path: a.integrity.value for a in runtime.registry.values()
                      if a.status == "current"}  # fmt: skip
        assert dict(node.audit.files).items() <= registered.items()
        check_live(machine, runtime)
        check_evidence(machine, runtime.state)
    runtime.close()


def check_contracts(machine: SimMachine, runtime: HaltRuntime) -> None:
    """The contract of each auditor on record is there, and is the one that was written."""
    for event in runtime.events():
        if event.kind == "NOTE" and "contract_sha256" in event.payload:
            data = machine.bytes_of(event.payload["contract"])
            assert data is not None
            assert sha256(data).hexdigest() == event.payload["contract_sha256"]


def bring_to_its_end(machine: SimMachine, runtime: HaltRuntime) -> None:
    for _ in range(6):
        node = runtime.node("N1")
        if node.state == "DONE":
            return
        if node.state == "RUNNING":
            runtime.fail("N1", "transient-agent", "lost")
        elif node.state == "VERIFYING":
            runtime.check("N1")
            if runtime.node("N1").state == "VERIFYING":
                audit(machine, runtime, SAID)
        else:
            runtime.start("N1")
            if not runtime.node("N1").artifacts:
                machine.write(OUT, b"a")
            runtime.submit("N1")
    raise AssertionError(runtime.node("N1"))


def deaths() -> Iterator[SimMachine]:
    yield from killed_runs(audited_by_an_auditor_that_is_sent)
    yield from killed_runs(audited_by_hand)


def test_an_audit_that_is_killed_anywhere_is_carried_on_to_one_verdict(tally: Tally) -> None:
    for killed in deaths():
        with told("killed after", last_step(killed)):
            check(killed.end(), tally)


def test_an_audit_that_loses_its_power_anywhere_is_carried_on_to_one_verdict(tally: Tally) -> None:
    chance = chance_for("audits")
    for killed in deaths():
        for _, left in states_of(killed.disk, QUICK, chance):
            with told("cut after", last_step(killed), left.story()):
                check(killed.next(left, power_cut=True), tally)
