"""Where the task goes on: the first node of the frontier, or why there is none.

Job: what ``next`` and the page of progress begin with. Invariants: those of ``views``; it is loaded
by every commit, so it needs little.
"""

from typing import Final

from perdure.core.batch import action_of
from perdure.core.fold import Replica
from perdure.core.frontier import frontier
from perdure.core.machine import open_nodes, unreplaced
from perdure.core.model import State
from perdure.core.views import Data, cut, items_max, stuck
from perdure.core.with_people import with_people

_BY_RUN_ALONE: Final = ("map", "python", "agent", "sop")
"""Actions that nobody carries out by hand."""


def next_pointer(replica: Replica) -> Data:
    """``node`` with its ``title``, ``commands`` and ``others_ready``; without one, ``why``."""
    state = replica.state
    names = frontier(replica)
    if not names:
        open_names = open_nodes(state)
        return {
            "node": None,
            "why": _why_nothing(state, open_names),
            "open": open_names[:items_max],
            "stuck": stuck(replica),
            "with_people": with_people(state)[:items_max],
        }
    node = state.nodes[names[0]]
    return {
        "node": node.node_id,
        "title": cut(node.title),
        "others_ready": len(names) - 1,
        "commands": ["perdure run FILE"]
        if action_of(node.spec) in _BY_RUN_ALONE
        else [
            f"perdure start {node.node_id}",
            f"perdure beat {node.node_id}",
            f"perdure submit {node.node_id}",
        ],
    }


def _why_nothing(state: State, open_names: list[str]) -> str:
    if not state.nodes:
        return "the task has no nodes yet; `perdure add` makes one"
    if open_names:
        return "what is open has to wait"
    given_up = unreplaced(state)
    if given_up:
        named = ", ".join(given_up[:3]) + (" and others" if len(given_up) > 3 else "")
        return f"{named} was given up (QUARANTINED), and no successor has taken its place"
    if state.fsm_task == "ARCHIVED":
        return "the task is archived; further work is a task of its own"
    return "everything is done; `perdure archive` ends the task"
