"""What a contract allows whoever works under it (protocol section 12).

Invariants: what is not listed is denied (AU-1); a grant follows from the node alone, so everybody
who reads the node knows it. Enforced where the runtime writes: what an executor registers. Where
the system cannot hold a process to its grants they are a matter of policy.
"""

from typing import Final

from perdure.core.model import Node

_NETWORK: Final = {"S2": ("network:read",), "S3": ("network:read", "network:write")}
"""By effect class: those that reach outside the workspace."""


def may_write(node: Node, path: str) -> bool:
    """Whether the node's executor may register what lies at this path of the workspace."""
    return path.startswith(f"artifacts/{node.node_id}/") or path in (node.spec.outputs or ())


def grants_of(node: Node) -> list[str]:
    """The grants of a contract for this node, as it lists them."""
    scope = f"artifacts/{node.node_id}/"
    outside = [path for path in node.spec.outputs or () if not path.startswith(scope)]
    spend = node.spec.budget.max_cost_usd
    return [
        f"write:{scope}*",
        "write:tmp/*",
        *(f"write:{path}" for path in outside),
        *_NETWORK.get(node.effect, ()),
        *([f"spend:max_usd={spend:g}"] if spend is not None else []),
    ]
