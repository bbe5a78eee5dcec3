"""The checkpointed job of a batch node, as one attempt finds it and leaves it.

Job: decide by the node's resume policy what of earlier attempts counts, open job and ledger, and
put both in order. Invariants: a unit counts as done by its finding, read back from the log, and by
nothing else; what made the findings is on record before the first of them (``.batch.json``), so
findings of another recipe are never taken for this one's; the ledger names exactly the units of the
inventory, the others as passed over. What does not count is set aside, never deleted.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from perdure.control.ledger import Ledger, LedgerLine, open_ledger
from perdure.core.batch import (
    BATCH_RECORD_NAME,
    LEDGER_NAME,
    is_sharded,
    log_path,
    recipe_of,
)
from perdure.core.codec import timestamp
from perdure.core.model import MapSpec, Node
from perdure.errors import RefusedError
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.lines import item_hash
from perdure.jobs.place import RUN_NAME
from perdure.runtime.engine import Engine
from perdure.runtime.masking import declared_names
from perdure.runtime.scope import free_recovered_path, set_aside
from perdure.runtime.units import DONE_STATUSES, NOT_COUNTED

record_bytes_max: Final = 64 << 10
reason_chars_max: Final = 400
room_probe_bytes: Final = 64 << 10
"""What has to fit onto the disk before a worker that died is believed to have died by itself."""
UNKNOWN: Final = "unknown"
"""The recipe of findings that were there before there was a record."""


class BatchRecord(msgspec.Struct, frozen=True):
    """What ``.batch.json`` holds."""

    recipes: tuple[str, ...]
    """All that findings of the job may have been made by (``core.batch.recipe_of``)."""
    strikes: int
    """Failed attempts at the node when the units last got new attempts of their own."""


class SettledUnit(NamedTuple):
    """A unit that is settled: done, or failed as often as it may."""

    key: str
    done: bool
    error: str = ""
    """Why it failed."""


class BatchJob:
    """The job and the ledger of one attempt at a batch node."""

    def __init__(self, engine: Engine, node: Node) -> None:
        """Open them. Raises HaltError, and then nothing is left open."""
        self.notices: list[str] = []
        self._engine = engine
        self._node_id = node.node_id
        self._recipe = recipe_of(node.spec)
        self._scope = engine.layout.node_scope(node.node_id)
        record = self._clear(node)
        if is_sharded(node.spec.map or MapSpec()):
            self._make_log(node)
        names = declared_names(engine.replica.state.source)
        self.job = CheckpointedJob(self._scope, node.node_id, world=engine.world, secrets=names)
        try:
            self.notices += [notice.message.rstrip(".") for notice in self.job.notices]
            if record is not None and record.strikes != node.strikes:
                self.job.reset_attempts()
            self._record = self._renew(record, node)
            opened = open_ledger(
                engine.disk,
                f"{self._scope}/{LEDGER_NAME}",
                aside=lambda name: self._aside(node, name),
            )
        except BaseException:
            self.job.close()
            raise
        self._ledger: Ledger = opened.ledger
        self._statuses = opened.statuses
        if opened.notice:
            self.notices.append(opened.notice)

    def adopt(self, keys: list[str]) -> int:
        """Settle how each unit of the inventory stands; returns how many are done.

        Their findings are read back, whole lines from the log, whatever a checkpoint says, and
        lines that cannot be read are set aside, so that each costs one unit. Those that the ledger
        lacks are marked in it (JB-8), and so are units that are not in the inventory any more. A
        crash in the middle leaves some marks, and the next attempt makes the rest.
        """
        if self.job.processed:
            aside = self.job.set_damage_aside(forget=(item_hash(key) for key in keys))
            if aside:
                self.notices.append(f"{aside} lines of the log were set aside in .torn/")
        done = 0

        def marks() -> Iterator[LedgerLine]:
            nonlocal done
            for key in keys:
                status = self._statuses.pop(key, "")
                if self.job.is_done(key):
                    done += 1
                    if status not in DONE_STATUSES:
                        yield self._line(key, "skip-evidence", spec=self._only_recipe())
            for unit, status in self._statuses.items():
                if status != NOT_COUNTED:
                    yield self._line(unit, NOT_COUNTED, reason="not in the inventory any more")

        self._ledger.append(marks())
        self._statuses = {}
        return done

    def settle(self, units: Iterable[SettledUnit]) -> None:
        """Write the ledger lines of units whose findings, or errors, are durable."""
        self._ledger.append(
            self._line(unit.key, "ok", spec=self._recipe)
            if unit.done
            else self._line(unit.key, "fail", reason=unit.error[:reason_chars_max])
            for unit in units
        )

    def place(self, key: str, path: str) -> None:
        """Move a unit's own file, whole and durable, to where its ledger line will name it.

        Before its finding is recorded. A crash leaves it in one place or the other.
        """
        target = self.job.artifact_path(key)
        disk = self._engine.disk
        disk.sync_file(path)
        disk.make_dirs(target.rpartition("/")[0])
        disk.rename(path, target)

    def is_placed(self, key: str) -> bool:
        """Whether the unit has a file of its own in its last place."""
        seen = self._engine.disk.stat(self.job.artifact_path(key))
        return seen is not None and seen.kind == "file"

    def require_room(self) -> None:
        """Raise StorageError when the disk is full: then a death says nothing about the worker."""
        path = f"{self._scope}/{RUN_NAME}/room"
        self._engine.disk.make_dirs(f"{self._scope}/{RUN_NAME}")
        self._engine.disk.replace(path, bytes(room_probe_bytes), durable=False)
        self._engine.disk.unlink(path, durable=False)

    def finish(self) -> None:
        """Every unit is done: leave a finished job, whose log is there even when it is empty."""
        self.job.finish()
        self._ledger.close()
        log = f"{self._engine.layout.root}/{log_path(self._node_id)}"
        if self._engine.disk.stat(log) is None:
            self._engine.disk.replace(log, b"", durable=True)

    def close(self) -> None:
        """Let go of both; what was settled is durable already."""
        self._ledger.close()
        self.job.close()

    def _clear(self, node: Node) -> BatchRecord | None:
        """Set aside what does not count for this attempt; the record of what is left."""
        engine, disk = self._engine, self._engine.disk
        path = log_path(node.node_id)
        if path in engine.replica.paths:
            raise RefusedError(
                f"{path} is registered as {engine.replica.paths[path]}, so nothing can be added.",
                code="content_frozen",
                rule="AR-3",
                fix="Add a node that does the rest, with `successor_of` where this one is dead.",
            )
        log = disk.stat(f"{engine.layout.root}/{path}")
        record = self._read_record()
        if log is None or (record is None and log.size_bytes == 0):
            return None
        if why := self._why_not(node, record):
            set_aside(engine, node)
            self.notices.append(f"the units done so far are set aside: {why}")
            return None
        return record or BatchRecord((UNKNOWN,), node.strikes)

    def _make_log(self, node: Node) -> None:
        """Let there be a log before the first worker is sent.

        What workers leave stays for the next attempt as long as the log is there; without it, they
        are of findings that a verdict has moved away (``runtime.scope``).
        """
        path = f"{self._engine.layout.root}/{log_path(node.node_id)}"
        if self._engine.disk.stat(path) is None:
            self._engine.disk.make_dirs(self._scope)
            self._engine.disk.replace(path, b"", durable=True)

    def _why_not(self, node: Node, record: BatchRecord | None) -> str:
        """Why what earlier attempts did does not count; empty when it does."""
        if node.resume_policy == "never_skip":
            return "the resume policy is never_skip"
        if node.resume_policy == "skip_if_checksum":
            return ""
        if record is None:
            return "nothing says what made them"
        return "" if set(record.recipes) <= {self._recipe} else "the node was amended since"

    def _read_record(self) -> BatchRecord | None:
        path = f"{self._scope}/{BATCH_RECORD_NAME}"
        if self._engine.disk.stat(path) is None:
            return None
        try:
            data = self._engine.disk.read(path, 0, record_bytes_max)
            return msgspec.json.decode(data, type=BatchRecord)
        except (msgspec.MsgspecError, RecursionError):
            return None

    def _renew(self, record: BatchRecord | None, node: Node) -> BatchRecord:
        """Put this attempt on record, durably, before any unit of it runs."""
        before = record.recipes if record is not None else ()
        fresh = BatchRecord(tuple(dict.fromkeys((*before, self._recipe))), node.strikes)
        if fresh != record:
            data = msgspec.json.encode(fresh) + b"\n"
            self._engine.disk.replace(f"{self._scope}/{BATCH_RECORD_NAME}", data, durable=True)
        return fresh

    def _only_recipe(self) -> str:
        """What made a finding that is read back: known when there was never another recipe."""
        return self._recipe if len(self._record.recipes) == 1 else ""

    def _aside(self, node: Node, name: str) -> str:
        engine = self._engine
        path = free_recovered_path(engine, node, f"artifacts/{node.node_id}/{name}")
        return f"{engine.layout.root}/{path}"

    def _line(self, key: str, status: str, *, spec: str = "", reason: str = "") -> LedgerLine:
        now = timestamp(self._engine.world.clock.now())
        return LedgerLine(
            key,
            status,
            self._artifact_of(key),
            now,
            spec or msgspec.UNSET,
            reason or msgspec.UNSET,
        )

    def _artifact_of(self, key: str) -> str:
        """The unit's own file where it has one, else the log."""
        path = self.job.artifact_path(key)
        stat = self._engine.disk.stat(path)
        if stat is not None and stat.kind == "file":
            return path.removeprefix(f"{self._engine.layout.root}/")
        return log_path(self._node_id)
