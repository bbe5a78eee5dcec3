"""Items A6.1 to A6.3 of the task audit: context stays bounded (INV-7).

Job: are the work orders complete in themselves, is what a fresh reader takes in small, and was work
that ran over its budget ended in place of stretched. Invariants: those of ``core.task_audit``; a
contract that is not the one cited is left to A1.2, and a line of others that lacks what is needed
to judge it counts for nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

from perdure.core.audit_results import Cited, Tally, cited_contract, contract_text, is_whole
from perdure.core.budget import budget_of, over_budget
from perdure.core.codec import to_json
from perdure.core.dispatching import Usage
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.model import State, contract_bytes_max
from perdure.core.payload import mapping, record, text
from perdure.core.projection import checkpoint_view
from perdure.core.task_audit import DiskFacts, Findings, Item

checkpoint_bytes_max: Final = 64 << 10
"""Of what a fresh session reads first; a task of any size stays far below it."""
report_chars_max: Final = 64 << 10
"""Of what one event repeats from a worker: the rest belongs into its log."""


class _OfContracts(Item):
    """An item about every contract that the journal cites by its checksum."""

    def __init__(self) -> None:
        self._cited: dict[str, Cited] = {}

    def see(self, event: Event, replica: Replica) -> None:
        """Remember the contract that an event cites."""
        cited = cited_contract(event)
        if cited is not None:
            self._cited[cited.path] = cited


class SelfContained(_OfContracts):
    """Whoever has the contract needs nothing else."""

    id = "A6.1"
    title = "Every work order is complete in itself, and sends its worker to read it first"
    rule = "PD-C1"
    method = (
        "Each contract that N02, N11 or a slot cites by its sha256 was read. It has to name its"
        " own invocation, this task and its node, a goal, outputs, acceptance, grants, a budget,"
        " reporting duties, the steering channel and the recall file; and its message has to be"
        " one line that sends the worker to this very file. A file that is not the one cited is"
        " judged by A1.2."
    )
    on_disk = True

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What a contract lacks is bad."""
        tally = Tally()
        for cited in self._cited.values():
            if is_whole(disk, cited):
                contract = contract_text(disk, cited)
                tally.look(cited.path, _incomplete(contract, cited, replica.state))
        if self._cited:
            return tally.findings("no contract that is cited is there as it was issued (A1.2)")
        return tally.findings("no contract has been issued with a checksum")


def _incomplete(contract: Mapping[str, Any] | None, cited: Cited, state: State) -> str:
    """What a contract lacks for whoever has nothing else; empty when it lacks nothing."""
    if contract is None:
        return "it is no contract that can be read"
    name = cited.path.removeprefix("contracts/").removesuffix(".json")
    if contract.get("invocation_id") != name:
        return f"it is the contract of {text(contract.get('invocation_id')) or 'nobody'}"
    parent = mapping(contract.get("parent"))
    if parent.get("task_id") != state.task_id or parent.get("node_id") != cited.node:
        return "it is for another task or node than the event that cites it"
    missing = [field for field in _TEXTS if not text(contract.get(field)).strip()]
    missing += [field for field, kind in _OTHERS if not isinstance(contract.get(field), kind)]
    missing += [] if "outputs" in contract else ["outputs"]
    if missing:
        return f"it lacks {', '.join(missing)}"
    message = text(contract.get("message"))
    if "\n" in message or cited.path not in message:
        return "its message is not one line that names it"
    return ""


_TEXTS: Final = ("goal", "title", "message", "steering_channel", "recall")
_OTHERS: Final = (
    ("acceptance", list), ("constraints", list), ("authority_grants", list), ("budget", dict),
    ("reporting", dict),
)  # fmt: skip


class FirstReadIsBounded(_OfContracts):
    """Nobody has to read the whole history before the first step."""

    id = "A6.2"
    title = "What is read first is bounded; the rest is referred to, on demand"
    rule = "INV-7"
    method = (
        f"Each contract as it was cited has at most {contract_bytes_max} bytes; the checkpoint that"
        f" this prefix gives was computed and has at most {checkpoint_bytes_max}; and no event"
        f" repeats more than {report_chars_max} characters of what a worker or a command said"
        " (detail, diagnosis, signature, observation, report)."
    )
    on_disk = True

    def __init__(self) -> None:
        super().__init__()
        self._told = 0
        self._longest: tuple[int, str] = (0, "")
        self._too_long: dict[str, int] = {}

    def see(self, event: Event, replica: Replica) -> None:
        """Measure what an event repeats from a worker."""
        super().see(event, replica)
        if event.kind not in ("STATE_TRANSITION", "NOTE"):
            return
        said = [event.payload.get(name) for name in _REPEATED]
        most = max((len(words) for words in said if isinstance(words, str)), default=0)
        if most:
            self._told += 1
            self._longest = max(self._longest, (most, event.ref))
        if most > report_chars_max:
            self._too_long[event.ref] = most

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What is larger than its limit is bad."""
        tally = Tally()
        size = len(to_json(checkpoint_view(replica)))
        over = f"{size} bytes, more than {checkpoint_bytes_max}"
        tally.look("checkpoint.json", over if size > checkpoint_bytes_max else "", f"{size} bytes")
        for cited in self._cited.values():
            if is_whole(disk, cited):
                size = disk.contracts[cited.path].size_bytes
                over = f"{size} bytes, more than {contract_bytes_max}: the node is to be split"
                tally.look(cited.path, over if size > contract_bytes_max else "", f"{size} bytes")
        for ref, length in self._too_long.items():
            tally.fail(ref, f"it repeats {length} characters, more than {report_chars_max}")
        if self._told and not self._too_long:
            length, ref = self._longest
            tally.hold("reports", f"{self._told} events, the longest {length} characters ({ref})")
        return tally.findings("")


_REPEATED: Final = ("detail", "diagnosis", "signature", "observation", "report")


class OverBudgetIsEnded(Item):
    """What costs more than it may is not simply paid for."""

    id = "A6.3"
    title = "Work over its budget is ended and replanned, never stretched"
    rule = "INV-7"
    method = (
        "The usage that an end of an attempt tells was held against the budget of its node at that"
        " moment (the least of spec and grants): more than that may not be claimed as done (N03);"
        " it ends the attempt (N04, N05)."
    )

    def __init__(self) -> None:
        self._tally = Tally()

    def see(self, event: Event, replica: Replica) -> None:
        """Hold what an attempt has used against its budget."""
        if event.kind != "STATE_TRANSITION" or "usage" not in event.payload:
            return
        node = replica.state.nodes.get(event.entity.id)
        used = record(event.payload["usage"], Usage)
        edge = text(event.payload.get("edge"))
        if node is None or used is None or not edge:
            return
        spent = over_budget(budget_of(node), used)
        if edge == "N03":
            why = f"{node.node_id} was claimed as done with its {spent}" if spent else ""
            self._tally.look(event.ref, why, f"{node.node_id} within its budget")
        elif spent:
            self._tally.hold(event.ref, f"{node.node_id} was ended by {edge}: {spent}")

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What was seen on the way."""
        return self._tally.findings("no attempt told what it has used")


ITEMS: Final = (SelfContained, FirstReadIsBounded, OverBudgetIsEnded)
