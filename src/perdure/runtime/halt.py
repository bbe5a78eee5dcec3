"""``HaltRuntime``: one task in one workspace, for a program that works on it.

Job: the public calls, each of which reads what it must from the disk and hands a command to the
engine. Invariants: every call that returns has committed what it says; every refusal is a
HaltError and leaves the workspace as it was; work is never lost by closing late or not at all.
"""

import os
import weakref
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import msgspec

from perdure.core import commands as c
from perdure.core.events import Event
from perdure.core.frontier import frontier
from perdure.core.lookup import artifact_of, node_of
from perdure.core.model import (
    Artifact,
    Effect,
    Node,
    Policies,
    ResumePolicy,
    Spec,
    State,
    VerificationLevel,
)
from perdure.runtime import work
from perdure.runtime.calls import ingest
from perdure.runtime.engine import Committed, Engine
from perdure.runtime.eventlog import EventLog
from perdure.runtime.evidence import read_back, read_commit, verify_node
from perdure.runtime.integrity import integrity_walk, judge_artifact
from perdure.runtime.opening import open_for_work
from perdure.runtime.recover import Recovered
from perdure.runtime.specs import make_spec
from perdure.runtime.world import World, real_world


class HaltRuntime:
    """The coordinator of one task, for as long as the object lives.

    Opening takes the lease first, then recovers (R0 to R7): whatever a crash left is repaired
    before the constructor returns, and ``recovered`` says what was found. A second process is
    refused (LeaseHeldError); a second object in this process takes over, and the first one's next
    call is refused (FencedError). A process that dies without ``close`` needs no clean-up: the
    next one takes over at once.
    """

    def __init__(
        self,
        workspace: str | os.PathLike[str],
        task_id: str | None = None,
        *,
        goal: str = "",
        acceptance: Iterable[str] = (),
        tier: int = 1,
        actor: str = "coordinator:main",
        policies: Policies | None = None,
        people: Mapping[str, Any] | None = None,
        standing_authorities: Iterable[str] = (),
        source: Mapping[str, Any] | None = None,
        world: World | None = None,
        take_over_sessions: bool = True,
    ) -> None:
        """Create the task in a new directory, or do what ``resume`` does on an existing one."""
        start = None
        if task_id is not None:
            start = c.StartTask(
                task_id,
                goal,
                tuple(acceptance),
                tier,
                policies or Policies(),
                dict(people or {}),
                tuple(standing_authorities),
                dict(source or {}),
            )
        engine = Engine(os.path.abspath(os.fspath(workspace)), world or real_world(), actor)
        self.recovered: Recovered = open_for_work(
            engine, start, task_id, take_over_sessions=take_over_sessions
        )
        self._bind(engine)

    def _bind(self, engine: Engine) -> None:
        self.engine = engine
        if engine.lease is not None:
            engine.ingest = ingest
            try:
                engine.tick()
            except BaseException:
                engine.close()
                raise
        # The hook holds the engine, not this object, so dropping the object closes it.
        self._closer = weakref.finalize(self, engine.close)

    @classmethod
    def resume(
        cls,
        workspace: str | os.PathLike[str],
        *,
        actor: str = "coordinator:main",
        world: World | None = None,
    ) -> Self:
        """Open an existing workspace from its journal alone, and take over whatever was left."""
        return cls(workspace, actor=actor, world=world)

    @classmethod
    def attach(
        cls,
        workspace: str | os.PathLike[str],
        *,
        actor: str = "executor:main",
        world: World | None = None,
    ) -> Self:
        """Open an existing workspace without coordinating it.

        Reading calls take no lock. Writing calls take it for one commit each, so that many
        processes may write by turns; while a coordinator holds the lease they are refused
        (LeaseHeldError). Nothing is recovered but a torn tail.
        """
        runtime = cls.__new__(cls)
        engine = Engine(os.path.abspath(os.fspath(workspace)), world or real_world(), actor)
        engine.load()
        runtime.recovered = Recovered()
        runtime._bind(engine)
        return runtime

    def close(self) -> None:
        """Write the projections and give the lease back. Harmless when it was done before."""
        self._closer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # The graph

    def add_node(
        self,
        node_id: str,
        title: str,
        *,
        deps: Iterable[str] = (),
        spec: Spec | None = None,
        priority: int = 0,
        verification_level: VerificationLevel = "V1",
        resume_policy: ResumePolicy = "reverify_if_amended",
        effect: Effect = "S0",
        successor_of: str | None = None,
        op: str | None = None,
        **fields: Any,
    ) -> Event:
        """Extend the graph by a node. ``fields`` are those of a spec, such as ``outputs``.

        Returns the AMENDMENT event. Refused: an id that exists (TG-3), unknown deps, a path that
        leaves the workspace (PL-4), unknown fields (with a suggestion).
        """
        spec = make_spec(node_id, spec, fields)
        command = c.AddNode(
            node_id,
            title,
            tuple(deps),
            spec,
            priority,
            verification_level,
            resume_policy,
            effect,
            successor_of,
        )
        return self._event(self.engine.execute(command, op=op), "AMENDMENT", node_id)

    def amend_node(self, node_id: str, reason: str, **after: Any) -> Event:
        """Change a node that is neither at work nor closed, by an AMENDMENT (TG-1)."""
        if "spec" in after:
            after["spec"] = msgspec.to_builtins(after["spec"])
        return self._event(self.engine.execute(c.AmendNode(node_id, after, reason)))

    # Work

    def transition(
        self,
        node_id: str,
        to: str,
        evidence: str | Iterable[str] | None = None,
        **payload: Any,
    ) -> Event:
        """Take one edge of FSM-N. Returns the event of the move.

        To RUNNING: a contract is issued first. To DONE: the runtime verifies the node itself, from
        the disk, in this call; refused without evidence (PD-J1), and CheckFailedError, with the
        node left where it is, when a check fails. An illegal move names what is possible.
        """
        refs = (evidence,) if isinstance(evidence, str) else tuple(evidence or ())
        if to == "RUNNING":
            started = work.start(self.engine, node_id, payload=payload, evidence=refs)
            return self._event(started, "STATE_TRANSITION", node_id)
        if to == "DONE":
            done = work.conclude(self.engine, node_id, refs)
            return self._event(done, "STATE_TRANSITION", node_id)
        command = c.MoveNode(node_id, to, refs, payload)
        return self._event(self.engine.execute(command), "STATE_TRANSITION", node_id)

    def start(
        self, node_id: str, *, session: bool = False, reason: str = "", op: str | None = None
    ) -> Committed:
        """Issue a contract and set the node RUNNING, from the frontier (N02, N11).

        The contract lives as long as this process, or with ``session`` until its time runs out
        without a sign of life. Unregistered files that an earlier attempt left are moved to
        ``tmp/recovered`` first.
        """
        return work.start(self.engine, node_id, session=session, reason=reason, rank=True, op=op)

    def submit(
        self,
        node_id: str,
        evidence: str | Iterable[str] = (),
        *,
        check: bool = True,
        op: str | None = None,
    ) -> Committed:
        """Claim completion (N03) and let the runtime verify it (N06, N07 or N08).

        Files of the declared outputs that are on disk are registered first. Refused (PD-J1), with
        the node left RUNNING, when an output is missing.
        """
        refs = (evidence,) if isinstance(evidence, str) else tuple(evidence)
        return work.submit(self.engine, node_id, refs, check=check, op=op)

    def check(self, node_id: str, *, op: str | None = None) -> tuple[c.Verdict, Committed | None]:
        """Verify a node from the disk. VERIFYING moves on by the verdict; other states only tell."""
        return work.check(self.engine, node_id, op=op)

    def fail(
        self,
        node_id: str,
        failure_class: str,
        signature: str,
        *,
        detail: str = "",
        interruption: bool = False,
        op: str | None = None,
    ) -> Committed:
        """End the attempt under way as failed; the class decides what follows."""
        command = c.FailNode(node_id, failure_class, signature, detail, interruption)
        return self.engine.execute(command, op=op)

    def retry(
        self, node_id: str, reason: str, *, method: str = "", op: str | None = None
    ) -> Committed:
        """Let a node that waits for a decision go on."""
        return self.engine.execute(c.RetryNode(node_id, reason, method), op=op)

    def cancel(self, node_ids: Iterable[str], reason: str, *, op: str | None = None) -> Committed:
        """Give nodes up; their files stay."""
        return self.engine.execute(c.CancelNodes(tuple(node_ids), reason), op=op)

    def beat(
        self, node_ids: Iterable[str] = (), note: str = "", *, op: str | None = None
    ) -> Committed:
        """Say that the work on these nodes is alive; without names, on all that this actor has."""
        return work.beat(self.engine, tuple(node_ids), note, op=op)

    # Artifacts

    def register_artifact(
        self,
        artifact_id: str,
        path: str,
        kind: str = "file",
        node_id: str | None = None,
        *,
        supersedes: str | None = None,
        op: str | None = None,
    ) -> Artifact:
        """Sync, read back, hash and register a file (AR-1). An empty id is made from the node's.

        Same path and same bytes again answers with what is registered. Refused: a missing file, a
        path outside the workspace, other content on a registered path (AR-3).
        """
        with self.engine.writing():
            if node_id is not None:
                node_of(self.state, node_id)
            command = read_back(
                self.engine,
                path,
                kind,
                artifact_id=artifact_id,
                node_id=node_id,
                supersedes=supersedes,
            )
            committed = self.engine.execute(command, op=op)
            held = self.engine.replica.paths.get(command.path)
            return artifact_of(self.state, held or self._event(committed).entity.id)

    def register_commit(
        self, artifact_id: str, revision: str, repo: str, node_id: str, *, op: str | None = None
    ) -> Artifact:
        """Register a git commit as an artifact, after git itself has found it in ``repo``."""
        with self.engine.writing():
            command = read_commit(self.engine, revision, repo, artifact_id, node_id)
            committed = self.engine.execute(command, op=op)
            held = self.engine.replica.paths.get(command.path)
            return artifact_of(self.state, held or self._event(committed).entity.id)

    def verify_artifact(self, artifact_id: str) -> bool:
        """Whether the artifact's bytes on disk are the registered ones; reads them all."""
        return judge_artifact(self.engine, artifact_of(self.state, artifact_id)).startswith("PASS")

    def integrity_walk(self, *, quick: bool = False) -> dict[str, str]:
        """``PASS...`` or ``FAIL...`` for each artifact that is not quarantined.

        ``quick`` trusts files whose size and modification time are as when they were hashed.
        """
        return integrity_walk(self.engine, quick=quick)

    def attach_artifact(self, node_id: str, artifact_id: str) -> Event:
        """Count a registered artifact among a node's."""
        return self._event(self.engine.execute(c.AttachArtifact(node_id, artifact_id)))

    # Words

    def note(self, text: str, *, op: str | None = None) -> Event:
        """Journal a NOTE."""
        return self._event(self.engine.execute(c.WriteNote(text), op=op))

    def decision(self, decision_id: str, text: str, *, op: str | None = None) -> Event:
        """Journal a DECISION; an empty id is numbered."""
        return self._event(self.engine.execute(c.RecordDecision(decision_id, text), op=op))

    def steering(self, steering_id: str, text: str, *, op: str | None = None) -> Event:
        """Journal an instruction verbatim (S1); the same id again is the same instruction."""
        return self._event(self.engine.execute(c.LogSteering(steering_id, text), op=op))

    def set_hint(self, text: str) -> Event:
        """Leave the next one a line that every brief shows."""
        return self._event(self.engine.execute(c.WriteNote(text, "hint")))

    def append(
        self,
        kind: str,
        entity: Mapping[str, str],
        payload: Mapping[str, Any],
        evidence: Iterable[str] = (),
    ) -> Event:
        """Journal an event of a kind that has no call of its own (observations, receipts)."""
        command = c.AppendRaw(
            kind,
            str(entity.get("type", "task")),
            str(entity.get("id", self.state.task_id)),
            dict(payload),
            tuple(evidence),
        )
        return self._event(self.engine.execute(command))

    # The task

    def pause(self, reason: str = "", *, op: str | None = None) -> Committed:
        """Suspend at this commit boundary, with a hand-off NOTE (T04)."""
        return self.engine.execute(c.MoveTask("SUSPENDED", reason), op=op)

    def move_task(self, to: str, reason: str = "") -> Committed:
        """Take FSM-T to a state through the rows between, if their guards hold."""
        return self.engine.execute(c.MoveTask(to, reason))

    def batch(self) -> AbstractContextManager[None]:
        """Everything called inside becomes one commit: all of it or nothing."""
        return self.engine.batch()

    # Looking

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

    def verify_node(self, node_id: str) -> c.Verdict:
        """What the runtime finds for a node now; changes nothing."""
        return verify_node(self.engine, node_of(self.state, node_id))

    def status(self) -> dict[str, Any]:
        """Where the task stands: plain data, computed from the journal and the disk."""
        self.engine.refresh()
        state = self.state
        walk = integrity_walk(self.engine, quick=True)
        counts: dict[str, int] = {}
        for node in state.nodes.values():
            counts[node.state] = counts.get(node.state, 0) + 1
        return {
            "task_id": state.task_id,
            "goal": state.goal_statement,
            "fsm_task": state.fsm_task,
            "tier": state.tier,
            "seq_last": state.seq,
            "updated_at": state.updated_at,
            "nodes": {name: node.state for name, node in state.nodes.items()},
            "counts": counts,
            "artifacts": {name: entry.path for name, entry in state.artifacts.items()},
            "frontier": frontier(self.engine.replica),
            "questions": {name: entry.text for name, entry in state.questions.items()},
            "integrity": walk,
            "all_integrity_pass": all(result.startswith("PASS") for result in walk.values()),
            "next_hint": state.next_hint,
        }

    def _event(self, committed: Committed, kind: str = "", entity_id: str = "") -> Event:
        """The last event of a commit about this, or the one that had already said the same."""
        for event in reversed(committed.events):
            if kind in ("", event.kind) and entity_id in ("", event.entity.id):
                return event
        return self.events()[int(committed.ref.removeprefix("J-")) - 1]
