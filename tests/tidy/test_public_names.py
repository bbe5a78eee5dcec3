"""The public names are few, explicit, the same for people and type checkers, and cost nothing."""

import ast
import subprocess
import sys
import sysconfig
from importlib import import_module
from pathlib import Path

import pytest

import perdure

SOURCE = Path(perdure.__file__).parent

# What `import perdure` must not load. Each costs more than the rest of a command line call.
DEAR = {
    "asyncio",
    "click",
    "dataclasses",
    "importlib.metadata",
    "inspect",
    "jsonschema",
    "logging",
    "msgspec",
    "psutil",
    "rich",
    "subprocess",
    "typing",
    "yaml",
}


def modules_after(code: str) -> set[str]:
    """The modules a fresh interpreter has after ``code``.

    Isolated and without ``site``, whose ``.pth`` files may load anything; the two directories it
    would have added are put in the path by hand, so that a dear module could be imported.
    """
    paths = [str(SOURCE.parent), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    program = f"import sys; sys.path += {paths!r}\n{code}\nprint('\\n'.join(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )
    return set(done.stdout.split())


def test_importing_perdure_loads_nothing_dear() -> None:
    loaded = modules_after("import perdure") - modules_after("pass")
    assert loaded & DEAR == set()
    assert {name for name in loaded if name.startswith("perdure")} == {"perdure"}


def test_a_dear_import_would_be_seen() -> None:
    assert {"msgspec", "perdure.core.model"} <= modules_after("import perdure; perdure.Node")


def test_an_error_can_be_caught_without_loading_the_records() -> None:
    loaded = modules_after("from perdure import HaltError")
    assert "perdure.errors" in loaded
    assert "msgspec" not in loaded


def test_all_is_written_out() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    values = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert len(values) == 1
    assert ast.literal_eval(values[0]) == perdure.__all__ == sorted(set(perdure.__all__))


@pytest.mark.parametrize("name", perdure.__all__)
def test_every_public_name_is_what_its_module_calls_so(name: str) -> None:
    value = getattr(perdure, name)
    assert name in dir(perdure)
    if isinstance(value, type):
        assert value.__name__ == name
        assert getattr(import_module(value.__module__), name) is value


def test_every_kind_of_error_is_public() -> None:
    def kinds(error: type[perdure.HaltError]) -> set[str]:
        return {error.__name__}.union(*(kinds(kind) for kind in error.__subclasses__()))

    ours = {n for n in kinds(perdure.HaltError) if hasattr(import_module("perdure.errors"), n)}
    assert ours <= set(perdure.__all__)


def test_type_checkers_are_told_the_same_names_from_the_same_places() -> None:
    tree = ast.parse((SOURCE / "__init__.pyi").read_text(encoding="utf-8"))
    told: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            told |= {alias.asname or "": node.module or "" for alias in node.names}
    actual = {n: getattr(perdure, n).__module__ for n in perdure.__all__ if n != "__version__"}
    assert told == actual
    stub_all = [n.value for n in tree.body if isinstance(n, ast.Assign)]
    assert [ast.literal_eval(value) for value in stub_all] == [perdure.__all__]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'perdure' has no attribute 'Halt'"):
        _ = perdure.Halt  # type: ignore[attr-defined]
    with pytest.raises(ImportError):
        exec("from perdure import Halt", {})
