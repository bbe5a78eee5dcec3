"""What supervision reads off a task: its steps in order, what blocks them, what contradicts itself.

Job: the parts of ``derive`` that look at one thing each. Invariants: pure functions of state and
facts; an inconsistency has an id that never changes, and what it says in words is in one table; a
step that was given up (QUARANTINED, CANCELLED) contradicts nothing.
"""

from collections.abc import Iterator
from typing import Final

from perdure.core.machine import unreplaced
from perdure.core.model import AT_WORK_STATES, CLOSED_STATES, DEAD_STATES, Node, State
from perdure.core.observed import (
    PENDING_STATES,
    PROVIDER_EVIDENCE,
    RETRY_FIRST,
    Block,
    ExternalJob,
)
from perdure.core.supervision_parts import BlockInForce, ExternalSeen, Output, Step
from perdure.core.supervision_records import Facts, SuspectedDeath

ids_named_max: Final = 50
"""Steps that one inconsistency id names; the rest is counted."""

INCONSISTENCIES: Final[dict[str, str]] = {
    "task:completed_but_blocked": "The task was reported complete while a blocker is in force.",
    "task:completed_but_steps_not_done": "The task was reported complete with steps not done: {}.",
    "task:completed_but_external_pending":
        "The task was reported complete while external job {} is pending.",
    "external:pending_without_evidence":
        "External job {} is said to be pending, and nothing from the provider shows it.",
    "download:incomplete": "Download {} is incomplete.",
    "download:corrupt": "Download {} is corrupt.",
    "step:completed_but_blocked": "{} was reported complete while a blocker of it is in force.",
    "step:progress_after_completion": "Progress on {} was observed after its completion.",
    "step:later_before_earlier": "{} is at work or done before {}, on which it depends.",
    "artifact:missing": "Artifact {} is registered and not on disk.",
    "artifact:changed": "Artifact {} is not what was registered.",
}  # fmt: skip
"""Each kind of contradiction and how it is put; what follows the kind in an id fills the gaps."""

SUSPICION: Final = "external:pending_without_evidence"
"""The one contradiction that the owner can clear up with a fact, and is asked about first."""


def kind_of(inconsistency: str) -> str:
    """The kind that an inconsistency id is of."""
    return ":".join(inconsistency.split(":")[:2])


def describe(inconsistency: str) -> str:
    """An inconsistency id as a sentence."""
    kind = kind_of(inconsistency)
    about = inconsistency[len(kind) + 1 :]
    # A node id has no colon, the name of an external job may have any number of them.
    parts = about.split(":") if kind == "step:later_before_earlier" else [about]
    return INCONSISTENCIES[kind].format(*parts)


def number_of(ref: str) -> int:
    """The sequence number that ``J-n`` names; -1 for what is no such ref."""
    digits = ref.removeprefix("J-")
    return int(digits) if digits.isdecimal() else -1


def state_of_step(state: State, node: Node) -> str:
    """The observed state where there is one that still counts, else the node's.

    What a verdict or an authority has closed is what they say: DONE comes from N06 alone. A claim
    under verification is newer than the work that led to it.
    """
    seen = state.observed.steps.get(node.node_id)
    if node.state in CLOSED_STATES or seen is None:
        return node.state
    if node.state == "VERIFYING" and seen.state == "RUNNING":
        return node.state
    return seen.state


def workflow_of(state: State) -> tuple[Step, ...]:
    """Every step, each after those it depends on, otherwise in the order they were added."""
    return tuple(_step(state, state.nodes[name]) for name in _in_order(state))


def _step(state: State, node: Node) -> Step:
    said = state_of_step(state, node)
    seen = state.observed.steps.get(node.node_id)
    ref = node.state_ref or ""
    if said == "COMPLETED" and seen is not None:
        ref = seen.completed_ref
    closed = node.state in CLOSED_STATES
    return Step(node.node_id, node.title, said, node.deps, ref, not closed)


def _in_order(state: State) -> Iterator[str]:
    """Depth first and without recursion; a cycle, which only others can write, is cut anywhere."""
    begun: set[str] = set()
    for root in state.nodes:
        if root in begun:
            continue
        begun.add(root)
        stack = [(root, iter(state.nodes[root].deps))]
        while stack:
            name, deps = stack[-1]
            following = next((d for d in deps if d in state.nodes and d not in begun), None)
            if following is None:
                stack.pop()
                yield name
            else:
                begun.add(following)
                stack.append((following, iter(state.nodes[following].deps)))


# Blockers, jobs outside, files


def blocks_of(state: State, workflow: tuple[Step, ...]) -> tuple[BlockInForce, ...]:
    """Confirmed blockers that stand: that of the task first, then in the order of the steps."""
    held = state.observed.blocks
    if not held:
        return ()
    order = {"": -1, **{step.step: place for place, step in enumerate(workflow)}}
    names = sorted(held, key=lambda name: order.get(name, len(order)))
    return tuple(_block(state, held[name]) for name in names if _stands(state, held[name]))


def _stands(state: State, block: Block) -> bool:
    """A node that was moved on since, or was closed, is not held by an older word."""
    node = state.nodes.get(block.node)
    if node is None:
        return True
    forward = node.state in AT_WORK_STATES or node.state == "READY"
    newer = number_of(node.state_ref or "") > number_of(block.ref)
    return node.state not in CLOSED_STATES and not (forward and newer)


def _block(state: State, block: Block) -> BlockInForce:
    return BlockInForce(
        f"block:{block.node}:{block.ref}",
        block.ref,
        block.at,
        block.reason,
        block.node,
        block.needs,
        block.safe_next_step,
        block.failure_type,
        block.failure_type in RETRY_FIRST,
        state.observed.retries.get(f"{block.node}:{block.failure_type}", 0),
    )


def given_up(state: State, node_id: str) -> bool:
    """Whether this is a node that was quarantined or cancelled."""
    node = state.nodes.get(node_id)
    return node is not None and node.state in DEAD_STATES


def external_of(state: State) -> tuple[ExternalSeen, ...]:
    """Every external job that was observed, with the names of the facts that are evidence."""
    return tuple(
        ExternalSeen(
            key, job.provider, job.job_id, job.state, job.node, _evidence(job), job.changed_at
        )
        for key, job in state.observed.external.items()
    )


def _evidence(job: ExternalJob) -> tuple[str, ...]:
    return tuple(
        sorted(name for name in PROVIDER_EVIDENCE & job.facts.keys() if job.facts[name].strip())
    )


def pending_of(state: State, jobs: tuple[ExternalSeen, ...]) -> list[ExternalSeen]:
    """Jobs that are pending by the last observation, but for those of steps that were given up."""
    return [j for j in jobs if j.state in PENDING_STATES and not given_up(state, j.node)]


def outputs_of(state: State, facts: Facts) -> tuple[Output, ...]:
    """Current artifacts whose bytes were found as registered; what was not looked at is none."""
    found = []
    for name, artifact in state.artifacts.items():
        if artifact.status == "current" and facts.artifacts.get(name) == "whole":
            node = state.nodes.get(artifact.produced_by_node or "")
            verified = node is not None and node.state == "DONE"
            where = artifact.produced_by_node or ""
            found.append(Output(name, artifact.path, artifact.kind, where, verified))
    return tuple(found)


def suspicions_of(state: State, facts: Facts, now: float) -> dict[str, SuspectedDeath]:
    """Suspected deaths that stand: of steps at work under a contract.

    That a contract is past its time says no more than silence does: it counts once the step itself
    has been silent for as long as an owner may be, and never while the step waits for a job outside
    that is known to be pending.
    """
    found = {}
    for name, suspicion in facts.executors.items():
        node = state.nodes.get(name)
        if node is None or node.state != "RUNNING":
            continue
        if suspicion.kind == "contract_expired":
            newest = _newest_of_step(state, facts, node)
            if newest is not None and now - newest < state.policies.nudge_after_s:
                continue
            jobs = state.observed.external.values()
            if any(j.node == name and j.state in PENDING_STATES and _evidence(j) for j in jobs):
                continue
        found[name] = suspicion
    return found


def _newest_of_step(state: State, facts: Facts, node: Node) -> float | None:
    seen = state.observed.steps.get(node.node_id)
    contract = state.contracts.get(node.invocation or "")
    known = [
        seen.progress_at if seen is not None else None,
        facts.ledgers.get(node.node_id),
        contract.issued_at if contract is not None else None,
        contract.last_beat_at if contract is not None else None,
    ]
    return max((at for at in known if at is not None), default=None)


# Contradictions


def contradictions(
    state: State,
    facts: Facts,
    workflow: tuple[Step, ...],
    pending: list[ExternalSeen],
    blocks: tuple[BlockInForce, ...],
    *,
    completed: bool,
) -> tuple[str, ...]:
    """Ids of everything that cannot be true at once, in the order of the contract."""
    found: list[str] = []
    if completed:
        if blocks or any(step.state == "BLOCKED" for step in workflow):
            found.append("task:completed_but_blocked")
        left = _not_done(state, workflow)
        if left:
            found.append(f"task:completed_but_steps_not_done:{_named(left)}")
        found += [f"task:completed_but_external_pending:{job.key}" for job in pending]
    found += [f"{SUSPICION}:{job.key}" for job in pending if not job.evidence]
    for name, download in state.observed.downloads.items():
        if download.status in ("INCOMPLETE", "CORRUPT") and not given_up(state, download.node):
            found.append(f"download:{download.status.lower()}:{name}")
    seen = state.observed.steps
    held = [block.node for block in blocks if block.node in seen]
    found += [f"step:completed_but_blocked:{n}" for n in held if seen[n].state == "COMPLETED"]
    found += _out_of_order(state, workflow)
    for name, artifact in state.artifacts.items():
        condition = facts.artifacts.get(name, "whole")
        cited = artifact.status == "current" and not given_up(
            state, artifact.produced_by_node or ""
        )
        if cited and condition != "whole":
            found.append(f"artifact:{condition}:{name}")
    return tuple(found)


def _not_done(state: State, workflow: tuple[Step, ...]) -> list[str]:
    """Steps that keep a task from being complete; one given up counts once it was replaced."""
    dead_ends = set(unreplaced(state))
    return [step.step for step in workflow if step.open or step.step in dead_ends]


def _named(names: list[str]) -> str:
    shown = ",".join(names[:ids_named_max])
    return shown if len(names) <= ids_named_max else f"{shown},+{len(names) - ids_named_max}"


_BEGUN: Final = AT_WORK_STATES | {"COMPLETED", "DONE"}


def _out_of_order(state: State, workflow: tuple[Step, ...]) -> Iterator[str]:
    for step in workflow:
        seen = state.observed.steps.get(step.step)
        dead = state.nodes[step.step].state in DEAD_STATES
        if seen is not None and seen.progress_after_completion and not dead:
            yield f"step:progress_after_completion:{step.step}"
    waiting = {step.step for step in workflow if step.open}
    for step in workflow:
        if step.state in _BEGUN:
            for dep in step.deps:
                if dep in waiting:
                    yield f"step:later_before_earlier:{step.step}:{dep}"
