"""Signs that the task asks for something other than what is wanted (GE-4).

Job: turn what keeps going wrong with a node into a proposal for the sponsor. Invariants: a function
of the state alone; a proposal changes nothing, it only says what was counted. Whether the goal is
changed is the sponsor's to say.
"""

from typing import Final

from perdure.core.fold import Replica
from perdure.core.model import AMENDABLE_STATES, Node
from perdure.core.views import Data, cut

checks_failed_min: Final = 3
replans_min: Final = 2
rounds_min: Final = 2
questions_min: Final = 2
proposals_max: Final = 20


def rescoping_proposals(replica: Replica) -> list[Data]:
    """Nodes whose spec is in doubt, each with what was counted; at most ``proposals_max``.

    What is DONE, was cancelled or has a successor is settled.
    """
    found: list[Data] = []
    for node in replica.state.nodes.values():
        settled = node.state in ("DONE", "CANCELLED") or node.successors
        signs = [] if settled else _signs(node)
        if len(found) == proposals_max:
            break
        if signs:
            found.append(
                {
                    "node": node.node_id,
                    "title": cut(node.title, 80),
                    "state": node.state,
                    "signs": signs,
                    "proposal": f"say what {node.node_id} is to be, or whether it is wanted",
                    "commands": [*_replanning(node), "perdure goal TEXT --reason WHY"],
                }
            )
    return found


def _replanning(node: Node) -> list[str]:
    """The commands that change what it is to be, in the state that it is in."""
    commands = []
    if node.state in AMENDABLE_STATES:
        commands.append(f"perdure amend {node.node_id} --reason WHY --accept CHECK")
    if node.state == "QUARANTINED":
        commands.append(f"perdure add ID TITLE --successor-of {node.node_id}")
    if node.state in _SPLIT:
        commands.append(f"perdure split {node.node_id} --into ID:TITLE --reason WHY")
    return commands


_SPLIT: Final = frozenset({"PENDING", "READY", "RETRYABLE", "QUARANTINED"})
"""States in which a node can be split."""


def _signs(node: Node) -> list[str]:
    signs = []
    if node.checks_failed >= checks_failed_min:
        signs.append(f"its acceptance has failed {node.checks_failed} times")
    if node.replans >= replans_min:
        signs.append(f"it has been replanned {node.replans} times")
    rounds = sum(node.rounds.values())
    if rounds >= rounds_min:
        signs.append(f"its gates have sent it back {rounds} times")
    if node.questions_asked >= questions_min:
        signs.append(f"work on it had to ask {node.questions_asked} times what is meant")
    return signs
