"""Tasks as supervision finds them, built by hand: no journal, no disk, a clock that is a number.

``T0`` is when the task was started. Steps are nodes; what was observed is written down as the fold
would have left it.
"""

from typing import Any

import msgspec

from perdure.core.model import ActiveContract, Artifact, Executor, Integrity, Node, Spec, State
from perdure.core.observed import Block, Download, ExternalJob, Observed, Reply, StepObserved
from perdure.core.people import Question
from perdure.core.supervision import derive
from perdure.core.supervision_decide import decide_action, remember
from perdure.core.supervision_records import Action, Derived, Facts, Memory

T0 = 1_800_000_000.0
MINUTE = 60.0
NO_FACTS, NO_MEMORY = Facts(), Memory()
WHOLE = Facts(artifacts={"A1": "whole"})


def task(*nodes: Node, **observed: Any) -> State:
    """A task that was started at ``T0``, with these nodes and these observations."""
    observed.setdefault("started_at", T0)
    observed.setdefault("progress_at", T0)
    observed.setdefault("progress_ref", "J-1")
    return State(
        task_id="T1",
        goal_statement="the goal",
        created="then",
        fsm_task="EXECUTING",
        seq=100,
        nodes={node.node_id: node for node in nodes},
        observed=Observed(**observed),
    )


def step(
    name: str, state: str = "PENDING", *deps: str, ref: int | None = None, **more: Any
) -> Node:
    if ref is None:
        ref = 2
    node = Node(name, f"title of {name}", Spec(), deps, state_ref=f"J-{ref}", **more)
    node.state = state  # type: ignore[assignment]
    if state == "RUNNING":
        node.invocation = f"inv-{name}"
    return node


def under_contract(state: State, name: str, issued_at: float = T0) -> State:
    """The node is at work under a contract of a session."""
    who = Executor("executor:x", "session")
    invocation = state.nodes[name].invocation or ""
    state.contracts[invocation] = ActiveContract(invocation, name, who, 1, issued_at, issued_at + 9)
    return state


def output(
    state: State, artifact_id: str, node: str | None = "N1", status: str = "current"
) -> State:
    """A registered artifact; whether it is on disk is for the facts to say."""
    path = f"artifacts/{node}/{artifact_id}"
    value = Integrity("sha256", "ab" * 32, 3, "then")
    state.artifacts[artifact_id] = Artifact(path, "doc", node, None, value, status, 3)
    return state


def ask(state: State, node: str, question_id: str = "Q-001", **more: Any) -> State:
    """An open question that holds a node."""
    question = Question(question_id, "May it?", node, "J-9", asked_at=T0, **more)
    state.questions[question_id] = question
    return state


def block(node: str, failure_type: str = "", ref: int = 50, at: float = T0, **more: Any) -> Block:
    return Block(
        f"J-{ref}", at, more.pop("reason", "the key is missing"), node, failure_type=failure_type,
        needs=("a key",), safe_next_step="ask for a key", **more,
    )  # fmt: skip


def job(state: str, node: str = "", *, evidence: bool = True, at: float = T0) -> ExternalJob:
    facts = {"status_url": "https://example.invalid/1"} if evidence else {"note": "sent"}
    return ExternalJob("acme", "j:1", state, node, facts, "J-8", at)


def download(status: str, node: str = "") -> Download:
    return Download("d1", status, "x.bin", node=node)


def seen(state: str = "RUNNING", **more: Any) -> StepObserved:
    return StepObserved(state, **more)  # type: ignore[arg-type]


def reply(letter: str, at: float, node: str = "") -> Reply:
    return Reply(letter, "J-60", at, node)


def look(state: State, minutes: float = 1.0, facts: Facts = NO_FACTS) -> Derived:
    """What is derived that many minutes after the start."""
    return derive(state, facts, T0 + minutes * MINUTE)


def act(
    state: State,
    minutes: float = 1.0,
    facts: Facts = NO_FACTS,
    memory: Memory = NO_MEMORY,
    **more: Any,
) -> Action:
    """The action that many minutes after the start."""
    now = T0 + minutes * MINUTE
    return decide_action(derive(state, facts, now), state.policies, memory, now, **more)


def carry_out(
    state: State, minutes: float, facts: Facts = NO_FACTS, memory: Memory = NO_MEMORY
) -> tuple[Action, Memory]:
    """The action, and the memory after it was carried out."""
    now = T0 + minutes * MINUTE
    derived = derive(state, facts, now)
    action = decide_action(derived, state.policies, memory, now)
    return action, remember(memory, derived, action, now)


def copy(state: State) -> State:
    """Another state that is equal."""
    return msgspec.convert(msgspec.to_builtins(state), State)
