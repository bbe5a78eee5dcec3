"""Each row of the table of supervision, over real calls of the command line."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.integration.monitoring import Watched, call_here
from tests.integration.shell import call, finish, start
from tests.integration.test_real_faults import until

from perdure.service.tasks import Service


@pytest.fixture
def task(workspace: str) -> Watched:
    """A task with two steps, the first of them at work."""
    watched = Watched(f"{workspace}/w")
    watched.script(
        """
        init T1
        add N1 First --output artifacts/N1/a.txt
        add N2 Second --dep N1 --output artifacts/N2/b.txt
        start N1 --actor executor:w1
        """
    )
    return watched


def finish_both(task: Watched) -> None:
    task.script(
        """
        write artifacts/N1/a.txt
        submit N1
        start N2
        write artifacts/N2/b.txt
        submit N2
        """
    )


# Line 5 and line 4: quiet, late, stale, silent


def test_work_that_is_fresh_is_left_alone(task: Watched) -> None:
    report = task.look()
    assert (report["state"], report["row"], report["action"]) == ("OK", "ok", "noop")
    assert (report["status"], report["current_step"]) == ("RUNNING", "N1")
    assert report["user_facing"]["outcome"] == "IN_PROGRESS"


@pytest.mark.parametrize(
    ("at", "state"),
    [
        ("+4m", "OK"),
        ("+6m", "HEARTBEAT_DUE"),
        ("+19m", "HEARTBEAT_DUE"),
        ("+21m", "STALE_PROGRESS"),
        ("+29m", "STALE_PROGRESS"),
        ("+31m", "NUDGE_MAIN_AGENT"),
    ],
)
def test_silence_is_met_step_by_step(task: Watched, at: str, state: str) -> None:
    report = task.look(at)
    assert report["state"] == state
    assert report["truth_state"] == "CONSISTENT"


def test_a_beat_of_an_owner_is_no_progress(task: Watched) -> None:
    task.script("beat N1")
    report = task.look("+31m")
    assert report["state"] == "NUDGE_MAIN_AGENT"
    assert report["last_heartbeat_age_sec"] == pytest.approx(31 * 60, abs=30)


def test_nudges_are_spaced_and_then_the_owner_is_asked(task: Watched) -> None:
    states = [task.look(at, apply=True)["state"] for at in ("+31m", "+40m", "+62m", "+93m")]
    assert states == ["NUDGE_MAIN_AGENT", "STALE_PROGRESS", "NUDGE_MAIN_AGENT", "OWNER_RECONCILE"]
    (request,) = task.look("+94m")["resume_requests"]
    assert request["token"].startswith("T1:N1:OWNER_RECONCILE:")


def test_hours_of_progress_are_left_alone(task: Watched) -> None:
    task.script("observe progress N1 --summary page-40")
    report = task.look("+4m")
    assert (report["state"], report["last_progress_age_sec"] < 300) == ("OK", True)


def test_waiting_for_somebody_elses_job_is_no_silence(task: Watched) -> None:
    claim = "observe external --provider slurm --job-id 4711 --state RUNNING --node N1"
    task.script(f"{claim} --fact provider_job_id=4711")
    report = task.look("+5h")
    assert report["state"] == "OK"
    assert [job["key"] for job in report["pending_external"]] == ["slurm:4711"]


# Line 2: what contradicts itself


def test_a_claim_without_the_providers_word_is_asked_about(task: Watched) -> None:
    task.script("observe external --provider slurm --job-id 4711 --state RUNNING --node N1")
    report = task.look(apply=True)
    assert (report["state"], report["row"]) == ("OWNER_RECONCILE", "suspicious_claim")
    assert report["truth_state"] == "INCONSISTENT"
    assert [job["job_id"] for job in report["suspicious_external_jobs"]] == ["4711"]
    task.script(
        "observe external --provider slurm --job-id 4711 --state RUNNING --fact poll_token=x"
    )
    assert task.look(apply=True)["state"] == "OK"


@pytest.mark.parametrize(
    ("script", "inconsistency"),
    [
        ("observe task-completed", "task:completed_but_steps_not_done:N1,N2"),
        ("observe progress N2", "step:later_before_earlier:N2:N1"),
        (
            "observe download --id d1 --status CORRUPT --path artifacts/N1/a.txt --node N1",
            "download:corrupt:d1",
        ),
        (
            """
            write artifacts/N1/a.txt
            artifact add N1 artifacts/N1/a.txt --id A1
            observe completed N1
            observe progress N1
            """,
            "step:progress_after_completion:N1",
        ),
    ],
)
def test_what_cannot_be_true_is_said(task: Watched, script: str, inconsistency: str) -> None:
    task.script(script)
    report = task.look(apply=True)
    assert (report["state"], report["row"]) == ("TRUTH_INCONSISTENT", "contradicted")
    assert inconsistency in report["inconsistencies"]
    assert report["user_facing"]["outcome"] != "SUCCESS"
    assert report["resume_requests"]
    # Within the interval the same is not sent again, and it is no calmer for that.
    again = task.look("+5m", apply=True)
    assert (again["state"], again["due"]) == ("TRUTH_INCONSISTENT", False)


def test_an_artifact_that_vanished_is_said(task: Watched) -> None:
    task.script("write artifacts/N1/a.txt\nsubmit N1")
    Path(task.workspace, "artifacts/N1/a.txt").unlink()
    report = task.look()
    assert report["inconsistencies"] == ["artifact:missing:A-N1"]


def test_an_artifact_whose_path_leads_elsewhere_is_said(task: Watched) -> None:
    task.script("write artifacts/N1/a.txt\nsubmit N1")
    path = Path(task.workspace, "artifacts/N1/a.txt")
    path.unlink()
    path.symlink_to(task.workspace + ".elsewhere")
    path.readlink().write_text("something\n")
    report = task.look()
    assert report["inconsistencies"] == ["artifact:changed:A-N1"]
    assert report["user_facing"]["artifacts"] == []


def test_three_errors_in_a_row_are_reported(task: Watched) -> None:
    for count in (1, 2, 3):
        assert task.look()["state"] == "OK", count
        task.perdure("beat", "N1", "--not-ok", "--actor", "executor:w1")
    report = task.look(apply=True)
    assert (report["state"], report["action"]) == ("EXECUTOR_UNHEALTHY", "report_executor")
    task.perdure("beat", "N1", "--actor", "executor:w1")
    assert task.look(apply=True)["state"] == "OK"


def test_output_that_is_never_finished_is_asked_for(task: Watched) -> None:
    task.script("write artifacts/N1/a.txt\nartifact add N1 artifacts/N1/a.txt --id A1")
    task.perdure("beat", "N1", "--not-ok", "--actor", "executor:w1")
    report = task.look("+31m", apply=True)
    assert (report["state"], report["action"]) == ("FINALIZATION_STALLED", "request_finalization")
    assert [output["artifact"] for output in report["user_facing"]["artifacts"]] == ["A1"]


# Line 3: blocked


BLOCK = "--need key --safe-next-step keep-what-is-there --reason refused"


def test_a_blocker_goes_to_the_requester_once_and_supervision_ends(task: Watched) -> None:
    task.script(f"block N1 {BLOCK} --failure-type AUTH_REQUIRED")
    report = task.look(apply=True)
    assert (report["state"], report["status"]) == ("BLOCKED_ESCALATE", "BLOCKED")
    (message,) = report["messages"]
    assert (message["kind"], message["to"]) == ("BLOCKED_ESCALATE", "requester")
    assert "key" in message["data"]["needs"]
    after = task.look("+1m", apply=True)
    assert (after["state"], after["row"], after["messages"]) == (
        "STOP_AND_DELETE",
        "blocked_and_escalated",
        [],
    )
    task.script("reply E --node N1")
    assert task.look(apply=True)["state"] == "OK"


def test_a_failure_that_may_pass_is_retried_twice_first(task: Watched) -> None:
    states = []
    for _ in range(3):
        task.script(f"block N1 {BLOCK} --failure-type DOWNLOAD_TIMEOUT")
        report = task.look(apply=True)
        states.append((report["state"], report["retry_count"]))
        token = report["resume_requests"][-1]["token"] if report["resume_requests"] else ""
        task.perdure("reply", "E", "--node", "N1", "--resume-token", token)
        task.script("start N1")
    assert states == [("OWNER_RECONCILE", 0), ("OWNER_RECONCILE", 1), ("BLOCKED_ESCALATE", 2)]


def test_output_comes_before_the_blocker(task: Watched) -> None:
    task.script("write artifacts/N1/a.txt\nartifact add N1 artifacts/N1/a.txt --id A1")
    task.script(f"block N1 {BLOCK} --failure-type AUTH_REQUIRED")
    report = task.look(apply=True)
    assert (report["state"], report["row"]) == ("OWNER_RECONCILE", "output_before_blocker")
    assert report["user_facing"]["outcome"] == "PARTIAL_SUCCESS"
    token = report["resume_requests"][0]["token"]
    reply = ["--reason", "refused", "--safe-next-step", "keep", "--resume-token", token]
    task.perdure("reply", "B", "--node", "N1", "--need", "key", *reply)
    report = task.look(apply=True)
    assert (report["state"], report["resume_requests"]) == ("BLOCKED_ESCALATE", [])


# Line 1: over


def test_a_completed_task_is_handed_off_and_let_go(task: Watched) -> None:
    finish_both(task)
    assert task.look(apply=True)["state"] != "STOP_AND_DELETE"  # nobody has said so
    task.script("observe task-completed --summary everything-is-there")
    report = task.look(apply=True)
    assert (report["state"], report["status"]) == ("STOP_AND_DELETE", "COMPLETED")
    assert report["user_facing"]["outcome"] == "SUCCESS"
    assert [message["kind"] for message in report["messages"]] == ["COMPLETED_HANDOFF"]
    assert task.look("+1h", apply=True)["messages"] == []


def test_a_completion_that_is_contradicted_is_not_believed(task: Watched) -> None:
    finish_both(task)
    task.script("observe external --provider p --job-id 1 --state PENDING --fact poll_token=x")
    task.script("observe task-completed")
    report = task.look(apply=True)
    assert report["state"] == "TRUTH_INCONSISTENT"
    assert report["inconsistencies"] == ["task:completed_but_external_pending:p:1"]
    assert "COMPLETED_HANDOFF" not in [message["kind"] for message in report["messages"]]
    task.script("observe external --provider p --job-id 1 --state COMPLETED")
    assert task.look(apply=True)["state"] == "STOP_AND_DELETE"


def test_a_cancelled_task_is_let_go(task: Watched) -> None:
    task.script("cancel N1 --reason over")
    task.script("cancel N2 --reason over")
    report = task.look()
    assert (report["state"], report["status"]) == ("STOP_AND_DELETE", "ABANDONED")


# Answers


@pytest.mark.parametrize("letter", ["A", "D", "E"])
def test_the_owners_answer_closes_the_request(task: Watched, letter: str) -> None:
    token = task.look("+31m", apply=True)["resume_requests"][0]["token"]
    inbox = Service(task.workspace, actor="coordinator:tester")
    assert [request["token"] for request in inbox.inbox(limit=9)["requests"]] == [token]
    task.perdure("reply", letter, "--node", "N1", "--resume-token", token)
    assert inbox.inbox(limit=9)["requests"] == []
    assert task.look("+31m", apply=True)["resume_requests"] == []


# The field cases


SLOW = """
import os
open(os.environ["PERDURE_SCOPE"] + "/ready", "w").close()
open("reached", "w").write(str(os.getpid()))
open("go").read()
open(os.environ["PERDURE_SCOPE"] + "/out.txt", "w").write("done")
"""
TASK = """
task_id: slow
grants: ['write:$TASK/*']
nodes:
  - id: N1
    title: One long call
    run: [python, slow.py]
    outputs: [artifacts/N1/out.txt]
"""


class Run:
    """``perdure run`` with a command that has come to its long call and waits in it."""

    def __init__(self, directory: str) -> None:
        self.task = Watched(f"{directory}/w")
        self.file = f"{directory}/task.yaml"
        os.makedirs(self.task.workspace)
        Path(self.task.workspace, "slow.py").write_text(SLOW)
        Path(self.file).write_text(TASK)
        os.mkfifo(f"{self.task.workspace}/reached")
        os.mkfifo(f"{self.task.workspace}/go")
        self.process = start("-C", self.task.workspace, "run", self.file)
        self.worker = int(Path(self.task.workspace, "reached").read_text())
        # The command may come here before the run has written its pid down.
        until(lambda: list(Path(self.task.workspace, "tmp/run").glob("*.json")) or None)

    def let_go(self) -> None:
        Path(self.task.workspace, "go").write_text("")

    def kill(self) -> None:
        """SIGKILL for the run and for its command."""
        self.process.kill()
        self.process.communicate()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.worker, signal.SIGKILL)


@pytest.fixture
def run(workspace: str) -> Iterator[Run]:
    run = Run(workspace)
    yield run
    run.kill()


def test_f11_a_killed_worker_is_suspected_and_the_owner_asked(run: Run) -> None:
    assert run.task.look()["suspected"] == {}
    run.kill()
    report = run.task.look(apply=True)
    assert (report["state"], report["row"], report["to"]) == (
        "OWNER_RECONCILE",
        "may_be_dead",
        "owner",
    )
    said = report["suspected"]["N1"]
    assert str(run.process.pid) in said["observation"]
    assert said["policy"]
    assert "may have died" in " ".join(report["user_facing"]["honesty_notes"])
    (request,) = report["resume_requests"]
    assert request["step"] == "N1"
    # It says so each time it is asked, sends it again after the interval, and decides nothing.
    assert run.task.look("+5m", apply=True)["due"] is False
    assert run.task.look("+31m", apply=True)["due"] is True
    assert run.task.perdure("status", "--json").data["nodes"] == {"N1": "RUNNING"}


def test_f12_a_worker_that_is_silent_in_one_long_call_is_left_alone(run: Run) -> None:
    for at in ("+10m", "+25m", "+40m"):
        report = run.task.look(at, apply=True)
        assert report["state"] in ("HEARTBEAT_DUE", "STALE_PROGRESS", "NUDGE_MAIN_AGENT")
        assert report["suspected"] == {}
    assert psutil.Process(run.worker).status() != psutil.STATUS_ZOMBIE
    run.let_go()
    assert finish(run.process).code == 0
    assert run.task.perdure("status", "--json").data["nodes"] == {"N1": "DONE"}
    assert [event["payload"]["edge"] for event in run.task.events("STATE_TRANSITION")
            if event["entity"]["id"] == "N1"] == ["N01", "N02", "N03", "N06"]  # fmt: skip


def test_f12_a_session_that_is_silent_for_long_still_delivers(task: Watched) -> None:
    assert task.look("+40m", apply=True)["state"] == "NUDGE_MAIN_AGENT"
    task.script("write artifacts/N1/a.txt\nsubmit N1")
    assert task.perdure("status", "--json").data["nodes"]["N1"] == "DONE"


# Several workspaces, and none


def test_one_that_cannot_be_looked_at_hides_no_other(task: Watched, tmp_path: Path) -> None:
    damaged = Watched(str(tmp_path / "damaged"))
    damaged.script("init T2\nnote one\nnote two")
    journal = Path(damaged.workspace, "journal.jsonl")
    journal.write_bytes(journal.read_bytes().replace(b"one", b"eno"))
    Path(damaged.workspace, ".snapshot.json").unlink()
    nowhere = str(tmp_path / "nowhere")
    done = call_here("monitor", "--json", damaged.workspace, task.workspace, nowhere)
    assert done.code == 0
    states = [(report["state"], (report["error"] or {}).get("code")) for report in
              done.data["reports"]]  # fmt: skip
    assert states == [("ERROR", "journal_corrupt"), ("OK", None), ("ERROR", "no_workspace")]
    assert not os.path.exists(nowhere)
    alone = call_here("monitor", "--json", damaged.workspace)
    assert (alone.code, alone.out, alone.error["code"]) == (6, "", "journal_corrupt")
    both = call_here("monitor", "--apply", nowhere, damaged.workspace)
    assert both.code == 3
    assert "none of 2 workspaces" in both.err
    assert not os.path.exists(nowhere)


def test_a_project_means_its_current_task(tmp_path: Path) -> None:
    assert call("init", "T3", cwd=str(tmp_path)).code == 0
    for done in (
        call("monitor", "--json", str(tmp_path)),
        call("monitor", "--json", cwd=str(tmp_path)),
    ):
        assert [report["task_id"] for report in done.data["reports"]] == ["T3"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--at", "later"], "bad_time"),
        (["--at", "+"], "bad_time"),
        (["--at", "2026-13-01"], "bad_time"),
        (["--at", "+99999999d", "--apply"], "bad_time"),
        (["--at", "0001-01-01T00:00:00+14:00"], "bad_time"),
        (["--at", "+1h", "--watch"], "usage"),
        (["--watch", "--schedule"], "usage"),
        (["--interval", "5m"], "usage"),
        (["--watch", "--interval", "soon"], "bad_interval"),
        (["--schedule", "--interval", "7m"], "interval_refused"),
        (["--apply", "--notify", "nowhere.yaml"], "no_notify_file"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(
    task: Watched, arguments: list[str], code: str
) -> None:
    done = call_here("-C", task.workspace, "monitor", "--json", *arguments)
    assert done.error["code"] == code
    assert done.code in (2, 3)
    assert not Path(task.workspace, "supervision.json").exists()


def test_a_moment_may_be_named_in_several_ways(task: Watched) -> None:
    for at in ("2031-05-01T10:00:00Z", "2031-05-01T12:00:00+02:00", "2031-05-01T10:00+00:00"):
        done = call_here("-C", task.workspace, "monitor", "--json", "--at", at)
        assert done.data["generated_at"] == "2031-05-01T10:00:00.000+00:00"


def test_people_read_what_it_says_and_why(task: Watched) -> None:
    done = task.perdure("monitor", "--at", "+31m")
    first = done.out.splitlines()[0]
    assert first == "T1: NUDGE_MAIN_AGENT (RUNNING, CONSISTENT)"
    assert "  reason     No progress for 31 min" in done.out
    assert "  then " in done.out
