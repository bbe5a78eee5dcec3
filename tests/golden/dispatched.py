"""Work that is dispatched, as a coordinator does it without a process: slots, ends and modes."""

from collections.abc import Sequence

from tests.crash.workloads import AnyMachine, call

from perdure.core import commands as c
from perdure.core import dispatch_commands as d
from perdure.core.batch import inventory_digest
from perdure.core.dispatching import Cause, Death, SlotEnd, Usage
from perdure.core.model import MapSpec
from perdure.runtime import work
from perdure.runtime.contract_file import Planned
from perdure.runtime.contracts import Units, issue_slot_contract
from perdure.runtime.halt import HaltRuntime

KEYS = [f"u{number}" for number in range(1, 9)]


def dispatched(machine: AnyMachine) -> None:
    """Workers that land, die of everything, are suspected and come late; dispatch follows."""
    runtime = machine.open("T")
    spec = {"map": MapSpec(("work",), list=tuple(KEYS), shard=2)}
    runtime.add_node("B", "units", spec=None, **spec)
    machine.acknowledge()
    units = Units({"total": len(KEYS), "sha256": inventory_digest(KEYS)}, 0)
    work.start(runtime.engine, "B", units=lambda node: units)
    machine.acknowledge()
    ended(machine, runtime, KEYS[:2], "landed", landed=2)
    for end in ("silent", "killed", "timed_out"):
        ended(machine, runtime, KEYS[2:4], end)
    late = sent(machine, runtime, KEYS[2:4])
    runtime.engine.execute(d.Suspect(late, 900.0, 600.0, "three times the median"))
    closed(machine, runtime, late, "landed", landed=2)
    runtime.engine.execute(d.RecordLate("B", late, landed=1, why="it came back"))
    for _ in range(2):
        ended(machine, runtime, KEYS[4:6], "failed", cause="rate_limit")
    runtime.engine.execute(d.ChangeMode("C", "the probe passed", probing=True))
    machine.acknowledge()
    ended(machine, runtime, KEYS[4:6], "landed", landed=2, usage=Usage(tokens=900, cost_usd=0.5))
    runtime.engine.execute(d.ChangeMode("A", "what was sent as a probe has landed"))
    machine.acknowledge()
    sent(machine, runtime, KEYS[6:])
    death = Death("killed", True, "", "signal 9")
    failed = c.FailNode("B", "transient-agent", "signal 9", death=death)
    work.fail(runtime.engine, failed)
    machine.acknowledge()
    call(machine, runtime, "cancel", "op-1", nodes=["B"], reason="seen enough")
    runtime.close()


def sent(machine: AnyMachine, runtime: HaltRuntime, keys: Sequence[str]) -> str:
    """A worker on record, with its contract, before it is sent."""
    engine = runtime.engine
    contract = issue_slot_contract(
        engine,
        runtime.state.nodes["B"],
        units=[{"key": key, "item": key} for key in keys],
        plan=Planned(len(keys), inventory_digest(keys)),
    )
    name = contract.invocation_id
    opening = d.OpenSlot("B", name, contract.sha256, "executor:worker", len(keys))
    engine.execute(opening)
    machine.acknowledge()
    return name


def closed(
    machine: AnyMachine,
    runtime: HaltRuntime,
    name: str,
    end: SlotEnd,
    *,
    landed: int = 0,
    cause: Cause = "",
    usage: Usage | None = None,
) -> None:
    """What the disk was found to hold of it."""
    closing = d.CloseSlot(name, end, landed, 2 - landed, not landed, cause, f"seen: {end}", usage)
    runtime.engine.execute(closing)
    machine.acknowledge()


def ended(
    machine: AnyMachine,
    runtime: HaltRuntime,
    keys: Sequence[str],
    end: SlotEnd,
    *,
    landed: int = 0,
    cause: Cause = "",
    usage: Usage | None = None,
) -> None:
    """A worker that is sent and comes to this end."""
    name = sent(machine, runtime, keys)
    closed(machine, runtime, name, end, landed=landed, cause=cause, usage=usage)
