"""What the items of the task audit share: a list of results, and what an event cites.

Job: gather the results of one item in order, and read from an event the contract it puts in force,
and the edge that it takes.
Invariants: pure; nothing is looked at twice under one name unless it failed twice; a contract whose
bytes are not those that were cited is nobody's to judge but A1.2's.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from perdure.core.events import Event
from perdure.core.machine import node_edge
from perdure.core.payload import text
from perdure.core.task_audit import DiskFacts, Findings, Result


class Tally:
    """The results of one item, as it comes upon them."""

    def __init__(self) -> None:
        self._results: list[Result] = []
        self._inputs: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._results)

    def hold(self, ref: str, note: str = "") -> None:
        """It is as it should be."""
        self._results.append(Result(ref, True, note))

    def fail(self, ref: str, why: str) -> None:
        """It is not, and why, as a sentence without its stop."""
        self._results.append(Result(ref, False, why))

    def look(self, ref: str, why: str, note: str = "") -> None:
        """It fails for ``why``, or holds where that is empty."""
        self._results.append(Result(ref, not why, why or note))

    def cite(self, *inputs: str) -> None:
        """Name what the verdict rests on."""
        self._inputs.update(dict.fromkeys(inputs))

    def findings(self, nothing: str) -> Findings:
        """All of it; ``nothing`` says why there is nothing to judge, where that is so."""
        why = "" if self._results else nothing
        inputs = tuple(self._inputs) or tuple(dict.fromkeys(each.ref for each in self._results))
        return Findings(tuple(self._results), why, inputs)


class Cited(NamedTuple):
    """A contract as an event cites it."""

    path: str
    sha256: str
    ref: str
    """The event."""
    node: str
    invocation: str
    units: int = -1
    """Of a worker of a batch node: how many units it was sent with."""
    units_sha256: str = ""


def cited_contract(event: Event) -> Cited | None:
    """The contract that an event puts in force; None where it cites none by its checksum.

    That is N02 or N11 for a node, and the DECISION ``slot`` for a worker of a batch node.
    """
    payload = event.payload
    path, digest = payload.get("contract"), payload.get("contract_sha256")
    if not (isinstance(path, str) and path and isinstance(digest, str) and digest):
        return None
    if event.kind == "DECISION" and payload.get("op") == "slot":
        units = payload.get("units")
        return Cited(
            path,
            digest,
            event.ref,
            text(payload.get("node")),
            event.entity.id,
            units if isinstance(units, int) else -1,
            text(payload.get("units_sha256")),
        )
    if event.kind == "STATE_TRANSITION" and payload.get("to") == "RUNNING":
        return Cited(path, digest, event.ref, event.entity.id, text(payload.get("invocation")))
    return None


def edge_of(event: Event) -> str:
    """The edge that a node takes; empty where the event is no move of a node, or of no edge.

    Others write from where to where and name no edge; then it is the row of that move.
    """
    if event.kind != "STATE_TRANSITION" or event.entity.type != "node":
        return ""
    told = text(event.payload.get("edge"))
    if told:
        return told
    row = node_edge(text(event.payload.get("from")), text(event.payload.get("to")))
    return row.id if row is not None else ""


def is_whole(disk: DiskFacts, cited: Cited) -> bool:
    """Whether the file is there with the bytes that were cited; else it is for A1.2 to say."""
    seen = disk.contracts.get(cited.path)
    return seen is not None and seen.sha256 == cited.sha256


_WHOLE: Final = frozenset({"parent", "units", "invocation_id", "message"})


def essence(contract: Mapping[str, Any]) -> dict[str, Any]:
    """What the items read of a contract: a task has very many of them, and most of each is long.

    Texts are cut, lists and mappings are there and empty, but for those that are looked into.
    """
    return {name: value if name in _WHOLE else _brief(value) for name, value in contract.items()}


def _brief(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_text_kept_chars]
    if isinstance(value, list | dict):
        return type(value)()
    return value


_text_kept_chars: Final = 80


def contract_text(disk: DiskFacts, cited: Cited) -> dict[str, Any] | None:
    """The contract, read; None where it is not the one that was cited, or is none."""
    return disk.contract_texts.get(cited.path) if is_whole(disk, cited) else None


def role_of(actor: str) -> str:
    """The role in an actor, by its usual name."""
    role = actor.partition(":")[0]
    return _ALIASES.get(role, role)


_ALIASES = {"coord": "coordinator", "worker": "executor", "auditor": "verifier"}
