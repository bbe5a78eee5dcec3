"""What one acceptance check can reach, and the record of what it has read.

Invariants: a path is resolved inside the workspace before anything is opened; only regular files
are read; the bytes that are handed out are the bytes that are hashed, in one reading; memory stays
bounded. Never writes.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from perdure.errors import CheckFailedError
from perdure.ports import Disk, FileStat
from perdure.storage.workspace import resolve_inside

line_bytes_max: Final = 16 << 20
first_few_max: Final = 5
"""Single faults that a detail names; the rest is only counted."""
fault_chars_max: Final = 240


class CitedContract(NamedTuple):
    """The contract of an attempt: where it is, and the sha256 that the journal has of it."""

    path: str
    sha256: str


class FirstFew:
    """The first few of possibly very many."""

    def __init__(self) -> None:
        self.count = 0
        self.shown: list[str] = []

    def add(self, text: str) -> None:
        """Count one more, and keep it when it is among the first."""
        self.count += 1
        if len(self.shown) < first_few_max:
            long = len(text) > fault_chars_max
            self.shown.append(text[: fault_chars_max - 3] + "..." if long else text)

    def __str__(self) -> str:
        more = self.count - len(self.shown)
        return "; ".join(self.shown) + (f"; and {more} more" if more else "")


def hash_file(disk: Disk, path: str) -> tuple[str, int]:
    """The sha256 (hexadecimal) and the size in bytes of the file at an absolute path, streamed.

    Raises :class:`StorageError` when it cannot be read.
    """
    digest, size_bytes = hashlib.sha256(), 0
    for chunk in disk.read_chunks(path):
        digest.update(chunk)
        size_bytes += len(chunk)
    return digest.hexdigest(), size_bytes


class Probe:
    """What one check can reach, and what it has read."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        *,
        node_id: str,
        environment: Mapping[str, str],
        timeout_s: float,
        cwd: str,
        contract: CitedContract | None = None,
    ) -> None:
        self.disk = disk
        self.root = root
        self.node_id = node_id
        self.environment = environment
        self.timeout_s = timeout_s
        self.cwd = cwd
        self.contract = contract
        """Of the attempt at a batch node that is being judged."""
        self.inputs: list[dict[str, Any]] = []

    def locate(self, path: str) -> tuple[str, FileStat | None]:
        """Where the path really is, and what is there; PathError when that is outside."""
        full = self.disk.real_path(resolve_inside(self.disk, self.root, path))
        return full, self.disk.stat(full)

    def file(self, path: str) -> str:
        """The real path of a regular file: a pipe or a device would never end."""
        full, found = self.locate(path)
        if found is None:
            raise CheckFailedError(f"{path} is not there.")
        if found.kind != "file":
            kind = "a directory" if found.kind == "dir" else "not a regular file"
            raise CheckFailedError(f"{path} is {kind}.")
        return full

    def hash(self, path: str) -> tuple[str, int]:
        """The sha256 and the size of a regular file, in bytes."""
        value, size_bytes = hash_file(self.disk, self.file(path))
        self._record(path, value, size_bytes)
        return value, size_bytes

    def read(self, path: str, bytes_max: int) -> bytes:
        """The whole file, hashed; a larger one is refused before it fills the memory."""
        full = self.file(path)
        found = self.disk.stat(full)
        # Looked at twice: it may grow between the two calls.
        large = found is None or found.size_bytes > bytes_max
        if large or len(data := self.disk.read(full)) > bytes_max:
            raise CheckFailedError(f"{path} is larger than {bytes_max} bytes, the most for this.")
        self._record(path, hashlib.sha256(data).hexdigest(), len(data))
        return data

    def lines(self, path: str, bytes_max: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Line numbers from 1 and lines without their ``\\n``; hashed when read to the end."""
        most = line_bytes_max if bytes_max is None else bytes_max
        digest, size_bytes, number, rest = hashlib.sha256(), 0, 0, b""
        for chunk in self.disk.read_chunks(self.file(path)):
            digest.update(chunk)
            size_bytes += len(chunk)
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                number += 1
                yield number, line
            if len(rest) > most:
                raise CheckFailedError(f"line {number + 1} of {path} is longer than {most} bytes.")
        if rest:
            yield number + 1, rest
        self._record(path, digest.hexdigest(), size_bytes)

    def _record(self, path: str, value: str, size_bytes: int) -> None:
        self.inputs.append({"path": path, "sha256": value, "size_bytes": size_bytes})
