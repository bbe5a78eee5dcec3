"""Whether a procedure may be dispatched from a node, and what it needs when it is.

Job: find the card of a node, bind its inputs, and hold both to the limits of nesting, all the way
down as far as the cards themselves say. Invariants: nothing is dispatched whose side effects exceed
those of its node (SC-1), that is within itself (AP-N4), or that would lie deeper than the policy
allows (DP-1); the same call is told from another by what the node says, not by where it lies.
Reads only.
"""

import contextlib
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from perdure.control.executors import agent_executor, check_each
from perdure.control.nested_copies import output_names
from perdure.control.sop_card import Card
from perdure.control.sop_graph import SAMPLE_TASK, InstancePlan, instance_plan, output_paths
from perdure.control.sop_inputs import bind_inputs
from perdure.control.sop_library import FoundCard, card_places, find_card, installed_card
from perdure.core import instance as i
from perdure.core.actions import AgentCall, SopCall
from perdure.core.audits import auditor_of
from perdure.core.grants import allows_network
from perdure.core.lookup import near
from perdure.core.model import Effect, Node, Spec
from perdure.errors import HaltError, NotFoundError, RefusedError, UsageError
from perdure.ports import Disk
from perdure.runtime.engine import Engine
from perdure.runtime.instance_files import (
    directory_of,
    is_there,
    read_invocation,
    result_name,
)

_REACHING: Final = frozenset({"S2", "S3"})


class Called(NamedTuple):
    """A procedure with the values it is called with."""

    found: FoundCard
    inputs: dict[str, Any]

    @property
    def card(self) -> Card:
        """The card alone."""
        return self.found.card


class Needs(NamedTuple):
    """What the nodes of an instance need beyond its directory."""

    network: bool
    agents: tuple[AgentCall, ...]


class _Level(NamedTuple):
    """One call on the way down."""

    node_id: str
    """With the nodes above it."""
    scope: str
    outputs: tuple[str, ...] | None
    effect: Effect
    call: SopCall
    directory: str
    depth: int
    above: tuple[str, ...]


def call_of(engine: Engine, node: Node, task_dir: str) -> Called:
    """The card and the bound inputs of a node. Raises NotFoundError, CardError, UsageError."""
    if node.spec.sop is None:
        raise NotFoundError(
            f"{node.node_id} names no procedure.",
            code="sop_unknown",
            fix="Give it one: sop: ID, in the task file.",
        )
    return _called(engine, node.spec.sop, task_dir, node.node_id)


def _begun(engine: Engine, instance: str) -> Called | None:
    """What an instance that goes on runs: its own copy, whatever became of the card (SC-3)."""
    directory = directory_of(engine.layout.root, instance)
    if not instance or not is_there(engine.disk, directory):
        return None
    with contextlib.suppress(HaltError):  # else it says itself what is wrong with its copy
        held = read_invocation(engine.disk, directory).sop
        found = installed_card(held.id, held.version, disk=engine.disk, workspace=directory)
        return Called(found, read_invocation(engine.disk, directory).inputs)
    return None


def check_root(
    plan: InstancePlan, *, disk: Disk, places: Sequence[str], directory: str, workspace: str
) -> None:
    """Raise HaltError where a node of a root instance names what there is not.

    That is an agent, or a card and inputs that it takes, as far as can be known before the instance
    has a workspace: from then on it runs its own copy of the card in ``directory``.
    """

    def check(node: Node) -> None:
        for agent in _agents_of(node.spec):
            agent_executor(agent).require_installed(node, directory)
        if node.spec.sop is not None:
            with _named(node.node_id):
                _find(node.spec.sop, disk, places, directory, workspace)

    check_each((Node(one.node_id, one.title, one.spec) for one in plan.task.nodes), check)


def _called(engine: Engine, call: SopCall, directory: str, node_id: str) -> Called:
    places = _places(engine, directory)
    with _named(node_id):
        return _find(call, engine.disk, places, directory, engine.layout.root)


def _find(call: SopCall, disk: Disk, places: Sequence[str], directory: str, root: str) -> Called:
    found = find_card(call.sop, call.version, disk=disk, places=places, directory=directory)
    inputs = bind_inputs(found.card, call.inputs, directory=directory, workspace=root)
    return Called(found, inputs)


@contextlib.contextmanager
def _named(node_id: str) -> Iterator[None]:
    """What is wrong with a card or its inputs is told of the node that calls it."""
    try:
        yield
    except HaltError as error:
        error.message = f"{node_id}: {error.message}"
        raise


def _places(engine: Engine, task_dir: str) -> tuple[str, ...]:
    """Those of the workspace and its project, and the workspaces that it is nested in."""
    root, above = engine.layout.root, []
    while posixpath.basename(posixpath.dirname(root)) == i.INSTANCES:
        root = posixpath.dirname(posixpath.dirname(root))
        above.append(f"{root}/sops")
    own = card_places(engine.disk, workspace=engine.layout.root, start_dir=task_dir)
    return tuple(dict.fromkeys((*own[:1], *above, *own[1:])))


def check_dispatch(engine: Engine, node: Node, task_dir: str, begun: str = "") -> None:
    """Raise HaltError unless the node may call its procedure, and that what it calls in turn.

    ``begun`` is the instance that goes on, where one does.
    NotFoundError ``executor_missing`` for an agent of any of them that is not installed.
    """
    for level, plan, place in _descend(engine, node, task_dir, begun):
        for inner in plan.task.nodes:
            named = Node(f"{level.node_id} > {inner.node_id}", inner.title, inner.spec)
            for agent in _agents_of(inner.spec):
                agent_executor(agent).require_installed(named, place)


def plans_below(engine: Engine, node: Node, task_dir: str, begun: str = "") -> list[InstancePlan]:
    """The plans of the procedure of a node and of every one below it. Raises as a check does."""
    return [plan for _, plan, _ in _descend(engine, node, task_dir, begun)]


def _descend(
    engine: Engine, node: Node, task_dir: str, begun: str
) -> Iterator[tuple[_Level, InstancePlan, str]]:
    """Each call on the way down, its plan, and the directory that its card lies in."""
    state = engine.replica.state
    if node.spec.sop is None:
        return
    stack = [
        _Level(
            node.node_id,
            f"artifacts/{node.node_id}",
            node.spec.outputs,
            node.effect,
            node.spec.sop,
            task_dir,
            i.depth_of(state.parent) + 1,
            i.lineage(state.sop, state.parent),
        )
    ]
    while stack:
        level = stack.pop()
        _check_depth(level, state.policies.nesting_depth_max)
        own = _begun(engine, begun) if level.node_id == node.node_id else None
        called = own or _called(engine, level.call, level.directory, level.node_id)
        _check_card(level, called.card)
        _check_outputs(level, called)
        with _named(level.node_id):
            plan = instance_plan(
                called.card, called.inputs, task_id=SAMPLE_TASK, workspace=engine.layout.root
            )
        below = posixpath.dirname(called.found.path)
        yield level, plan, below
        stack += [
            _Level(
                f"{level.node_id} > {inner.node_id}",
                f"artifacts/{inner.node_id}",
                inner.spec.outputs,
                inner.effect,
                inner.spec.sop,
                below,
                level.depth + 1,
                (*level.above, called.card.sop_id),
            )
            for inner in plan.task.nodes
            if inner.spec.sop is not None
        ]


def _check_depth(level: _Level, depth_max: int) -> None:
    if level.depth <= depth_max:
        return
    raise RefusedError(
        f"{level.node_id} would run {level.call.sop} at depth {level.depth}; {depth_max} is the"
        " deepest.",
        code="too_deep",
        rule="DP-1",
        fix="Do more of it on one level; `perdure policy nesting_depth_max N --reason WHY` changes"
        " the limit.",
    )


def _check_card(level: _Level, card: Card) -> None:
    if card.sop_id in level.above:
        way = " > ".join((*level.above, card.sop_id))
        raise RefusedError(
            f"{level.node_id} would run {card.sop_id} within itself ({way}).",
            code="sop_recursion",
            rule="AP-N4",
            fix="Name a procedure that does a part of the work, not the whole of it again.",
        )
    above = [effect for effect in card.side_effects if effect > level.effect]
    if above:
        raise RefusedError(
            f"{card.sop_id} may have effects of class {max(above)}, and {level.node_id} is"
            f" {level.effect}.",
            code="sop_profile",
            rule="SC-1",
            fix=f"Say effect: {max(above)} at the node, which is then held to that class.",
        )


def _check_outputs(level: _Level, called: Called) -> None:
    names = output_names(output_paths(called.card, called.inputs)).values()
    there = [f"{level.scope}/{name}" for name in (*names, result_name)]
    unmade = [path for path in level.outputs or () if path not in there]
    if unmade:
        raise UsageError(
            f"{level.node_id} is to have {unmade[0]}, which {called.card.sop_id} does not make.",
            code="sop_outputs",
            rule="NC-2",
            fix=f"It makes {', '.join(there)}.",
            suggestions=near(unmade[0], there),
        )


def names_of(engine: Engine, directory: str) -> dict[str, str]:
    """What the outputs of an instance are called here, by the card that it runs."""
    held = read_invocation(engine.disk, directory)
    found = installed_card(held.sop.id, held.sop.version, disk=engine.disk, workspace=directory)
    return output_names(output_paths(found.card, held.inputs))


def needs_of(plans: Iterable[InstancePlan]) -> Needs:
    """Whether the nodes of these plans reach outside, and which agents they call."""
    network, agents = False, dict[str, AgentCall]()
    for plan in plans:
        for node in plan.task.nodes:
            network = network or node.effect in _REACHING or allows_network(node.spec.grants)
            for agent in _agents_of(node.spec):
                agents[repr(agent)] = agent
    return Needs(network or bool(agents), tuple(agents.values()))


def _agents_of(spec: Spec) -> Iterator[AgentCall]:
    if spec.agent is not None:
        yield spec.agent
    if spec.map is not None and spec.map.agent is not None:
        yield spec.map.agent
    for criterion in spec.acceptance_criteria:
        auditor = auditor_of(criterion.params) if criterion.check == "audit" else None
        if auditor is not None:
            yield auditor


def is_call_of(node: Node, held: i.Invocation) -> bool:
    """Whether an instance was called as the node calls now."""
    return node.spec.sop is not None and held.called_as == as_called(node.spec.sop)


def as_called(call: SopCall) -> dict[str, Any]:
    """The call of a node as the invocation keeps it."""
    found: dict[str, Any] = msgspec.to_builtins(call)
    return found
