"""What an exported task is made of: the manifest of a bundle, and which files belong into one.

Job: the record ``perdure-export.json``, the reading of it, and the rules about names of files
(protocol section 2). Invariants: a bundle holds what cannot be rebuilt and nothing that binds a
machine: no lease, no lock, no mark of a run, no projection; a name that passes ``name_problem``
lies below the directory that it is unpacked in, on every file system. Never looks at a disk.
"""

import re
import unicodedata
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

import msgspec

from perdure.core.codec import from_json, to_json
from perdure.core.instance import INSTANCES
from perdure.core.naming import canonical_path, path_problem
from perdure.core.record import Record
from perdure.errors import CorruptError, RefusedError

MANIFEST_NAME: Final = "perdure-export.json"
KIND: Final = "perdure-export"
FORMAT: Final = 1
JOURNAL_NAME: Final = "journal.jsonl"
MIRROR_NAME: Final = "journal-mirror.jsonl"

manifest_bytes_max: Final = 256 << 20
told_max: Final = 1_000
"""Files that one list of a manifest names; the rest is only counted."""

CARRIED_DIRECTORIES: Final = ("artifacts", "contracts", "docs", INSTANCES, "sops", "steering")
"""What of a workspace is carried with everything in it that is not rebuilt."""
CARRIED_FILES: Final = (JOURNAL_NAME, "supervision.json", "invocation.json", "result.json")
RECOVERED: Final = "tmp/recovered"
LOGS: Final = "tmp/logs"

_REBUILT: Final = frozenset(
    {
        ".snapshot.json", "artifacts/registry.json", "checkpoint.json", "docs/DOC-LEDGER.md",
        "docs/progress.md", "docs/task-plan.md", "steering/inbox.md", "task-graph.json",
        MIRROR_NAME,
    }
)  # fmt: skip
"""What is made from the journal, by whoever opens the workspace next."""
_TEMP_NAME: Final = re.compile(r"\..*\.tmp-")
_SUM_KEY: Final = b',"sum":"'
_SUM_TAIL_BYTES: Final = 26  # ,"sum":"0123456789abcdef"}


class BundleFile(Record, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One file of a bundle."""

    path: str
    sha256: str
    size_bytes: int
    mtime_ns: int
    executable: bool = False


class Told(Record, msgspec.Struct, frozen=True, gc=False):
    """A file that is not as it should be, or is not there, and why."""

    path: str
    why: str


class History(Record, msgspec.Struct, frozen=True, gc=False):
    """How far one journal goes, and what it says."""

    path: str
    """Of its workspace in the bundle, relative; empty for the task itself."""
    task_id: str
    seq: int
    h: str
    state_hash: str


class Manifest(Record, msgspec.Struct, frozen=True):
    """What a bundle says that it holds. A function of the workspace alone: no clock, no machine."""

    kind: str
    format: int
    task_id: str
    created: str
    tier: int
    fsm_task: str
    seq: int
    h: str
    state_hash: str
    """``core.projection.state_hash`` after the last event: equal where it is imported (F27)."""
    files: tuple[BundleFile, ...] = ()
    instances: tuple[History, ...] = ()
    missing: tuple[Told, ...] = ()
    """What is registered or cited, and was not there."""
    damaged: tuple[Told, ...] = ()
    """What is registered or cited, and did not have the bytes that the journal speaks of."""
    left_out: tuple[Told, ...] = ()
    masked: dict[str, int] = {}
    """Secrets that were masked in logs, by name (SE-1)."""

    @property
    def history(self) -> History:
        """That of the task itself."""
        return History("", self.task_id, self.seq, self.h, self.state_hash)

    @property
    def size_bytes(self) -> int:
        """All files together."""
        return sum(file.size_bytes for file in self.files)

    @property
    def is_whole(self) -> bool:
        """Whether everything that the journal speaks of is in it, as it was registered."""
        return not self.missing and not self.damaged


def seal_manifest(manifest: Manifest) -> bytes:
    """The file. Its last key is ``sum``: 16 digits of the sha256 of all before it."""
    body = to_json(manifest)[:-1]
    return b'%b%b%b"}' % (body, _SUM_KEY, sha256(body).hexdigest()[:16].encode())


def read_manifest(data: bytes) -> Manifest:
    """The manifest in these bytes.

    Raises CorruptError (``bundle_damaged``) for what is none or was changed, RefusedError
    (``bundle_too_new``) for that of a newer format.
    """
    body = data[:-_SUM_TAIL_BYTES]
    digest = sha256(body).hexdigest()[:16].encode()
    if data[-_SUM_TAIL_BYTES:] != b'%b%b"}' % (_SUM_KEY, digest):
        raise damaged(f"{MANIFEST_NAME} does not match its own sum")
    try:
        raw = from_json(data, dict[str, Any])
        if (
            raw.get("kind") == KIND
            and isinstance(raw.get("format"), int)
            and raw["format"] > FORMAT
        ):
            raise RefusedError(
                f"it has format {raw['format']}, and this version knows formats up to {FORMAT}.",
                code="bundle_too_new",
                rule="IM-2",
                fix="Import it with the version of perdure that wrote it, or a later one.",
            )
        manifest = msgspec.convert(raw, Manifest)
    except (ValueError, msgspec.ValidationError) as error:
        raise damaged(f"{MANIFEST_NAME} cannot be read: {error}") from None
    if manifest.kind != KIND or manifest.format != FORMAT:
        raise damaged(f"{MANIFEST_NAME} is not that of an exported task")
    _check_files(manifest)
    return manifest


mtime_least_ns: Final = -(1 << 63)
mtime_most_ns: Final = (1 << 63) - 1


def _check_files(manifest: Manifest) -> None:
    """Raise CorruptError unless its files can all be unpacked, each once, and nowhere else."""
    seen: set[str] = set()
    for file in manifest.files:
        problem = name_problem(file.path)
        if not problem and file.path in seen:
            problem = "is there twice"
        if not problem and file.size_bytes < 0:
            problem = "has no size"
        if not problem and not mtime_least_ns <= file.mtime_ns <= mtime_most_ns:
            problem = "has a time that no file has"
        if problem:
            raise damaged(f"the file {file.path[:200]!r} {problem}", code="bundle_unsafe")
        seen.add(file.path)
    for path in seen:
        above = path.rpartition("/")[0]
        while above:
            if above in seen:
                raise damaged(f"{above!r} is a file and a directory", code="bundle_unsafe")
            above = above.rpartition("/")[0]
    if JOURNAL_NAME not in seen:
        raise damaged("it holds no journal")


def name_problem(path: str) -> str:
    """Why no bundle holds a file of this name, as the end of a sentence; empty when one may."""
    problem = path_problem(path)
    if problem:
        return problem
    if canonical_path(path) != path:
        return "is not written in the usual way"
    if any(unicodedata.category(char) == "Cc" for char in path):
        return "holds a control character"
    return "" if is_carried(path) else "is a name that perdure makes anew"


def is_carried(path: str) -> bool:
    """Whether a file of this name may be part of a bundle, wherever in the task it lies."""
    inner = within(path)
    parts = inner.split("/")
    if inner.casefold() in _REBUILT_FOLDED or any(_TEMP_NAME.match(part) for part in parts):
        return False
    if parts[0].casefold().startswith((".run", ".journal")) or inner.casefold() == "lease.json":
        return False
    if inner.startswith("steering/spool/") and inner.endswith(".result.json"):
        return False
    return parts[-1] != ".lock"


_REBUILT_FOLDED: Final = frozenset(name.casefold() for name in _REBUILT)


def within(path: str) -> str:
    """The path inside the workspace of the innermost instance that it lies in."""
    parts = path.split("/")
    while len(parts) > 2 and parts[0].casefold() == INSTANCES:
        parts = parts[2:]
    return "/".join(parts)


def workspace_of(path: str) -> str:
    """That workspace, relative to the task; empty for the task's own."""
    return path[: len(path) - len(within(path))].rstrip("/")


def colliding(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of names, directories included, that some file systems take for one."""
    first: dict[str, str] = {}
    found = []
    for path in paths:
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            name = "/".join(parts[:count])
            known = first.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
            if known != name:
                found.append((known, name))
    return found


def damaged(what: str, *, code: str = "bundle_damaged") -> CorruptError:
    """The error for a bundle that does not hold what it says. Nothing of it is kept."""
    return CorruptError(
        f"this is no whole exported task: {what}.",
        code=code,
        rule="IM-2",
        fix="Copy the file again, or export the task again.",
    )
