"""The real agents, from npm, carry out nodes against a model API on loopback.

``make clients`` runs these; nothing else does, because the packages are large. Without npm or its
registry they are skipped and say why.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.model_api import ModelApi

pytestmark = pytest.mark.clients

PACKAGES = {
    "claude": "@anthropic-ai/claude-code@2.1.332",
    "codex": "@openai/codex@0.171.0",
    "gemini": "@google/gemini-cli@0.61.0",
}
install_s = 900
step_s = 120
"""No limit on speed: how long a test waits for something that must come."""

NODE = """\
task_id: t
nodes:
  - id: a
    goal: Write the word KINGFISHER into the output file.
    agent: {agent}
    outputs: [artifacts/a/word.txt]
    accept: ["matches: artifacts/a/word.txt ^KINGFISHER"]
"""
SHARDS = """\
task_id: t
nodes:
  - id: a
    goal: For each unit write how many letters its key has.
    map:
      list: [harbour, mast, anchor, keel, oar]
      shard: 3
      agent: {agent}
      schema: {{type: object, required: [length]}}
"""
CODEX = """\
model = "scripted"
model_provider = "loop"
[model_providers.loop]
name = "loop"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
request_max_retries = 0
stream_max_retries = 0
"""
GEMINI = {"security": {"auth": {"selectedType": "gemini-api-key"}}}


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the installed programs."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed, so the real agents cannot be")
    prefix = tmp_path_factory.mktemp("clients")
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(prefix)]
    quiet += ["--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    install(npm, "install", *quiet, *PACKAGES.values())
    # The one script that is needed: it puts the program of this platform in its place.
    install("node", str(prefix / "node_modules/@anthropic-ai/claude-code/install.cjs"))
    return prefix / "node_modules" / ".bin"


def install(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=install_s, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if " error " in line]
        pytest.skip(f"the agents could not be installed: {'; '.join(lines[:3])[:300]}")


class Project:
    """A task for one agent, with a throw-away home and a model API."""

    def __init__(self, directory: Path, programs: Path, agent: str, api: ModelApi) -> None:
        self.directory = directory
        self.workspace = directory / "w"
        self.agent = agent
        self.api = api
        home = directory / "home"
        for name in PACKAGES:
            (home / f".{name}").mkdir(parents=True)
        (home / ".codex/config.toml").write_text(CODEX.format(url=api.url))
        (home / ".gemini/settings.json").write_text(json.dumps(GEMINI))
        self.write(NODE)
        python = os.path.dirname(sys.executable)
        self.environment = {
            "HOME": str(home),
            "PATH": f"{programs}:{python}:/usr/bin:/bin",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "no-key",
            "OPENAI_API_KEY": "no-key",
            "GOOGLE_GEMINI_BASE_URL": api.url,
            "GEMINI_API_KEY": "no-key",
        }
        if "PYTHONPATH" in os.environ:
            self.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]

    def write(self, task: str) -> None:
        # Without a model Gemini CLI asks one which model to ask.
        gemini = "{agent: gemini, model: gemini-2.5-pro}"
        call = gemini if self.agent == "gemini" else self.agent
        (self.directory / "task.yaml").write_text(task.format(agent=call))

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "perdure", "-C", str(self.workspace), "run", "task.yaml"],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self) -> tuple[int, str]:
        with self.start() as child:
            try:
                out, _ = child.communicate(timeout=step_s)
            finally:
                child.kill()
        return child.returncode, out

    def moves(self, edge: str) -> list[dict[str, Any]]:
        lines = (self.workspace / "journal.jsonl").read_text().splitlines()
        payloads = [json.loads(line).get("payload", {}) for line in lines]
        return [payload for payload in payloads if payload.get("edge") == edge]

    def word(self) -> str:
        return (self.workspace / "artifacts/a/word.txt").read_text()

    def logs(self) -> str:
        found = sorted((self.workspace / "tmp/logs/a").glob("*"))
        return "".join(f"\n== {path.name}\n{path.read_text()[-3_000:]}" for path in found)


@pytest.fixture(params=list(PACKAGES))
def project(request: pytest.FixtureRequest, tmp_path: Path, programs: Path) -> Iterator[Project]:
    with ModelApi(str(tmp_path / "w")) as api:
        yield Project(tmp_path, programs, request.param, api)


def test_agent_reads_the_contract_and_writes_the_file(project: Project) -> None:
    code, out = project.run()
    assert code == 0, out + project.logs()
    assert project.word().strip() == "KINGFISHER"
    [claim] = project.moves("N03")
    usage = claim["usage"]
    assert usage["tokens"] == 360
    assert usage["wall_s"] > 0
    assert usage.get("tool_calls") == (None if project.agent == "claude" else 2)
    assert (usage.get("cost_usd", 0.0) > 0) == (project.agent == "claude")


def test_killed_run_goes_on_and_leaves_no_agent_behind(project: Project) -> None:
    project.api.hang_at = 1
    with project.start() as child:
        came_back = project.api.hung.wait(step_s)
        child.send_signal(signal.SIGKILL)
    assert came_back, "the agent never came back with the contract"
    [first] = project.moves("N02")
    code, out = project.run()
    assert code == 0, out + project.logs()
    assert project.word().strip() == "KINGFISHER"
    assert len(project.moves("N03")) == 1
    assert processes_with(str(first["invocation"])) == []


def test_shards_of_a_batch_node_are_worked_on(project: Project) -> None:
    project.write(SHARDS)
    code, out = project.run()
    assert code == 0, out + project.logs()
    log = (project.workspace / "artifacts/a/findings.jsonl").read_text()
    found = {one["_key"]: one["length"] for one in map(json.loads, log.splitlines())}
    assert found == {"harbour": 7, "mast": 4, "anchor": 6, "keel": 4, "oar": 3}


def test_missing_credentials_become_a_question(project: Project) -> None:
    if project.agent == "claude":  # it tries for minutes when the service refuses its key
        del project.environment["ANTHROPIC_API_KEY"]
    project.api.status = 401
    project.api.error = '{"error": {"code": 401, "message": "API key not valid."}}'
    code, out = project.run()
    assert code == 10, out + project.logs()
    assert "no valid credentials" in out, out + project.logs()
    assert project.moves("N03") == []


def processes_with(invocation: str) -> list[int]:
    """Living processes whose environment names this invocation."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if invocation.encode() in environment:
            found.append(int(entry.name))
    return found
