"""List the documents that the pattern names, a line of JSON for each, on standard output.

A program of its own: standard library only. The key of a document is its path below the part of the
pattern that has no wildcard, so that it stays the same wherever the documents lie.
"""

import glob
import hashlib
import json
import os
import re
import sys


def documents(pattern: str) -> tuple[str, list[str]]:
    """The directory that keys are relative to, and the files that the pattern names, sorted."""
    parts = pattern.split("/")
    wild = next((i for i, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts) - 1)
    base = "/".join(parts[:wild]) or "/"
    return base, sorted(p for p in set(glob.glob(pattern, recursive=True)) if os.path.isfile(p))


def main() -> int:
    """Print the list; 66 when there is nothing, 1 for what cannot be listed."""
    where = os.path.join(os.environ["PERDURE_WORKSPACE"], os.environ["PERDURE_INPUTS"])
    with open(where, encoding="utf-8") as file:
        pattern = json.load(file)["documents"]
    base, paths = documents(pattern)
    if not paths:
        sys.stderr.write(f"no document matches {pattern}\n")
        return 66
    for path in paths:
        with open(path, "rb") as file:
            content = file.read()
        entry = {
            "key": os.path.relpath(path, base),
            "path": path,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        try:
            sys.stdout.write(json.dumps(entry, ensure_ascii=False, sort_keys=True) + "\n")
        except UnicodeEncodeError:
            sys.stderr.write(f"the name {path!r} is not UTF-8\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.exit(main())
