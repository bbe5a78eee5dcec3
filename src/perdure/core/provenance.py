"""Typed edges between what a journal speaks of, and the way back from a result (INV-9).

Job: read from each event which edges it draws (DEPENDS_ON, SUPERSEDES, INVALIDATES, SUPPORTS,
DERIVED_FROM), keep the facts that they rest on, and walk from anything to who decided it, on whose
evidence, under which authority. Invariants: pure; an edge names the event that drew it; what is
kept grows with nodes, artifacts and decisions and not with heartbeats and notes; a walk ends,
whatever the edges say. It judges nothing: what is invalidated is marked, not left out.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from perdure.core.closing import EDGE_KINDS, EdgeKind
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.instance import path_of
from perdure.core.payload import mapping, text, texts
from perdure.core.views import cut

said_chars_max: Final = 200
said_in_full_max: Final = 4_000
derived_max: Final = 12
"""Artifacts of one dependency that a result is derived from by name; of more, from the node."""
GOAL: Final = "goal"
"""What a walk calls the goal of the task."""


class Edge(NamedTuple):
    """``source`` KIND ``target``, as the event ``ref`` says. Both are ids, refs or paths."""

    kind: EdgeKind
    source: str
    target: str
    ref: str


class Fact(NamedTuple):
    """One event, as far as the way back needs it."""

    ref: str
    at: str
    actor: str
    what: str
    """In a few words, what it did."""
    subject: str
    """The id of what it is about."""
    said: str = ""
    """Its reason, in its own words."""
    authority: str = ""
    """By whose right, where the event names somebody besides its actor."""
    evidence: tuple[str, ...] = ()


_MOVES: Final = {
    "N02": "started", "N11": "started again", "N03": "claimed", "N04": "attempt ended",
    "N05": "blocked", "N06": "verified and DONE", "N07": "verification failed",
    "N08": "quarantined", "N09": "freed", "N10": "cancelled", "N12": "replanned",
    "N13": "obsolete", "N15": "cancelled", "RC1": "taken back: its files are gone",
    "T10": "archived",
}  # fmt: skip
_DECIDED: Final = {
    "ask": "asked", "answer": "ruled on", "void": "approval void", "cancel": "cancelled",
    "retry": "let go on", "policy": "policy changed", "revoke_authority": "authority revoked",
    "mode": "dispatch changed", "accept_content": "content accepted", "close_task": "closed",
    "classify": "read", "decision": "decided",
}  # fmt: skip


def fact_of(event: Event, said_max: int = said_chars_max) -> Fact | None:
    """What the way back needs of an event; None for one that nothing is decided by."""
    payload, kind = event.payload, event.kind
    op = text(payload.get("op"))
    what, subject = "", event.entity.id
    if kind == "INSTANCE_STARTED":
        what = "task created"
    elif kind == "INSTANCE_ENDED":
        what = "task ended"
    elif kind == "STATE_TRANSITION":
        what = _MOVES.get(text(payload.get("edge")), "")
    elif kind == "ARTIFACT_REGISTERED":
        what = "registered"
    elif kind == "AMENDMENT":
        what = {"add_node": "planned", "amend_node": "amended", "split": "split"}.get(op, op)
        subject = text(payload.get("target"), subject)
    elif kind == "DECISION":
        what = _DECIDED.get(op, "")
        if op == "answer" and payload.get("by_default") is True:
            what = "settled by its default, as nobody answered"
        named = (text(payload.get(name)) for name in _SUBJECTS)
        subject = next(filter(None, named), subject)
    elif kind == "GOAL_AMENDED":
        what, subject = "goal changed", GOAL
    elif kind in ("RECEIPT", "STEERING_LOGGED"):
        what = "effect proved" if kind == "RECEIPT" else "instructed"
    elif kind == "NOTE":
        what = {"audit": "audited", "acknowledged": "acknowledged", "task_audit": "task audited",
                "handoff": "handed off"}.get(op, "")  # fmt: skip
    return _fact(event, what, subject, said_max) if what else None


_SUBJECTS: Final = ("question_id", "id", "name")
"""What a decision is about, where its event says so: a question, itself, a policy or authority."""


def any_fact(event: Event, said_max: int = said_chars_max) -> Fact:
    """The same of any event, also of one that decides nothing."""
    found = fact_of(event, said_max)
    if found is not None:
        return found
    op = text(event.payload.get("op"))
    return _fact(event, f"{event.kind} {op}".strip().lower(), event.entity.id, said_max)


_SAYS: Final = (
    "rationale", "reason", "verbatim", "question", "answer", "why", "diagnosis", "detail",
    "signature", "proof", "text", "goal", "path",
)  # fmt: skip


def _fact(event: Event, what: str, subject: str, said_max: int) -> Fact:
    payload = event.payload
    said = _of_the_move(payload) or next(
        (text(payload.get(name)) for name in _SAYS if text(payload.get(name))), ""
    )
    verifier = text(payload.get("verifier"))
    authority = verifier or text(payload.get("authority"))
    return Fact(
        event.ref,
        event.ts,
        event.actor,
        what,
        subject,
        cut(" ".join(said.split()), said_max),
        "" if authority == event.actor else authority,
        tuple(ref for ref in map(text, event.evidence) if ref),
    )


def _of_the_move(payload: Mapping[str, Any]) -> str:
    """What matters of a start and of a verdict."""
    edge = payload.get("edge")
    if edge in ("N02", "N11"):
        executor = mapping(payload.get("executor"))
        return f"{text(payload.get('contract'))}, {text(executor.get('actor'))}"
    checks = payload.get("checks")
    if edge in ("N06", "N07", "N08") and isinstance(checks, list | tuple):
        passed = sum(mapping(check).get("passed") is True for check in checks)
        return f"{passed} of {len(checks)} checks passed at {text(payload.get('level'), 'V1')}"
    return ""


# Edges


def edges_of(event: Event, replica: Replica) -> list[Edge]:
    """The edges that an event draws; ``replica`` has it folded in already."""
    drawn = [Edge(*edge, event.ref) for edge in _drawn(event, replica)]
    return [edge for edge in drawn if edge.source and edge.target and edge.source != edge.target]


_Drawn = Iterator[tuple[EdgeKind, str, str]]


def _drawn(event: Event, replica: Replica) -> _Drawn:
    reader = _EDGES.get(event.kind)
    if reader is not None:
        yield from reader(event, event.payload, replica)


def _of_amendment(event: Event, payload: Mapping[str, Any], replica: Replica) -> _Drawn:
    op, target = payload.get("op"), text(payload.get("target"), event.entity.id)
    after = mapping(payload.get("after"))
    if op in ("add_node", "amend_node"):
        for dep in texts(after.get("deps")):
            yield "DEPENDS_ON", target, dep
        yield "SUPERSEDES", target, text(after.get("successor_of"))
        for cause in ("steering", "goal"):
            yield "DERIVED_FROM", target, text(payload.get(cause))
    elif op in ("replan", "split"):
        for heir in texts(after.get("successors")):
            yield "SUPERSEDES", heir, target
    elif op == "quarantine_artifact":
        yield "INVALIDATES", event.ref, target
    elif op == "supersede_artifact":
        yield "SUPERSEDES", text(payload.get("by")), target
    elif op == "attach_artifact":
        yield "SUPPORTS", text(payload.get("artifact")), target
    elif op == "correct_audit":
        yield "SUPERSEDES", event.ref, target


def _of_artifact(event: Event, payload: Mapping[str, Any], replica: Replica) -> _Drawn:
    name, node_id = event.entity.id, text(payload.get("produced_by_node"))
    yield "DERIVED_FROM", name, node_id
    yield "DERIVED_FROM", name, _contract(text(payload.get("produced_by_invocation")))
    for old in texts(payload.get("supersedes")):
        yield "SUPERSEDES", name, old
    node = replica.state.nodes.get(node_id)
    if node is not None:
        for dep in node.deps:
            for source in _made_by(dep, replica):
                yield "DERIVED_FROM", name, source
        for source in node.spec.inputs:
            yield "DERIVED_FROM", name, _known_as(source, replica)


def _made_by(node_id: str, replica: Replica) -> list[str]:
    """What is current of a node's artifacts; the node itself where those are too many to name,
    since each of its results goes back to each of theirs."""
    node = replica.state.nodes.get(node_id)
    if node is None or len(node.artifacts) > derived_max:
        return [node_id]
    known = replica.state.artifacts
    return [name for name in node.artifacts if name in known and known[name].status == "current"]


def _known_as(source: str, replica: Replica) -> str:
    """An input by the id of its artifact where it is one; else as the spec calls it."""
    parts = source.split("/")
    maker = replica.state.nodes.get(parts[1]) if len(parts) > 2 else None
    for name in maker.artifacts[:derived_max] if maker is not None else ():
        artifact = replica.state.artifacts.get(name)
        if artifact is not None and artifact.path == source:
            return name
    return source


def _contract(invocation: str) -> str:
    return f"contracts/{invocation}.json" if invocation else ""


_STARTS: Final = ("N02", "N11")
_ENDS: Final = frozenset({"N08", "N10", "N13", "N15", "RC1"})


def _of_move(event: Event, payload: Mapping[str, Any], replica: Replica) -> _Drawn:
    node_id, edge = event.entity.id, text(payload.get("edge"))
    node = replica.state.nodes.get(node_id)
    if edge in _STARTS and node is not None and node.effect == "S3":
        if {"*", node_id} & set(replica.state.standing_authorities):
            yield "SUPPORTS", "J-1", node_id  # where the authority was given
    elif edge == "N06":
        for artifact in mapping(payload.get("artifacts")):
            yield "SUPPORTS", artifact, node_id
        for approval in node.approvals.values() if node is not None else ():
            yield "SUPPORTS", approval.ref, node_id
        if node is not None and node.audit is not None:
            yield "SUPPORTS", node.audit.ref, node_id
        if node is not None and node.spec.sop is not None and node.child_ref:
            yield "DERIVED_FROM", node_id, path_of(node.child_ref)
    elif edge in _ENDS:
        yield "INVALIDATES", event.ref, node_id


def _of_decision(event: Event, payload: Mapping[str, Any], replica: Replica) -> _Drawn:
    op, name = payload.get("op"), text(payload.get("id"), event.ref)
    if op == "answer":
        yield "SUPPORTS", event.ref, text(payload.get("question_id"))
    elif op == "ask":
        yield "DERIVED_FROM", text(payload.get("question_id")), text(payload.get("node"))
    elif op == "void":
        yield "INVALIDATES", event.ref, text(payload.get("approval"))
    elif op == "cancel":
        for node_id in texts(payload.get("nodes")):
            yield "INVALIDATES", name, node_id
    for entry in _listed(payload.get("edges")):
        if isinstance(entry, list | tuple) and len(entry) == 2 and entry[0] in EDGE_KINDS:
            yield entry[0], name, text(entry[1])
    for entry in _listed(payload.get("memory")):
        yield "SUPPORTS", text(mapping(entry).get("id")), name


def _listed(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _of_goal(event: Event, payload: Mapping[str, Any], replica: Replica) -> _Drawn:
    touched = mapping(payload.get("blast_radius"))
    for node_id in (*mapping(touched.get("failed")), *texts(touched.get("superseded"))):
        yield "INVALIDATES", event.ref, node_id


def _of_note(event: Event, payload: Mapping[str, Any], replica: Replica) -> _Drawn:
    op = payload.get("op")
    if op == "audit":
        kind: EdgeKind = "SUPPORTS" if payload.get("passed") is True else "INVALIDATES"
        yield kind, event.ref, event.entity.id
    elif op == "acknowledged":
        for node_id in texts(payload.get("recalled")):
            yield "INVALIDATES", event.entity.id, node_id
        yield "DERIVED_FROM", event.entity.id, text(payload.get("same_as"))
    elif op == "slot_closed" and payload.get("landed"):
        yield "DERIVED_FROM", text(payload.get("node")), _contract(event.entity.id)


def _of_receipt(event: Event, payload: Mapping[str, Any], replica: Replica) -> _Drawn:
    yield "SUPPORTS", event.ref, text(payload.get("node"), event.entity.id)


_EDGES: Final = {
    "AMENDMENT": _of_amendment,
    "ARTIFACT_REGISTERED": _of_artifact,
    "STATE_TRANSITION": _of_move,
    "DECISION": _of_decision,
    "GOAL_AMENDED": _of_goal,
    "NOTE": _of_note,
    "RECEIPT": _of_receipt,
}


class Provenance:
    """Edges and facts of a journal, taken in event by event.

    ``said_max`` bounds what is kept of the words of one event, in characters.
    """

    def __init__(self, said_max: int = said_chars_max) -> None:
        self._said_max = said_max
        self._goal = ""
        self.facts: dict[str, Fact] = {}
        """By the ref of their event."""
        self.about: dict[str, list[str]] = {}
        """Id of a subject to the refs of its facts, oldest first."""
        self.edges_from: dict[str, list[Edge]] = {}
        self.edges_to: dict[str, list[Edge]] = {}
        self.gates: dict[str, str] = {}
        """Gate id to the question that was asked at it last."""
        self.cited: dict[str, tuple[str, str]] = {}
        """Entry of a memory store to its store, and what was the matter with it when a decision
        cited it last."""

    def see(self, event: Event, replica: Replica) -> None:
        """Take one event in; ``replica`` has it folded in already."""
        fact = fact_of(event, self._said_max)
        if fact is not None:
            self.add(fact)
        for edge in edges_of(event, replica):
            self._draw(edge)
        payload, kind = event.payload, event.kind
        if kind == "DECISION":
            self._take_names(event, payload)
        elif kind == "STATE_TRANSITION" and payload.get("edge") in _STARTS:
            self.about.setdefault(text(payload.get("contract")), []).append(event.ref)
        elif kind == "GOAL_AMENDED":
            if self._goal:
                self._draw(Edge("SUPERSEDES", event.ref, self._goal, event.ref))
            self._goal = event.ref

    def _draw(self, edge: Edge) -> None:
        self.edges_from.setdefault(edge.source, []).append(edge)
        self.edges_to.setdefault(edge.target, []).append(edge)

    def _take_names(self, event: Event, payload: Mapping[str, Any]) -> None:
        """What a decision can be found by besides its id."""
        op = payload.get("op")
        if op == "ask" and text(payload.get("gate")):
            self.gates[text(payload.get("gate"))] = text(payload.get("question_id"))
        elif op == "slot":
            self.add(any_fact(event, self._said_max))
            self.about.setdefault(text(payload.get("contract")), []).append(event.ref)
        for entry in map(mapping, _listed(payload.get("memory"))):
            flags = ", ".join(texts(entry.get("flags")))
            self.cited[text(entry.get("id"))] = (text(entry.get("store")), flags)

    def add(self, fact: Fact) -> None:
        """Take in one fact, such as that of an event which is asked about itself."""
        if fact.ref not in self.facts:
            self.facts[fact.ref] = fact
            self.about.setdefault(fact.subject, []).append(fact.ref)

    def invalidated_by(self, name: str) -> list[str]:
        """The events that say that this does not count any more, oldest first."""
        return [edge.ref for edge in self.edges_to.get(name, ()) if edge.kind == "INVALIDATES"]

    def superseded_by(self, name: str) -> list[str]:
        """What came in its place."""
        heirs = [edge.source for edge in self.edges_to.get(name, ()) if edge.kind == "SUPERSEDES"]
        return list(dict.fromkeys(heirs))
