"""The way back from a result, as a tree (INV-9).

Job: from an artifact, a node, an event, a decision, a question or an instruction to what it rests
on, step by step, until somebody decided it. Invariants: each thing is told once and named again
where it comes up again; depth and number of steps are bounded and what is left out is said; what is
superseded, invalidated, stale or not on disk as registered is marked where it stands; only what is
told is looked at on the disk.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from perdure.core.instance import INSTANCES
from perdure.core.model import State
from perdure.core.provenance import Edge, Fact, Provenance
from perdure.core.views import cut

depth_default: Final = 3
steps_max: Final = 400
siblings_max: Final = 12
"""Things of one kind that a step rests on; of more there is the number."""
facts_max: Final = 6
"""Events told of one node; the decisive ones come first."""

Step = dict[str, Any]


class Sizes(NamedTuple):
    """How much one answer tells."""

    depth: int = depth_default
    steps: int = steps_max
    siblings: int = siblings_max
    facts: int = facts_max
    every_event: bool = False
    """Each event of a thing, also where a later one of the same kind followed."""


def sizes_of(view: str, depth: int) -> Sizes:
    """Those of a view, ``summary`` or ``full``."""
    if view == "full":
        return Sizes(max(1, depth), 4_000, 200, 200, every_event=True)
    return Sizes(max(1, depth))


class Around(NamedTuple):
    """What is outside of the journal that is walked."""

    wrong: Callable[[str], str] = lambda name: ""
    """What is the matter on disk with an artifact or a document; empty where nothing is."""
    below: Callable[[str, int], list[Step]] = lambda name, depth: []
    """The trees of an instance's outputs, at most so deep."""
    prefix: str = ""
    """Before each id, where the journal is an instance's: ``INSTANCE#``."""


_DECISIVE: Final = (
    "verified and DONE", "taken back: its files are gone", "quarantined", "cancelled",
    "verification failed", "claimed", "started", "started again", "attempt ended", "blocked",
    "amended", "planned",
)  # fmt: skip


_BACK: Final = ("DEPENDS_ON", "DERIVED_FROM", "SUPERSEDES")
"""Edges that lead back from where they begin; the others lead back from where they end."""


class Walk:
    """One walk over what ``index`` has taken in, with ``state`` at the end of it."""

    def __init__(self, state: State, index: Provenance, sizes: Sizes, around: Around) -> None:
        self._state = state
        self._index = index
        self._sizes = sizes
        self._around = around
        self._told: set[str] = set()
        self._steps = 0
        self._to_expand: deque[tuple[Step, str, str, int]] = deque()
        """Steps with their name, the name that they were told of, and their level."""

    def back_from(self, name: str) -> Step:
        """The tree below one id, event ref or path."""
        step = self._step(name, None, 0, "")
        while self._to_expand:  # the nearest first, so that each thing is told where it is near
            self._expand(*self._to_expand.popleft())
        created = self._index.facts.get("J-1")
        if created is not None and "J-1" not in self._told:
            step["children"].append({**self._told_fact(created), "edge": "BEGAN"})
        return step

    def _step(self, name: str, edge: Edge | None, level: int, above: str) -> Step:
        if name in self._told:
            return self._brief(name, edge, "told already")
        if level > self._sizes.depth or self._steps >= self._sizes.steps:
            return self._brief(name, edge, f"perdure why {self._around.prefix}{name}")
        self._told.add(name)
        self._steps += 1
        step = self._new(name, edge, self._what(name))
        step["marks"] = self._marks(name)
        artifact, fact = self._state.artifacts.get(name), self._index.facts.get(name)
        if artifact is not None:
            known = artifact.integrity
            step["said"] = f"{known.algo} {known.value[:16]}, {known.size_bytes} bytes"
        elif fact is not None:
            step |= _words(fact)
        self._to_expand.append((step, name, above, level))
        return step

    def _expand(self, step: Step, name: str, above: str, level: int) -> None:
        """What is right behind one thing, which is told of ``above``."""
        node, artifact = self._state.nodes.get(name), self._state.artifacts.get(name)
        fact = self._index.facts.get(name)
        about = [self._index.facts[ref] for ref in self._index.about.get(name, ())]
        known = {above}
        if node is not None:
            self._tell(step, about)
        elif artifact is not None:
            registered = self._index.facts.get(f"J-{artifact.commit_event}")
            step["children"] += [self._told_fact(registered)] if registered is not None else []
        elif fact is not None:
            step["children"] += self._behind(fact, {name, above}, level)
        elif name.startswith(f"{INSTANCES}/"):
            below = max(1, self._sizes.depth - level)
            step["children"] += self._around.below(name.partition("/")[2], below)
        else:
            told = self._tell(step, about)
            known |= {name, *(one.ref for _, one in told)}
            for child, one in told:
                child["children"] = self._behind(one, known, level + 1, subject=False)
                known.update(one.evidence)
        self._edges(step, name, known, level)

    def _tell(self, step: Step, about: list[Fact]) -> list[tuple[Step, Fact]]:
        """Put the events of a thing below it, as far as they are told."""
        shown = about if self._sizes.every_event else decisive(about)
        told = [(self._told_fact(one), one) for one in shown[: self._sizes.facts]]
        step["children"] += [child for child, _ in told]
        if len(told) < len(about):
            left = len(about) - len(told)
            step["more"] = f"{left} more event{'s' if left > 1 else ''}: --view full"
        return told

    def _behind(
        self, fact: Fact, known: set[str], level: int, *, subject: bool = True
    ) -> list[Step]:
        """What an event rests on, and what it is about, but for what stands beside it already."""
        evidence = [ref for ref in dict.fromkeys(fact.evidence) if ref not in known]
        most = self._sizes.siblings
        found = [
            self._step(ref, Edge("SUPPORTS", ref, fact.ref, ""), level + 1, fact.ref)
            for ref in evidence[:most]
        ]
        if len(evidence) > most:
            found.append(self._rest(len(evidence) - most))
        if subject and fact.subject and fact.subject not in {self._state.task_id, *known}:
            found.append(self._step(fact.subject, None, level + 1, fact.ref))
            found[-1]["edge"] = "ABOUT"
        return found

    def _brief(self, name: str, edge: Edge | None, more: str) -> Step:
        return {**self._new(name, edge, self._what(name)), "more": more}

    def _what(self, name: str) -> str:
        node, artifact = self._state.nodes.get(name), self._state.artifacts.get(name)
        if node is not None:
            return f"{cut(node.title, 80)}: {node.state}"
        if artifact is not None:
            return artifact.path
        fact = self._index.facts.get(name)
        if fact is not None:
            return fact.what
        if name in self._index.cited:
            return f"entry of the {self._index.cited[name][0] or 'memory'} store"
        return _KINDS.get(name.partition("/")[0], "") if "/" in name else ""

    def _told_fact(self, fact: Fact) -> Step:
        self._told.add(fact.ref)
        self._steps += 1
        step = self._new(fact.ref, None, fact.what) | _words(fact)
        step["marks"] = self._marks(fact.ref)
        return step

    def _edges(self, step: Step, name: str, known: set[str], level: int) -> None:
        """What supports it, what it derives from and depends on, and what took something back."""
        index = self._index
        into = [e for e in _newest(index.edges_to.get(name, ())) if e.kind == "SUPPORTS"]
        out = [e for e in _newest(index.edges_from.get(name, ())) if e.kind in _BACK]
        against = [e for e in _newest(index.edges_to.get(name, ())) if e.kind == "INVALIDATES"]
        rows: dict[tuple[str, str], tuple[str, Edge]] = {}
        for edge in (*into, *against, *out):
            other = edge.target if edge.kind in _BACK else edge.source
            if other not in known:
                rows[(other, edge.kind)] = (other, edge)
        most = self._sizes.siblings
        for other, edge in list(rows.values())[:most]:
            step["children"].append(self._step(other, edge, level + 1, name))
        if len(rows) > most:
            step["children"].append(self._rest(len(rows) - most))

    def _rest(self, left: int) -> Step:
        full = "" if self._sizes.every_event else ": --view full"
        return self._new("", None, f"and {left} more{full}")

    def _marks(self, name: str) -> list[str]:
        state, index = self._state, self._index
        heirs = index.superseded_by(name)
        marks = [f"superseded by {heir}" for heir in heirs]
        since = _stands_since(state, name)
        for ref in dict.fromkeys(index.invalidated_by(name)):
            before = f" before it was made anew (J-{since})" if _number(ref) < since else ""
            marks.append(f"invalidated ({ref}){before}")
        artifact, doc = state.artifacts.get(name), state.docs.get(name)
        if artifact is not None and artifact.status != "current" and not heirs:
            marks.append(artifact.status)
        if doc is not None and doc.stale:
            marks.append(f"stale since {doc.stale}: {doc.why}")
        if index.cited.get(name, ("", ""))[1]:
            marks.append(index.cited[name][1])
        closed = state.closing
        if closed.corrected and name == closed.audit:
            marks.append(f"corrected by {closed.corrected}")
        wrong = self._around.wrong(name) if artifact is not None or doc is not None else ""
        return marks + ([f"on disk: {wrong}"] if wrong else [])

    def _new(self, name: str, edge: Edge | None, what: str) -> Step:
        return {
            "ref": f"{self._around.prefix}{name}" if name else "",
            "edge": edge.kind if edge is not None else "",
            "drawn": edge.ref if edge is not None else "",
            "what": what, "actor": "", "at": "", "said": "", "by": "", "marks": [],
            "children": [], "more": "",
        }  # fmt: skip


_KINDS: Final = {"contracts": "work order", INSTANCES: "instance"}


def _words(fact: Fact) -> Step:
    return {"actor": fact.actor, "at": fact.at, "said": fact.said, "by": fact.authority}


def _number(ref: str | None) -> int:
    digits = (ref or "").removeprefix("J-")
    return int(digits) if digits.isdecimal() else 0


def _stands_since(state: State, name: str) -> int:
    """The seq since which a node is DONE, or an artifact is current; what was said against it
    before was said of what it had been."""
    node, artifact = state.nodes.get(name), state.artifacts.get(name)
    if node is not None:
        return _number(node.state_ref) if node.state == "DONE" else 0
    if artifact is None or artifact.status != "current":
        return 0
    return artifact.commit_event


def _newest(edges: Iterable[Edge]) -> list[Edge]:
    """Of each pair of ends the newest edge, in the order in which they came."""
    found: dict[tuple[str, str, str], Edge] = {}
    for edge in edges:
        found[(edge.kind, edge.source, edge.target)] = edge
    return list(found.values())


def decisive(facts: list[Fact]) -> list[Fact]:
    """The newest fact of each kind, the decisive ones first."""
    newest = {fact.what: fact for fact in facts}
    ordered = [newest[what] for what in _DECISIVE if what in newest]
    return [*ordered, *(fact for what, fact in newest.items() if what not in _DECISIVE)]


def count_steps(step: Step) -> int:
    """How many steps a tree has."""
    return 1 + sum(count_steps(child) for child in step["children"])
