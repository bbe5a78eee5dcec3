"""Runs that send auditors: real processes, a stand-in that knows nothing but its contract."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.test_run import Project
from tests.integration import shell

from perdure.control.confinement import capability
from perdure.core.audits import audits_max
from perdure.errors import NotFoundError

AUDITOR = str(Path(__file__).parent / "standins" / "auditor.py")
OUT = "artifacts/write/out.txt"


@pytest.fixture
def project(workspace: str) -> Project:
    return Project(workspace)


def judge(*deeds: str) -> list[str]:
    """The command of an auditor that does one of these each time, the last one for ever."""
    if len(deeds) == 1:
        return [sys.executable, AUDITOR, deeds[0]]
    return [sys.executable, AUDITOR, ",".join(deeds), "contracts"]


def task(audit: dict[str, Any], **more: Any) -> str:
    """A task of one node that asks for an audit; YAML reads JSON."""
    node = {
        "id": "write",
        "title": "Write it",
        "run": 'echo "$PERDURE_NODE" >> "$PERDURE_TASK_DIR/started"; '
        'echo work > "$PERDURE_SCOPE/out.txt"',
        "grants": ["write:$TASK/started"],
        "accept": [{"nonempty": OUT}, {"audit": {"rubric": ["It is so", "All of it"], **audit}}],
        **more,
    }
    return json.dumps({"task_id": "t", "nodes": [node]})


def audits(project: Project) -> list[dict[str, Any]]:
    return [
        event.payload
        for event in project.journal()
        if event.kind == "NOTE" and event.payload.get("op") == "audit"
    ]


def test_a_run_sends_an_auditor_and_finishes_by_its_verdict(project: Project) -> None:
    report = project.run(task({"run": judge("pass")}))
    assert report["outcome"] == "finished"
    [audit] = audits(project)
    assert (audit["integrity"], audit["passed"]) == ("clean", True)
    assert audit["independence"] == ["I1", "I2", "I4", "I5"]
    done = [e for e in project.journal() if e.payload.get("edge") == "N06"]
    assert [(e.payload["level"], e.payload["verifier"]) for e in done] == [
        ("V2", audit["verifier"])
    ]
    assert [e["node"] for e in project.told("audit_started")] == ["write"]
    assert [e["passed"] for e in project.told("audited")] == [True]


def test_work_that_does_not_pass_is_done_again_and_audited_again(project: Project) -> None:
    other = 'echo start >> "$PERDURE_TASK_DIR/started"; env > "$PERDURE_SCOPE/out.txt"'
    report = project.run(task({"run": judge("fail", "pass")}, run=other))
    assert report["outcome"] == "finished"
    assert project.edges("write") == ["N01", "N02", "N03", "N07", "N11", "N03", "N06"]
    assert [audit["passed"] for audit in audits(project)] == [False, True]
    assert project.starts() == ["start", "start"]


def test_an_agent_is_sent_to_judge_and_its_model_is_on_record(project: Project) -> None:
    agent = {"agent": "command", "command": [sys.executable, AUDITOR, "pass"], "model": "m-1"}
    report = project.run(task({"agent": agent}))
    assert report["outcome"] == "finished"
    [audit] = audits(project)
    assert (audit["model"], audit["integrity"]) == ("m-1", "clean")


def test_an_agent_that_is_not_installed_is_named_before_anything_starts(project: Project) -> None:
    with pytest.raises(NotFoundError) as caught:
        project.run(task({"agent": {"agent": "command", "command": ["no-such-judge"]}}))
    assert caught.value.code == "executor_missing"
    assert project.starts() == []


def test_the_same_content_is_not_audited_twice(project: Project) -> None:
    report = project.run(task({"run": judge("fail", "pass")}))
    assert report["outcome"] == "failed"
    assert project.edges("write")[-1] == "N08"
    assert [audit["passed"] for audit in audits(project)] == [False]


@pytest.mark.parametrize("deed", ["nothing", "garbage", "die"])
def test_an_auditor_without_a_verdict_costs_the_work_nothing(project: Project, deed: str) -> None:
    report = project.run(task({"run": judge(deed, "pass")}))
    assert report["outcome"] == "finished"
    assert [audit["integrity"] for audit in audits(project)] == ["suspect", "clean"]
    assert project.starts() == ["write"]


def test_an_auditor_that_meets_a_wall_is_sent_again_a_little_later(project: Project) -> None:
    report = project.run(task({"run": judge("limited", "pass")}))
    assert report["outcome"] == "finished"
    first, second = audits(project)
    assert "rate limit" in first["diagnosis"]
    assert second["integrity"] == "clean"


def test_an_audit_that_can_have_no_contract_leaves_the_node_to_a_person(project: Project) -> None:
    deep = "/".join(letter * 240 for letter in "abcd")
    many = f'cd "$PERDURE_SCOPE"; mkdir -p {deep}; for n in $(seq 200); do : > {deep}/$n; done'
    accept = [{"audit": {"run": judge("pass")}}]
    report = project.run(task({}, run=many, accept=accept))
    assert (report["outcome"], report["waiting"]) == ("needs_person", ["write"])
    assert "contract" in project.told("refused")[0]["why"]


def test_audits_that_keep_coming_to_nothing_are_put_to_a_person(project: Project) -> None:
    report = project.run(task({"run": ["/does/not/exist"]}))
    assert report["outcome"] == "needs_person"
    assert len(audits(project)) == audits_max
    [text] = report["questions"].values()
    assert "/does/not/exist" in text
    assert project.node("write")["state"] == "VERIFYING"


def test_an_auditor_that_writes_outside_is_kept_out_or_found_out(project: Project) -> None:
    report = project.run(task({"run": judge("tamper")}))
    audit = audits(project)[0]
    if capability().writes:
        assert (audit["integrity"], report["outcome"]) == ("clean", "finished")
        assert (Path(project.workspace) / OUT).read_text(encoding="utf-8") == "work\n"
    else:
        assert (audit["integrity"], audit["diagnosis"]) == (
            "violation",
            f"{OUT} changed while it was audited",
        )


def test_a_tampered_product_is_a_violation_where_the_kernel_holds_nobody(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perdure.control import audits as slots
    from perdure.control import confinement

    unable = confinement.Capability(0)
    monkeypatch.setattr(confinement, "capability", lambda: unable)
    monkeypatch.setattr(slots, "capability", lambda: unable)
    report = project.run(task({"run": judge("tamper")}))
    assert audits(project)[0]["integrity"] == "violation"
    assert report["outcome"] != "finished"
    assert "N06" not in project.edges("write")


def test_an_auditor_that_exceeds_its_time_is_stopped(project: Project) -> None:
    report = project.run(task({"run": judge("hang", "pass"), "timeout": 0.2}))
    assert report["outcome"] == "finished"
    first = audits(project)[0]
    assert (first["integrity"], first["diagnosis"]) == ("suspect", "timed out after 0.2 s")


def test_a_run_that_is_stopped_stops_its_auditor_and_the_next_sends_another(
    project: Project,
) -> None:
    def stop(event: dict[str, Any], interrupt: Any) -> None:
        if event["event"] == "audit_started":
            interrupt(signal.SIGTERM)

    text = task({"run": judge("hang", "pass")})
    assert project.run(text, on=stop)["outcome"] == "interrupted"
    assert audits(project) == []
    assert project.run(text)["outcome"] == "finished"
    assert project.starts() == ["write"]


def test_a_node_that_names_no_auditor_waits_for_one_from_outside(project: Project) -> None:
    report = project.run(task({}))
    assert (report["outcome"], report["waiting"]) == ("needs_person", ["write"])
    assert len(project.told("audit_asked")) == 1
    items = [{"point": n, "passed": True} for n in (1, 2)]
    path = Path(project.directory) / "verdict.json"
    path.write_text(json.dumps({"verdict": "pass", "items": items}), encoding="utf-8")
    shown = shell.call("-C", project.workspace, "judge", "write", "--json")
    assert shown.data["rubric"] == ["It is so", "All of it"]
    done = shell.call(
        "-C", project.workspace, "judge", "write", "--verdict", str(path),
        "--actor", "verifier:ann",
    )  # fmt: skip
    assert (done.code, "write is DONE" in done.out) == (0, True), done
    assert project.run(task({}))["outcome"] == "finished"


def test_a_message_with_the_verdict_reaches_a_run_that_waits_for_it(project: Project) -> None:
    """The verdict comes in through the drop box; the run itself verifies what rests on it."""
    path = Path(project.directory) / "task.json"
    path.write_text(task({}), encoding="utf-8")
    said = {"verdict": "pass", "items": [{"point": n, "passed": True} for n in (1, 2)]}
    verdict = Path(project.directory) / "verdict.json"
    verdict.write_text(json.dumps(said), encoding="utf-8")
    run = shell.start("-C", project.workspace, "run", str(path), "--wait", "--json")
    try:
        assert run.stdout is not None
        for line in run.stdout:
            if '"audit_asked"' in line:
                break
        sent = shell.call(
            "-C", project.workspace, "judge", "write", "--verdict", str(verdict),
            "--actor", "verifier:ann",
        )  # fmt: skip
        assert sent.code == 0, sent
        out, err = run.communicate(timeout=50)
    finally:
        run.kill()
    assert run.returncode == 0, (out, err)
    assert project.node("write")["state"] == "DONE"


@pytest.mark.parametrize("left", ["record", "no record"])
def test_a_coordinator_that_is_killed_leaves_an_auditor_that_the_next_run_ends(
    project: Project, left: str
) -> None:
    path = Path(project.directory) / "task.json"
    path.write_text(task({"run": judge("hang", "pass")}), encoding="utf-8")
    run = shell.start("-C", project.workspace, "run", str(path), "--json")
    assert run.stdout is not None
    for line in run.stdout:
        if '"audit_started"' in line:
            break
    record = next((Path(project.workspace) / "tmp" / "run").glob("inv-*.json"))
    pid = json.loads(record.read_text(encoding="utf-8"))["pid"]
    run.kill()
    run.communicate()
    if left == "no record":  # a worker may write there
        record.unlink()
    again = shell.call("-C", project.workspace, "run", str(path))
    assert again.code == 0, again
    assert not _alive(pid)
    assert project.starts() == ["write"]
    assert [audit["integrity"] for audit in audits(project)] == ["clean"]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stream:
        return stream.read().rpartition(")")[2].split()[0] != "Z"
