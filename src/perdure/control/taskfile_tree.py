"""A YAML document as a tree in which every value remembers its line and column.

Job: turn the text of a task file into :class:`Scalar`, :class:`Items` and :class:`Fields`, and say
where each problem stands. Invariants: a plain scalar means what YAML 1.2 says (``no`` is a text,
``1:30`` is a text), and its source text is kept, so that the reader of a field decides; the work
is bounded by the size of the text (aliases are shared, counted and limited).
Never: constructs objects from tags, reads other files, or stops with anything but a
:class:`Problem`.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from perdure.errors import TaskFileError

depth_max: Final = 64
aliases_max: Final = 1_000
alias_values_max: Final = 100_000
"""Values that all aliases together may stand for."""
problems_shown_max: Final = 20

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL: Final = {
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,18}\Z")
_NUMBER: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?\Z")
_TEXT_TAG: Final = "tag:yaml.org,2002:str"


class Place(NamedTuple):
    """Where something stands; both count from 1."""

    line: int
    column: int


class Problem(NamedTuple):
    """One thing that is wrong with the file, and what puts it right."""

    place: Place
    what: str
    fix: str = ""


class Scalar(NamedTuple):
    """A single value as written."""

    place: Place
    text: str
    plain: bool
    """Without quotes, so that ``5`` is a number and an empty place is nothing."""


class Items(NamedTuple):
    """A list."""

    place: Place
    items: "list[Tree]"


class Fields(NamedTuple):
    """A mapping with text keys; a key stands once."""

    place: Place
    fields: "dict[str, tuple[Place, Tree]]"


Tree = Scalar | Items | Fields


def problems_text(path: str, problems: Iterable[Problem]) -> str:
    """Each problem as a line ``file:line:column: what (fix)``, in file order; the first of many."""
    found = sorted(problems)
    lines = [
        f"{path}:{p.place.line}:{p.place.column}: {p.what}" + (f" ({p.fix})" if p.fix else "")
        for p in found[:problems_shown_max]
    ]
    if len(found) > problems_shown_max:
        lines.append(f"and {len(found) - problems_shown_max} more")
    return "".join(f"  {line}\n" for line in lines)


def refusal(path: str, problems: list[Problem]) -> TaskFileError:
    """One error that lists every problem."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return TaskFileError(
        f"{path} does not validate ({count}):\n{problems_text(path, problems)}",
        fix="Correct the file and run it again; nothing was run or written.",
    )


def scalar_value(scalar: Scalar) -> str | int | float | bool | None:
    """What a scalar means in YAML 1.2: quoted is text, plain may be a number, a bool or nothing."""
    if not scalar.plain:
        return scalar.text
    if scalar.text in _NULL:
        return None
    if scalar.text in _BOOL:
        return _BOOL[scalar.text]
    if _INTEGER.match(scalar.text):
        return int(scalar.text)
    if _NUMBER.match(scalar.text):
        return float(scalar.text)
    return scalar.text


def plain_value(tree: Tree) -> Any:
    """The tree as dicts, lists and JSON values, for fields whose shape somebody else checks."""
    if isinstance(tree, Scalar):
        return scalar_value(tree)
    if isinstance(tree, Items):
        return [plain_value(item) for item in tree.items]
    return {key: plain_value(value) for key, (_, value) in tree.fields.items()}


class _UnreadableError(Exception):
    """Reading cannot go on after this problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.what)


class _Frame:
    """A list or mapping that is still open."""

    __slots__ = ("anchor", "height", "key", "node", "size")

    def __init__(self, node: Items | Fields, anchor: str | None) -> None:
        self.node = node
        self.anchor = anchor
        self.key: Scalar | None = None
        self.size = 1
        self.height = 1


class _Builder:
    """Puts the tree together from parser events, with its own stack: depth cannot exhaust ours."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.root: Tree | None = None
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Tree, int, int]] = {}
        self._aliases = 0
        self._alias_values = 0

    def scalar(self, place: Place, text: str, plain: bool, tag: str | None, anchor: Any) -> None:
        if tag is not None and tag not in ("!", _TEXT_TAG):
            self._tagged(place, tag)
        self._finish(Scalar(place, text, plain and tag is None), 1, 0, anchor)

    def open(self, node: Items | Fields, tag: str | None, anchor: str | None) -> None:
        if tag is not None:
            self._tagged(node.place, tag)
        if len(self._frames) >= depth_max:
            raise _UnreadableError(Problem(node.place, f"nested deeper than {depth_max} levels"))
        self._frames.append(_Frame(node, anchor))

    def close(self) -> None:
        frame = self._frames.pop()
        if isinstance(frame.node, Fields):
            self._merge(frame.node)
        self._finish(frame.node, frame.size, frame.height, frame.anchor)

    def alias(self, place: Place, name: str) -> None:
        if name not in self._anchors:
            raise _UnreadableError(
                Problem(place, f"alias *{name} stands before its anchor &{name} is complete")
            )
        tree, size, height = self._anchors[name]
        self._aliases += 1
        self._alias_values += size
        if self._aliases > aliases_max:
            raise _UnreadableError(Problem(place, f"more than {aliases_max} aliases"))
        if self._alias_values > alias_values_max:
            what = f"the aliases stand for more than {alias_values_max} values"
            raise _UnreadableError(Problem(place, what, "write the values out"))
        self._finish(tree, size, height, None)

    def _tagged(self, place: Place, tag: str) -> None:
        self.problems.append(Problem(place, f"the tag {tag} is not allowed", "remove it"))

    def _finish(self, tree: Tree, size: int, height: int, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = (tree, size, height)
        if not self._frames:
            self.root = tree
            return
        frame = self._frames[-1]
        frame.size += size
        frame.height = max(frame.height, height + 1)
        if len(self._frames) + height > depth_max:
            raise _UnreadableError(Problem(tree.place, f"nested deeper than {depth_max} levels"))
        if isinstance(frame.node, Items):
            frame.node.items.append(tree)
        elif frame.key is None:
            if not isinstance(tree, Scalar):
                raise _UnreadableError(Problem(tree.place, "a key must be a plain text"))
            frame.key = tree
        else:
            self._put(frame.node, frame.key, tree)
            frame.key = None

    def _put(self, node: Fields, key: Scalar, tree: Tree) -> None:
        if key.text in node.fields:
            first = node.fields[key.text][0]
            what = f"the key {key.text!r} stands here twice (first in line {first.line})"
            self.problems.append(Problem(key.place, what, "remove one of the two"))
        else:
            node.fields[key.text] = (key.place, tree)

    def _merge(self, node: Fields) -> None:
        """Resolve ``<<: *defaults``: what is written here wins over what is merged in."""
        if "<<" not in node.fields:
            return
        place, source = node.fields.pop("<<")
        for part in source.items if isinstance(source, Items) else [source]:
            if isinstance(part, Fields):
                for key, entry in part.fields.items():
                    node.fields.setdefault(key, entry)
            else:
                self.problems.append(Problem(place, "'<<' must name a mapping, or a list of them"))


def read_tree(text: str) -> tuple[Tree | None, list[Problem]]:
    """The one document in ``text``, and what is wrong with it so far; None when unreadable.

    Pure apart from loading the parser. Depth, aliases and what they stand for are limited, so no
    text costs more than a constant times its length.
    """
    import yaml

    builder = _Builder()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _feed(builder, yaml.parse(text, Loader=loader), yaml)
    except _UnreadableError as error:
        return None, [*builder.problems, error.problem]
    except yaml.YAMLError as error:
        return None, [*builder.problems, _syntax_problem(error, text)]
    return builder.root, builder.problems


def _feed(builder: _Builder, events: Iterator[Any], yaml: Any) -> None:
    for event in events:
        place = Place(event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.ScalarEvent):
            plain = event.style in (None, "")
            builder.scalar(place, event.value, plain, event.tag, event.anchor)
        elif isinstance(event, yaml.SequenceStartEvent):
            builder.open(Items(place, []), event.tag, event.anchor)
        elif isinstance(event, yaml.MappingStartEvent):
            builder.open(Fields(place, {}), event.tag, event.anchor)
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            builder.close()
        elif isinstance(event, yaml.AliasEvent):
            builder.alias(place, event.anchor)
        elif isinstance(event, yaml.DocumentStartEvent) and builder.root is not None:
            raise _UnreadableError(
                Problem(place, "a second document starts here", "keep one task in a file")
            )


def _syntax_problem(error: Any, text: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        # A character that no YAML may hold; its position is in bytes or not, by the loader.
        character = getattr(error, "character", 0)
        before = text[: max(text.find(chr(character)), 0)] if isinstance(character, int) else ""
        place = Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
        return Problem(place, f"not YAML: {getattr(error, 'reason', error)}")
    what = ", ".join(p for p in (error.problem, error.context) if p)
    fix = ""
    here = text.splitlines()[mark.line] if mark.line < len(text.splitlines()) else ""
    if here[mark.column : mark.column + 1] == "\t":
        fix = "indent with spaces, not with tabs"
    elif "mapping values are not allowed" in what:
        fix = "put quotes around a value that contains ': '"
    return Problem(Place(mark.line + 1, mark.column + 1), f"not YAML: {what}", fix)
