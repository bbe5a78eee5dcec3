"""Finding things by the names people type: exact, by unique prefix, or with a suggestion.

Invariants: never guesses between two matches; an unknown name is NotFoundError with near misses.
"""

from collections.abc import Iterable

from perdure.core.model import Artifact, Node, State, id_key
from perdure.errors import NotFoundError, UsageError


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
    """The words closest to ``word`` by edit distance, if any is close enough to be a slip."""
    scored = []
    limit = max(1, len(word) // 3)
    for candidate in words:
        if abs(len(candidate) - len(word)) <= limit:
            distance = _distance(word.lower(), candidate.lower(), limit)
            if distance <= limit:
                scored.append((distance, id_key(candidate), candidate))
    return [candidate for _, _, candidate in sorted(scored)[:most]]


def _distance(a: str, b: str, limit: int) -> int:
    """Edit distance with swaps of neighbours; anything above ``limit`` is just more than it."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, before, row = before, row, [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
    return row[-1]
