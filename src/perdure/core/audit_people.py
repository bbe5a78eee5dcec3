"""Items A9.1 to A9.3 of the task audit: people are heard, and asked (HALT-09).

Job: did every instruction go all its way, was every question on record before anything waited for
it, and does every escalation carry what it takes to decide. Invariants: those of
``core.task_audit``; silence is never consent; an instruction or an answer of others that lacks what
is needed to judge it counts for nothing.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from perdure.core.audit_results import Tally, role_of
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.gates import judgements
from perdure.core.payload import mapping, text
from perdure.core.people import FALLBACKS
from perdure.core.task_audit import DiskFacts, Findings, Item

_REF: Final = re.compile(r"\bJ-(\d{1,15})\b")
_STRONG: Final = ("amendment", "halt")
"""Readings that an instruction has to have whose sender says none."""


class _Way:
    """How far an instruction has come."""

    def __init__(self, ref: str, given: str) -> None:
        self.ref = ref
        self.given = given
        self.read = ""
        self.reading = ""
        self.acknowledged = ""
        self.caused: dict[str, str] = {}
        """Events that it has caused, with what each is about."""
        self.wrong = ""


class SteeringGoesItsWay(Item):
    """No word of a sponsor is lost on its way."""

    id = "A9.1"
    title = "Every instruction was logged, classified, propagated and acknowledged in order"
    rule = "S1"
    method = (
        "Each STEERING_LOGGED with its words was followed by its id: a DECISION ``classify`` behind"
        " it, as the sender says or in the stronger reading; a NOTE ``acknowledged`` behind that,"
        " which cites both; each event that it says was caused at a node has to be there, about"
        " that node and in the name of the instruction; and nothing may start between the words"
        " and the acknowledgement (FR-2)."
    )

    def __init__(self) -> None:
        self._ways: dict[str, _Way] = {}
        self._open: dict[str, _Way] = {}

    def see(self, event: Event, replica: Replica) -> None:
        """Follow each instruction by the events in its name."""
        payload = event.payload
        if event.kind == "STEERING_LOGGED":
            if text(payload.get("verbatim")):
                way = _Way(event.ref, text(payload.get("reading")))
                self._ways[event.entity.id] = self._open[event.entity.id] = way
            return
        if not self._open:
            return
        if event.kind == "STATE_TRANSITION" and payload.get("edge") in ("N02", "N11"):
            for way in self._open.values():
                way.wrong = way.wrong or f"{event.entity.id} started by {event.ref} before that"
        way_of = self._open.get(text(payload.get("steering")))
        if way_of is not None:
            self._follow(way_of, event)

    def _follow(self, way: _Way, event: Event) -> None:
        payload, op = event.payload, event.payload.get("op")
        if event.kind == "DECISION" and op == "classify":
            way.read, way.reading = event.ref, text(payload.get("reading"))
            if way.given and way.reading != way.given:
                way.wrong = f"it was sent as {way.given} and read as {way.reading}"
            elif not way.given and way.reading not in _STRONG:
                way.wrong = f"nobody said how it is meant, and it was read as {way.reading} (ST-1)"
        elif event.kind == "NOTE" and op == "acknowledged":
            way.acknowledged = event.ref
            way.wrong = way.wrong or _ill_acknowledged(way, payload)
            way.caused = {}
            del self._open[event.entity.id]
        else:
            way.caused[event.ref] = text(payload.get("node"), event.entity.id)

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """One that did not come all the way is bad."""
        tally = Tally()
        for name, way in self._ways.items():
            why = way.wrong
            if not way.acknowledged:
                why = why or "it is on record and was never acknowledged; `perdure resume` does"
            note = f"{way.ref}, read as {way.reading} by {way.read}, {way.acknowledged}"
            tally.look(name, why, note)
            tally.cite(way.ref, *filter(None, (way.read, way.acknowledged)))
        return tally.findings("no instruction is on record word for word")


def _ill_acknowledged(way: _Way, payload: Mapping[str, Any]) -> str:
    """What is wrong with an acknowledgement; empty when nothing is."""
    if not way.read:
        return "it was acknowledged and never classified"
    if payload.get("log") != way.ref or payload.get("reading") != way.reading:
        return "its acknowledgement is of other words or another reading"
    for node_id, what in mapping(payload.get("applied")).items():
        for number in _REF.findall(text(what)):
            about = way.caused.get(f"J-{number}")
            if about is None:
                return f"J-{number}, which is to have told {node_id}, is no event of it"
            if about != node_id:
                return f"J-{number} is about {about}, and not about {node_id}"
    return ""


class _Asked:
    """A question on record."""

    def __init__(self, ref: str, kind: str, content: str) -> None:
        self.ref = ref
        self.kind = kind
        self.content = content


class ConsentIsGiven(Item):
    """A person said yes, to this, before it happened."""

    id = "A9.2"
    title = "Questions are on record before anything waits, and silence is never consent"
    rule = "GA-2"
    method = (
        "Each N05 that waits for an answer was looked up: its question has to be asked before. Each"
        " answer has to be to a question on record, by a person who may rule where it approves, and"
        " to the very content that was asked about; what comes by default may only reject, where"
        " the gate says so. Each start and each N06 of a node with gates of its own has to have an"
        " approval in force for each of them."
    )

    def __init__(self) -> None:
        self._tally = Tally()
        self._asked: dict[str, _Asked] = {}
        self._approved: dict[tuple[str, str], str] = {}
        """Node and gate to the consent that is in force."""

    def see(self, event: Event, replica: Replica) -> None:
        """Compare at the moment of the question, the ruling and the move."""
        payload, op = event.payload, event.payload.get("op")
        if event.kind == "STATE_TRANSITION":
            if event.entity.type == "node":
                self._move(event, replica)
        elif event.kind != "DECISION":
            return
        elif op == "ask":
            asked = _Asked(event.ref, text(payload.get("kind")), text(payload.get("content")))
            self._asked[text(payload.get("question_id"), event.ref)] = asked
        elif op == "answer":
            self._answer(event)
        elif op == "void":
            self._approved.pop((text(payload.get("node")), text(payload.get("gate"))), None)

    def _answer(self, event: Event) -> None:
        payload, ruling = event.payload, event.payload.get("ruling")
        asked = self._asked.get(text(payload.get("question_id")))
        self._tally.look(event.ref, _no_consent(event, asked), f"{text(ruling)}, and it was asked")
        gate = text(payload.get("gate"))
        if gate and ruling == "approve":
            self._approved[text(payload.get("node")), gate] = event.ref
        elif gate and ruling in ("revise", "reject"):
            self._approved.pop((text(payload.get("node")), gate), None)

    def _move(self, event: Event, replica: Replica) -> None:
        edge, node_id = event.payload.get("edge"), event.entity.id
        if edge == "N05":
            awaited = text(event.payload.get("wake")).partition("answer to ")
            if awaited[1] and not awaited[0]:
                known = awaited[2] in self._asked
                why = "" if known else f"it waits for {awaited[2]}, which was never asked"
                self._tally.look(event.ref, why, f"waits for {awaited[2]}")
            return
        node = replica.state.nodes.get(node_id)
        point = {"N02": "start", "N11": "start", "N06": "done"}.get(text(edge))
        if node is None or point is None:
            return
        gates = [*node.spec.gates, *(gate for _, gate in judgements(node))]
        for name in [gate.gate_id for gate in gates if gate.blocks == point]:
            why = f"{node_id} passed gate {name}, and nobody had approved"
            held = self._approved.get((node_id, name), "")
            self._tally.look(event.ref, "" if held else why, f"gate {name}: {held}")

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What was not asked, or not consented to, is bad."""
        tally = self._tally
        for name, question in replica.state.questions.items():
            known = name in self._asked
            tally.look(name, "" if known else "it is open and on no record", question.asked_ref)
        return tally.findings("nobody was asked anything, and no gate was passed")


def _no_consent(event: Event, asked: _Asked | None) -> str:
    """Why a ruling is none; empty when it is one."""
    payload, ruling = event.payload, event.payload.get("ruling")
    if asked is None:
        return f"it answers {text(payload.get('question_id')) or 'nothing'}, which was never asked"
    if payload.get("by_default"):
        return "" if ruling == "reject" else f"silence was taken for {text(ruling)}"
    if ruling != "approve":
        return ""
    of_gate = asked.kind in ("gate", "judgement")
    takes = _RULE if of_gate else (*_RULE, "coordinator")
    if role_of(text(payload.get("authority"), event.actor)) not in takes:
        return f"{text(payload.get('authority')) or event.actor} may not approve"
    if of_gate and payload.get("content") != asked.content:
        return f"what was approved is not what {asked.ref} asks about"
    return ""


_RULE: Final = ("gatekeeper", "sponsor")


class EscalationsCarryData(Item):
    """Whoever is asked for a way out can decide by what they were sent."""

    id = "A9.3"
    title = "Escalations carry data and a safe default"
    rule = "AD-1"
    method = (
        "Each question of kind escalation has to offer options and a default which leaves things as"
        " they are. The bundle of one about a node has to name its attempts, each failed one with"
        " signature, class and event, where these events have to be failures of this node; the"
        " disk facts; and the default. One about a node that was given up or out of strikes has"
        " at least one failed attempt in it."
    )

    def __init__(self) -> None:
        self._tally = Tally()
        self._failures: dict[str, str] = {}
        """Event to the node whose attempt it ended."""

    def see(self, event: Event, replica: Replica) -> None:
        """Read each bundle when it is sent."""
        payload = event.payload
        if event.kind == "STATE_TRANSITION" and payload.get("edge") in ("N04", "N07", "N08"):
            self._failures[event.ref] = event.entity.id
        elif (payload.get("op"), payload.get("kind")) == ("ask", "escalation"):
            self._tally.look(event.ref, self._lacks(payload), text(payload.get("question_id")))

    def _lacks(self, payload: Mapping[str, Any]) -> str:
        default = text(payload.get("default"))
        if not payload.get("options") or not default:
            return "it offers no options, or no default"
        node_id = text(payload.get("node"))
        if not node_id:
            return ""
        package = mapping(payload.get("package"))
        missing = [name for name in _BUNDLE if name not in package]
        if missing:
            return f"its bundle lacks {', '.join(missing)}"
        if package.get("default_if_no_answer") != default or default not in FALLBACKS:
            return f"its default ({default}) is not a safe one, or two are named"
        return self._ill_attempts(package, node_id)

    def _ill_attempts(self, package: Mapping[str, Any], node_id: str) -> str:
        told = package.get("signatures")
        attempts = [mapping(one) for one in told] if isinstance(told, list | tuple) else []
        if not attempts and package.get("kind") in ("out_of_strikes", "verification_failed"):
            return "it names no failed attempt"
        for one in attempts:
            ref = text(one.get("event"))
            if self._failures.get(ref) != node_id:
                return f"it cites {ref or 'nothing'} as a failure of {node_id}, which it is not"
            if not text(one.get("signature")).strip():
                return f"of {ref} it does not say what was seen"
        return ""

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What was seen on the way."""
        return self._tally.findings("nothing was escalated")


_BUNDLE: Final = (
    "attempts", "failure_classes", "signatures", "disk_facts", "options", "default_if_no_answer",
)  # fmt: skip

ITEMS: Final = (SteeringGoesItsWay, ConsentIsGiven, EscalationsCarryData)
