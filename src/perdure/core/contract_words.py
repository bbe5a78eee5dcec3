"""The constraints of a contract in words: what its executor is told beyond what it is granted.

Invariants: each is one sentence or two, and true of every executor that gets it; where a path is
meant it stands in the text. What a spec or an instruction adds comes behind these.
"""

from collections.abc import Iterable

from perdure.core.batch import LEDGER_NAME, LOG_NAME
from perdure.core.model import Node
from perdure.core.tiers import owes_receipt


def common_constraints(node: Node, recall: str, tier: int) -> list[str]:
    """What holds for whoever works for a node; ``recall`` is the file that voids the contract."""
    return [*standing_constraints(recall), *_effect_constraints(node, tier)]


def write_constraint(place: str, grants: Iterable[str]) -> str:
    """Where it may write: below ``place``, which ends in a slash, and what ``grants`` let it."""
    known = (f"write:{place}*", "write:tmp/*")
    more = any(text.startswith("write:") and text not in known for text in grants)
    elsewhere = ", and what authority_grants lists besides" if more else ""
    return f"Write only below {place} and tmp/{elsewhere}."


def standing_constraints(recall: str) -> list[str]:
    """What holds for every executor."""
    look = f"Look for {recall} before each unit and each long step: once it exists, stop"
    return [
        "Paths are relative to the workspace, which is the directory that holds contracts/.",
        "Write a skeleton first, then fill it in, so that little is lost when work stops.",
        f"{look} and report; it says why.",
        "Needing more authority than this grants means asking, not taking.",
    ]


def shard_constraints(shard: str) -> list[str]:
    """What holds for a worker that has some units of a batch node, and the directory ``shard``."""
    findings, ledger = f"{shard}/{LOG_NAME}", f"{shard}/{LEDGER_NAME}"
    append = f"For each unit of units.keys append its finding to {findings}: one line of JSON, an"
    mark = f'{{"unit_id": KEY, "status": "ok"}} to {ledger}'
    cannot = '{"unit_id": KEY, "status": "fail", "reason": WHY}'
    return [
        f"{append} object with the key of the unit as _key. Then append {mark}.",
        "A unit counts when both of its lines are there and whole; one that has them is skipped.",
        f"A unit that cannot be done gets {cannot} in {ledger} instead, and the others go on.",
    ]


def audit_constraints(place: str, verdict: str) -> list[str]:
    """What holds for an auditor, who may write in ``place`` and owes the file ``verdict``."""
    item = '{"point": POINT, "passed": true or false, "detail": WHY, "evidence": [PATH or ID, ...]}'
    judge = "Judge the files of audit.files by each point of audit.rubric, from your own reading."
    return [
        f"Write only below {place}/. All else is read only, and hashed before and after.",
        f"{judge} What their producer says of them is no evidence.",
        f'Write {verdict}: {{"verdict": "pass" or "fail", "items": [ITEM, ...]}}.',
        f"Each point of the rubric has one ITEM: {item}.",
    ]


def _effect_constraints(node: Node, tier: int) -> list[str]:
    if node.effect == "S1":
        return ["What you may change outside your place was copied to artifacts/old/ first."]
    if not owes_receipt(tier, node.effect):
        return []
    if node.effect == "S2":
        return ["Record a RECEIPT of each external effect right after it: perdure receipt."]
    if node.receipt is not None:
        return [f"The external effect has happened (receipt {node.receipt}): do not repeat it."]
    return ["Record a RECEIPT right after the external effect, before anything else."]
