"""One worker of a batch node, sent under a contract of its own.

Job: issue the contract of a slot, record the slot, start its worker. Invariants: contract durable,
slot committed, worker started, in this order (PD-C3, section 3 of HALT-07); a worker may write in
its own directory and not in those of others. Never looks at what a worker has written.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from perdure.control.child_files import Shared
from perdure.control.executor import RunningCommand
from perdure.control.executor_port import Executor, Order
from perdure.control.executors import (
    CommandExecutor,
    agent_executor,
    enforcement,
    order_for,
    start_order,
)
from perdure.control.item_command import ItemCommand
from perdure.control.item_list import ItemList
from perdure.control.shard_queue import Shard
from perdure.core import dispatch_commands as d
from perdure.core.batch import inventory_digest
from perdure.core.model import MapSpec, Node
from perdure.errors import HaltError
from perdure.runtime.contract_file import Planned
from perdure.runtime.contracts import (
    SHARDS_NAME,
    Terms,
    environment_for,
    issue_slot_contract,
    task_directory,
)
from perdure.runtime.engine import Engine

skip_listed_max: Final = 1_000
"""Keys in the skip list of one contract; of more it only says how many."""
observation_chars_max: Final = 400


class ShardCommand(CommandExecutor):
    """A command that works through the units of its contract; no part of it stands for a unit."""

    def __init__(self, engine: Engine, batch: MapSpec) -> None:
        super().__init__(batch.run)
        self._engine = engine

    def require_installed(self, node: Node, order_directory: str) -> None:
        """Raise NotFoundError when its program cannot be found."""
        ItemCommand(
            self._run,
            directory=self._engine.layout.node_scope(node.node_id),
            cwd=self._engine.layout.root,
            environment=environment_for(self._engine, node),
            artifact_path=lambda key: "",
            world=self._engine.world,
        ).require_program()


def shard_executor(engine: Engine, node: Node) -> Executor:
    """What carries out the shards of a node. Raises NotFoundError when it is not installed."""
    batch = node.spec.map or MapSpec()
    executor: Executor = ShardCommand(engine, batch)
    if batch.agent is not None:
        executor = agent_executor(batch.agent)
    executor.require_installed(node, task_directory(engine))
    return executor


def shards_directory(engine: Engine, node_id: str) -> str:
    """Holds a directory for each worker of the attempt; absolute."""
    return f"{engine.layout.node_scope(node_id)}/{SHARDS_NAME}"


class Worker(NamedTuple):
    """A worker that was sent."""

    shard: Shard
    keys: tuple[str, ...]
    order: Order
    command: RunningCommand

    @property
    def invocation(self) -> str:
        """Of its slot and its contract."""
        return self.order.invocation

    @property
    def directory(self) -> str:
        """Where it writes; absolute."""
        return self.order.scope

    @property
    def places(self) -> dict[str, int]:
        """The key of each of its units to the place of the unit among the items."""
        return dict(zip(self.keys, self.shard.units, strict=True))


class Dispatch(NamedTuple):
    """What all workers of one attempt have in common."""

    engine: Engine
    node: Node
    executor: Executor
    items: ItemList
    shared: Shared
    timeout_s: float | None


def send_worker(dispatch: Dispatch, shard: Shard, *, number: int, done: int) -> Worker:
    """Send a worker with the units of a shard; ``number`` counts the workers of the attempt.

    ``done`` is how many units of the node are done. Raises RefusedError (the contract cannot be,
    or dispatch is halted), TransitionError (its node is not at work any more) and then nothing was
    sent; StorageError. A crash leaves a contract that nobody cites, or an open slot, which the next
    start of the node looks into.
    """
    engine, node, items = dispatch.engine, dispatch.node, dispatch.items
    units = [_unit(items, index) for index in shard.units]
    keys = tuple(items.keys[index] for index in shard.units)
    digest = inventory_digest(keys)
    skip: int | list[str] = done
    if shard.skip and len(shard.skip) <= skip_listed_max:
        skip = [items.keys[index] for index in shard.skip]
    issued = issue_slot_contract(
        engine,
        node,
        units=units,
        plan=Planned(len(shard.units), digest),
        skip=skip,
        terms=Terms(enforcement=enforcement(), wall_s=dispatch.executor.wall_s),
    )
    invocation = issued.invocation_id
    engine.execute(
        d.OpenSlot(
            node.node_id,
            invocation,
            issued.sha256,
            dispatch.executor.kind,
            len(keys),
            digest,
        )
    )
    order = order_for(
        engine,
        node,
        invocation=invocation,
        scope=f"{shards_directory(engine, node.node_id)}/{invocation}",
        environment={"PERDURE_SHARD": str(number)},
    )
    try:
        started = start_order(
            engine,
            dispatch.executor,
            order,
            wall_s=dispatch.timeout_s,
            shared=dispatch.shared,
        )
    except HaltError as error:
        if engine.is_usable and invocation in engine.replica.state.slots:
            why = f"it could not be started: {error.message}"[:observation_chars_max]
            engine.execute(d.CloseSlot(invocation, "abandoned", left=len(keys), observation=why))
        raise
    return Worker(shard, keys, order, started.command)


def _unit(items: ItemList, index: int) -> dict[str, Any]:
    item = items[index]
    return {"key": item.key} if item.value is None else {"key": item.key, "item": item.value}


def keys_of(units: object) -> Sequence[str] | None:
    """The keys in the ``units`` of a slot's contract; None when they cannot be read."""
    listed = units.get("keys") if isinstance(units, dict) else None
    if not isinstance(listed, list):
        return None
    keys = [unit.get("key") if isinstance(unit, dict) else None for unit in listed]
    return [key for key in keys if isinstance(key, str)]
