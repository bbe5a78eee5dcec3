"""Copying one file, durably and by its hash.

Job: the bytes of a file under a second name, and what they were. Invariants: the copy is streamed,
so memory stays bounded; the hash is of the very bytes that were written; the bytes are durable on
return, and their name once its directory is synced or the copy is renamed. Never changes the
original.
"""

import hashlib

from perdure.ports import Disk


def copy_file(disk: Disk, source: str, target: str) -> tuple[str, int]:
    """Copy a file between absolute paths; sha256 (hexadecimal) and size of what was copied.

    The directory of ``target`` exists; what lies there is replaced. A crash leaves a part of the
    copy, which nobody cites yet. Raises StorageError.
    """
    digest, size_bytes = hashlib.sha256(), 0
    disk.replace(target, b"", durable=False)
    file = disk.open_append(target)
    try:
        for chunk in disk.read_chunks(source):
            digest.update(chunk)
            size_bytes += len(chunk)
            file.append(chunk)
        file.sync()
    finally:
        file.close()
    return digest.hexdigest(), size_bytes
