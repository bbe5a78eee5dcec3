"""Refusals read alike: a message goes on behind its code, and every one of them has a cure."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import errors

ROOT = Path(__file__).resolve().parents[2] / "src" / "perdure"
ERRORS = {name for name, thing in vars(errors).items() if isinstance(thing, type)} | {"malformed"}
# What failed is the detail of a check, which stands beside the check itself.
NO_CURE = {"CheckFailedError"}
# The real disk and the simulated one say the same, and name first what was being done.
DISKS = ("storage/disk.py", "storage/filelock.py", "testing/")
NAMES = re.compile(r"[A-Z]+[_-]")  # PERDURE_WORKSPACE, J-1


def refusals(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if named and node.args and node.func.id in ERRORS:
            yield node


def first_words(message: ast.expr) -> str:
    """The text that a message begins with; nothing where it begins with a value."""
    if isinstance(message, ast.JoinedStr) and message.values:
        message = message.values[0]
    return message.value if isinstance(message, ast.Constant) else ""


def faults(tree: ast.AST) -> list[str]:
    found = []
    for call in refusals(tree):
        words = first_words(call.args[0])
        if words[:1].isupper() and not NAMES.match(words):
            found.append(f"line {call.lineno}: {words!r} begins with a capital")
        cured = any(keyword.arg == "fix" for keyword in call.keywords)
        if not cured and getattr(call.func, "id", "") not in NO_CURE:
            found.append(f"line {call.lineno}: {words!r} has no fix")
    return found


SOURCES = [
    path
    for path in sorted(ROOT.rglob("*.py"))
    if not path.relative_to(ROOT).as_posix().startswith(DISKS)
]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_refusal_starts_in_lower_case_and_has_a_fix(path: Path) -> None:
    assert faults(ast.parse(path.read_text(encoding="utf-8"))) == []


def test_a_faulty_refusal_is_noticed() -> None:
    assert len(faults(ast.parse('raise UsageError(f"The {what} is bad.")'))) == 2
    assert faults(ast.parse('raise UsageError("J-1 is bad.", fix="Correct it.")')) == []
