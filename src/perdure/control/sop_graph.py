"""From a card and the values of its inputs to a task: the graph of one instance.

Job: put the nodes of all phases into one task with the deps that follow from the order of the
phases, and say which phase each node belongs to. Invariants: the same card with the same values
gives the same task; every batch node tries one unit before the others (its smoke test); a value
is where the card says it stands and nowhere else. Never: writes anything but the inputs' file.
"""

import json
import posixpath
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from perdure.control.sop_card import ACCEPTANCE_NODE, CARD_NAME, Card, Phase
from perdure.control.sop_values import fill, fill_text
from perdure.control.taskfile import NodePlan, TaskFile, read_task
from perdure.control.taskfile_tree import Fields, Items, Place, Problem, Scalar, Tree, problems_text
from perdure.core.codec import to_json
from perdure.core.instance import VERIFY
from perdure.errors import UsageError
from perdure.ports import Disk

SOPS: Final = "sops"
"""Where an instance keeps its own copy of its card, its scripts and its inputs."""
INPUTS_PATH: Final = f"{SOPS}/inputs.json"
"""The inputs as one JSON object; relative to the workspace."""
INPUTS_VARIABLE: Final = "PERDURE_INPUTS"
INPUT_PREFIX: Final = "PERDURE_INPUT_"
SAMPLE_TASK: Final = "sample"
"""The task id of a plan that is only looked at."""
variable_bytes_max: Final = 1_024
"""A value above that is only in the file."""


class InstancePlan(NamedTuple):
    """What one instance does."""

    task: TaskFile
    phase_of: dict[str, str]
    """Node to the phase that it belongs to."""


def instance_plan(
    card: Card, inputs: Mapping[str, Any], *, task_id: str, workspace: str
) -> InstancePlan:
    """The task of an instance of ``card`` in ``workspace``, with bound ``inputs``.

    Pure. Raises UsageError ``sop_inputs`` where a value makes a node that cannot be, each problem
    with the place in the card that it comes from.
    """
    problems: list[Problem] = []
    task = read_task(task_tree(card, inputs, task_id), problems)
    problems += [] if problems else late_deps(card, task)
    if problems:
        raise UsageError(
            f"{card.sop_id} {card.version} cannot be planned with these inputs:\n"
            + problems_text(card.path, problems),
            code="sop_inputs",
            fix="Give other values; nothing was started.",
        )
    variables = input_variables(card, inputs)
    directory = posixpath.join(workspace, SOPS, card.directory_name)
    ready = msgspec.structs.replace(
        task,
        nodes=tuple(_made_ready(plan, variables) for plan in task.nodes),
        sha256=card.sha256,
        path=posixpath.join(directory, CARD_NAME),
        directory=directory,
    )
    return InstancePlan(ready, phase_of(card))


def phase_of(card: Card) -> dict[str, str]:
    """Each node of the card to its phase."""
    found = {node_id: phase.name for phase in card.phases for node_id, _, _ in phase.nodes}
    return {**found, ACCEPTANCE_NODE: VERIFY} if card.acceptance else found


def late_deps(card: Card, task: TaskFile) -> list[Problem]:
    """Each dep on a node of a later phase: of those, values may name some as well."""
    at = {name: place for place, name in enumerate(card.phase_names)}
    of, places = phase_of(card), {name: where for p in card.phases for name, where, _ in p.nodes}
    return [
        Problem(
            places.get(plan.node_id, Place(1, 1)),
            f"{plan.node_id} depends on {dep}, which is of a later phase",
            "move one of the two",
        )
        for plan in task.nodes
        for dep in plan.deps
        if at[of.get(dep, of[plan.node_id])] > at[of[plan.node_id]]
    ]


def output_paths(card: Card, inputs: Mapping[str, Any]) -> dict[str, str]:
    """Name of each output to its path in the workspace of the instance."""
    return {one.name: fill_text(one.path, inputs) for one in card.outputs}


def write_inputs(inputs: Mapping[str, Any], *, disk: Disk, workspace: str) -> None:
    """Write the inputs where the nodes of the instance find them; durable on return.

    Repeatable; a crash leaves the old file or the new one. Raises StorageError.
    """
    disk.make_dirs(posixpath.join(workspace, SOPS))
    disk.replace(posixpath.join(workspace, INPUTS_PATH), to_json(inputs) + b"\n", durable=True)


def input_variables(card: Card, inputs: Mapping[str, Any]) -> dict[str, str]:
    """What the commands of an instance find of its inputs in their environment.

    A text as it is, everything else as JSON; without a value, and where that is above
    ``variable_bytes_max``, it is empty, so that nothing of an outer instance shines through.
    """
    found = {INPUTS_VARIABLE: INPUTS_PATH}
    for one in card.inputs:
        value = inputs.get(one.name)
        text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
        fits = len(text.encode("utf-8", "surrogateescape")) <= variable_bytes_max
        found[f"{INPUT_PREFIX}{one.name.upper()}"] = text if fits else ""
    return found


def _made_ready(plan: NodePlan, variables: Mapping[str, str]) -> NodePlan:
    spec = plan.spec
    batch = spec.map
    if batch is not None:
        batch = msgspec.structs.replace(batch, smoke=True)
    env = {**variables, **spec.env}
    spec = msgspec.structs.replace(spec, map=batch, env=env)
    # The level is the card's to say, whatever the tier of whoever calls it: the caller is audited.
    return msgspec.structs.replace(plan, spec=spec, level_by_tier=False)


# The tree


def task_tree(card: Card, values: Mapping[str, Any], task_id: str) -> Fields:
    """The task as a task file would have it, each value at the place in the card it comes from."""
    start = Place(1, 1)
    outputs = {fill_text(one.path, values) for one in card.outputs}
    nodes: list[Tree] = []
    before: list[str] = []
    for phase in card.phases:
        names = [node_id for node_id, _, _ in phase.nodes]
        nodes += [_node(card, entry, values, before, outputs) for entry in phase.nodes]
        if phase.name == VERIFY and card.acceptance:
            nodes.append(_acceptance(card, phase, values, names or before))
            names = [*names, ACCEPTANCE_NODE]
        before = names or before
    fields: dict[str, tuple[Place, Tree]] = {
        "task_id": (start, _text(start, task_id)),
        "goal": (start, _text(start, f"{card.title}. {card.purpose}".strip())),
        "nodes": (start, Items(start, nodes)),
    }
    if card.grants:
        fields["grants"] = (start, _texts(start, card.grants))
    return Fields(start, fields)


def _node(
    card: Card,
    entry: tuple[str, Place, Tree],
    values: Mapping[str, Any],
    before: list[str],
    outputs: set[str],
) -> Tree:
    node_id, place, tree = entry
    filled = fill(tree, values)
    if not isinstance(filled, Fields):
        return filled or Fields(place, {"id": (place, _text(place, node_id))})
    fields = {"id": (place, _text(place, node_id)), **filled.fields}
    if "deps" not in fields and before:
        fields["deps"] = (place, _texts(place, before))
    if "verify" not in fields and card.verify != "V1" and _makes(fields, outputs):
        fields["verify"] = (place, _text(place, card.verify))
    return Fields(place, fields)


def _makes(fields: Mapping[str, tuple[Place, Tree]], outputs: set[str]) -> bool:
    tree = fields["outputs"][1] if "outputs" in fields else None
    listed = tree.items if isinstance(tree, Items) else []
    return any(isinstance(item, Scalar) and item.text in outputs for item in listed)


def _acceptance(card: Card, phase: Phase, values: Mapping[str, Any], deps: list[str]) -> Tree:
    """A node that does nothing and is checked: whether the instance as a whole holds."""
    place = phase.place
    checks = [fill(check, values) for check in card.acceptance]
    fields: dict[str, tuple[Place, Tree]] = {
        "id": (place, _text(place, ACCEPTANCE_NODE)),
        "title": (place, _text(place, f"{card.title}: what all of it is held to"[:200])),
        "run": (place, _texts(place, ["true"])),
        "deps": (place, _texts(place, deps)),
        "outputs": (place, _text(place, "none")),
        "accept": (place, Items(place, [check for check in checks if check is not None])),
    }
    return Fields(place, fields)


def _text(place: Place, text: str) -> Scalar:
    return Scalar(place, text, plain=False)


def _texts(place: Place, texts: list[str] | tuple[str, ...]) -> Items:
    return Items(place, [_text(place, text) for text in texts])
