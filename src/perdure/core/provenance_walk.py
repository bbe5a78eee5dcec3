"""The way back from a result, as a tree (INV-9).

Job: from an artifact, a node, an event, a decision, a question or an instruction to what it rests
on, step by step, until somebody decided it. Invariants: each thing is told once and named again
where it comes up again; depth and number of steps are bounded and what is left out is said; what is
superseded or invalidated is marked where it stands.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from perdure.core.model import Artifact, State
from perdure.core.provenance import Edge, Fact, Provenance
from perdure.core.views import cut

depth_default: Final = 3
steps_max: Final = 400
facts_max: Final = 6
"""Events told of one node; the decisive ones come first."""
siblings_max: Final = 12
"""Things of one kind that a step rests on; of more there is the number."""

Step = dict[str, Any]

_DECISIVE: Final = (
    "verified and DONE", "quarantined", "cancelled", "verification failed", "claimed", "started",
    "started again", "attempt ended", "blocked", "amended", "planned",
)  # fmt: skip


_BACK: Final = ("DEPENDS_ON", "DERIVED_FROM", "SUPERSEDES")
"""Edges that lead back from where they begin; the others lead back from where they end."""


class Walk:
    """One walk; ``gone`` maps artifact ids to what is wrong with them on disk."""

    def __init__(
        self, state: State, index: Provenance, *, depth: int, gone: Mapping[str, str]
    ) -> None:
        self._state = state
        self._index = index
        self._depth = max(1, depth)
        self._gone = gone
        self._told: set[str] = set()
        self._steps = 0
        self._to_expand: deque[tuple[Step, str, int]] = deque()

    def back_from(self, name: str) -> Step:
        """The tree below one id, event ref or path."""
        step = self._step(name, "", 0)
        while self._to_expand:  # the nearest first, so that each thing is told where it is near
            self._expand(*self._to_expand.popleft())
        created = self._index.facts.get("J-1")
        if created is not None and "J-1" not in self._told:
            step["children"].append({**self._told_fact(created), "edge": "BEGAN"})
        return step

    def _step(self, name: str, edge: str, level: int) -> Step:
        if name in self._told:
            return self._brief(name, edge, again=True)
        if level > self._depth or self._steps >= steps_max:
            return self._brief(name, edge, again=False)
        self._told.add(name)
        self._steps += 1
        step = _new(name, edge, self._what(name))
        step["marks"] = self._marks(name)
        artifact, fact = self._state.artifacts.get(name), self._index.facts.get(name)
        if artifact is not None:
            self._tell_artifact(step, name, artifact)
        elif fact is not None:
            step |= _words(fact)
        self._to_expand.append((step, name, level))
        return step

    def _expand(self, step: Step, name: str, level: int) -> None:
        """What is right behind one thing."""
        node, artifact = self._state.nodes.get(name), self._state.artifacts.get(name)
        fact = self._index.facts.get(name)
        about = [self._index.facts[ref] for ref in self._index.about.get(name, ())]
        if node is not None:
            step["children"] += [self._told_fact(one) for one in decisive(about)]
        elif artifact is not None:
            registered = self._index.facts.get(f"J-{artifact.commit_event}")
            step["children"] += [self._told_fact(registered)] if registered is not None else []
        elif fact is not None:
            step["children"] += self._behind(fact, level)
        else:
            for one in about[-facts_max:]:
                told = self._told_fact(one)
                told["children"] = self._behind(one, level + 1, subject=False)
                step["children"].append(told)
        self._edges(step, name, level)

    def _behind(self, fact: Fact, level: int, *, subject: bool = True) -> list[Step]:
        """What an event rests on, and what it is about."""
        found = [self._step(ref, "SUPPORTS", level + 1) for ref in fact.evidence[:siblings_max]]
        if subject and fact.subject and fact.subject != self._state.task_id:
            found.append(self._step(fact.subject, "ABOUT", level + 1))
        return found

    def _brief(self, name: str, edge: str, *, again: bool) -> Step:
        step = _new(name, edge, self._what(name))
        step["more"] = "told already" if again else f"perdure why {name}"
        return step

    def _what(self, name: str) -> str:
        node, artifact = self._state.nodes.get(name), self._state.artifacts.get(name)
        if node is not None:
            return f"{cut(node.title, 80)}: {node.state}"
        if artifact is not None:
            return artifact.path
        fact = self._index.facts.get(name)
        return fact.what if fact is not None else ""

    def _tell_artifact(self, step: Step, name: str, artifact: Artifact) -> None:
        known = artifact.integrity
        step["said"] = f"{known.algo} {known.value[:16]}, {known.size_bytes} bytes"
        if artifact.status != "current":
            step["marks"].append(artifact.status)
        if name in self._gone:
            step["marks"].append(f"on disk: {self._gone[name]}")

    def _told_fact(self, fact: Fact) -> Step:
        self._told.add(fact.ref)
        self._steps += 1
        return _new(fact.ref, "", fact.what) | _words(fact)

    def _edges(self, step: Step, name: str, level: int) -> None:
        """What supports it, what it derives from and depends on, and what took something back."""
        index = self._index
        into = [e for e in _newest(index.edges_to.get(name, ())) if e.kind == "SUPPORTS"]
        out = [e for e in _newest(index.edges_from.get(name, ())) if e.kind in _BACK]
        against = [e for e in _newest(index.edges_to.get(name, ())) if e.kind == "INVALIDATES"]
        rows = [(e.source, e.kind) for e in (*into, *against)]
        rows += [(e.target, e.kind) for e in out]
        rows = list(dict.fromkeys(rows))
        for other, kind in rows[:siblings_max]:
            step["children"].append(self._step(other, kind, level + 1))
        if len(rows) > siblings_max:
            step["children"].append(_new("", "", f"and {len(rows) - siblings_max} more"))

    def _marks(self, name: str) -> list[str]:
        marks = [f"superseded by {heir}" for heir in self._index.superseded_by(name)]
        return marks + [f"invalidated ({ref})" for ref in self._index.invalidated_by(name)]


def _new(name: str, edge: str, what: str) -> Step:
    return {
        "ref": name, "edge": edge, "what": what, "actor": "", "at": "", "said": "", "by": "",
        "marks": [], "children": [], "more": "",
    }  # fmt: skip


def _words(fact: Fact) -> Step:
    return {"actor": fact.actor, "at": fact.at, "said": fact.said, "by": fact.authority}


def _newest(edges: Iterable[Edge]) -> list[Edge]:
    """Of each pair of ends the newest edge, in the order in which they came."""
    found: dict[tuple[str, str, str], Edge] = {}
    for edge in edges:
        found[(edge.kind, edge.source, edge.target)] = edge
    return list(found.values())


def decisive(facts: list[Fact]) -> list[Fact]:
    """The newest fact of each kind, the decisive ones first, at most ``facts_max``."""
    newest = {fact.what: fact for fact in facts}
    ordered = [newest[what] for what in _DECISIVE if what in newest]
    rest = [fact for what, fact in newest.items() if what not in _DECISIVE]
    return [*ordered, *rest][:facts_max]


def count_steps(step: Step) -> int:
    """How many steps a tree has."""
    return 1 + sum(count_steps(child) for child in step["children"])
