"""What a result says in numbers and in short: units and decisions.

Job: gather it from an instance that nothing is running for. Invariants: counted from the disk and
the journal, never from what a worker said; bounded in what it lists. Reads only.
"""

from typing import Final

from perdure.core.batch import ledger_path
from perdure.core.instance import listed_max
from perdure.core.payload import text
from perdure.core.views import cut
from perdure.errors import HaltError
from perdure.runtime.engine import Engine
from perdure.runtime.eventlog import EventLog
from perdure.runtime.probe import FirstFew, Probe
from perdure.runtime.units import NOT_COUNTED, last_statuses

_TOLD: Final = frozenset({"decision", "answer"})


def units_of(engine: Engine) -> dict[str, int]:
    """Nodes and units of the instance, by how they stand.

    Units are those of batch nodes, by the last line of each in the ledger; memory grows with the
    units of one node.
    """
    nodes = engine.replica.state.nodes
    found = {
        "nodes_total": len(nodes),
        "nodes_done": sum(node.state == "DONE" for node in nodes.values()),
        "units_total": 0,
        "units_ok": 0,
        "units_skipped_evidence": 0,
    }
    for node in nodes.values():
        if node.spec.map is None:
            continue
        statuses = [one for one in _last_statuses(engine, node.node_id) if one != NOT_COUNTED]
        found["units_total"] += len(statuses)
        found["units_ok"] += statuses.count("ok")
        found["units_skipped_evidence"] += statuses.count("skip-evidence")
    return found


def _last_statuses(engine: Engine, node_id: str) -> list[str]:
    """Of a ledger that cannot be read nothing is counted."""
    root = engine.layout.root
    probe = Probe(engine.disk, root, node_id=node_id, environment={}, timeout_s=0.0, cwd=root)
    try:
        return list(last_statuses(probe, ledger_path(node_id), FirstFew()).values())
    except HaltError:
        return []


def decisions_of(engine: Engine) -> tuple[dict[str, str], ...]:
    """The newest decisions and rulings of the instance, each by its event."""
    state = engine.replica.state
    if not state.decisions:
        return ()
    found: list[dict[str, str]] = []
    for event in EventLog(engine.disk, engine.layout.journal, state.seq):
        if event.kind == "DECISION" and event.payload.get("op") in _TOLD:
            said = event.payload.get("rationale") or event.payload.get("answer")
            choice = text(event.payload.get("choice"))
            summary = cut(": ".join(part for part in (choice, text(said)) if part))
            found = [*found, {"decision_ref": event.ref, "summary": summary}][-listed_max:]
    return tuple(found)
