"""The inputs and outputs of a card: what goes in, typed, and what comes out.

Job: read the entries of ``inputs`` and ``outputs``. Invariants: a name stands once; a schema is a
type word or a JSON Schema that refers to nothing outside itself; a default meets its schema; the
path of an output is normal. Never: looks for what a value names.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from perdure.control.sop_card import CardInput, CardOutput
from perdure.control.sop_inputs import WORD_HINTS, WORDS, schema_problem, value_problem
from perdure.control.sop_problems import CardProblems
from perdure.control.sop_values import check_references
from perdure.control.taskfile_fields import FieldReader, shown
from perdure.control.taskfile_tree import Place, Scalar, Tree, plain_value
from perdure.errors import PathError
from perdure.storage.workspace import normal_path

inputs_max: Final = 64

INPUT_KEYS: Final = ("name", "schema", "required", "default", "about")
_INPUT_HINTS: Final = {"type": "schema", "id": "name", "description": "about", "title": "about"}
OUTPUT_KEYS: Final = ("name", "artifact_class", "path")
_OUTPUT_HINTS: Final = {"class": "artifact_class", "kind": "artifact_class", "file": "path"}

INPUT_EXAMPLE: Final = "{name: NAME, schema: text}"
OUTPUT_EXAMPLE: Final = "{name: NAME, path: artifacts/NODE/FILE}"

_INPUT_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")


class InterfaceReader:
    """One pass over inputs and outputs."""

    def __init__(self, problems: CardProblems, reader: FieldReader) -> None:
        self.problems = problems
        self.reader = reader

    def read_inputs(self, items: Iterable[Tree]) -> tuple[CardInput, ...]:
        """Every input of the card."""
        found: dict[str, CardInput] = {}
        for item in items:
            one = self._input(item)
            if one is None:
                continue
            if one.name in found:
                self.reader.bad(item.place, f"the input {one.name} stands here twice")
            found[one.name] = one
        if len(found) > inputs_max:
            what = f"the card has {len(found)} inputs; {inputs_max} is the most"
            self.reader.bad(item.place, what, "put some into one object")
        return tuple(found.values())

    def _input(self, tree: Tree) -> CardInput | None:
        reader = self.reader
        noted = len(reader.problems)
        fields = reader.section(tree, "an input", INPUT_KEYS, _INPUT_HINTS)
        name = self._text(fields, "name")
        if not name:
            if len(reader.problems) == noted:
                reader.bad(tree.place, "an input without name", "add name: NAME")
            return None
        if not _INPUT_NAME.match(name):
            fix = "use 1 to 40 lower-case letters, digits and _, the first a letter"
            reader.bad(fields["name"][1].place, f"{shown(name)} is no name of an input", fix)
        word, schema = self._schema(fields.get("schema"))
        default = plain_value(fields["default"][1]) if "default" in fields else None
        required = "required" in fields and reader.truth(fields["required"][1], "required")
        one = CardInput(name, word, schema, required, default, self._text(fields, "about"))
        if "default" not in fields:
            return one
        place = fields["default"][1].place
        if required and default is not None:
            reader.bad(place, f"the input {name} is required and has a default", "remove one")
        problem = value_problem(one, default) if default is not None else ""
        if problem and len(reader.problems) == noted:
            reader.bad(place, f"the default of {name}: {problem}")
        return one

    def _schema(self, entry: tuple[Place, Tree] | None) -> tuple[str, dict[str, Any]]:
        """Type word and JSON Schema; a word stands for its schema."""
        if entry is None:
            return "text", WORDS["text"]
        tree = entry[1]
        if isinstance(tree, Scalar):
            word = tree.text
            if word not in WORDS:
                fix = f"write {WORD_HINTS[word]}" if word in WORD_HINTS else ""
                fix = fix or f"use one of {', '.join(WORDS)}, or a JSON Schema"
                self.reader.bad(tree.place, f"there is no type {shown(word)}", fix)
                return "any", {}
            return word, WORDS[word]
        schema = plain_value(tree)
        if not isinstance(schema, dict):
            self.reader.bad(tree.place, "schema must be a type word or a JSON Schema")
            return "any", {}
        problem = schema_problem(schema)
        if problem:
            self.reader.bad(tree.place, f"schema is no JSON Schema: {problem}")
            return "any", {}
        return "", schema

    def read_outputs(
        self, items: Iterable[Tree], words: Mapping[str, str]
    ) -> tuple[CardOutput, ...]:
        """Every output of the card; ``words`` has the type word of each input."""
        found: dict[str, CardOutput] = {}
        for item in items:
            noted = len(self.problems.found)
            keys = self.reader.section(item, "an output", OUTPUT_KEYS, _OUTPUT_HINTS)
            name, path = self._text(keys, "name"), self._text(keys, "path")
            if not (name and path):
                if len(self.problems.found) == noted:
                    self.reader.bad(item.place, "an output needs name and path")
                continue
            check_references(keys["path"][1], words, self.problems.add)
            if name in found:
                self.reader.bad(item.place, f"the output {name} stands here twice")
            try:
                path = normal_path(path)
            except PathError as error:
                self.reader.bad(keys["path"][1].place, error.message.rstrip("."), "")
            self.problems.places[f"output {name}"] = item.place
            found[name] = CardOutput(name, path, self._text(keys, "artifact_class") or "file")
        return tuple(found.values())

    def _text(self, fields: Mapping[str, tuple[Place, Tree]], key: str) -> str:
        return self.reader.text(fields[key][1], key) if key in fields else ""
