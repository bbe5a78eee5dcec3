"""Files stay readable in one sitting, and the source keeps the habits no linter knows."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

SOURCE_LINES_MAX = 400
TEST_LINES_MAX = 800
FUNCTION_LINES_MAX = 70

# The third-party modules that are dear to import and not needed by every call. What jsonschema
# itself imports (referencing) is as dear as jsonschema is.
LAZY = {"apprise", "jsonschema", "psutil", "pygal", "rapidfuzz", "referencing", "rich", "yaml"}
# Built at import or run time from pieces, so that this file passes its own test.
UNFINISHED = re.compile("|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]))
MACHINE_PATH = re.compile(r"""(?<![\w.}/-])/(?:home|root|Users|work)/\w""")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), name_of(path))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


each_source = pytest.mark.parametrize("path", SOURCES, ids=name_of)


def test_there_are_files_to_check() -> None:
    assert {"src/perdure/errors.py", "src/perdure/core/model.py"} <= {*map(name_of, SOURCES)}
    assert Path(__file__) in TESTS


def too_long(paths: list[Path], lines_max: int) -> list[str]:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    return [f"{name_of(p)}: {lines}" for p, lines in lengths.items() if lines > lines_max]


def test_source_files_are_short() -> None:
    assert too_long(SOURCES, SOURCE_LINES_MAX) == []


def test_test_files_are_short() -> None:
    assert too_long(TESTS, TEST_LINES_MAX) == []


def long_functions(tree: ast.AST) -> list[str]:
    # From the line with `def`: a command's decorators are a list of options and not to be counted.
    return [
        f"{node.name}: {lines} lines at line {node.lineno}"
        for node in functions(tree)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]


@each_source
def test_functions_are_short(path: Path) -> None:
    assert long_functions(parse(path)) == []


@each_source
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(parse(path)), f"{name_of(path)} has no module docstring"


def writing_calls(tree: ast.AST) -> list[str]:
    """Calls that write a file past the Disk port: ``open`` with a writing mode, ``write_text``."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.id if isinstance(function, ast.Name) else ""
        name = function.attr if isinstance(function, ast.Attribute) else name
        if name in {"write_text", "write_bytes"}:
            found.append(f"line {node.lineno}: {name}")
        elif name in {"open", "fdopen"}:
            # The mode is the second argument of the function, the first of Path.open; a file
            # that is named with a constant is never named like a mode.
            said = [*node.args[:2], *(k.value for k in node.keywords if k.arg == "mode")]
            modes = [a.value for a in said if isinstance(a, ast.Constant)]
            if any(isinstance(m, str) and re.fullmatch(r"[rbt]*[wax+][wax+bt]*", m) for m in modes):
                found.append(f"line {node.lineno}: {name} for writing")
    return found


@each_source
def test_only_the_disk_opens_a_file_for_writing(path: Path) -> None:
    # A script that belongs to a card is a program of its own, which never imports perdure.
    own = name_of(path).startswith("src/perdure/sops/")
    if name_of(path) != "src/perdure/storage/disk.py" and not own:
        assert writing_calls(parse(path)) == []


def late_imports(tree: ast.AST) -> list[str]:
    """Imports inside functions, other than of the lazy third-party modules."""
    found = set()
    for function in functions(tree):
        for node in ast.walk(function):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "."]
            found |= {(node.lineno, n) for n in names if n.partition(".")[0] not in LAZY}
    return [f"line {line}: {name}" for line, name in sorted(found)]


@each_source
def test_only_named_dear_modules_are_imported_late(path: Path) -> None:
    assert late_imports(parse(path)) == []


@each_source
def test_imports_do_not_depend_on_the_type_checker(path: Path) -> None:
    names = {n.id for n in ast.walk(parse(path)) if isinstance(n, ast.Name)}
    attributes = {n.attr for n in ast.walk(parse(path)) if isinstance(n, ast.Attribute)}
    assert "TYPE_CHECKING" not in names | attributes


def written_by_us() -> list[Path]:
    top = [p for p in ROOT.iterdir() if p.is_file() and not p.name.startswith(".")]
    below = [
        path
        for folder in ("src", "tests", "docs", "examples", ".ci")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not any(part.startswith("__pycache__") for part in path.parts)
    ]
    return sorted([*top, *below])


def lines_with(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{name_of(path)}, line {number}"
        for path in paths
        for number, line in enumerate(path.read_bytes().decode(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def test_nothing_is_left_for_later() -> None:
    paths = [p for p in written_by_us() if p.suffix in {".py", ".pyi", ".toml"}]
    assert lines_with(UNFINISHED, paths) == []


def test_nobodys_machine_is_named() -> None:
    # Tests may name made-up absolute paths: a simulated disk has nothing else.
    paths = [p for p in written_by_us() if "tests" not in p.relative_to(ROOT).parts]
    assert lines_with(MACHINE_PATH, paths) == []


def test_these_checks_notice_what_they_look_for() -> None:
    bad = ast.parse(
        "def f(path):\n"
        "    import yaml, rich.table\n"
        "    from json import loads\n"
        "    import perdure.service\n"
        "    open(path, 'w'); open(path, mode='ab'); path.open('r+'); path.write_text('')\n"
        "    open(path); open(path, 'rb'); path.open(); os.open(path, flags)\n" + "    pass\n" * 70
    )
    assert late_imports(bad) == ["line 3: json", "line 4: perdure.service"]
    assert len(writing_calls(bad)) == 4
    assert long_functions(bad) == ["f: 76 lines at line 1"]
    assert MACHINE_PATH.search("cd '/home/" + "somebody'")
    assert not MACHINE_PATH.search('f"{root}/site/tmp", "artifacts/site/x"')
