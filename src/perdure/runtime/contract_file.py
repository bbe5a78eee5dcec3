"""The file of a contract: a new name, the generator's own checks, the bytes made durable.

Job: the three checks without which nothing is dispatched (PD-C3): the name of the file and the
names of the units are unique, the units are those of the plan, what is on disk is what was meant.
Invariants: a contract that was written is never written again; bytes and name are durable before
any event that cites them, and were read back. It decides nothing about what a contract says.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from perdure.core.batch import inventory_digest
from perdure.core.codec import compact_time, to_indented_json
from perdure.core.commands import IssuedContract
from perdure.core.contract import Contract
from perdure.core.grants import check_grants
from perdure.core.model import contract_bytes_max
from perdure.core.views import cut
from perdure.errors import RefusedError, StorageError
from perdure.runtime.engine import Engine
from perdure.runtime.masking import masker_of

names_tried_max: Final = 3
"""Invocation ids that are drawn before a contract without a free name is given up."""


class Planned(NamedTuple):
    """What the plan says of the units of one worker; counted without the list it is checked by."""

    total: int
    sha256: str
    """Of their keys, as :func:`~perdure.core.batch.inventory_digest` has it."""


def write_contract(engine: Engine, order: Callable[[str], Contract]) -> IssuedContract:
    """Write what ``order`` makes of a name that nobody has used; durable and read back on return.

    In a batch it is durable before the batch is committed, together with those beside it.

    A crash leaves nothing, or a file that nobody cites. Raises UsageError ``bad_grant`` (AU-1);
    RefusedError ``contract_exists`` (PD-C3), ``contract_too_large`` (C-CONTRACT); StorageError
    ``contract_not_read_back`` (PD-C3) and others.
    """
    invocation_id = _free_name(engine)
    contract = order(invocation_id)
    check_grants(contract.authority_grants)
    # A value a line: tools of agents that read a file cut long lines (at 2,000 characters).
    data = masker_of(engine).mask_bytes(to_indented_json(contract) + b"\n")[0]
    if len(data) > contract_bytes_max:
        raise RefusedError(
            f"the contract for {contract.parent.node_id} would have {len(data)} bytes; the limit is"
            f" {contract_bytes_max}.",
            code="contract_too_large",
            rule="C-CONTRACT",
            fix="Split the node, give each worker fewer units, or move long texts of its spec into"
            " input files.",
        )
    path = engine.layout.contract(invocation_id)
    engine.disk.make_dirs(engine.layout.contracts)
    engine.disk.replace(path, data, durable=False)
    engine.make_durable(path)
    if engine.disk.read(path) != data:
        raise StorageError(
            f"the contract {path} is not on disk as it was written.",
            code="contract_not_read_back",
            rule="PD-C3",
            fix="Nothing was sent. Check the device, then run it again.",
        )
    budget = msgspec.to_builtins(contract.budget)
    budget.pop("max_wall_hours", None)
    digest = sha256(data).hexdigest()
    return IssuedContract(invocation_id, digest, contract.executor, None, budget)


def _free_name(engine: Engine) -> str:
    """An invocation id whose contract has never been written."""
    stamp = compact_time(engine.world.clock.now())
    name = ""
    for _ in range(names_tried_max):
        name = f"inv-{stamp}-{engine.world.ids.token()}"
        if engine.disk.stat(engine.layout.contract(name)) is None:
            return name
    raise RefusedError(
        f"the contract {name} exists already, and a contract is never written twice.",
        code="contract_exists",
        rule="PD-C3",
        fix="Run it again; another name is drawn then.",
    )


def check_units(node_id: str, keys: Sequence[str], plan: Planned) -> None:
    """Raise RefusedError unless each name stands once and they are those of the plan (PD-C3)."""
    twice = [key for key, number in Counter(keys).items() if number > 1]
    if twice:
        raise RefusedError(
            f"the units of a contract for {node_id} have the name {cut(twice[0])} more than once.",
            code="contract_units_twice",
            rule="PD-C3",
            fix="Give each unit a name of its own.",
        )
    if (len(keys), inventory_digest(keys)) != (plan.total, plan.sha256):
        raise RefusedError(
            f"the {len(keys)} units of a contract for {node_id} are not the {plan.total} of the"
            " plan.",
            code="contract_units_mismatch",
            rule="PD-C3",
            fix="Nothing was sent. Run it again, so that the units are counted anew.",
        )
