"""Finding things by the names people type: exact, by unique prefix, or with a suggestion.

Invariants: never guesses between two matches; an unknown name is NotFoundError with near misses.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from perdure.core.gates import gate_named
from perdure.core.model import (
    AMENDABLE_STATES,
    ActiveContract,
    Artifact,
    Node,
    State,
    id_key,
)
from perdure.core.people import Question
from perdure.errors import NotFoundError, RefusedError, UsageError

near_words_max: Final = 5_000
"""Words that :func:`near` looks at: a suggestion must not cost more than the call it is about."""


def node_of(state: State, node_id: str) -> Node:
    """The node of exactly this id."""
    node = state.nodes.get(node_id)
    if node is None:
        raise NotFoundError(
            f"there is no node {node_id!r} in task {state.task_id}.",
            code="unknown_node",
            fix="`perdure status` lists the nodes; `perdure add` makes one.",
            suggestions=near(node_id, state.nodes),
        )
    return node


def artifact_of(state: State, artifact_id: str) -> Artifact:
    """The artifact of exactly this id."""
    artifact = state.artifacts.get(artifact_id)
    if artifact is None:
        raise NotFoundError(
            f"there is no artifact {artifact_id!r} in task {state.task_id}.",
            code="unknown_artifact",
            fix="`perdure show NODE` lists the artifacts of a node.",
            suggestions=near(artifact_id, state.artifacts),
        )
    return artifact


def contract_of(state: State, node: Node) -> ActiveContract | None:
    """The contract in force for a node; None when nobody is at work on it."""
    return state.contracts.get(node.invocation or "")


def pending_steering(state: State) -> list[str]:
    """Ids of the instructions that are on record and not propagated, in the order they came in."""
    return [name for name, entry in state.steering.items() if not entry.acknowledged]


def check_propagated(state: State) -> None:
    """Raise RefusedError while an instruction is on record that nothing has acted on yet (FR-2)."""
    pending = pending_steering(state)
    if pending:
        raise RefusedError(
            f"steering {pending[0]} is on record and not propagated, and nothing starts before.",
            code="steering_pending",
            rule="FR-2",
            fix="Run `perdure resume`, which propagates it.",
        )


def complete(typed: str, names: Iterable[str], what: str) -> str:
    """The one name that ``typed`` is, or is a prefix of.

    Raises UsageError when it is a prefix of several, NotFoundError when of none.
    """
    known = list(names)
    if typed in known:
        return typed
    matches = [name for name in known if name.startswith(typed)] if typed else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        shown = sorted(matches, key=id_key)[:5]
        raise UsageError(
            f"{typed!r} could be any of {len(matches)} {what}s.",
            code="ambiguous_id",
            fix="Type more of it.",
            suggestions=shown,
        )
    raise NotFoundError(
        f"there is no {what} {typed!r}.",
        code=f"unknown_{what}",
        fix="`perdure status` lists what there is.",
        suggestions=near(typed, known),
    )


def question_of(state: State, typed: str) -> Question:
    """The open question that ``typed`` is the id of, or the gate of, or a unique beginning of.

    Raises RefusedError (H2) for one that is closed, naming the event that settled it, UsageError
    for a beginning of several, NotFoundError for anything else.
    """
    questions = state.questions
    if typed in questions:
        return questions[typed]
    of_gate = [question for question in questions.values() if typed and question.gate == typed]
    if len(of_gate) == 1:
        return of_gate[0]
    closed = state.closed_questions
    begun = [name for name in questions if typed and name.startswith(typed)]
    name = typed
    if typed not in closed and not begun:
        ended = [name for name in closed if typed and name.startswith(typed)]
        name = ended[0] if len(ended) == 1 else typed
    if name in closed:
        raise RefusedError(
            f"question {name} is closed: {closed[name]} settled it.",
            code="question_closed",
            rule="H2",
            fix=_after_the_end(state, name),
        )
    return questions[complete(typed, begun or questions, "question")]


def _after_the_end(state: State, name: str) -> str:
    """What is left to whoever comes too late to a question."""
    for node in state.nodes.values():
        for refused in node.rejected if node.state in AMENDABLE_STATES else ():
            gate = gate_named(state, node, refused)
            if gate is not None and gate.blocks == "start" and f"{name}.".startswith(f"{refused}."):
                return way_past_refusal(node)
    return "`perdure log` tells how; ask anew with `perdure ask` if it is open for you."


def way_past_refusal(node: Node) -> str:
    """How a start that a person has refused comes to be asked about anew."""
    return (
        "Change what was refused, such as a file that it is about, or the command: perdure amend"
        f" {node.node_id} --reason WHY --run CMD. Then it is asked about anew."
    )


def near(word: str, words: Iterable[str], most: int = 3) -> list[str]:
    """The words that ``word`` may have been meant for, the nearest first.

    Our own small edit distance: the standard library's module for this costs more to import than
    a whole ``note`` may take.
    """
    wanted = word.lower().replace("_", "-")
    scored = []
    for candidate in islice(words, near_words_max):
        known = candidate.lower().replace("_", "-")
        reach = max(1, len(known) // 3)
        if len(wanted) >= 3 and known.startswith(wanted):
            scored.append((1, id_key(candidate), candidate))
        elif abs(len(wanted) - len(known)) <= reach and (edits := _edits(wanted, known)) <= reach:
            scored.append((edits, id_key(candidate), candidate))
    return [candidate for _, _, candidate in sorted(scored)[:most]]


def _edits(one: str, other: str) -> int:
    """Insertions, deletions, replacements and swaps of neighbours that turn one into the other."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, right in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if last and j > 1 and left == other[j - 2] and one[i - 2] == right:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]
