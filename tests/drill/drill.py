"""The fault drill: workers that die, lie and stall, and a coordinator that is killed over and over.

One batch of units, dealt out in shards to real processes (``worker.py``), under a coordinator that
gets SIGKILL at moments drawn from the seed, or is stopped, interrupted or met by a second one,
while people redirect what it does. At the end everything that was promised is looked up:
in the findings, in the journal, in what the workers themselves say they did, and among the
processes of the machine. The same seed draws the same moments; what the machine makes of them is
its own.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from tests.drill.modes import Modes

PERDURE = (sys.executable, "-m", "perdure")
WORKER = Path(__file__).with_name("worker.py")
runs_most = 400
"""Starts of the coordinator before the drill gives up."""
last_kill_after_events = 12
REFUSED_BUSY = 5
UNTIMELY = (3, 11)
"""There is no task yet, or it is finished: the coordinator is not where its output is read."""

TASK = """
task_id: drill
goal: every unit exactly once, whatever happens
grants: ['write:$TASK/truth', 'write:$TASK/truth.arrivals']
policies: {{heartbeat_s: 60s}}
nodes:
  - id: batch
    title: units dealt out in shards
    map:
      items: units.txt
      run: ["{python}", "{worker}"]
      shard: {shard}
      max_attempts: 1000
      timeout: {hang_s}
    env: {{DRILL_SEED: "{seed}", DRILL_PERIOD: "{period}", DRILL_TRUTH: "{truth}"}}
    retry: 1000
"""

EXPECTED = {
    "killed": {"killed"},
    "half": {"killed"},
    "hang": {"timed_out"},
    "silent": {"silent"},
    "late": {"silent", "landed"},
    "environment": {"failed"},
    "failed": {"failed"},
    "outside": {"landed"},
    "leftover": {"landed"},
    "calm": {"landed"},
}
"""Which end of its slot each behaviour comes to, where its coordinator lived to see it."""
UNSEEN = {"abandoned", "recalled"}
"""Ends of slots whose coordinator died or stopped them: nobody saw how they would have ended."""
ENDS_OF_RUNS = ("killed", "killed", "killed", "terminated", "stopped", "met")
PEOPLE = (
    (),
    ("steer", "change: look twice", "--node", "batch"),
    ("steer", "note: somebody is watching"),
    ("resume",),
    ("policy", "heartbeat_s=61", "--reason", "a try"),
)
"""What somebody does in the middle of a run; ``resume`` is for somebody who thinks it is dead."""


class Size(NamedTuple):
    """How big a drill is."""

    units: int
    shard: int
    slots: int
    kills: int
    hang_s: float = 2.0
    period: int = 48
    """From storm to calm and back to storm, in workers that were sent."""


class Found(NamedTuple):
    """What the drill came to."""

    faults: list[str]
    ends: Counter[str]
    behaviours: Counter[str]
    modes: list[str]
    runs: int

    def __str__(self) -> str:
        return (
            f"{self.runs} coordinators, workers {dict(self.behaviours)}, ends {dict(self.ends)},"
            f" modes {' '.join(self.modes) or 'A throughout'}"
        )


def drill(directory: Path, seed: int, size: Size) -> Found:
    """Run one drill in an empty directory and look up what came of it."""
    units = [f"u-{number}" for number in range(1, size.units + 1)]
    (directory / "units.txt").write_text("".join(f"{unit}\n" for unit in units))
    truth = directory / "truth"
    for path in (truth, directory / "truth.arrivals"):
        path.touch()
    text = TASK.format(
        python=sys.executable,
        worker=WORKER,
        shard=size.shard,
        seed=seed,
        period=size.period,
        truth=truth,
        hang_s=f"{size.hang_s}s",
    )
    (directory / "task.yaml").write_text(text)
    runs = run_through(directory, random.Random(seed), size)
    workspace = directory / ".perdure" / "tasks" / "drill"
    events = [json.loads(line) for line in (workspace / "journal.jsonl").read_text().splitlines()]
    told = [json.loads(line) for line in truth.read_text().splitlines()]
    behaviours = {one["invocation"]: one["behaviour"] for one in told if "invocation" in one}
    modes = Modes()
    modes.read(events)
    faults = [
        *missing_or_twice(workspace, units),
        *misjudged(events, behaviours),
        *modes.faults,
        *outside(workspace, told),
        *still_running(directory),
        *failed_in_audit(workspace),
    ]
    ends = Counter(event["payload"]["end"] for event in closings(events))
    return Found(faults, ends, Counter(behaviours.values()), modes.entered, runs)


def run_through(directory: Path, dice: random.Random, size: Size) -> int:
    """Start the coordinator until it finishes, killing it so many times; how often it started."""
    for number in range(1, runs_most + 1):
        child = subprocess.Popen(
            [*PERDURE, "--json", "run", "task.yaml", "--jobs", str(size.slots)],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert child.stdout is not None
        last = ""
        doomed = dice.randrange(1, last_kill_after_events) if number <= size.kills else 0
        how, words = dice.choice(ENDS_OF_RUNS), dice.choice(PEOPLE)
        for count, line in enumerate(child.stdout, 1):
            last = line
            if count == max(1, doomed // 2) and doomed and words:
                interfere(directory, words)
            if count == doomed and end(child, how, directory):
                how, doomed = "killed", count + dice.randrange(1, last_kill_after_events)
        child.stdout.close()
        code = child.wait()
        # One that has reported its end does not listen to signals any more.
        too_late = code == -signal.SIGTERM and '"outcome":"finished"' in last
        if code == 0 or too_late:
            return number
        expected = (1, -signal.SIGKILL, 128 + signal.SIGTERM)
        assert code in expected, f"run {number} ended with {code}: {last}"
    raise AssertionError(f"not finished after {runs_most} runs; the last said {last}")


def interfere(directory: Path, words: Iterable[str]) -> None:
    """What a person types meanwhile: carried out, or refused because somebody coordinates."""
    done = subprocess.run(
        [*PERDURE, *words], cwd=directory, capture_output=True, text=True, check=False
    )
    told = done.stdout + done.stderr
    assert done.returncode in (0, REFUSED_BUSY, *UNTIMELY), f"{words}: {done.returncode} {told}"


def end(child: "subprocess.Popen[str]", how: str, directory: Path) -> bool:
    """End a coordinator, or let it meet another one, which is refused; whether it goes on."""
    if how == "terminated":
        child.terminate()
        return False
    if how in ("stopped", "met"):
        child.send_signal(signal.SIGSTOP)
        other = [*PERDURE, "run", "task.yaml"]
        done = subprocess.run(other, cwd=directory, capture_output=True, text=True, check=False)
        told = done.stdout + done.stderr
        if "finished:" not in told:  # the first was through with it when it was stopped
            assert done.returncode == REFUSED_BUSY, f"a second one: {done.returncode} {told}"
        if how == "met":
            child.send_signal(signal.SIGCONT)
            return True
    child.kill()
    return False


def missing_or_twice(workspace: Path, units: Iterable[str]) -> list[str]:
    """Every unit has exactly one finding, with the value that it has to have."""
    lines = (workspace / "artifacts" / "batch" / "findings.jsonl").read_text().splitlines()
    findings = [json.loads(line) for line in lines]
    counts = Counter(finding["_key"] for finding in findings)
    faults = [f"{unit} has {counts[unit]} findings" for unit in units if counts[unit] != 1]
    faults += [
        f"{finding['_key']} has the value {finding['value']}"
        for finding in findings
        if finding["value"] != int(finding["_key"].rpartition("-")[2]) ** 2
    ]
    return faults


def closings(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events that close a slot."""
    return [event for event in events if event["payload"].get("op") == "slot_closed"]


def misjudged(events: list[dict[str, Any]], behaviours: dict[str, str]) -> list[str]:
    """Every slot was recorded before its worker came, closed once, and judged for what it was."""
    opened = Counter(e["entity"]["id"] for e in events if e["payload"].get("op") == "slot")
    closed = Counter(event["entity"]["id"] for event in closings(events))
    faults = [f"{name} worked and was never recorded" for name in behaviours if not opened[name]]
    faults += [f"{name} was opened {count} times" for name, count in opened.items() if count != 1]
    faults += [f"{name} was closed {closed[name]} times" for name in opened if closed[name] != 1]
    for event in closings(events):
        name, end = event["entity"]["id"], event["payload"]["end"]
        did = behaviours.get(name)
        if end in UNSEEN or (did is None and end in ("killed", "failed", "timed_out")):
            continue
        if end == "landed" and not event["payload"].get("left"):
            continue  # whatever became of the worker, all its units are there
        if did is None or end not in EXPECTED[did]:
            faults.append(f"{name} did {did!r} and was judged {end!r}")
        if did == "environment" and event["payload"].get("cause") != "rate_limit":
            faults.append(f"{name} met a rate limit, and that is not on record")
    return faults


def failed_in_audit(workspace: Path) -> list[str]:
    """What an audit of the whole task says is not as it has to be."""
    command = [sys.executable, "-m", "perdure", "-C", str(workspace), "audit", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    items = json.loads(done.stdout)["data"]["items"]
    return [
        f"{item['item']} of the audit: {result['ref']} {result.get('note', '')}"
        for item in items
        for result in item.get("results", ())
        if not result["ok"]
    ]


def outside(workspace: Path, told: list[dict[str, Any]]) -> list[str]:
    """What workers tried to write outside their scope was refused."""
    faults = []
    for one in told:
        faults += [
            f"a worker could write {name}"
            for name, answer in one.get("outside", {}).items()
            if answer == "opened"
        ]
    if (workspace / "stray").exists():
        faults.append("there is a stray file in the workspace")
    return faults


def still_running(directory: Path) -> list[str]:
    """Nothing that any worker started is left on the machine."""
    mark = str(directory / "truth")
    faults = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DRILL_TRUTH") == mark:
                faults.append(f"{process.name()} ({process.pid}) is still running")
        except (psutil.Error, OSError):
            continue
    return faults


def main() -> int:
    """``python -m tests.drill.drill SEED DIRECTORY``: one full drill, and what came of it."""
    seed, directory = int(sys.argv[1]), Path(sys.argv[2])
    directory.mkdir(parents=True)
    found = drill(directory, seed, Size(units=1_000, shard=5, slots=40, kills=10))
    print(f"seed {seed}: {found}")
    for fault in found.faults:
        print(f"  {fault}")
    return bool(found.faults)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    sys.exit(main())
