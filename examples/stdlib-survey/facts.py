"""Nodes ``facts-1`` to ``facts-4``: what each source file of one shard holds.

    python facts.py SHARD

Reads the inventory, takes the files of its shard, makes sure that each still is the file that was
inventoried, and writes one row per file to ``facts.jsonl``: lines, public names, imports. A file
that does not parse gets a row that says so; no file is dropped. Nothing is executed or imported.
"""

import ast
import hashlib
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from survey import INVENTORY, SUMMARY, Row, read_json, read_jsonl, shard_of, to_jsonl, write_whole

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
SCOPES = (ast.Module, *DEFINITIONS)
LAYOUT = frozenset(
    {
        tokenize.ENCODING, tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT,
        tokenize.DEDENT, tokenize.ENDMARKER,
    }
)  # fmt: skip


def module_name(path: str) -> str:
    """``json/decoder.py`` is ``json.decoder``; ``json/__init__.py`` is ``json``."""
    parts = path.removesuffix(".py").split("/")
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body, also those inside ``if``, ``try`` and ``with``."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from statements(node.body)
            yield from statements(getattr(node, "orelse", []))
            yield from statements(getattr(node, "finalbody", []))
            for handler in getattr(node, "handlers", []):
                yield from statements(handler.body)


def assigned(node: ast.stmt) -> list[str]:
    """The plain names an assignment binds."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    else:
        return []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def declared_all(tree: ast.Module) -> list[str] | None:
    """``__all__`` where it is a literal list or tuple of names, else None."""
    found = None
    for node in statements(tree.body):
        if isinstance(node, ast.Assign | ast.AnnAssign) and "__all__" in assigned(node):
            try:
                value = ast.literal_eval(node.value) if node.value else None
            except ValueError:
                return None
            found = list(value) if isinstance(value, list | tuple) else None
        elif isinstance(node, ast.AugAssign) and getattr(node.target, "id", "") == "__all__":
            return None  # Put together at run time: reading it here would tell half of it.
    return found


def public_names(tree: ast.Module) -> Row:
    """Public functions, classes, constants, and which names the module offers."""
    functions: set[str] = set()
    classes: set[str] = set()
    constants: set[str] = set()
    for node in statements(tree.body):
        if isinstance(node, ast.ClassDef):
            classes.add(node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.add(node.name)
        else:
            constants.update(name for name in assigned(node) if name.isupper())
    kinds = {"functions": functions, "classes": classes, "constants": constants}
    public = {kind: {n for n in names if n[0] != "_"} for kind, names in kinds.items()}
    declared = declared_all(tree)
    names = declared if declared is not None else set().union(*public.values())
    return {
        "public_names": sorted(set(names)),
        "has_all": declared is not None,
        **{kind: len(found) for kind, found in public.items()},
    }


def documentation(tree: ast.Module) -> Row:
    """How many public definitions there are (methods too), and how many lack a docstring."""
    public: list[Definition] = []
    bodies = [tree.body]
    while bodies:
        for node in statements(bodies.pop()):
            if isinstance(node, DEFINITIONS) and not node.name.startswith("_"):
                public.append(node)
                if isinstance(node, ast.ClassDef):
                    bodies.append(node.body)
    return {
        "module_docstring": ast.get_docstring(tree, clean=False) is not None,
        "definitions": len(public),
        "undocumented": sum(ast.get_docstring(node, clean=False) is None for node in public),
    }


def imports(tree: ast.Module, package: str) -> list[str]:
    """The top-level modules a file imports anywhere; a relative import is its own package."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(package if node.level else (node.module or "").split(".")[0])
    return sorted(found)


def code_lines(tree: ast.Module, data: bytes) -> tuple[int, int]:
    """How many lines hold code (not blank, comment or docstring), and the number of tokens."""
    lines: set[int] = set()
    tokens = 0
    for token in tokenize.tokenize(io.BytesIO(data).readline):
        tokens += 1
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, SCOPES) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            lines.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(lines), tokens


def facts_of(path: str, data: bytes) -> Row:
    """The row of one file, without its checksum."""
    package = path.removesuffix(".py").split("/")[0]
    row: Row = {
        "path": path,
        "module": module_name(path),
        "package": package,
        "lines": data.count(b"\n") + (not data.endswith(b"\n") and data != b""),
        "bytes": len(data),
    }
    try:
        tree = ast.parse(data, filename=path)
        code, tokens = code_lines(tree, data)
    except (SyntaxError, ValueError, tokenize.TokenError) as error:
        return row | {"status": "unparsed", "error": f"{type(error).__name__}: {error}"}
    return row | {
        "status": "parsed",
        "code_lines": code,
        "tokens": tokens,
        "imports": imports(tree, package),
        **public_names(tree),
        **documentation(tree),
    }


def main() -> None:
    """Write the facts of the shard named on the command line."""
    shard = int(sys.argv[1])
    root = Path(read_json(SUMMARY)["root"])
    rows = []
    for entry in read_jsonl(INVENTORY):
        if shard_of(entry["path"]) != shard:
            continue
        data = (root / entry["path"]).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        if digest != entry["sha256"]:
            sys.exit(f"{entry['path']} is not the file that was inventoried any more.")
        rows.append(facts_of(entry["path"], data) | {"sha256": digest})
    write_whole("facts.jsonl", to_jsonl(rows))
    print(f"shard {shard}: {len(rows)} files, {sum(row['lines'] for row in rows)} lines")


if __name__ == "__main__":
    main()
