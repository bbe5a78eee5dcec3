"""Item A5 of the task audit: who verified what, how, and on what level.

Invariants: as ``task_audit`` says. How a record is itemised is A11.3; here it is what it says.
"""

from collections.abc import Mapping
from typing import Any, Final

from perdure.core.audit_results import Tally, edge_of
from perdure.core.audits import audit_plan, lacks, producer_names
from perdure.core.authority import read_actor
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.model import VERIFICATION_LEVELS, Node, State
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
        "Each N06 was compared with what the node asked for at that moment: its level is at least"
        " the node's, V2 takes a clean audit, V3 a ruling of a person, each audit is as"
        " independent as its criterion asks (I1 always, I5 from tier 2 on), and neither the"
        " verdict nor an audit comes from the producer. Each lowering of a level was traced to"
        " the sponsor."
    )

    def __init__(self) -> None:
        self._tally = Tally()
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
            self._tally.look(event.ref, "" if by_sponsor else f"lowers {what}, unasked", what)
        self._levels[node.node_id] = node.verification_level
        if edge_of(event) == "N06" and _tells_who(event):
            note = f"{node.node_id} at {node.verification_level}"
            self._tally.look(event.ref, _misjudged(event, replica.state, node), note)

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What was seen on the way; a level that does not exist is bad."""
        for node in replica.state.nodes.values():
            if node.verification_level not in VERIFICATION_LEVELS:
                level = node.verification_level
                self._tally.fail(node.node_id, f"has no level that exists: {level!r}")
        return self._tally.findings("nothing was verified yet by anybody who is named")


def _tells_who(event: Event) -> bool:
    """Whether a verdict is one of ours, or says of itself what ours do."""
    return any(name in event.payload for name in ("edge", "verifier", "level"))


def _misjudged(event: Event, state: State, node: Node) -> str:
    """Why a verdict is not what the node asked for; empty when it is."""
    level, payload = node.verification_level, event.payload
    verifier, told = text(payload.get("verifier")), text(payload.get("level"))
    if not verifier:
        return f"it does not say who verified {node.node_id}"
    if level != "V0" and node.worker and verifier == node.worker:
        return f"{node.worker} verified its own work"
    if told and _rank(told) < _rank(level):
        return f"{node.node_id} asks for {level}, and was verified at {told}"
    found = payload.get("checks")
    checks = [mapping(entry) for entry in found] if isinstance(found, list | tuple) else []
    passed = [check for check in checks if check.get("passed") is True]
    wanted = _JUDGED_BY.get(level)
    if wanted and not any(check.get("check") == wanted for check in passed):
        return f"{node.node_id} is {level}, and no {wanted} check passed"
    audits = [check for check in passed if check.get("check") == "audit"]
    return next(filter(None, (_unfit(audit, state, node) for audit in audits)), "")


def _unfit(audit: Mapping[str, Any], state: State, node: Node) -> str:
    """Why an audit of a node decides nothing; empty when it does (VR-0 to VR-2)."""
    plan = audit_plan(state, node)
    short = lacks(plan, texts(audit.get("independence"))) if plan is not None else ()
    if short:
        return f"the audit of {node.node_id} is short of {', '.join(short)}"
    integrity = text(audit.get("integrity"), "clean")
    if integrity != "clean":
        return f"the integrity of the audit of {node.node_id} is {integrity}"
    by = text(audit.get("by"))
    if by and by.rpartition(":")[2] in producer_names(node):
        return f"{by} audited its own work"
    return ""


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
        node_id, edge = event.entity.id, edge_of(event)
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
