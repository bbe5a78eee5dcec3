"""Looking at a whole workspace without changing it: ``verify`` and ``doctor``.

Job: replay the journal from its first byte, compare everything with it, hash every artifact, and
say what does not hold, with the cure. Invariants: writes nothing, not even a projection; believes
no snapshot; one bad thing does not hide the others.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import structs

from perdure.core.codec import Damage, Scan
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.late import LateModule
from perdure.core.projection import read_as_of, seal_snapshot, state_hash
from perdure.core.recovery import check_consistency
from perdure.errors import HaltError, PathError, StorageError
from perdure.runtime import left_running
from perdure.runtime.engine import Engine
from perdure.runtime.integrity import failures, integrity_walk
from perdure.storage import spool
from perdure.storage.journal import Journal
from perdure.storage.projections import committed_offset, projection_bytes, stale_views
from perdure.storage.workspace import resolve_inside

_docs: Final = LateModule("perdure.runtime.docs")
_mirror: Final = LateModule("perdure.storage.mirror")

problems_max: Final = 200


class Problem(msgspec.Struct, frozen=True):
    """One thing that does not hold."""

    what: str
    """``journal``, ``torn_tail``, ``mirror``, ``state``, ``artifact``, ``contract``,
    ``projection``, ``document``."""
    where: str
    message: str
    fix: str = ""


class Verification(msgspec.Struct):
    """What a full verification found."""

    ok: bool
    problems: list[Problem]
    notices: list[Problem]
    """True of the workspace, and no reason to doubt it: projections that lag, for example."""
    checked: dict[str, int]
    exit_code: int = 0
    state_hash: str = ""
    """Of everything that the journal says: equal for equal histories (F27)."""


def verify_workspace(engine: Engine) -> Verification:
    """Check everything there is to check; ``engine`` need not be loaded and is not changed.

    Exit code 0: all of it holds; 1: files are not what was registered; 6: the journal is damaged or
    a crash left something for recovery. Raises NotFoundError without a journal.
    """
    replay = _Replay(engine)
    result = Verification(True, replay.problems, [], {})
    damaged = _check_mirror(engine, replay, result) or bool(replay.problems)
    reader = Engine(engine.layout.root, engine.world, engine.actor)
    reader.replica, reader.journal.tip = replay.replica, replay.scan.tip
    if replay.replica.state.created:
        for message in check_consistency(replay.replica):
            result.problems.append(Problem("state", "journal.jsonl", message, _RESUME))
        walk = integrity_walk(reader)
        for name, text in failures(walk).items():
            result.problems.append(Problem("artifact", name, text, _ARTIFACT_FIX))
        result.problems += _check_contracts(reader, replay.contracts)
        result.notices += _projections(reader, replay)
        result.checked["artifacts"] = len(walk)
        result.state_hash = state_hash(replay.replica.state)
    result.checked["events"] = replay.replica.state.seq
    result.checked["bytes"] = replay.scan.tip.offset
    result.checked["unchained"] = replay.scan.unchained
    result.checked["contracts"] = len(replay.contracts)
    result.problems = result.problems[:problems_max]
    result.ok = not result.problems
    result.exit_code = 6 if damaged else int(not result.ok)
    return result


def _check_mirror(engine: Engine, replay: "_Replay", result: Verification) -> bool:
    """Compare both journals of a task of tier 2 in full. Returns whether they tell of damage.

    What is wrong with a journal that its mirror bears out has another cure than a copy (J-2).
    """
    disk, layout = engine.disk, engine.layout
    try:
        if not _mirror.is_due(disk, layout):
            return False
        said = _mirror.restorable(disk, layout, replay.scan.tip.seq) if replay.problems else ""
        found = _mirror.compare(disk, layout, replay.scan)
    except StorageError as error:
        result.problems.append(Problem("mirror", _mirror.NAME, error.message, error.fix))
        return True
    if said:
        cure = f"Run `perdure resume`: {said}."
        result.problems[:] = [structs.replace(problem, fix=cure) for problem in result.problems]
    if found.unfinished:
        result.notices.append(Problem("mirror", _mirror.NAME, found.unfinished))
    if found.wrong:
        result.problems.append(Problem("mirror", _mirror.NAME, found.wrong, _mirror.RESUME))
    return bool(found.wrong)


_TRUNCATED_FIX: Final = "Put the journal back from a copy."
_RESUME: Final = "Run `perdure resume`, which repairs what can be repaired."
_ARTIFACT_FIX: Final = (
    "Put the file back from a copy; or move it away and resume, and its node is done again."
)


class _Replay:
    """The journal from its first byte, with what else is worth keeping of it."""

    def __init__(self, engine: Engine) -> None:
        self.replica = Replica()
        self.scan = Scan()
        self.contracts: dict[str, str] = {}
        self.problems: list[Problem] = []
        self.snapshot_bytes: bytes | None = None
        self._as_of_seq = _snapshot_seq(engine)
        path = engine.layout.journal
        try:
            for events in self.scan.commits(engine.disk.read_chunks(path)):
                self._take(events)
        except StorageError as error:
            self.problems.append(Problem("journal", path, error.message, error.fix))
            return
        self.replica.state.unchained = self.scan.unchained
        if self.scan.damage is not None:
            self._judge(engine, self.scan.damage)
            return
        known = committed_offset(engine.disk, engine.layout)
        end = engine.disk.stat(path)
        if known > self.scan.tip.offset and end is not None and end.size_bytes < known:
            message = (
                f"line {self.scan.tip.seq + 1}, byte {self.scan.tip.offset}: the journal ends, but"
                f" events up to byte {known} had been committed"
            )
            self.problems.append(Problem("journal", "journal.jsonl", message, _TRUNCATED_FIX))

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            self.replica.apply(event)
            digest = event.payload.get("contract_sha256")
            if isinstance(digest, str) and digest:
                self.contracts[str(event.payload.get("contract"))] = digest
        if self.replica.state.seq == self._as_of_seq:
            self.snapshot_bytes = seal_snapshot(self.replica.state, self.scan.tip)

    def _judge(self, engine: Engine, damage: Damage) -> None:
        """Whether a crash explains it; asked of the whole journal, whatever a snapshot says."""
        journal = Journal(engine.disk, engine.layout.journal)
        try:
            journal.catch_up(lambda _: None)
            known = committed_offset(engine.disk, engine.layout)
            if journal.judge(lambda _: None, known) is None:
                return  # somebody was writing it, and has finished
        except HaltError as error:
            self.problems.append(Problem("journal", "journal.jsonl", error.message, error.fix))
            return
        message = f"torn tail: line {damage.line}, byte {damage.byte}: {damage.reason}"
        self.problems.append(Problem("torn_tail", "journal.jsonl", message, _RESUME))


def _snapshot_seq(engine: Engine) -> int | None:
    as_of = read_as_of(projection_bytes(engine.disk, engine.layout.snapshot))
    return as_of.seq if as_of is not None else None


def _check_contracts(engine: Engine, contracts: dict[str, str]) -> list[Problem]:
    """Contracts are durable before they are cited, so each cited one must be there, unchanged."""
    problems = []
    for path, digest in contracts.items():
        try:
            full = resolve_inside(engine.disk, engine.layout.root, path)
            found = engine.disk.stat(full) is not None
            value = sha256(engine.disk.read(full)).hexdigest() if found else ""
        except (PathError, StorageError) as error:
            problems.append(Problem("contract", path, error.message, error.fix))
            continue
        if value != digest:
            what = "changed since it was issued" if found else "missing"
            fix = "Put the file back from a copy; the journal has its sha256."
            problems.append(Problem("contract", path, f"{path} is {what}", fix))
    return problems


def _projections(engine: Engine, replay: _Replay) -> list[Problem]:
    """Projections are never trusted, so one that is wrong is worth a word and no more."""
    notices = []
    layout, disk = engine.layout, engine.disk
    data = projection_bytes(disk, layout.snapshot)
    if replay.snapshot_bytes is not None and replay.snapshot_bytes != data:
        notices.append(Problem("projection", ".snapshot.json", "is not what the journal says"))
    elif replay.snapshot_bytes is None:
        notices.append(Problem("projection", ".snapshot.json", "is missing or not whole"))
    for name in stale_views(disk, layout, engine.replica, engine.journal.tip):
        path = f"{layout.root}/{name}"
        seen = read_as_of(projection_bytes(disk, path))
        if seen is None:
            text = "is missing, torn or edited; it is rebuilt when the task is resumed"
        elif seen.seq < engine.journal.tip.seq:
            text = f"is as of J-{seen.seq}; the journal is at J-{engine.journal.tip.seq}"
        else:
            text = "is not what the journal says; it is rebuilt when the task is resumed"
        notices.append(Problem("projection", name, text))
    return notices


_SET_ASIDE_FIX: Final = (
    "Send it again; the next one who takes messages in sets this aside in tmp/recovered."
)


def diagnose(engine: Engine) -> dict[str, Any]:
    """What a person wants to know about a workspace that behaves oddly. Changes nothing."""
    layout = engine.layout
    findings: list[dict[str, str]] = []
    verification = verify_workspace(engine)
    findings += [
        _finding(problem.what, f"{problem.where}: {problem.message}", problem.fix)
        for problem in verification.problems
    ]
    standing, lease = engine.lease_file.standing()
    holder = None
    if lease is not None:
        holder = {
            "holder": lease.holder,
            "pid": lease.pid,
            "host": lease.host,
            "epoch": lease.epoch,
        }
    if standing in ("dead", "stopped", "expired", "damaged"):
        fix = "Run `perdure resume`; it takes over at once."
        findings.append(_finding("lease", f"the lease is {standing}", fix))
    box = spool.pending(engine.disk, layout)
    if box.messages and standing != "held":
        fix = "Run `perdure resume` or `perdure run`, which takes them in."
        waiting = f"{len(box.messages)} messages wait for a coordinator"
        findings.append(_finding("drop box", waiting, fix))
    findings += [
        _finding("drop box", f"steering/spool/{entry.name}: {entry.reason}", _SET_ASIDE_FIX)
        for entry in box.damaged
    ]
    findings += _of_work(engine)
    return {
        "workspace": layout.root,
        "ok": not findings,
        "findings": findings,
        "notices": [
            msgspec.to_builtins(notice) for notice in (*verification.notices, *_stale_docs(engine))
        ],
        "lease": {"standing": standing, "holder": holder},
        "checked": verification.checked,
        "exit_code": verification.exit_code,
    }


def _finding(what: str, finding: str, fix: str) -> dict[str, str]:
    return {"what": what, "finding": finding, "fix": fix}


def _stale_docs(engine: Engine) -> list[Problem]:
    """Documents that are not what was noted (PL-2): nothing is wrong, and they are to be read."""
    found: dict[str, str] = _docs.stale_docs(engine) if engine.replica.state.docs else {}
    fix = "Read it again, then: perdure note --doc PATH --purpose TEXT"
    return [Problem("document", path, why, fix) for path, why in found.items()]


def _of_work(engine: Engine) -> list[dict[str, str]]:
    """What is the matter with work that was given out."""
    try:
        reader = Engine(engine.layout.root, engine.world, engine.actor)
        reader.load()
    except HaltError:
        return []  # reported as a problem of the journal already
    return [*_left_running(reader), *_expired_contracts(reader)]


def _left_running(engine: Engine) -> list[dict[str, str]]:
    """Processes of a run that died (F13); nobody touches them here."""
    return [
        _finding(
            "leftover",
            f"{orphan.name} ({orphan.pid}) of a dead run still works for {orphan.node}",
            "Run `perdure resume` or `perdure run`, which ends it.",
        )
        for orphan in left_running.find_left_running(engine)
    ]


def _expired_contracts(engine: Engine) -> list[dict[str, str]]:
    """Work whose owner has not been heard of within its contract's time."""
    now = engine.world.clock.now()
    return [
        _finding(
            "contract",
            f"{contract.executor.actor} has {contract.node} at work and was last heard of"
            f" {round(now - (contract.last_beat_at or contract.issued_at))} s ago",
            f"Ask them; or take over with `perdure resume`, which frees {contract.node}.",
        )
        for contract in engine.replica.state.contracts.values()
        if contract.expires_at is not None and contract.expires_at < now
    ]
