"""What an instruction to stop does: recall, and hold or suspend (S3).

Invariants: what it names is held until somebody lets it go on; where it names nothing the task is
suspended in the same commit, and where the task cannot be, every open node is held.
"""

from collections.abc import Mapping
from typing import Final

from perdure.core.events import Draft
from perdure.core.machine import count_states, task_edge
from perdure.core.model import CLOSED_STATES, Node
from perdure.core.moves import task_move
from perdure.core.propagation import Propagation, nodes_per_commit_max
from perdure.core.rehearsal import rehearse
from perdure.core.views import cut


def halt(plan: Propagation) -> None:
    """Recall and hold what it names; without names recall everything, and suspend the task."""
    nodes = plan.targets()
    if plan.steering.targets:
        _hold(plan, nodes)
        return
    if plan.state.fsm_task == "SUSPENDED":
        plan.outcomes.append("task SUSPENDED already")
        return
    for contract in list(plan.state.contracts.values()):
        plan.recall(plan.state.nodes[contract.node])
    if not _suspend(plan):
        done = plan.steering.applied
        nodes = [node for node in nodes if node.node_id not in done]
        plan.is_whole = len(nodes) <= nodes_per_commit_max
        _hold(plan, nodes[:nodes_per_commit_max])
        if not nodes and not done:
            plan.doubts.append("there was nothing to stop")


def _hold(plan: Propagation, nodes: list[Node]) -> None:
    """A question that holds each of these nodes until somebody lets it go on."""
    for node in nodes:
        if node.state in CLOSED_STATES:
            plan.tell(node.node_id, f"{node.state}, so there was nothing to stop")
            continue
        if node.state == "RUNNING":
            plan.recall(node)
        text = f"{node.node_id} was stopped by {plan.cause} ({cut(plan.text, 400)}). May it go on?"
        ref = plan.ask(node, text, "question", "sponsor", options=("go on",))
        plan.tell(node.node_id, f"held {ref}")


_ROUTES: Final[Mapping[str, tuple[str, ...]]] = {
    "EXECUTING": ("SUSPENDED",),
    "DECOMPOSING": ("EXECUTING", "SUSPENDED"),
    "RECOVERING": ("EXECUTING", "SUSPENDED"),
}


def _suspend(plan: Propagation) -> bool:
    """SUSPENDED behind the recalls, with a hand-off NOTE; False where the task cannot go there."""
    state = plan.state
    route = _ROUTES.get(state.fsm_task)
    if route is None or plan.steering.applied:
        return False
    planned = rehearse(plan.replica, plan.drafts, plan.context).state
    source: str = state.fsm_task
    moves = []
    for target in route:
        edge = task_edge(source, target)
        if edge is None or edge.guard(planned):
            return False
        moves.append(task_move(state.task_id, source, target))
        source = target
    handoff = {
        "op": "handoff",
        "text": f"halted by {plan.cause}",
        "counts": count_states(planned),
        "hint": state.next_hint,
    }
    for draft in (Draft("NOTE", "task", state.task_id, handoff), *moves):
        ref = plan.add(draft)
    plan.outcomes.append(f"task SUSPENDED {ref}")
    return True
