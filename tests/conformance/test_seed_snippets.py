"""The two programs that the protocol's own documents show, run as they are written there.

Only the name of the module differs: ``perdure`` in place of ``halt_rt``.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from perdure import HaltRuntime

README = """
import os
from perdure import HaltRuntime

with HaltRuntime(workspace, task_id="my-task") as rt:   # fresh workspace; lease held inside
    rt.add_node("N1", "do thing")
    rt.transition("N1", "READY")
    rt.transition("N1", "RUNNING")

    # content hits disk BEFORE registration (PD-J1: no disk, no DONE)
    out = os.path.join(workspace, "artifacts", "N1", "n1-out.md")
    os.makedirs(os.path.dirname(out), exist_ok=True)
    open(out, "w").write("node N1 output")
    rt.register_artifact("A-N1", "artifacts/N1/n1-out.md", kind="doc", node_id="N1")
    rt.transition("N1", "VERIFYING", evidence=["A-N1"])
    rt.transition("N1", "DONE", evidence=["A-N1 verified"])
# lease released at scope exit

# ... crash happens ...
rt = HaltRuntime.resume(workspace)               # rebuild from the journal
"""

SKILL = """
import os
from perdure import HaltRuntime

rt = HaltRuntime(workspace, task_id="my-task")   # fresh workspace
# ... crash happens ...
rt = HaltRuntime.resume(workspace)               # rebuild from ledger

rt.add_node("N1", "do thing")
rt.transition("N1", "READY")
rt.transition("N1", "RUNNING")

# Artifact content must hit disk BEFORE registration (PD-J1: no disk, no DONE).
# Paths are workspace-relative (PL-4), so join them onto the workspace root:
out = os.path.join(workspace, "artifacts", "N1", "n1-out.md")
os.makedirs(os.path.dirname(out), exist_ok=True)
open(out, "w").write("node N1 output")

rt.register_artifact("A-N1", "artifacts/N1/n1-out.md", kind="doc", node_id="N1")
rt.transition("N1", "VERIFYING", evidence=["A-N1"])
rt.transition("N1", "DONE", evidence=["A-N1 verified"])

rt.steering("ST-001", "...")    # durable steering event
rt.decision("DR-1", "...")      # decision record
print(rt.status())              # seq/nodes/integrity at a glance
"""

# Both leave a file to the garbage collector, as they are written.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def run(text: str, workspace: str) -> HaltRuntime:
    names: dict[str, Any] = {"workspace": workspace}
    exec(compile(text, "<snippet>", "exec"), names)
    runtime = names["rt"]
    assert isinstance(runtime, HaltRuntime)
    return runtime


def test_the_program_of_the_readme(workspace: str) -> None:
    with run(README, workspace) as runtime:
        status = runtime.status()
        assert status["nodes"] == {"N1": "DONE"}
        assert status["all_integrity_pass"] is True
        assert runtime.recovered.repaired == ()


def test_the_program_of_the_skill(workspace: str, capsys: pytest.CaptureFixture[str]) -> None:
    with run(SKILL, workspace) as runtime:
        printed = capsys.readouterr().out
        assert "'N1': 'DONE'" in printed
        assert "'all_integrity_pass': True" in printed
        kinds = [event.kind for event in runtime.events()]
        assert kinds.count("STEERING_LOGGED") == 1
        assert kinds[-1] == "DECISION"
        assert runtime.state.steering["ST-001"].acknowledged


@pytest.mark.parametrize("text", [README, SKILL], ids=["readme", "skill"])
def test_both_may_be_run_in_a_directory_that_does_not_exist_yet(text: str, workspace: str) -> None:
    run(text, os.path.join(workspace, "deeper", "still")).close()


@pytest.mark.parametrize("text", [README, SKILL], ids=["readme", "skill"])
def test_both_take_the_workspace_as_a_path_too(text: str, workspace: str) -> None:
    names: dict[str, Any] = {"workspace": Path(workspace)}
    exec(compile(text, "<snippet>", "exec"), names)
    names["rt"].close()
