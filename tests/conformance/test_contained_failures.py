"""What one node does to its files, or a stranger to the workspace's, stays contained (INV-8)."""

import json
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.host import Host
from tests.conformance.test_run import Project

from perdure.errors import CorruptError, FencedError, HaltError
from perdure.runtime.halt import HaltRuntime
from perdure.service.tasks import Service

SCOPE = '"$PERDURE_SCOPE"'
LEFT_BEHIND = {
    "output_is_a_link_out": f"ln -s /etc/passwd {SCOPE}/o",
    "output_is_a_link_to_the_journal": f"ln -s ../../journal.jsonl {SCOPE}/o",
    "scope_is_a_link_out": f"rm -rf {SCOPE}; ln -s /tmp {SCOPE}",
    "scope_is_a_file": f"rm -rf {SCOPE}; echo x > {SCOPE}",
}


@pytest.fixture
def project(workspace: str) -> Project:
    return Project(workspace)


@pytest.mark.parametrize("mess", LEFT_BEHIND.values(), ids=LEFT_BEHIND.keys())
def test_a_mess_in_one_scope_fails_that_node_and_no_other(project: Project, mess: str) -> None:
    text = f"""
task_id: t
grants: ['write:$TASK/*']
nodes:
  - id: evil
    title: makes a mess
    run: {json.dumps(mess)}
    outputs: [artifacts/evil/o]
    priority: 5
  - id: good
    title: works
    run: echo x > "$PERDURE_SCOPE/o"
"""
    report = project.run(text)
    assert project.node("good")["state"] == "DONE"
    assert project.node("evil")["state"] != "DONE"
    assert report["outcome"] in ("needs_person", "failed")
    again = project.run(text)
    assert again["outcome"] == report["outcome"]
    assert project.service.verify()["exit_code"] == 0


def test_a_name_that_is_not_utf8_fails_its_node_only(project: Project) -> None:
    text = r"""
task_id: t
grants: ['write:$TASK/*']
nodes:
  - {id: odd, title: odd name, run: 'touch "$PERDURE_SCOPE/$(printf "\\377")"', retry: 1}
  - {id: good, title: works, run: 'echo x > "$PERDURE_SCOPE/o"'}
"""
    project.run(text)
    assert project.node("good")["state"] == "DONE"
    assert project.node("odd")["state"] != "DONE"


def test_a_check_script_that_changes_an_artifact_does_not_pass_its_node(project: Project) -> None:
    text = """
task_id: t
grants: ['write:$TASK/*']
nodes:
  - id: a
    title: a
    run: echo hi > "$PERDURE_SCOPE/a"
    retry: 1
    accept: ["script: echo changed > artifacts/a/a"]
"""
    project.run(text)
    assert project.node("a")["state"] != "DONE"


def test_a_signal_ends_a_check_script_and_the_next_run_verifies_again(project: Project) -> None:
    text = """
task_id: t
grants: ['write:$TASK/*']
nodes:
  - id: a
    title: a
    run: echo hi > "$PERDURE_SCOPE/a"
    accept: ["script: test -e go || { touch checking; sleep 300; }"]
"""

    def interrupt(event: dict[str, Any], stop: Callable[[int], None]) -> None:
        # The claim is committed when the node is VERIFYING; the script has then been started.
        if event["event"] == "started":
            watch(project, stop)

    report = project.run(text, on=interrupt)
    assert report["outcome"] == "interrupted"
    assert project.node("a")["state"] == "VERIFYING"
    (project.directory / "w" / "go").write_text("")
    assert project.run(text)["outcome"] == "finished"
    assert len(project.node("a")["artifacts"]) == 1


def watch(project: Project, stop: Callable[[int], None]) -> None:
    """Interrupt the run as soon as the check script is at work."""

    def wait() -> None:
        seen = project.directory / "w" / "checking"
        turn = threading.Event()
        while not seen.exists():
            turn.wait(0.02)
        stop(signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


def test_a_stranger_who_writes_to_the_journal_never_costs_an_acknowledged_line(
    workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = HaltRuntime(f"{workspace}/w", "t")
    runtime.note("before")
    journal = f"{workspace}/w/journal.jsonl"
    real_open = runtime.engine.disk.open_append(journal)

    class Raced:
        """An append file that somebody else writes to right before each of ours."""

        def append(self, data: bytes) -> None:
            with open(journal, "ab") as stranger:
                stranger.write(b"garbage\n")
            real_open.append(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(real_open, name)

    monkeypatch.setattr(runtime.engine.journal, "_file", Raced())
    kept = runtime.engine.journal.tip.offset
    with pytest.raises(CorruptError, match="somebody else"):
        runtime.note("raced")
    with pytest.raises(HaltError):
        runtime.note("after")
    assert os.path.getsize(journal) > kept
    runtime.close()
    with pytest.raises(CorruptError, match="line 4, byte"):
        HaltRuntime.resume(f"{workspace}/w")


@pytest.mark.parametrize("emptied", [True, False])
def test_a_holder_whose_lease_file_was_lost_is_fenced_by_the_next_one(
    workspace: str, emptied: bool
) -> None:
    host = Host(workspace)
    host.open().close()
    first = host.resume(100)
    lease = os.path.join(host.workspace, "lease.json")
    if emptied:
        open(lease, "w").close()
    else:
        os.unlink(lease)
    second = host.resume(200)
    with pytest.raises(FencedError):
        first.note("two at once")
    second.note("one holder")
    first.close()
    second.close()


def test_verify_and_doctor_see_that_whole_lines_were_cut_off(workspace: str) -> None:
    path = f"{workspace}/w"
    runtime = HaltRuntime(path, "t")
    runtime.note("one")
    runtime.note("two")
    runtime.close()
    with open(f"{path}/journal.jsonl", "rb") as file:
        lines = file.read().splitlines(keepends=True)
    with open(f"{path}/journal.jsonl", "wb") as file:
        file.writelines(lines[:-1])
    service = Service(path, actor="sponsor:ada")
    assert service.verify()["exit_code"] == 6
    assert service.doctor()["exit_code"] == 6


def test_a_directory_in_the_place_of_a_projection_stops_nobody(workspace: str) -> None:
    path = f"{workspace}/w"
    HaltRuntime(path, "t").close()
    os.unlink(f"{path}/artifacts/registry.json")
    os.mkdir(f"{path}/artifacts/registry.json")
    with HaltRuntime.resume(path) as runtime:
        runtime.note("goes on")
    assert Service(path, actor="sponsor:ada").verify()["exit_code"] == 0


@pytest.mark.parametrize("bad", [{"task_id": "bad id"}, {"task_id": "t", "tier": 9}])
def test_a_refused_creation_leaves_nothing(workspace: str, bad: dict[str, Any]) -> None:
    with pytest.raises(HaltError):
        HaltRuntime(f"{workspace}/new", **bad)
    assert not os.path.exists(f"{workspace}/new")
