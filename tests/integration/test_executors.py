"""The executors of a run with real processes: what they may do, and how their ends are read."""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shell import Done, call, finish, start

from perdure.control.confinement import capability

held = pytest.mark.skipif(not capability().writes, reason="this kernel has no Landlock")


class Project:
    """A directory with a task file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.at = str(directory)
        self.workspace = directory / ".perdure/tasks/t"

    def run(self, nodes: str, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        """Run these nodes to their end; the events."""
        self.write(nodes)
        done = call("--json", "run", "task.yaml", *arguments, cwd=self.at)
        assert done.code == code, done.out + done.err
        return events_of(done)

    def write(self, nodes: str) -> None:
        text = f"task_id: t\nnodes:\n{nodes}"
        (self.directory / "task.yaml").write_text(text, encoding="utf-8")

    def scope(self, node: str, name: str) -> Path:
        return self.workspace / "artifacts" / node / name

    def contract(self, events: list[dict[str, Any]], node: str) -> dict[str, Any]:
        (started,) = [e for e in events if e.get("event") == "started" and e["node"] == node]
        path = self.workspace / "contracts" / f"{started['invocation']}.json"
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return found

    def journal(self) -> list[dict[str, Any]]:
        lines = (self.workspace / "journal.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]


def events_of(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


def told(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("event") == kind]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


# A Python function


def test_a_function_in_a_file_gets_its_arguments_and_its_result_is_kept(project: Project) -> None:
    (project.directory / "work.py").write_text(
        "import os, helper\n"
        "def add(a, b):\n"
        "    print('at it')\n"
        "    return {'sum': helper.plus(a, b), 'scope': os.environ['PERDURE_NODE']}\n",
        encoding="utf-8",
    )
    (project.directory / "helper.py").write_text("plus = int.__add__\n", encoding="utf-8")
    events = project.run("  - {id: p, python: {call: 'work.py:add', args: {a: 2, b: 3}}}\n")
    result = json.loads(project.scope("p", "result.json").read_text("utf-8"))
    assert result == {"sum": 5, "scope": "p"}
    (started,) = told(events, "started")
    assert started["executor"] == "python"
    log = (project.workspace / started["log"]).read_text("utf-8")
    assert log.splitlines() == ["at it", json.dumps(result)]


def test_a_function_of_a_module_may_write_its_own_files(project: Project) -> None:
    (project.directory / "mine.py").write_text(
        "import os, pathlib\n"
        "def write():\n"
        "    pathlib.Path(os.environ['PERDURE_SCOPE'], 'out.txt').write_text('done')\n",
        encoding="utf-8",
    )
    project.run("  - {id: p, python: 'mine:write', outputs: [artifacts/p/out.txt]}\n")
    assert project.scope("p", "out.txt").read_text("utf-8") == "done"
    assert not project.scope("p", "result.json").exists()


def test_a_function_that_raises_fails_with_its_traceback_in_the_log(project: Project) -> None:
    (project.directory / "bad.py").write_text(
        "def f():\n    raise ValueError('no such luck')\n", encoding="utf-8"
    )
    events = project.run("  - {id: p, python: 'bad.py:f', retry: 1}\n", code=10)
    (failed,) = told(events, "failed")
    assert failed["why"] == "exit 1"
    assert failed["death"]["mode"] == "failed"
    assert failed["death"]["first"] is True
    (started,) = told(events, "started")
    assert "ValueError: no such luck" in (project.workspace / started["log"]).read_text("utf-8")


@pytest.mark.parametrize(
    ("call_text", "said"),
    [("no_such_module_x:f", "no_such_module_x"), ("json:no_such", "no function no_such")],
)
def test_a_function_that_is_not_there_waits_for_a_person(
    project: Project, call_text: str, said: str
) -> None:
    events = project.run(f"  - {{id: p, python: '{call_text}'}}\n", code=10)
    (failed,) = told(events, "failed")
    assert (failed["state"], failed["death"]["cause"]) == ("BLOCKED", "missing_program")
    (started,) = told(events, "started")
    assert said in (project.workspace / started["log"]).read_text("utf-8")


def test_a_file_that_is_missing_is_said_before_anything_starts(project: Project) -> None:
    project.write(
        "  - {id: a, run: 'echo x > $PERDURE_SCOPE/a'}\n"
        "  - {id: p, deps: [a], python: 'no/such.py:f'}\n"
    )
    refused = call("--json", "run", "task.yaml", cwd=project.at)
    assert refused.code == 3
    error = json.loads(refused.err)["error"]
    assert error["code"] == "executor_missing"
    assert str(project.directory / "no/such.py") in error["message"]
    assert '"started"' not in refused.out
    assert not project.scope("a", "a").exists()


# What a command is held to


@held
def test_a_command_cannot_write_outside_its_scope(project: Project) -> None:
    outside = project.directory / "outside"
    events = project.run(
        "  - id: a\n"
        "    run: |\n"
        f'      echo x > {outside} || echo kept out >> "$PERDURE_SCOPE/seen"\n'
        '      echo x >> journal.jsonl || echo kept out >> "$PERDURE_SCOPE/seen"\n'
        '      echo x > artifacts/other || echo kept out >> "$PERDURE_SCOPE/seen"\n'
        '      echo told > /dev/stderr; echo x > /dev/null; : > "$(mktemp)"\n'
    )
    assert project.scope("a", "seen").read_text("utf-8") == "kept out\n" * 3
    assert not outside.exists()
    enforced = project.contract(events, "a")["enforcement"]
    assert enforced["writes"] == "landlock"
    (started,) = told(events, "started")
    assert started["enforced"]["write"][0] == "artifacts/a"
    assert "opens_workspace" not in started["enforced"]
    assert call("verify", cwd=project.at).code == 0


@held
def test_a_command_that_is_denied_waits_for_a_person_who_reads_why(project: Project) -> None:
    outside = project.directory / "outside"
    project.write(f"  - {{id: a, run: 'echo x > {outside}'}}\n")
    assert call("run", "task.yaml", cwd=project.at).code == 10
    shown = call("inbox", cwd=project.at).out
    assert "its contract grants no more" in shown
    assert "attempt 2" not in call("log", cwd=project.at).out
    assert not outside.exists()


@held
def test_a_grant_widens_what_a_command_may_write_and_says_what_that_opens(
    project: Project,
) -> None:
    (project.directory / "data").mkdir()
    events = project.run(
        "  - id: a\n"
        "    grants: ['write:$TASK/data/*', 'write:$TASK/one.txt']\n"
        '    run: \'echo x > "$PERDURE_TASK_DIR/data/f" && echo y > "$PERDURE_SCOPE/o"\'\n'
        "  - id: b\n"
        "    deps: [a]\n"
        "    grants: ['write:$TASK/*']\n"
        '    run: \'echo x > "$PERDURE_TASK_DIR/any" && echo y > "$PERDURE_SCOPE/o"\'\n'
    )
    assert (project.directory / "data/f").exists()
    assert (project.directory / "any").exists()
    opened = {e["node"]: "opens_workspace" in e["enforced"] for e in told(events, "started")}
    assert opened["b"] is True


@held
def test_units_of_a_batch_node_are_held_as_well(project: Project) -> None:
    outside = project.directory / "outside"
    project.run(
        "  - id: m\n    map:\n      list: [k]\n"
        f"      run: 'if echo x > {outside}; then echo out; else echo kept; fi'\n"
    )
    findings = project.scope("m", "findings.jsonl").read_text("utf-8")
    assert '"kept"' in findings
    assert not outside.exists()


@pytest.mark.skipif(not capability().network, reason="this kernel cannot hold the network")
def test_the_network_is_off_unless_it_is_granted(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (project.directory / "reach.py").write_text(
            "import os, socket\n"
            "try:\n"
            f"    socket.create_connection(('127.0.0.1', {port}))\n"
            "    seen = 'reached'\n"
            "except OSError:\n"
            "    seen = 'kept'\n"
            "open(os.environ['PERDURE_SCOPE'] + '/seen', 'w').write(seen)\n",
            encoding="utf-8",
        )
        line = f'{sys.executable} "$PERDURE_TASK_DIR/reach.py"'
        project.run(
            f"  - {{id: off, run: '{line}'}}\n"
            f"  - {{id: on, run: '{line}', grants: ['network:read']}}\n"
        )
    assert project.scope("off", "seen").read_text("utf-8") == "kept"
    assert project.scope("on", "seen").read_text("utf-8") == "reached"


def test_temporary_files_go_below_the_workspace(project: Project) -> None:
    project.run('  - {id: a, run: \'echo "$TMPDIR" > "$PERDURE_SCOPE/where"\'}\n')
    where = project.scope("a", "where").read_text("utf-8").strip()
    assert where == str(project.workspace / "tmp")


def test_doctor_says_what_is_enforced_and_what_is_open(project: Project) -> None:
    nodes = "  - {id: a, run: 'exit 66', grants: ['write:$TASK/*']}\n  - {id: p, human: true}\n"
    project.write(nodes)
    call("run", "task.yaml", cwd=project.at)
    data = call("--json", "doctor", cwd=project.at).data["enforcement"]
    assert data["kernel"] == capability().as_dict()
    (contract,) = data["contracts"]
    assert (contract["node"], contract["executor"]) == ("p", "session")
    assert contract["writes"] == "policy only"


@pytest.mark.parametrize(
    ("more", "is_open"),
    [
        ("outputs: [report.md]", True),  # its directory has to be opened for it to be made
        ("outputs: [out/report.md]", False),
        ("grants: ['write:$TASK/*']", True),
        ("grants: ['write:out/*']", False),
        ("outputs: [artifacts/a/o]", False),
    ],
)
def test_doctor_names_the_nodes_that_the_journal_is_not_protected_from(
    project: Project, more: str, is_open: bool
) -> None:
    project.run(f"  - {{id: a, run: exit 1, retry: 1, {more}}}\n", code=10)
    data = call("--json", "doctor", cwd=project.at).data["enforcement"]
    assert data["open"] == (["a"] if is_open else [])


# How an end is read


def test_success_without_a_file_is_a_silent_death(project: Project) -> None:
    events = project.run("  - {id: a, run: 'true', retry: 1}\n", code=10)
    (failed,) = told(events, "failed")
    assert failed["death"]["mode"] == "silent"
    assert failed["death"]["first"] is True
    assert "without proof" in failed["why"]


@pytest.mark.parametrize(
    ("command", "mode", "first"),
    [("kill -9 $$", "killed", True), ("echo half > $PERDURE_SCOPE/h; exit 3", "failed", False)],
)
def test_a_death_is_classified_by_what_the_disk_holds(
    project: Project, command: str, mode: str, first: bool
) -> None:
    project.run(f"  - {{id: a, run: '{command}', retry: 1}}\n", code=10)
    (death,) = [e["payload"]["death"] for e in project.journal() if "death" in e["payload"]]
    assert (death["mode"], death.get("first", False)) == (mode, first)


def test_a_time_limit_is_a_death_of_its_own(project: Project) -> None:
    project.run("  - {id: a, run: 'exec sleep 3600', budget: {wall: 0.1}, retry: 1}\n", code=10)
    (death,) = [e["payload"]["death"] for e in project.journal() if "death" in e["payload"]]
    assert death["mode"] == "timed_out"


def test_a_spent_quota_halts_dispatch_and_the_run_ends_for_a_person(project: Project) -> None:
    line = 'test -e "$PERDURE_TASK_DIR/paid" || {{ echo "usage limit reached"; exit 1; }}; echo x'
    nodes = "".join(
        f"  - {{id: n{i}, run: '{line.format()} > \"$PERDURE_SCOPE/o\"'}}\n" for i in range(4)
    )
    events = project.run(nodes, "--jobs", "1", code=10)
    assert len(told(events, "started")) == 2  # what failed, and nothing after it
    (halted,) = told(events, "dispatch_halted")
    assert (halted["cause"], halted["wait_s"]) == ("quota", None)
    assert halted["advice"], "what helps is said where it is told"
    assert events[-1]["data"]["halted"] == "quota"
    assert len(events[-1]["data"]["waiting"]) == 4
    (project.directory / "paid").touch()
    events = project.run(nodes, "--jobs", "1", code=0)
    assert [event["mode"] for event in told(events, "mode")] == ["C", "A"]


def test_pd_h3_units_of_a_batch_node_are_a_small_batch_behind_a_probe_as_well(
    project: Project,
) -> None:
    wall = 'run: "echo 429 too many requests; exit 1", retry: 1'
    unit = (
        "test -e tmp/landed && exit 0; mkdir tmp/alone || {{ touch tmp/flood; exit 0; }};"
        " sleep 0.3; touch tmp/landed"
    ).format()
    nodes = (
        f"  - {{id: q1, {wall}}}\n  - {{id: q2, {wall}}}\n"
        '  - {id: z, run: "while ! test -e tmp/go; do sleep 0.05; done; echo > $PERDURE_SCOPE/o"}\n'
        f"  - {{id: m, deps: [z], map: {{list: [a, b, c, d, e, f], run: '{unit}'}}}}\n"
    )
    project.write(nodes)
    child = start("--json", "run", "task.yaml", "--jobs", "8", cwd=project.at)
    assert child.stdout is not None
    events = []
    for line in child.stdout:
        events.append(json.loads(line))
        if events[-1].get("event") == "mode" and events[-1]["mode"] == "C":
            (project.workspace / "tmp" / "go").touch()
    assert finish(child).code == 10
    assert [event["mode"] for event in told(events, "mode")] == ["C", "C", "A"]
    assert (project.workspace / "tmp" / "landed").exists()
    assert not (project.workspace / "tmp" / "flood").exists()


def test_pd_h1_a_rate_of_first_deaths_sends_untouched_work_first(project: Project) -> None:
    line = (
        'test -e tmp/seen-$PERDURE_NODE && {{ echo x > "$PERDURE_SCOPE/o"; exit 0; }};'
        " touch tmp/seen-$PERDURE_NODE; exit 1"
    )
    fine = 'echo x > "$PERDURE_SCOPE/o"'
    nodes = "".join(
        f"  - {{id: n{i}, run: '{line.format() if i <= 3 else fine}'}}\n" for i in range(1, 8)
    )
    events = project.run(nodes, "--jobs", "1")
    order = [event["node"] for event in told(events, "started")]
    # In A what has died once is tried again at once; in B it waits for all that is untouched.
    assert order == ["n1", "n1", "n2", "n2", "n3", "n4", "n5", "n6", "n7", "n3"]
    assert told(events, "mode")[0]["mode"] == "B"


@pytest.mark.skipif(sys.platform != "linux", reason="setsid(1)")
def test_f13_what_a_node_leaves_running_is_named_and_stopped_and_the_node_is_over(
    project: Project,
) -> None:
    command = "setsid sleep 3600 & echo $! > $PERDURE_SCOPE/pid"
    events = project.run(f"  - {{id: a, run: '{command}'}}\n")
    (left,) = told(events, "leftovers")
    [[pid, name]] = left["processes"]
    assert (left["node"], name, str(pid)) == (
        "a",
        "sleep",
        project.scope("a", "pid").read_text().strip(),
    )
    assert not os.path.exists(f"/proc/{pid}/exe")
    assert told(events, "done")


# A slot that a person fills


def test_a_person_fills_a_slot_and_the_run_goes_on(project: Project) -> None:
    nodes = (
        "  - {id: sign, human: {who: ada}, outputs: [artifacts/sign/paper.txt]}\n"
        "  - {id: after, deps: [sign], run: 'echo x > $PERDURE_SCOPE/o'}\n"
    )
    events = project.run(nodes, code=10)
    (handed,) = told(events, "handed_over")
    assert (handed["node"], handed["to"]) == ("sign", "executor:ada")
    contract = json.loads((project.workspace / handed["contract"]).read_text("utf-8"))
    assert contract["executor"].get("kind", "session") == "session"
    assert contract["executor_kind"] == "human"
    status = call("--json", "status", cwd=project.at).data
    assert status["nodes"]["sign"] == "RUNNING"
    # It outlives another run, which hands nothing over twice.
    assert told(project.run(nodes, code=10), "handed_over") == []
    project.scope("sign", "paper.txt").write_text("signed", encoding="utf-8")
    done = call("--actor", "executor:ada", "submit", "sign", cwd=project.at)
    assert done.code == 0, done.err
    project.run(nodes, code=0)
    assert project.scope("after", "o").exists()


def test_a_run_that_waits_goes_on_when_the_person_submits(project: Project) -> None:
    project.write(
        "  - {id: sign, human: true, outputs: [artifacts/sign/paper.txt]}\n"
        "  - {id: after, deps: [sign], run: 'echo x > $PERDURE_SCOPE/o'}\n"
    )
    child = start("--json", "run", "task.yaml", "--wait", cwd=project.at)
    assert child.stdout is not None
    for line in child.stdout:
        if json.loads(line).get("event") == "handed_over":
            break
    project.scope("sign", "paper.txt").write_text("signed", encoding="utf-8")
    done = call("--actor", "executor:person", "submit", "sign", cwd=project.at)
    assert done.code == 0, done.err
    assert finish(child).code == 0
    assert project.scope("after", "o").exists()
    assert os.path.exists(project.workspace)
