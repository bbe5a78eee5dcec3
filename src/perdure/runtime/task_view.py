"""Looking at a task: the calls of a runtime that write nothing.

Job: state, frontier, events, integrity and status of an opened workspace. Invariants: none of
these calls appends, moves or projects anything; what they say is what the journal and the disk say
at that moment.
"""

from typing import Any

from perdure.core.commands import Verdict
from perdure.core.frontier import frontier
from perdure.core.lookup import artifact_of, node_of
from perdure.core.machine import count_states
from perdure.core.model import Artifact, Node, State
from perdure.runtime.engine import Engine
from perdure.runtime.eventlog import EventLog
from perdure.runtime.evidence import verify_node
from perdure.runtime.integrity import failures, integrity_walk, judge_artifact


class TaskView:
    """The reading half of :class:`~perdure.runtime.halt.HaltRuntime`."""

    engine: Engine

    @property
    def state(self) -> State:
        """The folded journal. Read it; only commits change it."""
        return self.engine.replica.state

    @property
    def seq_last(self) -> int:
        """Number of the last event."""
        self.engine.refresh()
        return self.state.seq

    @property
    def registry(self) -> dict[str, Artifact]:
        """Artifact id to its record."""
        return self.state.artifacts

    def node(self, node_id: str) -> Node:
        """The node of this id."""
        return node_of(self.state, node_id)

    def frontier(self) -> list[str]:
        """The nodes that may start now, best first (FR-1)."""
        self.engine.refresh()
        return frontier(self.engine.replica)

    def events(self) -> EventLog:
        """Every event, read from the journal; memory does not grow with it."""
        return EventLog(self.engine.disk, self.engine.layout.journal, self.seq_last)

    def verify_node(self, node_id: str) -> Verdict:
        """What the runtime finds for a node now; changes nothing."""
        return verify_node(self.engine, node_of(self.state, node_id))

    def status(self) -> dict[str, Any]:
        """Where the task stands: plain data, computed from the journal and the disk."""
        self.engine.refresh()
        state = self.state
        walk = integrity_walk(self.engine, quick=True)
        return {
            "task_id": state.task_id,
            "goal": state.goal_statement,
            "fsm_task": state.fsm_task,
            "tier": state.tier,
            "seq_last": state.seq,
            "updated_at": state.updated_at,
            "nodes": {name: node.state for name, node in state.nodes.items()},
            "counts": count_states(state),
            "artifacts": {name: entry.path for name, entry in state.artifacts.items()},
            "frontier": frontier(self.engine.replica),
            "questions": {name: entry.text for name, entry in state.questions.items()},
            "integrity": walk,
            "all_integrity_pass": not failures(walk),
            "next_hint": state.next_hint,
        }

    def verify_artifact(self, artifact_id: str) -> bool:
        """Whether the artifact's bytes on disk are the registered ones; reads them all."""
        return judge_artifact(self.engine, artifact_of(self.state, artifact_id)).holds

    def integrity_walk(self, *, quick: bool = False) -> dict[str, str]:
        """``PASS...`` or ``FAIL...`` for each artifact that is not quarantined.

        ``quick`` trusts files whose size and modification time are as when they were hashed.
        """
        return integrity_walk(self.engine, quick=quick)
