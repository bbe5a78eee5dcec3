"""What people have in hand: work that was handed to them, and verdicts that only they can give.

Job: list both with the command that each of them ends with. Invariants: a function of the state;
what an open question stands for already is not listed.
"""

from collections.abc import Iterator
from typing import Any, Final

from perdure.core.late import LateModule
from perdure.core.machine import open_question
from perdure.core.model import Node, State

# Most tasks ask for no audit, and hand nothing to people.
_audits: Final = LateModule("perdure.core.audits")
_shlex: Final = LateModule("shlex")


def with_people(state: State) -> list[dict[str, Any]]:
    """Each node that waits for a person without a question: ``node``, ``why`` and ``then``."""
    return [*_handed_over(state), *_to_judge(state)]


def _handed_over(state: State) -> Iterator[dict[str, Any]]:
    """Work in the slots that people fill: whoever holds the contract submits it."""
    for contract in state.contracts.values():
        node = state.nodes.get(contract.node)
        if node is None or node.spec.human is None or contract.executor.kind != "session":
            continue
        holder = contract.executor.actor
        yield {
            "node": node.node_id,
            "why": f"handed to {holder}",
            "then": f"perdure --actor {_shlex.quote(holder)} submit {_shlex.quote(node.node_id)}",
        }


def _to_judge(state: State) -> Iterator[dict[str, Any]]:
    """Work that waits for a verdict, and that no run sends an auditor to."""
    for node in state.nodes.values():
        if node.state == "VERIFYING" and _lacks_verdict(state, node):
            yield {
                "node": node.node_id,
                "why": "waits for the verdict of somebody who did not do it",
                "then": f"perdure judge {_shlex.quote(node.node_id)}",
            }


def _lacks_verdict(state: State, node: Node) -> bool:
    """Whether somebody outside has to judge it, as far as the record tells."""
    plan = _audits.audit_plan(state, node)
    if plan is None or plan.dispatches or open_question(state, node.node_id):
        return False
    audit = node.audit
    if audit is None or audit.rubric != plan.rubric or _audits.unusable(plan, audit):
        return True
    return bool(_audits.misread(state, node, audit.files))
