"""``perdure run`` and ``perdure log --follow`` as people start, watch and stop them."""

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import termios
from pathlib import Path

import pytest
from tests.integration.shell import PERDURE, call, environment, finish, start

TASK = """
task_id: small
grants: ['write:$TASK/*']
nodes:
  - id: first
    run: echo one > "$PERDURE_SCOPE/a.txt"
    outputs: [artifacts/first/a.txt]
  - id: second
    deps: [first]
    run: wc -c < artifacts/first/a.txt > "$PERDURE_SCOPE/b.txt"
    outputs: [artifacts/second/b.txt]
"""

# Says on a pipe that it is at work, and ends when somebody reads from the other one.
WAITING = """
task_id: waits
grants: ['write:$TASK/*']
nodes:
  - id: long
    run: echo at work > "$PERDURE_TASK_DIR/at-work"; echo x > "$PERDURE_TASK_DIR/gate";
      echo done > "$PERDURE_SCOPE/a.txt"
    outputs: [artifacts/long/a.txt]
  - id: after
    deps: [long]
    run: echo done > "$PERDURE_SCOPE/a.txt"
    outputs: [artifacts/after/a.txt]
"""


def write_task(directory: Path, text: str) -> str:
    (directory / "task.yaml").write_text(text, encoding="utf-8")
    return str(directory / "task.yaml")


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A directory with a task that waits for its gate to be opened."""
    write_task(tmp_path, WAITING)
    os.mkfifo(tmp_path / "at-work")
    os.mkfifo(tmp_path / "gate")
    return tmp_path


def wait_until_at_work(directory: Path) -> None:
    assert (directory / "at-work").read_text(encoding="utf-8") == "at work\n"


def open_the_gate(directory: Path) -> None:
    assert (directory / "gate").read_text(encoding="utf-8") == "x\n"


def test_run_tells_what_happens_and_where_the_work_is(tmp_path: Path) -> None:
    done = call("run", "task.yaml", cwd=os.path.dirname(write_task(tmp_path, TASK)))
    assert (done.code, done.err) == (0, "")
    lines = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in done.out.splitlines()]
    assert lines == [
        "task small at J-2",
        "graph 2 added",
        "started first (attempt 1)",
        "done first  1/2",
        "started second (attempt 1)",
        "done second  2/2",
        "finished: 2 DONE",
        f"  workspace  {tmp_path}/.perdure/tasks/small",
    ]
    again = call("run", "task.yaml", cwd=str(tmp_path))
    assert again.code == 0
    assert "started" not in again.out
    assert call("status", cwd=str(tmp_path)).out.startswith("task small: FINAL_AUDIT")


def test_run_for_programs_is_a_line_of_json_for_each_event(tmp_path: Path) -> None:
    task = write_task(tmp_path, TASK)
    done = call("-C", str(tmp_path / "w"), "run", task, "--json")
    assert done.code == 0
    *events, last = [json.loads(line) for line in done.out.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds == ["opened", "graph", "started", "done", "started", "done", "finished"]
    assert last["schema_version"] == 1
    assert last["data"]["outcome"] == "finished"
    assert last["data"]["counts"] == {"DONE": 2}


def test_run_that_needs_somebody_says_what_to_do(tmp_path: Path) -> None:
    task = write_task(tmp_path, "task_id: t\nnodes:\n  - {id: sign, title: Sign it}\n")
    done = call("-C", str(tmp_path / "w"), "run", task)
    assert done.code == 10
    assert "a person is needed: 1 PENDING" in done.out
    assert "waiting    sign" in done.out
    assert f"perdure -C {tmp_path}/w next" in done.out
    report = call("-C", str(tmp_path / "w"), "run", task, "--json")
    assert report.code == report.data["exit_code"] == 10
    assert report.data["waiting"] == ["sign"]


def test_run_whose_node_is_given_up_has_failed(tmp_path: Path) -> None:
    # Every check of every attempt fails, so it is quarantined when its strikes are used up.
    node = "{id: bad, run: 'true', outputs: none, accept: ['script: false'], retry: 2}"
    task = write_task(tmp_path, f"task_id: t\nnodes:\n  - {node}\n")
    done = call("-C", str(tmp_path / "w"), "run", task)
    assert done.code == 1, done.out
    assert "failed bad: script: exit code 1" in done.out
    assert "failed: 1 QUARANTINED" in done.out
    assert "show bad" in done.out
    step = call("-C", str(tmp_path / "w"), "next").out
    assert "nothing to start: bad was given up (QUARANTINED)" in step


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_a_run_at_a_commit_boundary(waiting: Path, number: signal.Signals) -> None:
    child = start("run", "task.yaml", cwd=str(waiting))
    wait_until_at_work(waiting)
    child.send_signal(number)
    done = finish(child)
    assert done.code == 128 + number
    assert f"stopping at the next commit boundary (signal {number.value})" in done.out
    assert "interrupted long RETRYABLE" in done.out
    assert "interrupted: 1 RETRYABLE, 1 PENDING" in done.out
    assert "run the same line again" in done.out
    assert call("verify", cwd=str(waiting)).code == 0
    assert call("status", cwd=str(waiting)).out.startswith("task waits: SUSPENDED")

    child = start("run", "task.yaml", cwd=str(waiting))
    wait_until_at_work(waiting)
    open_the_gate(waiting)
    again = finish(child)
    assert again.code == 0, again.out
    assert "started long (attempt 2)" in again.out


def test_run_whose_window_is_closed_stops_at_a_commit_boundary(waiting: Path) -> None:
    window, terminal = os.openpty()
    child = subprocess.Popen(
        [*PERDURE, "run", "task.yaml"],
        cwd=waiting,
        env=environment(TERM="xterm"),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  (no threads)
    )
    os.close(terminal)
    wait_until_at_work(waiting)
    os.close(window)
    assert child.wait(timeout=50) == 128 + signal.SIGHUP
    assert call("verify", cwd=str(waiting)).code == 0
    assert call("status", cwd=str(waiting)).out.startswith("task waits: SUSPENDED")


def test_run_under_nohup_outlives_the_window(waiting: Path) -> None:
    script = f"trap '' HUP; exec {shlex.join(PERDURE)} run task.yaml"
    child = subprocess.Popen(
        ["/bin/sh", "-c", script], cwd=waiting, env=environment(), stdout=subprocess.PIPE, text=True
    )
    wait_until_at_work(waiting)
    child.send_signal(signal.SIGHUP)
    open_the_gate(waiting)
    out, _ = child.communicate(timeout=50)
    assert child.returncode == 0, out


def test_effect_of_a_run_that_was_killed_is_not_repeated(waiting: Path) -> None:
    text = WAITING.replace("task_id: waits", "task_id: waits\nstanding_authorities: [long]")
    write_task(waiting, text.replace("- id: long", "- id: long\n    effect: S3"))
    child = start("run", "task.yaml", cwd=str(waiting))
    wait_until_at_work(waiting)
    child.kill()
    finish(child)
    again = call("run", "task.yaml", cwd=str(waiting))
    assert again.code == 10, again.out
    assert "started long" not in again.out
    assert "BLOCKED until a person says whether the effect happened" in again.out
    status = call("status", cwd=str(waiting))
    assert "external effect probably done" in status.out
    # It had happened, says a person; so the gate is not waited at again.
    assert call("receipt", "long", "--proof", "seen in the shop", cwd=str(waiting)).code == 0
    text = text.replace("run: echo at work", 'run: test -n "$PERDURE_RECEIPT" || echo at work')
    text = text.replace('echo x > "$PERDURE_TASK_DIR/gate";', "")
    write_task(waiting, text.replace("- id: long", "- id: long\n    effect: S3"))
    assert call("run", "task.yaml", cwd=str(waiting)).code == 0


def test_second_run_of_a_task_is_told_who_runs_it(waiting: Path) -> None:
    child = start("run", "task.yaml", cwd=str(waiting))
    wait_until_at_work(waiting)
    second = call("run", "task.yaml", cwd=str(waiting))
    assert second.code == 5
    assert "lease" in second.err
    assert str(child.pid) in second.err
    open_the_gate(waiting)
    assert finish(child).code == 0


def test_pause_lets_a_run_finish_what_is_at_work(waiting: Path) -> None:
    child = start("run", "task.yaml", cwd=str(waiting))
    wait_until_at_work(waiting)
    paused = call("pause", "--reason", "the night", cwd=str(waiting))
    assert paused.code == 0
    open_the_gate(waiting)
    done = finish(child)
    assert done.code == 10
    assert "paused:" in done.out
    assert "started after" not in done.out
    assert call("run", "task.yaml", cwd=str(waiting)).code == 0


def test_reader_that_goes_away_does_not_stop_the_work(waiting: Path) -> None:
    child = start("run", "task.yaml", cwd=str(waiting))
    assert child.stdout is not None
    assert child.stderr is not None
    assert "task waits" in child.stdout.readline()
    wait_until_at_work(waiting)
    child.stdout.close()
    open_the_gate(waiting)
    assert child.wait(timeout=50) == 0
    assert child.stderr.read() == ""
    child.stderr.close()
    assert "2 of 2 done" in call("status", cwd=str(waiting)).out


def test_answer_that_nobody_reads_is_no_fault(tmp_path: Path) -> None:
    assert call("init", "T1", cwd=str(tmp_path)).code == 0
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*PERDURE, "status"],
        cwd=tmp_path,
        env=environment(),
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        timeout=50,
    )
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 141


def test_call_with_closed_output_does_its_work_quietly(tmp_path: Path) -> None:
    command = " ".join(map(shlex.quote, [*PERDURE, "init", "T1"]))
    done = subprocess.run(
        f"{command} >&-",
        shell=True,
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        check=False,
        timeout=50,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert call("status", cwd=str(tmp_path)).code == 0


def read_all(terminal: int) -> str:
    """What was written to a terminal, until its last writer has gone."""
    found = b""
    while True:
        try:
            more = os.read(terminal, 65_536)
        except OSError:  # Linux says so instead of an end of file
            more = b""
        if not more:
            return found.decode()
        found += more


@pytest.mark.parametrize("colour", [True, False])
def test_terminal_shows_bars_and_keeps_the_lines(tmp_path: Path, colour: bool) -> None:
    task = write_task(tmp_path, TASK)
    ours, theirs = pty.openpty()
    said = environment(
        TERM="xterm-256color", COLUMNS="100", **({} if colour else {"NO_COLOR": "1"})
    )
    if colour:
        said.pop("NO_COLOR", None)
    child = subprocess.Popen([*PERDURE, "run", task], env=said, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = read_all(ours)
    os.close(ours)
    assert child.wait(timeout=50) == 0, text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "done second  2/2" in plain
    assert "━" in plain, "a bar"
    assert "finished: 2 DONE" in plain
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1, "the cursor is back"
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]", text)) is colour


def test_log_that_is_followed_shows_events_as_they_are_committed(tmp_path: Path) -> None:
    assert call("init", "T1", cwd=str(tmp_path)).code == 0
    child = start("log", "--after", "1", "--follow", "--json", cwd=str(tmp_path))
    assert child.stdout is not None
    assert json.loads(child.stdout.readline())["ref"] == "J-2"
    assert call("note", "said meanwhile", cwd=str(tmp_path)).code == 0
    event = json.loads(child.stdout.readline())
    assert (event["ref"], event["payload"]["text"]) == ("J-3", "said meanwhile")
    child.send_signal(signal.SIGINT)
    assert finish(child).code == 130
