"""Items A7.1 to A7.3 of the task audit: failure is contained (INV-8).

Job: were nested tasks over before they were used, has every failure a class and a trace, and was no
method tried beyond its budget. Invariants: those of ``core.task_audit``; strikes are counted here
from the events alone, apart from the fold, so that an error there is seen here; lines without an
edge, which others write, count for nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

from perdure.core.audit_results import Tally, role_of
from perdure.core.batch import action_of
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.instance import DONE, WITH_GAPS, read_status
from perdure.core.machine import retry_budget
from perdure.core.model import FAILURE_CLASSES
from perdure.core.payload import mapping, text
from perdure.core.task_audit import DiskFacts, Findings, Item


class ChildrenAreOver(Item):
    """Nothing rests on a nested task that is still at work."""

    id = "A7.1"
    title = "Nested tasks ended in a defined state, and were used only once they were over"
    rule = "IO-2"
    method = (
        "For each node that calls a procedure and is DONE, the instance that its last contract"
        " named was looked at under instances/: it has to be there, over, and to have a result"
        " that says done or done_with_gaps. An instance of a node that is not DONE may have any"
        " result of the closed list, or none."
    )
    on_disk = True

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """One that is gone, at work or failed under a DONE node is bad."""
        tally = Tally()
        for node in replica.state.nodes.values():
            if node.child_ref is None or node.spec.sop is None:
                continue
            child = disk.instances.get(node.child_ref)
            where = f"instances/{node.child_ref}"
            if node.state == "DONE":
                tally.look(where, _unusable(child), f"consumed by {node.node_id}")
            elif child is not None:
                status = _status_of(child)
                unknown = bool(status) and read_status(status) is None
                why = f"its result says {status!r}, which is no status" if unknown else ""
                tally.look(where, why, f"{node.node_id} is {node.state}")
        return tally.findings("no node calls a procedure")


def _status_of(child: Mapping[str, Any]) -> str:
    result = child.get("result")
    return text(mapping(result).get("status")) if isinstance(result, Mapping) else text(result)


def _unusable(child: Mapping[str, Any] | None) -> str:
    """Why nothing may rest on a nested task; empty when something may."""
    if child is None:
        return "the instance that its node rests on is not there"
    if not child.get("terminal"):
        return f"its node is DONE, and it is not over ({text(child.get('fsm_task')) or 'unknown'})"
    status = read_status(_status_of(child))
    if status is None or status.word not in (DONE, WITH_GAPS):
        return f"its node is DONE, and its result says {_status_of(child) or 'nothing'}"
    return ""


class FailuresHaveClasses(Item):
    """What went wrong is told so that it can be acted upon."""

    id = "A7.2"
    title = "Each failure has its class, and halted dispatch goes on by a probe"
    rule = "RT-1"
    method = (
        "Each N04 has to name one of the four failure classes and what was seen; each N07 a"
        " diagnosis, each N08 a diagnosis or a manifest, each N05 a reason and what it waits for."
        " While the newest DECISION ``mode`` says C without ``probing``, no slot may be opened and"
        " no automatic node be started by its coordinator: a probe or a person comes first."
    )

    def __init__(self) -> None:
        self._tally = Tally()
        self._failures = 0
        self._halted = ""

    def see(self, event: Event, replica: Replica) -> None:
        """Read each failure, and watch dispatch while it is halted."""
        payload = event.payload
        if event.kind == "STATE_TRANSITION":
            edge = text(payload.get("edge"))
            if edge in _FAILURES:
                self._failures += 1
                self._tally.look(event.ref, _unclassified(payload, edge), edge)
            elif edge in ("N02", "N11") and self._halted and _is_dispatched(event, replica):
                self._tally.fail(event.ref, f"{event.entity.id} was dispatched{self._why()}")
        elif event.kind == "DECISION":
            if payload.get("op") == "mode":
                halted = payload.get("mode") == "C" and not payload.get("probing")
                self._halted = event.ref if halted else ""
                self._tally.hold(event.ref, f"mode {text(payload.get('mode'))}")
            elif payload.get("op") == "slot" and self._halted:
                self._tally.fail(event.ref, f"{event.entity.id} was sent{self._why()}")

    def _why(self) -> str:
        return f" while dispatch was halted by {self._halted}, without a probe"

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """What was seen on the way."""
        return self._tally.findings("nothing has failed, and dispatch was never halted")


_FAILURES: Final = frozenset({"N04", "N05", "N07", "N08"})
_DISPATCHED: Final = frozenset({"run", "python", "agent"})


def _unclassified(payload: Mapping[str, Any], edge: str) -> str:
    if edge == "N04":
        if payload.get("failure_class") not in FAILURE_CLASSES:
            return f"it is of no failure class ({text(payload.get('failure_class')) or 'none'})"
        return "" if text(payload.get("signature")).strip() else "it does not say what was seen"
    if edge == "N05":
        whole = text(payload.get("reason")).strip() and text(payload.get("wake")).strip()
        return "" if whole else "it does not say why, or what it waits for"
    said = text(payload.get("diagnosis")).strip() or (edge == "N08" and payload.get("manifest"))
    return "" if said else "it has no diagnosis"


def _is_dispatched(event: Event, replica: Replica) -> bool:
    """Whether a coordinator sent this work by itself, and nobody asked for it by name."""
    node, executor = replica.state.nodes.get(event.entity.id), event.payload.get("executor")
    if node is None or action_of(node.spec) not in _DISPATCHED:
        return False
    process = isinstance(executor, Mapping) and executor.get("kind") == "process"
    return (
        process and role_of(event.actor) == "coordinator" and not event.payload.get("out_of_order")
    )


class _Tries:
    """What the events say of the tries at one node."""

    def __init__(self) -> None:
        self.method = "default"
        self.strikes: dict[str, int] = {}
        self.total = 0
        self.most = 0
        self.replanned = False
        """By an N12 since its last strike."""
        self.unasked = ""
        """The event that used its budget up, while no question about it has followed."""


class StrikesEscalate(Item):
    """The same is not tried again and again."""

    id = "A7.3"
    title = "A method that is out of strikes is escalated, and not tried again"
    rule = "FSN-3"
    method = (
        "The strikes of each node and method were counted from the events: each N04 that is no"
        " interruption, and each N07 that is neither an interruption nor a person's round; another"
        " spec begins anew, and a retry or an answer may name another method. At N02 and N11 the"
        " method has to have strikes left of the retry budget that was in force; and the strike"
        " that uses the budget up, or a verdict that gives the node up, has to be followed by a"
        " question to a person."
    )

    def __init__(self) -> None:
        self._tally = Tally()
        self._tries: dict[str, _Tries] = {}

    def _of(self, node_id: str) -> _Tries:
        return self._tries.setdefault(node_id, _Tries())

    def see(self, event: Event, replica: Replica) -> None:
        """Count strikes, and compare them at each start."""
        payload = event.payload
        if event.kind == "STATE_TRANSITION":
            if event.entity.type == "node" and payload.get("edge"):
                self._move(event, replica)
        elif event.kind == "DECISION":
            node_id = text(payload.get("node"))
            if payload.get("op") == "ask" and node_id in self._tries:
                self._tries[node_id].unasked = ""
            elif payload.get("op") in ("retry", "answer") and text(payload.get("method")):
                self._of(node_id).method = text(payload.get("method"))
        elif payload.get("op") == "amend_node" and "spec" in mapping(payload.get("after")):
            self._of(text(payload.get("target"), event.entity.id)).strikes.clear()

    def _move(self, event: Event, replica: Replica) -> None:
        edge, node_id = event.payload.get("edge"), event.entity.id
        if edge in ("N04", "N07"):
            if not event.payload.get("interruption") and "round" not in event.payload:
                self._strike(event, replica)
        elif edge == "N08":
            tries = self._of(node_id)
            tries.unasked = event.ref if "verifier" in event.payload else ""
            tries.total += bool(tries.unasked)
        elif edge == "N12":
            self._of(node_id).replanned = True
        elif edge in ("N02", "N11") and node_id in self._tries:
            self._start(event, replica)

    def _strike(self, event: Event, replica: Replica) -> None:
        tries = self._of(event.entity.id)
        count = tries.strikes.get(tries.method, 0) + 1
        tries.strikes[tries.method] = count
        tries.total, tries.most = tries.total + 1, max(tries.most, count)
        tries.replanned = False
        node = replica.state.nodes.get(event.entity.id)
        if node is not None and count >= retry_budget(replica.state, node):
            tries.unasked = event.ref

    def _start(self, event: Event, replica: Replica) -> None:
        tries, node = self._of(event.entity.id), replica.state.nodes.get(event.entity.id)
        count = tries.strikes.get(tries.method, 0)
        if node is None or tries.replanned:
            return
        budget = retry_budget(replica.state, node)
        if count and count >= budget:
            self._tally.fail(
                event.ref,
                f"{node.node_id} was tried again by method {tries.method!r} after {count} strikes,"
                f" with a budget of {budget}",
            )
            tries.unasked = ""

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """A try too many is bad, and a person who was not asked."""
        tally = self._tally
        for node_id, tries in self._tries.items():
            if tries.unasked:
                tally.fail(tries.unasked, f"{node_id} was out of strikes, and nobody was asked")
            elif tries.total:
                most = f", at most {tries.most} of one method" if tries.most else ""
                tally.hold(node_id, f"strikes counted: {tries.total}{most}")
        return tally.findings("nothing has failed by its own fault")


ITEMS: Final = (ChildrenAreOver, FailuresHaveClasses, StrikesEscalate)
