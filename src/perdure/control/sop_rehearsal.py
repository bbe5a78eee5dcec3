"""A card is planned once before anybody calls it, with the defaults of its inputs.

Job: find what only the whole graph can show: nodes that cannot be, effects beyond the profile
(SC-1), a procedure inside itself (AP-N4), outputs that nobody makes. Invariants: an input that must
be given is rehearsed with a sample, one that need not without a value; where the card has faults
already, what does not follow from those is told as well. Nothing is run.
"""

import posixpath
from typing import Any, Final

from perdure.control.sop_card import Card, is_path
from perdure.control.sop_graph import SAMPLE_TASK, late_deps, output_paths, task_tree
from perdure.control.sop_inputs import sample_of
from perdure.control.sop_problems import CardProblems
from perdure.control.sop_values import PLACED, SHELL, UNKNOWN, fill_text
from perdure.control.taskfile import NodePlan, TaskFile, read_task
from perdure.control.taskfile_tree import Fields, Items, Place, Scalar
from perdure.errors import PathError
from perdure.storage.workspace import normal_path

VALUE_FAULTS: Final = frozenset({UNKNOWN, SHELL, PLACED})
"""What is wrong with a value leaves the node around it what it is."""


class _Samples(dict[str, Any]):
    """The values of a rehearsal: an input that there is not has one as well."""

    def __missing__(self, name: str) -> str:
        return "sample"


def rehearse(card: Card, problems: CardProblems, faults: frozenset[str] = frozenset()) -> None:
    """Note everything that keeps the card from being planned.

    ``faults`` are the codes of what is wrong with its inputs, outputs and nodes so far.
    """
    samples = _Samples({one.name: sample_of(one) for one in card.inputs})
    tree, noted = task_tree(card, samples, SAMPLE_TASK), len(problems.found)
    task = read_task(tree, [] if faults else problems.found)
    if not faults and len(problems.found) == noted:
        for late in late_deps(card, task):
            problems.add("sop_phases", *late)
    for plan in task.nodes:
        place = problems.places.get(f"node {plan.node_id}", Place(1, 1))
        _check_effect(card, plan, place, problems)
        if not _runs_itself(card, plan, place, problems):
            _check_files(card, plan, place, problems)
    if faults <= VALUE_FAULTS:
        _check_outputs(card, samples, task, problems)


def _check_outputs(
    card: Card, samples: dict[str, Any], task: TaskFile, problems: CardProblems
) -> None:
    """Somebody makes every output; where one names it in a way that is told as wrong, as well."""
    made = {path for plan in task.nodes for path in plan.spec.outputs or ()}
    for _, _, tree in (node for phase in card.phases for node in phase.nodes):
        entry = tree.fields.get("outputs") if isinstance(tree, Fields) else None
        listed = entry[1].items if entry is not None and isinstance(entry[1], Items) else []
        made |= {fill_text(one.text, samples) for one in listed if isinstance(one, Scalar)}
    for name, path in output_paths(card, samples).items():
        try:
            owed = normal_path(path)
        except PathError:
            owed = path
        if owed not in made:
            place = problems.places.get(f"output {name}", Place(1, 1))
            what = f"no node has {path} among its outputs, so nobody makes the output {name}"
            problems.add("sop_output_unmade", place, what, "name it in outputs of a node")


def _check_effect(card: Card, plan: NodePlan, place: Place, problems: CardProblems) -> None:
    if plan.effect not in card.side_effects:
        what = (
            f"{plan.node_id} has the effect {plan.effect}, and side_effects allows"
            f" {', '.join(card.side_effects)}"
        )
        problems.add("sop_effect", place, what, "add it to side_effects, or do without")


def _runs_itself(card: Card, plan: NodePlan, place: Place, problems: CardProblems) -> bool:
    call = plan.spec.sop
    if call is None:
        return False
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(card.path), call.sop))
    if call.sop != card.sop_id and not (
        is_path(call.sop) and beside == posixpath.normpath(card.path)
    ):
        return False
    what = f"{plan.node_id} runs {card.sop_id} inside itself"
    problems.add("sop_recursion", place, what, "call another procedure, or use nodes")
    return True


def _check_files(card: Card, plan: NodePlan, place: Place, problems: CardProblems) -> None:
    """What a node names beside the card is copied with the card, or an instance would lack it."""
    named = []
    if plan.spec.sop is not None and is_path(plan.spec.sop.sop):
        named.append(plan.spec.sop.sop)
    if plan.spec.python is not None and plan.spec.python.call.partition(":")[0].endswith(".py"):
        named.append(plan.spec.python.call.rpartition(":")[0])
    for path in named:
        if not posixpath.isabs(path) and posixpath.normpath(path) not in card.files:
            what = f"{plan.node_id} needs {path}, which is not among the files of the card"
            problems.add("sop_file_missing", place, what, "add it to files")
