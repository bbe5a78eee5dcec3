"""Items A1 and A2 of the task audit: durability, and what counts as true.

Invariants: as ``task_audit`` says. Each damage belongs to one item: a projection that is missing is
A1.1, one that says something else A2.1; a contract A1.2; a file of work A2.2, an older one A4.2.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from perdure.core.audit_results import Tally, edge_of
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.model import State
from perdure.core.payload import mapping, text
from perdure.core.task_audit import DiskFacts, Findings, Item, Result, bad, ok

_PROJECTIONS: Final = ("task-graph.json", "checkpoint.json", "artifacts/registry.json")
_told_max: Final = 5
"""Of what is wrong with one event."""


class FourArtifacts(Item):
    """All four artifacts of the task are in its workspace."""

    id = "A1.1"
    title = "Graph, journal, registry and checkpoint are in the workspace"
    rule = "C-ART"
    method = (
        "The journal was read from its first byte, and each of the three projections was looked for"
        " by its name."
    )
    on_disk = True

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """Missing is bad; what a projection says is for A2.1."""
        results = [ok("journal.jsonl", f"up to J-{replica.state.seq}")]
        for name in _PROJECTIONS:
            if disk.projections.get(name, "missing") == "missing":
                results.append(bad(name, "is missing; `perdure resume` makes it again"))
            else:
                results.append(ok(name))
        return Findings(tuple(results), inputs=("journal.jsonl", *_PROJECTIONS))


def issued(event: Event) -> tuple[str, str] | None:
    """Path and sha256 of the contract that an event cites; None when it cites none."""
    digest, path = event.payload.get("contract_sha256"), event.payload.get("contract")
    if isinstance(digest, str) and digest and isinstance(path, str):
        return path, digest
    return None


class ContractsKept(Item):
    """No work rests on words that are only in somebody's head."""

    id = "A1.2"
    title = "Every work order that was issued is in the workspace, unchanged"
    rule = "INV-1"
    method = (
        "Each contract that a start, a slot or an audit cites was read, and its sha256 compared"
        " with the one in that event."
    )
    on_disk = True

    def __init__(self) -> None:
        self._cited: dict[str, tuple[str, str]] = {}

    def see(self, event: Event, replica: Replica) -> None:
        """Remember what was issued."""
        found = issued(event)
        if found is not None:
            self._cited[found[0]] = (found[1], event.ref)

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """Missing and changed are bad."""
        results = []
        for path, (digest, ref) in self._cited.items():
            seen = disk.contracts.get(path)
            if seen is None or not seen.sha256:
                results.append(bad(path, f"cited by {ref}, is missing or cannot be read"))
            elif seen.sha256 != digest:
                results.append(bad(path, f"is not the one that {ref} cites"))
            else:
                results.append(ok(path))
        return Findings(tuple(results), "no work order was issued")


class CommitRule(Item):
    """Written, verified, committed, and only then counted."""

    id = "A1.3"
    title = "What a node was DONE with had been registered before"
    rule = "AR-1"
    method = (
        "For each N06 the artifacts that it names were looked up as the journal had them at that"
        " moment: each was registered by then, for this node, with the checksum that N06 gives, and"
        " it counted (current). An N06 that names none is judged by A2.3."
    )

    def __init__(self) -> None:
        self._tally = Tally()

    def see(self, event: Event, replica: Replica) -> None:
        """Compare at the moment of the move."""
        named = mapping(event.payload.get("artifacts"))
        if named and edge_of(event) == "N06":
            wrong = [why for why in _unregistered(named, event.entity.id, replica.state) if why]
            self._tally.look(event.ref, "; ".join(wrong[:_told_max]), event.entity.id)

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What was seen on the way."""
        return self._tally.findings("nothing is DONE yet with an artifact")


def _unregistered(named: Mapping[str, Any], node_id: str, state: State) -> Iterator[str]:
    """What is wrong with each of these artifacts; empty for one that had been registered so."""
    node = state.nodes.get(node_id)
    own = node.artifacts if node is not None else ()
    for name, digest in named.items():
        artifact = state.artifacts.get(name)
        if artifact is None or name not in own:
            yield f"{name} was not registered for {node_id}"
        elif text(digest) and artifact.integrity.value != text(digest):
            yield f"{name} was registered with another checksum"
        else:
            yield "" if artifact.status == "current" else f"{name} was {artifact.status}"


class ProjectionsFollow(Item):
    """What is computed from the journal says what the journal says."""

    id = "A2.1"
    title = "Every projection is what the journal up to it gives"
    rule = "INV-2"
    method = (
        "Each projection was compared, byte by byte, with what the events up to its own as_of give"
        " when they are replayed."
    )
    on_disk = True

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """One that lags is fine; one that was changed or torn is bad."""
        results = [
            bad(name, how) if how.startswith("wrong") else ok(name, how)
            for name, how in sorted(disk.projections.items())
            if how != "missing"
        ]
        return Findings(tuple(results), "there is no projection")


class DiskDecides(Item):
    """Work exists when its bytes do."""

    id = "A2.2"
    title = "Every artifact that counts is on disk as it was registered"
    rule = "C-TRUTH"
    method = (
        "Each current artifact was read whole and its sha256 compared with its registration; of one"
        " that is weak, its size; a commit was looked for by git."
    )
    on_disk = True

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """Missing and changed are bad."""
        results = [
            _standing(name, disk)
            for name, artifact in replica.state.artifacts.items()
            if artifact.status == "current"
        ]
        return Findings(tuple(results), "nothing is registered")


def _standing(name: str, disk: DiskFacts) -> Result:
    seen = disk.artifacts.get(name)
    if seen is None:
        return bad(name, "was not looked at")
    return bad(name, seen.problem) if seen.problem else ok(name, seen.sha256[:16])


class ClaimsMoveNothing(Item):
    """A claim alone never made anything DONE."""

    id = "A2.3"
    title = "Nothing is DONE without evidence that speaks for it"
    rule = "AX-3"
    method = (
        "Each move into DONE was read: it names an artifact, or, of a node whose spec wants no"
        " output, a check, and none of its checks has failed. Of a line of others the artifacts"
        " in its evidence count."
    )

    def __init__(self) -> None:
        self._tally = Tally()

    def see(self, event: Event, replica: Replica) -> None:
        """Read each move into DONE, when it is made."""
        of_node = event.kind == "STATE_TRANSITION" and event.entity.type == "node"
        if of_node and event.payload.get("to") == "DONE":
            self._tally.look(event.ref, _unproved(event, replica.state), event.entity.id)

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What was seen on the way."""
        return self._tally.findings("nothing is DONE")


def _unproved(event: Event, state: State) -> str:
    """Why a move into DONE rests on nothing; empty when something speaks for it."""
    node_id, checks = event.entity.id, _checks(event.payload)
    for check in checks:
        if check.get("passed") is False:
            name = text(check.get("check"), "a check")
            return f"{node_id} was DONE though its check {name} had failed"
    if mapping(event.payload.get("artifacts")) or _cites_artifact(event, state):
        return ""
    node = state.nodes.get(node_id)
    wants_none = node is not None and node.spec.outputs == ()
    if checks or event.payload.get("checks"):
        return "" if wants_none else f"{node_id} was DONE, and no artifact is named"
    return f"{node_id} was DONE, and neither an artifact nor a check is named"


def _cites_artifact(event: Event, state: State) -> bool:
    """Whether a line of others, which names no edge, has an artifact in its evidence."""
    cited = (ref for ref in event.evidence if isinstance(ref, str))
    return "edge" not in event.payload and any(ref in state.artifacts for ref in cited)


def _checks(payload: Mapping[str, object]) -> list[dict[str, object]]:
    found = payload.get("checks")
    return [mapping(entry) for entry in found] if isinstance(found, list | tuple) else []
