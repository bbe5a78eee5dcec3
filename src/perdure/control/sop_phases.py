"""The phases of a card and the nodes in them.

Job: read ``phases`` and ``gates`` into :class:`~perdure.control.sop_card.Phase` records.
Invariants: the first two phases are intake and plan, the last two verify and report, and there is
work between them; a node belongs to one phase and depends on none that comes later; every
``{{name}}`` is an input that may stand there. Never: judges what else a node says.
"""

from collections.abc import Mapping
from typing import Final

from perdure.control.sop_card import Phase
from perdure.control.sop_problems import CardProblems
from perdure.control.sop_values import check_references
from perdure.control.taskfile_fields import FieldReader, shown
from perdure.control.taskfile_tree import Fields, Items, Place, Scalar, Tree, scalar_value
from perdure.core.instance import FIRST_PHASES, LAST_PHASES
from perdure.core.model import RESERVED_NODE_IDS

PHASES: Final = "sop_phases"
phases_max: Final = 32
waits_max: Final = 100_000
"""Deps of a card that follow from the order of its phases, each node waiting for each before it."""
_ORDER: Final = (
    f"begin with {' and '.join(FIRST_PHASES)}, put the phases of work between, and end with"
    f" {' and '.join(LAST_PHASES)}"
)

Entry = tuple[str, Place, Tree]
"""A node: its id, where it stands, and what it says."""


class PhaseReader:
    """One pass over the phases."""

    def __init__(self, problems: CardProblems, reader: FieldReader) -> None:
        self.problems = problems
        self.reader = reader
        self.seen: dict[str, Place] = {}
        """Every node id and where it stands."""

    def read(
        self, start: Place, fields: Mapping[str, tuple[Place, Tree]], words: Mapping[str, str]
    ) -> tuple[Phase, ...]:
        """The phases; ``words`` has the type word of each input."""
        if "phases" not in fields:
            self.problems.add(PHASES, start, "phases is missing", _ORDER)
            return ()
        place, tree = fields["phases"]
        found = [self._phase(*entry) for entry in self._entries(tree)]
        self._check_order(place, found)
        if "gates" in fields:
            found = self._with_gates(fields["gates"][1], found)
        self._check_deps(found)
        self._check_waits(found)
        for phase in found:
            for node_id, where, entry in phase.nodes:
                check_references(entry, words, self.problems.add)
                self.problems.places[f"node {node_id}"] = where
        return tuple(found)

    def _entries(self, tree: Tree) -> list[tuple[str, Place, Tree | None]]:
        """Name, place and nodes of each phase, from a mapping or from a list."""
        if isinstance(tree, Fields):
            return [(name, place, nodes) for name, (place, nodes) in tree.fields.items()]
        found: list[tuple[str, Place, Tree | None]] = []
        for item in tree.items if isinstance(tree, Items) else []:
            if isinstance(item, Scalar):
                found.append((item.text, item.place, None))
            elif isinstance(item, Fields) and len(item.fields) == 1:
                [(name, (place, nodes))] = item.fields.items()
                found.append((name, place, nodes))
            else:
                self.problems.add(PHASES, item.place, "a phase is NAME, or NAME: NODES")
        if not isinstance(tree, Items):
            self.problems.add(PHASES, tree.place, "phases must be a mapping of names to nodes")
        return found

    def _phase(self, name: str, place: Place, tree: Tree | None) -> Phase:
        self.reader.check_id(place, name, "the phase", ())
        entries: list[tuple[str | None, Place, Tree]] = []
        if isinstance(tree, Items):
            entries = [(None, item.place, item) for item in tree.items]
        elif isinstance(tree, Fields):
            entries = [(key, where, item) for key, (where, item) in tree.fields.items()]
        elif tree is not None and scalar_value(tree) is not None:
            self.reader.bad(tree.place, f"the phase {name} must hold nodes, or nothing")
        nodes = (self._node(*entry) for entry in entries)
        return Phase(name, place, tuple(node for node in nodes if node is not None))

    def _node(self, key: str | None, place: Place, tree: Tree) -> Entry | None:
        if not isinstance(tree, Fields):
            self.reader.bad(tree.place, "a node must be a mapping")
            return None
        node_id = key or ""
        if "id" in tree.fields:
            named = self.reader.identifier(tree.fields["id"][1], "id", RESERVED_NODE_IDS)
            if key is not None and named and named != key:
                what = f"the id is not that of its key {shown(key)}"
                self.reader.bad(tree.fields["id"][1].place, what, "remove it")
            node_id = key or named
        elif key is None:
            self.reader.bad(place, "a node without id", "add id: NAME")
        elif not self.reader.check_id(place, key, "id", RESERVED_NODE_IDS):
            return None
        if not node_id:
            return None
        if node_id in self.seen:
            what = f"the id {shown(node_id)} is taken (line {self.seen[node_id].line})"
            self.reader.bad(place, what, "choose another id")
            return None
        self.seen[node_id] = place
        return node_id, place, tree

    # What only the whole can settle

    def _check_order(self, place: Place, phases: list[Phase]) -> None:
        names = [phase.name for phase in phases]
        bad = self.problems.add
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                bad(PHASES, place, f"the phase {name} stands here twice", "keep one of them")
        missing = [name for name in (*FIRST_PHASES, *LAST_PHASES) if name not in names]
        if missing:
            many = "s" if len(missing) > 1 else ""
            bad(PHASES, place, f"the phase{many} {', '.join(missing)} missing", _ORDER)
        elif tuple(names[:2]) != FIRST_PHASES or tuple(names[-2:]) != LAST_PHASES:
            bad(PHASES, place, "the phases are in the wrong order", _ORDER)
        elif len(names) == len(FIRST_PHASES) + len(LAST_PHASES):
            bad(PHASES, place, "there is no phase of work", _ORDER)
        elif len(names) > phases_max:
            bad(PHASES, place, f"there are {len(names)} phases; {phases_max} is the most")
        for phase in phases:
            if phase.name not in (*FIRST_PHASES, *LAST_PHASES) and not phase.nodes:
                bad(PHASES, phase.place, f"the phase {phase.name} has no nodes", "remove it")

    def _check_deps(self, phases: list[Phase]) -> None:
        """No node depends on one of a later phase; that a dep exists is seen in the rehearsal."""
        at = {node_id: i for i, phase in enumerate(phases) for node_id, _, _ in phase.nodes}
        for node_id, _, tree in (node for phase in phases for node in phase.nodes):
            deps = (
                tree.fields["deps"][1]
                if isinstance(tree, Fields) and "deps" in tree.fields
                else None
            )
            for dep in deps.items if isinstance(deps, Items) else []:
                if isinstance(dep, Scalar) and at.get(dep.text, -1) > at[node_id]:
                    what = f"{node_id} depends on {dep.text}, which is of a later phase"
                    self.problems.add(PHASES, dep.place, what, "move one of the two")

    def _check_waits(self, phases: list[Phase]) -> None:
        """What follows from the order of the phases is within its limit."""
        total, before = 0, 0
        for phase in phases:
            waiting = sum(not _has_deps(tree) for _, _, tree in phase.nodes)
            total += waiting * before
            if total > waits_max:
                what = (
                    f"the {waiting} nodes of {phase.name} would wait for each of {before} before"
                    f" them; {total} such deps are too many, {waits_max} is the most"
                )
                fix = "make a batch node (map) of them, or say deps"
                self.problems.add(PHASES, phase.place, what, fix)
                return
            before = len(phase.nodes) or before

    def _with_gates(self, tree: Tree, phases: list[Phase]) -> list[Phase]:
        """The phases with the gates of the card added to the nodes that they name."""
        added: dict[str, list[Tree]] = {}
        if not isinstance(tree, Items):
            self.reader.bad(
                tree.place, "gates must be a list", "write '- {node: ID, question: ...}'"
            )
            return phases
        for item in tree.items:
            named = item.fields.get("node") if isinstance(item, Fields) else None
            if not isinstance(item, Fields) or named is None:
                self.reader.bad(item.place, "a gate of a card names its node", "add node: ID")
                continue
            node_id = self.reader.text(named[1], "node")
            if node_id and node_id not in self.seen:
                fix = self.reader.near_fix(node_id, self.seen)
                self.reader.bad(named[1].place, f"there is no node {shown(node_id)}", fix)
            rest = {key: entry for key, entry in item.fields.items() if key != "node"}
            added.setdefault(node_id, []).append(Fields(item.place, rest))
        return [
            phase._replace(
                nodes=tuple(_gated(node, added.get(node[0], [])) for node in phase.nodes)
            )
            for phase in phases
        ]


def _has_deps(tree: Tree) -> bool:
    """Whether a node says itself what it waits for, whatever values its inputs have."""
    return isinstance(tree, Fields) and isinstance(tree.fields.get("deps", (0, 0))[1], Items)


def _gated(node: Entry, gates: list[Tree]) -> Entry:
    node_id, place, tree = node
    if not gates or not isinstance(tree, Fields):
        return node
    own: list[Tree] = []
    if "gates" in tree.fields:
        held = tree.fields["gates"][1]
        own = held.items if isinstance(held, Items) else [held]
    elif "gate" in tree.fields:
        own = [tree.fields["gate"][1]]
    rest = {key: entry for key, entry in tree.fields.items() if key != "gate"}
    rest["gates"] = (gates[0].place, Items(gates[0].place, [*own, *gates]))
    return node_id, place, Fields(tree.place, rest)
