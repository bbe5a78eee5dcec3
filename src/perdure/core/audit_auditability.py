"""Items A11.1 to A11.3 of the task audit: everything can be traced and recomputed (INV-9).

Job: does each result lead back to who decided it, has each fork its reason and its authority, and
is every verdict on record itemised. Invariants: those of ``core.task_audit``; lines of an epoch are
ours and have to be complete, those of others (without one) are judged by what they have.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from perdure.core.audit_results import Tally, role_of
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.gates import gates_at, judgements
from perdure.core.model import Node
from perdure.core.payload import mapping, text
from perdure.core.provenance import edges_of
from perdure.core.task_audit import DiskFacts, Findings, Item

_REF: Final = re.compile(r"J-(\d{1,15})\Z")
_STARTS: Final = ("N02", "N11")


class WalkIsWhole(Item):
    """From every result there is a way back to who wanted it."""

    id = "A11.1"
    title = "The walk from each result to its evidence and its authority has no hole"
    rule = "INV-9"
    method = (
        "Each node that is DONE was walked back: from its N06 and the events that this cites, to"
        " the start under a contract, to the dependencies that were DONE by then (which are walked"
        " themselves), to the amendment that a replan cites, to whoever added the node (the"
        " coordinator, the sponsor, an instruction, a change of the goal), and so to"
        " INSTANCE_STARTED. A reference to an event that is not there, or is of another kind than"
        " it is cited as, is a hole; so is a typed edge, drawn by any event, that leads to an event"
        " which is not there."
    )

    def __init__(self) -> None:
        self._added: dict[str, str] = {}
        self._started: dict[str, str] = {}
        self._holes: dict[str, str] = {}
        self._done: dict[str, str] = {}
        self._answers: set[int] = set()
        self._amendments: set[int] = set()
        self._root = ""
        self._edges = 0
        self._loose: dict[str, str] = {}
        """Event to the edge it draws into nothing."""

    def see(self, event: Event, replica: Replica) -> None:
        """Remember the steps of each way, and what is missing on it."""
        self._draw(event, replica)
        if event.kind == "INSTANCE_STARTED":
            self._root = self._root or event.ref
        elif event.kind == "DECISION":
            if event.payload.get("op") == "answer":
                self._answers.add(event.seq)
        elif event.kind == "AMENDMENT":
            self._amendments.add(event.seq)
            if event.payload.get("op") == "add_node":
                node_id = text(event.payload.get("target"), event.entity.id)
                self._added.setdefault(node_id, event.ref)
                if not _may_add(event, replica):
                    self._hole(node_id, f"{event.ref} by {event.actor or 'nobody'} added it")
        elif event.kind == "STATE_TRANSITION" and event.entity.type == "node":
            self._move(event, replica)

    def _draw(self, event: Event, replica: Replica) -> None:
        """Count the typed edges of an event, and see that each end that is an event is there."""
        for edge in edges_of(event, replica):
            self._edges += 1
            for end in (edge.source, edge.target):
                number = _number(end)
                if number is not None and not 0 < number <= _end_of_commit(event):
                    self._loose[event.ref] = f"it draws {edge.kind} to {end}, which is not there"

    def _hole(self, node_id: str, why: str) -> None:
        self._holes.setdefault(node_id, why)

    def _move(self, event: Event, replica: Replica) -> None:
        payload, node_id, edge = event.payload, event.entity.id, event.payload.get("edge")
        if edge in _STARTS:
            self._started[node_id] = event.ref
            self._start(event, replica)
        elif edge == "N12":
            cited = _number(payload.get("amendment"))
            if cited not in self._amendments:
                said = text(payload.get("amendment")) or "nothing"
                self._hole(node_id, f"{event.ref} cites {said} as its amendment")
        elif edge == "RC1":
            self._done.pop(node_id, None)
        elif edge == "N06":
            self._done[node_id] = event.ref
            self._finish(event)

    def _start(self, event: Event, replica: Replica) -> None:
        nodes = replica.state.nodes
        node = nodes.get(event.entity.id)
        for dep in node.deps if node is not None else ():
            if dep not in nodes or nodes[dep].state != "DONE":
                self._hole(event.entity.id, f"{event.ref} started before {dep} was DONE")

    def _finish(self, event: Event) -> None:
        node_id, last = event.entity.id, _end_of_commit(event)
        if node_id not in self._started:
            self._hole(node_id, f"{event.ref} follows no start under a contract")
        for cited in map(text, event.evidence):
            number = _number(cited.split(" ", 1)[0])
            if number is not None and not 0 < number <= last:
                self._hole(node_id, f"{event.ref} cites {cited:.40}, which is not there")
        for gate, cited in mapping(event.payload.get("approvals")).items():
            if _number(cited) not in self._answers:
                self._hole(node_id, f"{event.ref} cites {text(cited)} as consent at {gate}")

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """A way with a hole is bad."""
        tally = Tally()
        for node_id, node in replica.state.nodes.items():
            if node.state != "DONE" or node_id not in self._done:
                continue
            why = self._holes.get(node_id, "")
            if not why and node_id not in self._added:
                why = "no event says who added it"
            way = (self._done[node_id], self._started.get(node_id, ""), self._added.get(node_id))
            tally.look(node_id, why, " from ".join(filter(None, (*way, self._root))))
        for ref, why in self._loose.items():
            tally.fail(ref, why)
        if len(tally) and not self._loose:
            tally.hold("edges", f"{self._edges} typed edges, each between what is there")
        return tally.findings("nothing is DONE by an N06")


def _number(ref: object) -> int | None:
    """The seq that a reference to an event names; None for what is none."""
    match = _REF.match(text(ref))
    return int(match[1]) if match is not None else None


def _end_of_commit(event: Event) -> int:
    """The last seq of the commit: what one event cites may stand behind it there."""
    place = event.c
    if isinstance(place, list) and len(place) == 2:
        return event.seq + max(0, place[1] - place[0])
    return event.seq


def _may_add(event: Event, replica: Replica) -> bool:
    if role_of(event.actor) in ("coordinator", "sponsor"):
        return True
    caused = text(event.payload.get("steering")) in replica.state.steering
    return caused or "goal" in event.payload


class ForksAreDecided(Item):
    """Who chose another way, and why, is on record."""

    id = "A11.2"
    title = "Every consequential fork is on record with its reason and its authority"
    rule = "INV-9"
    method = (
        "Each cancellation, retry, policy, mode, withdrawn authority, voided consent, ruling,"
        " recorded decision, acceptance and closing (DECISION), each change of the goal, each"
        " amendment, replan, split and quarantine (AMENDMENT) was read: it has to have its reason,"
        " and who decided it. Each N10 and N15 has to name a decision or an authority, each N13"
        " what replaces the node. The start of a node whose effect is delegated to a standing"
        " authority or an approval has to have one that is in force."
    )

    def __init__(self) -> None:
        self._tally = Tally()

    def see(self, event: Event, replica: Replica) -> None:
        """Read each fork when it is taken."""
        if event.kind == "STATE_TRANSITION":
            if event.entity.type == "node":
                self._move(event, replica)
            return
        needed = _needed(event)
        if needed is None or not event.epoch:
            return
        lacking = [
            name for name in needed if not any(_says(event, each) for each in name.split("|"))
        ]
        why = f"it has no {', '.join(lacking)}".replace("|", " or ") if lacking else ""
        if not why and event.kind == "GOAL_AMENDED":
            by = text(event.payload.get("authority"))
            why = "" if role_of(by) == "sponsor" else f"{by} changed the goal"
        self._tally.look(event.ref, why, text(event.payload.get("op"), event.kind))

    def _move(self, event: Event, replica: Replica) -> None:
        edge = event.payload.get("edge")
        if edge in ("N10", "N15"):
            named = _says(event, "decision") or _says(event, "authority")
            why = "" if named else f"{event.entity.id} was cancelled by no decision"
            self._tally.look(event.ref, why, f"{text(edge)} {event.entity.id}")
        elif edge == "N13":
            why = "" if _says(event, "replacement") else f"nothing replaces {event.entity.id}"
            self._tally.look(event.ref, why, f"N13 {event.entity.id}")
        elif edge in _STARTS:
            node = replica.state.nodes.get(event.entity.id)
            if node is not None and node.effect != "S0":
                self._effect(event, node, replica)

    def _effect(self, event: Event, node: Node, replica: Replica) -> None:
        own = {gate.gate_id for gate in node.spec.gates}
        own |= {gate.gate_id for _, gate in judgements(node)}
        implied = [g.gate_id for g in gates_at(replica.state, node, "start")]
        lacking = [name for name in implied if name not in own and name not in node.approvals]
        why = f"{node.node_id} ({node.effect}) started without {lacking[0]}" if lacking else ""
        by = next((node.approvals[name].ref for name in implied if name in node.approvals), "")
        self._tally.look(event.ref, why, f"{node.node_id} ({node.effect}) {by or 'as delegated'}")

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What was seen on the way."""
        return self._tally.findings("nothing but the plain course was taken")


def _says(event: Event, name: str) -> bool:
    if name == "actor":
        return bool(event.actor)
    value = event.payload.get(name)
    return bool(value.strip()) if isinstance(value, str) else bool(value)


_WHO: Final = "authority"
_DECISIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "cancel": ("rationale", _WHO),
    "retry": ("rationale", _WHO),
    "policy": ("rationale", _WHO),
    "mode": ("rationale", _WHO),
    "decision": ("rationale", _WHO),
    "revoke_authority": ("rationale", "authority|actor"),
    "void": ("rationale", "authority|actor"),
    "answer": ("ruling|answer|choice", _WHO),
    "accept_content": ("authority|actor",),
    "close_task": ("authority|actor",),
}
_AMENDMENTS: Final = frozenset(
    {
        "amend_node", "replan", "split", "quarantine_artifact", "direct_task", "correct_audit",
    }
)  # fmt: skip


def _needed(event: Event) -> tuple[str, ...] | None:
    """What an event has to say of a fork; None where it is none."""
    op = text(event.payload.get("op"))
    if event.kind == "DECISION":
        return _DECISIONS.get(op)
    if event.kind == "AMENDMENT":
        return ("reason", "actor") if op in _AMENDMENTS else None
    return ("reason", _WHO, "blast_radius") if event.kind == "GOAL_AMENDED" else None


class VerdictsAreItemised(Item):
    """A verdict can be reached again by somebody else."""

    id = "A11.3"
    title = "Every verdict and audit on record has its inputs, its method and its results"
    rule = "A-4"
    method = (
        "Each N06, N07 and N08 that tells a verdict was read: each of its checks has to name"
        " itself, its method and its inputs, and to say whether it passed. Each verdict of an"
        " auditor (NOTE ``audit``) that passes has to judge at least one point, each by itself."
        " Each task audit on record has to have items, each with its method and with results or"
        " the reason why it does not apply; one that has not is judged again by the amendment that"
        " corrects it."
    )

    def __init__(self) -> None:
        self._tally = Tally()
        self._records: dict[str, str] = {}
        self._corrected: dict[str, str] = {}

    def see(self, event: Event, replica: Replica) -> None:
        """Read each verdict, and remember the task audits."""
        payload, op = event.payload, event.payload.get("op")
        if event.kind == "STATE_TRANSITION":
            edge = payload.get("edge")
            if edge in ("N06", "N07", "N08") and _is_verdict(payload):
                self._tally.look(event.ref, _bare(payload), f"{text(edge)} {event.entity.id}")
        elif event.kind == "NOTE" and op == "audit":
            self._tally.look(event.ref, _bare_audit(payload), f"audit of {event.entity.id}")
        elif event.kind == "NOTE" and op == "task_audit":
            self._records[event.ref] = _bare_record(mapping(payload.get("record")))
        elif event.kind == "AMENDMENT" and op == "correct_audit":
            self._corrected[text(payload.get("target"))] = event.ref

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """A bare score is bad, unless an amendment corrects it."""
        tally = self._tally
        for ref, why in self._records.items():
            corrected = self._corrected.get(ref, "")
            note = why or "task audit"
            told = f"{note}; corrected by {corrected}" if corrected else note
            tally.look(ref, "" if corrected else why, told)
        return tally.findings("no verdict is on record")


def _is_verdict(payload: Mapping[str, Any]) -> bool:
    """Whether a move tells a verdict; one into DONE that tells nothing at all is for A2.3."""
    return any(name in payload for name in ("verifier", "checks", "score", "artifacts"))


def _bare(payload: Mapping[str, Any]) -> str:
    """What the verdict on a node lacks; empty when nothing."""
    checks = payload.get("checks")
    if not isinstance(checks, list | tuple) or not checks:
        return "it has no checks, item by item"
    for number, check in enumerate(checks, 1):
        entry = mapping(check)
        if not isinstance(entry.get("passed"), bool) or not text(entry.get("check")):
            return f"check {number} does not say what it is, or whether it passed"
        if not text(entry.get("method")).strip() or not isinstance(entry.get("inputs"), list):
            return f"check {number} ({text(entry.get('check'))}) has no method, or no inputs"
    return ""


def _bare_audit(payload: Mapping[str, Any]) -> str:
    items = payload.get("items")
    judged = [mapping(item) for item in items] if isinstance(items, list | tuple) else []
    if payload.get("passed") and not judged:
        return "it passes, and judges no point"
    for number, item in enumerate(judged, 1):
        if not text(item.get("point")) or not isinstance(item.get("passed"), bool):
            return f"item {number} names no point, or does not say whether it holds"
    return ""


def _bare_record(record: Mapping[str, Any]) -> str:
    items = record.get("items")
    entries = [mapping(item) for item in items] if isinstance(items, list | tuple) else []
    if not entries:
        return "the task audit has no items: a bare score is no record"
    for entry in entries:
        name = text(entry.get("item")) or "an item"
        if not text(entry.get("method")).strip():
            return f"{name} has no method"
        if not entry.get("results") and not text(entry.get("why")):
            return f"{name} has neither results nor a reason why it does not apply"
    return ""


ITEMS: Final = (WalkIsWhole, ForksAreDecided, VerdictsAreItemised)
