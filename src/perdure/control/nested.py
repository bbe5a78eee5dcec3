"""The executor of a node that names a procedure: a child instance in a process of its own.

Job: check that a procedure may be dispatched, call it, and read how it ended. Invariants: what is
refused is refused before anything starts (SC-1, AP-N4, DP-1); an instance that was interrupted or
waits goes on as the same one, one that failed is called anew and named in the new invocation; of a
child nothing counts but its result, after its journal and the disk have borne it out (FE-2, IO-2);
its outputs are copied here and verified here (NC-2). Never commits, and never reads a child's
internals to decide anything.
"""

import contextlib
import posixpath
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.control import nested_checks
from perdure.control.executor_port import Launch, Order, Question, Report, report_of_exit
from perdure.control.executors import agent_executor
from perdure.control.instance import write_invocation
from perdure.control.nested_copies import copy_outputs
from perdure.control.nested_questions import deliver_answers
from perdure.control.outcome import Ended, signature_chars_max
from perdure.core import instance as i
from perdure.core.actions import AgentCall
from perdure.core.budget import budget_of
from perdure.core.contract import Contract
from perdure.core.dispatching import Parent
from perdure.core.grants import allows_network, grants_of
from perdure.core.model import FailureClass, Node, State, contract_bytes_max
from perdure.core.payload import record
from perdure.errors import HaltError, StorageError
from perdure.runtime.engine import Engine
from perdure.runtime.instance_files import (
    check_result,
    directory_of,
    is_there,
    read_invocation,
    read_result,
)

_REFUSALS: Final[Mapping[int, FailureClass]] = {
    2: "permanent-resource",
    3: "permanent-resource",
    4: "permanent-resource",
    5: "transient-environment",
    6: "permanent-resource",
    7: "transient-environment",
}
"""Exit code of an instance that could not be opened, to the class of failure that this is."""


class SopExecutor:
    """Runs ``spec.sop`` of a node as an instance below ``instances/``."""

    kind: Final = "sop"
    wall_s: Final = None

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def require_installed(self, node: Node, order_directory: str) -> None:
        """Raise HaltError unless the procedure is there and may be dispatched from this node.

        NotFoundError for a card that is not found, UsageError for inputs that do not fit it,
        RefusedError for side effects above those of the node (SC-1), a procedure within itself
        (AP-N4) and an instance too deep (DP-1), also where they are to come further down.
        """
        begun = start_facts(self._engine, node).get("child_ref", "")
        nested_checks.check_dispatch(self._engine, node, order_directory, begun)

    def launch(self, order: Order) -> Launch:
        """Call the instance, or what goes on of it, and the process that drives it.

        Its directory, its card and its invocation are durable on return, and so are the answers
        that people have given meanwhile; a crash leaves what the next start goes on from.
        """
        engine, node = self._engine, order.node
        instance = node.child_ref or order.invocation
        directory = directory_of(order.workspace, instance)
        if not is_there(engine.disk, directory):
            called = nested_checks.call_of(engine, node, order.task_dir)
            invocation = _invocation(engine, order, instance, called)
            write_invocation(engine.disk, directory, invocation, called.found)
        deliver_answers(engine, node, instance, directory)
        plans = nested_checks.plans_below(engine, node, order.task_dir, instance)
        needs = nested_checks.needs_of(plans)
        jobs = () if order.jobs is None else ("--jobs", str(order.jobs))
        return Launch(
            (sys.executable, "-P", "-m", "perdure", "instance", "run", directory, *jobs),
            write=(directory, *_state_of_agents(order, needs.agents)),
            network=needs.network or allows_network(grants_of(node)),
        )

    def read_end(self, order: Order, ended: Ended) -> Report:
        """What its result says, once that is borne out; else how the process ended."""
        instance = order.node.child_ref or order.invocation
        directory = directory_of(order.workspace, instance)
        try:
            result = read_result(self._engine.disk, directory)
        except HaltError as error:
            return Report(False, ("transient-agent", error.message[:signature_chars_max]))
        word, detail = ("", "")
        if result is not None and (status := i.read_status(result.status)) is not None:
            word, detail = status
        if result is None or ended.how != "exited" or ended.exit_code != i.EXIT_CODES[word]:
            return _died(ended)
        try:
            return self._read_result(order, result, directory, word, detail)
        except StorageError as error:
            return Report(False, ("transient-environment", error.message[:signature_chars_max]))
        except HaltError as error:
            why = f"{error.code}: {error.message}"[:signature_chars_max]
            return Report(False, ("transient-agent", why), usage=result.usage)

    def _read_result(
        self, order: Order, result: i.Result, directory: str, word: str, detail: str
    ) -> Report:
        check_result(result, directory, self._engine.world)
        usage = result.usage
        questions = tuple(_passed_on(result, one) for one in result.open_questions)
        if word == i.BLOCKED:
            return Report(False, usage=usage, questions=questions)
        if word == i.FAILED:
            return Report(False, _failure(result, detail), usage=usage, notice=_note(result))
        names = nested_checks.names_of(self._engine, directory)
        copy_outputs(self._engine, order.node, result, directory, names)
        return Report(True, usage=usage, questions=questions, notice=_note(result))


def _state_of_agents(order: Order, agents: tuple[AgentCall, ...]) -> tuple[str, ...]:
    """What the agents of the nodes below have to write for themselves; one not there has none."""
    found: dict[str, None] = {}
    for call in agents:
        with contextlib.suppress(HaltError):
            found.update(dict.fromkeys(agent_executor(call).launch(order).write))
    return tuple(found)


def start_facts(engine: Engine, node: Node) -> dict[str, Any]:
    """``child_ref`` where the last instance of a node goes on; empty where a new one is called.

    It goes on when it was interrupted, was killed or waits for people; also when it was done and
    its parent did not live to say so. One that failed, that was turned down, or whose call has
    changed since is left as it is.
    """
    instance, call = node.child_ref, node.spec.sop
    if not instance or call is None:
        return {}
    directory = directory_of(engine.layout.root, instance)
    if not is_there(engine.disk, directory):  # its parent died before it had called it
        return {"child_ref": instance}
    try:
        held = read_invocation(engine.disk, directory)
        result = read_result(engine.disk, directory)
    except HaltError:
        return {}
    if not nested_checks.is_call_of(node, held):
        return {}
    status = i.read_status(result.status) if result is not None else None
    if status is None or status.word == i.BLOCKED:
        return {"child_ref": instance}
    turned_down = bool(node.failures) and node.failures[-1].attempt == node.attempts
    if status.word == i.FAILED or turned_down:
        return {}
    return {"child_ref": instance}


def _invocation(
    engine: Engine, order: Order, instance: str, called: nested_checks.Called
) -> i.Invocation:
    state, node = engine.replica.state, order.node
    return i.Invocation(
        invocation_id=instance,
        sop=i.SopRef(called.card.sop_id, called.card.version, called.found.sha256),
        inputs=called.inputs,
        called_as=nested_checks.as_called(node.spec.sop) if node.spec.sop is not None else {},
        parent=Parent(
            state.task_id,
            node.node_id,
            instance,
            i.depth_of(state.parent) + 1,
            i.lineage(state.sop, state.parent),
        ),
        contract=posixpath.relpath(order.contract, directory_of(order.workspace, instance)),
        previous=_previous(engine, order),
        budget=msgspec.to_builtins(budget_of(node)),
        authority_grants=tuple(grants_of(node)),
        reporting={
            "heartbeat_min_interval_min": state.policies.heartbeat_s / 60,
            "ledger_required": True,
        },
        tier=state.tier,
        policies=state.policies,
        people=state.people,
        delegation=state.delegation,
        standing_authorities=_standing(state, node),
    )


def _standing(state: State, node: Node) -> tuple[str, ...]:
    """What is allowed to a node is allowed to all that is done in its name."""
    allowed = {"*", node.node_id} & set(state.standing_authorities)
    return ("*",) if allowed else ()


def _previous(engine: Engine, order: Order) -> str:
    """The instance that was at this node before, as the contract names it; none when it is torn."""
    try:
        data = engine.disk.read(order.contract, 0, contract_bytes_max)
        contract = msgspec.json.decode(data, type=Contract)
    except (msgspec.MsgspecError, RecursionError):
        return ""
    return contract.instance.previous if contract.instance is not None else ""


def _passed_on(result: i.Result, one: i.OpenQuestion) -> Question:
    root = i.path_of(result.invocation_id)
    links = tuple(f"{root}/{path}" for path in one.links)
    return Question(one.ref, one.text, one.options, one.default, one.context, links, one.to)


def _failure(result: i.Result, failure_class: str) -> tuple[FailureClass, str]:
    failed = result.failure
    said = failed.signature if failed is not None else "it says no more"
    signature = f"{result.sop.id} failed: {said}"[:signature_chars_max]
    read = record({"failure_class": failure_class}, _Class)
    return (read.failure_class if read is not None else "transient-agent"), signature


class _Class(msgspec.Struct, frozen=True):
    failure_class: FailureClass


def _note(result: i.Result) -> str:
    if not result.handoff_note:
        return ""
    return f"{result.status}: see {i.path_of(result.invocation_id)}/{result.handoff_note}"


def _died(ended: Ended) -> Report:
    """It reported nothing that fits its end: as with any executor that dies.

    An instance that was refused its own workspace says so with the exit code of the refusal.
    """
    if ended.how == "exited" and ended.exit_code in i.EXIT_CODES.values():
        code = ended.exit_code
        return Report(False, ("transient-agent", f"exit {code} without a result to match"))
    found = _REFUSALS.get(ended.exit_code or 0) if ended.how == "exited" else None
    if found is None:
        return report_of_exit(ended)
    said = [line for line in ended.log_tail.splitlines() if line.startswith("perdure: ")]
    why = said[-1].removeprefix("perdure: ") if said else f"exit {ended.exit_code}"
    return Report(False, (found, f"the instance could not be opened: {why}"[:signature_chars_max]))
