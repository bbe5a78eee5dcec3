"""Side files: what an item leaves besides its finding, under a name made from its key.

Job: the name, and writing it. Invariants: the same key has the same path in every run and no two
keys share one; no key and no suffix leads out of ``files/``; a file is there whole and durable, or
as it was. It knows nothing of findings.
"""

import re
import threading
from typing import Final

from perdure.errors import PathError, UsageError
from perdure.jobs.lines import item_hash
from perdure.ports import Disk, is_temp_name

FILES_NAME: Final = "files"

slug_chars_max: Final = 40
suffix_chars_max: Final = 40

_UNSPEAKABLE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_SUFFIX: Final = re.compile(r"[A-Za-z0-9._-]*\Z")


def artifact_name(key: str, suffix: str = "") -> str:
    """``files/<first 2 of the hash>/<hash>-<what the key reads like><suffix>``.

    Raises UsageError for a key that is no text and for a suffix that is more than the end of a
    name.
    """
    digest = item_hash(key)
    end = _check_suffix(suffix)
    slug = _UNSPEAKABLE.sub("-", key[:slug_chars_max]).strip("-.").replace("..", ".")
    return f"{FILES_NAME}/{digest[:2]}/{digest}{'-' if slug else ''}{slug}{end}"


def _check_suffix(suffix: object) -> str:
    if not isinstance(suffix, str) or not _SUFFIX.match(suffix) or ".." in suffix:
        raise UsageError(
            f"the suffix {suffix!r} is not the end of a file name.",
            code="bad_suffix",
            rule="JB-4",
            fix="Use letters, digits, '.', '-' and '_' only, such as '.html'.",
        )
    if len(suffix) > suffix_chars_max:
        raise UsageError(
            f"the suffix has {len(suffix)} characters; at most {suffix_chars_max} are allowed.",
            code="bad_suffix",
            rule="JB-4",
            fix="Shorten it; the key is in the name already.",
        )
    return suffix


class SideFiles:
    """The side files of one job. Safe to share between threads."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        """Without symbolic links."""
        self._ready: set[str] = set()
        self._guard = threading.Lock()

    def write(self, name: str, data: bytes) -> None:
        """Write one whole; durable on return. ``name`` is an ``artifact_name``.

        A crash leaves the old file or the new one, and maybe a temporary file, which the first
        write to the same folder by a later process removes. Raises PathError, StorageError.
        """
        path = f"{self._root}/{name}"
        content = _check_bytes(data)
        self._make_ready(path.rpartition("/")[0])
        self._disk.replace(path, content, durable=True)

    def _make_ready(self, folder: str) -> None:
        """The folder exists durably, lies inside the job, and nothing of a dead process is in it.

        Once for each folder: until then no thread of ours can have a file in the making there.
        """
        with self._guard:
            if folder in self._ready:
                return
            self._check_inside(folder)
            self._disk.make_dirs(folder)
            for found in self._disk.list_dir(folder):
                if is_temp_name(found):
                    self._disk.unlink(f"{folder}/{found}", durable=False)
            self._ready.add(folder)

    def _check_inside(self, folder: str) -> None:
        real = self._disk.real_path(folder)
        if not real.startswith(f"{self._root}/"):
            raise PathError(
                f"{folder} leads to {real}, which is outside the job's directory.",
                fix=f"Replace the symbolic link {self._root}/{FILES_NAME} by a directory.",
            )


def _check_bytes(data: object) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise UsageError(
        f"a side file is made of bytes, not of type {type(data).__name__}.",
        code="not_bytes",
        rule="JB-4",
        fix="Encode text first: text.encode().",
    )
