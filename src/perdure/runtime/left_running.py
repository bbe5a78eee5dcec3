"""What a coordinator that died has left running: found, named, ended (field case F13).

Job: for whoever opens the workspace next. Invariants: nothing is looked for where no run has died,
so that a workspace without one costs a directory listing; only what works for a node of this
workspace, or of an instance below it, and under no session's contract is touched; what is ended is
in the journal by name; a node whose former attempt still runs does not start again. A crash in the
middle leaves the marks of the run that died, and the next one goes on.
"""

from typing import NamedTuple

from perdure.core import commands as c
from perdure.core.model import Node, State
from perdure.errors import BusyError
from perdure.runtime.engine import Engine
from perdure.runtime.orphans import (
    WORKSPACE_VARIABLE,
    Orphan,
    discard_records,
    find_orphans,
    stop_orphans,
)


class LeftRunning(NamedTuple):
    """What was found of a run that died."""

    found: tuple[Orphan, ...] = ()
    left: tuple[Orphan, ...] = ()
    """Those that could not be ended."""


def announce_run(engine: Engine) -> None:
    """Leave a mark before the first child is started: if this process is killed, it is found.

    Not durable: nothing survives a loss of power anyway.
    """
    engine.disk.replace(engine.layout.run_mark, b"", durable=False)


def retract_run(engine: Engine) -> None:
    """Nothing of this run is at work any more."""
    engine.disk.unlink(engine.layout.run_mark, durable=False)


def is_marked(engine: Engine) -> bool:
    """Whether a run lives or has died here: its children may have emptied what they may write."""
    disk, layout = engine.disk, engine.layout
    return disk.stat(layout.run_mark) is not None or bool(disk.list_dir(layout.runs))


def find_left_running(engine: Engine) -> list[Orphan]:
    """What a run that died has left, by pid. Empty while a living process coordinates.

    Reads only, and looks at no process where no run has died.
    """
    if not is_marked(engine):
        return []
    if engine.lease is None and engine.lease_file.standing()[0] == "held":
        return []  # its own commands
    return _find(engine)


def _find(engine: Engine) -> list[Orphan]:
    state, layout = engine.replica.state, engine.layout
    sessions = _sessions(state)
    wanted = {
        node.invocation: node.node_id
        for node in state.nodes.values()
        if node.invocation and node.invocation not in sessions
    }
    wanted |= {name: slot.node for name, slot in state.slots.items()}
    return find_orphans(
        wanted, layout.runs, disk=engine.disk, running=sessions, workspace=layout.root
    )


def _sessions(state: State) -> set[str]:
    """Work of people and agents who were not started by a coordinator."""
    return {
        contract.invocation_id
        for contract in state.contracts.values()
        if contract.executor.kind == "session"
    }


def stop_left_running(engine: Engine) -> LeftRunning:
    """End what a run that died has left, and say so in the journal. The caller holds the lease.

    Blocks until it is gone, some seconds at most. What cannot be ended keeps its records, so that
    it is found again.
    """
    if not is_marked(engine):
        return LeftRunning()
    found = _find(engine)
    left, levels = list[Orphan](), dict[int, list[Orphan]]()
    for orphan in found:
        levels.setdefault(_level(orphan), []).append(orphan)
    for level in sorted(levels):
        # Who coordinates an instance ends before what it has started, and ends that itself: so
        # that no command seems to have failed.
        left += stop_orphans(levels[level], clock=engine.world.clock)
    if found:
        named = ", ".join(f"{orphan.name} ({orphan.pid})" for orphan in found)
        engine.execute(c.WriteNote(f"stopped what a former run had left running: {named}"))
    keep = {orphan.invocation for orphan in left}
    discard_records(engine.layout.runs, disk=engine.disk, keep=keep)
    if not left:
        retract_run(engine)
    return LeftRunning(tuple(found), tuple(left))


def _level(orphan: Orphan) -> int:
    """How many instances below the workspace a process works; 0 for one that is gone."""
    import psutil

    try:
        environment: dict[str, str] = psutil.Process(orphan.pid).environ()
    except (psutil.Error, OSError):
        return 0
    return environment.get(WORKSPACE_VARIABLE, "").count("/instances/")


def refuse_left_running(engine: Engine, node: Node) -> None:
    """Raise BusyError ``left_running`` (F13) while something of a former attempt is at work.

    Who coordinates has ended it at the opening, except what could not be ended.
    """
    if not node.invocation or not is_marked(engine):
        return
    if engine.lease is not None:
        record = engine.disk.stat(engine.layout.run_record(node.invocation))
        if record is None:
            return
    mine = [orphan for orphan in find_left_running(engine) if orphan.node == node.node_id]
    if mine:
        named = ", ".join(f"{orphan.name} ({orphan.pid})" for orphan in mine[:5])
        raise BusyError(
            f"a former attempt at {node.node_id} is still at work: {named}.",
            code="left_running",
            rule="FSN-2",
            fix="End what a dead run has left: perdure resume",
        )
