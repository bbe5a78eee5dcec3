"""Sealed projections: JSON that says up to which event it is true, and whether it is whole.

A projection ends in ``as_of`` (seq, offset and h of the last journal line it knows) and ``sum``
(16 hexadecimal digits of the sha256 of everything before it). Invariants: the bytes are a function
of the journal prefix alone (sorted keys, no clock), so a rebuilt projection equals the lost one;
whatever does not match its own ``sum`` is nothing at all (ADR 0004).
"""

import re
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.codec import ChainTip, from_json, to_json
from perdure.core.fold import Replica
from perdure.core.frontier import frontier
from perdure.core.health import health_view
from perdure.core.machine import count_states, open_nodes
from perdure.core.model import Node, State, frontier_snapshot_max
from perdure.core.policies import policy_table

_SUM_KEY: Final = b',"sum":"'
_SUM_TAIL_BYTES: Final = 27  # ,"sum":"0123456789abcdef"}\n
_AS_OF: Final = re.compile(rb'[,{]"as_of":\{"seq":(\d+),"offset":(\d+),"h":"([0-9a-f]{16})"\}\Z')


class AsOf(NamedTuple):
    """The journal prefix a projection was computed from."""

    seq: int
    offset: int
    h: str


class Snapshot(msgspec.Struct):
    """The folded state and the end of the chain it stands on: what opening a workspace loads."""

    state: State
    value: str
    before: str
    start: int

    def tip(self, as_of: AsOf) -> ChainTip:
        """The journal position the state is true for."""
        return ChainTip(
            as_of.seq,
            as_of.offset,
            bytes.fromhex(self.value),
            self.start,
            bytes.fromhex(self.before),
        )


def seal(content: object, tip: ChainTip, *, sort: bool = True) -> bytes:
    """The file for this content at this tip."""
    body = to_json(content, sort=sort)[:-1]
    joint = b"," if len(body) > 1 else b""
    as_of = b'"as_of":{"seq":%d,"offset":%d,"h":"%b"}' % (tip.seq, tip.offset, tip.h.encode())
    body = body + joint + as_of
    return b'%b%b%b"}\n' % (body, _SUM_KEY, _digest(body))


def _digest(body: bytes) -> bytes:
    return sha256(body).hexdigest()[:16].encode()


def read_as_of(data: bytes) -> AsOf | None:
    """The prefix a projection file speaks of, or None when its ``sum`` does not match it."""
    body = data[:-_SUM_TAIL_BYTES]
    if data[-_SUM_TAIL_BYTES:-19] != _SUM_KEY or data[-19:] != _digest(body) + b'"}\n':
        return None
    match = _AS_OF.search(body[-120:])
    if match is None:
        return None
    return AsOf(int(match[1]), int(match[2]), match[3].decode())


def seal_snapshot(state: State, tip: ChainTip) -> bytes:
    """The file that opening loads. Key order is the journal's, which some fields need."""
    snapshot = Snapshot(state, tip.value.hex(), tip.before.hex(), tip.start)
    return seal(snapshot, tip, sort=False)


def unseal_snapshot(data: bytes) -> tuple[State, ChainTip] | None:
    """The state in a snapshot file and where it stands; None when it is damaged or not ours."""
    as_of = read_as_of(data)
    if as_of is None:
        return None
    try:
        snapshot = from_json(data, Snapshot)
        return snapshot.state, snapshot.tip(as_of)
    except ValueError:
        return None


def state_hash(state: State) -> str:
    """The sha256 of everything that a journal prefix says: equal for equal histories (F27)."""
    return sha256(to_json(state, sort=True)).hexdigest()


def graph_view(state: State) -> dict[str, Any]:
    """``task-graph.json`` (formats.md)."""
    return {
        "task_id": state.task_id,
        "created": state.created,
        "tier": state.tier,
        "goal_statement": state.goal_statement,
        "acceptance": state.acceptance,
        "nodes": [_node_view(node) for node in state.nodes.values()],
        "edges_implicit_via_deps": True,
    }


def _node_view(node: Node) -> dict[str, Any]:
    view = msgspec.structs.asdict(node)
    view["spec"] = msgspec.structs.asdict(node.spec)
    for name in _RARE:
        if not view[name]:
            del view[name]
    for name in _RARE_IN_SPEC:
        if not view["spec"][name]:
            del view["spec"][name]
    return view


_RARE: Final = (
    "contract_sha256", "worker", "approvals", "rejected", "rounds", "directives", "steered",
    "plan", "failures", "checks_failed", "questions_asked", "replans", "usage", "audit",
)  # fmt: skip
_RARE_IN_SPEC: Final = ("map", "gates", "python", "agent", "sop", "human", "grants")
"""What most nodes do not have: left out there, and views without it are still whole."""


def registry_view(state: State) -> dict[str, Any]:
    """``artifacts/registry.json`` (formats.md)."""
    return dict(state.artifacts)


def checkpoint_view(replica: Replica) -> dict[str, Any]:
    """``checkpoint.json`` (formats.md): a few KB whatever the size of the task."""
    state = replica.state
    return {
        "task_id": state.task_id,
        "updated_at": state.updated_at,
        "fsm_task": state.fsm_task,
        "tier": state.tier,
        "active_contracts": _active(state),
        "frontier_snapshot": frontier(replica)[:frontier_snapshot_max],
        "counters": {
            "seq_last": state.seq,
            "nodes_done": count_states(state).get("DONE", 0),
            "nodes_open": len(open_nodes(state)),
            "goal_amendments": state.goal_amendments,
        },
        "budgets": {},
        "modes": health_view(state),
        "policy_params": policy_table(state),
        "next_hint": state.next_hint[:500],
        "terminal": state.terminal,
    }


def _active(state: State) -> list[dict[str, Any]]:
    """What is in force: the contracts of nodes at work, then those of their workers."""
    contracts = [
        {"invocation_id": held.invocation_id, "node": held.node, "executor": held.executor.actor}
        for held in list(state.contracts.values())[:frontier_snapshot_max]
    ]
    slots = [
        {
            "invocation_id": slot.invocation_id,
            "node": slot.node,
            "executor": slot.executor,
            "units": slot.units,
        }
        for slot in list(state.slots.values())[:frontier_snapshot_max]
    ]
    return [*contracts, *slots]
