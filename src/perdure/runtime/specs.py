"""Building specs from what callers of the library and the command line give.

Job: turn loose fields into a validated ``Spec``. Invariants: paths are workspace-relative and not
the runtime's own (PL-4); acceptance checks are validated before anything is stored; a gate that has
no id gets one; an unknown field is refused with a suggestion. Which gates a node can have is for
the decision that stores them to say.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.core.batch import (
    action_problem,
    is_of_workspace,
    map_problem,
    outputs_with_findings,
)
from perdure.core.criteria import parse_criterion
from perdure.core.gates import implied_id
from perdure.core.grants import check_grants
from perdure.core.lookup import near
from perdure.core.model import Spec
from perdure.core.people import Gate
from perdure.errors import PathError, UsageError
from perdure.storage.workspace import normal_path, reserved_reason

_ALIASES: Final = {"accept": "acceptance_criteria", "acceptance": "acceptance_criteria"}


def field_name(given: str) -> str:
    """The field of a spec that callers also call otherwise."""
    return _ALIASES.get(given, given)


def make_spec(node_id: str, spec: Spec | None, fields: Mapping[str, Any]) -> Spec:
    """A spec with these fields set. Raises UsageError or PathError; nothing is read or written."""
    values: dict[str, Any] = {}
    for name, value in fields.items():
        field = field_name(name)
        if field not in Spec.__struct_fields__:
            raise UsageError(
                f"a node has no field {name!r}.",
                code="unknown_field",
                fix=f"Use one of {', '.join(Spec.__struct_fields__)}.",
                suggestions=near(name, Spec.__struct_fields__),
            )
        values[field] = value
    if "acceptance_criteria" in values:
        entries = values["acceptance_criteria"]
        entries = [entries] if isinstance(entries, (str, Mapping)) else list(entries or ())
        values["acceptance_criteria"] = tuple(parse_criterion(entry) for entry in entries)
    if "outputs" in values:
        values["outputs"] = _outputs(node_id, values["outputs"])
    if "gates" in values:
        values["gates"] = _gates(node_id, values["gates"])
    base = msgspec.to_builtins(spec if spec is not None else Spec())
    try:
        made = msgspec.convert({**base, **msgspec.to_builtins(values)}, Spec)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the spec of {node_id} is not valid: {error}.", code="bad_spec", fix="Correct it."
        ) from None
    check_grants(made.grants)
    if problem := action_problem(made):
        raise UsageError(
            f"the spec of {node_id} is not valid: {problem}.",
            code="bad_spec",
            fix="Make two nodes of it.",
        )
    return made if made.map is None else _batch(node_id, made)


def _batch(node_id: str, spec: Spec) -> Spec:
    """The spec of a batch node, held to what a task file would be held to."""
    batch = spec.map
    assert batch is not None
    problem = map_problem(batch)
    if problem:
        raise UsageError(
            f"the spec of {node_id} is not valid: {problem}.", code="bad_spec", fix="Correct it."
        )
    for path in (batch.items, batch.glob):
        if path is not None and is_of_workspace(path):
            normal_path(path)
    outputs = outputs_with_findings(node_id, spec.outputs)
    return msgspec.structs.replace(spec, outputs=outputs)


def _gates(node_id: str, given: object) -> tuple[Gate, ...]:
    """Gates as records; one that is a text is a question before the node is DONE (GA-1)."""
    entries = given if isinstance(given, (list, tuple)) else [given]
    return tuple(_gate(node_id, entry) for entry in entries)


def _gate(node_id: str, entry: object) -> Gate:
    names = Gate.__struct_fields__
    fields: dict[str, Any] = {"question": entry}
    if isinstance(entry, (Mapping, Gate)):
        fields = msgspec.to_builtins(entry)
    unknown = sorted(map(str, set(fields) - set(names)))
    if unknown:
        raise UsageError(
            f"a gate has no field {unknown[0]!r}.",
            code="bad_gate",
            rule="GA-1",
            fix=f"Write a question, or a mapping of {', '.join(names)}.",
            suggestions=near(unknown[0], names),
        )
    fields.setdefault("gate_id", implied_id(node_id, str(fields.get("blocks"))))
    if isinstance(fields.get("gatekeeper"), str):
        fields["gatekeeper"] = [fields["gatekeeper"]]
    try:
        gate = msgspec.convert(fields, Gate)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"a gate of {node_id} is not valid: {error}.",
            code="bad_gate",
            rule="GA-1",
            fix="Correct it.",
        ) from None
    content = tuple(dict.fromkeys(map(normal_path, gate.content)))
    return msgspec.structs.replace(gate, content=content)


def _outputs(node_id: str, given: object) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str):
        given = () if given == "none" else (given,)
    if not isinstance(given, (list, tuple, set, frozenset)):
        raise UsageError(
            "outputs is a list of paths, or 'none'.",
            code="bad_spec",
            fix="Name the files the node owes, or write none.",
        )
    outputs = []
    for path in given:
        clean = normal_path(str(path))
        reason = reserved_reason(clean, node_id)
        if reason is not None:
            raise PathError(
                reason, code="path_reserved", fix=f"Name a path below artifacts/{node_id}/."
            )
        outputs.append(clean)
    return tuple(dict.fromkeys(outputs))
