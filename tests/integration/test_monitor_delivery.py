"""Messages arrive: through real channels, with monitors that race and are killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crash.tally import chance_for
from tests.integration.monitoring import Watched
from tests.integration.shell import PERDURE, environment, finish, start
from tests.integration.talking_child import REPOSITORY
from tests.integration.webhook import Webhook

full = pytest.mark.crash_full


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with Webhook() as hook:
        yield hook


class Wired(Watched):
    """A task with one step done, whose owner has been silent since, and a webhook for each."""

    def __init__(self, workspace: str, hook: Webhook) -> None:
        super().__init__(workspace)
        self.environment = {"HOOK": hook.url, "KEY": "s3cret"}
        self.script(
            """
            init T1
            add N1 First --output artifacts/N1/a.txt
            add N2 Second --dep N1
            start N1
            write artifacts/N1/a.txt
            submit N1
            """
        )
        self.notify(
            """
            owner:
              - webhook: ${HOOK}
                headers: {X-Key: "${KEY}"}
            requester:
              - webhook: ${HOOK}
            """
        )

    @property
    def step(self) -> str:
        """The id of the message that N1 is done."""
        (done,) = [e for e in self.events() if e["payload"].get("edge") == "N06"]
        return f"T1:STEP_COMPLETED:N1:{done['ref']}"

    def notify(self, text: str) -> None:
        lines = text.strip("\n").splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip())
        yaml = "\n".join(line[indent:] for line in lines)
        Path(self.workspace, "notify.yaml").write_text(f"{yaml}\n")

    def monitor(self, *arguments: str) -> "subprocess.Popen[str]":
        return start("-C", self.workspace, "monitor", "--apply", *arguments, **self.environment)

    @property
    def file(self) -> Any:
        return json.loads(Path(self.workspace, "supervision.json").read_text())


@pytest.fixture
def task(workspace: str, hook: Webhook) -> Wired:
    return Wired(f"{workspace}/w", hook)


def test_each_receiver_gets_its_messages(task: Wired, hook: Webhook) -> None:
    report = task.look("+31m", apply=True)
    nudge, step = hook.messages
    assert (nudge["to"], nudge["kind"]) == ("owner", "NUDGE_MAIN_AGENT")
    assert (step["to"], step["kind"]) == ("requester", "STEP_COMPLETED")
    assert nudge["id"] == nudge["data"]["resume_token"] == report["resume_requests"][0]["token"]
    assert f"--resume-token {nudge['id']}" in nudge["text"]
    assert [headers["idempotency-key"] for headers in hook.headers] == [nudge["id"], step["id"]]
    assert hook.headers[0]["x-key"] == "s3cret"
    assert step["id"] == task.step
    assert "s3cret" not in Path(task.workspace, "supervision.json").read_text()
    assert task.look("+31m", apply=True)["delivered"] == []


def test_the_reply_in_the_message_is_a_call_that_works(task: Wired, hook: Webhook) -> None:
    task.look("+31m", apply=True)
    command = hook.messages[0]["text"].splitlines()[-1]
    shell = command.replace("perdure", " ".join(PERDURE), 1).replace("LETTER", "E")
    done = subprocess.run(
        ["sh", "-c", shell], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done
    assert task.look("+31m", apply=True)["resume_requests"] == []


def test_a_channel_gets_only_the_kinds_it_asks_for(
    task: Wired, hook: Webhook, tmp_path: Path
) -> None:
    got = tmp_path / "got"
    task.notify(
        f"""
        owner: []
        requester:
          - command: [sh, -c, 'cat >> {got}']
          - webhook: ${{HOOK}}
            only: [COMPLETED_HANDOFF]
        """
    )
    report = task.look("+31m", apply=True)
    assert json.loads(got.read_text())["kind"] == "STEP_COMPLETED"
    assert (hook.messages, report["updates_pending"]) == ([], 0)


def test_a_server_that_was_down_gets_it_later_and_another_channel_at_once(
    task: Wired, hook: Webhook, tmp_path: Path
) -> None:
    got = tmp_path / "got"
    task.notify(
        f"""
        requester:
          - webhook: ${{HOOK}}
          - command: [sh, -c, 'cat >> {got}']
        """
    )
    hook.status = 503
    first = task.look(apply=True)
    assert [failed["problem"] for failed in first["failed"]] == ["it answered 503"]
    assert first["updates_pending"] == 1
    assert task.file["pending_updates"][task.step]["attempts"] == 1
    hook.status = 200
    assert task.look(apply=True)["delivered"] == []  # it is not due yet
    assert task.look("+1m", apply=True)["updates_pending"] == 0
    assert hook.ids == {task.step: 2}
    assert len(got.read_text().splitlines()) == 1


def test_monitors_that_start_at_once_send_everything_once(task: Wired, hook: Webhook) -> None:
    for round_ in range(1, 4):  # each is due to ask the owner once more
        monitors = [task.monitor("--at", f"+{32 * round_}m", "--json") for _ in range(4)]
        reports = [finish(monitor).data["reports"][0] for monitor in monitors]
        assert sum(len(report["resume_requests"]) > 0 for report in reports) >= 1
        assert len(task.file["resume_requests"]) == round_
    assert max(hook.ids.values()) == 1
    assert len(hook.of_kind("STEP_COMPLETED")) == 1
    asked = [m for m in hook.messages if m["to"] == "owner"]
    assert {m["id"] for m in asked} == {r["token"] for r in task.file["resume_requests"]}


def test_a_second_monitor_only_looks_while_the_first_is_sending(task: Wired, hook: Webhook) -> None:
    hook.release.clear()
    first = task.monitor("--at", "+31m")
    assert hook.arrived.acquire(timeout=30)
    second = finish(task.monitor("--at", "+31m", "--json"))
    report = second.data["reports"][0]
    assert (second.code, report["applied"]) == (0, False)
    assert "another supervisor is at work" in report["notices"][0]
    hook.release.set()
    assert finish(first).code == 0
    assert set(hook.ids.values()) == {1}


def test_killed_between_sending_and_marking_it_sends_again_under_the_same_id(
    task: Wired, hook: Webhook
) -> None:
    hook.release.clear()
    monitor = task.monitor("--at", "+31m")
    assert hook.arrived.acquire(timeout=30)  # it is there, and nobody has said so yet
    monitor.kill()
    monitor.communicate()
    hook.release.set()
    task.look("+32m", apply=True)
    nudge, step = hook.of_kind("NUDGE_MAIN_AGENT"), hook.of_kind("STEP_COMPLETED")
    assert [message["id"] for message in nudge] == [nudge[0]["id"]] * 2
    assert len(step) == 1
    assert nudge[0] == nudge[1]


def killed_monitor(task: Wired, at: int) -> "subprocess.CompletedProcess[str]":
    """A monitor that dies at a system call."""
    arguments = ["-C", task.workspace, "monitor", "--apply", "--at", "+31m"]
    return subprocess.run(
        [sys.executable, "-m", "tests.integration.monitor_child", str(at), *arguments],
        cwd=REPOSITORY,
        env=environment(**task.environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


@pytest.mark.parametrize(
    "count", [pytest.param(6, id="some"), pytest.param(1 << 30, marks=full, id="all")]
)
def test_killed_at_any_call_it_loses_and_doubles_nothing(
    workspace: str, hook: Webhook, count: int
) -> None:
    """Between queueing and sending, between sending and marking, and everywhere else."""
    whole = killed_monitor(Wired(f"{workspace}/whole", hook), 0)
    calls = int(whole.stdout.splitlines()[-1].removeprefix("calls "))
    assert calls > 10
    points = range(1, calls + 1)
    for at in chance_for("monitor", count).sample(points, min(count, calls)):
        hook.messages.clear()
        task = Wired(f"{workspace}/w{at}", hook)
        assert killed_monitor(task, at).returncode == -signal.SIGKILL
        task.look("+31m", apply=True)
        for kind in ("NUDGE_MAIN_AGENT", "STEP_COMPLETED"):
            ids = {message["id"] for message in hook.of_kind(kind)}
            assert len(ids) == 1, (at, kind, hook.messages)
        assert len(hook.messages) <= 3, at
        assert set(task.file["delivered_updates"]) == {task.step}
        assert [r["delivery"] for r in task.file["resume_requests"]] == ["sent"]


# Watching


def test_a_watch_ends_when_everything_is_over(task: Wired, hook: Webhook) -> None:
    watch = task.monitor("--watch", "--interval", "0.2s")
    assert hook.arrived.acquire(timeout=30)
    task.script("cancel N2 --reason over\nobserve task-completed")
    done = finish(watch)
    assert done.code == 0
    assert done.out.splitlines()[0] == "T1: OK (RUNNING, CONSISTENT)"
    assert "T1: STOP_AND_DELETE (COMPLETED, CONSISTENT)" in done.out
    assert set(hook.ids.values()) == {1}


def test_a_watch_goes_on_until_the_last_message_has_arrived(task: Wired, hook: Webhook) -> None:
    task.script("cancel N2 --reason over\nobserve task-completed")
    hook.status = 503
    report = task.look(apply=True)
    assert (report["state"], report["delivering"]) == ("STOP_AND_DELETE", True)
    assert task.look("+25h", apply=True)["delivering"] is False, "a day is enough"
    Path(task.workspace, "supervision.json").unlink()
    watch = task.monitor("--watch", "--interval", "0.2s", "--json")
    assert watch.stdout is not None
    for _ in range(3):
        (report,) = json.loads(watch.stdout.readline())["data"]["reports"]
        assert (report["state"], report["delivering"]) == ("STOP_AND_DELETE", True)
    os.kill(watch.pid, signal.SIGTERM)
    assert finish(watch).code == 0
    hook.status = 204
    assert task.look("+1h", apply=True)["delivering"] is False
    assert finish(task.monitor("--watch", "--interval", "1h")).code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_watch_that_is_asked_to_end_does_so_between_two_looks(
    task: Wired, hook: Webhook, number: int
) -> None:
    hook.release.clear()
    watch = task.monitor("--watch", "--interval", "1h")
    assert hook.arrived.acquire(timeout=30)
    os.kill(watch.pid, number)  # in the middle of sending
    hook.release.set()
    assert finish(watch).code == 0
    assert task.file["delivered_updates"].keys() == {task.step}


def test_a_watch_for_programs_prints_a_line_for_each_look(task: Wired, hook: Webhook) -> None:
    watch = task.monitor("--watch", "--interval", "0.2s", "--json")
    assert watch.stdout is not None
    lines = [json.loads(watch.stdout.readline()) for _ in range(3)]
    assert [line["data"]["reports"][0]["state"] for line in lines] == ["OK"] * 3
    os.kill(watch.pid, signal.SIGTERM)
    assert finish(watch).code == 0


def test_without_a_file_the_requester_is_told_on_the_terminal(task: Wired) -> None:
    Path(task.workspace, "notify.yaml").unlink()
    out = task.perdure("monitor", "--apply").out
    assert f"to the requester: T1: a step is done  [{task.step}]" in out
    assert "a step is done" not in task.perdure("monitor", "--apply").out


def test_a_program_finds_the_messages_in_the_report_once(task: Wired) -> None:
    Path(task.workspace, "notify.yaml").unlink()
    report = task.look(apply=True)
    assert [m["id"] for m in report["messages"]] == [task.step]
    assert task.look(apply=True)["messages"] == []


def test_programs_that_look_at_several_tasks_at_once_find_a_message_once(
    task: Wired, hook: Webhook, tmp_path: Path
) -> None:
    other = Watched(str(tmp_path / "other"))  # its requester is at the terminal
    other.script("init T2\nadd N1 First")
    other.script("block N1 --reason refused --need key --safe-next-step wait")
    hook.release.clear()
    first = task.monitor("--json", other.workspace, task.workspace)
    assert hook.arrived.acquire(timeout=30)  # it is done with the other task, and has said nothing
    second = other.look(apply=True)
    assert (second["applied"], second["messages"]) == (False, [])
    hook.release.set()
    (message,) = finish(first).data["reports"][0]["messages"]
    assert message["kind"] == "BLOCKED_ESCALATE"
    third = other.look(apply=True)
    assert (third["applied"], third["messages"]) == (True, [])


def test_a_file_that_is_named_is_used_and_one_that_is_wrong_is_refused(
    task: Wired, hook: Webhook, tmp_path: Path
) -> None:
    named = tmp_path / "other.yaml"
    named.write_text("requester: [terminal]")
    task.perdure("monitor", "--apply", "--notify", str(named))
    assert hook.messages == []
    named.write_text("requester:\n  - webhook: https://example.org/?token=abc\n")
    done = task.perdure("monitor", "--apply", "--notify", str(named), code=2)
    assert "other.yaml:2:14: the address holds a value for 'token' as it is" in done.err
    task.environment["PERDURE_NOTIFY"] = str(named)
    report = task.look(apply=True)  # found, not named: it holds messages and nothing else
    assert report["notify_error"]["code"] == "notify_invalid"
