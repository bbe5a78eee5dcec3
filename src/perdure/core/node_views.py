"""What people and agents read of one node or record: plain data, bounded where it is for an agent.

Job: the answers of ``next`` and ``show``. Invariants: those of ``views``.
"""

from typing import Final

import msgspec

from perdure.core.batch import criteria_of
from perdure.core.criteria import render_criterion
from perdure.core.fold import Replica
from perdure.core.gates import approval_of, gates_of, open_question_of, refused_as_it_is
from perdure.core.inbox import shown_time
from perdure.core.lookup import contract_of
from perdure.core.machine import edges_from, open_deps
from perdure.core.model import Node, State
from perdure.core.next_pointer import next_pointer
from perdure.core.observed import Block, Download, ExternalJob, StepObserved
from perdure.core.people import Gate, Question
from perdure.core.settling import commands_for
from perdure.core.views import Data, cut, items_max

brief_chars_max: Final = 1_200
"""Text of a spec that ``next`` shows."""
directive_chars_max: Final = 200
"""Text of an instruction that ``next`` shows."""


def next_step(replica: Replica) -> Data:
    """The first of the frontier and what doing it takes; or why there is none."""
    pointer = next_pointer(replica)
    if pointer["node"] is None:
        return pointer
    state = replica.state
    node = state.nodes[pointer["node"]]
    outputs = node.spec.outputs
    return {
        "node": node.node_id,
        "title": pointer["title"],
        "goal": cut(node.spec.goal, brief_chars_max),
        "scope": f"artifacts/{node.node_id}/",
        "outputs": None if outputs is None else list(outputs[:items_max]),
        "accept": [cut(render_criterion(item)) for item in criteria_of(node)[:items_max]],
        "directives": [cut(said, directive_chars_max) for said in node.directives[-items_max:]],
        "inputs": [
            state.artifacts[name].path
            for dep in node.deps[:items_max]
            for name in state.nodes[dep].artifacts[:items_max]
        ][:items_max],
        "attempt": node.attempts + 1,
        "last_failure": cut(node.diagnosis, 400),
        "others_ready": pointer["others_ready"],
        "commands": pointer["commands"],
    }


def show(replica: Replica, name: str) -> Data:
    """One node, artifact, question, slot or contract, whole."""
    state = replica.state
    node = state.nodes.get(name)
    if node is not None:
        return {"type": "node", **_node(replica, node)}
    artifact = state.artifacts.get(name)
    if artifact is not None:
        return {"type": "artifact", "id": name, **msgspec.to_builtins(artifact)}
    question = state.questions.get(name)
    if question is not None:
        return {"type": "question", **_question(state, question)}
    slot = state.slots.get(name)
    if slot is not None:
        return {
            "type": "slot",
            **msgspec.to_builtins(slot),
            "opened_at": shown_time(slot.opened_at),
        }
    return {"type": "contract", **msgspec.to_builtins(state.contracts[name])}


def _question(state: State, question: Question) -> Data:
    data: Data = msgspec.to_builtins(question)
    for name in ("asked_at", "expires_at"):
        if data.get(name) is not None:
            data[name] = shown_time(data[name])
    return {**data, "commands": commands_for(state, question)}


def _node(replica: Replica, node: Node) -> Data:
    state = replica.state
    data: Data = msgspec.to_builtins(node)
    data["spec"]["acceptance"] = [render_criterion(c) for c in criteria_of(node)]
    data["waits_for"] = {dep: state.nodes[dep].state for dep in open_deps(state, node)}
    data["dependents"] = list(replica.dependents.get(node.node_id, ()))
    data["can_go_to"] = sorted({edge.target for edge in edges_from(node.state)})
    data["files"] = {name: state.artifacts[name].path for name in node.artifacts}
    data["gates"] = {
        gate.gate_id: gate_standing(state, node, gate) for gate in gates_of(state, node)
    }
    data["observed"] = _observed(state, node.node_id)
    slots = [slot.invocation_id for slot in state.slots.values() if slot.node == node.node_id]
    if slots:
        data["slots"] = slots
    contract = contract_of(state, node)
    data["contract"] = None if contract is None else msgspec.to_builtins(contract)
    return data


def _observed(state: State, node_id: str) -> Data:
    """What was last seen of a node, and of what is done for it elsewhere; empty when nothing."""
    observed = state.observed
    step, block = observed.steps.get(node_id), observed.blocks.get(node_id)
    data: Data = {}
    if step is not None:
        data = {"state": step.state, **_timed(step)}
    if block is not None:
        data["block"] = _timed(block)
    for name, found in (("external", observed.external), ("downloads", observed.downloads)):
        mine = {key: _timed(seen) for key, seen in found.items() if seen.node == node_id}
        if mine:
            data[name] = mine
    return data


_MOMENTS: Final = ("at", "changed_at", "completed_at", "progress_at")


def _timed(seen: StepObserved | Block | ExternalJob | Download) -> Data:
    """An observation with its times as the journal writes them."""
    data: Data = msgspec.to_builtins(seen)
    return data | {name: shown_time(data[name]) for name in _MOMENTS if name in data}


def gate_standing(state: State, node: Node, gate: Gate) -> str:
    """How a gate stands as far as the record tells; what is on disk is read when it matters."""
    approval = approval_of(state, node, gate, None)
    question = open_question_of(state, node, gate.gate_id)
    if question is not None:
        stands = f"asked, as {question.question_id}"
    elif approval is not None:
        stands = f"approved by {approval.by} in {approval.ref}"
    else:
        stands = "refused" if refused_as_it_is(state, node, gate) else "not asked yet"
    return f"before {'RUNNING' if gate.blocks == 'start' else 'DONE'}: {stands}"
