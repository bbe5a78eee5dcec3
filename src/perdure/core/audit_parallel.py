"""Items A8.1 to A8.3 of the task audit: parallel work is safe (HALT-07).

Job: had each unit and each output one owner at a time, does each worker's contract carry the units
that were counted, and do the modes of dispatch follow from how work ended. Invariants: those of
``core.task_audit``; the rate of first deaths is computed here from the ends of work alone, apart
from ``core.health``, so that an error there is seen here.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from perdure.core.audit_results import Cited, Tally, cited_contract, contract_text, is_whole
from perdure.core.batch import inventory_digest
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.model import CLOSED_STATES
from perdure.core.payload import mapping, text
from perdure.core.task_audit import DiskFacts, Findings, Item


def _keys_of(contract: Mapping[str, Any] | None) -> list[str]:
    """The units that a worker was sent with, by name."""
    units = mapping((contract or {}).get("units")).get("keys")
    found = units if isinstance(units, list | tuple) else ()
    return [text(mapping(unit).get("key")) for unit in found]


class OneOwner(Item):
    """No two workers have the same thing to write."""

    id = "A8.1"
    title = "Write scopes are disjoint: each unit and each output had one owner at a time"
    rule = "FSN-2"
    method = (
        "The slots of each attempt at a batch node were opened and closed in the order of the"
        " journal, with the units that the contracts of the workers name: none of them may be in"
        " two open slots. And no node may start while another one is at work that owes the same"
        " output, or a file below it."
    )
    on_disk = True

    def __init__(self) -> None:
        self._steps: list[tuple[str, str, Cited | None]] = []
        """Node and invocation; with the contract where a slot opens. A new attempt is ``""``."""
        self._outputs: dict[str, tuple[str, ...]] = {}
        """Node at work to what it owes."""
        self._tally = Tally()

    def see(self, event: Event, replica: Replica) -> None:
        """Follow slots and outputs as they open and close."""
        op = event.payload.get("op")
        if event.kind == "DECISION" and op == "slot":
            node = text(event.payload.get("node"))
            self._steps.append((node, event.entity.id, cited_contract(event)))
        elif event.kind == "NOTE" and op == "slot_closed":
            self._steps.append((text(event.payload.get("node")), event.entity.id, None))
        elif event.kind == "STATE_TRANSITION" and event.entity.type == "node":
            self._move(event, replica)

    def _move(self, event: Event, replica: Replica) -> None:
        node_id, node = event.entity.id, replica.state.nodes.get(event.entity.id)
        if node is None:
            return
        if node.state != "RUNNING":
            if node.state != "VERIFYING":
                self._outputs.pop(node_id, None)
            return
        if node.spec.map is not None:
            self._steps.append((node_id, "", None))
        owed = node.spec.outputs or ()
        for path in owed:
            for other, theirs in self._outputs.items():
                if other != node_id and any(_overlap(path, each) for each in theirs):
                    self._tally.fail(event.ref, f"{node_id} and {other} both owe {path} now")
        self._outputs[node_id] = owed
        if owed:
            self._tally.hold(event.ref, f"{node_id} alone owes what it owes")

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What had two owners at once is bad."""
        tally = self._tally
        held: dict[str, dict[str, str]] = {}
        sent: dict[str, list[str]] = {}
        for node, invocation, cited in self._steps:
            owners = held.setdefault(node, {})
            if not invocation:
                owners.clear()
            elif cited is None:
                for key in sent.pop(invocation, ()):
                    if owners.get(key) == invocation:
                        del owners[key]
            else:
                keys = sent[invocation] = _keys_of(contract_text(disk, cited))
                taken = [key for key in keys if key in owners]
                why = f"unit {taken[0]!r} is {owners[taken[0]]}'s already" if taken else ""
                tally.look(cited.ref, why, f"{invocation}: {len(keys)} units of {node}")
                owners |= dict.fromkeys(keys, invocation)
        return tally.findings("no worker was sent, and no node names an output")


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


class InventoriesMatch(Item):
    """Units are counted by programs, never typed."""

    id = "A8.2"
    title = "The orders of workers are generated, with exactly the units that were counted"
    rule = "PD-C3"
    method = (
        "Each contract that a slot cites was read: its units have to be as many as the slot says,"
        " with names of their own, and the sha256 over their names, sorted and joined by line"
        " feeds, has to be the one in it, and the one in the slot where that has one. The same"
        " digest has to be in the contract of each attempt at a batch node."
    )
    on_disk = True

    def __init__(self) -> None:
        self._slots: list[Cited] = []
        self._attempts: list[Cited] = []

    def see(self, event: Event, replica: Replica) -> None:
        """Remember the contracts of batch nodes and their workers."""
        cited = cited_contract(event)
        if cited is None:
            return
        if event.kind == "DECISION":
            self._slots.append(cited)
        else:
            node = replica.state.nodes.get(cited.node)
            if node is not None and node.spec.map is not None:
                self._attempts.append(cited)

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """Units that are not those that were counted are bad."""
        tally = Tally()
        for cited in self._slots:
            contract = contract_text(disk, cited)
            if contract is not None:
                tally.look(cited.path, _miscounted(contract, cited))
        for cited in self._attempts:
            contract = contract_text(disk, cited)
            if contract is not None:
                units = mapping(contract.get("units"))
                counted = units.get("total") is None or text(units.get("sha256"))
                tally.look(cited.path, "" if counted else "it has no digest of its units")
        if any(is_whole(disk, cited) for cited in (*self._slots, *self._attempts)):
            return tally.findings("no contract that is cited can be read (A6.1)")
        cited_any = self._slots or self._attempts
        gone = "no contract that is cited is there as it was issued (A1.2)"
        return tally.findings(gone if cited_any else "no batch node has been started")


def _miscounted(contract: Mapping[str, Any], cited: Cited) -> str:
    keys, units = _keys_of(contract), mapping(contract.get("units"))
    twice = [key for key, number in Counter(keys).items() if number > 1]
    if twice:
        return f"unit {twice[0]!r} stands in it twice"
    if units.get("total") != len(keys) or cited.units not in (-1, len(keys)):
        return f"it names {len(keys)} units, and they were counted as {cited.units}"
    digest = inventory_digest(keys)
    if units.get("sha256") != digest or cited.units_sha256 not in ("", digest):
        return "the digest of its units is not that of the units that it names"
    return ""


class _End(NamedTuple):
    """How one piece of dispatched work ended."""

    first: bool = False
    environment: bool = False


class _Due(NamedTuple):
    """A change of mode that the last end has caused."""

    mode: str
    rate: float
    after: str
    """The end."""


_DEATHS: Final = frozenset({"killed", "timed_out", "silent", "failed"})
_WALLS: Final = frozenset({"quota", "rate_limit", "network", "credentials", "disk"})


class ModesFollow(Item):
    """Dispatch follows how work fares, by a policy that can be recomputed."""

    id = "A8.3"
    title = "The rate of first deaths drives the mode, and a probe precedes resuming"
    rule = "PD-H1"
    method = (
        "Each end of dispatched work (slot_closed; N03, N04 and N05 of what a process of the"
        " coordinator did, interruptions aside) was counted anew: the first deaths among the newest"
        " ends, over the size of the window, above the threshold is B, else A; as many failures of"
        " the environment in a row as the policy says is C; out of C leads a probe that survives."
        " Each DECISION ``mode`` by policy has to be the one that was due, with that rate, and each"
        " one that was due has to be there. One by hand needs a reason and who decided it; a probe"
        " is of mode C."
    )

    def __init__(self) -> None:
        self._tally = Tally()
        self._window: list[bool] = []
        self._environment = 0
        self._mode, self._probing, self._by_hand = "A", False, False
        self._due: _Due | None = None
        self._slots: dict[str, str] = {}
        """Open slot to its node."""
        self._processes: set[str] = set()
        """Nodes at work under a contract of a process."""
        self._ends = 0

    def see(self, event: Event, replica: Replica) -> None:
        """Count each end of work, and compare each change of mode."""
        payload, op = event.payload, event.payload.get("op")
        if event.kind == "STATE_TRANSITION":
            if event.entity.type == "node":
                self._move(event, replica)
        elif event.kind == "DECISION" and op == "slot":
            if text(payload.get("node")) in replica.state.nodes:
                self._slots[event.entity.id] = text(payload.get("node"))
        elif event.kind == "NOTE" and op == "slot_closed":
            if self._slots.pop(event.entity.id, None) is not None:
                self._count(_end_of_slot(payload), event, replica)
        elif event.kind == "DECISION" and op == "mode":
            self._change(event)

    def _move(self, event: Event, replica: Replica) -> None:
        payload, node_id = event.payload, event.entity.id
        node = replica.state.nodes.get(node_id)
        if payload.get("to") == "RUNNING":
            executor = mapping(payload.get("executor"))
            if executor.get("kind") == "process" and payload.get("invocation"):
                self._processes.add(node_id)
            return
        was_process = node_id in self._processes
        self._processes.discard(node_id)
        if node is not None and node.spec.map is not None and node.state in CLOSED_STATES:
            self._slots = {name: of for name, of in self._slots.items() if of != node_id}
        if was_process and node is not None and not payload.get("interruption"):
            batch = node.spec.map is not None
            self._count(_end_of_attempt(payload, batch=batch), event, replica)

    def _count(self, end: _End | None, event: Event, replica: Replica) -> None:
        """One more end: what does it cause?"""
        if end is None:
            return
        self._overdue()
        self._ends += 1
        policies = replica.state.policies
        size = max(1, policies.first_death_window)
        self._window = [*self._window, end.first][-size:]
        self._environment = self._environment + 1 if end.environment else 0
        rate = sum(self._window) / size
        mode = self._caused(end, rate, replica)
        if mode:
            self._due = _Due(mode, rate, event.ref)

    def _caused(self, end: _End, rate: float, replica: Replica) -> str:
        """The mode that is due now; empty when it stays as it is."""
        policies = replica.state.policies
        if self._mode == "C":
            if not self._probing or self._by_hand:
                return ""
            if end.environment:
                return "C"
            return "" if end.first else "A"
        if self._environment >= policies.halt_after:
            return "C"
        if self._by_hand:
            return ""
        mode = "B" if rate > policies.mixed_threshold else "A"
        return mode if mode != self._mode else ""

    def _change(self, event: Event) -> None:
        payload = event.payload
        mode, by_policy = text(payload.get("mode")), payload.get("authority") == "reference policy"
        due, self._due = self._due, None
        if by_policy:
            self._tally.look(event.ref, _unfounded(payload, mode, due), f"mode {mode} was due")
        else:
            self._tally.look(event.ref, self._by_whom(payload, mode), f"mode {mode}, as decided")
        if self._mode == "C" and mode != "C":
            self._environment = 0
        if payload.get("clear_window"):
            self._window = []
        self._mode, self._by_hand = mode, bool(payload.get("by_hand"))
        self._probing = bool(payload.get("probing"))
        if self._probing:
            self._environment = 0

    def _by_whom(self, payload: Mapping[str, Any], mode: str) -> str:
        if payload.get("probing") and (mode != "C" or self._mode != "C"):
            return f"a probe in mode {self._mode}, where nothing is halted"
        return "" if mode in ("A", "B", "C") else f"there is no mode {mode!r}"

    def _overdue(self) -> None:
        if self._due is not None:
            due, self._due = self._due, None
            self._tally.fail(due.after, f"mode {due.mode} was due behind it, and is not there")

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """A change without cause is bad, and a cause without its change."""
        self._overdue()
        if self._ends:
            first = sum(self._window)
            note = f"{self._ends} ends counted; mode {self._mode}; {first} first deaths in window"
            self._tally.hold("ends", note)
        return self._tally.findings("no coordinator dispatched any work")


def _end_of_slot(payload: Mapping[str, Any]) -> _End | None:
    end = text(payload.get("end"))
    if end == "landed":
        return _End()
    if end not in _DEATHS:
        return None
    return _End(bool(payload.get("first")), text(payload.get("cause")) in _WALLS)


def _end_of_attempt(payload: Mapping[str, Any], *, batch: bool) -> _End | None:
    edge, death = payload.get("edge"), mapping(payload.get("death"))
    if edge == "N03":
        return None if batch else _End()
    if edge not in ("N04", "N05") or text(death.get("mode")) not in _DEATHS:
        return None
    by_class = payload.get("failure_class") == "transient-environment"
    return _End(bool(death.get("first")), by_class or text(death.get("cause")) in _WALLS)


def _unfounded(payload: Mapping[str, Any], mode: str, due: _Due | None) -> str:
    """Why a change of mode by policy does not follow; empty when it does."""
    if due is None:
        return f"no end of work made mode {mode} due"
    if due.mode != mode:
        return f"mode {due.mode} was due by {due.after}, and not {mode}"
    said = payload.get("first_death_rate")
    if not isinstance(said, int | float) or abs(said - due.rate) > 0.001:
        return f"it says a rate of {said}, and the ends of work give {due.rate:.4f}"
    return ""


ITEMS: Final = (OneOwner, InventoriesMatch, ModesFollow)
