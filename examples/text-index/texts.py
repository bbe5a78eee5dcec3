"""The texts that every Python installation has, and what can be said about one.

A text has a key that is the same in every run: which tree it is in and its path there, never its
place in a list. Reads, never writes; knows nothing of perdure.
"""

import hashlib
import os
import re
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

SUFFIXES = (".py", ".md", ".rst", ".txt")
LICENCES = ("AUTHORS", "COPYING", "LICENCE", "LICENSE", "NOTICE")
SKIPPED_DIRS = frozenset({"__pycache__", "dist-packages", "site-packages"})
WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
TITLE_CHARS = 100


class Text(NamedTuple):
    """One file."""

    key: str
    path: Path


def is_licence(path: Path) -> bool:
    """Whether it is a licence, or says who wrote something."""
    return path.name.upper().startswith(LICENCES) and path.suffix in ("", *SUFFIXES)


def is_text(path: Path) -> bool:
    """Whether it is prose or a Python source."""
    return path.suffix in SUFFIXES or is_licence(path)


def find_texts(root: Path | None = None) -> Iterator[Text]:
    """Everything below ``root``; without one, of the Python that runs this.

    Its standard library with every source and document, and the licences of the packages that
    are installed beside it.
    """
    if root is not None:
        yield from _below("root", root, is_text)
        return
    paths = sysconfig.get_paths()
    yield from _below("stdlib", Path(paths["stdlib"]), is_text)
    yield from _below("packages", Path(paths["purelib"]), is_licence)


def _below(tree: str, root: Path, wanted: Callable[[Path], bool]) -> Iterator[Text]:
    for folder, dirs, files in os.walk(root):
        dirs[:] = sorted(set(dirs) - SKIPPED_DIRS)
        for path in (Path(folder, name) for name in sorted(files)):
            if wanted(path) and path.is_file():
                yield Text(f"{tree}/{path.relative_to(root).as_posix()}", path)


def words_of(data: bytes) -> Counter[str]:
    """How often each word is there, without regard to case."""
    return Counter(WORD.findall(data.decode("utf-8", errors="replace").lower()))


def title_of(data: bytes) -> str:
    """The first line that says something, without the marks around it."""
    for line in data.decode("utf-8", errors="replace").splitlines():
        title = line.strip(" \t\ufeff#\"'=*-_.!/`r")
        if title and not line.startswith("#!"):
            return title[:TITLE_CHARS]
    return ""


def describe(data: bytes) -> dict[str, Any]:
    """What the index says about a text."""
    return {
        "title": title_of(data),
        "bytes": len(data),
        "lines": data.count(b"\n") + (not data.endswith(b"\n") and data != b""),
        "words": words_of(data).total(),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
