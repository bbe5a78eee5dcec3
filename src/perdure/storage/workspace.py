"""Where everything of one task lies, and how a workspace is found.

Job: the names of protocol section 2 in one place, the safety of paths that callers give (PL-4),
and the way from a directory to its workspace. Invariants: a path that :func:`resolve_inside`
returns lies in the workspace after every symbolic link is followed, at the moment of the call;
an id becomes part of a path only when it matches ``ID_PATTERN``. It never creates a workspace.
"""

import contextlib
import os
import re
from typing import Final

from perdure.core.model import ID_PATTERN
from perdure.core.naming import canonical_path, path_problem
from perdure.errors import NotFoundError, PathError, StorageError, UsageError
from perdure.ports import Disk

_SCRATCH: Final = "tmp"
_OUR_TEMP_FILE: Final = re.compile(r"\..+\.tmp-[0-9]+-[0-9]+\Z")
_RELATIVE_FIX: Final = (
    "Name it relative to the workspace, with forward slashes, such as artifacts/NODE/report.md."
)
_RESERVED_DIRECTORIES: Final = frozenset(
    {"contracts", "docs", "instances", "sops", "steering", _SCRATCH}
)
pointer_bytes_max: Final = 4_096
_INIT_FIX: Final = "Create a task here with `perdure init TASK_ID`, or name a workspace with -C."


class Layout:
    """The absolute path of everything in the workspace ``root``, which is absolute itself."""

    __slots__ = ("root",)

    def __init__(self, root: str) -> None:
        if not os.path.isabs(root):
            raise UsageError(
                f"the workspace {root!r} is not an absolute path.",
                rule="PL-4",
                fix="Name it from the root of the file system.",
            )
        self.root = root.rstrip("/") or "/"

    @property
    def journal(self) -> str:
        """The only authority."""
        return f"{self.root}/journal.jsonl"

    @property
    def mirror(self) -> str:
        """The same bytes once more, for a task of tier 2 (J-2)."""
        return f"{self.root}/journal-mirror.jsonl"

    @property
    def journal_lock(self) -> str:
        """The file that the operating system's lock is on; it has no content."""
        return f"{self.root}/.journal.lock"

    @property
    def lease(self) -> str:
        """Who may append, until when, under which epoch."""
        return f"{self.root}/lease.json"

    @property
    def run_mark(self) -> str:
        """There for as long as a run lives, outside what its children may write."""
        return f"{self.root}/.run"

    @property
    def snapshot(self) -> str:
        """The folded state that opening starts from."""
        return f"{self.root}/.snapshot.json"

    @property
    def task_graph(self) -> str:
        """View of the nodes."""
        return f"{self.root}/task-graph.json"

    @property
    def checkpoint(self) -> str:
        """View of where the task stands, a few kilobytes."""
        return f"{self.root}/checkpoint.json"

    @property
    def artifacts(self) -> str:
        """Holds one directory for each node."""
        return f"{self.root}/artifacts"

    @property
    def registry(self) -> str:
        """View of the registered artifacts."""
        return f"{self.root}/artifacts/registry.json"

    @property
    def contracts(self) -> str:
        """The work orders, durable before the event that cites them."""
        return f"{self.root}/contracts"

    @property
    def steering(self) -> str:
        """What people and the task say to each other."""
        return f"{self.root}/steering"

    @property
    def inbox(self) -> str:
        """Page of what waits for people."""
        return f"{self.steering}/inbox.md"

    @property
    def docs(self) -> str:
        """Pages for people, made from the journal."""
        return f"{self.root}/docs"

    @property
    def spool(self) -> str:
        """The drop box for commands while a coordinator holds the lease."""
        return f"{self.root}/steering/spool"

    @property
    def write_here(self) -> str:
        """Where a person writes an instruction; taken by rename."""
        return f"{self.steering}/write-here.md"

    @property
    def taken(self) -> str:
        """Those files, once they were taken."""
        return f"{self.steering}/taken"

    @property
    def tmp(self) -> str:
        """Scratch: nothing in it is believed."""
        return f"{self.root}/{_SCRATCH}"

    @property
    def recovered(self) -> str:
        """Fragments that recovery set aside."""
        return f"{self.tmp}/recovered"

    @property
    def logs(self) -> str:
        """Output of executors."""
        return f"{self.tmp}/logs"

    @property
    def runs(self) -> str:
        """Records of the children that are alive."""
        return f"{self.tmp}/run"

    def node_scope(self, node_id: str) -> str:
        """The only place that the node's executor may write, besides ``tmp``."""
        return f"{self.artifacts}/{_part(node_id)}"

    def contract(self, invocation_id: str) -> str:
        """The work order of one invocation."""
        return f"{self.contracts}/{_part(invocation_id)}.json"

    def log(self, node_id: str, invocation_id: str) -> str:
        """The output of one invocation."""
        return f"{self.logs}/{_part(node_id)}/{_part(invocation_id)}.log"

    def run_record(self, invocation_id: str) -> str:
        """Who the child of one invocation is, while it lives. Not durable."""
        return f"{self.runs}/{_part(invocation_id)}.json"


def _part(name: str) -> str:
    if ID_PATTERN.match(name):
        return name
    raise PathError(
        f"{name!r} is not an id, so no path is made of it.",
        fix="Use letters, digits and . _ - only, starting with a letter or digit, 64 at most.",
    )


def normal_path(path: str) -> str:
    """The path without ``.`` and empty parts; PathError (PL-4) when it cannot be in a workspace.

    Judged by its text alone, as ``core.naming.path_problem`` says.
    """
    problem = path_problem(path)
    if problem:
        raise PathError(f"the path {path!r} {problem}.", fix=_RELATIVE_FIX)
    return canonical_path(path)


def resolve_inside(disk: Disk, root: str, path: str) -> str:
    """The absolute path of ``path`` in the workspace ``root``; it need not exist yet.

    PathError (PL-4) where :func:`normal_path` refuses it and where a symbolic link on the way, or
    at the end, leads out of the workspace. A link that stays inside is fine, and is not resolved
    in the result.
    """
    if path.startswith(f"{root}/"):
        raise PathError(
            f"the path {path!r} is absolute.", fix=f"Write {path[len(root) + 1 :]!r} instead."
        )
    target = f"{root.rstrip('/')}/{normal_path(path)}"
    real_target = disk.real_path(target)
    if real_target == target:
        return target  # no link on the way, nor on the way to the root
    real_root = disk.real_path(root)
    if real_target != real_root and not real_target.startswith(os.path.join(real_root, "")):
        raise PathError(
            f"the path {path!r} leaves the workspace through a symbolic link, to {real_target}.",
            fix="Put the file itself into the workspace.",
        )
    return target


def reserved_reason(path: str, node_id: str | None = None) -> str | None:
    """Why an executor may not put an output there; None when it may.

    Reserved are the runtime's own names at the top (``journal*``, ``lease*``, ``*.json``, names
    that start with a dot, and its directories), the registry, ``artifacts/old``, names of its
    temporary files, and with ``node_id`` every place in ``artifacts`` but that node's. Compared
    without regard to case, as some file systems do. PathError as :func:`normal_path`.
    """
    path = normal_path(path)
    parts = path.split("/")
    folded = [part.casefold() for part in parts]
    top = folded[0]
    if top.startswith((".", "journal")) or top.endswith(".json") or top.split(".")[0] == "lease":
        return f"{parts[0]} is a name that the runtime keeps for itself."
    if top in _RESERVED_DIRECTORIES:
        return f"{parts[0]}/ belongs to the runtime."
    if any(_OUR_TEMP_FILE.match(part) for part in folded):
        return f"{path} is named like a temporary file, which recovery removes."
    if top != "artifacts":
        return None
    if len(parts) == 1 or folded[1] in {"old", "registry.json"}:
        return f"{path} belongs to the runtime."
    if node_id is not None and parts[1] != node_id:
        return f"{path} is outside artifacts/{node_id}/, the place of node {node_id}."
    if len(parts) == 2 and parts[1] == node_id:
        return f"{path} is the place of node {node_id} itself, not a file in it."
    return None


def is_workspace(disk: Disk, path: str) -> bool:
    """Whether a journal lies there; it is born complete, so half a creation does not count.

    Its mirror alone counts as well: it is written after the journal, which is lost then (J-2).
    """
    for name in ("journal.jsonl", "journal-mirror.jsonl"):
        seen = disk.stat(f"{path.rstrip('/')}/{name}")
        if seen is not None:
            return seen.kind == "file"
    return False


def find_workspace(disk: Disk, start_dir: str, environ_value: str | None) -> str:
    """The workspace that a command without ``-C`` means.

    ``environ_value`` (of PERDURE_WORKSPACE) when it is set; else, going up from ``start_dir``,
    the first directory that is a workspace itself or has a ``.perdure`` with a current task.
    NotFoundError says what to do when there is none, or when the one that is named is missing.
    """
    if environ_value:
        named = os.path.normpath(os.path.join(start_dir, environ_value))
        if not is_workspace(disk, named):
            raise NotFoundError(
                f"PERDURE_WORKSPACE names {named}, which is not a workspace.",
                code="no_workspace",
                fix="Correct or unset PERDURE_WORKSPACE, or create it with `perdure -C DIR init`.",
            )
        return named
    for directory in _upward(start_dir):
        if is_workspace(disk, directory):
            return directory
        project = os.path.join(directory, ".perdure")
        if _is_directory(disk, project):
            return _current(disk, project)
    raise NotFoundError(
        f"there is no workspace in {start_dir} or above it.", code="no_workspace", fix=_INIT_FIX
    )


def find_project(disk: Disk, start_dir: str) -> str | None:
    """The nearest ``.perdure`` directory, in ``start_dir`` or above it."""
    for directory in _upward(start_dir):
        project = os.path.join(directory, ".perdure")
        if _is_directory(disk, project):
            return project
    return None


def set_current(disk: Disk, project: str, task_id: str, *, workspace: str = "") -> None:
    """Make the task the current one of a ``.perdure`` directory. Durable on return.

    ``workspace`` is where it lies when that is not in this project: then the pointer is a relative
    path, so that both may move together. A crash in the middle leaves the old one.
    """
    if not ID_PATTERN.match(task_id):
        raise UsageError(f"{task_id!r} is not a task id.", fix="Name the task, not its directory.")
    disk.make_dirs(project)
    pointer = os.path.relpath(workspace, project) if workspace else task_id
    line = f"{pointer}\n".encode("utf-8", "surrogateescape")
    if disk.stat(f"{project}/current") is None or disk.read(f"{project}/current") != line:
        disk.replace(f"{project}/current", line, durable=True)


def _current(disk: Disk, project: str) -> str:
    """The workspace of the project's current task."""
    pointer = f"{project}/current"
    seen = disk.stat(pointer)
    if seen is None:
        raise NotFoundError(f"{project} has no current task.", code="no_workspace", fix=_INIT_FIX)
    line = disk.read(pointer, length=pointer_bytes_max).decode("utf-8", "surrogateescape").strip()
    if ID_PATTERN.match(line):
        workspace = f"{project}/tasks/{line}"
    else:
        workspace = os.path.normpath(os.path.join(project, line or "."))
    with contextlib.suppress(StorageError):  # a name that no file system takes names nothing
        if line and is_workspace(disk, workspace):
            return workspace
    raise NotFoundError(
        f"{pointer} names the task {line!r}, which has no workspace in {project}/tasks.",
        code="no_workspace",
        fix=_INIT_FIX,
        suggestions=_tasks(disk, project),
    )


def _tasks(disk: Disk, project: str) -> list[str]:
    tasks = f"{project}/tasks"
    try:
        return [name for name in disk.list_dir(tasks) if is_workspace(disk, f"{tasks}/{name}")][:5]
    except StorageError:
        return []  # Only suggestions for an error that is being reported.


def _is_directory(disk: Disk, path: str) -> bool:
    seen = disk.stat(path)
    if seen is not None and seen.kind == "link":
        seen = disk.stat(disk.real_path(path))
    return seen is not None and seen.kind == "dir"


def _upward(start_dir: str) -> list[str]:
    """The directory and every one above it."""
    directory = os.path.normpath(start_dir)
    directories = [directory]
    while (parent := os.path.dirname(directory)) != directory:
        directory = parent
        directories.append(directory)
    return directories
