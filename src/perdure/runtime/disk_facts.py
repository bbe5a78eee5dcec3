"""What the disk holds of a node's work at the moment it is looked at.

Job: the ``disk_facts`` of an escalation (AD-2), gathered before anything is moved away. Invariants:
reads only; what cannot be read is said and hides nothing else; bounded, however much there is.
"""

from typing import Any

from perdure.core.escalation import files_named_max
from perdure.core.lookup import contract_of
from perdure.core.machine import retry_budget
from perdure.core.model import Node
from perdure.errors import HaltError
from perdure.runtime.engine import Engine
from perdure.runtime.scope import files_below, products_among


def disk_facts(engine: Engine, node: Node) -> dict[str, Any]:
    """Files of the scope, declared outputs that are missing, the last sign of life.

    ``files`` counts what is work, ``records`` the bookkeeping of jobs and ledgers beside it.
    """
    facts: dict[str, Any] = {}
    try:
        facts |= _files(engine, node)
    except HaltError as error:
        facts["problem"] = error.message
    contract = contract_of(engine.replica.state, node)
    if contract is not None:
        beat = contract.last_beat_at
        now = engine.world.clock.now()
        facts["last_heartbeat_s"] = None if beat is None else round(max(0.0, now - beat), 1)
        facts["worked_s"] = round(max(0.0, now - contract.issued_at), 1)
    return facts


def _files(engine: Engine, node: Node) -> dict[str, Any]:
    root, disk = engine.layout.root, engine.disk
    below = files_below(engine, f"artifacts/{node.node_id}")
    products = products_among(below)
    facts: dict[str, Any] = {"files": len(products)}
    if len(below) > len(products):
        facts["records"] = len(below) - len(products)
    inside = set(below)
    owed = [path for path in node.spec.outputs or () if path not in inside]
    missing = [path for path in owed if disk.stat(f"{root}/{path}") is None]
    there = [path for path in owed if path not in missing]
    facts["named"] = [
        {"path": path, "size_bytes": stat.size_bytes}
        for path in (*there, *products)[:files_named_max]
        if (stat := disk.stat(f"{root}/{path}")) is not None
    ]
    if missing:
        facts["missing"] = missing[:files_named_max]
    return facts


def strike_facts(engine: Engine, node_id: str) -> dict[str, Any]:
    """:func:`disk_facts` when the next failure of the node is its last strike; else nothing."""
    state = engine.replica.state
    node = state.nodes.get(node_id)
    if node is None or node.method_strikes + 1 < retry_budget(state, node):
        return {}
    return disk_facts(engine, node)
