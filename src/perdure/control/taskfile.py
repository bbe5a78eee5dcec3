"""The task file: a whole task written down in YAML, validated before anything runs.

Job: turn the bytes of a task file into a :class:`TaskFile`. Invariants: what comes back can be run
(ids, deps, paths, checks and numbers are legal, the graph has no cycle, no two nodes claim a
path); what is refused is refused once, with every problem that was found and its place; the result
is a function of the bytes and of the path alone.
Never: runs, writes or reads anything, or guesses what an unknown key was meant to do.
"""

import hashlib
import os
import re
from typing import Any, Final

import msgspec

from perdure.control.taskfile_actions import read_grants
from perdure.control.taskfile_fields import FieldReader, shown
from perdure.control.taskfile_nodes import Dep, NodePlan, NodeReader
from perdure.control.taskfile_people import PeopleReader
from perdure.control.taskfile_tree import Fields, Items, Place, Problem, Tree, read_tree, refusal
from perdure.core.model import Policies
from perdure.core.policies import MAY_BE_ZERO
from perdure.errors import TaskFileError

__all__ = ["NodePlan", "TaskFile", "TaskFileError", "load_task_file"]

task_file_bytes_max: Final = 4 << 20
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")

_TASK_KEYS: Final = (
    "task_id", "task", "goal", "acceptance", "tier", "policies", "people", "delegation",
    "standing_authorities", "grants", "secrets", "nodes",
)  # fmt: skip

_TASK_HINTS: Final = {
    "id": "task_id", "name": "task_id", "title": "goal", "description": "goal", "steps": "nodes",
    "tasks": "nodes", "jobs": "nodes", "accept": "acceptance", "authority": "grants",
    "permissions": "grants", "allow": "grants",
}  # fmt: skip


class TaskFile(msgspec.Struct, frozen=True):
    """A task file that validated. Nodes are in file order; a dep may stand after its user."""

    task_id: str
    nodes: tuple[NodePlan, ...]
    goal: str = ""
    acceptance: tuple[str, ...] = ()
    tier: int = 1
    policies: Policies = Policies()
    people: dict[str, Any] = {}
    delegation: dict[str, str] = {}
    """Effect class to a rung of the delegation ladder; what is absent has its default."""
    standing_authorities: tuple[str, ...] = ()
    """Nodes whose external effect (S3) is allowed by whoever creates the task; ``*`` is all."""
    secrets: tuple[str, ...] = ()
    """Environment variables whose values are masked wherever they would be written (SE-1)."""
    sha256: str = ""
    """Of the file's bytes, in hex."""
    path: str = ""
    """As it was given."""
    directory: str = ""
    """Absolute; commands see it as PERDURE_TASK_DIR."""


def load_task_file(path: str, data: bytes) -> TaskFile:
    """Validate the bytes of a task file.

    ``path`` is where they come from, for messages and for ``directory``. Raises
    :class:`~perdure.errors.TaskFileError` with up to 20 problems, each as ``path:line:column:
    what (fix)``, lines and columns from 1. Reads and writes nothing, so a crash leaves nothing.
    """
    text, problems = _decode(data)
    tree = None
    if not problems:
        tree, problems = read_tree(text)
        if tree is None and not problems:
            problems = [Problem(Place(1, 1), "the file is empty", "write task_id and nodes")]
    if tree is None:
        raise refusal(path, problems)
    task = _TaskReader(FieldReader(problems)).read(tree)
    if problems:
        raise refusal(path, problems)
    return msgspec.structs.replace(
        task,
        sha256=hashlib.sha256(data).hexdigest(),
        path=path,
        directory=os.path.dirname(os.path.abspath(path)),
    )


def read_task(tree: Tree, problems: list[Problem]) -> TaskFile:
    """The task of a tree that somebody else made; after a problem, which is noted, a stand-in."""
    return _TaskReader(FieldReader(problems)).read(tree)


def _decode(data: bytes) -> tuple[str, list[Problem]]:
    if len(data) > task_file_bytes_max:
        what = f"the file has {len(data)} bytes; {task_file_bytes_max} is the most"
        return "", [Problem(Place(1, 1), what, "split the task, or move long texts into files")]
    try:
        return data.decode("utf-8").removeprefix("\ufeff"), []
    except UnicodeDecodeError as error:
        before = data[: error.start]
        start = before.rfind(b"\n") + 1
        place = Place(before.count(b"\n") + 1, len(before[start:].decode("utf-8")) + 1)
        return "", [Problem(place, "the file is not UTF-8", "save it as UTF-8")]


class _TaskReader:
    """One pass over the tree, then the checks that need every node."""

    def __init__(self, reader: FieldReader) -> None:
        self.reader = reader
        self.people = PeopleReader(reader)

    def read(self, tree: Tree) -> TaskFile:
        reader = self.reader
        fields = reader.section(tree, "the task file", _TASK_KEYS, _TASK_HINTS)
        tier = reader.whole(fields["tier"][1], "tier", 0, 2) if "tier" in fields else 1
        if "delegation" in fields:
            self.people.read_delegation(fields["delegation"][1])
        grants = read_grants(reader, fields["grants"][1]) if "grants" in fields else ()
        nodes = NodeReader(reader, 1 if tier is None else tier, self.people, grants)
        goal = reader.text(fields["goal"][1], "goal") if "goal" in fields else ""
        acceptance = (
            reader.texts(fields["acceptance"][1], "acceptance") if "acceptance" in fields else []
        )
        task = TaskFile(
            task_id=self._task_id(tree, fields),
            goal=goal,
            acceptance=tuple(text for _, text in acceptance),
            tier=nodes.tier,
            policies=self._policies(fields["policies"][1]) if "policies" in fields else Policies(),
            people=self.people.people(fields["people"][1]) if "people" in fields else {},
            delegation=self.people.rungs,
            standing_authorities=self._authorities(fields),
            secrets=self._secrets(fields),
            nodes=self._nodes(tree, fields, nodes),
        )
        self._check_deps(nodes)
        if "people" in fields:
            self.people.check_gatekeepers(fields["people"][1], nodes.seen)
        return task

    def _task_id(self, tree: Tree, fields: dict[str, tuple[Place, Tree]]) -> str:
        given = [key for key in ("task_id", "task") if key in fields]
        if len(given) == 2:
            place = fields["task"][0]
            self.reader.bad(place, "task_id and task are the same key", "remove one of the two")
        if not given:
            if isinstance(tree, Fields):
                self.reader.bad(tree.place, "task_id is missing", "add task_id: NAME")
            return ""
        return self.reader.identifier(fields[given[0]][1], given[0])

    def _policies(self, tree: Tree) -> Policies:
        fields = self.reader.section(tree, "policies", Policies.__struct_fields__, {})
        values: dict[str, Any] = {}
        for key, (_, value) in fields.items():
            name = f"policies.{key}"
            if isinstance(getattr(Policies(), key), int):
                values[key] = self.reader.whole(value, name, int(key not in MAY_BE_ZERO), 1_000)
            elif not key.endswith("_s"):
                values[key] = self.reader.amount(value, name, above=key not in MAY_BE_ZERO)
            else:
                values[key] = self.reader.duration_s(value, name)
        return Policies(**{key: value for key, value in values.items() if value is not None})

    def _authorities(self, fields: dict[str, tuple[Place, Tree]]) -> tuple[str, ...]:
        if "standing_authorities" not in fields:
            return ()
        entries = self.reader.texts(fields["standing_authorities"][1], "standing_authorities")
        return tuple(text for _, text in entries)

    def _secrets(self, fields: dict[str, tuple[Place, Tree]]) -> tuple[str, ...]:
        """Names of variables. What is none may be the secret itself, so it is not quoted."""
        if "secrets" not in fields:
            return ()
        names = {}
        for place, text in self.reader.texts(fields["secrets"][1], "secrets"):
            if _VARIABLE.fullmatch(text):
                names[text] = place
            else:
                fix = "write the name of the environment variable that holds it"
                self.reader.bad(place, "an entry of secrets is no name of a variable", fix)
        return tuple(names)

    def _nodes(
        self, tree: Tree, fields: dict[str, tuple[Place, Tree]], reader: NodeReader
    ) -> tuple[NodePlan, ...]:
        if "nodes" not in fields:
            if isinstance(tree, Fields):
                self.reader.bad(tree.place, "nodes is missing", "add nodes: with at least one node")
            return ()
        key_place, nodes = fields["nodes"]
        plans: list[NodePlan | None] = []
        if isinstance(nodes, Items):
            plans = [reader.read(node, None, node.place) for node in nodes.items]
        elif isinstance(nodes, Fields):
            plans = [reader.read(v, key, place) for key, (place, v) in nodes.fields.items()]
        else:
            self.reader.bad(nodes.place, "nodes must be a list of nodes, or a mapping id: node")
            return ()
        if not plans:
            self.reader.bad(key_place, "nodes is empty", "add at least one node")
        return tuple(plan for plan in plans if plan is not None)

    def _check_deps(self, nodes: NodeReader) -> None:
        """Every dep exists, and following deps never leads back."""
        graph: dict[str, list[Dep]] = {node: [] for node in nodes.seen}
        for entry in nodes.deps:
            if entry.dep not in nodes.seen:
                fix = self.reader.near_fix(entry.dep, nodes.seen) or "add that node"
                self.reader.bad(entry.place, f"there is no node {shown(entry.dep)}", fix)
            elif entry.node in graph:
                graph[entry.node].append(entry)
        for cycle in _cycles(graph):
            names = [entry.node for entry in cycle]
            what = f"the deps form a cycle: {' -> '.join([*names, names[0]])}"
            self.reader.bad(cycle[0].place, what, "remove one of these deps")


def _cycles(graph: dict[str, list[Dep]]) -> list[list[Dep]]:
    """One cycle per dep that leads back, found depth first without recursion, in file order."""
    found = []
    open_at: dict[str, int] = {}
    closed: set[str] = set()
    for start, first in graph.items():
        if start in closed:
            continue
        trail: list[Dep] = []
        stack = [(start, iter(first))]
        open_at[start] = 0
        while stack:
            node, entries = stack[-1]
            entry = next(entries, None)
            if entry is None:
                stack.pop()
                del trail[max(0, len(stack) - 1) :]
                del open_at[node]
                closed.add(node)
            elif entry.dep in open_at:
                found.append([*trail[open_at[entry.dep] :], entry])
            elif entry.dep not in closed:
                trail.append(entry)
                open_at[entry.dep] = len(stack)
                stack.append((entry.dep, iter(graph[entry.dep])))
    return found
