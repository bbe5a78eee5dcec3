"""Starting nodes in a run: who goes first, and what happens when one cannot start.

Job: give free slots to plain nodes, to people and to batch nodes. Invariants: the contracts of one
turn are one commit, and no child starts before that is durable; what keeps one node from starting
does not stop the others (INV-8); what has died goes behind what is untouched, as the mode of
dispatch says.
"""

from collections.abc import Callable
from functools import partial

from perdure.control.batch import BatchNodes
from perdure.control.dispatch_control import DispatchControl
from perdure.control.endings import Emit, Endings
from perdure.control.human_slots import HumanSlots
from perdure.control.outcome import signature_chars_max
from perdure.control.pacing import RetryPacing
from perdure.control.slots import CommandSlots
from perdure.core.machine import startable
from perdure.core.model import Node
from perdure.errors import HaltError
from perdure.runtime.engine import Engine


class NodeStarts:
    """What may start in one run, started."""

    def __init__(
        self,
        engine: Engine,
        endings: Endings,
        pacing: RetryPacing,
        control: DispatchControl,
        emit: Emit,
    ) -> None:
        self._engine = engine
        self._endings = endings
        self._pacing = pacing
        self._control = control
        self._emit = emit
        self.refused: dict[str, tuple[str, ...]] = {}
        """Nodes that could not be started in this run as they are: amended so far by these."""

    def hand_over(self, nodes: list[Node], humans: HumanSlots) -> None:
        """Nodes that people do take no slot."""
        for node in nodes:
            self._start_or_refuse(node, partial(humans.start, node))

    def start_plain(self, nodes: list[Node], slots: CommandSlots, free: Callable[[], int]) -> None:
        """Plain nodes, the best first; ``free`` says how many slots there are.

        What has died is looked at again when all that is untouched has its slot.
        """
        untouched = sum(not node.method_strikes for node in nodes)
        later, untouched = self._start_some(nodes, slots, free(), untouched)
        if later:
            self._start_some(later, slots, free(), untouched)

    def _start_some(
        self, nodes: list[Node], slots: CommandSlots, free: int, untouched: int
    ) -> tuple[list[Node], int]:
        """Start those that may go now: their contracts in one commit, then their children.

        Returns those that wait for others to go first, and how much untouched work is left.
        """
        self._control.report_untouched("", untouched)
        chosen: list[Node] = []
        later: list[Node] = []
        for node in nodes:
            if len(chosen) >= free:
                break
            retries = sum(node.method_strikes > 0 for node in chosen)
            if not self._control.may_retry(node.node_id, node.method_strikes, more=retries):
                later.append(node)
            elif self._is_well(node):
                chosen.append(node)
                untouched -= not node.method_strikes
        self._control.report_untouched("", untouched)
        issued: list[Node] = []
        if chosen:
            with self._engine.batch():
                for node in chosen:
                    self._start_or_refuse(node, partial(self._issue, slots, node, issued))
        for node in issued:
            self._start_or_refuse(node, partial(slots.launch, node.node_id))
        return later, untouched

    def _issue(self, slots: CommandSlots, node: Node, issued: list[Node]) -> None:
        slots.issue(node)
        issued.append(node)

    def start_batches(
        self, nodes: list[Node], batches: BatchNodes, free: Callable[[], int]
    ) -> None:
        """Batch nodes, each of which is to have a slot sooner or later."""
        for node in nodes:
            if free() <= 0 or not batches.has_room():
                return
            if self._is_well(node):
                self._start_or_refuse(node, partial(batches.start, node))

    def _is_well(self, node: Node) -> bool:
        """Whether the surroundings of a paced retry are: one cheap look (RT-1)."""
        trouble = self._pacing.probe(node)
        if trouble:
            self._emit({"event": "probe_failed", "node": node.node_id, "why": trouble})
        return not trouble

    def _start_or_refuse(self, node: Node, start: Callable[[], None]) -> None:
        try:
            start()
        except HaltError as error:
            if self._endings.ends_the_run(error):
                raise
            state = self._engine.replica.state
            if state.nodes[node.node_id].state == "RUNNING":
                why = error.message[:signature_chars_max]
                self._endings.fail(node.node_id, "permanent-resource", why, wall_s=0.0)
            elif state.fsm_task != "SUSPENDED" and startable(state, node):
                self.refused[node.node_id] = node.amended_by
                self._emit({"event": "refused", "node": node.node_id, "why": str(error)})
            # Else what holds it is on record: a gate, or a message that came in just now.
