"""Exporting: one file that holds a whole task.

Job: gather what belongs into a bundle, copy it, and write it behind its manifest. Invariants: the
workspace is only read, without its lock, so a coordinator may go on; the journal goes up to a
commit, and everything that it speaks of was durable before it; each file is hashed as it is copied;
the bundle appears whole, by a rename, or not at all; bytes that are not what was registered are
told and never passed off as such. A crash leaves two temporary files beside the target at most.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from perdure.core import bundle as b
from perdure.core.instance import INSTANCES
from perdure.core.secrets import Masker
from perdure.errors import PathError, StorageError
from perdure.ports import AppendFile, Disk
from perdure.runtime import tar_stream as tar
from perdure.runtime.reader import Reader
from perdure.runtime.replay import Cited, Replay, replay_workspace
from perdure.storage.workspace import is_workspace, resolve_inside

attempts_max: Final = 3
"""Copies that are begun because the task moved on while one was made."""
whole_bytes_max: Final = 8 << 20
overlap_bytes: Final = 8 << 10
"""Of a line of a log that is longer: kept back, for a secret that may only have begun there."""
"""Files up to this size are read at once, so that they cannot change between two pieces."""


class Source(NamedTuple):
    """A file to copy."""

    path: str
    """In the bundle."""
    full: str
    size_bytes: int = -1
    """To copy; all of it where that is not said."""
    masked: bool = False


class _ChangedError(Exception):
    """A file became shorter while it was copied."""


class Gathered:
    """What there is of a task, as of one moment."""

    def __init__(self, disk: Disk, root: str, *, logs: bool) -> None:
        self._disk = disk
        self._root = root
        self._logs = logs
        self.sources: dict[str, Source] = {}
        self.left_out: list[b.Told] = []
        self.cited: dict[str, Cited] = {}
        self.histories: list[b.History] = []
        self.replay = self._workspace("")

    def _workspace(self, below: str) -> Replay:
        """The task, or an instance below it. The journal of the caller is read first: it never
        speaks of a result that its instance has not written yet."""
        root = f"{self._root}/{below}".rstrip("/")
        prefix = f"{below}/" if below else ""
        replay = replay_workspace(self._disk, root)
        self.histories.append(replay.history(below))
        if replay.torn_bytes:
            what = f"the last {replay.torn_bytes} bytes are an unfinished commit"
            self._tell(f"{prefix}{b.JOURNAL_NAME}", what)
        for path, cited in replay.cited().items():
            self.cited[f"{prefix}{path}"] = cited
        self._files(root, prefix)
        journal = f"{prefix}{b.JOURNAL_NAME}"
        self.sources[journal] = Source(journal, f"{root}/{b.JOURNAL_NAME}", replay.tip.offset)
        for path in [*replay.cited(), *replay.named()]:
            self._cited_file(root, prefix, path)
        for name, artifact in replay.replica.state.artifacts.items():
            if artifact.integrity.algo == "git":
                self._tell(f"{prefix}{artifact.path}", f"{name} is a commit of another repository")
        return replay

    def _files(self, root: str, prefix: str) -> None:
        """What lies in the places that are carried as a whole."""
        for name in self._disk.list_dir(root):
            full = f"{root}/{name}"
            if name == INSTANCES:
                self._instances(root, prefix)
            elif name in b.CARRIED_DIRECTORIES:
                self._below(full, f"{prefix}{name}")
            elif name in b.CARRIED_FILES:
                self._entry(full, f"{prefix}{name}")
            elif b.is_carried(name) and name != "tmp":
                self._tell(f"{prefix}{name}", "it is no part of the task")
        self._below(f"{root}/{b.RECOVERED}", f"{prefix}{b.RECOVERED}")
        if self._logs:
            self._below(f"{root}/{b.LOGS}", f"{prefix}{b.LOGS}", masked=True)

    def _instances(self, root: str, prefix: str) -> None:
        for name in self._disk.list_dir(f"{root}/{INSTANCES}"):
            below = f"{prefix}{INSTANCES}/{name}"
            if is_workspace(self._disk, f"{self._root}/{below}"):
                self._workspace(below)
            else:  # called, and not begun yet
                self._files(f"{self._root}/{below}", f"{below}/")

    def _below(self, full: str, path: str, *, masked: bool = False) -> None:
        seen = self._disk.stat(full)
        if seen is None:
            return
        if seen.kind != "dir":
            self._tell(path, "it is no directory")
            return
        for name in self._disk.list_dir(full):
            self._entry(f"{full}/{name}", f"{path}/{name}", masked=masked)

    def _entry(self, full: str, path: str, *, masked: bool = False) -> None:
        """A file, or a directory with all below it. A link is followed to a file of the task."""
        seen = self._disk.stat(full)
        if seen is None or not b.is_carried(path):
            return
        if seen.kind == "dir":
            self._below(full, path, masked=masked)
            return
        if seen.kind == "link":
            full = self._disk.real_path(full)
            seen = self._disk.stat(full)
            home = self._disk.real_path(self._root)
            if seen is None or seen.kind != "file" or not full.startswith(f"{home}/"):
                self._tell(path, "it is a link, and does not lead to a file of the task")
                return
        problem = b.name_problem(path)
        if seen.kind != "file" or problem:
            self._tell(path, f"its name {problem}" if problem else "it is a pipe or a device")
        else:
            self.sources[path] = Source(path, full, masked=masked)

    def _cited_file(self, root: str, prefix: str, path: str) -> None:
        """What the journal names, wherever in the workspace it lies; secrets in it stay as they
        are, since other bytes would not be what was registered."""
        known = self.sources.get(f"{prefix}{path}")
        if known is not None and not known.masked:
            return
        try:
            full = self._disk.real_path(resolve_inside(self._disk, root, path))
            seen = self._disk.stat(full)
        except (PathError, StorageError):
            return  # told as missing, where it is needed
        if seen is not None and seen.kind == "file" and not b.name_problem(f"{prefix}{path}"):
            self.sources[f"{prefix}{path}"] = Source(f"{prefix}{path}", full)

    def _tell(self, path: str, why: str) -> None:
        shown = path.encode("utf-8", "backslashreplace").decode()
        self.left_out.append(b.Told(shown, why))

    def ordered(self) -> list[Source]:
        """The sources as the bundle has them: the journal first, the rest by name."""
        names = sorted(self.sources, key=lambda name: (name != b.JOURNAL_NAME, name))
        return [self.sources[name] for name in names]


class Copied(NamedTuple):
    """What was written."""

    manifest: b.Manifest
    size_bytes: int


def export_workspace(
    reader: Reader, target: str, *, logs: bool = False, packed: bool = True
) -> Copied:
    """Write the task of ``reader``'s workspace to the absolute path ``target``.

    ``packed`` compresses it; ``logs`` takes the output of commands along, with secrets masked.
    What stood at ``target`` is replaced, when all else is done. Raises CorruptError for a damaged
    journal, before anything is written, and StorageError.
    """
    disk, folder, name = reader.disk, *target.rpartition("/")[::2]
    token = reader.world.ids.token()
    body, temp = (f"{folder}/.{name}.tmp-{what}-{token}" for what in ("body", "whole"))
    try:
        manifest = _copied(reader, body, logs=logs, packed=packed)
        size = _write_whole(disk, temp, manifest, body, packed=packed)
        disk.rename(temp, target)
    finally:
        for path in (body, temp):
            disk.unlink(path, durable=False)
    return Copied(manifest, size)


def _copied(reader: Reader, body: str, *, logs: bool, packed: bool) -> b.Manifest:
    """Copy until nothing has moved under the copy, or until it is clear that it is not that."""
    disk, root = reader.disk, reader.layout.root
    attempt = 0
    while True:
        attempt += 1
        gathered = Gathered(disk, root, logs=logs)
        counts: dict[str, int] = {}
        files = list[b.BundleFile]()
        disk.unlink(body, durable=False)
        disk.create_file(body)
        out = disk.open_append(body)
        try:
            pieces = _body(disk, gathered.ordered(), reader.masker, files, counts)
            for piece in tar.compressed(pieces) if packed else pieces:
                out.append(piece)
        except _ChangedError:
            if attempt == attempts_max:
                raise StorageError(
                    f"files of {root} become shorter while they are copied.",
                    code="files_change",
                    fix="Export again when nothing writes to them, or pause the task first.",
                ) from None
            continue
        finally:
            out.close()
        manifest = _manifest(gathered, files, counts)
        moved_on = disk.stat(reader.layout.journal)
        if (
            manifest.is_whole
            or attempt == attempts_max
            or (moved_on is not None and moved_on.size_bytes == gathered.replay.tip.offset)
        ):
            return manifest


def _manifest(gathered: Gathered, files: list[b.BundleFile], counts: dict[str, int]) -> b.Manifest:
    state, history = gathered.replay.replica.state, gathered.histories[0]
    missing, wrong = judge_cited(gathered.cited, {file.path: file for file in files})
    return b.Manifest(
        b.KIND,
        b.FORMAT,
        state.task_id,
        state.created,
        state.tier,
        state.fsm_task,
        history.seq,
        history.h,
        history.state_hash,
        tuple(files),
        tuple(sorted(gathered.histories[1:], key=lambda found: found.path)),
        tuple(missing),
        tuple(wrong),
        tuple(sorted(gathered.left_out, key=lambda told: told.path)[: b.told_max]),
        counts,
    )


def judge_cited(
    cited: dict[str, Cited], files: dict[str, b.BundleFile]
) -> tuple[list[b.Told], list[b.Told]]:
    """Of what a journal speaks of: what is missing from a bundle, and what has other bytes."""
    missing, wrong = list[b.Told](), list[b.Told]()
    for path, known in sorted(cited.items()):
        file = files.get(path)
        if file is None:
            missing.append(b.Told(path, f"{known.what} is not there"))
        elif known.sha256 and file.sha256 != known.sha256:
            wrong.append(b.Told(path, f"{known.what} has other bytes than were registered"))
        elif not known.sha256 and known.size_bytes not in (-1, file.size_bytes):
            wrong.append(b.Told(path, f"{known.what} has {file.size_bytes} bytes"))
    return missing, wrong


def _body(
    disk: Disk,
    sources: list[Source],
    masker: Masker,
    files: list[b.BundleFile],
    counts: dict[str, int],
) -> Iterator[bytes]:
    """The members behind the manifest; ``files`` and ``counts`` grow with what is copied."""
    for source in sources:
        seen = disk.stat(source.full)
        if seen is None or seen.kind != "file":
            continue  # taken away meanwhile; told as missing where it is needed
        size = seen.size_bytes if source.size_bytes < 0 else source.size_bytes
        try:
            first = disk.read(source.full, 0, size) if size <= whole_bytes_max else b""
        except StorageError:
            if disk.stat(source.full) is None:
                continue
            raise
        if size <= whole_bytes_max:
            if len(first) < size and source.size_bytes >= 0:
                raise _ChangedError
            size = len(first)
        masked = source.masked and _masked_size(disk, source, size, masker, counts)
        size = masked or size
        mtime_s = seen.mtime_ns // 1_000_000_000
        yield tar.header(source.path, size, mtime_s=mtime_s, executable=seen.executable)
        digest, left = sha256(), size
        try:
            for piece in _pieces(disk, source, first, size, masker if source.masked else None):
                digest.update(piece)
                left -= len(piece)
                yield piece
        except StorageError:
            if disk.stat(source.full) is None:
                raise _ChangedError from None
            raise
        if left:
            raise _ChangedError
        yield tar.padding(size)
        files.append(
            b.BundleFile(source.path, digest.hexdigest(), size, seen.mtime_ns, seen.executable)
        )
    yield tar.END


def _pieces(
    disk: Disk, source: Source, first: bytes, size: int, masker: Masker | None
) -> Iterator[bytes]:
    """The bytes to copy, ``size`` at most."""
    if masker is not None:
        for piece in _masked_pieces(disk, source, masker, {}):
            taken = piece[:size]
            size -= len(taken)
            yield taken
        return
    if first:
        yield first
        return
    for piece in disk.read_chunks(source.full):
        taken = piece[:size]
        size -= len(taken)
        if taken:
            yield taken
        if not size:
            return


def _masked_size(
    disk: Disk, source: Source, size: int, masker: Masker, counts: dict[str, int]
) -> int:
    """How long a log is once its secrets are masked; counts them."""
    return sum(len(piece) for piece in _masked_pieces(disk, source, masker, counts)) if size else 0


def _masked_pieces(
    disk: Disk, source: Source, masker: Masker, counts: dict[str, int]
) -> Iterator[bytes]:
    """A log with its secrets masked, whole lines at a time, so that none is cut in two."""
    rest = b""
    for chunk in disk.read_chunks(source.full, whole_bytes_max):
        lines, newline, rest = (rest + chunk).rpartition(b"\n")
        if newline:
            yield _masked(lines + newline, masker, counts)
        elif len(rest) > whole_bytes_max:
            cut = masker.safe_cut(rest, overlap_bytes)
            yield _masked(rest[:cut], masker, counts)
            rest = rest[cut:]
    if rest:
        yield _masked(rest, masker, counts)


def _masked(data: bytes, masker: Masker, counts: dict[str, int]) -> bytes:
    masked, found = masker.mask_bytes(data)
    for name, count in found.items():
        counts[name] = counts.get(name, 0) + count
    return masked


def _write_whole(disk: Disk, temp: str, manifest: b.Manifest, body: str, *, packed: bool) -> int:
    """The manifest and then the body, durable under a temporary name; returns the size."""
    data = b.seal_manifest(manifest)
    head = (tar.header(b.MANIFEST_NAME, len(data)), data, tar.padding(len(data)))
    disk.create_file(temp)
    out = disk.open_append(temp)
    try:
        for piece in tar.compressed(head) if packed else head:
            out.append(piece)
        _append_file(disk, out, body)
        out.sync()
        return out.size()
    finally:
        out.close()


def _append_file(disk: Disk, out: AppendFile, path: str) -> None:
    for piece in disk.read_chunks(path):
        out.append(piece)
