"""Modules that are imported late keep to the layers, like any other import."""

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "perdure"
# From the top, as the contract about layers in pyproject.toml has it.
LAYERS = [
    ["__main__"], ["interfaces"], ["service"], ["control", "selftest"], ["jobs", "memory"],
    ["runtime"], ["storage", "host"], ["ports"], ["core"], ["errors"],
]  # fmt: skip


def layer_of(module: str) -> int:
    part = module.split(".")[1]
    return next(number for number, names in enumerate(LAYERS) if part in names)


def late_modules() -> list[tuple[str, str]]:
    """The module that names it and the module that is named, for every one that is late."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = ast.unparse(node.func)
            if called in ("LateModule", "import_module"):
                argument = node.args[0]
                literal = argument.value if isinstance(argument, ast.Constant) else ""
                if isinstance(literal, str) and literal.startswith("perdure."):
                    found.append((name, literal))
    return found


LATE = late_modules()


def test_there_are_some() -> None:
    assert ("perdure.service.tasks", "perdure.runtime.inspection") in LATE


@pytest.mark.parametrize(("user", "used"), LATE)
def test_a_late_import_points_the_same_way_as_any_other(user: str, used: str) -> None:
    assert importlib.util.find_spec(used) is not None
    assert layer_of(used) >= layer_of(user)
    assert not (user.startswith("perdure.interfaces") and "interfaces" not in used)
