"""Importing: a task out of the one file that it was exported to.

Job: check a bundle from its first byte to its last, compare it with what is there, and lay it down.
Invariants: everything is checked before anything is written, and again while it is written; the
workspace appears by one rename, whole and durable, or not at all; the journal is byte for byte what
was exported and nothing is appended to it (F27). A crash leaves a directory with a temporary name,
which the next import of the same task removes.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

from perdure.core import bundle as b
from perdure.core.codec import ChainTip, decode_line
from perdure.core.tiers import is_mirrored
from perdure.errors import BusyError, CorruptError, RefusedError, StorageError
from perdure.ports import Disk
from perdure.runtime import tar_stream as tar
from perdure.runtime.bundle_out import judge_cited
from perdure.runtime.replay import Replay, replay_bytes
from perdure.storage.projections import write_projections
from perdure.storage.workspace import Layout

Pieces = Iterator[bytes]


class Bundle:
    """One pass over a bundle: its manifest, then its files in order."""

    def __init__(self, disk: Disk, path: str) -> None:
        """Reads the manifest. Raises CorruptError, RefusedError as ``core.bundle`` says."""
        seen = disk.stat(path)
        if seen is None or seen.kind == "dir":
            raise StorageError(f"{path} is no file.", code="no_file", fix="Name the exported file.")
        self._tar = tar.TarReader(disk.read_chunks(path))
        first = self._tar.next_file()
        if first is None or first[0] != b.MANIFEST_NAME:
            raise b.damaged(f"it does not begin with {b.MANIFEST_NAME}")
        if first[1] > b.manifest_bytes_max:
            raise b.damaged(f"{b.MANIFEST_NAME} has {first[1]} bytes")
        self.manifest = b.read_manifest(b"".join(self._tar.data()))

    def files(self) -> Iterator[tuple[b.BundleFile, Pieces]]:
        """Each file and its bytes, which prove to be the declared ones as they are read.

        A file that is not read is read over, and proves itself all the same.
        """
        for file in self.manifest.files:
            found = self._tar.next_file()
            if found is None:
                raise b.damaged(f"{file.path!r} is not in it")
            name, size = found
            if name != file.path:
                raise b.damaged(f"{name[:200]!r} stands where {file.path!r} belongs")
            if size != file.size_bytes:
                raise b.damaged(f"{name!r} has {size} bytes, and {file.size_bytes} were declared")
            pieces = self._proved(file)
            yield file, pieces
            for _ in pieces:
                pass
        extra = self._tar.next_file()
        if extra is not None:
            raise b.damaged(f"{extra[0][:200]!r} in it was not declared")

    def _proved(self, file: b.BundleFile) -> Pieces:
        digest = sha256()
        for piece in self._tar.data():
            digest.update(piece)
            yield piece
        if digest.hexdigest() != file.sha256:
            raise b.damaged(f"{file.path!r} has other bytes than its sha256 says")


def check_bundle(disk: Disk, path: str) -> tuple[b.Manifest, Replay]:
    """Prove a bundle without writing anything; the manifest, and the task's journal, replayed.

    Every hash, every journal to its last line, the state hash of each, and that what the journals
    speak of is what the files are. Raises CorruptError for whatever does not hold.
    """
    bundle = Bundle(disk, path)
    manifest = bundle.manifest
    told = {found.path: found for found in (manifest.history, *manifest.instances)}
    files = {file.path: file for file in manifest.files}
    excused = {found.path for found in (*manifest.missing, *manifest.damaged)}
    task: Replay | None = None
    for file, pieces in bundle.files():
        below = b.workspace_of(file.path)
        if b.within(file.path) != b.JOURNAL_NAME:
            continue
        replay = replay_bytes(pieces, file.path)
        if below not in told or told.pop(below) != replay.history(below):
            raise b.damaged(f"{file.path} is not the history that was declared")
        prefix = f"{below}/" if below else ""
        cited = {f"{prefix}{name}": known for name, known in replay.cited().items()}
        for found in (*judge_cited(cited, files)[0], *judge_cited(cited, files)[1]):
            if found.path not in excused:
                raise b.damaged(f"{found.path}: {found.why}")
        if not below:
            task = replay
    if told or task is None:
        raise b.damaged(f"the journal of {next(iter(told), '') or 'the task'} is not in it")
    state = task.replica.state
    if (state.created, state.tier, state.fsm_task) != (
        manifest.created, manifest.tier, manifest.fsm_task,
    ):  # fmt: skip
        raise b.damaged(f"{b.MANIFEST_NAME} does not say what the journal says")
    return manifest, task


class Compared(NamedTuple):
    """How a workspace that is there stands to a bundle."""

    relation: str
    """``identical``, ``behind``, ``ahead`` or ``forked``; of the workspace."""
    seq: int
    """The last event that both have."""


def compare(disk: Disk, path: str, journal: str, tip: ChainTip) -> Compared:
    """Compare the journal at ``journal``, up to its last commit, with that of a bundle."""
    bundle = Bundle(disk, path)
    _, pieces = next(bundle.files())
    lines, same = 0, 0
    ours = disk.read_chunks(journal)
    mine, left = b"", tip.offset
    for piece in pieces:
        theirs = piece
        while theirs:
            if not mine:
                if not left:
                    return Compared("behind", tip.seq)
                mine = next(ours, b"")[:left]
                left -= len(mine)
                if not mine:
                    return Compared("behind", tip.seq)
            count = min(len(mine), len(theirs))
            if mine[:count] != theirs[:count]:
                differs = next(i for i in range(count) if mine[i] != theirs[i])
                return Compared("forked", lines + mine[:differs].count(b"\n"))
            lines += mine[:count].count(b"\n")
            same += count
            mine, theirs = mine[count:], theirs[count:]
    if same == tip.offset:
        return Compared("identical", tip.seq)
    return Compared("ahead", bundle.manifest.seq)


def line_of(disk: Disk, journal: str, seq: int) -> str:
    """What an event of a journal says in a few words; empty where it has none of that number."""
    lines = disk.read_chunks(journal)
    rest, number = b"", 0
    for chunk in lines:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            if number == seq:
                try:
                    event = decode_line(line)
                except ValueError:
                    return ""
                return f"{event.kind} by {event.actor} at {event.ts}"
    return ""


def lay_down(disk: Disk, path: str, target: str, manifest: b.Manifest, task: Replay) -> None:
    """Unpack a bundle that was checked to ``target``, which must not be there, or be empty.

    Durable on return. Raises BusyError while somebody else does the same, RefusedError where the
    file system takes two names of the bundle for one, StorageError; then nothing is there.
    """
    folder, name = target.rpartition("/")[::2]
    disk.make_dirs(folder or "/")
    lock_path = f"{folder}/.{name}.import.lock"
    lock = disk.lock(lock_path)
    temp = f"{folder}/.{name}.tmp-import"
    try:
        if not lock.try_acquire():
            raise BusyError(
                f"somebody else is importing to {target}.", rule="IM-1", fix="Wait for their end."
            )
        try:
            if disk.stat(target) is not None and disk.list_dir(target):
                raise BusyError(
                    f"{target} has just been made by somebody else.",
                    rule="IM-1",
                    fix="Import it again, which tells whether it is the same.",
                )
            disk.remove_tree(temp)  # of one that was killed
            _unpack(disk, path, temp, manifest, task)
            disk.rename(temp, target)
        except BaseException:
            _remove_quietly(disk, temp)
            raise
        finally:
            disk.unlink(lock_path, durable=False)
    finally:
        lock.close()


def _remove_quietly(disk: Disk, temp: str) -> None:
    """After a failure that is being reported: a second one here would hide it."""
    try:
        disk.remove_tree(temp)
    except StorageError:
        return


def _unpack(disk: Disk, path: str, temp: str, manifest: b.Manifest, task: Replay) -> None:
    disk.make_dirs(temp)
    _check_names(disk, temp, manifest)
    bundle = Bundle(disk, path)
    if bundle.manifest != manifest:
        raise CorruptError(
            f"{path} was changed while it was read.", code="bundle_damaged", rule="IM-2",
            fix="Import it again when nobody writes to it.",
        )  # fmt: skip
    directories = {temp}
    for file, pieces in bundle.files():
        full = f"{temp}/{file.path}"
        _make_directory(disk, full.rpartition("/")[0], directories)
        _write(disk, full, pieces, file)
        if file.path == b.JOURNAL_NAME and is_mirrored(manifest.tier):
            mirror = f"{temp}/{b.MIRROR_NAME}"
            _write(disk, mirror, disk.read_chunks(full), file)
    layout = Layout(temp)
    _make_directory(disk, layout.artifacts, directories)
    write_projections(disk, layout, task.replica, task.tip)
    for directory in sorted(directories, key=len, reverse=True):
        disk.sync_dir(directory)


def _write(disk: Disk, full: str, pieces: Pieces, file: b.BundleFile) -> None:
    disk.create_file(full)
    out = disk.open_append(full)
    try:
        for piece in pieces:
            out.append(piece)
    finally:
        out.close()
    disk.restore_facts(full, mtime_ns=file.mtime_ns, executable=file.executable)
    disk.sync_file(full)


def _make_directory(disk: Disk, full: str, directories: set[str]) -> None:
    """Make it and those above it; each is synced once, when everything is in it."""
    missing = []
    while full not in directories:
        missing.append(full)
        full = full.rpartition("/")[0]
    for name in reversed(missing):
        disk.make_dirs(name, durable=False)
        directories.add(name)


def _check_names(disk: Disk, temp: str, manifest: b.Manifest) -> None:
    """Raise RefusedError where two names of the bundle are one on this file system."""
    pairs = b.colliding(file.path for file in manifest.files)
    if not pairs:
        return
    probe = f"{temp}/.case"
    disk.create_file(probe)
    folded = disk.stat(f"{temp}/.CASE") is not None
    disk.unlink(probe, durable=False)
    if folded:
        one, other = pairs[0]
        raise RefusedError(
            f"{one!r} and {other!r} are one name on this file system.",
            code="names_collide",
            rule="IM-2",
            fix="Import it on a file system that tells upper and lower case apart.",
        )
