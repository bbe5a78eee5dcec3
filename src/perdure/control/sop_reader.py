"""The card of a procedure, from YAML, validated whole.

Job: turn the bytes of a card into a :class:`~perdure.control.sop_card.Card`. Invariants: what
comes back can be planned; what is refused is refused once, with every problem, its place and a
code of its own; the result is a function of the bytes and of the path alone.
Never: runs, writes or reads anything, or guesses what an unknown key was meant to do.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from perdure.control.sop_card import (
    ACCEPTANCE_NODE,
    CARD_NAME,
    ROUTE_ALIASES,
    ROUTES,
    Card,
    unmapped_classes,
)
from perdure.control.sop_interface import INPUT_EXAMPLE, OUTPUT_EXAMPLE, InterfaceReader
from perdure.control.sop_phases import PhaseReader
from perdure.control.sop_problems import CardProblems
from perdure.control.sop_rehearsal import rehearse
from perdure.control.sop_values import check_references
from perdure.control.taskfile_actions import read_grants
from perdure.control.taskfile_fields import FieldReader, shown
from perdure.control.taskfile_tree import (
    Fields,
    Items,
    Place,
    Scalar,
    Tree,
    plain_value,
    read_tree,
    scalar_value,
)
from perdure.core.model import (
    EFFECTS,
    FAILURE_CLASSES,
    VERIFICATION_LEVELS,
    Effect,
    VerificationLevel,
    title_chars_max,
)
from perdure.errors import PathError
from perdure.storage.workspace import normal_path

card_bytes_max: Final = 1 << 20
files_max: Final = 100

CARD_KEYS: Final = (
    "sop_id", "version", "title", "purpose", "inputs", "outputs", "acceptance", "side_effects",
    "verify", "idempotent", "budget_hints", "grants", "files", "gates", "escalation", "phases",
)  # fmt: skip
KEY_ALIASES: Final = {
    "acceptance_criteria": "acceptance", "side_effect_profile": "side_effects",
    "verification_level_default": "verify", "escalation_map": "escalation",
}  # fmt: skip
"""Longer names of the same keys, which are read as well."""
_CARD_HINTS: Final = {
    "id": "sop_id", "name": "sop_id", "description": "purpose", "goal": "purpose",
    "accept": "acceptance", "effects": "side_effects", "effect": "side_effects",
    "failures": "escalation", "nodes": "phases", "steps": "phases", "scripts": "files",
    "budget": "budget_hints",
}  # fmt: skip
_ID: Final = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*\Z")
_EVENT: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z")
_NUMBER: Final = r"(0|[1-9][0-9]{0,8})"
VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z.-]+)?\Z"
)


def load_card(path: str, data: bytes) -> Card:
    """Validate the bytes of a card; ``path`` is where they come from, for messages.

    Raises :class:`~perdure.errors.CardError` with up to 20 problems, each as ``path:line:column:
    what (fix) [code]``. Its code is that of the problems where all have one, else
    ``sop_invalid``. Reads and writes nothing, so a crash leaves nothing.
    """
    problems = CardProblems(path)
    tree = _parse(problems, data)
    if tree is None:
        raise problems.refusal()
    reader = _CardReader(problems)
    card = reader.read(tree, path, hashlib.sha256(data).hexdigest())
    rehearse(card, problems, reader.faults)
    if problems.found:
        raise problems.refusal()
    return card


def _parse(problems: CardProblems, data: bytes) -> Tree | None:
    start = Place(1, 1)
    if len(data) > card_bytes_max:
        what = f"the card has {len(data)} bytes; {card_bytes_max} is the most"
        problems.add("", start, what, "move long texts into files")
        return None
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        problems.add("", start, "the card is not UTF-8", "save it as UTF-8")
        return None
    tree, found = read_tree(text)
    problems.found += found
    if tree is None and not found:
        problems.add("", start, "the card is empty", "write sop_id, version and phases")
    return tree


class _CardReader:
    """One pass over the tree of a card."""

    def __init__(self, problems: CardProblems) -> None:
        self.problems = problems
        self.reader = FieldReader(problems.found)
        self.inputs = InterfaceReader(problems, self.reader)

    def read(self, tree: Tree, path: str, sha256: str) -> Card:
        fields = self.reader.section(_renamed(tree), "the card", CARD_KEYS, _CARD_HINTS)
        noted = len(self.problems.found)
        inputs = self.inputs.read_inputs(self._items(fields, "inputs", INPUT_EXAMPLE))
        words = {one.name: one.word for one in inputs}
        phases = PhaseReader(self.problems, self.reader)
        read = phases.read(tree.place, fields, words)
        acceptance = self._acceptance(fields, words)
        if acceptance and ACCEPTANCE_NODE in phases.seen:
            what = f"the id {ACCEPTANCE_NODE} is that of the node that acceptance makes"
            self.problems.add("", phases.seen[ACCEPTANCE_NODE], what, "choose another id")
        outputs = self.inputs.read_outputs(self._items(fields, "outputs", OUTPUT_EXAMPLE), words)
        self.faults = self.problems.codes_since(noted)
        return Card(
            sop_id=self._sop_id(tree, fields),
            version=self._version(tree, fields),
            title=self._text(fields, "title", title_chars_max) or "A procedure",
            purpose=self._text(fields, "purpose", None),
            phases=read,
            escalation=self._escalation(tree, fields),
            inputs=inputs,
            outputs=outputs,
            acceptance=acceptance,
            side_effects=self._effects(fields),
            verify=cast(
                VerificationLevel,
                self.reader.word(fields["verify"][1], "verify", VERIFICATION_LEVELS) or "V1"
                if "verify" in fields
                else "V1",
            ),
            idempotent="idempotent" not in fields
            or self.reader.truth(fields["idempotent"][1], "idempotent"),
            budget_hints=self._hints(fields),
            grants=read_grants(self.reader, fields["grants"][1]) if "grants" in fields else (),
            files=self._files(fields),
            sha256=sha256,
            path=path,
        )

    def _text(self, fields: Mapping[str, tuple[Place, Tree]], key: str, most: int | None) -> str:
        return self.reader.text(fields[key][1], key, chars_max=most) if key in fields else ""

    def _sop_id(self, tree: Tree, fields: Mapping[str, tuple[Place, Tree]]) -> str:
        if "sop_id" not in fields:
            self._missing(tree, "", "sop_id is missing", "add sop_id: OWNER.NAME")
            return ""
        sop_id = self.reader.identifier(fields["sop_id"][1], "sop_id")
        if sop_id and not _ID.match(sop_id):
            fix = "use lower-case words with dots and hyphens between them, such as acme.survey"
            self.reader.bad(fields["sop_id"][1].place, f"sop_id {shown(sop_id)} is none", fix)
        return sop_id

    def _version(self, tree: Tree, fields: Mapping[str, tuple[Place, Tree]]) -> str:
        if "version" not in fields:
            self._missing(tree, "sop_bad_version", "version is missing", "add version: 1.0.0")
            return ""
        entry = fields["version"][1]
        text = entry.text if isinstance(entry, Scalar) else ""
        if not VERSION.match(text):
            what = f"version {shown(text)} is not a semantic version" if text else "no version"
            fix = "write MAJOR.MINOR.PATCH, such as 1.0.0"
            self.problems.add("sop_bad_version", entry.place, what, fix)
        return text

    def _missing(self, tree: Tree, code: str, what: str, fix: str) -> None:
        if isinstance(tree, Fields):
            self.problems.add(code, tree.place, what, fix)

    def _acceptance(
        self, fields: Mapping[str, tuple[Place, Tree]], words: Mapping[str, str]
    ) -> tuple[Tree, ...]:
        items = self._items(fields, "acceptance", "exists: PATH")
        for item in items:
            check_references(item, words, self.problems.add)
        return tuple(items)

    # The rest

    def _effects(self, fields: Mapping[str, tuple[Place, Tree]]) -> tuple[Effect, ...]:
        if "side_effects" not in fields:
            return ("S0",)
        found: dict[str, None] = {}
        for place, text in self.reader.texts(fields["side_effects"][1], "side_effects"):
            if text not in EFFECTS:
                fix = f"use some of {', '.join(EFFECTS)}"
                self.reader.bad(place, f"there is no effect {shown(text)}", fix)
            found[text] = None
        return cast(tuple[Effect, ...], tuple(found)) or ("S0",)

    def _hints(self, fields: Mapping[str, tuple[Place, Tree]]) -> dict[str, Any]:
        if "budget_hints" not in fields:
            return {}
        hints = plain_value(fields["budget_hints"][1])
        if isinstance(hints, dict):
            return hints
        self.reader.bad(fields["budget_hints"][1].place, "budget_hints must be a mapping")
        return {}

    def _files(self, fields: Mapping[str, tuple[Place, Tree]]) -> tuple[str, ...]:
        found = []
        listed = self.reader.texts(fields["files"][1], "files") if "files" in fields else []
        for place, text in listed:
            try:
                name = normal_path(text)
            except PathError as error:
                self.reader.bad(place, error.message.rstrip("."), "name a file beside the card")
                continue
            if name == CARD_NAME:
                self.reader.bad(place, f"{CARD_NAME} is the name of the copy of the card itself")
            elif name in found:
                self.reader.bad(place, f"the file {shown(name)} stands here twice", "remove one")
            else:
                found.append(name)
        if len(found) > files_max:
            what = f"the card names {len(found)} files; {files_max} is the most"
            self.reader.bad(fields["files"][0], what, "keep data outside the card")
        return tuple(found)

    def _escalation(self, tree: Tree, fields: Mapping[str, tuple[Place, Tree]]) -> dict[str, str]:
        found: dict[str, str] = {}
        place = fields["escalation"][0] if "escalation" in fields else tree.place
        entries = _route_entries(fields["escalation"][1]) if "escalation" in fields else []
        if entries is None:
            fix = f"write FAILURE: ROUTE, with {', '.join(FAILURE_CLASSES)} among them"
            self.problems.add("sop_unmapped_failure", place, "escalation must be a mapping", fix)
            return {}
        for event, route, where in entries:
            if not _EVENT.match(event):
                self.reader.bad(where, f"{shown(event)} is no failure class and no event")
            named = ROUTE_ALIASES.get(route, route)
            if named not in ROUTES:
                fix = self.reader.near_fix(route, ROUTES) or f"use one of {', '.join(ROUTES)}"
                what = f"there is no route {shown(route)}"
                self.problems.add("sop_unknown_route", where, what, fix)
            if event in found:
                self.reader.bad(where, f"{event} has a route already", "remove one of the two")
            found[event] = named
        unmapped = unmapped_classes(found)
        if unmapped and isinstance(tree, Fields):
            what = f"escalation has no route for {', '.join(unmapped)}"
            fix = f"give each one of {', '.join(ROUTES)}"
            self.problems.add("sop_unmapped_failure", place, what, fix)
        return found

    def _items(
        self, fields: Mapping[str, tuple[Place, Tree]], key: str, example: str
    ) -> list[Tree]:
        if key not in fields:
            return []
        tree = fields[key][1]
        if isinstance(tree, Items):
            return tree.items
        if isinstance(tree, Scalar) and scalar_value(tree) is None:
            return []
        self.reader.bad(tree.place, f"{key} must be a list", f"write '- {example}'")
        return []


def _route_entries(tree: Tree) -> list[tuple[str, str, Place]] | None:
    """``FAILURE: ROUTE`` pairs of a mapping, or of a list of ``on: FAILURE -> ROUTE``."""
    found = []
    if isinstance(tree, Fields):
        for event, (place, value) in tree.fields.items():
            if not isinstance(value, Scalar):
                return None
            found.append((event, value.text, place))
        return found
    if not isinstance(tree, Items):
        return None
    for item in tree.items:
        entry = item.fields.get("on") if isinstance(item, Fields) else None
        if entry is None or not isinstance(entry[1], Scalar):
            return None
        event, _, route = entry[1].text.partition("->")
        found.append((event.strip(), route.strip(), entry[1].place))
    return found


def _renamed(tree: Tree) -> Tree:
    """With the short name of every key that has a longer one; both at once stay as they are."""
    if not isinstance(tree, Fields):
        return tree
    fields = {
        KEY_ALIASES.get(key, key) if KEY_ALIASES.get(key) not in tree.fields else key: entry
        for key, entry in tree.fields.items()
    }
    return Fields(tree.place, fields)
