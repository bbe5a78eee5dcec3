"""Issuing contracts: the complete work order for one attempt at one node.

Job: write ``contracts/<invocation>.json`` from the graph, durably, before the N02 or N11 that
cites its sha256. Invariants: a contract is never changed once written; it names everything its
executor needs and the only place it may write; one that nothing cites is harmless.
"""

import posixpath
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.batch import criteria_of
from perdure.core.codec import timestamp, to_json
from perdure.core.commands import IssuedContract
from perdure.core.grants import grants_of
from perdure.core.model import Executor, Node, contract_bytes_max
from perdure.core.views import cut
from perdure.errors import RefusedError
from perdure.runtime.engine import Engine

task_goal_chars_max: Final = 8_000
"""Of the task's goal, in a contract."""


class Units(NamedTuple):
    """What a contract says of a batch node's units."""

    inventory: Mapping[str, Any]
    """``total`` and ``sha256`` of the keys, which the verdict rests on; source and a sample."""
    skip: int
    """How many are done already."""


def issue_contract(
    engine: Engine,
    node: Node,
    executor: Executor,
    *,
    ttl_s: float | None,
    out_of_order: str = "",
    units: Units | None = None,
) -> IssuedContract:
    """Write the work order for the next attempt at ``node``; bytes and name are durable on return.

    ``ttl_s`` is how long a session's contract lives without a sign of life, in seconds; None for a
    process, whose life the operating system tells. A crash after this leaves a file nobody cites.
    """
    now = engine.world.clock.now()
    stamp = timestamp(now)[:19].translate(str.maketrans("", "", "-:T"))
    invocation_id = f"inv-{stamp}-{engine.world.ids.token()}"
    budget: dict[str, Any] = msgspec.to_builtins(node.spec.budget)
    document = _work_order(engine, node, executor, invocation_id, budget)
    if units is not None:
        document |= {
            "map": msgspec.to_builtins(node.spec.map),
            "units": dict(units.inventory),
            "skip": units.skip,
        }
        document["reporting"]["ledger_required"] = True
    data = to_json(document) + b"\n"
    if len(data) > contract_bytes_max:
        raise RefusedError(
            f"the contract for {node.node_id} would have {len(data)} bytes; the limit is"
            f" {contract_bytes_max}.",
            code="contract_too_large",
            rule="C-CONTRACT",
            fix="Split the node, or move long texts of its spec into input files.",
        )
    engine.disk.make_dirs(engine.layout.contracts)
    engine.disk.make_dirs(engine.layout.node_scope(node.node_id))
    engine.disk.replace(engine.layout.contract(invocation_id), data, durable=True)
    return IssuedContract(
        invocation_id,
        sha256(data).hexdigest(),
        executor,
        None if ttl_s is None else now + ttl_s,
        budget,
        out_of_order,
    )


def _work_order(
    engine: Engine, node: Node, executor: Executor, invocation_id: str, budget: dict[str, Any]
) -> dict[str, Any]:
    """The document of formats.md, for a command or for whoever claimed the node."""
    state, spec = engine.replica.state, node.spec
    scope = f"artifacts/{node.node_id}"
    inputs = [
        {"artifact_id": name, "path": state.artifacts[name].path}
        for dep in node.deps
        for name in state.nodes[dep].artifacts
        if state.artifacts[name].status == "current"
    ]
    return {
        "invocation_id": invocation_id,
        "parent": {
            "task_id": state.task_id,
            "node_id": node.node_id,
            "goal": cut(state.goal_statement, task_goal_chars_max),
        },
        "title": node.title,
        "goal": spec.goal or node.title,
        "run": spec.run,
        "executor": msgspec.to_builtins(executor),
        "attempt": node.attempts + 1,
        "previous_failure": node.diagnosis,
        "inputs": [*inputs, *({"path": path} for path in spec.inputs)],
        "units": None,
        "skip": [],
        "outputs": None if spec.outputs is None else list(spec.outputs),
        "acceptance": [msgspec.to_builtins(criterion) for criterion in criteria_of(node)],
        "verification_level": node.verification_level,
        "constraints": [
            f"Write only below {scope}/ and tmp/.",
            "Write a skeleton first, then fill it in, so that little is lost when work stops.",
            "Needing more authority than this grants means asking, not taking.",
            *_effect_constraints(node),
            *spec.constraints,
            *node.directives,
        ],
        "budget": budget,
        "authority_grants": grants_of(node),
        "effect": node.effect,
        "reporting": {
            "heartbeat_min_interval_min": state.policies.heartbeat_s / 60,
            "ledger_required": False,
        },
        "steering_channel": "steering/spool/",
        "recall": False,
        "epoch": engine.epoch,
    }


def _effect_constraints(node: Node) -> list[str]:
    if node.effect != "S3":
        return []
    if node.receipt is not None:
        return [f"The external effect has happened (receipt {node.receipt}): do not repeat it."]
    return ["Record a RECEIPT right after the external effect, before anything else."]


def environment_for(engine: Engine, node: Node, *, actor: str = "") -> dict[str, str]:
    """What a node's command and its check scripts find in their environment.

    ``PERDURE_WORKSPACE``, ``PERDURE_SCOPE``, ``PERDURE_CONTRACT`` and ``PERDURE_TASK_DIR`` (the
    directory of the task file) are absolute; ``PERDURE_RECEIPT`` is not empty when an external
    effect has happened and must not be repeated; ``PERDURE_ACTOR`` is who it is in what it asks of
    perdure: ``actor``, else the executor of its contract; ``env`` of the spec comes last.
    """
    layout, state = engine.layout, engine.replica.state
    invocation = node.invocation or ""
    task_dir = state.source.get("directory")
    return {
        **engine.world.environment,
        "PERDURE_WORKSPACE": layout.root,
        "PERDURE_TASK": state.task_id,
        "PERDURE_NODE": node.node_id,
        "PERDURE_SCOPE": layout.node_scope(node.node_id),
        "PERDURE_INVOCATION": invocation,
        "PERDURE_ACTOR": actor or (f"executor:{invocation}" if invocation else ""),
        "PERDURE_CONTRACT": layout.contract(invocation) if invocation else "",
        "PERDURE_RECEIPT": node.receipt or "",
        "PERDURE_TASK_DIR": posixpath.normpath(posixpath.join(layout.root, task_dir or ".")),
        **node.spec.env,
    }
