"""Issuing contracts: the complete work order for one bounded episode of one executor.

Job: write ``contracts/<invocation>.json`` from the graph, durably, before the event that cites its
sha256. Invariants: a contract is never changed once written; it names everything its executor needs
and the only places it may write; its units are generated from what the caller counted, and after
the write three things hold or there is no contract (PD-C3): its name and the names of its units are
new and unique, the units are those of the plan, and what is on disk is what was meant. One that
nothing cites is harmless.
"""

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from perdure.core.actions import AgentCall
from perdure.core.batch import LEDGER_NAME, LOG_NAME, action_of, criteria_of
from perdure.core.budget import budget_of
from perdure.core.commands import IssuedContract
from perdure.core.contract import (
    POLICY_ONLY,
    AuditOrder,
    Contract,
    ContractBudget,
    ContractUnits,
    InputFile,
    InstanceOrder,
    ParentNode,
    Reporting,
    SopOrder,
    dispatch_message,
    recall_path,
)
from perdure.core.contract_words import (
    audit_constraints,
    common_constraints,
    shard_constraints,
    standing_constraints,
    write_constraint,
)
from perdure.core.grants import grants_of, write_paths
from perdure.core.instance import path_of
from perdure.core.model import (
    Budget,
    Criterion,
    Executor,
    MapSpec,
    Node,
)
from perdure.core.views import cut
from perdure.runtime.contract_file import Planned, check_units, write_contract
from perdure.runtime.engine import Engine
from perdure.runtime.masking import declaring

task_goal_chars_max: Final = 8_000
"""Of the task's goal, in a contract."""
VERDICT_NAME: Final = "verdict.json"
"""In the directory of an auditor: what is owed."""
SHARDS_NAME: Final = "shards"
"""In the scope of a batch node: one directory for each worker."""


class Units(NamedTuple):
    """What a contract says of a batch node's units."""

    inventory: Mapping[str, Any]
    """``total`` and ``sha256`` of the keys, which the verdict rests on; source and a sample."""
    skip: int
    """How many are done already."""


class Terms(NamedTuple):
    """What a contract says besides what follows from the node."""

    enforcement: Mapping[str, Any] = POLICY_ONLY
    """What the system holds the executor to."""
    wall_s: float | None = None
    """The time limit, where the node's budget names none."""
    holder: str = ""
    """Who holds it in the place of this process: an actor, whose contract is a session's."""
    ttl_s: float | None = None
    """How long a session's contract lives without a sign of life; None: as the policy says."""
    instance: InstanceOrder | None = None
    """The instance that goes on under it; None: a new one, where the node calls a procedure."""


def issue_contract(
    engine: Engine,
    node: Node,
    executor: Executor,
    *,
    ttl_s: float | None,
    out_of_order: str = "",
    units: Units | None = None,
    terms: Terms | None = None,
) -> IssuedContract:
    """Write the work order for the next attempt at ``node``; bytes and name are durable on return.

    In a batch of the engine they are durable before the batch is committed.

    ``ttl_s`` is how long a session's contract lives without a sign of life, in seconds; None for a
    process, whose life the operating system tells. A crash after this leaves a file nobody cites.
    Raises RefusedError ``contract_too_large`` or ``contract_exists``, StorageError.
    """

    def order(invocation_id: str) -> Contract:
        base = _work_order(engine, node, executor, invocation_id, terms or Terms())
        if units is None:
            return base
        return replace(
            base,
            units=msgspec.convert(units.inventory, ContractUnits),
            skip=units.skip,
            reporting=_reporting(engine, ledger=True),
        )

    # What is registered in it makes its name durable (AR-1); until then nothing rests on it.
    engine.disk.make_dirs(engine.layout.node_scope(node.node_id), durable=False)
    issued = write_contract(engine, order)
    return replace(
        issued,
        expires_at=None if ttl_s is None else engine.world.clock.now() + ttl_s,
        out_of_order=out_of_order,
    )


def issue_slot_contract(
    engine: Engine,
    node: Node,
    *,
    units: Sequence[Mapping[str, Any]],
    plan: Planned,
    skip: int | Sequence[str] = 0,
    terms: Terms | None = None,
) -> IssuedContract:
    """Write the work order for one worker of a batch node: some of its units, by name.

    ``units`` are ``{"key": KEY, "item": ITEM, ...}`` each; ``plan`` is what they should come to,
    counted by the caller from its own records; ``skip`` is what of the node is done already. The
    worker writes in ``shards/<invocation>`` of the node's scope, and nowhere else but where its
    grants say. Durable as that of :func:`issue_contract` is; a crash after this leaves a file
    nobody cites and an empty directory.

    Raises RefusedError ``contract_units_twice``, ``contract_units_mismatch`` (PD-C3),
    ``contract_too_large`` or ``contract_exists``; StorageError ``contract_not_read_back``.
    """
    terms, batch, own = terms or Terms(), node.spec.map or MapSpec(), budget_of(node)
    check_units(node.node_id, [str(unit["key"]) for unit in units], plan)
    parent = f"artifacts/{node.node_id}/{SHARDS_NAME}"
    executor = this_process(engine)

    def order(invocation_id: str) -> Contract:
        base = _work_order(engine, node, executor, invocation_id, terms)
        shard = f"{parent}/{invocation_id}"
        grants = _grants_below(node, f"{shard}/")
        return replace(
            base,
            executor_kind="shard",
            attempt=node.attempts,
            run=batch.run or None,
            agent=batch.agent,
            map=None,
            units=ContractUnits(plan.total, plan.sha256, tuple(dict(unit) for unit in units)),
            skip=skip if isinstance(skip, int) else tuple(skip),
            outputs=(f"{shard}/{LOG_NAME}", f"{shard}/{LEDGER_NAME}"),
            schema=batch.schema,
            acceptance=(Criterion("units"),),
            constraints=(
                write_constraint(f"{shard}/", grants),
                *shard_constraints(shard),
                *base.constraints[1:],
            ),
            budget=_budget(
                replace(own, max_wall_s=batch.timeout_s or own.max_wall_s), terms.wall_s
            ),
            authority_grants=tuple(grants),
            reporting=_reporting(engine, ledger=True),
        )

    issued = write_contract(engine, order)
    shard = f"{engine.layout.root}/{parent}/{issued.invocation_id}"
    engine.disk.make_dirs(shard, durable=False)
    return issued


def issue_audit_contract(
    engine: Engine,
    node: Node,
    *,
    rubric: Sequence[str],
    independence: Sequence[str],
    files: Mapping[str, str],
    run: str | tuple[str, ...] | None = None,
    agent: AgentCall | None = None,
    schema: Mapping[str, Any] | None = None,
    terms: Terms | None = None,
) -> IssuedContract:
    """Write the work order for an independent audit (V2) of what a node has produced.

    The auditor may write below ``tmp/audits/<invocation>/`` and nowhere else, and owes
    its verdict there, with an item for each point of ``rubric``. ``files`` are what is judged,
    path to sha256; ``schema`` is that of the verdict. Durable as that of :func:`issue_contract`; a
    crash after this leaves a file nobody cites. Raises as :func:`issue_contract`.
    """
    terms, executor = terms or Terms(), this_process(engine)

    def order(invocation_id: str) -> Contract:
        place = audit_directory(invocation_id)
        verdict = f"{place}/{VERDICT_NAME}"
        base = _work_order(engine, node, executor, invocation_id, terms)
        network = [text for text in base.authority_grants if text.startswith("network:")]
        return replace(
            base,
            title=f"Audit of {node.node_id}: {node.title}",
            executor_kind="audit",
            attempt=node.attempts,
            run=run,
            agent=agent,
            python=None,
            sop=None,
            human=None,
            map=None,
            inputs=(*_artifacts_of(engine, node), *base.inputs),
            outputs=(verdict,),
            schema=None if schema is None else dict(schema),
            acceptance=(),
            constraints=(
                *audit_constraints(place, verdict),
                *standing_constraints(base.recall),
            ),
            budget=_budget(Budget(), terms.wall_s),
            authority_grants=(f"write:{place}/*", *network),
            effect="S0",
            previous_failure="",
            instance=None,
            audit=AuditOrder(
                tuple(rubric), tuple(independence), dict(files), _producer(node), verdict
            ),
        )

    issued = write_contract(engine, order)
    place = f"{engine.layout.root}/{audit_directory(issued.invocation_id)}"
    engine.disk.make_dirs(place, durable=False)
    return issued


def audit_directory(invocation_id: str) -> str:
    """Where the auditor of an invocation may write, relative to the workspace."""
    return f"tmp/audits/{invocation_id}"


def this_process(engine: Engine) -> Executor:
    """This process, as the executor of what it has run."""
    me = engine.world.processes.me()
    return Executor(engine.actor, "process", me.host, me.boot_id, me.pid, me.started)


def _work_order(
    engine: Engine, node: Node, executor: Executor, invocation_id: str, terms: Terms
) -> Contract:
    """What follows from the node, for whatever carries it out."""
    state, spec = engine.replica.state, node.spec
    recall = recall_path(invocation_id)
    inputs = [file for dep in node.deps for file in _artifacts_of(engine, state.nodes[dep])]
    return Contract(
        invocation_id=invocation_id,
        parent=ParentNode(
            state.task_id, node.node_id, cut(state.goal_statement, task_goal_chars_max)
        ),
        title=node.title,
        goal=spec.goal or node.title,
        executor=executor,
        executor_kind=_kind_of(node, executor),
        message=dispatch_message(f"contracts/{invocation_id}.json"),
        attempt=node.attempts + 1,
        run=spec.run,
        python=spec.python,
        agent=spec.agent,
        sop=None if spec.sop is None else SopOrder(*msgspec.structs.astuple(spec.sop)),
        human=spec.human,
        map=spec.map,
        inputs=(*inputs, *map(InputFile, spec.inputs)),
        units=None,
        skip=(),
        outputs=spec.outputs,
        schema=spec.map.schema if spec.map is not None else None,
        acceptance=criteria_of(node),
        verification_level=node.verification_level,
        constraints=(
            write_constraint(f"artifacts/{node.node_id}/", grants_of(node)),
            *common_constraints(node, recall, state.tier),
            *spec.constraints,
            *node.directives,
        ),
        budget=_budget(budget_of(node), terms.wall_s),
        authority_grants=tuple(grants_of(node)),
        enforcement=dict(terms.enforcement),
        effect=node.effect,
        reporting=_reporting(engine, ledger=False),
        steering_channel="steering/spool/",
        recall=recall,
        previous_failure=node.diagnosis,
        audit=None,
        instance=terms.instance or _new_instance(node, invocation_id),
        epoch=engine.epoch,
    )


def _new_instance(node: Node, invocation_id: str) -> InstanceOrder | None:
    """An instance of a procedure is named as its contract, unless an older one goes on."""
    if node.spec.sop is None:
        return None
    return InstanceOrder(path_of(invocation_id), node.child_ref or "")


def _kind_of(node: Node, executor: Executor) -> str:
    """What carries the node out: a person keeps a slot, and what somebody claims is a session's."""
    action = action_of(node.spec)
    return action if action and (executor.kind == "process" or action == "human") else "session"


def _artifacts_of(engine: Engine, node: Node) -> list[InputFile]:
    """What a node has produced and what stands."""
    artifacts = engine.replica.state.artifacts
    return [
        InputFile(artifacts[name].path, name)
        for name in node.artifacts
        if artifacts[name].status == "current"
    ]


def _producer(node: Node) -> str:
    return node.worker or (f"executor:{node.invocation}" if node.invocation else "")


def _reporting(engine: Engine, *, ledger: bool) -> Reporting:
    return Reporting(engine.replica.state.policies.heartbeat_s / 60, ledger)


def _budget(own: Budget, wall_s: float | None) -> ContractBudget:
    """A budget as a contract has it; ``wall_s`` is the time limit where it names none."""
    wall_s = own.max_wall_s if own.max_wall_s is not None else wall_s
    hours = None if wall_s is None else round(wall_s / 3_600, 6)
    return ContractBudget(wall_s, hours, own.max_tool_calls, own.max_cost_usd, own.max_tokens)


def _grants_below(node: Node, place: str) -> list[str]:
    """The grants of a node, with a place of its own for this worker in that of the node's."""
    scope = f"write:artifacts/{node.node_id}/*"
    named = [text for text in grants_of(node) if text != scope]
    return [f"write:{place}*", *named]


def environment_for(engine: Engine, node: Node, *, actor: str = "") -> dict[str, str]:
    """What a node's command and its check scripts find in their environment.

    ``PERDURE_WORKSPACE``, ``PERDURE_SCOPE``, ``PERDURE_CONTRACT`` and ``PERDURE_TASK_DIR`` (the
    directory of the task file) are absolute; ``PERDURE_RECEIPT`` is not empty when an external
    effect has happened and must not be repeated; ``PERDURE_ACTOR`` is who it is in what it asks of
    perdure: ``actor``, else the executor of its contract; ``env`` of the spec comes last.
    """
    layout, state = engine.layout, engine.replica.state
    invocation = node.invocation or ""
    return {
        **engine.world.environment,
        **declaring(engine),
        "PERDURE_WORKSPACE": layout.root,
        "PERDURE_TASK": state.task_id,
        "PERDURE_NODE": node.node_id,
        "PERDURE_SCOPE": layout.node_scope(node.node_id),
        "PERDURE_INVOCATION": invocation,
        "PERDURE_ACTOR": actor or (f"executor:{invocation}" if invocation else ""),
        "PERDURE_CONTRACT": layout.contract(invocation) if invocation else "",
        "PERDURE_RECEIPT": node.receipt or "",
        "PERDURE_TASK_DIR": task_directory(engine),
        **node.spec.env,
    }


def task_directory(engine: Engine) -> str:
    """The directory of the task file, absolute; the workspace where there is no such file."""
    relative = engine.replica.state.source.get("directory") or "."
    return posixpath.normpath(posixpath.join(engine.layout.root, relative))


def places_of(engine: Engine, grants: Iterable[str]) -> tuple[str, ...]:
    """The absolute paths that grants let be written, in this workspace and for this user."""
    home = engine.world.environment.get("HOME", "")
    return write_paths(grants, engine.layout.root, task_directory(engine), home)
