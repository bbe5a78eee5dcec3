"""What a contract allows whoever works under it (protocol section 12).

Job: the grammar of grants, and what follows from those of a node. Invariants: what is not listed is
denied (AU-1); a grant follows from the node alone, so everybody who reads the node knows it; no
grant names a place that the runtime keeps for itself, unless it holds the whole workspace, which is
told (:func:`opens_workspace`). Enforced where the runtime writes, and for child processes where the
system can hold them to it; else they are a matter of policy. Never looks at a disk.

A grant is one of ``write:PATH``, ``write:PATH/*`` (a directory with all below it),
``network:read``, ``network:write`` and ``spend:max_usd=N``. A path is relative to the workspace, or
begins with ``$TASK/`` (the directory of the task file), ``$HOME/`` or ``/``.
"""

import math
import posixpath
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from perdure.core.model import Node
from perdure.core.naming import canonical_path, path_problem
from perdure.errors import UsageError

GrantKind = Literal["write", "network", "spend"]

grants_max: Final = 100
"""Of one node."""

TASK: Final = "$TASK"
HOME: Final = "$HOME"
_SPEND: Final = "max_usd="
_NETWORK: Final = {"S2": ("network:read",), "S3": ("network:read", "network:write")}
"""By effect class: those that reach outside the workspace."""
_KEPT: Final = frozenset({"contracts", "docs", "instances", "sops", "steering"})
"""Directories of the workspace that belong to the runtime (``storage.workspace``)."""


class Grant(NamedTuple):
    """One grant, taken apart."""

    kind: GrantKind
    base: str = ""
    """Of ``write``: empty for the workspace, else ``$TASK``, ``$HOME`` or ``/``."""
    path: str = ""
    """Below the base, canonical; empty for the base itself, which only a tree can be."""
    tree: bool = False
    """The directory with all below it."""
    word: str = ""
    """Of ``network``: ``read`` or ``write``."""
    max_usd: float = 0.0


def read_grant(text: str) -> Grant:
    """One grant, taken apart. UsageError ``bad_grant`` (AU-1) for what is none."""
    problem, grant = _read(text)
    if grant is None:
        raise UsageError(
            f"{text[:200]!r} is no grant: {problem}.",
            code="bad_grant",
            rule="AU-1",
            fix="Write write:PATH, write:PATH/*, network:read, network:write or spend:max_usd=N;"
            " a path is of the workspace, or begins with $TASK/, $HOME/ or /.",
        )
    return grant


def grant_problem(text: str) -> str:
    """Why this is no grant, as the end of a sentence; empty when it is one."""
    return _read(text)[0]


def check_grants(grants: Iterable[str]) -> None:
    """Raise UsageError ``bad_grant`` (AU-1) unless each is a grant and they are not too many."""
    read = [read_grant(text) for text in grants]
    if len(read) > grants_max:
        raise UsageError(
            f"{len(read)} grants are too many; the limit is {grants_max}.",
            code="bad_grant",
            rule="AU-1",
            fix="Grant a directory in the place of its files: write:PATH/*.",
        )


@lru_cache(maxsize=1 << 10)  # those of a node are read at each of its steps
def _read(text: str) -> tuple[str, Grant | None]:
    kind, colon, rest = text.partition(":")
    if not colon or kind not in ("write", "network", "spend"):
        return "it does not begin with write:, network: or spend:", None
    if kind == "network":
        if rest not in ("read", "write"):
            return "network is followed by read or write", None
        return "", Grant("network", word=rest)
    if kind == "spend":
        return _read_spend(rest)
    return _read_write(rest)


def _read_spend(rest: str) -> tuple[str, Grant | None]:
    problem = "spend is followed by max_usd= and a number that is not negative"
    if not rest.startswith(_SPEND):
        return problem, None
    try:
        most = float(rest.removeprefix(_SPEND))
    except ValueError:
        return problem, None
    if not math.isfinite(most) or most < 0:
        return problem, None
    return "", Grant("spend", max_usd=most)


def _read_write(rest: str) -> tuple[str, Grant | None]:
    base = "/" if rest.startswith("/") else ""
    for name in (TASK, HOME):
        if rest == name or rest.startswith(f"{name}/"):
            base = name
    below = rest[len(base) :].removeprefix("/")
    if base != "/" and below.startswith("/"):
        return "a path has an empty part", None
    tree = below == "*" or below.endswith("/*")
    path = below.removesuffix("*").removesuffix("/") if tree else below
    if "*" in path:
        return "a * stands only alone at the end, behind a slash", None
    if path:
        problem = path_problem(path)
        if problem:
            return f"the path {problem}", None
    elif not tree or not base:
        return "the path names no file and no directory", None
    path = canonical_path(path)
    if not base and (kept := _kept_name(path, tree)):
        return f"{kept} belongs to the runtime", None
    return "", Grant("write", base, path, tree)


def _kept_name(path: str, tree: bool) -> str:
    """The part of a path of the workspace that the runtime keeps for itself; empty when none is."""
    parts = path.casefold().split("/")
    top = parts[0]
    own = top.startswith((".", "journal")) or top.endswith(".json") or top.split(".")[0] == "lease"
    if own or top in _KEPT:
        return path.split("/", 1)[0]
    if top != "artifacts":
        return ""
    if len(parts) == 1 or parts[1] in ("old", "registry.json"):
        return path
    return ""


def may_write(node: Node, path: str) -> bool:
    """Whether the node's executor may register what lies at this path of the workspace."""
    if path.startswith(f"artifacts/{node.node_id}/") or path in (node.spec.outputs or ()):
        return True
    return any(_covers(_read(text)[1], path) for text in node.spec.grants)


def _covers(grant: Grant | None, path: str) -> bool:
    if grant is None or grant.kind != "write" or grant.base:
        return False
    return path == grant.path or (grant.tree and path.startswith(f"{grant.path}/"))


def grants_of(node: Node) -> list[str]:
    """The grants of a contract for this node, as it lists them.

    Its own scope, scratch, outputs elsewhere, what its effect needs, then what its spec grants.
    """
    scope = f"artifacts/{node.node_id}/"
    outside = [path for path in node.spec.outputs or () if not path.startswith(scope)]
    limits = [node.spec.budget.max_cost_usd, spend_limit_usd(node.spec.grants)]
    spend = min((limit for limit in limits if limit is not None), default=None)
    named = [text for text in node.spec.grants if not text.startswith("spend:")]
    listed = [
        f"write:{scope}*",
        "write:tmp/*",
        *(f"write:{path}" for path in outside),
        *_NETWORK.get(node.effect, ()),
        *([f"spend:max_usd={spend:g}"] if spend is not None else []),
        *named,
    ]
    return list(dict.fromkeys(listed))


def write_paths(
    grants: Iterable[str], layout_root: str, task_dir: str, home: str
) -> tuple[str, ...]:
    """The absolute paths that these grants let be written: files, and directories with all below.

    ``layout_root`` is the workspace, ``task_dir`` the directory of the task file; an empty ``home``
    leaves out what is granted in it.
    """
    bases = {"": layout_root, TASK: task_dir, HOME: home, "/": "/"}
    found = []
    for text in grants:
        grant = read_grant(text)
        if grant.kind == "write" and bases[grant.base]:
            found.append(posixpath.normpath(posixpath.join(bases[grant.base], grant.path)))
    return tuple(dict.fromkeys(found))


def allows_network(grants: Iterable[str]) -> bool:
    """Whether the network is granted; for reading and for writing is the same to the kernel."""
    return any(read_grant(text).kind == "network" for text in grants)


def spend_limit_usd(grants: Iterable[str]) -> float | None:
    """The least of the amounts that may be spent; None where no grant names one."""
    read = [_read(text)[1] for text in grants]
    return min((one.max_usd for one in read if one and one.kind == "spend"), default=None)


def opens_workspace(paths: Iterable[str], layout_root: str) -> bool:
    """Whether one of these absolute paths holds the workspace, and so its journal."""
    root = posixpath.normpath(layout_root)
    return any(path == root or root.startswith(f"{path.rstrip('/')}/") for path in paths)
