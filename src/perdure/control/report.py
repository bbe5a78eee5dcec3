"""How a run ended: finished, stuck on a person, failed, paused or interrupted.

Job: one verdict on a task when nothing more can run by itself. Invariants: ``finished`` only when
every node is closed, none of them is dead without a successor, and every registered file is still
what it was; a failure never hides behind a success.
"""

import msgspec

from perdure.core import views
from perdure.core.batch import is_automatic
from perdure.core.escalation import VERIFICATION_FAILED
from perdure.core.frontier import frontier
from perdure.core.gates import asks_consent, holds_work
from perdure.core.machine import count_states, open_nodes, unreplaced
from perdure.core.model import AT_WORK_STATES, State
from perdure.core.with_people import with_people
from perdure.errors import TransitionError
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.integrity import failures, integrity_walk


class RunReport(msgspec.Struct, frozen=True):
    """How a run ended."""

    outcome: str
    """``finished``, ``needs_person``, ``failed``, ``paused`` or ``interrupted``."""
    counts: dict[str, int]
    questions: dict[str, str] = {}
    """Question id to its text, of every open one."""
    kinds: dict[str, str] = {}
    """Question id to what kind of question it is, which says how it is answered."""
    consents: tuple[str, ...] = ()
    """Those of the questions that are to be approved or rejected, besides gates."""
    waiting: tuple[str, ...] = ()
    """Nodes that a person or an agent has to work on, or to settle."""
    by_hand: tuple[str, ...] = ()
    """Those of them that may start, and have no command."""
    with_people: tuple[dict[str, str], ...] = ()
    """What people have in hand: ``node``, ``why``, and ``then``, the command that ends it."""
    failed: tuple[str, ...] = ()
    """Nodes that are given up, or whose files are not what was registered."""
    damaged: tuple[str, ...] = ()
    """What is wrong with registered files, one line each."""
    signal: int = 0
    halted: str = ""
    """The wall (PD-H2) because of which nothing is dispatched before a person acts."""


def conclude_run(
    runtime: HaltRuntime, *, unstoppable: set[str], paused: bool, signal: int, halted: str = ""
) -> RunReport | None:
    """Judge a task that nothing is running for. A finished one goes to FINAL_AUDIT (T07).

    ``halted`` is the wall that keeps what is ready from being dispatched, if one does.

    None when a message has reopened it in that very moment: then there is nothing to judge yet.
    """
    state = runtime.state
    walk = integrity_walk(runtime.engine, quick=True)
    damaged = tuple(f"{name} {text}" for name, text in failures(walk).items())
    failed = dict.fromkeys([*unreplaced(state), *runtime.recovered.suspects])
    ready = frontier(runtime.engine.replica)
    by_hand = [name for name in ready if not is_automatic(state.nodes[name].spec)]
    at_work = [n.node_id for n in state.nodes.values() if n.state in AT_WORK_STATES]
    held = views.held(runtime.engine.replica)
    stopped = ready if halted else []
    waiting = dict.fromkeys([*at_work, *held, *sorted(unstoppable), *by_hand, *stopped])
    for name in failed:
        waiting.pop(name, None)
    if signal or paused:
        outcome = "interrupted" if signal else "paused"
    elif not open_nodes(state) and not failed and not damaged:
        outcome = "finished"
        if state.fsm_task == "EXECUTING":
            try:
                runtime.move_task("FINAL_AUDIT")
            except TransitionError:
                if not open_nodes(state):
                    raise
                return None
    elif waiting or _person_needed(state):
        outcome = "needs_person"
    else:
        outcome = "failed"
    return RunReport(
        outcome,
        count_states(state),
        {name: question.text for name, question in state.questions.items()},
        {name: question.kind for name, question in state.questions.items()},
        tuple(name for name, question in state.questions.items() if asks_consent(question)),
        tuple(waiting),
        tuple(by_hand),
        tuple(with_people(state)[: views.items_max]),
        tuple(failed),
        damaged,
        signal,
        halted,
    )


def _person_needed(state: State) -> bool:
    """Whether an open question makes the run wait for a person.

    A node whose checks have failed for good is a failure, and the question what takes its place
    does not hide it.
    """
    return any(
        holds_work(question) and question.package.get("kind") != VERIFICATION_FAILED
        for question in state.questions.values()
    )
