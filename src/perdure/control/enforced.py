"""What child processes are held to, for ``perdure doctor``.

Job: say what the kernel can enforce, what was enforced for each contract in force, and which grants
leave the journal unprotected. Invariants: reads only; what a contract does not say to be enforced
was not.
"""

from typing import Any, Final

import msgspec

from perdure.control.confinement import capability
from perdure.control.executors import opened_paths
from perdure.core.grants import grants_of, opens_workspace
from perdure.core.model import CLOSED_STATES
from perdure.errors import HaltError
from perdure.runtime.contracts import task_directory
from perdure.runtime.engine import Engine

contracts_shown_max: Final = 100


class _Enforced(msgspec.Struct):
    enforcement: dict[str, Any] = {}


def enforcement_report(engine: Engine) -> dict[str, Any]:
    """The kernel's capability, the contracts in force, and nodes that may write everything."""
    state = engine.replica.state
    live = {name: (one.node, one.executor.kind) for name, one in state.contracts.items()}
    live |= {name: (slot.node, "process") for name, slot in state.slots.items()}
    contracts = [
        {"invocation": name, "node": node, "executor": kind, **_of_contract(engine, name)}
        for name, (node, kind) in list(live.items())[:contracts_shown_max]
    ]
    return {
        "kernel": capability().as_dict(),
        "contracts": contracts,
        "open": _open_nodes(engine),
    }


def _of_contract(engine: Engine, invocation: str) -> dict[str, Any]:
    try:
        data = engine.disk.read(engine.layout.contract(invocation))
        found = msgspec.json.decode(data, type=_Enforced).enforcement
    except (HaltError, msgspec.MsgspecError):
        found = {}
    return {name: found.get(name, "policy only") for name in ("writes", "network")}


def _open_nodes(engine: Engine) -> list[str]:
    """Open nodes from whose children the journal is not protected, by what they are granted."""
    root, place = engine.layout.root, task_directory(engine)
    home = engine.world.environment.get("HOME", "")
    found = []
    for node in engine.replica.state.nodes.values():
        if node.state in CLOSED_STATES:
            continue
        if opens_workspace(opened_paths(grants_of(node), root, place, home), root):
            found.append(node.node_id)
    return found
