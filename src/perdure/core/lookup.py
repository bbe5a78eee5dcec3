"""Finding things by the names people type: exact, by unique prefix, or with a suggestion.

Invariants: never guesses between two matches; an unknown name is NotFoundError with near misses.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from perdure.core.model import ActiveContract, Artifact, Node, State, id_key
from perdure.errors import NotFoundError, UsageError

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
