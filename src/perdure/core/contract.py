"""The contract as a type: the complete work order for one bounded episode of one executor.

Job: every field of the document ``contracts/<invocation>.json``, and the one line that its executor
is sent. Invariants: whoever has the document needs nothing else (INV-7); what it does not grant is
denied (AU-1); the published schema (docs/contract.md) is exported from these types, so that
document and type cannot differ. Paths are relative to the workspace, which is the directory that
holds ``contracts/``. It never reads or writes a file.
"""

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from perdure.core.actions import AgentCall, HumanSlot, PythonCall
from perdure.core.model import Criterion, Effect, Executor, MapSpec, VerificationLevel
from perdure.core.record import Record

POLICY_ONLY: Final[dict[str, str]] = {"writes": "policy only", "network": "policy only"}
"""The enforcement of a contract where the system holds nobody to it."""


class ParentNode(Record, msgspec.Struct, frozen=True, gc=False):
    """What the work is for."""

    task_id: str
    node_id: str
    goal: str
    """Of the whole task, cut."""


class SopOrder(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The procedure to run as an instance of its own."""

    id: str
    version: str = ""
    inputs: dict[str, Any] = {}


class InputFile(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Something to read; what is registered has its id, and is frozen (AR-3)."""

    path: str
    artifact_id: str = ""


class ContractBudget(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What this episode may use; what is absent has no limit."""

    max_wall_s: float | None = None
    max_wall_hours: float | None = None
    """The same in hours."""
    max_tool_calls: int | None = None
    max_cost_usd: float | None = None
    max_tokens: int | None = None


class ContractUnits(Record, msgspec.Struct, frozen=True, gc=False):
    """The units of the work, generated and never typed (PD-C2)."""

    total: int | None
    """None where they could not be counted; ``problem`` says why."""
    sha256: str | UnsetType = UNSET
    """Of their keys, sorted and joined by line feeds."""
    keys: tuple[dict[str, Any], ...] | UnsetType = UNSET
    """Of a worker that gets units by name: ``{"key": KEY, "item": ITEM}`` each, in order."""
    items: str | UnsetType = UNSET
    glob: str | UnsetType = UNSET
    """Where they come from."""
    duplicates: int | UnsetType = UNSET
    """Entries of the source that named a unit again."""
    sample: tuple[str, ...] | UnsetType = UNSET
    passed_over: int | UnsetType = UNSET
    """Units on record that are not in the source any more."""
    problem: str | UnsetType = UNSET


class Reporting(Record, msgspec.Struct, frozen=True, gc=False):
    """What the executor owes while it works."""

    heartbeat_min_interval_min: float
    ledger_required: bool
    """A line in ``ledger.jsonl`` for each finished unit."""


class AuditOrder(Record, msgspec.Struct, frozen=True, gc=False):
    """Of an independent audit (V2): what is judged, by what, and where the verdict goes."""

    rubric: tuple[str, ...]
    """Each of these points needs an item in the verdict."""
    independence: tuple[str, ...]
    """What the verdict has to meet, of I1 to I5 (VR-0)."""
    files: dict[str, str]
    """Path to sha256 of what is judged; none of it may change."""
    producer: str
    """Who made it; never the auditor (INV-6)."""
    verdict: str
    """The file to write."""


class InstanceOrder(Record, msgspec.Struct, frozen=True, gc=False):
    """Of a child instance: where it lives, and which one it follows."""

    directory: str
    previous: str = ""
    """The invocation of the failed instance before it."""


class Contract(Record, msgspec.Struct, frozen=True, gc=False):
    """One work order, complete."""

    invocation_id: str
    parent: ParentNode
    title: str
    goal: str
    executor: Executor
    executor_kind: str
    """``run``, ``map``, ``python``, ``agent``, ``sop`` or ``human``; ``shard`` for some units of a
    batch node, ``audit`` for an independent verdict, ``session`` for whoever claimed the node."""
    message: str
    """The one line that the executor is sent (PD-C1)."""
    attempt: int
    run: str | tuple[str, ...] | None
    """The command; beside it one of the next five at most."""
    python: PythonCall | None
    agent: AgentCall | None
    sop: SopOrder | None
    human: HumanSlot | None
    map: MapSpec | None
    inputs: tuple[InputFile, ...]
    units: ContractUnits | None
    skip: int | tuple[str, ...]
    """Units that are done already and are not done again: how many, or which."""
    outputs: tuple[str, ...] | None
    """Paths that are owed; None: at least one file; empty: none."""
    schema: dict[str, Any] | None
    """JSON Schema of each line of findings, or of the verdict of an audit."""
    acceptance: tuple[Criterion, ...]
    verification_level: VerificationLevel
    constraints: tuple[str, ...]
    budget: ContractBudget
    authority_grants: tuple[str, ...]
    """What is not listed is denied."""
    enforcement: dict[str, Any]
    """What the system holds the executor to, for ``writes`` and ``network``; else policy only."""
    effect: Effect
    reporting: Reporting
    steering_channel: str
    """Where to drop questions and messages."""
    recall: str
    """A file that exists once this contract is void, and says why: look before each unit."""
    previous_failure: str
    audit: AuditOrder | None
    instance: InstanceOrder | None
    epoch: int


def dispatch_message(path: str) -> str:
    """The one line that an executor is sent, with the path of its contract (PD-C1)."""
    return f"Read {path} and carry it out; everything you need is in it."


def recall_path(invocation_id: str) -> str:
    """The file of the workspace that exists once this contract is void."""
    return f"contracts/{invocation_id}.recalled"


def contract_schema() -> dict[str, Any]:
    """The JSON Schema of the document, exported from :class:`Contract`."""
    return msgspec.json.schema(Contract)
