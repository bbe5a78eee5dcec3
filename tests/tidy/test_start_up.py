"""A short command loads only what it needs: agents make one at every step."""

import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import perdure

SOURCE = Path(perdure.__file__).parent
DEAR = {
    "asyncio",
    "concurrent.futures",
    "dataclasses",
    "importlib.metadata",
    "jsonschema",
    "logging",
    "psutil",
    "rich",
    "shutil",
    "subprocess",
    "yaml",
    "perdure.control",
    "perdure.core.criteria",
    "perdure.core.decide_goal",
    "perdure.core.decide_observed",
    "perdure.core.decide_replan",
    "perdure.core.decide_ruling",
    "perdure.core.supervision",
    "perdure.runtime.evidence",
    "perdure.runtime.gates",
    "perdure.runtime.goals",
    "perdure.runtime.halt",
    "perdure.runtime.inspection",
    "perdure.runtime.rulings",
    "perdure.runtime.verify",
}
NOT_OF_A_LOOK = {
    "shlex",
    "perdure.core.decide_ending",
    "perdure.core.decide_gate",
    "perdure.core.decide_node",
    "perdure.core.decide_question",
    "perdure.core.decide_steering",
    "perdure.core.escalation",
    "perdure.core.inbox",
    "perdure.core.inbox_page",
    "perdure.core.node_views",
    "perdure.core.recovery",
    "perdure.core.settling",
    "perdure.interfaces.cli.changes",
    "perdure.interfaces.cli.steering",
    "perdure.runtime.set_aside_files",
    "perdure.runtime.steering",
    "perdure.runtime.write_here",
}
"""What nobody needs who takes a note or looks, while nobody has asked or said anything."""


def loaded_by(*arguments: str) -> set[str]:
    """The modules that a process has after this call.

    Isolated and without ``site``, whose ``.pth`` files may load anything; the directories it would
    have added are put in the path by hand, so that a dear module could be imported.
    """
    paths = [str(SOURCE.parent), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    program = (
        f"import sys; sys.path += {paths!r}\n"
        "from perdure.interfaces.cli import main\n"
        f"code = main({list(arguments)!r})\n"
        "print('\\n'.join(sorted(sys.modules)))\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )
    return set(done.stdout.split())


@pytest.fixture
def task(workspace: str) -> str:
    loaded_by("-C", workspace, "init", "T1")
    loaded_by("-C", workspace, "add", "N1", "First")
    return workspace


@pytest.mark.parametrize(
    "command", [["note", "x"], ["status"], ["log"], ["steer", "x"], ["explain", "AR-1"]]
)
def test_a_short_command_loads_nothing_dear(task: str, command: list[str]) -> None:
    loaded = loaded_by("-C", task, *command)
    assert "perdure.interfaces.cli.program" in loaded
    assert loaded & DEAR == set()
    others = {name for name in loaded if name.startswith("perdure.interfaces.cli.")}
    assert len(others) <= 6, f"modules of other commands: {sorted(others)}"


@pytest.mark.parametrize("command", [["note", "x"], ["status"], ["log"]])
def test_nothing_about_people_is_loaded_where_none_has_spoken(
    task: str, command: list[str]
) -> None:
    assert loaded_by("-C", task, *command) & NOT_OF_A_LOOK == set()


def test_the_names_are_those_of_modules() -> None:
    missing = [name for name in DEAR | NOT_OF_A_LOOK if importlib.util.find_spec(name) is None]
    assert missing == []


def test_a_dear_module_would_be_seen(task: str) -> None:
    assert {"subprocess", "perdure.runtime.verify"} <= loaded_by("-C", task, "start", "N1")
