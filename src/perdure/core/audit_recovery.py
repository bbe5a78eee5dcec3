"""Items A3 and A4 of the task audit: recovery, and the history itself.

Invariants: as ``task_audit`` says. Torn tails are A3.4; the journal and its mirror are A4.1; bytes
that no longer count and have to be kept are A4.2.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from perdure.core.audit_results import Cited, Tally, cited_contract, contract_text
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.model import Node, State, id_key
from perdure.core.payload import mapping, text, texts
from perdure.core.task_audit import DiskFacts, Findings, Item, Seen, bad, ok

_FRAGMENT: Final = "fragment"
_STARTS: Final = ("N02", "N11")


class RecoveryFirst(Item):
    """After an interruption nothing starts before recovery has been through."""

    id = "A3.1"
    title = "Every takeover recovered before it started anything"
    rule = "FST-1"
    method = (
        "No event came from an older epoch than one before it. A takeover says the epoch that it"
        " began, and found the task in RECOVERING, or where nothing could be at work. At the first"
        " start under each new epoch no contract of a process under an older one was still in"
        " force. What a recovery reopened (RC1) was told in the same commit, and each such note"
        " lists what was found and what was repaired (R7)."
    )

    def __init__(self) -> None:
        self._epoch = 0
        self._started = False
        self._tally = Tally()
        self._untold: dict[str, str] = {}
        """Commit to the RC1 that no recovery has told of yet."""

    def see(self, event: Event, replica: Replica) -> None:
        """Watch the epochs go up, what opens each, and what the first start of each finds."""
        self._follow_epoch(event)
        edge, op = event.payload.get("edge"), event.payload.get("op")
        if event.kind == "NOTE" and op == "takeover":
            self._tally.look(event.ref, _taken_over(event, replica.state), "takeover")
        elif event.kind == "NOTE" and op == "recovered":
            self._untold.pop(event.tx or event.ref, None)
            self._tally.look(event.ref, _untold(event.payload), "recovered")
        elif edge == "RC1":
            self._untold.setdefault(event.tx or event.ref, event.ref)
        elif edge in _STARTS and not self._started:
            self._started = True
            left = _left_open(event.epoch, replica.state)
            if left:
                self._tally.fail(event.ref, f"starts while {', '.join(left[:5])} is left open")

    def _follow_epoch(self, event: Event) -> None:
        if event.epoch and event.epoch < self._epoch:
            self._tally.fail(event.ref, f"comes from epoch {event.epoch}, which was over")
        elif event.epoch > self._epoch:
            if self._epoch:
                self._tally.hold(event.ref, f"epoch {event.epoch}")
            self._epoch, self._started = event.epoch, False

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What was seen on the way; a repair that nobody told of is bad."""
        for ref in self._untold.values():
            self._tally.fail(ref, "was reopened, and no recovery says so (R7)")
        return self._tally.findings("nobody has ever taken over, and nothing was recovered")


def _taken_over(event: Event, state: State) -> str:
    """What is wrong with a takeover; empty when nothing is."""
    said = event.payload.get("epoch")
    if not text(event.payload.get("text")).strip():
        return "it does not say why the lease was taken over"
    if isinstance(said, int) and said > event.epoch:
        return f"it speaks of epoch {said}, and comes from epoch {event.epoch}"
    if state.fsm_task in ("EXECUTING", "SUSPENDED"):
        return f"the task was {state.fsm_task}, and did not go through RECOVERING"
    return ""


def _untold(payload: Mapping[str, Any]) -> str:
    """What the note of a recovery lacks (R7); empty when nothing."""
    lists = ("found", "repaired")  # a move that was ordered and not made is in the second alone
    missing = [name for name in lists if not isinstance(payload.get(name), list | tuple)]
    if not missing and not any(texts(payload.get(name)) for name in lists):
        missing = list(lists)
    return f"it does not list what was {' and '.join(missing)}" if missing else ""


def _left_open(epoch: int, state: State) -> list[str]:
    """Nodes whose process began under an older epoch, as far as the journal tells."""
    return [
        contract.node
        for contract in state.contracts.values()
        if contract.executor.kind == "process" and contract.epoch < epoch
    ]


class NothingHalf(Item):
    """A change of several events is there whole."""

    id = "A3.2"
    title = "No change of several events is left open"
    rule = "C-TX"
    method = "Each tx was followed to the event that ends it (payload.tx_end)."

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        self._closed = 0

    def see(self, event: Event, replica: Replica) -> None:
        """Open it, or close it."""
        if event.tx is None:
            return
        if event.payload.get("tx_end") is True:
            self._open.pop(event.tx, None)
            self._closed += 1
        else:
            self._open.setdefault(event.tx, event.ref)

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What is open at the end is bad."""
        results = [bad(ref, f"{tx} has no end") for tx, ref in self._open.items()]
        if self._closed:
            results.append(ok("journal.jsonl", f"{self._closed} changes of several events, whole"))
        return Findings(tuple(results), "there was no change of several events")


class UnitsOnce(Item):
    """What is proved done is not done again."""

    id = "A3.3"
    title = "No finished unit of a batch node was done again"
    rule = "INV-5"
    method = (
        "The findings of each batch node were read: each unit stands there once, none that its"
        " state.json counts is missing, and a node that is DONE has at least as many as its last"
        " contract ordered. Findings whose bytes are not those that were registered are judged by"
        " A2.2."
    )
    on_disk = True

    def __init__(self) -> None:
        self._orders: dict[str, Cited] = {}

    def see(self, event: Event, replica: Replica) -> None:
        """Remember the newest contract of each node."""
        cited = cited_contract(event)
        if cited is not None and cited.units < 0:
            self._orders[cited.node] = cited

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """A unit that stands twice was done twice; one that is missing will be."""
        tally = Tally()
        state = replica.state
        for name in sorted(disk.ledgers, key=id_key):
            node, found = state.nodes[name], disk.ledgers[name]
            if any(disk.artifacts.get(one, _UNSEEN).problem for one in _current(state, node)):
                continue
            done = found.get("done") or 0
            tally.look(name, self._wrong(node, found, done, disk), f"{done} units done")
        return tally.findings("there is no batch node with units to be judged")

    def _wrong(self, node: Node, found: Mapping[str, Any], done: int, disk: DiskFacts) -> str:
        if found.get("repeated"):
            return f"{found['repeated']} units stand more than once"
        if found.get("problem"):
            return str(found["problem"])
        order = self._orders.get(node.node_id)
        contract = contract_text(disk, order) if order is not None else None
        total = mapping((contract or {}).get("units")).get("total")
        if node.state == "DONE" and isinstance(total, int) and done < total:
            return f"it is DONE with {total} units ordered, and {done} have a finding"
        return ""


_UNSEEN: Final = Seen()


def _current(state: State, node: Node) -> list[str]:
    return [name for name in node.artifacts if state.artifacts[name].status == "current"]


class TailsKept(Item):
    """What a crash tore off is kept and on record."""

    id = "A3.4"
    title = "Every torn tail that was cut off is kept"
    rule = "R4"
    method = (
        "Each fragment on record was read and its sha256 compared with the record; it counts for"
        " nothing (quarantined). Each file that a recovery says it has set aside is one of them."
    )
    on_disk = True

    def __init__(self) -> None:
        self._set_aside: dict[str, str] = {}

    def see(self, event: Event, replica: Replica) -> None:
        """Remember what recoveries say that they have set aside."""
        if event.kind == "NOTE" and event.payload.get("op") == "recovered":
            for told in texts(event.payload.get("repaired")):
                for path in _SET_ASIDE.findall(told):
                    self._set_aside[path] = event.ref

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """Missing and changed are bad, and what is on no record."""
        tally = Tally()
        known = set()
        for name, artifact in replica.state.artifacts.items():
            if artifact.kind == _FRAGMENT:
                known.add(artifact.path)
                counts = artifact.status != "quarantined"
                why = f"it counts as {artifact.status}" if counts else _lost(name, disk)
                tally.look(name, why)
        for path, ref in self._set_aside.items():
            if path not in known:
                tally.fail(ref, f"says that {path} was set aside, and no record has it")
        return tally.findings("nothing was ever torn off")


_SET_ASIDE: Final = re.compile(r"\bset aside as (tmp/recovered/[^\s;,]+)")


def _lost(name: str, disk: DiskFacts) -> str:
    """Why an artifact is not what was registered; empty when it is."""
    seen = disk.artifacts.get(name)
    return "was not looked at" if seen is None else seen.problem


class HistoryWhole(Item):
    """The journal is what was committed to it."""

    id = "A4.1"
    title = "The journal is whole: gapless, chained, and like its mirror"
    rule = "J-1"
    method = (
        "The journal was replayed from its first byte with every sequence number and chain value;"
        " a mirror, where the tier has one, was compared with it."
    )
    on_disk = True

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """Damage, and a mirror that differs, are bad; lines of others are told."""
        whole = f"J-1 to J-{replica.state.seq}"
        if disk.unchained:
            whole += f"; {disk.unchained} lines of other writers carry no chain value"
        results = [bad("journal.jsonl", disk.damage) if disk.damage else ok("journal.jsonl", whole)]
        if disk.mirror:
            name = "journal-mirror.jsonl"
            same = disk.mirror == "whole"
            results.append(ok(name, "like the journal") if same else bad(name, disk.mirror))
        return Findings(tuple(results), inputs=("journal.jsonl",))


class NothingLost(Item):
    """What does not count any more is still there."""

    id = "A4.2"
    title = "What was superseded or quarantined is kept, and points to what followed"
    rule = "AR-2"
    method = (
        "Each superseded or quarantined artifact was read and its sha256 compared; each successor"
        " of a node, and each artifact that supersedes another, was looked up."
    )
    on_disk = True

    def __init__(self) -> None:
        self._reopened: set[str] = set()
        self._quarantined: dict[str, str] = {}

    def see(self, event: Event, replica: Replica) -> None:
        """Remember what was gone already when a recovery took it off the record (RC1)."""
        if event.payload.get("edge") == "RC1":
            self._reopened.add(event.tx or event.ref)
        elif event.payload.get("op") == "quarantine_artifact":
            self._quarantined[event.entity.id] = event.tx or event.ref

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """Bytes that are gone, and pointers to nothing, are bad."""
        tally = Tally()
        state = replica.state
        for name, artifact in state.artifacts.items():
            if artifact.status == "current" or artifact.kind == _FRAGMENT:
                continue
            heir = artifact.status.removeprefix("superseded(by:").removesuffix(")")
            if heir != artifact.status and heir not in state.artifacts:
                tally.fail(name, f"is superseded by {heir}, which does not exist")
            elif self._quarantined.get(name, "") in self._reopened:
                tally.hold(name, "was gone already, which its node was done again for")
            else:
                tally.look(name, _lost(name, disk))
        for node in state.nodes.values():
            missing = [heir for heir in node.successors if heir not in state.nodes]
            if missing:
                tally.fail(node.node_id, f"points to {missing[0]}, which does not exist")
            elif node.successors:
                tally.hold(node.node_id, f"succeeded by {', '.join(node.successors[:5])}")
        return tally.findings("nothing was superseded, quarantined or replaced")
