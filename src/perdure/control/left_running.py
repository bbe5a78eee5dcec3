"""What a run that was killed has left running of its commands.

Job: find it and end it before any of its nodes runs again. Invariants: only what carries an
invocation of this task and works under no contract in force is touched; it is in the journal and in
the output, by name; a node whose processes cannot be ended does not run again.
"""

from perdure.control.endings import Emit
from perdure.control.orphans import discard_records, find_orphans, stop_orphans
from perdure.core.model import CLOSED_STATES
from perdure.runtime.halt import HaltRuntime


def stop_left_running(runtime: HaltRuntime, emit: Emit) -> set[str]:
    """End it, and discard the records of what is gone; returns the nodes that still have some.

    A crash in the middle leaves the rest to the next run.
    """
    state, engine = runtime.state, runtime.engine
    live = {contract.invocation_id for contract in state.contracts.values()}
    former = {
        node.invocation: node.node_id
        for node in state.nodes.values()
        if node.invocation and node.state not in CLOSED_STATES
    }
    wanted = {name: node for name, node in former.items() if name not in live}
    orphans = find_orphans(wanted, engine.layout.runs, disk=engine.disk, running=live)
    if not orphans:
        discard_records(engine.layout.runs, disk=engine.disk, keep=live)
        return set()
    left = stop_orphans(orphans, clock=engine.world.clock)
    named = ", ".join(f"{orphan.name} ({orphan.pid})" for orphan in orphans)
    runtime.note(f"stopped what a former run had left running: {named}")
    emit(
        {
            "event": "orphans_stopped",
            "processes": [[orphan.pid, orphan.name, orphan.node] for orphan in orphans],
            "left": [[orphan.pid, orphan.name, orphan.node] for orphan in left],
        }
    )
    discard_records(engine.layout.runs, disk=engine.disk, keep=live)
    return {orphan.node for orphan in left}
