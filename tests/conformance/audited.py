"""One workspace with something of everything that the task audit looks at, and how to damage it.

The workspace is lived by the runtime on a simulated disk. ``forged`` rewrites its journal and
chains it anew, as somebody would who knows the format: what is false in it then is false in what it
says, and nothing but the item that reads it can tell.
"""

import functools
import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from tests.crash.sim_machine import ROOT, SimMachine
from tests.crash.workloads import call, refused
from tests.golden.dispatched import dispatched

from perdure.core import dispatch_commands as d
from perdure.core.batch import inventory_digest
from perdure.core.codec import EMPTY_TIP, Scan, decode_line, to_json
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.instance import Result as ChildResult
from perdure.core.instance import SopRef
from perdure.core.memory import Entry
from perdure.core.model import MapSpec
from perdure.core.task_audit import AuditRecord
from perdure.jobs.job import CheckpointedJob
from perdure.memory.store import Store
from perdure.runtime import work
from perdure.runtime.contract_file import Planned
from perdure.runtime.contracts import Units, issue_slot_contract
from perdure.runtime.engine import Engine
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.instance_files import directory_of, write_result
from perdure.runtime.task_audits import Audited
from perdure.service.task_audits import audit
from perdure.storage.projections import write_projections
from perdure.testing import SimDisk

PROJECT = "/some/.perdure"
NOISE = bytes(range(256)) * 3


def lived() -> SimMachine:
    """The workspace, with nobody at work in it and nothing wrong with it."""
    machine = SimMachine.new()
    dispatched(machine)
    _two_workers(machine)
    _work(machine)
    _people(machine)
    _interrupted(machine)
    _memory(machine)
    _nested(machine)
    return machine


def _two_workers(machine: SimMachine) -> None:
    """Two workers out at once, each with units of its own."""
    runtime = machine.open()
    keys = ["k1", "k2", "k3", "k4"]
    runtime.add_node("P", "parallel", spec=None, map=MapSpec(("work",), list=tuple(keys), shard=2))
    inventory = Units({"total": len(keys), "sha256": inventory_digest(keys)}, 0)
    work.start(runtime.engine, "P", units=lambda node: inventory)
    names = [_sent(runtime, keys[:2]), _sent(runtime, keys[2:])]
    for name in names:
        runtime.engine.execute(d.CloseSlot(name, "landed", 2, 0))
    with CheckpointedJob(f"{ROOT}/artifacts/P", "P", world=machine.world) as job:
        for key in keys:
            job.record_finding(key, {"length": len(key)})
    call(machine, runtime, "cancel", nodes=["P"], reason="seen enough")
    runtime.close()


def _sent(runtime: HaltRuntime, keys: list[str]) -> str:
    engine, digest = runtime.engine, inventory_digest(keys)
    issued = issue_slot_contract(
        engine,
        runtime.state.nodes["P"],
        units=[{"key": key, "item": key} for key in keys],
        plan=Planned(len(keys), digest),
    )
    opening = d.OpenSlot("P", issued.invocation_id, issued.sha256, "executor:w", len(keys), digest)
    engine.execute(opening)
    return issued.invocation_id


def _work(machine: SimMachine) -> None:
    """A node that is done, one that failed by one method and was done by another, one cancelled."""
    runtime = machine.open()
    call(machine, runtime, "add", node="N1", spec={"outputs": ["artifacts/N1/a.txt"]})
    call(machine, runtime, "start", node="N1")
    machine.write("artifacts/N1/a.txt", b"a")
    call(machine, runtime, "submit", node="N1")
    spec = {"outputs": ["artifacts/F1/f.txt"], "retry_budget": 2}
    call(machine, runtime, "add", node="F1", deps=["N1"], spec=spec)
    call(machine, runtime, "start", node="F1")
    machine.write("artifacts/F1/f.txt", b"half")
    call(machine, runtime, "artifact", node="F1", path="artifacts/F1/f.txt")
    failure = {"failure_class": "transient-agent", "reason": "exit 3"}
    call(machine, runtime, "fail", node="F1", **failure)
    call(machine, runtime, "start", node="F1")
    call(machine, runtime, "fail", node="F1", **failure)
    by = "gatekeeper:anna"
    call(machine, runtime, "answer", by=by, question="Q-F1-2", text="by hand", method="by hand")
    call(machine, runtime, "start", node="F1")
    machine.write("artifacts/F1/f.txt", b"whole")
    call(machine, runtime, "submit", node="F1")
    call(machine, runtime, "add", node="X1")
    call(machine, runtime, "cancel", nodes=["X1"], reason="not wanted")
    runtime.close()


def _people(machine: SimMachine) -> None:
    """Gates, an external effect, instructions, another goal and another policy."""
    runtime = machine.open()
    rule = functools.partial(call, machine, runtime, by="gatekeeper:anna")
    spec = {"outputs": ["artifacts/G1/g.txt"], "gates": ["May it go out?"]}
    call(machine, runtime, "add", node="G1", spec=spec)
    call(machine, runtime, "start", node="G1")
    machine.write("artifacts/G1/g.txt", b"g")
    call(machine, runtime, "submit", node="G1")
    rule("approve", question="G-G1-review")
    call(machine, runtime, "add", node="E1", effect="S3", spec={"outputs": ["artifacts/E1/e.txt"]})
    refused(machine, runtime, "start", node="E1")
    rule("approve", question="G-E1-start")
    call(machine, runtime, "start", node="E1")
    call(machine, runtime, "receipt", node="E1", proof="ticket 7")
    machine.write("artifacts/E1/e.txt", b"e")
    call(machine, runtime, "submit", node="E1")
    call(machine, runtime, "add", node="S1")
    call(machine, runtime, "steer", by="sponsor:ann", text="in French", reading="amendment")
    runtime.policy("retry_budget", 4, "flaky")
    call(machine, runtime, "goal", by="sponsor:ann", text="less", reason="no time")
    call(machine, runtime, "start", node="S1")
    machine.write("artifacts/S1/s.txt", b"s")
    call(machine, runtime, "submit", node="S1")
    call(machine, runtime, "decide", text="left it is", options=["l", "r"], choice="l")
    runtime.close()


def _interrupted(machine: SimMachine) -> None:
    """A coordinator that died in the middle of a commit, and the next one."""
    runtime = machine.open()
    runtime.add_node("R1", "resumed", outputs=["artifacts/R1/r.txt"])
    runtime.start("R1")
    machine.boot_process()
    machine.disk.open_append(machine.layout.journal).append(NOISE)
    runtime = machine.open()
    call(machine, runtime, "start", node="R1")
    machine.write("artifacts/R1/r.txt", b"r")
    call(machine, runtime, "submit", node="R1")
    runtime.close()


def _memory(machine: SimMachine) -> None:
    """A store of the project, two entries, one of them superseded."""
    store = Store("project", f"{PROJECT}/memory", machine.disk, machine.clock)
    machine.disk.make_dirs(f"{PROJECT}/memory", durable=True)

    def entry(number: int, supersedes: tuple[str, ...] = ()) -> Callable[..., Entry]:
        said = f"The parser takes {number} MB of memory."
        return lambda shelf, name: Entry(
            name, said, "method", "project:p", ("T#J-1",), supersedes=supersedes
        )

    store.add(entry(1))
    store.add(entry(2, ("MEM-0001",)))


def _nested(machine: SimMachine) -> None:
    """A node that calls a procedure, with the instance that it was done by.

    The runtime lives it as a plain node; the journal is made to say the rest.
    """
    runtime = machine.open()
    call(machine, runtime, "add", node="C1")
    call(machine, runtime, "start", node="C1")
    machine.write("artifacts/C1/c.txt", b"c")
    call(machine, runtime, "submit", node="C1")
    child = runtime.state.nodes["C1"].invocation or ""
    runtime.close()
    directory = directory_of(ROOT, child)
    below = HaltRuntime(directory, child, goal="a part", world=machine.world)
    below.add_node("N", "not needed")
    call(machine, below, "cancel", nodes=["N"], reason="it is there already")
    below.move_task("FINAL_AUDIT")
    write_result(below.engine, ChildResult(child, "done", SopRef("card", "1.0.0"), seq_last=2))
    below.close()

    def calls(event: Event) -> None:
        if event.kind == "AMENDMENT" and event.payload.get("target") == "C1":
            event.payload["after"]["spec"]["sop"] = {"sop": "card"}

    forged(machine, calls)


def copied(machine: SimMachine) -> SimMachine:
    """Another one of the same, to be damaged."""
    return machine.next(machine.disk.survive_kill(), power_cut=False)


# Looking


def audited(machine: SimMachine, upto: int | None = None) -> Audited:
    """The audit, whole."""
    return audit(Engine(ROOT, machine.world, "verifier:other"), upto=upto)


def failing(record: AuditRecord) -> dict[str, str]:
    """Items that fail, each with the first thing that does not hold."""
    return {
        entry.item: next(f"{one.ref}: {one.note}" for one in entry.results if not one.ok)
        for entry in record.items
        if entry.verdict == "FAIL"
    }


def state_of(machine: SimMachine) -> Replica:
    """What the journal says."""
    replica = Replica()
    for events in Scan().commits([machine.journal()]):
        replica.apply_all(events)
    return replica


# Damaging


def put(machine: SimMachine, path: str, data: bytes) -> None:
    """Other bytes in the place of a file."""
    full = path if path.startswith("/") else f"{ROOT}/{path}"
    machine.disk.replace(full, data, durable=True)


def gone(machine: SimMachine, path: str) -> None:
    """The file is not there any more."""
    machine.disk.unlink(f"{ROOT}/{path}", durable=True)


def flipped(machine: SimMachine, path: str) -> None:
    """One bit in the middle of a file is another one."""
    data = bytearray(machine.disk.read(path if path.startswith("/") else f"{ROOT}/{path}"))
    data[len(data) // 2] ^= 1
    put(machine, path, bytes(data))


def forged(machine: SimMachine, edit: Callable[[Event], object]) -> None:
    """Let ``edit`` change events in place, chain the journal anew, and make the projections fit."""
    lines, value = [], EMPTY_TIP.value
    for line in machine.journal().splitlines():
        event = decode_line(line)
        edit(event)
        head = to_json(event)[:-1]
        value = sha256(value + head).digest()
        lines.append(head + b',"h":"' + value[:8].hex().encode() + b'"}\n')
    put(machine, "journal.jsonl", b"".join(lines))
    rebuilt(machine)


def rebuilt(machine: SimMachine) -> None:
    """Every projection, as the journal has it now."""
    disk = machine.disk
    assert isinstance(disk, SimDisk)
    replica, scan = Replica(), Scan()
    for events in scan.commits([machine.journal()]):
        replica.apply_all(events)
    assert scan.damage is None, scan.damage
    write_projections(disk, machine.layout, replica, scan.tip)


def reissued(machine: SimMachine, node: str, kind: str, change: Callable[[Any], object]) -> None:
    """Change the last contract of a node, and what the journal says is its checksum."""
    cited = [
        event
        for event in map(decode_line, machine.journal().splitlines())
        if event.kind == kind
        and "contract_sha256" in event.payload
        and node in (event.entity.id, event.payload.get("node"))
    ][-1]
    path = cited.payload["contract"]
    contract = json.loads(machine.disk.read(f"{ROOT}/{path}"))
    change(contract)
    data = to_json(contract)
    put(machine, path, data)
    digest = sha256(data).hexdigest()

    def cite(event: Event) -> None:
        if event.payload.get("contract") == path and "contract_sha256" in event.payload:
            event.payload["contract_sha256"] = digest
            if "units_sha256" in event.payload:
                event.payload["units_sha256"] = contract["units"]["sha256"]

    forged(machine, cite)


def as_dict(record: AuditRecord) -> dict[str, Any]:
    """The record as it is printed."""
    found: dict[str, Any] = json.loads(to_json(msgspec.to_builtins(record)))
    return found


def first(machine: SimMachine, wanted: Mapping[str, Any], entity: str = "") -> int:
    """The seq of the first event whose payload has these values."""
    for event in map(decode_line, machine.journal().splitlines()):
        if entity in ("", event.entity.id) and wanted.items() <= event.payload.items():
            return event.seq
    raise AssertionError(wanted)
