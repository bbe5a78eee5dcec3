"""What a task file says of people: gates of nodes, who holds which role, what needs no asking.

Job: read ``gate``, ``gates``, ``people`` and ``delegation``. Invariants: a gate that comes back has
an id that no other gate of the file has, a question and normal paths; a name is a text that is not
empty. Never: knows who will answer, or whether a gate is open.
"""

from collections.abc import Collection
from typing import Any, Final, cast

from perdure.control.taskfile_fields import FieldReader, shown
from perdure.control.taskfile_tree import Fields, Items, Place, Scalar, Tree
from perdure.core.gates import implied_id
from perdure.core.model import EFFECTS
from perdure.core.people import (
    DELEGATIONS,
    FALLBACKS,
    GATE_POINTS,
    Fallback,
    Gate,
    GatePoint,
    gates_max,
)
from perdure.errors import PathError
from perdure.storage.workspace import normal_path

GATE_KEYS: Final = (
    "id", "blocks", "question", "context", "options", "consequences", "links", "content", "scope",
    "gatekeeper", "timeout", "fallback", "revise_max",
)  # fmt: skip
_GATE_HINTS: Final = {
    "gate_id": "id", "name": "id", "text": "question", "ask": "question", "point": "blocks",
    "on": "blocks", "judge": "gatekeeper", "who": "gatekeeper", "files": "content",
    "timeout_s": "timeout", "after": "timeout", "default": "fallback", "rounds": "revise_max",
    "rubric": "question, or accept: with a human check",
}  # fmt: skip
PEOPLE_KEYS: Final = (
    "sponsor", "coordinator", "executor", "verifier", "recorder", "gatekeeper", "gates",
)  # fmt: skip

names_max: Final = 100
revise_rounds_max: Final = 1_000


class PeopleReader:
    """One pass over what the file says of people."""

    def __init__(self, reader: FieldReader) -> None:
        self.reader = reader
        self.gates: dict[str, Place] = {}
        """Every gate id that a node names or gets, and where it stands."""
        self.rungs: dict[str, str] = {}
        """Effect class to its rung, as ``delegation`` says."""

    # Gates

    def gates_of(self, node_id: str, fields: dict[str, tuple[Place, Tree]]) -> tuple[Gate, ...]:
        """The gates that a node declares with ``gate`` or ``gates``."""
        if "gate" in fields and "gates" in fields:
            what = "a node has either gate or gates"
            self.reader.bad(fields["gate"][0], what, "put it into the list of gates")
        if "gate" in fields:
            return self._gates(node_id, [fields["gate"][1]])
        if "gates" not in fields:
            return ()
        tree = fields["gates"][1]
        if not isinstance(tree, Items) or not tree.items:
            fix = "write '- QUESTION', or gate: QUESTION"
            self.reader.bad(tree.place, "gates must be a list of gates", fix)
            return ()
        if len(tree.items) > gates_max:
            what = f"the node has {len(tree.items)} gates; {gates_max} is the most"
            self.reader.bad(tree.place, what, "ask about several things in one question")
            return ()
        return self._gates(node_id, tree.items)

    def _gates(self, node_id: str, trees: list[Tree]) -> tuple[Gate, ...]:
        found = (self._gate(node_id, tree) for tree in trees)
        return tuple(gate for gate in found if gate is not None)

    def _gate(self, node_id: str, tree: Tree) -> Gate | None:
        if isinstance(tree, Scalar):
            question = self.reader.text(tree, "gate")
            gate_id = self._gate_id(node_id, "done", tree.place, None)
            return Gate(gate_id, "done", question) if gate_id and question else None
        if isinstance(tree, Items):
            fix = "write gate: QUESTION, or gates: with a list"
            self.reader.bad(tree.place, "a gate must be a question, or a mapping", fix)
            return None
        return self._full_gate(node_id, tree)

    def _full_gate(self, node_id: str, tree: Fields) -> Gate | None:
        reader = self.reader
        noted = len(reader.problems)
        fields = reader.section(tree, "a gate", GATE_KEYS, _GATE_HINTS)

        def value(name: str) -> Tree | None:
            return fields[name][1] if name in fields else None

        def text(name: str) -> str:
            entry = value(name)
            return reader.text(entry, f"gate.{name}") if entry is not None else ""

        def texts(name: str) -> tuple[str, ...]:
            entry = value(name)
            listed = reader.texts(entry, f"gate.{name}") if entry is not None else []
            return tuple(one for _, one in listed)

        def word(name: str, words: tuple[str, ...], default: str) -> str:
            entry = value(name)
            return (reader.word(entry, f"gate.{name}", words) if entry else None) or default

        blocks = cast(GatePoint, word("blocks", GATE_POINTS, "done"))
        timeout, rounds, keeper = value("timeout"), value("revise_max"), value("gatekeeper")
        if "question" not in fields and len(reader.problems) == noted:
            reader.bad(tree.place, "a gate without question", "add question: what is to be decided")
        if "fallback" in fields and timeout is None:
            what = "gate.fallback means nothing without a timeout"
            reader.bad(fields["fallback"][0], what, "add timeout: 2d, or remove it")
        gate_id = self._gate_id(node_id, blocks, tree.place, value("id"))
        return Gate(
            gate_id,
            blocks,
            question=text("question"),
            context=text("context"),
            options=texts("options"),
            consequences=text("consequences"),
            links=texts("links"),
            content=self._content(value("content")),
            scope=text("scope"),
            gatekeeper=self.names(keeper, "gate.gatekeeper") if keeper is not None else (),
            timeout_s=reader.duration_s(timeout, "gate.timeout") if timeout is not None else None,
            fallback=cast(Fallback, word("fallback", FALLBACKS, "remain-blocked")),
            revise_max=(
                reader.whole(rounds, "gate.revise_max", 0, revise_rounds_max)
                if rounds is not None
                else None
            ),
        )

    def _gate_id(self, node_id: str, blocks: str, place: Place, tree: Tree | None) -> str:
        """The id of a gate, which is that of its question as well, so it is the file's own."""
        gate_id = implied_id(node_id, blocks) if node_id else ""
        if tree is not None:
            place = tree.place
            gate_id = self.reader.identifier(tree, "gate.id")
        if node_id and gate_id == implied_id(node_id, "done" if blocks == "start" else "start"):
            what = f"the gate id {shown(gate_id)} is that of a gate at the other end of the node"
            self.reader.bad(place, what, "give this gate an id of its own")
        if gate_id in self.gates:
            what = f"the gate id {shown(gate_id)} is taken (line {self.gates[gate_id].line})"
            self.reader.bad(place, what, "give this gate an id of its own")
        elif gate_id:
            self.gates[gate_id] = place
        return gate_id

    def _content(self, tree: Tree | None) -> tuple[str, ...]:
        paths: dict[str, None] = {}
        for place, text in self.reader.texts(tree, "gate.content") if tree is not None else []:
            try:
                paths[normal_path(text)] = None
            except PathError as error:
                self.reader.bad(place, error.message.rstrip("."), error.fix.rstrip("."))
        return tuple(paths)

    # Roles

    def names(self, tree: Tree, name: str) -> tuple[str, ...]:
        """Who holds a role: one name, or a list of names."""
        reader = self.reader
        if isinstance(tree, Fields):
            reader.bad(tree.place, f"{name} must be a name, or a list of names")
            return ()
        if isinstance(tree, Scalar):
            listed = [(tree.place, reader.text(tree, name))]
        else:
            listed = reader.texts(tree, name)
            if not tree.items:
                reader.bad(tree.place, f"{name} names nobody", "name somebody, or remove it")
        if len(listed) > names_max:
            reader.bad(tree.place, f"{name} has more than {names_max} names", "name a few of them")
            return ()
        for place, held in listed:
            if held != held.strip() or any(char.isspace() for char in held):
                fix = "write the name as it stands in --actor ROLE:NAME"
                reader.bad(place, f"{name}: {shown(held)} holds a blank", fix)
        return tuple(dict.fromkeys(held for _, held in listed if held))

    def people(self, tree: Tree) -> dict[str, Any]:
        """Who holds which role; one name stays a text, several become a list."""
        fields = self.reader.section(tree, "people", PEOPLE_KEYS, {})
        found: dict[str, Any] = {}
        for key, (_, value) in fields.items():
            if key == "gates":
                found[key] = self._gatekeepers(value)
            else:
                found[key] = self._held(value, f"people.{key}")
        return found

    def _held(self, tree: Tree, name: str) -> str | list[str]:
        names = self.names(tree, name)
        return names[0] if isinstance(tree, Scalar) and names else list(names)

    def _gatekeepers(self, tree: Tree) -> dict[str, str | list[str]]:
        """Gate id to who rules on it; whether there is such a gate is checked at the end."""
        if not isinstance(tree, Fields):
            fix = "write gates: {GATE_ID: NAME}"
            self.reader.bad(tree.place, "people.gates must be a mapping of gate ids to names", fix)
            return {}
        return {
            gate_id: self._held(value, f"people.gates.{gate_id}")
            for gate_id, (_, value) in tree.fields.items()
        }

    def check_gatekeepers(self, tree: Tree, node_ids: Collection[str]) -> None:
        """A gate that has a gatekeeper exists, or is one that the ladder or a check may make."""
        if not isinstance(tree, Fields) or "gates" not in tree.fields:
            return
        gates = tree.fields["gates"][1]
        if not isinstance(gates, Fields):
            return
        known = {*self.gates, *(f"G-{n}-{end}" for n in node_ids for end in _IMPLIED)}
        for gate_id, (place, _) in gates.fields.items():
            if gate_id not in known:
                fix = self.reader.near_fix(gate_id, known) or "name a gate of a node of this file"
                self.reader.bad(place, f"there is no gate {shown(gate_id)}", fix)

    def read_delegation(self, tree: Tree) -> None:
        """Effect class to the rung of the delegation ladder that its nodes stand on."""
        fields = self.reader.section(tree, "delegation", EFFECTS, {})
        for key, (_, value) in fields.items():
            rung = self.reader.word(value, f"delegation.{key}", DELEGATIONS)
            if rung is not None:
                self.rungs[key] = rung


_IMPLIED: Final = ("start", "review", "judge", "judge2", "judge3")
"""Of gates that the delegation ladder, the level V3 and ``human`` checks make."""
