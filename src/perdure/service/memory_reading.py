"""Reading the memory stores: which there are, and what counts in them (HALT-10, 3).

Job: find the store of the project and of the user, find entries in both, and say what to mind
before relying on one. Invariants: takes no lock and writes nothing; a read follows supersession to
what counts and flags what is due; every answer is JSON-like data.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from perdure.core.lookup import near
from perdure.core.memory import Entry, canonical_id, flags_of, project_scope
from perdure.core.memory_search import query_chars_max, rank
from perdure.errors import CorruptError, NotFoundError, UsageError
from perdure.memory.near import alike
from perdure.memory.store import Shelf, Store
from perdure.runtime.world import World, real_world
from perdure.storage.workspace import find_project, find_workspace

Data = dict[str, Any]

_MINDS: Final = {
    "superseded": "another entry counts in its place",
    "draft": "nothing backs it: weigh it as a claim",
    "due": "its time to be re-checked has come",
    "recheck": "it is about what changes by itself: look before you rely on it",
}


class Place(NamedTuple):
    """Where a call was made, and by whom."""

    start_dir: str
    environ: Mapping[str, str]
    actor: str
    workspace: str | None = None
    """Named, or found upward; None where there is none."""


def place_of(start_dir: str, environ: Mapping[str, str], actor: str, named: str | None) -> Place:
    """Where a call is made; without a workspace the memory can be used all the same."""
    world = real_world()
    if named is not None:
        return Place(start_dir, environ, actor, os.path.abspath(os.path.join(start_dir, named)))
    try:
        found = find_workspace(world.disk, start_dir, environ.get("PERDURE_WORKSPACE"))
    except NotFoundError:
        found = None
    return Place(start_dir, environ, actor, found)


def user_directory(environ: Mapping[str, str], start_dir: str) -> str:
    """The directory of the user's own store: PERDURE_MEMORY, else below XDG_DATA_HOME.

    A relative XDG_DATA_HOME does not count, as that standard has it.
    """
    named = environ.get("PERDURE_MEMORY")
    if named:
        return os.path.abspath(os.path.join(start_dir, named))
    home = environ.get("HOME") or os.path.expanduser("~")
    data = environ.get("XDG_DATA_HOME") or ""
    return os.path.join(
        data if os.path.isabs(data) else f"{home}/.local/share", "perdure", "memory"
    )


class MemoryReading:
    """Both stores, as one caller sees them."""

    def __init__(self, place: Place, *, world: World | None = None) -> None:
        self._place = place
        self._world = world or real_world()
        project = find_project(self._world.disk, place.workspace or place.start_dir)
        if project is None:
            project = find_project(self._world.disk, place.start_dir)
        self._project = project or os.path.join(place.start_dir, ".perdure")
        self._stores = {
            "project": self._store("project", os.path.join(self._project, "memory")),
        }
        user = user_directory(place.environ, place.start_dir)
        if os.path.realpath(user) != os.path.realpath(self._stores["project"].directory):
            self._stores["user"] = self._store("user", user)
        self._today = datetime.fromtimestamp(self._world.clock.now(), UTC).date()

    def _store(self, name: str, directory: str) -> Store:
        return Store(name, directory, self._world.disk, self._world.clock)

    @property
    def default_scope(self) -> str:
        """That of the project, by the name of its directory."""
        return project_scope(os.path.basename(os.path.dirname(self._project)))

    def _shelves(self) -> list[Shelf]:
        return [store.read() for store in self._stores.values()]

    def search(
        self,
        query: str,
        *,
        kind: str = "",
        scope: str = "",
        everything: bool = False,
        limit: int = 20,
        after: str = "",
    ) -> Data:
        """Entries by words, best first, a page at a time; what counts, or with ``everything`` also
        what was superseded. Of a query that finds nothing, what is like it."""
        if len(query) > query_chars_max:
            raise UsageError(
                f"a query has at most {query_chars_max} characters, this {len(query)}.",
                code="too_large",
                rule="IN-1",
                fix="Look for a few words.",
            )
        shelves = self._shelves()
        owner = {}
        chosen = []
        for shelf in shelves:
            entries = shelf.reading.entries if everything else shelf.chains.heads
            for entry in entries:
                if (not kind or entry.kind == kind) and (not scope or entry.scope == scope):
                    owner[id(entry)] = shelf
                    chosen.append(entry)
        found = rank(query, chosen)
        like = [] if found or not query.strip() else alike(query, chosen)
        return self._paged(found or like, owner, limit, after) | {
            "alike": bool(like),
            "notices": [notice for shelf in shelves for notice in shelf.notices],
        }

    def due(self, *, limit: int = 20, after: str = "") -> Data:
        """Entries whose time to be re-checked has come, the oldest first."""
        shelves = self._shelves()
        owner, found = {}, []
        for shelf in shelves:
            for entry in shelf.chains.heads:
                if "due" in flags_of(entry, self._today):
                    owner[id(entry)] = shelf
                    found.append(entry)
        found.sort(key=lambda entry: (entry.freshness, entry.number))
        return self._paged(found, owner, limit, after) | {
            "notices": [notice for shelf in shelves for notice in shelf.notices]
        }

    def show(self, typed: str) -> Data:
        """An entry whole: the one that counts in its place, and everything that led to it."""
        shelf, entry = self._found(typed)
        head = shelf.chains.head_of(entry.id)
        chain = [self._view(shelf, one) for one in shelf.chains.chain_of(entry.id)]
        return {
            "entry": self._view(shelf, head),
            "asked": f"{shelf.name}:{entry.id}",
            "superseded": head.id != entry.id,
            "chain": chain,
            "notices": shelf.notices,
        }

    def cite(self, names: Sequence[str]) -> list[Data]:
        """What a decision cites: each entry's head, the digest of its statement, and its flags.

        The lines are made durable first, so that nothing is cited that a power cut may take.
        """
        cited = []
        for name in names:
            shelf, entry = self._found(name)
            self._stores[shelf.name].make_sure()
            head = shelf.chains.head_of(entry.id)
            flags = flags_of(head, self._today)
            if head.id != entry.id:
                flags.append(f"cited as {entry.id}")
            cited.append(
                {"id": head.id, "store": shelf.name, "sha256": head.sha256, "flags": flags}
            )
        return cited

    def _paged(
        self, entries: Sequence[Entry], owner: Mapping[int, Shelf], limit: int, after: str
    ) -> Data:
        names = [f"{owner[id(entry)].name}:{entry.id}" for entry in entries]
        start = 0
        if after:
            wanted = self._found(after)
            name = f"{wanted[0].name}:{wanted[1].id}"
            start = names.index(name) + 1 if name in names else len(names)
        page = entries[start : start + limit]
        more = start + limit < len(entries)
        return {
            "entries": [self._view(owner[id(entry)], entry) for entry in page],
            "total": len(entries),
            "next": names[start + limit - 1] if more else None,
        }

    def _view(self, shelf: Shelf, entry: Entry) -> Data:
        heir = shelf.chains.by.get(entry.id)
        flags = flags_of(entry, self._today, superseded=heir is not None)
        return {
            "ref": f"{shelf.name}:{entry.id}",
            "id": entry.id,
            "store": shelf.name,
            "kind": entry.kind,
            "scope": entry.scope,
            "statement": entry.statement,
            "evidence": list(entry.evidence_refs),
            "created": entry.created,
            "by": entry.by,
            "freshness": entry.freshness,
            "flags": flags,
            "mind": [_MINDS[flag] for flag in flags],
            "supersedes": list(entry.supersedes),
            "superseded_by": heir,
        }

    def _found(self, typed: str) -> tuple[Shelf, Entry]:
        """The entry that was named: ``MEM-0042``, or ``project:MEM-0042`` where both stores have
        it. Raises NotFoundError with near misses, UsageError ``ambiguous_entry``."""
        store, colon, name = typed.rpartition(":")
        wanted = canonical_id(name if colon else typed)
        found = []
        names: list[str] = []
        for shelf in self._shelves():
            names += [f"{shelf.name}:{known}" for known in shelf.chains.entries]
            if colon and shelf.name != store:
                continue
            if wanted in shelf.chains.entries:
                found.append((shelf, shelf.chains.entries[wanted]))
        if len(found) == 1:
            return found[0]
        damaged = [shelf for shelf in self._shelves() if shelf.is_damaged]
        if not found and damaged:
            raise CorruptError(
                f"{typed!r} is not among the entries that can be read. {damaged[0].notices[0]}",
                code="memory_corrupt",
                rule="ME-1",
                fix="Put entries.jsonl back from a copy; then ask again.",
            )
        if not found:
            short = [known.rpartition(":")[2] for known in names]
            raise NotFoundError(
                f"there is no entry {typed!r}.",
                code="unknown_entry",
                rule="ME-1",
                fix="`perdure memory search WORDS` finds entries.",
                suggestions=near(wanted, dict.fromkeys(names if colon else short)),
            )
        raise UsageError(
            f"{wanted} is an entry of both stores.",
            code="ambiguous_entry",
            rule="IN-2",
            fix=f"Say which: {' or '.join(f'{shelf.name}:{wanted}' for shelf, _ in found)}",
        )
