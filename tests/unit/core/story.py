"""A task that is lived in memory alone: commands are decided, encoded, and folded.

What the engine does with a disk, without one. ``journal`` holds the bytes that would be on it, so
that a test can replay them.
"""

from typing import Any

from perdure.core import commands as c
from perdure.core.codec import EMPTY_TIP, ChainTip, Scan, encode_commit, timestamp
from perdure.core.decide import decide
from perdure.core.events import Draft, Event
from perdure.core.fold import Replica
from perdure.core.model import Executor, Integrity, Node, Spec
from perdure.core.people import Ruling
from perdure.core.projection import seal_snapshot

ME = Executor("coordinator:main", "process", "here", "boot-1", 100, 10.0)


class Story:
    """One replica, its journal, and a clock that moves by a second with each command."""

    def __init__(
        self, task_id: str = "T1", *, begun: bool = True, allowed: tuple[str, ...] = ()
    ) -> None:
        self.replica = Replica()
        self.tip: ChainTip = EMPTY_TIP
        self.journal = b""
        self.now = 1_800_000_000.0
        self.actor = "coordinator:main"
        self.moves: list[c.FileMove] = []
        if begun:
            self.do(c.StartTask(task_id, "the goal", standing_authorities=allowed))

    # Doing

    def decide(self, command: c.Command) -> c.Decision:
        """What the command would come to; changes nothing."""
        return decide(self.replica, command, c.Context(self.now, self.actor))

    def do(self, command: c.Command, *, op: str | None = None) -> list[Event]:
        """Decide and commit; the events, none when the answer had been there before."""
        self.now += 1.0
        decision = self.decide(command)
        self.moves += decision.moves
        return self.commit(*decision.drafts, op=op) if decision.drafts else []

    def commit(self, *drafts: Draft, op: str | None = None) -> list[Event]:
        """Commit events as they are."""
        commit = encode_commit(
            self.tip, drafts, ts=timestamp(self.now), actor=self.actor, epoch=1, op=op
        )
        self.tip = commit.tip
        self.journal += commit.data
        self.replica.apply_all(commit.events)
        return list(commit.events)

    # The usual steps

    def add(self, node_id: str, *deps: str, **fields: Any) -> None:
        spec = Spec(**{k: v for k, v in fields.items() if k in Spec.__struct_fields__})
        rest = {k: v for k, v in fields.items() if k not in Spec.__struct_fields__}
        self.do(c.AddNode(node_id, f"title of {node_id}", deps, spec, **rest))

    def start(self, node_id: str, *, executor: Executor = ME) -> list[Event]:
        number = self.node(node_id).attempts + 1
        contract = c.IssuedContract(f"inv-{node_id}-{number}", "ab" * 32, executor, None, {})
        return self.do(c.MoveNode(node_id, "RUNNING", contract=contract))

    def register(self, node_id: str | None, artifact_id: str, path: str = "", **more: Any) -> None:
        path = path or f"artifacts/{node_id}/{artifact_id}.txt"
        value = more.pop("value", "ab" * 32)
        integrity = Integrity("sha256", value, 3, "2027-01-15T08:00:00.000+00:00")
        self.do(c.RegisterArtifact(artifact_id, path, "doc", integrity, node_id, **more))

    def claim(self, node_id: str) -> None:
        self.do(c.MoveNode(node_id, "VERIFYING", self.node(node_id).artifacts))

    def conclude(self, node_id: str, *, passed: bool = True) -> list[Event]:
        artifacts = dict.fromkeys(self.node(node_id).artifacts, "ab" * 32)
        diagnosis = "" if passed else "exists: it is not there"
        verdict = c.Verdict(
            passed, "verifier:v1", "V1", ({"passed": passed},), artifacts, diagnosis
        )
        return self.do(c.MoveNode(node_id, "DONE", verdict=verdict))

    def finish(self, node_id: str) -> list[Event]:
        """From wherever it may start to DONE, with one artifact."""
        self.start(node_id)
        self.register(node_id, f"A-{node_id}-{self.node(node_id).attempts}")
        self.claim(node_id)
        return self.conclude(node_id)

    def fail(self, node_id: str, kind: str = "transient-agent", **more: Any) -> list[Event]:
        return self.do(c.FailNode(node_id, kind, "exit 3", **more))

    def rule(
        self,
        question_id: str,
        ruling: Ruling,
        text: str = "",
        *,
        actor: str = "gatekeeper:ann",
        **more: Any,
    ) -> list[Event]:
        """A person rules on a question."""
        before, self.actor = self.actor, actor
        try:
            return self.do(c.AnswerQuestion(question_id, ruling, text, **more))
        finally:
            self.actor = before

    def bring_to(self, node_id: str, state: str) -> None:
        """Add a node and take it to a state by legal edges."""
        self.add(node_id)
        if state in ("RUNNING", "VERIFYING", "DONE", "RETRYABLE", "BLOCKED"):
            self.start(node_id)
        if state in ("READY", "QUARANTINED"):
            self.do(c.MoveNode(node_id, "READY"))
        if state == "VERIFYING":
            self.register(node_id, f"A-{node_id}")
            self.claim(node_id)
        elif state == "DONE":
            self.register(node_id, f"A-{node_id}")
            self.claim(node_id)
            self.conclude(node_id)
        elif state == "RETRYABLE":
            self.fail(node_id)
        elif state == "BLOCKED":
            self.do(c.MoveNode(node_id, "BLOCKED", payload={"reason": "wall", "wake": "gone"}))
        elif state == "QUARANTINED":
            self.do(c.MoveNode(node_id, state, payload={"replacement": "none"}))
        elif state == "CANCELLED":
            self.do(c.CancelNodes((node_id,), "not wanted"))

    # Looking

    def node(self, node_id: str) -> Node:
        return self.replica.state.nodes[node_id]

    def state_of(self, node_id: str) -> str:
        return self.node(node_id).state

    def events(self) -> list[Event]:
        """Every event, read from the journal's bytes."""
        return [event for events in Scan().commits([self.journal]) for event in events]

    def snapshot(self) -> bytes:
        return seal_snapshot(self.replica.state, self.tip)


def replay(journal: bytes) -> tuple[Replica, ChainTip]:
    """The replica that a journal's bytes alone give, and where they end."""
    replica, scan = Replica(), Scan()
    for events in scan.commits([journal]):
        replica.apply_all(events)
    assert scan.damage is None, scan.damage
    return replica, scan.tip
