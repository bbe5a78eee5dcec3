"""The import contracts of pyproject.toml hold, and would notice if they did not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT = """
import sys
from importlinter.cli import lint_imports
sys.exit(lint_imports({config!r}, no_cache=True, no_logo=True))
"""


def lint(source: Path) -> subprocess.CompletedProcess[str]:
    """Lint the package below ``source``: the linter puts its current directory first in the path.

    In a process of its own, because the linter changes the path and the logging of its process.
    """
    code = LINT.format(config=str(ROOT / "pyproject.toml"))
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


def test_imports_point_one_way() -> None:
    done = lint(ROOT / "src")
    assert done.returncode == 0, done.stdout + done.stderr


# One violation of each contract, planted in a copy.
PLANTED = {
    "perdure.core is not allowed to import perdure.storage": (
        "core/planted.py",
        "import perdure.storage",
    ),
    "perdure.storage is not allowed to import perdure.testing": (
        "storage/planted.py",
        "import perdure.testing",
    ),
    "perdure.unheard_of": ("unheard_of.py", ""),
    "perdure.interfaces is not allowed to import perdure.runtime": (
        "interfaces/planted.py",
        "import perdure.runtime",
    ),
    "perdure.interfaces.cli is not allowed to import perdure.interfaces.planted": (
        "interfaces/cli/planted.py",
        "import perdure.interfaces.planted",
    ),
    "perdure.core is not allowed to import os": ("core/planted.py", "import os"),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    source = tmp_path_factory.mktemp("copy")
    package = source / "perdure"
    shutil.copytree(ROOT / "src" / "perdure", package)
    (package / "testing.py").touch()
    (package / "interfaces" / "planted.py").touch()
    for name, line in PLANTED.values():
        with (package / name).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    done = lint(source)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("complaint", PLANTED)
def test_a_planted_violation_is_reported(report: str, complaint: str) -> None:
    assert complaint in " ".join(report.split())
