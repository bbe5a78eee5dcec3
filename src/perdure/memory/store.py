"""One store: a directory with ``entries.jsonl``, its index and a lock.

Job: read the entries that are there, and add one. Invariants: the line is the commit, and it is on
the medium before it is acknowledged; what is read under the lock decides the next id, so two
writers never make the same one; the index follows the line and may lag, never lead; bytes that
leave a file are kept beside it first; damage in committed lines stops every write. Reading takes no
lock and writes nothing, so it works where nothing may be written.
"""

import os
from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

from perdure.core.codec import compact_time
from perdure.core.memory import (
    Chains,
    Entry,
    Reading,
    encode_entry,
    memory_id,
    read_entries,
    store_bytes_max,
)
from perdure.core.memory_index import (
    INDEX_NAME,
    Judgement,
    index_page,
    judge_index,
)
from perdure.errors import CorruptError, RefusedError, StorageError
from perdure.ports import Clock, Disk
from perdure.runtime.locking import wait_for_lock

ENTRIES_NAME: Final = "entries.jsonl"
_LOCK_NAME: Final = ".lock"
_RECOVERED: Final = "recovered"
_looks_max: Final = 3
_look_again_s: Final = 0.01


class Shelf(NamedTuple):
    """What a store holds, as it was read."""

    name: str
    """``project`` or ``user``."""
    directory: str
    reading: Reading
    chains: Chains
    judged: Judgement

    @property
    def entries_path(self) -> str:
        """The file with the entries."""
        return os.path.join(self.directory, ENTRIES_NAME)

    @property
    def is_damaged(self) -> bool:
        """Whether committed lines are damaged or gone, as far as anything says."""
        return self.reading.damage is not None or self.judged.state == "ahead"

    @property
    def notices(self) -> list[str]:
        """What is not as it should be, as sentences; empty for a store that is whole."""
        found = []
        damage = self.reading.damage
        if damage is not None:
            found.append(
                f"{self.entries_path} is damaged at line {damage.line}, byte {damage.byte}:"
                f" {damage.reason}. The entries before it are shown; nothing can be added."
            )
        if self.reading.torn:
            found.append(
                f"{self.entries_path} ends in {len(self.reading.torn)} bytes of an unfinished"
                " write; the next entry sets them aside."
            )
        told = _INDEX_TOLD.get(self.judged.state)
        if told and not (self.judged.state == "missing" and not self.reading.entries):
            found.append(f"{os.path.join(self.directory, INDEX_NAME)} {told}")
        return found


_INDEX_TOLD: Final = {
    "stale": "lags behind the entries; the next entry renews it.",
    "missing": "is missing; the next entry makes it again.",
    "edited": (
        "was edited by hand and is not believed; the next entry keeps its bytes aside and makes"
        " it again."
    ),
    "ahead": "speaks of entries that are not in entries.jsonl: committed lines have been lost.",
}


class Added(NamedTuple):
    """What adding came to."""

    entry: Entry
    shelf: Shelf
    """The store as it is now."""
    repeated: bool
    notices: tuple[str, ...]
    """What was put right, or is still to be."""


class Store:
    """A directory of memory. Holds nothing open between calls."""

    def __init__(self, name: str, directory: str, disk: Disk, clock: Clock) -> None:
        self.name = name
        self.directory = directory
        self._disk = disk
        self._clock = clock
        self._entries = os.path.join(directory, ENTRIES_NAME)
        self._index = os.path.join(directory, INDEX_NAME)

    def read(self) -> Shelf:
        """The store as it is; one that does not exist is empty. Takes no lock.

        A writer may be between the line and the index: then it is looked at again. Raises
        StorageError.
        """
        shelf = self._look()
        for _ in range(_looks_max - 1):
            at_rest = shelf.judged.state in ("whole", "missing", "edited")
            if at_rest and not shelf.reading.torn and not shelf.reading.unended:
                break
            self._clock.sleep(_look_again_s)
            shelf = self._look()
        return shelf

    def _look(self) -> Shelf:
        # The index first: it never leads, so what it speaks of is in entries that are read later.
        page = self._bytes_of(self._index)
        reading = read_entries(self._bytes_of(self._entries) or b"")
        judged = judge_index(page, reading)
        return Shelf(self.name, self.directory, reading, Chains(reading.entries), judged)

    def _bytes_of(self, path: str) -> bytes | None:
        return self._disk.read(path) if self._disk.stat(path) is not None else None

    def add(self, make: Callable[[Shelf, str], Entry], *, op: str = "") -> Added:
        """Add the entry that ``make`` makes of the store under its lock, and of the new id.

        Durable on return, the index too. ``make`` may refuse; then nothing was written. The same
        ``op`` again answers with its entry. A crash in the middle leaves the entry whole or not at
        all, and at most an index that lags. Raises CorruptError where committed lines are damaged
        or lost, BusyError, StorageError, and RefusedError ``store_full``.
        """
        self._disk.make_dirs(self.directory)
        lock = self._disk.lock(os.path.join(self.directory, _LOCK_NAME))
        try:
            wait_for_lock(lock, self._clock, self.directory)
            return self._add(make, op)
        finally:
            lock.close()

    def _add(self, make: Callable[[Shelf, str], Entry], op: str) -> Added:
        shelf = self._look()
        self._check(shelf)
        self._settle(shelf)
        again = [entry for entry in shelf.reading.entries if op and entry.op == op]
        if again:
            return Added(again[0], shelf, True, ())
        number = max((entry.number for entry in shelf.reading.entries), default=0) + 1
        entry = make(shelf, memory_id(number))
        line = encode_entry(shelf.reading.value, entry)
        self._append(shelf, line)
        notices = [*self._told(shelf)]
        reading = read_entries(self._disk.read(self._entries))
        try:
            notices += self._renew_index(shelf, index_page(reading))
        except StorageError as error:  # the line is the commit; the index may lag
            notices.append(f"the index could not be renewed: {error.message}")
        judged = judge_index(self._bytes_of(self._index), reading)
        now = Shelf(self.name, self.directory, reading, Chains(reading.entries), judged)
        return Added(reading.entries[-1], now, False, tuple(notices))

    def _check(self, shelf: Shelf) -> None:
        """Nothing is written after damage: an id could come twice, and a chain would hide it."""
        damage = shelf.reading.damage
        if damage is not None:
            raise CorruptError(
                f"{self._entries} is damaged at line {damage.line}, byte {damage.byte}:"
                f" {damage.reason}.",
                code="memory_corrupt",
                rule="ME-1",
                fix="Nothing was written. Put that line back as it was, from a copy of the file;"
                " the entries before it can still be read.",
            )
        if shelf.judged.state == "ahead":
            raise CorruptError(
                f"{self._index} speaks of {shelf.judged.as_of}, which is not in {ENTRIES_NAME}:"
                " committed lines have been lost.",
                code="memory_corrupt",
                rule="ME-1",
                fix="Put entries.jsonl back from a copy. To go on with what is left, move the"
                " index away.",
            )
        if shelf.reading.offset > store_bytes_max:
            raise RefusedError(
                f"{self._entries} has reached its limit of {store_bytes_max} bytes.",
                code="store_full",
                rule="ME-4",
                fix="Move the directory away as a whole and begin a new store.",
            )

    def _settle(self, shelf: Shelf) -> None:
        """Make what was read durable before an entry follows it, and set a torn tail aside.

        The last line is written again where it stands: after a sync of its writer that failed, only
        that makes this sync an honest one. Killed here, the next writer does the same.
        """
        reading = shelf.reading
        if reading.torn:
            digest = sha256(reading.torn).hexdigest()[:8]
            aside = os.path.join(self.directory, _RECOVERED)
            self._disk.make_dirs(aside)
            kept = os.path.join(aside, f"entries-{reading.offset}-{digest}.bin")
            self._disk.replace(kept, reading.torn, durable=True)
            self._disk.truncate(self._entries, reading.offset)
        self._write_last_again(reading)

    def _write_last_again(self, reading: Reading) -> None:
        """Make the last whole line durable, also where a sync of its writer has failed."""
        if reading.entries:
            last = self._disk.read(self._entries, reading.last, reading.offset - reading.last)
            self._disk.rewrite(self._entries, reading.last, last)
            self._disk.sync_file(self._entries)
            self._disk.sync_dir(self.directory)

    def _append(self, shelf: Shelf, line: bytes) -> None:
        if self._disk.stat(self._entries) is None:  # born complete
            self._disk.replace(self._entries, line, durable=True)
            return
        file = self._disk.open_append(self._entries)
        try:
            file.append(b"\n" + line if shelf.reading.unended else line)
            file.sync()
        finally:
            file.close()

    def _told(self, shelf: Shelf) -> list[str]:
        if not shelf.reading.torn:
            return []
        aside = os.path.join(self.directory, _RECOVERED)
        return [f"{len(shelf.reading.torn)} bytes of an unfinished write were set aside in {aside}"]

    def _renew_index(self, shelf: Shelf, page: bytes) -> list[str]:
        """Put the index in place; one that was edited by hand is kept aside first."""
        told = []
        if shelf.judged.state == "edited":
            at = f"{compact_time(self._clock.now())}Z"
            kept = os.path.join(self.directory, f"MEM-INDEX.edited-{at}.md")
            self._disk.replace(kept, self._disk.read(self._index), durable=True)
            told.append(f"the index was edited by hand; those bytes are in {kept}")
        self._disk.replace(self._index, page, durable=True)
        return told

    def make_sure(self) -> None:
        """Make the lines that a reader has just seen durable, before something cites them.

        Where this user may not write, somebody else's sync has to do. Raises nothing for that.
        """
        if self._disk.stat(self._entries) is None:
            return
        try:
            lock = self._disk.lock(os.path.join(self.directory, _LOCK_NAME))
            try:
                wait_for_lock(lock, self._clock, self.directory)
                self._write_last_again(self._look().reading)
            finally:
                lock.close()
        except StorageError as error:
            if error.code not in ("read_only", "permission_denied"):
                raise
