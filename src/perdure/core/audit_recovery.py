"""Items A3 and A4 of the task audit: recovery, and the history itself.

Invariants: as ``task_audit`` says. Torn tails are A3.4; the journal and its mirror are A4.1; bytes
that no longer count and have to be kept are A4.2.
"""

from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.model import id_key
from perdure.core.task_audit import DiskFacts, Findings, Item, Result, bad, ok

_FRAGMENT = "fragment"
_STARTS = ("N02", "N11")


class RecoveryFirst(Item):
    """After an interruption nothing starts before recovery has been through."""

    id = "A3.1"
    title = "Every takeover recovered before it started anything"
    rule = "FST-1"
    method = (
        "At the first start under each new epoch no contract of a process under an older one was"
        " still in force, and no event came from an older epoch than one before it."
    )

    def __init__(self) -> None:
        self._epoch = 0
        self._started = False
        self._results: list[Result] = []

    def see(self, event: Event, replica: Replica) -> None:
        """Watch the epochs go up, and what the first start of each finds."""
        if event.epoch and event.epoch < self._epoch:
            self._results.append(bad(event.ref, f"comes from epoch {event.epoch}, which was over"))
        elif event.epoch > self._epoch:
            self._started, first = False, not self._epoch
            self._epoch = event.epoch
            if not first:
                self._results.append(ok(event.ref, f"epoch {event.epoch}"))
        if self._started or event.payload.get("edge") not in _STARTS:
            return
        self._started = True
        left = [
            contract.node
            for contract in replica.state.contracts.values()
            if contract.executor.kind == "process" and contract.epoch < event.epoch
        ]
        if left:
            self._results.append(bad(event.ref, f"starts while {', '.join(left[:5])} is left open"))

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What was seen on the way."""
        return Findings(tuple(self._results), "nobody has ever taken over")


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
        "The findings of each batch node were read: each unit stands there once, and of a node that"
        " is DONE none is missing."
    )
    on_disk = True

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """A unit that stands twice was done twice."""
        results = []
        for name, found in sorted(disk.ledgers.items(), key=lambda entry: id_key(entry[0])):
            repeated, problem = found.get("repeated") or 0, found.get("problem") or ""
            if problem:
                results.append(bad(name, str(problem)))
            elif repeated:
                results.append(bad(name, f"{repeated} units stand more than once"))
            else:
                results.append(ok(name, f"{found.get('done', 0)} units done"))
        return Findings(tuple(results), "there is no batch node with units")


class TailsKept(Item):
    """What a crash tore off is kept and on record."""

    id = "A3.4"
    title = "Every torn tail that was cut off is kept"
    rule = "R4"
    method = "Each fragment on record was read and its sha256 compared with the record."
    on_disk = True

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """Missing and changed are bad."""
        return Findings(
            tuple(
                _kept(name, disk)
                for name, artifact in replica.state.artifacts.items()
                if artifact.kind == _FRAGMENT
            ),
            "nothing was ever torn off",
        )


def _kept(name: str, disk: DiskFacts) -> Result:
    seen = disk.artifacts.get(name)
    problem = "was not looked at" if seen is None else seen.problem
    return bad(name, problem) if problem else ok(name)


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
        state = replica.state
        results = []
        for name, artifact in state.artifacts.items():
            if artifact.status == "current" or artifact.kind == _FRAGMENT:
                continue
            heir = artifact.status.removeprefix("superseded(by:").removesuffix(")")
            if heir != artifact.status and heir not in state.artifacts:
                results.append(bad(name, f"is superseded by {heir}, which does not exist"))
            elif self._quarantined.get(name, "") in self._reopened:
                results.append(ok(name, "was gone already, which its node was done again for"))
            else:
                results.append(_kept(name, disk))
        for node in state.nodes.values():
            missing = [heir for heir in node.successors if heir not in state.nodes]
            if missing:
                results.append(bad(node.node_id, f"points to {missing[0]}, which does not exist"))
            elif node.successors:
                results.append(ok(node.node_id, f"succeeded by {', '.join(node.successors[:5])}"))
        return Findings(tuple(results), "nothing was superseded, quarantined or replaced")
