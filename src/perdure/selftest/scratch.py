"""The scratch directory: where it may be, making it, copies of workspaces in it, removing it.

Invariants: it is a fresh directory of its own, and nothing outside of it is written; removing it
takes only what is below it and follows no symbolic link.
"""

import os
from collections.abc import Mapping
from typing import Final

from perdure.errors import StorageError
from perdure.ports import Disk
from perdure.storage.workspace import find_project

prefix: Final = ".perdure-selftest-"

Tree = dict[str, bytes]
"""The files of a workspace: path from its root, and bytes."""


def parent_of_scratch(disk: Disk, directory: str | None, start_dir: str) -> str:
    """The directory to make it in: the one that is named, else the nearest project or this one.

    Raises StorageError when it is no directory.
    """
    parent = os.path.join(start_dir, directory) if directory else None
    parent = os.path.realpath(parent or find_project(disk, start_dir) or start_dir)
    if not os.path.isdir(parent):
        raise StorageError(
            f"{parent} is not a directory.",
            code="no_directory",
            fix="Name one that exists, on the disk to be tested, with --dir.",
        )
    return parent


def remove_tree(disk: Disk, root: str) -> None:
    """Remove a directory and everything in it; a missing one is fine."""
    for folder, folders, names in os.walk(root, topdown=False):
        for name in names:
            disk.unlink(f"{folder}/{name}", durable=False)
        for name in folders:
            path = f"{folder}/{name}"
            if os.path.islink(path):
                disk.unlink(path, durable=False)
            else:
                os.rmdir(path)
    if os.path.isdir(root):
        os.rmdir(root)


def read_tree(disk: Disk, root: str) -> Tree:
    """Every file of a workspace."""
    return {
        os.path.relpath(f"{folder}/{name}", root): disk.read(f"{folder}/{name}")
        for folder, _, names in os.walk(root)
        for name in names
    }


def lay_out(disk: Disk, root: str, tree: Mapping[str, bytes]) -> None:
    """Write the files of a workspace into a new directory. Not synced."""
    for folder in sorted({os.path.dirname(path) for path in tree}):
        disk.make_dirs(f"{root}/{folder}".rstrip("/"))
    for path, data in tree.items():
        disk.replace(f"{root}/{path}", data, durable=False)
