"""A file system in memory that knows what of it is on the medium.

Job: two views of one set of files. The live view is what every process sees, the page cache; the
medium is what no power cut takes away, together with the changes that wait for a sync. Invariants:
the live view changes at once and the medium only by :meth:`FileSystem.sync_file` and
:meth:`FileSystem.sync_folder`; contents and folders are values that are replaced and never changed
in place, so a copy costs a few small dictionaries. It raises ``OSError`` as a kernel does, logs
nothing and injects nothing: that is ``syscalls``'s. What may be left after a power cut is
``crash``'s.

Names wait twice, once for each model of ``crash``: ``loose`` are the changes that the sync of
their own folder commits, ``ordered`` those that any sync commits, in the order they were made.
"""

import errno
import os
import posixpath
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from perdure.errors import invariant

ROOT: Final = 1
"""Inode of ``/``, which always exists."""

name_bytes_max: Final = 255


class File(NamedTuple):
    """The content of a regular file."""

    data: bytes
    mtime_ns: int


class Write(NamedTuple):
    """A change to a file's bytes that no successful sync has covered yet."""

    offset: int
    data: bytes | None
    """None: the file was cut, or extended by zeros, to ``offset`` bytes."""
    mtime_ns: int
    clean: bool = False
    """A sync of it has failed: its pages are marked clean, so no later sync writes them."""


class Change(NamedTuple):
    """What one name in one folder stands for from now on; None when it is gone."""

    folder: int
    name: str
    inode: int | None


class NameStep(NamedTuple):
    """One atomic change to the names: a rename is a single step with two changes."""

    what: str
    changes: tuple[Change, ...]


class Spot(NamedTuple):
    """Where a path leads."""

    folder: int
    name: str
    inode: int | None
    """None when the folder has no such name."""


Names = dict[int, dict[str, int]]
"""Folder inode to what is in it. The inner dictionaries are never changed in place."""


def with_changes(names: Names, changes: tuple[Change, ...]) -> None:
    """Carry changes out in a set of folders of which the inner ones are shared with others."""
    for folder, name, inode in changes:
        entries = dict(names.get(folder, ()))
        if inode is None:
            entries.pop(name, None)
        else:
            entries[name] = inode
        names[folder] = entries


def with_write(data: bytes, write: Write) -> bytes:
    """The bytes of a file after a write or a truncation reached it."""
    offset, new = write.offset, write.data
    if new is None:
        return data[:offset].ljust(offset, b"\0")
    if offset == len(data):
        return data + new
    if not new:
        return data
    return data[:offset].ljust(offset, b"\0") + new + data[offset + len(new) :]


def without_covered(old: Write, new: Write) -> list[Write]:
    """What is left of a dropped write after a later one of the same file reached the medium."""
    if old.data is None:
        return [old]
    start, end = old.offset, old.offset + len(old.data)
    low = new.offset
    high = end if new.data is None else low + len(new.data)
    pieces = [(start, min(end, low)), (max(start, high), end)]
    return [
        old._replace(offset=first, data=old.data[first - start : last - start])
        for first, last in pieces
        if first < last
    ]


class FileSystem:
    """The files of one machine, as its kernel and its medium have them."""

    __slots__ = (
        "_next_inode",
        "files",
        "folder_times",
        "links",
        "locks",
        "loose",
        "loose_names",
        "names",
        "ordered",
        "ordered_names",
        "stored",
        "waiting",
    )

    def __init__(self) -> None:
        self.names: Names = {ROOT: {}}
        """The live folders."""
        self.files: dict[int, File] = {}
        """The live contents."""
        self.links: dict[int, str] = {}
        self.folder_times: dict[int, int] = {ROOT: 0}
        self.stored: dict[int, File] = {}
        """Contents on the medium; a file that is missing here is empty there."""
        self.waiting: dict[int, tuple[Write, ...]] = {}
        """Changes to contents that wait for a sync, in their order."""
        self.loose_names: Names = {ROOT: {}}
        self.loose: tuple[NameStep, ...] = ()
        self.ordered_names: Names = {ROOT: {}}
        self.ordered: tuple[NameStep, ...] = ()
        self.locks: dict[int, object] = {}
        """Inode of a lock file to the token of its holder."""
        self._next_inode = ROOT + 1

    def copy(self) -> "FileSystem":
        """The same files for somebody else; nobody holds a lock there."""
        other = FileSystem.__new__(FileSystem)
        other.names = dict(self.names)
        other.files = dict(self.files)
        other.links = self.links.copy()
        other.folder_times = dict(self.folder_times)
        other.stored = dict(self.stored)
        other.waiting = dict(self.waiting)
        other.loose_names = dict(self.loose_names)
        other.loose = self.loose
        other.ordered_names = dict(self.ordered_names)
        other.ordered = self.ordered
        other.locks = {}
        other._next_inode = self._next_inode
        return other

    def after_power_loss(self, names: Names, contents: dict[int, File]) -> "FileSystem":
        """A machine that finds this on its medium: all of it is durable, nothing waits.

        ``contents`` are those files whose bytes differ from ``stored``.
        """
        other = FileSystem.__new__(FileSystem)
        other.names, other.files, other.links = {}, {}, {}
        other.folder_times = {}
        todo = [ROOT]
        while todo:
            folder = todo.pop()
            if folder in other.names:
                continue
            entries = other.names[folder] = names.get(folder, {})
            other.folder_times[folder] = self.folder_times[folder]
            for inode in entries.values():
                if inode in self.folder_times:
                    todo.append(inode)
                elif inode in self.links:
                    other.links[inode] = self.links[inode]
                else:
                    other.files[inode] = contents.get(inode) or self.stored_file(inode)
        other.stored, other.waiting = dict(other.files), {}
        other.loose_names, other.ordered_names = dict(other.names), dict(other.names)
        other.loose = other.ordered = ()
        other.locks = {}
        other._next_inode = self._next_inode
        return other

    def stored_file(self, inode: int) -> File:
        """What the medium certainly has of a file."""
        return self.stored.get(inode) or File(b"", self.files[inode].mtime_ns)

    # Paths

    def real_path(self, path: str, *, follow_last: bool = True) -> str:
        """The path without links, ``.`` and ``..``; parts that do not exist stay as named.

        Where links lead in a circle the rest stays as named too.
        """
        return posixpath.normpath("/" + "/".join(self._resolve(path, follow_last)[0]))

    def _resolve(self, path: str, follow_last: bool) -> tuple[Sequence[str], bool]:
        """The parts of the real path, and whether it is one: False for a circle of links."""
        invariant(path.startswith("/"), f"the Disk port was given the relative path {path!r}")
        if not self.links and ".." not in path:
            return _parts(path), True
        return self._walk([], _parts(path), follow_last, set())

    def _walk(
        self, done: list[str], todo: Sequence[str], follow_last: bool, under_way: set[str]
    ) -> tuple[list[str], bool]:
        for at, part in enumerate(todo):
            if part == "..":
                done = done[:-1]
                continue
            here = [*done, part]
            follow = follow_last or at + 1 < len(todo)
            target = self.links.get(self._inode_of(here)) if follow else None
            if target is None:
                done = here
                continue
            link = "/".join(here)
            if link in under_way:
                return [*here, *todo[at + 1 :]], False
            under_way.add(link)
            start = [] if target.startswith("/") else done
            done, ok = self._walk(start, _parts(target), True, under_way)
            if not ok:
                return [*done, *todo[at + 1 :]], False
            under_way.discard(link)
        return done, True

    def locate(self, path: str, *, follow_last: bool = True) -> Spot:
        """Where a path leads. Raises as the kernel does when the folders before it do not exist."""
        parts, ok = self._resolve(path, follow_last)
        if not ok:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if not parts:
            return Spot(ROOT, "", ROOT)
        folder = ROOT
        for part in parts[:-1]:
            inode = self._entry(folder, part)
            if inode is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            folder = inode
        return Spot(folder, parts[-1], self._entry(folder, parts[-1]))

    def _entry(self, folder: int, name: str) -> int | None:
        if folder not in self.names:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if len(name) * 4 > name_bytes_max and len(os.fsencode(name)) > name_bytes_max:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        return self.names[folder].get(name)

    def _inode_of(self, parts: list[str]) -> int:
        inode = ROOT
        for part in parts:
            inode = self.names.get(inode, {}).get(part, 0)
        return inode

    def tree(self) -> dict[str, bytes | str | None]:
        """Every path that is there: to bytes, for a link to its target, for a folder None."""
        found: dict[str, bytes | str | None] = {}
        todo = [("", ROOT)]
        while todo:
            above, folder = todo.pop()
            for name, inode in self.names[folder].items():
                path = f"{above}/{name}"
                if inode in self.files:
                    found[path] = self.files[inode].data
                elif inode in self.links:
                    found[path] = self.links[inode]
                elif path not in found:
                    found[path] = None
                    todo.append((path, inode))
        return found

    # Changes to the live view

    def create(self, spot: Spot, now_ns: int) -> int:
        """A new empty file under a free name."""
        inode = self._new_inode()
        self.files[inode] = File(b"", now_ns)
        self._rename(f"create {spot.name}", now_ns, Change(spot.folder, spot.name, inode))
        return inode

    def mkdir(self, spot: Spot, now_ns: int) -> int:
        """A new empty folder under a free name."""
        inode = self._new_inode()
        # Its own emptiness needs no sync: without its name nobody finds it.
        self.names[inode] = self.loose_names[inode] = self.ordered_names[inode] = {}
        self.folder_times[inode] = now_ns
        self._rename(f"mkdir {spot.name}", now_ns, Change(spot.folder, spot.name, inode))
        return inode

    def symlink(self, spot: Spot, target: str, now_ns: int) -> None:
        """A new symbolic link under a free name."""
        inode = self._new_inode()
        self.links[inode] = target
        self._rename(f"symlink {spot.name}", now_ns, Change(spot.folder, spot.name, inode))

    def move(self, source: Spot, target: Spot, now_ns: int) -> None:
        """Give a file or folder another name, atomically, in the place of what had that name."""
        gone = Change(source.folder, source.name, None)
        there = Change(target.folder, target.name, source.inode)
        self._rename(f"rename {source.name} to {target.name}", now_ns, gone, there)

    def unlink(self, spot: Spot, now_ns: int) -> None:
        """Take a name away; the content lives on in what has it open."""
        self._rename(f"unlink {spot.name}", now_ns, Change(spot.folder, spot.name, None))

    def write(self, inode: int, offset: int, data: bytes, now_ns: int) -> None:
        """Put bytes into a file."""
        self._change(inode, Write(offset, data, now_ns))

    def truncate(self, inode: int, size_bytes: int, now_ns: int) -> None:
        """Cut a file, or extend it by zeros."""
        self._change(inode, Write(size_bytes, None, now_ns))

    def _change(self, inode: int, write: Write) -> None:
        if write.data != b"":
            self.files[inode] = File(with_write(self.files[inode].data, write), write.mtime_ns)
            self.waiting[inode] = (*self.waiting.get(inode, ()), write)

    def _rename(self, what: str, now_ns: int, *changes: Change) -> None:
        with_changes(self.names, changes)
        for change in changes:
            self.folder_times[change.folder] = now_ns
        step = NameStep(what, changes)
        self.loose = (*self.loose, step)
        self.ordered = (*self.ordered, step)

    def _new_inode(self) -> int:
        self._next_inode += 1
        return self._next_inode - 1

    # What reaches the medium

    def sync_file(self, inode: int) -> None:
        """Everything of a file that is marked dirty is on the medium from now on."""
        waiting = self.waiting.pop(inode, ())
        if any(write.clean for write in waiting):
            data = self.stored_file(inode).data
            dropped: list[Write] = []
            for write in waiting:
                if write.clean:
                    dropped.append(write)
                else:
                    data = with_write(data, write)
                    dropped = [left for old in dropped for left in without_covered(old, write)]
            self.stored[inode] = File(data, self.files[inode].mtime_ns)
            if dropped:
                self.waiting[inode] = tuple(dropped)
        elif inode in self.files:
            self.stored[inode] = self.files[inode]
        self._commit_in_order()

    def sync_folder(self, folder: int) -> None:
        """The names in a folder are on the medium from now on.

        Of a move to or from another folder this is one half: the other one waits for its own sync.
        """
        left = []
        for step in self.loose:
            here = tuple(change for change in step.changes if change.folder == folder)
            with_changes(self.loose_names, here)
            rest = tuple(change for change in step.changes if change.folder != folder)
            if rest:
                left.append(NameStep(step.what, rest))
        self.loose = tuple(left)
        self._commit_in_order()

    def drop_dirty(self, inode: int) -> None:
        """A sync has failed: readers go on seeing the bytes, and no later sync writes them.

        Cutting a file concerns no page, so it waits for the next sync.
        """
        if inode in self.waiting:
            self.waiting[inode] = tuple(
                write if write.data is None else write._replace(clean=True)
                for write in self.waiting[inode]
            )

    def _commit_in_order(self) -> None:
        if self.ordered:
            self.ordered_names, self.ordered = dict(self.names), ()


@lru_cache(maxsize=4_096)  # every call begins with it
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in {"", "."})
