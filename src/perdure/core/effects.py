"""External effects: whether one (S3) is open, what holds a node for it, and its receipt.

Invariants: an effect that cannot be repeated, was allowed, and that nothing proves is never simply
repeated: a person says first whether it happened (C-S3); a claim of completion without the receipt
is refused. At tier 2 so it is for an effect that can be repeated (C-S2), which holds nothing else.
"""

from typing import Final

from perdure.core.asking import ask_of_attempt
from perdure.core.events import Draft
from perdure.core.model import Node, State
from perdure.core.moves import legal_edge, transition
from perdure.core.tiers import owes_receipt
from perdure.core.wake import by_answer
from perdure.errors import EvidenceError

DONE_ALREADY: Final = "done"
NOT_DONE: Final = "not-done"
"""What a person can say of an external effect that nothing proves."""


def effect_open(node: Node) -> bool:
    """Whether an external effect (S3) was allowed and nothing proves that it did not happen."""
    return node.effect == "S3" and node.receipt is None and node.state == "RUNNING"


def check_receipt(state: State, node: Node) -> None:
    """Raise EvidenceError for a claim of completion, or a verdict, without the receipt that the
    node owes (C-S3; at tier 2 C-S2 as well)."""
    if node.receipt is None and owes_receipt(state.tier, node.effect):
        raise EvidenceError(
            f"{node.node_id} has an external effect ({node.effect}) and no receipt for it.",
            code="receipt_missing",
            rule=f"C-{node.effect}",
            fix=f"Record the proof first: perdure receipt {node.node_id} --proof WHAT",
        )


def hold_effect(
    state: State, node: Node, seen: str, now: float, *, said: str = "", wall: bool = False
) -> tuple[Draft, ...]:
    """BLOCKED until a person says whether the effect happened: it is never simply repeated.

    ``said`` is what was ``seen`` in the words for people; ``wall``: that has to be put right as
    well, before it can be tried again.
    """
    said = said or seen
    question = (
        f"{node.title}: did its external effect happen? There is no receipt ({said})."
        f"{' What it lacks has to be put right as well.' if wall else ''}"
        f" If it did: perdure receipt {node.node_id} --proof WHAT. If not:"
        f" perdure retry {node.node_id} --reason WHY, which allows it once."
    )
    package = {
        "context": f"Attempt {node.attempts} ended without a receipt: {said}.",
        "consequences": f"{DONE_ALREADY}: your word is the receipt, and the next attempt skips the"
        f" effect. {NOT_DONE}: the next attempt may have it once.",
    }
    ask = ask_of_attempt(
        state,
        node,
        question,
        now,
        kind="effect",
        options=(DONE_ALREADY, NOT_DONE),
        package=package,
    )
    payload = {
        "reason": "external effect probably done, cannot be verified",
        "wake": by_answer(ask.payload["question_id"]),
        "signature": seen,
    }
    return (ask, transition(node, legal_edge(node, "BLOCKED"), payload))


def receipt_draft(node: Node, proof: str, receipt_id: str = "") -> Draft:
    """The RECEIPT for a node's external effect, in the attempt that is or was the last."""
    payload = {
        "id": receipt_id or f"R-{node.node_id}-{node.attempts}",
        "node": node.node_id,
        "effect": node.effect,
        "contract": node.invocation,
        "proof": proof,
    }
    return Draft("RECEIPT", "node", node.node_id, payload)
