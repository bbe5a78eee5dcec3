"""The phase of an instance, kept in step with its graph.

Job: move the instance on when the work of a phase is closed, and back when it comes open again.
Invariants: a phase is entered before anything of it starts, since its nodes wait for those before
it; every move is one event; the phase follows from the nodes, so that after an interruption it is
where the last committed unit left it (HALT-03 section 3).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from perdure.control.endings import Emit
from perdure.core.batch import inventory_digest
from perdure.core.dispatch_commands import MovePhase, RecordPlan
from perdure.core.instance import FIRST_PHASES, LAST_PHASES, PLAN, REPORT, VERIFY
from perdure.core.model import CLOSED_STATES, Node, State, id_key
from perdure.runtime.halt import HaltRuntime

sample_max: Final = 3
batches_listed_max: Final = 50


class PhaseWatch:
    """The phases of one instance while it is driven."""

    def __init__(
        self,
        runtime: HaltRuntime,
        phases: Sequence[str],
        phase_of: Mapping[str, str],
        emit: Emit,
    ) -> None:
        self._runtime = runtime
        self._phases = tuple(phases)
        self._phase_of = phase_of
        self._emit = emit
        self._left: list[str] = []
        """Nodes of the present phase that were open when somebody last looked."""

    @property
    def _state(self) -> State:
        return self._runtime.state

    def begin(self) -> None:
        """Enter the first phase, unless the instance is in one already."""
        if not self._state.phase:
            self._enter(self._phases[0], {"inputs": "validated"})

    def see(self, event: Mapping[str, Any]) -> None:
        """Look at what has happened in a run; call it after each event."""
        if event.get("event") in ("done", "graph", "failed", "ended"):
            self.advance()

    def advance(self) -> None:
        """Go as far as the graph is; ``report`` is entered by :meth:`report` alone."""
        nodes = self._state.nodes
        while self._left and _is_over(nodes[self._left[-1]]):
            self._left.pop()
        if self._left and self._state.phase not in LAST_PHASES:
            return
        open_by_phase = self._open_by_phase()
        working = [phase for phase in self._phases if open_by_phase.get(phase)]
        target = working[0] if working else VERIFY
        target = VERIFY if target == REPORT and self._state.phase != REPORT else target
        at, to = self._position(self._state.phase), self._position(target)
        if to > at:
            for phase in self._phases[at + 1 : to + 1]:
                self._enter(phase, {"nodes": len(open_by_phase.get(phase, ()))})
        elif to < at and self._is_work(target) and self._state.phase in LAST_PHASES:
            name = min(open_by_phase[target], key=id_key)
            self._enter(target, {"why": f"{name} is {nodes[name].state} again"})
        self._left = open_by_phase.get(self._state.phase, [])

    def report(self) -> None:
        """Enter the last phase: what is not done by now is a gap. Raises TransitionError else."""
        self.advance()
        for phase in self._phases[self._position(self._state.phase) + 1 :]:
            self._enter(phase, {})

    def _enter(self, phase: str, facts: dict[str, Any]) -> None:
        if phase == self._state.phase:
            return
        engine = self._runtime.engine
        with engine.batch():
            engine.execute(MovePhase(phase, facts))
            if phase == PLAN and phase != self._phases[0]:
                engine.execute(self._plan())
        self._emit({"event": "phase", "node": None, "state": phase})

    def _plan(self) -> RecordPlan:
        """The inventory of the graph: counted, with digest and sample."""
        names = sorted(self._state.nodes, key=id_key)
        by_phase: dict[str, int] = {}
        for name in names:
            phase = self._phase(self._state.nodes[name])
            by_phase[phase] = by_phase.get(phase, 0) + 1
        units = {
            "total": len(names),
            "sha256": inventory_digest(names),
            "sample": names[:sample_max],
            "phases": by_phase,
            "batches": [n for n in names if self._state.nodes[n].spec.map is not None][
                :batches_listed_max
            ],
        }
        return RecordPlan(units, f"{len(names)} nodes in {len(by_phase)} phases")

    def _open_by_phase(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for node in self._state.nodes.values():
            if not _is_over(node):
                found.setdefault(self._phase(node), []).append(node.node_id)
        return found

    def _phase(self, node: Node) -> str:
        """That of the plan; a node that came later is of the last phase of work."""
        works = [phase for phase in self._phases if self._is_work(phase)]
        return self._phase_of.get(node.node_id) or (works[-1] if works else VERIFY)

    def _is_work(self, phase: str) -> bool:
        return phase not in (*FIRST_PHASES, *LAST_PHASES)

    def _position(self, phase: str) -> int:
        return self._phases.index(phase) if phase in self._phases else -1


def _is_over(node: Node) -> bool:
    """Whether its phase need not wait for it: one that was given up waits for a successor."""
    return node.state in CLOSED_STATES and (node.state != "QUARANTINED" or bool(node.successors))
