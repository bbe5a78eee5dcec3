"""Building specs from what callers of the library and the command line give.

Job: turn loose fields into a validated ``Spec``. Invariants: paths are workspace-relative and not
the runtime's own (PL-4); acceptance checks are parsed and validated before anything is stored; an
unknown field is refused with a suggestion.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.core.batch import is_of_workspace, map_problem, outputs_with_findings
from perdure.core.criteria import parse_criterion
from perdure.core.lookup import near
from perdure.core.model import Spec
from perdure.errors import PathError, UsageError
from perdure.storage.workspace import normal_path, reserved_reason

_ALIASES: Final = {"accept": "acceptance_criteria", "acceptance": "acceptance_criteria"}


def make_spec(node_id: str, spec: Spec | None, fields: Mapping[str, Any]) -> Spec:
    """A spec with these fields set. Raises UsageError or PathError; nothing is read or written."""
    values: dict[str, Any] = {}
    for name, value in fields.items():
        field = _ALIASES.get(name, name)
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
    base = msgspec.to_builtins(spec if spec is not None else Spec())
    try:
        made = msgspec.convert({**base, **msgspec.to_builtins(values)}, Spec)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the spec of {node_id} is not valid: {error}.", code="bad_spec", fix="Correct it."
        ) from None
    return made if made.map is None else _batch(node_id, made)


def _batch(node_id: str, spec: Spec) -> Spec:
    """The spec of a batch node, held to what a task file would be held to."""
    batch = spec.map
    assert batch is not None
    problem = map_problem(batch) or ("it has both run and map" if spec.run is not None else "")
    if problem:
        raise UsageError(
            f"the spec of {node_id} is not valid: {problem}.", code="bad_spec", fix="Correct it."
        )
    for path in (batch.items, batch.glob):
        if path is not None and is_of_workspace(path):
            normal_path(path)
    outputs = outputs_with_findings(node_id, spec.outputs)
    return msgspec.structs.replace(spec, outputs=outputs)


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
