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
from typing import Any, Final, Self

import msgspec

from perdure.core import commands as c
from perdure.core.dispatching import Parent
from perdure.core.events import Event
from perdure.core.lookup import artifact_of, node_of
from perdure.core.model import Artifact, Effect, Policies, ResumePolicy, Spec, VerificationLevel
from perdure.runtime import work
from perdure.runtime.batching import Committed
from perdure.runtime.calls import ingest
from perdure.runtime.engine import Engine
from perdure.runtime.evidence import read_back, read_commit
from perdure.runtime.opening import open_for_work
from perdure.runtime.recover import Recovered
from perdure.runtime.specs import make_spec
from perdure.runtime.task_plan import TaskPlan
from perdure.runtime.world import World, real_world

_NODE_FIELDS: Final = frozenset(
    {"title", "deps", "priority", "verification_level", "resume_policy", "effect"}
)


def _names(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """One name or several, or none."""
    return (given,) if isinstance(given, str) else tuple(given or ())


class HaltRuntime(TaskPlan):
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
        delegation: Mapping[str, str] | None = None,
        parent: Parent | None = None,
        sop: Mapping[str, Any] | None = None,
        world: World | None = None,
        take_over_sessions: bool = True,
    ) -> None:
        """Create the task in a new directory, or do what ``resume`` does on an existing one.

        ``parent`` and ``sop`` make a new one an instance of a procedure (SC-3).
        """
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
                dict(delegation or {}),
                msgspec.to_builtins(parent) if parent is not None else {},
                dict(sop or {}),
            )
        engine = Engine(os.path.abspath(os.fspath(workspace)), world or real_world(), actor)
        self.recovered: Recovered = open_for_work(
            engine, start, task_id, take_over_sessions=take_over_sessions
        )
        self._bind(engine)

    def _bind(self, engine: Engine) -> None:
        self.engine = engine
        engine.ingest = ingest
        if engine.lease is not None:
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
        (LeaseHeldError). Nothing is recovered but a torn tail; what people have left for the task
        is taken in before the first commit.
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
        verification_level: VerificationLevel | None = None,
        resume_policy: ResumePolicy = "reverify_if_amended",
        effect: Effect = "S0",
        successor_of: str | None = None,
        op: str | None = None,
        **fields: Any,
    ) -> Event:
        """Extend the graph by a node. ``fields`` are those of a spec, such as ``outputs``.

        Without ``verification_level`` it is what the task's tier asks: V1, at tier 2 V2.
        Returns the AMENDMENT event. Refused: an id that exists (TG-3), unknown deps, a path that
        leaves the workspace (PL-4), unknown fields (with a suggestion).
        """
        spec = make_spec(node_id, spec, fields)
        command = c.AddNode(
            node_id,
            title,
            _names(deps),
            spec,
            priority,
            verification_level,
            resume_policy,
            effect,
            successor_of,
        )
        return self._event(self.engine.execute(command, op=op), "AMENDMENT", node_id)

    def amend_node(self, node_id: str, reason: str, **fields: Any) -> Event:
        """Change a node that is neither at work nor closed, by an AMENDMENT (TG-1).

        ``fields`` are those of ``add_node``; fields of the spec that are not named stay as they
        are. A node that is RETRYABLE is READY again when its spec changes (N12).
        """
        with self.engine.writing():
            node = node_of(self.state, node_id)
            own = {name: fields.pop(name) for name in list(fields) if name in _NODE_FIELDS}
            if "deps" in own:
                own["deps"] = _names(own["deps"])
            base = fields.pop("spec", node.spec)
            if fields or base is not node.spec:
                own["spec"] = msgspec.to_builtins(make_spec(node_id, base, fields))
            amended = self.engine.execute(c.AmendNode(node_id, own, reason))
            return self._event(amended, "AMENDMENT", node_id)

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
        refs = _names(evidence)
        if to == "RUNNING":
            started = work.start(self.engine, node_id, payload=payload, evidence=refs)
            return self._event(started, "STATE_TRANSITION", node_id)
        if to == "DONE":
            done = work.conclude(self.engine, node_id, refs)
            return self._event(done, "STATE_TRANSITION", node_id)
        moved = work.move(self.engine, c.MoveNode(node_id, to, refs, payload))
        return self._event(moved, "STATE_TRANSITION", node_id)

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
        return work.submit(self.engine, node_id, _names(evidence), check=check, op=op)

    def check(self, node_id: str, *, op: str | None = None) -> tuple[c.Verdict, Committed | None]:
        """Verify a node from the disk. One that is VERIFYING moves on by the verdict."""
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
        return work.fail(self.engine, command, op=op)

    def retry(
        self, node_id: str, reason: str, *, method: str = "", op: str | None = None
    ) -> Committed:
        """Let a node that waits for a decision go on."""
        return self.engine.execute(c.RetryNode(node_id, reason, method), op=op)

    def receipt(
        self, node_id: str, proof: str, *, receipt_id: str = "", op: str | None = None
    ) -> Event:
        """Journal the proof of a node's external effect; a node held for it is READY again."""
        command = c.RecordReceipt(node_id, proof, receipt_id)
        return self._event(self.engine.execute(command, op=op), "RECEIPT", node_id)

    def cancel(self, node_ids: Iterable[str], reason: str, *, op: str | None = None) -> Committed:
        """Give nodes up; their files stay."""
        return self.engine.execute(c.CancelNodes(tuple(node_ids), reason), op=op)

    def beat(
        self,
        node_ids: Iterable[str] = (),
        note: str = "",
        *,
        ok: bool = True,
        facts: Mapping[str, str] | None = None,
        op: str | None = None,
    ) -> Committed:
        """Say that the work on these nodes is alive; without names, on all that this actor has.

        Of an executor ``ok`` counts for supervision: as a sign of progress, or as an error of it.
        """
        return work.beat(self.engine, tuple(node_ids), note, ok=ok, facts=facts, op=op)

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
            return self._register(command, op)

    def register_commit(
        self, artifact_id: str, revision: str, repo: str, node_id: str, *, op: str | None = None
    ) -> Artifact:
        """Register a git commit as an artifact, after git itself has found it in ``repo``."""
        with self.engine.writing():
            command = read_commit(self.engine, revision, repo, artifact_id, node_id)
            return self._register(command, op)

    def _register(self, command: c.RegisterArtifact, op: str | None) -> Artifact:
        committed = self.engine.execute(command, op=op)
        held = self.engine.replica.paths.get(command.path)
        return artifact_of(self.state, held or self._event(committed).entity.id)

    def attach_artifact(self, node_id: str, artifact_id: str) -> Event:
        """Count a registered artifact among a node's."""
        return self._event(self.engine.execute(c.AttachArtifact(node_id, artifact_id)))

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
