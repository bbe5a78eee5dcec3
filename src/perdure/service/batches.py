"""How far a batch node is, for whoever looks at it from outside.

Job: put together what the node's contract says of its units and what its job has done. Invariants:
reads only, and takes no lock; costs no more when many units are done; what cannot be read is said,
and hides nothing else.
"""

from typing import Any, Final

import msgspec

from perdure.core.model import Node, contract_bytes_max
from perdure.errors import HaltError, NotFoundError
from perdure.jobs.status import job_status
from perdure.runtime.engine import Engine

Data = dict[str, Any]

_NOTHING_YET: Final = {"processed": 0, "failed": 0}


class _Units(msgspec.Struct):
    total: int | None = None
    passed_over: int = 0


class _Contract(msgspec.Struct):
    units: _Units | None = None


def units_of(engine: Engine, node: Node) -> Data:
    """``done``, ``total`` and ``failed`` of a batch node; ``total`` is None until it was counted.

    ``done`` counts findings, also those whose ledger line is still to come; ``failed`` the units
    that failed and may be tried again, or not. ``problem`` says what could not be read.
    """
    found: Data = {"done": 0, "total": None, "failed": 0}
    try:
        units = _contracted(engine, node)
        stats = _stats(engine, node)
    except (HaltError, msgspec.MsgspecError, RecursionError) as error:
        return {**found, "problem": str(error)}
    done = max(0, stats["processed"] - units.passed_over)
    return {**found, "done": done, "total": units.total, "failed": stats["failed"]}


def _contracted(engine: Engine, node: Node) -> _Units:
    """What the newest contract says of the units."""
    if node.invocation is None:
        return _Units()
    path = engine.layout.contract(node.invocation)
    if engine.disk.stat(path) is None:
        return _Units()
    data = engine.disk.read(path, 0, contract_bytes_max)
    return msgspec.json.decode(data, type=_Contract).units or _Units()


def _stats(engine: Engine, node: Node) -> Data:
    try:
        stats: Data = job_status(engine.disk, engine.layout.node_scope(node.node_id))["stats"]
    except NotFoundError:  # it has not begun
        return _NOTHING_YET
    return stats
