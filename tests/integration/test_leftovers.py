"""What a killed run leaves at work is found, named, ended, and nothing runs twice (F13)."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.shell import call, finish, start

# Both a child and a grandchild in a session of its own say on a pipe who they are, and stay.
TASK = """
task_id: leaves
grants: ['write:$TASK/*']
nodes:
  - id: long
    run: |
      {first}
      setsid sh -c 'echo $$ > "$PERDURE_TASK_DIR/escaped"; exec sleep 3600' &
      echo $$ > "$PERDURE_TASK_DIR/worker"; exec sleep 3600
    outputs: [artifacts/long/a.txt]
"""
AGAIN = 'test -e "$PERDURE_TASK_DIR/again" && {{ echo x > "$PERDURE_SCOPE/a.txt"; exit 0; }}'


class Scene:
    """A task whose run was killed while its commands go on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.at = str(directory)
        first = AGAIN.replace("{{", "{").replace("}}", "}")
        (directory / "task.yaml").write_text(TASK.replace("{first}", first), encoding="utf-8")
        for name in ("escaped", "worker"):
            os.mkfifo(directory / name)

    def kill_a_run(self) -> list[psutil.Process]:
        """Kill a run in the middle; its processes, all alive."""
        child = start("run", "task.yaml", cwd=self.at)
        pids = [int((self.directory / name).read_text("utf-8")) for name in ("escaped", "worker")]
        processes = [psutil.Process(pid) for pid in pids]
        child.kill()
        finish(child)
        assert all(is_alive(process) for process in processes)
        return processes

    def journal(self) -> list[dict[str, Any]]:
        path = self.directory / ".perdure/tasks/leaves/journal.jsonl"
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_resume_ends_what_a_killed_run_left_and_names_it(scene: Scene) -> None:
    left = scene.kill_a_run()
    done = call("--json", "resume", cwd=scene.at)
    assert not any(is_alive(process) for process in left)
    named = {entry[0] for entry in done.data["stopped"]}
    assert {process.pid for process in left} <= named
    assert {entry[2] for entry in done.data["stopped"]} == {"long"}
    notes = [e["payload"]["text"] for e in scene.journal() if e["kind"] == "NOTE"
             and "left running" in str(e["payload"].get("text"))]  # fmt: skip
    assert len(notes) == 1
    assert all(f"({process.pid})" in notes[0] for process in left)
    # A second time there is nothing to find.
    assert call("--json", "resume", cwd=scene.at).data["stopped"] == []


def test_doctor_names_what_is_left_and_touches_nothing(scene: Scene) -> None:
    left = scene.kill_a_run()
    before = scene.journal()
    found = call("--json", "doctor", cwd=scene.at)
    assert found.code == 1
    named = [f["finding"] for f in found.data["findings"] if f["what"] == "leftover"]
    assert all(any(f"({process.pid})" in text for text in named) for process in left)
    assert all(is_alive(process) for process in left)
    assert scene.journal() == before
    assert call("resume", cwd=scene.at).code in (0, 10)
    found = call("--json", "doctor", cwd=scene.at)
    assert not [f for f in found.data["findings"] if f["what"] == "leftover"]


def test_doctor_does_not_take_the_commands_of_a_living_run_for_leftovers(scene: Scene) -> None:
    child = start("run", "task.yaml", cwd=scene.at)
    for name in ("escaped", "worker"):
        (scene.directory / name).read_text("utf-8")
    found = call("--json", "doctor", cwd=scene.at)
    assert not [f for f in found.data["findings"] if f["what"] == "leftover"]
    child.send_signal(signal.SIGTERM)
    assert finish(child).code == 128 + signal.SIGTERM


@pytest.mark.parametrize("verb", ["resume", "doctor", "start"])
def test_what_is_left_is_found_though_a_worker_has_emptied_the_scratch_directory(
    scene: Scene, verb: str
) -> None:
    left = scene.kill_a_run()
    shutil.rmtree(scene.directory / ".perdure/tasks/leaves/tmp")
    pids = {process.pid for process in left}
    if verb == "doctor":
        told = json.dumps(call("--json", "doctor", cwd=scene.at).data["findings"])
        assert all(str(pid) in told for pid in pids)
    elif verb == "start":
        call("--actor", "coordinator:other", "fail", "long", "--reason", "killed", cwd=scene.at)
        refused = call("--json", "start", "long", cwd=scene.at)
        assert (refused.code, refused.error["code"]) == (5, "left_running"), refused.out
    done = call("--json", "resume", cwd=scene.at)
    assert pids <= {entry[0] for entry in done.data["stopped"]}
    assert not any(is_alive(process) for process in left)


def test_the_next_run_ends_what_is_left_before_the_node_starts_again(scene: Scene) -> None:
    left = scene.kill_a_run()
    (scene.directory / "again").touch()
    done = call("--json", "run", "task.yaml", cwd=scene.at)
    assert done.code == 0, done.out
    events = [json.loads(line) for line in done.out.splitlines()]
    kinds = [event.get("event") for event in events]
    assert kinds.index("orphans_stopped") < kinds.index("started")
    assert not any(is_alive(process) for process in left)


def test_a_resume_that_is_killed_in_the_middle_is_finished_by_the_next(scene: Scene) -> None:
    left = scene.kill_a_run()
    for process in left:
        process.suspend()  # so that SIGTERM waits: the first resume is still at it
    first = start("resume", cwd=scene.at)
    waits_for_the_lease(scene, first.pid)
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=50)
    for process in left:
        if is_alive(process):
            process.suspend()
    done = call("--json", "resume", cwd=scene.at)
    assert done.code in (0, 10), done.err
    assert not any(is_alive(process) for process in left)


def waits_for_the_lease(scene: Scene, pid: int) -> None:
    """Until this process holds the lease, and so has begun to put things right."""
    path = scene.directory / ".perdure/tasks/leaves/lease.json"
    while json.loads(path.read_text("utf-8")).get("pid") != pid:
        os.sched_yield()


def test_units_of_a_killed_run_are_ended_by_resume_as_well(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "worker")
    (tmp_path / "task.yaml").write_text(
        "task_id: leaves\ngrants: ['write:$TASK/*']\nnodes:\n  - id: b\n    map:\n"
        '      list: [one]\n      run: echo $$ > "$PERDURE_TASK_DIR/worker"; exec sleep 3600\n',
        encoding="utf-8",
    )
    child = start("run", "task.yaml", cwd=str(tmp_path))
    unit = psutil.Process(int((tmp_path / "worker").read_text("utf-8")))
    child.kill()
    finish(child)
    assert is_alive(unit)
    done = call("--json", "resume", cwd=str(tmp_path))
    assert unit.pid in {entry[0] for entry in done.data["stopped"]}
    assert not is_alive(unit)


def test_a_node_whose_former_attempt_still_runs_is_not_started(scene: Scene) -> None:
    """By whoever does not coordinate: a session, after a run has died and nobody has resumed."""
    left = scene.kill_a_run()
    workspace = scene.directory / ".perdure/tasks/leaves"
    # What resume would do, but for the processes: somebody ends the attempt by hand.
    failed = call(
        "--actor", "coordinator:other", "fail", "long", "--reason", "its run was killed",
        cwd=scene.at,
    )  # fmt: skip
    assert failed.code == 0, failed.err
    refused = call("--json", "start", "long", cwd=scene.at)
    assert (refused.code, refused.error["code"]) == (5, "left_running"), refused.err
    assert str(left[1].pid) in refused.error["message"]
    assert (workspace / "journal.jsonl").exists()
    assert call("resume", cwd=scene.at).code in (0, 10)
    assert not any(is_alive(process) for process in left)
    assert call("start", "long", cwd=scene.at).code == 0
