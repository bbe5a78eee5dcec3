"""FSM-N and FSM-T as tables: every legal move of a node and of a task, and nothing else (FSN-1).

A row names its edge, the states, what must hold (``guard``) and what the event must carry
(``required``). Guards are pure and return why the move is refused, empty when it may happen.
Invariants: no state is reachable but through a row; nothing leaves QUARANTINED or CANCELLED; N06
is the only way into DONE.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from perdure.core.gates import holds_work, is_of_gate, start_gate_refusal
from perdure.core.model import CLOSED_STATES, DEAD_STATES, NODE_STATES, Node, State, id_key

Guard = Callable[[State, Node, Mapping[str, Any]], str]


class Edge(NamedTuple):
    """One row of FSM-N."""

    id: str
    source: str
    target: str
    meaning: str
    required: tuple[str, ...]
    guard: Guard


class TaskEdge(NamedTuple):
    """One row of FSM-T."""

    id: str
    source: str
    target: str
    meaning: str
    guard: Callable[[State], str]


def open_deps(state: State, node: Node) -> list[str]:
    """The deps of a node that are not DONE; one that does not exist never is."""
    nodes = state.nodes
    return [dep for dep in node.deps if dep not in nodes or nodes[dep].state != "DONE"]


def _state_of(state: State, node_id: str) -> str:
    node = state.nodes.get(node_id)
    return node.state if node is not None else "unknown"


def count_states(state: State) -> dict[str, int]:
    """How many nodes are in each state."""
    counts: dict[str, int] = {}
    for node in state.nodes.values():
        counts[node.state] = counts.get(node.state, 0) + 1
    return counts


def open_nodes(state: State) -> list[str]:
    """The nodes that are not closed: what the task still waits for."""
    return [name for name, node in state.nodes.items() if node.state not in CLOSED_STATES]


def open_question(state: State, node_id: str) -> str:
    """Id of a question that holds this node, or empty."""
    for question in state.questions.values():
        if question.node == node_id and holds_work(question):
            return question.question_id
    return ""


def retry_budget(state: State, node: Node) -> int:
    """Entries into RETRYABLE of one method before it must escalate (FSN-3)."""
    own = node.spec.retry_budget
    return state.policies.retry_budget if own is None else own


def _always(state: State, node: Node, payload: Mapping[str, Any]) -> str:
    return ""


def _deps_done(state: State, node: Node, payload: Mapping[str, Any]) -> str:
    waiting = open_deps(state, node)
    if waiting:
        shown = ", ".join(f"{dep} is {_state_of(state, dep)}" for dep in waiting[:5])
        return f"it waits for its dependencies ({shown})"
    return ""


def _not_held(state: State, node: Node, payload: Mapping[str, Any]) -> str:
    question = open_question(state, node.node_id)
    return f"question {question} about it is open" if question else ""


def _settled(state: State, node: Node, payload: Mapping[str, Any]) -> str:
    """A gate's own question is for the verdict to deal with (``decide_ending``)."""
    for question in state.questions.values():
        holds = holds_work(question) and not is_of_gate(question)
        if question.node == node.node_id and holds:
            return f"question {question.question_id} about it is open"
    return ""


def _may_start(state: State, node: Node, payload: Mapping[str, Any]) -> str:
    return _deps_done(state, node, payload) or _nobody_objects(state, node)


def _nobody_objects(state: State, node: Node) -> str:
    """What besides its dependencies keeps a node from starting."""
    if node.spec.draft:
        return "its spec is a draft"
    return _not_held(state, node, {}) or start_gate_refusal(state, node)


def _used_up(state: State, node: Node) -> str:
    if node.method_strikes and node.method_strikes >= retry_budget(state, node):
        return (
            f"method {node.method!r} has failed {node.method_strikes} times, which is its budget"
            " (FSN-3: change the method or ask)"
        )
    return ""


def _may_retry(state: State, node: Node, payload: Mapping[str, Any]) -> str:
    return _used_up(state, node) or _may_start(state, node, payload)


def _may_wake(state: State, node: Node, payload: Mapping[str, Any]) -> str:
    return _not_held(state, node, payload) or _deps_done(state, node, payload)


def _can_be_redone(state: State, node: Node, payload: Mapping[str, Any]) -> str:
    strike = "round" not in payload  # what a person refuses is counted in rounds (VR-3)
    if strike and node.method_strikes + 1 >= retry_budget(state, node):
        return f"method {node.method!r} is out of strikes, so N08 is left (FSN-3)"
    return ""


def _replanned(state: State, node: Node, payload: Mapping[str, Any]) -> str:
    cited = payload.get("amendment")
    failed_at = int((node.state_ref or "J-0").removeprefix("J-"))
    since = [ref for ref in node.amended_by if int(ref.removeprefix("J-")) > failed_at]
    if cited not in since:
        return f"{cited!r} is no amendment of it since it failed"
    return _used_up(state, node) or _deps_done(state, node, payload)


NODE_EDGES: Final = (
    Edge("N01", "PENDING", "READY", "every dep is DONE", ("deps",), _deps_done),
    Edge("N02", "READY", "RUNNING", "a contract is issued to one executor",
         ("contract", "executor", "budget"), _may_start),
    Edge("N03", "RUNNING", "VERIFYING", "the executor claims completion", ("report",), _always),
    Edge("N04", "RUNNING", "RETRYABLE", "the executor died, ran out of budget or failed",
         ("failure_class", "signature", "attempt"), _always),
    Edge("N05", "RUNNING", "BLOCKED", "a gate, a question or a resource wall",
         ("reason", "wake"), _always),
    Edge("N06", "VERIFYING", "DONE", "verification passed on evidence",
         ("verifier", "checks", "artifacts"), _settled),
    Edge("N07", "VERIFYING", "RETRYABLE", "verification failed and can be redone",
         ("diagnosis", "attempt"), _can_be_redone),
    Edge("N08", "VERIFYING", "QUARANTINED", "verification failed for good or out of strikes",
         ("manifest",), _always),
    Edge("N09", "BLOCKED", "READY", "the wake condition is met", ("wake_evidence",), _may_wake),
    Edge("N10", "BLOCKED", "CANCELLED", "cancelled while waiting", ("authority",), _always),
    Edge("N11", "RETRYABLE", "RUNNING", "a new contract is issued",
         ("contract", "executor", "budget"), _may_retry),
    Edge("N12", "RETRYABLE", "READY", "replanned", ("amendment",), _replanned),
    Edge("N13", "READY", "QUARANTINED", "obsolete after a replan", ("replacement",), _always),
    *(
        Edge("N15", source, "CANCELLED", "the authority cancels", ("decision",), _always)
        for source in NODE_STATES
        if source not in ("BLOCKED", "QUARANTINED", "CANCELLED")
    ),
)  # fmt: skip
"""N14 is not a move: successors of a quarantined node are new nodes that point back to it."""

RC1: Final = Edge(
    "RC1", "DONE", "READY", "its files are gone; recovery only", ("finding",), _always
)

STARTABLE_STATES: Final = ("PENDING", "READY", "RETRYABLE")

START: Final = next(edge for edge in NODE_EDGES if edge.id == "N02")
REPLAN: Final = next(edge for edge in NODE_EDGES if edge.id == "N12")
OBSOLETE: Final = next(edge for edge in NODE_EDGES if edge.id == "N13")

_by_states: Final = {(edge.source, edge.target): edge for edge in NODE_EDGES}
_by_source: Final = {
    source: tuple(edge for edge in NODE_EDGES if edge.source == source) for source in NODE_STATES
}


def node_edge(source: str, target: str) -> Edge | None:
    """The row for this move, or None when it is not legal."""
    return _by_states.get((source, target))


def edges_from(source: str) -> tuple[Edge, ...]:
    """Every row that leaves a state, for messages that say what is possible."""
    return _by_source.get(source, ())


def missing_payload(edge: Edge, payload: Mapping[str, Any]) -> list[str]:
    """The required keys that the payload lacks."""
    return [key for key in edge.required if payload.get(key) is None]


def startable(state: State, node: Node) -> bool:
    """Whether work on this node may start now (protocol section 7)."""
    if node.state not in STARTABLE_STATES or open_deps(state, node):
        return False  # most nodes: their refusal need not be worded
    used_up = node.state == "RETRYABLE" and _used_up(state, node)
    return not used_up and not _nobody_objects(state, node)


def waits_for_gates_alone(state: State, node: Node) -> bool:
    """Whether nothing but gates, asked about or not, can keep work on this node from starting."""
    if node.state not in STARTABLE_STATES or node.spec.draft or open_deps(state, node):
        return False
    if node.state == "RETRYABLE" and _used_up(state, node):
        return False
    questions = [q for q in state.questions.values() if q.node == node.node_id]
    return all(is_of_gate(q) or not holds_work(q) for q in questions)


def start_refusal(state: State, node: Node) -> str:
    """Why work on a node that is not at work may not start now; empty when it may."""
    guard = _may_retry if node.state == "RETRYABLE" else _may_start
    return guard(state, node, {})


def _free(state: State) -> str:
    return ""


def _some_frontier(state: State) -> str:
    if any(startable(state, node) for node in state.nodes.values()):
        return ""
    left = _nothing_open(state)
    return f"nothing may start, and {left}" if left else ""


def _may_go_on(state: State) -> str:
    at_work = state.contracts or any(n.state == "VERIFYING" for n in state.nodes.values())
    return "" if at_work else _some_frontier(state)


def _no_live_contract(state: State) -> str:
    live = [contract.node for contract in state.contracts.values()]
    return f"work is under way on {', '.join(live[:5])}" if live else ""


def _nothing_open(state: State) -> str:
    if not state.nodes:
        return "the task has no nodes"
    left = open_nodes(state)
    if left:
        return f"{len(left)} nodes are still open ({', '.join(left[:5])})"
    dead = unreplaced(state)
    return f"{', '.join(dead[:5])} is quarantined without a successor" if dead else ""


def unreplaced(state: State) -> list[str]:
    """Quarantined nodes without a successor (N14): the task cannot finish while there is one."""
    return [
        node.node_id
        for node in state.nodes.values()
        if node.state == "QUARANTINED" and not node.successors
    ]


def stranded(state: State) -> list[str]:
    """Open nodes that wait for one that is given up, and so never start as they are."""
    nodes = state.nodes
    return sorted(
        (
            name
            for name, node in nodes.items()
            if node.state not in CLOSED_STATES
            and any(dep in nodes and nodes[dep].state in DEAD_STATES for dep in node.deps)
        ),
        key=id_key,
    )


TASK_EDGES: Final = (
    TaskEdge("T01", "INIT", "DECOMPOSING", "the graph is being written", _free),
    TaskEdge(
        "T02", "DECOMPOSING", "EXECUTING", "a frontier exists, or nothing is open", _some_frontier
    ),
    TaskEdge("T03", "EXECUTING", "RECOVERING", "an interruption was found", _free),
    TaskEdge("T04", "EXECUTING", "SUSPENDED", "a pause at a commit boundary", _no_live_contract),
    TaskEdge("T05", "SUSPENDED", "RECOVERING", "resumed", _free),
    TaskEdge("T06", "RECOVERING", "EXECUTING", "consistent, and work may go on", _may_go_on),
    TaskEdge("T07", "EXECUTING", "FINAL_AUDIT", "nothing is open", _nothing_open),
    TaskEdge("T08", "EXECUTING", "DECOMPOSING", "work was missed", _free),
    TaskEdge("T09", "FINAL_AUDIT", "DECOMPOSING", "defects, or new work", _free),
    TaskEdge("T10", "FINAL_AUDIT", "ARCHIVED", "the audit passed", _nothing_open),
    TaskEdge("T11", "RECOVERING", "DECOMPOSING", "the graph is incomplete", _free),
    TaskEdge("T12", "RECOVERING", "FINAL_AUDIT", "nothing is open", _nothing_open),
)

_task_by_states: Final = {(edge.source, edge.target): edge for edge in TASK_EDGES}


def task_edge(source: str, target: str) -> TaskEdge | None:
    """The row for this move of the task, or None when it is not legal."""
    return _task_by_states.get((source, target))
