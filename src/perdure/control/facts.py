"""What supervision reads outside the journal: files, ledgers, processes.

Job: gather :class:`~perdure.core.supervision_records.Facts` for one look. Invariants: it reads and
nothing else; what cannot be read is left out, which counts as not looked at, so that a failing disk
is never evidence for or against anybody; a death is a suspicion with what was observed and the
policy by which that counts (RT-3). Never signals a process.
"""

from datetime import datetime
from typing import Final, get_args

import msgspec

from perdure.core.batch import ledger_path
from perdure.core.model import ActiveContract, Artifact, State
from perdure.core.supervision_records import Condition, Facts, SuspectedDeath
from perdure.core.supervision_words import length
from perdure.errors import PathError, StorageError
from perdure.ports import ProcessIdentity
from perdure.runtime.integrity import judge_artifact
from perdure.runtime.reader import Reader
from perdure.storage.workspace import resolve_inside

ledger_tail_bytes: Final = 64 << 10
"""The end of a ledger that is searched for its newest whole line."""

_CONDITIONS: Final[dict[str, Condition]] = {name: name for name in get_args(Condition)}


class _Line(msgspec.Struct):
    ts: str


def gather_facts(reader: Reader, now: float) -> Facts:
    """Look at everything that ``derive`` wants to know besides the journal, as of ``now``."""
    return Facts(
        artifacts=_artifacts(reader),
        ledgers=_ledgers(reader),
        executors=_executors(reader, now),
    )


def _artifacts(reader: Reader) -> dict[str, Condition]:
    """How the bytes of current artifacts were found; hashed only where size or time differ."""
    found = {}
    for name, artifact in reader.replica.state.artifacts.items():
        if artifact.status == "current":
            condition = _CONDITIONS.get(judge_artifact(reader, artifact, quick=True).files)
            if condition is None and _leads_out(reader, artifact):
                condition = "changed"
            if condition is not None:
                found[name] = condition
    return found


def _leads_out(reader: Reader, artifact: Artifact) -> bool:
    """Whether its path has come to leave the workspace, which no failing disk brings about."""
    if artifact.integrity.algo == "git":
        return False
    try:
        resolve_inside(reader.disk, reader.layout.root, artifact.path)
    except PathError:
        return True
    except StorageError:
        pass
    return False


def _ledgers(reader: Reader) -> dict[str, float]:
    """When the newest unit of each batch node at work was settled."""
    found = {}
    for contract in reader.replica.state.contracts.values():
        node = reader.replica.state.nodes.get(contract.node)
        if node is not None and node.spec.map is not None:
            at = _newest_line_at(reader, node.node_id)
            if at is not None:
                found[node.node_id] = at
    return found


def _newest_line_at(reader: Reader, node_id: str) -> float | None:
    """The time in the last whole line, but none after the file was written; None: no such line."""
    try:
        path = resolve_inside(reader.disk, reader.layout.root, ledger_path(node_id))
        seen = reader.disk.stat(path)
        if seen is None or seen.kind != "file" or not seen.size_bytes:
            return None
        data = reader.disk.read(path, max(0, seen.size_bytes - ledger_tail_bytes))
    except (PathError, StorageError):
        return None
    for line in reversed(data[: data.rfind(b"\n") + 1].splitlines()):
        try:
            at = datetime.fromisoformat(msgspec.json.decode(line, type=_Line).ts).timestamp()
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, OverflowError):
            continue
        return min(at, seen.mtime_ns / 1e9)
    return None


def _executors(reader: Reader, now: float) -> dict[str, SuspectedDeath]:
    """Why whoever works on a node may be dead.

    The process of a contract is the coordinator that issued it: while it lives it sees its commands
    end, and what became of them is its own to judge.
    """
    state = reader.replica.state
    found = {}
    for contract in state.contracts.values():
        if contract.executor.kind == "session":
            suspicion = _silent_session(state, contract, now)
        else:
            suspicion = _gone_process(reader, contract)
        if suspicion is not None:
            found[contract.node] = suspicion
    return found


def _gone_process(reader: Reader, contract: ActiveContract) -> SuspectedDeath | None:
    who = contract.executor
    identity = ProcessIdentity(who.host, who.boot_id, who.pid, who.started)
    if not who.pid or reader.world.processes.state(identity) != "gone":
        return None
    me = reader.world.processes.me()
    why = "is gone" if who.boot_id == me.boot_id else "is gone: its machine has been restarted"
    return SuspectedDeath(
        f"process {who.pid} on {who.host}, which {who.actor} worked in, {why}",
        "a contract is live while its process lives",
    )


def _silent_session(state: State, contract: ActiveContract, now: float) -> SuspectedDeath | None:
    """A session that has let its contract run out, with no step of it observed since."""
    step = state.observed.steps.get(contract.node)
    seen_at = max(
        contract.issued_at,
        contract.last_beat_at or 0.0,
        (step.progress_at if step is not None else None) or 0.0,
    )
    ttl_s = state.policies.contract_ttl_s
    ends_at = contract.expires_at
    if ends_at is None or now < ends_at or now < seen_at + ttl_s:
        return None
    return SuspectedDeath(
        f"nothing was heard of {contract.executor.actor} for {length(now - seen_at)}, and its"
        " contract has run out",
        f"contract_ttl_s = {ttl_s:g}",
        "contract_expired",
    )
