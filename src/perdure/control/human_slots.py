"""Slots that people fill: the same contract as a worker's, the same look at the disk.

Job: hand a node over to a person under a contract with a time to live, and know which of them are
still out. Invariants: nothing is launched; the work is over when the person submits it, and
verified like any other; it outlives the run that handed it over.
"""

from typing import Final

from perdure.control.endings import Emit
from perdure.core.lookup import contract_of
from perdure.core.model import Node
from perdure.runtime import work
from perdure.runtime.contracts import Terms
from perdure.runtime.engine import Engine

human_ttl_s: Final = 7 * 86_400.0
"""How long a person has, where the node's budget names no wall time."""
ANYBODY: Final = "person"


class HumanSlots:
    """The nodes of one task that people hold."""

    def __init__(self, engine: Engine, emit: Emit) -> None:
        self._engine = engine
        self._emit = emit

    def start(self, node: Node) -> None:
        """Issue the contract to whom the node names. Raises HaltError where it may not start."""
        who = node.spec.human.who if node.spec.human is not None else ""
        holder = who if ":" in who else f"executor:{who or ANYBODY}"
        ttl_s = node.spec.budget.max_wall_s or human_ttl_s
        work.start(self._engine, node.node_id, terms=Terms(holder=holder, ttl_s=ttl_s))
        node = self._engine.replica.state.nodes[node.node_id]
        self._emit(
            {
                "event": "handed_over",
                "node": node.node_id,
                "title": node.title,
                "to": holder,
                "attempt": node.attempts,
                "invocation": node.invocation,
                "contract": f"contracts/{node.invocation}.json",
            }
        )

    def open(self) -> list[str]:
        """The nodes that people hold now."""
        state = self._engine.replica.state
        return [
            node.node_id
            for node in state.nodes.values()
            if node.spec.human is not None
            and node.state == "RUNNING"
            and (contract := contract_of(state, node)) is not None
            and contract.executor.kind == "session"
        ]
