"""Whether the units of a ledger are done: the ``units`` check of the verifier.

Job: read a ledger, and for a batch node its contract and its findings, and say what is not done.
Invariants: how many units there are, and which, is taken from the contract that the journal cites,
or from the criterion, never from the ledger itself; a unit of a batch node counts only with a
finding of its own (JB-8); what is judged is what was hashed. Never writes, and never runs anything.
"""

import hashlib
from typing import Any, Final

import msgspec

from perdure.core.batch import inventory_digest, ledger_path, log_path
from perdure.core.model import contract_bytes_max
from perdure.errors import CheckFailedError
from perdure.runtime.probe import CitedContract, FirstFew, Probe

DONE_STATUSES: Final = frozenset({"ok", "skip-evidence"})
NOT_COUNTED: Final = "skip"
"""The unit was passed over: in a batch node, because it is not in the inventory any more."""
UNIT_STATUSES: Final = DONE_STATUSES | {NOT_COUNTED, "fail"}

finding_bytes_max: Final = 64 << 20
"""Of one line of the log of findings."""


class UnitLine(msgspec.Struct):
    """The part of a ledger line that counts."""

    unit_id: str | int
    status: str


class _FindingLine(msgspec.Struct):
    key: str | None = msgspec.field(name="_key", default=None)
    hash: str | None = msgspec.field(name="_hash", default=None)


class _Inventory(msgspec.Struct):
    total: int
    sha256: str


class _Contract(msgspec.Struct):
    units: _Inventory


def check_units(probe: Probe, params: dict[str, Any]) -> tuple[bool, str]:
    """Whether every unit is done, and what was found."""
    if probe.contract is not None and not params:
        return _check_batch(probe, probe.contract)
    path = params.get("ledger") or ledger_path(probe.node_id)
    total = params.get("total")
    faults = FirstFew()
    last = last_statuses(probe, path, faults)
    if total is not None and len(last) != total:
        faults.add(f"it has {len(last)} units, not {total}")
    elif total is None and not last:
        faults.add("it has no units")
    done = sum(status != "fail" for status in last.values())
    return not faults.count, f"{path}: {faults if faults.count else f'all {done} units are done'}."


def _check_batch(probe: Probe, cited: CitedContract) -> tuple[bool, str]:
    """A batch node: the ledger has the units of its contract, each with a finding."""
    path = ledger_path(probe.node_id)
    inventory = _inventory(probe, cited)
    faults = FirstFew()
    last = last_statuses(probe, path, faults)
    counted = {unit for unit, status in last.items() if status != NOT_COUNTED}
    if len(counted) != inventory.total:
        faults.add(f"it has {len(counted)} units, and the contract {inventory.total}")
    elif inventory_digest(counted) != inventory.sha256:
        faults.add("its units are not those of the contract")
    done = {unit for unit in counted if last[unit] in DONE_STATUSES}
    for unit in sorted(_without_finding(probe, done, faults)):
        faults.add(f"unit {unit} has no finding")
    well = f"all {len(done)} units of the contract are done, each with its finding"
    return not faults.count, f"{path}: {faults if faults.count else well}."


def _inventory(probe: Probe, cited: CitedContract) -> _Inventory:
    """What the contract says, after it was found to be the one the journal cites."""
    data = probe.read(cited.path, contract_bytes_max)
    if hashlib.sha256(data).hexdigest() != cited.sha256:
        raise CheckFailedError(f"{cited.path} is not the contract that the journal cites.")
    try:
        return msgspec.json.decode(data, type=_Contract).units
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckFailedError(f"{cited.path} names no units: {error}.") from None


def last_statuses(probe: Probe, path: str, faults: FirstFew) -> dict[str, str]:
    """The last status of each unit; what is not a ledger line, or says fail, is a fault."""
    last: dict[str, str] = {}
    for number, line in probe.lines(path):
        if not line.strip():
            continue
        try:
            unit = msgspec.json.decode(line, type=UnitLine)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            faults.add(f"line {number} is not a ledger line ({error})")
            continue
        if unit.status not in UNIT_STATUSES:
            faults.add(f"line {number} has the unknown status {unit.status!r}")
        last[str(unit.unit_id)] = unit.status
    for unit_id, status in last.items():
        if status == "fail":
            faults.add(f"unit {unit_id} failed")
    return last


def _without_finding(probe: Probe, units: set[str], faults: FirstFew) -> set[str]:
    """Those of the units that the log of findings does not have; a bad line in it is a fault."""
    left = set(units)
    path = log_path(probe.node_id)
    for number, line in probe.lines(path, finding_bytes_max):
        text = line.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else line.strip()
        if not text:
            continue
        try:
            finding = msgspec.json.decode(text, type=_FindingLine)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            faults.add(f"line {number} of {path} is no finding ({error})")
            continue
        if finding.key is None and finding.hash is None:
            faults.add(f"line {number} of {path} is no finding (it names no item)")
        elif finding.key is not None:
            left.discard(finding.key)
    return left
