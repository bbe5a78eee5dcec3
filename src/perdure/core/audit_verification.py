"""Item A5 of the task audit: who verified what, how, and on what level.

Invariants: as ``task_audit`` says. How a record is itemised is A11.3; here it is what it says.
"""

from typing import Final

from perdure.core.authority import read_actor
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.model import VERIFICATION_LEVELS
from perdure.core.payload import mapping, text, texts
from perdure.core.task_audit import DiskFacts, Findings, Item, Result, bad, ok
from perdure.errors import UsageError

_JUDGED_BY: Final = {"V2": "audit", "V3": "human"}
_VERDICTS: Final = ("N06", "N07", "N08")


def _rank(level: str) -> int:
    return VERIFICATION_LEVELS.index(level) if level in VERIFICATION_LEVELS else -1


class LevelsHeld(Item):
    """What was asked for of a verification is what was done."""

    id = "A5.1"
    title = "Every node was verified on its level, by who may"
    rule = "VR-1"
    method = (
        "For each N06 its checks were compared with the level of the node at that moment: V2 takes"
        " a clean audit with a fresh context (I1), V3 a ruling of a person, and the producer gives"
        " neither. Each lowering of a level was traced to the sponsor."
    )

    def __init__(self) -> None:
        self._results: list[Result] = []
        self._levels: dict[str, str] = {}
        self._rulings: set[str] = set()

    def see(self, event: Event, replica: Replica) -> None:
        """Compare at the moment of the move, and watch levels go down."""
        if event.kind == "DECISION" and _is_sponsor(event.actor):
            self._rulings.add(event.tx or event.ref)
        node = replica.state.nodes.get(event.entity.id)
        if node is None or event.entity.type != "node":
            return
        before = self._levels.get(node.node_id, node.verification_level)
        if _rank(node.verification_level) < _rank(before):
            by_sponsor = _is_sponsor(event.actor) or event.tx in self._rulings
            what = f"{node.node_id} from {before} to {node.verification_level}"
            note = ok(event.ref, what) if by_sponsor else bad(event.ref, f"lowers {what}, unasked")
            self._results.append(note)
        self._levels[node.node_id] = node.verification_level
        if event.payload.get("edge") == "N06":
            self._results.append(self._judged(event, node.verification_level, node.worker))

    def _judged(self, event: Event, level: str, worker: str) -> Result:
        wanted = _JUDGED_BY.get(level)
        verifier = text(event.payload.get("verifier"))
        if level != "V0" and worker and verifier == worker:
            return bad(event.ref, f"{worker} verified its own work")
        found = event.payload.get("checks")
        checks = [mapping(entry) for entry in found] if isinstance(found, list | tuple) else []
        if wanted is None:
            return ok(event.ref, f"{event.entity.id} at {level}")
        given = [check for check in checks if check.get("check") == wanted and check.get("passed")]
        if not given:
            return bad(event.ref, f"{event.entity.id} is {level} and no {wanted} check passed")
        if wanted == "audit" and "I1" not in texts(given[0].get("independence")):
            return bad(event.ref, f"the audit of {event.entity.id} had no fresh context (I1)")
        return ok(event.ref, f"{event.entity.id} at {level}")

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What was seen on the way; a level that does not exist is bad."""
        unknown = [
            bad(node.node_id, f"has no level that exists: {node.verification_level!r}")
            for node in replica.state.nodes.values()
            if node.verification_level not in VERIFICATION_LEVELS
        ]
        return Findings((*unknown, *self._results), "nothing was verified yet")


def _is_sponsor(actor: str) -> bool:
    try:
        return read_actor(actor).role == "sponsor"
    except UsageError:  # a role of others
        return False


class ClaimedFirst(Item):
    """The only way to a verdict is through a claim."""

    id = "A5.2"
    title = "Every verdict followed a claim of the same attempt"
    rule = "FSN-4"
    method = (
        "Each node was followed move by move: N06, N07 and N08 came from VERIFYING, which an N03 of"
        " that attempt had led to, and nothing else led to DONE."
    )

    def __init__(self) -> None:
        self._claimed: dict[str, str] = {}
        self._results: list[Result] = []

    def see(self, event: Event, replica: Replica) -> None:
        """Follow the moves."""
        if event.kind != "STATE_TRANSITION" or event.entity.type != "node":
            return
        node_id, edge = event.entity.id, text(event.payload.get("edge"))
        if edge == "N03":
            self._claimed[node_id] = event.ref
            return
        claim = self._claimed.pop(node_id, "")
        if edge in _VERDICTS and not (edge == "N08" and event.payload.get("from") != "VERIFYING"):
            if claim and event.payload.get("from") == "VERIFYING":
                self._results.append(ok(event.ref, f"{node_id}, claimed by {claim}"))
            else:
                self._results.append(bad(event.ref, f"{node_id} got {edge} without a claim (N03)"))
        elif event.payload.get("to") == "DONE":
            self._results.append(bad(event.ref, f"{node_id} became DONE by {edge or 'no edge'}"))

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What was seen on the way."""
        return Findings(tuple(self._results), "there was no verdict yet")
