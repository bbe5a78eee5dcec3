"""Batch nodes as far as their spec says: where the findings go, what checks and what made them.

Job: the facts about a node with a ``map`` that several parts must read alike. Invariants: a spec
alone decides, so that two readers never differ; the findings are always among the outputs and the
``units`` check always among the criteria, whoever wrote the spec. Never looks at a disk, and never
knows an item.
"""

import posixpath
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, cast

import msgspec

from perdure.core.actions import ACTION_KINDS, ActionKind
from perdure.core.model import Criterion, ItemsFormat, MapSpec, Node, Spec

units_workers_max: Final = 1_000
unit_attempts_max: Final = 1_000
shard_units_max: Final = 10_000
"""Units that one worker may get with one contract."""

LOG_NAME: Final = "findings.jsonl"
LEDGER_NAME: Final = "ledger.jsonl"
BATCH_RECORD_NAME: Final = ".batch.json"
"""In the job's directory: what made its findings, and that the job is a node's."""

_FORMATS: Final[Mapping[str, ItemsFormat]] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv",
}  # fmt: skip
_WORKSPACE: Final = ("artifacts/", "tmp/")
_UNITS: Final = Criterion("units")


def action_of(spec: Spec) -> ActionKind | None:
    """What the node does when it is dispatched; None for one that is done by hand."""
    for kind in ACTION_KINDS:
        if getattr(spec, kind) is not None:
            return cast(ActionKind, kind)
    return None


def is_automatic(spec: Spec) -> bool:
    """Whether a run dispatches the node by itself: it has an action."""
    return action_of(spec) is not None


def action_problem(spec: Spec) -> str:
    """Why the node cannot know what to do, as a sentence without its stop; empty when it can."""
    kinds = [kind for kind in ACTION_KINDS if getattr(spec, kind) is not None]
    return f"it has both {kinds[0]} and {kinds[1]}" if len(kinds) > 1 else ""


def is_sharded(batch: MapSpec) -> bool:
    """Whether its workers get many units each with one contract, and write the findings."""
    return batch.shard is not None or batch.agent is not None


def log_path(node_id: str) -> str:
    """The findings of a batch node, relative to the workspace."""
    return f"artifacts/{node_id}/{LOG_NAME}"


def ledger_path(node_id: str) -> str:
    """The ledger of a batch node, relative to the workspace."""
    return f"artifacts/{node_id}/{LEDGER_NAME}"


def outputs_with_findings(node_id: str, declared: tuple[str, ...] | None) -> tuple[str, ...]:
    """The outputs of a batch node: its findings, and what else it owes."""
    return tuple(dict.fromkeys((log_path(node_id), *(declared or ()))))


def criteria_of(node: Node) -> tuple[Criterion, ...]:
    """What a node is verified by; for a batch node always by its units as well."""
    criteria = node.spec.acceptance_criteria
    if node.spec.map is None or any(c.check == "units" and not c.params for c in criteria):
        return criteria
    return (_UNITS, *criteria)


def format_of(batch: MapSpec) -> ItemsFormat:
    """How the file of items is written: as the spec says, else by its ending."""
    return batch.format or format_by_ending(batch.items or "")


def format_by_ending(path: str) -> ItemsFormat:
    """How a file of items is written, by the ending of its name; lines when it says nothing."""
    return _FORMATS.get(posixpath.splitext(path)[1].lower(), "lines")


def is_of_workspace(path: str) -> bool:
    """Whether items lie in the workspace; all others lie beside the task file."""
    return path.startswith(_WORKSPACE)


def map_problem(batch: MapSpec) -> str:
    """Why nothing could be made of this ``map``, as a sentence without its stop; empty when not."""
    named = [name for name in ("items", "glob", "list") if getattr(batch, name) is not None]
    if len(named) != 1:
        return f"map has {' and '.join(named) or 'no items'}; it needs one of items, glob and list"
    first = batch.run if isinstance(batch.run, str) else "".join(batch.run[:1])
    if batch.agent is not None and batch.run:
        return "map has both run and agent"
    if batch.agent is None and not first.strip():
        return "map has no command"
    if batch.schema is not None and not is_sharded(batch):
        return "map has a schema and no shards, whose findings it is for"
    if batch.shard is not None and not 1 <= batch.shard <= shard_units_max:
        return f"shard of map is not from 1 to {shard_units_max}"
    keyed = batch.items is not None and format_of(batch) != "lines"
    if batch.key is not None and not keyed:
        return "map has a key, and only items of a JSONL or CSV file have fields"
    if batch.format is not None and batch.items is None:
        return "map has a format, and only a file of items has one"
    if batch.list is not None and (not batch.list or "" in batch.list):
        return "map has a list that is empty, or has an empty entry"
    if batch.list is not None and len(set(batch.list)) < len(batch.list):
        return "map has a list with an entry that stands in it twice"
    if batch.workers is not None and not 1 <= batch.workers <= units_workers_max:
        return f"workers of map is not from 1 to {units_workers_max}"
    if not 1 <= batch.max_attempts <= unit_attempts_max:
        return f"max_attempts of map is not from 1 to {unit_attempts_max}"
    if batch.timeout_s is not None and not batch.timeout_s > 0:
        return "timeout of map is not above 0"
    return ""


def recipe_of(spec: Spec) -> str:
    """Sixteen hexadecimal digits of what makes a finding what it is: command, variables, reading.

    How many at once, how often and how long they may take, and which items there are, changes no
    finding and is left out.
    """
    batch = spec.map or MapSpec()
    made_by: dict[str, Any] = {
        "run": batch.run,
        "env": spec.env,
        "format": format_of(batch) if batch.items is not None else "",
        "key": batch.key,
    }
    if batch.agent is not None:
        made_by["agent"] = batch.agent
    if batch.schema is not None:
        made_by["schema"] = batch.schema
    if is_sharded(batch):
        made_by["goal"] = spec.goal
    return sha256(msgspec.json.encode(made_by, order="sorted")).hexdigest()[:16]


def inventory_digest(keys: Iterable[str]) -> str:
    """The sha256 of the keys, sorted and joined by line feeds."""
    digest, joint = sha256(), b""
    for key in sorted(keys):
        digest.update(joint + key.encode("utf-8", "surrogatepass"))
        joint = b"\n"
    return digest.hexdigest()
