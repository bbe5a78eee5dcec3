"""Node ``inventory``: every Python source file of the standard library, with its checksum.

    python inventory.py [--root DIR]

Writes ``inventory.jsonl`` (path, bytes, sha256; sorted by path) and ``summary.json``. Packages
of tests are counted in the summary and left out of the list; installed packages and byte code
are ignored. Later nodes trust a file only while it still has the checksum written here.
"""

import argparse
import hashlib
import os
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from survey import Row, to_json, to_jsonl, write_whole

SKIPPED_DIRS = frozenset({"site-packages", "dist-packages", "__pycache__"})
TEST_DIRS = frozenset({"test", "tests", "idle_test"})


def source_files(root: Path) -> Iterator[str]:
    """Every ``.py`` file below ``root``, as a POSIX path relative to it."""
    for folder, dirs, files in os.walk(root):
        dirs[:] = sorted(set(dirs) - SKIPPED_DIRS)
        for name in files:
            path = Path(folder, name)
            if path.suffix == ".py" and path.is_file():
                yield path.relative_to(root).as_posix()


def is_test(path: str) -> bool:
    """Whether a file belongs to a package of tests."""
    return not TEST_DIRS.isdisjoint(path.split("/")[:-1])


def take_inventory(root: Path) -> tuple[list[Row], Row]:
    """The rows, sorted by path, and the summary."""
    rows: list[Row] = []
    tests = 0
    for path in sorted(source_files(root)):
        if is_test(path):
            tests += 1
            continue
        data = (root / path).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        rows.append({"path": path, "bytes": len(data), "sha256": digest})
    summary: Row = {
        "root": str(root),
        "python": platform.python_version(),
        "files": len(rows),
        "bytes": sum(row["bytes"] for row in rows),
        "test_files_left_out": tests,
    }
    return rows, summary


def main() -> None:
    """Take the inventory of ``--root``, by default of the Python that runs this."""
    parser = argparse.ArgumentParser(description="Inventory of Python source files.")
    parser.add_argument("--root", type=Path, default=Path(sysconfig.get_paths()["stdlib"]))
    root = parser.parse_args().root.resolve()
    rows, summary = take_inventory(root)
    write_whole("inventory.jsonl", to_jsonl(rows))
    write_whole("summary.json", to_json(summary))
    print(f"{summary['files']} files, {summary['bytes']} bytes below {root}")


if __name__ == "__main__":
    main()
