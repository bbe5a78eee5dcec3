"""Agents get their own command line, and their end is read as they print it.

The files in ``agent_outputs`` are what Claude Code 2.1.332, Codex 0.171.0 and Gemini CLI 0.61.0
printed when they talked to a scripted model API.
"""

from pathlib import Path
from typing import Any

import pytest

from perdure.control import agents
from perdure.control.agents import AgentExecutor, agent_wall_s
from perdure.control.confinement import Capability
from perdure.control.executor_port import Order, Report
from perdure.control.outcome import Ended
from perdure.core.actions import AgentCall
from perdure.core.dispatching import Usage
from perdure.core.model import Budget, MapSpec, Node, Spec
from perdure.errors import NotFoundError

OUTPUTS = Path(__file__).with_name("agent_outputs")
MESSAGE = "Read contracts/inv-1.json and carry it out; everything you need is in it."


def order(tmp_path: Path, spec: Spec | None = None, **environment: str) -> Order:
    node = Node("n", "n", spec or Spec())
    return Order(
        node,
        "inv-1",
        "/w/contracts/inv-1.json",
        MESSAGE,
        "/w",
        "/w/artifacts/n",
        "/task",
        str(tmp_path / "inv-1.out"),
        {"HOME": "/home/ada", **environment},
    )


def words(tmp_path: Path, call: AgentCall, spec: Spec | None = None) -> list[str]:
    command = AgentExecutor(call).launch(order(tmp_path, spec)).command
    assert isinstance(command, tuple)
    return list(command)


def end(
    tmp_path: Path, agent: Any, output: str | bytes = b"", exit_code: int | None = 0, **more: Any
) -> Report:
    data = (OUTPUTS / output).read_bytes() if isinstance(output, str) else output
    (tmp_path / "inv-1.out").write_bytes(data)
    call = AgentCall(agent, ("x",) if agent == "command" else (), model=more.pop("model", ""))
    ended = Ended(more.pop("how", "exited"), exit_code, wall_s=2.5, **more)
    return AgentExecutor(call).read_end(order(tmp_path), ended)


# The command line


def test_claude_is_started_with_the_message_and_may_edit_files(tmp_path: Path) -> None:
    assert words(tmp_path, AgentCall("claude", model="m", args=("--verbose",))) == [
        "claude", "-p", MESSAGE, "--output-format", "json", "--permission-mode", "acceptEdits",
        "--model", "m", "--verbose",
    ]  # fmt: skip


def test_claude_is_told_what_one_attempt_may_spend(tmp_path: Path) -> None:
    budget = Budget(max_cost_usd=1.5)
    assert words(tmp_path, AgentCall("claude"), Spec(budget=budget))[-2:] == [
        "--max-budget-usd", "1.5",
    ]  # fmt: skip
    many = Spec(budget=budget, map=MapSpec(list=("a",), agent=AgentCall("claude")))
    assert "--max-budget-usd" not in words(tmp_path, AgentCall("claude"), many)


@pytest.mark.parametrize(("abi", "sandbox"), [(4, "danger-full-access"), (0, "workspace-write")])
def test_codex_has_its_own_sandbox_only_where_it_is_not_in_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abi: int, sandbox: str
) -> None:
    monkeypatch.setattr(agents, "capability", lambda: Capability(abi))
    assert words(tmp_path, AgentCall("codex", model="m", args=("--ephemeral",))) == [
        "codex", "exec", "--json", "-o", str(tmp_path / "inv-1.last.txt"), "--skip-git-repo-check",
        "--sandbox", sandbox, "--model", "m", "--ephemeral", "--", MESSAGE,
    ]  # fmt: skip


def test_gemini_is_started_with_the_message_and_may_edit_files(tmp_path: Path) -> None:
    assert words(tmp_path, AgentCall("gemini", model="m")) == [
        "gemini", "-p", MESSAGE, "-o", "json", "--skip-trust", "--approval-mode", "auto_edit",
        "-m", "m",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("agent", "own", "left_out"),
    [
        ("claude", "--permission-mode=plan", "acceptEdits"),
        ("claude", "--dangerously-skip-permissions", "acceptEdits"),
        ("codex", "-s", "--sandbox"),
        ("gemini", "--yolo", "--approval-mode"),
    ],
)
def test_what_the_user_says_of_permissions_takes_the_place_of_the_default(
    tmp_path: Path, agent: Any, own: str, left_out: str
) -> None:
    found = words(tmp_path, AgentCall(agent, args=(own,)))
    assert own in found
    assert left_out not in found


def test_template_is_filled_in_once(tmp_path: Path) -> None:
    call = AgentCall("command", ("tool", "--in={contract}", "{scope}/x", "{task_dir}", "{other}"))
    assert words(tmp_path, call) == [
        "tool", "--in=/w/contracts/inv-1.json", "/w/artifacts/n/x", "/task", "{other}", MESSAGE,
    ]  # fmt: skip
    assert words(tmp_path, AgentCall("command", ("a", "say {message}!"))) == [
        "a",
        f"say {MESSAGE}!",
    ]


def test_program_of_a_template_with_a_relative_path_lies_beside_the_task_file(
    tmp_path: Path,
) -> None:
    assert words(tmp_path, AgentCall("command", ("./bin/agent",)))[0] == "/task/bin/agent"
    assert words(tmp_path, AgentCall("command", ("/opt/agent",)))[0] == "/opt/agent"
    assert words(tmp_path, AgentCall("command", ("agent",)))[0] == "agent"


@pytest.mark.parametrize(
    ("agent", "environment", "paths"),
    [
        ("claude", {}, {"/home/ada/.claude", "/home/ada/.claude.json"}),
        ("claude", {"CLAUDE_CONFIG_DIR": "/c"}, {"/c", "/home/ada/.claude.json"}),
        ("codex", {}, {"/home/ada/.codex"}),
        ("codex", {"CODEX_HOME": "/x"}, {"/x"}),
        ("gemini", {}, {"/home/ada/.gemini"}),
    ],
)
def test_agent_may_write_its_own_state_and_reach_its_service(
    tmp_path: Path, agent: Any, environment: dict[str, str], paths: set[str]
) -> None:
    executor = AgentExecutor(AgentCall(agent))
    launch = executor.launch(order(tmp_path, **environment))
    assert paths <= set(launch.write)
    assert all(path.startswith("/") for path in launch.write)
    assert launch.network
    assert launch.separate_output
    assert executor.wall_s == agent_wall_s


def test_agent_without_a_home_has_no_relative_state(tmp_path: Path) -> None:
    assert AgentExecutor(AgentCall("gemini")).launch(order(tmp_path, HOME="")).write == ()


# Installed


@pytest.mark.parametrize(
    ("call", "fix"),
    [
        (AgentCall("claude"), "npm install -g @anthropic-ai/claude-code"),
        (AgentCall("codex"), "npm install -g @openai/codex"),
        (AgentCall("gemini"), "npm install -g @google/gemini-cli"),
        (AgentCall("command", ("no-such-agent",)), "Correct the command of the agent"),
        (AgentCall("command", ("./no-such-agent",)), "Correct the command of the agent"),
    ],
)
def test_agent_that_is_not_installed_is_told_with_what_to_install(
    tmp_path: Path, call: AgentCall, fix: str
) -> None:
    node = Node("n", "n", Spec(env={"PATH": str(tmp_path)}))
    with pytest.raises(NotFoundError) as caught:
        AgentExecutor(call).require_installed(node, str(tmp_path))
    assert caught.value.code == "executor_missing"
    assert fix in caught.value.fix


def test_script_that_is_not_executable_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("#!/bin/sh\n")
    (tmp_path / "own").chmod(0o644)
    executor, node = AgentExecutor(AgentCall("command", ("./own",))), Node("n", "n", Spec())
    with pytest.raises(NotFoundError) as caught:
        executor.require_installed(node, str(tmp_path))
    assert caught.value.code == "executor_missing"
    assert f"'{tmp_path}/own' is not executable" in caught.value.message
    assert f"chmod +x {tmp_path}/own" in caught.value.fix


def test_agent_that_is_installed_passes(tmp_path: Path) -> None:
    node = Node("n", "n", Spec(env={"PATH": str(tmp_path)}))
    for name in ("claude", "own"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    AgentExecutor(AgentCall("claude")).require_installed(node, str(tmp_path))
    AgentExecutor(AgentCall("command", ("./own",))).require_installed(node, str(tmp_path))
    AgentExecutor(AgentCall("command", ("{scope}/made",))).require_installed(node, str(tmp_path))


# How the end is read


@pytest.mark.parametrize(
    ("agent", "output", "usage"),
    [
        ("claude", "claude.json", Usage(2.5, None, 360, 0.0024, "claude-opus-5-5")),
        ("claude", "claude-stream.jsonl", Usage(2.5, None, 360, 0.0024, "claude-opus-5-5")),
        ("codex", "codex.jsonl", Usage(2.5, 2, 360, None, "")),
        ("gemini", "gemini.json", Usage(2.5, 2, 360, None, "scripted")),
    ],
)
def test_what_an_agent_used_is_read_from_its_result(
    tmp_path: Path, agent: Any, output: str, usage: Usage
) -> None:
    report = end(tmp_path, agent, output)
    assert report.claims
    assert report.usage is not None
    assert report.usage.cost_usd == pytest.approx(usage.cost_usd)
    assert report.usage.__replace__(cost_usd=usage.cost_usd) == usage


def test_model_that_the_agent_does_not_name_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    report = end(tmp_path, "codex", "codex.jsonl", model="big-1")
    assert report.usage is not None
    assert report.usage.model == "big-1"


@pytest.mark.parametrize(
    ("agent", "output", "code", "wall"),
    [
        ("claude", "claude-not-logged-in.json", 1, ("permanent-resource", "credentials")),
        ("claude", "claude-credit.json", 1, ("transient-environment", "quota")),
        ("codex", "codex-credentials.jsonl", 1, ("permanent-resource", "credentials")),
        ("gemini", b"", 41, ("permanent-resource", "credentials")),
        ("claude", "claude-network.json", 1, ("transient-environment", "network")),
        ("codex", "codex-no-key.jsonl", 1, ("permanent-resource", "credentials")),
    ],
)
def test_wall_of_the_environment_is_named(
    tmp_path: Path, agent: Any, output: str | bytes, code: int, wall: tuple[str, str]
) -> None:
    report = end(tmp_path, agent, output, code)
    assert not report.claims
    assert report.failure is not None
    assert (report.failure[0], report.cause) == wall


@pytest.mark.parametrize(
    ("log", "code", "wall"),
    [
        ("gemini-credentials.log", 145, ("permanent-resource", "credentials")),
        ("gemini-network.log", 1, ("transient-environment", "network")),
    ],
)
def test_failure_of_gemini_is_read_from_its_log(
    tmp_path: Path, log: str, code: int, wall: tuple[str, str]
) -> None:
    tail = (OUTPUTS / log).read_text()[-2_000:]
    report = end(tmp_path, "gemini", b"", code, log_tail=tail)
    assert report.failure is not None
    assert (report.failure[0], report.cause) == wall


@pytest.mark.parametrize(
    ("agent", "output", "code", "failure"),
    [
        ("claude", "claude-turns.json", 1, ("transient-agent", "turn limit")),
        ("claude", "claude-budget.json", 1, ("transient-agent", "budget spent: max_cost_usd")),
        ("claude", b'{"type": "result", "is_error": true}', 0,
         ("transient-agent", "claude says that it failed")),
        ("claude", b"", 1, ("transient-agent", "exit 1")),
        ("gemini", b"", 42, ("permanent-spec", "exit 42 (bad arguments)")),
        ("gemini", b"", 53, ("transient-agent", "exit 53 (turn limit)")),
        ("codex", b'{"type": "turn.failed", "error": {"message": "no"}}', 0,
         ("transient-agent", "codex says that it failed")),
        ("command", b"", 3, ("transient-agent", "exit 3")),
        ("command", b"", 78, ("permanent-spec", "exit 78")),
    ],
)  # fmt: skip
def test_other_failures_have_their_class(
    tmp_path: Path, agent: Any, output: str | bytes, code: int, failure: tuple[str, str]
) -> None:
    report = end(tmp_path, agent, output, code)
    assert not report.claims
    assert report.failure == failure


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
@pytest.mark.parametrize(
    "output",
    [b"", b"all good, boss", b"\xff\xfe{", b'{"type": ', b"[1, 2]", b'"text"', b"[" * 100_000,
     b'{"type": "result"', b'{"usage": {"input_tokens": "many"}}'],
)  # fmt: skip
def test_garbage_with_exit_0_is_told_and_stays_a_claim(
    tmp_path: Path, agent: Any, output: bytes
) -> None:
    report = end(tmp_path, agent, output)
    assert report.claims
    assert "no result that can be read" in report.notice
    assert report.usage == Usage(2.5)


@pytest.mark.parametrize(
    ("agent", "output"),
    [
        ("claude", b'{"type": "result", "total_cost_usd": "much", "modelUsage": 5}'),
        ("claude", b'{"type": "result", "usage": [], "permission_denials": {}}'),
        ("claude", b'{"type": "result", "total_cost_usd": NaN}'),
        ("claude", b'{"type": "result", "total_cost_usd": -1, "usage": {"input_tokens": true}}'),
        ("codex", b'{"type": "turn.completed", "usage": {"input_tokens": -5}}'),
        ("codex", b'{"type": "item.completed", "item": null}\n{"type": "turn.completed"}'),
        ("gemini", b'{"response": "x", "stats": {"models": {"m": 1}, "tools": []}}'),
    ],
)  # fmt: skip
def test_numbers_that_are_none_are_not_made_up(tmp_path: Path, agent: Any, output: bytes) -> None:
    report = end(tmp_path, agent, output)
    assert report.claims
    assert report.usage is not None
    assert (report.usage.tokens, report.usage.cost_usd) == (None, None)


def test_warning_before_the_result_does_no_harm(tmp_path: Path) -> None:
    output = b"warning: old settings\n" + (OUTPUTS / "claude.json").read_bytes()
    report = end(tmp_path, "claude", output)
    assert report.usage is not None
    assert (report.usage.tokens, report.notice) == (360, "")


def test_permissions_that_were_denied_are_told(tmp_path: Path) -> None:
    report = end(tmp_path, "claude", "claude-denied.json")
    assert report.claims
    assert report.notice == "it was not allowed to use Write (1 calls)"


def test_output_that_is_not_there_is_no_failure_of_ours(tmp_path: Path) -> None:
    executor = AgentExecutor(AgentCall("claude"))
    report = executor.read_end(order(tmp_path), Ended("exited", 0))
    assert report.claims
    assert report.notice


def test_agent_that_tried_until_its_time_limit_names_the_wall(tmp_path: Path) -> None:
    output = b'{"type": "error", "message": "Reconnecting... 5/5 (429 Too Many Requests)"}\n'
    report = end(tmp_path, "codex", output, None, how="timed_out", limit_s=60.0)
    assert report.cause == "rate_limit"
    assert report.failure == ("transient-environment", "timed out after 60 s (rate limit)")
    away = b"Reconnecting... waiting for network (Connection failed: error sending request)"
    output = b'{"type": "error", "message": "' + away + b'"}\n'
    report = end(tmp_path, "codex", output * 9, None, how="timed_out", limit_s=60.0)
    assert report.failure == ("transient-environment", "timed out after 60 s (network)")
    silent = end(tmp_path, "codex", b"", None, how="timed_out", limit_s=60.0)
    assert silent.failure == ("transient-agent", "timed out after 60 s")


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "command"])
def test_agent_that_was_killed_is_read_as_any_command_is(tmp_path: Path, agent: Any) -> None:
    report = end(tmp_path, agent, b"", None, signal=9)
    assert report.failure == ("transient-agent", "signal 9")
    stopped = end(tmp_path, agent, b"", None, how="stopped", reason="recalled")
    assert stopped.failure == ("transient-agent", "stopped: recalled")
