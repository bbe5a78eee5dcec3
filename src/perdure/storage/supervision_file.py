"""``supervision.json``: the supervisor's own memory, and the lock that makes it one supervisor's.

Job: read it, replace it durably, set aside what cannot be read. Invariants: only who holds
``.supervision.lock`` writes it; after a crash at any moment the file is whole, old or new; one that
is damaged is kept under another name and said, never guessed at. It is no projection: nothing else
knows what is in it, and nothing in it can change what the journal says.
"""

from typing import Any, Final, NamedTuple

from perdure.core.codec import from_json, timestamp, to_json
from perdure.core.model import State
from perdure.core.secrets import Masker
from perdure.core.supervision_records import ResumeRequest, SupervisionFile
from perdure.errors import StorageError
from perdure.ports import Disk, FileLock
from perdure.storage.workspace import Layout

FILE_NAME: Final = "supervision.json"
LOCK_NAME: Final = ".supervision.lock"
supervision_bytes_max: Final = 32 << 20
damaged_kept_max: Final = 1_000
"""Names that are tried when a damaged file is set aside."""


class Loaded(NamedTuple):
    """What the file says; a new one where there is none that can be read."""

    file: SupervisionFile
    damage: str = ""
    """Why what stands there cannot be read, as the end of a sentence; empty when it can."""


class SupervisionStore:
    """The supervision file of one workspace."""

    def __init__(self, disk: Disk, root: str, masker: Masker | None = None) -> None:
        """``masker`` masks what is written (SE-1)."""
        self._disk = disk
        self._masker = masker or Masker({})
        self.path: Final = f"{root}/{FILE_NAME}"
        self._lock_path = f"{root}/{LOCK_NAME}"
        self._saved = b""

    def lock(self) -> FileLock:
        """The lock to hold while the file is read, changed and acted on. Not yet taken."""
        return self._disk.lock(self._lock_path)

    def load(self, task_id: str) -> Loaded:
        """Read it; writes nothing. Raises StorageError where it is there and cannot be read."""
        self._saved = b""
        fresh = SupervisionFile(task_id=task_id)
        seen = self._disk.stat(self.path)
        if seen is None:
            return Loaded(fresh)
        if seen.kind != "file":
            return Loaded(fresh, f"is a {seen.kind}, not a file")
        if seen.size_bytes > supervision_bytes_max:
            return Loaded(fresh, f"is larger than {supervision_bytes_max} bytes")
        data = self._disk.read(self.path)
        try:
            file = from_json(data, SupervisionFile)
        except ValueError as error:
            return Loaded(fresh, f"cannot be read ({error})")
        if file.version != fresh.version:
            return Loaded(fresh, f"has the version {file.version}, which is not known here")
        if file.task_id not in ("", task_id):
            return Loaded(fresh, f"is of the task {file.task_id!r}")
        file.task_id = task_id
        self._saved = data
        return Loaded(file)

    def set_aside(self) -> str:
        """Move what cannot be read out of the way; returns its new name. Durable on return."""
        for number in range(1, damaged_kept_max + 1):
            target = f"{self.path}.damaged-{number}"
            if self._disk.stat(target) is None:
                self._disk.rename(self.path, target)
                return target.rpartition("/")[2]
        raise StorageError(
            f"{self.path} is damaged, and {damaged_kept_max} such files are kept beside it.",
            fix="Move the files supervision.json.damaged-* away.",
        )

    def save(self, file: SupervisionFile) -> None:
        """Replace it; bytes and name are durable on return. Writes nothing that stands there.

        A crash in the middle leaves the old file. Raises StorageError.
        """
        data = self._masker.mask_bytes(to_json(file) + b"\n")[0]
        if data == self._saved:
            return
        try:
            self._disk.replace(self.path, data, durable=True)
        except StorageError:
            # A recovery at this very moment removes temporary files, ours among them.
            self._disk.replace(self.path, data, durable=True)
        self._saved = data


def open_requests(disk: Disk, layout: Layout, state: State) -> list[dict[str, Any]]:
    """What the supervisor has asked the owner and not been answered, oldest first.

    Writes nothing; where the file cannot be read there is none, as `perdure monitor` says.
    """
    try:
        file = SupervisionStore(disk, layout.root).load(state.task_id).file
    except StorageError:
        return []
    return [request_entry(request) for request in unanswered(file, state)]


def unanswered(file: SupervisionFile, state: State) -> list[ResumeRequest]:
    """The requests that neither the file nor the journal knows an answer to, oldest first."""
    answered = state.observed.acknowledged_tokens
    return [
        request for request in file.requests if request.is_open and request.token not in answered
    ]


def request_entry(request: ResumeRequest) -> dict[str, Any]:
    """A request as it is shown to the owner."""
    return {
        "token": request.token,
        "kind": request.kind,
        "step": request.step or None,
        "reason": request.reason,
        "next_action": request.next_action,
        "requested_at": timestamp(request.requested),
    }
