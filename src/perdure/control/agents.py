"""Coding agents without a window: the command line of each, and how its end is read.

Job: start Claude Code, Codex, Gemini CLI or a program of the user's with the one line that names
its contract, and report how it ended. Invariants: the agent gets that line and nothing else of the
task, so everything else is in the contract; what it says is a claim; what it prints is parsed for
what it used and for its own account of a failure, and output that cannot be read is told and never
taken for either; each has a time limit, since some try for ever when their service is away.
Never: starts a process, holds a credential, or reads what the agent said to its model.
"""

import os
import re
import shutil
from collections.abc import Callable, Mapping
from shlex import quote
from typing import Final, NamedTuple

import msgspec

from perdure.control.agent_output import READERS, Said
from perdure.control.confinement import capability
from perdure.control.executor_port import Launch, Order, Report, report_of_exit
from perdure.control.outcome import Ended, seconds_text
from perdure.core.actions import AGENT_PLACEHOLDERS, AgentCall
from perdure.core.budget import budget_of
from perdure.core.diagnosis import diagnose
from perdure.core.dispatching import Usage
from perdure.core.model import FailureClass, Node
from perdure.errors import NotFoundError

agent_wall_s: Final = 4 * 3_600.0
"""The time limit of an agent whose node has none in its budget."""
output_bytes_max: Final = 32 << 20
"""Of an agent's output, from its end, that is read."""


class _Kind(NamedTuple):
    """One agent whose command line is known."""

    program: str
    package: str
    words: Callable[["AgentExecutor", Order], tuple[str, ...]]
    state: tuple[str, ...]
    """Where it keeps its own files, in the home directory."""
    home_variable: str = ""
    """Names the directory that takes the place of the first of these."""
    environment: Mapping[str, str] = {}


class AgentExecutor:
    """The executor of one agent, whether for a node, a shard or an audit."""

    kind = "agent"
    wall_s: float | None = agent_wall_s

    def __init__(self, call: AgentCall) -> None:
        self.call = call

    def require_installed(self, node: Node, order_directory: str) -> None:
        """Raise NotFoundError ``executor_missing`` unless its program is there.

        A program that is named by a relative path lies beside the task file. One that holds a
        placeholder is known when it is started.
        """
        program, fix = self._program(order_directory), "Correct the command of the agent"
        if "{" in program:
            return
        if self.call.agent != "command":
            fix = f"Install it: npm install -g {_KINDS[self.call.agent].package}"
        if shutil.which(program, path=node.spec.env.get("PATH")) is None:
            what = f"there is no program {program!r}"
            if os.path.isfile(program) and "/" in program:
                what, fix = f"{program!r} is not executable", f"Run chmod +x {quote(program)}"
            raise NotFoundError(
                f"the agent of {node.node_id} cannot be started: {what}.",
                code="executor_missing",
                rule="FR-1",
                fix=f"{fix} (nothing was started)",
            )

    def launch(self, order: Order) -> Launch:
        """The agent's own command line with the message as its prompt."""
        call = self.call
        if call.agent == "command":
            return Launch(self._template(order), network=True)
        kind = _KINDS[call.agent]
        return Launch(
            kind.words(self, order),
            environment=kind.environment,
            separate_output=True,
            write=_state_paths(kind, order.environment),
            network=True,
        )

    def read_end(self, order: Order, ended: Ended) -> Report:
        """Exit code 0 without a failure of its own account is a claim; all else is a failure."""
        if self.call.agent == "command":
            usage = Usage(wall_s=ended.wall_s, model=self.call.model)
            return report_of_exit(ended)._replace(usage=usage)
        output, cut = _read_tail(order.output)
        said = READERS[self.call.agent](output, ended.log_tail)
        usage = msgspec.structs.replace(
            said.usage, wall_s=ended.wall_s, model=said.usage.model or self.call.model
        )
        if ended.how == "exited" and ended.exit_code == 0 and not said.failed:
            return Report(True, usage=usage, notice=self._notice(said, cut))
        return self._failure(said, ended, usage)

    def _notice(self, said: Said, cut: bool) -> str:
        if said.readable:
            return said.notice
        what = "more output than is read" if cut else "no result that can be read"
        return f"{self.call.agent} ended well and printed {what}: what it used is not known"

    def _failure(self, said: Said, ended: Ended, usage: Usage) -> Report:
        """The class by what the agent says of itself, then by what is known of its exit code."""
        diagnosis = diagnose(said.error or ended.log_tail, ended.exit_code, now=ended.ended_at)
        at_limit = ended.how == "timed_out" and diagnosis.cause
        if not at_limit and (ended.how != "exited" or ended.signal is not None):
            return report_of_exit(ended)._replace(usage=usage)
        failure: tuple[FailureClass, str] = (diagnosis.failure_class, diagnosis.signature)
        if at_limit:
            limit = seconds_text(ended.limit_s or ended.wall_s)
            seen = diagnosis.cause.replace("_", " ")
            failure = (diagnosis.failure_class, f"timed out after {limit} ({seen})")
        elif said.kind in _FAILURES:
            return Report(False, _FAILURES[said.kind], usage=usage, notice=said.notice)
        elif not diagnosis.cause:
            failure = self._known(ended) or failure
        return Report(
            False,
            failure,
            diagnosis.cause,
            usage,
            said.notice,
            retry_after_s=diagnosis.retry_after_s,
        )

    def _known(self, ended: Ended) -> tuple[FailureClass, str] | None:
        known = _EXITS.get(self.call.agent, {}).get(ended.exit_code or 0)
        if known is not None:
            return known[0], f"exit {ended.exit_code} ({known[1]})"
        if ended.exit_code == 0:
            return "transient-agent", f"{self.call.agent} says that it failed"
        return None

    def _template(self, order: Order) -> tuple[str, ...]:
        filled = {
            "{message}": order.message,
            "{contract}": order.contract,
            "{scope}": order.scope,
            "{workspace}": order.workspace,
            "{task_dir}": order.task_dir,
        }
        words = [self._program(order.task_dir), *self.call.command[1:]]
        if not any("{message}" in word for word in words):
            words.append("{message}")
        return tuple(_PLACEHOLDER.sub(lambda found: filled[found[0]], word) for word in words)

    def _program(self, task_dir: str) -> str:
        if self.call.agent != "command":
            return _KINDS[self.call.agent].program
        program = self.call.command[0]
        if "/" not in program or "{" in program:
            return program
        return os.path.normpath(os.path.join(task_dir, program))

    def has_any(self, *names: str) -> bool:
        """Whether the user's own arguments hold one of these options."""
        return any(word.partition("=")[0] in names for word in self.call.args)


def _claude(executor: AgentExecutor, order: Order) -> tuple[str, ...]:
    call, spend = executor.call, budget_of(order.node).max_cost_usd
    words = ["claude", "-p", order.message, "--output-format", "json"]
    if not executor.has_any(*_CLAUDE_PERMISSION):
        words += ["--permission-mode", "acceptEdits"]
    # The budget is that of an attempt at the node, and a batch node has many workers.
    if spend is not None and order.node.spec.map is None and not executor.has_any(_CLAUDE_SPEND):
        words += [_CLAUDE_SPEND, f"{spend:g}"]
    words += ["--model", call.model] if call.model else []
    return (*words, *call.args)


_CLAUDE_PERMISSION: Final = (
    "--permission-mode", "--dangerously-skip-permissions", "--permission-prompt-tool",
    "--restricted",
)  # fmt: skip
_CLAUDE_SPEND: Final = "--max-budget-usd"


def _codex(executor: AgentExecutor, order: Order) -> tuple[str, ...]:
    call = executor.call
    words = ["codex", "exec", "--json", "-o", _last_message(order), "--skip-git-repo-check"]
    if not executor.has_any(*_CODEX_SANDBOX):
        # Its own sandbox cannot be set up inside ours, which holds it to its contract already.
        confined = capability().writes
        words += ["--sandbox", "danger-full-access" if confined else "workspace-write"]
    words += ["--model", call.model] if call.model else []
    return (*words, *call.args, "--", order.message)


_CODEX_SANDBOX: Final = (
    "--sandbox", "-s", "--dangerously-bypass-approvals-and-sandbox", "--approve-for-me",
)  # fmt: skip


def _last_message(order: Order) -> str:
    """Where Codex leaves the last thing that its model said, for people."""
    return f"{order.output.removesuffix('.out')}.last.txt"


def _gemini(executor: AgentExecutor, order: Order) -> tuple[str, ...]:
    call = executor.call
    words = ["gemini", "-p", order.message, "-o", "json", "--skip-trust"]
    if not executor.has_any("--approval-mode", "-y", "--yolo"):
        words += ["--approval-mode", "auto_edit"]
    words += ["-m", call.model] if call.model else []
    return (*words, *call.args)


_KINDS: Final[Mapping[str, _Kind]] = {
    "claude": _Kind(
        "claude",
        "@anthropic-ai/claude-code",
        _claude,
        (".claude", ".claude.json", ".cache/claude-cli-nodejs"),
        "CLAUDE_CONFIG_DIR",
        {"DISABLE_AUTOUPDATER": "1"},
    ),
    "codex": _Kind("codex", "@openai/codex", _codex, (".codex",), "CODEX_HOME"),
    "gemini": _Kind("gemini", "@google/gemini-cli", _gemini, (".gemini",)),
}

_FAILURES: Final[Mapping[str, tuple[FailureClass, str]]] = {
    "error_max_turns": ("transient-agent", "turn limit"),
    "error_max_budget_usd": ("transient-agent", "budget spent: max_cost_usd"),
}
"""By the agent's own word for a failure that its text need not explain."""

_EXITS: Final[Mapping[str, Mapping[int, tuple[FailureClass, str]]]] = {
    "gemini": {
        42: ("permanent-spec", "bad arguments"),
        44: ("permanent-resource", "its sandbox cannot start"),
        52: ("permanent-resource", "bad configuration"),
        53: ("transient-agent", "turn limit"),
        55: ("permanent-resource", "the directory is not trusted"),
    },
}

_PLACEHOLDER: Final = re.compile(rf"\{{(?:{'|'.join(AGENT_PLACEHOLDERS)})\}}")


def _state_paths(kind: _Kind, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Absolute paths of the agent's own files."""
    home = environment.get("HOME", "")
    paths = [os.path.join(home, name) for name in kind.state] if home else []
    if moved := environment.get(kind.home_variable):
        paths = [moved, *paths[1:]]
    return tuple(path for path in paths if os.path.isabs(path))


def _read_tail(path: str) -> tuple[bytes, bool]:
    """The output from its end, and whether it was longer; nothing when it cannot be read."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - output_bytes_max))
            return file.read(output_bytes_max), size > output_bytes_max
    except OSError:
        return b"", False
