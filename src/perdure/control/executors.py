"""Which executor carries out a node, and starting what it launches.

Job: from the action of a node to its executor, from an order to a process that is held to what its
contract grants. Invariants: the executor follows from the action alone; whatever is launched here
is confined where the kernel can do that (INV-10), and what was enforced is said in its contract and
when it starts; its temporary files go below the workspace, where it may write. Never commits.
"""

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, cast

from perdure.control.child_files import Shared
from perdure.control.confinement import Confinement, capability
from perdure.control.executor import RunningCommand, start_command
from perdure.control.executor_port import Executor, Launch, Order, Report, report_of_exit
from perdure.control.outcome import Ended
from perdure.control.python_call import PythonExecutor
from perdure.core.actions import AgentCall
from perdure.core.batch import action_of
from perdure.core.contract import dispatch_message
from perdure.core.grants import allows_network, grants_of, opens_workspace, read_grant, write_paths
from perdure.core.late import LateModule
from perdure.core.model import CLOSED_STATES, Node
from perdure.errors import HaltError, NotFoundError, RefusedError, StorageError, UsageError
from perdure.runtime.contracts import environment_for, task_directory
from perdure.runtime.engine import Engine

# Most runs have neither an agent nor a procedure.
_agents: Final = LateModule("perdure.control.agents")
_audits: Final = LateModule("perdure.control.audits")
_nested: Final = LateModule("perdure.control.nested")

_INSTALLED: Final = ("python", "agent", "sop")
"""Actions whose executor has to be there; the program of a command may be made by another node."""
_told_max: Final = 20
_DEVICES: Final = (
    "/dev/tty", "/dev/zero", "/dev/full", "/dev/ptmx", "/dev/pts",
    "/dev/shm",  # noqa: S108  (where semaphores live)
)  # fmt: skip
"""What ordinary programs open for writing that keeps nothing of it."""


class CommandExecutor:
    """A command line of the task file: its exit code is all that it reports."""

    kind: str = "command"
    wall_s: float | None = None

    def __init__(self, run: str | tuple[str, ...]) -> None:
        self._run = run

    def require_installed(self, node: Node, order_directory: str) -> None:
        """A program may be made by a node before it, so that nothing is known before its start."""

    def launch(self, order: Order) -> Launch:
        """The command as it is written."""
        return Launch(self._run)

    def read_end(self, order: Order, ended: Ended) -> Report:
        """Exit code 0 is a claim; everything else is a failure."""
        return report_of_exit(ended)


def executor_for(engine: Engine, node: Node) -> Executor:
    """The executor of a plain node by its action. Raises RefusedError for one that has none.

    A batch node has none of its own: see ``agent_executor`` for the workers of its shards.
    """
    kind = action_of(node.spec)
    if kind == "run":
        return CommandExecutor(node.spec.run or "")
    if kind == "python":
        return PythonExecutor()
    if kind == "agent" and node.spec.agent is not None:
        return agent_executor(node.spec.agent)
    if kind == "sop":
        return cast(Executor, _nested.SopExecutor(engine))
    raise RefusedError(
        f"{node.node_id} has no action that can be launched.",
        code="no_executor",
        rule="FR-1",
        fix="Start it by hand: perdure start " + node.node_id,
    )


def start_facts(engine: Engine, node: Node) -> dict[str, Any]:
    """What the event of the start says besides: which instance a procedure goes on with."""
    if node.spec.sop is None:
        return {}
    facts: dict[str, Any] = _nested.start_facts(engine, node)
    return facts


def agent_executor(call: AgentCall) -> Executor:
    """The executor of one agent, whether for a node, a shard or an audit."""
    return cast(Executor, _agents.AgentExecutor(call))


def require_executors(engine: Engine, nodes: Iterable[Node], task_dir: str) -> None:
    """Raise what keeps any of these nodes from ever being launched, before any of them starts.

    They need not be in the graph; of those that are closed nothing is asked. NotFoundError
    ``executor_missing`` says what to install; a procedure is looked for as well, and whether it may
    be dispatched from its node. Everything is told at once, as by :func:`check_each`.
    """
    still_open = (node for node in nodes if node.state not in CLOSED_STATES)
    check_each(still_open, lambda node: _require_executor(engine, node, task_dir))


def check_each(nodes: Iterable[Node], check: Callable[[Node], None]) -> None:
    """Raise what ``check`` refuses of these nodes: of several at once, under the first's code."""
    found: list[HaltError] = []
    for node in nodes:
        try:
            check(node)
        except (NotFoundError, UsageError, RefusedError) as error:
            found.append(error)
    if len(found) > 1:
        raise _all_of(found)
    if found:
        raise found[0]


def _require_executor(engine: Engine, node: Node, task_dir: str) -> None:
    batch = node.spec.map
    if batch is not None:
        if batch.agent is not None:
            agent_executor(batch.agent).require_installed(node, task_dir)
    elif action_of(node.spec) in _INSTALLED:
        executor_for(engine, node).require_installed(node, task_dir)
    _audits.require_auditor(engine.replica.state, node, task_dir)


def _all_of(found: list[HaltError]) -> HaltError:
    """One refusal for several nodes: code, rule and exit code are those of the first."""
    first = found[0]
    lines = [f"{one.code}: {one.message}" + (f" {one.fix}" if one.fix else "") for one in found]
    lines[_told_max:] = [f"and {len(found) - _told_max} more"] if len(found) > _told_max else []
    return type(first)(
        f"{len(found)} nodes cannot be carried out:\n  " + "\n  ".join(lines) + "\n",
        code=first.code,
        rule=first.rule,
        fix="Correct them all; nothing was started.",
    )


def order_for(
    engine: Engine,
    node: Node,
    *,
    invocation: str = "",
    scope: str = "",
    environment: dict[str, str] | None = None,
) -> Order:
    """The order for a contract that is durable: of the node's own, or of ``invocation``.

    ``scope`` is where it may write, else the node's scope; ``environment`` comes on top of what a
    node's command finds.
    """
    layout = engine.layout
    name = invocation or node.invocation or ""
    contract = layout.contract(name)
    where = scope or layout.node_scope(node.node_id)
    given = {
        **environment_for(engine, node),
        "PERDURE_INVOCATION": name,
        "PERDURE_CONTRACT": contract,
        "PERDURE_ACTOR": f"executor:{name}",
        "PERDURE_SCOPE": where,
        "TMPDIR": layout.tmp,  # what comes from outside is not where it may write
        **node.spec.env,
        **(environment or {}),
    }
    return Order(
        node,
        name,
        contract,
        dispatch_message(os.path.relpath(contract, layout.root)),
        layout.root,
        where,
        task_directory(engine),
        layout.log(node.node_id, name).removesuffix(".log") + ".out",
        given,
    )


def confinement_for(
    engine: Engine, order: Order, launch: Launch, *, write_scope: bool = True
) -> Confinement:
    """What a child is held to: its scope, scratch, the drop box, its grants, the launch's own.

    An auditor works without ``write_scope``. A granted file that is not there yet cannot be granted
    without the directory that it is to be made in, so that is.
    """
    layout = engine.layout
    granted = grants_of(order.node)
    home = order.environment.get("HOME", "")
    common = [layout.tmp, layout.spool, layout.journal_lock, *_DEVICES]
    write = [*common, *launch.write]
    if write_scope:
        paths = opened_paths(granted, layout.root, order.task_dir, home)
        for path in paths:
            if not os.path.lexists(path):
                with contextlib.suppress(StorageError):  # then it stays what it is: not there
                    engine.disk.make_dirs(path)
        own = layout.node_scope(order.node.node_id)
        if order.scope != own:  # a worker of a batch node has a place of its own in there
            paths = [path for path in paths if path != own]
        write = [order.scope, *paths, *write]
    return Confinement(tuple(dict.fromkeys(write)), launch.network or allows_network(granted))


def opened_paths(granted: Iterable[str], root: str, task_dir: str, home: str) -> list[str]:
    """What the kernel has to open for these grants, absolute: of a file that is not there yet, the
    directory that it is to be made in."""
    found = []
    for text in granted:
        for path in write_paths([text], root, task_dir, home):
            is_whole = read_grant(text).tree or os.path.lexists(path)
            found.append(path if is_whole else os.path.dirname(path))
    return found


def enforcement(confinement: Confinement | None = None, root: str = "") -> dict[str, Any]:
    """What the kernel holds a child to, as its contract and its ``started`` event say it."""
    found = capability().as_dict()
    if confinement is not None:
        paths = [path for path in confinement.write if path not in _DEVICES]
        found["write"] = [_shown(path, root) for path in paths]
        found["network_granted"] = confinement.network
        if opens_workspace(paths, root):
            found["opens_workspace"] = True  # the journal is not protected from it
    return found


def _shown(path: str, root: str) -> str:
    return os.path.relpath(path, root) if path.startswith(root + "/") else path


class Started(NamedTuple):
    """A child that carries out an order."""

    command: RunningCommand
    confinement: Confinement
    log_path: str


def start_order(
    engine: Engine,
    executor: Executor,
    order: Order,
    *,
    wall_s: float | None,
    shared: Shared = Shared(),  # noqa: B008
    confine: Callable[[Engine, Order, Launch], Confinement] = confinement_for,
) -> Started:
    """Launch an order whose contract is recorded; returns at once.

    ``wall_s`` of None leaves the limit to the executor; ``confine`` says what the child is held to.
    Raises HaltError when there can be no launch, StorageError when its files cannot be opened; then
    nothing is left running. A crash leaves what the next coordinator finds by its invocation.
    """
    layout, disk = engine.layout, engine.disk
    launch = executor.launch(order)
    confinement = confine(engine, order, launch)
    log_path = layout.log(order.node.node_id, order.invocation)
    disk.make_dirs(layout.runs)
    disk.make_dirs(layout.spool)
    command = start_command(
        launch.command,
        cwd=layout.root,
        environment={**order.environment, **launch.environment},
        log_path=log_path,
        output_path=order.output if launch.separate_output else "",
        record_path=layout.run_record(order.invocation),
        wall_s=wall_s if wall_s is not None else executor.wall_s,
        clock=engine.world.clock,
        disk=disk,
        census=shared.census,
        pump=shared.pump,
        confinement=confinement,
    )
    return Started(command, confinement, log_path)
